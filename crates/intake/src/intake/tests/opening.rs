//! Scopes that take long to open, or cannot be opened.

use super::*;

/// Opens a scope, or finds that it cannot be opened.
pub(super) fn open(intake: &mut Intake<'_>, reader: Reader) {
    while intake.scopes.is_opening(reader) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_an_ended_program_put_is_counted_where_its_scope_cannot_be_opened_for_long() {
    const PUT: u64 = 3;
    let clock = Arc::new(ManualClock::at(SystemClock::new().now_ns()));
    let limits = ApplicationsConfig::default();
    with_clock(limits, Arc::clone(&clock) as _, |intake, run_dir| {
        // A file in place of the scopes' directory, so that no scope can be made.
        fs::write(run_dir.path().join("applications"), "").unwrap();
        let program = programs(run_dir, 1).remove(0);
        drop(put(&program, kind::INT, PUT));
        drop(program);
        scan(intake);
        let lost = |intake: &Intake<'_>| intake.counts.lost.load(Ordering::Relaxed);
        for (wait_s, expect) in [(0, 0), (60, 0), (200, 0), (60, PUT)] {
            clock.advance(wait_s * NS_PER_S);
            intake.round(true);
            intake.round(true);
            assert_eq!(lost(intake), expect, "{wait_s} s later");
        }
        assert!(taken_in(intake).is_empty(), "it is over");
    });
}

/// A clock that stands still for the thread of one scope's opening, until it is let go.
struct Held {
    clock: SystemClock,
    thread: &'static str,
    gate: std::sync::Mutex<()>,
}

impl Clock for Held {
    fn now_ns(&self) -> i64 {
        if std::thread::current().name() == Some(self.thread) {
            drop(self.gate.lock().unwrap());
        }
        self.clock.now_ns()
    }

    fn monotonic_ns(&self) -> i64 {
        self.clock.monotonic_ns()
    }
}

#[test]
fn a_scope_that_is_slow_to_open_is_waited_for_by_its_own_programs_alone() {
    let clock = Arc::new(Held {
        clock: SystemClock::new(),
        thread: "scope-all",
        gate: Default::default(),
    });
    let limits = ApplicationsConfig::default();
    with_clock(limits, Arc::clone(&clock) as _, |intake, run_dir| {
        let held = clock.gate.lock().unwrap();
        let for_all = programs(run_dir, 1).remove(0);
        publication(&for_all, "shared", Readers::All);
        let _slow = put(&for_all, kind::INT, 10);
        let ours = programs(run_dir, 1).remove(0);
        let mut ring = put(&ours, kind::INT, 10);
        scan(intake);
        let values = |intake: &Intake<'_>, of: &Producer| {
            let mut all = intake.roster.iter();
            let process = all.find(|p| p.file().incarnation() == of.incarnation());
            process.map(|p| (p.counts.values, p.counts.refused, p.counts.lost()))
        };
        for round in 1..4 {
            intake.round(false);
            assert_eq!(values(intake, &ours), Some((10 * round, 0, 0)));
            assert_eq!(values(intake, &for_all), Some((0, 0, 0)), "it waits");
            for n in 0..10 {
                assert!(ring.put(kind::INT, 0, n, n));
            }
            ring.commit();
        }
        assert!(intake.scopes.awaits(Reader::All));
        drop(held);
        open(intake, Reader::All);
        while intake.round(false).has_more {}
        assert_eq!(
            values(intake, &for_all),
            Some((10, 0, 0)),
            "nothing is lost"
        );
    });
}
