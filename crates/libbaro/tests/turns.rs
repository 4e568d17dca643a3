//! Programs that know nothing of it take turns: what the preloaded library tells of their phases,
//! and what it does with the answers. The test plays the agent.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use barograph_stream::RunDir;
use barograph_stream::ingest::{
    GrantState, IngestDeclaration, IngestFile, PHASE_LEASE, PHASE_PUBLICATION, PHASE_STAGE,
    PhaseAnswer, RecordPayload,
};

use crate::shim::{Bench, ended};

const MIB: u64 = 1 << 20;
/// The same as in `phase_frames.c`.
const LEASE_NS: i64 = 2_000_000_000;
const WAITS: i64 = 1;
const GRANTED: i64 = 2;
const ALONE: i64 = 3;
const ENDED: i64 = 0;

/// What a program has said of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    /// The number of its process, in the order in which they came.
    process: usize,
    phase: u64,
    stage: i64,
    lease_ns: Option<i64>,
}

/// A file of a program, as the agent reads it.
struct Watched {
    file: IngestFile,
    number: usize,
    /// Names of values.
    values: Vec<String>,
    publications: Vec<(String, String)>,
    /// Values since the last frame.
    held: BTreeMap<String, i64>,
}

impl Watched {
    fn said(&mut self) -> Vec<Said> {
        self.file.look().unwrap();
        let (values, publications) = (&mut self.values, &mut self.publications);
        let declarations = self
            .file
            .declarations(&mut |declaration| match declaration {
                IngestDeclaration::Value { name, .. } => values.push(name),
                IngestDeclaration::Publication { name, labels, .. } => {
                    let volume = labels.into_iter().map(|(_, volume)| volume).next();
                    publications.push((name, volume.unwrap_or_default()));
                }
                _ => {}
            });
        declarations.unwrap();
        let mut said = Vec::new();
        let drained = self
            .file
            .drain(u64::MAX, &mut |record| match record.payload {
                RecordPayload::Int(value) => {
                    let name = self.values[record.series as usize].clone();
                    self.held.insert(name, value);
                }
                RecordPayload::Frame(phase) => {
                    let (name, _) = &self.publications[record.series as usize];
                    assert_eq!(name, PHASE_PUBLICATION);
                    said.push(Said {
                        process: self.number,
                        phase,
                        stage: self.held.remove(PHASE_STAGE).unwrap(),
                        lease_ns: self.held.remove(PHASE_LEASE),
                    });
                }
                _ => {}
            });
        let drained = drained.unwrap();
        assert_eq!((drained.missed, drained.damaged), (0, 0));
        said
    }

    fn answer(&mut self, phase: u64, state: GrantState) {
        let answer = PhaseAnswer {
            phase,
            state,
            share: 1.0,
        };
        self.file.answer_phase(&answer).unwrap();
        self.file.wake_phases().unwrap();
    }
}

/// The agent: it reads the files of all programs, and answers.
struct StandIn<'b> {
    bench: &'b Bench,
    door: UnixDatagram,
    files: BTreeMap<PathBuf, Watched>,
    said: Vec<Said>,
}

impl<'b> StandIn<'b> {
    fn new(bench: &'b Bench) -> Self {
        let door = UnixDatagram::bind(RunDir::new(bench.run_dir()).phases_socket()).unwrap();
        door.set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        Self {
            bench,
            door,
            files: BTreeMap::new(),
            said: Vec::new(),
        }
    }

    /// Reads what is new; `decide` answers it.
    fn attend(&mut self, decide: &mut dyn FnMut(Said) -> Option<GrantState>) {
        let mut knock = [0; 17];
        let _ = self.door.recv(&mut knock);
        for path in self.bench.paths() {
            if !self.files.contains_key(&path)
                && let Ok(mut file) = IngestFile::open(&path)
            {
                file.set_schedules(Some(true)).unwrap();
                let watched = Watched {
                    file,
                    number: self.files.len(),
                    values: Vec::new(),
                    publications: Vec::new(),
                    held: BTreeMap::new(),
                };
                self.files.insert(path, watched);
            }
        }
        for watched in self.files.values_mut() {
            for said in watched.said() {
                if let Some(state) = decide(said) {
                    watched.answer(said.phase, state);
                }
                self.said.push(said);
            }
        }
    }

    /// Attends to a program until it has ended; returns what all have said.
    fn until_ended(
        &mut self,
        mut child: Child,
        decide: &mut dyn FnMut(Said) -> Option<GrantState>,
    ) -> Vec<Said> {
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "the program hung"
            );
            self.attend(decide);
        }
        let (status, told): (ExitStatus, String) = ended(child);
        assert!(status.success(), "{status} {told}");
        self.attend(decide);
        self.said.clone()
    }
}

fn begin(bench: &Bench, mode: &str) -> Child {
    begin_with(bench, mode, &[])
}

fn begin_with(bench: &Bench, mode: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = bench.command(&bench.built.turns, mode);
    let work = bench.work().canonicalize().unwrap();
    command.env("BAROGRAPH_IO_SCHEDULE", work);
    command.envs(variables.iter().copied());
    command.spawn().unwrap()
}

/// Runs a mode whose phases all have their grants at once.
fn granted(bench: &Bench, mode: &str) -> Vec<Said> {
    let mut stand_in = StandIn::new(bench);
    stand_in.until_ended(begin(bench, mode), &mut |said| {
        (said.stage == WAITS).then_some(GrantState::Granted)
    })
}

/// The stages of the phases, one after the other, without those that repeat.
fn stages(said: &[Said]) -> Vec<(usize, i64)> {
    let mut stages: Vec<_> = said.iter().map(|said| (said.process, said.stage)).collect();
    stages.dedup();
    stages
}

/// Phases of one process, one after the other.
fn phases(count: usize) -> Vec<(usize, i64)> {
    [(0, WAITS), (0, GRANTED), (0, ENDED)].repeat(count)
}

#[test]
fn a_program_waits_before_it_has_written_much() {
    let Some(bench) = Bench::new() else { return };
    let mut stand_in = StandIn::new(&bench);
    let own = bench.work().join("own");
    let written = || fs::metadata(&own).unwrap().len();
    let said = stand_in.until_ended(begin(&bench, "checkpoint"), &mut |said| {
        if said.stage != WAITS {
            return None;
        }
        // What it writes would be as much as a turn is for; what it reads was read before.
        if said.phase < 32 {
            assert_eq!(written(), MIB / 8 * 7);
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(written(), MIB / 8 * 7);
        }
        assert_eq!(said.lease_ns, Some(LEASE_NS));
        Some(GrantState::Granted)
    });
    assert_eq!(stages(&said), phases(2));
    assert!(said.is_sorted_by_key(|said| said.phase), "{said:?}");
}

#[test]
fn little_io_and_io_elsewhere_begin_no_phase() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(granted(&bench, "little"), []);
}

#[test]
fn a_call_that_is_much_by_itself_waits() {
    let Some(bench) = Bench::new() else { return };
    // Copies read and write one volume.
    assert_eq!(stages(&granted(&bench, "large")), phases(5));
}

#[test]
fn a_thousand_threads_have_one_phase() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(stages(&granted(&bench, "thousand_threads")), phases(1));
}

#[test]
fn phases_are_told_beside_the_times_of_calls() {
    let Some(bench) = Bench::new() else { return };
    let child = begin_with(&bench, "thousand_threads", &[("BAROGRAPH_IO_EACH", "1")]);
    let said = StandIn::new(&bench).until_ended(child, &mut |said| {
        (said.stage == WAITS).then_some(GrantState::Granted)
    });
    assert_eq!(stages(&said), phases(1));
}

#[test]
fn a_file_is_on_the_volume_with_the_longest_path() {
    let Some(bench) = Bench::new() else { return };
    let work = bench.work().canonicalize().unwrap();
    let work = work.to_str().unwrap();
    // The second one is known by another name, and its file is not on the third.
    let list = format!("{work}/:/alias={work}/inner:{work}/inn::/:not a path:=");
    let child = begin_with(&bench, "two_volumes", &[("BAROGRAPH_IO_SCHEDULE", &list)]);
    let mut stand_in = StandIn::new(&bench);
    let said = stand_in.until_ended(child, &mut |said| {
        (said.stage == WAITS).then_some(GrantState::Granted)
    });
    let files = stand_in.files.values();
    let volumes = files.flat_map(|watched| watched.publications.iter().skip(1));
    let volumes: Vec<&str> = volumes.map(|(_, volume)| &**volume).collect();
    assert_eq!(volumes, [work, "/alias"]);
    // Each has its own answer, and its own phase to the end.
    let of = |slot| -> Vec<i64> {
        let of = said.iter().filter(|said| said.phase % 16 == slot);
        let mut stages: Vec<i64> = of.map(|said| said.stage).collect();
        stages.dedup();
        stages
    };
    assert_eq!(
        (of(0), of(1)),
        (vec![WAITS, GRANTED, ENDED], vec![WAITS, GRANTED, ENDED])
    );
}

#[test]
fn a_handler_writes_while_its_program_waits() {
    let Some(bench) = Bench::new() else { return };
    let (mut stand_in, mut since) = (StandIn::new(&bench), None);
    let said = stand_in.until_ended(begin(&bench, "handler"), &mut |said| {
        let since: &mut Instant = since.get_or_insert_with(Instant::now);
        let is_due = since.elapsed() >= Duration::from_millis(400);
        // It asks again twice a second.
        (said.stage == WAITS && is_due).then_some(GrantState::Granted)
    });
    assert_eq!(stages(&said), phases(1));
}

#[test]
fn children_have_phases_of_their_own_and_end_none_of_their_parents() {
    let Some(bench) = Bench::new() else { return };
    let said = granted(&bench, "forks");
    let of = |process| -> Vec<(usize, i64)> {
        let of = said.iter().filter(|said| said.process == process);
        stages(&of.copied().collect::<Vec<_>>())
    };
    assert_eq!(of(0), phases(1));
    // It ends by `_exit`, which the agent finds out.
    assert_eq!(of(1), [(1, WAITS), (1, GRANTED)]);
}

#[test]
fn a_phase_ends_with_its_last_descriptor() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(stages(&granted(&bench, "closes")), phases(3));
}

#[test]
fn a_phase_ends_with_a_pause_and_with_its_program() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(stages(&granted(&bench, "pauses")), phases(2));
}

#[test]
fn a_turn_may_be_taken_away() {
    let Some(bench) = Bench::new() else { return };
    let mut stand_in = StandIn::new(&bench);
    let (end, mut turns, mut waits) = (bench.work().join("end"), 0, 0);
    let said = stand_in.until_ended(begin(&bench, "goes_on"), &mut |said| {
        waits = if said.stage == WAITS { waits + 1 } else { 0 };
        match said.stage {
            // Once it asks again, it has its next turn.
            WAITS if turns == 0 || waits > 1 => {
                turns += 1;
                if turns == 4 {
                    fs::write(&end, "").unwrap();
                }
                Some(GrantState::Granted)
            }
            GRANTED if turns < 4 => Some(GrantState::Waiting),
            _ => None,
        }
    });
    let mut expect = [(0, WAITS), (0, GRANTED)].repeat(4);
    expect.push((0, ENDED));
    assert_eq!(stages(&said), expect);
    let phases: Vec<u64> = said.iter().map(|said| said.phase).collect();
    assert!(phases.iter().all(|phase| *phase == phases[0]), "{said:?}");
}

#[test]
fn who_is_not_scheduled_does_not_ask_again() {
    let Some(bench) = Bench::new() else { return };
    let mut stand_in = StandIn::new(&bench);
    let said = stand_in.until_ended(begin(&bench, "closes"), &mut |said| {
        (said.stage == WAITS).then_some(GrantState::Unscheduled)
    });
    assert_eq!(stages(&said), [(0, WAITS), (0, ENDED)]);
}

#[test]
fn without_an_answer_a_program_goes_on() {
    let Some(bench) = Bench::new() else { return };
    let mut stand_in = StandIn::new(&bench);
    let said = stand_in.until_ended(begin(&bench, "closes"), &mut |_| None);
    // It has asked for two seconds, twice in each, and not again.
    let asked = said.iter().filter(|said| said.stage == WAITS).count();
    assert!((2..=5).contains(&asked), "{said:?}");
    assert_eq!(stages(&said), [(0, WAITS), (0, ALONE), (0, ENDED)]);
}

#[test]
fn without_an_agent_a_program_goes_on() {
    let Some(bench) = Bench::new() else { return };
    let (status, told) = ended(begin(&bench, "closes"));
    assert!(status.success(), "{told}");
    let mut stand_in = StandIn::new(&bench);
    stand_in.attend(&mut |_| None);
    let (asked, rest): (Vec<_>, Vec<_>) = stages(&stand_in.said)
        .into_iter()
        .partition(|(_, stage)| *stage == WAITS);
    // It asks once a second at most, and finds nobody.
    assert!((1..=3).contains(&asked.len()), "{asked:?}");
    assert_eq!(rest, [(0, ALONE), (0, ENDED)].repeat(3));
}

#[test]
fn a_file_that_is_cut_short_holds_up_nobody() {
    let Some(bench) = Bench::new() else { return };
    let stand_in_dir = RunDir::new(bench.run_dir()).ingest_dir();
    let child = begin(&bench, "cut_short");
    let mut stand_in = StandIn::new(&bench);
    let is_at_work = bench.work().join("is at work");
    while !is_at_work.exists() {
        stand_in.attend(&mut |said| (said.stage == WAITS).then_some(GrantState::Granted));
    }
    for entry in fs::read_dir(stand_in_dir).unwrap() {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(entry.unwrap().path());
        file.unwrap().set_len(0).unwrap();
    }
    fs::write(bench.work().join("cut"), "").unwrap();
    let (status, told) = ended(child);
    assert!(status.success(), "{told}");
}

#[test]
fn switched_off_it_says_nothing() {
    let Some(bench) = Bench::new() else { return };
    let mut command = bench.command(&bench.built.turns, "closes");
    command
        .env("BAROGRAPH_IO_SCHEDULE", bench.work())
        .env("BAROGRAPH", "off");
    let (status, told) = ended(command.spawn().unwrap());
    assert!(status.success(), "{told}");
    assert_eq!(bench.paths(), [] as [PathBuf; 0]);
}
