//! Figure 11: models one step ahead on recorded streams, and the LSTM that the paper compares with.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Evaluation, EvaluationInputs, geometric, largest, markdown, median, part_at, shown};
use crate::accuracy::{Accuracy, MODELS, ModelAccuracy, compare, quantities, relative};
use crate::cases::CaseOrigin;
use crate::figures;
use crate::plot::{Figure, PlotAxis, PlotError, number};

/// The output of `scripts/lstm.py`.
#[derive(Clone, Debug, Deserialize)]
pub struct Lstm {
    /// Command that wrote the file.
    pub command: String,
    /// Name and release of the framework.
    pub framework: String,
    /// Number of parameters of one network.
    pub parameters: u32,
    /// Number of values in the input of each time step.
    pub inputs: u32,
    /// Number of values in a window.
    pub window: usize,
    /// Number of windows in a batch.
    pub batch: usize,
    /// Training of one network for each series.
    pub own: Training,
    /// Training of one network for all series.
    pub one: Training,
    /// Time of inference for one window in a compiled program, in µs.
    pub inference_us: f64,
    /// The accuracy on each series.
    pub series: Vec<LstmSeries>,
}

/// The length of a training.
#[derive(Clone, Debug, Deserialize)]
pub struct Training {
    /// Number of batches.
    pub rounds: u32,
    /// Seconds of training, summed over all networks of this kind.
    pub train_s: f64,
}

/// The accuracy on one series.
#[derive(Clone, Debug, Deserialize)]
pub struct LstmSeries {
    /// Name of the trace.
    pub trace: String,
    /// Name of the quantity.
    pub metric: String,
    /// Accuracy of the last value, by the script; it has to equal that of this crate.
    pub persistence: Accuracy,
    /// Accuracy of the network that was trained on the first half of this series alone.
    pub own: Accuracy,
    /// Accuracy of the network for all series.
    pub one: Accuracy,
}

/// Names of the two networks in tables.
const OWN: &str = "LSTM, one for each";
const ONE: &str = "LSTM, one for all";
/// Models whose errors are shown for each series.
const SHOWN: [&str; 6] = [
    "persistence",
    "Delphi published",
    "Delphi repaired",
    "selector",
    OWN,
    ONE,
];

pub(super) fn sections(
    evaluation: &mut Evaluation,
    inputs: &EvaluationInputs,
    now_ns: &mut dyn FnMut() -> u64,
) -> Result<(), PlotError> {
    let mut answers: Vec<ModelAccuracy> = Vec::new();
    let mut took: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, trace) in &inputs.traces {
        if !name.ends_with("-1s-test") && !name.ends_with("-1s-holdout") {
            continue;
        }
        for quantity in quantities(name, trace) {
            for (answer, ns) in compare(&quantity, now_ns) {
                took.entry(answer.model.clone()).or_default().push(ns);
                answers.push(answer);
            }
        }
    }
    answers.extend(inputs.lstm.iter().flat_map(lstm_answers));
    let mut names: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
    if inputs.lstm.is_some() {
        names.extend([OWN, ONE]);
    }
    let rows: Vec<Vec<String>> = names
        .iter()
        .map(|name| row(name, &answers, &took, inputs.lstm.as_ref()))
        .collect();
    let mut heads = vec![
        "model".to_owned(),
        "trained numbers".into(),
        "ns a value".into(),
    ];
    for part in [CaseOrigin::Recorded, CaseOrigin::Holdout] {
        heads.push(format!("{}: error", part.name()));
        heads.extend(["worst", "median R2", "better on"].map(str::to_owned));
    }
    evaluation.text("models.table", &markdown(&heads, &rows));
    evaluation.text("models.series", &series(&answers));
    evaluation.text("lstm.note", &note(inputs.lstm.as_ref()));
    evaluation.image("models", &figure(&names, &answers))
}

fn lstm_answers(lstm: &Lstm) -> Vec<ModelAccuracy> {
    let both = |series: &LstmSeries| {
        [(OWN, series.own), (ONE, series.one)].map(|(model, accuracy)| ModelAccuracy {
            model: model.to_owned(),
            trace: series.trace.clone(),
            metric: series.metric.clone(),
            relative: relative(accuracy, series.persistence),
            accuracy,
        })
    };
    lstm.series.iter().flat_map(both).collect()
}

fn row(
    name: &str,
    answers: &[ModelAccuracy],
    took: &BTreeMap<String, Vec<f64>>,
    lstm: Option<&Lstm>,
) -> Vec<String> {
    let trained = MODELS.iter().find(|model| model.name == name);
    let parameters = lstm.map_or(0, |lstm| lstm.parameters);
    let trained = trained.map_or(parameters, |model| model.trained);
    let ns = took.get(name).and_then(|took| median(took));
    let ns = ns.or(lstm.map(|lstm| lstm.inference_us * 1e3));
    let mut cells = vec![
        name.to_owned(),
        trained.to_string(),
        ns.map_or("–".to_owned(), |ns| format!("{ns:.0}")),
    ];
    for part in [CaseOrigin::Recorded, CaseOrigin::Holdout] {
        let mine = answers.iter().filter(|answer| answer.model == name);
        let mine: Vec<&ModelAccuracy> = mine
            .filter(|answer| CaseOrigin::of(&answer.trace) == part)
            .collect();
        let ratios: Vec<f64> = mine.iter().filter_map(|answer| answer.relative).collect();
        let r2: Vec<f64> = mine
            .iter()
            .filter_map(|answer| answer.accuracy.r2)
            .collect();
        let better = ratios.iter().filter(|ratio| **ratio < 0.9995).count();
        cells.push(shown(geometric(&ratios)));
        cells.push(shown(largest(&ratios)));
        cells.push(shown(median(&r2)));
        cells.push(format!("{better} of {}", ratios.len()));
    }
    cells
}

/// RMSE and R2 of some models, for the second half of each series.
fn series(answers: &[ModelAccuracy]) -> String {
    let first = answers.iter().filter(|answer| answer.model == SHOWN[0]);
    let line = |of: &ModelAccuracy| {
        let mut cells = vec![of.trace.replace("-1s-test", ""), of.metric.clone()];
        for model in SHOWN {
            let same = |answer: &&ModelAccuracy| {
                answer.model == model && answer.trace == of.trace && answer.metric == of.metric
            };
            cells.push(answers.iter().find(same).map_or("–".to_owned(), |answer| {
                let accuracy = answer.accuracy;
                format!("{} / {}", number(accuracy.rmse), shown(accuracy.r2))
            }));
        }
        cells
    };
    let recorded = first.filter(|answer| CaseOrigin::of(&answer.trace) == CaseOrigin::Recorded);
    let rows: Vec<Vec<String>> = recorded.map(line).collect();
    let heads: Vec<&str> = ["trace", "metric"].into_iter().chain(SHOWN).collect();
    markdown(&heads, &rows)
}

fn note(lstm: Option<&Lstm>) -> String {
    let Some(lstm) = lstm else {
        return "The LSTM was not trained: there is no file of it.".to_owned();
    };
    let size = match lstm.inputs {
        5 => "the paper's size",
        _ => "not quite the paper's size, which is what five inputs give",
    };
    format!(
        "{} numbers, {} inputs a step ({size}), windows of {} values. One for each: {} batches of {} for each series, all series together in {:.0} s. \
         One for all: {} batches of {} in {:.0} s. Both beside many other jobs. {}. Made by `{}`.",
        lstm.parameters,
        lstm.inputs,
        lstm.window,
        lstm.own.rounds,
        lstm.batch,
        lstm.own.train_s,
        lstm.one.rounds,
        lstm.batch,
        lstm.one.train_s,
        lstm.framework,
        lstm.command,
    )
}

fn figure(names: &[&str], answers: &[ModelAccuracy]) -> Figure {
    let line = |name: &&str| {
        let mine = answers.iter().filter(|answer| answer.model == **name);
        let place = |answer: &ModelAccuracy| Some((part_at(&answer.trace) - 1, answer.relative?));
        ((*name).to_owned(), mine.filter_map(place).collect())
    };
    let rows: Vec<_> = names.iter().skip(1).map(line).collect();
    figures::rows(
        "One step ahead, 1 s: mean error of each stream",
        PlotAxis {
            label: "mean error / that of the last value [1]".to_owned(),
            is_log: true,
            range: Some((1e-3, 1e6)),
            ..PlotAxis::default()
        },
        ("as the last value", 1.0),
        &rows,
        &[CaseOrigin::Recorded.name(), CaseOrigin::Holdout.name()],
    )
}
