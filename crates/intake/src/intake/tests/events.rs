//! Events of files, which collectors hand over at their door.

use std::time::Duration;

use barograph_bridge::IngestFault;
use barograph_model::{Kind, Labels, NS_PER_S, Name, Quality, Sample, Unit};

use super::*;
use crate::{EventSource, EventsRecorded};

fn source(name: &str) -> Arc<EventSource> {
    let descriptor = Descriptor {
        name: Name::new("events").unwrap(),
        labels: Labels::new([("source", name)]).unwrap(),
        value_type: ValueType::Bytes,
        unit: Unit::new("record").unwrap(),
        kind: Kind::State,
        help: String::new(),
    };
    Arc::new(EventSource {
        descriptor,
        value_bytes_max: 9_000,
        reader: ScopeReader::All,
        user: "root".into(),
    })
}

fn samples(numbers: std::ops::Range<i64>) -> Vec<Sample> {
    let sample = |n: i64| Sample {
        ts: n * NS_PER_S,
        value: Value::Bytes(n.to_le_bytes().as_slice().into()),
        quality: Quality::Measured,
        error: 0.0,
    };
    numbers.map(sample).collect()
}

/// Hands over samples from a thread of its own, as a collector does.
fn record(
    intake: &mut Intake<'_>,
    outside: &Outside,
    source: &Arc<EventSource>,
    samples: Vec<Sample>,
) -> Result<EventsRecorded, IngestFault> {
    std::thread::scope(|threads| {
        let collector = threads.spawn(|| outside.events.record(source, samples));
        while !collector.is_finished() {
            intake.step();
            std::thread::yield_now();
        }
        collector.join().unwrap()
    })
}

#[test]
fn events_are_in_the_stream_of_their_source_and_on_disk() {
    with_intake(|intake, outside| {
        let (a, b) = (source("/a"), source("/b"));
        let opened = loop {
            // Its history is being opened.
            if let Ok(opened) = record(intake, outside, &a, Vec::new()) {
                break opened;
            }
        };
        assert!(opened.archive.is_some());
        for part in 0..10 {
            let numbers = part * 1_000..(part + 1) * 1_000;
            let recorded = record(intake, outside, &a, samples(numbers.clone())).unwrap();
            record(intake, outside, &b, samples(numbers)).unwrap();
            while !recorded.wait_durable(Duration::from_secs(30)).unwrap() {}
        }
        let view = barograph_archive::ArchiveReader::open(opened.archive.unwrap());
        let view = view.view().unwrap();
        let id = a.descriptor.series_id();
        let place = view.series().iter().position(|one| one.id == id).unwrap();
        let (places, cancel) = ([place], AtomicBool::new(false));
        let chunks = view.scan(&places, Span::ALL, &cancel);
        let rows: usize = chunks.map(|chunk| chunk.unwrap().columns.len()).sum();
        assert_eq!(rows, 10_000);
    });
}

#[test]
fn a_source_that_has_ended_may_begin_again() {
    with_intake(|intake, outside| {
        let a = source("/a");
        for _ in 0..3 {
            record(intake, outside, &a, samples(0..3)).unwrap();
            std::thread::scope(|threads| {
                let collector = threads.spawn(|| outside.events.end(&a));
                while !collector.is_finished() {
                    intake.step();
                }
            });
        }
    });
}

#[test]
fn what_cannot_be_kept_is_refused_and_taken_later() {
    with_intake(|intake, outside| {
        let applications = outside.path().join("applications");
        // A file in place of the scopes' directory, so that no scope can be made.
        fs::write(&applications, "").unwrap();
        let a = source("/a");
        let refused = record(intake, outside, &a, samples(0..3)).unwrap_err();
        assert!(matches!(refused, IngestFault::Busy(_)), "{refused}");
        fs::remove_file(&applications).unwrap();
        while record(intake, outside, &a, samples(0..3)).is_err() {
            std::thread::yield_now();
        }
    });
}
