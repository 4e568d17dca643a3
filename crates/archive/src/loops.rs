//! The loops of an archive that has no threads: flusher, copier and sealer, stepped in turn by the
//! thread that owns them, on whatever clock it has.
//!
//! [`Keeper::start`](crate::Keeper::start) gives each of them a thread instead.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use barograph_stream::FileLock;

use crate::copier::Copier;
use crate::flusher::{Flusher, FlusherEnd};
use crate::order::SealerMessage;
use crate::seal::Sealer;

/// The loops of one archive. Dropping them is as a kill: what was not written is lost.
pub struct KeeperLoops {
    /// `None` when it has finished, as for the others.
    pub(crate) flusher: Option<Flusher>,
    pub(crate) copier: Option<Copier>,
    pub(crate) sealer: Option<Sealer>,
    /// The orders to the sealer. The sealer ends when nobody is left who could send one.
    pub(crate) orders: Receiver<SealerMessage>,
    /// Marks the end of the flusher, so that nobody waits for it.
    pub(crate) ended: Option<FlusherEnd>,
    pub(crate) _lock: Arc<FileLock>,
}

impl KeeperLoops {
    /// Does what is due in each loop, and returns the time of the next step: `now_ns` if there is
    /// more to do at once, `i64::MAX` when all have ended. Entries in the journal and requests of
    /// the keeper may make a step due earlier.
    pub fn step(&mut self, now_ns: i64) -> i64 {
        let mut due_ns = i64::MAX;
        if let Some(flusher) = &mut self.flusher {
            due_ns = flusher.step(now_ns);
            if flusher.is_ended() {
                self.flusher = None;
                self.ended = None;
            }
        }
        if let Some(copier) = &mut self.copier {
            due_ns = due_ns.min(copier.step(now_ns));
            if copier.is_ended() {
                self.copier = None;
            }
        }
        due_ns.min(self.step_sealer(now_ns))
    }

    fn step_sealer(&mut self, now_ns: i64) -> i64 {
        let Some(sealer) = &mut self.sealer else {
            return i64::MAX;
        };
        match self.orders.try_recv() {
            Ok(order) => sealer.apply(order),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                sealer.end_copies();
                self.sealer = None;
                return i64::MAX;
            }
        }
        sealer.step(now_ns)
    }

    /// Steps until all loops have ended, from one due time to the next: the last attempts to write
    /// are made without a wait. The keeper is to be dropped before, which tells them to end.
    pub fn finish(mut self, mut now_ns: i64) {
        while self.flusher.is_some() || self.copier.is_some() || self.sealer.is_some() {
            now_ns = self.step(now_ns).max(now_ns);
        }
    }
}

impl fmt::Debug for KeeperLoops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeeperLoops").finish_non_exhaustive()
    }
}
