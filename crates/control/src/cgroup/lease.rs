//! The lease of one group's setting: it is changed for a time, checked while it lasts, and restored
//! when the lease ends, is dropped, or was ended by a kill (`restore::recover`).
//!
//! A lease never writes over a value that is not its own at once: a file that has another value was
//! written by another controller, and the lease waits (`fight`) and then takes that value as the
//! one to restore.

use std::sync::Arc;

use crate::ControlError;
use crate::cgroup::backend::{IoSetting, WeightBackend};
use crate::cgroup::fight::{Fight, FightTurn};
use crate::cgroup::journal::{JournalEntry, WeightJournal};
use crate::cgroup::place::{CgroupRoots, Group};
use crate::cgroup::restore::{RestoreOutcome, restore};
use crate::decision::DecisionOutcome;

/// The state of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Nothing was written yet.
    Idle,
    /// The file has this setting, which is the lease's.
    Held(IoSetting),
    /// Another controller has written the file. Nothing is written before `retry_ns`.
    Contended {
        /// Turns since the dispute began.
        turns: u32,
        /// What the other controller has written.
        theirs: IoSetting,
        /// The time of the next attempt, on the caller's clock.
        retry_ns: i64,
    },
    /// It is over.
    Ended(LeaseEnd),
}

/// The reason for which a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// Its time was over.
    Expired(RestoreOutcome),
    /// Its holder ended it.
    Released(RestoreOutcome),
    /// The group was removed, or its controller was disabled.
    Vanished,
    /// Another controller kept writing the file, which was left to it.
    Contended,
}

/// What came of setting a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// It was written and read back.
    Written,
    /// It will be written at this time or later, by [`WeightLease::step`], since another controller
    /// has written the file.
    Deferred {
        /// The time, on the caller's clock.
        until_ns: i64,
    },
}

impl From<SetOutcome> for DecisionOutcome {
    fn from(outcome: SetOutcome) -> Self {
        match outcome {
            SetOutcome::Written => Self::Done,
            SetOutcome::Deferred { until_ns } => Self::Deferred {
                reason: format!(
                    "another controller has written the file; retried at {until_ns} ns"
                ),
            },
        }
    }
}

/// A lease of the setting of one group by one back end.
#[derive(Debug)]
pub struct WeightLease {
    group: Group,
    journal: Arc<WeightJournal>,
    /// What is to be restored and what was written.
    entry: JournalEntry,
    /// Whether the entry is in the journal. The file has a value of this lease only if it is.
    is_journaled: bool,
    wanted: Option<IoSetting>,
    fight: Fight,
    state: LeaseState,
    until_ns: i64,
}

impl WeightLease {
    /// Takes the lease of a group until a time on the caller's clock, on which all times here are.
    /// Nothing is written yet.
    ///
    /// # Errors
    ///
    /// The group or its file is not there or has no value of the documented form;
    /// [`ControlError::Leased`] if the journal has an entry for it.
    pub fn take(
        roots: &CgroupRoots,
        group: &str,
        backend: WeightBackend,
        journal: &Arc<WeightJournal>,
        until_ns: i64,
    ) -> Result<Self, ControlError> {
        let root = roots.hierarchy(backend.hierarchy());
        let root = root.ok_or_else(|| ControlError::Vanished {
            path: backend.file().into(),
        })?;
        let group = root.group(group)?;
        refuse_leased(journal, &group, backend)?;
        let old = backend.read(&group)?;
        Ok(Self {
            entry: JournalEntry::new(&group, backend, old),
            group,
            journal: Arc::clone(journal),
            is_journaled: false,
            wanted: None,
            fight: Fight::default(),
            state: LeaseState::Idle,
            until_ns,
        })
    }

    /// The name of the group.
    pub fn group(&self) -> &str {
        self.group.name()
    }

    /// The state as of the last step.
    pub fn state(&self) -> &LeaseState {
        &self.state
    }

    /// The setting that will be restored.
    pub fn old(&self) -> IoSetting {
        self.entry.old
    }

    /// The number of times that another controller was found to have written the file.
    pub fn fights(&self) -> u64 {
        self.fight.total()
    }

    /// Moves the end of the lease.
    pub fn renew(&mut self, until_ns: i64) {
        self.until_ns = until_ns;
    }

    /// Writes a setting and reads it back. Before the first byte is written, the journal has what
    /// is to be restored.
    ///
    /// # Errors
    ///
    /// [`ControlError::Ended`] if the lease has ended or ends now; [`ControlError::Value`] if the
    /// back end does not take the setting; the file cannot be written. The file then has what it
    /// had.
    pub fn set(&mut self, setting: IoSetting, now_ns: i64) -> Result<SetOutcome, ControlError> {
        self.entry.backend.check(&setting)?;
        self.wanted = Some(setting);
        self.step(now_ns)?;
        if !matches!(self.state, LeaseState::Contended { .. }) && !self.holds(setting) {
            self.refuse_ended()?;
            self.write(setting, now_ns)?;
        }
        self.refuse_ended()?;
        Ok(match self.state {
            LeaseState::Contended { retry_ns, .. } => SetOutcome::Deferred { until_ns: retry_ns },
            _ => SetOutcome::Written,
        })
    }

    fn holds(&self, setting: IoSetting) -> bool {
        self.state == LeaseState::Held(setting)
    }

    /// Looks whether the file still has what was written, ends the lease if its time is over, and
    /// writes what was put off once its time has come.
    ///
    /// # Errors
    ///
    /// The file can be neither read nor written, for another reason than that it is gone.
    pub fn step(&mut self, now_ns: i64) -> Result<&LeaseState, ControlError> {
        if matches!(self.state, LeaseState::Ended(_)) {
            return Ok(&self.state);
        }
        if now_ns >= self.until_ns {
            self.end(LeaseEnd::Expired);
            return Ok(&self.state);
        }
        match self.state {
            LeaseState::Contended { retry_ns, .. } if now_ns >= retry_ns => match self.wanted {
                Some(wanted) => self.write(wanted, now_ns)?,
                None => self.state = LeaseState::Idle,
            },
            LeaseState::Held(ours) => {
                if let Some(found) = self.read()? {
                    match found == ours {
                        true => self.fight.calm(now_ns),
                        false => self.give_way(found, now_ns),
                    }
                }
            }
            _ => {}
        }
        Ok(&self.state)
    }

    /// Ends the lease and restores the old setting. A lease that is dropped does the same.
    pub fn release(mut self) -> LeaseEnd {
        self.end(LeaseEnd::Released);
        match &self.state {
            LeaseState::Ended(end) => end.clone(),
            _ => LeaseEnd::Released(RestoreOutcome::Unchanged),
        }
    }

    /// Writes a setting, with the journal before it. The value that is there, if it is not ours, is
    /// the one to restore from now on.
    fn write(&mut self, setting: IoSetting, now_ns: i64) -> Result<(), ControlError> {
        let Some(found) = self.read()? else {
            return Ok(());
        };
        let last = self.entry.written.last().copied();
        match last {
            // Somebody has written it since the last step.
            Some(last) if found != last => {
                self.give_way(found, now_ns);
                return Ok(());
            }
            Some(_) => {}
            None => self.entry.old = found,
        }
        if !self.is_journaled {
            // Another lease that was idle when this one was taken.
            refuse_leased(&self.journal, &self.group, self.entry.backend)?;
        }
        self.entry.written = last.into_iter().chain([setting]).collect();
        self.is_journaled = true;
        let written = self.journal.put(&self.entry);
        let written = written.and_then(|()| self.entry.backend.write(&self.group, &setting));
        if let Err(error) = written {
            self.entry.written = last.into_iter().collect();
            if last.is_none() {
                self.forget();
            }
            return match error {
                ControlError::Vanished { .. } => {
                    self.vanish();
                    Ok(())
                }
                error => Err(error),
            };
        }
        if let Some(found) = self.read()? {
            match found == setting {
                true => self.state = LeaseState::Held(setting),
                false => self.give_way(found, now_ns),
            }
        }
        Ok(())
    }

    /// Reads the file; `None` if it is gone, which ends the lease.
    fn read(&mut self) -> Result<Option<IoSetting>, ControlError> {
        match self.entry.backend.read(&self.group) {
            Err(ControlError::Vanished { .. }) => {
                self.vanish();
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// Leaves the file to the controller that has written it, for a while or for good. Nothing of
    /// this lease is in the file, so there is nothing to restore.
    fn give_way(&mut self, theirs: IoSetting, now_ns: i64) {
        self.forget();
        self.state = match self.fight.turn(now_ns) {
            FightTurn::Wait { until_ns } => LeaseState::Contended {
                turns: self.fight.turns(),
                theirs,
                retry_ns: until_ns,
            },
            FightTurn::GiveUp => LeaseState::Ended(LeaseEnd::Contended),
        };
    }

    fn vanish(&mut self) {
        self.forget();
        self.state = LeaseState::Ended(LeaseEnd::Vanished);
    }

    /// Removes the entry of the journal. If that fails, the next start finds a file that does not
    /// have what the entry says was written, and leaves it.
    fn forget(&mut self) {
        self.entry.written.clear();
        if self.is_journaled {
            let removed = self.journal.remove(self.group.name(), self.entry.backend);
            self.is_journaled = removed.is_err();
        }
    }

    /// Restores the old setting and ends the lease, unless it has ended.
    fn end(&mut self, end: impl FnOnce(RestoreOutcome) -> LeaseEnd) {
        if matches!(self.state, LeaseState::Ended(_)) {
            return;
        }
        let outcome = match self.entry.written.is_empty() {
            true => RestoreOutcome::Unchanged,
            false => restore(&self.group, &self.entry),
        };
        match outcome {
            // The next start tries again.
            RestoreOutcome::Failed(_) => {}
            _ => self.forget(),
        }
        self.state = LeaseState::Ended(end(outcome));
    }

    fn refuse_ended(&self) -> Result<(), ControlError> {
        match &self.state {
            LeaseState::Ended(end) => Err(ControlError::Ended {
                group: self.group.name().to_owned(),
                reason: end.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

fn refuse_leased(
    journal: &WeightJournal,
    group: &Group,
    backend: WeightBackend,
) -> Result<(), ControlError> {
    let (path, is_there) = journal.find(group.name(), backend);
    match is_there {
        false => Ok(()),
        true => Err(ControlError::Leased {
            group: group.name().to_owned(),
            path,
        }),
    }
}

impl Drop for WeightLease {
    fn drop(&mut self) {
        self.end(LeaseEnd::Released);
    }
}

impl std::fmt::Display for LeaseEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired(_) => "its time was over",
            Self::Released(_) => "its holder ended it",
            Self::Vanished => "the group is gone, or its controller was disabled",
            Self::Contended => "another controller keeps writing the file",
        })
    }
}
