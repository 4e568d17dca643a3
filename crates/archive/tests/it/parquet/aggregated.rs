//! Buckets: against what each says, computed in the plainest way.

use std::collections::BTreeMap;

use barograph_archive::ArchiveError;
use barograph_archive::aggregate::{Ask, Budget, Fold, aggregate};
use barograph_archive::parquet::IndexSeries;
use barograph_model::Values;
use proptest::prelude::*;

use super::*;

/// Start, count, mean, least, greatest and last of one bucket, as text: so that NaN is itself.
type Plain = (i64, u64, String, String, String, String);

fn rows(buckets: &Buckets) -> Vec<Plain> {
    let text = |values: &Values, row: usize| values.get(row).unwrap().to_string();
    let row = |row: usize| {
        (
            buckets.ts[row],
            buckets.count[row],
            format!("{:.6e}", buckets.mean[row]),
            text(&buckets.min, row),
            text(&buckets.max, row),
            text(&buckets.last, row),
        )
    };
    (0..buckets.len()).map(row).collect()
}

/// By a map: one sample after another.
fn plainly(samples: &[(i64, f64)], step: i64, span: Span) -> Vec<Plain> {
    let mut by_start: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (ts, value) in samples.iter().filter(|(ts, _)| span.holds(*ts)) {
        by_start
            .entry(ts - ts.rem_euclid(step))
            .or_default()
            .push(*value);
    }
    let row = |(start, values): (i64, Vec<f64>)| {
        let known: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let min = known.iter().copied().fold(f64::NAN, f64::min);
        let max = known.iter().copied().fold(f64::NAN, f64::max);
        let last = values[values.len() - 1];
        (
            start,
            values.len() as u64,
            format!("{mean:.6e}"),
            min.to_string(),
            max.to_string(),
            last.to_string(),
        )
    };
    by_start.into_iter().map(row).collect()
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
        let mut fold = Fold::new(ValueType::Float, step);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut % (samples.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(samples.len());
        let mut at = 0;
        for cut in cuts {
            let columns = float_columns(&samples[at..cut]);
            if merge {
                let mut later = Fold::new(ValueType::Float, step);
                later.add(&columns, span);
                fold.merge(later);
            } else {
                fold.add(&columns, span);
            }
            at = cut;
        }
        assert_eq!(rows(&fold.finish()), plainly(&samples, step, span));
    }

    #[test]
    fn finer_buckets_to_coarser(
        samples in prop::collection::vec((-300..300i64, -100i64..100), 0..80),
        step in 1..20i64,
        times in 1..9i64,
    ) {
        let samples: Vec<_> = samples.iter().map(|(ts, v)| (*ts, *v as f64)).collect();
        let mut fine = Fold::new(ValueType::Float, step);
        fine.add(&float_columns(&samples), Span::ALL);
        let mut sorted = samples.clone();
        // Of a coarse bucket, the last value is that of its last fine one.
        sorted.sort_by_key(|(ts, _)| ts.div_euclid(step));
        let mut coarse = Fold::new(ValueType::Float, step * times);
        coarse.add_buckets(&fine.finish(), Span::ALL);
        assert_eq!(rows(&coarse.finish()), plainly(&sorted, step * times, Span::ALL));
    }
}

#[test]
fn every_type() {
    let of = |value_type, values: &[Value]| {
        let samples = values
            .iter()
            .zip(1..)
            .map(|(value, n)| (n, n as i64, value.clone()));
        let mut fold = Fold::new(value_type, 100);
        fold.add(&columns(value_type, samples), Span::ALL);
        format!("{:?}", rows(&fold.finish()))
    };
    let max = i64::MAX;
    insta::assert_snapshot!(of(ValueType::Int, &[max.into(), (max - 1).into()]), @r#"[(0, 2, "9.223372e18", "9223372036854775806", "9223372036854775807", "9223372036854775806")]"#);
    insta::assert_snapshot!(of(ValueType::Bool, &[true.into(), false.into()]), @r#"[(0, 2, "5.000000e-1", "false", "true", "false")]"#);
    insta::assert_snapshot!(of(ValueType::Text, &[Value::text("z"), Value::text("a")]), @r#"[(0, 2, "NaN", "a", "a", "a")]"#);
    insta::assert_snapshot!(of(ValueType::Float, &[f64::NAN.into()]), @r#"[(0, 1, "NaN", "NaN", "NaN", "NaN")]"#);
}

#[test]
fn the_ends_of_time() {
    let mut fold = Fold::new(ValueType::Float, 1_000);
    let samples = [(i64::MIN, 1.0), (i64::MIN + 1, 2.0), (i64::MAX, 3.0)];
    fold.add(&float_columns(&samples), Span::ALL);
    let buckets = fold.finish();
    assert_eq!(buckets.count, [2, 1]);
    assert_eq!(buckets.ts[0], i64::MIN);
}

const TYPES: [(&str, ValueType); 4] = [
    ("a", ValueType::Float),
    ("b", ValueType::Int),
    ("c", ValueType::Bool),
    ("d", ValueType::Text),
];

/// Four samples a second of every type, for the `at`th 10,000 seconds.
fn typed(at: i64) -> Vec<Part> {
    let value = |value_type, row: i64| match value_type {
        ValueType::Float => Value::Float(row as f64 * 0.1),
        // Beyond what a double holds.
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
            life: 1,
            columns: columns(value_type, samples),
        }
    };
    TYPES.map(part).into()
}

/// Buckets of a second of each part.
fn seconds(parts: &[Part]) -> Vec<(Arc<Descriptor>, Buckets)> {
    let fold = |part: &Part| {
        let mut fold = Fold::new(part.descriptor.value_type, 1_000_000_000);
        fold.add(&part.columns, Span::ALL);
        (Arc::clone(&part.descriptor), fold.finish())
    };
    parts.iter().map(fold).collect()
}

/// Raw files by several threads give what one fold over their samples gives; so do tiers made of them.
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
        let mut fold = Fold::new(value_type, step_ns);
        for parts in &files {
            fold.add(&parts[key].columns, span);
        }
        let expect = rows(&fold.finish());
        for (parts, threads) in [(&raw, 1), (&raw, 4), (&tier, 2)] {
            // Row groups share buckets where they meet.
            let budget = Budget::of(expect.len() + 16);
            let ask = Ask {
                span,
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
            let budget = Budget::of(expect.len() - 1);
            let ask = Ask {
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
