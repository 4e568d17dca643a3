//! Tests that `frames` equals plain SQL over the tables of values and frames, wherever the samples
//! are.

use std::sync::Arc;

use barograph_archive::SampleChunk;
use barograph_model::{Columns, ManualClock, Sample, Value, ValueType};
use barograph_query::Database;
use barograph_stream::RunDir;
use proptest::prelude::*;

use crate::answer;
use crate::demo::{Demo, S, START_NS};
use crate::files::Past;
use crate::scopes::value;

const DEPTH: u32 = 8;
const RANKS: [&str; 2] = ["0", "1"];
const NAMES: [&str; 3] = ["energy", "frame", "residual"];

/// Times in seconds, rising; the values are their indices.
#[derive(Clone, Debug)]
struct Told {
    times: Vec<i64>,
    /// Number of samples that the archive has beyond those that the ring has lost.
    ahead: usize,
    lives: bool,
}

impl Told {
    fn archived(&self) -> usize {
        let lost = self.times.len().saturating_sub(DEPTH as usize - 1);
        let archived = if self.lives {
            lost + self.ahead
        } else {
            usize::MAX
        };
        archived.min(self.times.len())
    }

    fn sample(&self, at: usize) -> Sample {
        Sample::measured(START_NS + self.times[at] * S, Value::from(at as i64))
    }
}

fn told(gap: i64) -> impl Strategy<Value = Told> {
    let gaps = prop::collection::vec(1..=gap, 0..24);
    (gaps, 0..=DEPTH as usize, prop::bool::weighted(0.8)).prop_map(|(gaps, ahead, lives)| {
        let mut at = 0;
        let mut next = |gap| {
            at += gap;
            at
        };
        Told {
            times: gaps.into_iter().map(&mut next).collect(),
            ahead,
            lives,
        }
    })
}

/// For each rank: energy, frame, residual.
fn all() -> impl Strategy<Value = Vec<Told>> {
    let rank = || (told(6), told(9), told(3)).prop_map(|(a, b, c)| vec![a, b, c]);
    (rank(), rank()).prop_map(|(a, b)| [a, b].concat())
}

fn world(told: &[Told]) -> (tempfile::TempDir, Demo, Database) {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let mut past = Past::default();
    for name in 0..NAMES.len() {
        for (rank, label) in RANKS.iter().enumerate() {
            let one = &told[rank * NAMES.len() + name];
            let stream = value(&format!("lulesh.{}", NAMES[name]), label, ValueType::Int);
            if one.lives {
                let samples = (0..).zip(&one.times).map(|(v, t)| (*t, Value::Int(v)));
                demo.add_deep(&stream, DEPTH, samples);
            }
            let mut columns = Columns::new(ValueType::Int);
            for at in 0..one.archived() {
                columns.push(at as u64 + 1, &one.sample(at));
            }
            past.chunks.push(SampleChunk {
                series: past.streams.len(),
                life: START_NS,
                columns,
            });
            past.streams.push(Arc::new(stream));
        }
    }
    let view = past.view(&dir.path().join("archive"));
    let views = Arc::new(move || Ok(Arc::clone(&view)));
    let clock = Arc::new(ManualClock::at(START_NS + 1_000 * S));
    let database = Database::over(Some(&RunDir::new(dir.path())), views, clock).unwrap();
    (dir, demo, database)
}

fn plain(start: i64, stop: i64) -> String {
    let of = |name: &str| {
        format!(
            "(SELECT v.value FROM {name} v WHERE v.rank = f.rank AND v.ts <= f.ts AND v.ts > \
             coalesce((SELECT max(p.ts) FROM frame p WHERE p.rank = f.rank AND p.ts < f.ts), 0) \
             ORDER BY v.ts DESC LIMIT 1)"
        )
    };
    let table = |name: &str| {
        format!("{name} AS MATERIALIZED (SELECT ts, value, rank FROM app_lulesh_{name})")
    };
    format!(
        "WITH {} SELECT f.ts, f.value, f.rank, {}, {} FROM frame f WHERE f.ts BETWEEN {start} AND {stop}",
        NAMES.map(table).join(", "),
        of("energy"),
        of("residual"),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn frames_are_what_plain_sql_says(told in all(), from in -5..60_i64, length in 0..80_i64) {
        let has = |name: usize| [name, name + NAMES.len()].iter().any(|&at| told[at].lives || !told[at].times.is_empty());
        prop_assume!((0..NAMES.len()).all(has));
        let (_dir, _demo, mut database) = world(&told);
        let mut sorted = |sql: &str| {
            let mut rows = answer(&mut database, sql);
            rows.sort();
            rows
        };
        let columns = "SELECT ts, frame, rank, energy, residual FROM";
        let (start, stop) = (START_NS + from * S, START_NS + (from + length) * S);
        assert_eq!(
            sorted(&format!("{columns} frames('lulesh', {start}, {stop})")),
            sorted(&plain(start, stop))
        );
        assert_eq!(
            sorted(&format!("{columns} frames_lulesh")),
            sorted(&plain(0, i64::MAX))
        );
    }
}

#[test]
fn frames_of_one_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let stream = |name: &str| value(&format!("lulesh.{name}"), "0", ValueType::Int);
    let put = |at: &[i64]| {
        let values = (1..).zip(at.to_vec());
        values.map(|(v, t)| (t, Value::Int(v))).collect::<Vec<_>>()
    };
    // A frame that was appended again after an agent was killed counts once.
    let numbers = [(2, 1), (2, 2), (2, 2), (2, 3), (4, 4)];
    let frames = numbers.map(|(t, number)| (t, Value::Int(number)));
    demo.add(&stream("frame"), frames);
    demo.add(&stream("residual"), put(&[2, 2, 3]));
    let mut database = crate::open(dir.path());
    let sql = "SELECT frame, residual FROM frames('lulesh') ORDER BY frame";
    assert_eq!(
        answer(&mut database, sql),
        ["1|2", "2|NULL", "3|NULL", "4|3"]
    );
    let sql = format!(
        "SELECT frame, residual FROM frames_lulesh({})",
        START_NS + 3 * S
    );
    assert_eq!(answer(&mut database, &sql), ["4|3"]);
}

#[test]
fn a_nan_is_told_apart_from_what_was_not_put() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let stream = |name: &str, of| value(&format!("lulesh.{name}"), "0", of);
    let frames = [2, 4, 6].map(|t| (t, Value::Int(t / 2)));
    demo.add(&stream("frame", ValueType::Int), frames);
    let nan = Value::Float(f64::NAN);
    let residuals = [(1, nan.clone()), (5, nan.clone()), (6, Value::Float(2.0))];
    demo.add(&stream("residual", ValueType::Float), residuals);
    demo.add(
        &stream("work", ValueType::Float),
        [(2, nan.clone()), (4, nan)],
    );
    let mut database = crate::open(dir.path());
    let sql = "SELECT frame, residual, work, nan_columns FROM frames('lulesh') ORDER BY frame";
    assert_eq!(
        answer(&mut database, sql),
        [
            "1|NULL|NULL|residual,work",
            "2|NULL|NULL|work",
            "3|2.0|NULL|NULL"
        ]
    );
    let sql = "SELECT * FROM frames('lulesh') WHERE frame = 3";
    assert!(!answer(&mut database, sql)[0].contains("residual"));
}

#[test]
fn values_without_a_column_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::with_room(dir.path(), 512);
    let stream = |name: &str| value(&format!("wide.{name}"), "0", ValueType::Int);
    demo.add(&stream("frame"), [(2, Value::Int(1)), (4, Value::Int(2))]);
    for n in 0..312 {
        demo.add(&stream(&format!("v{n:03}")), [(1, Value::Int(n))]);
    }
    let mut database = crate::open(dir.path());
    let sql = "SELECT frame, v000, v299, left_out FROM frames('wide') ORDER BY frame";
    assert_eq!(answer(&mut database, sql), ["1|0|299|12", "2|NULL|NULL|12"]);
    // A value without a column has its own table.
    let sql = "SELECT value FROM app_wide_v311";
    assert_eq!(answer(&mut database, sql), ["311"]);
    let sql = "SELECT left_out FROM family('app') WHERE ts = (SELECT max(ts) FROM family('app'))";
    assert_eq!(answer(&mut database, sql), ["13"]);
}
