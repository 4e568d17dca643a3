//! The planner of one stream's looks: the time of the next look, and the projection that readers
//! get until then.

use barograph_model::{Knot, Projection, Sample, seconds};

use super::bounded::{
    AssumedValue, BoundedConfig, ComparedLook, ErrorBounded, LookPlan, ValueBasis,
};
use super::derived::{DerivedValue, MoveOutcome};
use super::{IntervalPolicy, PolicyState};

/// The method that finds the wait until the next look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LookMethod {
    /// From the values alone.
    ByValues(IntervalPolicy),
    /// From the time at which the published projection goes wrong.
    ByError(BoundedConfig),
}

/// The method, with what it has learned.
enum Method {
    Values(IntervalPolicy, PolicyState),
    Error(Box<ErrorBounded>),
    /// Like `Error`, and from the values of a cheap stream.
    Sentinel(Box<DerivedValue>),
}

/// Plans the looks at one stream.
pub struct LookPlanner {
    config: LookMethod,
    method: Method,
    /// Shortest time between looks.
    min_ns: i64,
    plan: Option<LookPlan>,
    /// Whether a look is wanted now, whatever the plan is.
    is_called: bool,
    looks: u64,
    first_ns: i64,
    newest_ns: i64,
    value: f64,
    /// Time of the newest look; `None` if the forecaster did not take it.
    said_ns: Option<i64>,
}

/// Buffers for the projection that is published, reused from stream to stream.
#[derive(Default)]
pub struct ProjectionBuffers {
    expected: Projection,
    said: Projection,
}

impl LookPlanner {
    /// Returns a planner before the first look. `min_ns` is the shortest time between looks.
    pub fn new(config: LookMethod, min_ns: i64) -> Self {
        Self {
            config,
            method: alone(config),
            min_ns,
            plan: None,
            is_called: false,
            looks: 0,
            first_ns: 0,
            newest_ns: 0,
            value: f64::NAN,
            said_ns: None,
        }
    }

    /// Makes the stream follow a cheap stream from now on, or none. Only a method by error can
    /// follow one.
    pub fn follow(&mut self, is_following: bool) {
        self.method = match self.config {
            LookMethod::ByError(config) if is_following => {
                Method::Sentinel(Box::new(DerivedValue::new(config)))
            }
            config => alone(config),
        };
    }

    /// Returns the plan of the newest look; `None` before the first one.
    pub fn plan(&self) -> Option<LookPlan> {
        self.plan
    }

    /// Whether a look is wanted now, whatever the plan is.
    pub fn is_called(&self) -> bool {
        self.is_called
    }

    /// Number of looks that found a number.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Looks per second from the first to the newest one; `None` before the second.
    pub fn looks_per_s(&self) -> Option<f64> {
        let elapsed_ns = self.newest_ns.saturating_sub(self.first_ns);
        (self.looks > 1 && elapsed_ns > 0).then(|| (self.looks - 1) as f64 / seconds(elapsed_ns))
    }

    /// Asks for a look now. Returns whether nobody had asked before.
    pub fn call(&mut self) -> bool {
        !std::mem::replace(&mut self.is_called, true)
    }

    /// Records a look at the stream and makes a new plan. `forecast` is the value that was expected
    /// for this moment before the look. `half_width` gives, after the look, the half width of the
    /// error of what is expected a number of ns from now. `is_said` is whether a projection is
    /// published after the look. A sample that is no finite number changes no plan.
    pub fn look(
        &mut self,
        sample: &Sample,
        forecast: Option<AssumedValue>,
        is_said: bool,
        half_width: impl Fn(i64) -> f64,
    ) {
        self.is_called = false;
        let Some(value) = sample.value.as_f64().filter(|v| v.is_finite()) else {
            return;
        };
        if self.looks == 0 {
            self.first_ns = sample.ts;
        }
        self.looks += 1;
        self.newest_ns = sample.ts;
        self.value = value;
        self.said_ns = is_said.then_some(sample.ts);
        let looked = ComparedLook {
            ts_ns: sample.ts,
            value,
            forecast,
            derived: None,
        };
        self.plan = Some(match &mut self.method {
            Method::Values(policy, state) => {
                *state = policy.next(*state, value);
                known_plan(state.interval_ns)
            }
            Method::Error(bounded) => bounded.look(&looked, half_width),
            Method::Sentinel(derived) => derived.look(&looked, half_width),
        });
    }

    /// Replaces the projection since the look at `looked_ns` in `floats` by the one that the plan
    /// publishes, and returns the time from which it counts. If the plan publishes the forecast,
    /// `floats` stays as it is. If it holds or derives a value until the next look, that comes
    /// first.
    pub fn project(
        &self,
        looked_ns: i64,
        floats: &mut Vec<f64>,
        buffers: &mut ProjectionBuffers,
    ) -> i64 {
        let (Some(said_ns), Some(plan)) = (self.said_ns, &self.plan) else {
            // The forecaster took an earlier look, which the plan does not know.
            return looked_ns;
        };
        let tolerance = match (plan.said, self.config) {
            (ValueBasis::Held, LookMethod::ByError(config)) => config.bound.tolerance(self.value),
            // A move of the cheap stream will be published.
            (ValueBasis::Derived, _) => 0.0,
            (ValueBasis::Forecast, _) | (ValueBasis::Held, LookMethod::ByValues(_)) => {
                return said_ns;
            }
        };
        let ProjectionBuffers { expected, said } = buffers;
        expected.refill_from_floats(floats);
        let (first_s, until_s) = (seconds(self.min_ns), seconds(plan.wait_ns));
        hold(expected, self.value, first_s, until_s, tolerance, said);
        let mut from_ns = said_ns;
        if let Method::Sentinel(derived) = &self.method
            && let Some(moved_ns) = derived.shift(said_ns, said, expected)
        {
            std::mem::swap(said, expected);
            from_ns = moved_ns;
        }
        said.write_floats(floats);
        from_ns
    }

    /// Records a look at the cheap stream. `forecast` is called for the value that is expected of
    /// this stream now, but only if the plan publishes the forecast.
    pub fn moved(
        &mut self,
        ts_ns: i64,
        counter: f64,
        forecast: impl FnOnce() -> Option<AssumedValue>,
    ) -> MoveOutcome {
        let said = self.plan.map(|plan| plan.said);
        let told_ns = self.said_ns.filter(|_| said == Some(ValueBasis::Derived));
        let forecast = (said == Some(ValueBasis::Forecast))
            .then(forecast)
            .flatten();
        let Method::Sentinel(derived) = &mut self.method else {
            return MoveOutcome::Nothing;
        };
        derived.moved(ts_ns, counter, forecast, told_ns)
    }
}

/// Returns the method without a cheap stream.
fn alone(config: LookMethod) -> Method {
    match config {
        LookMethod::ByError(config) => Method::Error(Box::new(ErrorBounded::new(config))),
        LookMethod::ByValues(policy) => Method::Values(policy, policy.start()),
    }
}

/// Returns the plan of a fixed or adaptive interval. Such an interval knows no error, so it counts
/// as if the value were wrong once, at the end of each wait.
fn known_plan(wait_ns: i64) -> LookPlan {
    LookPlan {
        wait_ns,
        said: ValueBasis::Held,
        wrong_share: f64::NAN,
        wrong_per_s: 1.0 / seconds(wait_ns.max(1)),
    }
}

/// Fills `said` with the value held until `until_s`, followed by what was expected after that. Its
/// half width covers the expected values, but is at most the tolerance.
fn hold(
    expected: &Projection,
    value: f64,
    first_s: f64,
    until_s: f64,
    tolerance: f64,
    said: &mut Projection,
) {
    let knot = |after_s: f64| {
        let off = expected
            .at(after_s)
            .map_or(f64::INFINITY, |k| (k.value - value).abs() + k.half_width);
        Knot {
            after_s,
            value,
            half_width: off.min(tolerance),
        }
    };
    let here = Knot {
        half_width: 0.0,
        ..knot(0.0)
    };
    let held = [here, knot(first_s), knot(until_s)];
    let later = expected.knots().iter().filter(|k| k.after_s > until_s);
    said.refill(held.into_iter().chain(later.copied()));
}
