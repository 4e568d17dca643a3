//! What people have set for controllers at run time, who they were and when that was, and the
//! numbers of decisions. Both are in the state directory, so that they survive a restart.
//!
//! A pause ends by the clock of the wall if the agent is restarted meanwhile, and by the monotonic
//! one otherwise, so that setting the clock neither ends nor prolongs it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::Clock;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::AgentError;
use crate::refusal::StatementRefusal;
use crate::statements::{StatementFile, StatementTroubles};

/// The files in the state directory.
const SWITCHES_FILE: &str = "controllers.json";
const NUMBERS_FILE: &str = "decision_numbers.json";
/// The entry of the file of numbers.
const RESERVED: &str = "reserved";
/// Numbers that are reserved at a time, and how many of them are left when more are.
const NUMBERS_AT_ONCE: u64 = 4_096;
const NUMBERS_LEFT: u64 = 1_024;
/// Most controllers of which something is kept: also of volumes that are not configured any more.
const KEPT_MAX: usize = 256;

/// What a controller does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ControllerMode {
    /// It decides, and its decisions are carried out.
    #[default]
    Live,
    /// It decides, and nothing is done.
    DryRun,
    /// It decides nothing.
    Paused,
}

/// A controller's mode, and by whom it has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchedMode {
    pub mode: ControllerMode,
    /// Who has set it; empty if nobody has.
    pub by: String,
    /// When, in ns since the epoch.
    pub since_ns: Option<i64>,
    /// The end of a pause, in ns since the epoch, and on the monotonic clock.
    pub until_ns: Option<i64>,
    pub until_monotonic_ns: Option<i64>,
    pub reason: String,
}

impl SwitchedMode {
    /// The mode with its reason, as a part of a sentence.
    pub(crate) fn told(&self) -> String {
        let mode = match self.mode {
            ControllerMode::Live => return "live".into(),
            ControllerMode::DryRun => "in a dry run",
            ControllerMode::Paused => "paused",
        };
        match &*self.reason {
            "" => format!("{mode} by {}", self.by),
            reason => format!("{mode} by {}: {reason}", self.by),
        }
    }
}

/// Who has set something, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Change {
    by: String,
    since_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ns: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// What is kept of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct KeptSwitch {
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<Change>,
}

/// What is set for all controllers, and the numbers of decisions.
pub(crate) struct ControllerSwitches {
    /// The files; who writes them waits for a disk, and nobody else waits for that.
    files: Mutex<(StatementFile<KeptSwitch>, StatementFile<u64>)>,
    now: Mutex<BTreeMap<String, (KeptSwitch, Option<i64>)>>,
    last_id: AtomicU64,
    reserved: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl ControllerSwitches {
    /// Reads the files of an earlier agent.
    pub(crate) fn open(
        state_dir: &Path,
        troubles: &StatementTroubles,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Self>, AgentError> {
        let kept: StatementFile<KeptSwitch> =
            StatementFile::open(&state_dir.join(SWITCHES_FILE), troubles)?;
        let numbers: StatementFile<u64> =
            StatementFile::open(&state_dir.join(NUMBERS_FILE), troubles)?;
        let reserved = numbers.statements().get(RESERVED).copied().unwrap_or(0);
        let ahead_ns = clock.monotonic_ns().saturating_sub(clock.now_ns());
        let now = kept.statements().iter().map(|(name, kept)| {
            let until_ns = kept.paused.as_ref().and_then(|paused| paused.until_ns);
            let until_ns = until_ns.map(|until_ns| until_ns.saturating_add(ahead_ns));
            (name.clone(), (kept.clone(), until_ns))
        });
        Ok(Arc::new(Self {
            now: Mutex::new(now.collect()),
            files: Mutex::new((kept, numbers)),
            last_id: AtomicU64::new(reserved),
            reserved: AtomicU64::new(reserved),
            clock: Arc::clone(clock),
        }))
    }

    /// Those of a test, in a directory of its own.
    #[cfg(test)]
    pub(crate) fn of_test(state_dir: &Path, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let troubles = StatementTroubles::new(&barograph_recorder::World::real());
        Self::open(state_dir, &troubles, clock).unwrap()
    }

    /// The mode of a controller at present.
    pub(crate) fn mode(&self, controller: &str) -> SwitchedMode {
        let now = self.now();
        let Some((kept, until_monotonic_ns)) = now.get(controller) else {
            return SwitchedMode::default();
        };
        let is_over = until_monotonic_ns.is_some_and(|it| self.clock.monotonic_ns() >= it);
        let paused = kept.paused.as_ref().filter(|_| !is_over);
        let (mode, change) = match (paused, &kept.dry_run) {
            (Some(change), _) => (ControllerMode::Paused, change),
            (None, Some(change)) => (ControllerMode::DryRun, change),
            (None, None) => return SwitchedMode::default(),
        };
        SwitchedMode {
            mode,
            by: change.by.clone(),
            since_ns: Some(change.since_ns),
            until_ns: change.until_ns,
            until_monotonic_ns: until_monotonic_ns.filter(|_| paused.is_some()),
            reason: change.reason.clone(),
        }
    }

    /// Pauses a controller, for ever without a time; `None`, if it is paused.
    pub(crate) fn pause(
        &self,
        controller: &str,
        (by, reason): (&str, &str),
        for_ns: Option<i64>,
    ) -> Result<Option<()>, StatementRefusal> {
        let since_ns = self.clock.now_ns();
        let change = Change {
            by: by.to_owned(),
            since_ns,
            until_ns: for_ns.map(|for_ns| since_ns.saturating_add(for_ns)),
            reason: reason.to_owned(),
        };
        let monotonic_ns = self.clock.monotonic_ns();
        let until_ns = for_ns.map(|for_ns| monotonic_ns.saturating_add(for_ns));
        self.change(controller, |kept, before_ns| {
            let is_over = before_ns.is_some_and(|it| monotonic_ns >= it);
            let is_paused = kept.paused.is_some() && !is_over;
            (!is_paused).then(|| {
                kept.paused = Some(change);
                until_ns
            })
        })
    }

    /// Ends a pause; `None`, if there is none.
    pub(crate) fn resume(&self, controller: &str) -> Result<Option<()>, StatementRefusal> {
        let now_ns = self.clock.monotonic_ns();
        self.change(controller, |kept, until_ns| {
            let is_over = until_ns.is_some_and(|until_ns| now_ns >= until_ns);
            kept.paused.take().filter(|_| !is_over).map(|_| None)
        })
    }

    /// Begins or ends a dry run; `None`, if nothing changes.
    pub(crate) fn dry_run(
        &self,
        controller: &str,
        (by, reason): (&str, &str),
        is_on: bool,
    ) -> Result<Option<()>, StatementRefusal> {
        let change = is_on.then(|| Change {
            by: by.to_owned(),
            since_ns: self.clock.now_ns(),
            until_ns: None,
            reason: reason.to_owned(),
        });
        self.change(controller, |kept, until_ns| {
            let changes = kept.dry_run.is_some() != is_on;
            kept.dry_run = change;
            changes.then_some(until_ns)
        })
    }

    /// Ends the pauses whose time is over; returns their controllers.
    pub(crate) fn end_pauses(&self) -> Vec<String> {
        let now_ns = self.clock.monotonic_ns();
        let over: Vec<String> = {
            let now = self.now();
            let is_over = |until_ns: &Option<i64>| until_ns.is_some_and(|it| now_ns >= it);
            let over = now
                .iter()
                .filter(|(_, (kept, until_ns))| kept.paused.is_some() && is_over(until_ns));
            over.map(|(name, _)| name.clone()).collect()
        };
        let end = |name: &String| {
            let ended = self.change(name, |kept, _| kept.paused.take().map(|_| None));
            // It is over also if the disk is full: it is tried again at the next look.
            ended.is_ok_and(|ended| ended.is_some())
        };
        over.into_iter().filter(end).collect()
    }

    /// The number of the next decision. Numbers are not given again, not even by a later agent.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reserves more numbers if few are left. This may wait for a disk.
    pub(crate) fn reserve(&self) {
        let wanted = self.last_id.load(Ordering::Relaxed) + NUMBERS_LEFT;
        if wanted > self.reserved.load(Ordering::Relaxed) {
            self.write_reserved(wanted + NUMBERS_AT_ONCE - NUMBERS_LEFT);
        }
    }

    /// Gives back the numbers that were reserved and not used: the agent stops.
    pub(crate) fn close(&self) {
        self.write_reserved(self.last_id.load(Ordering::Relaxed));
    }

    fn write_reserved(&self, reserved: u64) {
        let mut files = self.files();
        let numbers = BTreeMap::from([(RESERVED.to_owned(), reserved)]);
        let change = files.1.prepare_all(numbers);
        match change.and_then(|change| files.1.commit(change)) {
            Ok(()) => self.reserved.store(reserved, Ordering::Relaxed),
            Err(error) => warn!(%error, "numbers of decisions may be given twice"),
        }
    }

    /// Changes what is kept of a controller, on disk first. `change` returns the end of the pause
    /// on the monotonic clock; `None` if there is nothing to be changed.
    fn change(
        &self,
        controller: &str,
        change: impl FnOnce(&mut KeptSwitch, Option<i64>) -> Option<Option<i64>>,
    ) -> Result<Option<()>, StatementRefusal> {
        let mut files = self.files();
        let (mut kept, before_ns) = self.now().get(controller).cloned().unwrap_or_default();
        let Some(until_ns) = change(&mut kept, before_ns) else {
            return Ok(None);
        };
        let mut all = files.0.statements().clone();
        if kept == KeptSwitch::default() {
            all.remove(controller);
        } else if all.len() >= KEPT_MAX && !all.contains_key(controller) {
            return Err(StatementRefusal::Statement(format!(
                "something is kept of {KEPT_MAX} controllers: resume some of them"
            )));
        } else {
            all.insert(controller.to_owned(), kept.clone());
        }
        let written = files.0.prepare_all(all)?;
        files.0.commit(written)?;
        let mut now = self.now();
        match kept == KeptSwitch::default() {
            true => drop(now.remove(controller)),
            false => drop(now.insert(controller.to_owned(), (kept, until_ns))),
        }
        Ok(Some(()))
    }

    fn files(&self) -> MutexGuard<'_, (StatementFile<KeptSwitch>, StatementFile<u64>)> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> MutexGuard<'_, BTreeMap<String, (KeptSwitch, Option<i64>)>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::{ManualClock, NS_PER_S};

    use super::*;

    const START_NS: i64 = 1_000 * NS_PER_S;
    const TEN_MINUTES: Option<i64> = Some(600 * NS_PER_S);
    const BY: (&str, &str) = ("ada", "maintenance");

    fn open(dir: &Path, clock: &Arc<ManualClock>) -> Arc<ControllerSwitches> {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        ControllerSwitches::of_test(dir, &clock)
    }

    #[test]
    fn a_pause_ends_by_its_time_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(START_NS));
        let switches = open(dir.path(), &clock);
        assert_eq!(switches.mode("weight"), SwitchedMode::default());
        assert_eq!(switches.resume("weight").unwrap(), None, "it is not paused");
        assert!(switches.pause("weight", BY, TEN_MINUTES).unwrap().is_some());
        assert_eq!(switches.pause("weight", BY, None).unwrap(), None, "twice");
        clock.advance(300 * NS_PER_S);
        // Another agent goes on with what is left.
        let switches = open(dir.path(), &clock);
        let mode = switches.mode("weight");
        assert_eq!((mode.mode, &*mode.by), (ControllerMode::Paused, "ada"));
        assert_eq!(
            (mode.since_ns, &*mode.reason),
            (Some(START_NS), "maintenance")
        );
        assert_eq!(mode.until_ns, Some(START_NS + 600 * NS_PER_S));
        assert_eq!(switches.end_pauses(), [""; 0]);
        clock.advance(300 * NS_PER_S);
        assert_eq!(switches.mode("weight").mode, ControllerMode::Live);
        assert_eq!(switches.end_pauses(), ["weight"]);
        assert_eq!(switches.end_pauses(), [""; 0]);
        let kept = std::fs::read_to_string(dir.path().join(SWITCHES_FILE)).unwrap();
        assert_eq!(kept, "{}");
    }

    #[test]
    fn a_dry_run_comes_back_after_a_pause() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(START_NS));
        let switches = open(dir.path(), &clock);
        let name = "io-schedule/scratch";
        assert!(switches.dry_run(name, BY, true).unwrap().is_some());
        assert_eq!(switches.dry_run(name, BY, true).unwrap(), None);
        switches.pause(name, ("grace", ""), None).unwrap();
        let mode = switches.mode(name);
        assert_eq!((mode.mode, &*mode.by), (ControllerMode::Paused, "grace"));
        assert_eq!(mode.until_ns, None);
        assert!(switches.resume(name).unwrap().is_some());
        assert_eq!(
            open(dir.path(), &clock).mode(name).mode,
            ControllerMode::DryRun
        );
        assert!(switches.dry_run(name, BY, false).unwrap().is_some());
        assert_eq!(switches.mode(name), SwitchedMode::default());
    }

    #[test]
    fn numbers_are_never_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(START_NS));
        let switches = open(dir.path(), &clock);
        switches.reserve();
        assert_eq!((switches.next_id(), switches.next_id()), (1, 2));
        // An agent that was killed leaves a gap, one that stops leaves none.
        let killed = open(dir.path(), &clock);
        assert_eq!(killed.next_id(), NUMBERS_AT_ONCE + 1);
        killed.reserve();
        for _ in 0..4 * NUMBERS_AT_ONCE {
            let id = killed.next_id();
            killed.reserve();
            assert!(id < killed.reserved.load(Ordering::Relaxed));
        }
        let last = killed.next_id();
        killed.close();
        assert_eq!(open(dir.path(), &clock).next_id(), last + 1);
    }

    #[test]
    fn what_cannot_be_kept_is_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(START_NS));
        let switches = open(dir.path(), &clock);
        for n in 0..KEPT_MAX {
            switches
                .pause(&format!("io-schedule/{n}"), BY, None)
                .unwrap();
        }
        assert!(switches.pause("weight", BY, None).is_err());
        assert_eq!(switches.mode("weight").mode, ControllerMode::Live);
        std::fs::remove_dir_all(dir.path()).unwrap();
        std::fs::write(dir.path(), "no directory").unwrap();
        assert!(switches.resume("io-schedule/1").is_err());
        assert_eq!(switches.mode("io-schedule/1").mode, ControllerMode::Paused);
    }
}
