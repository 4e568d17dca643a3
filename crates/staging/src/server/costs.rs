//! What reads of each tier have cost, from the request to the last byte that the kernel took, over
//! each kind of socket.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use barograph_model::NS_PER_S;

use crate::read_times::{ReadCost, ReadTimes};
use crate::transport::FrameStream;

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SocketKind {
    Unix,
    Tcp,
}

/// The times of reads, by tier and kind of socket.
#[derive(Default)]
pub(super) struct TierCosts(Mutex<BTreeMap<(u8, SocketKind), ReadTimes>>);

impl SocketKind {
    pub(super) fn of(frames: &FrameStream) -> Self {
        match frames.is_unix() {
            true => Self::Unix,
            false => Self::Tcp,
        }
    }
}

impl TierCosts {
    pub(super) fn observe(&self, tier: u8, socket: SocketKind, bytes: u64, took_ns: i64) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = times.entry((tier, socket)).or_default();
        times.observe(bytes, took_ns as f64 / NS_PER_S as f64);
    }

    pub(super) fn cost(&self, tier: u8, socket: SocketKind) -> Option<ReadCost> {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.get(&(tier, socket))?.cost()
    }
}
