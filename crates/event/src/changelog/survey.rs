//! The survey of a log before it is read: what a long backlog tells of the names that files had at
//! its beginning.
//!
//! After a start nothing is known of places, and the file system tells those of now. The first
//! record that takes a name from a file or directory tells that it had the name until then; without
//! such a record its name is that of now. The survey remembers this one name for each file that
//! loses one, so that it needs less memory than records that are read ahead.

use std::collections::HashMap;

use super::fid::{Fid, FidHash};
use super::places::FidLink;
use super::record::ChangelogRecord;
use super::record_type::RecordType;
use super::window::is_name;

/// The names that files lose first.
#[derive(Debug, Default)]
pub(crate) struct FirstNames {
    /// Each with the time of the record; `None` if other records make unclear which name was there
    /// at the beginning.
    names: HashMap<Fid, (i64, Option<FidLink>), FidHash>,
}

impl FirstNames {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Takes in a record. Records are those of one log, in its order.
    pub(crate) fn take(&mut self, record: &ChangelogRecord<'_>) {
        let time_ns = record.time_ns();
        let mut note = |fid: Fid, link: Option<(Fid, &[u8])>| {
            if !fid.is_none() && !self.names.contains_key(&fid) {
                let link = link.filter(|(_, name)| is_name(name));
                let link = link.map(|(parent, name)| FidLink::new(parent, name));
                self.names.insert(fid, (time_ns, link));
            }
        };
        let name = (record.parent, record.name);
        match record.record_type() {
            // A name that is removed later may be this one, which was not there before.
            Some(RecordType::HardLink) => note(record.target, None),
            Some(RecordType::Unlink | RecordType::Rmdir) => note(record.target, Some(name)),
            Some(of @ (RecordType::Rename | RecordType::Migrate)) => {
                if of == RecordType::Rename {
                    note(record.target, Some(name));
                }
                if let Some((source, parent)) = record.source {
                    note(source, Some((parent, record.old_name)));
                }
            }
            _ => {}
        }
    }

    /// Adds what the survey of another log has found.
    pub(crate) fn merge(&mut self, other: Self) {
        other.names.into_iter().for_each(|(fid, (time_ns, link))| {
            let known = self
                .names
                .entry(fid)
                .or_insert_with(|| (time_ns, link.clone()));
            if time_ns < known.0 {
                *known = (time_ns, link);
            }
        });
    }

    /// The name that a file has until it loses it.
    pub(crate) fn get(&self, fid: Fid) -> Option<&FidLink> {
        self.names.get(&fid)?.1.as_ref()
    }

    /// Forgets what is past once this record has been applied.
    pub(crate) fn pass(&mut self, record: &ChangelogRecord<'_>) {
        if self.names.is_empty() {
            return;
        }
        let time_ns = record.time_ns();
        let source = record.source.map_or(Fid::NONE, |(source, _)| source);
        for fid in [record.target, source] {
            if self.names.get(&fid).is_some_and(|(of, _)| *of <= time_ns) {
                self.names.remove(&fid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changelog::record::record_time;

    fn fid(object: u32) -> Fid {
        Fid::new(1, object, 0)
    }

    fn record(of: RecordType, ns: i64, target: u32, name: &[u8]) -> ChangelogRecord<'_> {
        ChangelogRecord {
            type_number: of as u32,
            time: record_time(ns),
            target: fid(target),
            parent: Fid::ROOT,
            name,
            ..ChangelogRecord::default()
        }
    }

    #[test]
    fn the_first_name_that_is_lost_counts() {
        let mut names = FirstNames::default();
        let moved = ChangelogRecord {
            source: Some((fid(2), Fid::ROOT)),
            old_name: b"old",
            ..record(RecordType::Rename, 5, 3, b"new")
        };
        let removed = record(RecordType::Unlink, 9, 2, b"new");
        let linked = record(RecordType::HardLink, 3, 4, b"link");
        let unlinked = record(RecordType::Unlink, 6, 4, b"link");
        let path = record(RecordType::Unlink, 6, 5, b"/a/b");
        for record in [&linked, &moved, &unlinked, &path, &removed] {
            names.take(record);
        }
        let name = |names: &FirstNames, of: u32| names.get(fid(of)).map(|link| link.name.to_vec());
        assert_eq!(name(&names, 2), Some(b"old".to_vec()));
        assert_eq!(name(&names, 3), Some(b"new".to_vec()));
        assert_eq!((name(&names, 4), name(&names, 5)), (None, None));
        let mut other = FirstNames::default();
        other.take(&record(RecordType::Rmdir, 1, 2, b"before"));
        other.take(&record(RecordType::Rmdir, 7, 3, b"after"));
        names.merge(other);
        assert_eq!(name(&names, 2), Some(b"before".to_vec()));
        assert_eq!(name(&names, 3), Some(b"new".to_vec()));
        names.pass(&record(RecordType::Rmdir, 1, 2, b"before"));
        names.pass(&record(RecordType::Close, 2, 3, b""));
        assert_eq!((name(&names, 2), names.len()), (None, 3));
    }
}
