//! The keys of a file system among the blocks of its user, and the versions of its entries.
//!
//! All is in datasets that begin with `fs/NAME/`: `fs/NAME/names` has an entry for each path, whose
//! name is the path of the directory, a zero byte and the name in it, so that a list with a prefix
//! is a directory; `fs/NAME/data/WRITER` has the blocks that one mount has written, by numbers.

use barograph_staging::{BlockKey, NAME_BYTES_MAX};
use fuser::Errno;

use crate::entry::{BlockRef, Kind};

/// Bytes of the longest name of a file system.
pub(crate) const VOLUME_BYTES_MAX: usize = 64;
/// Bytes of the longest name in a directory.
pub(crate) const COMPONENT_BYTES_MAX: usize = 255;
/// The two last bits of the version of an entry that was removed.
const REMOVED: u64 = 3;

/// The names of the datasets of a file system.
pub(crate) struct Datasets {
    pub(crate) names: String,
    pub(crate) data: String,
}

impl Datasets {
    /// The datasets of a file system; `None` if it cannot have this name.
    pub(crate) fn new(volume: &str) -> Option<Self> {
        let is_sized = (1..=VOLUME_BYTES_MAX).contains(&volume.len());
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
        (is_sized && volume.chars().all(is_plain)).then(|| Self {
            names: format!("fs/{volume}/names"),
            data: format!("fs/{volume}/data/"),
        })
    }

    /// The key of the entry of a path, which is not the root.
    pub(crate) fn entry(&self, path: &[u8]) -> Result<BlockKey, Errno> {
        let (parent, name) = split(path);
        let mut key = prefix(parent);
        key.extend(name);
        if key.len() > NAME_BYTES_MAX || name.len() > COMPONENT_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        BlockKey::named(&self.names, &key).map_err(|_| Errno::EINVAL)
    }

    /// The key of a block of a file.
    pub(crate) fn block(&self, block: BlockRef) -> Result<BlockKey, Errno> {
        let dataset = format!("{}{:032x}", self.data, block.writer);
        BlockKey::numbered(&dataset, block.number).map_err(|_| Errno::EINVAL)
    }

    /// The block of a file that a key names.
    pub(crate) fn block_of(&self, key: &BlockKey) -> Option<BlockRef> {
        let writer = key.dataset().strip_prefix(&*self.data)?;
        let writer = u128::from_str_radix(writer, 16).ok()?;
        match key.name() {
            barograph_staging::BlockName::Number(number) => Some(BlockRef {
                writer,
                number: *number,
            }),
            barograph_staging::BlockName::Bytes(_) => None,
        }
    }
}

/// The beginning of the names of the entries in a directory.
pub(crate) fn prefix(directory: &[u8]) -> Vec<u8> {
    [directory, b"\0"].concat()
}

/// The directory of a path, and the name in it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// The path of a name in a directory. The root is empty.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.is_empty() {
        true => name.to_vec(),
        false => [directory, b"/", name].concat(),
    }
}

/// What is in a place: an entry of a kind, or the trace of one that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Entry(Kind),
    Removed,
}

/// What an entry of this version is.
pub(crate) fn stored(version: u64) -> Stored {
    Kind::of_number(version & 3).map_or(Stored::Removed, Stored::Entry)
}

/// The version of what comes after the one that is there. Of two mounts that change the same
/// version, one is refused, since both give the next one.
pub(crate) fn next_version(base: u64, what: Stored) -> u64 {
    (base & !3).saturating_add(4) | bits(what)
}

/// The version of a new entry: the time, unless what was there is newer.
pub(crate) fn first_version(base: u64, now_ns: i64, what: Stored) -> u64 {
    let now = now_ns.max(0).unsigned_abs() & !3;
    now.max((base & !3).saturating_add(4)) | bits(what)
}

fn bits(what: Stored) -> u64 {
    match what {
        Stored::Entry(kind) => kind.number(),
        Stored::Removed => REMOVED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_keys_by_which_directories_are_listed() {
        let datasets = Datasets::new("home.1").unwrap();
        let name = |path: &[u8]| datasets.entry(path).map(|key| key.name().clone());
        let bytes = |name: &[u8]| Ok(barograph_staging::BlockName::Bytes(name.into()));
        assert_eq!(name(b"a"), bytes(b"\0a"));
        assert_eq!(name(b"a/b/c\xff"), bytes(b"a/b\0c\xff"));
        assert_eq!(name(&[b'n'; 256]), Err(Errno::ENAMETOOLONG));
        let deep = [b"d/".repeat(2_048), b"x".to_vec()].concat();
        assert_eq!(name(&deep), Err(Errno::ENAMETOOLONG));
        for wrong in ["", "a/b", "a b", &"n".repeat(65)] {
            assert!(Datasets::new(wrong).is_none(), "{wrong:?}");
        }
        let block = BlockRef {
            writer: 3,
            number: 9,
        };
        let key = datasets.block(block).unwrap();
        assert_eq!(datasets.block_of(&key), Some(block));
        assert_eq!(join(b"", b"x"), b"x");
        assert_eq!(join(b"a/b", b"x"), b"a/b/x");
        assert_eq!(split(b"a/b/x"), (&b"a/b"[..], &b"x"[..]));
    }

    #[test]
    fn versions_grow_and_say_what_they_are_of() {
        let file = Stored::Entry(Kind::File);
        let first = first_version(0, 1_001, file);
        assert_eq!((first, stored(first)), (1_000, file));
        let second = next_version(first, Stored::Removed);
        assert_eq!((second, stored(second)), (1_007, Stored::Removed));
        // The clock of another node is behind.
        let third = first_version(second, 5, Stored::Entry(Kind::Link));
        assert_eq!((third, stored(third)), (1_010, Stored::Entry(Kind::Link)));
    }
}
