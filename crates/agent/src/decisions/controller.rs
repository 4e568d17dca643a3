//! What every controller can be asked and told: the one place where a new kind of controller joins
//! `baro control list`, the table `controllers` and the page.

use barograph_model::RequestSender;
use barograph_stream::ControllersRow;
use serde_json::json;

use super::{ControllerMode, ControllerSwitches, DecisionTally};

/// How far the decisions of a controller reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerLevel {
    /// One node.
    Node,
    /// All nodes.
    Global,
}

/// What the configuration says of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConfiguredMode {
    /// It decides.
    #[default]
    Live,
    /// It decides, and nothing is done.
    DryRun,
    /// It is off.
    Off,
}

/// Something that a controller holds off by itself, since it has shown no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldOff {
    /// What is held off. It names no user.
    pub what: String,
    /// The end, in ns since the epoch.
    pub until_ns: i64,
    pub reason: String,
    /// Whether it is all that the controller does.
    pub is_whole: bool,
}

/// A controller of this agent, for those who look at it and switch it.
pub(crate) trait Controller {
    /// Its name, which no other one has.
    fn name(&self) -> String;

    /// How far its decisions reach.
    fn level(&self) -> ControllerLevel;

    /// What it decides, as a part of a sentence.
    fn about(&self) -> String;

    /// What the configuration says of it.
    fn configured(&self) -> ConfiguredMode {
        ConfiguredMode::Live
    }

    /// What it holds off by itself at present.
    fn held_off(&self) -> Vec<HoldOff>;

    /// Ends all that it holds off; returns whether there was something.
    fn end_hold_off(&self) -> bool;

    /// What it has decided in this life of the agent.
    fn tally(&self) -> DecisionTally;

    /// What it would do now and why, in sentences for this asker.
    fn explain(&self, asker: &RequestSender) -> Vec<String>;

    /// Takes in that it is paused: what it has done is taken back, for this reason.
    fn paused(&self, why: &str);
}

impl ControllerLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Global => "global",
        }
    }
}

/// The row of a controller. `changes` are the decisions about its mode.
pub(crate) fn controller_row(
    controller: &dyn Controller,
    switches: &ControllerSwitches,
    changes: &DecisionTally,
) -> ControllersRow {
    let name = controller.name();
    let switched = switches.mode(&name);
    let held_off = controller.held_off();
    let whole = held_off.iter().find(|it| it.is_whole);
    let mut tally = controller.tally();
    tally.add(changes);
    let mut row = ControllersRow {
        level: controller.level().as_str().to_owned(),
        about: controller.about(),
        decisions: tally.outcomes.values().sum(),
        outcomes: json!(tally.outcomes),
        last_ts: tally.last.map(|(made_ns, _)| made_ns),
        last_id: tally.last.map(|(_, id)| id),
        held_off: held_off
            .iter()
            .map(|it| json!({ "what": it.what, "until_ts": it.until_ns, "reason": it.reason }))
            .collect(),
        name,
        ..ControllersRow::default()
    };
    let mode = match (controller.configured(), switched.mode) {
        (ConfiguredMode::Off, _) => "off",
        (_, ControllerMode::Paused) => "paused",
        (ConfiguredMode::DryRun, _) | (_, ControllerMode::DryRun) => "dry_run",
        (ConfiguredMode::Live, ControllerMode::Live) if whole.is_some() => "held_off",
        (ConfiguredMode::Live, ControllerMode::Live) => "live",
    };
    mode.clone_into(&mut row.mode);
    if switched.mode != ControllerMode::Live {
        row.by = switched.by;
        row.since_ts = switched.since_ns;
        row.until_ts = switched.until_ns;
        row.reason = switched.reason;
    } else if let Some(whole) = whole {
        "its effect".clone_into(&mut row.by);
        row.until_ts = Some(whole.until_ns);
        row.reason.clone_from(&whole.reason);
    }
    if controller.configured() != ConfiguredMode::Live && row.by.is_empty() {
        "the configuration".clone_into(&mut row.by);
    }
    row
}
