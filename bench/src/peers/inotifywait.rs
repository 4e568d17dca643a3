//! inotifywait of inotify-tools, which prints a line for each event: its lines go to a file in
//! memory, so that no reader slows it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::installed;
use crate::report::{Fault, Report};

/// Time without a line after which all events have been told.
const QUIET: Duration = Duration::from_millis(500);
/// Time between two looks at the file.
const LOOK: Duration = Duration::from_millis(2);

/// A running inotifywait.
pub(crate) struct Inotifywait {
    child: Child,
    lines: PathBuf,
    cpu_before_ns: u64,
}

/// What it has printed.
pub(crate) struct PrintedLines {
    /// The lines, one for each event.
    pub text: Vec<u8>,
    /// Time of the monotonic clock at which the last one was seen, in ns.
    pub last_ns: i64,
    /// Processor time since it was ready, in ns.
    pub cpu_ns: u64,
}

/// Returns the path of the program and its version; without one, reports that the peer is skipped.
pub(crate) fn program(report: &mut Report) -> Option<(String, String)> {
    let path = installed(report, "inotifywait", "inotifywait")?;
    let help = Command::new(&path).arg("--help").output().ok()?;
    let text = String::from_utf8_lossy(&help.stdout);
    let version = text.lines().next().unwrap_or_default().to_owned();
    Some((path, version))
}

impl Inotifywait {
    /// Watches a tree, and waits until all of its directories have a watch.
    pub(crate) fn start(program: &str, tree: &Path, lines: &Path) -> Result<Self, Fault> {
        let mut child = Command::new(program)
            .args([
                "-m",
                "-r",
                "-e",
                "create,modify,close_write,attrib,move,delete",
            ])
            .args(["--format", "%e %w%f"])
            .arg(tree)
            .stdin(Stdio::null())
            .stdout(File::create(lines)?)
            .stderr(Stdio::piped())
            .spawn()?;
        let errors = child.stderr.take().ok_or("no output of errors")?;
        let mut errors = BufReader::new(errors);
        let mut line = String::new();
        while !line.contains("Watches established") {
            line.clear();
            if errors.read_line(&mut line)? == 0 {
                return Err("inotifywait does not watch".into());
            }
        }
        // What it says later, such as that its queue ran over, is not waited for.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let cpu_before_ns = cpu_ns(child.id())?;
        Ok(Self {
            child,
            lines: lines.to_owned(),
            cpu_before_ns,
        })
    }

    /// The id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until no more lines come, and ends it.
    pub(crate) fn finish(mut self, now_ns: impl Fn() -> i64) -> Result<PrintedLines, Fault> {
        let (mut size, mut last_ns) = (0, now_ns());
        loop {
            let new = fs::metadata(&self.lines)?.len();
            if new != size {
                (size, last_ns) = (new, now_ns());
            } else if now_ns() - last_ns > QUIET.as_nanos() as i64 {
                break;
            }
            std::thread::sleep(LOOK);
        }
        let cpu_ns = cpu_ns(self.child.id())? - self.cpu_before_ns;
        self.child.kill()?;
        self.child.wait()?;
        Ok(PrintedLines {
            text: fs::read(&self.lines)?,
            last_ns,
            cpu_ns,
        })
    }
}

impl Drop for Inotifywait {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of a process of one thread, in ns.
fn cpu_ns(pid: u32) -> Result<u64, Fault> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}
