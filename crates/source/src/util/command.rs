//! Programs whose output a source reads: a few, given here by absolute path, run without a shell,
//! in an environment of our own, bounded in time and output.
//!
//! Below a root other than `/` nothing is run: the output of a program is the recording
//! `commands/NAME` of that tree. Only sources of which [`crate::Source::is_slow`] may run programs.
#![expect(
    clippy::disallowed_methods,
    reason = "real time is what bounds a real program; no value depends on it"
)]

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::SourceError;
use crate::util::file::SysRoot;
use crate::util::parse::escape;

/// Most bytes that are taken of a program's output.
pub(crate) const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Most bytes that are taken of its standard error.
const COMPLAINT_BYTES_MAX: usize = 4096;
/// Longest wait for a killed program.
const KILLED_WAIT: Duration = Duration::from_secs(2);
/// Most programs that are left behind because they did not end when they were killed: while there
/// are so many, no program is started.
const LEFT_MAX: usize = 16;
/// Longest error text that is passed on, in bytes.
const COMPLAINT_SHOWN_MAX: usize = 160;
/// The whole environment of a program: numbers and words are then in the form that its manual
/// documents.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
];

/// A program that may be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Paths at which it may be installed: the first that exists is used.
    pub(crate) paths: &'static [&'static str],
}

/// The reason why a program gave no output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The program is not installed, which is no fault of this machine.
    Absent,
    /// The program may not be run, or not by this user.
    Denied(String),
    /// The program failed, took too long, or wrote too much.
    Failed(String),
}

impl Refusal {
    /// The refusal as the fault of a read.
    pub(crate) fn into_fault(self, program: &str) -> SourceError {
        let reason = match self {
            Self::Absent => "is not installed".to_owned(),
            Self::Denied(reason) | Self::Failed(reason) => reason,
        };
        SourceError::Command {
            program: program.to_owned(),
            reason,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("is not installed"),
            Self::Denied(reason) | Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// Runs programs, or returns their recordings.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    root: SysRoot,
    timeout: Duration,
}

impl Commands {
    pub(crate) fn new(root: &SysRoot, timeout: Duration) -> Self {
        Self {
            root: root.clone(),
            timeout,
        }
    }

    /// Runs `program` and returns its output. `recording` is the name of its recording in a tree,
    /// such as `chronyc-tracking`.
    pub(crate) fn run(
        &self,
        program: Program,
        arguments: &[&str],
        recording: &str,
    ) -> Result<Vec<u8>, Refusal> {
        if !self.root.is_real() {
            return self.play(recording);
        }
        let found = program.paths.iter().map(Path::new).find(|p| p.exists());
        let path = found.ok_or(Refusal::Absent)?;
        let mut command = trusted(path)?;
        command.args(arguments);
        collect(command, b"", self.timeout)?.judge()
    }

    pub(crate) fn is_real(&self) -> bool {
        self.root.is_real()
    }

    pub(crate) fn play(&self, recording: &str) -> Result<Vec<u8>, Refusal> {
        let safe: String = recording
            .chars()
            .map(|c| if c == '/' { '!' } else { c })
            .collect();
        let path = self.root.path("commands").join(safe);
        let file = std::fs::File::open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Refusal::Absent,
            _ => Refusal::Denied(e.to_string()),
        })?;
        let mut bytes = Vec::new();
        let read = file
            .take(OUTPUT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes);
        read.map_err(|e| Refusal::Failed(e.to_string()))?;
        bounded(bytes)
    }
}

/// Returns the command that runs the program at a path. The program is run only if it and every
/// directory above it belong to root and nobody else may write them: a user who may write a
/// directory could put another file there. Links are followed here, once, and the file that was
/// checked is the one that is run. Its `argv[0]` is the path that was asked for, by which some
/// programs choose what they do.
pub(crate) fn trusted(path: &Path) -> Result<Command, Refusal> {
    let mut command = Command::new(vetted(path)?);
    command.arg0(path);
    Ok(command)
}

/// The file that a path leads to, if it may be run.
fn vetted(path: &Path) -> Result<PathBuf, Refusal> {
    const OTHERS_WRITE: u32 = 0o022;
    let denied = |e: std::io::Error| Refusal::Denied(format!("{}: {e}", path.display()));
    let file = path.canonicalize().map_err(denied)?;
    for place in file.ancestors() {
        let meta = place.metadata().map_err(denied)?;
        if meta.uid() != 0 || meta.mode() & OTHERS_WRITE != 0 {
            let reason = format!(
                "{} is not run: others than root may write {}",
                path.display(),
                place.display()
            );
            return Err(Refusal::Denied(reason));
        }
    }
    match file.is_file() {
        true => Ok(file),
        false => {
            let reason = format!("{} is not run: it is no file", path.display());
            Err(Refusal::Denied(reason))
        }
    }
}

fn bounded(bytes: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    match bytes.len() <= OUTPUT_BYTES_MAX {
        true => Ok(bytes),
        false => Err(Refusal::Failed(format!(
            "printed more than {OUTPUT_BYTES_MAX} bytes"
        ))),
    }
}

/// The result of a program that has ended.
pub(crate) struct Ended {
    pub(crate) status: std::process::ExitStatus,
    pub(crate) output: Vec<u8>,
    complaint: Vec<u8>,
}

impl Ended {
    /// The output, if the program ended with success.
    pub(crate) fn judge(self) -> Result<Vec<u8>, Refusal> {
        if self.status.success() {
            return Ok(self.output);
        }
        let complaint = self
            .complaint
            .split(|b| *b == b'\n')
            .find(|line| !line.is_empty())
            .unwrap_or(b"said nothing of why");
        let complaint = shown(complaint);
        Err(Refusal::Failed(format!("{}: {complaint}", self.status)))
    }
}

/// The beginning of an error text, escaped.
pub(crate) fn shown(complaint: &[u8]) -> String {
    escape(&complaint[..complaint.len().min(COMPLAINT_SHOWN_MAX)])
}

/// Runs a program on a short input until it ends. Kills it and all processes that it started if it
/// takes too long or writes too much. A program that could not be killed is not started again
/// before it has ended.
pub(crate) fn collect(
    mut command: Command,
    input: &[u8],
    timeout: Duration,
) -> Result<Ended, Refusal> {
    let program = PathBuf::from(command.get_program());
    left().admit(&program)?;
    let deadline = Instant::now() + timeout;
    command
        .env_clear()
        .envs(ENVIRONMENT)
        .current_dir("/")
        .stdin(match input.is_empty() {
            true => Stdio::null(),
            false => Stdio::piped(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Refusal::Absent,
        std::io::ErrorKind::PermissionDenied => Refusal::Denied(e.to_string()),
        _ => Refusal::Failed(e.to_string()),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A pipe takes a short input at once; if a program does not read it, its answer shows that.
        let _ = stdin.write_all(input);
    }
    let taken = drain(&mut child, deadline);
    let finished = taken.and_then(|pipes| Ok((wait(&mut child, deadline, timeout)?, pipes)));
    match finished {
        Ok((status, (output, complaint))) => Ok(Ended {
            status,
            output,
            complaint,
        }),
        Err(refusal) => {
            if !end(&mut child) {
                left().children.push((program, child));
            }
            Err(refusal)
        }
    }
}

/// Starts a program whose standard input and output are set, and runs `talk`, which talks to it.
/// The program is to end after that; otherwise it is killed, as by [`collect`].
pub(crate) fn run_beside<T>(
    mut command: Command,
    timeout: Duration,
    talk: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let program = PathBuf::from(command.get_program());
    left().admit(&program)?;
    let deadline = Instant::now() + timeout;
    command
        .env_clear()
        .envs(ENVIRONMENT)
        .current_dir("/")
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|e| Refusal::Failed(e.to_string()))?;
    // Its ends of the descriptors are closed here, so that its end is seen.
    drop(command);
    let answer = talk();
    if wait(&mut child, deadline, timeout).is_err() && !end(&mut child) {
        left().children.push((program, child));
    }
    answer
}

/// Reads standard output and standard error, both until their end.
fn drain(child: &mut Child, deadline: Instant) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
    let mut out = child.stdout.take();
    let mut err = child.stderr.take();
    let (mut output, mut complaint) = (Vec::new(), Vec::new());
    while out.is_some() || err.is_some() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Failed("took too long and was ended".to_owned()));
        }
        let (out_ready, err_ready) = {
            let mut fds = Vec::with_capacity(2);
            fds.extend(out.as_ref().map(|f| PollFd::new(f, PollFlags::IN)));
            fds.extend(err.as_ref().map(|f| PollFd::new(f, PollFlags::IN)));
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Refusal::Failed(errno.to_string())),
            }
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            match out.is_some() {
                true => (ready(0), ready(1)),
                false => (false, ready(0)),
            }
        };
        if out_ready && step(&mut out, &mut output, usize::MAX)? {
            out = None;
        }
        if output.len() > OUTPUT_BYTES_MAX {
            return Err(Refusal::Failed(format!(
                "printed more than {OUTPUT_BYTES_MAX} bytes"
            )));
        }
        if err_ready && step(&mut err, &mut complaint, COMPLAINT_BYTES_MAX)? {
            err = None;
        }
    }
    Ok((output, complaint))
}

/// Makes one read that does not wait, and returns whether it found the end. Keeps at most `keep`
/// bytes in total.
pub(crate) fn step<R: Read>(
    from: &mut Option<R>,
    to: &mut Vec<u8>,
    keep: usize,
) -> Result<bool, Refusal> {
    let Some(reader) = from else {
        return Ok(true);
    };
    let mut piece = [0; 8192];
    match reader.read(&mut piece) {
        Ok(0) => Ok(true),
        Ok(n) => {
            let room = keep.saturating_sub(to.len());
            to.extend_from_slice(&piece[..n.min(room)]);
            Ok(false)
        }
        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Ok(false),
        Err(e) => Err(Refusal::Failed(e.to_string())),
    }
}

/// Waits for the program to end. Both pipes are closed, so the end is near, but there is no event
/// for it.
fn wait(
    child: &mut Child,
    deadline: Instant,
    timeout: Duration,
) -> Result<std::process::ExitStatus, Refusal> {
    const STEP: Duration = Duration::from_millis(2);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(STEP.min(timeout)),
            Ok(None) => return Err(Refusal::Failed("took too long and was ended".to_owned())),
            Err(e) => return Err(Refusal::Failed(e.to_string())),
        }
    }
}

/// Kills a program and all processes that it started, and returns whether it has ended. It has not
/// while it hangs in the kernel, or if this user may not kill it, as with sudo.
fn end(child: &mut Child) -> bool {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    wait(child, Instant::now() + KILLED_WAIT, KILLED_WAIT).is_ok()
}

/// The programs that were killed and have not ended.
#[derive(Debug)]
struct Left {
    children: Vec<(PathBuf, Child)>,
}

fn left() -> MutexGuard<'static, Left> {
    static LEFT: Mutex<Left> = Mutex::new(Left {
        children: Vec::new(),
    });
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Left {
    /// Forgets the programs that have ended; the error states why this program may not be started.
    fn admit(&mut self, program: &Path) -> Result<(), Refusal> {
        self.children
            .retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        if self.children.iter().any(|(left, _)| left == program) {
            let reason = "has not ended since it was killed, and is not started again before";
            return Err(Refusal::Failed(reason.to_owned()));
        }
        if self.children.len() >= LEFT_MAX {
            let reason = format!("is not started: {LEFT_MAX} others that were killed do not end");
            return Err(Refusal::Failed(reason));
        }
        Ok(())
    }
}

pub(crate) fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SHELL: Program = Program {
        name: "sh",
        paths: &["/nonexistent/sh", "/bin/sh"],
    };

    fn real(timeout_ms: u64) -> Commands {
        let root = SysRoot::new(Path::new("/"));
        Commands::new(&root, Duration::from_millis(timeout_ms))
    }

    fn run(script: &str, timeout_ms: u64) -> Result<String, Refusal> {
        let out = real(timeout_ms).run(SHELL, &["-c", script], "sh")?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_is_printed_comes_whole_in_an_environment_of_our_own() {
        assert_eq!(run("echo $LC_ALL $HOME", 10_000).unwrap(), "C\n");
        let long = run("head -c 300000 /dev/zero | tr '\\0' x", 10_000).unwrap();
        assert_eq!(long.len(), 300_000);
    }

    #[test]
    fn failures_say_why() {
        let fault = run("echo no such disk >&2; exit 3", 10_000).unwrap_err();
        assert_eq!(
            fault,
            Refusal::Failed("exit status: 3: no such disk".to_owned())
        );
        let absent = Program {
            name: "x",
            paths: &["/nonexistent/x"],
        };
        let refusal = real(1000).run(absent, &[], "x").unwrap_err();
        assert_eq!(refusal, Refusal::Absent);
    }

    #[test]
    fn what_never_ends_or_never_stops_talking_is_ended_with_its_children() {
        let start = Instant::now();
        for script in [
            "sleep 60 & sleep 60",
            "exec >&- 2>&-; sleep 60",
            "sleep 60 & exit 0",
        ] {
            let fault = run(script, 300).unwrap_err();
            assert!(
                matches!(&fault, Refusal::Failed(why) if why.contains("too long")),
                "{fault:?}"
            );
        }
        let fault = run("cat /dev/zero", 30_000).unwrap_err();
        assert!(
            matches!(&fault, Refusal::Failed(why) if why.contains("more than")),
            "{fault:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_does_not_end_is_not_started_again_until_it_has() {
        let sleeper = || Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let (here, there) = (Path::new("/bin/a"), Path::new("/bin/b"));
        let mut left = Left {
            children: vec![(here.to_owned(), sleeper())],
        };
        let refusal = left.admit(here).unwrap_err().to_string();
        assert!(refusal.contains("has not ended"), "{refusal}");
        assert_eq!(left.admit(there), Ok(()));
        let more = (1..LEFT_MAX).map(|_| (here.to_owned(), sleeper()));
        left.children.extend(more);
        let refusal = left.admit(there).unwrap_err().to_string();
        assert!(refusal.contains("not started"), "{refusal}");
        for (_, child) in &mut left.children {
            child.kill().unwrap();
        }
        barograph_testing::wait_until("the ends of the children", || left.admit(here).is_ok());
        assert!(left.children.is_empty());
    }

    #[test]
    fn what_others_could_have_written_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, "#!/bin/sh\necho no\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(vetted(&path), Err(Refusal::Denied(_))));
        let folder = vetted(Path::new("/bin")).unwrap_err().to_string();
        assert!(folder.contains("no file"), "{folder}");
    }

    #[test]
    fn what_was_looked_at_is_what_is_run() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        let file = Path::new("/bin/sh").canonicalize().unwrap();
        let mut command = trusted(&link).unwrap();
        assert_eq!(command.get_program(), file);
        command.args(["-c", "echo $0"]);
        let output = collect(command, b"", Duration::from_secs(10));
        let name = format!("{}\n", link.display());
        assert_eq!(output.unwrap().output, name.as_bytes());
    }

    #[test]
    fn below_another_root_recordings_are_played_and_nothing_runs() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("commands")).unwrap();
        std::fs::write(dir.path().join("commands/sh-a!b"), "recorded\n").unwrap();
        let commands = Commands::new(&SysRoot::new(dir.path()), Duration::from_secs(1));
        let out = commands.run(SHELL, &["-c", "echo run"], "sh-a/b").unwrap();
        assert_eq!(out, b"recorded\n");
        let refusal = commands.run(SHELL, &[], "other").unwrap_err();
        assert_eq!(refusal, Refusal::Absent);
    }
}
