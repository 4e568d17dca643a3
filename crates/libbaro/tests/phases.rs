//! Phases of I/O in programs of other languages: what they say, and that nobody is held up.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_stream::RunDir;
use barograph_stream::ingest::{
    GrantState, IngestDeclaration, IngestFile, PhaseAnswer, RecordPayload,
};

use crate::build::{self, Language, command, must, program, workshop};

fn here(name: &str) -> PathBuf {
    build::here().join("tests/programs").join(name)
}

/// What the programs of a run directory have said of their phases, the oldest first: phase, and
/// stage, as they follow each other.
fn said(run_dir: &Path) -> Vec<Vec<(u64, i64)>> {
    let entries = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()).unwrap();
    let files = entries.map(|entry| IngestFile::open(&entry.unwrap().path()).unwrap());
    let mut files: Vec<IngestFile> = files.collect();
    files.sort_by_key(IngestFile::created_ns);
    files.into_iter().map(stages).collect()
}

fn stages(mut file: IngestFile) -> Vec<(u64, i64)> {
    file.look().unwrap();
    let mut stage = None;
    file.declarations(&mut |declaration| {
        if let IngestDeclaration::Publication { name, labels, .. } = declaration {
            assert_eq!(name, "io.phase");
            assert_eq!(labels, [("volume".to_owned(), "/scratch".to_owned())]);
        }
    })
    .unwrap();
    let (mut of_ring, mut stages) = (0, Vec::new());
    let drained = file.drain(u64::MAX, &mut |record| match record.payload {
        // The stage is the first value that is declared.
        RecordPayload::Int(said) if record.series == 0 => {
            (stage, of_ring) = (Some(said), record.ring);
        }
        RecordPayload::Frame(phase) => {
            assert_eq!(of_ring, record.ring);
            stages.push((phase, stage.take().unwrap()));
        }
        _ => {}
    });
    assert_eq!(drained.unwrap().damaged, 0);
    stages
}

#[test]
fn a_program_without_an_agent_goes_on_whatever_its_host_does() {
    let workshop = workshop();
    let libraries = ["-lbaro", "-lpthread"];
    let Some(program) = program(
        workshop.path(),
        Language::C,
        &[here("phases.c")],
        &libraries,
    ) else {
        return;
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    must(&command(&program, dir.path()).output().unwrap());
    let said = said(dir.path());
    assert_eq!(said.len(), 2, "a parent and its child");
    // The first one asks, and finds nobody; those that follow do not ask.
    assert_eq!(said[0][..3], [(1, 1), (1, 3), (1, 3)]);
    let ended = said[0].iter().filter(|(_, stage)| *stage == 0).count();
    assert_eq!(ended, 3 + 20 * 50 + 1, "one was ended twice");
    let [begun, ended] = said[1][..] else {
        panic!("{:?}", said[1]);
    };
    assert_eq!((begun.1, ended.1, begun.0), (3, 0, ended.0));
}

#[test]
fn the_other_languages_have_them() {
    let workshop = workshop();
    let module = build::here().join("fortran/baro.f90");
    for (language, sources) in [
        (Language::Cpp, vec![here("phases.cpp")]),
        (Language::Fortran, vec![module, here("phases.f90")]),
    ] {
        let built = program(workshop.path(), language, &sources, &["-lbaro"]);
        let Some(program) = built else {
            continue;
        };
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        must(&command(&program, dir.path()).output().unwrap());
        let [said] = &said(dir.path())[..] else {
            panic!("one program");
        };
        let ended = said.iter().filter(|(_, stage)| *stage == 0).count();
        assert_eq!(ended, 2, "{language:?}: {said:?}");
    }
}

/// The agent is played by the test: it answers after a while, and takes the grant away.
#[test]
fn a_program_sleeps_until_it_is_answered() {
    let workshop = workshop();
    let source = here("waits.c");
    let Some(program) = program(workshop.path(), Language::C, &[source], &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let run_dir = RunDir::new(dir.path());
    let door = UnixDatagram::bind(run_dir.phases_socket()).unwrap();
    door.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut child = command(&program, dir.path()).spawn().unwrap();
    let mut from = [0; 17];
    assert_eq!(door.recv(&mut from).unwrap(), 16);
    let name: String = from[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let path = run_dir.ingest_dir().join(format!("{name}.ingest"));
    // Whoever waits says so again and again: what was said last counts.
    let until = |expect: (u64, i64)| {
        while stages(IngestFile::open(&path).unwrap()).last() != Some(&expect) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut file = IngestFile::open(&path).unwrap();
    file.set_schedules(Some(true)).unwrap();
    let mut answer = |phase, state| {
        let share = 0.5;
        let answer = PhaseAnswer {
            phase,
            state,
            share,
        };
        file.answer_phase(&answer).unwrap();
        file.wake_phases().unwrap();
    };
    until((1, 1));
    answer(1, GrantState::Waiting);
    // It has said again that it waits.
    while stages(IngestFile::open(&path).unwrap()).len() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    answer(1, GrantState::Granted);
    until((1, 2));
    // At its step it has no grant any more.
    answer(1, GrantState::Waiting);
    until((1, 1));
    answer(1, GrantState::Granted);
    until((2, 1));
    answer(2, GrantState::Unscheduled);
    assert!(child.wait().unwrap().success());
}
