//! The reader in `docs/reference`, which shares no code with this crate, reads files of our
//! producer.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};

use barograph_stream::SystemClock;
use barograph_stream::ingest::{
    IngestDeclaration, IngestFile, Producer, ProducerConfig, RecordPayload, kind,
};
use serde_json::{Value as Json, json};

use crate::child;
use crate::ingest_specimen::{declare, small};
use crate::pattern::{mix, rounds};

fn run(arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/read_ingest.py");
    Command::new("python3")
        .arg(program)
        .args(arguments)
        .output()
        .expect("these tests need python3")
}

fn lines(arguments: &[&str]) -> Vec<Json> {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The records of `IngestFile`, in the form in which the other reader prints them.
fn records(path: &Path) -> Vec<Json> {
    let mut file = IngestFile::open(path).unwrap();
    file.look().unwrap();
    let starts: Vec<u64> = file.positions().collect();
    let mut found = vec![Vec::new(); starts.len()];
    let mut kept = vec![0; starts.len()];
    let drained = file
        .drain(u64::MAX, &mut |record| {
            let mut places = 1;
            let mut long = |bytes: &[u8]| {
                places += bytes.len().div_ceil(16) as u64;
                json!(hex(bytes))
            };
            let (name, value) = match record.payload {
                RecordPayload::Int(v) => ("int", json!(v)),
                RecordPayload::Float(v) => ("float", json!(format!("{:016x}", v.to_bits()))),
                RecordPayload::Bool(v) => ("bool", json!(v)),
                RecordPayload::Frame(v) => ("frame", json!(v)),
                RecordPayload::Ack { id, .. } => ("ack", json!(id)),
                RecordPayload::Text(b) => ("text", long(b)),
                RecordPayload::Bytes(b) => ("bytes", long(b)),
                RecordPayload::Json(b) => ("json", long(b)),
                RecordPayload::Floats(b) => ("floats", long(b)),
                RecordPayload::Missed(_) | RecordPayload::Damaged => panic!("whole records alone"),
            };
            let (ring, series, time) = (record.ring, record.series, record.time);
            found[ring as usize]
                .push(json!({"ring": ring, "series": series, "time": time, name: value}));
            kept[ring as usize] += places;
        })
        .unwrap();
    assert_eq!(drained.damaged, 0);
    for (ring, end) in file.positions().enumerate() {
        let lost = end - starts[ring] - kept[ring];
        found[ring].push(json!({"ring": ring, "end": end, "lost": lost, "damaged": 0}));
    }
    found.concat()
}

#[test]
fn declarations_and_every_kind_of_value() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let found = lines(&[path.to_str().unwrap()]);
    let labels = |name: &str| json!({name: "3 é \"x\""});
    assert_eq!(
        found[..2],
        [
            json!({"process": "specimen", "labels": labels("rank")}),
            json!({"publication": 0, "name": "specimen.step", "readers": "all", "labels": labels("phase")}),
        ]
    );
    assert_eq!(
        found[5],
        json!({"value": 3, "publication": 0, "name": "text", "type": "string", "kind": "gauge",
            "unit": "bytes", "help": "what it is", "bytes_max": 8_192})
    );
    assert_eq!(found[9..], records(&path));
    // From positions given on the command line.
    let late = lines(&[path.to_str().unwrap(), "20", "1000"]);
    assert_eq!(
        late[9]["text"],
        hex("a text of more than one piece é".as_bytes())
    );
    assert_eq!(late.len(), 9 + 3 + 2);
}

#[test]
fn triggers_knobs_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SystemClock::new();
    let producer = Producer::create(dir.path(), ProducerConfig::default(), &clock).unwrap();
    declare(&producer);
    let trigger = |publication| IngestDeclaration::Trigger {
        publication,
        name: "checkpoint".into(),
        help: "é".into(),
    };
    let (value, min, max) = (1, -0.5, f64::INFINITY);
    let knob = IngestDeclaration::Knob { value, min, max };
    for declaration in [trigger(u32::MAX), trigger(0), knob] {
        assert!(producer.declare(&declaration));
    }
    let mut ring = producer.thread(&clock).unwrap();
    for (id, status) in [(1, 0), (u64::MAX, 3)] {
        assert!(ring.put(kind::ACK, status, 7, id));
    }
    ring.commit();
    let found = lines(&[producer.path().to_str().unwrap()]);
    // After the declarations of the specimen.
    let first = found.iter().position(|line| line["trigger"].is_string());
    let first = first.unwrap();
    let trigger =
        |publication| json!({"trigger": "checkpoint", "publication": publication, "help": "é"});
    let bits = |value: f64| format!("{:016x}", value.to_bits());
    assert_eq!(
        found[first..first + 3],
        [
            trigger(Json::Null),
            trigger(json!(0)),
            json!({"knob": 1, "min": bits(min), "max": bits(max)}),
        ]
    );
    let answer = |id: u64, status: u32| json!({"ring": 0, "series": status, "time": 7, "ack": id});
    assert_eq!(
        found[first + 3..first + 5],
        [answer(1, 0), answer(u64::MAX, 3)]
    );
    assert_eq!(found[first + 3..], records(producer.path()));
}

#[test]
fn lapped_rings_of_long_values() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SystemClock::new();
    let config = ProducerConfig {
        rings_max: 3,
        ring_records: 256,
        ..ProducerConfig::default()
    };
    let producer = Producer::create(dir.path(), config, &clock).unwrap();
    declare(&producer);
    for seed in 0..3u64 {
        let mut ring = producer.thread(&clock).unwrap();
        for n in 0..100 * seed {
            let bytes = vec![n as u8; (mix(n ^ seed) % 1_009) as usize];
            assert!(ring.put_bytes(kind::BYTES, 3, n, &bytes));
            assert!(ring.frame(0, n, n));
        }
    }
    let found = lines(&[producer.path().to_str().unwrap()]);
    let expect = records(producer.path());
    assert_eq!(found[9..], expect);
    assert!(expect.iter().any(|line| line["lost"].as_u64() > Some(0)));
    assert!(expect.iter().any(|line| line["bytes"].is_string()));
}

#[test]
fn a_writer_at_full_speed_tears_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = child::start("endless_putters", dir.path());
    let is_whole = |p: &std::path::PathBuf| p.extension().is_some_and(|e| e == "ingest");
    let mut entries = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path());
    let path = entries.find(is_whole).unwrap();
    let mut seen = 0;
    for _ in 0..rounds(10, 300) {
        for line in lines(&[path.to_str().unwrap()]).split_off(9) {
            assert!(
                line.get("damaged").is_none_or(|damaged| damaged == 0),
                "{line}"
            );
            if let (Some(float), Some(n)) = (line["float"].as_str(), line["time"].as_u64()) {
                let thread = line["series"].as_u64().unwrap();
                assert_eq!(float, format!("{:016x}", mix(n ^ thread << 56)), "{line}");
                seen += 1;
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(seen > 0);
}

#[test]
fn damaged_files_are_refused_or_read_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let whole = std::fs::read(&path).unwrap();
    let damaged = dir.path().join("damaged");
    let name = damaged.to_str().unwrap();
    for length in [0, 1, 8, 4_095, 4_096, 8_192, whole.len() - 1] {
        std::fs::write(&damaged, &whole[..length]).unwrap();
        assert_eq!(run(&[name]).status.code(), Some(1), "{length} bytes");
    }
    std::fs::write(&damaged, &whole).unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&damaged)
        .unwrap();
    for seed in 0..rounds(20, 2_000) {
        for step in 0..10 {
            let random = mix(seed * 64 + step);
            let at = match random % 4 {
                0 => 4_096 + (random >> 8) % 512,
                1 => 8_192 + (random >> 8) % 400,
                _ => 8_192 + (1 << 20) + (random >> 8) % (40 * 24),
            };
            file.write_all_at(&[(random >> 56) as u8], at).unwrap();
        }
        let output = run(&[name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        assert!(!said.contains("Traceback"), "{said}");
    }
}
