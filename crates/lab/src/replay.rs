//! Replays a trace to a policy that looks at some ticks, and counts the cost of looks and the share
//! of right values.
//!
//! A tick is a moment of the trace. At a tick at which the policy looks, its value is the true one;
//! at others, it is the value of the policy's outlook. A tick is exact if the value equals the true
//! one to the last bit, and right if it is within the bound.

use barograph_forecast::interval::{
    AssumedValue, BoundedConfig, ComparedLook, ErrorBound, ErrorBounded, IntervalPolicy,
    PolicyState, PublishedAimd, Sentinel, SentinelStep, ValueBasis,
};
use barograph_forecast::{Forecaster, ForecasterConfig, Shape};

/// The stream that is replayed: one column of a trace, and a counter that costs nothing to read.
#[derive(Clone, Copy, Debug)]
pub struct ReplayedStream<'a> {
    /// Time between ticks, in nanoseconds.
    pub interval_ns: i64,
    /// The true value at each tick. NaN means unknown; such a tick is neither looked at nor
    /// counted.
    pub values: &'a [f64],
    /// A counter that moves with the value; empty if there is none.
    pub counter: &'a [f64],
    /// The greatest error that is still right.
    pub bound: ErrorBound,
}

/// Cost and accuracy of a policy on a stream.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Looks per tick.
    pub cost: f64,
    /// Share of ticks with an exact value.
    pub exact: f64,
    /// Share of ticks with a value within the bound.
    pub right: f64,
    /// Mean of |value - true value|, in the stream's unit.
    pub mean_error: f64,
    /// Error divided by that of holding the last seen value, with the same looks; below 1 is
    /// better.
    pub relative_error: f64,
    /// Share of ticks with an outlook of known half width at which the true value was within it.
    pub coverage: Option<f64>,
    /// Number of ticks counted.
    pub ticks: u64,
}

/// The action of a policy at a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyAction {
    /// Gives this outlook without looking.
    Say(AssumedValue),
    /// Looks at this tick.
    Look,
    /// Looked just after the tick before, when the value was still that of that tick, and gives the
    /// value seen then.
    Looked,
}

/// A policy that decides at each tick whether to look, and gives an outlook if it does not.
pub trait Policy {
    /// Decides the action at this tick.
    fn tick(&mut self, ts_ns: i64, counter: f64) -> PolicyAction;

    /// Receives the value that was seen by a look.
    fn look(&mut self, ts_ns: i64, counter: f64, value: f64);
}

/// Replays all ticks of a stream to a policy.
pub fn replay(stream: &ReplayedStream, policy: &mut dyn Policy) -> Outcome {
    let mut tally = Tally::default();
    let (mut held, mut before) = (f64::NAN, f64::NAN);
    for (tick, &truth) in stream.values.iter().enumerate() {
        if !truth.is_finite() {
            continue;
        }
        let ts_ns = (tick as i64).saturating_mul(stream.interval_ns);
        let counter = stream.counter.get(tick).copied().unwrap_or(0.0);
        match policy.tick(ts_ns, counter) {
            PolicyAction::Say(said) if held.is_finite() => tally.said(stream, &said, truth, held),
            PolicyAction::Looked if held.is_finite() => {
                held = before;
                policy.look(ts_ns, counter, held);
                tally.looks += 1;
                tally.said(stream, &known(held), truth, held);
            }
            _ => {
                policy.look(ts_ns, counter, truth);
                held = truth;
                tally.looked();
            }
        }
        before = truth;
    }
    tally.outcome()
}

/// An outlook with the last value and an unknown error.
fn known(value: f64) -> AssumedValue {
    AssumedValue {
        value,
        half_width: f64::INFINITY,
        confidence: 0.0,
    }
}

#[derive(Default)]
struct Tally {
    ticks: u64,
    looks: u64,
    exact: u64,
    right: u64,
    error: f64,
    held_error: f64,
    intervals: u64,
    covered: u64,
}

impl Tally {
    fn looked(&mut self) {
        self.ticks += 1;
        self.looks += 1;
        self.exact += 1;
        self.right += 1;
    }

    fn said(&mut self, stream: &ReplayedStream, said: &AssumedValue, truth: f64, held: f64) {
        let off = (said.value - truth).abs();
        self.ticks += 1;
        self.exact += u64::from(off == 0.0);
        self.right += u64::from(off <= stream.bound.tolerance(truth));
        self.error += off;
        self.held_error += (held - truth).abs();
        if said.half_width.is_finite() {
            self.intervals += 1;
            self.covered += u64::from(off <= said.half_width);
        }
    }

    fn outcome(&self) -> Outcome {
        let ticks = self.ticks.max(1) as f64;
        Outcome {
            cost: self.looks as f64 / ticks,
            exact: self.exact as f64 / ticks,
            right: self.right as f64 / ticks,
            mean_error: self.error / ticks,
            relative_error: if self.held_error > 0.0 {
                self.error / self.held_error
            } else {
                1.0
            },
            coverage: (self.intervals > 0).then(|| self.covered as f64 / self.intervals as f64),
            ticks: self.ticks,
        }
    }
}

/// The interval policy behind [`HoldingPolicy`].
enum Next {
    Known(IntervalPolicy, PolicyState),
    Published(PublishedAimd),
}

/// A policy that decides by values only; its outlook is the last value.
pub struct HoldingPolicy {
    next: Next,
    due_ns: i64,
    value: f64,
}

impl HoldingPolicy {
    /// Wraps one of the sources' policies.
    pub fn new(policy: IntervalPolicy) -> Self {
        Self::of(Next::Known(policy, policy.start()))
    }

    /// Wraps Apollo's policy as released.
    pub fn published(policy: PublishedAimd) -> Self {
        Self::of(Next::Published(policy))
    }

    fn of(next: Next) -> Self {
        Self {
            next,
            due_ns: i64::MIN,
            value: f64::NAN,
        }
    }
}

impl Policy for HoldingPolicy {
    fn tick(&mut self, ts_ns: i64, _: f64) -> PolicyAction {
        if ts_ns < self.due_ns {
            PolicyAction::Say(known(self.value))
        } else if ts_ns == self.due_ns || self.due_ns == i64::MIN {
            PolicyAction::Look
        } else {
            PolicyAction::Looked
        }
    }

    fn look(&mut self, ts_ns: i64, _: f64, value: f64) {
        self.value = value;
        let wait_ns = match &mut self.next {
            Next::Known(policy, state) => {
                *state = policy.next(*state, value);
                state.interval_ns
            }
            Next::Published(policy) => policy.next(value),
        };
        // The remainder of an interval that is not a whole number of ticks is kept.
        let due_ns = if self.due_ns == i64::MIN {
            ts_ns
        } else {
            self.due_ns
        };
        self.due_ns = due_ns.saturating_add(wait_ns);
    }
}

/// Looks whenever the counter has moved and at no other time: the policy that trusts the counter
/// alone.
#[derive(Default)]
pub struct CounterPolicy {
    looked: Option<(f64, f64)>,
}

impl Policy for CounterPolicy {
    fn tick(&mut self, _: i64, counter: f64) -> PolicyAction {
        match self.looked {
            Some((before, value)) if before == counter => PolicyAction::Say(known(value)),
            _ => PolicyAction::Look,
        }
    }

    fn look(&mut self, _: i64, counter: f64, value: f64) {
        self.looked = Some((counter, value));
    }
}

/// [`ErrorBounded`] or [`Sentinel`], with an optional forecaster.
pub struct BoundedPolicy {
    kind: Kind,
    forecaster: Option<Forecaster>,
    confidence: f64,
    due_ns: i64,
    said: ValueBasis,
    value: f64,
}

enum Kind {
    Alone(Box<ErrorBounded>),
    Sentinel(Box<Sentinel>),
}

impl BoundedPolicy {
    /// Creates a policy that looks at the value alone; `shape` adds a forecaster.
    pub fn new(config: BoundedConfig, shape: Option<Shape>) -> Self {
        Self::of(
            Kind::Alone(Box::new(ErrorBounded::new(config))),
            config,
            shape,
        )
    }

    /// Creates a policy that reads a counter at each tick; `shape` adds a forecaster.
    pub fn sentinel(config: BoundedConfig, shape: Option<Shape>) -> Self {
        Self::of(
            Kind::Sentinel(Box::new(Sentinel::new(config))),
            config,
            shape,
        )
    }

    fn of(kind: Kind, config: BoundedConfig, shape: Option<Shape>) -> Self {
        let confidence = 0.9;
        let forecaster = shape.map(|shape| {
            Forecaster::new(ForecasterConfig {
                step_ns: config.min_ns,
                confidence,
                shape,
            })
        });
        Self::with(kind, forecaster, confidence)
    }

    fn with(kind: Kind, forecaster: Option<Forecaster>, confidence: f64) -> Self {
        Self {
            kind,
            forecaster,
            confidence,
            due_ns: i64::MIN,
            said: ValueBasis::Held,
            value: f64::NAN,
        }
    }

    /// Replaces the forecaster; `confidence` is that of its intervals.
    #[must_use]
    pub fn forecaster(mut self, forecaster: Forecaster, confidence: f64) -> Self {
        self.forecaster = Some(forecaster);
        self.confidence = confidence;
        self
    }

    fn forecast(&self, ts_ns: i64) -> Option<AssumedValue> {
        let forecast = self.forecaster.as_ref()?.at(ts_ns)?;
        Some(AssumedValue {
            value: forecast.value,
            half_width: forecast.half_width,
            confidence: self.confidence,
        })
    }
}

impl Policy for BoundedPolicy {
    fn tick(&mut self, ts_ns: i64, counter: f64) -> PolicyAction {
        match &self.kind {
            Kind::Alone(_) if ts_ns >= self.due_ns => PolicyAction::Look,
            Kind::Alone(_) if self.said == ValueBasis::Forecast => {
                PolicyAction::Say(self.forecast(ts_ns).unwrap_or_else(|| known(self.value)))
            }
            Kind::Alone(_) => PolicyAction::Say(known(self.value)),
            Kind::Sentinel(sentinel) => {
                match sentinel.counter(ts_ns, counter, self.forecast(ts_ns)) {
                    SentinelStep::Call => PolicyAction::Look,
                    SentinelStep::Say(outlook) => PolicyAction::Say(outlook),
                }
            }
        }
    }

    fn look(&mut self, ts_ns: i64, counter: f64, value: f64) {
        let forecast = self.forecast(ts_ns);
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.observe(ts_ns, value);
        }
        let forecaster = self.forecaster.as_ref();
        let half_width = |ahead_ns| {
            forecaster.map_or(f64::INFINITY, |forecaster| forecaster.half_width(ahead_ns))
        };
        let looked = ComparedLook {
            ts_ns,
            value,
            forecast,
            derived: None,
        };
        let plan = match &mut self.kind {
            Kind::Alone(policy) => policy.look(&looked, half_width),
            Kind::Sentinel(policy) => policy.called(ts_ns, counter, value, forecast, half_width),
        };
        self.value = value;
        self.said = plan.said;
        self.due_ns = ts_ns.saturating_add(plan.wait_ns);
    }
}
