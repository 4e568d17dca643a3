//! Rules in whole agents: over the node's own streams and those of a program.

use std::path::Path;

use barograph_agent::{AGENT_DOCUMENT, Agent, AgentDocument, RULES_DOCUMENT};
use barograph_stream::RunDir;
use barograph_stream::ingest::PublicationReaders;
use barograph_testing::{wait_for, wait_until};
use serde_json::Value as Json;

use crate::applications::{Application, our_scope};
use crate::bridges::{lines, now_ns};
use crate::{config, post};

fn declared(dir: &Path) -> Vec<Json> {
    let document = RunDir::new(dir.join("run")).document(RULES_DOCUMENT);
    serde_json::from_slice(&document.unwrap().unwrap()).unwrap()
}

/// Waits until a rule is as it should be.
fn until(dir: &Path, what: &str, done: impl Fn(&Json) -> bool) {
    wait_until(what, || declared(dir).iter().any(&done));
}

/// Waits until readers can find the archive of a new scope, which starts beside its rings.
fn until_archived(dir: &Path) {
    wait_for("the archive of the scope", || {
        let document = our_scope(dir).document(AGENT_DOCUMENT).unwrap()?;
        let about: AgentDocument = serde_json::from_slice(&document).unwrap();
        about.archive
    });
}

fn has_fired(name: &'static str) -> impl Fn(&Json) -> bool {
    move |t| t["name"] == name && t["fired"].as_u64() > Some(0)
}

#[test]
fn rules_fire_on_streams_of_the_node_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    assert!(declared(dir.path()).is_empty());
    let make = |sql: &str| post(dir.path(), "/api/v1/rules", sql);
    let made = make("CREATE RULE big WHEN latest('memory.total.bytes') > 0 CALL 'x'");
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    until(dir.path(), "a stream of the node", has_fired("big"));
    let refused = make("CREATE RULE bad WHEN latest('memory.total.bytes') CALL");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    let made = make("CREATE RULE none WHEN absent('app.nobody.frame', '50 ms') CALL 'y'");
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    until(dir.path(), "time alone", has_fired("none"));
    let dropped = make("DROP RULE none");
    assert!(dropped.starts_with("HTTP/1.1 200"), "{dropped}");
    agent.stop();

    let agent = Agent::start(config(dir.path())).unwrap();
    until(dir.path(), "after a restart", has_fired("big"));
    assert_eq!(declared(dir.path()).len(), 1);
    // The thread ends with the last rule, and the next one has another.
    assert!(make("DROP RULE big").starts_with("HTTP/1.1 200"));
    assert!(declared(dir.path()).is_empty());
    let made = make("CREATE RULE again WHEN count_over('memory.total.bytes', '1 d') > 0 CALL 'x'");
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    until(
        dir.path(),
        "anew, with what the rings hold",
        has_fired("again"),
    );
    agent.stop();
}

#[test]
fn a_program_s_values_fire_and_so_does_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let make = |sql: &str| post(dir.path(), "/api/v1/rules", sql);
    for sql in [
        "CREATE RULE far WHEN latest('app.solver.residual') >= 90 AND latest('memory.total.bytes') \
         > 0 CALL 'x' TO 'rank={rank}'",
        "CREATE RULE many WHEN count_over('app.solver.frame', '1 h') >= 10 CALL 'x'",
        "CREATE RULE over WHEN absent('app.solver.frame', '200 ms') AND label('rank') = '0' CALL 'x'",
    ] {
        let made = make(sql);
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    }
    let mut application = Application::new(dir.path(), "solver", PublicationReaders::Owner);
    application.frames(10);
    until(dir.path(), "a value", has_fired("far"));
    until(dir.path(), "samples of the past", has_fired("many"));
    drop(application);
    until(dir.path(), "its end", has_fired("over"));
    let is_gone = |t: &Json| t["name"] == "over" && t["subjects"] == 0;
    until(dir.path(), "its absence has been told", is_gone);
}

/// Returns the points of a series, one a second until a time.
fn points(count: i64, until_ns: i64) -> String {
    const S: i64 = 1_000_000_000;
    let points = (0..count).map(|i| format!("m v={i}i {}", until_ns - (count - i) * S));
    points.collect::<Vec<String>>().join("\n")
}

#[test]
fn windows_are_filled_from_the_archive_each_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let make = |sql: &str| {
        let made = post(dir.path(), "/api/v1/rules", sql);
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    };
    // These are more points than a ring holds.
    assert_eq!(lines(dir.path(), &points(2_000, now_ns())).0, 204);
    until_archived(dir.path());
    make("CREATE RULE all WHEN count_over('app.m.v', '1 h') = 2000 CALL 'x'");
    until(dir.path(), "all of the past", has_fired("all"));
    // Another window, while the first one is there.
    make("CREATE RULE two WHEN count_over('app.m.v', '2 h') = 2000 CALL 'x'");
    until(dir.path(), "and of a longer one", has_fired("two"));
    make("CREATE RULE three WHEN count_over('app.m.v', '1 h') = 2001 CALL 'x'");
    agent.stop();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let point = format!("m v=7i {}", now_ns());
    assert_eq!(lines(dir.path(), &point).0, 204);
    until(dir.path(), "over a restart", has_fired("three"));
}

#[test]
fn without_an_archive_windows_begin_with_the_rings() {
    let dir = tempfile::tempdir().unwrap();
    let mut without = config(dir.path());
    without.archive.enabled = false;
    let _agent = Agent::start(without).unwrap();
    assert_eq!(lines(dir.path(), &points(10, now_ns())).0, 204);
    let sql = "CREATE RULE t WHEN count_over('app.m.v', '1 h') = 10 CALL 'x'";
    assert!(post(dir.path(), "/api/v1/rules", sql).starts_with("HTTP/1.1 200"));
    until(dir.path(), "what the ring holds", has_fired("t"));
    let says = |t: &Json| {
        let reason = t["reason"].as_str().unwrap_or_default();
        reason.contains("windows begin with what the rings hold: there is no archive")
    };
    until(dir.path(), "it says so", says);
}
