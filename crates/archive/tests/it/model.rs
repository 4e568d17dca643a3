//! Random histories of a writer compared with the same samples in a log that is never sealed: every
//! row once, any span, any step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use barograph_archive::{
    ArchiveError, ArchiveReader, DiskStorage, JournalEntry, Keeper, SampleChunk, View,
};
use barograph_model::{
    Buckets, Columns, NS_PER_S, Sample, Span, StreamKey, Value, ValueType, Values,
};
use proptest::prelude::*;

use crate::support::{
    Everything, SOON, TwoClocks, assert_sound, config, declare, dir_in_memory, everything_of,
    told as as_text,
};

const TYPES: [ValueType; 7] = [
    ValueType::Int,
    ValueType::Float,
    ValueType::Bool,
    ValueType::Text,
    ValueType::Bytes,
    ValueType::Json,
    ValueType::Floats,
];
const BEGIN: i64 = 1_700_000_000 * NS_PER_S;
const HOUR_NS: i64 = 3_600 * NS_PER_S;

#[derive(Clone, Debug)]
enum Op {
    /// Appends so many samples of each stream, with this step in ns.
    Append(u64, i64),
    Seal,
    Compact,
    Restart,
    /// Sets the clock forward or back.
    Set(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let step = prop_oneof![
        Just(NS_PER_S / 10),
        Just(NS_PER_S),
        Just(61 * NS_PER_S),
        Just(HOUR_NS / 2),
        // One segment of more hours than get files of their own.
        Just(2 * HOUR_NS),
        0..HOUR_NS,
    ];
    prop_oneof![
        4 => (1u64..60, step).prop_map(|(count, step)| Op::Append(count, step)),
        3 => Just(Op::Seal),
        1 => Just(Op::Compact),
        1 => Just(Op::Restart),
        1 => (-48 * HOUR_NS..48 * HOUR_NS).prop_map(Op::Set),
        // Sets the clock back to the hours of a segment that has many.
        1 => (-120 * HOUR_NS..0).prop_map(Op::Set),
    ]
}

/// The samples that were appended, in order.
#[derive(Default)]
struct Model {
    chunks: Vec<SampleChunk>,
    life: i64,
    number: u64,
    now: i64,
    /// Whether the clock was set back: then the last sample is not the latest.
    backwards: bool,
    /// Whether a keeper was started anew.
    forgets: bool,
}

fn value(value_type: ValueType, number: u64) -> Value {
    match value_type {
        ValueType::Int => Value::Int((number as i64 - 20) << (number % 55)),
        ValueType::Float => Value::Float(number as f64 * 0.1),
        ValueType::Bool => Value::Bool(number.is_multiple_of(3)),
        ValueType::Text => Value::text(&"é".repeat(number as usize % 9)),
        ValueType::Bytes => Value::Bytes(vec![number as u8; number as usize % 500].into()),
        ValueType::Json => Value::Json(format!("[{number}]").into()),
        ValueType::Floats => Value::Floats(vec![number as f64; number as usize % 9].into()),
    }
}

impl Model {
    fn restart(&mut self) -> Vec<JournalEntry> {
        self.life += 1;
        self.number = 0;
        self.chunks
            .extend((0..TYPES.len()).map(|series| SampleChunk {
                series,
                life: self.life,
                columns: Columns::new(TYPES[series]),
            }));
        let declare = |(key, value_type): (usize, &ValueType)| {
            declare(
                key as u32,
                &format!("durable.s{key}"),
                *value_type,
                self.life,
            )
        };
        TYPES.iter().enumerate().map(declare).collect()
    }

    fn append(&mut self, count: u64, step: i64) -> Vec<JournalEntry> {
        let mut entries = Vec::new();
        let newest = self.chunks.len() - TYPES.len();
        for _ in 0..count {
            self.number += 1;
            self.now += step;
            for (key, value_type) in TYPES.iter().enumerate() {
                let sample = Sample::measured(self.now, value(*value_type, self.number));
                self.chunks[newest + key].columns.push(self.number, &sample);
                entries.push(JournalEntry::Sample(
                    StreamKey(key as u32),
                    self.number,
                    sample,
                ));
            }
        }
        entries
    }

    /// All samples within a span.
    fn everything(&self, span: Span) -> Everything {
        let mut all = Everything::new();
        for chunk in &self.chunks {
            let samples = (0..chunk.columns.len()).map(|row| {
                let sample = chunk.columns.sample(row).unwrap();
                (sample.ts, (chunk.columns.numbers[row], as_text(&sample)))
            });
            let within = samples.filter(|(ts, _)| span.holds(*ts));
            let within: Vec<_> = within.map(|(_, sample)| sample).collect();
            if !within.is_empty() {
                all.insert((format!("durable.s{}", chunk.series), chunk.life), within);
            }
        }
        all
    }

    /// An archive that has all samples in its log.
    fn view(&self, root: &std::path::Path) -> Arc<View> {
        for life in self.chunks.chunks(TYPES.len()) {
            let keeper = start(root, self.now);
            let entries = (0..).zip(life).flat_map(|(key, chunk)| {
                let name = format!("durable.s{key}");
                let declared = declare(key, &name, TYPES[chunk.series], chunk.life);
                let numbers = chunk.columns.numbers.iter().enumerate();
                let samples = numbers.map(move |(row, number)| {
                    let sample = chunk.columns.sample(row).unwrap();
                    JournalEntry::Sample(StreamKey(key), *number, sample)
                });
                [declared].into_iter().chain(samples)
            });
            submit(&keeper, entries.collect());
        }
        ArchiveReader::open(root).view().unwrap()
    }
}

fn start(root: &std::path::Path, now: i64) -> Keeper {
    let clock = TwoClocks {
        wall: AtomicI64::new(now),
        ..TwoClocks::default()
    };
    Keeper::start(config(root), Arc::new(DiskStorage), Arc::new(clock)).unwrap()
}

fn submit(keeper: &Keeper, mut entries: Vec<JournalEntry>) {
    let position = keeper.journal().submit(&mut entries);
    assert!(keeper.journal().wait_durable(position, SOON));
}

/// The parts of buckets that may differ from those of samples.
#[derive(Clone, Copy)]
struct Loose {
    /// The clock was set back: files are not in the order of the samples, which decides which
    /// sample is the last.
    backwards: bool,
    /// The time for which values held where segments meet may differ: it is not in files if the
    /// clock was set back, or if a keeper was started that has not sealed the previous segment.
    held: bool,
}

/// Returns buckets as text; without the time that values held if that may differ, and then without
/// buckets that have no sample.
fn told(buckets: &Buckets, loose: Loose) -> Vec<String> {
    let of = |values: &Values, row| format!("{:?}", values.get(row));
    let row = |row: usize| {
        let mut told = format!("{} {}", buckets.ts[row], buckets.count[row]);
        if !loose.held {
            let (min, max) = match &buckets.last {
                values if !values.value_type().is_number() => (String::new(), String::new()),
                _ => (of(&buckets.min, row), of(&buckets.max, row)),
            };
            told += &format!(" {} {min} {max}", buckets.held_ns[row]);
        }
        if !loose.backwards {
            told += &of(&buckets.last, row);
        }
        told
    };
    let rows = (0..buckets.len()).filter(|row| !loose.held || buckets.count[*row] > 0);
    rows.map(row).collect()
}

/// Returns the means that [`told`] omits, to be compared as numbers.
fn means(buckets: &Buckets, loose: Loose) -> Vec<f64> {
    let means = match loose.held {
        true => &buckets.sample_mean,
        false => &buckets.mean,
    };
    let rows = (0..buckets.len()).filter(|row| !loose.held || buckets.count[*row] > 0);
    rows.map(|row| means[row]).collect()
}

fn compare(root: &std::path::Path, model: &Model, log: &View, span: Span, step: i64) {
    let view = ArchiveReader::open(root).view().unwrap();
    assert!(view.series().len() == TYPES.len() || model.number == 0);
    let mut found = everything_of(&view, span);
    if model.backwards {
        found.values_mut().for_each(|samples| samples.sort());
    }
    assert_eq!(found, model.everything(span));
    let all: Vec<usize> = (0..view.series().len()).collect();
    let cancel = AtomicBool::new(false);
    let read = |view: &View| match view.buckets(&all, span, step, 2, &cancel) {
        // Values that held for long, in short buckets.
        Err(ArchiveError::TooManyBuckets) => None,
        found => Some(found.unwrap()),
    };
    let Some((got, expect)) = read(&view).zip(read(log)) else {
        return;
    };
    assert_eq!(
        got.keys().collect::<Vec<_>>(),
        expect.keys().collect::<Vec<_>>()
    );
    for (place, expect) in &expect {
        let got = &got[place];
        let loose = Loose {
            backwards: model.backwards,
            held: model.backwards || model.forgets,
        };
        assert_eq!(
            told(got, loose),
            told(expect, loose),
            "{place} {span:?} {step}"
        );
        let pairs = means(got, loose).into_iter().zip(means(expect, loose));
        for (a, b) in pairs {
            let close = (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
            assert!(
                close || (a.is_nan() && b.is_nan()) || a.abs() > 1e15,
                "{a} {b}"
            );
        }
    }
    // Each sample lies in one stretch.
    let stretches = view.stretches(span);
    assert!(stretches.windows(2).all(|pair| pair[0].to < pair[1].from));
    let count = |span| {
        everything_of(&view, span)
            .values()
            .map(Vec::len)
            .sum::<usize>()
    };
    let of_stretches: usize = stretches.iter().map(|stretch| count(*stretch)).sum();
    assert_eq!(of_stretches, count(span));
}

fn history(ops: &[Op], spans: &[(i64, i64)], steps: &[i64]) {
    let dir = dir_in_memory();
    let mut model = Model {
        now: BEGIN,
        ..Model::default()
    };
    let mut keeper = start(dir.path(), model.now);
    submit(&keeper, model.restart());
    for op in ops {
        match op {
            Op::Append(count, step) => submit(&keeper, model.append(*count, *step)),
            Op::Seal => keeper.seal().unwrap(),
            Op::Compact => drop(keeper.compact().unwrap()),
            Op::Restart => {
                drop(keeper);
                keeper = start(dir.path(), model.now);
                model.forgets = true;
                submit(&keeper, model.restart());
            }
            Op::Set(by) => {
                model.backwards |= *by < 0;
                model.now += by;
            }
        }
    }
    let reference = dir_in_memory();
    let log = model.view(reference.path());
    compare(dir.path(), &model, &log, Span::ALL, HOUR_NS);
    for ((from, length), step) in spans.iter().zip(steps) {
        let from = BEGIN + from;
        let to = from + length;
        compare(dir.path(), &model, &log, Span { from, to }, *step);
    }
    drop(keeper);
    assert_sound(dir.path());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_read_as_it_was_written(
        ops in prop::collection::vec(op(), 1..14),
        spans in prop::collection::vec((-HOUR_NS..60 * HOUR_NS, 0..30 * HOUR_NS), 3),
        steps in prop::collection::vec(
            prop::sample::select(vec![1_000_000, NS_PER_S, 7 * NS_PER_S, 60 * NS_PER_S, HOUR_NS, 24 * HOUR_NS]),
            3,
        ),
    ) {
        history(&ops, &spans, &steps);
    }
}

/// The clock steps back within a life, and forward again.
#[test]
fn a_clock_that_is_set_back_and_forward_by_days() {
    let day = 24 * HOUR_NS;
    let ops = [
        Op::Append(50, NS_PER_S),
        Op::Set(-3 * day),
        Op::Append(50, NS_PER_S),
        Op::Seal,
        Op::Set(10 * day),
        Op::Append(50, NS_PER_S),
        Op::Restart,
        Op::Set(-7 * day),
        Op::Append(50, 61 * NS_PER_S),
        Op::Compact,
        Op::Append(5, NS_PER_S),
    ];
    history(
        &ops,
        &[(-4 * day, 20 * day), (0, day)],
        &[HOUR_NS, 60 * NS_PER_S],
    );
}

/// A segment of so many hours that its files hold several each, and then one of some of these
/// hours.
#[test]
fn hours_that_share_a_file_are_merged_with_files_of_each() {
    for step in [2 * HOUR_NS, HOUR_NS / 3, 13 * HOUR_NS] {
        let ops = [
            Op::Append(240, step),
            Op::Seal,
            Op::Set(-240 * step),
            Op::Append(40, HOUR_NS / 5),
            Op::Seal,
            Op::Compact,
            Op::Set(-4 * HOUR_NS),
            Op::Append(40, HOUR_NS / 5),
            Op::Compact,
            Op::Restart,
            Op::Append(40, HOUR_NS / 5),
            Op::Seal,
            Op::Compact,
        ];
        history(&ops, &[(0, 20 * HOUR_NS)], &[HOUR_NS]);
    }
}

#[test]
fn a_reader_follows_a_writer() {
    let dir = dir_in_memory();
    let archive = ArchiveReader::open(dir.path());
    assert!(archive.view().unwrap().series().is_empty());
    let mut model = Model {
        now: BEGIN,
        ..Model::default()
    };
    let keeper = start(dir.path(), BEGIN);
    submit(&keeper, model.restart());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each view that is taken meanwhile is complete: each stream has the same numbers, from 1
        // on.
        let reader = scope.spawn(|| {
            let mut views = 0;
            while !done.load(Ordering::SeqCst) {
                let view = archive.view().unwrap();
                let found = everything_of(&view, Span::ALL);
                for samples in found.values() {
                    for (at, (number, _)) in samples.iter().enumerate() {
                        assert_eq!(*number, at as u64 + 1);
                    }
                }
                for series in view.series() {
                    let name = series.descriptor.name.as_str().to_owned();
                    let of = &found[&(name, series.archived.life)];
                    assert_eq!(of.len() as u64, series.archived.number);
                }
                views += 1;
            }
            views
        });
        for round in 0..30 {
            submit(&keeper, model.append(40, NS_PER_S));
            if round % 3 == 0 {
                keeper.seal().unwrap();
            }
            if round % 7 == 0 {
                keeper.compact().unwrap();
            }
        }
        done.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0);
    });
    let reference = dir_in_memory();
    let log = model.view(reference.path());
    compare(dir.path(), &model, &log, Span::ALL, 60 * NS_PER_S);
    let view = archive.view().unwrap();
    assert!(Arc::ptr_eq(&view, &archive.view().unwrap()));
}
