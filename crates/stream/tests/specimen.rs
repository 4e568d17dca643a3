//! A small segment to damage: streams of every type and a retired slot. The fuzz target uses it
//! too.

use std::path::{Path, PathBuf};

use barograph_model::{Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType};
use barograph_stream::{Segment, SegmentConfig};

/// Slots of the small segment.
pub(crate) const SLOTS: u32 = 9;

/// Creates the complete segment in `dir`; its writer is gone.
pub(crate) fn small(dir: &Path) -> PathBuf {
    let path = dir.join("segment");
    let config = SegmentConfig {
        streams_max: SLOTS,
        depth_default: 8,
        ring_bytes_max: 16 << 10,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&path, config, 1).expect("there is room");
    let value = |value_type, n: i64| match value_type {
        ValueType::Int => Value::Int(n),
        ValueType::Float => Value::Float(n as f64),
        ValueType::Bool => Value::Bool(n % 2 == 0),
        ValueType::Text => Value::text(&format!("text {n}")),
        ValueType::Bytes => Value::Bytes(vec![n as u8; 60].into()),
        ValueType::Json => Value::Json(format!("[{n}]").into()),
        ValueType::Floats => Value::Floats([n as f64; 8].into()),
    };
    let mut register = |name: &str, value_type, bytes_max| {
        let stream = Descriptor {
            name: Name::new(name).expect("a good name"),
            labels: Labels::new([("device", "vda")]).expect("good labels"),
            value_type,
            unit: Unit::new("bytes").expect("a good unit"),
            kind: Kind::Gauge,
            help: "what it is".into(),
        };
        let writer = segment.register_sized(&stream, Some(8), bytes_max, 1);
        let mut writer = writer.expect("there is room");
        for n in 1..=20 {
            let sample = Sample::measured(n, value(value_type, n));
            writer.append(&sample).expect("of the declared type");
        }
        writer
    };
    let gone = register("gone.bytes", ValueType::Int, None);
    register("here.int64", ValueType::Int, None);
    register("here.float64", ValueType::Float, None);
    register("here.bool", ValueType::Bool, None);
    register("here.string", ValueType::Text, None);
    register("long.string", ValueType::Text, Some(127));
    register("long.bytes", ValueType::Bytes, Some(1));
    register("long.json", ValueType::Json, Some(64));
    register("long.floats", ValueType::Floats, Some(65));
    segment.retire(gone);
    path
}
