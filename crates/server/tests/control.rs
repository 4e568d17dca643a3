//! Tests of the right to control on all three ways, and of the right to ask over TCP.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use rustix::thread::set_thread_res_uid;
use serde_json::json;

use crate::fixture::Fixture;

const MAKE: &str = "POST /api/v1/insights";
const TEST: &str = "POST /api/v1/insights/test";
const STATEMENT: &[u8] = b"CREATE INSIGHT x AS SELECT 1";

#[test]
fn control_needs_its_right() {
    let fixture = Fixture::new();
    let made = json!({ "name": "made", "sql": "CREATE INSIGHT x AS SELECT 1" });
    let bearer = format!("authorization: Bearer {}", fixture.token());

    let by_token = fixture.ask(MAKE, &[&bearer], STATEMENT);
    assert_eq!((by_token.status, by_token.json()), (200, made.clone()));
    let by_uid = fixture.ask_unix(fixture.run_dir.control_socket(), MAKE, &[], STATEMENT);
    assert_eq!((by_uid.status, by_uid.json()), (200, made));

    let without = fixture.ask(MAKE, &[], STATEMENT);
    without.expect_fault(401, "refused", "control.token in the run directory");
    assert_eq!(without.header("www-authenticate"), Some("Bearer"));
    let almost = format!("{}0", &fixture.token()[..63]);
    for wrong in [
        "authorization: Bearer",
        "authorization: Bearer x",
        "authorization: Basic eA==",
        "authorization: B",
        &format!("authorization: Bearer {almost}x"),
    ] {
        let refused = fixture.ask(MAKE, &[wrong], STATEMENT);
        assert_eq!(refused.status, 401, "{wrong}");
    }
    let read_side = fixture.ask_unix(fixture.run_dir.read_socket(), MAKE, &[&bearer], STATEMENT);
    read_side.expect_fault(401, "refused", "use control.sock");
}

#[test]
fn the_configuration_is_read_again_by_who_may_control() {
    let fixture = Fixture::new();
    const RELOAD: &str = "POST /api/v1/reload";
    let without = fixture.ask(RELOAD, &[], b"");
    without.expect_fault(401, "refused", "control.token in the run directory");
    let read_side = fixture.ask_unix(fixture.run_dir.read_socket(), RELOAD, &[], b"");
    read_side.expect_fault(401, "refused", "use control.sock");
    let answer = fixture.ask_unix(fixture.run_dir.control_socket(), RELOAD, &[], b"");
    let expect = json!({ "left_out": [], "needs_restart": ["http"] });
    assert_eq!((answer.status, answer.json()), (200, expect));
}

#[test]
fn what_is_declared_is_made_by_who_may_control_and_read_by_all() {
    for (path, document, statement) in [
        ("/api/v1/rules", "rules.json", "CREATE RULE t"),
        ("/api/v1/triggers", "rules.json", "CREATE TRIGGER t"),
        ("/api/v1/policies", "policies.json", "CREATE POLICY p"),
    ] {
        let fixture = Fixture::new();
        let make = format!("POST {path}");
        let without = fixture.ask(&make, &[], statement.as_bytes());
        without.expect_fault(401, "refused", "control.token in the run directory");
        let socket = fixture.run_dir.read_socket();
        let read_side = fixture.ask_unix(socket, &make, &[], statement.as_bytes());
        read_side.expect_fault(401, "refused", "use control.sock");
        let socket = fixture.run_dir.control_socket();
        let made = fixture.ask_unix(socket.clone(), &make, &[], statement.as_bytes());
        let expect = json!({ "name": "made", "sql": statement });
        assert_eq!((made.status, made.json()), (200, expect));
        let wrong = fixture.ask_unix(socket, &make, &[], b"statement");
        assert_eq!(wrong.status, 400);
        assert_eq!(fixture.get(path), json!([]), "not yet written");
        let rows = br#"[{"name": "t"}]"#;
        fixture.run_dir.publish(document, rows, 0o644).unwrap();
        assert_eq!(fixture.get(path), json!([{ "name": "t" }]));
    }
}

#[test]
fn a_test_changes_nothing_and_needs_the_right_to_control_over_tcp_alone() {
    let fixture = Fixture::new();
    let without = fixture.ask(TEST, &[], STATEMENT);
    without.expect_fault(401, "refused", "control.token in the run directory");
    let bearer = format!("authorization: Bearer {}", fixture.token());
    let tcp = fixture.ask(TEST, &[&bearer], STATEMENT);
    assert_eq!(
        (tcp.status, tcp.json()),
        (200, json!({ "rows": [{ "value": 7 }] }))
    );
    let read_side = fixture.ask_unix(fixture.run_dir.read_socket(), TEST, &[], STATEMENT);
    assert_eq!(read_side.status, 200);
}

#[test]
fn faults_of_control_say_whose_they_are() {
    let fixture = Fixture::new();
    for (kind, status) in [("statement", 400), ("busy", 503), ("internal", 500)] {
        for line in [MAKE, TEST] {
            let socket = fixture.run_dir.control_socket();
            let fault = fixture.ask_unix(socket, line, &[], kind.as_bytes());
            fault.expect_fault(status, kind, &format!("it was {kind}"));
        }
    }
    let empty = fixture.ask_unix(fixture.run_dir.control_socket(), MAKE, &[], b" ");
    empty.expect_fault(400, "usage", "holds no statement");
}

#[test]
fn the_archive_is_worked_on_by_those_who_may_control() {
    let fixture = Fixture::new();
    let line = "POST /api/v1/archive/seal";
    let sealed = fixture.ask_unix(fixture.run_dir.control_socket(), line, &[], b"{}");
    assert_eq!(
        (sealed.status, sealed.json()),
        (200, json!({ "sealed": true }))
    );
    let busy = fixture.ask_unix(
        fixture.run_dir.control_socket(),
        "POST /api/v1/archive/compact",
        &[],
        b"",
    );
    busy.expect_fault(503, "busy", "it was compact");
    let without = fixture.ask(line, &[], b"{}");
    without.expect_fault(401, "refused", "control.token in the run directory");
    let read_side = fixture.ask_unix(fixture.run_dir.read_socket(), line, &[], b"");
    read_side.expect_fault(401, "refused", "use control.sock");
}

#[test]
fn files_have_the_modes_of_the_contract() {
    let mut fixture = Fixture::new();
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(fixture.run_dir.read_socket()), 0o666);
    assert_eq!(mode(fixture.run_dir.control_socket()), 0o600);
    assert_eq!(mode(fixture.run_dir.control_token()), 0o600);
    let token = fixture.token();
    assert!(
        token.len() == 64 && token.bytes().all(|b| b.is_ascii_hexdigit()),
        "{token}"
    );
    fixture.stop();
    for path in [
        fixture.run_dir.read_socket(),
        fixture.run_dir.control_socket(),
        fixture.run_dir.control_token(),
    ] {
        assert!(!path.exists(), "{}", path.display());
    }
}

#[test]
fn strangers_on_the_control_socket_get_nothing() {
    let fixture = Fixture::new();
    let socket = fixture.run_dir.control_socket();
    // Even if the modes admit everyone, the peer's user id decides.
    std::fs::set_permissions(fixture.dir.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let nobody = rustix::process::Uid::from_raw(65_534);
    let ask = |line: &'static str| {
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                // This changes only this thread, and only root can do it; other users stay who they
                // are.
                let is_nobody = set_thread_res_uid(nobody, nobody, nobody).is_ok();
                (
                    is_nobody,
                    fixture.ask_unix(socket.clone(), line, &[], STATEMENT),
                )
            });
            peer.join().unwrap()
        })
    };
    for line in [MAKE, "GET /api/v1/latest"] {
        let (is_nobody, response) = ask(line);
        if is_nobody && !rustix::process::getuid().eq(&nobody) {
            response.expect_fault(403, "refused", "use read.sock to read");
        } else {
            assert_eq!(response.status, 200);
        }
    }
}

#[test]
fn hosts() {
    let fixture = Fixture::new();
    let latest = "GET /api/v1/latest";
    let check = |line: &str, headers: &[&str], expect: u16| {
        let found = fixture.ask(line, headers, b"").status;
        assert_eq!(found, expect, "{line} {headers:?}");
    };
    for host in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:70",
        "[::1]",
        "[::1]:80",
    ] {
        check(latest, &[&format!("host: {host}")], 200);
    }
    for host in [
        "evil.example",
        "localhost.evil.example:70",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "",
    ] {
        check(latest, &[&format!("host: {host}")], 403);
        check("GET /", &[&format!("host: {host}")], 403);
    }
    check("GET /", &["Host:"], 400);
    check("GET /", &["host: localhost", "host: evil.example"], 400);
    let local = ["host: localhost"];
    check("GET http://evil.example/api/v1/latest", &local, 403);
    check("GET http://localhost/api/v1/latest", &local, 200);

    // Browsers cannot reach unix sockets, so any Host is accepted.
    let socket = fixture.run_dir.read_socket();
    let any = fixture.ask_unix(socket, latest, &["host: barograph"], b"");
    assert_eq!(any.status, 200);
}

#[test]
fn pages_of_other_sites() {
    let fixture = Fixture::new();
    let address = fixture.server().http_addr().unwrap();
    let ours = format!("host: {address}");
    let check = |path: &str, header: &str, expect: u16| {
        let found = fixture.ask(&format!("GET {path}"), &[&ours, header], b"");
        assert_eq!(found.status, expect, "{path} {header}");
    };
    let latest = "/api/v1/latest";
    check(latest, &format!("origin: http://{address}"), 200);
    check(latest, "origin: http://evil.example", 403);
    check(latest, "origin: http://127.0.0.1:1", 403);
    check(latest, &format!("origin: https://{address}"), 403);
    check(latest, "origin: null", 403);
    check("/api/v1/watch", "sec-fetch-site: cross-site", 403);
    check(latest, "sec-fetch-site: same-site", 403);
    check(latest, "sec-fetch-site: same-origin", 200);
    check(latest, "sec-fetch-site: none", 200);
    check("/", "sec-fetch-site: cross-site", 200);
    let bearer = format!("authorization: Bearer {}", fixture.token());
    let headers = [&ours, &bearer, "origin: http://evil.example"];
    fixture
        .ask(MAKE, &headers, STATEMENT)
        .expect_fault(403, "refused", "other sites");
}

#[test]
fn programs_are_called_and_readers_plan_for_themselves_by_those_who_may() {
    for line in [
        "POST /api/v1/fire",
        "POST /api/v1/control/plan",
        "POST /api/v1/control/report",
        "POST /api/v1/control/decisions",
        "POST /api/v1/control/phases",
        "POST /api/v1/control/list",
        "POST /api/v1/control/explain",
        "POST /api/v1/control/revert",
    ] {
        are_asked_by_those_who_may(line);
    }
}

#[test]
fn controllers_are_switched_by_those_who_may_control_alone() {
    for path in ["pause", "resume", "dry-run"] {
        let fixture = Fixture::new();
        let line = format!("POST /api/v1/control/{path}");
        let body = br#"{"controller": "weight"}"#;
        let read = fixture.run_dir.read_socket();
        let refused = fixture.ask_unix(read, &line, &[], body);
        refused.expect_fault(401, "refused", "use control.sock");
        let without = fixture.ask(&line, &[], body);
        without.expect_fault(401, "refused", "control.token in the run directory");
        let control = fixture.run_dir.control_socket();
        let done = fixture.ask_unix(control, &line, &[], body);
        assert_eq!((done.status, &done.json()["any"]), (200, &json!(true)));
    }
}

fn are_asked_by_those_who_may(line: &'static str) {
    let fixture = Fixture::new();
    let body = br#"{"name": "x"}"#;
    let (read, control) = (
        fixture.run_dir.read_socket(),
        fixture.run_dir.control_socket(),
    );
    let us = rustix::process::getuid().as_raw();
    let who = |via: &str, any: bool| json!({ "uid": us, "pid": std::process::id(), "via": via, "any": any });
    let by_uid = fixture.ask_unix(control.clone(), line, &[], body);
    assert_eq!(
        (by_uid.status, by_uid.json()),
        (200, who("control.sock", true))
    );
    // Reading gives no right over others' programs, and one's own need no right.
    let own = fixture.ask_unix(read, line, &[], body);
    assert_eq!((own.status, own.json()), (200, who("read.sock", false)));
    let without = fixture.ask(line, &[], body);
    without.expect_fault(401, "refused", "control.token in the run directory");
    let bearer = format!("authorization: Bearer {}", fixture.token());
    let by_token = fixture.ask(line, &[&bearer], body);
    let found = by_token.json();
    assert_eq!((by_token.status, &found["via"]), (200, &json!("http")));
    for (name, status) in [("unknown", 404), ("refused", 403), ("busy", 503)] {
        let body = json!({ "name": name }).to_string();
        let fault = fixture.ask_unix(control.clone(), line, &[], body.as_bytes());
        fault.expect_fault(status, name, "as asked");
    }
    let text = fixture.ask_unix(control.clone(), line, &[], b"checkpoint");
    text.expect_fault(400, "usage", "no JSON object");
}
