//! The door of the intake thread: the directory into which programs put their files, and the
//! sockets on which they knock: one for news that may wait for the next round, one for phases of
//! I/O, whose programs wait.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use barograph_model::NS_PER_S;
use barograph_stream::{Incarnation, RunDir};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit};

use crate::IntakeError;

/// Most knocks that are read between two rounds.
const KNOCKS_MAX: usize = 1_024;
/// Length of the socket's queue, if the kernel does not report it.
const QUEUE_DEFAULT: usize = 10;
const INCARNATION_BYTES: usize = 16;
/// Ingest files may take one part in this many of the files that the agent may have open; the
/// others are for scopes, history and readers.
const DESCRIPTORS_PARTS: u64 = 2;
/// Mode of the directory if other users may publish. They can make files in it, can remove and
/// replace only their own, and cannot list it. A file has the group of its maker and is readable
/// only for the agent's user.
const DOOR_TO_ALL: u32 = 0o1733;

/// Most knocks for phases that are read at once; the queue of a socket is no longer, usually.
const PHASE_KNOCKS_MAX: usize = 64;

/// The sockets, and the length of a queue.
pub(crate) struct KnockSocket {
    socket: UnixDatagram,
    phases: UnixDatagram,
    /// Number of knocks at once that may have filled the queue, so that others were lost.
    burst: usize,
}

/// The knocks that were read.
#[derive(Debug, Default)]
pub(crate) struct Knocks {
    /// The processes that knocked.
    pub from: Vec<Incarnation>,
    /// Whether so many were read that others may have been lost.
    pub is_burst: bool,
}

/// Makes a socket that knocks at a door. It reaches the door after its name was removed, and needs
/// no further descriptor.
pub(crate) fn bell(door: &Path) -> std::io::Result<UnixDatagram> {
    let bell = UnixDatagram::unbound()?;
    // If the queue is full, the thread is about to wake.
    bell.set_nonblocking(true)?;
    // Without a door there is nobody to wake.
    let _ = bell.connect(door);
    Ok(bell)
}

/// Wakes the thread of the intake, so that it asks its desks what they have to tell.
#[derive(Debug)]
pub struct IntakeBell(UnixDatagram);

impl IntakeBell {
    /// A bell at the door of a run directory's agent, whose intake has been started.
    pub fn of(run_dir: &RunDir) -> std::io::Result<Self> {
        bell(&run_dir.ingest_socket()).map(Self)
    }

    /// Wakes the thread; it never waits. If the thread is at work, it asks at its next round.
    pub fn ring(&self) {
        // A full queue wakes it as well.
        let _ = self.0.send(&[]);
    }
}

impl KnockSocket {
    /// Opens the directory and the sockets to the users that may publish.
    pub(crate) fn open(run_dir: &RunDir, to_all: bool) -> Result<Self, IntakeError> {
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
        let open = |path: &Path| {
            let new = path.with_extension("new");
            let _ = fs::remove_file(&new);
            let door = UnixDatagram::bind(&new)?;
            door.set_nonblocking(true)?;
            let mode = if to_all { 0o666 } else { 0o600 };
            fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
            fs::rename(&new, path)?;
            Ok(door)
        };
        let (socket, phases) = (run_dir.ingest_socket(), run_dir.phases_socket());
        Ok(Self {
            socket: open(&socket).map_err(failed(&socket))?,
            phases: open(&phases).map_err(failed(&phases))?,
            burst: queue_max(),
        })
    }

    /// Waits until somebody knocks, for at most `wait_ns`: with news, with phases of I/O, or both.
    /// Returns whether somebody has news.
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell of the intake waits here"
    )]
    pub(crate) fn wait(&self, wait_ns: i64, for_news: bool, for_phases: bool) -> bool {
        let timeout = Timespec {
            tv_sec: wait_ns / NS_PER_S,
            tv_nsec: wait_ns % NS_PER_S,
        };
        let flags = |is_awaited| match is_awaited {
            true => PollFlags::IN,
            false => PollFlags::empty(),
        };
        let mut doors = [
            PollFd::new(&self.socket, flags(for_news)),
            PollFd::new(&self.phases, flags(for_phases)),
        ];
        // An interruption does not matter: what has arrived is looked at.
        let _ = poll(&mut doors, Some(&timeout));
        doors[0].revents().contains(PollFlags::IN)
    }

    /// Reads the knocks for phases of I/O since the last call, a bounded number of them.
    pub(crate) fn hear_phases(&self) -> Vec<Incarnation> {
        let mut from = Vec::new();
        for _ in 0..PHASE_KNOCKS_MAX {
            let mut knock = [0; INCARNATION_BYTES + 1];
            let Ok(length) = self.phases.recv(&mut knock) else {
                break;
            };
            if let Some((incarnation, [])) = knock[..length].split_first_chunk() {
                let incarnation = Incarnation(*incarnation);
                if !from.contains(&incarnation) {
                    from.push(incarnation);
                }
            }
        }
        from
    }

    /// Reads the knocks since the last call.
    pub(crate) fn hear(&self) -> Knocks {
        let mut heard = Knocks::default();
        let mut knock = [0; INCARNATION_BYTES + 1];
        let mut count = 0;
        while count < KNOCKS_MAX
            && let Ok(length) = self.socket.recv(&mut knock)
        {
            count += 1;
            // An empty knock comes from a bridge, which is attended next.
            if let Some((incarnation, [])) = knock[..length].split_first_chunk() {
                heard.from.push(Incarnation(*incarnation));
            }
        }
        heard.is_burst = count >= self.burst.min(KNOCKS_MAX);
        heard
    }
}

/// Wakes the intake thread.
pub(crate) fn knock(socket: &Path) {
    // Losing the knock does no harm: the intake thread also looks by itself.
    if let Ok(bell) = UnixDatagram::unbound()
        && bell.set_nonblocking(true).is_ok()
    {
        let _ = bell.send_to(&[], socket);
    }
}

/// Most datagrams that wait at a socket.
fn queue_max() -> usize {
    let text = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen");
    let said = text.ok().and_then(|text| text.trim().parse().ok());
    said.unwrap_or(QUEUE_DEFAULT).max(1)
}
/// Most ingest files that may be open, by the agent's limit of open files.
pub(crate) fn descriptors_for_processes() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit / DESCRIPTORS_PARTS).max(1)
}
