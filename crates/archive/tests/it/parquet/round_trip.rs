//! Every series, life, type and value is read back as it was written.

use barograph_archive::FileAccess;
use barograph_model::{Quality, Values};
use proptest::prelude::*;

use super::*;

/// Returns a part as bits, so that NaN equals itself.
fn bits(part: &Part) -> (Vec<u64>, Vec<i64>, String, Vec<Quality>, Vec<u32>) {
    let values = match &part.columns.values {
        Values::Float(v) => format!("{:x?}", v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()),
        values => format!("{values:?}"),
    };
    let error = part.columns.error.iter().map(|error| error.to_bits());
    let columns = &part.columns;
    (
        columns.numbers.clone(),
        columns.ts.clone(),
        values,
        columns.quality.clone(),
        error.collect(),
    )
}

fn same(a: &[Part], b: &[Part]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!((&a.descriptor, a.life), (&b.descriptor, b.life));
        assert_eq!(bits(a), bits(b), "{}", a.descriptor);
    }
}

fn value(value_type: ValueType) -> BoxedStrategy<Value> {
    match value_type {
        ValueType::Int => prop_oneof![
            any::<i64>(),
            -9i64..9,
            Just(i64::MAX),
            Just(i64::MIN),
            Just((1 << 53) + 1)
        ]
        .prop_map(Value::Int)
        .boxed(),
        ValueType::Float => prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(-0.0),
            Just(0.0),
            0.0..1.0
        ]
        .prop_map(Value::Float)
        .boxed(),
        ValueType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ValueType::Text => any::<String>()
            .prop_map(|text| Value::Text(text.repeat(5).into()))
            .boxed(),
        ValueType::Json => any::<String>()
            .prop_map(|text| Value::Json(text.into()))
            .boxed(),
        ValueType::Bytes => prop::collection::vec(any::<u8>(), 0..300)
            .prop_map(|bytes| Value::Bytes(bytes.into()))
            .boxed(),
        ValueType::Floats => prop::collection::vec(0.0..1.0, 0..40)
            .prop_map(|floats: Vec<f64>| Value::Floats(floats.into()))
            .boxed(),
    }
}

fn samples(value_type: ValueType) -> impl Strategy<Value = Columns> {
    let plain = prop_oneof![Just((0u8, 0f32)), (0..4u8, any::<f32>())];
    let step = prop_oneof![3 => Just(1u64), 1 => 1..1000u64];
    let ts = prop_oneof![3 => 0..1_000_000i64, 1 => any::<i64>()];
    let row = (step, ts, value(value_type), plain);
    prop::collection::vec(row, 1..60).prop_map(move |rows| {
        let mut columns = Columns::new(value_type);
        let mut number = 0;
        for (step, ts, value, (quality, error)) in rows {
            number += step;
            let quality = Quality::from_u8(quality).unwrap();
            let sample = Sample {
                ts,
                value,
                quality,
                error,
            };
            assert!(columns.push(number, &sample));
        }
        columns
    })
}

fn series(at: usize) -> impl Strategy<Value = Vec<Part>> {
    let types = prop_oneof![
        Just(ValueType::Int),
        Just(ValueType::Float),
        Just(ValueType::Bool),
        Just(ValueType::Text),
        Just(ValueType::Bytes),
        Just(ValueType::Json),
        Just(ValueType::Floats)
    ];
    (types, ".{0,20}").prop_flat_map(move |(value_type, device)| {
        let descriptor = descriptor(&format!("a{at}.x"), &device, value_type);
        let lives = prop::collection::btree_map(any::<i64>(), samples(value_type), 1..4);
        lives.prop_map(move |lives| {
            let part = |(life, columns)| Part {
                descriptor: Arc::clone(&descriptor),
                life,
                columns,
            };
            lives.into_iter().map(part).collect()
        })
    })
}

fn file() -> impl Strategy<Value = Vec<Part>> {
    let all: Vec<_> = (0..5).map(series).collect();
    (all, 0..6usize).prop_map(|(all, count)| all.into_iter().take(count).flatten().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn anything(parts in file(), from in any::<i64>(), to in any::<i64>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = place(&dir);
        let summary = write(&path, &parts);
        let rows: usize = parts.iter().map(|part| part.columns.len()).sum();
        assert_eq!(summary.rows, rows as u64);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((summary.bytes, summary.crc32), (bytes.len() as u64, crc32(&bytes)));
        same(&read(&path, Span::ALL).unwrap(), &parts);
        let within = read(&path, Span { from, to }).unwrap();
        let expect = parts.iter().filter_map(|part| cut(part, Span { from, to }));
        same(&within, &expect.collect::<Vec<_>>());
        let part = ParquetPart::open(&path).unwrap();
        assert_eq!(part.check().unwrap(), rows as u64);
        assert_eq!(part.index().unwrap().about, about(Tier::Raw));
    }
}

/// Computes CRC-32 bit by bit: independently of the code that it is compared with.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

fn cut(part: &Part, span: Span) -> Option<Part> {
    let mut columns = Columns::new(part.descriptor.value_type);
    for row in 0..part.columns.len() {
        let sample = part.columns.sample(row).unwrap();
        if span.holds(sample.ts) {
            columns.push(part.columns.numbers[row], &sample);
        }
    }
    let descriptor = Arc::clone(&part.descriptor);
    (!columns.is_empty()).then_some(Part {
        descriptor,
        columns,
        ..*part
    })
}

/// The longest values, many times: row groups stay small, and other series lie between.
#[test]
fn the_longest_values() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    let types = [
        ValueType::Text,
        ValueType::Bytes,
        ValueType::Int,
        ValueType::Json,
        ValueType::Floats,
    ];
    let long = |value_type, row: u64| match value_type {
        ValueType::Text => Value::Text("x".repeat(65_536).into()),
        ValueType::Bytes => Value::Bytes(vec![row as u8 / 4; 65_536].into()),
        ValueType::Json => Value::Json(format!("[{row:>9000}]").into()),
        ValueType::Floats => Value::Floats(vec![row as f64; 8_192].into()),
        _ => Value::Int(row as i64),
    };
    let part = |(at, value_type): (usize, ValueType)| Part {
        descriptor: descriptor(&format!("s{at}"), "d", value_type),
        life: 1,
        columns: columns(
            value_type,
            (0..200).map(|row| (row + 1, row as i64, long(value_type, row))),
        ),
    };
    let parts: Vec<Part> = types.into_iter().enumerate().map(part).collect();
    let summary = write(&path, &parts);
    assert_eq!(summary.rows, 1_000);
    same(&read(&path, Span::ALL).unwrap(), &parts);
    assert_eq!(ParquetPart::open(&path).unwrap().check().unwrap(), 1_000);
}

/// Two row groups that meet inside of a series; only some series are read.
#[test]
fn several_row_groups() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    let of = |at: usize, rows: u64| {
        let value_type = [ValueType::Int, ValueType::Float, ValueType::Text][at % 3];
        let value = |row: u64| match value_type {
            ValueType::Int => Value::Int(row as i64 * 4096),
            ValueType::Float => Value::Float(row as f64 / 3.0),
            _ => Value::text(&format!("t{}", row / 1000)),
        };
        // One number is missing in the middle of each series.
        let number = |row: u64| row + 1 + u64::from(row > rows / 2);
        let samples = (0..rows).map(|row| (number(row), row as i64 * 1_000, value(row)));
        Part {
            descriptor: descriptor(&format!("s{at}"), "d", value_type),
            life: at as i64,
            columns: columns(value_type, samples),
        }
    };
    let parts: Vec<Part> = (0..9)
        .map(|at| of(at, 20_000 + 7_001 * at as u64))
        .collect();
    write(&path, &parts);
    same(&read(&path, Span::ALL).unwrap(), &parts);

    let part = ParquetPart::open(&path).unwrap();
    let go_on = AtomicBool::new(false);
    let mut found = Vec::new();
    let wanted = |series: &barograph_archive::parquet::IndexSeries| {
        ["s4", "s8"].contains(&series.descriptor.name.as_str())
    };
    let span = Span {
        from: 10_000_000,
        to: 60_000_000,
    };
    part.read(&wanted, span, &go_on, &mut |series, life, columns| {
        assert_eq!(series as i64, life);
        found.extend(columns.ts.iter().map(|ts| (life, *ts)));
        Ok(())
    })
    .unwrap();
    let expect = [4, 8].map(|life| {
        (10_000..48_004 + 12_997 * i64::from(life == 8)).map(move |row| (life, row * 1_000))
    });
    let expect: Vec<_> = expect
        .into_iter()
        .flatten()
        .filter(|(_, ts)| *ts <= 60_000_000)
        .collect();
    assert_eq!(found.len(), expect.len());
    assert_eq!(found, expect);
}

#[test]
fn what_is_out_of_order_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |lives: &[(i64, &[u64])]| {
        let path = dir.path().join("x");
        let _ = std::fs::remove_file(&path);
        let out = DiskStorage.create(&path, FileAccess::Shared).unwrap();
        let mut writer = RawWriter::create(out, &path, about(Tier::Raw)).unwrap();
        let descriptor = descriptor("a", "d", ValueType::Bool);
        lives.iter().any(|(life, numbers)| {
            let samples = numbers.iter().map(|number| (*number, 0, Value::Bool(true)));
            let columns = columns(ValueType::Bool, samples);
            let id = descriptor.series_id();
            writer.write(id, &descriptor, *life, &columns).is_err()
        })
    };
    assert!(!refused(&[(1, &[1, 2]), (1, &[3]), (2, &[1])]));
    assert!(refused(&[(1, &[2, 1])]));
    assert!(refused(&[(1, &[1, 2]), (1, &[2])]));
    assert!(refused(&[(2, &[1]), (1, &[1])]));
}

#[test]
fn a_file_without_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    let summary = write(&path, &[]);
    assert_eq!(summary.rows, 0);
    assert!(summary.span.from > summary.span.to);
    assert!(read(&path, Span::ALL).unwrap().is_empty());
}

#[test]
fn what_is_unlinked_goes_on_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    let samples = [(1, 5, Value::Int(7))];
    let one = Part {
        descriptor: descriptor("a", "d", ValueType::Int),
        life: 1,
        columns: columns(ValueType::Int, samples),
    };
    write(&path, &[one]);
    let part = ParquetPart::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(part.check().unwrap(), 1);
    part.forget_index();
    assert_eq!(part.index().unwrap().rows(), 1);
}
