//! One stream under a policy: its source, the intervals that policy and source allow, and the
//! planner of its looks.

use std::sync::Arc;

use barograph_forecast::interval::{
    Aimd, BoundedConfig, ErrorBound, IntervalPolicy, LookMethod, LookPlanner,
};
use barograph_model::{IntervalRequest, StreamKey};
use barograph_source::{IntervalCaps, PolicySpecKind};

use super::roster::Policy;

/// Factor and thresholds of adaptive intervals, the same as for sources: the factor applies when
/// the value changed much, the thresholds decide what is little.
const MULTIPLY: f64 = 0.75;
const LITTLE_SIMPLE: f64 = 0.1;
const LITTLE_COMPLEX: f64 = 1.1;
/// Most steps of the forecaster in one wait. The forecaster forgets what lies further back.
const STEPS_MAX: i64 = 64;

/// A stream and its policy.
pub(super) struct Governed {
    pub(super) policy: Arc<Policy>,
    /// Source that reads the stream, if it is known.
    pub(super) source: Option<&'static str>,
    /// Limits of the source's interval. The configured interval is 0 until it is known.
    pub(super) caps: IntervalCaps,
    /// Shortest and longest time between looks that policy and source allow.
    pub(super) min_ns: i64,
    pub(super) max_ns: i64,
    /// Interval at which the source is read at present.
    pub(super) interval_ns: i64,
    /// The cheap stream that this one follows.
    pub(super) cheap: Option<StreamKey>,
    pub(super) planner: LookPlanner,
}

impl Governed {
    pub(super) fn new(
        policy: Arc<Policy>,
        source: Option<&'static str>,
        caps: IntervalCaps,
    ) -> Self {
        let min_ns = policy.spec.min_ns().max(caps.min_ns);
        let max_ns = policy.spec.max_ns().min(caps.max_ns).max(min_ns);
        Self {
            planner: LookPlanner::new(method(&policy, min_ns, max_ns), min_ns),
            policy,
            source,
            interval_ns: caps.interval_ns,
            caps,
            min_ns,
            max_ns,
            cheap: None,
        }
    }

    /// Returns the step for the forecaster, long enough that the longest wait is within its memory.
    pub(super) fn step_ns(&self) -> i64 {
        self.min_ns.max(self.max_ns / STEPS_MAX)
    }

    /// Makes the stream follow a cheap stream from now on, or none.
    pub(super) fn follow(&mut self, cheap: Option<StreamKey>) {
        self.cheap = cheap;
        self.planner.follow(cheap.is_some());
    }

    /// Returns when a look is wanted; `None` before the first look.
    pub(super) fn wanted(&self) -> Option<IntervalRequest> {
        let plan = self.planner.plan()?;
        Some(IntervalRequest {
            wait_ns: if self.planner.is_called() {
                0
            } else {
                plan.wait_ns
            },
            wrong_per_s: plan.wrong_per_s,
            weight: self.policy.spec.weight,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
        })
    }
}

/// The method of a policy within these intervals.
fn method(policy: &Policy, min_ns: i64, max_ns: i64) -> LookMethod {
    let aimd = |threshold| Aimd {
        start_ns: min_ns,
        min_ns,
        max_ns,
        add_ns: min_ns,
        multiply: MULTIPLY,
        threshold,
    };
    LookMethod::ByValues(match policy.spec.kind {
        PolicySpecKind::ErrorBounded => {
            return LookMethod::ByError(BoundedConfig {
                // A bounded policy has a bound: [`Policy::new`] has checked that.
                bound: policy.bound.unwrap_or(ErrorBound::Absolute(0.0)),
                confidence: policy.spec.confidence,
                min_ns,
                max_ns,
                looks_per_s_max: f64::INFINITY,
            });
        }
        PolicySpecKind::Fixed => IntervalPolicy::Fixed {
            interval_ns: min_ns,
        },
        PolicySpecKind::AimdSimple => IntervalPolicy::AimdSimple(aimd(LITTLE_SIMPLE)),
        PolicySpecKind::AimdComplex => IntervalPolicy::AimdComplex(aimd(LITTLE_COMPLEX)),
    })
}
