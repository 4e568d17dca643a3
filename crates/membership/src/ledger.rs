//! The authority's ledger: which certificates it has issued and revoked. Lines are only ever added.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fault::MembershipFault;
use crate::files;

/// File of the ledger, one JSON object a line.
const LEDGER: &str = "members.jsonl";

/// One line of the ledger.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Entry {
    /// A certificate was issued.
    Issued {
        node: String,
        serial: String,
        ts: i64,
        expires_ts: i64,
    },
    /// A certificate was revoked.
    Revoked { serial: String, ts: i64 },
}

/// A certificate that the authority has issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Name of the node.
    pub node: String,
    /// Serial number of the certificate, in lower-case hexadecimal.
    pub serial: String,
    /// Time at which it was issued, ns since the epoch.
    pub issued_ts: i64,
    /// Time at which it expires, ns since the epoch.
    pub expires_ts: i64,
    /// Time at which it was revoked, ns since the epoch; `None` if it was not.
    pub revoked_ts: Option<i64>,
}

impl Member {
    /// Whether the certificate holds at `now_ns`, in ns since the epoch.
    pub fn holds(&self, now_ns: i64) -> bool {
        self.revoked_ts.is_none() && now_ns < self.expires_ts
    }
}

/// The certificates that the authority in this directory has issued, oldest first. A line that was
/// cut short by a crash is left out: its certificate was not given to anybody.
pub(crate) fn members(dir: &Path) -> Result<Vec<Member>, MembershipFault> {
    let path = dir.join(LEDGER);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut members: Vec<Member> = Vec::new();
    for line in files::read(&path)?.lines() {
        match serde_json::from_str(line) {
            Ok(Entry::Issued {
                node,
                serial,
                ts,
                expires_ts,
            }) => members.push(Member {
                node,
                serial,
                issued_ts: ts,
                expires_ts,
                revoked_ts: None,
            }),
            Ok(Entry::Revoked { serial, ts }) => {
                for member in members.iter_mut().filter(|member| member.serial == serial) {
                    member.revoked_ts = member.revoked_ts.or(Some(ts));
                }
            }
            Err(_) => {}
        }
    }
    Ok(members)
}

/// Adds that a certificate was issued.
pub(crate) fn issued(
    dir: &Path,
    node: &str,
    serial: &str,
    ts: i64,
    expires_ts: i64,
) -> Result<(), MembershipFault> {
    let (node, serial) = (node.to_owned(), serial.to_owned());
    add(
        dir,
        &Entry::Issued {
            node,
            serial,
            ts,
            expires_ts,
        },
    )
}

/// Adds that a certificate was revoked.
pub(crate) fn revoked(dir: &Path, serial: &str, ts: i64) -> Result<(), MembershipFault> {
    let serial = serial.to_owned();
    add(dir, &Entry::Revoked { serial, ts })
}

fn add(dir: &Path, entry: &Entry) -> Result<(), MembershipFault> {
    let path = dir.join(LEDGER);
    let line = serde_json::to_string(entry).map_err(|error| MembershipFault::Damaged {
        path: path.clone(),
        reason: error.to_string(),
    })?;
    // A line that a crash has cut short ends here.
    let is_whole = !path.exists() || files::read(&path)?.ends_with('\n');
    let before = if is_whole { "" } else { "\n" };
    files::append(&path, &format!("{before}{line}\n"))
}
