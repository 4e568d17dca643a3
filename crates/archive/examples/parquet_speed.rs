//! Measures speed and size: writes samples to a Parquet file, prints the bytes of each column, and
//! reads the file in buckets.
//!
//!     parquet_speed FILE made ROWS [STEP_SECONDS]     samples of 1,500 streams, made up
//!     parquet_speed FILE dump DUMP.tsv                samples of a real agent
//!
//! A dump has a line `S, name, labels, type, unit, kind, help` for each series, then its samples
//! `number, ts, value, quality, error`; the fields are separated by tabs.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a measurement: it looks at the clock, and ends where it fails"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use barograph_archive::aggregate::{BucketBudget, FoldRequest, aggregate};
use barograph_archive::parquet::{FileIdentity, ParquetPart, RawWriter};
use barograph_archive::{DiskStorage, FileAccess, Storage as _, Tier};
use barograph_model::{
    Columns, Descriptor, Labels, NS_PER_S, Name, Quality, Sample, Span, Unit, Value, ValueType,
};
use parquet::file::reader::{FileReader as _, SerializedFileReader};

const STREAMS: usize = 1_500;
const STREAMS_PER_SOURCE: usize = 50;
const START: i64 = 1_700_000_000 * NS_PER_S;

type Series = (Arc<Descriptor>, Columns);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let path = Path::new(&arguments[1]);
    let series = match arguments[2].as_str() {
        "made" => made(arguments[3].parse().unwrap()),
        _ => dumped(&std::fs::read_to_string(&arguments[3]).unwrap()),
    };
    let step: i64 = arguments.get(4).map_or(60, |step| step.parse().unwrap());
    let _ = std::fs::remove_file(path);
    write(path, &series);
    columns(path);
    for threads in [1, 2, 1, 2] {
        buckets(path, step * NS_PER_S, threads);
    }
    one(path, &series);
}

/// Returns the processor time of all threads so far, in seconds; the kernel counts in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.map(|t| t.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn write(path: &Path, series: &[Series]) {
    let about = FileIdentity {
        node: "n".into(),
        tier: Tier::Raw,
        sequences: (1, 1),
    };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut writer = RawWriter::create(
        DiskStorage.create(path, FileAccess::Shared).unwrap(),
        path,
        about,
    )
    .unwrap();
    for (descriptor, columns) in series {
        let id = descriptor.series_id();
        writer.write(id, descriptor, START, columns).unwrap();
    }
    let summary = writer.finish().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} rows, {} bytes: {:.3} bytes a sample; written in {seconds:.2} s ({:.2} s of processor): {:.2} M/s",
        summary.rows,
        summary.bytes,
        summary.bytes as f64 / summary.rows as f64,
        cpu_seconds() - cpu,
        summary.rows as f64 / seconds / 1e6
    );
}

fn columns(path: &Path) {
    let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let groups = file.metadata().row_groups();
    let rows: i64 = groups.iter().map(|group| group.num_rows()).sum();
    for (at, column) in groups[0].columns().iter().enumerate() {
        let packed: i64 = groups.iter().map(|g| g.column(at).compressed_size()).sum();
        let plain: i64 = groups
            .iter()
            .map(|g| g.column(at).uncompressed_size())
            .sum();
        println!(
            "  {:8} {:7.4} bytes a sample, {:7.4} before zstd",
            column.column_path().string(),
            packed as f64 / rows as f64,
            plain as f64 / rows as f64
        );
    }
}

fn buckets(path: &Path, step_ns: i64, threads: usize) {
    let part = ParquetPart::open(path).unwrap();
    let cancel = AtomicBool::new(false);
    let budget = BucketBudget::of(usize::MAX);
    let ask = FoldRequest {
        read: Span::ALL,
        span: Span::ALL,
        step_ns,
        threads,
        cancel: &cancel,
        budget: &budget,
    };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let index = part.index().unwrap();
    let opened = start.elapsed();
    let key = |_: usize, series: &barograph_archive::parquet::IndexSeries| {
        Some(series.first_row as usize)
    };
    let all = aggregate(&[&part], &key, &ask).unwrap();
    let count: usize = all.into_values().map(|fold| fold.finish().len()).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{count} buckets by {threads} threads in {seconds:.3} s ({:.2} s of processor): {:.1} M samples/s (index {opened:?})",
        cpu_seconds() - cpu,
        index.rows() as f64 / seconds / 1e6
    );
}

fn one(path: &Path, series: &[Series]) {
    let id = series[series.len() / 2].0.series_id();
    let go_on = AtomicBool::new(false);
    let start = Instant::now();
    let part = ParquetPart::open(path).unwrap();
    part.index().unwrap();
    let opened = start.elapsed();
    let mut rows = 0;
    part.read(
        &|series| series.id == id,
        Span::ALL,
        &go_on,
        &mut |_, _, columns| {
            rows += columns.len();
            Ok(())
        },
    )
    .unwrap();
    let elapsed = start.elapsed();
    println!("one series of {rows} rows in {elapsed:?}, of which {opened:?} is the index");
}

fn descriptor(name: &str, labels: Labels, value_type: ValueType, unit: &str) -> Arc<Descriptor> {
    Arc::new(Descriptor {
        labels,
        ..Descriptor::gauge(
            Name::new(name).unwrap(),
            value_type,
            Unit::new(unit).unwrap(),
        )
    })
}

/// Makes counters, gauges and noise; sources are polled once a second, up to some tens of
/// microseconds late.
fn made(rows: usize) -> Vec<Series> {
    let mut seed = 1u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let rows = rows / STREAMS;
    let mut ts = Vec::new();
    let mut all = Vec::new();
    for at in 0..STREAMS {
        if at % STREAMS_PER_SOURCE == 0 {
            let look = |row: usize| START + row as i64 * NS_PER_S + (random() % 50_000) as i64;
            ts = (0..rows).map(look).collect();
        }
        let value_type = [ValueType::Int, ValueType::Float][at % 2];
        let labels = Labels::new([("device", format!("d{}", at % 20))]).unwrap();
        let descriptor = descriptor(&format!("m{:04}.x", at), labels, value_type, "bytes");
        let mut columns = Columns::new(value_type);
        let mut counter = 0;
        for (row, ts) in ts.iter().enumerate() {
            counter += (random() % 200) as i64 * 512;
            let value = match at % 4 {
                0 => Value::Int(counter),
                1 => Value::Float((random() % 1_000_000) as f64 / 1_000_003.0),
                2 => Value::Int((random() % 4_096) as i64 * 4_096 + (1 << 30)),
                _ => Value::Float(counter as f64 / 100.0),
            };
            columns.push(row as u64 + 1, &Sample::measured(*ts, value));
        }
        all.push((descriptor, columns));
    }
    all
}

fn dumped(text: &str) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "S" {
            let labels: std::collections::BTreeMap<String, String> =
                serde_json::from_str(fields[2]).unwrap();
            let value_type = match fields[3] {
                "int64" => ValueType::Int,
                "float64" => ValueType::Float,
                "bool" => ValueType::Bool,
                _ => ValueType::Text,
            };
            let labels = Labels::new(labels).unwrap();
            let series = descriptor(fields[1], labels, value_type, fields[4]);
            all.push((series, Columns::new(value_type)));
            continue;
        }
        let (series, columns) = all.last_mut().unwrap();
        let value = match series.value_type {
            ValueType::Int => Value::Int(fields[2].parse().unwrap()),
            ValueType::Float => Value::Float(fields[2].parse().unwrap()),
            ValueType::Bool => Value::Bool(fields[2] == "True"),
            _ => Value::text(fields[2]),
        };
        let quality = (0..4).filter_map(Quality::from_u8);
        let sample = Sample {
            ts: fields[1].parse().unwrap(),
            value,
            quality: quality
                .into_iter()
                .find(|q| q.as_str() == fields[3])
                .unwrap(),
            error: fields[4].parse().unwrap(),
        };
        columns.push(fields[0].parse().unwrap(), &sample);
    }
    all
}
