//! The peers: they are started, queried by their own protocol, and stopped. One that is not
//! installed is skipped with a message (`scripts/peers.sh` installs those that the system
//! packages).

pub(crate) mod inotifywait;
pub(crate) mod nats;
pub(crate) mod node_exporter;
pub(crate) mod pcp;
pub(crate) mod redis;
pub(crate) mod watchdog;

use std::process::{Child, Command};

use crate::report::Report;

/// A peer's server process; it is killed when this value is dropped.
pub(crate) struct PeerServer(pub Child);

impl Drop for PeerServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the program's path if it is in one of the system's directories; otherwise reports that
/// the peer is skipped.
pub(crate) fn installed(report: &mut Report, peer: &str, program: &str) -> Option<String> {
    for directory in [
        "/usr/bin",
        "/usr/sbin",
        "/usr/local/bin",
        "/usr/libexec/pcp/bin",
        "/usr/lib/pcp/bin",
    ] {
        let path = format!("{directory}/{program}");
        if std::path::Path::new(&path).exists() {
            return Some(path);
        }
    }
    report.skipped(
        peer,
        &format!("{program} is not installed (run scripts/peers.sh as root)"),
    );
    None
}

/// Starts a program without any output.
pub(crate) fn start(command: &mut Command) -> Option<PeerServer> {
    use std::process::Stdio;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()
        .map(PeerServer)
}
