//! A sink that keeps the newest sample of each stream, with a graph.

use std::collections::BTreeMap;

use barograph_insight::{Graph, GraphLimits, InsightError, InsightReport};
use barograph_model::{
    Descriptor, Labels, Name, Quality, Sample, Sink, StreamKey, Unit, Value, ValueType,
};

#[derive(Default)]
pub(crate) struct Streams {
    pub live: BTreeMap<u32, (Descriptor, Option<Sample>)>,
    next: u32,
    /// Most streams that may be declared at once; `None`: any number.
    pub room: Option<usize>,
    pub declared: usize,
    /// The streams that were retired, in order.
    pub retired: Vec<String>,
    pub puts: usize,
    /// The newest look that was confirmed, by stream.
    pub looks: BTreeMap<u32, i64>,
    /// The newest interval that was announced, by stream.
    pub intervals: BTreeMap<u32, i64>,
}

impl Sink for Streams {
    fn declare(&mut self, descriptor: &Descriptor, _depth: Option<u32>) -> Option<StreamKey> {
        if self.room.is_some_and(|room| self.live.len() >= room) {
            return None;
        }
        self.next += 1;
        self.declared += 1;
        let twin = self
            .live
            .values()
            .any(|(d, _)| d.to_string() == descriptor.to_string());
        assert!(!twin, "{descriptor} is declared twice");
        self.live.insert(self.next, (descriptor.clone(), None));
        Some(StreamKey(self.next))
    }

    fn retire(&mut self, key: StreamKey) {
        let retired = self.live.remove(&key.0);
        let (descriptor, _) = retired.expect("only living streams are retired");
        self.retired.push(descriptor.to_string());
    }

    fn put(&mut self, key: StreamKey, sample: &Sample) {
        let (descriptor, newest) = self
            .live
            .get_mut(&key.0)
            .expect("only living streams are put");
        assert_eq!(
            descriptor.value_type,
            sample.value.value_type(),
            "{descriptor}"
        );
        if let Some(before) = newest {
            assert!(before.ts <= sample.ts, "{descriptor} goes back in time");
        }
        *newest = Some(sample.clone());
        self.puts += 1;
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        assert!(
            self.live.contains_key(&key.0),
            "only living streams are confirmed"
        );
        self.looks.insert(key.0, looked_ns);
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        self.intervals.insert(key.0, interval_ns);
    }
}

pub(crate) struct Rig {
    pub graph: Graph,
    pub out: Streams,
    pub now: i64,
    /// Text and value of every stream that was added with a value.
    pub given: Vec<(String, Value)>,
    next_key: u32,
}

impl Default for Rig {
    fn default() -> Self {
        Self::with(GraphLimits {
            node: "n1".into(),
            ..GraphLimits::default()
        })
    }
}

impl Rig {
    pub(crate) fn with(limits: GraphLimits) -> Self {
        let out = Streams::default();
        Self {
            graph: Graph::new(limits),
            out,
            now: 1_000,
            given: Vec::new(),
            next_key: 0,
        }
    }

    pub(crate) fn create(&mut self, sql: &str) -> Result<String, InsightError> {
        self.graph.create(sql, false)
    }

    pub(crate) fn add(&mut self, text: &str, value_type: ValueType) -> StreamKey {
        let key = StreamKey(self.next_key);
        self.next_key += 1;
        self.graph.stream_added(key, &descriptor(text, value_type));
        key
    }

    /// Adds `name{label=value,…}` with its newest value.
    pub(crate) fn stream(&mut self, text: &str, value: impl Into<Value>) -> StreamKey {
        let value = value.into();
        let key = self.add(text, value.value_type());
        self.given.push((text.to_owned(), value.clone()));
        self.set(key, value);
        key
    }

    pub(crate) fn set(&mut self, key: StreamKey, value: impl Into<Value>) {
        self.now += 1;
        self.graph
            .sample(key, &Sample::measured(self.now, value.into()));
    }

    pub(crate) fn set_known(&mut self, key: StreamKey, value: f64, quality: Quality, error: f32) {
        self.now += 1;
        let sample = Sample {
            ts: self.now,
            value: value.into(),
            quality,
            error,
        };
        self.graph.sample(key, &sample);
    }

    pub(crate) fn run(&mut self) {
        self.now += 1;
        self.graph.evaluate(self.now, &mut self.out);
    }

    /// Evaluates, and returns all outputs as `name{labels}=value`, sorted; `-` stands for no
    /// sample.
    pub(crate) fn outputs(&mut self) -> Vec<String> {
        self.run();
        let mut all: Vec<String> = self
            .out
            .live
            .values()
            .map(|(d, s)| match s {
                Some(sample) => format!("{d}={:?}", sample.value),
                None => format!("{d}=-"),
            })
            .collect();
        all.sort();
        all
    }

    pub(crate) fn newest(&self, text: &str) -> Sample {
        let found = self.out.live.values().find(|(d, _)| d.to_string() == text);
        let (_, sample) = found.unwrap_or_else(|| panic!("no stream {text}"));
        sample
            .clone()
            .unwrap_or_else(|| panic!("{text} has no sample"))
    }

    pub(crate) fn report(&self, name: &str) -> InsightReport {
        self.graph
            .reports()
            .into_iter()
            .find(|r| r.name == name)
            .unwrap()
    }
}

pub(crate) fn descriptor(text: &str, value_type: ValueType) -> Descriptor {
    let (name, labels) = text
        .trim_end_matches('}')
        .split_once('{')
        .unwrap_or((text, ""));
    let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    Descriptor {
        labels: Labels::new(pairs).unwrap(),
        ..Descriptor::gauge(Name::new(name).unwrap(), value_type, Unit::new("").unwrap())
    }
}
