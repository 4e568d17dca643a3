//! The files that helpers share: the bound on requests of one user, and one run at a time for each
//! disk or the node.
//!
//! A helper is started for each connection and knows about the others only by files: locks, which
//! the kernel frees when their holder ends, and answers, which are kept for a while. Without them
//! one member of the group could keep every disk busy and every connection open.

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

/// Most requests of one user that are served at once; one more is refused. Those of root are not
/// counted.
pub const REQUESTS_PER_USER_MAX: u32 = 2;

const OTHERS_WRITE: u32 = 0o022;

/// Takes one of the places of the user at the other end of a socket; it is taken until the file is
/// closed. A process that starts the helper in another way (sudo, an agent that is root) is root,
/// and needs none.
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

/// The locked file of a verb and disk, for which only one request runs at a time.
#[derive(Debug)]
pub(crate) struct RequestLock(File);

/// The output of a program, or the reason why there is none.
pub(crate) type HelperAnswer = Result<Vec<u8>, String>;

impl RequestLock {
    /// Waits for other requests for the same, and locks the file.
    #[expect(
        clippy::disallowed_methods,
        reason = "the helper waits for a lock, and reads the time since boot"
    )]
    pub(crate) fn hold(dir: &Path, name: &str, deadline: Deadline) -> Result<Self, String> {
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

    /// The kept answer, if it is younger than `fresh`.
    pub(crate) fn kept(&self, fresh: Duration) -> Option<HelperAnswer> {
        let mut bytes = Vec::new();
        let bytes_max = OUTPUT_BYTES_MAX as u64 + 64;
        (&self.0).take(bytes_max).read_to_end(&mut bytes).ok()?;
        let (then, answer) = line(&bytes)?;
        let (state, rest) = line(answer)?;
        let then = Duration::from_nanos(std::str::from_utf8(then).ok()?.parse().ok()?);
        // A time in the future is from another boot.
        let age = since_boot().checked_sub(then)?;
        match state {
            _ if age >= fresh => None,
            b"ok" => Some(Ok(rest.to_vec())),
            _ => Some(Err(String::from_utf8_lossy(state).into_owned())),
        }
    }

    /// Keeps an answer for later requesters. If it cannot be kept, they run the program again.
    pub(crate) fn keep(&self, answer: &HelperAnswer) {
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

/// Splits bytes into the first line and the rest.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// The time since boot, which includes sleep of the machine and cannot be set.
#[expect(
    clippy::disallowed_methods,
    reason = "the helper waits for a lock, and reads the time since boot"
)]
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Creates the directory if needed, and checks that nobody else can put a file into it.
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
