//! What askers share: how many a user may be at once, and one run at a time of what is asked.
//!
//! It stands alone because a helper is started for each connection and knows of the others only by files: locks,
//! which the kernel frees with their holder, and answers, which stay for a moment. Without them one
//! member of the group could keep every disk busy and every connection taken.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::run::{Deadline, OUTPUT_BYTES_MAX, STEP};

/// Requests of one user that are served at once; one more is refused. Root's are not counted.
pub const REQUESTS_PER_USER_MAX: u32 = 2;

const OTHERS_WRITE: u32 = 0o022;

/// Takes a place among those who are served for whoever is at the other end of a socket; it is his until the file is
/// closed. Who starts the helper in another way (sudo, an agent that is root) is root, and needs none.
pub(crate) fn place(dir: &Path, input: impl AsFd) -> Result<Option<File>, String> {
    let us = rustix::process::geteuid();
    let asker = match rustix::net::sockopt::socket_peercred(input) {
        Ok(peer) if !peer.uid.is_root() && peer.uid != us => peer.uid,
        _ => return Ok(None),
    };
    check(dir)?;
    for number in 0..REQUESTS_PER_USER_MAX {
        let file = open(&dir.join(format!("user-{asker}-{number}")))?;
        if try_lock(&file)? {
            return Ok(Some(file));
        }
    }
    Err(format!(
        "user {asker} has {REQUESTS_PER_USER_MAX} requests under way: ask again when one is done"
    ))
}

/// What may be asked once at a time, held.
#[derive(Debug)]
pub(crate) struct Subject(File);

/// An answer: what was printed, or why there is none.
pub(crate) type Answer = Result<Vec<u8>, String>;

impl Subject {
    /// Waits for those who ask the same.
    pub fn hold(dir: &Path, name: &str, deadline: Deadline) -> Result<Self, String> {
        check(dir)?;
        let file = open(&dir.join(name))?;
        while !try_lock(&file)? {
            if deadline.left().is_zero() {
                return Err("others are asking the same, which takes too long".to_owned());
            }
            std::thread::sleep(STEP);
        }
        Ok(Self(file))
    }

    /// The answer that somebody was given less than `fresh` ago.
    pub fn kept(&self, fresh: Duration) -> Option<Answer> {
        let mut bytes = Vec::new();
        let bytes_max = OUTPUT_BYTES_MAX as u64 + 64;
        (&self.0).take(bytes_max).read_to_end(&mut bytes).ok()?;
        let (then, answer) = line(&bytes)?;
        let (state, rest) = line(answer)?;
        let then = Duration::from_nanos(std::str::from_utf8(then).ok()?.parse().ok()?);
        // One of the future is of another boot.
        let age = since_boot().checked_sub(then)?;
        match state {
            _ if age >= fresh => None,
            b"ok" => Some(Ok(rest.to_vec())),
            _ => Some(Err(String::from_utf8_lossy(state).into_owned())),
        }
    }

    /// Keeps an answer for those who ask next. That it cannot be kept costs them a run.
    pub fn keep(&self, answer: &Answer) {
        let mut text = format!("{}\n", since_boot().as_nanos()).into_bytes();
        match answer {
            Ok(output) => {
                text.extend(b"ok\n");
                text.extend(output);
            }
            Err(reason) => text.extend(format!("{reason}\n").into_bytes()),
        }
        let mut file = &self.0;
        let cleared = file.set_len(0).and_then(|()| file.rewind());
        if cleared.and_then(|()| file.write_all(&text)).is_err() {
            let _ = file.set_len(0);
        }
    }
}

/// The first line, and what is behind it.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Time that passes while the machine sleeps, too, and that nobody sets.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Makes the directory if needed. Nobody else may be able to put anything into it.
fn check(dir: &Path) -> Result<(), String> {
    let failed = |e: io::Error| format!("{} cannot be used: {e}", dir.display());
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
        _ => {}
    }
    let found = fs::symlink_metadata(dir).map_err(failed)?;
    let us = rustix::process::geteuid().as_raw();
    match found.is_dir() && found.uid() == us && found.mode() & OTHERS_WRITE == 0 {
        true => Ok(()),
        false => Err(format!("{} is not the helper's alone", dir.display())),
    }
}

fn open(path: &PathBuf) -> Result<File, String> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path);
    opened.map_err(|e| format!("{} cannot be used: {e}", path.display()))
}

fn try_lock(file: &File) -> Result<bool, String> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(errno) => Err(format!("a lock cannot be taken: {errno}")),
    }
}
