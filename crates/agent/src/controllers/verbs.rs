//! What people ask of controllers and do to them: list, explain, pause, resume, dry run, revert.
//! Whoever changes something is in the decision that records it. Bodies are foreign, as those of
//! readers are.

use barograph_control::{Decision, DecisionOutcome};
use barograph_model::{
    ControlFault, ControlFaultKind, ControllerVerb, NS_PER_S, RequestSender, cut,
};
use barograph_stream::user_name;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tracing::info;

use super::placing::PLACEMENT;
use super::request::wrong;
use super::{ControlShared, WEIGHT, unknown};
use crate::decisions::{Controller, KeptDecision};
use crate::io_schedules::CONTROLLER_PREFIX;
use crate::refusal::StatementRefusal;
use crate::server_maps::MAP_CONTROLLER;

/// Shortest and longest time of a pause, in seconds; a longer one is one without an end.
const PAUSE_SECONDS: (f64, f64) = (1.0, 366.0 * 86_400.0);
/// Most bytes of the reason for a change.
const REASON_BYTES_MAX: usize = 256;

/// The body of a request about a controller, or about a decision.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct VerbBody {
    controller: Option<String>,
    id: Option<u64>,
    seconds: Option<f64>,
    on: Option<bool>,
    reason: Option<String>,
}

/// A change of a controller, and who makes it.
struct Change<'a> {
    controller: &'a dyn Controller,
    name: &'a str,
    by: &'a str,
    reason: &'a str,
    uid: Option<u32>,
}

impl ControlShared {
    pub(super) fn verb(
        &self,
        verb: ControllerVerb,
        body: &Json,
        asker: &RequestSender,
    ) -> Result<Json, ControlFault> {
        let body: VerbBody = read(body)?;
        match (verb, &body) {
            (ControllerVerb::List, _) => Ok(self.list()),
            (ControllerVerb::Explain, VerbBody { id: Some(id), .. }) => {
                self.decisions(&json!({ "id": id }), asker)
            }
            (ControllerVerb::Explain, _) => self.explain(&body, asker),
            (ControllerVerb::Revert, VerbBody { id: Some(id), .. }) => {
                self.revert(*id, &body, asker)
            }
            (ControllerVerb::Revert, _) => Err(wrong("send id, the number of a decision".into())),
            (verb, _) => self.switch(verb, &body, asker),
        }
    }

    fn list(&self) -> Json {
        json!({
            "controllers": self.controller_rows(),
            "archive": self.archive_state(),
        })
    }

    fn explain(&self, body: &VerbBody, asker: &RequestSender) -> Result<Json, ControlFault> {
        let roster = self.roster();
        let controller = found(&roster, body.controller.as_deref())?;
        let mut told = Vec::new();
        let row = self.controller_row(controller);
        if row.mode != "live" {
            let by = match &*row.by {
                "" => String::new(),
                by => format!(" by {by}"),
            };
            let reason = match &*row.reason {
                "" => String::new(),
                reason => format!(": {reason}"),
            };
            told.push(format!("its mode is {}{by}{reason}", row.mode));
        }
        told.extend(controller.explain(asker));
        Ok(json!({ "controller": row, "explanation": told }))
    }

    fn switch(
        &self,
        verb: ControllerVerb,
        body: &VerbBody,
        asker: &RequestSender,
    ) -> Result<Json, ControlFault> {
        if !asker.may_control {
            return Err(ControlFault {
                kind: ControlFaultKind::Refused,
                message: "this needs the right to control: ask by control.sock, or with the token"
                    .into(),
            });
        }
        let roster = self.roster();
        let controller = found(&roster, body.controller.as_deref())?;
        let (name, by) = (controller.name(), by(asker));
        let reason = cut(body.reason.clone().unwrap_or_default(), REASON_BYTES_MAX);
        let change = Change {
            controller,
            name: &name,
            by: &by,
            reason: &reason,
            uid: asker.uid,
        };
        match verb {
            ControllerVerb::Pause => self.pause(&change, body.seconds)?,
            ControllerVerb::Resume => self.resume_controller(&change)?,
            _ => self.dry_run(&change, body.on)?,
        }
        Ok(json!({ "controller": self.controller_row(controller) }))
    }

    fn pause(&self, change: &Change<'_>, seconds: Option<f64>) -> Result<(), ControlFault> {
        let (least, most) = PAUSE_SECONDS;
        if let Some(seconds) = seconds.filter(|it| !(least..=most).contains(it)) {
            return Err(wrong(format!(
                "seconds is {seconds}: send {least} to {most}, or none for a pause without an end"
            )));
        }
        let for_ns = seconds.map(|seconds| (seconds * NS_PER_S as f64) as i64);
        let switches = self.schedules.switches();
        let by = (change.by, change.reason);
        if done(switches.pause(change.name, by, for_ns))?.is_none() {
            let now = switches.mode(change.name);
            return Err(wrong(format!(
                "{} is {} already: resume it first",
                change.name,
                now.told()
            )));
        }
        let for_text = seconds.map_or_else(String::new, |seconds| format!(" for {seconds} s"));
        let why = self.record(change, "paused", &format!("paused{for_text}"));
        change.controller.paused(&why);
        Ok(())
    }

    fn resume_controller(&self, change: &Change<'_>) -> Result<(), ControlFault> {
        let resumed = done(self.schedules.switches().resume(change.name))?.is_some();
        // Who resumes it wants it to go on whatever held it off.
        let was_held = change.controller.end_hold_off();
        if !resumed && !was_held {
            return Err(wrong(format!("{} is not paused", change.name)));
        }
        self.record(change, "live", "resumed");
        Ok(())
    }

    fn dry_run(&self, change: &Change<'_>, on: Option<bool>) -> Result<(), ControlFault> {
        let on = on.ok_or_else(|| wrong("send on: true or false".into()))?;
        let switches = self.schedules.switches();
        let by = (change.by, change.reason);
        if done(switches.dry_run(change.name, by, on))?.is_none() {
            let state = if on { "already" } else { "not" };
            return Err(wrong(format!("{} is {state} in a dry run", change.name)));
        }
        let (mode, what) = match on {
            true => ("dry_run", "put in a dry run"),
            false => ("live", "taken out of its dry run"),
        };
        let why = self.record(change, mode, what);
        if on {
            // What it has done is taken back: from now on it does nothing.
            change.controller.paused(&why);
        }
        Ok(())
    }

    /// Keeps a change as a decision of its maker; returns it as a sentence.
    fn record(&self, change: &Change<'_>, mode: &str, what: &str) -> String {
        let reason = match change.reason {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let why = format!("{what} by {}{reason}", change.by);
        self.tell_mode(change.name, (mode, &why), change.uid);
        why
    }

    /// Keeps a change of a controller's mode as a decision.
    pub(super) fn tell_mode(&self, controller: &str, (mode, why): (&str, &str), uid: Option<u32>) {
        info!(controller, why, "a controller has changed its mode");
        let id = self.schedules.switches().next_id();
        let mut decision =
            Decision::new(id, self.clock.now_ns(), controller, "mode", 0.0).because(why);
        decision.proposed = mode.into();
        decision.value = mode.into();
        decision.outcome = DecisionOutcome::Done;
        let device = controller.strip_prefix(CONTROLLER_PREFIX);
        self.keep_change(KeptDecision {
            uid,
            device: device.unwrap_or_default().to_owned(),
            label: String::new(),
            plan: id,
            decision,
        });
    }

    /// Takes one decision back, if it is in effect.
    fn revert(
        &self,
        id: u64,
        body: &VerbBody,
        asker: &RequestSender,
    ) -> Result<Json, ControlFault> {
        let of = (!asker.may_control).then_some(asker.uid);
        let kept = self
            .kept(of)
            .into_iter()
            .find(|kept| kept.decision.id == id);
        let kept = kept.ok_or_else(|| unknown(id))?;
        let controller = &*kept.decision.controller;
        let reason = cut(body.reason.clone().unwrap_or_default(), REASON_BYTES_MAX);
        let why = match &*reason {
            "" => format!("taken back by {}", by(asker)),
            reason => format!("taken back by {}: {reason}", by(asker)),
        };
        let cannot = |why: String| wrong(format!("decision {id} cannot be taken back: {why}"));
        let is_grant = kept.decision.number().is_some_and(|share| share > 0.0);
        match controller {
            _ if kept.decision.subject == "mode" => {
                return Err(cannot(format!(
                    "it is a change of the mode of {controller}: `baro control resume {controller}`, or dry-run {controller} off"
                )));
            }
            WEIGHT => {
                let ended = self.weights().end(kept.plan, &why);
                let ended = ended.ok_or_else(|| cannot(state_of(&kept)))?;
                let mut readers = self.readers();
                let plan = readers.plan_of_all(kept.plan);
                if let Some(weight) = plan.and_then(|plan| plan.weight.as_mut()) {
                    weight.revert(&ended);
                }
            }
            volume if volume.starts_with(CONTROLLER_PREFIX) && is_grant => {
                let why = format!("{why}: it waits from its next word on");
                let reverted = self.schedules.revert(id, &why);
                reverted.map_err(|reason| cannot(format!("{reason} ({})", state_of(&kept))))?;
            }
            volume if volume.starts_with(CONTROLLER_PREFIX) => {
                return Err(cannot("it is a wait, which ends with a grant".into()));
            }
            MAP_CONTROLLER => {
                let reverted = self.maps.control().revert(id, &why);
                reverted.map_err(|reason| cannot(format!("{reason} ({})", state_of(&kept))))?;
            }
            PLACEMENT => {
                return Err(cannot(
                    "where blocks go was told to a program, which has put them there or does so now; `baro control pause placement` has later answers come from hashing alone".into(),
                ));
            }
            _ => {
                return Err(cannot(
                    "how much is read was told to a program, which has read it or does so now; `baro control pause augmentation` has the next reads read what their bounds need".into(),
                ));
            }
        }
        info!(id, why, "a decision is taken back");
        self.decisions(&json!({ "id": id }), asker)
    }
}

/// The controller of a name; the only one of a volume is meant by `io-schedule` as well.
fn found<'a>(
    roster: &'a [Box<dyn Controller + 'a>],
    name: Option<&str>,
) -> Result<&'a dyn Controller, ControlFault> {
    let name = name.ok_or_else(|| wrong("send controller, the name of one".into()))?;
    let kind = format!("{name}/");
    let of_kind: Vec<_> = roster
        .iter()
        .filter(|it| it.name().starts_with(&kind))
        .collect();
    let only = (of_kind.len() == 1).then(|| of_kind[0]);
    let named = roster.iter().find(|it| it.name() == name);
    let found = named.or(only);
    found.map(|it| &**it).ok_or_else(|| {
        let all: Vec<String> = roster.iter().map(|it| it.name()).collect();
        ControlFault {
            kind: ControlFaultKind::Unknown,
            message: format!(
                "no controller is called {:?}: there are {}",
                cut(name.to_owned(), REASON_BYTES_MAX),
                all.join(", ")
            ),
        }
    })
}

/// Who asks, for the record.
fn by(asker: &RequestSender) -> String {
    match asker.uid {
        Some(uid) => user_name(uid),
        None => format!("somebody over {}", asker.via),
    }
}

/// What has become of a decision, as a part of a sentence.
fn state_of(kept: &KeptDecision) -> String {
    match &kept.decision.outcome {
        DecisionOutcome::Done => "it is over".into(),
        DecisionOutcome::Proposed => "it was not carried out yet".into(),
        DecisionOutcome::DryRun => "it was a dry run, and nothing was done".into(),
        DecisionOutcome::Deferred { reason } => format!("it was put off: {reason}"),
        DecisionOutcome::Failed { reason } => format!("it was not carried out: {reason}"),
        DecisionOutcome::Reverted { reason } => format!("it was taken back already: {reason}"),
    }
}

fn read<T: DeserializeOwned>(body: &Json) -> Result<T, ControlFault> {
    T::deserialize(body).map_err(|error| wrong(error.to_string()))
}

fn done(changed: Result<Option<()>, StatementRefusal>) -> Result<Option<()>, ControlFault> {
    changed.map_err(ControlFault::from)
}
