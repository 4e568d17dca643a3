//! Tests of whole agents in this process, over a fixture tree.

#![expect(clippy::unwrap_used, reason = "tests")]

mod applications;
mod bridges;
mod calls;
mod documents;
mod guests;
mod loss;
mod policies;
mod rules;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_agent::{Agent, AgentError, Config, World};
use barograph_client::{LatestValue, Observer, SystemClock};
use barograph_model::{Selector, Value};
use barograph_source::PolicySpec;
use barograph_stream::{RunDir, StreamError};

const FIXTURE: &str = "../source/tests/fixtures/nvme-v2/first";

fn config(dir: &Path) -> Config {
    let mut config = Config {
        node: "n1".into(),
        http: "off".into(),
        run_dir: dir.join("run"),
        state_dir: dir.join("state"),
        ..Config::default()
    };
    config.sources.sys_root = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURE);
    config
}

fn observer(dir: &Path) -> Observer {
    Observer::open(RunDir::new(dir.join("run")), Arc::new(SystemClock::new())).unwrap()
}

fn latest(observer: &Observer, name: &str) -> Vec<LatestValue> {
    observer.latest(&Selector::parse(name).unwrap())
}

/// Posts a statement about insights to the control socket, as any HTTP client would.
fn control(dir: &Path, sql: &str) -> String {
    post(dir, "/api/v1/insights", sql)
}

fn post(dir: &Path, path: &str, sql: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::os::unix::net::UnixStream::connect(dir.join("run/control.sock")).unwrap();
    let body = format!("{{\"sql\":\"{sql}\"}}");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json"
    );
    write!(
        stream,
        "{head}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_the_tree_says_is_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let observer = observer(dir.path());
    assert_eq!(observer.status().unwrap().node, "n1");
    let total = latest(&observer, "memory.total.bytes");
    assert!(
        matches!(total[0].sample.as_ref().unwrap().value, Value::Int(1..)),
        "{total:?}"
    );
    let tiers = latest(&observer, "tier.total.bytes");
    assert!(
        !tiers.is_empty() && tiers.iter().all(|t| !t.stale),
        "{tiers:?}"
    );
    assert!(!latest(&observer, "node.outlook.text").is_empty());
    agent.stop();
    assert!(!observer.status().unwrap().alive);
    assert!(
        latest(&observer, "memory.total.bytes")[0].stale,
        "the last value stays, and says that it is old"
    );
}

#[test]
fn a_second_agent_is_refused_while_the_first_lives() {
    let dir = tempfile::tempdir().unwrap();
    let first = Agent::start(config(dir.path())).unwrap();
    let second = Agent::start(config(dir.path()));
    assert!(matches!(
        second,
        Err(AgentError::Stream(StreamError::Occupied { .. }))
    ));
    assert!(
        observer(dir.path()).status().unwrap().alive,
        "the first was not disturbed"
    );
    first.stop();
    Agent::start(config(dir.path())).unwrap().stop();
}

#[test]
fn an_occupied_port_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = taken.local_addr().unwrap().to_string();
    let error = Agent::start(Config {
        http: http.clone(),
        ..config(dir.path())
    })
    .err()
    .unwrap();
    assert!(
        error.to_string().contains(&format!("{http} is in use")),
        "{error}"
    );
    assert!(!observer(dir.path()).status().unwrap().alive);
    Agent::start(config(dir.path())).unwrap().stop();
}

#[test]
fn insights_made_at_run_time_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let made = control(
        dir.path(),
        "CREATE INSIGHT twice.memory.bytes AS SELECT 2 * value FROM memory_total_bytes",
    );
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    // This insight reads another one, and comes before it in the alphabet.
    let above = control(
        dir.path(),
        "CREATE INSIGHT above.memory.bytes AS SELECT value + 1 FROM twice_memory_bytes",
    );
    assert!(above.starts_with("HTTP/1.1 200"), "{above}");
    let refused = control(
        dir.path(),
        "CREATE INSIGHT x.bytes AS SELECT value FROM memory_totl_bytes",
    );
    assert!(
        refused.starts_with("HTTP/1.1 400") && refused.contains("memory_total_bytes"),
        "{refused}"
    );
    agent.stop();
    let agent = Agent::start(config(dir.path())).unwrap();
    let observer = observer(dir.path());
    let value = |name: &str| {
        latest(&observer, name)[0]
            .sample
            .as_ref()
            .unwrap()
            .value
            .as_f64()
            .unwrap()
    };
    assert_eq!(
        value("twice.memory.bytes"),
        2.0 * value("memory.total.bytes")
    );
    assert_eq!(
        value("above.memory.bytes"),
        value("twice.memory.bytes") + 1.0
    );
    agent.stop();
}

/// Checks which insights of one letter, or `kept`, there are, and how many times the memory each
/// is.
fn expect_times_memory(observer: &Observer, pairs: &[(&str, f64)]) {
    let names = ["a.bytes", "b.bytes", "c.bytes", "d.bytes", "kept.bytes"];
    let total = latest(observer, "memory.total.bytes")[0].sample.clone();
    let total = total.unwrap().value.as_f64().unwrap();
    let newest = |name: &str| latest(observer, name).first().cloned()?.sample;
    let value = |name| Some((name, newest(name)?.value.as_f64()? / total));
    let seen: Vec<(&str, f64)> = names.into_iter().filter_map(value).collect();
    let near = |(seen, wanted): (&(&str, f64), &(&str, f64))| {
        seen.0 == wanted.0 && (seen.1 - wanted.1).abs() < 1e-6
    };
    let same = seen.len() == pairs.len() && seen.iter().zip(pairs).all(near);
    assert!(same, "{seen:?} is not {pairs:?}");
}

#[test]
fn a_reload_brings_insights_and_policies_to_the_file_and_names_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let made = |name: &str, factor: i32| {
        format!("CREATE INSIGHT {name} AS SELECT {factor} * value FROM memory_total_bytes")
    };
    let policy = |name: &str| PolicySpec {
        name: name.into(),
        streams: vec!["memory.*".into()],
        error: Some("1 %".into()),
        ..PolicySpec::default()
    };
    let mut file = config(dir.path());
    file.insights = vec![
        made("a.bytes", 2),
        made("b.bytes", 3),
        "CREATE INSIGHT c.bytes AS SELECT value + 1 FROM b_bytes".into(),
    ];
    file.policy = vec![policy("first")];
    let file = Arc::new(Mutex::new(file));
    let read = Arc::clone(&file);
    let agent = Agent::start_with(move || Ok(read.lock().unwrap().clone()), World::real()).unwrap();
    let at_run_time = control(dir.path(), &made("kept.bytes", 5));
    assert!(at_run_time.starts_with("HTTP/1.1 200"), "{at_run_time}");
    let observer = observer(dir.path());
    let expect = |pairs: &[(&str, f64)]| expect_times_memory(&observer, pairs);
    expect(&[
        ("a.bytes", 2.0),
        ("b.bytes", 3.0),
        ("c.bytes", 3.0),
        ("kept.bytes", 5.0),
    ]);
    // Nothing has changed.
    let nothing = serde_json::json!({ "left_out": [], "needs_restart": [] });
    assert_eq!(agent.reload(), Ok(nothing));
    {
        let mut file = file.lock().unwrap();
        file.insights = vec![
            made("b.bytes", 4),
            "CREATE INSIGHT d.bytes AS SELECT value + 1 FROM b_bytes".into(),
            made("bad.bytes.", 1),
        ];
        file.policy = vec![policy("second")];
        file.streams.depth += 1;
    }
    let answer = agent.reload().unwrap();
    assert_eq!(answer["needs_restart"], serde_json::json!(["streams"]));
    let left_out = answer["left_out"].as_array().unwrap();
    let reason = left_out[0].as_str().unwrap();
    assert!(
        left_out.len() == 1 && reason.starts_with("insight bad.bytes."),
        "{left_out:?}"
    );
    expect(&[("b.bytes", 4.0), ("d.bytes", 4.0), ("kept.bytes", 5.0)]);
    let policies = std::fs::read(dir.path().join("run/policies.json")).unwrap();
    let policies = String::from_utf8(policies).unwrap();
    assert!(
        policies.contains("second") && !policies.contains("first"),
        "{policies}"
    );
    // A file that is not valid changes nothing.
    file.lock().unwrap().http = "nowhere".into();
    file.lock().unwrap().streams.max = 0;
    assert!(agent.reload().unwrap_err().contains("streams.max"));
    expect(&[("b.bytes", 4.0), ("d.bytes", 4.0), ("kept.bytes", 5.0)]);
    agent.stop();
}

#[test]
fn a_constant_insight_is_as_young_as_its_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let observer = observer(dir.path());
    // Nothing changes in a fixture tree, but memory is polled every second all the same.
    let first = latest(&observer, "memory.capacity")[0].looked_ns;
    let mut stream = observer
        .stream(&Selector::parse("agent.cpu.seconds").unwrap())
        .unwrap();
    let later = (0..10).any(|_| {
        stream.wait(Duration::from_secs(2));
        latest(&observer, "memory.capacity")[0].looked_ns > first
    });
    assert!(
        later,
        "ten seconds passed, and the insight was not confirmed"
    );
    assert!(latest(&observer, "memory.capacity")[0].interval_ns > 0);
    agent.stop();
}
