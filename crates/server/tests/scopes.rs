//! Tests of applications' scopes: streams that everyone may read are served beside the node's own,
//! others are not.

use barograph_model::{Descriptor, Sample, ValueType};
use barograph_stream::{RunDir, Segment, SegmentConfig, StreamWriter};
use serde_json::{Value as Json, json};

use crate::fixture::{Fixture, S, T0, descriptor};

/// A scope whose agent is the test, with one stream and one sample.
struct Scope {
    segment: Segment,
    writer: StreamWriter,
}

impl Scope {
    fn open(run_dir: &RunDir, name: &str, of: &Descriptor, value: i64) -> Self {
        let run_dir = run_dir.scope(name);
        std::fs::create_dir_all(run_dir.path()).unwrap();
        let config = SegmentConfig {
            streams_max: 8,
            ..SegmentConfig::new("n1")
        };
        let mut segment = Segment::create(&run_dir.segment(), config, T0).unwrap();
        let mut writer = segment.register(of, None, T0).unwrap();
        writer.append(&Sample::measured(T0, value)).unwrap();
        Self { segment, writer }
    }
}

fn step() -> Descriptor {
    descriptor("app.solver.step", "x", ValueType::Int)
}

fn names(fixture: &Fixture, path: &str) -> Vec<String> {
    let all = fixture.get(path);
    let all = all.as_array().unwrap().iter();
    all.map(|s| s["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_everyone_may_read_is_shown_and_nothing_else() {
    let mut fixture = Fixture::new();
    let mut load = fixture.register(&descriptor("cpu.load", "x", ValueType::Int));
    load.look(&Sample::measured(T0, 1)).unwrap();
    let private = descriptor("app.secret.step", "x", ValueType::Int);
    let _own = Scope::open(&fixture.run_dir, "u0", &private, 41);
    let _group = Scope::open(&fixture.run_dir, "g0", &private, 42);
    assert_eq!(names(&fixture, "/api/v1/streams"), ["cpu.load"]);
    let mut all = Scope::open(&fixture.run_dir, "all", &step(), 43);
    let shown = ["app.solver.step", "cpu.load"];
    assert_eq!(names(&fixture, "/api/v1/streams"), shown);
    assert_eq!(names(&fixture, "/api/v1/latest"), shown);
    let latest = fixture.get("/api/v1/latest?match=app.*");
    assert_eq!(latest[0]["value"], 43);
    assert_eq!(fixture.get("/api/v1/latest?match=app.secret.*"), json!([]));
    all.segment.expect_interval(&all.writer, 2 * S);
    let listed = fixture.get("/api/v1/streams?match=app.*");
    assert_eq!(listed[0]["interval_ns"], 2 * S);
    let status = fixture.get("/api/v1/status");
    assert_eq!(
        (&status["streams"], &status["samples"]),
        (&json!(2), &json!(2))
    );
    let metrics = fixture.ask("GET /metrics", &[], b"");
    let metrics = metrics.text();
    let line = "barograph_app_solver_step{device=\"x\",node=\"n1\"} 43\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(!metrics.contains("secret"), "{metrics}");
    all.writer.append(&Sample::measured(T0 + 1, 44)).unwrap();
    let latest = fixture.get("/api/v1/latest?match=app.*");
    assert_eq!(latest[0]["value"], 44);
}

#[test]
fn the_scope_is_followed() {
    let mut fixture = Fixture::new();
    let _load = fixture.register(&descriptor("cpu.load", "x", ValueType::Int));
    let dir = fixture.run_dir.scope("all");
    std::fs::create_dir_all(dir.path()).unwrap();
    std::fs::write(dir.segment(), "no segment").unwrap();
    assert_eq!(names(&fixture, "/api/v1/streams"), ["cpu.load"]);
    let first = Scope::open(&fixture.run_dir, "all", &step(), 1);
    let shown = ["app.solver.step", "cpu.load"];
    assert_eq!(names(&fixture, "/api/v1/streams"), shown);
    let _second = Scope::open(&fixture.run_dir, "all", &step(), 2);
    drop(first);
    let latest = fixture.get("/api/v1/latest?match=app.*");
    assert_eq!(latest[0]["value"], 2);
    // If both have the stream, the node's own is served.
    let mut own = fixture.register(&step());
    own.look(&Sample::measured(T0, 3)).unwrap();
    assert_eq!(names(&fixture, "/api/v1/streams"), shown);
    let latest = fixture.get("/api/v1/latest?match=app.*");
    assert_eq!(latest[0]["value"], 3);
    // A segment that no reader understands counts as absent.
    fixture.segment.retire(own);
    let new = dir.path().join("other");
    std::fs::write(&new, "no segment").unwrap();
    std::fs::rename(new, dir.segment()).unwrap();
    assert_eq!(names(&fixture, "/api/v1/streams"), ["cpu.load"]);
    assert_eq!(fixture.ask("GET /healthz", &[], b"").status, 200);
}

#[test]
fn a_watcher_is_told_of_applications() {
    let mut fixture = Fixture::new();
    let mut load = fixture.register(&descriptor("cpu.load", "x", ValueType::Int));
    load.look(&Sample::measured(T0, 1)).unwrap();
    let mut events = fixture.watch("every_ms=50");
    assert_eq!(events.next().unwrap().data.as_array().unwrap().len(), 1);
    let samples = |events: &mut crate::client::Events| -> Json {
        loop {
            let tick = events.next_named("tick").data;
            if tick["samples"] != json!([]) {
                return tick["samples"].clone();
            }
        }
    };
    let told = |index: usize, ts: i64, value: i64| json!([[index, ts, value, "measured", 0.0]]);
    assert_eq!(samples(&mut events), told(0, T0, 1));
    // Both streams are in the first slot of their segments.
    let mut all = Scope::open(&fixture.run_dir, "all", &step(), 7);
    let streams = events.next_named("streams").data;
    assert_eq!(
        (&streams[0]["name"], &streams[1]["name"]),
        (&json!("app.solver.step"), &json!("cpu.load"))
    );
    assert_eq!(samples(&mut events), told(0, T0, 7), "and no load again");
    load.look(&Sample::measured(T0 + 1, 2)).unwrap();
    assert_eq!(samples(&mut events), told(1, T0 + 1, 2));
    all.writer.append(&Sample::measured(T0 + 2, 8)).unwrap();
    assert_eq!(samples(&mut events), told(0, T0 + 2, 8));
    // Another life of the scope: a new list, and its samples.
    let _second = Scope::open(&fixture.run_dir, "all", &step(), 9);
    events.next_named("streams");
    assert_eq!(samples(&mut events), told(0, T0, 9));
}
