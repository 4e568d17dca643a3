//! Who this process is, for calls that are not meant for all.

use barograph_stream::Incarnation;
use barograph_stream::calls::Subject;

use crate::publish::state::Pairs;

/// What the process has declared of itself, and what the system knows.
pub(super) struct Who {
    pub incarnation: Incarnation,
    pub application: String,
    pub labels: Pairs,
    pub pid: u32,
    pub user: String,
}

impl Who {
    /// The process, or the part of it that has these labels besides.
    pub fn subject(&self, labels: &[(String, String)]) -> Subject {
        Subject::new(
            self.incarnation,
            &self.application,
            self.pid,
            &self.user,
            &[&self.labels, labels],
        )
    }
}
