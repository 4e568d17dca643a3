//! Streams about the agent itself: its processor time, its memory and its streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{
    Descriptor, Kind, Labels, Name, Sample, Sink, StreamKey, Unit, Value, ValueType,
};

use crate::io_schedules::IoSchedules;
use barograph_intake::IngestCounts;
use barograph_recorder::Streams;

use barograph_recorder::ProcessMeter;

/// The kinds of events of the sampling loop, in the order in which they are counted.
pub(crate) const EVENT_KINDS: [&str; 4] = ["wake", "execute", "reload", "snapshot"];
/// Streams about forecasts: names and help.
const FORECASTS: [(&str, &str); 2] = [
    (
        "agent.forecast.streams.count",
        "Streams that have a forecast, those of applications included",
    ),
    (
        "agent.forecast.beyond.count",
        "Streams that should have a forecast and have none, because the greatest number is reached",
    ),
];

/// Streams about ingest files, in the order of their counts.
const INGEST: [(&str, Kind, &str); 3] = [
    (
        "agent.ingest.abandoned.count",
        Kind::Counter,
        "Incomplete ingest files that the agent removed, because their programs were killed while creating them",
    ),
    (
        "agent.ingest.waiting.count",
        Kind::Gauge,
        "Processes whose values wait in their rings, because there is no room for the process or its file cannot be opened yet",
    ),
    (
        barograph_stream::ingest::LOST_STREAM,
        Kind::Counter,
        "Values that were lost because their process ended and its scope could not be opened",
    ),
];

/// Streams about a volume whose I/O is scheduled, labelled `volume`.
const VOLUME: [(&str, ValueType, Kind, &str, &str); 9] = [
    (
        "io.schedule.waiting.count",
        ValueType::Int,
        Kind::Gauge,
        "count",
        "Phases of I/O of applications that wait for a grant on the volume",
    ),
    (
        "io.schedule.granted.count",
        ValueType::Int,
        Kind::Gauge,
        "count",
        "Phases of I/O of applications that may do I/O on the volume",
    ),
    (
        "io.schedule.load.ratio",
        ValueType::Float,
        Kind::Gauge,
        "ratio",
        "Share of the time of the volume that the applications need together, by their past phases; 1 and more is overload",
    ),
    (
        "io.schedule.begun.count",
        ValueType::Int,
        Kind::Counter,
        "count",
        "Phases of I/O that have begun on the volume",
    ),
    (
        "io.schedule.ended.count",
        ValueType::Int,
        Kind::Counter,
        "count",
        "Phases of I/O that have ended by themselves, or with their processes",
    ),
    (
        "io.schedule.expired.count",
        ValueType::Int,
        Kind::Counter,
        "count",
        "Phases of I/O of which nothing was heard for the time of their lease",
    ),
    (
        "io.schedule.refused.count",
        ValueType::Int,
        Kind::Counter,
        "count",
        "Phases of I/O that were not scheduled, because there were too many",
    ),
    (
        "io.schedule.alone.count",
        ValueType::Int,
        Kind::Counter,
        "count",
        "Phases of I/O that went on without a grant",
    ),
    (
        "io.schedule.starved.count",
        ValueType::Int,
        Kind::Counter,
        "count",
        "Phases of I/O that were served beside others, because the policy had starved them",
    ),
];

/// The part of the agent's state that neither the system nor the segment has.
pub(crate) struct SelfState<'a> {
    /// The outlook of the node.
    pub outlook: &'a str,
    /// The sentence about who moves the bytes of the disks.
    pub who: &'a str,
    /// Streams that have a forecast, and streams that wait for a forecast slot.
    pub forecasts: (usize, usize),
    /// Events that the loop has applied, in the order of [`EVENT_KINDS`].
    pub events: &'a [u64; EVENT_KINDS.len()],
}

/// The agent's own streams.
pub(crate) struct SelfWatch {
    meter: Arc<dyn ProcessMeter>,
    cpu: Option<StreamKey>,
    memory: Option<StreamKey>,
    streams: Option<StreamKey>,
    refused: Option<StreamKey>,
    ingested: [Option<StreamKey>; 3],
    forecasts: [Option<StreamKey>; 2],
    events: [Option<StreamKey>; EVENT_KINDS.len()],
    ingest: Arc<IngestCounts>,
    schedules: Arc<IoSchedules>,
    volumes: Vec<[Option<StreamKey>; VOLUME.len()]>,
    outlook: Option<StreamKey>,
    who: Option<StreamKey>,
}

impl SelfWatch {
    /// Declares the streams. All are looked at every `interval_ns`. `ingest` is counted by the
    /// intake, and `schedules` are the schedulers of volumes.
    pub(crate) fn new(
        sink: &mut Streams<'_>,
        interval_ns: i64,
        meter: Arc<dyn ProcessMeter>,
        (ingest, schedules): (Arc<IngestCounts>, Arc<IoSchedules>),
    ) -> Self {
        use Kind::{Counter, Gauge, State};
        use ValueType::{Float, Int, Text};
        let mut declare_as = |descriptor: &Descriptor| {
            let key = sink.declare(descriptor, None);
            if let Some(key) = key {
                sink.expect_interval(key, interval_ns);
            }
            key
        };
        let events = EVENT_KINDS.map(|kind| declare_as(&event_descriptor(kind)));
        let volumes = schedules.volumes();
        let volumes = volumes
            .iter()
            .map(|volume| VOLUME.map(|it| declare_as(&volume_descriptor(volume, it))));
        let volumes = volumes.collect();
        let mut declare = |name: &str, value_type, unit: &str, kind, help: &str| {
            declare_as(&descriptor(name, value_type, unit, kind, help))
        };
        Self {
            meter,
            cpu: declare(
                "agent.cpu.seconds",
                Float,
                "seconds",
                Counter,
                "Processor time of all threads of the agent",
            ),
            memory: declare(
                "agent.memory.bytes",
                Int,
                "bytes",
                Gauge,
                "Resident memory of the agent, including shared pages",
            ),
            streams: declare(
                "agent.streams.count",
                Int,
                "count",
                Gauge,
                "Streams in the agent's segment",
            ),
            refused: declare(
                "agent.refused.streams.count",
                Int,
                "count",
                Counter,
                "Streams refused because the segment was full",
            ),
            ingested: INGEST.map(|(name, kind, help)| declare(name, Int, "count", kind, help)),
            forecasts: FORECASTS.map(|(name, help)| declare(name, Int, "count", Gauge, help)),
            events,
            ingest,
            schedules,
            volumes,
            outlook: declare(
                "node.outlook.text",
                Text,
                "",
                State,
                "State of the node's storage in one sentence",
            ),
            who: declare(
                "node.who.text",
                Text,
                "",
                State,
                "Processes, jobs or control groups that move the bytes of the disks, in one sentence by the best evidence; or that the bytes are not counted here",
            ),
        }
    }

    /// Appends the current values to all streams.
    pub(crate) fn look(&mut self, now_ns: i64, state: &SelfState<'_>, sink: &mut Streams<'_>) {
        let segment = sink.segment();
        let (streams, refused) = (segment.streams() as i64, segment.refused() as i64);
        let mut put = |key: Option<StreamKey>, value: Value| {
            if let Some(key) = key {
                sink.put(key, &Sample::measured(now_ns, value));
            }
        };
        put(self.cpu, Value::Float(self.meter.cpu_seconds()));
        put(self.streams, Value::Int(streams));
        put(self.refused, Value::Int(refused));
        let ingest = [
            &self.ingest.abandoned,
            &self.ingest.waiting,
            &self.ingest.lost,
        ];
        for (key, count) in self.ingested.into_iter().zip(ingest) {
            put(key, Value::Int(count.load(Ordering::Relaxed) as i64));
        }
        let forecasts = [state.forecasts.0, state.forecasts.1];
        for (key, count) in self.forecasts.into_iter().zip(forecasts) {
            put(key, Value::Int(count as i64));
        }
        for (key, count) in self.events.into_iter().zip(state.events) {
            put(key, Value::Int(*count as i64));
        }
        for (keys, state) in self.volumes.iter().zip(self.schedules.states()) {
            let count = |count: u64| Some(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)));
            let counts = state.counts;
            let values = [
                count(state.waiting as u64),
                count(state.granted as u64),
                state.load.map(Value::Float),
                count(counts.begun),
                count(counts.ended),
                count(counts.expired),
                count(counts.refused),
                count(counts.went_alone),
                count(counts.starved),
            ];
            for (key, value) in keys.iter().zip(values) {
                if let Some(value) = value {
                    put(*key, value);
                }
            }
        }
        put(self.outlook, Value::text(state.outlook));
        put(self.who, Value::text(state.who));
        if let Some(bytes) = self.meter.resident_bytes() {
            put(self.memory, Value::Int(bytes));
        }
    }
}

/// Returns the descriptor of a stream of the agent, without labels.
pub(crate) fn descriptor(
    name: &str,
    value_type: ValueType,
    unit: &str,
    kind: Kind,
    help: &str,
) -> Descriptor {
    Descriptor {
        name: Name::new(name).expect("a literal"),
        labels: Labels::none(),
        value_type,
        unit: Unit::new(unit).expect("a literal"),
        kind,
        help: help.into(),
    }
}

/// The stream that counts the events of one kind.
fn event_descriptor(kind: &str) -> Descriptor {
    Descriptor {
        labels: Labels::new([("event", kind)]).expect("a literal"),
        ..descriptor(
            "agent.events.count",
            ValueType::Int,
            "count",
            Kind::Counter,
            "Events that the sampling loop has applied",
        )
    }
}

/// A stream about a volume.
fn volume_descriptor(
    volume: &str,
    (name, value_type, kind, unit, help): (&str, ValueType, Kind, &str, &str),
) -> Descriptor {
    Descriptor {
        // Names of volumes were checked with the configuration.
        labels: Labels::new([("volume", volume)]).unwrap_or_else(|_| Labels::none()),
        ..descriptor(name, value_type, unit, kind, help)
    }
}
