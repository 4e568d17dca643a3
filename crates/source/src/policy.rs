//! When a stream wants to be looked at again: pure functions of its values.
//!
//! After Apollo (apollo.md 3.4.1): additive increase of the interval while little changes,
//! multiplicative decrease when much does. The published code compares with `<`, so that a constant
//! value (no change, against an average of no change) is polled at the highest rate; here no
//! change always relaxes.

use barograph_model::NS_PER_S;

/// How many changes the complex policy averages.
pub const WINDOW: usize = 10;
/// The shortest interval that any policy may ask for.
pub const INTERVAL_NS_MIN: i64 = 1_000_000;
/// The longest.
pub const INTERVAL_NS_MAX: i64 = 86_400 * NS_PER_S;

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// Before anything is known.
    pub start_ns: i64,
    /// Never shorter.
    pub min_ns: i64,
    /// Never longer.
    pub max_ns: i64,
    /// Added when little changed.
    pub add_ns: i64,
    /// Multiplied with when much changed; below 1.
    pub multiply: f64,
    /// What "little" is: see the two policies.
    pub threshold: f64,
}

/// What decides when a stream is read again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntervalPolicy {
    /// Always after the same time.
    Fixed {
        /// That time.
        interval_ns: i64,
    },
    /// A change is little when it is at most `threshold` of the last value.
    AimdSimple(Aimd),
    /// A change is little when it is at most `threshold` times the average of the last [`WINDOW`]
    /// changes. At 1 and above, a value that bounces as it always did relaxes the interval, as the
    /// paper wants; the released code used 0.1.
    AimdComplex(Aimd),
}

/// What a policy remembers of one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyState {
    /// What the stream asks for at present.
    pub interval_ns: i64,
    last: Option<f64>,
    changes: [f64; WINDOW],
    changes_len: usize,
    changes_next: usize,
}

impl IntervalPolicy {
    /// Before the first value.
    pub fn start(&self) -> PolicyState {
        let interval_ns = match self {
            Self::Fixed { interval_ns } => clamp(*interval_ns, INTERVAL_NS_MIN, INTERVAL_NS_MAX),
            Self::AimdSimple(a) | Self::AimdComplex(a) => bounded(a, a.start_ns as f64),
        };
        PolicyState {
            interval_ns,
            last: None,
            changes: [0.0; WINDOW],
            changes_len: 0,
            changes_next: 0,
        }
    }

    /// After one more value. A value that is no number teaches nothing.
    pub fn next(&self, state: PolicyState, value: f64) -> PolicyState {
        if !value.is_finite() {
            return state;
        }
        match self {
            Self::Fixed { .. } => state,
            Self::AimdSimple(aimd) => simple(aimd, state, value),
            Self::AimdComplex(aimd) => complex(aimd, state, value),
        }
    }
}

fn simple(aimd: &Aimd, mut state: PolicyState, value: f64) -> PolicyState {
    if let Some(last) = state.last {
        let little = change(value, last) <= aimd.threshold * last.abs();
        state.interval_ns = step(aimd, state.interval_ns, little);
    }
    state.last = Some(value);
    state
}

fn complex(aimd: &Aimd, mut state: PolicyState, value: f64) -> PolicyState {
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

/// How far apart two values are; small enough that the sum over a window is finite.
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

fn bounded(aimd: &Aimd, interval_ns: f64) -> i64 {
    let min = clamp(aimd.min_ns, INTERVAL_NS_MIN, INTERVAL_NS_MAX);
    clamp(
        interval_ns as i64,
        min,
        clamp(aimd.max_ns, min, INTERVAL_NS_MAX),
    )
}

fn clamp(ns: i64, min_ns: i64, max_ns: i64) -> i64 {
    ns.max(min_ns).min(max_ns)
}
