//! Servers that were taken out of a map, and the decisions by which a map is changed: what a map
//! remembers of them.

use barograph_model::NS_PER_S;

/// Time for which a slow server is taken out; twice as long each time it is, up to 64 times.
pub(super) const OUT_NS: i64 = 60 * NS_PER_S;
pub(super) const OUT_DOUBLINGS: u32 = 6;

/// A server that was taken out of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenOut {
    /// The time at which it is tried again.
    pub(super) until_ns: i64,
    /// How often it was taken out.
    pub(super) times: u32,
    /// The decision by which it is out; `None` if an earlier leader made it, or if it is tried.
    pub(super) decision: Option<u64>,
    /// Whether it is being judged what its absence gives.
    pub(super) on_trial: bool,
}

/// A decision, and what is done by it when its change is over.
pub(super) struct ScaleDecision {
    pub(super) id: u64,
    /// What is told of the change; `None` for one that was asked for.
    pub(super) told: Option<String>,
    /// The server that is taken out, and in how many windows it was slow.
    pub(super) takes_out: Option<(u32, usize)>,
}

impl TakenOut {
    /// A server that an earlier leader has taken out. It is tried as if that had been now.
    pub(super) fn by_earlier_leader(now_ns: i64) -> Self {
        Self {
            until_ns: now_ns.saturating_add(OUT_NS),
            times: 1,
            decision: None,
            on_trial: false,
        }
    }
}
