//! C programs that ask where blocks go, with an agent, which is this test, and without.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;

use barograph_stream::RunDir;

use crate::build::{Language, command, here, must, program, workshop};

#[test]
fn c_programs_ask_where_blocks_go() {
    let workshop = workshop();
    let sources = [here().join("tests/programs/advises.c")];
    let Some(program) = program(workshop.path(), Language::C, &sources, &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(RunDir::new(dir.path()).control_socket()).unwrap();
    let agent = thread::spawn(move || [answer(&listener, ADVICE), answer(&listener, "{}")]);
    let mut command = command(&program, dir.path());
    command.arg(dir.path()).arg(dir.path().join("none"));
    must(&command.output().unwrap());
    let [asked, reported] = agent.join().unwrap();
    for part in [
        "POST /api/v1/control/advise",
        r#""bytes":4096"#,
        r#""direction":"read""#,
        r#""keys":["x","y","z"]"#,
        r#""label":"step""#,
        r#"{"path":"/b/","weight":1.0}"#,
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    assert!(reported.contains("POST /api/v1/control/report"));
    assert!(reported.contains(r#""bytes":12288"#) && reported.contains(r#""seconds":0.25"#));
}

const ADVICE: &str = r#"{"decision":9,"dry_run":false,"reason":"so","targets":[],"blocks":[
    {"key":"x","pieces":[{"path":"/b/","bytes":4096}],"expected_s":0.5},
    {"key":"y","pieces":[{"path":"/a","bytes":4096}],"expected_s":null},
    {"key":"z","pieces":[],"expected_s":null}]}"#;

/// Takes one request and answers it.
fn answer(listener: &UnixListener, body: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut asked = Vec::new();
    let mut piece = [0; 1_024];
    while !asked.ends_with(b"}") {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the request ends early");
        asked.extend_from_slice(&piece[..count]);
    }
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).unwrap();
    String::from_utf8(asked).unwrap()
}
