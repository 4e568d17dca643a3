//! Phases of applications that are over, of which the newest are remembered.

use std::collections::BTreeMap;

use super::VolumeScheduler;

/// Most phases that are over and are remembered.
const ENDED_MAX: usize = 256;

/// A phase of an application that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedPhase {
    /// The number of the phase in its volume.
    pub id: u64,
    /// Its application.
    pub application: u64,
    /// Its user.
    pub user: u32,
    /// The time at which it began, in ns on the caller's clock.
    pub begun_ns: i64,
    /// The time at which it first had a grant, or went on without one; `None` if it never did.
    pub started_ns: Option<i64>,
    /// The time at which it was over.
    pub ended_ns: i64,
    /// The bytes that it had declared.
    pub bytes: Option<u64>,
    /// The bytes that it has read and written.
    pub bytes_done: u64,
    /// Whether a process of it did I/O without a grant.
    pub was_alone: bool,
    /// Whether nothing was heard of it any more.
    pub has_expired: bool,
}

impl VolumeScheduler {
    /// Forgets a phase, and remembers that it was.
    pub(super) fn close(&mut self, id: u64, has_expired: bool, now_ns: i64) {
        let Some(group) = self.groups.remove(&id) else {
            return;
        };
        if self.open.get(&group.key) == Some(&id) {
            self.open.remove(&group.key);
        }
        if self.ended.len() >= ENDED_MAX {
            self.forget_ended();
        }
        let (user, application) = group.key;
        self.ended.push_back(EndedPhase {
            id,
            application,
            user,
            begun_ns: group.begun_ns,
            started_ns: group.started_ns,
            ended_ns: now_ns,
            bytes: group.bytes,
            bytes_done: group.bytes_done,
            was_alone: group.is_alone,
            has_expired,
        });
    }

    /// Forgets the oldest phase that is over of the user that has the most of them.
    fn forget_ended(&mut self) {
        let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
        for phase in &self.ended {
            *of_users.entry(phase.user).or_default() += 1;
        }
        let most = of_users.into_iter().max_by_key(|(_, count)| *count);
        let oldest = self
            .ended
            .iter()
            .position(|phase| most.is_some_and(|(user, _)| user == phase.user));
        if let Some(oldest) = oldest {
            self.ended.remove(oldest);
        }
    }
}
