//! The requests that are under way: the two events of each give the time that the device took.
//!
//! A device and a sector identify a request while it is under way. A request that is completed in
//! parts ends with its last part. Lost events could pair events of different requests, so all
//! requests that are under way at that moment are given up.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::line::TraceRequest;
use crate::util::top::Multiply;

/// Most requests under way that are remembered, over all devices.
pub(super) const UNDER_WAY_MAX: usize = 16_384;
/// Greatest age of a request, in ns. The kernel gives up a request sooner; the end of an older one
/// was lost.
const AGE_NS_MAX: u64 = 180_000_000_000;

/// The requests that are under way.
#[derive(Debug, Default)]
pub(super) struct RequestPairs {
    issued: HashMap<(u64, u64), Issued, BuildHasherDefault<Multiply>>,
    newest_ns: u64,
    unmatched: u64,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    at_ns: u64,
    /// Number of sectors that are not completed yet.
    left: u64,
}

impl RequestPairs {
    /// Records that a request was issued. A request that is already under way was returned to the
    /// queue and is issued again.
    pub(super) fn issue(&mut self, request: &TraceRequest) {
        self.newest_ns = self.newest_ns.max(request.at_ns);
        if self.issued.len() >= UNDER_WAY_MAX {
            self.forget_old();
        }
        if self.issued.len() >= UNDER_WAY_MAX {
            self.unmatched += 1;
            return;
        }
        let issued = Issued {
            at_ns: request.at_ns,
            left: request.sectors,
        };
        self.issued.insert(key(request, request.sector), issued);
    }

    /// Records that a request, or a part of it, was completed. Returns the time that it took, in
    /// ns, if this was its last part and its beginning was seen.
    pub(super) fn complete(&mut self, request: &TraceRequest) -> Option<u64> {
        let Some(issued) = self.issued.remove(&key(request, request.sector)) else {
            self.unmatched += 1;
            return None;
        };
        if request.sectors < issued.left {
            let rest = Issued {
                at_ns: issued.at_ns,
                left: issued.left - request.sectors,
            };
            let sector = request.sector.saturating_add(request.sectors);
            self.issued.insert(key(request, sector), rest);
            return None;
        }
        let took_ns = request.at_ns.checked_sub(issued.at_ns);
        self.unmatched += u64::from(took_ns.is_none());
        took_ns
    }

    /// Records that events are missing here.
    pub(super) fn lost(&mut self) {
        self.unmatched += self.issued.len() as u64;
        self.issued.clear();
    }

    /// Number of events whose counterpart was not seen.
    pub(super) fn unmatched(&self) -> u64 {
        self.unmatched
    }

    fn forget_old(&mut self) {
        let before = self.issued.len();
        let oldest_ns = self.newest_ns.saturating_sub(AGE_NS_MAX);
        self.issued.retain(|_, issued| issued.at_ns >= oldest_ns);
        self.unmatched += (before - self.issued.len()) as u64;
    }
}

fn key(request: &TraceRequest, sector: u64) -> (u64, u64) {
    let (major, minor) = request.device;
    (u64::from(major) << 32 | u64::from(minor), sector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::block_trace::line::Operation;

    fn request(at_ns: u64, sector: u64, sectors: u64) -> TraceRequest {
        TraceRequest {
            at_ns,
            device: (8, 0),
            operation: Operation::Read,
            sector,
            sectors,
        }
    }

    #[test]
    fn a_pair_gives_the_time_between() {
        let mut pairs = RequestPairs::default();
        pairs.issue(&request(100, 8, 8));
        pairs.issue(&request(150, 16, 8));
        assert_eq!(pairs.complete(&request(400, 16, 8)), Some(250));
        assert_eq!(pairs.complete(&request(500, 8, 8)), Some(400));
        assert_eq!(pairs.unmatched(), 0);
        assert_eq!(pairs.complete(&request(600, 8, 8)), None);
        assert_eq!(pairs.unmatched(), 1);
    }

    #[test]
    fn parts_count_when_all_are_done() {
        let mut pairs = RequestPairs::default();
        pairs.issue(&request(100, 8, 24));
        assert_eq!(pairs.complete(&request(200, 8, 8)), None);
        assert_eq!(pairs.complete(&request(300, 16, 16)), Some(200));
        assert_eq!(pairs.unmatched(), 0);
    }

    #[test]
    fn one_that_comes_again_counts_from_then() {
        let mut pairs = RequestPairs::default();
        pairs.issue(&request(100, 8, 8));
        pairs.issue(&request(300, 8, 8));
        assert_eq!(pairs.complete(&request(350, 8, 8)), Some(50));
    }

    #[test]
    fn a_loss_gives_up_what_is_under_way() {
        let mut pairs = RequestPairs::default();
        pairs.issue(&request(100, 8, 8));
        pairs.lost();
        assert_eq!(pairs.complete(&request(900, 8, 8)), None);
        assert_eq!(pairs.unmatched(), 2);
    }

    #[test]
    fn time_that_runs_back_is_no_time() {
        let mut pairs = RequestPairs::default();
        pairs.issue(&request(100, 8, 8));
        assert_eq!(pairs.complete(&request(90, 8, 8)), None);
        assert_eq!(pairs.unmatched(), 1);
    }

    #[test]
    fn what_never_ends_is_bounded() {
        let mut pairs = RequestPairs::default();
        for sector in 0..UNDER_WAY_MAX as u64 + 10 {
            pairs.issue(&request(100, sector, 1));
        }
        assert_eq!((pairs.issued.len(), pairs.unmatched()), (UNDER_WAY_MAX, 10));
        pairs.issue(&request(100 + AGE_NS_MAX + 1, 1, 1));
        // That request exceeded the limit too; the old ones were removed with it.
        assert_eq!(pairs.issued.len(), 1);
        assert_eq!(pairs.unmatched(), 10 + UNDER_WAY_MAX as u64);
    }
}
