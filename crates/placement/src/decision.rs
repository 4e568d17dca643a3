//! The record of a decision: what was proposed and why, from which inputs of which age, what else
//! was considered, and what is expected of it.
//!
//! It is a plain struct, so that whoever decided can store it and compare what was expected with
//! what came. It is a file of its own because all advisers leave the same record.

use crate::reading::Reading;
use crate::rendezvous::TargetId;
use crate::target::TargetState;

/// Most inputs, and most alternatives, of one record; those beyond are counted.
pub const DECISION_PARTS_MAX: usize = 32;

/// A part of a block, or all of it, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPiece {
    /// The target.
    pub target: TargetId,
    /// The bytes that go there.
    pub bytes: u64,
}

/// The proposal of an adviser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementAction {
    /// A block is written: to one target, or in pieces if that was asked for.
    Place {
        /// The pieces, in the order of the block's bytes.
        pieces: Vec<PlacedPiece>,
    },
    /// A segment of a file is fetched before it is asked for.
    Prefetch {
        /// The number of the segment.
        segment: u64,
        /// The cache that is to have it.
        target: TargetId,
        /// Segments that this cache drops first.
        evict: Vec<u64>,
    },
    /// A block gets replicas.
    Replicate {
        /// The targets of the new replicas.
        targets: Vec<TargetId>,
    },
    /// A task runs on a node.
    RunOn {
        /// The number of the node.
        node: u64,
    },
    /// Nothing is done.
    Nothing,
}

/// An input of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecisionInput {
    /// What it is, with its unit, for example `free bytes`.
    pub what: &'static str,
    /// The target or node that it is about.
    pub of: u64,
    /// The value with its age and error.
    pub reading: Reading,
}

/// Something that was considered and not proposed, or the proposal itself with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacementAlternative {
    /// The target or node.
    pub of: u64,
    /// Its score, in the unit of the adviser: seconds, where less is better, or a weight.
    pub score: f64,
    /// Why it was not proposed; empty for the proposal.
    pub why_not: &'static str,
}

/// What is expected of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PredictedEffect {
    /// It takes so many seconds until it is done.
    Seconds(f64),
    /// It saves so many seconds, beside doing nothing.
    SecondsSaved(f64),
    /// It moves so many bytes.
    Bytes(f64),
    /// Too little is known.
    Unknown,
}

/// The record of one decision.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementDecision {
    /// The time at which it was made, in ns on the caller's clock.
    pub made_ns: i64,
    /// The name of the adviser, for example `place`.
    pub adviser: &'static str,
    /// The hash of the key that it is about.
    pub key: u64,
    /// The proposal.
    pub action: PlacementAction,
    /// The reason for it, as a sentence.
    pub reason: String,
    /// What was known.
    pub inputs: Vec<DecisionInput>,
    /// What was considered, with scores.
    pub alternatives: Vec<PlacementAlternative>,
    /// What is expected of it.
    pub effect: PredictedEffect,
    /// Inputs and alternatives that had no room.
    pub dropped: usize,
}

impl PlacementDecision {
    /// A decision to do nothing, for a reason.
    pub fn nothing(made_ns: i64, adviser: &'static str, key: u64, reason: &str) -> Self {
        Self {
            made_ns,
            adviser,
            key,
            action: PlacementAction::Nothing,
            reason: reason.to_owned(),
            inputs: Vec::new(),
            alternatives: Vec::new(),
            effect: PredictedEffect::Unknown,
            dropped: 0,
        }
    }

    /// The one target of a decision to place a block whole, or to prefetch; the first of others.
    pub fn target(&self) -> Option<TargetId> {
        match &self.action {
            PlacementAction::Place { pieces } => pieces.first().map(|piece| piece.target),
            PlacementAction::Prefetch { target, .. } => Some(*target),
            PlacementAction::Replicate { targets } => targets.first().copied(),
            PlacementAction::RunOn { .. } | PlacementAction::Nothing => None,
        }
    }

    /// Adds an input, if it is known and there is room.
    pub(crate) fn input(&mut self, what: &'static str, of: u64, reading: Option<Reading>) {
        let Some(reading) = reading else { return };
        match self.inputs.len() < DECISION_PARTS_MAX {
            true => self.inputs.push(DecisionInput { what, of, reading }),
            false => self.dropped += 1,
        }
    }

    /// Adds what is known of a target that decides where a block goes.
    pub(crate) fn inputs_of(&mut self, target: &TargetState) {
        let of = target.id.0;
        self.input("free bytes", of, target.free_bytes);
        self.input("queue bytes", of, target.queue_bytes);
        self.input("read bytes/s", of, target.read_bytes_per_s);
        self.input("write bytes/s", of, target.write_bytes_per_s);
        self.input("health", of, target.health);
    }

    /// Adds an alternative, if there is room.
    pub(crate) fn alternative(&mut self, alternative: PlacementAlternative) {
        match self.alternatives.len() < DECISION_PARTS_MAX {
            true => self.alternatives.push(alternative),
            false => self.dropped += 1,
        }
    }
}
