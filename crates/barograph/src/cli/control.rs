//! `baro control`: the controllers of an agent and what they decide. `list`, `explain` and `switch`
//! have the controllers themselves; decisions and phases of I/O are those of all users for who may
//! control, and the own ones for others.

mod advise;
mod events;
mod explain;
mod list;
mod maps;
mod phases;
mod replay;
mod switch;

use anyhow::Context as _;
use barograph_agent::DecisionsRow;
use barograph_client::{AgentSocket, RunDir, SystemClock};
use barograph_model::Clock as _;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::output::plain;
use super::{Target, format, http, output};

/// The paths to which requests go.
const DECISIONS: &str = "/api/v1/control/decisions";
const PHASES: &str = "/api/v1/control/phases";
const LIST: &str = "/api/v1/control/list";
const EXPLAIN: &str = "/api/v1/control/explain";

/// Arguments of `baro control`.
#[derive(Args)]
pub(super) struct Control {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the controllers of this agent: what each decides about, whether it is live, and what it
    /// has decided
    #[command(visible_alias = "ls")]
    List(list::Controllers),
    /// Explain a decision, or what a controller would do now and why
    ///
    /// A decision has its inputs, what else was considered, the limits that cut it, and what was
    /// expected and observed. Archived ones are explained as well.
    #[command(alias = "show")]
    Explain(explain::Explain),
    /// List the newest decisions of all controllers, and what came of them
    Decisions(List),
    /// Have a controller decide nothing: who waits goes on, weights are given back, and readers
    /// read what their error bounds need
    Pause(switch::Pause),
    /// End a pause, and what a controller holds off by itself
    Resume(switch::Resume),
    /// Have a controller decide and record without effect, or with effect again
    DryRun(switch::DryRun),
    /// Take one decision back, if it is in effect: a weight, or a grant to do I/O
    Revert(switch::Revert),
    /// Show where blocks would go now, and why: what middleware asks the agent
    Advise(advise::Advise),
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
    /// Only those of this controller [default: all]
    controller: Option<String>,
    /// Most decisions; a plan of a read counts as one, and may have a decision about a weight as
    /// well
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

impl Control {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::List(list) => list.run(),
            Verb::Explain(explain) => explain.run(),
            Verb::Decisions(list) => list.run(),
            Verb::Pause(pause) => pause.run(),
            Verb::Resume(resume) => resume.run(),
            Verb::DryRun(dry_run) => dry_run.run(),
            Verb::Revert(revert) => revert.run(),
            Verb::Advise(advise) => advise.run(),
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
        state_of_schedules(run_dir) + &list::state_of_modes(run_dir)
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
        let body = json!({ "limit": self.limit, "controller": self.controller });
        let answer = ask(&run_dir, DECISIONS, &body)?;
        if self.target.json {
            return output::print_json(&answer["decisions"]);
        }
        let rows = rows(&answer)?;
        if rows.is_empty() {
            return output::print(
                "no decisions: no reader of arrays has asked, and no program has begun a phase of I/O on a scheduled volume (docs/guide/control.md)\n",
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
                explain::value(&row.value),
                row.outcome.clone(),
                explain::effect(row).unwrap_or_else(|| "-".into()),
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
