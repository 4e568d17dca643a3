//! The door of the intake thread: the directory where programs put their files, and the socket where they
//! knock.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use barograph_model::NS_PER_S;
use barograph_stream::{Incarnation, RunDir};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit};

use crate::IntakeError;

/// Knocks that are heard between two rounds.
const KNOCKS_MAX: usize = 1_024;
/// Knocks that a socket keeps where the kernel does not say.
const QUEUE_DEFAULT: usize = 10;
const INCARNATION_BYTES: usize = 16;
/// Of the files that the agent may have open, one part of so many is for those of processes: the others are for
/// scopes, history and readers.
const DESCRIPTORS_PARTS: u64 = 2;
/// Mode of the directory where other users publish: they make files there, remove and replace none but their own,
/// and do not see whose others there are. Files have the group of who makes them, and let nobody but the
/// agent's user read.
const DOOR_TO_ALL: u32 = 0o1733;

/// The socket, and how much it keeps.
pub struct Door {
    socket: UnixDatagram,
    /// So many knocks heard at once may have filled its queue, and others were not heard.
    burst: usize,
}

/// What was heard.
#[derive(Debug, Default)]
pub struct Heard {
    pub knocks: Vec<Incarnation>,
    /// Whether there were so many that others may have knocked in vain.
    pub is_burst: bool,
}

impl Door {
    /// Opens the directory and the socket to those who may publish.
    pub fn open(run_dir: &RunDir, to_all: bool) -> Result<Self, IntakeError> {
        let dir = run_dir.ingest_dir();
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| IntakeError::Directory { path, source }
        };
        let mode = if to_all { DOOR_TO_ALL } else { 0o700 };
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&dir);
        made.and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)))
            .map_err(failed(&dir))?;
        let socket = run_dir.ingest_socket();
        let new = socket.with_extension("new");
        let open = || {
            let _ = fs::remove_file(&new);
            let door = UnixDatagram::bind(&new)?;
            door.set_nonblocking(true)?;
            let mode = if to_all { 0o666 } else { 0o600 };
            fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
            fs::rename(&new, &socket)?;
            Ok(door)
        };
        Ok(Self {
            socket: open().map_err(failed(&socket))?,
            burst: queue_max(),
        })
    }

    /// Waits until somebody knocks, at most so long.
    pub fn wait(&self, wait_ns: i64) {
        let timeout = Timespec {
            tv_sec: wait_ns / NS_PER_S,
            tv_nsec: wait_ns % NS_PER_S,
        };
        let mut door = [PollFd::new(&self.socket, PollFlags::IN)];
        // Interrupted or not: what is there is looked at.
        let _ = poll(&mut door, Some(&timeout));
    }

    /// Who has knocked since the last time.
    pub fn hear(&self) -> Heard {
        let mut heard = Heard::default();
        let mut knock = [0; INCARNATION_BYTES + 1];
        let mut count = 0;
        while count < KNOCKS_MAX
            && let Ok(length) = self.socket.recv(&mut knock)
        {
            count += 1;
            // One that is empty is a bridge's: it is attended next.
            if let Some((incarnation, [])) = knock[..length].split_first_chunk() {
                heard.knocks.push(Incarnation(*incarnation));
            }
        }
        heard.is_burst = count >= self.burst.min(KNOCKS_MAX);
        heard
    }
}

/// How many datagrams wait at a socket at most.
fn queue_max() -> usize {
    let text = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen");
    let said = text.ok().and_then(|text| text.trim().parse().ok());
    said.unwrap_or(QUEUE_DEFAULT).max(1)
}
/// Most files of processes that may be open, by the limit that the agent has.
pub fn descriptors_for_processes() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit / DESCRIPTORS_PARTS).max(1)
}
