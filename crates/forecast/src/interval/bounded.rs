//! The error-bounded policy: look again when the value assumed for a stream may be off by more than
//! allowed.
//!
//! Between looks, the value of a stream is assumed in one of three ways: it stays as it was (held),
//! as a forecast predicts, or as derived from another stream. For each way, [`Risk`] learns how
//! soon it becomes wrong. With `W(w)` the time that the value will have been wrong after a wait of
//! `w`, and `λ` the price of that time in looks, the policy chooses the wait with the least cost
//! per time:
//!
//! ```text
//! (1 + λ W(w)) / w
//! ```
//!
//! `λ` follows the expected wrong time of the plans: it rises while more of the time will be wrong
//! than allowed, and falls while less will. The expectation is calibrated by the results of looks.
//! No mistake lasts for ever: one look in 16 is earlier than planned, repeated surprises make the
//! policy learn anew, and no wait is longer than the longest interval.

use barograph_model::NS_PER_S;

use super::risk::{Risk, candidates};
use super::{INTERVAL_NS_MAX, INTERVAL_NS_MIN, clamp};

/// Number of looks from one that is earlier than planned to the next; early looks show what was
/// missed.
const PROBE_EVERY: u32 = 16;
/// Ticks after which the price of wrong time has followed the expectation: at first, as the first
/// guess is as good as any other, and in the long run.
const PRICE_TICKS: [f64; 2] = [10.0, 200.0];
/// Least and highest price of a wrong tick, in looks, times the allowed share of wrong time.
const PRICE_MIN: f64 = 0.05;
const PRICE_MAX: f64 = 64.0;
/// Another way of assuming values must cost less than this share of the present way's cost for a
/// switch.
const SWITCH: f64 = 0.9;
/// Most looks that a budget saves up.
const TOKENS_MAX: f64 = 8.0;
/// Number of looks at the shortest interval after what was learned has come into doubt.
const DENSE_LOOKS: u32 = 4;
/// Number of earlier looks with which each look is compared, to learn how long holding would have
/// been right.
const EARLIER_MAX: usize = 32;

/// The largest error that readers accept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorBound {
    /// An absolute error, in the stream's unit.
    Absolute(f64),
    /// A relative error, as a share of the value.
    Relative(f64),
}

impl ErrorBound {
    /// The largest error at this value, in the stream's unit. 0 if it is negative or not a number.
    pub fn tolerance(&self, value: f64) -> f64 {
        let tolerance = match self {
            Self::Absolute(bound) => *bound,
            Self::Relative(share) => share * value.abs(),
        };
        if tolerance > 0.0 { tolerance } else { 0.0 }
    }
}

/// The configuration of [`ErrorBounded`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundedConfig {
    /// The largest error of the assumed value.
    pub bound: ErrorBound,
    /// The share of time for which the bound must hold, below 1.
    pub confidence: f64,
    /// Shortest interval, in ns: the tick in which all other times are counted.
    pub min_ns: i64,
    /// Longest interval, in ns.
    pub max_ns: i64,
    /// Most looks per second, in the long run. Infinite: as many as the bound needs.
    pub looks_per_s_max: f64,
}

/// An assumed value at one time, with its half width at the forecaster's confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AssumedValue {
    /// The expected value.
    pub value: f64,
    /// Its half width, infinite while it is unknown.
    pub half_width: f64,
    /// The share of errors within `half_width`.
    pub confidence: f64,
}

impl AssumedValue {
    /// The probability of an error greater than `tolerance`, if errors have a Laplace distribution,
    /// which has the heavier of the usual tails. `None` while the error is unknown, and where it is
    /// mostly 0: then only looks show how often it is not.
    fn wrong(&self, tolerance: f64) -> Option<f64> {
        let outside = (1.0 - self.confidence).clamp(1e-6, 1.0);
        let wrong = outside.powf(tolerance / self.half_width);
        (self.half_width > 0.0 && self.half_width.is_finite() && !wrong.is_nan()).then_some(wrong)
    }
}

/// The way in which values are assumed between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueBasis {
    /// The last value that was seen.
    Held,
    /// The value of the forecast.
    Forecast,
    /// The value derived from another stream.
    Derived,
}

/// A look, with the values that each way assumed for its time just before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedLook {
    /// Time of the look, in ns.
    pub ts_ns: i64,
    /// The value that was seen.
    pub value: f64,
    /// The value of the forecast, if there was one.
    pub forecast: Option<AssumedValue>,
    /// The value derived from another stream, if there was one. If its half width is greater than
    /// the bound, it requested this look itself, so the look does not show how often it is wrong.
    pub derived: Option<AssumedValue>,
}

/// The plan until the next look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookPlan {
    /// Time from this look to the next one, in ns.
    pub wait_ns: i64,
    /// The way in which values are assumed until then.
    pub said: ValueBasis,
    /// The share of that time for which the error is expected to exceed the bound.
    pub wrong_share: f64,
    /// Wrong assumed values per second, for a [`LookBudget`](super::LookBudget).
    pub wrong_per_s: f64,
}

/// The error-bounded policy of one stream.
#[derive(Clone, Debug)]
pub struct ErrorBounded {
    config: BoundedConfig,
    /// The risks of the held, the forecast and the derived value.
    risks: [Risk; 3],
    last: Option<(i64, f64)>,
    earlier: Earlier,
    /// Logarithm of λ times the allowed share.
    price: f64,
    /// Number of ticks planned so far.
    planned: f64,
    said: ValueBasis,
    looks: u32,
    dense: u32,
    tokens: f64,
    derived_cost: f64,
}

impl ErrorBounded {
    /// Creates a policy. Values of `config` that are out of range are brought into it.
    pub fn new(config: BoundedConfig) -> Self {
        let min_ns = clamp(config.min_ns, INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let confidence = config.confidence.clamp(0.0, 1.0 - 1e-6);
        Self {
            config: BoundedConfig {
                min_ns,
                max_ns: clamp(config.max_ns, min_ns, INTERVAL_NS_MAX),
                confidence: if confidence.is_nan() { 0.9 } else { confidence },
                ..config
            },
            risks: [Risk::compared(), Risk::new(), Risk::new()],
            last: None,
            earlier: Earlier::default(),
            price: 0.0,
            planned: 0.0,
            said: ValueBasis::Held,
            looks: 0,
            dense: 0,
            tokens: TOKENS_MAX,
            derived_cost: 0.0,
        }
    }

    /// Takes in a look and returns the plan until the next. `half_width` returns the half width of
    /// the forecast at a number of ns from now, with this look included. A value that is not
    /// finite, or not later than the last, teaches nothing.
    pub fn look(&mut self, looked: &ComparedLook, half_width: impl Fn(i64) -> f64) -> LookPlan {
        let fresh =
            looked.value.is_finite() && self.last.is_none_or(|(ts_ns, _)| ts_ns < looked.ts_ns);
        if fresh {
            if let Some((ts_ns, value)) = self.last {
                self.learn(looked, looked.ts_ns.saturating_sub(ts_ns), value);
                self.compare(looked, self.ticks(looked.ts_ns.saturating_sub(ts_ns)));
                self.earlier.keep(ts_ns, value);
            }
            self.last = Some((looked.ts_ns, looked.value));
        }
        self.plan(looked, half_width)
    }

    /// Sets the most looks per second from now on, as a [`LookBudget`](super::LookBudget) gives
    /// them.
    pub fn set_looks_per_s_max(&mut self, looks_per_s_max: f64) {
        self.config.looks_per_s_max = looks_per_s_max;
    }

    /// Sets the looks per tick that derived values need beside those that are planned here.
    pub(super) fn set_derived_cost(&mut self, looks_per_tick: f64) {
        self.derived_cost = looks_per_tick;
    }

    /// Whether the assumed value `said` is too far from `value`.
    pub fn is_wrong(&self, value: f64, said: f64) -> bool {
        let off = (value - said).abs();
        off.is_nan() || off > self.config.bound.tolerance(value)
    }

    fn learn(&mut self, looked: &ComparedLook, elapsed_ns: i64, held: f64) {
        let ticks = self.ticks(elapsed_ns);
        let tolerance = self.config.bound.tolerance(looked.value);
        let held = AssumedValue {
            value: held,
            half_width: f64::INFINITY,
            confidence: 0.9,
        };
        let ways = [
            (ValueBasis::Held, Some(held)),
            (ValueBasis::Forecast, looked.forecast),
            (ValueBasis::Derived, looked.derived),
        ];
        for (way, outlook) in ways {
            let Some(outlook) = outlook else { continue };
            if way == ValueBasis::Derived && outlook.half_width > tolerance {
                self.risks[way as usize].skip(ticks);
                continue;
            }
            let missed = self.is_wrong(looked.value, outlook.value);
            let prior = outlook
                .wrong(tolerance)
                .filter(|_| way == ValueBasis::Forecast);
            let doubtful = self.risks[way as usize].look(ticks, missed, prior);
            if doubtful && way == self.said {
                self.dense = DENSE_LOOKS;
            }
        }
        let earned = elapsed_ns as f64 / NS_PER_S as f64 * self.config.looks_per_s_max.max(0.0);
        self.tokens = (self.tokens + earned).min(TOKENS_MAX);
    }

    /// Records for earlier looks whether holding their value until now would have been right: so
    /// all waits are learned, also those that were never made, whatever the reason of a look was.
    /// `since`: ticks since the last look.
    fn compare(&mut self, looked: &ComparedLook, since: u64) {
        for (ts_ns, value) in self.earlier.newest_first() {
            let elapsed_ns = looked.ts_ns.saturating_sub(ts_ns);
            if elapsed_ns > self.config.max_ns {
                break;
            }
            let (ticks, missed) = (self.ticks(elapsed_ns), self.is_wrong(looked.value, value));
            // Waits that overlap repeat the same information.
            let weight = (since as f64 / ticks as f64).min(1.0);
            self.risks[ValueBasis::Held as usize].compare(ticks, missed, weight);
        }
    }

    fn plan(&mut self, looked: &ComparedLook, half_width: impl Fn(i64) -> f64) -> LookPlan {
        self.tokens -= 1.0;
        self.looks = self.looks.wrapping_add(1);
        let tolerance = self.config.bound.tolerance(looked.value);
        let allowed = 1.0 - self.config.confidence;
        let price = self.price.exp() / allowed;
        let mut best = Choice::none();
        for way in [ValueBasis::Derived, ValueBasis::Held, ValueBasis::Forecast] {
            let outlook = match way {
                ValueBasis::Held => None,
                ValueBasis::Forecast => looked.forecast,
                ValueBasis::Derived => looked.derived,
            };
            if way == ValueBasis::Held || outlook.is_some() {
                best = self.choose(way, price, best, |ticks| {
                    let outlook = outlook.filter(|_| way == ValueBasis::Forecast)?;
                    let ahead_ns = self.config.min_ns.saturating_mul(ticks.min(1 << 40) as i64);
                    let half_width = half_width(ahead_ns);
                    let outlook = AssumedValue {
                        half_width,
                        ..outlook
                    };
                    outlook.wrong(tolerance)
                });
            }
        }
        self.said = best.said;
        let share = best.late / best.ticks as f64 / allowed;
        self.planned += best.ticks as f64;
        let follows = self.planned.clamp(PRICE_TICKS[0], PRICE_TICKS[1]);
        self.price += (share - 1.0).min(3.0) * best.ticks as f64 / follows;
        self.price = self.price.clamp(PRICE_MIN.ln(), PRICE_MAX.ln());
        let ticks = self.vary(best.ticks);
        let wait_ns = self.afford(ticks);
        LookPlan {
            wait_ns,
            said: best.said,
            wrong_share: best.late / best.ticks as f64,
            wrong_per_s: best.wrong * NS_PER_S as f64
                / (best.ticks as f64 * self.config.min_ns as f64),
        }
    }

    fn choose(
        &self,
        way: ValueBasis,
        price: f64,
        mut best: Choice,
        prior: impl Fn(u64) -> Option<f64>,
    ) -> Choice {
        let risk = &self.risks[way as usize];
        let ticks_max = (self.config.max_ns / self.config.min_ns).max(1) as u64;
        let curve = risk.curve(ticks_max, prior);
        let (bias, worth) = (risk.bias(), if way == self.said { SWITCH } else { 1.0 });
        let beside = if way == ValueBasis::Derived {
            self.derived_cost
        } else {
            0.0
        };
        curve.late(candidates(ticks_max), |ticks, late| {
            let late = late * bias;
            let cost = worth * ((1.0 + price * late) / ticks as f64 + beside);
            if cost < best.cost {
                best = Choice {
                    said: way,
                    ticks,
                    late,
                    cost,
                    wrong: curve.wrong(ticks),
                };
            }
        });
        best
    }

    /// Makes a look from time to time earlier than planned, at another point of the wait each time.
    fn vary(&mut self, ticks: u64) -> u64 {
        if self.dense > 0 {
            self.dense -= 1;
            return 1;
        }
        if ticks < 2 || !self.looks.is_multiple_of(PROBE_EVERY) {
            return ticks;
        }
        // Multiples of the golden ratio fill the interval evenly.
        let place = f64::from(self.looks / PROBE_EVERY) * 0.618_033_988_749_895;
        1 + (place.fract() * (ticks - 1) as f64) as u64
    }

    fn afford(&self, ticks: u64) -> i64 {
        let wait_ns = self.config.min_ns.saturating_mul(ticks.min(1 << 40) as i64);
        let rate = self.config.looks_per_s_max;
        let saved_ns = if self.tokens >= 0.0 {
            0
        } else if rate > 0.0 {
            (-self.tokens / rate * NS_PER_S as f64) as i64
        } else {
            self.config.max_ns
        };
        wait_ns.max(saved_ns).min(self.config.max_ns)
    }

    fn ticks(&self, elapsed_ns: i64) -> u64 {
        let half = self.config.min_ns / 2;
        (elapsed_ns.saturating_add(half) / self.config.min_ns).max(1) as u64
    }
}

/// The looks before the last one.
#[derive(Clone, Debug, Default)]
struct Earlier {
    looks: [(i64, f64); EARLIER_MAX],
    kept: usize,
}

impl Earlier {
    fn keep(&mut self, ts_ns: i64, value: f64) {
        self.looks[self.kept % EARLIER_MAX] = (ts_ns, value);
        self.kept += 1;
    }

    fn newest_first(&self) -> impl Iterator<Item = (i64, f64)> {
        let (kept, looks) = (self.kept, self.looks);
        (1..=kept.min(EARLIER_MAX)).map(move |back| looks[(kept - back) % EARLIER_MAX])
    }
}

/// The best wait so far.
#[derive(Clone, Copy)]
struct Choice {
    said: ValueBasis,
    ticks: u64,
    late: f64,
    cost: f64,
    wrong: f64,
}

impl Choice {
    fn none() -> Self {
        Self {
            said: ValueBasis::Held,
            ticks: 1,
            late: 0.0,
            cost: f64::INFINITY,
            wrong: 0.0,
        }
    }
}
