//! The peers: started, asked in their own protocol, stopped. One that is not installed is skipped
//! aloud (`scripts/peers.sh` installs what the system's packages have).

pub mod node_exporter;
pub mod pcp;
pub mod redis;

use std::process::{Child, Command};

use crate::report::Report;

/// A peer's server process; ends with this value.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program's name when it is on the path or in the system's directories.
pub fn installed(report: &mut Report, peer: &str, program: &str) -> Option<String> {
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

/// Starts a program without a word on its output.
pub fn start(command: &mut Command) -> Option<Server> {
    use std::process::Stdio;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()
        .map(Server)
}
