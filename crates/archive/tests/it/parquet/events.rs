//! Files with columns of file events: other programs find them, and our reader reads what it always
//! read.

use std::fs::File;

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::RowAccessor as _;
use barograph_archive::{EventFields, EventReader};

use super::*;

/// Reads records of the form `KIND PATH OLD SIZE INDEX`; `-` is nothing.
#[derive(Debug)]
struct Words;

impl EventReader for Words {
    fn stream(&self) -> &'static str {
        "events"
    }

    fn source_label(&self) -> &'static str {
        "device"
    }

    fn read<'a>(&self, record: &'a [u8]) -> Option<EventFields<'a>> {
        let words: Vec<&[u8]> = record.split(|byte| *byte == b' ').collect();
        let [kind, path, old_path, size, index] = words[..] else {
            return None;
        };
        let number = |word| std::str::from_utf8(word).ok()?.parse().ok();
        Some(EventFields {
            kind: if kind == b"create" {
                "create"
            } else {
                "rename"
            },
            path,
            old_path: if old_path == b"-" { b"" } else { old_path },
            size: number(size),
            uid: None,
            gid: Some(7),
            job: "",
            is_directory: false,
            is_complete: true,
            index: number(index)?,
        })
    }
}

/// A series of each kind, of which one is of events.
fn specimen() -> Vec<Part> {
    let records: [&[u8]; 4] = [
        b"create /data/a - 5 1",
        b"no record",
        b"rename /data/\xff /data/a - 2",
        b"create /data/b - 18446744073709551615 3",
    ];
    let events = (1..).zip(records);
    let events =
        events.map(|(number, record)| (number, 10 * number as i64, Value::Bytes(record.into())));
    let part = |name: &str, value_type, columns| Part {
        descriptor: descriptor(name, "tree", value_type),
        life: 1,
        columns,
    };
    let one = |value: Value| columns(value.value_type(), [(1, 5, value)]);
    let bytes = Value::Bytes((*b"create /x - 1 1").into());
    vec![
        part("app.a", ValueType::Int, one(Value::Int(7))),
        part("app.bytes", ValueType::Bytes, one(bytes)),
        part(
            "events",
            ValueType::Bytes,
            columns(ValueType::Bytes, events),
        ),
        part("z", ValueType::Text, one(Value::text("t"))),
    ]
}

/// The columns of events as another program reads them, a line for each row.
fn shown(path: &Path) -> Vec<String> {
    let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let at = |name: &str| {
        let mut columns = schema.columns().iter();
        columns.position(|column| column.name() == name).unwrap()
    };
    let rows = file.get_row_iter(None).unwrap().map(Result::unwrap);
    rows.map(|row| {
        let text = |name| row.get_string(at(name)).map_or("-", String::as_str);
        let int = |name| {
            row.get_long(at(name))
                .map_or("-".to_owned(), |n| n.to_string())
        };
        let bytes = row.get_bytes(at("path_bytes")).map(|bytes| bytes.len());
        let texts = ["name", "kind", "path", "old_path"].map(text).join(" ");
        let ints = ["size", "gid", "idx"].map(int).join(" ");
        format!("{texts} {ints} {} {:?}", text("source"), bytes.ok())
    })
    .collect()
}

#[test]
fn events_are_columns_beside_their_records() {
    let parts = specimen();
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    let out = DiskStorage.create(&path, FileAccess::Shared).unwrap();
    let reader: Arc<dyn EventReader> = Arc::new(Words);
    let mut writer = RawWriter::with_events(out, &path, about(Tier::Raw), Some(reader)).unwrap();
    for part in &parts {
        let id = part.descriptor.series_id();
        let written = writer.write(id, &part.descriptor, part.life, &part.columns);
        written.unwrap();
    }
    writer.finish().unwrap();
    // Our reader has the samples, and finds the file whole.
    assert_eq!(read(&path, Span::ALL).unwrap(), parts);
    assert_eq!(ParquetPart::open(&path).unwrap().check().unwrap(), 7);
    assert_eq!(
        shown(&path),
        [
            "app.a - - - - - - - None",
            "app.bytes - - - - - - - None",
            "events create /data/a - 5 7 1 tree None",
            "events - - - - - - - None",
            "events rename /data/\u{fffd} /data/a - 7 2 tree Some(7)",
            "events create /data/b - 9223372036854775807 7 3 tree None",
            "z - - - - - - - None",
        ]
    );
}

#[test]
fn only_files_with_these_columns_have_the_newer_version() {
    let dir = tempfile::tempdir().unwrap();
    let format = |events: Option<Arc<dyn EventReader>>| {
        let path = dir.path().join(format!("{}", events.is_some()));
        let out = DiskStorage.create(&path, FileAccess::Shared).unwrap();
        let writer = RawWriter::with_events(out, &path, about(Tier::Raw), events).unwrap();
        writer.finish().unwrap();
        let file = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let pairs = file.metadata().file_metadata().key_value_metadata();
        let mut pairs = pairs.unwrap().iter();
        let found = pairs.find(|pair| pair.key == "barograph.format");
        found.unwrap().value.clone().unwrap()
    };
    assert_eq!(format(None), "3", "older agents read it");
    assert_eq!(format(Some(Arc::new(Words))), "4");
}
