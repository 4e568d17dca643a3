//! Phases of I/O as they were recorded (frames of `io.phase`), brought into the form in which they
//! can be replayed under another policy: what each application computed and wrote, without what it
//! waited.

use std::collections::{BTreeMap, BTreeSet};

use crate::storage::{RecordedPhase, ScheduleQuality};

const NS_PER_S: f64 = 1e9;
/// The stages of a phase in its frames.
const ENDED: i64 = 0;
const WAITING: i64 = 1;

/// One frame of a program about one of its phases.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseFrame {
    /// Its time, in ns.
    pub ts: i64,
    /// What makes its application: user, name and job, with a zero byte between them.
    pub application: String,
    /// What makes its process, within the application: all other labels.
    pub process: String,
    /// The number of the phase.
    pub phase: i64,
    /// What the process does from then on.
    pub stage: i64,
    /// What the phase will read and write, if the frame says so.
    pub declared: Option<i64>,
    /// What it has read and written.
    pub done: i64,
    /// 1 to 10.
    pub priority: Option<i64>,
}

/// A phase of an application, of all of its processes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recorded {
    begun_ns: i64,
    /// When it first did I/O.
    started_ns: i64,
    ended_ns: i64,
    bytes: f64,
    declared: Option<u64>,
    priority: u8,
}

/// What applications did.
#[derive(Clone, Debug, PartialEq)]
pub struct IoRecord {
    applications: Vec<Vec<Recorded>>,
    /// The number of the user of each.
    users: Vec<u32>,
    begun_ns: i64,
}

impl IoRecord {
    /// Reads frames, which are in the order of time. Phases that have not ended, or have done
    /// nothing, are left out.
    pub fn of(frames: &[PhaseFrame]) -> Self {
        let mut open: BTreeMap<(&str, &str, i64), Recorded> = BTreeMap::new();
        let mut ended: BTreeMap<&str, Vec<Recorded>> = BTreeMap::new();
        for frame in frames {
            let key = (&*frame.application, &*frame.process, frame.phase);
            if frame.stage != ENDED {
                let phase = open.entry(key).or_insert_with(|| Recorded::begun(frame));
                phase.take(frame);
                continue;
            }
            let Some(mut phase) = open.remove(&key) else {
                continue;
            };
            phase.take(frame);
            phase.ended_ns = frame.ts;
            if phase.bytes > 0.0 {
                ended.entry(key.0).or_default().push(phase);
            }
        }
        let user = |application: &&str| {
            application
                .split('\0')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let names: BTreeSet<String> = ended.keys().map(user).collect();
        let number = |name: String| names.iter().take_while(|it| **it != name).count();
        let users = ended
            .keys()
            .map(|it| u32::try_from(number(user(it))).unwrap_or(u32::MAX));
        let users = users.collect();
        let applications: Vec<Vec<Recorded>> = ended.into_values().map(merged).collect();
        let begun = applications.iter().flatten().map(|it| it.begun_ns);
        Self {
            begun_ns: begun.min().unwrap_or(0),
            applications,
            users,
        }
    }

    /// The number of phases of applications.
    pub fn len(&self) -> usize {
        self.applications.iter().map(Vec::len).sum()
    }

    /// Whether there is no phase that has ended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of applications.
    pub fn applications(&self) -> usize {
        self.applications.len()
    }

    /// Bytes/s of the storage when one phase alone uses it: the median of phases beside which no
    /// other did I/O; of all, if there is none. `None` without phases.
    pub fn bandwidth(&self) -> Option<f64> {
        let all: Vec<&Recorded> = self.applications.iter().flatten().collect();
        let is_alone = |phase: &Recorded| {
            let others = all.iter().filter(|it| **it != phase);
            let mut beside = others
                .filter(|it| it.started_ns < phase.ended_ns && phase.started_ns < it.ended_ns);
            beside.next().is_none()
        };
        let rate = |phase: &Recorded| {
            let took_s = seconds(phase.started_ns, phase.ended_ns);
            (took_s > 0.0).then(|| phase.bytes / took_s)
        };
        let alone = all.iter().filter(|it| is_alone(it));
        let mut rates: Vec<f64> = alone.filter_map(|it| rate(it)).collect();
        if rates.is_empty() {
            rates = all.iter().filter_map(|it| rate(it)).collect();
        }
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }

    /// The applications, as [`replay`](crate::storage::replay) takes them.
    pub fn to_replay(&self) -> Vec<Vec<RecordedPhase>> {
        let phases = |(application, user): (&Vec<Recorded>, &u32)| {
            let mut before_ns = self.begun_ns;
            let phases = application.iter().map(|phase| {
                let compute_s = seconds(before_ns, phase.begun_ns).max(0.0);
                before_ns = phase.ended_ns;
                RecordedPhase {
                    compute_s,
                    bytes: phase.bytes,
                    declared: phase.declared,
                    priority: phase.priority,
                    user: *user,
                }
            });
            phases.collect()
        };
        self.applications
            .iter()
            .zip(&self.users)
            .map(phases)
            .collect()
    }

    /// How applications fared when they were recorded, on a storage of so many bytes/s.
    pub fn quality(&self, bandwidth: f64) -> ScheduleQuality {
        let count = self.applications.len().max(1) as f64;
        let mut quality = ScheduleQuality::default();
        let mut logarithms = (0.0, 0.0);
        for application in &self.applications {
            let (mut slowdowns, mut alone_s, mut in_phases_s) = (0.0, 0.0, 0.0);
            for phase in application {
                let phase_s = seconds(phase.begun_ns, phase.ended_ns);
                slowdowns += phase_s * bandwidth / phase.bytes;
                alone_s += phase.bytes / bandwidth;
                in_phases_s += phase_s;
            }
            let ended_ns = application.last().map_or(self.begun_ns, |it| it.ended_ns);
            let all_s = seconds(self.begun_ns, ended_ns).max(1e-9);
            let slowdown = (slowdowns / application.len().max(1) as f64).max(1.0);
            let stretch = (all_s / (all_s - in_phases_s + alone_s)).max(1.0);
            quality.utilisation += (all_s - in_phases_s).max(0.0) / all_s / count;
            logarithms.0 += slowdown.ln() / count;
            logarithms.1 += stretch.ln() / count;
            quality.slowdown_worst = quality.slowdown_worst.max(slowdown);
            quality.stretch_worst = quality.stretch_worst.max(stretch);
        }
        (quality.slowdown, quality.stretch) = (logarithms.0.exp(), logarithms.1.exp());
        quality
    }
}

impl Recorded {
    fn begun(frame: &PhaseFrame) -> Self {
        Self {
            begun_ns: frame.ts,
            started_ns: i64::MAX,
            ended_ns: frame.ts,
            bytes: 0.0,
            declared: None,
            priority: 5,
        }
    }

    fn take(&mut self, frame: &PhaseFrame) {
        if frame.stage != WAITING {
            self.started_ns = self.started_ns.min(frame.ts);
        }
        self.bytes = self.bytes.max(frame.done as f64);
        if let Some(declared) = frame.declared.and_then(|it| u64::try_from(it).ok()) {
            self.declared = Some(declared);
        }
        if let Some(priority) = frame.priority {
            self.priority = priority.clamp(1, 10) as u8;
        }
    }
}

/// Phases of processes that overlap are one of their application.
fn merged(mut phases: Vec<Recorded>) -> Vec<Recorded> {
    phases.sort_by_key(|phase| phase.begun_ns);
    let mut merged: Vec<Recorded> = Vec::new();
    for phase in phases {
        match merged.last_mut() {
            Some(last) if phase.begun_ns < last.ended_ns => {
                last.started_ns = last.started_ns.min(phase.started_ns);
                last.ended_ns = last.ended_ns.max(phase.ended_ns);
                last.bytes += phase.bytes;
                last.declared = last
                    .declared
                    .zip(phase.declared)
                    .map(|(a, b)| a.saturating_add(b));
                last.priority = last.priority.max(phase.priority);
            }
            _ => merged.push(phase),
        }
    }
    merged
}

fn seconds(from_ns: i64, to_ns: i64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / NS_PER_S
}
