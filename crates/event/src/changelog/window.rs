//! What the records that were read ahead tell of the names of files: the first record that moves or
//! removes a name tells that the name was there before, without asking anybody.

use std::collections::HashMap;

use super::fid::{Fid, FidHash};
use super::item::{LogContent, LogItem};
use super::places::FidLink;
use super::record::{ChangelogRecord, fids_of};
use super::record_type::RecordType;

/// Bit of the flags of `UNLNK` and `RENME`: the last name of the file is gone.
pub(crate) const LAST_LINK: u16 = 0x1;

/// A change of the names of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NameChange {
    /// It came to be.
    Made,
    /// It got a name.
    Gained(FidLink),
    /// It lost a name that it had.
    Lost {
        link: FidLink,
        /// Whether it has other names still.
        has_others: bool,
    },
}

/// The changes of the names of some files in the records that were read ahead.
#[derive(Debug, Default)]
pub(crate) struct NameChanges {
    changes: HashMap<Fid, Vec<(i64, NameChange)>, FidHash>,
}

/// The names that a file had before the records that were read ahead, as far as those tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamesBefore {
    /// Names that it had.
    pub(crate) links: Vec<FidLink>,
    /// Names that it has got since: asked for its names now, one may be told these.
    pub(crate) gained: Vec<FidLink>,
    /// Whether asking can tell more.
    pub(crate) is_to_ask: bool,
}

impl NamesBefore {
    /// Whether the records tell nothing of the file.
    pub(crate) fn is_unclear(&self) -> bool {
        self.links.is_empty() && self.gained.is_empty() && self.is_to_ask
    }
}

impl NameChanges {
    /// Collects the changes of these files.
    pub(crate) fn of<'a>(
        fids: impl Iterator<Item = Fid>,
        items: impl Iterator<Item = &'a LogItem>,
    ) -> Self {
        let mut changes = Self::default();
        for fid in fids {
            changes.changes.insert(fid, Vec::new());
        }
        for item in items {
            if let LogContent::Record(bytes) = &item.content {
                changes.take(bytes, item.time_ns);
            }
        }
        changes
    }

    /// The names that a file had before. The changes are those of several logs, in the order of
    /// their times.
    pub(crate) fn names_before(&mut self, of: Fid) -> NamesBefore {
        let mut changes = self.changes.remove(&of).unwrap_or_default();
        changes.sort_by_key(|(time, _)| *time);
        let mut before = NamesBefore {
            is_to_ask: true,
            ..NamesBefore::default()
        };
        for (at, (_, change)) in changes.into_iter().enumerate() {
            match change {
                NameChange::Made if at == 0 => {
                    before.is_to_ask = false;
                    break;
                }
                NameChange::Made => {}
                NameChange::Gained(link) => before.gained.push(link),
                NameChange::Lost { link, has_others } => {
                    let gained = before.gained.iter().position(|known| *known == link);
                    if let Some(at) = gained {
                        before.gained.swap_remove(at);
                    } else if !before.links.contains(&link) {
                        before.links.push(link);
                        before.is_to_ask = has_others;
                    }
                }
            }
        }
        before
    }

    fn take(&mut self, bytes: &[u8], time_ns: i64) {
        let is_wanted = |fid: Fid| !fid.is_none() && self.changes.contains_key(&fid);
        if !fids_of(bytes).is_some_and(|(of, source)| is_wanted(of) || is_wanted(source)) {
            return;
        }
        let Ok((record, _)) = ChangelogRecord::parse(bytes) else {
            return;
        };
        let mut add = |of: Fid, change: &dyn Fn() -> Option<NameChange>| {
            if let Some(changes) = self.changes.get_mut(&of) {
                changes.extend(change().map(|change| (time_ns, change)));
            }
        };
        let (parent, name) = (record.parent, record.name);
        match record.record_type() {
            Some(
                RecordType::Create | RecordType::Mkdir | RecordType::SoftLink | RecordType::Mknod,
            ) => add(record.target, &|| Some(NameChange::Made)),
            Some(RecordType::HardLink) => add(record.target, &|| gained(parent, name)),
            Some(RecordType::Unlink | RecordType::Rmdir) => {
                let has_others = has_others(&record);
                add(record.target, &|| lost(parent, name, has_others));
            }
            Some(of @ (RecordType::Rename | RecordType::Migrate)) => {
                if of == RecordType::Migrate {
                    add(record.target, &|| Some(NameChange::Made));
                } else {
                    let has_others = has_others(&record);
                    add(record.target, &|| lost(parent, name, has_others));
                }
                if let Some((source, old_parent)) = record.source {
                    add(source, &|| lost(old_parent, record.old_name, false));
                    if of == RecordType::Rename {
                        add(source, &|| gained(parent, name));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a file has other names after this record has taken one from it.
pub(crate) fn has_others(record: &ChangelogRecord<'_>) -> bool {
    record.record_type() != Some(RecordType::Rmdir) && record.flags & LAST_LINK == 0
}

/// Whether a name is one, and not a path as some services write it.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/')
}

fn gained(parent: Fid, name: &[u8]) -> Option<NameChange> {
    is_name(name).then(|| NameChange::Gained(FidLink::new(parent, name)))
}

fn lost(parent: Fid, name: &[u8], has_others: bool) -> Option<NameChange> {
    let link = || FidLink::new(parent, name);
    is_name(name).then(|| NameChange::Lost {
        link: link(),
        has_others,
    })
}
