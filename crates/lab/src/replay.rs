//! A policy that looks at a trace now and then: what that cost, and how right what was said between looks was.
//!
//! A tick is a moment of the trace. At a tick at which the policy looks, what is said is what is seen; at others, what
//! the policy says. A tick is exact when what was said of it is the true value to the last bit, right when it is within
//! the bound.

use barograph_forecast::interval::{
    Bound, BoundedConfig, ErrorBounded, IntervalPolicy, Looked, Outlook, PolicyState,
    PublishedAimd, Said, Sentinel, Step,
};
use barograph_forecast::{Forecaster, ForecasterConfig, Shape};

/// What is replayed: one column of a trace, and one that costs nothing to read.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// From tick to tick, ns.
    pub interval_ns: i64,
    /// What is to be known, at each tick. NaN: not known even to the trace; it is neither looked at nor counted.
    pub values: &'a [f64],
    /// A counter that moves with it; empty where there is none.
    pub counter: &'a [f64],
    /// How far off is still right.
    pub bound: Bound,
}

/// What a policy came to.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Looks per tick.
    pub cost: f64,
    /// Share of ticks whose value was said to the last bit.
    pub exact: f64,
    /// Share of ticks whose value was said within the bound.
    pub right: f64,
    /// Mean of |said - true|, in the stream's unit.
    pub mean_error: f64,
    /// The same, relative to the last seen value at the same looks: below 1 is better than holding it.
    pub relative_error: f64,
    /// Share of ticks between looks whose true value was within the half width said, of those that had one.
    pub coverage: Option<f64>,
    /// Ticks counted.
    pub ticks: u64,
}

/// What a policy does at a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// Says this of it.
    Say(Outlook),
    /// Looks.
    Look,
    /// Looked after the tick before, when the value was still that one's, and says what was seen then.
    Looked,
}

/// Decides at each tick whether to look, and says what is not looked at.
pub trait Policy {
    /// What to do at this tick.
    fn tick(&mut self, ts_ns: i64, counter: f64) -> Act;

    /// What was seen.
    fn look(&mut self, ts_ns: i64, counter: f64, value: f64);
}

/// A policy over all ticks of a stream.
pub fn replay(stream: &Stream, policy: &mut dyn Policy) -> Outcome {
    let mut tally = Tally::default();
    let (mut held, mut before) = (f64::NAN, f64::NAN);
    for (tick, &truth) in stream.values.iter().enumerate() {
        if !truth.is_finite() {
            continue;
        }
        let ts_ns = (tick as i64).saturating_mul(stream.interval_ns);
        let counter = stream.counter.get(tick).copied().unwrap_or(0.0);
        match policy.tick(ts_ns, counter) {
            Act::Say(said) if held.is_finite() => tally.said(stream, &said, truth, held),
            Act::Looked if held.is_finite() => {
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

/// The last value, of whose error nothing is known.
fn known(value: f64) -> Outlook {
    Outlook {
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

    fn said(&mut self, stream: &Stream, said: &Outlook, truth: f64, held: f64) {
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

/// How a value-only policy goes on.
enum Next {
    Known(IntervalPolicy, PolicyState),
    Published(PublishedAimd),
}

/// A policy that knows values alone; the last one is said.
pub struct Held {
    next: Next,
    due_ns: i64,
    value: f64,
}

impl Held {
    /// One of the sources' policies.
    pub fn new(policy: IntervalPolicy) -> Self {
        Self::of(Next::Known(policy, policy.start()))
    }

    /// Apollo's, as released.
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

impl Policy for Held {
    fn tick(&mut self, ts_ns: i64, _: f64) -> Act {
        if ts_ns < self.due_ns {
            Act::Say(known(self.value))
        } else if ts_ns == self.due_ns || self.due_ns == i64::MIN {
            Act::Look
        } else {
            Act::Looked
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
        // Timers that are no whole number of ticks keep what is left over.
        let due_ns = if self.due_ns == i64::MIN {
            ts_ns
        } else {
            self.due_ns
        };
        self.due_ns = due_ns.saturating_add(wait_ns);
    }
}

/// Looks whenever the counter has moved and at no other time: what the counter alone can know.
#[derive(Default)]
pub struct EachMove {
    looked: Option<(f64, f64)>,
}

impl Policy for EachMove {
    fn tick(&mut self, _: i64, counter: f64) -> Act {
        match self.looked {
            Some((before, value)) if before == counter => Act::Say(known(value)),
            _ => Act::Look,
        }
    }

    fn look(&mut self, _: i64, counter: f64, value: f64) {
        self.looked = Some((counter, value));
    }
}

/// [`ErrorBounded`] or [`Sentinel`], with a forecaster beside it.
pub struct Bounded {
    kind: Kind,
    forecaster: Option<Forecaster>,
    confidence: f64,
    due_ns: i64,
    said: Said,
    value: f64,
}

enum Kind {
    Alone(Box<ErrorBounded>),
    Sentinel(Box<Sentinel>),
}

impl Bounded {
    /// Looks at the value alone; `shape`, where a forecast may be said.
    pub fn new(config: BoundedConfig, shape: Option<Shape>) -> Self {
        Self::of(
            Kind::Alone(Box::new(ErrorBounded::new(config))),
            config,
            shape,
        )
    }

    /// Looks at a counter at each tick.
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
            said: Said::Held,
            value: f64::NAN,
        }
    }

    /// The same with a forecaster of one's own, whose confidence is `confidence`.
    #[must_use]
    pub fn forecaster(mut self, forecaster: Forecaster, confidence: f64) -> Self {
        self.forecaster = Some(forecaster);
        self.confidence = confidence;
        self
    }

    fn forecast(&self, ts_ns: i64) -> Option<Outlook> {
        let forecast = self.forecaster.as_ref()?.at(ts_ns)?;
        Some(Outlook {
            value: forecast.value,
            half_width: forecast.half_width,
            confidence: self.confidence,
        })
    }
}

impl Policy for Bounded {
    fn tick(&mut self, ts_ns: i64, counter: f64) -> Act {
        match &self.kind {
            Kind::Alone(_) if ts_ns >= self.due_ns => Act::Look,
            Kind::Alone(_) if self.said == Said::Forecast => {
                Act::Say(self.forecast(ts_ns).unwrap_or_else(|| known(self.value)))
            }
            Kind::Alone(_) => Act::Say(known(self.value)),
            Kind::Sentinel(sentinel) => {
                match sentinel.counter(ts_ns, counter, self.forecast(ts_ns)) {
                    Step::Call => Act::Look,
                    Step::Say(outlook) => Act::Say(outlook),
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
        let looked = Looked {
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
