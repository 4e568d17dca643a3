//! A run directory with a segment of known streams, for the tests, the example `demo_segment` and
//! the extension's tests.

use std::path::Path;

use barograph_model::{Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType};
use barograph_stream::{RunDir, Segment, SegmentConfig, StreamWriter};

/// Time of the first samples, ns since the epoch.
pub(crate) const START_NS: i64 = 1_700_000_000_000_000_000;
/// One second, in ns.
pub(crate) const S: i64 = 1_000_000_000;

/// A descriptor with these properties.
pub(crate) fn descriptor(
    name: &str,
    labels: &[(&str, &str)],
    of: ValueType,
    kind: Kind,
) -> Descriptor {
    let unit = name.rsplit('.').next().unwrap();
    Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new(labels.iter().copied()).unwrap(),
        value_type: of,
        unit: Unit::new(unit).unwrap(),
        kind,
        help: format!("help of {name}"),
    }
}

/// A segment and the writers of its streams.
pub(crate) struct Demo {
    pub segment: Segment,
    pub writers: Vec<StreamWriter>,
}

impl Demo {
    /// Makes an empty segment of node `Node-1` in `dir`.
    pub(crate) fn empty(dir: &Path) -> Self {
        Self::with_room(dir, 64)
    }

    /// Like [`Self::empty`], with room for this many streams.
    pub(crate) fn with_room(dir: &Path, streams_max: u32) -> Self {
        let mut config = SegmentConfig::new("Node-1");
        config.streams_max = streams_max;
        config.ring_bytes_max = 16 << 20;
        let segment = Segment::create(&RunDir::new(dir).segment(), config, START_NS).unwrap();
        segment.heartbeat(START_NS);
        Self {
            segment,
            writers: Vec::new(),
        }
    }

    /// Registers a stream and appends samples one second apart, or at their own times.
    pub(crate) fn add(
        &mut self,
        descriptor: &Descriptor,
        samples: impl IntoIterator<Item = (i64, Value)>,
    ) {
        self.add_deep(descriptor, 64, samples);
    }

    /// Like [`Self::add`], with a ring of this depth.
    pub(crate) fn add_deep(
        &mut self,
        descriptor: &Descriptor,
        depth: u32,
        samples: impl IntoIterator<Item = (i64, Value)>,
    ) {
        let mut writer = self
            .segment
            .register(descriptor, Some(depth), START_NS)
            .unwrap();
        for (seconds, value) in samples {
            writer
                .append(&Sample::measured(START_NS + seconds * S, value))
                .unwrap();
        }
        self.writers.push(writer);
    }

    /// Makes the streams that the tests know.
    pub(crate) fn known(dir: &Path) -> Self {
        let mut demo = Self::empty(dir);
        let ints = |values: &[i64]| {
            (0..)
                .zip(values.iter().map(|&v| Value::Int(v)))
                .collect::<Vec<(i64, Value)>>()
        };
        let read = |device| {
            descriptor(
                "disk.read.bytes",
                &[("device", device)],
                ValueType::Int,
                Kind::Counter,
            )
        };
        demo.add(&read("vda"), ints(&[0, 100, 200, 300, 400]));
        demo.add(&read("vdb"), ints(&[1000, 3000, 500]));
        let vda: &[(&str, &str)] = &[("device", "vda")];
        let busy = descriptor("disk.busy.ratio", vda, ValueType::Float, Kind::Gauge);
        demo.add(
            &busy,
            [(0, 0.5.into()), (1, f64::NAN.into()), (2, 0.75.into())],
        );
        let flag = descriptor("disk.rotational.flag", vda, ValueType::Bool, Kind::State);
        demo.add(&flag, [(0, true.into()), (1, false.into())]);
        let text = descriptor("disk.scheduler.name", vda, ValueType::Text, Kind::State);
        demo.add(
            &text,
            [(0, Value::text("none")), (1, Value::text("mq-deadline"))],
        );
        let capacity = descriptor("pfs.capacity", &[], ValueType::Int, Kind::Gauge);
        demo.add(&capacity, [(7, 123_456.into())]);
        let capacity = descriptor("memory.capacity", &[], ValueType::Float, Kind::Gauge);
        demo.add(&capacity, [(5, 0.25.into()), (6, 0.5.into())]);
        // The clock was set back between the second and the third sample.
        let back = descriptor("clock.back.bytes", &[], ValueType::Int, Kind::Gauge);
        demo.add(&back, [(0, 1.into()), (10, 2.into()), (5, 3.into())]);
        let odd = [("mount", "/"), ("node", "x"), ("Value", "y")];
        let free = descriptor("filesystem.free.bytes", &odd, ValueType::Int, Kind::Gauge);
        demo.add(&free, [(3, 42.into())]);
        demo.add(
            &descriptor("nothing.yet.count", &[], ValueType::Int, Kind::Counter),
            [],
        );
        demo
    }
}
