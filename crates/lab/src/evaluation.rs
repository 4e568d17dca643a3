//! The figures of `docs/evaluation/forecast.md`: tables and images from traces, from the output of
//! the selector's example and from that of the LSTM's training. The prose is in the template.

mod fillers;
mod intervals;
mod models;
mod selector;

use std::collections::BTreeMap;

use crate::Trace;
use crate::cases::{self, CaseOrigin};
use crate::plot::{Figure, PlotError};
use crate::suite::Case;

pub use models::Lstm;

/// The inputs of the evaluation.
#[derive(Clone, Debug, Default)]
pub struct EvaluationInputs {
    /// Recorded traces, by the names of their files without extensions.
    pub traces: Vec<(String, Trace)>,
    /// The output of `barograph-forecast --example selector`.
    pub selector: String,
    /// The output of `scripts/lstm.py`, if it ran.
    pub lstm: Option<Lstm>,
    /// The machine on which this runs, and its load.
    pub machine: String,
}

/// Everything that the document needs.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// Texts by their names in the template.
    pub texts: BTreeMap<String, String>,
    /// PNG files, by name.
    pub images: Vec<(String, Vec<u8>)>,
}

impl Evaluation {
    /// Makes the evaluation; `now_ns` is the caller's clock.
    pub fn of(
        inputs: &EvaluationInputs,
        now_ns: &mut dyn FnMut() -> u64,
    ) -> Result<Self, PlotError> {
        let mut all = cases::made();
        for (name, trace) in &inputs.traces {
            all.extend(cases::recorded(name, trace));
        }
        let mut evaluation = Self::default();
        evaluation.text("machine", &inputs.machine);
        let mut summary = selector::sections(&mut evaluation, &inputs.selector);
        fillers::sections(&mut evaluation, &all)?;
        summary.extend(intervals::sections(&mut evaluation, &all, now_ns)?);
        models::sections(&mut evaluation, inputs, now_ns)?;
        let heads = ["figure", "ours", "target"];
        evaluation.text("summary", &markdown(&heads, &summary));
        Ok(evaluation)
    }

    fn text(&mut self, name: &str, text: &str) {
        self.texts.insert(name.to_owned(), text.to_owned());
    }

    fn image(&mut self, name: &str, figure: &Figure) -> Result<(), PlotError> {
        self.images
            .push((format!("forecast-{name}.png"), figure.png()?));
        Ok(())
    }
}

/// Writes a table in Markdown.
fn markdown<H: AsRef<str>>(heads: &[H], rows: &[Vec<String>]) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<&str> = heads.iter().map(AsRef::as_ref).collect();
    let mut text = line(&heads) + &line(&vec!["---"; heads.len()]);
    for row in rows {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        text.push_str(&line(&cells));
    }
    text
}

/// The geometric mean of ratios; a ratio below a thousandth counts as a thousandth.
fn geometric(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.max(1e-3).ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

fn largest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn shown(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() < 10.0 => format!("{value:.3}"),
        Some(value) => crate::plot::number(value),
    }
}

/// A row of the summary, which is marked if the target is missed.
fn against(figure: &str, ours: String, is_met: bool, target: &str) -> Vec<String> {
    let ours = if is_met {
        ours
    } else {
        format!("{ours}: **missed**")
    };
    vec![figure.to_owned(), ours, target.to_owned()]
}

fn part_at(name: &str) -> usize {
    CaseOrigin::of(name) as usize
}

/// The cases that tick once a second.
fn by_second(all: &[Case]) -> impl Iterator<Item = &Case> {
    all.iter()
        .filter(|case| case.trace.interval_ns == barograph_model::NS_PER_S)
}
