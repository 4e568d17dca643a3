//! `baro doctor`: reports what every source reads, what is missing, why, and its remedy; which
//! insights are live, and why the others are not; and what is wrong with archive, cluster,
//! watches and rules; and what controllers can do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use barograph_agent::{
    ACTIONS_DOCUMENT, ActionsRow, Config, ForecastsRow, INSIGHTS_DOCUMENT, InsightsRow,
    RULES_DOCUMENT, RulesRow, SOURCES_DOCUMENT, STATEMENTS_DOCUMENT, SourcesRow, StatementsRow,
    WATCHES_DOCUMENT, WatchesRow,
};
use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::Args;
use serde::de::DeserializeOwned;

use super::documents::{DocumentRow, document};
use super::output::plain;
use super::{Target, archive, cluster, control, forecast, format, output, weights};

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
            return output::print_json(&sources);
        }
        output::print(&table(&sources))?;
        output::print(&missing(&sources))?;
        output::print(&state_of_insights(&insights))?;
        output::print(&self.state_of_forecasts()?)?;
        output::print(&self.state_of_statements())?;
        if !self.probe {
            output::print(&cluster::state_of_cluster(&self.target.run_dir()))?;
            output::print(&self.state_of_watches())?;
            output::print(&self.state_of_rules())?;
            output::print(&control::state_of_controllers(&self.target.run_dir()))?;
        }
        let sys_root = self.sys_root.as_deref().unwrap_or(Path::new("/"));
        output::print(&weights::state_of_weights(sys_root))?;
        output::print(&self.state_of_archive())
    }

    /// Errors in the files of statements; empty without an agent.
    fn state_of_statements(&self) -> String {
        let read = document(&self.target.run_dir(), STATEMENTS_DOCUMENT);
        let rows: Option<Vec<StatementsRow>> = read.ok().flatten().filter(|_| !self.probe);
        let rows = rows.into_iter().flatten();
        let texts = rows.flat_map(|row| [row.trouble, row.found]);
        texts
            .filter(|text| !text.is_empty())
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

    /// The rows of a document in all scopes that may be read.
    fn of_scopes<T: DeserializeOwned>(&self, name: &str) -> Vec<DocumentRow<T>> {
        let scopes = self.target.run_dir().scopes().into_iter();
        let rows = scopes.flat_map(|(_, run_dir)| {
            let rows: Option<Vec<DocumentRow<T>>> = document(&run_dir, name).ok().flatten();
            rows.unwrap_or_default()
        });
        rows.collect()
    }

    /// The rules with which something is wrong, and the actions that have failed for good.
    fn state_of_rules(&self) -> String {
        let rules: Option<Vec<DocumentRow<RulesRow>>> =
            document(&self.target.run_dir(), RULES_DOCUMENT)
                .ok()
                .flatten();
        let rules = rules.unwrap_or_default();
        let troubled = rules.iter().filter(|rule| rule.state == "failed");
        let mut page: String = troubled
            .map(|rule| format!("\nrule {}: {}\n", plain(&rule.name), plain(&rule.reason)))
            .collect();
        // The newest ones come first.
        let mut dead: BTreeMap<String, (usize, String)> = BTreeMap::new();
        let own: Option<Vec<DocumentRow<ActionsRow>>> =
            document(&self.target.run_dir(), ACTIONS_DOCUMENT)
                .ok()
                .flatten();
        let of_scopes = self.of_scopes(ACTIONS_DOCUMENT);
        for action in own.into_iter().flatten().chain(of_scopes) {
            if action.state == "dead" {
                let of_rule = dead.entry(action.rule.clone());
                of_rule.or_insert((0, action.reason.clone())).0 += 1;
            }
        }
        for (rule, (count, reason)) in dead {
            let (rule, reason) = (plain(&rule).into_owned(), plain(&reason).into_owned());
            page += &format!(
                "\nactions of rule {rule}: {count} have failed for good\n  why     {reason}\n  \
                 remedy  baro action list --rule {rule} --state dead, then retry or drop them\n"
            );
        }
        page
    }

    /// The watches of file events with which something is wrong; empty without an agent.
    fn state_of_watches(&self) -> String {
        let rows = self.of_scopes::<WatchesRow>(WATCHES_DOCUMENT).into_iter();
        let troubled = rows.filter(|row| !row.trouble.is_empty());
        let line = |row: DocumentRow<WatchesRow>| {
            let (name, trouble) = (plain(&row.name), plain(&row.trouble));
            format!("\nevents of {name}: {trouble}\n")
        };
        troubled.map(line).collect()
    }

    /// Streams that should have a forecast and have none.
    fn state_of_forecasts(&self) -> anyhow::Result<String> {
        let run_dir = self.target.run_dir();
        let rows = forecast::rows(&run_dir)?.filter(|_| !self.probe);
        Ok(beyond(&rows.unwrap_or_default()))
    }

    /// Sources and insights: as the agent reports them, or as they are found here and now.
    fn look(&self) -> anyhow::Result<(Vec<DocumentRow<SourcesRow>>, Vec<InsightsRow>)> {
        let run_dir = self.target.run_dir();
        if !self.probe {
            let sources = document(&run_dir, SOURCES_DOCUMENT)?;
            if let (Some(sources), Some(insights)) =
                (sources, document(&run_dir, INSIGHTS_DOCUMENT)?)
            {
                return Ok((sources, insights));
            }
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
fn beyond(rows: &[DocumentRow<ForecastsRow>]) -> String {
    let beyond = rows.iter().filter(|row| row.streams > 0);
    let count = beyond
        .clone()
        .fold(0, |sum: u64, row| sum.saturating_add(row.streams));
    let Some(why) = beyond.clone().next().map(|row| plain(&row.reason)) else {
        return String::new();
    };
    let names = beyond.filter_map(|row| row.name.as_deref());
    let names: Vec<_> = names.take(BEYOND_MAX).map(plain).collect();
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

/// The missing parts of each source, with reason and remedy.
fn missing(sources: &[DocumentRow<SourcesRow>]) -> String {
    let mut page = String::new();
    for report in sources {
        let verb = if is_off(report) {
            "would give"
        } else {
            "cannot see"
        };
        for missing in &report.missing {
            page += &format!(
                "\n{}: {verb} {}\n  why     {}\n  remedy  {}\n",
                plain(&report.source),
                plain(&missing.what),
                plain(&missing.why),
                plain(&missing.remedy)
            );
        }
    }
    page
}

/// Every insight: live, or the reason why not and the remedy. Insights with the same reason share a
/// line.
fn state_of_insights(insights: &[InsightsRow]) -> String {
    let (live, other): (Vec<&InsightsRow>, Vec<&InsightsRow>) =
        insights.iter().partition(|i| i.state == "live");
    let name = |i: &&InsightsRow| plain(&i.name).into_owned();
    let mut page = format!("\n{} of {} insights are live", live.len(), insights.len());
    if !live.is_empty() {
        let names: Vec<String> = live.iter().map(name).collect();
        page += &format!(": {}", names.join(", "));
    }
    page += "\n";
    let words =
        |i: &InsightsRow| [&i.state, &i.reason, &i.remedy].map(|text| plain(text).into_owned());
    let mut told = Vec::new();
    for insight in &other {
        let [state, reason, remedy] = words(insight);
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
pub(super) fn is_off(report: &SourcesRow) -> bool {
    report.state == "off"
}

/// One line per source that is read.
pub(super) fn table(reports: &[DocumentRow<SourcesRow>]) -> String {
    let rows: Vec<Vec<String>> = reports
        .iter()
        .filter(|report| !is_off(report))
        .map(|r| {
            vec![
                r.source.clone(),
                r.state.clone(),
                r.streams.to_string(),
                format::age(r.interval_ns),
                format::age(r.cost_ns_mean),
                r.sees.clone(),
            ]
        })
        .collect();
    output::table(
        &["SOURCE", "STATE", "STREAMS", "EVERY", "COST", "SEES"],
        &[2, 3, 4],
        &rows,
    )
}
