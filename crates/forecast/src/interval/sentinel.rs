//! The sentinel: a cheap counter decides when a dear value is worth a look.
//!
//! From calls (looks at the dear value), a [`Sentinel`] learns how the value changes with the
//! counter (their ratio: a weighted median, so that changes that the counter does not see, such as
//! a deletion, do not distort it) and the error of that. Between calls, the value is derived: the
//! last one seen, plus the ratio times the move of the counter. The value is called again when the
//! error of the derived one may exceed the bound, and when [`ErrorBounded`] plans a look; that
//! learns how often the derived value was wrong all the same.

use super::bounded::{
    AssumedValue, BoundedConfig, ComparedLook, ErrorBound, ErrorBounded, LookPlan, ValueBasis,
};

/// Number of calls that are remembered, for ratio and error.
const PAIRS_MAX: usize = 32;
/// Fewest calls for a ratio: with fewer, each move of the counter is a call, whatever is planned.
const PAIRS_MIN: usize = 4;
/// Share of a call's weight that is left after the next, in how often the error asks for a call.
const KEEP: f64 = 0.8;

/// The configuration of a [`Sentinel`]: the bound and the intervals of the dear value; the shortest
/// interval is that at which the counter is read.
pub type SentinelConfig = BoundedConfig;

/// The next step after the counter was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SentinelStep {
    /// Look at the dear value.
    Call,
    /// Assume this value: no look is needed.
    Say(AssumedValue),
}

/// Derives a dear value from a cheap counter.
#[derive(Clone, Debug)]
pub struct Sentinel {
    config: SentinelConfig,
    bounded: ErrorBounded,
    /// Counter and value at the last call.
    anchor: Option<(f64, f64)>,
    due_ns: i64,
    said: ValueBasis,
    map: Ratio,
    /// Recent calls that the error asked for, and recent ticks.
    asked: f64,
    ticks: f64,
    called_ns: i64,
}

impl Sentinel {
    /// Creates a sentinel. Values of `config` that are out of range are brought into it.
    pub fn new(config: SentinelConfig) -> Self {
        Self {
            config,
            bounded: ErrorBounded::new(config),
            anchor: None,
            due_ns: i64::MIN,
            said: ValueBasis::Held,
            map: Ratio::default(),
            asked: 0.0,
            ticks: 1.0,
            called_ns: 0,
        }
    }

    /// Takes in a reading of the counter. The meaning of the first moves is unknown, so each is a
    /// call. A forecast of the value is used if forecasts have been better than derived values.
    /// Neither a forecast nor the held value is used once a move of the counter contradicts it.
    pub fn counter(
        &self,
        ts_ns: i64,
        counter: f64,
        forecast: Option<AssumedValue>,
    ) -> SentinelStep {
        let Some((from, value)) = self.anchor else {
            return SentinelStep::Call;
        };
        if ts_ns >= self.due_ns || !counter.is_finite() || counter < from {
            return SentinelStep::Call;
        }
        let moved = counter - from;
        if moved != 0.0 && self.map.len < PAIRS_MIN {
            return SentinelStep::Call;
        }
        let derived = self.map.derive(value, moved, self.config.confidence);
        let must_look = |said: f64| contradicts(&derived, moved, said, self.config.bound);
        match (self.said, forecast) {
            (ValueBasis::Derived, _) if self.asks(moved, value) => SentinelStep::Call,
            (ValueBasis::Derived, _) => SentinelStep::Say(derived),
            (ValueBasis::Forecast, Some(forecast)) if must_look(forecast.value) => {
                SentinelStep::Call
            }
            (ValueBasis::Forecast, Some(forecast)) => SentinelStep::Say(forecast),
            _ if must_look(value) => SentinelStep::Call,
            _ => SentinelStep::Say(AssumedValue {
                value,
                half_width: self.config.bound.tolerance(value),
                confidence: self.config.confidence,
            }),
        }
    }

    /// Takes in a call, with the counter and the value that it found.
    pub fn called(
        &mut self,
        ts_ns: i64,
        counter: f64,
        value: f64,
        forecast: Option<AssumedValue>,
        half_width: impl Fn(i64) -> f64,
    ) -> LookPlan {
        let mut derived = None;
        if let Some((from, before)) = self.anchor.filter(|(from, _)| *from <= counter)
            && value.is_finite()
        {
            let moved = counter - from;
            let asked = self.asks(moved, before);
            derived = Some(self.map.derive(before, moved, self.config.confidence));
            self.count(ts_ns, asked);
            self.map.learn(moved, value - before);
        }
        let looked = ComparedLook {
            ts_ns,
            value,
            forecast,
            derived,
        };
        self.bounded.set_derived_cost(self.asked / self.ticks);
        let plan = self.bounded.look(&looked, half_width);
        if value.is_finite() && counter.is_finite() {
            self.anchor = Some((counter, value));
        }
        self.said = plan.said;
        self.due_ns = ts_ns.saturating_add(plan.wait_ns);
        plan
    }

    /// Whether the derived value may be too far off after such a move.
    fn asks(&self, moved: f64, value: f64) -> bool {
        let half_width = self.map.half_width(moved, self.config.confidence);
        moved != 0.0 && half_width > self.config.bound.tolerance(value)
    }

    fn count(&mut self, ts_ns: i64, asked: bool) {
        let elapsed_ns = ts_ns.saturating_sub(self.called_ns).max(0);
        self.called_ns = ts_ns;
        self.asked = KEEP * self.asked + f64::from(u8::from(asked));
        self.ticks =
            KEEP * self.ticks + (elapsed_ns as f64 / self.config.min_ns.max(1) as f64).max(1.0);
    }
}

/// Whether the value derived from a move proves that the assumed value `said` is off by more than
/// the bound. A counter that did not move proves nothing: it may not see what a forecast knows.
fn contradicts(derived: &AssumedValue, moved: f64, said: f64, bound: ErrorBound) -> bool {
    let off = (derived.value - said).abs() - derived.half_width;
    moved != 0.0 && off > bound.tolerance(said)
}

/// The ratio of the value's moves to the counter's moves, and its error.
#[derive(Clone, Debug)]
struct Ratio {
    /// Moves of counter and value between calls; if the counter did not move, no ratio is learned.
    pairs: [(f64, f64); PAIRS_MAX],
    len: usize,
    next: usize,
    ratio: f64,
    /// |error| / √|move| of each pair, rising.
    errors: [f64; PAIRS_MAX],
}

impl Default for Ratio {
    fn default() -> Self {
        Self {
            pairs: [(0.0, 0.0); PAIRS_MAX],
            len: 0,
            next: 0,
            ratio: 0.0,
            errors: [0.0; PAIRS_MAX],
        }
    }
}

impl Ratio {
    fn derive(&self, value: f64, moved: f64, confidence: f64) -> AssumedValue {
        AssumedValue {
            value: value + self.ratio * moved,
            half_width: self.half_width(moved, confidence),
            confidence,
        }
    }

    /// Errors of single moves add up as in a random walk: by the square root.
    fn half_width(&self, moved: f64, confidence: f64) -> f64 {
        if moved == 0.0 {
            return 0.0;
        }
        if self.len < PAIRS_MIN {
            return f64::INFINITY;
        }
        let rank = (confidence * (self.len + 1) as f64).ceil() as usize;
        self.errors[rank.clamp(1, self.len) - 1] * moved.abs().sqrt()
    }

    fn learn(&mut self, counter: f64, value: f64) {
        if counter == 0.0 || !counter.is_finite() || !value.is_finite() {
            return;
        }
        self.pairs[self.next] = (counter, value);
        self.next = (self.next + 1) % PAIRS_MAX;
        self.len = (self.len + 1).min(PAIRS_MAX);
        let pairs = &self.pairs[..self.len];
        self.ratio = median(pairs);
        for (error, (counter, value)) in self.errors.iter_mut().zip(pairs) {
            *error = (value - self.ratio * counter).abs() / counter.abs().sqrt();
        }
        self.errors[..self.len].sort_unstable_by(f64::total_cmp);
    }
}

/// The median of value per counter, each weighted by the move of the counter.
fn median(pairs: &[(f64, f64)]) -> f64 {
    let mut ratios = [(0.0, 0.0); PAIRS_MAX];
    for (ratio, (counter, value)) in ratios.iter_mut().zip(pairs) {
        *ratio = (value / counter, counter.abs());
    }
    let ratios = &mut ratios[..pairs.len()];
    ratios.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = ratios.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for (ratio, weight) in ratios.iter() {
        below += weight;
        if below >= half {
            return *ratio;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use barograph_model::NS_PER_S;

    use super::*;
    use crate::interval::ErrorBound;

    /// The value falls by three for each one of the counter; counter and value are 49 and 853 at
    /// the last look.
    fn taught() -> Sentinel {
        let mut sentinel = Sentinel::new(SentinelConfig {
            bound: ErrorBound::Absolute(0.5),
            confidence: 0.99,
            min_ns: NS_PER_S,
            max_ns: 3600 * NS_PER_S,
            looks_per_s_max: f64::INFINITY,
        });
        for lesson in 0..8_u32 {
            let (ts_ns, moved) = (i64::from(lesson) * NS_PER_S, 7.0 * f64::from(lesson));
            sentinel.called(ts_ns, moved, 1000.0 - 3.0 * moved, None, |_| f64::INFINITY);
        }
        sentinel.due_ns = i64::MAX;
        sentinel
    }

    #[test]
    fn the_first_moves_are_calls() {
        let mut sentinel = taught();
        sentinel.said = ValueBasis::Held;
        let moved = |sentinel: &Sentinel| sentinel.counter(9 * NS_PER_S, 49.1, None);
        assert!(matches!(moved(&sentinel), SentinelStep::Say(_)));
        sentinel.map.len = PAIRS_MIN - 1;
        assert_eq!(moved(&sentinel), SentinelStep::Call);
        assert!(matches!(
            sentinel.counter(9 * NS_PER_S, 49.0, None),
            SentinelStep::Say(_)
        ));
    }

    #[test]
    fn a_move_that_contradicts_what_is_held_is_a_call() {
        let mut sentinel = taught();
        sentinel.said = ValueBasis::Held;
        let moved = |by| sentinel.counter(9 * NS_PER_S, 49.0 + by, None);
        assert_eq!(moved(7.0), SentinelStep::Call);
        assert!(
            matches!(moved(0.1), SentinelStep::Say(_)),
            "within the bound"
        );
        assert!(matches!(moved(0.0), SentinelStep::Say(_)));
    }

    #[test]
    fn a_move_that_contradicts_a_forecast_is_a_call() {
        let mut sentinel = taught();
        sentinel.said = ValueBasis::Forecast;
        let expected = |value| AssumedValue {
            value,
            half_width: 0.0,
            confidence: 0.9,
        };
        // After a move of 7, the derived value is 21 less than the 853 of the last look.
        let moved = |by, value| sentinel.counter(9 * NS_PER_S, 49.0 + by, Some(expected(value)));
        assert_eq!(moved(7.0, 853.0), SentinelStep::Call);
        assert_eq!(moved(7.0, 832.2), SentinelStep::Say(expected(832.2)));
        assert_eq!(moved(7.0, 831.0), SentinelStep::Call);
        assert_eq!(
            moved(0.0, 832.0),
            SentinelStep::Say(expected(832.0)),
            "no move says nothing"
        );
    }
}
