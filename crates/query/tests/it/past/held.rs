//! Tests of the values that held at a time: none where nobody looked.

use super::*;
use crate::demo::{S, START_NS};

/// Device and time of the sample of each series that held at `t`, in the run directory itself or in
/// scopes. The lives of a series follow each other.
fn held(told: &[Told], t: i64, is_put: impl Fn(usize) -> bool) -> Vec<String> {
    let of = |(at, one): (usize, &Told)| {
        let lives: Vec<&Vec<(i64, i64)>> = one.before.iter().chain(&one.now).collect();
        let begun = lives.iter().rposition(|l| l.iter().any(|s| s.0 <= t))?;
        let last = lives[begun]
            .iter()
            .map(|s| s.0)
            .filter(|ts| *ts <= t)
            .max()?;
        let goes_on = lives[begun].iter().any(|s| s.0 > t);
        let lives_on = one.now.is_some() && begun + 1 == lives.len();
        let is_last = lives[begun + 1..].iter().all(|l| l.is_empty());
        let is_held = is_put(at) && one.now.is_none() && is_last;
        (last == t || goes_on || lives_on || is_held)
            .then(|| format!("{}|{}", one.device, START_NS + last * U))
    };
    told.iter().enumerate().filter_map(of).collect()
}

/// Asks what held at `t`, and in one statement at the times of all samples. Any sample of equal
/// times may be the last, so it asks for the time of the sample.
pub(super) fn check_asof(world: &mut World, told: &[Told], t: i64) {
    let is_of_scopes = world._demos.len() > 1;
    let is_put = |at: usize| is_of_scopes && at > 0;
    let at = START_NS + t * U;
    let select = "a.labels->>'device', a.sample_ts FROM";
    let one = format!("SELECT {select} asof('random.*', {at}) a");
    assert_eq!(world.sorted(&one), held(told, t, is_put), "{one}");
    let mut times: Vec<i64> = rows(told).into_iter().map(|(t, ..)| t).collect();
    times.sort_unstable();
    times.dedup();
    let each = times.iter().flat_map(|t| {
        let at = START_NS + t * U;
        held(told, *t, is_put)
            .into_iter()
            .map(move |row| format!("{at}|{row}"))
    });
    let mut each: Vec<String> = each.collect();
    each.sort();
    let all = format!(
        "SELECT n.ts, {select} (SELECT DISTINCT ts FROM random_walk_count) n \
         JOIN asof('random.*', n.ts) a"
    );
    assert_eq!(world.sorted(&all), each, "{all}");
}

/// A stream whose agent was killed at -40, and that the next agent looks at from `again` on.
fn killed(again: i64) -> Vec<Told> {
    let run = |from: i64, to: i64| (from..=to).map(|t| (t, t)).collect::<Vec<_>>();
    vec![Told {
        device: "a",
        before: vec![run(-50, -40)],
        now: Some(run(again, again + 3)),
        archived: 2,
    }]
}

#[test]
fn nothing_holds_after_an_agent_was_killed() {
    // The next life begins in the same hour (it begins 13 min before `START_NS`), in the next ones,
    // and after more than a day.
    for again in [-20, 5, 70, 1_600] {
        let told = killed(again);
        for mut world in [World::of(&told), World::of_files(&told, &[5, 12])] {
            for t in [-41, -40, -39, -15, again - 1, again, again + 2] {
                check_asof(&mut world, &told, t);
            }
            let at = START_NS - 39 * U;
            assert!(
                world
                    .ask(&format!("SELECT value FROM asof('random.*', {at})"))
                    .is_empty()
            );
        }
    }
    let mut world = World::of(&killed(5));
    let gaps = "SELECT count(*) FROM gaps('random.*') WHERE";
    assert_eq!(
        world.ask(&format!("{gaps} until > '-100m' AND ts < '-100m'")),
        ["1"]
    );
    assert_eq!(world.ask(&format!("{gaps} until > '-10m'")), ["0"]);
}

/// A dead agent's streams hold until their last looks; a living one's until a look is missing.
#[test]
fn nothing_holds_after_the_last_look_of_an_agent_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    demo.add(&walk("a"), [(0, 1.into())]);
    demo.add(&walk("put"), [(0, 2.into())]);
    demo.segment.expect_interval(&demo.writers[0], S);
    demo.writers[0].confirm(START_NS + 20 * S);
    let check = |heartbeat: i64, ts: i64, expect: &[&str]| {
        demo.segment.heartbeat(START_NS + heartbeat * S);
        let clock = Arc::new(ManualClock::at(START_NS + 30 * S));
        let run_dir = RunDir::new(dir.path());
        let mut database = Database::open(&run_dir, ScopeChoice::None, clock).unwrap();
        let at = START_NS + ts * S / 10;
        let sql = format!("SELECT labels->>'device' FROM asof('random.*', {at}) ORDER BY 1");
        assert_eq!(answer(&mut database, &sql), expect, "{heartbeat} {ts}");
    };
    check(29, 200, &["a", "put"]);
    check(29, 230, &["a", "put"]);
    check(29, 231, &["put"]);
    check(29, 300, &["put"]);
    check(21, 200, &["a", "put"]);
    check(21, 201, &["put"]);
    check(21, 210, &["put"]);
    check(21, 211, &[]);
}

/// A group of a family holds values of a killed agent's lives; they end with the first sample of
/// the next.
#[test]
fn a_family_holds_nothing_of_a_killed_agent() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let of = |metric: &str| {
        let name = format!("random.{metric}.count");
        descriptor(&name, &[("device", "a")], ValueType::Int, Kind::Gauge)
    };
    let mut past = files::Past::default();
    for (metric, values, next) in [("one", &[(-9, 1), (-6, 2)][..], 5), ("two", &[(-8, 7)], 7)] {
        past.chunks
            .push(chunk(past.streams.len(), START_NS - 50 * U, values));
        past.streams.push(Arc::new(of(metric)));
        demo.add(&of(metric), [(next * U / S, 3.into())]);
    }
    let view = past.view(&dir.path().join("archive"));
    let mut world = World::over(Some(demo), dir, view);
    let minutes = format!("(ts - {START_NS}) / {U}");
    let found = world.ask(&format!(
        "SELECT {minutes}, one_count, two_count FROM family('random')"
    ));
    assert_eq!(
        found,
        ["-9|1|NULL", "-8|1|7", "-6|2|7", "5|3|NULL", "7|3|3"]
    );
    // Between the lives, and just before the second, nothing is held at the start.
    let from = START_NS + 5 * U;
    let found = world.ask(&format!(
        "SELECT {minutes}, one_count, two_count FROM family('random', {from})"
    ));
    assert_eq!(found, ["5|3|NULL", "7|3|3"]);
}
