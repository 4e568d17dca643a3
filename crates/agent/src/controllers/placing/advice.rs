//! The answer to a request for advice: as a decision with what was known, and as JSON.

use std::collections::BTreeMap;

use barograph_control::{Alternative, Decision, DecisionOutcome};
use barograph_placement::{PlacementAction, PlacementDecision, PredictedEffect, Reading, TargetId};
use serde_json::{Value as Json, json};

use super::PLACEMENT;
use super::candidates::{Candidate, exclusions};
use super::request::AdviceRequest;

/// The input of a decision that has the expected time of its last block, for the report.
pub(super) const EXPECTED_S: &str = "expected_s";

/// The answer for one block.
pub(super) struct PlacedBlock {
    pub key: String,
    pub decision: PlacementDecision,
}

/// The answer to a request, and what it is made of.
pub(super) struct Advice<'a> {
    pub request: &'a AdviceRequest,
    pub candidates: &'a [Candidate],
    pub blocks: Vec<PlacedBlock>,
    /// Why hashing alone has decided; empty if it has not.
    pub by_hashing: String,
}

impl Advice<'_> {
    /// The bytes that each target gets.
    pub(super) fn bytes_of_targets(&self) -> BTreeMap<TargetId, u64> {
        let mut bytes: BTreeMap<TargetId, u64> = BTreeMap::new();
        let pieces = self.blocks.iter().flat_map(|it| pieces(&it.decision));
        for (target, more) in pieces {
            let sum = bytes.entry(target).or_default();
            *sum = sum.saturating_add(more);
        }
        bytes
    }

    /// The candidate of this number.
    pub(super) fn candidate(&self, target: TargetId) -> Option<&Candidate> {
        self.candidates.iter().find(|it| it.asked.id == target)
    }

    fn path(&self, target: TargetId) -> &str {
        self.candidate(target).map_or("", |it| &it.asked.sent)
    }

    /// The device on which most bytes go.
    pub(super) fn device(&self) -> &str {
        let most = self.bytes_of_targets().into_iter().max_by_key(|it| it.1);
        let candidate = most.and_then(|(target, _)| self.candidate(target));
        candidate.map_or("", Candidate::device)
    }

    /// How many blocks each target gets, as a text; the path alone if it is one block.
    fn summary(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for block in &self.blocks {
            for (target, _) in pieces(&block.decision) {
                *counts.entry(self.path(target)).or_default() += 1;
            }
        }
        let parts: Vec<String> = match (self.blocks.len(), counts.len()) {
            (1, 1) => counts.keys().map(|path| (*path).to_owned()).collect(),
            _ => counts
                .iter()
                .map(|(path, count)| format!("{path}: {count}"))
                .collect(),
        };
        match parts.is_empty() {
            true => "nowhere".into(),
            false => parts.join(", "),
        }
    }

    fn reason(&self) -> String {
        let by_hashing = match &*self.by_hashing {
            "" => String::new(),
            why => format!(", by hashing alone, since {why}"),
        };
        let nowhere = self
            .blocks
            .iter()
            .filter(|it| pieces(&it.decision).next().is_none());
        let nowhere = match nowhere.count() {
            0 => String::new(),
            count => format!("; {count} of them have room nowhere"),
        };
        let (count, bytes) = (self.blocks.len(), self.request.bytes);
        let blocks = if count == 1 { "block" } else { "blocks" };
        format!(
            "{count} {blocks} of {bytes} bytes: {}{by_hashing}{nowhere}",
            self.summary()
        )
    }

    /// The record of the answer: what was known of each target, and why others were not chosen.
    pub(super) fn decision(&self, id: u64, made_ns: i64, is_dry: bool) -> Decision {
        let bytes = self.request.bytes.saturating_mul(self.blocks.len() as u64);
        let subject = match &self.blocks[..] {
            [one] => one.key.clone(),
            blocks => format!("{} blocks", blocks.len()),
        };
        let mut decision = Decision::new(id, made_ns, PLACEMENT, &subject, bytes as f64)
            .because(&self.reason())
            .input("bytes", bytes as f64)
            .input("blocks", self.blocks.len() as f64);
        let summary = self.summary();
        decision.proposed = (&*summary).into();
        decision.value = (&*summary).into();
        let seconds = self.blocks.iter().filter_map(|it| expected_s(&it.decision));
        if let Some(seconds) = seconds.max_by(f64::total_cmp) {
            decision = decision.input(EXPECTED_S, seconds);
        }
        for candidate in self.candidates {
            decision = decision.input(&candidate.asked.path, &*candidate.sentence());
        }
        let excluded = exclusions(self.candidates, self.request);
        let chosen = self.bytes_of_targets();
        for (candidate, excluded) in self.candidates.iter().zip(excluded) {
            if !chosen.contains_key(&candidate.asked.id) {
                let slower = || "it is slower, or hashing chose an equal one".to_owned();
                decision = decision.alternative(&Alternative {
                    what: candidate.asked.path.clone(),
                    why_not: excluded.unwrap_or_else(slower),
                });
            }
        }
        if is_dry {
            decision.outcome = DecisionOutcome::DryRun;
        }
        decision
    }

    /// The answer in JSON.
    pub(super) fn answer(&self, id: Option<u64>, is_dry: bool) -> Json {
        let blocks = self.blocks.iter().map(|block| {
            let pieces = pieces(&block.decision)
                .map(|(target, bytes)| json!({ "path": self.path(target), "bytes": bytes }));
            json!({
                "key": block.key,
                "pieces": pieces.collect::<Vec<_>>(),
                "expected_s": expected_s(&block.decision),
            })
        });
        let excluded = exclusions(self.candidates, self.request);
        let targets = self
            .candidates
            .iter()
            .zip(excluded)
            .map(|(candidate, excluded)| {
                let state = &candidate.state;
                let value = |of: Option<Reading>| of.map(|it| it.value);
                let age = |of: Option<Reading>| of.map(|it| it.age_s);
                json!({
                    "path": candidate.asked.sent,
                    "mount": candidate.mount(),
                    "device": candidate.device(),
                    "tier": candidate.known.as_ref().map(|it| &it.tier),
                    "free_bytes": value(state.free_bytes),
                    "free_age_s": age(state.free_bytes),
                    "queue_bytes": value(state.queue_bytes),
                    "queue_age_s": age(state.queue_bytes),
                    "read_bytes_s": value(state.read_bytes_per_s),
                    "write_bytes_s": value(state.write_bytes_per_s),
                    "bandwidth_age_s": age(state.write_bytes_per_s),
                    "health": value(state.health),
                    "excluded": excluded,
                })
            });
        json!({
            "decision": id,
            "dry_run": is_dry,
            "reason": self.reason(),
            "blocks": blocks.collect::<Vec<_>>(),
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}

/// The pieces of a block with their targets.
pub(super) fn pieces(decision: &PlacementDecision) -> impl Iterator<Item = (TargetId, u64)> {
    let pieces = match &decision.action {
        PlacementAction::Place { pieces } => &pieces[..],
        _ => &[],
    };
    pieces.iter().map(|piece| (piece.target, piece.bytes))
}

fn expected_s(decision: &PlacementDecision) -> Option<f64> {
    match decision.effect {
        PredictedEffect::Seconds(seconds) => Some(seconds),
        _ => None,
    }
}
