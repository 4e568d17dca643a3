//! The two readers in `docs/reference`, which share no code with this crate, read segments of ours.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use barograph_model::{Descriptor, Kind, Labels, Name, Quality, Sample, Unit, Value, ValueType};
use barograph_stream::{LatestSample, Segment, SegmentConfig, SegmentReader, StreamWriter};
use serde_json::Value as Json;

use crate::hammer::with_writer;
use crate::pattern::{TYPES, mix, rounds, sample};

/// Slots of the segment that these tests create.
const SLOTS: usize = 64;

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

/// Compiles the C reader, once.
fn c_reader() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("read_segment");
        let output = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-std=c11", "-o"])
            .arg(&program)
            .arg(documents().join("read_segment.c"))
            .output()
            .expect("these tests need a C compiler, cc");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        (dir, program)
    });
    program
}

fn run_c(arguments: &[&str]) -> Output {
    Command::new(c_reader()).args(arguments).output().unwrap()
}

fn run_python(arguments: &[&str]) -> Output {
    Command::new("python3")
        .arg(documents().join("read_segment.py"))
        .args(arguments)
        .output()
        .expect("these tests need python3")
}

/// The output of both readers, which must be the same.
fn lines(arguments: &[&str]) -> Vec<String> {
    let [c, python] = [run_c(arguments), run_python(arguments)].map(|output| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    });
    assert_eq!(c, python, "C left, Python right");
    c.lines().map(String::from).collect()
}

/// A line of output, parsed. Numbers are compared as text: serde's floats are not exact.
struct Line {
    json: Json,
    text: String,
}

impl Line {
    fn new(text: &str) -> Self {
        Self {
            json: serde_json::from_str(text).expect(text),
            text: text.into(),
        }
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        let start = self.text.rfind(&format!("\"{key}\":"))? + key.len() + 3;
        let end = start + self.text[start..].find([',', '}'])?;
        self.text[start..end].parse().ok()
    }

    /// Panics unless the line is this sample of this stream.
    fn check(&self, stream: &Descriptor, sample: &Sample, count: u64, looked_ns: i64) {
        let json = &self.json;
        assert_eq!(json["name"], stream.name.as_str());
        let labels = json["labels"].as_object().unwrap();
        assert_eq!(labels.len(), stream.labels.iter().len());
        for (name, value) in stream.labels.iter() {
            assert_eq!(labels[name], value);
        }
        assert_eq!(json["type"], stream.value_type.as_str());
        assert_eq!(json["unit"], stream.unit.as_str());
        assert_eq!(json["kind"], stream.kind.as_str());
        assert_eq!(json["series"], stream.series_id().to_string());
        assert_eq!(json["quality"], sample.quality.as_str());
        assert_eq!(json["ts"], sample.ts);
        assert_eq!(json["count"], count);
        assert_eq!(json["looked_ts"], looked_ns);
        assert_eq!(self.number::<f32>("error"), Some(sample.error));
        match &sample.value {
            Value::Int(v) => assert_eq!(json["value"], *v),
            Value::Bool(v) => assert_eq!(json["value"], *v),
            Value::Text(v) | Value::Json(v) => assert_eq!(json["value"], **v),
            Value::Bytes(_) => assert_eq!(json["value"], sample.value.to_string()),
            Value::Floats(v) => {
                let found = json["value"].as_array().unwrap();
                let found: Vec<_> = found.iter().map(Json::as_f64).collect();
                let expect = v.iter().map(|v| Some(*v).filter(|v| v.is_finite()));
                assert_eq!(found, expect.collect::<Vec<_>>());
            }
            Value::Float(v) if !v.is_finite() => assert!(json["value"].is_null()),
            Value::Float(v) => {
                let found = self.number::<f64>("value").unwrap();
                assert_eq!(found.to_bits(), v.to_bits(), "{}", self.text);
            }
        }
    }
}

fn values() -> Vec<Value> {
    let ints = [0, 1, -1, i64::MAX, i64::MIN].map(Value::Int);
    let floats = [
        0.0,
        -0.0,
        0.1,
        1e300,
        5e-324,
        f64::MAX,
        f64::NAN,
        f64::NEG_INFINITY,
        123_456.789,
    ];
    let texts = [
        "",
        "plain",
        "quote \" back \\ slash / tab \t line \n feed \u{c} bell \u{7} del \u{7f}",
        "é € 𝄞 \u{fffd}",
        &"x".repeat(126),
    ];
    ints.into_iter()
        .chain(floats.map(Value::Float))
        .chain([true, false].map(Value::Bool))
        .chain(texts.map(Value::text))
        .chain([Value::Text("long é".repeat(40).into())])
        .chain([0, 1, 4_096].map(|length| Value::Bytes(vec![0xa5; length].into())))
        .chain([Value::Json("{\"a\":[1,\"é\"]}".into())])
        .chain([&[][..], &[0.5, -1e300, f64::NAN]].map(|v| Value::Floats(v.into())))
        .collect()
}

fn stream(i: usize, value_type: ValueType) -> Descriptor {
    let labels = match i % 3 {
        0 => Labels::none(),
        1 => Labels::new([("device", "vda")]).unwrap(),
        _ => Labels::new([
            ("mount", "/a \"b\"\\\n\u{1}é"),
            ("Empty_1", ""),
            ("long", &"l".repeat(255)),
        ])
        .unwrap(),
    };
    Descriptor {
        name: Name::new(format!("stream{i}.value")).unwrap(),
        labels,
        value_type,
        unit: Unit::new(["", "bytes", "µs"][i % 3]).unwrap(),
        kind: [Kind::Gauge, Kind::Counter, Kind::State][i % 3],
        help: "help ".repeat(i % 100),
    }
}

/// Creates a segment with every type, every quality, labels, an empty stream, retired and reused
/// slots.
fn segment(path: &Path) -> (Segment, Vec<StreamWriter>) {
    let config = SegmentConfig {
        streams_max: SLOTS as u32,
        ring_bytes_max: 1 << 22,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(path, config, 5).unwrap();
    let mut retired = Vec::new();
    for i in 900..906 {
        let value_type = TYPES[i % TYPES.len()];
        let mut writer = segment.register(&stream(i, value_type), None, 6).unwrap();
        writer.append(&sample(value_type, 1)).unwrap();
        retired.push(writer);
    }
    for writer in retired.drain(..4) {
        segment.retire(writer);
    }
    let mut writers = retired;
    for (i, value) in values().into_iter().enumerate() {
        let depth = Some(2 + i as u32 % 7);
        let mut writer = segment
            .register_sized(
                &stream(i, value.value_type()),
                depth,
                (value.bytes() > 126).then_some(value.bytes() as u32),
                6,
            )
            .unwrap();
        // Sometimes a ring that is not full, sometimes one that has wrapped around.
        for n in (0..i % 11).filter(|_| value.bytes() < 127) {
            writer
                .append(&sample(value.value_type(), n as u64))
                .unwrap();
        }
        let newest = Sample {
            ts: 1_700_000_000_000_000_000 + i as i64,
            value,
            quality: Quality::from_u8(i as u8 % 4).unwrap(),
            error: i as f32 * 0.1,
        };
        writer.look(&newest).unwrap();
        let again = Sample {
            ts: newest.ts + 1_000,
            ..newest
        };
        writer.look(&again).unwrap();
        writers.push(writer);
    }
    let empty = stream(800, ValueType::Int);
    writers.push(segment.register(&empty, None, 6).unwrap());
    let last = writers.remove(5);
    segment.retire(last);
    (segment, writers)
}

#[test]
fn the_newest_samples_are_read_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    let _writing = segment(&path);
    let mut found = lines(&[path.to_str().unwrap()]).into_iter();
    let reader = SegmentReader::open(&path).unwrap();
    let mut streams = 0;
    for entry in &reader.directory().entries {
        match reader.stream(entry).latest() {
            LatestSample::Sample {
                sample,
                looked_ns,
                count,
            } => {
                let line = Line::new(&found.next().expect("a line for every stream"));
                line.check(&entry.descriptor, &sample, count, looked_ns);
                streams += 1;
            }
            LatestSample::Empty => {}
            LatestSample::Gone => panic!("the directory has no streams that are gone"),
        }
    }
    assert_eq!(found.next(), None);
    assert_eq!(streams, values().len() + 1);
}

#[test]
fn rings_are_read_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    let _writing = segment(&path);
    let reader = SegmentReader::open(&path).unwrap();
    for entry in reader.directory().entries.iter().step_by(3) {
        let name = entry.descriptor.name.as_str();
        let found = lines(&[path.to_str().unwrap(), name]);
        let mut samples = Vec::new();
        let scan = reader.stream(entry).scan(0, &mut samples).unwrap();
        assert_eq!(found.len(), samples.len(), "{name}");
        for ((line, sample), number) in found.iter().zip(&samples).zip(scan.lost + 1..) {
            Line::new(line).check(&entry.descriptor, sample, number, sample.ts);
        }
    }
}

#[test]
fn a_writer_at_full_speed_tears_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    with_writer(&path, || {
        for round in 0..rounds(8, 200) {
            let name = format!("d256.{}", TYPES[round as usize % TYPES.len()].as_str());
            let segment = path.to_str().unwrap();
            for arguments in [vec![segment], vec![segment, name.as_str()]] {
                for output in [run_c(&arguments), run_python(&arguments)] {
                    assert!(output.status.success());
                    let said = String::from_utf8(output.stdout).unwrap();
                    assert!(!said.is_empty() || arguments.len() == 2);
                    for text in said.lines() {
                        check_pattern(&Line::new(text));
                    }
                }
            }
        }
    });
}

fn check_pattern(line: &Line) {
    let value_type = TYPES
        .into_iter()
        .find(|t| line.json["type"] == t.as_str())
        .unwrap();
    let count = line.json["count"].as_u64().unwrap();
    let expect = sample(value_type, count);
    let name = line.json["name"].as_str().unwrap();
    let descriptor = crate::pattern::descriptor(name, value_type);
    line.check(&descriptor, &expect, count, expect.ts);
}

#[test]
fn damaged_files_are_refused_or_read_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    drop(segment(&path));
    let whole = std::fs::read(&path).unwrap();
    let damaged = dir.path().join("damaged");
    let name = damaged.to_str().unwrap();
    let check = |bytes: &[u8], run: fn(&[&str]) -> Output| {
        std::fs::write(&damaged, bytes).unwrap();
        let code = run(&[name]).status.code();
        assert!(matches!(code, Some(0 | 1)), "ended by a signal");
        code
    };
    for length in [0, 1, 8, 4095, 4096, 8192] {
        for run in [run_c, run_python] {
            assert_eq!(check(&whole[..length], run), Some(1), "{length} bytes");
        }
    }
    assert_eq!(check(&whole, run_c), Some(0));
    for seed in 0..rounds(60, 5_000) {
        let mut bytes = whole.clone();
        for step in 0..30 {
            let random = mix(seed * 64 + step);
            // Mostly descriptors, sometimes the header.
            let descriptors_at = 4096 + SLOTS * 64;
            let (from, to) = match random % 16 {
                0 => (128, 200),
                _ => (descriptors_at, descriptors_at + 20 * 1024),
            };
            bytes[from + (random >> 8) as usize % (to - from)] = (random >> 56) as u8;
        }
        check(&bytes, run_c);
        if seed % 10 == 0 {
            check(&bytes, run_python);
        }
    }
}
