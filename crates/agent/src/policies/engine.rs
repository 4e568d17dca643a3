//! One stream under a policy: when it wants to be looked at again, and what readers are told of it until then.

use std::sync::Arc;

use barograph_forecast::interval::{
    Aimd, Bound, BoundedConfig, ErrorBounded, IntervalPolicy, Looked, Outlook, Plan, PolicyState,
    Said,
};
use barograph_model::{Knot, NS_PER_S, Projection, Sample, StreamKey, Wanted};
use barograph_source::{Caps, PolicySpecKind};

use super::Policy;
use super::sentinel::{Derived, Moved};

/// What adaptive intervals multiply with when much changed, and what "little" is: as for sources.
const MULTIPLY: f64 = 0.75;
const LITTLE_SIMPLE: f64 = 0.1;
const LITTLE_COMPLEX: f64 = 1.1;
/// Looks until the next are at most so many steps of the forecaster, which forgets what lies further back.
const STEPS_MAX: i64 = 64;

/// How the wait is found.
pub(super) enum Way {
    /// By values alone.
    Known(IntervalPolicy, PolicyState),
    /// By how soon what is said goes wrong.
    Bounded(Box<ErrorBounded>),
    /// That, and by what a cheap stream says.
    Sentinel(Box<Derived>),
}

/// A stream and its policy.
pub(super) struct Governed {
    pub(super) policy: Arc<Policy>,
    /// Who reads it, if that is known.
    pub(super) source: Option<&'static str>,
    /// What its source bears; the interval is 0 until that is known.
    pub(super) caps: Caps,
    /// The shortest time between looks that policy and source allow, and the longest.
    pub(super) min_ns: i64,
    pub(super) max_ns: i64,
    /// How often its source is read at present.
    pub(super) interval_ns: i64,
    pub(super) way: Way,
    pub(super) plan: Option<Plan>,
    /// It is wanted now, whatever the plan was.
    is_called: bool,
    pub(super) looks: u64,
    pub(super) first_ns: i64,
    pub(super) newest_ns: i64,
    value: f64,
    /// The time of the newest look; none where its forecaster did not take it.
    said_ns: Option<i64>,
}

/// What is about to be said of one stream after another.
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

    /// The step of a forecaster that is not left behind by the longest wait.
    pub(super) fn step_ns(&self) -> i64 {
        self.min_ns.max(self.max_ns / STEPS_MAX)
    }

    /// Follows a cheap stream from now on.
    pub(super) fn follow(&mut self, cheap: StreamKey) {
        self.way = Way::Sentinel(Box::new(Derived::new(
            cheap,
            bounded(&self.policy, self.min_ns, self.max_ns),
        )));
    }

    /// The cheap stream is gone.
    pub(super) fn unfollow(&mut self) {
        self.way = alone(&self.policy, self.min_ns, self.max_ns);
    }

    /// The cheap stream that it follows.
    pub(super) fn cheap(&self) -> Option<StreamKey> {
        match &self.way {
            Way::Sentinel(derived) => Some(derived.cheap),
            Way::Known(..) | Way::Bounded(_) => None,
        }
    }

    /// What is wanted of it; nothing before it was looked at.
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

    /// It is wanted now; whether that is news.
    pub(super) fn call(&mut self) -> bool {
        !std::mem::replace(&mut self.is_called, true)
    }

    /// A look: `forecast` is what was expected of this moment before it, `half_width` how far off what is expected so many ns from now may be,
    /// now that it is known; `is_said` if readers are told something after it. What is no number is no answer, and changes no plan.
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

    /// What readers are told, in place of what is expected since the look at `looked_ns`; gives from when on. Where something else is said
    /// until the next look, that comes first.
    pub(super) fn speak(&self, looked_ns: i64, floats: &mut Vec<f64>, speech: &mut Speech) -> i64 {
        let (Some(said_ns), Some(plan)) = (self.said_ns, &self.plan) else {
            // Of a look that its forecaster took before, and the plan does not know.
            return looked_ns;
        };
        let tolerance = match (plan.said, &self.policy.bound) {
            (Said::Held, Some(bound)) => bound.tolerance(self.value),
            // A move of the cheap stream will say so.
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

    /// The cheap stream was looked at. `forecast` is asked for what is expected of this one now, where that is what is said of it.
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

/// How the interval is found without a cheap stream.
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
        // One that is bounded has a bound: that was checked.
        bound: policy.bound.unwrap_or(Bound::Absolute(0.0)),
        confidence: policy.spec.confidence,
        min_ns,
        max_ns,
        looks_per_s_max: f64::INFINITY,
    }
}

/// Fixed and adaptive intervals say nothing of errors: as if one were wrong by the end of each.
fn known_plan(wait_ns: i64) -> Plan {
    Plan {
        wait_ns,
        said: Said::Held,
        wrong_share: f64::NAN,
        wrong_per_s: 1.0 / seconds(wait_ns.max(1)),
    }
}

/// It stays as it is until `until_s`, and what was expected comes then. The half width is what is known of what was expected, or the tolerance
/// where that is less.
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
