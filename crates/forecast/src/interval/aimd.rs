//! Additive increase of the interval after small changes, multiplicative decrease after large ones.
//!
//! After Apollo (apollo.md 3.4.1). The released code compares with `<`, so that a constant value
//! (no change, against an average of no change) is polled at the highest rate.
//! [`IntervalPolicy`](super::IntervalPolicy) repairs that: no change always lengthens the interval.
//! [`PublishedAimd`] is the released version, for comparison in `lab`.

use barograph_model::NS_PER_S;

use super::{INTERVAL_NS_MAX, INTERVAL_NS_MIN, PolicyState, WINDOW, clamp};

/// The parameters of additive increase and multiplicative decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// First interval, in ns.
    pub start_ns: i64,
    /// Shortest interval, in ns.
    pub min_ns: i64,
    /// Longest interval, in ns.
    pub max_ns: i64,
    /// Time that is added after a small change, in ns.
    pub add_ns: i64,
    /// Factor of the interval after a large change; below 1.
    pub multiply: f64,
    /// Threshold of a small change: see the two policies.
    pub threshold: f64,
}

pub(super) fn simple(aimd: &Aimd, mut state: PolicyState, value: f64) -> PolicyState {
    if let Some(last) = state.last {
        let little = change(value, last) <= aimd.threshold * last.abs();
        state.interval_ns = step(aimd, state.interval_ns, little);
    }
    state.last = Some(value);
    state
}

pub(super) fn complex(aimd: &Aimd, mut state: PolicyState, value: f64) -> PolicyState {
    let Some(last) = state.last.replace(value) else {
        return state;
    };
    let change = change(value, last);
    if state.changes_len > 0 {
        let seen = &state.changes[..state.changes_len];
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        state.interval_ns = step(aimd, state.interval_ns, change <= aimd.threshold * mean);
    }
    state.changes[state.changes_next] = change;
    state.changes_next = (state.changes_next + 1) % WINDOW;
    state.changes_len = (state.changes_len + 1).min(WINDOW);
    state
}

/// The distance of two values, limited so that the sum over a window is finite.
fn change(value: f64, last: f64) -> f64 {
    (value - last).abs().min(f64::MAX / WINDOW as f64)
}

fn step(aimd: &Aimd, interval_ns: i64, little: bool) -> i64 {
    let interval = interval_ns as f64;
    bounded(
        aimd,
        if little {
            interval + aimd.add_ns as f64
        } else {
            interval * aimd.multiply
        },
    )
}

pub(super) fn bounded(aimd: &Aimd, interval_ns: f64) -> i64 {
    let min = clamp(aimd.min_ns, INTERVAL_NS_MIN, INTERVAL_NS_MAX);
    clamp(
        interval_ns as i64,
        min,
        clamp(aimd.max_ns, min, INTERVAL_NS_MAX),
    )
}

/// The adaptive interval as the authors of Apollo released it, with its constants (SCoRe,
/// `reverse_trie_queue_node.cpp` and `constants.h`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedAimd {
    factor: f64,
    window: usize,
    interval_ns: f64,
    last: Option<f64>,
    changes: [f64; WINDOW],
    changes_len: usize,
}

impl PublishedAimd {
    const MIN_NS: f64 = NS_PER_S as f64;
    const MAX_NS: f64 = 25.0 * NS_PER_S as f64;
    const ADD_NS: f64 = NS_PER_S as f64;
    const MULTIPLY: f64 = 0.75;

    /// Creates the policy. A change is small when it is less than `factor` times the average of the
    /// last `window` changes, 1 to [`WINDOW`]. Their configurations have 0.1 and 10, and start at 5
    /// s.
    pub fn new(factor: f64, window: usize, start_ns: i64) -> Self {
        Self {
            factor,
            window: window.clamp(1, WINDOW),
            interval_ns: clamp(start_ns, INTERVAL_NS_MIN, INTERVAL_NS_MAX) as f64,
            last: None,
            changes: [0.0; WINDOW],
            changes_len: 0,
        }
    }

    /// Takes in one more value; returns the nanoseconds until the next look. A value that is not
    /// finite changes nothing.
    pub fn next(&mut self, value: f64) -> i64 {
        if value.is_finite()
            && let Some(last) = self.last.replace(value)
        {
            let change = change(value, last);
            if self.changes_len > 0 {
                self.step(change);
            }
            self.push(change);
        }
        self.interval_ns as i64
    }

    fn step(&mut self, change: f64) {
        let seen = &self.changes[..self.changes_len];
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        let shorter = self.interval_ns * Self::MULTIPLY;
        if change < mean * self.factor {
            if self.interval_ns <= Self::MAX_NS {
                self.interval_ns += Self::ADD_NS;
            }
        } else if shorter > Self::MIN_NS {
            self.interval_ns = shorter;
        }
    }

    fn push(&mut self, change: f64) {
        if self.changes_len == self.window {
            self.changes.copy_within(1..self.window, 0);
            self.changes_len -= 1;
        }
        self.changes[self.changes_len] = change;
        self.changes_len += 1;
    }
}
