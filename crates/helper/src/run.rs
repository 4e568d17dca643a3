//! Runs one program to its end within bounds of time and output.
#![expect(
    clippy::disallowed_methods,
    reason = "real time is what bounds a real program; nothing else here knows of time"
)]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::ProgramVet;
use crate::verbs::{HelperProgram, SuccessStatus};

/// Most bytes that a program may print.
pub const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Most bytes of standard error that are kept, and of a message that is passed on.
const COMPLAINT_BYTES_MAX: usize = 160;
/// Longest wait for a killed program: one that hangs in the kernel is left behind.
const KILLED_WAIT: Duration = Duration::from_secs(2);
/// Time between checks whether a program that closed its pipes has ended, or a lock is free.
pub(crate) const STEP: Duration = Duration::from_millis(5);
/// The whole environment of a program.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
];

/// Runs a program and returns its output.
pub(crate) fn run(
    program: &HelperProgram,
    device: Option<&str>,
    vet: ProgramVet,
    deadline: Deadline,
) -> Result<Vec<u8>, String> {
    let name = program.name;
    let found = program.paths.iter().map(Path::new).find(|p| p.exists());
    let path = vet(found.ok_or(format!("{name} is not installed"))?)?;
    let mut child = Command::new(path)
        .args(program.arguments)
        .args(device)
        .env_clear()
        .envs(ENVIRONMENT)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{name}: {e}"))?;
    let ended = give(&mut child, program.input)
        .and_then(|()| take(&mut child, deadline))
        .and_then(|taken| Ok((wait(&mut child, deadline)?, taken)));
    let (status, taken) = match ended {
        Ok(ended) => ended,
        Err(reason) => {
            kill(&mut child);
            return Err(format!("{name} {reason}"));
        }
    };
    let is_good = match program.exit {
        SuccessStatus::Zero => status.success(),
        SuccessStatus::Any => status.code().is_some() && !taken.output.is_empty(),
    };
    match is_good {
        true => Ok(taken.output),
        false => Err(format!("{name}: {status}: {}", shown(&taken.complaint))),
    }
}

/// The time at which waiting ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    pub(crate) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Waits until a descriptor is ready; returns `false` if the deadline has passed.
pub(crate) fn ready(fd: &impl AsFd, what: PollFlags, deadline: Deadline) -> Result<bool, String> {
    loop {
        let mut fds = [PollFd::new(fd, what)];
        match poll(&mut fds, Some(&timespec(deadline.left()))) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// Writes the input of a program. It is a few bytes, which any pipe accepts at once; a program need
/// not read them.
fn give(child: &mut Child, input: &[u8]) -> Result<(), String> {
    let Some(mut stdin) = child.stdin.take() else {
        return Ok(());
    };
    match stdin.write_all(input) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("took no request: {e}")),
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Taken {
    output: Vec<u8>,
    complaint: Vec<u8>,
}

/// Reads output and standard error until both end.
fn take(child: &mut Child, deadline: Deadline) -> Result<Taken, String> {
    let mut out = child.stdout.take();
    let mut err = child.stderr.take();
    let mut taken = Taken::default();
    while out.is_some() || err.is_some() {
        let left = deadline.left();
        if left.is_zero() {
            return Err("took too long and was ended".to_owned());
        }
        let (out_ready, err_ready) = {
            let mut fds = Vec::with_capacity(2);
            fds.extend(out.as_ref().map(|f| PollFd::new(f, PollFlags::IN)));
            fds.extend(err.as_ref().map(|f| PollFd::new(f, PollFlags::IN)));
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.to_string()),
            }
            let at = |place: usize| fds.get(place).is_some_and(|fd| !fd.revents().is_empty());
            match out.is_some() {
                true => (at(0), at(1)),
                false => (false, at(0)),
            }
        };
        if out_ready {
            step(&mut out, &mut taken.output, OUTPUT_BYTES_MAX + 1)?;
        }
        if taken.output.len() > OUTPUT_BYTES_MAX {
            return Err(format!("printed more than {OUTPUT_BYTES_MAX} bytes"));
        }
        if err_ready {
            step(&mut err, &mut taken.complaint, COMPLAINT_BYTES_MAX)?;
        }
    }
    Ok(taken)
}

/// Reads once from a ready pipe; keeps at most `keep` bytes in all, and drops the pipe at its end.
fn step<R: Read>(from: &mut Option<R>, to: &mut Vec<u8>, keep: usize) -> Result<(), String> {
    let Some(reader) = from else {
        return Ok(());
    };
    let mut piece = [0; 8192];
    match reader.read(&mut piece) {
        Ok(0) => *from = None,
        Ok(n) => {
            let room = keep.saturating_sub(to.len());
            to.extend_from_slice(&piece[..n.min(room)]);
        }
        Err(e) if e.kind() == ErrorKind::Interrupted => {}
        Err(e) => return Err(format!("cannot be read: {e}")),
    }
    Ok(())
}

fn wait(child: &mut Child, deadline: Deadline) -> Result<ExitStatus, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if deadline.left().is_zero() => {
                return Err("took too long and was ended".to_owned());
            }
            Ok(None) => std::thread::sleep(STEP),
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// Kills a program and all processes of its group.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may have ended by itself in the meantime.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = wait(child, Deadline::after(KILLED_WAIT));
}

/// The first line of standard error, as printable ASCII.
fn shown(complaint: &[u8]) -> String {
    let line = complaint
        .split(|b| *b == b'\n')
        .find(|line| !line.is_empty());
    line.unwrap_or(b"it said nothing of why")
        .escape_ascii()
        .to_string()
}
