//! A control event as a subscriber has it, and its JSON form.

use std::sync::Arc;

use barograph_model::Descriptor;
use barograph_stream::ControlEventRecord;
use serde_json::{Map, Value as Json, json};

use crate::Update;
use crate::publish::life_of_this_process;

/// A control event.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlEvent {
    /// Time, ns since the epoch, by the clock of its node.
    pub ts: i64,
    /// Time since then, in ns; of another node, with the known difference of both clocks.
    pub age_ns: i64,
    /// How far the clock of its node is ahead of this one's; `None` of this node, or if that is not
    /// known.
    pub clock_ahead_ns: Option<i64>,
    /// The node on which it was published.
    pub node: Arc<str>,
    /// The stream that it came by: its labels say who has published it.
    pub descriptor: Arc<Descriptor>,
    /// What has happened.
    pub kind: String,
    /// What it happened to; may be empty.
    pub subject: String,
    /// A number that belongs to it.
    pub value: Option<f64>,
    /// How sure its source is, 0 to 1.
    pub confidence: f64,
    /// The process that has published it, as it says.
    pub pid: u32,
    /// The number of the thread there.
    pub thread: u32,
    /// A number for the life of that process.
    pub life: u64,
    /// Number of the event among those of its thread, from 1 on.
    pub sequence: u64,
    /// Names and texts.
    pub properties: Vec<(String, String)>,
    /// Events of its thread, of any kind, that were lost before it and were not told yet.
    pub missed: u64,
    /// Whether this process has published it.
    pub is_own: bool,
}

impl ControlEvent {
    pub(super) fn new(
        update: &Update,
        record: &ControlEventRecord<'_>,
        clock_ahead_ns: Option<i64>,
        age_ns: i64,
        missed: u64,
    ) -> Self {
        let properties = record.properties.iter();
        Self {
            ts: update.sample.ts,
            age_ns,
            clock_ahead_ns,
            node: Arc::clone(&update.node),
            descriptor: Arc::clone(&update.descriptor),
            kind: record.kind.to_owned(),
            subject: record.subject.to_owned(),
            value: record.value,
            confidence: record.confidence,
            pid: record.pid,
            thread: record.thread,
            life: record.life,
            sequence: record.sequence,
            properties: properties
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .collect(),
            missed,
            is_own: life_of_this_process() == Some(record.life),
        }
    }

    /// A label of its stream, such as `application`, `job`, `rank` or `user`; `None` without one,
    /// as of an agent.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.descriptor.labels.get(name)
    }

    /// The text of a property.
    pub fn property(&self, name: &str) -> Option<&str> {
        let mut all = self.properties.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, text)| text.as_str())
    }
}

/// Returns an event as JSON, with the fields of the table `control_events`; its age and what was
/// missed as well.
pub fn control_event_json(event: &ControlEvent) -> Json {
    let texts = |pairs: &mut dyn Iterator<Item = (&str, &str)>| -> Json {
        let pairs = pairs.map(|(name, text)| (name.to_owned(), Json::from(text)));
        Json::Object(pairs.collect::<Map<_, _>>())
    };
    let properties = event.properties.iter();
    json!({
        "ts": event.ts,
        "node": &*event.node,
        "kind": event.kind,
        "subject": event.subject,
        "value": event.value,
        "confidence": event.confidence,
        "sequence": event.sequence,
        "pid": event.pid,
        "thread": event.thread,
        "labels": texts(&mut event.descriptor.labels.iter()),
        "properties": texts(&mut properties.map(|(name, text)| (name.as_str(), text.as_str()))),
        "age_ns": event.age_ns,
        "clock_ahead_ns": event.clock_ahead_ns,
        "missed": event.missed,
    })
}
