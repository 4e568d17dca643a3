//! The steps of the intake on a clock that stands still between them.

use super::*;

/// Makes a step, and returns in how many ns the next is due.
fn step(intake: &mut Intake<'_>) -> (NextStep, i64) {
    let next = intake.step();
    let (NextStep::At(at_ns) | NextStep::AtOrKnock(at_ns)) = next else {
        return (next, 0);
    };
    (next, at_ns - intake.clock.monotonic_ns())
}

#[test]
fn rounds_begin_by_the_clock_while_there_is_news_and_else_with_a_knock() {
    let clock = Arc::new(ManualClock::at(SystemClock::new().now_ns()));
    let limits = ApplicationsConfig::default();
    let round_ns = (limits.round_ms * 1e6) as i64;
    with_clock(limits, Arc::clone(&clock) as _, |intake, run_dir| {
        let (next, wait_ns) = step(intake);
        assert!(matches!(next, NextStep::AtOrKnock(_)), "{next:?}");
        assert_eq!(wait_ns, IDLE_SCAN_NS);
        let program = programs(run_dir, 1).remove(0);
        let mut ring = put(&program, kind::FRAME, 1);
        knock(run_dir, program.incarnation());
        run_dir.hear(intake);
        open(
            intake,
            ScopeReader::User(rustix::process::getuid().as_raw()),
        );
        let us = rustix::process::getuid().as_raw();
        let frames = |intake: &Intake<'_>| count(intake, us, |process| process.counts.frames);
        for round in 1..=5 {
            let (next, wait_ns) = step(intake);
            assert!(matches!(next, NextStep::At(_)), "{next:?}");
            assert_eq!((frames(intake), wait_ns), (round, round_ns));
            assert!(ring.put(kind::FRAME, 0, round, round));
            ring.commit();
            clock.advance(wait_ns);
        }
        assert_eq!(intake.next_scan_ns() - intake.scanned_ns, SCAN_NS);
        // After a while without news the program has to knock. While its records wait for the disk
        // the clock stands still.
        let begun_ns = clock.monotonic_ns();
        let last = loop {
            match step(intake) {
                _ if intake.roster.iter().any(PublishingProcess::is_waiting) => {
                    std::thread::yield_now()
                }
                (NextStep::At(_), wait_ns) => clock.advance(wait_ns),
                (next, _) => break next,
            }
        };
        assert!(matches!(last, NextStep::AtOrKnock(_)), "{last:?}");
        let quiet_ns = clock.monotonic_ns() - begun_ns;
        assert!(
            (AWAKE_NS..=AWAKE_NS + 2 * round_ns).contains(&quiet_ns),
            "{quiet_ns}"
        );
    });
}

#[test]
fn at_the_end_all_that_is_committed_is_taken_in() {
    let clock = Arc::new(ManualClock::at(SystemClock::new().now_ns()));
    let limits = ApplicationsConfig::default();
    with_clock(limits, Arc::clone(&clock) as _, |intake, run_dir| {
        let program = programs(run_dir, 1).remove(0);
        let _ring = put(&program, kind::FRAME, 50_000);
        intake.apply(IntakeEvent::Stop);
        let begun_ns = clock.monotonic_ns();
        // The clock stands still, so that the scope and the disk have the time that they need.
        while intake.step() != NextStep::Never {
            std::thread::yield_now();
        }
        let us = rustix::process::getuid().as_raw();
        let frames = count(intake, us, |process| process.counts.frames);
        assert_eq!((frames, clock.monotonic_ns()), (50_000, begun_ns));
        assert_eq!(intake.step(), NextStep::Never);
    });
}

/// Header fields of the format: the number of cells, and the time between two looks at them.
const CELLS: (u64, u64) = (176, 3);
const CELLS_INTERVAL: (u64, u64) = (184, 10_000_000_000);

#[test]
fn records_between_two_looks_at_the_cells_find_their_declarations() {
    let clock = Arc::new(ManualClock::at(SystemClock::new().now_ns()));
    let limits = ApplicationsConfig::default();
    with_clock(limits, Arc::clone(&clock) as _, |intake, run_dir| {
        let program = programs(run_dir, 1).remove(0);
        let file = OpenOptions::new().write(true).open(program.path()).unwrap();
        for (at, word) in [CELLS, CELLS_INTERVAL] {
            std::os::unix::fs::FileExt::write_all_at(&file, &word.to_le_bytes(), at).unwrap();
        }
        publication(&program, "a", PublicationReaders::Owner);
        assert!(value(&program, "v", ValueType::Int, 0));
        scan(intake);
        // Nothing was counted yet: the process has no streams, and its cells rest for a while.
        intake.round(true);
        let mut ring = program.thread(&SystemClock::new()).unwrap();
        for n in 0..100 {
            assert!(ring.put(kind::INT, 0, n, n));
        }
        ring.commit();
        intake.round(true);
        let us = rustix::process::getuid().as_raw();
        let counts = count(intake, us, |process| process.counts.values);
        let damaged = count(intake, us, |process| process.counts.damaged);
        assert_eq!((counts, damaged), (100, 0));
    });
}
