//! One stream under a policy: the time of its next look, and the projection that readers get until
//! then.

use std::sync::Arc;

use barograph_forecast::interval::{
    Aimd, Bound, BoundedConfig, ErrorBounded, IntervalPolicy, Looked, Outlook, Plan, PolicyState,
    Said,
};
use barograph_model::{Knot, NS_PER_S, Projection, Sample, StreamKey, Wanted};
use barograph_source::{Caps, PolicySpecKind};

use super::Policy;
use super::sentinel::{Derived, Moved};

/// Factor and thresholds of adaptive intervals, the same as for sources: the factor applies when
/// the value changed much, the thresholds decide what is little.
const MULTIPLY: f64 = 0.75;
const LITTLE_SIMPLE: f64 = 0.1;
const LITTLE_COMPLEX: f64 = 1.1;
/// Most steps of the forecaster in one wait. The forecaster forgets what lies further back.
const STEPS_MAX: i64 = 64;

/// The method that finds the wait until the next look.
pub(super) enum Way {
    /// From the values alone (fixed or adaptive).
    Known(IntervalPolicy, PolicyState),
    /// From the time at which the published projection goes wrong.
    Bounded(Box<ErrorBounded>),
    /// Like `Bounded`, and from the values of a cheap stream.
    Sentinel(Box<Derived>),
}

/// A stream and its policy.
pub(super) struct Governed {
    pub(super) policy: Arc<Policy>,
    /// Source that reads the stream, if it is known.
    pub(super) source: Option<&'static str>,
    /// Limits of the source's interval. The configured interval is 0 until it is known.
    pub(super) caps: Caps,
    /// Shortest and longest time between looks that policy and source allow.
    pub(super) min_ns: i64,
    pub(super) max_ns: i64,
    /// Interval at which the source is read at present.
    pub(super) interval_ns: i64,
    pub(super) way: Way,
    pub(super) plan: Option<Plan>,
    /// Whether a look is wanted now, whatever the plan is.
    is_called: bool,
    pub(super) looks: u64,
    pub(super) first_ns: i64,
    pub(super) newest_ns: i64,
    value: f64,
    /// Time of the newest look; `None` if the forecaster did not take it.
    said_ns: Option<i64>,
}

/// Buffers for the projection that is published, reused from stream to stream.
#[derive(Default)]
pub(super) struct Speech {
    expected: Projection,
    said: Projection,
}

impl Governed {
    pub(super) fn new(policy: Arc<Policy>, source: Option<&'static str>, caps: Caps) -> Self {
        let min_ns = policy.spec.min_ns().max(caps.min_ns);
        let max_ns = policy.spec.max_ns().min(caps.max_ns).max(min_ns);
        Self {
            way: alone(&policy, min_ns, max_ns),
            policy,
            source,
            interval_ns: caps.interval_ns,
            caps,
            min_ns,
            max_ns,
            plan: None,
            is_called: false,
            looks: 0,
            first_ns: 0,
            newest_ns: 0,
            value: f64::NAN,
            said_ns: None,
        }
    }

    /// Returns the step for the forecaster, long enough that the longest wait is within its memory.
    pub(super) fn step_ns(&self) -> i64 {
        self.min_ns.max(self.max_ns / STEPS_MAX)
    }

    /// Makes the stream follow a cheap stream from now on.
    pub(super) fn follow(&mut self, cheap: StreamKey) {
        self.way = Way::Sentinel(Box::new(Derived::new(
            cheap,
            bounded(&self.policy, self.min_ns, self.max_ns),
        )));
    }

    /// Ends following, since the cheap stream is gone.
    pub(super) fn unfollow(&mut self) {
        self.way = alone(&self.policy, self.min_ns, self.max_ns);
    }

    /// Returns the cheap stream that this one follows.
    pub(super) fn cheap(&self) -> Option<StreamKey> {
        match &self.way {
            Way::Sentinel(derived) => Some(derived.cheap),
            Way::Known(..) | Way::Bounded(_) => None,
        }
    }

    /// Returns when a look is wanted; `None` before the first look.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let plan = self.plan?;
        Some(Wanted {
            wait_ns: if self.is_called { 0 } else { plan.wait_ns },
            wrong_per_s: plan.wrong_per_s,
            weight: self.policy.spec.weight,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
        })
    }

    /// Asks for a look now. Returns whether nobody had asked before.
    pub(super) fn call(&mut self) -> bool {
        !std::mem::replace(&mut self.is_called, true)
    }

    /// Records a look at the stream and makes a new plan. `forecast` is the value that was expected
    /// for this moment before the look. `half_width` gives, after the look, the half width of the
    /// error of what is expected a number of ns from now. `is_said` is whether a projection is
    /// published after the look. A sample that is no finite number changes no plan.
    pub(super) fn look(
        &mut self,
        sample: &Sample,
        forecast: Option<Outlook>,
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
        let looked = Looked {
            ts_ns: sample.ts,
            value,
            forecast,
            derived: None,
        };
        self.plan = Some(match &mut self.way {
            Way::Known(policy, state) => {
                *state = policy.next(*state, value);
                known_plan(state.interval_ns)
            }
            Way::Bounded(bounded) => bounded.look(&looked, half_width),
            Way::Sentinel(derived) => derived.look(&looked, half_width),
        });
    }

    /// Replaces the projection since the look at `looked_ns` in `floats` by the one that the plan
    /// publishes, and returns the time from which it counts. If the plan publishes the forecast,
    /// `floats` stays as it is. If it holds or derives a value until the next look, that comes
    /// first.
    pub(super) fn speak(&self, looked_ns: i64, floats: &mut Vec<f64>, speech: &mut Speech) -> i64 {
        let (Some(said_ns), Some(plan)) = (self.said_ns, &self.plan) else {
            // The forecaster took an earlier look, which the plan does not know.
            return looked_ns;
        };
        let tolerance = match (plan.said, &self.policy.bound) {
            (Said::Held, Some(bound)) => bound.tolerance(self.value),
            // A move of the cheap stream will be published.
            (Said::Derived, _) => 0.0,
            (Said::Forecast, _) | (Said::Held, None) => return said_ns,
        };
        let Speech { expected, said } = speech;
        expected.refill_from_floats(floats);
        let (first_s, until_s) = (seconds(self.min_ns), seconds(plan.wait_ns));
        hold(expected, self.value, first_s, until_s, tolerance, said);
        let mut from_ns = said_ns;
        if let Way::Sentinel(derived) = &self.way
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
    pub(super) fn moved(
        &mut self,
        ts_ns: i64,
        counter: f64,
        forecast: impl FnOnce() -> Option<Outlook>,
    ) -> Moved {
        let said = self.plan.map(|plan| plan.said);
        let told_ns = self.said_ns.filter(|_| said == Some(Said::Derived));
        let forecast = (said == Some(Said::Forecast)).then(forecast).flatten();
        let Way::Sentinel(derived) = &mut self.way else {
            return Moved::Nothing;
        };
        derived.moved(ts_ns, counter, forecast, told_ns)
    }
}

/// Returns the method without a cheap stream.
fn alone(policy: &Policy, min_ns: i64, max_ns: i64) -> Way {
    let aimd = |threshold| Aimd {
        start_ns: min_ns,
        min_ns,
        max_ns,
        add_ns: min_ns,
        multiply: MULTIPLY,
        threshold,
    };
    let known = match policy.spec.kind {
        PolicySpecKind::ErrorBounded => {
            let bounded = ErrorBounded::new(bounded(policy, min_ns, max_ns));
            return Way::Bounded(Box::new(bounded));
        }
        PolicySpecKind::Fixed => IntervalPolicy::Fixed {
            interval_ns: min_ns,
        },
        PolicySpecKind::AimdSimple => IntervalPolicy::AimdSimple(aimd(LITTLE_SIMPLE)),
        PolicySpecKind::AimdComplex => IntervalPolicy::AimdComplex(aimd(LITTLE_COMPLEX)),
    };
    Way::Known(known, known.start())
}

fn bounded(policy: &Policy, min_ns: i64, max_ns: i64) -> BoundedConfig {
    BoundedConfig {
        // A bounded policy has a bound: [`Policy::new`] has checked that.
        bound: policy.bound.unwrap_or(Bound::Absolute(0.0)),
        confidence: policy.spec.confidence,
        min_ns,
        max_ns,
        looks_per_s_max: f64::INFINITY,
    }
}

/// Returns the plan of a fixed or adaptive interval. Such an interval knows no error, so it counts
/// as if the value were wrong once, at the end of each wait.
fn known_plan(wait_ns: i64) -> Plan {
    Plan {
        wait_ns,
        said: Said::Held,
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

pub(super) fn seconds(ns: i64) -> f64 {
    ns as f64 / NS_PER_S as f64
}
