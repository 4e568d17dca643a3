//! The settings in `[sources.block_trace]`.

use barograph_model::NS_PER_S;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The times at which requests are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockTraceMode {
    /// All the time while the agent runs.
    #[default]
    Always,
    /// In turns: while a disk is busy or slower than usual, within a budget.
    Auto,
}

/// Settings of the source of single disk requests. It is off unless `poll.block_trace.enabled` is
/// true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BlockTraceConfig {
    /// `always`, or `auto`: only while a disk is busy or slower than usual, within the budget of
    /// the two keys below.
    pub mode: BlockTraceMode,
    /// In the mode `auto`: most seconds of any minute in which requests are traced, 1 to 60.
    pub auto_seconds: u64,
    /// In the mode `auto`: the share of one core, in per cent, that tracing may take while it is
    /// on, 1 to 100; the cost of the kernel's writing is estimated. More events than that pays for
    /// end the turn.
    pub auto_core_percent: u64,
    /// Length of an extent, the part of a device whose requests are counted together, in bytes (at
    /// least 4096).
    pub extent_bytes: u64,
    /// Number of a device's hottest extents that have streams (at most 128).
    pub ranks: usize,
    /// Number of a device's extents that are counted at once (at most 65536); the error of a count
    /// is at most one `counters`th of all requests.
    pub counters: usize,
    /// Milliseconds after which a request counts half.
    pub half_life_ms: u64,
    /// Size of the buffer for events between two reads, in bytes over all processors; each has at
    /// least 256 KiB.
    pub buffer_bytes: u64,
    /// Most events that one read takes; further ones wait in the buffer, and are lost when it is
    /// full.
    pub events_max: u64,
}

impl Default for BlockTraceConfig {
    fn default() -> Self {
        Self {
            mode: BlockTraceMode::Always,
            auto_seconds: 10,
            auto_core_percent: 5,
            extent_bytes: 1 << 20,
            ranks: 16,
            counters: 1024,
            half_life_ms: 60_000,
            buffer_bytes: 16 << 20,
            events_max: 200_000,
        }
    }
}

/// Values that are out of range are clamped.
impl BlockTraceConfig {
    pub(super) fn extent_bytes(&self) -> u64 {
        self.extent_bytes.clamp(4096, 1 << 50)
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks.clamp(1, 128)
    }

    pub(super) fn counters(&self) -> usize {
        self.counters.clamp(self.ranks(), 65_536)
    }

    pub(super) fn half_life_ns(&self) -> i64 {
        self.half_life_ms.clamp(100, 1 << 40) as i64 * 1_000_000
    }

    /// Length of a turn, in ns.
    pub(super) fn auto_ns(&self) -> i64 {
        self.auto_seconds.clamp(1, 60) as i64 * NS_PER_S
    }

    /// Processor time that one second of a turn may take, in ns.
    pub(super) fn auto_budget_ns(&self) -> f64 {
        self.auto_core_percent.clamp(1, 100) as f64 / 100.0 * NS_PER_S as f64
    }
}
