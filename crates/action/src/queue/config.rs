//! Bounds and durability of the queue.

use barograph_model::NS_PER_S;

/// When a transaction is safe from a loss of power. It is safe from a crash of the program always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is committed (SQLite's `synchronous = FULL`).
    Full,
    /// Some time later: the last transactions before a loss of power may be undone, which loses
    /// requests and repeats actions, also those that must not repeat (`synchronous = NORMAL`).
    Normal,
}

/// Bounds and durability of an [`crate::ActionQueue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// When a transaction is safe.
    pub durability: Durability,
    /// Most actions that wait or run.
    pub actions_max: u64,
    /// Most actions of one rule that wait or run.
    pub actions_per_rule_max: u64,
    /// Most bytes of the body of a request.
    pub body_bytes_max: usize,
    /// Most bytes of the file in use, from which on requests are refused. Settling goes on.
    pub file_bytes_max: u64,
    /// Most bytes that are kept of the end of an action's output.
    pub output_bytes_max: usize,
    /// Longest lease, in ns.
    pub lease_ns_max: i64,
    /// Longest wait that a receiver may ask for, in ns.
    pub asked_wait_ns_max: i64,
    /// Most actions that are kept after they succeeded or were dropped.
    pub done_max: u64,
    /// How long they are kept, in ns.
    pub done_ns_max: i64,
    /// Most dead letters that are kept.
    pub dead_max: u64,
    /// How long they are kept, in ns.
    pub dead_ns_max: i64,
    /// Most rules that the file knows.
    pub rules_max: usize,
    /// Most triples of rule, version and source that the file knows.
    pub origins_max: usize,
    /// Most damaged files that are set aside beside the queue.
    pub set_aside_max: usize,
}

impl Default for QueueConfig {
    fn default() -> Self {
        const DAY: i64 = 24 * 3_600 * NS_PER_S;
        Self {
            durability: Durability::Full,
            actions_max: 100_000,
            actions_per_rule_max: 20_000,
            body_bytes_max: 64 << 10,
            file_bytes_max: 1 << 30,
            output_bytes_max: 33 << 10,
            lease_ns_max: DAY,
            asked_wait_ns_max: 3_600 * NS_PER_S,
            done_max: 20_000,
            done_ns_max: 7 * DAY,
            dead_max: 10_000,
            dead_ns_max: 30 * DAY,
            rules_max: 4_096,
            origins_max: 16_384,
            set_aside_max: 8,
        }
    }
}
