//! Tests of starts that are refused, and of stopping with requests in flight.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barograph_model::ManualClock;
use barograph_server::{Server, ServerConfig, ServerError, ServerLimits};
use barograph_stream::RunDir;
use serde_json::json;

use crate::client::{request, tcp};
use crate::fixture::{FakeSql, Fixture, T0, start, until};

fn start_at(run_dir: &RunDir, http: Option<&str>) -> Result<Server, ServerError> {
    let config = ServerConfig {
        http: http.map(|a| a.parse().unwrap()),
        limits: ServerLimits::default(),
        ingest: None,
        events: None,
    };
    start(
        config,
        run_dir,
        &Arc::new(ManualClock::at(T0)),
        &Arc::new(FakeSql::default()),
    )
}

#[test]
fn addresses_that_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let check = |run_dir: &RunDir, http: &str, expect: &str| {
        let message = match start_at(run_dir, Some(http)) {
            Ok(_) => panic!("{http} was taken"),
            Err(error) => error.to_string(),
        };
        assert!(message.starts_with(expect), "{message:?} is not {expect:?}");
    };
    let good = RunDir::new(dir.path());
    for open in ["0.0.0.0:7070", "192.0.2.1:7070", "[::]:7070"] {
        check(
            &good,
            open,
            &format!(
                "{open} can be reached from other machines, and there is no TLS yet: use --http 127.0.0.1:7070"
            ),
        );
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    check(
        &good,
        &taken,
        &format!("{taken} is in use: stop the other program or choose another --http"),
    );
    let missing = RunDir::new(dir.path().join("missing"));
    check(&missing, "127.0.0.1:0", "cannot make the socket");
    let long = dir.path().join("x".repeat(120));
    std::fs::create_dir(&long).unwrap();
    check(&RunDir::new(long), "127.0.0.1:0", "cannot make the socket");
}

#[test]
fn without_tcp_there_are_the_sockets() {
    let mut fixture = Fixture::new();
    fixture.stop();
    // The leftover of a dead agent is replaced.
    std::fs::write(fixture.run_dir.read_socket(), "left over").unwrap();
    fixture.server = Some(start_at(&fixture.run_dir, None).unwrap());
    assert_eq!(fixture.server().http_addr(), None);
    let status = fixture.ask_unix(
        fixture.run_dir.read_socket(),
        "GET /api/v1/status",
        &[],
        b"",
    );
    assert_eq!((status.status, &status.json()["http"]), (200, &json!(null)));
}

#[test]
fn the_token_is_new_at_each_start() {
    let mut fixture = Fixture::new();
    let first = fixture.token();
    fixture.stop();
    fixture.server = Some(start_at(&fixture.run_dir, Some("127.0.0.1:0")).unwrap());
    assert_ne!(fixture.token(), first);
    let bearer = format!("authorization: Bearer {first}");
    fixture
        .ask("POST /api/v1/insights", &[&bearer], b"x")
        .expect_fault(401, "refused", "changes at each start");
}

#[test]
fn stop_ends_everything() {
    let mut fixture = Fixture::with(|limits| limits.stop_time_max = Duration::from_millis(300));
    let address = fixture.server().http_addr().unwrap();
    let mut watcher = fixture.watch("every_ms=60000");
    watcher.next_named("streams");
    let mut idle = tcp(address);
    let mut half_sent = tcp(address);
    half_sent.write_all(b"GET / HTTP/1.1\r\nho").unwrap();
    let mut query = tcp(address);
    query
        .write_all(&request("POST /api/v1/sql", &[], b"wait"))
        .unwrap();
    until(|| fixture.sql.running.load(Ordering::SeqCst) == 1);

    fixture.stop();
    watcher.next_named("bye");
    assert_eq!(watcher.next(), None);
    let mut end = Vec::new();
    for socket in [&mut idle, &mut half_sent, &mut query] {
        // Ended or reset, but not left open.
        let _ = socket.read_to_end(&mut end);
    }
    until(|| fixture.sql.cancelled.load(Ordering::SeqCst) == 1);
    assert!(TcpListener::bind(address).is_ok(), "the port is free again");
}
