//! `baro control`: the decisions of controllers, as a list, and one of them explained in sentences;
//! and the phases of I/O on scheduled volumes. Whoever may control sees those of all users, others
//! see their own.

mod events;
mod maps;
mod phases;
mod replay;

use anyhow::Context as _;
use barograph_agent::DecisionsRow;
use barograph_client::{AgentSocket, RunDir, SystemClock};
use barograph_model::Clock as _;
use clap::{Args, Subcommand};
use serde_json::{Map, Value as Json, json};

use super::output::plain;
use super::{Target, format, http, output};

/// The paths to which requests go.
const DECISIONS: &str = "/api/v1/control/decisions";
const PHASES: &str = "/api/v1/control/phases";

/// Arguments of `baro control`.
#[derive(Args)]
pub(super) struct Control {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the newest decisions: how much was to be read, with which I/O weight, and what came of
    /// it
    #[command(visible_alias = "ls")]
    Decisions(List),
    /// Explain one decision: its inputs, what else was considered, and its effect
    Show(One),
    /// List the phases of I/O on scheduled volumes: who may do I/O, who waits, and why
    Phases(phases::Phases),
    /// List maps of servers and their epochs, or change one: add servers, or take some out
    Maps(maps::Maps),
    /// Show control events: what programs and agents tell each other about storage and its control
    Events(events::Events),
    /// Replay recorded phases of I/O under each policy: how applications would have fared
    ///
    /// Applications compute for as long and do as much I/O as in the record. UTILISATION is the
    /// share of time in which they compute; SLOWDOWN is the time of a phase by the time that it
    /// takes alone, STRETCH the same of an application's whole time: the geometric mean over
    /// applications, and the worst.
    Replay(replay::Replay),
}

#[derive(Args)]
struct List {
    /// Most plans; each has a decision about its buckets, and may have one about a weight
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
struct One {
    /// Number of the decision, as `baro control decisions` has it
    id: u64,
    #[command(flatten)]
    target: Target,
}

impl Control {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Decisions(list) => list.run(),
            Verb::Show(one) => one.run(),
            Verb::Phases(phases) => phases.run(),
            Verb::Maps(maps) => maps.run(),
            Verb::Events(events) => events.run(),
            Verb::Replay(replay) => replay.run(),
        }
    }
}

/// Asks the agent, by the socket that this user may use.
fn ask(run_dir: &RunDir, path: &str, body: &Json) -> anyhow::Result<Json> {
    let door = match run_dir.connect(AgentSocket::Control) {
        Ok(_) => AgentSocket::Control,
        Err(_) => AgentSocket::Read,
    };
    http::post(run_dir, door, path, body, http::ANSWER_WAIT)
}

/// What controllers do here, in one line; empty without an agent that has any.
pub(super) fn state_of_controllers(run_dir: &RunDir) -> String {
    let Ok(answer) = ask(run_dir, DECISIONS, &json!({ "limit": 1 })) else {
        return String::new();
    };
    let text = |name: &str| plain(answer[name].as_str().unwrap_or_default()).into_owned();
    let mode = match &*text("mode") {
        "live" => "decisions are carried out".to_owned(),
        "dry_run" => "decisions are recorded only (control.mode = \"dry_run\")".to_owned(),
        mode => format!("mode {mode} (control.mode)"),
    };
    let refused = match answer["refused"].as_u64() {
        None | Some(0) => String::new(),
        Some(refused) => format!("; {refused} plans were refused, since one user asked too often"),
    };
    format!(
        "\ncontrollers: {mode}; weights for {} (control.weights){refused}\n{}",
        text("weights"),
        state_of_schedules(run_dir)
    )
}

/// The volumes on which programs take turns, in one line; empty without any.
fn state_of_schedules(run_dir: &RunDir) -> String {
    let answer = ask(run_dir, PHASES, &json!({ "limit": 1_000 })).unwrap_or_default();
    let volumes = answer["volumes"].as_array().map_or(&[][..], Vec::as_slice);
    let phases = answer["phases"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |volume: &Json| {
        let open = phases
            .iter()
            .filter(|phase| phase["volume"] == *volume && phase["ended_ts"].is_null());
        let (waiting, at_work): (Vec<_>, Vec<_>) =
            open.partition(|phase| phase["state"] == "waiting");
        let name = plain(volume.as_str().unwrap_or_default()).into_owned();
        format!(
            "{name} ({} at work, {} waiting)",
            at_work.len(),
            waiting.len()
        )
    };
    match volumes {
        [] => String::new(),
        volumes => {
            let volumes: Vec<String> = volumes.iter().map(of).collect();
            format!(
                "I/O in turns: {} (baro control phases)\n",
                volumes.join(", ")
            )
        }
    }
}

fn rows(answer: &Json) -> anyhow::Result<Vec<DecisionsRow>> {
    let rows = answer["decisions"].clone();
    serde_json::from_value(rows).context("the agent's answer is of another version")
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let run_dir = self.target.run_dir();
        let answer = ask(&run_dir, DECISIONS, &json!({ "limit": self.limit }))?;
        if self.target.json {
            return output::print_json(&answer["decisions"]);
        }
        let rows = rows(&answer)?;
        if rows.is_empty() {
            return output::print(
                "no decisions: no reader of arrays has asked yet (docs/guide/control.md says how they do)\n",
            );
        }
        let now_ns = SystemClock::new().now_ns();
        let cells = |row: &DecisionsRow| {
            vec![
                row.id.to_string(),
                format::age(now_ns.saturating_sub(row.made_ts)),
                row.controller.clone(),
                row.user.clone(),
                row.device.clone(),
                row.label.clone(),
                value(&row.value),
                row.outcome.clone(),
                effect(row).unwrap_or_else(|| "-".into()),
            ]
        };
        let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::print_table(
            &[
                "ID",
                "AGE",
                "CONTROLLER",
                "USER",
                "DEVICE",
                "LABEL",
                "VALUE",
                "OUTCOME",
                "EFFECT",
            ],
            &[0, 6],
            &cells,
        )
    }
}

impl One {
    fn run(self) -> anyhow::Result<()> {
        let run_dir = self.target.run_dir();
        let answer = ask(&run_dir, DECISIONS, &json!({ "id": self.id }))?;
        if self.target.json {
            return output::print_json(&answer["decisions"]);
        }
        let now_ns = SystemClock::new().now_ns();
        let rows = rows(&answer)?;
        let pages: Vec<String> = rows.iter().map(|row| page(row, now_ns)).collect();
        output::print(&pages.join("\n"))
    }
}

/// A decision in sentences.
fn page(row: &DecisionsRow, now_ns: i64) -> String {
    let age = format::age(now_ns.saturating_sub(row.made_ts));
    let (user, device, label, subject) = (
        plain(&row.user),
        plain(&row.device),
        plain(&row.label),
        plain(&row.subject),
    );
    let what = match &*row.controller {
        "augmentation" => format!("reads {} buckets of {label:?}", value(&row.value)),
        "weight" => format!(
            "sets the I/O weight of control group {subject} to {}",
            value(&row.value)
        ),
        other => format!("{}: {}", plain(other), value(&row.value)),
    };
    let mut page = format!(
        "decision {} on {device} for user {user}, {age} ago: {what}\n  why      {}\n",
        row.id,
        plain(&row.reason)
    );
    let mut line = |head: &str, text: String| page += &format!("  {head:<8} {text}\n");
    let inputs = row.inputs.iter();
    let inputs: Vec<String> = inputs
        .map(|(name, it)| format!("{} = {}", plain(name), value(it)))
        .collect();
    line("inputs", inputs.join(", "));
    for alternative in &row.alternatives {
        let text = |name: &str| plain(alternative[name].as_str().unwrap_or_default()).into_owned();
        line(
            "instead",
            format!("{} (not chosen: {})", text("what"), text("why_not")),
        );
    }
    for limit in &row.limits {
        line(
            "limit",
            format!(
                "{} made {} of {}",
                value(&limit["limit"]),
                value(&limit["after"]),
                value(&limit["before"])
            ),
        );
    }
    let outcome = match &*row.outcome {
        "proposed" => "the reader was told; it has not reported yet",
        "dry_run" => "nothing was done: a dry run",
        "done" => "it was carried out",
        "deferred" => "it was put off",
        "failed" => "it could not be carried out",
        "reverted" => "it was carried out and taken back",
        other => other,
    };
    let reason = match &*row.outcome_reason {
        "" => String::new(),
        reason => format!(": {}", plain(reason)),
    };
    line("outcome", format!("{}{reason}", plain(outcome)));
    if let Some(effect) = effect(row) {
        line("effect", effect);
    }
    if row.dropped > 0 {
        line("left out", format!("{} more", row.dropped));
    }
    page
}

/// What was observed after a decision; `None` if nothing was.
fn effect(row: &DecisionsRow) -> Option<String> {
    let effect: &Map<String, Json> = row.effect.as_ref()?.as_object()?;
    let rate = |name: &str| match effect.get(name).and_then(Json::as_f64) {
        Some(rate) => format::number(rate, "bytes/s"),
        None => "nothing".to_owned(),
    };
    Some(format!(
        "predicted {}, reported {}",
        rate("before"),
        rate("after")
    ))
}

fn value(value: &Json) -> String {
    match value {
        Json::String(text) => plain(text).into_owned(),
        // Whole numbers without a point: numbers of buckets and bytes.
        Json::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), |it| it.to_string()),
        other => other.to_string(),
    }
}
