//! Phases of I/O: programs that wait are answered at once, within a part of the thread's time.

use std::sync::Mutex;

use barograph_stream::ingest::{
    GrantState, PHASE_DONE, PHASE_PUBLICATION, PHASE_STAGE, PHASE_VOLUME, PhaseStage,
};

use super::*;
use crate::intake::phases::IntakePhases;
use crate::{PhaseDesk, PhaseOutcome, PhaseProcess, PhaseReport};

/// A desk that lets everybody go on, and remembers who came.
#[derive(Default)]
struct OpenDesk {
    came: Mutex<Vec<PhaseReport>>,
    left: Mutex<Vec<Incarnation>>,
    outcomes: Mutex<Vec<PhaseOutcome>>,
}

impl PhaseDesk for OpenDesk {
    fn schedules(&self) -> bool {
        true
    }

    fn report(&self, process: &PhaseProcess, reports: &[PhaseReport]) {
        self.came.lock().unwrap().extend(reports.iter().cloned());
        let outcome = |report: &PhaseReport| PhaseOutcome {
            incarnation: process.incarnation,
            phase: report.phase,
            state: GrantState::Granted,
            share: 1.0,
        };
        let outcomes = reports.iter().map(outcome);
        self.outcomes.lock().unwrap().extend(outcomes);
    }

    fn leave(&self, incarnation: Incarnation) {
        self.left.lock().unwrap().push(incarnation);
    }

    fn step(&self) -> Option<i64> {
        None
    }

    fn take_outcomes(&self) -> Vec<PhaseOutcome> {
        std::mem::take(&mut self.outcomes.lock().unwrap())
    }
}

fn declare(program: &Producer) -> ThreadRing {
    assert!(program.declare(&IngestDeclaration::Publication {
        name: PHASE_PUBLICATION.into(),
        readers: PublicationReaders::Owner,
        labels: vec![(PHASE_VOLUME.into(), "/scratch".into())],
    }));
    assert!(value(program, PHASE_STAGE, ValueType::Int, 0));
    assert!(value(program, PHASE_DONE, ValueType::Int, 0));
    program.thread(&SystemClock::new()).unwrap()
}

fn say(ring: &mut ThreadRing, phase: u64, stage: PhaseStage, done: u64) {
    assert!(ring.put(kind::INT, 0, 1, stage as u64));
    assert!(ring.put(kind::INT, 1, 1, done));
    assert!(ring.frame(0, 1, phase));
}

fn ask(run_dir: &RunDir, incarnation: Incarnation) {
    let socket = UnixDatagram::unbound().unwrap();
    let sent = socket.send_to(&incarnation.0, run_dir.phases_socket());
    assert_eq!(sent.unwrap(), incarnation.0.len());
}

#[test]
fn who_asks_for_a_phase_is_answered_without_a_round() {
    with_intake(|intake, outside| {
        let desk = Arc::new(OpenDesk::default());
        intake.phases = IntakePhases::new(Some(desk.clone()));
        let mut programs = programs(&outside.run_dir, 1);
        let mut ring = declare(&programs[0]);
        scan(intake);
        assert_eq!(programs[0].schedules(), Some(true));
        say(&mut ring, 7, PhaseStage::Waiting, 0);
        assert_eq!(programs[0].phase_answer(7), None);
        ask(&outside.run_dir, programs[0].incarnation());
        // Twice, and one of nobody.
        ask(&outside.run_dir, programs[0].incarnation());
        ask(&outside.run_dir, Incarnation([1; 16]));
        let from = outside.door.hear_phases();
        assert_eq!(from.len(), 2);
        intake.apply(IntakeEvent::Phases(from));
        let answer = programs[0].phase_answer(7).unwrap();
        assert_eq!((answer.state, answer.share), (GrantState::Granted, 1.0));
        // What a round finds is reported as well, the newest of each phase.
        say(&mut ring, 7, PhaseStage::Granted, 10);
        say(&mut ring, 7, PhaseStage::Ended, 20);
        intake.round(true);
        let came = desk.came.lock().unwrap().clone();
        let came: Vec<_> = came.iter().map(|it| (it.stage, it.bytes_done)).collect();
        assert_eq!(came, [(PhaseStage::Waiting, 0), (PhaseStage::Ended, 20)]);
        // Its end is told, once.
        let incarnation = programs[0].incarnation();
        drop(ring);
        programs.clear();
        while !taken_in(intake).is_empty() {
            intake.round(true);
        }
        assert_eq!(*desk.left.lock().unwrap(), [incarnation]);
    });
}

#[test]
fn programs_are_told_that_nobody_answers_any_more() {
    with_intake(|intake, outside| {
        let programs = programs(&outside.run_dir, 1);
        scan(intake);
        // There is no desk.
        assert_eq!(programs[0].schedules(), Some(false));
        intake.end_phases();
        assert_eq!(programs[0].schedules(), None);
    });
}

#[test]
fn whoever_asks_all_the_time_has_a_part_of_the_time() {
    with_intake(|intake, _| {
        let ms = 1_000_000;
        intake.phases.spend(0, 0);
        assert_eq!(intake.phases_due_ns(), 0, "some time is saved");
        let mut now_ns = 0;
        let mut spent_ns = 0;
        while now_ns < 1_000 * ms {
            let begun_ns = now_ns.max(intake.phases_due_ns());
            now_ns = begun_ns + ms;
            spent_ns += ms;
            intake.phases.spend(begun_ns, now_ns);
        }
        // A fifth, and what was saved.
        assert!((190 * ms..=210 * ms).contains(&spent_ns), "{spent_ns}");
    });
}
