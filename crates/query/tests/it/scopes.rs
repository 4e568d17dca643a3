//! Tests of applications' scopes: segments and archives that are read together with the node's own.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_archive::{DeclaredStream, JournalEntry, Keeper};
use barograph_model::{
    Clock, Descriptor, Kind, ManualClock, Past as _, PastRequest, Sample, Span, StreamKey, Value,
    ValueType,
};
use barograph_query::{Database, PastReader, ScopeChoice};
use barograph_stream::RunDir;

use crate::demo::{Demo, S, START_NS, descriptor};
use crate::{answer, files};

/// The descriptor of an application's value.
pub(crate) fn value(name: &str, rank: &str, of: ValueType) -> Descriptor {
    let labels = [("rank", rank), ("user", "eve")];
    descriptor(&format!("app.{name}"), &labels, of, Kind::Gauge)
}

/// Makes an empty segment of a scope.
pub(crate) fn scope(dir: &Path, name: &str) -> Demo {
    let run_dir = RunDir::new(dir).scope(name);
    std::fs::create_dir_all(run_dir.path()).unwrap();
    Demo::empty(run_dir.path())
}

/// Writes the document that names the archive of a run directory.
pub(crate) fn name_archive(run_dir: &RunDir, root: &Path) {
    let document = format!("{{\"archive\": {:?}}}", root.to_str().unwrap());
    run_dir
        .publish("agent.json", document.as_bytes(), 0o644)
        .unwrap();
}

/// Publications of two users: two ranks of one, and one for everyone.
pub(crate) fn published(dir: &Path) -> Vec<Demo> {
    let mut own = scope(dir, "u1000");
    for (rank, start) in [("0", 0), ("1", 100)] {
        let puts = |at: &[(i64, i64)]| {
            let put = |(t, v): &(i64, i64)| (*t, Value::Int(start + v));
            at.iter().map(put).collect::<Vec<_>>()
        };
        let stream = |name| value(name, rank, ValueType::Int);
        // The second frame has no residual, and the last residual has no frame.
        own.add(&stream("lulesh.frame"), puts(&[(2, 1), (4, 2), (7, 3)]));
        own.add(
            &stream("lulesh.residual"),
            puts(&[(1, 10), (2, 20), (6, 30), (8, 40)]),
        );
        own.add(
            &stream("lulesh.mesh.cells"),
            puts(&[(3, 5), (4, 6), (5, 7)]),
        );
    }
    own.add(
        &value("lulesh.hydro.frame", "0", ValueType::Int),
        [(3, 1.into())],
    );
    own.add(
        &value("lulesh.hydro.phase", "0", ValueType::Text),
        [(1, Value::text("solve"))],
    );
    let mut public = scope(dir, "all");
    public.add(
        &value("weather.wind.ratio", "0", ValueType::Float),
        [(5, 0.5.into())],
    );
    let row = r#"{"name":"lulesh","labels":{"rank":"0","user":"eve"},"application":"lulesh2","user":"eve",
        "pid":71,"incarnation":"ab","started_ts":5,"values":2,"frame":3,"taken":9,"lost":3,"missed":1,
        "dropped":2,"damaged":0,"refused":1,"refusal":"app.lulesh.X: a name","newest_ts":8,"new":1}"#;
    let other = row.replace("\"lulesh\"", "\"lulesh.hydro\"");
    let document = format!("[{row},{other},{}]", row.replace("\"ab\"", "\"cd\""));
    let run_dir = RunDir::new(dir).scope("u1000");
    run_dir
        .publish("publications.json", document.as_bytes(), 0o644)
        .unwrap();
    let calls = r#"[{"id":2,"ts":7,"name":"checkpoint","kind":"trigger","target":{"rank":"0"},"incarnation":null,
        "user":"eve","publications":["lulesh"],"payload":"now","payload_bytes":3,"by_user":1000,"by_pid":71,"via":"read.sock","expires_ts":60,"matched":3,"acknowledged":1,
        "failed":1,"refused":0,"expired":0,"gone":1,"state":"failed","last_ack_ts":9,"new":1}]"#;
    let knobs = r#"[{"publication":"lulesh","name":"dt","labels":{"rank":"0"},"type":"float64","min":0.0,"max":null,
        "unit":"s","value":0.5,"ts":8,"help":"step","application":"lulesh2","user":"eve","pid":71,"incarnation":"ab"}]"#;
    for (name, document) in [("calls.json", calls), ("knobs.json", knobs)] {
        run_dir.publish(name, document.as_bytes(), 0o644).unwrap();
    }
    // The same call in the form that everyone may read, and one of a user whose scope does not
    // exist.
    let told = calls.replace("\"payload\":\"now\",", "\"payload\":null,");
    let told = told.replace("\"by_user\":1000,\"by_pid\":71,\"via\":\"read.sock\",", "");
    let other = told.replace("\"eve\"", "\"mallory\"");
    let document = format!("[{},{}", &told[1..told.len() - 1], &other[1..]);
    let all = RunDir::new(dir).scope("all");
    all.publish("calls.json", document.as_bytes(), 0o644)
        .unwrap();
    vec![own, public]
}

struct World {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    _own: Demo,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            _own: Demo::known(dir.path()),
            clock: Arc::new(ManualClock::at(START_NS + 10 * S)),
            dir,
        }
    }

    fn open(&self, scopes: ScopeChoice) -> Database {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        Database::open(&RunDir::new(self.dir.path()), scopes, clock).unwrap()
    }

    fn scope(&self, name: &str) -> RunDir {
        RunDir::new(self.dir.path()).scope(name)
    }
}

#[test]
fn scopes_are_read_by_who_may() {
    let world = World::new();
    let _published = published(world.dir.path());
    let sql = "SELECT count(*) FROM streams";
    assert_eq!(answer(&mut world.open(ScopeChoice::None), sql), ["10"]);
    assert_eq!(answer(&mut world.open(ScopeChoice::Public), sql), ["11"]);
    assert_eq!(answer(&mut world.open(ScopeChoice::Readable), sql), ["19"]);
    let mut public = world.open(ScopeChoice::Public);
    assert_eq!(
        answer(&mut public, "SELECT value FROM app_weather_wind_ratio"),
        ["0.5"]
    );
    assert_eq!(answer(&mut public, "SELECT * FROM publications"), [""; 0]);
    // Everyone reads the public form of calls; a user who may read more gets each call once.
    let calls = "SELECT scope, user, id, payload, payload_bytes, by_user FROM calls ORDER BY user";
    assert_eq!(
        answer(&mut public, calls),
        ["all|eve|2|NULL|3|NULL", "all|mallory|2|NULL|3|NULL"]
    );
    assert_eq!(
        answer(&mut world.open(ScopeChoice::Readable), calls),
        ["u1000|eve|2|now|3|1000", "all|mallory|2|NULL|3|NULL"]
    );
    let streams = "SELECT node, streams FROM nodes";
    assert_eq!(answer(&mut public, streams), ["Node-1|10"]);
}

#[test]
fn scopes_come_go_and_are_replaced() {
    let world = World::new();
    let dir = world.dir.path();
    let mut database = world.open(ScopeChoice::Readable);
    let sql = "SELECT value FROM latest WHERE name = 'app.a.count' ORDER BY 1";
    let stream = value("a.count", "0", ValueType::Int);
    assert_eq!(answer(&mut database, sql), [""; 0]);

    let mut first = scope(dir, "u1");
    first.add(&stream, [(0, 1.into())]);
    // Scopes are not looked for again within the second.
    assert_eq!(answer(&mut database, sql), [""; 0]);
    world.clock.advance(S);
    assert_eq!(answer(&mut database, sql), ["1"]);
    let own = "SELECT value FROM app_a_count WHERE newest ORDER BY value";
    assert_eq!(answer(&mut database, own), ["1"]);

    // The same series in another scope is another series.
    let mut second = scope(dir, "u2");
    second.add(&stream, [(0, 2.into())]);
    // A damaged segment, or a file that is none, counts as absent.
    for damaged in ["u3", "u4"] {
        std::fs::create_dir_all(world.scope(damaged).path()).unwrap();
    }
    std::fs::write(world.scope("u3").segment(), "no segment").unwrap();
    std::fs::create_dir(world.scope("u4").segment()).unwrap();
    world.clock.advance(S);
    assert_eq!(answer(&mut database, sql), ["1", "2"]);
    assert_eq!(answer(&mut database, own), ["1", "2"]);
    let either = "SELECT value FROM app_a_count WHERE rank = '0' OR newest = 1 ORDER BY 1";
    assert_eq!(answer(&mut database, either), ["1", "2"]);

    // Its agent has ended and started again.
    drop(first);
    assert_eq!(answer(&mut database, sql), ["1", "2"]);
    let mut first = scope(dir, "u1");
    first.add(&stream, [(0, 3.into())]);
    assert_eq!(answer(&mut database, sql), ["2", "3"]);

    // New streams are there at once.
    first.add(&value("a.count", "1", ValueType::Int), [(0, 4.into())]);
    assert_eq!(answer(&mut database, own), ["2", "3", "4"]);

    std::fs::remove_dir_all(world.scope("u1").path()).unwrap();
    world.clock.advance(S);
    assert_eq!(answer(&mut database, sql), ["2"]);
    assert_eq!(answer(&mut database, own), ["2"]);
    assert_eq!(
        answer(
            &mut database,
            "SELECT value FROM disk_read_bytes WHERE newest"
        ),
        ["400", "500"]
    );
}

/// One series in three scopes: two have an archive, and that of the third cannot be read.
fn archived(world: &World) -> (Vec<Demo>, Vec<Keeper>) {
    let dir = world.dir.path();
    let stream = value("a.count", "0", ValueType::Int);
    let (mut demos, mut keepers) = (Vec::new(), Vec::new());
    for (name, archived) in [("all", 15), ("u1", 18)] {
        let mut demo = scope(dir, name);
        demo.add_deep(&stream, 8, (0..20).map(|t| (t, Value::from(t))));
        let root = world.scope(name).path().join("archive");
        let keeper = files::keeper(&root);
        let declared = DeclaredStream {
            descriptor: Arc::new(stream.clone()),
            life: START_NS,
            depth: 8,
        };
        let sample = |t: i64| {
            let sample = Sample::measured(START_NS + t * S, t);
            JournalEntry::Sample(StreamKey(0), t as u64 + 1, sample)
        };
        let declare = std::iter::once(JournalEntry::Declare(StreamKey(0), declared));
        files::submit(&keeper, declare.chain((0..archived).map(sample)).collect());
        name_archive(&world.scope(name), &root);
        demos.push(demo);
        keepers.push(keeper);
    }
    keepers[1].seal().unwrap();
    let mut third = scope(dir, "u2");
    third.add_deep(&stream, 8, (0..20).map(|t| (t, Value::from(t))));
    let blocked = world.scope("u2").path().join("blocked");
    std::fs::write(&blocked, "no directory").unwrap();
    name_archive(&world.scope("u2"), &blocked);
    demos.push(third);
    (demos, keepers)
}

#[test]
fn each_scope_has_its_archive() {
    let world = World::new();
    let _kept = archived(&world);
    let mut database = world.open(ScopeChoice::Readable);
    let mut check = |sql: &str, expect: &[&str]| assert_eq!(answer(&mut database, sql), expect);
    check(
        "SELECT count(*), sum(value), sum(newest) FROM app_a_count",
        &["47|492|3"],
    );
    check(
        "SELECT count(*) FROM app_a_count WHERE rank = '0' OR newest",
        &["47"],
    );
    check(
        "SELECT MAX(ts), value FROM app_a_count",
        &[&format!("{}|19", START_NS + 19 * S)],
    );
    check(
        "SELECT count(*), min(value) FROM history('app.a.*') GROUP BY ts ORDER BY ts DESC LIMIT 1",
        &["3|19"],
    );
    check(
        &format!("SELECT sum(count) FROM history('app.a.*', NULL, NULL, {S})"),
        &["47"],
    );
    check(
        "SELECT count FROM quantile('app.a.*', 0.5) ORDER BY 1",
        &["7", "20", "20"],
    );
    check(
        &format!("SELECT value FROM asof('app.a.*', {})", START_NS + 5 * S),
        &["5", "5"],
    );
    check("SELECT count(*) FROM family('app.a')", &["47"]);
    check("SELECT value FROM topk('app.a.*', 5)", &["19", "19", "19"]);
    check(
        "SELECT tier, sum(rows) FROM archive WHERE tier IN ('raw', 'log') GROUP BY 1",
        &["log|15", "raw|18"],
    );
    check(
        "SELECT count(*), sum(count) FROM loss WHERE \"where\" LIKE 'archive of Node-1, scope %'",
        &["10|0"],
    );
    check(
        "SELECT count FROM loss WHERE what LIKE 'archives left out: %' AND \"where\" LIKE '%/u2/blocked'",
        &["1"],
    );
    check(
        "SELECT count(*) FROM archive WHERE tier = 'unreadable'",
        &["1"],
    );
    past_without_sql(&world);
}

fn past_without_sql(world: &World) {
    let clock: Arc<dyn Clock> = Arc::clone(&world.clock) as _;
    let run_dir = RunDir::new(world.dir.path());
    let reader = PastReader::open(&run_dir, ScopeChoice::Readable, clock).unwrap();
    let never = AtomicBool::new(false);
    let wanted = |_: &str, d: &Descriptor| d.name.as_str() == "app.a.count";
    let request = PastRequest {
        wanted: &wanted,
        span: Span::ALL,
        samples_max: 100,
        cancel: &never,
        holds: &barograph_model::unbounded,
    };
    let lengths = |found: Vec<usize>| assert_eq!(found, [20, 20, 7]);
    lengths(
        reader
            .read(&request)
            .unwrap()
            .iter()
            .map(|one| one.columns.len())
            .collect(),
    );
    lengths(
        reader
            .buckets(&request, S)
            .unwrap()
            .iter()
            .map(|(_, b)| b.len())
            .collect(),
    );
    let newest = reader.newest(&wanted, Span::ALL, 100, &never).unwrap();
    lengths(newest.iter().map(|one| one.columns.len()).collect());
    assert_eq!(reader.series(&request).unwrap().len(), 3);
    let moment = reader.moment("raw", &request).unwrap();
    assert_eq!(moment.files.len(), 1);
    assert_eq!(moment.tail.len(), 15 + 5 + 2 + 7);
}

#[test]
fn damaged_documents_of_a_scope_say_so() {
    let world = World::new();
    let _scope = scope(world.dir.path(), "all");
    let mut database = world.open(ScopeChoice::Public);
    let run_dir = world.scope("all");
    run_dir.publish("publications.json", b"[{", 0o644).unwrap();
    for sql in ["SELECT * FROM publications", "SELECT * FROM loss"] {
        let fault = crate::ask(&mut database, sql).unwrap_err();
        assert!(
            fault.message.contains("publications.json is damaged"),
            "{fault}"
        );
    }
}

#[test]
fn what_may_not_be_opened_is_not_there() {
    let world = World::new();
    let _published = published(world.dir.path());
    let private = world.scope("u1000");
    let mode = |mode| std::fs::set_permissions(private.path(), PermissionsExt::from_mode(mode));
    mode(0o000).unwrap();
    if std::fs::File::open(private.segment()).is_ok() {
        return; // Root may open everything.
    }
    let mut database = world.open(ScopeChoice::Readable);
    let sql = "SELECT count(*) FROM streams";
    assert_eq!(answer(&mut database, sql), ["11"]);
    assert_eq!(answer(&mut database, "SELECT * FROM publications"), [""; 0]);
    mode(0o700).unwrap();
    world.clock.advance(S);
    assert_eq!(answer(&mut database, sql), ["19"]);
    // Its archive cannot be read, but its rings can.
    let root = private.path().join("archive");
    std::fs::create_dir_all(root.join("nodes")).unwrap();
    name_archive(&private, &root);
    std::fs::set_permissions(root.join("nodes"), PermissionsExt::from_mode(0o000)).unwrap();
    world.clock.advance(S);
    let frames = "SELECT count(*) FROM frames('lulesh')";
    assert_eq!(answer(&mut database, frames), ["6"]);
    std::fs::set_permissions(root.join("nodes"), PermissionsExt::from_mode(0o700)).unwrap();
    mode(0o000).unwrap();
    world.clock.advance(S);
    assert_eq!(answer(&mut database, sql), ["11"]);
    mode(0o700).unwrap();
}

#[test]
fn scopes_come_and_go_while_they_are_read() {
    let world = World::new();
    let dir = world.dir.path();
    let clock: Arc<dyn Clock> = Arc::clone(&world.clock) as _;
    let reader = PastReader::open(&RunDir::new(dir), ScopeChoice::Readable, clock).unwrap();
    let is_over = AtomicBool::new(false);
    let read = || {
        let never = AtomicBool::new(false);
        let request = PastRequest {
            wanted: &|_, d| matches!(d.name.as_str(), "disk.read.bytes" | "app.a.count"),
            span: Span::ALL,
            samples_max: 100,
            cancel: &never,
            holds: &barograph_model::unbounded,
        };
        while !is_over.load(Ordering::Relaxed) {
            world.clock.advance(S);
            let found = reader.read(&request).unwrap();
            let own = found
                .iter()
                .filter(|one| one.series.descriptor.name.as_str() == "disk.read.bytes");
            assert_eq!(own.map(|one| one.columns.len()).sum::<usize>(), 8);
            let mut of_scopes = found
                .iter()
                .filter(|one| one.series.descriptor.name.as_str() == "app.a.count");
            assert!(of_scopes.all(|one| (1..=3).contains(&one.columns.len())));
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(read);
        }
        let stream = value("a.count", "0", ValueType::Int);
        for round in 0..300 {
            let name = ["u1", "u2", "all"][round % 3];
            let mut demo = scope(dir, name);
            demo.add(&stream, [(0, 1.into()), (1, 2.into()), (2, 3.into())]);
            name_archive(
                &world.scope(name),
                &world.scope(name).path().join("archive"),
            );
            if round % 2 == 0 {
                std::fs::remove_dir_all(world.scope(name).path()).unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
