//! The identity of this process, for calls with a target.

use barograph_stream::Incarnation;
use barograph_stream::calls::CallSubject;

use crate::publish::state::Pairs;

/// The identity that the process has declared, and the facts that the system knows.
pub(super) struct ProcessIdentity {
    pub incarnation: Incarnation,
    pub application: String,
    pub labels: Pairs,
    pub pid: u32,
    pub user: String,
}

impl ProcessIdentity {
    /// The process as a target, or the part of it that has these labels in addition.
    pub(super) fn subject(&self, labels: &[(String, String)]) -> CallSubject {
        CallSubject::new(
            self.incarnation,
            &self.application,
            self.pid,
            &self.user,
            &[&self.labels, labels],
        )
    }
}
