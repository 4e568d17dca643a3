//! `baro doctor`: what every source sees, what is missing, why, and what would help.

use std::path::PathBuf;

use barograph_agent::{Config, SOURCES_DOCUMENT};
use clap::Args;
use serde_json::Value as Json;

use super::{Target, format, output};

/// Arguments of `baro doctor`.
#[derive(Args)]
pub struct Doctor {
    /// Look through the sources now, in this process, instead of asking for an agent's report
    #[arg(long)]
    probe: bool,
    /// With --probe: the tree to read in place of /
    #[arg(long, value_name = "DIR", requires = "probe")]
    sys_root: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl Doctor {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        let reported = self.target.run_dir().document(SOURCES_DOCUMENT)?;
        let reports: Vec<Json> = match reported {
            Some(bytes) if !self.probe => serde_json::from_slice(&bytes)?,
            _ => {
                if !self.probe {
                    eprintln!(
                        "baro: no agent serves {}, looking for myself",
                        self.target.run_dir().path().display()
                    );
                }
                let mut config = Config::default();
                config.sources.sys_root = self.sys_root.unwrap_or(config.sources.sys_root);
                let reports = barograph_agent::probe_sources(config)?;
                serde_json::from_value(barograph_agent::sources_json(&reports))?
            }
        };
        if self.target.json {
            return output::print_json(&Json::from(reports));
        }
        output::print(&table(&reports)?)?;
        for report in &reports {
            for missing in report["missing"].as_array().into_iter().flatten() {
                let text = |key: &str| missing[key].as_str().unwrap_or_default().to_owned();
                let source = report["source"].as_str().unwrap_or_default();
                let (what, why, remedy) = (text("what"), text("why"), text("remedy"));
                output::print(&format!(
                    "\n{source}: {what} is missing\n  why     {why}\n  remedy  {remedy}\n"
                ))?;
            }
        }
        Ok(())
    }
}

/// One line a source.
pub fn table(reports: &[Json]) -> anyhow::Result<String> {
    let text = |report: &Json, key: &str| report[key].as_str().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = reports
        .iter()
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
