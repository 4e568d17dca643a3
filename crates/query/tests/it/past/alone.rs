//! Tests of series that only the archive has, and of the bounds of a scan over much history.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::ArchiveError;
use barograph_model::{Past as _, PastRequest, Span, SqlFault, SqlFaultKind, SqlLimits, Value};
use barograph_query::{Database, Views};

use super::{Told, U, World, archived, clock, lines, rows, seams, walk};
use crate::ask;
use crate::demo::{Demo, START_NS};

#[test]
fn an_archive_by_itself() {
    let told: Vec<Told> = seams()
        .into_iter()
        .map(|one| Told {
            archived: usize::MAX,
            ..one
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let view = archived(&told).view(dir.path());
    let mut world = World::over(None, dir, view);
    let select = "SELECT ts, value, device FROM random_walk_count";
    assert_eq!(world.sorted(select), lines(&rows(&told)));
    assert_eq!(
        world.sorted("SELECT ts, value, device FROM node_1_random_walk_count"),
        lines(&rows(&told))
    );
    let newest = lines(&[(19, 190, "a"), (-46, -460, "b"), (13, 130, "c")]);
    assert_eq!(world.sorted(&format!("{select} WHERE newest")), newest);
    let plain =
        "SELECT ts, value, device FROM (SELECT * FROM random_walk_count LIMIT -1) WHERE newest";
    assert_eq!(world.sorted(plain), newest);
    assert_eq!(world.ask("SELECT value FROM topk('random.*', 1)"), ["190"]);
    assert_eq!(
        world.ask("SELECT node, state FROM nodes"),
        ["Node-1|archived"]
    );
    assert_eq!(world.ask("SELECT count(*) FROM streams"), ["0"]);
    assert_eq!(world.ask("SELECT * FROM sources"), [""; 0]);
}

#[test]
fn a_table_that_only_the_archive_knows() {
    let told: Vec<Told> = seams()
        .into_iter()
        .filter(|one| one.now.is_none())
        .collect();
    let mut world = World::of(&told);
    let select = "SELECT ts, value, device FROM random_walk_count";
    assert_eq!(world.sorted(select), lines(&rows(&told)));
    // None of its streams lives.
    assert_eq!(world.ask(&format!("{select} WHERE newest")), [""; 0]);
    let last = format!("{}|-460", START_NS - 46 * U);
    assert_eq!(
        world.ask("SELECT MAX(ts), value FROM random_walk_count"),
        [last]
    );
    assert_eq!(
        world.ask("SELECT looked - ts FROM random_walk_count ORDER BY ts DESC LIMIT 2"),
        ["0", "60000000000"]
    );
}

#[test]
fn a_scan_of_much_history_is_stopped_and_counted() {
    const ROWS: i64 = 200_000;
    let samples: Vec<(i64, i64)> = (0..ROWS).map(|value| (-1, value)).collect();
    let device = ["a", "b", "c"];
    let told = device.map(|device| Told {
        device,
        before: vec![samples.clone()],
        now: None,
        archived: 0,
    });
    let mut world = World::of(&told);
    let sql =
        "SELECT sum(a.value) FROM random_walk_count a JOIN random_walk_count b ON a.ts <> b.ts";
    let cancelled = AtomicBool::new(true);
    let fault = world
        .database
        .run(sql, &SqlLimits::default(), &cancelled)
        .unwrap_err();
    assert_eq!(fault.kind, SqlFaultKind::Cancelled, "{fault}");
    // A batch with all samples of one time is larger than the limit; reading in runs is not.
    let small = SqlLimits {
        memory_bytes_max: 12 << 20,
        ..SqlLimits::default()
    };
    let never = AtomicBool::new(false);
    let mut run = |sql: &str| world.database.run(sql, &small, &never);
    let fault = run("SELECT value FROM random_walk_count ORDER BY ts LIMIT 1").unwrap_err();
    assert_eq!(fault.kind, SqlFaultKind::Limit, "{fault}");
    assert_eq!(
        run("SELECT count(*) FROM history('random.*{device=a}')")
            .unwrap()
            .len(),
        1
    );
    assert!(
        ask(
            &mut world.database,
            "SELECT count(*) FROM random_walk_count"
        )
        .is_ok()
    );
}

/// With a clock that is set to and fro, there are as many unmerged buckets as samples, however few
/// remain.
#[test]
fn buckets_are_bounded_while_they_are_made() {
    const ROWS: i64 = 150_000;
    let told = Told {
        device: "a",
        before: vec![(0..ROWS).map(|value| (-1 - value % 2, value)).collect()],
        now: None,
        archived: 0,
    };
    let world = World::of(&[told]);
    let buckets = |samples_max| {
        let request = PastRequest {
            wanted: &|_, _| true,
            span: Span::ALL,
            samples_max,
            cancel: &AtomicBool::new(false),
            holds: &barograph_model::unbounded,
        };
        let found = world.reader.buckets(&request, U)?;
        Ok::<_, SqlFault>(
            found
                .iter()
                .map(|(_, buckets)| buckets.len())
                .sum::<usize>(),
        )
    };
    assert_eq!(buckets(ROWS as usize).unwrap(), 2);
    let fault = buckets(10).unwrap_err();
    assert_eq!(fault.kind, SqlFaultKind::Limit, "{fault}");
    assert!(fault.message.contains("more than 10 buckets"), "{fault}");
}

/// The situation of other users than the agent's, if the archive's directory is private to it.
#[test]
fn without_the_right_to_the_archive_the_rings_answer() {
    let views = |kind: ErrorKind| -> Views {
        Arc::new(move || {
            Err(ArchiveError::Io {
                what: "list the nodes of",
                path: "/var/lib/archive".into(),
                source: kind.into(),
            })
        })
    };
    let world = |kind| {
        let dir = tempfile::tempdir().unwrap();
        let mut demo = Demo::empty(dir.path());
        demo.add_deep(&walk("a"), 8, (0..5).map(|t| (t, Value::Int(t))));
        World::with(Some(demo), dir, views(kind))
    };
    let mut denied = world(ErrorKind::PermissionDenied);
    for table in ["random_walk_count", "history('random.*')"] {
        assert_eq!(
            denied.ask(&format!("SELECT count(*), max(value) FROM {table}")),
            ["5|4"]
        );
    }
    let unreadable = "SELECT count(*) FROM archive WHERE tier = 'unreadable'";
    assert_eq!(denied.ask(unreadable), ["1"]);
    let why = "SELECT count FROM loss WHERE what LIKE 'archives left out: %/var/lib/archive%'";
    assert_eq!(denied.ask(why), ["1"]);

    // A broken archive is still an error, and so is one that is read alone.
    let mut broken = world(ErrorKind::NotADirectory);
    assert!(
        ask(
            &mut broken.database,
            "SELECT count(*) FROM history('random.*')"
        )
        .is_err()
    );
    let alone = Database::over(None, views(ErrorKind::PermissionDenied), clock());
    assert!(alone.is_err());
}
