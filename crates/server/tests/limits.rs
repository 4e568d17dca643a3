//! Bounds on connections, heads, bodies and answers.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use barograph_model::{Sample, ValueType};

use crate::client::{request, tcp};
use crate::fixture::{Fixture, T0, descriptor, until};

const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_body_that_is_too_large() {
    let fixture = Fixture::with(|limits| limits.body_bytes_max = 1000);
    let sql = "POST /api/v1/sql";
    assert_eq!(fixture.ask(sql, &[], &[b'x'; 1000]).status, 200);
    fixture
        .ask(sql, &[], &[b'x'; 1001])
        .expect_fault(413, "limit", "larger than 1000 bytes");
    // Once with an announced length, once only by sending.
    let announced =
        b"POST /api/v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999\r\n\r\n";
    fixture
        .ask_raw(announced)
        .expect_fault(413, "limit", "larger than 1000 bytes");
    let chunk = format!("400\r\n{}\r\n", "x".repeat(0x400));
    let head = "POST /api/v1/sql HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let streamed = fixture.ask_raw(format!("{head}{chunk}0\r\n\r\n").as_bytes());
    streamed.expect_fault(413, "limit", "larger than 1000 bytes");
}

#[test]
fn a_client_that_sends_slowly_is_let_go() {
    let fixture = Fixture::with(|limits| {
        limits.head_time_max = SHORT;
        limits.request_time_max = SHORT;
    });
    let address = fixture.server().http_addr().unwrap();
    // A head that never ends, or no head at all: closed without an answer of ours.
    for begun in ["", "GET / HTTP/1.1\r\nhost: loc"] {
        let mut slow = tcp(address);
        slow.write_all(begun.as_bytes()).unwrap();
        let mut end = Vec::new();
        slow.read_to_end(&mut end).unwrap();
        assert!(!end.starts_with(b"HTTP/1.1 200"), "{begun:?}");
    }
    // A body that never ends.
    let begun = b"POST /api/v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nSEL";
    fixture
        .ask_raw(begun)
        .expect_fault(408, "limit", "longer than 100ms");
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    let mut fixture = Fixture::with(|limits| {
        limits.large_answers_max = 1;
        limits.stall_time_max = SHORT;
    });
    let mut writers: Vec<_> = (0..64)
        .map(|i| {
            let d = descriptor("a.count", &i.to_string(), ValueType::Int);
            fixture.segment.register(&d, Some(8192), T0).unwrap()
        })
        .collect();
    for writer in &mut writers {
        for i in 0..8192 {
            writer.append(&Sample::measured(T0 + i, i)).unwrap();
        }
    }
    let mut deaf = tcp(fixture.server().http_addr().unwrap());
    deaf.write_all(&request("GET /api/v1/history", &[], b""))
        .unwrap();
    let mut byte = [0];
    deaf.read_exact(&mut byte).unwrap();
    // Its answer holds the only place for large ones until it is cut off.
    until(|| fixture.ask("POST /api/v1/sql", &[], b"SELECT 1").status == 200);
    let mut rest = Vec::new();
    let end = deaf.read_to_end(&mut rest);
    let text = String::from_utf8_lossy(&rest);
    assert!(
        end.is_err() || !text.ends_with("]}]"),
        "the answer came whole after all"
    );
}

#[test]
fn connections_are_bounded_on_each_way_in() {
    // One user's share is a quarter of them.
    let fixture = Fixture::with(|limits| limits.connections_max = 8);
    let address = fixture.server().http_addr().unwrap();
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut socket = tcp(address);
            socket
                .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                .unwrap();
            socket.read_exact(&mut [0; 12]).unwrap();
            socket
        })
        .collect();
    fixture
        .ask("GET /healthz", &[], b"")
        .expect_fault(503, "busy", "too many connections");
    assert_eq!(fixture.server().counts().refused_connections, 1);
    let other_way = fixture.ask_unix(fixture.run_dir.control_socket(), "GET /healthz", &[], b"");
    assert_eq!(other_way.status, 200);
    drop(held);
    until(|| fixture.ask("GET /healthz", &[], b"").status == 200);
}

#[test]
fn history_is_bounded() {
    let mut fixture = Fixture::with(|limits| limits.history_samples_max = 3);
    let mut writer = fixture.register(&descriptor("a.count", "x", ValueType::Int));
    for i in 0..4 {
        writer.append(&Sample::measured(T0 + i, i)).unwrap();
    }
    fixture
        .ask("GET /api/v1/history", &[], b"")
        .expect_fault(422, "limit", "more than 3 samples");
    let some = fixture.get(&format!("/api/v1/history?start={}", T0 + 1));
    assert_eq!(some[0]["value"], serde_json::json!([1, 2, 3]));
    fixture
        .ask("GET /api/v1/history?step=1", &[], b"")
        .expect_fault(422, "limit", "more than 3 buckets");
    let whole = fixture.get("/api/v1/history?step=1d");
    assert_eq!(whole[0]["count"], serde_json::json!([4]));
}
