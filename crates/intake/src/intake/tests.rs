//! Rounds that tests make by hand, with no intake thread beside them; one user against the others.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use barograph_archive::ArchiveLayout;
use barograph_model::{Descriptor, Kind, ManualClock, Span, Value, ValueType};
use barograph_query::{PastReader, ScopeChoice};
use barograph_recorder::{ScopeHistories, Work, World};
use barograph_stream::ingest::{
    IngestDeclaration, Producer, ProducerConfig, PublicationReaders, ThreadRing, kind,
};
use barograph_stream::{RunDir, SystemClock};

mod events;
mod maps;
mod opening;
mod phases;
mod shares;
mod steps;

use super::super::{ScopeShared, bridge::bridge, door::KnockSocket, event_door::event_door};
use super::*;
use crate::{EventDoor, IntakeConfig, ScopeSettings};
use opening::{open, take_in_all};

/// A user that is not the agent's.
const EVE: u32 = 12_345;
const MALLORY: u32 = 12_346;
const NODE: &str = "n1";

/// The outside of the intake.
struct Outside {
    run_dir: RunDir,
    door: KnockSocket,
    histories: ScopeHistories,
    events: EventDoor,
}

impl std::ops::Deref for Outside {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.run_dir
    }
}

impl Outside {
    /// Tells the intake of all knocks.
    fn hear(&self, intake: &mut Intake<'_>) {
        intake.apply(IntakeEvent::Knocks(self.door.hear()));
    }
}

fn with_limits(limits: ApplicationsConfig, test: impl FnOnce(&mut Intake<'_>, &Outside)) {
    with_clock(limits, Arc::new(SystemClock::new()), test);
}

fn with_clock(
    limits: ApplicationsConfig,
    clock: Arc<dyn Clock>,
    test: impl FnOnce(&mut Intake<'_>, &Outside),
) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    live(dir.path(), limits, clock, test);
}

/// Runs one life of the agent; its state is kept in `dir`.
fn live(
    dir: &Path,
    limits: ApplicationsConfig,
    clock: Arc<dyn Clock>,
    test: impl FnOnce(&mut Intake<'_>, &Outside),
) {
    let world = World {
        clock,
        ..World::real()
    };
    live_in(&world, dir, limits, test);
}

/// Runs one life of the agent in a world.
fn live_in(
    world: &World,
    dir: &Path,
    limits: ApplicationsConfig,
    test: impl FnOnce(&mut Intake<'_>, &Outside),
) {
    let clock = &world.clock;
    let histories = ScopeHistories::default();
    let mut config = IntakeConfig {
        node: NODE.into(),
        state_dir: dir.join("state"),
        applications: limits,
        ..IntakeConfig::default()
    };
    config.archive.free_bytes_min = 0;
    let run_dir = RunDir::new(dir.join("run"));
    let door = KnockSocket::open(&run_dir, config.applications.is_open_to_all()).unwrap();
    let shared = ScopeShared {
        forecasts: barograph_recorder::ForecastRoom::new(&config.forecast).unwrap(),
        histories: histories.clone(),
        world: world.clone(),
        phases: None,
        maps: None,
    };
    let settings = ScopeSettings::new(&config, run_dir.clone(), shared);
    let state_dir = config.state_dir.clone();
    let board = Arc::new(Board::new(run_dir.clone(), state_dir, Arc::clone(clock)));
    let (_to, from) = bridge(&run_dir.ingest_socket(), false, 16).unwrap();
    let (events, from_events) = event_door(&run_dir.ingest_socket()).unwrap();
    let parts = IntakeParts {
        settings,
        limits: config.applications.clone(),
        counts: Arc::default(),
        board,
        bridge: from,
        events: from_events,
    };
    let mut intake = Intake::new(clock, parts);
    while !intake.has_begun(0, i64::MAX) {
        match &world.work {
            Work::Threads => std::thread::yield_now(),
            Work::Stepped(queue) => drop(queue.run_next()),
        }
    }
    intake.stage = IntakeStage::Running;
    let outside = Outside {
        run_dir,
        door,
        histories,
        events,
    };
    test(&mut intake, &outside);
}

fn with_intake(test: impl FnOnce(&mut Intake<'_>, &Outside)) {
    with_limits(ApplicationsConfig::default(), test);
}

/// Whether files can be given to other users here.
fn may_be_others() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can give files to other users");
    }
    is_root
}

fn programs(run_dir: &RunDir, count: usize) -> Vec<Producer> {
    let clock = SystemClock::new();
    let config = ProducerConfig {
        rings_max: 2,
        ..ProducerConfig::default()
    };
    let made = || Producer::create(&run_dir.ingest_dir(), config, &clock).unwrap();
    (0..count).map(|_| made()).collect()
}

/// Programs of another user.
fn programs_of(run_dir: &RunDir, uid: u32, count: usize) -> Vec<Producer> {
    let made = programs(run_dir, count);
    for program in &made {
        std::os::unix::fs::chown(program.path(), Some(uid), Some(uid)).unwrap();
    }
    made
}

fn publication(program: &Producer, name: &str, readers: PublicationReaders) {
    assert!(program.declare(&IngestDeclaration::Publication {
        name: name.into(),
        readers,
        labels: Vec::new(),
    }));
}

fn value(program: &Producer, name: &str, value_type: ValueType, bytes_max: u32) -> bool {
    program.declare(&IngestDeclaration::Value {
        publication: 0,
        name: name.into(),
        value_type,
        kind: Kind::Gauge,
        unit: String::new(),
        help: "x".repeat(200),
        bytes_max,
    })
}

/// Lets a program put `count` records of one kind.
fn put(program: &Producer, record: u8, count: u64) -> ThreadRing {
    publication(program, "a", PublicationReaders::Owner);
    assert!(value(program, "v", ValueType::Int, 0));
    let mut ring = program.thread(&SystemClock::new()).unwrap();
    for n in 0..count {
        assert!(ring.put(record, 0, n, n));
    }
    ring.commit();
    ring
}

fn knock(run_dir: &RunDir, incarnation: Incarnation) {
    let socket = UnixDatagram::unbound().unwrap();
    let sent = socket.send_to(&incarnation.0, run_dir.ingest_socket());
    assert_eq!(sent.unwrap(), incarnation.0.len());
}

fn taken_in(intake: &Intake<'_>) -> Vec<Incarnation> {
    let all = intake.roster.iter();
    all.map(|process| process.file().incarnation()).collect()
}

fn incarnations(of: &[Producer]) -> Vec<Incarnation> {
    of.iter().map(Producer::incarnation).collect()
}

fn count(intake: &Intake<'_>, uid: u32, what: impl Fn(&PublishingProcess) -> u64) -> u64 {
    let of_user = intake.roster.iter().filter(|p| p.uid() == uid);
    of_user.map(what).sum()
}

/// Makes a pass over the directory, and opens the scopes of the programs' users.
fn scan(intake: &mut Intake<'_>) {
    while !intake.scan() {}
    let users: BTreeSet<u32> = intake.roster.iter().map(PublishingProcess::uid).collect();
    users
        .into_iter()
        .for_each(|uid| open(intake, ScopeReader::User(uid)));
}

/// The archived values of a stream of a scope, in order.
fn archived(run_dir: &RunDir, name: &str) -> Vec<Value> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let reader = PastReader::open(run_dir, ScopeChoice::None, clock).unwrap();
    let only = |_: &str, d: &Descriptor| d.name.as_str() == name;
    let found = reader.newest(&only, Span::ALL, 1_000, &AtomicBool::new(false));
    let found = found.unwrap();
    assert!(found.len() <= 1, "it is one series");
    let columns = found.iter().map(|of| &of.columns);
    let samples = columns.flat_map(|columns| (0..columns.len()).map(|row| columns.sample(row)));
    samples.map(|sample| sample.unwrap().value).collect()
}

/// One life archives and is killed before the program learns of it; the next cannot write at first.
#[test]
fn what_was_archived_before_a_start_that_fails_is_neither_archived_nor_counted_twice() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let life = |test: &dyn Fn(&mut Intake<'_>, &Outside)| {
        live(
            dir.path(),
            ApplicationsConfig::default(),
            Arc::clone(&clock),
            test,
        );
    };
    let take_in = |intake: &mut Intake<'_>| {
        scan(intake);
        while intake.round(true).has_news || intake.roster.iter().any(PublishingProcess::is_waiting)
        {
        }
    };
    let us = rustix::process::getuid().as_raw();
    let run_dir = RunDir::new(dir.path().join("run"));
    let scope = run_dir.scope(&format!("u{us}"));
    let losses = |wanted: i64| {
        let told = archived(&scope, barograph_stream::ingest::LOSS_STREAM);
        assert_eq!(told.last(), Some(&Value::Int(wanted)), "{told:?}");
    };
    life(&|_, _| {});
    let program = programs(&run_dir, 1).remove(0);
    let mut ring = put(&program, kind::INT, 3);
    program.count_homeless(5);
    let untold = fs::read(program.path()).unwrap();
    life(&|intake, _| {
        take_in(intake);
        assert_eq!(archived(&scope, "app.a.v").len(), 3);
        losses(5);
    });
    let mut file = OpenOptions::new().write(true).open(program.path()).unwrap();
    file.write_all(&untold).unwrap();
    for n in 3..5 {
        assert!(ring.put(kind::INT, 0, n, n));
    }
    ring.commit();
    program.count_homeless(2);
    let state_dir = dir.path().join(format!("state/applications/u{us}/archive"));
    let lock = ArchiveLayout::new(&state_dir, NODE).lock();
    let aside = lock.with_extension("aside");
    fs::rename(&lock, &aside).unwrap();
    fs::create_dir(&lock).unwrap();
    life(&|intake, _| {
        scan(intake);
        intake.round(true);
        let taken_in = count(intake, us, |process| process.counts.values);
        assert_eq!(taken_in, 2, "the archive has the others");
        fs::remove_dir(&lock).unwrap();
        fs::rename(&aside, &lock).unwrap();
        take_in(intake);
        let all: Vec<Value> = (0..5).map(Value::Int).collect();
        assert_eq!(archived(&scope, "app.a.v"), all);
        losses(7);
    });
}

#[test]
fn parents_that_are_known_late_are_taken_before_their_child_that_knocks() {
    with_intake(|intake, run_dir| {
        // There are so many that no directory has them in this order by chance.
        let family = programs(run_dir, 12);
        knock(run_dir, family[11].incarnation());
        run_dir.hear(intake);
        assert_eq!(taken_in(intake), incarnations(&family));
        // Those that come later are behind, and none is there twice.
        let later = programs(run_dir, 12);
        knock(run_dir, family[3].incarnation());
        knock(run_dir, later[0].incarnation());
        intake.directory.rest(0, i64::MIN);
        run_dir.hear(intake);
        let all = [incarnations(&family), incarnations(&later)].concat();
        assert_eq!(taken_in(intake), all);
    });
}

#[test]
fn while_a_search_rests_who_knocks_is_taken_in_alone() {
    with_intake(|intake, run_dir| {
        intake.directory.rest(0, i64::MAX);
        let family = programs(run_dir, 3);
        knock(run_dir, family[2].incarnation());
        run_dir.hear(intake);
        assert_eq!(taken_in(intake), [family[2].incarnation()]);
        // The search of each second finds the others.
        intake.scan();
        assert_eq!(intake.roster.len(), 3);
    });
}

#[test]
fn who_knocks_is_found_however_full_the_directory_is() {
    with_intake(|intake, run_dir| {
        for n in 0..30_000 {
            fs::write(run_dir.ingest_dir().join(format!("junk-{n}")), "").unwrap();
        }
        let ours = programs(run_dir, 1);
        let mut steps = 0;
        knock(run_dir, ours[0].incarnation());
        run_dir.hear(intake);
        assert_eq!(taken_in(intake), incarnations(&ours));
        let silent = programs(run_dir, 1);
        while intake.roster.len() < 2 {
            intake.scan();
            steps += 1;
            assert!(steps < 20, "two passes are so many steps");
        }
        assert!(intake.roster.has(silent[0].incarnation()));
        assert_eq!(intake.directory.remembered(), 0);
    });
}

#[test]
fn each_user_has_a_share_of_a_round() {
    if !may_be_others() {
        return;
    }
    with_intake(|intake, run_dir| {
        let eves = programs_of(run_dir, EVE, 20);
        let _full: Vec<ThreadRing> = eves.iter().map(|p| put(p, kind::FRAME, 50_000)).collect();
        let ours = programs(run_dir, 1);
        let _ring = put(&ours[0], kind::INT, 1_000);
        scan(intake);
        let end = intake.round(false);
        assert!(end.has_more && end.has_news);
        let us = rustix::process::getuid().as_raw();
        assert_eq!(count(intake, us, |p| p.counts.values), 1_000);
        let frames = count(intake, EVE, |p| p.counts.frames);
        let share = ROUND_WORK_MAX / 2;
        assert!((share / 2..=share).contains(&frames), "{frames}");
        // Each of Eve's processes has a turn, and nothing is left over in the end.
        intake.round(false);
        let least = intake.roster.iter().filter(|p| p.uid() == EVE);
        assert!(least.map(|p| p.counts.frames).min().unwrap() > 0);
        for _ in 0..10_000_000 {
            if count(intake, EVE, |p| p.counts.frames) == 20 * 50_000 {
                break;
            }
            if !intake.round(false).has_more {
                std::thread::yield_now();
            }
        }
        assert_eq!(count(intake, EVE, |p| p.counts.frames), 20 * 50_000);
    });
}

#[test]
fn whatever_records_are_they_count_for_the_rate() {
    const UNKNOWN: u8 = 14;
    for record in [kind::INT, kind::FRAME, kind::ACK, UNKNOWN] {
        let limits = ApplicationsConfig {
            rate_max: 1_000.0,
            ..ApplicationsConfig::default()
        };
        with_limits(limits, |intake, run_dir| {
            let ours = programs(run_dir, 1);
            let _ring = put(&ours[0], record, 50_000);
            scan(intake);
            let begun_ns = intake.clock.monotonic_ns();
            for _ in 0..50 {
                intake.round(false);
            }
            let took_ns = intake.clock.monotonic_ns() - begun_ns;
            let of_all = |p: &PublishingProcess| {
                let c = p.counts;
                c.values + c.frames + c.answers.max(c.damaged)
            };
            let taken = intake.roster.iter().map(of_all).sum::<u64>();
            let most = 1_001 + (took_ns as f64 / 1e6) as u64;
            assert!((1_000..=most).contains(&taken), "{taken} of kind {record}");
        });
    }
}

#[test]
fn no_name_in_the_directory_leads_elsewhere() {
    with_intake(|intake, run_dir| {
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        let clock = SystemClock::new();
        let config = ProducerConfig::default();
        let hidden = Producer::create(elsewhere.path(), config, &clock).unwrap();
        let link = run_dir.ingest_file(hidden.incarnation());
        std::os::unix::fs::symlink(hidden.path(), &link).unwrap();
        // The same with another incarnation under one's own name.
        let ours = programs(run_dir, 1);
        let copy = run_dir.ingest_file(Incarnation([9; 16]));
        std::fs::copy(ours[0].path(), copy).unwrap();
        knock(run_dir, hidden.incarnation());
        run_dir.hear(intake);
        scan(intake);
        assert_eq!(taken_in(intake), incarnations(&ours));
        assert!(!intake.directory.has(hidden.incarnation()));
        assert_eq!(intake.directory.remembered(), 1, "the copy");
        assert_eq!(intake.counts.waiting.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn after_a_burst_of_knocks_all_who_have_news_are_looked_at() {
    with_intake(|intake, run_dir| {
        let ours = programs(run_dir, 300);
        let mut rings: Vec<ThreadRing> = ours.iter().map(|p| put(p, kind::INT, 1)).collect();
        scan(intake);
        while intake.roster.is_anyone_awake() {
            intake.round(false);
            let long_ago = intake.clock.monotonic_ns() - 2 * AWAKE_NS;
            intake.roster.iter_mut().for_each(|p| p.news_ns = long_ago);
        }
        for ring in &mut rings[..200] {
            assert!(ring.put(kind::INT, 0, 1, 1));
            ring.commit();
        }
        // The knocks come from none of these processes: their own found the queue full.
        while run_dir.door.hear().is_burst {}
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.send_to(&[1; 16], run_dir.ingest_socket()).is_ok() {}
        run_dir.hear(intake);
        let awake: usize = intake.roster.awake().iter().map(|(_, count)| count).sum();
        assert_eq!(awake, 200);
    });
}

#[test]
fn a_document_has_rows_of_every_user_and_says_how_many_are_left_out() {
    if !may_be_others() {
        return;
    }
    let limits = ApplicationsConfig {
        memory_bytes_max: 1 << 30,
        values_max: 1 << 16,
        ..ApplicationsConfig::default()
    };
    with_limits(limits, |intake, run_dir| {
        let ours = programs(run_dir, 1);
        publication(&ours[0], "ours", PublicationReaders::All);
        let eves = programs_of(run_dir, EVE, 1);
        for n in 0..9_000 {
            publication(&eves[0], &format!("p{n}"), PublicationReaders::All);
        }
        scan(intake);
        open(intake, ScopeReader::All);
        take_in_all(intake);
        intake.write_documents();
        let bytes = run_dir
            .scope("all")
            .document(barograph_stream::PUBLICATIONS_DOCUMENT);
        let bytes = bytes.unwrap().unwrap();
        assert!(bytes.len() < 5 << 20, "{}", bytes.len());
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
        let of_eve = rows.iter().filter(|row| row["name"] != "ours");
        let left_out: Vec<u64> = of_eve
            .map(|row| row["left_out"].as_u64().unwrap())
            .collect();
        assert_eq!(left_out.len() as u64 + left_out[0], 9_000);
        assert!(left_out[0] > 0 && left_out.len() > 1_000);
        let of_us = rows.iter().find(|row| row["name"] == "ours").unwrap();
        assert_eq!(of_us["left_out"], 0);
    });
}

#[test]
fn a_file_that_is_cut_is_given_up_and_not_opened_again() {
    with_intake(|intake, run_dir| {
        let ours = programs(run_dir, 1);
        scan(intake);
        let file = std::fs::OpenOptions::new().write(true).open(ours[0].path());
        file.unwrap().set_len(1).unwrap();
        intake.round(true);
        assert_eq!((intake.roster.len(), intake.given_up), (0, 1));
        scan(intake);
        assert_eq!((intake.roster.len(), intake.directory.remembered()), (0, 1));
        assert!(Path::exists(ours[0].path()));
        // The mapping must not be touched any more: the file has no such memory.
        std::mem::forget(ours);
    });
}
