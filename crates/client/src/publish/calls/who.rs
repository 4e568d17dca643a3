//! Who this process is, for calls that are not meant for all.

use std::fs;

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

/// The user's name, or number where it has none: as agents name the owner of a file.
pub(super) fn user_name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}
