//! Writes the Parquet files of a small archive, for other programs to read: `sample_files
//! DIRECTORY`.
//!
//! The files have two hours of a node with a float, an integer counter, an integer beyond the exact
//! range of doubles, a bool and a text, raw and by the minute. The values are computed from row
//! numbers, so that a reader can check them.

use std::path::Path;
use std::sync::Arc;

use barograph_archive::aggregate::Fold;
use barograph_archive::parquet::{FileIdentity, RawWriter, TierWriter};
use barograph_archive::{ArchiveError, ArchiveLayout, DiskStorage, FileAccess, Storage as _, Tier};
use barograph_model::{
    Columns, Descriptor, Kind, Labels, ModelError, NS_PER_S, Name, Sample, Span, Unit, Value,
    ValueType,
};

/// 2023-11-14 22:00:00 UTC.
const HOUR: i64 = 472_222;
const HOUR_NS: i64 = 3_600 * NS_PER_S;
/// Samples of a series and hour: one each second.
const ROWS: i64 = 3_600;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1);
    let directory = directory.ok_or("usage: sample_files DIRECTORY")?;
    let layout = ArchiveLayout::new(directory, "n1");
    let series = series()?;
    for at in 0..2 {
        let raw = series.iter().map(|s| (Arc::clone(s), columns(s, at)));
        write(&layout, at, &raw.collect::<Vec<_>>())?;
    }
    Ok(())
}

fn series() -> Result<Vec<Arc<Descriptor>>, ModelError> {
    let rows = [
        ("a.float.ratio", ValueType::Float, "ratio", Kind::Gauge),
        ("b.counter.bytes", ValueType::Int, "bytes", Kind::Counter),
        ("c.large.count", ValueType::Int, "count", Kind::Gauge),
        ("d.flag", ValueType::Bool, "flag", Kind::State),
        ("e.state", ValueType::Text, "state", Kind::State),
    ];
    rows.into_iter()
        .map(|(name, value_type, unit, kind)| {
            Ok(Arc::new(Descriptor {
                name: Name::new(name)?,
                labels: Labels::new([("device", "sd\"a"), ("host", "ü")])?,
                value_type,
                unit: Unit::new(unit)?,
                kind,
                help: String::new(),
            }))
        })
        .collect()
}

fn columns(series: &Descriptor, at: i64) -> Columns {
    let mut columns = Columns::new(series.value_type);
    for row in at * ROWS..(at + 1) * ROWS {
        let value = match series.name.as_str() {
            "a.float.ratio" if row % 100 == 7 => Value::Float(f64::NAN),
            "a.float.ratio" => Value::Float(row as f64 / 7.0),
            "b.counter.bytes" => Value::Int(row * 4_096),
            "c.large.count" => Value::Int((1 << 53) + row),
            "d.flag" => Value::Bool(row % 3 == 0),
            _ => Value::text(["up", "dé\"gradé"][(row % 2) as usize]),
        };
        let ts = HOUR * HOUR_NS + row * NS_PER_S + 123;
        columns.push(row as u64 + 1, &Sample::measured(ts, value));
    }
    columns
}

fn write(
    layout: &ArchiveLayout,
    at: i64,
    all: &[(Arc<Descriptor>, Columns)],
) -> Result<(), ArchiveError> {
    let sequence = at as u64 + 1;
    let about = |tier| FileIdentity {
        node: "n1".into(),
        tier,
        sequences: (sequence, sequence),
    };
    let make = |tier: Tier| {
        let partition = layout.root().join(layout.partition(tier, HOUR + at));
        let path = partition.join(format!("{sequence:016}-{sequence:016}.parquet"));
        let io = |path: &Path, source| ArchiveError::Io {
            what: "create",
            path: path.to_owned(),
            source,
        };
        DiskStorage
            .make_dir(&partition)
            .map_err(|e| io(&partition, e))?;
        let file = DiskStorage
            .create(&path, FileAccess::Shared)
            .map_err(|e| io(&path, e))?;
        Ok::<_, ArchiveError>((file, path))
    };
    let (file, path) = make(Tier::Raw)?;
    let mut raw = RawWriter::create(file, &path, about(Tier::Raw))?;
    let (file, path) = make(Tier::Minute)?;
    let mut minutes = TierWriter::create(file, &path, about(Tier::Minute))?;
    for (descriptor, columns) in all {
        let id = descriptor.series_id();
        raw.write(id, descriptor, HOUR * HOUR_NS, columns)?;
        let mut fold = Fold::new(descriptor.value_type, 60 * NS_PER_S, Span::ALL);
        fold.add_all(1, columns);
        minutes.write(id, descriptor, &fold.finish())?;
    }
    for summary in [raw.finish()?, minutes.finish()?] {
        println!("{summary:?}");
    }
    Ok(())
}
