//! All policies and all predictors over one column of a trace, as tables.

use std::sync::Arc;

use barograph_forecast::delphi::{Published, Repaired, Weights};
use barograph_forecast::interval::{Aimd, Bound, BoundedConfig, IntervalPolicy, PublishedAimd};
use barograph_forecast::predictors::{Holt, Kalman, Nlms, Persistence, Rls, Spectral};
use barograph_forecast::{Forecaster, ForecasterConfig, Predictor, Shape};

use crate::replay::{Bounded, EachMove, Held, Policy, Stream, replay};
use crate::{Row, Table, Trace, frontier, is_ahead};

/// Horizons of [`score`], in ticks.
pub const HORIZONS: [usize; 4] = [1, 4, 16, 64];

/// A column of a trace, with what is asked of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// As tables call it.
    pub name: String,
    /// What was.
    pub trace: Trace,
    /// Index of the column that is to be known.
    pub value: usize,
    /// Index of a counter that costs nothing to read and moves with it.
    pub counter: Option<usize>,
    /// How far off is still right.
    pub bound: Bound,
    /// What the value can be.
    pub shape: Shape,
    /// Which share of intervals is to hold.
    pub confidence: f64,
}

impl Case {
    /// As it is replayed.
    pub fn stream(&self) -> Stream<'_> {
        let counter = self.counter.map(|column| &self.trace.columns[column]);
        Stream {
            interval_ns: self.trace.interval_ns,
            values: &self.trace.columns[self.value].values,
            counter: counter.map_or(&[], |column| &column.values),
            bound: self.bound,
        }
    }

    pub(crate) fn config(&self) -> BoundedConfig {
        BoundedConfig {
            bound: self.bound,
            confidence: self.confidence,
            min_ns: self.trace.interval_ns,
            max_ns: 60 * self.trace.interval_ns,
            looks_per_s_max: f64::INFINITY,
        }
    }
}

/// What fixed intervals and each policy come to. `now_ns` is the caller's watch.
pub fn policies(case: &Case, now_ns: &mut dyn FnMut() -> u64) -> Table {
    let stream = case.stream();
    let fixed = frontier(&stream);
    let rows = fixed.iter().map(|(ticks, outcome)| Row {
        policy: format!("fixed {ticks}"),
        outcome: outcome.clone(),
        ahead: None,
        ns_per_tick: None,
    });
    let mut rows: Vec<Row> = rows.collect();
    for (name, mut policy) in all_policies(case) {
        let begun_ns = now_ns();
        let outcome = replay(&stream, policy.as_mut());
        let took_ns = now_ns().saturating_sub(begun_ns);
        rows.push(Row {
            policy: name.to_owned(),
            ahead: Some(is_ahead(&outcome, &fixed, |outcome| outcome.right)),
            ns_per_tick: Some(took_ns as f64 / outcome.ticks.max(1) as f64),
            outcome,
        });
    }
    Table {
        trace: case.name.clone(),
        rows,
    }
}

fn all_policies(case: &Case) -> Vec<(&'static str, Box<dyn Policy>)> {
    let tick = case.trace.interval_ns;
    let aimd = |threshold| Aimd {
        start_ns: tick,
        min_ns: tick,
        max_ns: 25 * tick,
        add_ns: tick,
        multiply: 0.75,
        threshold,
    };
    let held = |policy| Box::new(Held::new(policy));
    let config = case.config();
    let mut policies: Vec<(&'static str, Box<dyn Policy>)> = vec![
        (
            "AIMD simple, repaired",
            held(IntervalPolicy::AimdSimple(aimd(0.1))),
        ),
        (
            "AIMD complex, repaired",
            held(IntervalPolicy::AimdComplex(aimd(1.1))),
        ),
        ("error-bounded, held", Box::new(Bounded::new(config, None))),
        (
            "error-bounded",
            Box::new(Bounded::new(config, Some(case.shape))),
        ),
    ];
    if tick == 1_000_000_000 {
        let published =
            |window| Box::new(Held::published(PublishedAimd::new(0.1, window, 5 * tick)));
        policies.insert(0, ("AIMD published, window 10", published(10)));
        policies.insert(1, ("AIMD published, window 1", published(1)));
    }
    if case.counter.is_some() {
        let sentinel = Bounded::sentinel(config, Some(case.shape));
        policies.push(("sentinel", Box::new(sentinel)));
        policies.push(("each move of the counter", Box::new(EachMove::default())));
    }
    policies
}

/// How well one predictor did.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Score {
    /// Who.
    pub predictor: String,
    /// Sum of absolute errors at each of [`HORIZONS`], as a multiple of persistence's; none where persistence did not err,
    /// and where the trace is too short.
    pub errors: [Option<f64>; 4],
    /// Which share of true values was within the half width said of it, where any was said.
    pub coverage: [Option<f64>; 4],
    /// Of the caller's watch: a value observed and the next predicted, ns.
    pub ns_per_tick: f64,
}

/// Every predictor by itself, and last what the selector made of those that it has, over all ticks of a column.
pub fn score(case: &Case, now_ns: &mut dyn FnMut() -> u64) -> Vec<Score> {
    score_with(case, None, now_ns)
}

/// The same; and Delphi with weights of somebody's own training, and a selector that has it too.
pub fn score_with(
    case: &Case,
    delphi: Option<&Arc<Weights>>,
    now_ns: &mut dyn FnMut() -> u64,
) -> Vec<Score> {
    let values = &case.trace.columns[case.value].values;
    let known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let mut alone: Vec<(&str, Box<dyn Predictor>)> = vec![
        ("", Box::new(Persistence::default())),
        ("", Box::new(Published::default())),
        ("", Box::new(Repaired::default())),
        ("", Box::new(Holt::default())),
        ("", Box::new(Kalman::default())),
        ("", Box::new(<Nlms>::default())),
        ("", Box::new(<Rls>::default())),
        ("", Box::new(Spectral::default())),
    ];
    if let Some(weights) = delphi {
        alone.push((TRAINED, Box::new(Repaired::new(Arc::clone(weights)))));
    }
    let mut scores: Vec<Score> = Vec::new();
    for (kind, mut predictor) in alone {
        let name = format!("{}{kind}", predictor.name());
        let mut say = |value: f64, said: &mut [(f64, f64); 4]| {
            predictor.observe(value);
            for (said, steps) in said.iter_mut().zip(HORIZONS) {
                *said = (predictor.predict(steps as u32), f64::NAN);
            }
        };
        scores.push(score_one(name, &known, &mut say, now_ns));
    }
    scores.push(selected("selector".to_owned(), case, &known, None, now_ns));
    if delphi.is_some() {
        let name = format!("selector, with delphi{TRAINED}");
        scores.push(selected(name, case, &known, delphi, now_ns));
    }
    scores
}

/// What follows the name of who has weights that were given.
const TRAINED: &str = " (trained)";

/// What the selector says.
fn selected(
    name: String,
    case: &Case,
    values: &[f64],
    delphi: Option<&Arc<Weights>>,
    now_ns: &mut dyn FnMut() -> u64,
) -> Score {
    let step_ns = case.trace.interval_ns.max(1);
    let config = ForecasterConfig {
        step_ns,
        confidence: case.confidence.clamp(0.5, 0.99),
        shape: case.shape,
    };
    let mut forecaster = Forecaster::with_delphi(config, delphi.cloned());
    let mut ts_ns = 0_i64;
    let mut say = |value: f64, said: &mut [(f64, f64); 4]| {
        ts_ns = ts_ns.saturating_add(step_ns);
        forecaster.observe(ts_ns, value);
        for (said, level) in said.iter_mut().zip(forecaster.levels()) {
            *said = level.map_or((value, f64::NAN), |said| (said.value, said.half_width));
        }
    };
    score_one(name, values, &mut say, now_ns)
}

type Say<'a> = dyn FnMut(f64, &mut [(f64, f64); 4]) + 'a;

fn score_one(
    predictor: String,
    values: &[f64],
    say: &mut Say<'_>,
    now_ns: &mut dyn FnMut() -> u64,
) -> Score {
    let begun_ns = now_ns();
    let mut all = vec![[(f64::NAN, f64::NAN); 4]; values.len()];
    for (value, said) in values.iter().zip(&mut all) {
        say(*value, said);
    }
    let took_ns = now_ns().saturating_sub(begun_ns);
    let of = |at: usize| {
        let horizon = HORIZONS[at];
        let (mut error, mut persistence, mut within, mut bounded) = (0.0, 0.0, 0_u32, 0_u32);
        let truths = values.get(horizon..).unwrap_or_default();
        for ((truth, last), said) in truths.iter().zip(values).zip(&all) {
            let (value, half_width) = said[at];
            // What is not finite counts as persistence does: whoever asks takes the last value instead.
            let off = (if value.is_finite() { value } else { *last } - truth).abs();
            error += off;
            persistence += (last - truth).abs();
            if half_width.is_finite() {
                bounded += 1;
                within += u32::from(off <= half_width);
            }
        }
        let relative = (persistence > 0.0).then(|| error / persistence);
        let coverage = (bounded > 0).then(|| f64::from(within) / f64::from(bounded));
        (relative, coverage)
    };
    let both: [(Option<f64>, Option<f64>); 4] = std::array::from_fn(of);
    Score {
        predictor,
        errors: both.map(|(relative, _)| relative),
        coverage: both.map(|(_, coverage)| coverage),
        ns_per_tick: took_ns as f64 / values.len().max(1) as f64,
    }
}

/// Scores as text, for people.
pub fn scores_text(of: &str, scores: &[Score]) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{of:44}");
    for horizon in HORIZONS {
        let _ = write!(text, " {horizon:>7}");
    }
    for horizon in HORIZONS {
        let _ = write!(text, " in@{horizon:<3}");
    }
    text.push_str("     ns\n");
    for score in scores {
        let _ = write!(text, "  {:42}", score.predictor);
        let shown = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.3}"));
        for error in score.errors {
            let _ = write!(text, " {:>7}", shown(error));
        }
        for coverage in score.coverage {
            let _ = write!(text, " {:>6}", shown(coverage));
        }
        let _ = writeln!(text, " {:>6.0}", score.ns_per_tick);
    }
    text
}
