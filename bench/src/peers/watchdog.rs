//! watchdog, the Python module by which Ripple's agent sees local files: a program that counts what
//! its handler is told.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::report::Report;

const PROGRAM: &str = include_str!("watchdog.py");

/// Returns the Python that has watchdog (`scripts/event_peers.py` installs it); without one,
/// reports that the peer is skipped.
pub(crate) fn python(report: &mut Report) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/watchdog/bin/python");
    let has = |python: &Path| {
        let mut command = Command::new(python);
        let command = command
            .args(["-c", "import watchdog"])
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = [own, PathBuf::from("python3")]
        .into_iter()
        .find(|python| has(python));
    if found.is_none() {
        report.skipped(
            "watchdog",
            "it cannot be imported (run scripts/event_peers.py)",
        );
    }
    found
}

/// Returns the program that watches a tree: it says when it is ready, and ends with its input.
pub(crate) fn watching(python: &Path, tree: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", PROGRAM]).arg(tree);
    command
}
