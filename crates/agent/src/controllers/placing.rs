//! Where middleware puts blocks: the data-placement adviser of `barograph-placement` (HDPE of
//! Apollo, 4.4.2) meets the state of this node's file systems.
//!
//! The agent answers, and not a library in each program, for two reasons: processes that ask at the
//! same time see what the others of their user were told a moment ago, before any stream shows it;
//! and each answer is a decision with its inputs, their ages, and what came of it. Users share
//! nothing: what one is told, and does not do, changes the answers to nobody else.

mod advice;
mod candidates;
mod request;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use barograph_client::StorageTarget;
use barograph_control::{DecisionOutcome, DecisionValue};
use barograph_model::{ControlFault, ControlFaultKind, NS_PER_S, RequestSender};
use barograph_placement::{
    BlockRequest, PlaceConfig, PlaceRequest, PlacementLedger, STALENESS_S_DEFAULT, TargetState,
    advise_place,
};
use serde_json::{Value as Json, json};

use super::ControlShared;
use super::config::ControlModeConfig;
use super::request::{ReportRequest, wrong};
use crate::decisions::{ControllerMode, DecisionBook, KeptDecision};
use advice::{Advice, EXPECTED_S, PlacedBlock, pieces};
use candidates::{Candidate, static_states};
use request::AdviceRequest;

/// Its name in the list of controllers.
pub(super) const PLACEMENT: &str = "placement";
/// Most users of whom it is known what they were told; the one that asked least recently goes.
const USERS_MAX: usize = 64;
/// How long what was told counts as on its way, on top of readings that are older.
const LEDGER_NS: i64 = STALENESS_S_DEFAULT as i64 * NS_PER_S;

/// What users were told.
#[derive(Default)]
pub(super) struct Placements {
    pub book: DecisionBook,
    ledgers: BTreeMap<Option<u32>, PlacementLedger>,
    /// The users, the one that asked last at the end.
    recent: VecDeque<Option<u32>>,
}

impl Placements {
    fn ledger(&mut self, uid: Option<u32>) -> &mut PlacementLedger {
        self.recent.retain(|it| *it != uid);
        self.recent.push_back(uid);
        while self.recent.len() > USERS_MAX {
            if let Some(oldest) = self.recent.pop_front() {
                self.ledgers.remove(&oldest);
            }
        }
        let new = || PlacementLedger::new(LEDGER_NS, 1);
        self.ledgers.entry(uid).or_insert_with(new)
    }
}

impl ControlShared {
    /// Advises where blocks go.
    pub(super) fn advise(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        if self.config.mode == ControlModeConfig::Off {
            return Err(ControlFault {
                kind: ControlFaultKind::Refused,
                message: "controllers are off (control.mode in the configuration): place blocks as you would without an agent".into(),
            });
        }
        let now_ns = self.clock.monotonic_ns();
        self.readers().admit(asker.uid, now_ns)?;
        let request = AdviceRequest::parse(body)?;
        let mut candidates = self.candidates(&request);
        let switched = self.mode(PLACEMENT);
        let is_dry = request.dry_run
            || self.config.mode == ControlModeConfig::DryRun
            || switched.mode == ControllerMode::DryRun;
        let mut placements = self.placements();
        let ledger = placements.ledger(asker.uid);
        count_those_on_their_way(&mut candidates, ledger, now_ns);
        let known = candidates.clone();
        let by_hashing = match switched.mode {
            ControllerMode::Paused => format!("{PLACEMENT} is {}", switched.told()),
            _ => String::new(),
        };
        let advised = place(&request, &mut candidates, now_ns, !by_hashing.is_empty());
        let advice = Advice {
            request: &request,
            candidates: &known,
            blocks: advised,
            by_hashing,
        };
        if request.is_look {
            return Ok(advice.answer(None, is_dry));
        }
        let id = self.schedules.switches().next_id();
        let kept = advice.decision(id, self.clock.now_ns(), is_dry);
        // In a dry run the decision says what would be told, and hashing is what is told.
        let told = match is_dry {
            false => advice,
            true => Advice {
                blocks: place(&request, &mut known.clone(), now_ns, true),
                by_hashing: "this is a dry run".into(),
                ..advice
            },
        };
        for (target, bytes) in told.bytes_of_targets() {
            let storage = told.candidate(target).map_or(target, Candidate::storage);
            ledger.placed(now_ns, storage, bytes);
        }
        placements.book.keep(KeptDecision {
            uid: asker.uid,
            device: told.device().to_owned(),
            label: request.label.clone(),
            plan: id,
            decision: kept,
        });
        Ok(told.answer(Some(id), is_dry))
    }

    /// The directories of a request with what is known of their file systems.
    fn candidates(&self, request: &AdviceRequest) -> Vec<Candidate> {
        let (now_ns, own) = (self.clock.now_ns(), self.targets());
        let of_mount = |mount: &String| own.iter().find(|it| it.mount == *mount).cloned();
        let asked = request.targets.iter();
        let candidates = asked.map(|asked| {
            let mount = self.trees.mount_of(&asked.path);
            Candidate::new(asked, mount.as_ref().and_then(of_mount), now_ns)
        });
        candidates.collect()
    }

    /// The targets of this node.
    fn targets(&self) -> Vec<StorageTarget> {
        self.with_observer(|observer| {
            let node = observer.status().map(|it| it.node).unwrap_or_default();
            let mut targets = observer.targets();
            targets.retain(|it| it.node == node);
            targets
        })
        .unwrap_or_default()
    }

    /// Takes in what came of an advice; `None` if the number is not that of one of this user.
    pub(super) fn report_placement(
        &self,
        report: &ReportRequest,
        asker: &RequestSender,
    ) -> Option<Result<Json, ControlFault>> {
        let observed_ns = self.clock.now_ns();
        let mut placements = self.placements();
        let id = report.decision;
        let of_user = Some(asker.uid);
        placements.book.of(of_user).find(|it| it.plan == id)?;
        let decision = placements.book.get_mut(id)?;
        if decision.effect.is_some() {
            return Some(Err(wrong(format!("decision {id} was reported already"))));
        }
        if decision.outcome == DecisionOutcome::Proposed {
            decision.outcome = DecisionOutcome::Done;
        }
        let expected = decision.inputs.get(EXPECTED_S);
        let expected = match expected {
            Some(DecisionValue::Number(seconds)) => *seconds,
            _ => f64::NAN,
        };
        decision.observe(
            observed_ns,
            "seconds, as expected and as reported",
            expected,
            report.seconds,
        );
        let told = decision.clone();
        *decision = told.input("reported_bytes", report.bytes as f64);
        Some(Ok(
            json!({ "decision": id, "measured": true, "reason": null }),
        ))
    }

    /// What a user is told at present, in sentences.
    pub(super) fn explain_placement(&self, asker: &RequestSender) -> Vec<String> {
        let targets = self.targets();
        let usable = targets
            .iter()
            .filter(|it| it.is_writable && it.is_responding);
        let with_bandwidth = targets.iter().filter(|it| it.write_bytes_s.is_some());
        let mut told = vec![format!(
            "{} of {} file systems can be written, and of {} the bandwidth is known (the table targets)",
            usable.count(),
            targets.len(),
            with_bandwidth.count()
        )];
        let placements = self.placements();
        let last = placements.book.of(Some(asker.uid)).last();
        told.push(match last {
            Some(last) => format!("the last advice to this user: {}", last.decision.reason),
            None => "this user has asked for no advice yet".into(),
        });
        told
    }
}

/// Adds what a user was told to place, and what readings that are older do not show yet.
fn count_those_on_their_way(candidates: &mut [Candidate], ledger: &PlacementLedger, now_ns: i64) {
    // The ledger knows file systems, on which several directories may be.
    let by_storage = candidates.iter().map(|it| TargetState {
        id: it.storage(),
        ..it.state
    });
    let by_storage: Vec<TargetState> = by_storage.collect();
    let applied = ledger.applied(&by_storage, now_ns, STALENESS_S_DEFAULT);
    for (candidate, state) in candidates.iter_mut().zip(applied) {
        candidate.state = TargetState {
            id: candidate.asked.id,
            ..state
        };
    }
}

/// Advises about each block, one after the other: each one counts for those after it.
fn place(
    request: &AdviceRequest,
    candidates: &mut [Candidate],
    now_ns: i64,
    is_by_hashing: bool,
) -> Vec<PlacedBlock> {
    let config = PlaceConfig::default();
    let block = BlockRequest {
        bytes: request.bytes,
        direction: request.direction,
    };
    let placed = request.keys.iter().map(|(key, hash)| {
        let asked = PlaceRequest {
            key: *hash,
            block,
            split: request.split,
            now_ns,
        };
        let states = match is_by_hashing {
            true => static_states(candidates),
            false => candidates.iter().map(|it| it.state).collect(),
        };
        let decision = advise_place(&asked, &states, &config);
        for (target, bytes) in pieces(&decision) {
            let storage = candidates.iter().find(|it| it.asked.id == target);
            let storage = storage.map(Candidate::storage);
            let alike = candidates.iter_mut();
            for candidate in alike.filter(|it| Some(it.storage()) == storage) {
                candidate.take(bytes);
            }
        }
        PlacedBlock {
            key: key.clone(),
            decision,
        }
    });
    placed.collect()
}
