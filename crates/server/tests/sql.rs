//! Tests of SQL over HTTP: formats, bodies, faults, and queries whose client has disconnected.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use barograph_model::{BigIntegers, ResultFormat};

use crate::client::{request, tcp};
use crate::fixture::{Fixture, until};

#[test]
fn formats_and_bodies() {
    let fixture = Fixture::new();
    let json = "application/json";
    let cases = [
        ("", "SELECT 1", ResultFormat::JsonRows, json),
        (
            "?format=rows",
            "{\"sql\": \"SELECT 1\"}",
            ResultFormat::JsonRows,
            json,
        ),
        (
            "?format=table",
            " {\"sql\":\"SELECT 1\"}",
            ResultFormat::JsonTable,
            json,
        ),
        (
            "?format=arrow",
            "SELECT 1",
            ResultFormat::Arrow,
            "application/vnd.apache.arrow.stream",
        ),
    ];
    fixture.ask("POST /api/v1/sql?big_integers=text", &[], b"SELECT 1");
    let asked = fixture.sql.asked.lock().unwrap().pop().unwrap();
    assert_eq!(asked.big_integers, BigIntegers::Text);
    for (query, body, format, content_type) in cases {
        let found = fixture.ask(&format!("POST /api/v1/sql{query}"), &[], body.as_bytes());
        assert_eq!(
            (found.status, found.header("content-type")),
            (200, Some(content_type)),
            "{query}"
        );
        assert_eq!(found.text(), "[{\"answer\":42}]");
        let asked = fixture.sql.asked.lock().unwrap().pop().unwrap();
        assert_eq!(
            (asked.sql.as_str(), asked.format),
            ("SELECT 1", format),
            "{query}"
        );
        assert_eq!(asked.big_integers, BigIntegers::Number, "{query}");
        assert_eq!(asked.limits.rows_max, 1_000_000);
    }
}

#[test]
fn faults() {
    let fixture = Fixture::new();
    let check =
        |query: &str, headers: &[&str], body: &[u8], (status, kind): (u16, &str), part: &str| {
            fixture
                .ask(&format!("POST /api/v1/sql{query}"), headers, body)
                .expect_fault(status, kind, part);
        };
    check(
        "",
        &[],
        b"statement",
        (400, "statement"),
        "it was statement",
    );
    check("", &[], b"refused", (403, "refused"), "it was refused");
    check("", &[], b"limit", (422, "limit"), "it was limit");
    check("", &[], b"busy", (503, "busy"), "it was busy");
    check("", &[], b"internal", (500, "internal"), "it was internal");
    check("", &[], b"panic", (500, "internal"), "ended early");
    check(
        "?format=csv",
        &[],
        b"SELECT 1",
        (400, "usage"),
        "rows, table or arrow",
    );
    check(
        "?format=rows&format=table",
        &[],
        b"SELECT 1",
        (400, "usage"),
        "given twice",
    );
    check("", &[], b"\xff", (400, "usage"), "not UTF-8");
    check("", &[], b"  ", (400, "usage"), "holds no statement");
    check("", &[], b"{\"sql\": 1}", (400, "usage"), "{\"sql\": \"");
    check(
        "",
        &[],
        b"{\"sql\": \"x\", \"y\": 1}",
        (400, "usage"),
        "unknown field",
    );
    check(
        "",
        &["content-type: application/json"],
        b"SELECT 1",
        (400, "usage"),
        "{\"sql\": \"",
    );
}

#[test]
fn a_query_ends_when_its_asker_has_gone() {
    let fixture = Fixture::with(|limits| limits.large_answers_max = 1);
    let mut asker = tcp(fixture.server().http_addr().unwrap());
    asker
        .write_all(&request("POST /api/v1/sql", &[], b"wait"))
        .unwrap();
    until(|| fixture.sql.running.load(Ordering::SeqCst) == 1);
    for line in ["POST /api/v1/sql", "GET /api/v1/history"] {
        fixture
            .ask(line, &[], b"SELECT 1")
            .expect_fault(503, "busy", "try again");
    }
    assert_eq!(
        fixture.ask("GET /api/v1/latest", &[], b"").status,
        200,
        "the present is not held up"
    );
    assert_eq!(fixture.sql.cancelled.load(Ordering::SeqCst), 0);
    drop(asker);
    until(|| fixture.sql.cancelled.load(Ordering::SeqCst) == 1);
    until(|| fixture.ask("POST /api/v1/sql", &[], b"SELECT 1").status == 200);
}

#[test]
fn a_query_that_takes_too_long_is_cancelled() {
    let fixture = Fixture::with(|limits| {
        limits.request_time_max = std::time::Duration::from_millis(100);
    });
    fixture
        .ask("POST /api/v1/sql", &[], b"wait")
        .expect_fault(408, "limit", "longer than 100ms");
    until(|| fixture.sql.cancelled.load(Ordering::SeqCst) == 1);
}
