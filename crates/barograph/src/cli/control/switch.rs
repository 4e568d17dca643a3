//! `baro control pause`, `resume`, `dry-run` and `revert`: what people do to controllers and to
//! single decisions. The agent records who it was.

use barograph_client::SystemClock;
use barograph_model::{Clock as _, NS_PER_S, duration_ns};
use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};

use super::super::output::plain;
use super::super::{Target, Usage, output};
use super::{ask, list, rows};

const PAUSE: &str = "/api/v1/control/pause";
const RESUME: &str = "/api/v1/control/resume";
const DRY_RUN: &str = "/api/v1/control/dry-run";
const REVERT: &str = "/api/v1/control/revert";

/// Arguments of `baro control pause`.
#[derive(Args)]
pub(super) struct Pause {
    /// Name of the controller, as `baro control list` has it
    controller: String,
    /// Time of the pause, such as 10m or 2h [default: until it is resumed]
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    /// Why, for those who see it
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    target: Target,
}

/// Arguments of `baro control resume`.
#[derive(Args)]
pub(super) struct Resume {
    /// Name of the controller, as `baro control list` has it
    controller: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    target: Target,
}

/// Arguments of `baro control dry-run`.
#[derive(Args)]
pub(super) struct DryRun {
    /// Name of the controller, as `baro control list` has it
    controller: String,
    /// Whether it decides without effect from now on
    state: State,
    /// Why, for those who see it
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    target: Target,
}

/// Arguments of `baro control revert`.
#[derive(Args)]
pub(super) struct Revert {
    /// Number of the decision, as `baro control decisions` has it
    id: u64,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    On,
    Off,
}

impl Pause {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let time = self.time.as_deref().map(duration_ns).transpose();
        let time = time.map_err(|error| Usage(format!("--for {error}")))?;
        let seconds = time.map(|ns| ns as f64 / NS_PER_S as f64);
        let body = json!({
            "controller": self.controller, "seconds": seconds, "reason": self.reason,
        });
        switch(&self.target, PAUSE, &body)
    }
}

impl Resume {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let body = json!({ "controller": self.controller, "reason": self.reason });
        switch(&self.target, RESUME, &body)
    }
}

impl DryRun {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let on = self.state == State::On;
        let body = json!({ "controller": self.controller, "on": on, "reason": self.reason });
        switch(&self.target, DRY_RUN, &body)
    }
}

impl Revert {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let body = json!({ "id": self.id, "reason": self.reason });
        let answer = ask(&self.target.run_dir(), REVERT, &body)?;
        if self.target.json {
            return output::print_json(&answer["decisions"]);
        }
        let rows = rows(&answer)?;
        let reverted = rows.iter().find(|row| row.id == self.id);
        let reason = reverted.map_or("", |row| &*row.outcome_reason);
        output::print(&format!("decision {}: {}\n", self.id, plain(reason)))
    }
}

/// Asks for a change of a controller, and says what it does now.
fn switch(target: &Target, path: &str, body: &Json) -> anyhow::Result<()> {
    let answer = ask(&target.run_dir(), path, body)?;
    if target.json {
        return output::print_json(&answer["controller"]);
    }
    let row = list::row(&answer["controller"])?;
    let now_ns = SystemClock::new().now_ns();
    output::print(&format!(
        "{} is {}\n",
        plain(&row.name),
        list::mode(&row, now_ns)
    ))
}
