//! The places of files: a bounded table of the names that files were seen with last, since records
//! such as `CLOSE` tell the FID alone.

use std::collections::{HashMap, HashSet};

use super::fid::{Fid, FidHash};

/// A name of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FidLink {
    /// The directory.
    pub parent: Fid,
    /// The name in it.
    pub name: Box<[u8]>,
}

impl FidLink {
    /// The link with this name.
    pub fn new(parent: Fid, name: &[u8]) -> Self {
        Self {
            parent,
            name: name.into(),
        }
    }

    pub(crate) fn is(&self, parent: Fid, name: &[u8]) -> bool {
        self.parent == parent && *self.name == *name
    }
}

/// The links of files, by FID. It has two halves; when the younger one is full, the older one is
/// forgotten, so that what is used stays.
#[derive(Debug)]
pub(crate) struct LinkTable {
    young: HashMap<Fid, Vec<FidLink>, FidHash>,
    old: HashMap<Fid, Vec<FidLink>, FidHash>,
    half_max: usize,
}

impl LinkTable {
    /// An empty table of at most `files_max` files.
    pub(crate) fn new(files_max: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            half_max: (files_max / 2).max(1),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// The known links of a file; none if it is unknown.
    pub(crate) fn get(&self, of: Fid) -> &[FidLink] {
        let links = self.young.get(&of).or_else(|| self.old.get(&of));
        links.map_or(&[], Vec::as_slice)
    }

    /// Takes a file out with its links.
    pub(crate) fn remove(&mut self, of: Fid) -> Vec<FidLink> {
        let links = self.young.remove(&of).or_else(|| self.old.remove(&of));
        links.unwrap_or_default()
    }

    /// Sets the links of a file; without links it becomes unknown.
    pub(crate) fn set(&mut self, of: Fid, links: Vec<FidLink>) {
        self.old.remove(&of);
        if links.is_empty() {
            self.young.remove(&of);
            return;
        }
        if self.young.len() >= self.half_max && !self.young.contains_key(&of) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(of, links);
    }

    /// Marks a file as used.
    pub(crate) fn touch(&mut self, of: Fid) {
        if let Some(links) = self.old.remove(&of) {
            self.set(of, links);
        }
    }

    /// Adds a link of a file, before those that are known.
    pub(crate) fn add(&mut self, of: Fid, link: FidLink, links_max: usize) {
        let mut links = self.remove(of);
        links.retain(|known| *known != link);
        links.insert(0, link);
        links.truncate(links_max);
        self.set(of, links);
    }
}

/// A bounded set of FIDs that are gone. When it is full, it is emptied: who asks again is told
/// again.
#[derive(Debug)]
pub(crate) struct GoneFids {
    fids: HashSet<Fid, FidHash>,
    fids_max: usize,
}

impl GoneFids {
    pub(crate) fn new(fids_max: usize) -> Self {
        Self {
            fids: HashSet::default(),
            fids_max,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.fids.clear();
    }

    pub(crate) fn has(&self, fid: Fid) -> bool {
        !self.fids.is_empty() && self.fids.contains(&fid)
    }

    pub(crate) fn insert(&mut self, fid: Fid) {
        if self.fids.len() >= self.fids_max {
            self.fids.clear();
        }
        self.fids.insert(fid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(n: u32) -> Fid {
        Fid::new(1, n, 0)
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let mut table = LinkTable::new(20);
        for n in 0..1_000 {
            table.add(fid(n), FidLink::new(fid(9), b"f"), 4);
            table.touch(fid(0));
            assert!(table.len() <= 20);
        }
        assert!(table.get(fid(0))[0].is(fid(9), b"f"));
        assert!(table.get(fid(1)).is_empty());
        assert_eq!(table.remove(fid(999)).len(), 1);
        assert!(table.get(fid(999)).is_empty());
    }

    #[test]
    fn links_of_a_file() {
        let mut table = LinkTable::new(20);
        for name in [b"a", b"b", b"a", b"c"] {
            table.add(fid(1), FidLink::new(fid(9), name), 2);
        }
        let names: Vec<&[u8]> = table.get(fid(1)).iter().map(|link| &*link.name).collect();
        assert_eq!(names, [b"c", b"a"]);
        table.set(fid(1), Vec::new());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn gone_fids_are_bounded() {
        let mut gone = GoneFids::new(3);
        for n in 0..4 {
            gone.insert(fid(n));
        }
        assert_eq!((gone.has(fid(0)), gone.has(fid(3))), (false, true));
    }
}
