//! Runs the `.slt` files: records of `query` (SQL, `----`, the rows) and `error` (SQL, `----`, a
//! part of the message), over the known streams; records of applications over those and
//! applications' publications.

use std::path::Path;

use barograph_model::{Kind, Value, ValueType};

use crate::demo::{Demo, S, START_NS, descriptor};
use crate::{ask, lines, open};

fn check_file(text: &str, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::known(dir.path());
    if name.starts_with("functions") {
        demo.segment.heartbeat(START_NS + 10 * S); // The agent lives.
    }
    if name.starts_with("forecasts") {
        add_forecasts(&mut demo);
    }
    let _scopes = name
        .starts_with("applications")
        .then(|| crate::scopes::published(dir.path()));
    std::fs::write(
        dir.path().join("sources.json"),
        r#"[{"source":"disk","state":"partial","sees":"2 devices","streams":4,
            "missing":[{"what":"queue","why":"no sysfs"}],"polls":7,"errors":0,
            "cost_ns_mean":1234.5,"interval_ns":1000000000,"last_error":null,"new":1}]"#,
    )
    .unwrap();
    let mut database = open(dir.path());
    for record in text.split("\n\n").map(str::trim).filter(|r| !r.is_empty()) {
        let body: String = record
            .lines()
            .filter(|l| !l.starts_with('#'))
            .map(|l| format!("{l}\n"))
            .collect();
        if body.is_empty() {
            continue;
        }
        let (kind, rest) = body.split_once('\n').unwrap();
        let (sql, expect) = rest
            .split_once("----\n")
            .unwrap_or_else(|| panic!("{name}: {body}"));
        let (sql, expect) = (sql.trim(), expect.trim());
        match (kind, ask(&mut database, sql)) {
            ("query", Ok(rows)) => assert_eq!(lines(&rows).join("\n"), expect, "{name}: {sql}"),
            ("query", Err(fault)) => panic!("{name}: {sql}: {fault}"),
            ("error", Ok(rows)) => panic!("{name}: {sql}: {:?}", lines(&rows)),
            ("error", Err(fault)) => {
                assert!(fault.message.contains(expect), "{name}: {sql}: {fault}");
            }
            (other, _) => panic!("{name}: what is {other}?"),
        }
    }
}

/// Adds streams with forecasts: a file system that fills by 10 bytes a second, one that stays as it
/// is, a counter whose errors are unknown, and a ratio whose forecast has ended.
fn add_forecasts(demo: &mut Demo) {
    let gauge =
        |name: &str, labels: &[(&str, &str)]| descriptor(name, labels, ValueType::Int, Kind::Gauge);
    for (mount, available) in [("/data", 400), ("/home", 300)] {
        let labels = [("mount", mount)];
        let total = gauge("filesystem.total.bytes", &labels);
        demo.add(&total, [(4, 1_000.into())]);
        let of = gauge("filesystem.available.bytes", &labels);
        demo.add(&of, [(4, available.into())]);
    }
    let infinite = f64::INFINITY;
    for (name, labels, knots) in [
        (
            "filesystem.available.bytes",
            [("mount", "/data")],
            vec![0.0, 400.0, 0.0, 20.0, 200.0, 100.0, 60.0, -200.0, 100.0],
        ),
        (
            "filesystem.available.bytes",
            [("mount", "/home")],
            vec![0.0, 300.0, 0.0, 60.0, 300.0, 0.0],
        ),
        (
            "disk.read.bytes",
            [("device", "vda")],
            vec![0.0, 400.0, 0.0, 10.0, 500.0, infinite],
        ),
        ("disk.busy.ratio", [("device", "vda")], vec![0.0, 0.75, 0.0]),
    ] {
        let name = format!("forecast.{name}");
        let of = descriptor(&name, &labels, ValueType::Floats, Kind::State);
        demo.add(&of, [(4, Value::Floats(knots.into()))]);
    }
}

#[test]
fn files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/slt");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        check_file(&text, &file.file_name().unwrap().to_string_lossy());
    }
}
