//! Server maps: what programs count is reported, and what the desk tells stands in their files
//! before it.

use std::sync::Mutex;

use barograph_stream::ingest::{
    MAP_LABEL, MAP_PUBLICATION, MapState, MapTold, MapWords, SERVER_LABEL, SERVER_LOAD,
    SERVER_PUBLICATION, SERVER_SERVICE, ServerSet,
};

use super::*;
use crate::intake::maps::IntakeMaps;
use crate::{MapDesk, MapOutcome, MapReport, MapRole, MapSample, PhaseProcess};

/// A desk that tells what the test wants, and remembers who came.
#[derive(Default)]
struct ToldDesk {
    is_off: bool,
    came: Mutex<Vec<(u32, MapReport)>>,
    left: Mutex<Vec<(Incarnation, bool)>>,
    outcomes: Mutex<Vec<MapOutcome>>,
}

impl MapDesk for ToldDesk {
    fn uses_maps(&self) -> bool {
        !self.is_off
    }

    fn report(&self, process: &PhaseProcess, reports: &[MapReport]) {
        let reports = reports.iter().map(|report| (process.uid, report.clone()));
        self.came.lock().unwrap().extend(reports);
    }

    fn leave(&self, incarnation: Incarnation, is_certain: bool) {
        self.left.lock().unwrap().push((incarnation, is_certain));
    }

    fn step(&self) -> Option<i64> {
        None
    }

    fn take_outcomes(&self) -> Vec<MapOutcome> {
        std::mem::take(&mut self.outcomes.lock().unwrap())
    }
}

impl ToldDesk {
    fn tell(&self, program: &Producer, slot: u8, number: u64, words: MapWords) {
        self.outcomes.lock().unwrap().push(MapOutcome {
            incarnation: program.incarnation(),
            slot,
            number,
            words,
        });
    }

    fn came(&self) -> Vec<MapReport> {
        let came = std::mem::take(&mut *self.came.lock().unwrap());
        came.into_iter().map(|(_, report)| report).collect()
    }
}

fn words(prepare: u64, epoch: u64) -> MapWords {
    MapWords {
        state: MapState::Told,
        prepare,
        epoch,
        fence: epoch,
        servers: [1, 2].into_iter().collect(),
    }
}

const MEMBER: u8 = 0;
const SERVER: u8 = 1;

/// Declares a member and a server of one map, and a publication that names none.
fn declare(program: &Producer) -> ThreadRing {
    let publication = |name: &str, labels: &[(&str, &str)]| {
        let pairs = labels
            .iter()
            .map(|(name, text)| ((*name).into(), (*text).into()));
        assert!(program.declare(&IngestDeclaration::Publication {
            name: name.into(),
            readers: PublicationReaders::Owner,
            labels: pairs.collect(),
        }));
    };
    publication(MAP_PUBLICATION, &[(MAP_LABEL, "io")]);
    publication(
        SERVER_PUBLICATION,
        &[(MAP_LABEL, "io"), (SERVER_LABEL, "7")],
    );
    publication(
        SERVER_PUBLICATION,
        &[(MAP_LABEL, "odd"), (SERVER_LABEL, "1024")],
    );
    for (name, value_type) in [
        (SERVER_LOAD, ValueType::Int),
        (SERVER_SERVICE, ValueType::Float),
    ] {
        assert!(program.declare(&IngestDeclaration::Value {
            publication: 1,
            name: name.into(),
            value_type,
            kind: Kind::Gauge,
            unit: String::new(),
            help: String::new(),
            bytes_max: 0,
        }));
    }
    let declared: ServerSet = [1, 7].into_iter().collect();
    assert!(program.use_map(MEMBER, 0, &declared));
    assert!(program.use_map(SERVER, 1, &ServerSet::EMPTY));
    // A number that no server has, and a publication that does not exist.
    assert!(program.use_map(2, 2, &ServerSet::EMPTY));
    assert!(program.use_map(3, 99, &ServerSet::EMPTY));
    program.thread(&SystemClock::new()).unwrap()
}

fn knock(intake: &mut Intake<'_>, program: &Producer) {
    intake.apply(IntakeEvent::Phases(vec![program.incarnation()]));
}

#[test]
fn what_is_told_stands_in_the_file_before_what_is_counted_is_read() {
    with_intake(|intake, outside| {
        let desk = Arc::new(ToldDesk::default());
        intake.maps = IntakeMaps::new(Some(desk.clone()));
        let programs = programs(&outside.run_dir, 1);
        let program = &programs[0];
        let _ring = declare(program);
        program.count_operation(MEMBER);
        program.note_refusal(MEMBER, 3);
        while desk.came.lock().unwrap().is_empty() {
            knock(intake, program);
        }
        let [member, server] = &desk.came()[..] else {
            panic!("two uses are reported, and two are none");
        };
        let declared = [1, 7].into_iter().collect();
        assert_eq!((member.slot, &*member.map, member.seen), (MEMBER, "io", 0));
        let role = MapRole::Member {
            running: 1,
            waiting: 0,
            refused: 3,
            ended: 0,
            declared,
        };
        assert_eq!(member.role, role);
        let role = MapRole::Server {
            number: 7,
            running: 0,
            oldest_epoch: None,
            samples: Vec::new(),
        };
        assert_eq!((server.slot, &server.role), (SERVER, &role));
        assert_eq!(
            (member.told, program.map_told(MEMBER)),
            (None, MapTold::Nothing)
        );
        // What is told is written, and then the counts are read, in the same step.
        desk.tell(program, MEMBER, 10, words(0, 4));
        desk.tell(program, MEMBER, 11, words(5, 4));
        desk.tell(program, 99, 12, words(5, 4));
        intake.round(false);
        assert_eq!(program.map_told(MEMBER), MapTold::Words(words(5, 4)));
        let came = desk.came();
        let last = came.iter().rfind(|report| report.slot == MEMBER).unwrap();
        assert_eq!((last.seen, last.told), (11, Some(words(5, 4))));
        assert!(matches!(last.role, MapRole::Member { running: 1, .. }));
        // Its end is reported when it knocks.
        assert_eq!(program.uncount_operation(MEMBER), 0);
        knock(intake, program);
        let came = desk.came();
        let [ended] = &came[..] else {
            panic!("only what has changed: {came:?}");
        };
        assert!(matches!(ended.role, MapRole::Member { running: 0, .. }));
        assert_eq!(ended.seen, 11);
    });
}

#[test]
fn requests_that_were_served_are_counted_and_measured() {
    with_intake(|intake, outside| {
        let desk = Arc::new(ToldDesk::default());
        intake.maps = IntakeMaps::new(Some(desk.clone()));
        let programs = programs(&outside.run_dir, 1);
        let program = &programs[0];
        let mut ring = declare(program);
        while desk.came.lock().unwrap().is_empty() {
            knock(intake, program);
        }
        desk.came();
        let counted = program.count_request(SERVER, 4).unwrap();
        for (load, service_s) in [(100, 0.5_f64), (u64::MAX, 1.0), (100, f64::NAN)] {
            assert!(ring.put(kind::INT, 0, 1, load));
            assert!(ring.put(kind::FLOAT, 1, 1, service_s.to_bits()));
            assert!(ring.frame(1, 1, 1));
        }
        knock(intake, program);
        let came = desk.came();
        let [served] = &came[..] else {
            panic!("only what has changed: {came:?}");
        };
        let sample = MapSample {
            load: 100,
            service_s: 0.5,
            requests: 0,
        };
        let role = MapRole::Server {
            number: 7,
            running: 1,
            oldest_epoch: Some(4),
            samples: vec![sample],
        };
        assert_eq!(served.role, role);
        program.uncount_request(SERVER, counted);
    });
}

#[test]
fn an_end_is_certain_if_nothing_runs_any_more() {
    with_intake(|intake, outside| {
        let desk = Arc::new(ToldDesk::default());
        intake.maps = IntakeMaps::new(Some(desk.clone()));
        let mut programs = programs(&outside.run_dir, 1);
        let incarnation = programs[0].incarnation();
        let ring = declare(&programs[0]);
        while desk.came.lock().unwrap().is_empty() {
            knock(intake, &programs[0]);
        }
        assert!(desk.left.lock().unwrap().is_empty());
        // What has ended is not reported again, however long its file stays.
        drop(ring);
        programs.clear();
        while !taken_in(intake).is_empty() {
            intake.round(true);
        }
        assert_eq!(*desk.left.lock().unwrap(), [(incarnation, true)], "once");
    });
}

#[test]
fn programs_are_told_that_nobody_keeps_maps() {
    with_intake(|intake, outside| {
        let desk = ToldDesk {
            is_off: true,
            ..ToldDesk::default()
        };
        intake.maps = IntakeMaps::new(Some(Arc::new(desk)));
        let programs = programs(&outside.run_dir, 2);
        let _rings = (declare(&programs[0]), declare(&programs[1]));
        // What an agent before this one has told stays.
        scan(intake);
        let mut rounds = 0;
        while programs[0].map_told(SERVER) == MapTold::Nothing && rounds < 1_000 {
            knock(intake, &programs[0]);
            rounds += 1;
        }
        for slot in [MEMBER, SERVER] {
            assert_eq!(programs[0].map_told(slot), MapTold::Words(MapWords::OFF));
        }
    });
}
