//! Tests of how much one client may hold and keep busy while others are served: memory, places,
//! time.

use std::io::{Read as _, Write as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::client::{Socket, request, tcp, unix};
use crate::fixture::{Fixture, LARGE_PIECES, until};

const SQL: &str = "POST /api/v1/sql";
const LARGE_BYTES: usize = LARGE_PIECES * (256 << 10);

/// Asks for a large answer and reads only its first byte.
fn deaf(mut socket: Box<dyn Socket>) -> Box<dyn Socket> {
    socket.write_all(&request(SQL, &[], b"large")).unwrap();
    let mut byte = [0];
    socket.read_exact(&mut byte).unwrap();
    socket
}

#[test]
fn a_large_answer_comes_whole_though_it_is_held_by_parts() {
    let fixture = Fixture::with(|limits| limits.memory_bytes_max = 16 << 20);
    let answer = fixture.ask(SQL, &[], b"large");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    assert!(answer.body.len() > LARGE_BYTES, "chunks of {LARGE_BYTES}");
    assert!(answer.body.ends_with(b"0\r\n\r\n"), "it has its end");
    until(|| fixture.server().memory_bytes() == 0);
}

#[test]
fn who_asks_for_much_at_once_waits_for_a_place() {
    let fixture = Fixture::with(|limits| {
        limits.large_answers_max = 1;
        limits.place_time_max = Duration::from_secs(60);
    });
    // Like a page that draws several charts.
    let ask = || fixture.ask("GET /api/v1/history?match=cpu.**", &[], b"");
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        for answer in asked {
            assert_eq!(answer.join().unwrap().status, 200);
        }
    });
}

#[test]
fn slow_readers_hold_no_more_than_the_budget() {
    let fixture = Fixture::with(|limits| {
        limits.memory_bytes_max = 32 << 20;
        limits.large_answers_max = 12;
        limits.sql.time_ns_max = 2_000_000_000;
        limits.stall_time_max = Duration::from_secs(2);
    });
    let address = fixture.server().http_addr().unwrap();
    let deafs: Vec<_> = (0..6).map(|_| deaf(tcp(address))).collect();
    assert_eq!(fixture.server().memory_bytes_max_of_one(), 12 << 20);
    // An eighth of the budget is reserved for control.
    let socket = fixture.run_dir.control_socket();
    let control = fixture.ask_unix(socket, "GET /api/v1/streams", &[], b"");
    assert_eq!(control.status, 200);
    // Control's memory may be held for a moment longer.
    assert!(fixture.server().memory_bytes() <= 13 << 20);
    assert_eq!(
        fixture.sql.made.load(Ordering::SeqCst),
        0,
        "none is made whole"
    );
    // They are cut off though none of them disconnects, and all memory is given back.
    until(|| fixture.server().memory_bytes() == 0);
    drop(deafs);
}

#[test]
fn readers_that_leave_give_back_their_memory_at_once() {
    let long = Duration::from_secs(3_600);
    let fixture = Fixture::with(|limits| {
        limits.memory_bytes_max = 32 << 20;
        // Nothing but the end of its connection ends an answer.
        limits.sql.time_ns_max = i64::MAX;
        limits.request_time_max = long;
        limits.stall_time_max = long;
    });
    let address = fixture.server().http_addr().unwrap();
    // Some of them may be refused, when others hold all that one user may hold.
    let deafs: Vec<_> = (0..6).map(|_| deaf(tcp(address))).collect();
    until(|| fixture.server().memory_bytes() == 12 << 20);
    let begun = fixture.sql.asked.lock().unwrap().len();
    drop(deafs);
    until(|| fixture.server().memory_bytes() == 0);
    until(|| fixture.sql.cut.load(Ordering::SeqCst) == begun);
    let answer = fixture.ask(SQL, &[], b"large");
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() > LARGE_BYTES);
}

#[test]
fn an_answer_that_is_cut_off_has_no_end() {
    let fixture = Fixture::with(|limits| {
        limits.memory_bytes_max = 16 << 20;
        limits.sql.time_ns_max = 300_000_000;
    });
    let mut socket = deaf(unix(&fixture.run_dir.read_socket()));
    // The thread that makes the answer has waited too long for its reader.
    until(|| fixture.sql.cut.load(Ordering::SeqCst) == 1);
    assert!(fixture.server().memory_refused() > 0);
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}

#[test]
fn bodies_are_claimed_before_they_are_read() {
    let fixture = Fixture::with(|limits| limits.memory_bytes_max = 16 << 20);
    let address = fixture.server().http_addr().unwrap();
    let begun =
        b"POST /api/v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1048576\r\n\r\nSEL";
    let mut held: Vec<_> = (0..6)
        .map(|_| {
            let mut socket = tcp(address);
            socket.write_all(begun).unwrap();
            socket
        })
        .collect();
    until(|| fixture.server().memory_bytes() == 6 << 20);
    let more = fixture.ask_raw(&begun[..]);
    more.expect_fault(503, "busy", "hold too much memory");
    held.pop();
    until(|| fixture.server().memory_bytes() == 5 << 20);
}

#[test]
fn refusals_are_short() {
    let fixture = Fixture::new();
    let long = "x".repeat(50_000);
    let fault = fixture.ask(&format!("GET /api/v1/watch?{long}=1"), &[], b"");
    assert_eq!(fault.status, 400);
    assert!(fault.body.len() < 5_000, "{} bytes", fault.body.len());
    let fault = fixture.ask(&format!("GET /api/v1/query?query={long}"), &[], b"");
    assert!(fault.body.len() < 5_000, "{} bytes", fault.body.len());
}
