//! `baro forecast`: predicted values of streams, their errors, and the predictors behind them.

mod gather;
mod reach;
mod train;

use std::time::Duration;

use anyhow::Context as _;
use barograph_agent::{FORECASTS_DOCUMENT, ForecastsRow};
use barograph_client::RunDir;
use barograph_model::{Selector, duration_ns};
use clap::{Args, Subcommand};

pub(super) use gather::read_trace;

use super::documents::{DocumentRow, document, labels_of, shown};
use super::{Target, Usage, format, output, selector};

/// Arguments of `baro forecast`.
#[derive(Args)]
pub(super) struct Forecast {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show predicted values at a horizon from now: baro forecast show filesystem.available.bytes
    /// --horizon 1h
    Show(Show),
    /// Show when streams will reach a level: baro forecast reach filesystem.available.bytes --level
    /// 90%
    Reach(reach::Reach),
    /// Show which predictor is used at each horizon, why, and how well it and the others did
    /// recently
    Explain(Explain),
    /// Train Delphi on this node's history, for forecast.delphi
    ///
    /// Learns from synthetic series of every kind and, with equal weight, from the streams in this
    /// node's archive, from traces, or from both. The last fifth of each is held out: on it the new
    /// weights are compared with the built-in ones. Takes about a minute, and reads without a
    /// request to the agent.
    Train(train::Train),
}

#[derive(Args)]
struct Show {
    #[command(flatten)]
    which: StreamChoice,
    /// Time from now: 30s, 5min, 6h; 0s is now, between two looks
    #[arg(long, default_value = "0s")]
    horizon: String,
}

#[derive(Args)]
struct Explain {
    #[command(flatten)]
    which: StreamChoice,
}

/// Selection of streams.
#[derive(Args)]
pub(super) struct StreamChoice {
    /// Name or glob: filesystem.available.bytes
    #[arg(default_value = "*")]
    pub name: String,
    /// Labels that must match: mount=/
    #[arg(value_name = "LABEL=VALUE")]
    labels: Vec<String>,
    #[command(flatten)]
    pub target: Target,
}

impl Forecast {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Show(show) => show.run(),
            Verb::Reach(reach) => reach.run(),
            Verb::Explain(explain) => explain.run(),
            Verb::Train(train) => train.run(),
        }
    }
}

impl Show {
    fn run(&self) -> anyhow::Result<()> {
        let horizon_ns = duration_ns(&self.horizon).map_err(|e| Usage(e.to_string()))?;
        let horizon = Duration::from_nanos(u64::try_from(horizon_ns).unwrap_or(0));
        let observer = self.which.target.observer()?;
        let selector = self.which.selector()?;
        let values = observer.expected(&selector, horizon);
        if values.is_empty() {
            if observer.streams(&selector).is_empty() {
                return Err(observer.unknown(&selector).into());
            }
            anyhow::bail!(
                "nothing is said of {selector} so far from now: a horizon is known once as much was seen, and only \
                 streams that forecast.streams names are forecast"
            );
        }
        if self.which.target.json {
            return output::print_json(&barograph_client::latest_json(&values));
        }
        let rows = values.iter().filter_map(|v| {
            let sample = v.sample.as_ref()?;
            let unit = v.descriptor.unit.as_str();
            Some(vec![
                v.descriptor.to_string(),
                format::value(&sample.value, unit),
                format::error(sample.error, unit),
                format::age(v.age_ns),
            ])
        });
        let rows: Vec<Vec<String>> = rows.collect();
        output::print_table(
            &["STREAM", "EXPECTED", "WITHIN", "LOOKED AT"],
            &[1, 2, 3],
            &rows,
        )
    }
}

impl Explain {
    fn run(&self) -> anyhow::Result<()> {
        let selector = self.which.selector()?;
        let all = rows(&self.which.target.run_dir())?;
        let all = all.context("no agent has written forecasts here: start one with `baro up`")?;
        let rows: Vec<DocumentRow<ForecastsRow>> = all
            .into_iter()
            .filter(|row| is_meant(&selector, row))
            .collect();
        if self.which.target.json {
            return output::print_json(&rows);
        }
        if rows.is_empty() {
            anyhow::bail!(
                "{selector} is not forecast: only streams that forecast.streams names are"
            );
        }
        let rows: Vec<Vec<String>> = rows.iter().map(|row| explained(row)).collect();
        output::print_table(
            &[
                "STREAM", "HORIZON", "FOLLOWS", "LOSS", "WITHIN", "COVERAGE", "SWITCHES", "WHY",
            ],
            &[1, 3, 4, 5, 6],
            &rows,
        )
    }
}

/// The agent's rows on all forecasts, including those of applications; `None` without an agent.
pub(super) fn rows(run_dir: &RunDir) -> anyhow::Result<Option<Vec<DocumentRow<ForecastsRow>>>> {
    let Some(mut all): Option<Vec<_>> = document(run_dir, FORECASTS_DOCUMENT)? else {
        return Ok(None);
    };
    for (_, scope) in run_dir.scopes() {
        let rows: Option<Vec<_>> = document(&scope, FORECASTS_DOCUMENT)?;
        all.extend(rows.into_iter().flatten());
    }
    Ok(Some(all))
}

impl StreamChoice {
    pub(super) fn selector(&self) -> anyhow::Result<Selector> {
        selector(&self.name, &self.labels)
    }
}

fn is_meant(selector: &Selector, row: &ForecastsRow) -> bool {
    let name = row.name.as_deref().unwrap_or_default();
    selector.matches(name, &labels_of(&row.labels))
}

fn explained(row: &ForecastsRow) -> Vec<String> {
    let number = |value: Option<f64>, decimals: usize| match value {
        Some(number) => format!("{number:.decimals$}"),
        None => "-".into(),
    };
    let follows = shown(&row.follows);
    let coverage = match row.coverage {
        Some(share) => format!("{:.1} %", share * 100.0),
        None => "-".into(),
    };
    vec![
        format!("{}{}", shown(&row.name), labels_of(&row.labels)),
        row.horizon_ns.map_or_else(|| "-".into(), format::age),
        follows.clone(),
        number(row.losses.get(&follows).copied().flatten(), 3),
        number(row.error, 1),
        coverage,
        shown(&row.switches),
        row.reason.clone(),
    ]
}
