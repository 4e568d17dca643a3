//! Which policies there are, and where each comes from.
//!
//! Apart from looks and streams, since statements ask for this alone: whether one may be made or dropped, and what it is.

use std::sync::Arc;

use barograph_forecast::interval::Bound;
use barograph_model::{ConfigError, Descriptor, Selector, near};
use barograph_source::{PolicyFault, PolicySpec, PressureTrigger};
use tracing::warn;

/// Most policies at once.
pub const POLICIES_MAX: usize = 512;
/// Most policies that are made by statement. One more is refused.
pub const POLICIES_MADE_MAX: usize = 256;

/// One policy, as it matches.
pub struct Policy {
    /// As it was written.
    pub spec: PolicySpec,
    selectors: Vec<Selector>,
    pub(super) bound: Option<Bound>,
    pub(super) sentinel: Option<Selector>,
    pub(super) pressure: Option<PressureTrigger>,
    /// By which statement; none for one of the configuration.
    pub(super) made: Option<Made>,
}

/// How a policy was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The statement.
    pub sql: String,
    /// What it says the policy is for.
    pub help: String,
}

impl Policy {
    /// What can be followed; else why not.
    pub fn new(spec: PolicySpec, made: Option<Made>) -> Result<Self, PolicyFault> {
        spec.check()?;
        Ok(Self {
            selectors: spec.selectors()?,
            bound: spec.bound()?,
            sentinel: spec.sentinel()?,
            pressure: spec.pressure()?,
            spec,
            made,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn is_for(&self, of: &Descriptor) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|s| s.matches(of.name.as_str(), &of.labels))
    }

    pub(super) fn is_sentinel(&self, of: &Descriptor) -> bool {
        let sentinel = self.sentinel.as_ref();
        sentinel.is_some_and(|s| s.matches(of.name.as_str(), &of.labels))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.spec == other.spec && self.made == other.made
    }

    /// Made ones count before configured ones, each in the order of names.
    fn order(&self) -> (bool, &str) {
        (self.made.is_none(), &self.spec.name)
    }
}

/// What is to become of the policies that are followed.
pub enum Change {
    /// This one is followed, in the place of one of its name.
    Declare(Arc<Policy>),
    /// The one of this name no longer is.
    Drop(String),
}

/// Who follows policies.
pub trait Carry {
    /// Those that are followed.
    fn roster(&self) -> &Roster;

    /// Carries a change out, or says why not; then nothing has changed.
    fn carry(&mut self, change: Change) -> Result<(), String>;
}

/// A policy, and how many streams it is for that have no place.
pub(super) struct Standing {
    pub(super) policy: Arc<Policy>,
    pub(super) beyond: u64,
}

/// The policies that there are, in the order in which they count.
#[derive(Default)]
pub struct Roster(Vec<Standing>);

impl Roster {
    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Policy> {
        let at = self.position(name)?;
        Some(&self.0[at].policy)
    }

    /// Whether a policy of this name may be made by statement now; else why not.
    pub fn admit(&self, name: &str, or_replace: bool) -> Result<(), String> {
        match self.get(name) {
            Some(Policy { made: None, .. }) => Err(of_the_configuration(name)),
            Some(_) if !or_replace => Err(format!(
                "there is a policy {name} already: write CREATE OR REPLACE POLICY, or drop it first"
            )),
            Some(_) => Ok(()),
            None if self.made() >= POLICIES_MADE_MAX => Err(format!(
                "policies made by statement: at most {POLICIES_MADE_MAX} (POLICIES_MADE_MAX): drop one first"
            )),
            None if self.0.len() >= POLICIES_MAX => {
                Err(format!("at most {POLICIES_MAX} policies: drop one first"))
            }
            None => Ok(()),
        }
    }

    /// Whether the policy of this name may be dropped by statement; else why not.
    pub fn droppable(&self, name: &str) -> Result<(), String> {
        match self.get(name) {
            Some(Policy { made: None, .. }) => Err(of_the_configuration(name)),
            Some(_) => Ok(()),
            None => Err(self.no_policy(name)),
        }
    }

    /// Says that there is no policy of this name, and which there are of similar names.
    pub fn no_policy(&self, name: &str) -> String {
        let hint = match near(name, self.0.iter().map(|s| s.policy.name())) {
            near if near.is_empty() => "see the table policies for what there is".into(),
            near => format!("did you mean {}?", near.join(" or ")),
        };
        format!("there is no policy {name}: {hint}")
    }

    /// Replaces all policies by these; returns whether anything changed. A policy that is the same as
    /// before stays the one that streams know. Of several of one name the first counts; those beyond
    /// the bounds are left out with a warning.
    pub fn become_these(&mut self, wanted: Vec<Policy>) -> bool {
        let before = std::mem::take(&mut self.0);
        for policy in wanted {
            if let Err(error) = self.admit(policy.name(), false) {
                warn!(error, "a policy is left out");
                continue;
            }
            let same = before.iter().find(|s| s.policy.is_same(&policy));
            let policy = same.map_or_else(|| Arc::new(policy), |s| Arc::clone(&s.policy));
            self.insert(policy);
        }
        let both = before.iter().zip(&self.0);
        let stayed = both.filter(|(a, b)| Arc::ptr_eq(&a.policy, &b.policy));
        before.len() != self.0.len() || stayed.count() != before.len()
    }

    /// Takes up one that was made, in the place of one of its name.
    pub fn make(&mut self, policy: Arc<Policy>) -> Result<(), String> {
        self.admit(policy.name(), true)?;
        self.insert(policy);
        Ok(())
    }

    /// Gives up one that was made.
    pub fn remove(&mut self, name: &str) -> Result<(), String> {
        self.droppable(name)?;
        self.0.retain(|s| s.policy.name() != name);
        Ok(())
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Standing> {
        self.0.iter()
    }

    /// The first policy that is for a stream.
    pub(super) fn first_for(&self, of: &Descriptor) -> Option<&Arc<Policy>> {
        let mut policies = self.0.iter().map(|s| &s.policy);
        policies.find(|policy| policy.is_for(of))
    }

    /// One more stream of this policy has no place.
    pub(super) fn count_beyond(&mut self, policy: &Arc<Policy>) {
        let its = |s: &&mut Standing| Arc::ptr_eq(&s.policy, policy);
        self.0.iter_mut().filter(its).for_each(|s| s.beyond += 1);
    }

    /// Streams are about to be given to policies anew.
    pub(super) fn forget_beyond(&mut self) {
        self.0.iter_mut().for_each(|s| s.beyond = 0);
    }

    fn insert(&mut self, policy: Arc<Policy>) {
        self.0.retain(|s| s.policy.name() != policy.name());
        let at = self
            .0
            .partition_point(|s| s.policy.order() < policy.order());
        self.0.insert(at, Standing { policy, beyond: 0 });
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|s| s.policy.name() == name)
    }

    fn made(&self) -> usize {
        self.0.iter().filter(|s| s.policy.made.is_some()).count()
    }
}

fn of_the_configuration(name: &str) -> String {
    format!(
        "the policy {name} is of the configuration ([[policy]]): change it there and `baro reload`, \
         or make one of another name, which counts before it"
    )
}

/// Checks policies as they stand in the configuration.
pub fn check(policies: &[PolicySpec]) -> Result<(), ConfigError> {
    let refuse = |value: String, reason: String| {
        let key = "policy";
        Err(ConfigError { key, value, reason })
    };
    if policies.len() > POLICIES_MAX {
        let reason = format!("at most {POLICIES_MAX} of them");
        return refuse(format!("{} policies", policies.len()), reason);
    }
    for (at, spec) in policies.iter().enumerate() {
        if let Err(fault) = spec.check() {
            return refuse(fault.name, format!("{}: {}", fault.field, fault.reason));
        }
        if policies[..at].iter().any(|other| other.name == spec.name) {
            return refuse(spec.name.clone(), "there are two of this name".into());
        }
    }
    Ok(())
}
