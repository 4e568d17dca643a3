//! Tests of the table of control events: the streams of programs and of the agent as one table, in
//! rings and archive.

use std::sync::Arc;

use barograph_archive::{DeclaredStream, JournalEntry};
use barograph_model::{Kind, Sample, StreamKey, Value, ValueType};
use barograph_stream::{CONTROL_EVENT_BYTES_MAX, ControlEventContent, ControlEventSource, RunDir};

use crate::demo::{Demo, S, START_NS, descriptor};
use crate::scopes::{name_archive, scope, value};
use crate::{answer, files, open};

fn event(kind: &str, sequence: u64, number: Option<f64>) -> Value {
    let content = ControlEventContent {
        kind,
        subject: "/scratch",
        value: number,
        confidence: 0.5,
        properties: &[("policy", "set10"), ("a\"b", "")],
    };
    let source = ControlEventSource {
        pid: 7,
        thread: 1,
        life: 0xab,
        sequence,
    };
    let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
    let length = content.write(source, &mut bytes).unwrap();
    Value::Bytes(bytes[..length].into())
}

#[test]
fn the_table_is_there_before_any_event() {
    let dir = tempfile::tempdir().unwrap();
    let _own = Demo::known(dir.path());
    let mut database = open(dir.path());
    assert_eq!(
        answer(&mut database, "SELECT * FROM control_events"),
        [""; 0]
    );
    let columns = "SELECT columns FROM tables WHERE name = 'control_events'";
    assert_eq!(
        answer(&mut database, columns),
        [
            "ts,node,kind,subject,value,confidence,sequence,pid,thread,properties,newest,application,job,rank,user,\
          life,record,age_ns"
        ]
    );
}

#[test]
fn programs_and_the_agent_are_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut own = Demo::known(dir.path());
    let mut programs = scope(dir.path(), "u1000");
    let of_rank = |rank| value("control.event.record", rank, ValueType::Bytes);
    let labels: [(&str, &str); 0] = [];
    let of_agent = descriptor(
        "control.event.record",
        &labels,
        ValueType::Bytes,
        Kind::State,
    );
    let told = [
        (1, event("a.first", 1, Some(1.5))),
        (4, event("a.last", 2, None)),
    ];
    programs.add(&of_rank("0"), told);
    // What is no event has no parts.
    programs.add(&of_rank("1"), [(3, Value::Bytes((*b"none").into()))]);
    own.add(&of_agent, [(2, event("io.starved", 1, Some(3.0)))]);
    let mut database = open(dir.path());
    let mut check = |sql: &str, expect: &[&str]| assert_eq!(answer(&mut database, sql), expect);
    check(
        "SELECT kind, value, sequence, rank, user, newest FROM control_events ORDER BY ts",
        &[
            "a.first|1.5|1|0|eve|0",
            "io.starved|3.0|1|NULL|NULL|1",
            "NULL|NULL|NULL|1|eve|1",
            "a.last|NULL|2|0|eve|1",
        ],
    );
    check(
        "SELECT subject, confidence, pid, thread, life, properties FROM control_events WHERE kind GLOB 'io.*'",
        &["/scratch|0.5|7|1|00000000000000ab|{\"a\\\"b\":\"\",\"policy\":\"set10\"}"],
    );
    check(
        "SELECT kind FROM control_events WHERE newest AND rank = '0'",
        &["a.last"],
    );
    check(
        "SELECT kind, age_ns FROM control_events ORDER BY ts DESC LIMIT 1",
        &["a.last|6000000000"],
    );
    // Each stream has its plain table as well.
    check("SELECT count(*) FROM app_control_event_record", &["3"]);
    check("SELECT length(value) FROM control_event_record", &["87"]);
    check(
        "SELECT count(*) FROM control_events WHERE properties->>'policy' = 'set10'",
        &["3"],
    );
}

#[test]
fn what_the_ring_has_lost_is_read_from_the_archive() {
    let dir = tempfile::tempdir().unwrap();
    let _own = Demo::known(dir.path());
    let mut programs = scope(dir.path(), "u1000");
    let stream = value("control.event.record", "0", ValueType::Bytes);
    let at = |n: i64| event("a", n as u64 + 1, Some(n as f64));
    programs.add_deep(&stream, 4, (0..10).map(|n| (n, at(n))));
    let run_dir = RunDir::new(dir.path()).scope("u1000");
    let root = run_dir.path().join("archive");
    let keeper = files::keeper(&root);
    let declared = DeclaredStream {
        descriptor: Arc::new(stream),
        life: START_NS,
        depth: 4,
    };
    let sample = |n: i64| {
        let sample = Sample::measured(START_NS + n * S, at(n));
        JournalEntry::Sample(StreamKey(0), n as u64 + 1, sample)
    };
    let declare = std::iter::once(JournalEntry::Declare(StreamKey(0), declared));
    files::submit(&keeper, declare.chain((0..9).map(sample)).collect());
    name_archive(&run_dir, &root);
    keeper.seal().unwrap();
    let mut database = open(dir.path());
    let all = "SELECT count(*), sum(value), max(sequence), count(properties) FROM control_events";
    assert_eq!(answer(&mut database, all), ["10|45.0|10|10"]);
}
