//! Compares several ways of filling the ticks between the same looks.

use barograph_forecast::delphi::{PublishedDelphi, RepairedDelphi};
use barograph_forecast::interval::{AssumedValue, IntervalPolicy, PublishedAimd};
use barograph_forecast::{Forecaster, ForecasterConfig, Predictor};

use crate::replay::{HoldingPolicy, Outcome, Policy, PolicyAction, replay};
use crate::suite::Case;

/// A way of filling the ticks between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillMethod {
    /// The last value holds.
    Hold,
    /// The line through the last two values goes on.
    Line,
    /// Delphi as published, run once per tick on everything published, including its own
    /// predictions, as Apollo's code does.
    FedBack,
    /// Delphi as published, run on looks only; a line leads from each look to its prediction of the
    /// next.
    Published,
    /// Delphi repaired, used like `Published`.
    Repaired,
    /// The selector run on looks, and asked for the time of each tick.
    Selector,
}

impl FillMethod {
    /// All ways, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::Hold,
        Self::Line,
        Self::FedBack,
        Self::Published,
        Self::Repaired,
        Self::Selector,
    ];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Line => "line through two",
            Self::FedBack => "Delphi published, fed back",
            Self::Published => "Delphi published",
            Self::Repaired => "Delphi repaired",
            Self::Selector => "selector",
        }
    }
}

/// A policy that looks as one policy does, and fills the ticks between in one way.
pub struct FillPolicy {
    looks: HoldingPolicy,
    filler: Filler,
}

enum Filler {
    Hold(f64),
    Line([f64; 2], [i64; 2]),
    FedBack(Box<PublishedDelphi>),
    Along(Box<dyn Predictor>, f64, [i64; 2]),
    Selector(Box<Forecaster>),
}

impl FillPolicy {
    /// Looks every `ticks` ticks.
    pub fn fixed(case: &Case, ticks: i64, way: FillMethod) -> Self {
        let interval_ns = ticks.max(1) * case.trace.interval_ns;
        let looks = HoldingPolicy::new(IntervalPolicy::Fixed { interval_ns });
        Self::of(looks, case, interval_ns, way)
    }

    /// Looks as Apollo's AIMD with a window of ten does; it is defined for ticks of one second.
    pub fn aimd(case: &Case, way: FillMethod) -> Self {
        let tick = case.trace.interval_ns;
        let looks = HoldingPolicy::published(PublishedAimd::new(0.1, 10, 5 * tick));
        Self::of(looks, case, tick, way)
    }

    fn of(looks: HoldingPolicy, case: &Case, step_ns: i64, way: FillMethod) -> Self {
        let filler = match way {
            FillMethod::Hold => Filler::Hold(f64::NAN),
            FillMethod::Line => Filler::Line([f64::NAN; 2], [0; 2]),
            FillMethod::FedBack => Filler::FedBack(Box::default()),
            FillMethod::Published => {
                Filler::Along(Box::<PublishedDelphi>::default(), f64::NAN, [0; 2])
            }
            FillMethod::Repaired => {
                Filler::Along(Box::<RepairedDelphi>::default(), f64::NAN, [0; 2])
            }
            FillMethod::Selector => Filler::Selector(Box::new(Forecaster::new(ForecasterConfig {
                step_ns,
                confidence: 0.9,
                shape: case.shape,
            }))),
        };
        Self { looks, filler }
    }
}

impl Policy for FillPolicy {
    fn tick(&mut self, ts_ns: i64, counter: f64) -> PolicyAction {
        match self.looks.tick(ts_ns, counter) {
            PolicyAction::Say(held) => PolicyAction::Say(self.filler.say(ts_ns, held)),
            act => act,
        }
    }

    fn look(&mut self, ts_ns: i64, counter: f64, value: f64) {
        self.looks.look(ts_ns, counter, value);
        self.filler.look(ts_ns, value);
    }
}

impl Filler {
    fn look(&mut self, ts_ns: i64, value: f64) {
        match self {
            Self::Hold(last) => *last = value,
            Self::Line(values, times) => {
                *values = [values[1], value];
                *times = [times[1], ts_ns];
            }
            Self::FedBack(delphi) => delphi.observe(value),
            Self::Along(predictor, last, times) => {
                predictor.observe(value);
                *last = value;
                *times = [times[1], ts_ns];
            }
            Self::Selector(forecaster) => {
                forecaster.observe(ts_ns, value);
            }
        }
    }

    fn say(&mut self, ts_ns: i64, held: AssumedValue) -> AssumedValue {
        let mut half_width = f64::INFINITY;
        let along = |times: &[i64; 2]| (ts_ns - times[1]) as f64 / (times[1] - times[0]) as f64;
        let value = match self {
            Self::Hold(last) => *last,
            Self::Line(values, times) => values[1] + (values[1] - values[0]) * along(times),
            Self::FedBack(delphi) => {
                let said = delphi.predict(1);
                delphi.observe(said);
                said
            }
            Self::Along(predictor, last, times) => {
                *last + (predictor.predict(1) - *last) * along(times)
            }
            Self::Selector(forecaster) => forecaster.at(ts_ns).map_or(held.value, |said| {
                half_width = said.half_width;
                said.value
            }),
        };
        // Before the second look there is no line.
        let value = if value.is_finite() { value } else { held.value };
        AssumedValue {
            value,
            half_width,
            ..held
        }
    }
}

/// The outcome of each way with looks every `ticks` ticks.
pub fn between(case: &Case, ticks: i64) -> Vec<(FillMethod, Outcome)> {
    let outcome = |way| {
        let mut policy = FillPolicy::fixed(case, ticks, way);
        (way, replay(&case.stream(), &mut policy))
    };
    FillMethod::ALL.map(outcome).into()
}
