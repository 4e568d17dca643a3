//! Buckets, compared with their definition computed in the simplest way.

use std::collections::BTreeMap;

use barograph_archive::ArchiveError;
use barograph_archive::aggregate::{BucketBudget, Fold, FoldRequest, aggregate};
use barograph_archive::parquet::IndexSeries;
use barograph_model::{Quality, Values};
use proptest::prelude::*;

use super::*;

/// One bucket as text, so that NaN equals itself.
#[derive(Debug, PartialEq)]
struct Plain {
    start: i64,
    count: u64,
    held_ns: u64,
    mean: String,
    sample_mean: String,
    /// The least, the greatest and the last value.
    values: [String; 3],
}

fn rows(buckets: &Buckets) -> Vec<Plain> {
    let text = |values: &Values, row: usize| values.get(row).unwrap().to_string();
    let row = |row: usize| Plain {
        start: buckets.ts[row],
        count: buckets.count[row],
        held_ns: buckets.held_ns[row],
        mean: rounded(buckets.mean[row]),
        sample_mean: rounded(buckets.sample_mean[row]),
        values: [
            text(&buckets.min, row),
            text(&buckets.max, row),
            text(&buckets.last, row),
        ],
    };
    (0..buckets.len()).map(row).collect()
}

fn rounded(mean: f64) -> String {
    // Sums of values that cancel out differ by the order of addition.
    format!("{:.6e}", if mean.abs() < 1e-9 { 0.0 } else { mean })
}

/// The values of a bucket, one by one.
#[derive(Default)]
struct Slow {
    samples: Vec<f64>,
    /// For each ns, the value that held in it.
    held: Vec<f64>,
    last: f64,
}

/// Computes buckets with a map: one sample after another, one ns after another.
fn plainly(samples: &[(i64, f64)], step: i64, span: Span) -> Vec<Plain> {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let mut all: BTreeMap<i64, Slow> = BTreeMap::new();
    let start = |ts: i64| ts - ts.rem_euclid(step);
    for (at, (ts, value)) in samples.iter().enumerate() {
        if span.holds(*ts) {
            let bucket = all.entry(start(*ts)).or_default();
            bucket.samples.push(*value);
            bucket.last = *value;
        }
        let Some((next, _)) = samples.get(at + 1) else {
            break;
        };
        if next.div_euclid(HOUR_NS) != ts.div_euclid(HOUR_NS) || value.is_nan() {
            continue;
        }
        for ns in (*ts..*next).filter(|ns| span.holds(*ns)) {
            let bucket = all.entry(start(ns)).or_default();
            bucket.held.push(*value);
            bucket.last = *value;
        }
    }
    all.into_iter()
        .map(|(start, slow)| slow.told(start))
        .collect()
}

impl Slow {
    fn told(self, start: i64) -> Plain {
        let known: Vec<f64> = self
            .samples
            .iter()
            .copied()
            .filter(|v| !v.is_nan())
            .collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let all = || known.iter().chain(&self.held).copied();
        let over_time = if self.held.is_empty() {
            &known
        } else {
            &self.held
        };
        let values = [
            all().fold(f64::NAN, f64::min),
            all().fold(f64::NAN, f64::max),
            self.last,
        ];
        Plain {
            start,
            count: self.samples.len() as u64,
            held_ns: self.held.len() as u64,
            mean: rounded(mean(over_time)),
            sample_mean: rounded(mean(&known)),
            values: values.map(|v| v.to_string()),
        }
    }
}

fn float_columns(samples: &[(i64, f64)]) -> Columns {
    let samples = samples.iter().zip(1..);
    columns(
        ValueType::Float,
        samples.map(|((ts, v), number)| (number, *ts, Value::Float(*v))),
    )
}

fn sample() -> impl Strategy<Value = (i64, f64)> {
    let value = prop_oneof![4 => -100.0..100.0f64, 1 => Just(f64::NAN), 1 => Just(0.0)];
    (-300..300i64, value)
}

proptest! {
    #[test]
    fn any_order_and_any_pieces(
        samples in prop::collection::vec(sample(), 0..80),
        sorted in any::<bool>(),
        step in 1..50i64,
        from in -400..100i64,
        length in 0..500i64,
        cuts in prop::collection::vec(0..80usize, 0..4),
        merge in any::<bool>(),
    ) {
        let mut samples = samples;
        if sorted {
            samples.sort_by_key(|(ts, _)| *ts);
        }
        let span = Span { from, to: from + length };
        let mut fold = Fold::new(ValueType::Float, step, span);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut % (samples.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(samples.len());
        let budget = BucketBudget::of(usize::MAX);
        let mut at = 0;
        for cut in cuts {
            let columns = float_columns(&samples[at..cut]);
            if merge {
                let mut later = Fold::new(ValueType::Float, step, span);
                later.add_all(1, &columns);
                budget.merge(&mut fold, later).unwrap();
            } else {
                fold.add_all(1, &columns);
            }
            at = cut;
        }
        let found = fold.finish();
        for row in 0..found.len() {
            let [min, max] = [&found.min, &found.max].map(|values| values.number(row).unwrap());
            let mean = found.mean[row];
            prop_assert!(mean.is_nan() || (min <= mean && mean <= max), "{min} {mean} {max}");
        }
        prop_assert_eq!(rows(&found), plainly(&samples, step, span));
    }

    #[test]
    fn finer_buckets_to_coarser(
        samples in prop::collection::vec((-300..300i64, -100i64..100), 0..80),
        step in 1..20i64,
        times in 1..9i64,
    ) {
        let mut samples: Vec<_> = samples.iter().map(|(ts, v)| (*ts, *v as f64)).collect();
        samples.sort_by_key(|(ts, _)| *ts);
        let mut fine = Fold::new(ValueType::Float, step, Span::ALL);
        fine.add_all(1, &float_columns(&samples));
        let mut coarse = Fold::new(ValueType::Float, step * times, Span::ALL);
        coarse.add_buckets(&fine.finish());
        prop_assert_eq!(rows(&coarse.finish()), plainly(&samples, step * times, Span::ALL));
    }
}

#[test]
fn every_type() {
    let of = |value_type, values: &[Value]| {
        let samples = values
            .iter()
            .zip(1..)
            .map(|(value, n)| (n, n as i64, value.clone()));
        let mut fold = Fold::new(value_type, 100, Span::ALL);
        fold.add_all(1, &columns(value_type, samples));
        let row = rows(&fold.finish()).remove(0);
        let values = row.values.join(" ");
        format!("{} {} {values}", row.held_ns, row.mean)
    };
    let max = i64::MAX;
    let check = |found: String, expect: &str| assert_eq!(found, expect);
    check(
        of(ValueType::Int, &[max.into(), (max - 1).into()]),
        "1 9.223372e18 9223372036854775806 9223372036854775807 9223372036854775806",
    );
    check(
        of(ValueType::Bool, &[true.into(), false.into(), false.into()]),
        "2 5.000000e-1 false true false",
    );
    check(
        of(ValueType::Text, &[Value::text("z"), Value::text("a")]),
        "1 NaN a a a",
    );
    check(
        of(ValueType::Float, &[f64::NAN.into()]),
        "0 NaN NaN NaN NaN",
    );
}

/// Seconds, a value and its quality.
type Looked = (i64, f64, Quality);

/// A value holds across chunks of one life, and not beyond a last look, another life or the end of
/// an hour.
#[test]
fn what_holds() {
    const S: i64 = 1_000_000_000;
    const NONE: [i64; 0] = [];
    let held = |chunks: &[(i64, &[Looked])], until: Option<(i64, i64)>| {
        let mut fold = Fold::new(ValueType::Float, S, Span::ALL);
        for (life, samples) in chunks {
            let mut columns = float_columns(&[]);
            for (at, (s, value, quality)) in samples.iter().enumerate() {
                let mut sample = Sample::measured(s * S, *value);
                sample.quality = *quality;
                columns.push(at as u64 + 1, &sample);
            }
            fold.add_all(*life, &columns);
        }
        if let Some((life, s)) = until {
            assert!(fold.hold_until(life, s * S));
        }
        let buckets = fold.finish();
        let row = |row: usize| (buckets.ts[row] / S, buckets.held_ns[row] / S as u64);
        let all: Vec<(i64, u64)> = (0..buckets.len()).map(row).collect();
        let whole = all.iter().filter(|(_, held)| *held == 1);
        whole.map(|(s, _)| *s).collect::<Vec<i64>>()
    };
    use Quality::{Ended, Measured};
    let first: &[_] = &[(1, 5.0, Measured)];
    assert_eq!(held(&[(1, first)], None), NONE);
    assert_eq!(held(&[(1, first)], Some((1, 4))), [1, 2, 3]);
    assert_eq!(held(&[(1, first)], Some((2, 4))), NONE, "of another life");
    assert_eq!(
        held(&[(1, first), (1, &[(3, 6.0, Measured)])], None),
        [1, 2]
    );
    assert_eq!(held(&[(1, first), (2, &[(3, 6.0, Measured)])], None), NONE);
    let ended: &[_] = &[(1, 5.0, Measured), (3, 5.0, Ended), (9, 5.0, Measured)];
    assert_eq!(held(&[(1, ended)], Some((1, 11))), [1, 2, 9, 10]);
    assert_eq!(held(&[(1, &ended[..2]), (1, &ended[2..])], None), [1, 2]);
    let late: &[_] = &[(3_598, 5.0, Measured), (3_605, 5.0, Measured)];
    assert_eq!(held(&[(1, late)], None), NONE);
    let late: &[_] = &[
        (3_597, 5.0, Measured),
        (3_599, 5.0, Measured),
        (3_600, 5.0, Measured),
    ];
    assert_eq!(
        held(&[(1, late)], Some((1, 3_602))),
        [3_597, 3_598, 3_600, 3_601]
    );
}

/// A value may hold for more buckets than there is room for.
#[test]
fn what_holds_for_long_is_bounded() {
    let samples = [(0, 1.0), (3_000_000_000_000, 2.0)];
    let columns = float_columns(&samples);
    let mut fold = Fold::new(ValueType::Float, 1_000, Span::ALL);
    let budget = BucketBudget::of(1 << 20);
    let add = |fold: &mut Fold, at| fold.add(1, &columns, at);
    let refused = budget.add(&mut fold, columns.len(), add);
    assert!(matches!(refused, Err(ArchiveError::TooManyBuckets)));
    assert!(fold.len() < 2 << 20);
}

#[test]
fn the_ends_of_time() {
    let mut fold = Fold::new(ValueType::Float, 3_600_000_000_000, Span::ALL);
    let samples = [(i64::MIN, 1.0), (i64::MIN + 1, 2.0), (i64::MAX, 3.0)];
    fold.add_all(1, &float_columns(&samples));
    let buckets = fold.finish();
    assert_eq!([buckets.count[0], *buckets.count.last().unwrap()], [2, 1]);
    assert_eq!(buckets.ts[0], i64::MIN);
}

const TYPES: [(&str, ValueType); 4] = [
    ("a", ValueType::Float),
    ("b", ValueType::Int),
    ("c", ValueType::Bool),
    ("d", ValueType::Text),
];

/// Makes four samples a second of every type, for the `at`th 10,000 seconds.
fn typed(at: i64) -> Vec<Part> {
    let value = |value_type, row: i64| match value_type {
        ValueType::Float => Value::Float(row as f64 * 0.1),
        // Beyond the exact range of a double.
        ValueType::Int if row % 1_000 == 0 => Value::Int(i64::MAX - row),
        ValueType::Int => Value::Int(row * row),
        ValueType::Bool => Value::Bool(row % 3 == 0),
        _ => Value::text(&format!("t{}", row / 100)),
    };
    let part = |(name, value_type): (&str, ValueType)| {
        let rows = at * 40_000..(at + 1) * 40_000;
        let samples = rows.map(|row| (row as u64 + 1, row * 250_000_000, value(value_type, row)));
        Part {
            descriptor: descriptor(name, "d", value_type),
            // Each file has its own life, so that tiers lose nothing where files meet.
            life: at + 1,
            columns: columns(value_type, samples),
        }
    };
    TYPES.map(part).into()
}

/// Returns the buckets of a second of each part.
fn seconds(parts: &[Part]) -> Vec<(Arc<Descriptor>, Buckets)> {
    let fold = |part: &Part| {
        let mut fold = Fold::new(part.descriptor.value_type, 1_000_000_000, Span::ALL);
        fold.add_all(part.life, &part.columns);
        (Arc::clone(&part.descriptor), fold.finish())
    };
    parts.iter().map(fold).collect()
}

/// Raw files read by several threads give the same as one fold over their samples, and so do tiers
/// made of them.
#[test]
fn files_by_threads() {
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<Vec<Part>> = (0..3).map(typed).collect();
    let (mut raw, mut tier) = (Vec::new(), Vec::new());
    for (at, parts) in files.iter().enumerate() {
        let path = dir.path().join(format!("raw{at}"));
        write(&path, parts);
        raw.push(ParquetPart::open(&path).unwrap());
        let path = dir.path().join(format!("tier{at}"));
        write_tier(&path, Tier::Second, &seconds(parts));
        tier.push(ParquetPart::open(&path).unwrap());
        assert_eq!(tier[at].check().unwrap(), 40_000);
    }
    // Whole seconds, so that buckets and samples are cut alike.
    let span = Span {
        from: 3_000_000_000,
        to: 28_999_999_999_999,
    };
    let step_ns = 60_000_000_000;
    let cancel = AtomicBool::new(false);
    for (key, (name, value_type)) in TYPES.into_iter().enumerate() {
        let mut fold = Fold::new(value_type, step_ns, span);
        for parts in &files {
            fold.add_all(parts[key].life, &parts[key].columns);
        }
        let expect = rows(&fold.finish());
        for (parts, threads) in [(&raw, 1), (&raw, 4), (&tier, 2)] {
            // Row groups share buckets where they meet.
            let budget = BucketBudget::of(expect.len() + 16);
            let ask = FoldRequest {
                span,
                read: Span::ALL,
                step_ns,
                threads,
                cancel: &cancel,
                budget: &budget,
            };
            let parts: Vec<&ParquetPart> = parts.iter().collect();
            let wanted = |_: usize, series: &IndexSeries| {
                (series.descriptor.name.as_str() == name).then_some(key)
            };
            let mut all = aggregate(&parts, &wanted, &ask).unwrap();
            assert_eq!(all.len(), 1);
            let found = rows(&all.remove(&key).unwrap().finish());
            let other = found
                .iter()
                .zip(&expect)
                .find(|(found, expect)| found != expect);
            assert_eq!(
                (other, found.len()),
                (None, expect.len()),
                "{name} by {threads}"
            );
            let budget = BucketBudget::of(expect.len() - 1);
            let ask = FoldRequest {
                budget: &budget,
                ..ask
            };
            let refused = aggregate(&parts, &wanted, &ask);
            assert!(
                matches!(refused, Err(ArchiveError::TooManyBuckets)),
                "{name} by {threads}"
            );
        }
    }
}
