//! Property tests with one history that is divided at random between rings and archive: every query
//! finds each sample once, and the functions equal plain SQL over the tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use barograph_archive::{ArchiveReader, SampleChunk, View};
use barograph_model::{
    Columns, Descriptor, Kind, ManualClock, Past as _, PastRequest, PastSamples, Sample, Span,
    SqlFaultKind, Value, ValueType,
};
use barograph_query::{Database, PastReader, ScopeChoice, Views};
use barograph_stream::RunDir;
use proptest::prelude::*;

use crate::demo::{Demo, S, START_NS, descriptor};

use crate::{answer, files};

mod alone;
mod held;

/// The unit of times: long enough for pasts to span several hours.
const U: i64 = 60 * S;

/// The whole past of one series.
#[derive(Clone, Debug)]
struct Told {
    device: &'static str,
    /// Earlier lives, all archived: times in `U`, and values.
    before: Vec<Vec<(i64, i64)>>,
    /// The present life, or none if the stream has ended.
    now: Option<Vec<(i64, i64)>>,
    /// Number of samples of the present life that the archive has.
    archived: usize,
}

const DEPTH: u32 = 8;
const NAME: &str = "random.walk.count";

fn walk(device: &str) -> Descriptor {
    descriptor(NAME, &[("device", device)], ValueType::Int, Kind::Gauge)
}

/// A node with a given past, and its archive.
struct World {
    _demos: Vec<Demo>,
    _dir: tempfile::TempDir,
    database: Database,
    reader: PastReader,
    /// Number of looks at the archive.
    looks: Arc<AtomicUsize>,
}

fn chunk(series: usize, life: i64, samples: &[(i64, i64)]) -> SampleChunk {
    let mut columns = Columns::new(ValueType::Int);
    for (number, (seconds, value)) in (1..).zip(samples) {
        let sample = Sample::measured(START_NS + seconds * U, *value);
        columns.push(number, &sample);
    }
    SampleChunk {
        series,
        life,
        columns,
    }
}

/// The archive's part of a past. Lives end before `START_NS`, when the present one begins.
fn archived(told: &[Told]) -> files::Past {
    let mut past = files::Past::default();
    for one in told {
        let lives = (1..)
            .zip(one.before.iter().rev())
            .map(|(age, l)| (START_NS - age, &l[..]));
        let mut lives: Vec<(i64, &[(i64, i64)])> = lives.collect();
        if let Some(now) = &one.now {
            lives.push((START_NS, &now[..one.archived.min(now.len())]));
        }
        lives.retain(|(_, samples)| !samples.is_empty());
        for (life, samples) in lives {
            past.chunks.push(chunk(past.streams.len(), life, samples));
        }
        past.streams.push(Arc::new(walk(one.device)));
    }
    past
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START_NS + 100 * U))
}

impl World {
    fn of(told: &[Told]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut demo = Demo::empty(dir.path());
        for one in told {
            if let Some(now) = &one.now {
                let samples = now.iter().map(|(t, v)| (*t * U / S, Value::Int(*v)));
                demo.add_deep(&walk(one.device), DEPTH, samples);
            }
        }
        let view = archived(told).view(&dir.path().join("archive"));
        Self::over(Some(demo), dir, view)
    }

    /// A world with an archive of files: sealed, merged, and not yet sealed.
    fn of_files(told: &[Told], seals: &[usize]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut demo = Demo::empty(dir.path());
        for one in told {
            if let Some(now) = &one.now {
                let samples = now.iter().map(|(t, v)| (*t * U / S, Value::Int(*v)));
                demo.add_deep(&walk(one.device), DEPTH, samples);
            }
        }
        let root = dir.path().join("archive");
        let keeper = files::write(&root, &archived(told), seals);
        drop(keeper); // Samples that were not sealed stay in the log.
        let archive = ArchiveReader::open(&root);
        Self::with(Some(demo), dir, Arc::new(move || archive.view()))
    }

    fn over(demo: Option<Demo>, dir: tempfile::TempDir, view: Arc<View>) -> Self {
        Self::with(demo, dir, Arc::new(move || Ok(Arc::clone(&view))))
    }

    fn with(demo: Option<Demo>, dir: tempfile::TempDir, inner: Views) -> Self {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let views: Views = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            inner()
        });
        let run_dir = RunDir::new(dir.path());
        let run_dir = demo.is_some().then_some(&run_dir);
        if let Some(demo) = &demo {
            demo.segment.heartbeat(START_NS + 100 * U);
        }
        let database = Database::over(run_dir, Arc::clone(&views), clock()).unwrap();
        let reader = PastReader::over(run_dir, views, clock()).unwrap();
        Self {
            _demos: demo.into_iter().collect(),
            _dir: dir,
            database,
            reader,
            looks,
        }
    }

    /// A world with each series in a scope of its own, the first in the run directory itself, with
    /// archives of files.
    fn of_scopes(told: &[Told], seals: &[usize]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let own = RunDir::new(dir.path());
        let mut demos = Vec::new();
        for (one, scope) in told.iter().zip(["", "all", "u1000"]) {
            let run_dir = if scope.is_empty() {
                own.clone()
            } else {
                own.scope(scope)
            };
            std::fs::create_dir_all(run_dir.path()).unwrap();
            let mut demo = Demo::empty(run_dir.path());
            demo.segment.heartbeat(START_NS + 100 * U);
            if let Some(now) = &one.now {
                let samples = now.iter().map(|(t, v)| (*t * U / S, Value::Int(*v)));
                demo.add_deep(&walk(one.device), DEPTH, samples);
            }
            demos.push(demo);
            let root = run_dir.path().join("archive");
            let past = archived(std::slice::from_ref(one));
            drop(files::write(&root, &past, seals));
            crate::scopes::name_archive(&run_dir, &root);
        }
        let database = Database::open(&own, ScopeChoice::Readable, clock()).unwrap();
        let reader = PastReader::open(&own, ScopeChoice::Readable, clock()).unwrap();
        Self {
            _demos: demos,
            _dir: dir,
            database,
            reader,
            looks: Arc::default(),
        }
    }

    fn ask(&mut self, sql: &str) -> Vec<String> {
        answer(&mut self.database, sql)
    }

    /// The answer as sorted rows.
    fn sorted(&mut self, sql: &str) -> Vec<String> {
        let mut rows = self.ask(sql);
        rows.sort();
        rows
    }
}

/// Times and values of the whole past: the expected rows.
fn rows(told: &[Told]) -> Vec<(i64, i64, &'static str)> {
    let of = |one: &Told| {
        let lives = one.before.iter().chain(&one.now).flatten();
        let device = one.device;
        lives
            .map(move |(t, v)| (*t, *v, device))
            .collect::<Vec<_>>()
    };
    told.iter().flat_map(of).collect()
}

fn lines(rows: &[(i64, i64, &'static str)]) -> Vec<String> {
    let mut lines: Vec<String> = rows
        .iter()
        .map(|(t, value, device)| format!("{}|{value}|{device}", START_NS + t * U))
        .collect();
    lines.sort();
    lines
}

/// Times that mostly rise, with a clock that is sometimes set back a minute.
fn life(from: i64) -> impl Strategy<Value = Vec<(i64, i64)>> {
    let step = prop_oneof![8 => 1..3_i64, 1 => Just(0), 1 => Just(-1)];
    prop::collection::vec((step, 0..100_i64), 0..24).prop_map(move |steps| {
        let (mut at, mut latest) = (from, from);
        let sample = |(step, value): (i64, i64)| {
            // No further back than a minute, even in two steps.
            at = (at + step).max(latest - 1);
            latest = latest.max(at);
            (at, value)
        };
        steps.into_iter().map(sample).collect()
    })
}

fn told(device: &'static str) -> impl Strategy<Value = Told> {
    let before = prop_oneof![
        2 => Just(Vec::new()).boxed(),
        1 => life(-200).prop_map(|one| vec![one]).boxed(),
        1 => (life(-200), life(-100)).prop_map(|(a, b)| vec![a, b]).boxed(),
    ];
    // A ring returns one sample less than its depth: the archive has at least the samples that it
    // has lost.
    let now = prop_oneof![4 => life(0).prop_map(Some).boxed(), 1 => Just(None).boxed()];
    (before, now, 0..=DEPTH as usize).prop_map(move |(before, now, ahead)| {
        let count = now.as_ref().map_or(0, Vec::len);
        let lost = count.saturating_sub(DEPTH as usize - 1);
        Told {
            device,
            before,
            now,
            archived: (lost + ahead).min(count),
        }
    })
}

fn pasts() -> impl Strategy<Value = Vec<Told>> {
    let all = (told("a"), told("b"), told("c"));
    all.prop_map(|(a, b, c)| vec![a, b, c])
}

fn check_rows(world: &mut World, told: &[Told], from: i64, length: i64) {
    let all = rows(told);
    if all.is_empty() {
        return;
    }
    let (start, stop) = (START_NS + from * U, START_NS + (from + length) * U);
    let select = "SELECT ts, value, device FROM random_walk_count";
    assert_eq!(world.sorted(select), lines(&all));

    let within: Vec<_> = all
        .iter()
        .copied()
        .filter(|(t, ..)| (from..=from + length).contains(t))
        .collect();
    let bounded = format!("{select} WHERE ts BETWEEN {start} AND {stop}");
    assert_eq!(world.sorted(&bounded), lines(&within));
    let since: Vec<_> = all.iter().copied().filter(|(t, ..)| *t > from).collect();
    assert_eq!(
        world.sorted(&format!("{select} WHERE ts > {start}")),
        lines(&since)
    );
    let of_b: Vec<_> = since
        .iter()
        .copied()
        .filter(|(.., device)| *device == "b")
        .collect();
    assert_eq!(
        world.sorted(&format!("{select} WHERE ts > {start} AND device = 'b'")),
        lines(&of_b)
    );
    // A row that two branches of an OR find is one row.
    let either: Vec<_> = all
        .iter()
        .copied()
        .filter(|(t, _, device)| *device == "b" || *t > from)
        .collect();
    assert_eq!(
        world.sorted(&format!("{select} WHERE device = 'b' OR ts > {start}")),
        lines(&either)
    );

    for (order, rising) in [("ASC", true), ("DESC", false)] {
        for limit in ["", "LIMIT 3"] {
            let sql = format!("SELECT ts FROM random_walk_count ORDER BY ts {order} {limit}");
            let mut times: Vec<i64> = all.iter().map(|(t, ..)| START_NS + t * U).collect();
            times.sort_unstable();
            if !rising {
                times.reverse();
            }
            if !limit.is_empty() {
                times.truncate(3);
            }
            let expect: Vec<String> = times.iter().map(i64::to_string).collect();
            assert_eq!(world.ask(&sql), expect, "{}", sql);
        }
        let sql = format!("{select} WHERE ts >= {start} ORDER BY ts {order}");
        let from: Vec<_> = all.iter().copied().filter(|(t, ..)| *t >= from).collect();
        assert_eq!(world.sorted(&sql), lines(&from), "{}", sql);
    }
    // One newest row for each living stream, wherever it was found.
    let newest = "SELECT device, ts, value FROM random_walk_count WHERE newest";
    let found =
        "SELECT device, ts, value FROM (SELECT * FROM random_walk_count LIMIT -1) WHERE newest";
    assert_eq!(world.sorted(newest), world.sorted(found));
    let living = told
        .iter()
        .filter(|one| one.now.as_ref().is_some_and(|now| !now.is_empty()));
    assert_eq!(world.ask(newest).len(), living.count());
}

/// The means of a span, computed from its buckets.
fn means_over_time(start: i64, stop: i64, step: i64) -> String {
    format!(
        "SELECT labels->>'device', round(CASE WHEN sum(held_ns) > 0 THEN sum(mean * held_ns) / sum(held_ns) \
         ELSE sum(mean * count) / sum(count) END, 3) FROM history('random.*', {start}, {stop}, {step}) GROUP BY 1"
    )
}

fn check_functions(world: &mut World, told: &[Told], from: i64, length: i64, step: i64) {
    let (start, stop, step) = (
        START_NS + from * U,
        START_NS + (from + length) * U,
        step * U,
    );
    if rows(told).is_empty() {
        return;
    }
    let rows = format!("(SELECT * FROM random_walk_count WHERE ts BETWEEN {start} AND {stop})");
    let check = |world: &mut World, function: &str, plain: &str| {
        assert_eq!(
            world.sorted(function),
            world.sorted(plain),
            "{function}\n{plain}"
        );
    };
    check(
        world,
        &format!(
            "SELECT ts, value, labels->>'device', last FROM history('random.*', {start}, {stop})"
        ),
        &format!("SELECT ts, value, device, value FROM {rows}"),
    );
    // Integer division rounds towards zero; all times are after the epoch.
    check(
        world,
        &format!(
            "SELECT ts, labels->>'device', round(sample_mean, 6), count FROM history('random.*', {start}, {stop}, {step}) WHERE count > 0"
        ),
        &format!(
            "SELECT ts / {step} * {step}, device, round(avg(value), 6), count(*) FROM {rows} GROUP BY 1, 2"
        ),
    );
    check(
        world,
        &format!(
            "SELECT labels->>'device', sample_value, count FROM quantile('random.walk.count', 0, {start}, {stop}) WHERE count > 0"
        ),
        &format!("SELECT device, min(value) * 1.0, count(*) FROM {rows} GROUP BY 1"),
    );
    check(
        world,
        &format!(
            "SELECT labels->>'device', round(value, 3) FROM topk('random.walk.count', 9, {start}, {stop})"
        ),
        &means_over_time(start, stop, step),
    );
    held::check_asof(world, told, from + length);
    check(
        world,
        &format!("SELECT ts, device FROM family('random', {start}, {stop})"),
        &format!("SELECT DISTINCT ts, device FROM {rows}"),
    );
    check(
        world,
        &format!("SELECT ts, device FROM family('random', {start}, {stop}, {step})"),
        &format!("SELECT ts, labels->>'device' FROM history('random.*', {start}, {stop}, {step})"),
    );
}

fn check_past(world: &mut World, told: &[Told], from: i64, length: i64) {
    if rows(told).is_empty() {
        return;
    }
    let span = Span {
        from: START_NS + from * U,
        to: START_NS + (from + length) * U,
    };
    let never = AtomicBool::new(false);
    let wanted = |_: &str, d: &Descriptor| d.name.as_str() == NAME;
    let request = |samples_max| PastRequest {
        wanted: &wanted,
        span,
        samples_max,
        cancel: &never,
        holds: &barograph_model::unbounded,
    };
    let found = world.reader.read(&request(1_000)).unwrap();
    let mut lines = Vec::new();
    for PastSamples {
        series, columns, ..
    } in &found
    {
        assert!(columns.ts.is_sorted());
        let device = series.descriptor.labels.get("device").unwrap();
        for row in 0..columns.len() {
            let Sample { ts, value, .. } = columns.sample(row).unwrap();
            lines.push(format!("{ts}|{value}|{device}"));
        }
    }
    lines.sort();
    let sql = format!(
        "SELECT ts, value, device FROM random_walk_count WHERE ts BETWEEN {} AND {}",
        span.from, span.to
    );
    assert_eq!(&lines, &world.sorted(&sql));

    let buckets = world.reader.buckets(&request(100_000), 10 * U).unwrap();
    let count: u64 = buckets.iter().flat_map(|(_, buckets)| &buckets.count).sum();
    assert_eq!(count, lines.len() as u64);
    if !lines.is_empty() {
        let fault = world.reader.read(&request(lines.len() - 1)).unwrap_err();
        assert_eq!(fault.kind, SqlFaultKind::Limit);
        let series = world.reader.series(&request(0)).unwrap();
        assert!(found.iter().all(|PastSamples { series: one, .. }| {
            series.iter().any(|s| s.descriptor == one.descriptor)
        }));
    }

    let most = lines.len() / 2;
    let newest = world.reader.newest(&wanted, span, most, &never).unwrap();
    let kept: usize = newest.iter().map(|one| one.columns.len()).sum();
    let left_out: usize = newest.iter().map(|one| one.left_out).sum();
    assert_eq!((kept, kept + left_out), (most, lines.len()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn every_sample_is_there_once(told in pasts(), from in -210..30_i64, length in 0..60_i64) {
        check_rows(&mut World::of(&told), &told, from, length);
    }

    #[test]
    fn functions_say_what_plain_sql_says(
        told in pasts(), from in -210..30_i64, length in 0..60_i64, step in 1..40_i64,
    ) {
        check_functions(&mut World::of(&told), &told, from, length, step);
    }

    #[test]
    fn the_past_by_the_seam_is_that_of_the_tables(
        told in pasts(), from in -210..30_i64, length in 0..60_i64,
    ) {
        check_past(&mut World::of(&told), &told, from, length);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn files_hold_the_same(
        told in pasts(),
        seals in prop::collection::vec(0..60_usize, 0..3),
        from in -210..30_i64, length in 0..60_i64, step in 1..40_i64,
    ) {
        let mut world = World::of_files(&told, &seals);
        check_rows(&mut world, &told, from, length);
        check_functions(&mut world, &told, from, length, step);
        check_past(&mut world, &told, from, length);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn scopes_hold_the_same(
        told in pasts(),
        seals in prop::collection::vec(0..30_usize, 0..3),
        from in -210..30_i64, length in 0..60_i64, step in 1..40_i64,
    ) {
        let mut world = World::of_scopes(&told, &seals);
        check_rows(&mut world, &told, from, length);
        check_functions(&mut world, &told, from, length, step);
        check_past(&mut world, &told, from, length);
    }
}

/// A past with every seam: an earlier life, a lapped ring, a stream that has ended.
fn seams() -> Vec<Told> {
    let run = |from: i64, to: i64| (from..to).map(|t| (t, 10 * t)).collect::<Vec<_>>();
    vec![
        Told {
            device: "a",
            before: vec![run(-50, -40)],
            now: Some(run(0, 20)),
            archived: 15,
        },
        Told {
            device: "b",
            before: vec![run(-50, -45)],
            now: None,
            archived: 0,
        },
        Told {
            device: "c",
            before: Vec::new(),
            now: Some(run(10, 14)),
            archived: 0,
        },
    ]
}

#[test]
fn what_the_rings_can_answer_is_not_asked_of_the_archive() {
    let mut world = World::of(&seams());
    let mut check = |sql: &str, reads: bool| {
        world.ask(sql);
        let before = world.looks.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(!world.ask(sql).is_empty(), "{sql}");
        }
        let looks = world.looks.load(Ordering::Relaxed) - before;
        assert_eq!(looks > 0, reads, "{sql}");
    };
    check("SELECT value FROM random_walk_count WHERE newest", false);
    check("SELECT MAX(ts), value FROM random_walk_count", false);
    check(
        "SELECT MAX(Timestamp), metric FROM random_walk_count WHERE device = 'c'",
        false,
    );
    let recent = START_NS + 16 * U;
    check(
        &format!("SELECT value FROM random_walk_count WHERE device = 'a' AND ts > {recent}"),
        false,
    );
    check(
        "SELECT value FROM random_walk_count ORDER BY ts DESC LIMIT 3",
        false,
    );
    check("SELECT name FROM latest", false);
    check("SELECT name FROM topk('random.*', 3)", false);
    check("SELECT count(*) FROM random_walk_count", true);
    check("SELECT MIN(ts), value FROM random_walk_count", true);
    check("SELECT name FROM history('random.*')", true);
}
