//! Tables of all policies and all predictors on one column of a trace.

use std::sync::Arc;

use barograph_forecast::delphi::{PublishedDelphi, RepairedDelphi, Weights};
use barograph_forecast::interval::{
    Aimd, BoundedConfig, ErrorBound, IntervalPolicy, PublishedAimd,
};
use barograph_forecast::predictors::{Holt, Kalman, Nlms, Persistence, Rls, Spectral};
use barograph_forecast::{Forecaster, ForecasterConfig, Predictor, Shape};

use crate::replay::{BoundedPolicy, CounterPolicy, HoldingPolicy, Policy, ReplayedStream, replay};
use crate::{Row, Table, Trace, frontier, is_ahead};

/// Horizons of [`score`], in ticks.
pub const HORIZONS: [usize; 4] = [1, 4, 16, 64];

/// A column of a trace, with the requirements on a policy.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in tables.
    pub name: String,
    /// The trace with the true values.
    pub trace: Trace,
    /// Index of the column that is to be known.
    pub value: usize,
    /// Index of a counter that costs nothing to read and moves with the value.
    pub counter: Option<usize>,
    /// The greatest error that is still right.
    pub bound: ErrorBound,
    /// The values that the column can have.
    pub shape: Shape,
    /// Share of intervals that are to contain the true value.
    pub confidence: f64,
}

impl Case {
    /// The stream that is replayed.
    pub fn stream(&self) -> ReplayedStream<'_> {
        let counter = self.counter.map(|column| &self.trace.columns[column]);
        ReplayedStream {
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

/// The outcomes of fixed intervals and of each policy. `now_ns` is the caller's clock.
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
    let held = |policy| Box::new(HoldingPolicy::new(policy));
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
        (
            "error-bounded, held",
            Box::new(BoundedPolicy::new(config, None)),
        ),
        (
            "error-bounded",
            Box::new(BoundedPolicy::new(config, Some(case.shape))),
        ),
    ];
    if tick == 1_000_000_000 {
        let published = |window| {
            Box::new(HoldingPolicy::published(PublishedAimd::new(
                0.1,
                window,
                5 * tick,
            )))
        };
        policies.insert(0, ("AIMD published, window 10", published(10)));
        policies.insert(1, ("AIMD published, window 1", published(1)));
    }
    if case.counter.is_some() {
        let sentinel = BoundedPolicy::sentinel(config, Some(case.shape));
        policies.push(("sentinel", Box::new(sentinel)));
        policies.push((
            "each move of the counter",
            Box::new(CounterPolicy::default()),
        ));
    }
    policies
}

/// The accuracy of one predictor.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Score {
    /// Name of the predictor.
    pub predictor: String,
    /// Sum of absolute errors at each of [`HORIZONS`], divided by that of persistence; none if
    /// persistence did not err, or if the trace is too short.
    pub errors: [Option<f64>; 4],
    /// Share of true values within the predicted half width, if there was one.
    pub coverage: [Option<f64>; 4],
    /// Time to observe one value and predict the next, in ns, by the caller's clock.
    pub ns_per_tick: f64,
}

/// Scores of every predictor alone, and last of the selector over them, on all ticks of a column.
pub fn score(case: &Case, now_ns: &mut dyn FnMut() -> u64) -> Vec<Score> {
    score_with(case, None, now_ns)
}

/// Like [`score`], with weights of one's own for Delphi in addition, and a selector that uses them
/// too.
pub fn score_with(
    case: &Case,
    delphi: Option<&Arc<Weights>>,
    now_ns: &mut dyn FnMut() -> u64,
) -> Vec<Score> {
    let values = &case.trace.columns[case.value].values;
    let known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let mut alone: Vec<(&str, Box<dyn Predictor>)> = vec![
        ("", Box::new(Persistence::default())),
        ("", Box::new(PublishedDelphi::default())),
        ("", Box::new(RepairedDelphi::default())),
        ("", Box::new(Holt::default())),
        ("", Box::new(Kalman::default())),
        ("", Box::new(<Nlms>::default())),
        ("", Box::new(<Rls>::default())),
        ("", Box::new(Spectral::default())),
    ];
    if let Some(weights) = delphi {
        alone.push((TRAINED, Box::new(RepairedDelphi::new(Arc::clone(weights)))));
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

/// Appended to the name of a predictor that has given weights.
const TRAINED: &str = " (trained)";

/// Score of the selector.
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
            // A prediction that is not finite counts as the last value, which users take instead.
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

/// Scores as text for people.
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
