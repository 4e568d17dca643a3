//! The results of rules: each firing, and the state of each rule.

use std::collections::BTreeSet;
use std::sync::Arc;

use barograph_model::{Labels, Value};
use serde_json::Value as Json;

use crate::event_rule::{ActionLimits, RuleWork};

/// The call that is to be made because a condition became true.
#[derive(Clone, Debug, PartialEq)]
pub struct Firing {
    /// The rule's name.
    pub rule: String,
    /// The name of the handlers that are to be called.
    pub call: String,
    /// What is done in place of a call.
    pub action: Option<FiredAction>,
    /// The payload; null without PAYLOAD.
    pub payload: Json,
    /// Labels of the processes to be called; without labels, all that handle the call.
    pub target: Vec<(String, String)>,
    /// The nodes on which processes are to be called, all nodes if none is named; `None`: this node
    /// alone.
    pub nodes: Option<Vec<String>>,
    /// The labels of the subject.
    pub subject: Labels,
    /// The scopes of the subject, and of the streams whose values its functions have: only who may
    /// read all of them may be told of the firing.
    pub scopes: BTreeSet<Arc<str>>,
    /// Time of the firing, in ns since the epoch.
    pub fired_ns: i64,
    /// Longest wait of the call for its program, in ns.
    pub expires_ns: i64,
    /// The values that made the condition true.
    pub explanation: String,
}

/// The action of a rule that fires.
#[derive(Clone, Debug, PartialEq)]
pub struct FiredAction {
    /// What is done, with the subject's labels in the arguments.
    pub work: RuleWork,
    /// The limits on doing it.
    pub limits: ActionLimits,
    /// The hash of the rule's statement.
    pub version: u64,
}

/// A summary of consecutive samples, where there are too many to hand over each.
#[derive(Clone, Debug, PartialEq)]
pub struct FiringSummary {
    /// A time not before the last of them, and before the samples after it, in ns since the epoch.
    pub ts: i64,
    /// Number of samples.
    pub count: u64,
    /// The least number; NaN where there is none.
    pub low: f64,
    /// The greatest number; NaN where there is none.
    pub high: f64,
    /// The mean of the numbers; NaN where there is none.
    pub mean: f64,
    /// The value of the last sample.
    pub last: Value,
}

/// The state of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleState {
    /// No stream matches its first function.
    Waiting,
    /// Its condition is true of no subject.
    Armed,
    /// Its condition is true of some subject.
    Holding,
    /// Its condition cannot be computed, or its call cannot be addressed, for some subject.
    Failed,
}

impl RuleState {
    /// `waiting`, `armed`, `holding` or `failed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Armed => "armed",
            Self::Holding => "holding",
            Self::Failed => "failed",
        }
    }
}

/// The state and the counts of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleReport {
    /// Its name.
    pub name: String,
    /// The statement that made it.
    pub sql: String,
    /// The purpose of the rule; may be empty.
    pub help: String,
    /// The name of the handlers that it calls.
    pub call: String,
    /// The state of the rule.
    pub state: RuleState,
    /// The fault, or the part that is left out; empty when there is none.
    pub reason: String,
    /// Streams that its condition is evaluated for.
    pub subjects: usize,
    /// Number of subjects for which the condition is true now.
    pub holding: usize,
    /// Streams that its first function matches and that are beyond the bounds.
    pub beyond: usize,
    /// Streams that other functions could read and that are beyond the bounds.
    pub left_out: u64,
    /// The number of firings.
    pub fired: u64,
    /// The number of times that the condition became true in a cooldown, without a firing.
    pub suppressed: u64,
    /// The number of times that the condition became true and the call could not be made.
    pub failed: u64,
    /// Samples of its streams that were lost before it saw them.
    pub missed: u64,
    /// The number of evaluations of the condition.
    pub evaluations: u64,
    /// Time at which it was made, in ns since the epoch.
    pub made_ns: i64,
    /// Time of its last firing, in ns since the epoch.
    pub last_fired_ns: Option<i64>,
}
