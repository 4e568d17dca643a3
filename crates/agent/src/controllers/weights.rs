//! The I/O weights that are set at present: which file of a reader's control group has an effect,
//! and the leases of these files.
//!
//! A lease belongs to one process and one plan. It ends with the report of the read, with its time
//! or with the process, whichever comes first, and what was there before is restored.

use std::path::Path;
use std::sync::Arc;

use barograph_control::cgroup::{
    BlockDevice, CgroupRoots, IoSetting, LeaseEnd, LeaseState, SetOutcome, WeightBackend,
    WeightJournal, WeightLease, probe_groups, recover,
};
use barograph_control::{Decision, WeightRange};
use tracing::{info, warn};

use super::device::{FoundDevice, KernelTrees};
use super::process::ReaderProcess;

/// The directory of the journal of weights, in the state directory.
pub const WEIGHTS_DIR: &str = "weights";
/// Most leases at a time.
const LEASES_MAX: usize = 64;
/// Most leases of one user at a time.
const LEASES_OF_USER_MAX: usize = 8;

/// The file of a control group that has an effect on a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WeightTarget {
    pub backend: WeightBackend,
    pub group: String,
    pub range: WeightRange,
}

/// Whose lease is wanted, and until when.
pub(super) struct WeightWish {
    pub plan: u64,
    pub uid: Option<u32>,
    pub process: ReaderProcess,
    pub weight: u32,
    /// On the monotonic clock, as `now_ns`.
    pub until_ns: i64,
    pub now_ns: i64,
}

/// What came of the wish for a weight.
#[derive(Default)]
pub(super) struct GivenWeight {
    pub weight: Option<u32>,
    /// Why there is none.
    pub reason: Option<String>,
    pub decision: Option<Decision>,
    /// Whether the read has a raised weight, or none so that reads with one are compared with it;
    /// `None` if it is not compared.
    pub had_raised_weight: Option<bool>,
}

/// A lease that has ended by itself, or that another plan has taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedWeight {
    pub plan: u64,
    pub reason: String,
}

/// What a look at all leases has found.
#[derive(Debug, Default)]
pub(super) struct WeightsStep {
    pub ended: Vec<EndedWeight>,
    /// Plans whose weight was put off for another controller and is written now.
    pub resumed: Vec<u64>,
}

struct HeldWeight {
    plan: u64,
    uid: Option<u32>,
    process: ReaderProcess,
    backend: WeightBackend,
    lease: WeightLease,
}

/// The leases of all readers.
pub(super) struct Weights {
    /// The roots and the journal, or why there are none.
    places: Result<(CgroupRoots, Arc<WeightJournal>), String>,
    held: Vec<HeldWeight>,
}

impl Weights {
    /// Opens the journal and restores what an agent has left that was killed.
    pub(super) fn open(trees: &KernelTrees, state_dir: &Path) -> Self {
        let places = open_places(trees, state_dir);
        match &places {
            Ok((roots, journal)) => restore_left(roots, journal),
            Err(reason) => warn!(reason, "no I/O weight can be set"),
        }
        Self {
            places,
            held: Vec::new(),
        }
    }

    /// The file by which the share of a process on a device is set, or why there is none.
    pub(super) fn target(
        &self,
        trees: &KernelTrees,
        process: &ReaderProcess,
        device: &FoundDevice,
    ) -> Result<WeightTarget, String> {
        let (roots, _) = self.places.as_ref().map_err(Clone::clone)?;
        let disk = device.disk.as_deref();
        let disk = disk.ok_or_else(|| format!("{} is on no disk of this node", device.name))?;
        let block = BlockDevice::read(&trees.block(), disk).map_err(|error| error.to_string())?;
        let found = probe_groups(roots, &process.groups, &block);
        let refusals = || {
            let all = found.refused.iter();
            let all = all.map(|it| format!("{}: {} ({})", it.file, it.reason, it.remedy));
            all.collect::<Vec<_>>().join("; ")
        };
        let backend = found.backend.ok_or_else(refusals)?;
        // A limit holds this reader back, and gives it nothing.
        let range = backend.range().ok_or_else(|| {
            format!(
                "only limits can be set, which would hold this reader back: {}",
                refusals()
            )
        })?;
        let group = process.groups.of(backend.hierarchy());
        let group = group.ok_or("the process is in no group of this version")?;
        Ok(WeightTarget {
            backend,
            group: group.to_owned(),
            range,
        })
    }

    /// Sets a weight for a plan. A lease that the same process has for an earlier plan goes on as
    /// this one's, and that plan is told.
    pub(super) fn hold(
        &mut self,
        target: &WeightTarget,
        wish: WeightWish,
    ) -> Result<(SetOutcome, Option<EndedWeight>), String> {
        let setting = IoSetting::Weight(wish.weight);
        let is_same = |held: &HeldWeight| {
            held.backend == target.backend && held.lease.group() == target.group
        };
        let Some(at) = self.held.iter().position(is_same) else {
            return self.take(target, wish, setting).map(|set| (set, None));
        };
        let held = &mut self.held[at];
        if held.process.pid != wish.process.pid {
            return Err(format!(
                "process {} of the same control group has its weight at present, for decision {}",
                held.process.pid, held.plan
            ));
        }
        held.lease.renew(wish.until_ns);
        match held.lease.set(setting, wish.now_ns) {
            Ok(set) => {
                let before = std::mem::replace(&mut held.plan, wish.plan);
                let reason = format!("its lease went on as that of decision {}", wish.plan);
                let plan = before;
                Ok((set, Some(EndedWeight { plan, reason })))
            }
            Err(error) => {
                self.held.remove(at);
                Err(error.to_string())
            }
        }
    }

    fn take(
        &mut self,
        target: &WeightTarget,
        wish: WeightWish,
        setting: IoSetting,
    ) -> Result<SetOutcome, String> {
        let (roots, journal) = self.places.as_ref().map_err(Clone::clone)?;
        let of_user = self.held.iter().filter(|it| it.uid == wish.uid).count();
        if of_user >= LEASES_OF_USER_MAX || self.held.len() >= LEASES_MAX {
            return Err(format!(
                "there are {of_user} weights of this user and {} of all: {LEASES_OF_USER_MAX} and {LEASES_MAX} are the most",
                self.held.len()
            ));
        }
        let (group, backend) = (&target.group, target.backend);
        let mut lease = WeightLease::take(roots, group, backend, journal, wish.until_ns)
            .map_err(|error| error.to_string())?;
        let set = lease.set(setting, wish.now_ns);
        let set = set.map_err(|error| error.to_string())?;
        self.held.push(HeldWeight {
            plan: wish.plan,
            uid: wish.uid,
            process: wish.process,
            backend,
            lease,
        });
        Ok(set)
    }

    /// Ends the lease of a plan, and says what came of that; `None` if it has none.
    pub(super) fn end(&mut self, plan: u64, why: &str) -> Option<String> {
        let at = self.held.iter().position(|held| held.plan == plan)?;
        let end = self.held.remove(at).lease.release();
        Some(format!("{why}: {}", told(&end)))
    }

    /// Looks at all leases: those that are over, or whose process has ended, are ended and
    /// restored, and those that were put off are tried again.
    pub(super) fn step(&mut self, now_ns: i64) -> WeightsStep {
        let mut found = WeightsStep::default();
        let held = std::mem::take(&mut self.held);
        for mut one in held {
            let plan = one.plan;
            if !one.process.is_alive() {
                let reason = format!("its process ended: {}", told(&one.lease.release()));
                found.ended.push(EndedWeight { plan, reason });
                continue;
            }
            let was_put_off = matches!(one.lease.state(), LeaseState::Contended { .. });
            let reason = match one.lease.step(now_ns) {
                Ok(LeaseState::Ended(end)) => Some(told(end)),
                Ok(LeaseState::Held(_)) if was_put_off => {
                    found.resumed.push(plan);
                    None
                }
                Ok(_) => None,
                Err(error) => Some(error.to_string()),
            };
            match reason {
                Some(reason) => found.ended.push(EndedWeight { plan, reason }),
                None => self.held.push(one),
            }
        }
        found
    }

    /// Ends all leases for now.
    pub(super) fn end_all(&mut self, why: &str) -> Vec<EndedWeight> {
        let held = std::mem::take(&mut self.held).into_iter();
        let ended = held.map(|one| EndedWeight {
            plan: one.plan,
            reason: format!("{why}: {}", told(&one.lease.release())),
        });
        ended.collect()
    }

    /// The number of leases.
    pub(super) fn count(&self) -> usize {
        self.held.len()
    }

    /// Whether there are leases, which have to be looked at.
    pub(super) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends all leases for good: the agent stops.
    pub(super) fn close(&mut self) -> Vec<EndedWeight> {
        let why = "the agent is stopping";
        self.places = Err(why.into());
        self.end_all(why)
    }
}

fn open_places(
    trees: &KernelTrees,
    state_dir: &Path,
) -> Result<(CgroupRoots, Arc<WeightJournal>), String> {
    let roots = CgroupRoots::mounted(trees.root());
    let roots = roots.map_err(|error| error.to_string())?;
    let dir = state_dir.join(WEIGHTS_DIR);
    let made = std::fs::create_dir_all(&dir);
    made.map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let journal = WeightJournal::open(&dir).map_err(|error| error.to_string())?;
    Ok((roots, Arc::new(journal)))
}

fn restore_left(roots: &CgroupRoots, journal: &WeightJournal) {
    match recover(roots, journal) {
        Ok(recovered) => {
            for one in recovered {
                let (group, outcome) = (one.group, one.outcome.to_string());
                info!(group, outcome, "an I/O weight that was left");
            }
        }
        Err(error) => warn!(%error, "I/O weights that were left are not restored"),
    }
}

/// What came of the end of a lease, as a part of a sentence.
fn told(end: &LeaseEnd) -> String {
    match end {
        LeaseEnd::Expired(outcome) => format!("its time was over; {outcome}"),
        LeaseEnd::Released(outcome) => outcome.to_string(),
        LeaseEnd::Vanished => "the control group is gone".into(),
        LeaseEnd::Contended => "another controller kept writing the file, and has it now".into(),
    }
}
