//! `baro doctor`: reports what every source reads, what is missing, why, and its remedy; and which
//! insights are live, and why the others are not.

use std::path::PathBuf;

use barograph_agent::{Config, INSIGHTS_DOCUMENT, SOURCES_DOCUMENT, STATEMENTS_DOCUMENT};
use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::Args;
use serde_json::Value as Json;

use super::{Target, archive, forecast, format, output};

/// Most streams without a forecast that are named.
const BEYOND_MAX: usize = 5;

/// Arguments of `baro doctor`.
#[derive(Args)]
pub(super) struct Doctor {
    /// Check the sources now, in this process, instead of reading the agent's report
    #[arg(long)]
    probe: bool,
    /// With --probe: the tree to read instead of /
    #[arg(long, value_name = "DIR", requires = "probe")]
    sys_root: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl Doctor {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (sources, insights) = self.look()?;
        if self.target.json {
            return output::print_json(&Json::from(sources));
        }
        output::print(&table(&sources)?)?;
        output::print(&missing(&sources))?;
        output::print(&state_of_insights(&insights))?;
        output::print(&self.state_of_forecasts()?)?;
        output::print(&self.state_of_statements())?;
        output::print(&self.state_of_archive())
    }

    /// Errors in the files of statements; empty without an agent.
    fn state_of_statements(&self) -> String {
        let run_dir = self.target.run_dir();
        let document = run_dir.document(STATEMENTS_DOCUMENT).ok().flatten();
        let rows = document.and_then(|bytes| serde_json::from_slice::<Vec<Json>>(&bytes).ok());
        let rows = rows.filter(|_| !self.probe).unwrap_or_default();
        let texts = rows.iter().flat_map(|row| [&row["trouble"], &row["found"]]);
        let texts = texts
            .filter_map(Json::as_str)
            .filter(|text| !text.is_empty());
        texts
            .map(|text| format!("\nstatements: {text}\n"))
            .collect()
    }

    /// The state of the archive; empty without an agent, because then nobody writes history.
    fn state_of_archive(&self) -> String {
        if self.probe {
            return String::new();
        }
        let told = archive::ArchiveDocuments::of(&self.target.run_dir());
        let lines = told.lines(SystemClock::new().now_ns());
        let lines = lines
            .into_iter()
            .enumerate()
            .map(|(at, (what, line))| match at {
                0 => format!("\n{what}: {line}\n"),
                _ => format!("  {what:<7} {line}\n"),
            });
        lines.collect()
    }

    /// Streams that should have a forecast and have none.
    fn state_of_forecasts(&self) -> anyhow::Result<String> {
        let run_dir = self.target.run_dir();
        let rows = forecast::rows(&run_dir)?.filter(|_| !self.probe);
        Ok(beyond(&rows.unwrap_or_default()))
    }

    /// Sources and insights: as the agent reports them, or as they are found here and now.
    fn look(&self) -> anyhow::Result<(Vec<Json>, Vec<Json>)> {
        let run_dir = self.target.run_dir();
        let sources = run_dir.document(SOURCES_DOCUMENT)?;
        let insights = run_dir.document(INSIGHTS_DOCUMENT)?;
        if let (Some(sources), Some(insights), false) = (sources, insights, self.probe) {
            return Ok((
                serde_json::from_slice(&sources)?,
                serde_json::from_slice(&insights)?,
            ));
        }
        if !self.probe {
            output::tell(&format!(
                "baro: no agent serves {}, looking for myself\n",
                run_dir.path().display()
            ));
        }
        let mut config = Config::default();
        if let Some(root) = &self.sys_root {
            config.sources.sys_root.clone_from(root);
        }
        let look = barograph_agent::look(config)?;
        Ok((
            serde_json::from_value(look.sources)?,
            serde_json::from_value(look.insights)?,
        ))
    }
}

/// The number of streams without a forecast because there are too many, and some of their names.
fn beyond(rows: &[Json]) -> String {
    let beyond = rows.iter().filter(|row| row["streams"].as_u64() > Some(0));
    let count: u64 = beyond
        .clone()
        .filter_map(|row| row["streams"].as_u64())
        .sum();
    let Some(why) = beyond.clone().next().map(|row| text(row, "reason")) else {
        return String::new();
    };
    let names = beyond.map(|row| text(row, "name"));
    let names: Vec<String> = names
        .filter(|name| !name.is_empty())
        .take(BEYOND_MAX)
        .collect();
    let more = if count > names.len() as u64 {
        ", …"
    } else {
        ""
    };
    let (names, remedy) = (
        names.join(", "),
        "name fewer streams in forecast.streams, or raise the limit",
    );
    format!(
        "\n{count} streams are not forecast: {names}{more}\n  why     {why}\n  remedy  {remedy}\n"
    )
}

fn text(json: &Json, key: &str) -> String {
    output::plain(json[key].as_str().unwrap_or_default()).into_owned()
}

/// The missing parts of each source, with reason and remedy.
fn missing(sources: &[Json]) -> String {
    let mut page = String::new();
    for report in sources {
        let verb = if is_off(report) {
            "would give"
        } else {
            "cannot see"
        };
        for missing in report["missing"].as_array().into_iter().flatten() {
            page += &format!(
                "\n{}: {verb} {}\n  why     {}\n  remedy  {}\n",
                text(report, "source"),
                text(missing, "what"),
                text(missing, "why"),
                text(missing, "remedy")
            );
        }
    }
    page
}

/// Every insight: live, or the reason why not and the remedy. Insights with the same reason share a
/// line.
fn state_of_insights(insights: &[Json]) -> String {
    let (live, other): (Vec<&Json>, Vec<&Json>) =
        insights.iter().partition(|i| i["state"] == "live");
    let name = |i: &&Json| text(i, "name");
    let mut page = format!("\n{} of {} insights are live", live.len(), insights.len());
    if !live.is_empty() {
        let names: Vec<String> = live.iter().map(name).collect();
        page += &format!(": {}", names.join(", "));
    }
    page += "\n";
    let words = |i: &Json| (text(i, "state"), text(i, "reason"), text(i, "remedy"));
    let mut told = Vec::new();
    for insight in &other {
        let (state, reason, remedy) = words(insight);
        let same: Vec<String> = other
            .iter()
            .filter(|i| words(i) == words(insight))
            .map(name)
            .collect();
        if told.contains(&same) {
            continue;
        }
        page += &format!("\n{} {state}\n  why     {reason}\n", same.join(", "));
        if !remedy.is_empty() {
            page += &format!("  remedy  {remedy}\n");
        }
        told.push(same);
    }
    page
}

/// Whether the source is switched off by the configuration.
pub(super) fn is_off(report: &Json) -> bool {
    report["state"] == "off"
}

/// One line per source that is read.
pub(super) fn table(reports: &[Json]) -> anyhow::Result<String> {
    let rows: Vec<Vec<String>> = reports
        .iter()
        .filter(|report| !is_off(report))
        .map(|r| {
            let cost = r["cost_ns_mean"].as_i64().unwrap_or(0);
            let interval = r["interval_ns"].as_i64().unwrap_or(0);
            vec![
                text(r, "source"),
                text(r, "state"),
                r["streams"].to_string(),
                format::age(interval),
                format::age(cost),
                text(r, "sees"),
            ]
        })
        .collect();
    Ok(output::table(
        &["SOURCE", "STATE", "STREAMS", "EVERY", "COST", "SEES"],
        &[2, 3, 4],
        &rows,
    ))
}
