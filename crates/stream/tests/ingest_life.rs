//! The beginning and the end of an ingest file's life, and the notifications between its two sides.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use barograph_model::{Kind, ValueType};
use barograph_stream::SystemClock;
use barograph_stream::ingest::{
    GrantState, IngestDeclaration, IngestFile, OverflowPolicy, PhaseAnswer, Producer,
    ProducerConfig, ThreadRing, TimeSource, kind,
};

use crate::ingest::{Both, check_numbers, drain, put_numbers};
use crate::ingest_specimen::RECORDS;
use crate::pattern::rounds;

#[test]
fn a_writer_says_goodbye_with_its_last_ring() {
    let mut both = Both::small();
    let mut ring = both.thread();
    both.file.look().unwrap();
    assert!(!both.file.is_closed() && !both.file.is_orphan());
    both.producer = None;
    both.file.look().unwrap();
    assert!(!both.file.is_closed(), "a thread still puts");
    put_numbers(&mut ring, 0..3);
    drop(ring);
    let (found, _) = both.read();
    check_numbers(&found, 0..3);
    assert!(both.file.is_closed() && both.file.is_drained());
    let path = both.path().to_owned();
    both.file.remove().unwrap();
    assert!(!path.exists());
}

/// A copy of the file, which nobody has locked, with this process id and start time.
fn unlocked(both: &Both, pid: u64, start_ticks: u64) -> IngestFile {
    let path = both.path().with_extension("copy");
    std::fs::copy(both.path(), &path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for (at, word) in [(56, pid), (64, start_ticks)] {
        file.write_all_at(&word.to_le_bytes(), at).unwrap();
    }
    IngestFile::open(&path).unwrap()
}

#[test]
fn where_the_lock_can_be_had_the_writer_is_gone_whatever_the_header_says() {
    let mut both = Both::small();
    let ours = u64::from(std::process::id());
    // The file does not have the start time of this process, or has it although the process called
    // exec.
    let file = std::fs::read(both.path()).unwrap();
    let begun = u64::from_le_bytes(file[64..72].try_into().unwrap());
    for start_ticks in [0, begun, begun + 1] {
        let mut left = unlocked(&both, ours, start_ticks);
        left.look().unwrap();
        assert!(left.is_orphan(), "{start_ticks} of {begun}");
    }
    // A process that holds the lock lives, even if no process has its number.
    let file = OpenOptions::new().write(true).open(both.path()).unwrap();
    file.write_all_at(&u64::MAX.to_le_bytes(), 56).unwrap();
    let mut living = IngestFile::open(both.path()).unwrap();
    living.look().unwrap();
    assert!(!living.is_orphan());
    both.file.look().unwrap();
    assert!(!both.file.is_orphan());
}

#[test]
fn what_another_has_put_in_a_file_s_place_stays() {
    let both = Both::small();
    let path = both.path().to_owned();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another's").unwrap();
    assert!(both.file.remove().is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert!(both.file.remove().is_err() && path.is_symlink());
}

#[test]
fn one_read_tells_whether_there_is_news() {
    let mut both = Both::small();
    assert!(!both.file.has_news());
    let mut ring = both.thread();
    assert!(both.file.has_news(), "a ring");
    both.file.look().unwrap();
    assert!(!both.file.has_news());
    put_numbers(&mut ring, 0..3);
    ring.commit();
    assert!(both.file.has_news(), "records");
    both.read();
    assert!(!both.file.has_news());
    assert!(both.producer().declare(&IngestDeclaration::Process {
        application: "a".into(),
        labels: Vec::new(),
    }));
    assert!(both.file.has_news(), "a declaration");
    both.file.look().unwrap();
    both.file.declarations(&mut |_| ()).unwrap();
    assert!(!both.file.has_news());
    drop(ring);
    both.producer = None;
    assert!(both.file.has_news(), "goodbye");
}

#[test]
fn declarations_come_as_many_at_a_time_as_are_asked_for() {
    let mut both = Both::small();
    let count = 3_000;
    for n in 0..count {
        assert!(both.producer().declare(&IngestDeclaration::Process {
            application: format!("{n}{}", "x".repeat(300)),
            labels: Vec::new(),
        }));
    }
    both.file.look().unwrap();
    let mut found = 0;
    loop {
        let before = found;
        let mut each = |declaration: IngestDeclaration| {
            let expect = format!("{found}x");
            assert!(
                matches!(declaration, IngestDeclaration::Process { application, .. } if application.starts_with(&expect))
            );
            found += 1;
        };
        let has_more = both.file.some_declarations(1_000, &mut each).unwrap();
        assert!(found > before && found <= before + 1_000);
        assert_eq!(has_more, found < count);
        if !has_more {
            break;
        }
    }
}

#[test]
fn whoever_is_told_sleeps_until_a_commit() {
    let both = Both::small();
    let producer = both.producer();
    assert!(producer.is_agent_asleep(), "nobody has looked");
    producer.agent_was_told();
    assert!(!producer.is_agent_asleep());
    both.file.set_asleep(true).unwrap();
    assert!(producer.is_agent_asleep());
    both.file.set_asleep(false).unwrap();
    assert!(!producer.is_agent_asleep());
    producer.ask_to_be_told();
    assert!(producer.is_agent_asleep());
}

#[test]
fn the_file_appears_whole_for_its_owner_alone_and_is_locked() {
    let both = Both::small();
    let entries: Vec<_> = std::fs::read_dir(both.dir.path()).unwrap().collect();
    assert_eq!(entries.len(), 1);
    let metadata = std::fs::metadata(both.path()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(both.path().extension().unwrap(), "ingest");
    let other = OpenOptions::new().read(true).open(both.path()).unwrap();
    let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
    assert!(rustix::fs::flock(&other, lock).is_err());
    let source = both.file.time_source();
    assert_eq!(source, TimeSource::of_this_machine());
    assert_eq!(both.file.incarnation(), both.producer().incarnation());
}

#[test]
fn a_program_sees_what_the_agent_refuses() {
    let mut both = Both::small();
    let refused = |both: &Both| {
        let producer = both.producer();
        let values = [0, 63, 64, 16_127, 16_128].map(|value| producer.is_refused(value));
        (producer.refused(), values)
    };
    assert_eq!(refused(&both), (0, [false; 5]));
    for value in [63, 64, 16_127, 16_128, u32::MAX] {
        both.file.set_refused(value, true).unwrap();
    }
    both.file.set_refusals(5).unwrap();
    // There are no bits beyond the map.
    assert_eq!(refused(&both), (5, [false, true, true, true, false]));
    // Another agent takes over, and has room.
    let mut file = IngestFile::open(both.path()).unwrap();
    for value in [63, 16_127] {
        file.set_refused(value, false).unwrap();
    }
    file.set_refusals(1).unwrap();
    assert_eq!(refused(&both), (1, [false, false, true, false, false]));
}

#[test]
fn a_program_that_waits_is_told_what_its_phase_may_do() {
    let mut both = Both::small();
    let answer = |phase, state| PhaseAnswer {
        phase,
        state,
        share: 1.0,
    };
    assert_eq!(both.producer().schedules(), None);
    for schedules in [Some(true), Some(false), None] {
        both.file.set_schedules(schedules).unwrap();
        assert_eq!(both.producer().schedules(), schedules);
    }
    let waits = answer(7, GrantState::Waiting);
    both.file.answer_phase(&waits).unwrap();
    let seen = {
        let producer = both.producer();
        assert_eq!(producer.phase_answer(7), Some(waits));
        assert_eq!(producer.phase_answer(8), None);
        producer.answers_moved()
    };
    let Both { producer, file, .. } = &mut both;
    let producer = producer.as_ref().unwrap();
    let granted = answer(7, GrantState::Granted);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Whenever it begins to sleep: a change is seen, and ends the sleep.
            while producer.phase_answer(7) != Some(granted) {
                producer.wait_for_answers(seen, std::time::Duration::from_secs(60));
            }
        });
        file.answer_phase(&granted).unwrap();
        file.wake_phases().unwrap();
    });
    assert_ne!(producer.answers_moved(), seen);
    // One that is 16 later has its place.
    file.answer_phase(&answer(23, GrantState::Granted)).unwrap();
    assert_eq!(producer.phase_answer(7), None);
    assert!(producer.has_passed(7) && !producer.has_passed(39));
}

/// The kernel alone touches the memory by which a file's sleepers are woken.
#[test]
fn a_file_that_is_cut_short_harms_nobody_who_wakes_its_sleepers() {
    let mut both = Both::small();
    let file = OpenOptions::new().write(true).open(both.path()).unwrap();
    file.set_len(0).unwrap();
    let granted = PhaseAnswer {
        phase: 1,
        state: GrantState::Granted,
        share: 1.0,
    };
    let _ = both.file.answer_phase(&granted);
    file.set_len(0).unwrap();
    for _ in 0..100 {
        let _ = both.file.wake_phases();
        file.set_len(0).unwrap();
    }
}

/// Only as root: the directory belongs to another user.
#[test]
fn the_agent_of_another_user_is_let_in_and_nobody_else() {
    const AGENT: u32 = 65_534;
    const STRANGER: u32 = 12_345;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root has directories of other users");
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), mode).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(AGENT), None).unwrap();
    let config = ProducerConfig::default();
    // Root creates files for the directory's owner like any other user.
    let producer = Producer::create(dir.path(), config, &SystemClock::new()).unwrap();
    let can_open = |uid: u32| {
        let mut command = std::process::Command::new("setpriv");
        command.args([&format!("--reuid={uid}"), "--clear-groups", "--regid=65534"]);
        let script = "exec 3<>\"$0\"";
        let opened = command
            .args(["sh", "-c", script])
            .arg(producer.path())
            .output();
        opened.unwrap().status.success()
    };
    assert!(can_open(AGENT));
    assert!(!can_open(STRANGER));
}

#[test]
fn pairs_of_clocks_are_pairs() {
    let both = Both::small();
    let ring = both.thread();
    let pair = |both: &Both| [40, 48, 56].map(|at| both.get(0, at));
    let [ticks, ns, check] = pair(&both);
    assert!(ns > 0);
    assert_eq!(check, ticks ^ ns);
    ring.tell_time(&both.clock);
    let [ticks, later_ns, check] = pair(&both);
    assert!(later_ns >= ns);
    assert_eq!(check, ticks ^ later_ns);
}

#[test]
fn no_record_comes_before_the_declaration_of_its_value() {
    let mut both = Both::new(2, 1 << 12, OverflowPolicy::DropOldest);
    let producer = both.producer.take().unwrap();
    let count = rounds(3_000, 100_000).min(12_000);
    let progress = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let clock = SystemClock::new();
            for index in 0..count {
                let value = IngestDeclaration::Value {
                    publication: 0,
                    name: format!("v{index}"),
                    value_type: ValueType::Int,
                    kind: Kind::Gauge,
                    unit: String::new(),
                    help: String::new(),
                    bytes_max: 0,
                };
                assert!(producer.declare(&value));
                // Each thread has a ring of its own: rings come and go too.
                let mut ring = producer.thread(&clock).unwrap();
                assert!(ring.put(kind::INT, index as u32, index, index));
                drop(ring);
                while index.saturating_sub(progress.load(Ordering::Relaxed)) > 1_000 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::yield_now();
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        let (mut declared, mut seen) = (0, 0);
        while seen < count {
            both.file.look().unwrap();
            both.file.declarations(&mut |_| declared += 1).unwrap();
            let (found, drained) = drain(&mut both.file, u64::MAX);
            assert_eq!((drained.missed, drained.damaged), (0, 0));
            for value in &found {
                assert!(
                    u64::from(value.series) < declared,
                    "{value:?} of {declared}"
                );
            }
            seen += found.len() as u64;
            progress.store(seen, Ordering::Relaxed);
        }
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_is_lost_between_the_last_commit_and_goodbye() {
    for _ in 0..rounds(300, 10_000) {
        let mut both = Both::new(1, RECORDS, OverflowPolicy::DropOldest);
        let producer = both.producer.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut ring = producer.thread(&SystemClock::new()).unwrap();
                put_numbers(&mut ring, 0..100);
                drop((producer, ring));
            });
            let mut seen = 0;
            while !(both.file.is_closed() && both.file.is_drained()) {
                seen += both.read().0.len();
            }
            assert_eq!(seen, 100);
        });
    }
}

#[test]
fn busy_rings_do_not_keep_the_others_waiting() {
    let mut both = Both::new(3, 1 << 14, OverflowPolicy::DropOldest);
    let mut rings = [(); 3].map(|()| both.thread());
    let mut seen = [0u64; 3];
    for part in 0..100u64 {
        // More than one drain takes.
        put_numbers(&mut rings[0], part * 1_000..(part + 1) * 1_000);
        put_numbers(&mut rings[1], part * 1_000..(part + 1) * 1_000);
        put_numbers(&mut rings[2], part..part + 1);
        rings.iter_mut().for_each(ThreadRing::commit);
        both.file.look().unwrap();
        for _ in 0..3 {
            let (found, drained) = drain(&mut both.file, 600);
            assert!(drained.has_more || part < 2);
            assert!(found.len() <= 600);
            found.iter().for_each(|v| seen[v.ring as usize] += 1);
        }
    }
    assert!(seen[2] >= 98, "{seen:?}");
    assert!(seen[0] > 60_000 && seen[1] > 60_000, "{seen:?}");
}
