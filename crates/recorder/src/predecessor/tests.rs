//! Tests of what is taken over from a killed agent, whose archive is closed before its streams were
//! settled.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use barograph_model::{
    Columns, Descriptor, Kind, Labels, ManualClock, NS_PER_S, Name, Sink as _, Span, Unit, Value,
    ValueType,
};
use barograph_stream::{Segment, SegmentConfig};

use super::*;
use crate::{ArchiveConfig, Streams, World};

const NODE: &str = "n";
const START_S: i64 = 1_000;

/// A directory with a run directory and an archive.
struct Machine {
    dir: tempfile::TempDir,
    clock: ManualClock,
}

impl Machine {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: ManualClock::at(START_S * NS_PER_S),
        }
    }

    fn run_dir(&self) -> RunDir {
        RunDir::new(self.dir.path())
    }

    fn archive(&self) -> ArchiveConfig {
        ArchiveConfig {
            dir: self.dir.path().join("archive"),
            free_bytes_min: 0,
            ..ArchiveConfig::default()
        }
    }

    fn history(&self) -> History {
        History::start(&self.archive(), NODE, &World::real())
    }

    /// Starts an agent that has one stream, at which nobody looks yet.
    fn agent(&self) -> Agent<'_> {
        let history = self.history();
        let path = self.run_dir().segment();
        let segment = Segment::create(&path, SegmentConfig::new(NODE), 1).unwrap();
        let mut streams = Streams::new(segment, &self.clock, history.journal(), i64::MAX);
        Agent {
            key: declare(&mut streams),
            streams,
            history,
        }
    }

    /// Starts an agent that looks at its stream every second.
    fn looking_agent(&self) -> Agent<'_> {
        let mut agent = self.agent();
        agent.streams.expect_interval(agent.key, NS_PER_S);
        agent
    }

    /// Starts a history, takes over, and ends it.
    fn take_over_as(&self, node: &str) {
        let history = self.history();
        take_over(&self.run_dir(), node, &history);
        history.close();
    }

    /// The archived samples, as life, number, seconds, value and whether it is the last look.
    fn archived(&self) -> Vec<(i64, u64, i64, i64, bool)> {
        rows(&self.archive().dir)
    }
}

/// An agent that does not close its segment.
struct Agent<'m> {
    history: History,
    streams: Streams<'m>,
    key: StreamKey,
}

impl<'m> Agent<'m> {
    /// Looks at the stream, so many seconds after the start.
    fn look(&mut self, seconds: i64, value: i64) {
        let ts = (START_S + seconds) * NS_PER_S;
        self.streams.look(self.key, &Sample::measured(ts, value));
    }

    /// Ends with what the archive has on disk. The segment is closed when the streams are dropped.
    fn end_abruptly(self) -> Streams<'m> {
        self.history.close();
        self.streams
    }
}

fn rows(dir: &Path) -> Vec<(i64, u64, i64, i64, bool)> {
    let view = ArchiveReader::open(dir).view().unwrap();
    let places: Vec<usize> = (0..view.series().len()).collect();
    let cancel = AtomicBool::new(false);
    let chunks = view.scan(&places, Span::ALL, &cancel);
    let of_chunk = |life, columns: &Columns| {
        let row = |at| {
            let sample: Sample = columns.sample(at).unwrap();
            let Value::Int(value) = sample.value else {
                panic!("{sample:?} is no integer");
            };
            let is_last_look = sample.quality == Quality::Ended;
            let seconds = sample.ts / NS_PER_S;
            (life, columns.numbers[at], seconds, value, is_last_look)
        };
        (0..columns.len()).map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = chunks
        .map(Result::unwrap)
        .flat_map(|chunk| of_chunk(chunk.life / NS_PER_S, &chunk.columns))
        .collect();
    rows.sort_unstable();
    rows
}

fn declare(streams: &mut Streams<'_>) -> StreamKey {
    let descriptor = Descriptor {
        name: Name::new("a.b").unwrap(),
        labels: Labels::none(),
        value_type: ValueType::Int,
        unit: Unit::new("").unwrap(),
        kind: Kind::State,
        help: String::new(),
    };
    streams.declare(&descriptor, Some(16)).unwrap()
}

#[test]
fn the_archive_gets_what_it_lacks_and_the_last_look_once() {
    let machine = Machine::new();
    let mut agent = machine.looking_agent();
    agent.look(1, 7);
    agent.look(2, 8);
    agent.streams.finish();
    // These are in the ring alone when the agent is killed.
    agent.look(3, 9);
    agent.look(4, 10);
    agent.look(5, 10);
    let _not_closed = agent.end_abruptly();
    let life = START_S;
    let synced = [
        (life, 1, START_S + 1, 7, false),
        (life, 2, START_S + 2, 8, false),
    ];
    assert_eq!(machine.archived(), synced);

    let left = [
        (life, 3, START_S + 3, 9, false),
        (life, 4, START_S + 4, 10, false),
        (life, 5, START_S + 5, 10, true),
    ];
    // An agent that is killed before it has replaced the segment leaves it to the next one.
    for _ in 0..3 {
        machine.take_over_as(NODE);
        assert_eq!(machine.archived(), [&synced[..], &left].concat());
    }
}

#[test]
fn what_is_taken_over_is_written_when_the_segment_may_be_replaced() {
    let machine = Machine::new();
    let mut agent = machine.looking_agent();
    agent.look(1, 7);
    let _not_closed = agent.end_abruptly();
    let history = machine.history();
    take_over(&machine.run_dir(), NODE, &history);
    // The writer goes on, but nothing waits for it any more.
    let rows = [
        (START_S, 1, START_S + 1, 7, false),
        (START_S, 2, START_S + 1, 7, true),
    ];
    assert_eq!(machine.archived(), rows);
    history.close();
}

#[test]
fn the_last_look_is_taken_over_if_the_archive_has_all_samples() {
    let machine = Machine::new();
    let mut agent = machine.looking_agent();
    agent.look(1, 7);
    agent.streams.finish();
    agent.streams.confirm(agent.key, (START_S + 2) * NS_PER_S);
    let _not_closed = agent.end_abruptly();
    machine.take_over_as(NODE);
    let rows = [
        (START_S, 1, START_S + 1, 7, false),
        (START_S, 2, START_S + 2, 7, true),
    ];
    assert_eq!(machine.archived(), rows);
}

#[test]
fn what_a_ring_has_lost_is_a_gap_of_numbers() {
    let machine = Machine::new();
    let mut agent = machine.looking_agent();
    for second in 1..=100 {
        agent.look(second, second);
    }
    let _not_closed = agent.end_abruptly();
    machine.take_over_as(NODE);
    let rows = machine.archived();
    let numbers: Vec<u64> = rows.iter().map(|row| row.1).collect();
    assert_eq!(numbers, (numbers[0]..=101).collect::<Vec<u64>>());
    assert!(rows.len() >= 15, "{rows:?}");
    assert!(rows.iter().all(|row| row.3 == row.1.min(100) as i64));
}

#[test]
fn nothing_is_taken_over_where_nothing_is_lacking_or_nobody_looked() {
    let machine = Machine::new();
    // Nobody looks at the stream: a program puts its values.
    let mut agent = machine.agent();
    agent.look(1, 7);
    agent.history.close();
    machine.take_over_as(NODE);
    assert_eq!(machine.archived(), []);

    agent.streams.expect_interval(agent.key, NS_PER_S);
    machine.take_over_as("another");
    assert_eq!(machine.archived(), []);

    agent.streams.segment().close();
    machine.take_over_as(NODE);
    assert_eq!(machine.archived(), []);
}

#[test]
fn a_life_that_the_archive_has_a_later_one_of_is_over() {
    let machine = Machine::new();
    let mut agent = machine.looking_agent();
    agent.look(1, 7);
    let directory = agent.streams.segment().reader().unwrap().directory();
    let later = DeclaredStream {
        descriptor: Arc::new(directory.entries[0].descriptor.clone()),
        life: (START_S + 50) * NS_PER_S,
        depth: 16,
    };
    let sample = Sample::measured((START_S + 51) * NS_PER_S, 1i64);
    agent.history.journal().unwrap().submit(&mut vec![
        JournalEntry::Declare(StreamKey(7), later),
        JournalEntry::Sample(StreamKey(7), 1, sample),
    ]);
    let _not_closed = agent.end_abruptly();
    machine.take_over_as(NODE);
    assert_eq!(
        machine.archived(),
        [(START_S + 50, 1, START_S + 51, 1, false)]
    );
}
