//! What is known of readers: for each user the policy of each device, what was measured of the
//! user's own reads, and the newest decisions.
//!
//! Nothing is shared between users. A report is the word of its sender, and a false one changes the
//! plans of its sender alone; and one user's decisions do not push out those of another, unless
//! that one has the most of all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use barograph_control::{
    AugmentationConfig, AugmentationPolicy, BandwidthPrediction, Decision, DecisionOutcome,
    WeightEffect,
};
use barograph_model::{ControlFault, ControlFaultKind, NS_PER_S};

use super::config::ControlConfig;
use super::device::FoundDevice;
use super::request::TIER;
use crate::decisions::{DecisionTally, KeptDecision};

/// Most users of whom something is known; the one that was seen least recently is forgotten.
const USERS_MAX: usize = 64;
/// Most devices of one user that have a policy; the one that was used least recently is forgotten.
const DEVICES_MAX: usize = 16;
/// Most decisions of one user that are kept, and most of all users: the oldest ones go first, of
/// all users those of the one that has the most.
const DECISIONS_OF_USER_MAX: usize = 128;
const DECISIONS_MAX: usize = 1_024;
/// Most bandwidths of one user and device from which the next one is predicted.
const MEASURED_MAX: usize = 32;
/// Fewest of them that have a spread.
const MEASURED_MIN: usize = 3;
/// Standard deviations on each side of the mean within which nine tenths of a normal distribution
/// lie: the confidence of all forecasts here.
const DEVIATIONS: f64 = 1.645;
/// Plans of one user per second, and most that may come at once after a pause.
const PLANS_PER_S: f64 = 20.0;
const PLANS_AT_ONCE_MAX: f64 = 100.0;

/// A plan that was given to a reader, with its decisions.
#[derive(Clone, Debug)]
pub(super) struct PlannedRead {
    /// The decision about the buckets. Its number is that of the plan.
    pub augmentation: Decision,
    /// The decision about the weight, if there was one.
    pub weight: Option<Decision>,
    pub device: FoundDevice,
    pub label: String,
    /// The predicted bandwidth, in bytes/s.
    pub predicted: Option<f64>,
    /// What the kernel had read from the device when the plan was made.
    pub read_bytes: Option<u64>,
    pub is_reported: bool,
    /// What the read is in the comparison of raised weights; `None` if nothing.
    pub had_raised_weight: Option<bool>,
}

/// The policy of one device and what one user has measured there.
#[derive(Debug)]
pub(super) struct DeviceReader {
    pub policy: AugmentationPolicy,
    /// Whether raised weights make the user's reads faster.
    pub weights: WeightEffect,
    measured: VecDeque<f64>,
    used_ns: i64,
}

/// All that is known of one user.
#[derive(Debug, Default)]
struct User {
    devices: BTreeMap<String, DeviceReader>,
    plans: VecDeque<PlannedRead>,
    /// The plans that are left of the bucket, and the time of that, on the monotonic clock.
    left: Option<(f64, i64)>,
    seen_ns: i64,
}

/// Numbers of what was refused or forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReaderCounts {
    pub refused: u64,
    pub forgotten_users: u64,
    pub forgotten_devices: u64,
    pub forgotten_decisions: u64,
}

/// All users; those who are not known, as over TCP, count as one.
#[derive(Debug, Default)]
pub(super) struct Readers {
    users: BTreeMap<Option<u32>, User>,
    /// What became of decisions that are forgotten, by their controllers.
    forgotten: BTreeMap<String, DecisionTally>,
    /// Numbers of the plans that have changed since they were taken for the archive.
    changed: BTreeSet<u64>,
    /// Plans that were forgotten before.
    pub unarchived: u64,
    pub counts: ReaderCounts,
    /// Changes of decisions so far.
    pub changes: u64,
}

impl Readers {
    /// Counts one plan of a user; fails if there are too many.
    pub(super) fn admit(&mut self, uid: Option<u32>, now_ns: i64) -> Result<(), ControlFault> {
        let user = self.user(uid, now_ns);
        let (left, since_ns) = user.left.unwrap_or((PLANS_AT_ONCE_MAX, now_ns));
        let gained = (now_ns - since_ns) as f64 / NS_PER_S as f64 * PLANS_PER_S;
        let left = (left + gained).min(PLANS_AT_ONCE_MAX);
        if left < 1.0 {
            user.left = Some((left, now_ns));
            self.counts.refused += 1;
            return Err(ControlFault {
                kind: ControlFaultKind::Busy,
                message: format!(
                    "more than {PLANS_PER_S} plans per second of one user: read what the error bound needs, and ask again later"
                ),
            });
        }
        user.left = Some((left - 1.0, now_ns));
        Ok(())
    }

    /// The policy and the measurements of a user on a device.
    pub(super) fn device(
        &mut self,
        uid: Option<u32>,
        device: &str,
        config: &ControlConfig,
        now_ns: i64,
    ) -> &mut DeviceReader {
        let devices = &mut self.user(uid, now_ns).devices;
        let is_full = devices.len() >= DEVICES_MAX && !devices.contains_key(device);
        let oldest = devices.iter().min_by_key(|(_, reader)| reader.used_ns);
        let oldest = oldest.filter(|_| is_full).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest {
            devices.remove(&oldest);
            self.counts.forgotten_devices += 1;
        }
        let devices = &mut self.user(uid, now_ns).devices;
        let reader = devices.entry(device.to_owned()).or_insert_with(|| {
            let config = AugmentationConfig {
                thresholds: config.thresholds_of(device),
                ..AugmentationConfig::learnt(TIER)
            };
            DeviceReader {
                policy: AugmentationPolicy::new(config),
                weights: WeightEffect::default(),
                measured: VecDeque::new(),
                used_ns: now_ns,
            }
        });
        reader.used_ns = now_ns;
        reader
    }

    /// Keeps a plan.
    pub(super) fn keep(&mut self, uid: Option<u32>, plan: PlannedRead, now_ns: i64) {
        self.changes += 1;
        self.changed.insert(plan.augmentation.id);
        let plans = &mut self.user(uid, now_ns).plans;
        plans.push_back(plan);
        let is_too_many = plans.len() > DECISIONS_OF_USER_MAX;
        let oldest = is_too_many.then(|| plans.pop_front()).flatten();
        self.forget(oldest);
        let all: usize = self.users.values().map(|user| user.plans.len()).sum();
        if all > DECISIONS_MAX {
            let most = self.users.values_mut().max_by_key(|user| user.plans.len());
            let oldest = most.and_then(|user| user.plans.pop_front());
            self.forget(oldest);
        }
    }

    /// Counts plans that are not kept any more.
    fn forget(&mut self, plans: impl IntoIterator<Item = PlannedRead>) {
        for plan in plans {
            self.counts.forgotten_decisions += 1;
            self.unarchived += u64::from(self.changed.remove(&plan.augmentation.id));
            for decision in plan.decisions() {
                let tally = self.forgotten.entry(decision.controller.clone());
                tally.or_default().count(decision);
            }
        }
    }

    /// Takes the decisions that have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<KeptDecision> {
        let changed = std::mem::take(&mut self.changed);
        let plans = self.plans(None);
        let plans = plans.filter(|(_, plan)| changed.contains(&plan.augmentation.id));
        plans.flat_map(|(uid, plan)| plan.kept(uid)).collect()
    }

    /// What a controller has decided.
    pub(super) fn tally(&self, controller: &str) -> DecisionTally {
        let mut tally = self.forgotten.get(controller).cloned().unwrap_or_default();
        let decisions = self.plans(None).flat_map(|(_, plan)| plan.decisions());
        decisions
            .filter(|decision| decision.controller == controller)
            .for_each(|decision| tally.count(decision));
        tally
    }

    /// The plans of a user on a device that have a weight.
    pub(super) fn weighed(&self, uid: Option<u32>, device: &str) -> Vec<u64> {
        let is_weighed = |plan: &PlannedRead| {
            let weight = plan.weight.as_ref();
            weight.is_some_and(|weight| weight.outcome == DecisionOutcome::Done)
        };
        let plans = self.plans(Some(uid));
        let plans = plans.filter(|(_, plan)| plan.device.name == device && is_weighed(plan));
        plans.map(|(_, plan)| plan.augmentation.id).collect()
    }

    /// What is known of each user on each device.
    pub(super) fn devices(&self) -> impl Iterator<Item = (Option<u32>, &String, &DeviceReader)> {
        let users = self.users.iter();
        users.flat_map(|(uid, user)| user.devices.iter().map(|(name, it)| (*uid, name, it)))
    }

    /// Ends all that is held off; returns whether there was something.
    pub(super) fn end_hold_off(&mut self, now_ns: i64) -> bool {
        let devices = self
            .users
            .values_mut()
            .flat_map(|user| user.devices.values_mut());
        let held = devices.filter(|it| it.weights.held_until(now_ns).is_some());
        held.map(|it| it.weights = WeightEffect::default()).count() > 0
    }

    /// A plan of a user, by its number.
    pub(super) fn plan(&mut self, uid: Option<u32>, id: u64) -> Option<&mut PlannedRead> {
        let plans = &mut self.users.get_mut(&uid)?.plans;
        let found = plans.iter_mut().rev().find(|it| it.augmentation.id == id)?;
        self.changes += 1;
        self.changed.insert(id);
        Some(found)
    }

    /// A plan of any user, by its number.
    pub(super) fn plan_of_all(&mut self, id: u64) -> Option<&mut PlannedRead> {
        let mut plans = self.users.values_mut().flat_map(|user| &mut user.plans);
        let found = plans.find(|it| it.augmentation.id == id)?;
        self.changes += 1;
        self.changed.insert(id);
        Some(found)
    }

    /// All plans of a user, or of all users, with the user.
    pub(super) fn plans(
        &self,
        of: Option<Option<u32>>,
    ) -> impl Iterator<Item = (Option<u32>, &PlannedRead)> {
        let users = self.users.iter();
        let users = users.filter(move |(uid, _)| of.is_none_or(|of| of == **uid));
        users.flat_map(|(uid, user)| user.plans.iter().map(move |plan| (*uid, plan)))
    }

    fn user(&mut self, uid: Option<u32>, now_ns: i64) -> &mut User {
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&uid) {
            let oldest = self.users.iter().min_by_key(|(_, user)| user.seen_ns);
            if let Some(oldest) = oldest.map(|(uid, _)| *uid) {
                let gone = self.users.remove(&oldest);
                self.counts.forgotten_users += 1;
                self.forget(gone.into_iter().flat_map(|user| user.plans));
            }
        }
        let user = self.users.entry(uid).or_default();
        user.seen_ns = now_ns;
        user
    }
}

impl PlannedRead {
    /// Its decisions.
    pub(super) fn decisions(&self) -> impl Iterator<Item = &Decision> {
        [Some(&self.augmentation), self.weight.as_ref()]
            .into_iter()
            .flatten()
    }

    /// Its decisions, with whom they are about.
    pub(super) fn kept(&self, uid: Option<u32>) -> impl Iterator<Item = KeptDecision> {
        self.decisions().map(move |decision| KeptDecision {
            uid,
            device: self.device.name.clone(),
            label: self.label.clone(),
            plan: self.augmentation.id,
            decision: decision.clone(),
        })
    }
}

impl DeviceReader {
    /// The bandwidth that is predicted from the user's own reads: their mean, with an interval in
    /// which nine tenths of them lie.
    pub(super) fn measured(&self) -> Option<BandwidthPrediction> {
        if self.measured.len() < MEASURED_MIN {
            return None;
        }
        let count = self.measured.len() as f64;
        let mean = self.measured.iter().sum::<f64>() / count;
        let squares = self.measured.iter().map(|it| (it - mean).powi(2));
        let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
        Some(BandwidthPrediction {
            bandwidth: mean,
            half_width: DEVIATIONS * deviation,
        })
    }

    /// Takes in a bandwidth that was measured, in bytes/s.
    pub(super) fn observe(&mut self, bandwidth: f64) {
        self.policy.observe(bandwidth);
        if self.measured.len() == MEASURED_MAX {
            self.measured.pop_front();
        }
        self.measured.push_back(bandwidth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(id: u64) -> PlannedRead {
        PlannedRead {
            augmentation: Decision::new(id, 0, "augmentation", "a", 1.0),
            weight: None,
            device: FoundDevice {
                name: "sda".into(),
                disk: None,
            },
            label: String::new(),
            predicted: None,
            read_bytes: None,
            is_reported: false,
            had_raised_weight: None,
        }
    }

    /// Numbers that ascend.
    fn numbers() -> impl FnMut() -> u64 {
        let mut last = 0;
        move || {
            last += 1;
            last
        }
    }

    #[test]
    fn one_user_does_not_push_out_others() {
        let (mut readers, mut next_id) = (Readers::default(), numbers());
        for uid in 0..20 {
            for _ in 0..3 {
                let id = next_id();
                readers.keep(Some(uid), plan(id), 0);
            }
        }
        for _ in 0..5_000 {
            let id = next_id();
            readers.keep(Some(100), plan(id), 1);
        }
        assert_eq!(readers.plans(Some(Some(7))).count(), 3);
        assert_eq!(
            readers.plans(Some(Some(100))).count(),
            DECISIONS_OF_USER_MAX
        );
        let forgotten = 5_000 - DECISIONS_OF_USER_MAX as u64;
        assert_eq!(readers.counts.forgotten_decisions, forgotten);
        // A number is found with its own user only.
        assert!(readers.plan(Some(100), 1).is_none());
        assert!(readers.plan(Some(0), 1).is_some());
    }

    #[test]
    fn everything_of_users_is_bounded_and_counted() {
        let (mut readers, mut next_id) = (Readers::default(), numbers());
        for uid in 0..1_000 {
            for device in 0..40 {
                readers.device(
                    Some(uid),
                    &device.to_string(),
                    &ControlConfig::default(),
                    i64::from(uid),
                );
            }
            for _ in 0..20 {
                let id = next_id();
                readers.keep(Some(uid), plan(id), i64::from(uid));
            }
        }
        assert_eq!(readers.users.len(), USERS_MAX);
        assert!(readers.plans(None).count() <= DECISIONS_MAX);
        let devices = readers.users.values().map(|user| user.devices.len());
        assert_eq!(devices.max(), Some(DEVICES_MAX));
        let counts = readers.counts;
        assert_eq!(counts.forgotten_users, 1_000 - USERS_MAX as u64);
        assert_eq!(counts.forgotten_devices, 1_000 * (40 - DEVICES_MAX as u64));
        let kept = readers.plans(None).count() as u64;
        assert_eq!(counts.forgotten_decisions + kept, 20_000);
        assert_eq!(readers.unarchived, counts.forgotten_decisions);
        let tally = readers.tally("augmentation");
        assert_eq!(tally.outcomes, BTreeMap::from([("proposed", 20_000)]));
        assert_eq!(readers.take_changed().len() as u64, kept);
        assert_eq!(readers.take_changed(), []);
    }

    #[test]
    fn plans_in_a_row_are_bounded_and_come_back_with_time() {
        let mut readers = Readers::default();
        let admitted = (0..1_000).filter(|_| readers.admit(Some(1), 0).is_ok());
        assert_eq!(admitted.count(), PLANS_AT_ONCE_MAX as usize);
        assert_eq!(readers.counts.refused, 900);
        assert!(readers.admit(Some(2), 0).is_ok(), "another user");
        let admitted = (0..1_000).filter(|_| readers.admit(Some(1), NS_PER_S).is_ok());
        assert_eq!(admitted.count(), PLANS_PER_S as usize);
    }

    #[test]
    fn own_reads_predict_the_next_one_with_their_spread() {
        let mut readers = Readers::default();
        let config = ControlConfig::default();
        let reader = readers.device(Some(1), "sda", &config, 0);
        reader.observe(90.0);
        reader.observe(110.0);
        assert_eq!(reader.measured(), None, "too few");
        reader.observe(100.0);
        let predicted = reader.measured().unwrap();
        assert_eq!(predicted.bandwidth, 100.0);
        assert!((predicted.half_width - 16.45).abs() < 1e-9, "{predicted:?}");
        let other = readers.device(Some(2), "sda", &config, 0);
        assert_eq!(other.measured(), None, "another user's reads count nothing");
    }
}
