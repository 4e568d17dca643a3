//! Scopes that take long to open, or cannot be opened.

use super::*;

/// Opens a scope, or finds that it cannot be opened.
pub(super) fn open(intake: &mut Intake<'_>, reader: ScopeReader) {
    while intake.scopes.is_opening(reader) {
        std::thread::yield_now();
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

/// A clock that stands still for a thread that waits for a disk, until it is let go.
struct HeldClock<C> {
    clock: C,
    /// The first letters of the thread's name.
    thread: &'static str,
    gate: std::sync::Mutex<()>,
    /// Whether the thread has come to the gate.
    has_come: AtomicBool,
}

impl<C: Clock> HeldClock<C> {
    fn new(clock: C, thread: &'static str) -> Arc<Self> {
        Arc::new(Self {
            clock,
            thread,
            gate: Default::default(),
            has_come: AtomicBool::new(false),
        })
    }
}

impl<C: Clock> Clock for HeldClock<C> {
    fn now_ns(&self) -> i64 {
        let thread = std::thread::current();
        if thread
            .name()
            .is_some_and(|name| name.starts_with(self.thread))
        {
            self.has_come.store(true, Ordering::SeqCst);
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
    let clock = HeldClock::new(SystemClock::new(), "scope-all");
    let limits = ApplicationsConfig::default();
    with_clock(limits, Arc::clone(&clock) as _, |intake, run_dir| {
        let held = clock.gate.lock().unwrap();
        let for_all = programs(run_dir, 1).remove(0);
        publication(&for_all, "shared", PublicationReaders::All);
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
        assert!(intake.scopes.awaits(ScopeReader::All));
        drop(held);
        open(intake, ScopeReader::All);
        while intake.round(false).has_more {}
        assert_eq!(
            values(intake, &for_all),
            Some((10, 0, 0)),
            "nothing is lost"
        );
    });
}

/// The archive of a scope comes up late, after an agent before it has counted losses there.
#[test]
fn the_past_of_an_archive_that_comes_up_late_holds_up_nobody() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let limits = ApplicationsConfig::default;
    let us = rustix::process::getuid().as_raw();
    let run_dir = RunDir::new(dir.path().join("run"));
    let scope = run_dir.scope(&format!("u{us}"));
    let newest = || {
        let losses = archived(&scope, barograph_stream::ingest::LOSS_STREAM);
        losses.last().cloned()
    };
    let take_in = |intake: &mut Intake<'_>| {
        scan(intake);
        while intake.round(true).has_news || intake.roster.iter().any(PublishingProcess::is_waiting)
        {
        }
    };
    let earlier: Arc<dyn Clock> = Arc::new(SystemClock::new());
    live(dir.path(), limits(), earlier, |intake, run_dir| {
        let program = programs(run_dir, 1).remove(0);
        drop(put(&program, kind::FRAME, 1));
        program.count_homeless(5);
        take_in(intake);
        assert_eq!(newest(), Some(Value::Int(5)));
        drop(program);
        while intake.roster.len() > 0 {
            intake.round(true);
        }
    });
    // No archive can be made in a file's place.
    let state = dir.path().join(format!("state/applications/u{us}"));
    let aside = state.with_extension("aside");
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, "").unwrap();
    let clock = HeldClock::new(ManualClock::at(SystemClock::new().now_ns()), "past-");
    live(
        dir.path(),
        limits(),
        Arc::clone(&clock) as _,
        |intake, run_dir| {
            let rounds_until = |intake: &mut Intake<'_>, is_done: &dyn Fn() -> bool| {
                while !is_done() {
                    clock.clock.advance(NS_PER_S);
                    intake.round(true);
                    std::thread::yield_now();
                }
            };
            let program = programs(run_dir, 1).remove(0);
            drop(put(&program, kind::FRAME, 1));
            program.count_homeless(2);
            scan(intake);
            rounds_until(intake, &|| newest() == Some(Value::Int(2)));
            let held = clock.gate.lock().unwrap();
            fs::remove_file(&state).unwrap();
            fs::rename(&aside, &state).unwrap();
            rounds_until(intake, &|| clock.has_come.load(Ordering::SeqCst));
            program.count_homeless(1);
            rounds_until(intake, &|| newest() == Some(Value::Int(3)));
            drop(held);
            rounds_until(intake, &|| newest() == Some(Value::Int(8)));
        },
    );
}
