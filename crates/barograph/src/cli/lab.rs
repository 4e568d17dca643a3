//! `baro lab`: replays traces through forecasts and interval policies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use barograph_forecast::Shape;
use barograph_forecast::delphi::Weights;
use barograph_forecast::interval::ErrorBound;
use barograph_lab::page::{self, Section};
use barograph_lab::suite::{self, Case, Score};
use barograph_lab::{Family, Hacc, Table, figures, generate, hacc};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::forecast::read_trace;
use super::{Usage, output};

/// Arguments of `baro lab`.
#[derive(Args)]
pub(super) struct Lab {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Replay columns of traces: the cost and accuracy of each policy, and the error of each
    /// predictor
    ///
    /// Reads traces in barograph's format, of `sadf -d`, and of Apollo's replay, also gzipped. Each
    /// policy is compared with fixed intervals: "ahead" is by how much more often it is right than
    /// they are at equal cost.
    Replay(Box<Replay>),
    /// Print a generated trace: hacc-regular, hacc-irregular, or a synthetic family
    Make(Make),
}

#[derive(Args)]
struct Replay {
    /// Files of traces
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Columns to replay [default: all that ever change]
    #[arg(long, value_name = "NAME")]
    column: Vec<String>,
    /// Largest error that still counts as right: a number in the column's unit, or a share of the
    /// value like 1%
    #[arg(long, default_value = "1%", value_parser = bound)]
    bound: ErrorBound,
    /// A column that costs nothing to read and changes with the others, for the sentinel
    #[arg(long, value_name = "NAME")]
    counter: Option<String>,
    /// Share of intervals that should hold, 0.5 to 0.99
    #[arg(long, default_value_t = 0.9)]
    confidence: f64,
    /// Weights written by `baro forecast train`, to be scored beside the built-in ones
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// The things to replay
    #[arg(long, value_enum, default_value_t = What::All)]
    what: What,
    /// The columns are counters: they never decrease, except for resets
    #[arg(long)]
    counters: bool,
    /// Write two figures of each column into this folder, as PNG: cost and accuracy, and
    /// predictions over time
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Write one self-contained HTML file with all tables and figures
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Policies,
    Predictors,
    All,
}

#[derive(Args)]
struct Make {
    /// Name of the trace [possible: hacc-regular, hacc-irregular, constant, ramp, and those that
    /// the error lists]
    name: String,
    /// Seed: the same seed gives the same trace
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length, in seconds
    #[arg(long, default_value_t = 1_800, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seconds: u32,
}

impl Lab {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Replay(replay) => replay.run(),
            Verb::Make(make) => make.run(),
        }
    }
}

impl Replay {
    #[expect(
        clippy::disallowed_methods,
        reason = "measures what predictors and policies cost"
    )]
    fn run(&self) -> anyhow::Result<()> {
        self.check()?;
        let weights = self.weights.as_deref().map(weights).transpose()?;
        let begun = Instant::now();
        let mut watch = || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut all = Vec::new();
        let mut sections = Vec::new();
        for path in &self.traces {
            for case in self.cases(path)? {
                if self.page.is_some() && sections.len() == page::CASES_MAX {
                    return Err(Usage(format!(
                        "a page has at most {} columns: name some with --column",
                        page::CASES_MAX
                    ))
                    .into());
                }
                let policies =
                    (self.what != What::Predictors).then(|| suite::policies(&case, &mut watch));
                let scores = (self.what != What::Policies)
                    .then(|| suite::score_with(&case, weights.as_ref(), &mut watch));
                if self.plot.is_some() || self.page.is_some() {
                    let section = self.figures(&case, policies.as_ref(), scores.as_deref())?;
                    sections.extend(self.page.is_some().then_some(section));
                }
                if self.json {
                    all.push(json!({
                        "trace": case.name, "policies": policies.map(|table| table.rows), "predictors": scores,
                    }));
                    continue;
                }
                if let Some(table) = policies {
                    output::print(&format!("{}\n", table.text()))?;
                }
                if let Some(scores) = scores {
                    let text = suite::scores_text(&case.name, &scores);
                    output::print(&format!("{text}\n"))?;
                }
            }
        }
        if let Some(path) = &self.page {
            let text = page::html("Replays", &sections)?;
            write(path, text.as_bytes())?;
        }
        if self.json {
            output::print_json(&json!(all))
        } else {
            Ok(())
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        if !(0.5..=0.99).contains(&self.confidence) {
            return Err(Usage(format!(
                "--confidence {}: it is 0.5 to 0.99",
                self.confidence
            ))
            .into());
        }
        if self.plot.is_some() && self.what == What::Predictors {
            return Err(Usage(
                "--plot draws what policies come to: not with --what predictors".into(),
            )
            .into());
        }
        Ok(())
    }

    /// The figures of a case for the page; they are also written to files if those are requested.
    fn figures(
        &self,
        case: &Case,
        policies: Option<&Table>,
        scores: Option<&[Score]>,
    ) -> anyhow::Result<Section> {
        let mut figures = Vec::new();
        if let Some(table) = policies {
            figures.push(("frontier", figures::frontier(table)));
            figures.push(("said", figures::over_time(case)));
        }
        if let Some(folder) = &self.plot {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("{} cannot be made", folder.display()))?;
            for (kind, figure) in &figures {
                let name = format!("{}-{kind}.png", file_name(&case.name));
                write(&folder.join(name), &figure.png()?)?;
            }
        }
        Ok(Section {
            name: case.name.clone(),
            policies: policies.cloned(),
            predictors: scores.map(<[Score]>::to_vec),
            figures: figures.into_iter().map(|(_, figure)| figure).collect(),
        })
    }

    fn cases(&self, path: &Path) -> anyhow::Result<Vec<Case>> {
        let trace = read_trace(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let place = |name: &str| {
            let found = trace.columns.iter().position(|column| column.name == name);
            found.ok_or_else(|| {
                let names: Vec<&str> = trace.columns.iter().map(|c| c.name.as_str()).collect();
                Usage(format!(
                    "{} has no column {name}: it has {}",
                    path.display(),
                    names.join(", ")
                ))
            })
        };
        let counter = self.counter.as_deref().map(place).transpose()?;
        let columns: Vec<usize> = if self.column.is_empty() {
            let moves = |at: &usize| {
                let values = &trace.columns[*at].values;
                values
                    .windows(2)
                    .any(|pair| pair[0] != pair[1] && !pair[0].is_nan())
            };
            (0..trace.columns.len()).filter(moves).collect()
        } else {
            self.column
                .iter()
                .map(|name| place(name))
                .collect::<Result<_, _>>()?
        };
        let case = |value: usize| Case {
            name: format!("{name} {}", trace.columns[value].name),
            trace: trace.clone(),
            value,
            counter: counter.filter(|counter| *counter != value),
            bound: self.bound,
            shape: if self.counters {
                Shape::Counter
            } else {
                Shape::Gauge
            },
            confidence: self.confidence,
        };
        Ok(columns.into_iter().map(case).collect())
    }
}

impl Make {
    fn run(&self) -> anyhow::Result<()> {
        let seconds = self.seconds as usize;
        let trace = match self.name.as_str() {
            "hacc-regular" => hacc(Hacc::Regular, seconds, self.seed),
            "hacc-irregular" => hacc(Hacc::Irregular, seconds, self.seed),
            name => {
                let family = Family::ALL.into_iter().find(|family| family.name() == name);
                let family = family.ok_or_else(|| {
                    let names: Vec<&str> = Family::ALL.iter().map(|family| family.name()).collect();
                    Usage(format!(
                        "{name:?} is no trace that can be made: hacc-regular, hacc-irregular, {}",
                        names.join(", ")
                    ))
                })?;
                generate(family, seconds, self.seed)
            }
        };
        output::print_own(&trace.write())
    }
}

/// Converts a name to a file name: letters, digits, dots, dashes and underscores are kept, all else
/// becomes a dash.
fn file_name(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    name.chars()
        .map(|letter| if plain(letter) { letter } else { '-' })
        .collect()
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
}

fn weights(path: &Path) -> anyhow::Result<Arc<Weights>> {
    let bytes =
        std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let weights = Weights::from_bytes(&bytes).with_context(|| path.display().to_string())?;
    Ok(Arc::new(weights))
}

fn bound(text: &str) -> Result<ErrorBound, String> {
    let (number, is_share) = match text.strip_suffix('%') {
        Some(number) => (number, true),
        None => (text, false),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(match is_share {
            true => ErrorBound::Relative(number / 100.0),
            false => ErrorBound::Absolute(number),
        }),
        _ => Err("a number that is not negative, or a share like 1%".into()),
    }
}
