//! Webhooks against a receiver that answers what the test wants.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use barograph_action::{ActionOutcome, AttemptReach, RepeatWish, WebhookConfig, WebhookSender};

/// Answers one request with these bytes; gives its address, and the request afterwards.
fn receiver(answer: Vec<u8>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, requests) = sync_channel(1);
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4_096];
        while !request.ends_with(b"}") {
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(count) => request.extend_from_slice(&piece[..count]),
            }
        }
        sender.send(String::from_utf8(request).unwrap()).unwrap();
        if answer.is_empty() {
            // Silence until the sender gives up.
            let _ = stream.read(&mut piece);
        }
        let _ = stream.write_all(&answer);
    });
    (address, requests)
}

fn sender(hosts: &[&str]) -> WebhookSender {
    let config = WebhookConfig {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        time_max: Duration::from_millis(1_500),
        asked_wait_max: Duration::from_secs(100),
        answer_bytes_max: 1_000,
        ..WebhookConfig::default()
    };
    WebhookSender::new(&config).unwrap()
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn repeat(outcome: &ActionOutcome) -> Option<(RepeatWish, AttemptReach)> {
    match outcome {
        ActionOutcome::Failed(failure) => Some((failure.repeat, failure.reach)),
        _ => None,
    }
}

#[test]
fn a_request_has_key_and_body() {
    let (address, requests) = receiver(answer("201 Created", "", "taken"));
    let outcome = sender(&["127.0.0.1"]).post(
        &format!("http://{address}/hook?x=1"),
        "r.1.s.7",
        b"{\"a\":1}",
    );
    assert_eq!(
        outcome,
        ActionOutcome::Done {
            output: b"taken".to_vec()
        }
    );
    let request = requests.recv().unwrap();
    assert!(
        request.starts_with("POST /hook?x=1 HTTP/1.1\r\n"),
        "{request}"
    );
    let lower = request.to_lowercase();
    assert!(
        lower.contains("\r\nidempotency-key: r.1.s.7\r\n"),
        "{request}"
    );
    assert!(
        lower.contains("\r\ncontent-type: application/json\r\n"),
        "{request}"
    );
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
}

#[test]
fn answers_decide_whether_it_is_repeated() {
    let check = |status: &str, headers: &str, expect: RepeatWish| {
        let (address, _requests) = receiver(answer(status, headers, "why"));
        let outcome = sender(&[&address]).post(&format!("http://{address}/"), "k", b"{}");
        assert_eq!(
            repeat(&outcome),
            Some((expect, AttemptReach::Begun)),
            "{status}"
        );
    };
    const SECOND: i64 = 1_000_000_000;
    check("500 Oops", "", RepeatWish::Later);
    check(
        "503 Busy",
        "Retry-After: 7\r\n",
        RepeatWish::NotBefore(7 * SECOND),
    );
    check(
        "429 Slow",
        "Retry-After: 99999999\r\n",
        RepeatWish::NotBefore(100 * SECOND),
    );
    check(
        "429 Slow",
        "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n",
        RepeatWish::Later,
    );
    check("408 Timeout", "", RepeatWish::Later);
    check("425 Early", "", RepeatWish::Later);
    check("400 Bad", "Retry-After: 7\r\n", RepeatWish::Never);
    check("404 None", "", RepeatWish::Never);
    check(
        "302 Found",
        "Location: http://example.org/\r\n",
        RepeatWish::Never,
    );
    check("307 There", "Location: /other\r\n", RepeatWish::Never);
}

#[test]
fn receivers_that_do_not_answer() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let outcome = sender(&["127.0.0.1"]).post(&format!("http://{closed}/"), "k", b"{}");
    assert_eq!(
        repeat(&outcome),
        Some((RepeatWish::Later, AttemptReach::NotBegun))
    );
    let (silent, _requests) = receiver(Vec::new());
    let outcome = sender(&["127.0.0.1"]).post(&format!("http://{silent}/"), "k", b"{}");
    assert_eq!(
        repeat(&outcome),
        Some((RepeatWish::Later, AttemptReach::Begun))
    );
    let (junk, _requests) = receiver(b"\xff\xfe nonsense\r\n\r\n".to_vec());
    let outcome = sender(&["127.0.0.1"]).post(&format!("http://{junk}/"), "k", b"{}");
    assert_eq!(
        repeat(&outcome),
        Some((RepeatWish::Later, AttemptReach::Begun))
    );
}

#[test]
fn an_answer_that_is_too_long_changes_nothing() {
    let (address, _requests) = receiver(answer("200 OK", "", &"x".repeat(100_000)));
    let outcome = sender(&["127.0.0.1"]).post(&format!("http://{address}/"), "k", b"{}");
    assert!(matches!(outcome, ActionOutcome::Done { output } if output.len() <= 1_000));
}

#[test]
fn addresses_that_are_not_allowed() {
    let check = |hosts: &[&str], url: &str, reason: &str| {
        let outcome = sender(hosts).post(url, "k", b"{}");
        let ActionOutcome::Failed(failure) = outcome else {
            panic!("{url}");
        };
        assert!(failure.reason.contains(reason), "{url}: {}", failure.reason);
        assert_eq!(
            (failure.repeat, failure.reach),
            (RepeatWish::Never, AttemptReach::NotBegun),
            "{url}"
        );
    };
    check(&[], "http://127.0.0.1/", "not among the allowed hosts");
    check(
        &["good"],
        "http://good.evil/",
        "not among the allowed hosts",
    );
    check(
        &["good:80"],
        "http://good:81/",
        "not among the allowed hosts",
    );
    check(&["good"], "http://good@evil/", "user name");
    check(&["good"], "http://a:b@good/", "user name");
    check(&["good"], "ftp://good/", "neither http nor https");
    check(&["good"], "file:///etc/passwd", "not valid");
    check(&["good"], "good/path", "not valid");
    check(&["good"], "", "not valid");
    check(
        &["good"],
        &format!("http://good/{}", "x".repeat(9_000)),
        "bytes",
    );
}
