//! The little that a publisher wants of an agent: that it wakes, and whether it lives.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use barograph_model::Clock;
use barograph_stream::{RunDir, SegmentReader};

use crate::view;

/// How often a full ring asks anew whether the agent lives, in ns.
const LOOK_INTERVAL_NS_MIN: i64 = 50_000_000;

/// The agent as a publisher knows it.
#[derive(Debug)]
pub(super) struct Agent {
    run_dir: RunDir,
    door: PathBuf,
    socket: Option<UnixDatagram>,
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
        // Without a socket the agent is not woken, and finds what there is when it looks.
        let socket = UnixDatagram::unbound().ok();
        let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
        Self {
            run_dir: run_dir.clone(),
            door: run_dir.ingest_socket(),
            socket,
            seen: Mutex::default(),
        }
    }

    /// Knocks. Nobody may be there, or too busy to hear: both are its own matter.
    pub fn knock(&self, incarnation: &[u8; 16]) {
        if let Some(socket) = &self.socket {
            let _ = socket.send_to(incarnation, &self.door);
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
            let lives = |segment: &SegmentReader| view::alive(segment, wall_ns);
            if !seen.segment.as_ref().is_some_and(lives) {
                // There may be another since.
                seen.segment = SegmentReader::of(&self.run_dir).ok();
            }
            seen.is_alive = seen.segment.as_ref().is_some_and(lives);
        }
        seen.is_alive
    }
}
