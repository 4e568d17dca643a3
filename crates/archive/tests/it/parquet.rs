//! Parquet files: what is written is read back, whatever it is, and damaged files are refused.

mod aggregated;
mod damaged;
mod events;
#[path = "../parquet_exercise.rs"]
mod exercise;
#[path = "../parquet_forge.rs"]
mod forge;
mod groups;
mod round_trip;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::parquet::{FileIdentity, FileSummary, ParquetPart, RawWriter, TierWriter};
use barograph_archive::{ArchiveError, DiskStorage, FileAccess, Storage as _, Tier};
use barograph_model::{
    Buckets, Columns, Descriptor, Kind, Labels, Name, Sample, Span, Unit, Value, ValueType,
};

/// Samples of one life of one series.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    descriptor: Arc<Descriptor>,
    life: i64,
    columns: Columns,
}

fn descriptor(name: &str, device: &str, value_type: ValueType) -> Arc<Descriptor> {
    Arc::new(Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new([("device", device)]).unwrap(),
        value_type,
        unit: Unit::new("bytes").unwrap(),
        kind: Kind::Gauge,
        help: format!("What {name} is."),
    })
}

fn columns(value_type: ValueType, samples: impl IntoIterator<Item = (u64, i64, Value)>) -> Columns {
    let mut columns = Columns::new(value_type);
    for (number, ts, value) in samples {
        assert!(columns.push(number, &Sample::measured(ts, value)));
    }
    columns
}

fn about(tier: Tier) -> FileIdentity {
    FileIdentity {
        node: "n/1".into(),
        tier,
        sequences: (3, 7),
    }
}

fn place(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("3-7.parquet")
}

fn write(path: &Path, parts: &[Part]) -> FileSummary {
    let out = DiskStorage.create(path, FileAccess::Shared).unwrap();
    let mut writer = RawWriter::create(out, path, about(Tier::Raw)).unwrap();
    for part in parts {
        let id = part.descriptor.series_id();
        let written = writer.write(id, &part.descriptor, part.life, &part.columns);
        written.unwrap();
    }
    writer.finish().unwrap()
}

fn write_tier(path: &Path, tier: Tier, all: &[(Arc<Descriptor>, Buckets)]) -> FileSummary {
    let out = DiskStorage.create(path, FileAccess::Shared).unwrap();
    let mut writer = TierWriter::create(out, path, about(tier)).unwrap();
    for (descriptor, buckets) in all {
        let id = descriptor.series_id();
        writer.write(id, descriptor, buckets).unwrap();
    }
    writer.finish().unwrap()
}

/// Reads all samples of a file within the span; chunks of one life are joined.
fn read(path: &Path, span: Span) -> Result<Vec<Part>, ArchiveError> {
    let part = ParquetPart::open(path)?;
    let index = part.index()?;
    let mut parts: Vec<Part> = Vec::new();
    let go_on = AtomicBool::new(false);
    part.read(&|_| true, span, &go_on, &mut |series, life, columns| {
        let descriptor = &index.series[series].descriptor;
        match parts.last_mut() {
            Some(last) if last.descriptor == *descriptor && last.life == life => {
                for row in 0..columns.len() {
                    let sample = columns.sample(row).unwrap();
                    assert!(last.columns.push(columns.numbers[row], &sample));
                }
            }
            _ => parts.push(Part {
                descriptor: Arc::clone(descriptor),
                life,
                columns,
            }),
        }
        Ok(())
    })?;
    Ok(parts)
}
