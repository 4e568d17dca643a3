//! Phases of I/O: what programs tell of them by the frames of one publication, and the desk that
//! answers (docs/design/0012-agreement.md).
//!
//! The frames are taken in and kept like all others. Beside that, what they say is handed to the
//! desk of the agent, whose answers are written into the files of the programs.

use std::collections::BTreeMap;

use barograph_model::Value;
use barograph_stream::Incarnation;
use barograph_stream::ingest::{
    GrantState, PHASE_DECLARED, PHASE_DONE, PHASE_LEASE, PHASE_PRIORITY, PHASE_PUBLICATION,
    PHASE_STAGE, PHASE_VOLUME, PhaseStage,
};

/// Work of a report, in records.
pub(crate) const REPORT_WORK: u64 = 64;
/// Most phases of a process of which one look hands on reports; those of further ones are left to
/// their next report.
const REPORTS_MAX: usize = 64;
/// The priority of a phase that gives none.
const PRIORITY_DEFAULT: u8 = 5;

/// A process that does I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseProcess {
    /// This life of the process.
    pub incarnation: Incarnation,
    /// Its number, as it says.
    pub pid: u32,
    /// The time at which it began, in ticks since the machine's start, as it says; 0 if it does not
    /// know.
    pub start_ticks: u64,
    /// The owner of its file.
    pub uid: u32,
    /// The name of its application.
    pub application: String,
    /// The label `job` of the process, empty without one.
    pub job: String,
}

/// What a process says of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseReport {
    /// The number that the process has given the phase.
    pub phase: u64,
    /// The volume, as the process names it.
    pub volume: String,
    /// What it does now.
    pub stage: PhaseStage,
    /// The bytes that it will read and write, as far as it knows.
    pub bytes: Option<u64>,
    /// The bytes that it has read and written.
    pub bytes_done: u64,
    /// 1 to 10, 10 for the most important.
    pub priority: u8,
    /// The time in ns after which it has ended if nothing more is heard of it; `None` for the
    /// agent's own lease.
    pub lease_ns: Option<i64>,
}

/// The answer to a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseOutcome {
    /// The process.
    pub incarnation: Incarnation,
    /// The number of the phase.
    pub phase: u64,
    /// What it may do.
    pub state: GrantState,
    /// Its share of the storage, 0 to 1.
    pub share: f64,
}

/// The desk at which phases are reported, and which decides what they may do. It never waits.
pub trait PhaseDesk: Send + Sync {
    /// Whether there is a volume whose I/O is scheduled.
    fn schedules(&self) -> bool;

    /// Takes in reports of a process.
    fn report(&self, process: &PhaseProcess, reports: &[PhaseReport]);

    /// Takes in that a process has ended.
    fn leave(&self, incarnation: Incarnation);

    /// Does what is due; returns the time of the next step on the monotonic clock.
    fn step(&self) -> Option<i64>;

    /// The answers since the last call.
    fn take_outcomes(&self) -> Vec<PhaseOutcome>;
}

/// The values of a publication of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PhaseValue {
    Stage,
    Declared,
    Done,
    Priority,
    Lease,
}

/// What the records of one thread have said since its last frame.
#[derive(Clone, Copy, Debug)]
struct Said {
    publication: usize,
    stage: Option<PhaseStage>,
    declared: Option<u64>,
    done: u64,
    priority: u8,
    lease_ns: Option<i64>,
}

impl Said {
    fn new(publication: usize) -> Self {
        Self {
            publication,
            stage: None,
            declared: None,
            done: 0,
            priority: PRIORITY_DEFAULT,
            lease_ns: None,
        }
    }

    fn take(&mut self, value: PhaseValue, said: i64) {
        match value {
            PhaseValue::Stage => self.stage = PhaseStage::from_i64(said),
            PhaseValue::Declared => self.declared = u64::try_from(said).ok(),
            PhaseValue::Done => self.done = u64::try_from(said).unwrap_or(0),
            PhaseValue::Priority => self.priority = said.clamp(1, 10) as u8,
            PhaseValue::Lease => self.lease_ns = (said > 0).then_some(said),
        }
    }
}

/// What a process says of its phases, as it is taken in.
#[derive(Default)]
pub(crate) struct PhaseNews {
    /// By ring: the values of a frame are those of its thread.
    said: BTreeMap<u32, Said>,
    /// The newest report of each phase since they were taken last.
    reports: BTreeMap<u64, PhaseReport>,
    /// Whether it has ever reported a phase that is not known to have ended.
    is_open: bool,
}

/// The volume of a publication with these labels, if it is one of phases.
pub(crate) fn volume_of(name: &str, labels: &[(String, String)]) -> Option<String> {
    if name != PHASE_PUBLICATION {
        return None;
    }
    let volume = labels.iter().find(|(name, _)| name == PHASE_VOLUME);
    volume.map(|(_, volume)| volume.clone())
}

impl PhaseNews {
    /// Takes in a value of a publication of phases.
    pub(crate) fn value(&mut self, ring: u32, publication: usize, name: &str, value: &Value) {
        let of = match name {
            PHASE_STAGE => PhaseValue::Stage,
            PHASE_DECLARED => PhaseValue::Declared,
            PHASE_DONE => PhaseValue::Done,
            PHASE_PRIORITY => PhaseValue::Priority,
            PHASE_LEASE => PhaseValue::Lease,
            _ => return,
        };
        let Value::Int(said) = value else {
            return;
        };
        let fresh = || Said::new(publication);
        let entry = self.said.entry(ring).or_insert_with(fresh);
        if entry.publication != publication {
            *entry = fresh();
        }
        entry.take(of, *said);
    }

    /// Takes in the end of a frame.
    pub(crate) fn frame(&mut self, ring: u32, publication: usize, volume: &str, phase: u64) {
        let Some(said) = self.said.remove(&ring) else {
            return;
        };
        let (Some(stage), true) = (said.stage, said.publication == publication) else {
            return;
        };
        if self.reports.len() >= REPORTS_MAX && !self.reports.contains_key(&phase) {
            return;
        }
        self.is_open = true;
        let report = PhaseReport {
            phase,
            volume: volume.to_owned(),
            stage,
            bytes: said.declared,
            bytes_done: said.done,
            priority: said.priority,
            lease_ns: said.lease_ns,
        };
        self.reports.insert(phase, report);
    }

    /// The reports since the last call.
    pub(crate) fn take(&mut self) -> Vec<PhaseReport> {
        let reports = std::mem::take(&mut self.reports);
        reports.into_values().collect()
    }

    /// Whether the desk may know of a phase of the process; asked once, at its end.
    pub(crate) fn take_open(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn len(&self) -> u64 {
        self.reports.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(news: &mut PhaseNews, ring: u32, publication: usize, values: &[(&str, i64)]) {
        for (name, value) in values {
            news.value(ring, publication, name, &Value::Int(*value));
        }
    }

    #[test]
    fn a_frame_has_the_values_of_its_thread() {
        let mut news = PhaseNews::default();
        put(&mut news, 0, 0, &[(PHASE_STAGE, 1), (PHASE_DECLARED, 10)]);
        put(&mut news, 1, 0, &[(PHASE_STAGE, 2), (PHASE_DECLARED, 20)]);
        news.frame(0, 0, "a", 7);
        news.frame(1, 0, "a", 8);
        news.frame(1, 0, "a", 9);
        let reports = news.take();
        let of: Vec<_> = reports.iter().map(|it| (it.phase, it.bytes)).collect();
        assert_eq!(of, [(7, Some(10)), (8, Some(20))]);
        assert!(news.take().is_empty() && news.is_open());
    }

    #[test]
    fn what_makes_no_sense_is_no_report() {
        let mut news = PhaseNews::default();
        // No stage, an unknown one, and values of another publication.
        put(&mut news, 0, 0, &[(PHASE_DONE, 1)]);
        news.frame(0, 0, "a", 1);
        put(&mut news, 0, 0, &[(PHASE_STAGE, 9)]);
        news.frame(0, 0, "a", 2);
        put(&mut news, 0, 1, &[(PHASE_STAGE, 1)]);
        news.frame(0, 0, "a", 3);
        assert!(news.take().is_empty() && !news.is_open());
        let odd = [
            (PHASE_STAGE, 1),
            (PHASE_DECLARED, -1),
            (PHASE_DONE, -5),
            (PHASE_PRIORITY, 99),
            (PHASE_LEASE, -2),
            ("other", 3),
        ];
        put(&mut news, 0, 0, &odd);
        news.value(0, 0, PHASE_STAGE, &Value::Float(0.0));
        news.frame(0, 0, "a", 4);
        let [report] = &news.take()[..] else {
            panic!("one report");
        };
        let said = (report.bytes, report.bytes_done, report.priority);
        assert_eq!((said, report.lease_ns), ((None, 0, 10), None));
        for phase in 0..1_000 {
            put(&mut news, 0, 0, &[(PHASE_STAGE, 1)]);
            news.frame(0, 0, "a", phase);
        }
        assert_eq!(news.take().len(), REPORTS_MAX);
    }
}
