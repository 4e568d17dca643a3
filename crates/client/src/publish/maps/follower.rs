//! A server of a map that has a fence of its own: it is told of each change, instead of asking for
//! each request whether its epoch is served.
//!
//! For the agent, all that such a server serves is one request, which is counted in the epoch of
//! the fence and never ends. When the agent tells a later fence, it finds that request and waits
//! for its end, as for any other. The server has then refused what is of earlier epochs, and its
//! request is counted in the later one.

use std::time::Duration;

use barograph_control::ToldEpochs;
use barograph_model::Clock as _;
use barograph_stream::ingest::{CountedRequest, ServerSet};

use super::cell::MapCell;
use super::server::{MapServer, uncount};
use super::{Known, RENEW_NS, TORN_NS, epochs_of, known, mark_of, sleep};
use crate::publish::process::Process;

/// What a server is told of its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldMap {
    /// The epochs. The fence is that of a controller: it is at least 1.
    pub epochs: ToldEpochs,
    /// The servers of the epoch in force.
    pub servers: ServerSet,
}

/// A server of a map that is told of each change. Dropped, it serves nothing any more.
#[derive(Debug)]
pub struct MapFollower {
    server: MapServer,
    /// The newest that was given.
    last: Option<ToldMap>,
    /// The epoch of the request that stands for all, once the server serves something.
    fence: Option<u64>,
    standing: Option<Standing>,
}

/// The request that stands for all.
#[derive(Clone, Copy, Debug)]
struct Standing {
    counted: CountedRequest,
    /// The file in which it is counted.
    mark: u64,
}

impl MapServer {
    /// Follows the map for a server with a fence of its own. It must not ask for single requests
    /// ([`Self::serve`]) beside it.
    pub fn follow(&self) -> MapFollower {
        MapFollower {
            server: self.clone(),
            last: None,
            fence: None,
            standing: None,
        }
    }
}

impl MapFollower {
    /// What is newest of the map, if it is not what was given last; waits for that, at most for
    /// this time. `None` for ever where no agent runs, or none keeps maps.
    pub fn next(&mut self, wait_max: Duration) -> Option<ToldMap> {
        let Some((process, slot, cell)) = self.server.used.place() else {
            pause(wait_max);
            return None;
        };
        let producer = &process.producer;
        let wait_ns = i64::try_from(wait_max.as_nanos()).unwrap_or(i64::MAX);
        let until_ns = process.clock.monotonic_ns().saturating_add(wait_ns);
        self.stand(&process, slot);
        loop {
            // Before the look: what is told after that ends the sleep.
            let moved = producer.answers_moved();
            let now_known = known(producer, slot, cell);
            if let Some(told) = self.news(&now_known, cell) {
                return Some(told);
            }
            let left_ns = until_ns.saturating_sub(process.clock.monotonic_ns());
            if left_ns <= 0 {
                return None;
            }
            if now_known == Known::NotYet {
                // An agent that has not seen the server yet looks at once.
                process.ask_for_phase();
            }
            let pause_ns = match now_known {
                Known::Torn => TORN_NS,
                _ => RENEW_NS,
            };
            sleep(producer, moved, left_ns.min(pause_ns));
        }
    }

    fn news(&mut self, known: &Known, cell: &MapCell) -> Option<ToldMap> {
        let Known::Told(words) = known else {
            return None;
        };
        // Without a fence, the controller has not said anything.
        if words.fence == 0 {
            return None;
        }
        let told = ToldMap {
            epochs: ToldEpochs {
                fence: cell.raise_fence(words.fence),
                ..epochs_of(words)
            },
            servers: words.servers,
        };
        (self.last.replace(told) != Some(told)).then_some(told)
    }

    /// Says that from now on the server serves this epoch and later ones, and that nothing of an
    /// earlier one is served any more. Ask for what is [next](Self::next) after it, before the
    /// first request is served: a change that was told meanwhile is given there.
    pub fn serves_from(&mut self, fence: u64) {
        self.fence = Some(fence);
        let before = self.standing.take();
        if let Some((process, slot, _)) = self.server.used.place() {
            self.stand(&process, slot);
        }
        self.end(before);
    }

    /// Counts the request that stands for all, unless it is counted in this file. One in a file
    /// that was given up needs no end.
    fn stand(&mut self, process: &Process, slot: u8) {
        let Some(fence) = self.fence else {
            return;
        };
        let mark = mark_of(&process.producer);
        if self.standing.is_none_or(|it| it.mark != mark) {
            let counted = process.producer.count_request(slot, fence);
            self.standing = counted.map(|counted| Standing { counted, mark });
        }
    }

    fn end(&self, standing: Option<Standing>) {
        let (Some(standing), Some((process, slot, _))) = (standing, self.server.used.existing())
        else {
            return;
        };
        let is_here = standing.mark == mark_of(&process.producer);
        if is_here && uncount(&process, slot, standing.counted) {
            process.ask_for_phase();
        }
    }
}

impl Drop for MapFollower {
    fn drop(&mut self) {
        let standing = self.standing.take();
        self.end(standing);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "where nothing is published nothing is told, and the caller waits all the same"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
