//! The definition of a rule, and one subject of it: the values of its functions at one moment, and
//! the result of the condition.
//!
//! It stands alone because the engine decides when a subject is evaluated; this file evaluates it.

use std::collections::BTreeSet;
use std::sync::Arc;

use barograph_model::{
    CALL_PAYLOAD_BYTES_MAX, Descriptor, Labels, NS_PER_S, Name, StreamKey, fnv1a, predicted_sample,
};
use serde_json::{Map, Value as Json};

use crate::event_rule::{ActionLimits, RuleWork};
use crate::leaf::{LeafFunction, StreamFunction};
use crate::report::FiredAction;
use crate::stream::{RuleStream, RuleStreams};
use barograph_statement::{ColumnRef, EvalFault, Expr, ExprInput, SqlValue, UncertainValue};

/// Shortest time between two computations of a condition that uses an age otherwise than in
/// comparisons with numbers, in ns.
pub(crate) const AGE_STEP_NS_MIN: i64 = NS_PER_S / 10;
/// Longest explanation of a firing, in bytes; a longer one is cut.
pub(crate) const EXPLANATION_BYTES_MAX: usize = 1_024;

/// The payload of a fired call.
#[derive(Debug)]
pub(crate) enum FiringPayload {
    None,
    Value(Expr),
    Object(Vec<(String, Expr)>),
}

/// A part of a target's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextPiece {
    Text(String),
    /// The value of the subject's label.
    Label(String),
}

/// A rule as it was written.
#[derive(Debug)]
pub(crate) struct RuleDefinition {
    pub name: Name,
    pub sql: String,
    pub help: String,
    pub condition: Expr,
    /// The first of the leaves stand in the condition, the others in the payload alone.
    pub condition_leaves: usize,
    pub leaves: Vec<StreamFunction>,
    /// The name of the handlers that it calls, or what it does instead.
    pub call: String,
    /// What it does instead of a call.
    pub action: Option<RuleAction>,
    pub payload: FiringPayload,
    pub target: Vec<(String, Vec<TextPiece>)>,
    /// The same as in [`Firing::nodes`](crate::Firing::nodes).
    pub nodes: Option<Vec<String>>,
    pub cooldown_ns: i64,
    pub expires_ns: i64,
}

/// The action of a rule, as it was written.
#[derive(Debug)]
pub(crate) struct RuleAction {
    pub work: RuleWork,
    /// The texts of the work that have labels of the subject in braces.
    pub texts: Vec<Vec<TextPiece>>,
    pub limits: ActionLimits,
}

impl RuleDefinition {
    /// The leaf whose streams are the subjects.
    pub(crate) fn first(&self) -> usize {
        let first = self.leaves.iter().position(|l| l.of != LeafFunction::Label);
        first.unwrap_or(0)
    }

    /// Whether the condition may be true of an absent stream.
    pub(crate) fn tells_absence(&self) -> bool {
        let condition = &self.leaves[..self.condition_leaves];
        condition.iter().any(|l| l.of == LeafFunction::Absent)
    }
}

/// A subject of a rule: a stream that the first leaf matches, for which the condition is evaluated.
#[derive(Debug)]
pub(crate) struct RuleSubject {
    /// The stream; `None` when it is gone, or never existed.
    pub key: Option<StreamKey>,
    pub descriptor: Option<Arc<Descriptor>>,
    /// The scope of the stream, also when it is gone; empty if it never existed.
    pub scope: Arc<str>,
    pub labels: Labels,
    pub since_ns: i64,
    /// The streams that each leaf may read.
    pub bound: Vec<Vec<StreamKey>>,
    /// The last sign of life of those streams of each leaf that are gone.
    pub last_ns: Vec<i64>,
    /// Streams that were left out for lack of room.
    pub left_out: u64,
    pub was_true: bool,
    pub fired_ns: Option<i64>,
    pub fault: Option<EvalFault>,
    /// Whether the subject waits to be evaluated.
    pub dirty: bool,
    pub deadline_ns: Option<i64>,
}

impl RuleSubject {
    pub(crate) fn new(
        key: Option<StreamKey>,
        descriptor: Option<Arc<Descriptor>>,
        labels: Labels,
        leaves: usize,
        now_ns: i64,
    ) -> Self {
        Self {
            key,
            descriptor,
            scope: Arc::default(),
            labels,
            since_ns: now_ns,
            bound: vec![Vec::new(); leaves],
            last_ns: vec![i64::MIN; leaves],
            left_out: 0,
            was_true: false,
            fired_ns: None,
            fault: None,
            dirty: false,
            deadline_ns: None,
        }
    }

    /// Whether the labels that both have are the same.
    pub(crate) fn agrees(&self, labels: &Labels) -> bool {
        self.labels
            .iter()
            .all(|(name, value)| labels.get(name).is_none_or(|other| other == value))
    }

    /// Whether the condition is true now, and the time at which time alone may change that.
    /// `values` become those of the condition's leaves.
    pub(crate) fn look(
        &self,
        definition: &RuleDefinition,
        streams: &RuleStreams,
        now_ns: i64,
        values: &mut Vec<UncertainValue>,
    ) -> (Result<bool, EvalFault>, Option<i64>) {
        values.clear();
        let mut deadline_ns: Option<i64> = None;
        for at in 0..definition.condition_leaves {
            let (val, change_ns) = self.value(&definition.leaves[at], at, streams, now_ns);
            values.push(UncertainValue::exact(val));
            let change_ns = change_ns.filter(|&ns| ns > now_ns);
            deadline_ns = deadline_ns.into_iter().chain(change_ns).min();
        }
        let row = LeafValues(values);
        let truth = definition.condition.holds(row).map(|(truth, _)| truth);
        (truth, deadline_ns)
    }

    /// A leaf's value, and the time at which it changes if nothing happens.
    fn value(
        &self,
        leaf: &StreamFunction,
        at: usize,
        streams: &RuleStreams,
        now_ns: i64,
    ) -> (SqlValue, Option<i64>) {
        match leaf.of {
            LeafFunction::Label => {
                let label = self.labels.get(leaf.selector.name.as_str());
                return (
                    label.map_or(SqlValue::Null, |l| SqlValue::Text(l.into())),
                    None,
                );
            }
            LeafFunction::Absent => {
                let seen_ns = |key: &StreamKey| Some(streams.get(*key)?.newest.as_ref()?.seen_ns);
                let seen_ns = self.bound[at].iter().filter_map(seen_ns).max();
                let last_ns = seen_ns.unwrap_or(i64::MIN).max(self.last_ns[at]);
                let from_ns = if last_ns == i64::MIN {
                    self.since_ns
                } else {
                    last_ns
                };
                let is_absent = now_ns.saturating_sub(from_ns) >= leaf.ns;
                return (
                    SqlValue::truth(is_absent),
                    Some(from_ns.saturating_add(leaf.ns)),
                );
            }
            _ => {}
        }
        match self.chosen(at, streams) {
            Some(stream) => of_stream(leaf, stream, now_ns),
            None => (SqlValue::Null, None),
        }
    }

    /// The stream whose value a leaf has: the one with the newest sample.
    fn chosen<'s>(&self, at: usize, streams: &'s RuleStreams) -> Option<&'s RuleStream> {
        let newest = |key: &StreamKey| {
            let stream = streams.get(*key)?;
            Some((stream.newest.as_ref()?.ts, key.0, stream))
        };
        let newest = self.bound[at].iter().filter_map(newest);
        let newest = newest.max_by_key(|(ts, key, _)| (*ts, *key));
        newest.map(|(_, _, stream)| stream)
    }

    /// The scopes of its own stream, and of those whose values its leaves have.
    pub(crate) fn scopes(&self, streams: &RuleStreams) -> BTreeSet<Arc<str>> {
        let chosen = (0..self.bound.len()).filter_map(|at| self.chosen(at, streams));
        let scopes = chosen.map(|stream| Arc::clone(&stream.scope));
        scopes.chain([Arc::clone(&self.scope)]).collect()
    }

    /// The firing of this subject, with its payload and explanation.
    pub(crate) fn payload(
        &self,
        definition: &RuleDefinition,
        streams: &RuleStreams,
        now_ns: i64,
        values: &mut Vec<UncertainValue>,
    ) -> Result<Json, EvalFault> {
        for at in values.len()..definition.leaves.len() {
            let (val, _) = self.value(&definition.leaves[at], at, streams, now_ns);
            values.push(UncertainValue::exact(val));
        }
        let row = LeafValues(values);
        let payload = match &definition.payload {
            FiringPayload::None => Json::Null,
            FiringPayload::Value(e) => json(&e.eval(row)?.val),
            FiringPayload::Object(members) => {
                let mut object = Map::new();
                for (name, e) in members {
                    object.insert(name.clone(), json(&e.eval(row)?.val));
                }
                Json::Object(object)
            }
        };
        if payload.to_string().len() > CALL_PAYLOAD_BYTES_MAX {
            return Err("the payload is larger than a call may carry");
        }
        Ok(payload)
    }

    /// The target of the call; `Err` names a label that the subject lacks, or the text that is too
    /// long.
    pub(crate) fn target(
        &self,
        definition: &RuleDefinition,
    ) -> Result<Vec<(String, String)>, String> {
        let mut target = Vec::with_capacity(definition.target.len());
        for (name, pieces) in &definition.target {
            target.push((name.clone(), self.fill(pieces, "TO")?));
        }
        let pairs = target.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        Labels::new(pairs).map_err(|e| format!("TO: {e}: it did not fire"))?;
        Ok(target)
    }

    /// The action with the subject's labels in its arguments.
    pub(crate) fn action(
        &self,
        definition: &RuleDefinition,
    ) -> Result<Option<FiredAction>, String> {
        let Some(action) = &definition.action else {
            return Ok(None);
        };
        let mut work = action.work.clone();
        for (text, pieces) in work.texts().into_iter().zip(&action.texts) {
            *text = self.fill(pieces, "THEN")?;
        }
        Ok(Some(FiredAction {
            work,
            limits: action.limits.clone(),
            version: fnv1a(definition.sql.trim().as_bytes()),
        }))
    }

    /// A text with labels of the subject.
    fn fill(&self, pieces: &[TextPiece], of: &str) -> Result<String, String> {
        let mut value = String::new();
        for piece in pieces {
            value += match piece {
                TextPiece::Text(text) => text,
                TextPiece::Label(label) => self.labels.get(label).ok_or_else(|| {
                    format!("a subject has no label {label} for {of}: it did not fire")
                })?,
            };
        }
        Ok(value)
    }

    /// The subject as people write it.
    pub(crate) fn name(&self) -> String {
        match &self.descriptor {
            Some(descriptor) => descriptor.to_string(),
            None => "no stream".into(),
        }
    }

    /// The values that made the condition true.
    pub(crate) fn explanation(
        &self,
        definition: &RuleDefinition,
        values: &[UncertainValue],
    ) -> String {
        let mut text = self.name() + ": ";
        for (at, (leaf, known)) in definition.leaves.iter().zip(values).enumerate() {
            if at > 0 {
                text += ", ";
            }
            let value = match &known.val {
                SqlValue::Null => "NULL".to_owned(),
                SqlValue::Text(t) => format!("'{t}'"),
                SqlValue::Int(v) if leaf.of == LeafFunction::Absent => (*v != 0).to_string(),
                SqlValue::Int(v) => v.to_string(),
                SqlValue::Real(v) => v.to_string(),
            };
            text += &format!("{leaf} = {value}");
        }
        let mut end = text.len().min(EXPLANATION_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }
}

/// The values of a rule's leaves, by their number: all that its expressions read.
#[derive(Clone, Copy)]
struct LeafValues<'a>(&'a [UncertainValue]);

impl ExprInput for LeafValues<'_> {
    fn column(self, _column: &ColumnRef) -> UncertainValue {
        UncertainValue::NULL
    }

    fn computed(self, number: usize) -> UncertainValue {
        self.0.get(number).cloned().unwrap_or(UncertainValue::NULL)
    }
}

/// The value of a leaf over a stream that has a sample, and the time of its next change.
fn of_stream(leaf: &StreamFunction, stream: &RuleStream, now_ns: i64) -> (SqlValue, Option<i64>) {
    let Some(newest) = &stream.newest else {
        return (SqlValue::Null, None);
    };
    let seen_ns = newest.seen_ns;
    match leaf.of {
        LeafFunction::Latest => return (newest.val.clone(), None),
        LeafFunction::Age => {
            let age_ns = now_ns.saturating_sub(seen_ns).max(0);
            let change_ns = match &leaf.crossings {
                None => Some(now_ns.saturating_add(AGE_STEP_NS_MIN)),
                // Also one nanosecond later: `>=` changes at the age itself, `>` after it.
                Some(at) => {
                    let at = at.iter().map(|ns| seen_ns.saturating_add(*ns));
                    let at = at.flat_map(|ns| [ns, ns.saturating_add(1)]);
                    at.filter(|ns| *ns > now_ns).min()
                }
            };
            return (SqlValue::Real(age_ns as f64 / 1e9), change_ns);
        }
        _ => {}
    }
    if leaf.of.is_forecast() {
        return (
            expected(leaf, stream, now_ns).map_or(SqlValue::Null, SqlValue::Real),
            None,
        );
    }
    let Some(window) = stream.window(leaf.ns) else {
        return (SqlValue::Null, None);
    };
    match leaf.of {
        LeafFunction::Count => return (window.count(now_ns), window.leaves_ns(now_ns)),
        LeafFunction::Ago => return (window.ago(now_ns), window.leaves_ns(now_ns)),
        _ => {}
    }
    // The others are of the time up to the last sign of life, until that is so old that nothing of
    // the window is left.
    let over_ns = seen_ns.saturating_add(leaf.ns);
    if over_ns <= now_ns {
        return (SqlValue::Null, None);
    }
    let is_whole = stream.is_whole();
    let val = match leaf.of {
        LeafFunction::Rate => window.rate(seen_ns),
        LeafFunction::Delta => window.delta(seen_ns, stream.is_counter(), is_whole),
        LeafFunction::Avg => window.avg(seen_ns),
        LeafFunction::Min => window.min(seen_ns, is_whole),
        _ => window.max(seen_ns, is_whole),
    };
    (val, Some(over_ns))
}

/// What a forecast says of the time that is the leaf's length from now; `None` where it says
/// nothing: its projection ends before, or its error is unknown.
fn expected(leaf: &StreamFunction, stream: &RuleStream, now_ns: i64) -> Option<f64> {
    let looked_ns = stream.newest.as_ref()?.seen_ns;
    let at_ns = now_ns.saturating_add(leaf.ns);
    let sample = predicted_sample(stream.said.as_ref()?, looked_ns, at_ns)?;
    let (value, error) = (sample.value.as_f64()?, f64::from(sample.error));
    let value = match leaf.of {
        LeafFunction::ForecastLow => value - error,
        LeafFunction::ForecastHigh => value + error,
        _ => value,
    };
    value.is_finite().then_some(value)
}

fn json(val: &SqlValue) -> Json {
    match val {
        SqlValue::Null => Json::Null,
        SqlValue::Int(v) => (*v).into(),
        SqlValue::Real(v) => serde_json::Number::from_f64(*v).map_or(Json::Null, Json::Number),
        SqlValue::Text(t) => (&**t).into(),
    }
}
