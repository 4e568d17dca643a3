//! Runs the program of an action: without a shell, as the owner of the rule, and within bounds of
//! time and output, whatever the program does.
//!
//! The program leads a process group of its own. When it has ended, so have all that it started and
//! that stayed in the group: a program that leaves the group, as daemons do, escapes, and only
//! loses its outputs.
//!
//! Files that this process opens are not passed on to programs. Descriptors that it was started
//! with are, unless they are marked close-on-exec: whoever starts an agent is to pass it none.
#![expect(
    clippy::disallowed_methods,
    reason = "real time is what bounds a real program; no value depends on it"
)]

mod output;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process_group, pidfd_open};
use thiserror::Error;

use crate::request::ActionOwner;
use crate::template::ActionFields;

use output::{OutputEnd, piece};

/// Longest time between looks at the request to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Most bytes of the standard input of a program: so many fit into a pipe, so that nobody waits.
pub const INPUT_BYTES_MAX: usize = 48 << 10;

/// Bounds of the programs that are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// Directories in which a program without a slash in its name is looked for. They are also the
    /// `PATH` of each program.
    pub path: Vec<PathBuf>,
    /// Time that a program may take if its rule does not say.
    pub time_default: Duration,
    /// Longest time that a rule can ask for.
    pub time_max: Duration,
    /// Time between the request to end (SIGTERM) and killing (SIGKILL).
    pub grace: Duration,
    /// How long the end of a killed program is waited for.
    pub killed_wait: Duration,
    /// How long outputs are read after the program has ended: who escaped may hold them open.
    pub drain: Duration,
    /// Most bytes that are kept of the end of each of the two outputs.
    pub output_bytes_max: usize,
    /// Most programs that do not end although they were killed, such as in a file system that
    /// hangs. While there are so many, none is started.
    pub left_max: usize,
}

impl Default for RunConfig {
    fn default() -> Self {
        let path = [
            "/usr/local/sbin",
            "/usr/local/bin",
            "/usr/sbin",
            "/usr/bin",
            "/sbin",
            "/bin",
        ];
        Self {
            path: path.map(PathBuf::from).to_vec(),
            time_default: Duration::from_secs(300),
            time_max: Duration::from_secs(24 * 3_600),
            grace: Duration::from_secs(5),
            killed_wait: Duration::from_secs(5),
            drain: Duration::from_secs(1),
            output_bytes_max: 16 << 10,
            left_max: 16,
        }
    }
}

/// A program that is to be run.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRun<'a> {
    /// The program and its words.
    pub argv: &'a [Vec<u8>],
    /// The user as whom it is run.
    pub owner: ActionOwner,
    /// Fields of the event, which are its environment.
    pub fields: &'a ActionFields,
    /// What stands before the names of the fields in its environment.
    pub prefix: &'static str,
    /// Its standard input, of at most [`INPUT_BYTES_MAX`] bytes.
    pub input: &'a [u8],
    /// Time that it may take; zero for the usual one.
    pub time_max: Duration,
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnding {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It took too long and was ended.
    TimeOver,
    /// It was ended since the workers stop or its lease was lost.
    Stopped,
    /// It does not end although it was killed.
    Left,
}

/// A program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramEnd {
    /// How it has ended.
    pub ending: ProgramEnding,
    /// End of its standard output.
    pub output: Vec<u8>,
    /// End of its standard error.
    pub errors: Vec<u8>,
    /// Time that it took.
    pub time: Duration,
}

/// The reason why a program was not run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RunRefusal {
    /// It would have rights that its owner does not have.
    #[error(
        "the rule of user {owner} needs an agent of that user or of root, and this one is of user {agent}"
    )]
    Rights {
        /// The owner of the rule.
        owner: u32,
        /// The user of the agent.
        agent: u32,
    },
    /// It cannot be run now; that may pass.
    #[error("{program} cannot be run now: {reason}")]
    Now {
        /// The program.
        program: String,
        /// The reason.
        reason: String,
    },
    /// It cannot be run.
    #[error("{program} cannot be run: {reason}")]
    Never {
        /// The program.
        program: String,
        /// The reason.
        reason: String,
    },
}

/// Runs programs.
#[derive(Debug, Default)]
pub struct ProgramRunner {
    config: RunConfig,
    /// Programs that were killed and have not ended.
    left: Mutex<Vec<Child>>,
}

impl ProgramRunner {
    /// A runner with these bounds.
    pub fn new(config: RunConfig) -> Self {
        Self {
            config,
            left: Mutex::new(Vec::new()),
        }
    }

    /// Runs a program to its end. When `stop` becomes true, the program is ended.
    ///
    /// # Errors
    ///
    /// The program was not started.
    pub fn run(&self, run: ProgramRun<'_>, stop: &AtomicBool) -> Result<ProgramEnd, RunRefusal> {
        let name = shown(run.argv);
        let mut command = self.command(run)?;
        self.admit(&name)?;
        let input = input(run.input).map_err(|reason| RunRefusal::Now {
            program: name.clone(),
            reason,
        })?;
        command.stdin(input);
        let began = Instant::now();
        let child = command.spawn().map_err(|error| refusal(&name, &error))?;
        let limit = match run.time_max.is_zero() {
            true => self.config.time_default,
            false => run.time_max.min(self.config.time_max),
        };
        let running = Running::new(child, &self.config, began, limit);
        let (end, left) = running.finish(stop);
        if let Some(child) = left {
            self.left
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(child);
        }
        Ok(end)
    }

    /// Forgets the programs that have ended meanwhile, and refuses if there are too many others.
    fn admit(&self, name: &str) -> Result<(), RunRefusal> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        match left.len() < self.config.left_max {
            true => Ok(()),
            false => Err(RunRefusal::Now {
                program: name.to_owned(),
                reason: format!("{} others that were killed do not end", left.len()),
            }),
        }
    }

    fn command(&self, run: ProgramRun<'_>) -> Result<Command, RunRefusal> {
        let agent = geteuid();
        let owner = run.owner;
        if !agent.is_root() && owner.uid != agent.as_raw() {
            return Err(RunRefusal::Rights {
                owner: owner.uid,
                agent: agent.as_raw(),
            });
        }
        let words: Vec<&OsStr> = run
            .argv
            .iter()
            .map(|word| OsStr::from_bytes(word))
            .collect();
        let mut command = Command::new(self.find(words.first().copied().unwrap_or_default())?);
        let path = std::env::join_paths(&self.config.path).unwrap_or_default();
        command
            .args(words.get(1..).unwrap_or_default())
            .env_clear()
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .current_dir("/")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        for (variable, value) in run.fields.variables() {
            let variable = format!("{}{variable}", run.prefix);
            command.env(variable, OsStr::from_bytes(&value));
        }
        if agent.is_root() {
            // The standard library drops the supplementary groups before it sets the user.
            command.gid(owner.gid).uid(owner.uid);
        }
        Ok(command)
    }

    /// The path of a program: itself if it is absolute, or the first in the directories.
    fn find(&self, program: &OsStr) -> Result<PathBuf, RunRefusal> {
        let never = |reason: &str| {
            Err(RunRefusal::Never {
                program: program.to_string_lossy().into_owned(),
                reason: reason.to_owned(),
            })
        };
        let path = Path::new(program);
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        if program.is_empty() || program.as_bytes().contains(&b'/') {
            return never("its path is neither absolute nor a name alone");
        }
        let is_program = |path: &PathBuf| {
            let meta = path.metadata();
            meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        let places = self.config.path.iter().filter(|place| place.is_absolute());
        match places.map(|place| place.join(path)).find(is_program) {
            Some(found) => Ok(found),
            None => never("it is in none of the directories of programs"),
        }
    }
}

/// A program while it runs.
struct Running<'a> {
    child: Child,
    group: Option<Pid>,
    config: &'a RunConfig,
    output: OutputEnd<ChildStdout>,
    errors: OutputEnd<ChildStderr>,
    began: Instant,
    deadline: Instant,
    /// Why it was asked to end, and when it is killed.
    ended_by: Option<(ProgramEnding, Instant)>,
}

impl<'a> Running<'a> {
    fn new(mut child: Child, config: &'a RunConfig, began: Instant, limit: Duration) -> Self {
        let bytes_max = config.output_bytes_max;
        Self {
            group: i32::try_from(child.id()).ok().and_then(Pid::from_raw),
            output: OutputEnd::new(child.stdout.take(), bytes_max),
            errors: OutputEnd::new(child.stderr.take(), bytes_max),
            child,
            config,
            began,
            deadline: began + limit,
            ended_by: None,
        }
    }

    /// Waits for the end; returns the child as well if it does not end.
    fn finish(mut self, stop: &AtomicBool) -> (ProgramEnd, Option<Child>) {
        // Without this descriptor the end is seen with the next look.
        let pidfd = self
            .group
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut piece = piece();
        let mut killed: Option<Instant> = None;
        loop {
            let is_ready = self.step(pidfd.as_ref(), LOOK, &mut piece);
            if is_ready && self.has_ended() {
                // The leader is not reaped yet, so the number is still that of its group.
                self.signal(Signal::KILL);
                break;
            }
            let now = Instant::now();
            if self.ended_by.is_none() {
                let by = match stop.load(Ordering::Relaxed) {
                    true => Some(ProgramEnding::Stopped),
                    false => (now >= self.deadline).then_some(ProgramEnding::TimeOver),
                };
                if let Some(by) = by {
                    self.signal(Signal::TERM);
                    self.ended_by = Some((by, now + self.config.grace));
                }
            }
            match (self.ended_by, killed) {
                (Some((_, at)), None) if now >= at => {
                    self.signal(Signal::KILL);
                    killed = Some(now + self.config.killed_wait);
                }
                (_, Some(given_up)) if now >= given_up => return self.leave(),
                _ => {}
            }
        }
        let drained = Instant::now() + self.config.drain;
        while self.output.pipe().is_some() || self.errors.pipe().is_some() {
            let left = drained.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.step(None, left, &mut piece);
        }
        let status = self.child.wait();
        let ending = self.ended_by.map(|(by, _)| by);
        let ending = ending.unwrap_or_else(|| ending_of(status.ok()));
        (self.into_end(ending), None)
    }

    /// Waits for outputs or the end of the program, and reads what is there. Returns whether it may
    /// have ended.
    fn step(&mut self, pidfd: Option<&OwnedFd>, wait: Duration, piece: &mut [u8]) -> bool {
        let (output, errors) = (self.output.pipe(), self.errors.pipe());
        let mut fds = Vec::with_capacity(3);
        fds.extend(pidfd.map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(output.map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(errors.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        if !matches!(poll(&mut fds, Some(&wait)), Ok(_) | Err(Errno::INTR)) {
            // No memory: a pause in place of the wait.
            std::thread::sleep(LOOK);
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let has_ended = pidfd.is_none() || ready.next().unwrap_or_default();
        let output = output.is_some() && ready.next().unwrap_or_default();
        let errors = errors.is_some() && ready.next().unwrap_or_default();
        drop(ready);
        drop(fds);
        if output {
            self.output.step(piece);
        }
        if errors {
            self.errors.step(piece);
        }
        has_ended
    }

    /// Whether the program has ended. It is not reaped.
    fn has_ended(&self) -> bool {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Some(pid) = self.group else { return true };
        !matches!(
            waitid(WaitId::Pid(pid), options),
            Ok(None) | Err(Errno::INTR)
        )
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // All of the group may have ended already.
            let _ = kill_process_group(group, signal);
        }
    }

    fn leave(mut self) -> (ProgramEnd, Option<Child>) {
        let child = match self.child.try_wait() {
            Ok(Some(_)) => None,
            _ => Some(self.child),
        };
        let end = ProgramEnd {
            ending: ProgramEnding::Left,
            output: self.output.into_end(),
            errors: self.errors.into_end(),
            time: self.began.elapsed(),
        };
        (end, child)
    }

    fn into_end(self, ending: ProgramEnding) -> ProgramEnd {
        ProgramEnd {
            ending,
            output: self.output.into_end(),
            errors: self.errors.into_end(),
            time: self.began.elapsed(),
        }
    }
}

/// A standard input that holds these bytes.
fn input(bytes: &[u8]) -> Result<Stdio, String> {
    if bytes.is_empty() {
        return Ok(Stdio::null());
    }
    if bytes.len() > INPUT_BYTES_MAX {
        return Err(format!("its input has {} bytes", bytes.len()));
    }
    let told = |error: Errno| format!("no pipe: {error}");
    let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(told)?;
    let mut left = bytes;
    while !left.is_empty() {
        match rustix::io::write(&to, left) {
            Ok(count) => left = &left[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(told(error)),
        }
    }
    Ok(Stdio::from(from))
}

fn ending_of(status: Option<ExitStatus>) -> ProgramEnding {
    let Some(status) = status else {
        return ProgramEnding::Left;
    };
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnding::Code(code),
        (None, signal) => ProgramEnding::Signal(signal.unwrap_or_default()),
    }
}

/// Whether a failed start may pass: too many processes or files, no memory, a program that is being
/// written, a file system that is away.
fn refusal(program: &str, error: &std::io::Error) -> RunRefusal {
    let passes = matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(
            Errno::AGAIN
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::TXTBSY
                | Errno::IO
                | Errno::STALE
                | Errno::TIMEDOUT
        )
    ) || error.kind() == ErrorKind::Interrupted;
    let (program, reason) = (program.to_owned(), error.to_string());
    match passes {
        true => RunRefusal::Now { program, reason },
        false => RunRefusal::Never { program, reason },
    }
}

/// The name of the program, for texts.
fn shown(argv: &[Vec<u8>]) -> String {
    let program = argv.first().map(Vec::as_slice).unwrap_or_default();
    let program = String::from_utf8_lossy(program).into_owned();
    barograph_model::cut(program.escape_debug().to_string(), 128)
}
