//! `baro control list`: the controllers of an agent.

use anyhow::Context as _;
use barograph_agent::ControllersRow;
use barograph_client::{RunDir, SystemClock};
use barograph_model::Clock as _;
use clap::Args;
use serde_json::{Value as Json, json};

use super::super::output::plain;
use super::super::{Target, format, output};
use super::{LIST, ask};

/// Arguments of `baro control list`.
#[derive(Args)]
pub(super) struct Controllers {
    #[command(flatten)]
    target: Target,
}

impl Controllers {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let answer = ask(&self.target.run_dir(), LIST, &json!({}))?;
        if self.target.json {
            return output::print_json(&answer);
        }
        let now_ns = SystemClock::new().now_ns();
        let cells = rows(&answer)?;
        let cells: Vec<Vec<String>> = cells.iter().map(|row| cells_of(row, now_ns)).collect();
        output::print_table(
            &[
                "CONTROLLER",
                "LEVEL",
                "DECIDES",
                "MODE",
                "DECISIONS",
                "LAST",
            ],
            &[5],
            &cells,
        )?;
        output::print(&state_of_archive(&answer))
    }
}

/// The rows of an answer.
fn rows(answer: &Json) -> anyhow::Result<Vec<ControllersRow>> {
    let rows = answer["controllers"].clone();
    serde_json::from_value(rows).context("the agent's answer is of another version")
}

/// One row of an answer.
pub(super) fn row(row: &Json) -> anyhow::Result<ControllersRow> {
    serde_json::from_value(row.clone()).context("the agent's answer is of another version")
}

/// The mode of a controller, with whom it has it from and until when.
pub(super) fn mode(row: &ControllersRow, now_ns: i64) -> String {
    let name = match &*row.mode {
        "dry_run" => "in a dry run",
        "held_off" => "held off",
        mode => mode,
    };
    let mut text = plain(name).into_owned();
    if !row.by.is_empty() {
        text += &format!(" by {}", plain(&row.by));
    }
    if let Some(until_ts) = row.until_ts {
        let left = format::age(until_ts.saturating_sub(now_ns).max(0));
        text += &format!(", for {left} more");
    }
    if !row.reason.is_empty() {
        text += &format!(": {}", plain(&row.reason));
    }
    for held in row.held_off.iter().filter(|_| row.mode != "held_off") {
        let word = |name: &str| plain(held[name].as_str().unwrap_or_default()).into_owned();
        text += &format!("; held off: {} ({})", word("what"), word("reason"));
    }
    text
}

fn cells_of(row: &ControllersRow, now_ns: i64) -> Vec<String> {
    let outcomes = row.outcomes.as_object().cloned().unwrap_or_default();
    let outcomes: Vec<String> = outcomes
        .iter()
        .map(|(outcome, count)| format!("{count} {}", plain(&outcome.replace('_', " "))))
        .collect();
    let decisions = match &*outcomes {
        [] => row.decisions.to_string(),
        outcomes => outcomes.join(", "),
    };
    let last = row
        .last_ts
        .map(|ts| format!("{} ago", format::age(now_ns.saturating_sub(ts))));
    vec![
        plain(&row.name).into_owned(),
        plain(&row.level).into_owned(),
        plain(&row.about).into_owned(),
        mode(row, now_ns),
        decisions,
        last.unwrap_or_else(|| "-".into()),
    ]
}

/// What did not come to the archive of decisions; empty if all did.
fn state_of_archive(answer: &Json) -> String {
    let archive = &answer["archive"];
    let lost = archive["lost"].as_u64().unwrap_or(0);
    let trouble = plain(archive["trouble"].as_str().unwrap_or_default());
    let lost = match lost {
        0 => String::new(),
        lost => format!("{lost} decisions were lost on their way to the archive\n"),
    };
    match &*trouble {
        "" => lost,
        trouble => format!("{lost}decisions are not archived at present: {trouble}\n"),
    }
}

/// The controllers that are not live, a line for each, and the trouble of their archive; empty
/// without any.
pub(super) fn state_of_modes(run_dir: &RunDir) -> String {
    let answer = ask(run_dir, LIST, &json!({})).unwrap_or_default();
    let now_ns = SystemClock::new().now_ns();
    let rows = rows(&answer).unwrap_or_default().into_iter();
    let rows = rows.filter(|row| row.mode != "live" || !row.held_off.is_empty());
    let lines: Vec<String> = rows
        .map(|row| format!("{} is {}\n", plain(&row.name), mode(&row, now_ns)))
        .collect();
    lines.concat() + &state_of_archive(&answer)
}
