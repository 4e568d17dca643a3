//! Damages index and pages of a Parquet file of the archive, with checksums that are made to match.
//!
//! Random bytes would end at the first checksum. So the input is a list of changes: the first byte
//! is the number of changes to the index, and each change is a position (two bytes) and a byte.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use barograph_archive::parquet::{FileIdentity, RawWriter};
use barograph_archive::{DiskStorage, Storage as _, Tier};
use barograph_model::{
    Columns, Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType,
};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/archive/tests/parquet_exercise.rs"]
mod exercise;
#[path = "../../crates/archive/tests/parquet_forge.rs"]
mod forge;

fuzz_target!(|input: &[u8]| {
    let Some((count, changes)) = input.split_first() else {
        return;
    };
    let changes = changes.chunks_exact(3);
    let changes: Vec<_> = changes
        .map(|c| (u16::from_le_bytes([c[0], c[1]]), c[2]))
        .collect();
    let (index, pages) = changes.split_at(usize::from(*count).min(changes.len()));
    let (_, path, whole) = place();
    fs::write(path, forge::forge(whole, index, pages)).expect("the directory takes files");
    exercise::read_everything(path);
});

/// The directory, the path of the damaged file, and the undamaged contents; one per process.
fn place() -> &'static (tempfile::TempDir, PathBuf, Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    PLACE.get_or_init(|| {
        // A panic in a decoder of the parquet crate is caught and reported as damage. The fuzzer's
        // own hook would end the run before that; a panic that is not caught still ends it.
        std::panic::set_hook(Box::new(|_| {}));
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let path = dir.path().join("honest");
        write(&path);
        let whole = fs::read(&path).expect("it was written just now");
        let path = dir.path().join("forged");
        (dir, path, whole)
    })
}

fn write(path: &std::path::Path) {
    let about = FileIdentity {
        node: "n".into(),
        tier: Tier::Raw,
        sequences: (1, 1),
    };
    let file = DiskStorage.create(path).expect("the directory takes files");
    let mut writer = RawWriter::create(file, path, about).expect("it is a raw file");
    let types = [
        ("a", ValueType::Int),
        ("b", ValueType::Float),
        ("c", ValueType::Bool),
        ("d", ValueType::Text),
        ("e", ValueType::Bytes),
        ("f", ValueType::Json),
        ("g", ValueType::Floats),
    ];
    for (name, value_type) in types {
        let descriptor = Arc::new(Descriptor {
            name: Name::new(name).expect("it is a name"),
            labels: Labels::none(),
            value_type,
            unit: Unit::new("x").expect("it is short"),
            kind: Kind::Gauge,
            help: String::new(),
        });
        let mut columns = Columns::new(value_type);
        for row in 1..40 {
            let value = match value_type {
                ValueType::Int => Value::Int(i64::MAX / row),
                ValueType::Float => Value::Float(1.0 / row as f64),
                ValueType::Bool => Value::Bool(row % 3 == 0),
                ValueType::Text => Value::text(["up", "down"][row as usize % 2]),
                ValueType::Bytes => Value::Bytes(vec![row as u8; 300].into()),
                ValueType::Json => Value::Json(format!("[{row}]").into()),
                ValueType::Floats => Value::Floats(vec![row as f64; 5].into()),
            };
            columns.push((row * row) as u64, &Sample::measured(row, value));
        }
        let written = writer.write(descriptor.series_id(), &descriptor, 1, &columns);
        written.expect("the samples are in order");
    }
    writer.finish().expect("the directory takes files");
}
