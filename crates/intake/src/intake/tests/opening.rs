//! Scopes that take long to open, or cannot be opened.

use std::cell::Cell;
use std::path::PathBuf;

use barograph_recorder::JobQueue;

use super::*;

/// Opens a scope, or finds that it cannot be opened.
pub(super) fn open(intake: &mut Intake<'_>, reader: ScopeReader) {
    while intake.scopes.is_opening(reader) {
        std::thread::yield_now();
    }
}

/// Makes rounds until one brings nothing. The first may only wake the programs that fell asleep
/// while they waited for a scope.
pub(super) fn take_in_all(intake: &mut Intake<'_>) {
    loop {
        let end = intake.round(false);
        if !end.has_more && !end.has_news {
            return;
        }
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

    fn ticks(&self) -> u64 {
        self.clock.ticks()
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
        take_in_all(intake);
        assert_eq!(
            values(intake, &for_all),
            Some((10, 0, 0)),
            "nothing is lost"
        );
    });
}

/// A scope in which an agent before has counted 5 losses, and whose archive cannot be made yet.
struct LateArchive {
    scope: RunDir,
    state: PathBuf,
    aside: PathBuf,
}

impl LateArchive {
    fn new(dir: &Path) -> Self {
        let us = rustix::process::getuid().as_raw();
        let run_dir = RunDir::new(dir.join("run"));
        let state = dir.join(format!("state/applications/u{us}"));
        let late = Self {
            scope: run_dir.scope(&format!("u{us}")),
            aside: state.with_extension("aside"),
            state,
        };
        let earlier: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let limits = ApplicationsConfig::default();
        live(dir, limits, earlier, |intake, run_dir| {
            let program = programs(run_dir, 1).remove(0);
            drop(put(&program, kind::FRAME, 1));
            program.count_homeless(5);
            scan(intake);
            while intake.round(true).has_news
                || intake.roster.iter().any(PublishingProcess::is_waiting)
            {}
            assert_eq!(late.newest(), Some(Value::Int(5)));
            drop(program);
            while !intake.roster.is_empty() {
                intake.round(true);
            }
        });
        // No archive can be made in a file's place.
        fs::rename(&late.state, &late.aside).unwrap();
        fs::write(&late.state, "").unwrap();
        late
    }

    /// The newest archived count of losses.
    fn newest(&self) -> Option<Value> {
        let losses = archived(&self.scope, barograph_stream::ingest::LOSS_STREAM);
        losses.last().cloned()
    }

    fn come(&self) {
        fs::remove_file(&self.state).unwrap();
        fs::rename(&self.aside, &self.state).unwrap();
    }
}

#[test]
fn the_past_of_an_archive_that_comes_up_late_holds_up_nobody() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let late = LateArchive::new(dir.path());
    let clock = HeldClock::new(ManualClock::at(SystemClock::new().now_ns()), "past-");
    live(
        dir.path(),
        ApplicationsConfig::default(),
        Arc::clone(&clock) as _,
        |intake, run_dir| {
            let rounds_until = |intake: &mut Intake<'_>, is_done: &dyn Fn() -> bool| {
                while !is_done() {
                    clock.clock.advance(NS_PER_S);
                    intake.round(true);
                    std::thread::yield_now();
                }
            };
            let is_newest = |count: i64| late.newest() == Some(Value::Int(count));
            let program = programs(run_dir, 1).remove(0);
            drop(put(&program, kind::FRAME, 1));
            program.count_homeless(2);
            scan(intake);
            rounds_until(intake, &|| is_newest(2));
            let held = clock.gate.lock().unwrap();
            late.come();
            rounds_until(intake, &|| clock.has_come.load(Ordering::SeqCst));
            program.count_homeless(1);
            rounds_until(intake, &|| is_newest(3));
            drop(held);
            rounds_until(intake, &|| is_newest(8));
        },
    );
}

#[test]
fn the_past_of_a_scope_is_read_as_soon_as_there_is_a_thread_for_it() {
    const STEPS_MAX: usize = 1_000;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let late = LateArchive::new(dir.path());
    let clock = Arc::new(ManualClock::at(SystemClock::new().now_ns()));
    // A queue with room for one job at a time, which is taken while there is no thread.
    let queue = JobQueue::new(1);
    let world = World {
        clock: Arc::clone(&clock) as _,
        work: Work::Stepped(queue.clone()),
        ..World::real()
    };
    let limits = ApplicationsConfig::default();
    live_in(&world, dir.path(), limits, |intake, outside| {
        let jobs = Cell::new(0);
        let steps_until = |intake: &mut Intake<'_>, has_threads, is_done: &dyn Fn() -> bool| {
            for _ in 0..STEPS_MAX {
                clock.advance(NS_PER_S);
                intake.step();
                while has_threads && queue.run_next() {
                    jobs.set(jobs.get() + 1);
                }
                outside.histories.step(clock.monotonic_ns());
                if is_done() {
                    return;
                }
            }
            panic!("{:?}", late.newest());
        };
        let is_newest = |count: i64| late.newest() == Some(Value::Int(count));
        let program = programs(outside, 1).remove(0);
        drop(put(&program, kind::FRAME, 1));
        program.count_homeless(2);
        scan(intake);
        late.come();
        // The first job is the start of the archive.
        steps_until(intake, true, &|| jobs.get() > 0);
        drop(world.work.start("another", || ()).unwrap());
        steps_until(intake, false, &|| is_newest(2));
        steps_until(intake, true, &|| is_newest(7));
    });
}
