//! Programs that publish, in the thread of the simulation: they write real ingest files.

use std::path::Path;

use barograph_model::{Clock, Kind, NS_PER_S, ValueType};
use barograph_stream::Incarnation;
use barograph_stream::ingest::{
    IngestDeclaration, Producer, ProducerConfig, PublicationReaders, ThreadRing, TimeSource, kind,
};

/// Time between two frames of a program.
const FRAME_NS: i64 = 61 * NS_PER_S;
/// The publications of each program, with their readers.
const PUBLICATIONS: [(&str, PublicationReaders); 2] = [
    ("ours", PublicationReaders::Owner),
    ("shared", PublicationReaders::All),
];

/// A program that puts how many frames it has made, for its user and for all.
pub(super) struct FakeProgram {
    producer: Producer,
    ring: ThreadRing,
    frames: u64,
    next_ns: i64,
}

impl FakeProgram {
    /// Makes the file of a program in an ingest directory.
    pub(super) fn begin(dir: &Path, incarnation: Incarnation, clock: &dyn Clock) -> Self {
        let config = ProducerConfig {
            rings_max: 1,
            incarnation: Some(incarnation),
            ..ProducerConfig::default()
        };
        let producer = Producer::create(dir, config, clock).unwrap();
        for (publication, (name, readers)) in (0..).zip(PUBLICATIONS) {
            assert!(producer.declare(&IngestDeclaration::Publication {
                name: name.into(),
                readers,
                labels: Vec::new(),
            }));
            assert!(producer.declare(&IngestDeclaration::Value {
                publication,
                name: "frames".into(),
                value_type: ValueType::Int,
                kind: Kind::Gauge,
                unit: String::new(),
                help: String::new(),
                bytes_max: 0,
            }));
        }
        Self {
            ring: producer.thread(clock).unwrap(),
            producer,
            frames: 0,
            next_ns: clock.monotonic_ns(),
        }
    }

    /// Puts what is due, and returns the time of the next put.
    pub(super) fn step(&mut self, clock: &dyn Clock) -> i64 {
        if clock.monotonic_ns() >= self.next_ns {
            self.next_ns += FRAME_NS;
            self.frames += 1;
            let time = match self.producer.time_source() {
                TimeSource::Counter => clock.ticks(),
                TimeSource::Realtime => clock.now_ns().unsigned_abs(),
            };
            for series in (0..).take(PUBLICATIONS.len()) {
                assert!(self.ring.put(kind::INT, series, time, self.frames));
            }
            self.ring.commit();
        }
        self.next_ns
    }
}
