//! The little that a publisher wants of an agent: that it wakes, and whether it lives.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use barograph_model::Clock;
use barograph_stream::{RunDir, SegmentReader};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with,
};

/// How often a full ring asks anew whether the agent lives, in ns.
const LOOK_INTERVAL_NS_MIN: i64 = 50_000_000;

/// What became of a knock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knock {
    /// The agent will see it.
    Heard,
    /// It did not get there: try again.
    Unheard,
    /// There is no agent. One that comes looks at all files.
    Nobody,
}

/// The agent as a publisher knows it.
#[derive(Debug)]
pub(super) struct Agent {
    run_dir: RunDir,
    door: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    segment: Option<SegmentReader>,
    /// Monotonic.
    looked_ns: Option<i64>,
    is_alive: bool,
}

impl Agent {
    pub fn of(run_dir: &RunDir) -> Self {
        Self {
            run_dir: run_dir.clone(),
            door: run_dir.ingest_socket(),
            seen: Mutex::default(),
        }
    }

    /// Knocks, with a socket of the moment: a descriptor that were kept might be the program's own by now.
    pub fn knock(&self, incarnation: &[u8; 16]) -> Knock {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let send = || {
            let door = SocketAddrUnix::new(&self.door)?;
            let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
            sendto(&socket, incarnation, SendFlags::NOSIGNAL, &door)
        };
        match send() {
            Ok(_) => Knock::Heard,
            // Its queue is full, or this process has no descriptor to spare.
            Err(
                Errno::AGAIN
                | Errno::INTR
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE,
            ) => Knock::Unheard,
            Err(_) => Knock::Nobody,
        }
    }

    /// Whether it lives, as of a moment ago.
    pub fn is_alive(&self, clock: &dyn Clock) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = clock.monotonic_ns();
        let is_due = |looked| now_ns - looked >= LOOK_INTERVAL_NS_MIN;
        if seen.looked_ns.is_none_or(is_due) {
            seen.looked_ns = Some(now_ns);
            let wall_ns = clock.now_ns();
            let lives = |segment: &SegmentReader| segment.is_alive(wall_ns);
            if !seen.segment.as_ref().is_some_and(lives) {
                // There may be another since.
                seen.segment = SegmentReader::of(&self.run_dir).ok();
            }
            seen.is_alive = seen.segment.as_ref().is_some_and(lives);
        }
        seen.is_alive
    }
}
