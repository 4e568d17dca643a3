//! Performance Co-Pilot: pmcd in the foreground on a unix socket of this run, queried by a client
//! that stays connected, as its own clients do.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{PeerServer, installed};
use crate::report::Report;
use crate::scratch::Scratch;

const METRIC: &str = "disk.dev.read";
const ROUNDS: &str = "5000";
/// A program that fetches over one connection and prints the median in us. The bindings come with
/// pcp for the system's own Python.
const FETCH: &str = include_str!("pcp_fetch.py");

/// A running pmcd with the agents of its default configuration.
pub(crate) struct Pcp {
    scratch: Scratch,
    /// The server process; its agents are its children.
    pub server: PeerServer,
}

impl Pcp {
    /// Starts a pmcd.
    pub(crate) fn start(report: &mut Report) -> Option<Self> {
        let program = installed(report, "pcp", "pmcd")?;
        let scratch = Scratch::new("pcp").ok()?;
        // pmcd becomes the user pcp if root starts it.
        std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o777)).ok()?;
        let mut command = Command::new(program);
        command.args(["-f", "-A", "-i", "127.0.0.1", "-p", "44399", "-l"]);
        command
            .arg(scratch.0.join("pmcd.log"))
            .arg("-s")
            .arg(scratch.0.join("socket"));
        // Its agents write their logs in the directory in which they are started.
        command
            .current_dir(&scratch.0)
            .env("PCP_RUN_DIR", &scratch.0);
        let server = super::start(&mut command)?;
        let pcp = Self { scratch, server };
        for _ in 0..100 {
            if pcp.fetch() {
                return Some(pcp);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        report.skipped("pcp", "pmcd did not answer");
        None
    }

    fn socket(&self) -> PathBuf {
        self.scratch.0.join("socket")
    }

    /// Fetches once from a process of its own; returns whether that gave values.
    pub(crate) fn fetch(&self) -> bool {
        let asked = Command::new("pminfo")
            .arg("-h")
            .arg(format!("unix:{}", self.socket().display()))
            .args(["-f", METRIC])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        asked.is_ok_and(|o| {
            o.status.success() && String::from_utf8_lossy(&o.stdout).contains("value")
        })
    }
}

/// Returns the median microseconds of one fetch over a kept connection.
pub(crate) fn fetch_us(report: &mut Report) -> Option<f64> {
    let pcp = Pcp::start(report)?;
    let asked = Command::new("/usr/bin/python3")
        .args([
            "-c",
            FETCH,
            &format!("unix:{}", pcp.socket().display()),
            METRIC,
            ROUNDS,
        ])
        .output();
    let median = asked
        .ok()
        .and_then(|o| String::from_utf8_lossy(&o.stdout).trim().parse().ok());
    if median.is_none() {
        report.skipped("pcp pmFetch", "the system's Python has no pcp module");
    }
    median
}
