//! The restoration of a setting, by a lease that ends and by the start after a kill. Both have one
//! rule: the old setting is written only if the file still has what we wrote. If it has anything
//! else, somebody has changed it since, and it is theirs.

use std::fmt;

use crate::ControlError;
use crate::cgroup::backend::IoSetting;
use crate::cgroup::journal::{FoundEntry, JournalEntry, WeightJournal};
use crate::cgroup::place::{CgroupRoots, Group};

/// What came of a restoration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// The old setting is there again.
    Restored(IoSetting),
    /// The old setting was there already, or nothing had been written.
    Unchanged,
    /// Somebody else has changed the setting since, and it was left.
    Theirs(IoSetting),
    /// The group is gone, or another one has its name.
    Vanished,
    /// It could not be done, for the reason given. The entry of the journal stays unless it is
    /// damaged.
    Failed(String),
}

/// As a part of a sentence.
impl fmt::Display for RestoreOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored(setting) => write!(f, "{setting} was restored"),
            Self::Unchanged => f.write_str("nothing had to be restored"),
            Self::Theirs(setting) => {
                write!(f, "somebody has written {setting} since, which was left")
            }
            Self::Vanished => f.write_str("the control group is gone"),
            Self::Failed(reason) => write!(f, "nothing was restored: {reason}"),
        }
    }
}

/// What the start after a kill found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredWeight {
    /// The name of the group; that of the journal's file if it cannot be read.
    pub group: String,
    /// What came of it.
    pub outcome: RestoreOutcome,
}

/// Restores what earlier processes have left: for each entry of the journal the old setting is
/// written if the file still has what was written then. It is called at the start, before a lease
/// is taken.
///
/// # Errors
///
/// The journal cannot be read. What fails for one entry is its outcome.
pub fn recover(
    roots: &CgroupRoots,
    journal: &WeightJournal,
) -> Result<Vec<RecoveredWeight>, ControlError> {
    let mut recovered = Vec::new();
    for (name, found) in journal.entries()? {
        let (group, outcome, is_settled) = match found {
            FoundEntry::Whole(entry) => {
                let outcome = recover_entry(roots, &entry);
                let is_settled = !matches!(outcome, RestoreOutcome::Failed(_));
                (entry.group, outcome, is_settled)
            }
            FoundEntry::Damaged(reason) => {
                let reason = format!("the entry is damaged ({reason}), and removed");
                (name.clone(), RestoreOutcome::Failed(reason), true)
            }
            FoundEntry::Other(version) => {
                let reason = format!("version {version} of the entry is not known here");
                (name.clone(), RestoreOutcome::Failed(reason), false)
            }
        };
        if is_settled {
            journal.remove_file(&name)?;
        }
        recovered.push(RecoveredWeight { group, outcome });
    }
    Ok(recovered)
}

fn recover_entry(roots: &CgroupRoots, entry: &JournalEntry) -> RestoreOutcome {
    let Some(root) = roots.hierarchy(entry.backend.hierarchy()) else {
        return RestoreOutcome::Vanished;
    };
    match root.group(&entry.group) {
        Ok(group) if group.id() != entry.group_id => RestoreOutcome::Vanished,
        Ok(group) => restore(&group, entry),
        Err(ControlError::Vanished { .. }) => RestoreOutcome::Vanished,
        Err(error) => RestoreOutcome::Failed(error.to_string()),
    }
}

/// Restores the old setting of a group. The entry of the journal is the caller's to remove.
pub(crate) fn restore(group: &Group, entry: &JournalEntry) -> RestoreOutcome {
    let restored = || -> Result<RestoreOutcome, ControlError> {
        let found = entry.backend.read(group)?;
        if found == entry.old {
            return Ok(RestoreOutcome::Unchanged);
        }
        if !entry.written.contains(&found) {
            return Ok(RestoreOutcome::Theirs(found));
        }
        entry.backend.write(group, &entry.old)?;
        match entry.backend.read(group)? {
            back if back == entry.old => Ok(RestoreOutcome::Restored(back)),
            other => Ok(RestoreOutcome::Theirs(other)),
        }
    };
    restored().unwrap_or_else(|error| match error {
        ControlError::Vanished { .. } => RestoreOutcome::Vanished,
        error => RestoreOutcome::Failed(error.to_string()),
    })
}
