//! A node whose agent is the test: a run directory, a segment, and a clock that the test moves.

use std::collections::HashMap;
use std::sync::Arc;

use barograph_client::{Observer, RunDir};
use barograph_model::{
    Clock as _, Descriptor, Kind, Labels, ManualClock, NS_PER_S, Name, Sample, Selector, Unit,
    Value, ValueType,
};
use barograph_stream::{Segment, SegmentConfig, StreamWriter};

pub(crate) const START_NS: i64 = 1_000 * NS_PER_S;

pub(crate) struct Node {
    pub dir: tempfile::TempDir,
    pub clock: Arc<ManualClock>,
    pub segment: Segment,
    writers: HashMap<String, StreamWriter>,
}

pub(crate) fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

pub(crate) fn descriptor(text: &str, value_type: ValueType) -> Descriptor {
    let wanted = selector(text);
    Descriptor {
        name: Name::new(wanted.name.as_str()).unwrap(),
        labels: Labels::new(wanted.labels.iter().map(|(n, v)| (n.clone(), v.as_str()))).unwrap(),
        value_type,
        unit: Unit::new("bytes").unwrap(),
        kind: Kind::Gauge,
        help: "what it is".into(),
    }
}

impl Node {
    /// A node with these float streams.
    pub(crate) fn with(streams: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(START_NS));
        let segment = make_segment(&dir);
        let mut node = Self {
            dir,
            clock,
            segment,
            writers: HashMap::new(),
        };
        streams.iter().for_each(|s| node.add(s, ValueType::Float));
        node
    }

    pub(crate) fn add(&mut self, stream: &str, value_type: ValueType) {
        let writer = self
            .segment
            .register(&descriptor(stream, value_type), Some(16), START_NS)
            .unwrap();
        self.writers.insert(stream.into(), writer);
    }

    pub(crate) fn retire(&mut self, stream: &str) {
        self.segment.retire(self.writers.remove(stream).unwrap());
    }

    pub(crate) fn expect_interval(&self, stream: &str, interval_ns: i64) {
        self.segment
            .expect_interval(&self.writers[stream], interval_ns);
    }

    /// Puts a value at the present time.
    pub(crate) fn put(&mut self, stream: &str, value: impl Into<Value>) {
        let writer = self.writers.get_mut(stream).unwrap();
        writer
            .look(&Sample::measured(self.clock.now_ns(), value))
            .unwrap();
        self.segment.wake(writer.wake_bit());
    }

    /// Writes a forecast of a stream, issued now: seconds after now, value and half width of each
    /// knot.
    pub(crate) fn forecast(&mut self, stream: &str, knots: &[f64]) {
        let said = format!("forecast.{stream}");
        if !self.writers.contains_key(&said) {
            self.add(&said, ValueType::Floats);
        }
        self.put(&said, Value::Floats(knots.into()));
    }

    /// Lets another agent take over, with other streams.
    pub(crate) fn restart(&mut self, streams: &[&str]) {
        self.segment = make_segment(&self.dir);
        self.segment.heartbeat(self.clock.now_ns());
        self.writers.clear();
        streams.iter().for_each(|s| self.add(s, ValueType::Float));
    }

    pub(crate) fn observer(&self) -> Observer {
        Observer::open(self.run_dir(), self.clock.clone()).unwrap()
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        RunDir::new(self.dir.path())
    }
}

fn make_segment(dir: &tempfile::TempDir) -> Segment {
    let config = SegmentConfig {
        streams_max: 64,
        ..SegmentConfig::new("n1")
    };
    Segment::create(&dir.path().join("segment"), config, START_NS).unwrap()
}
