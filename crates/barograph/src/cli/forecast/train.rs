//! `baro forecast train`: trains weights of Delphi on this node's past.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use barograph_forecast::delphi::{
    HORIZONS, TrainingOptions, TrainingProgress, Weights, learned_len, relative_errors, train,
};
use barograph_model::{Selector, duration_ns};
use clap::Args;
use serde_json::{Value as Json, json};

use super::gather::{Gathered, SERIES_MAX, TrainingSeries, progress};
use crate::cli::{Target, Usage, output};

/// Error at each of [`HORIZONS`].
type Errors = [Option<f64>; HORIZONS.len()];

#[derive(Args)]
pub(super) struct Train {
    /// Streams to train on, as names, globs or patterns with labels [default: all numbers, unless
    /// traces are given]
    #[arg(long, value_name = "PATTERN")]
    from: Vec<String>,
    /// Length of their past that is used: 12h, 7d
    #[arg(long, default_value = "7d")]
    since: String,
    /// Traces whose columns are used as well, in any format that `baro lab replay` reads
    #[arg(long, value_name = "FILE", num_args = 1..)]
    traces: Vec<PathBuf>,
    /// Seed of the synthetic series and of all random choices: the same seed gives the same weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of windows in each stage: more take longer
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(1_000..=300_000))]
    examples: u32,
    /// File for the weights
    #[arg(long, value_name = "FILE", default_value = "weights.txt")]
    out: PathBuf,
    /// Overwrite that file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

impl Train {
    /// Gathers the series, trains, compares, and writes the weights.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        self.check_out()?;
        let gathered = self.gather()?;
        let learned = |series: &TrainingSeries| learned_len(series.values.len());
        let parts: Vec<&[f64]> = gathered
            .series
            .iter()
            .map(|series| &series.values[..learned(series)])
            .collect();
        let values: usize = parts.iter().map(|part| part.len()).sum();
        progress(&format!(
            "learning from {} series, {values} values",
            parts.len()
        ));
        let options = TrainingOptions {
            seed: self.seed,
            examples: self.examples as usize,
        };
        let weights = Arc::new(train(&parts, options, tell)?);
        let errors = |weights: &Arc<Weights>| -> Vec<Errors> {
            let all = gathered.series.iter();
            all.map(|series| relative_errors(weights, &series.values, learned(series)))
                .collect()
        };
        let (before, after) = (errors(&Weights::built_in()), errors(&weights));
        self.check_out()?;
        write(&self.out, &weights)
            .with_context(|| format!("{} cannot be written", self.out.display()))?;
        if self.target.json {
            return output::print_json(&self.json(&gathered, &before, &after));
        }
        output::print(&text(&gathered, &before, &after))?;
        output::print(&format!(
            "\n{} is written. An agent uses it when its configuration has\n[forecast]\ndelphi = \"{}\"\n",
            self.out.display(),
            std::path::absolute(&self.out)?.display()
        ))
    }

    fn check_out(&self) -> anyhow::Result<()> {
        if !self.force && self.out.symlink_metadata().is_ok() {
            let text = format!(
                "{} is there already: --force overwrites it, --out names another",
                self.out.display()
            );
            return Err(Usage(text).into());
        }
        Ok(())
    }

    fn gather(&self) -> anyhow::Result<Gathered> {
        let since_ns = duration_ns(&self.since).map_err(|e| Usage(e.to_string()))?;
        let parse = |text: &String| Selector::parse(text).map_err(|e| Usage(e.to_string()));
        let mut from = self.from.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if from.is_empty() && self.traces.is_empty() {
            from.push(Selector::parse("*")?);
        }
        let mut gathered = Gathered::default();
        gathered.traces(&self.traces)?;
        if !from.is_empty() {
            let observer = self.target.observer().context(
                "there is no agent whose archive could be learned from: give --run-dir, or --traces",
            )?;
            gathered.streams(&observer, &from, since_ns)?;
        }
        anyhow::ensure!(
            !gathered.series.is_empty(),
            "nothing can be learned: {}; let the agent archive more of them, or take more with --since or --from",
            left_out(&gathered)
        );
        Ok(gathered)
    }

    fn json(&self, gathered: &Gathered, before: &[Errors], after: &[Errors]) -> Json {
        let all = gathered.series.iter().zip(before).zip(after);
        let series = all.map(|((series, before), after)| {
            let learned = learned_len(series.values.len());
            json!({
                "name": series.name, "step_ns": series.step_ns,
                "learned": learned, "held_out": series.values.len() - learned,
                "built_in": before, "trained": after,
            })
        });
        json!({
            "out": self.out, "seed": self.seed, "examples": self.examples, "horizons": HORIZONS,
            "built_in": mean(before), "trained": mean(after),
            "series": series.collect::<Json>(),
            "short": gathered.short, "still": gathered.still, "beyond": gathered.beyond,
            "memory_only": gathered.memory_only,
        })
    }
}

fn tell(now: TrainingProgress) -> ControlFlow<()> {
    progress(&format!(
        "stage {} of {}, error {:.3} of persistence's",
        now.done, now.of, now.error
    ));
    ControlFlow::Continue(())
}

/// The mean over series; each series that has an error counts the same.
fn mean(errors: &[Errors]) -> Errors {
    std::array::from_fn(|at| {
        let known: Vec<f64> = errors.iter().filter_map(|of| of[at]).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    })
}

fn left_out(gathered: &Gathered) -> String {
    let mut text = format!(
        "{} series are too short, {} never move",
        gathered.short, gathered.still
    );
    if gathered.beyond > 0 {
        text += &format!(
            ", {} are beyond {SERIES_MAX} (name fewer with --from)",
            gathered.beyond
        );
    }
    if gathered.memory_only {
        text += ", and the agent keeps no archive (archive.enabled): all is from its memory";
    }
    text
}

fn text(gathered: &Gathered, before: &[Errors], after: &[Errors]) -> String {
    let (mean_before, mean_after) = (mean(before), mean(after));
    let shown = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.3}"));
    let rows = (0..HORIZONS.len()).map(|at| {
        let pairs = before.iter().zip(after);
        let pairs: Vec<(f64, f64)> = pairs.filter_map(|(b, a)| Some((b[at]?, a[at]?))).collect();
        let better = pairs
            .iter()
            .filter(|(before, after)| after < before)
            .count();
        vec![
            HORIZONS[at].to_string(),
            shown(mean_before[at]),
            shown(mean_after[at]),
            format!("{better} of {}", pairs.len()),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let headings = ["STEPS AHEAD", "BUILT IN", "TRAINED", "BETTER ON"];
    format!(
        "Error on what was held out, as a multiple of persistence's (1: no better than \"it stays as it is\"), mean of {} series; \
         {}.\n\n{}",
        gathered.series.len(),
        left_out(gathered),
        output::table(&headings, &[0, 1, 2, 3], &rows)
    )
}

/// Writes the weights as a whole, or not at all.
fn write(path: &Path, weights: &Weights) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut new = name.to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(new);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    let written = file
        .write_all(weights.to_text().as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_counts_alike_where_it_has_an_error() {
        let none = [None; HORIZONS.len()];
        let one = [Some(0.5), None, Some(1.0), None];
        let other = [Some(1.0), None, None, Some(2.0)];
        assert_eq!(
            mean(&[none, one, other]),
            [Some(0.75), None, Some(1.0), Some(2.0)]
        );
    }
}
