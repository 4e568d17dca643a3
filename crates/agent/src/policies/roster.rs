//! The policies that exist, and the origin of each.
//!
//! This module is separate from looks and streams, since statements need only this much: whether a
//! policy may be made or dropped, and its definition.

use std::sync::Arc;

use barograph_forecast::interval::ErrorBound;
use barograph_model::{ConfigError, Descriptor, Selector, near};
use barograph_source::{PolicyFault, PolicySpec, PressureTrigger};
use tracing::warn;

/// Most policies at once.
pub(super) const POLICIES_MAX: usize = 512;
/// Most policies that are made by statement. One more is refused.
pub(crate) const POLICIES_MADE_MAX: usize = 256;

/// One policy, ready to match streams.
pub(crate) struct Policy {
    /// The policy as it was written.
    pub spec: PolicySpec,
    selectors: Vec<Selector>,
    pub(super) bound: Option<ErrorBound>,
    pub(super) sentinel: Option<Selector>,
    pub(super) pressure: Option<PressureTrigger>,
    /// The statement that made it; `None` if it comes from the configuration.
    pub(super) made: Option<PolicyOrigin>,
}

/// The statement that made a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyOrigin {
    /// Text of the statement.
    pub sql: String,
    /// Purpose of the policy, from its HELP clause.
    pub help: String,
}

impl Policy {
    /// Returns a policy after checking it, or the reason why it cannot be followed.
    pub(crate) fn new(spec: PolicySpec, made: Option<PolicyOrigin>) -> Result<Self, PolicyFault> {
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

    /// Returns the policy's name.
    pub(crate) fn name(&self) -> &str {
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

    /// Returns the sort key: made policies come before configured ones, each in the order of names.
    fn order(&self) -> (bool, &str) {
        (self.made.is_none(), &self.spec.name)
    }
}

/// A change of the policies in force.
pub(crate) enum PolicyChange {
    /// This policy takes effect, in place of one with the same name.
    Declare(Arc<Policy>),
    /// The policy of this name is removed.
    Drop(String),
}

/// The owner of the policies in force, which executes changes.
pub(crate) trait ChangePolicies {
    /// Returns the policies in force.
    fn roster(&self) -> &PolicyRoster;

    /// Makes a change, or returns the reason why not; then nothing has changed.
    fn change(&mut self, change: PolicyChange) -> Result<(), String>;
}

/// A policy, and the number of its streams beyond the bound on streams under policies.
pub(super) struct RosterEntry {
    pub(super) policy: Arc<Policy>,
    pub(super) beyond: u64,
}

/// The policies that exist, in the order of their precedence.
#[derive(Default)]
pub(crate) struct PolicyRoster(Vec<RosterEntry>);

impl PolicyRoster {
    /// Returns the policy of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Policy> {
        let at = self.position(name)?;
        Some(&self.0[at].policy)
    }

    /// Checks that a policy of this name may be made by statement now, or returns the reason why
    /// not.
    pub(crate) fn admit(&self, name: &str, or_replace: bool) -> Result<(), String> {
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

    /// Checks that the policy of this name may be dropped by statement, or returns the reason why
    /// not.
    pub(crate) fn droppable(&self, name: &str) -> Result<(), String> {
        match self.get(name) {
            Some(Policy { made: None, .. }) => Err(of_the_configuration(name)),
            Some(_) => Ok(()),
            None => Err(self.no_policy(name)),
        }
    }

    /// Returns an error text: no policy has this name, but some have similar names.
    pub(crate) fn no_policy(&self, name: &str) -> String {
        let hint = match near(name, self.0.iter().map(|s| s.policy.name())) {
            near if near.is_empty() => "see the table policies for what there is".into(),
            near => format!("did you mean {}?", near.join(" or ")),
        };
        format!("there is no policy {name}: {hint}")
    }

    /// Replaces all policies by these, and returns whether anything changed. An equal policy stays
    /// the same object, which streams refer to. Of several with one name the first is kept;
    /// policies beyond the bounds are left out with a warning.
    pub(crate) fn become_these(&mut self, wanted: Vec<Policy>) -> bool {
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

    /// Adds a policy that was made by statement, in place of one with the same name.
    pub(crate) fn make(&mut self, policy: Arc<Policy>) -> Result<(), String> {
        self.admit(policy.name(), true)?;
        self.insert(policy);
        Ok(())
    }

    /// Removes a policy that was made by statement.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), String> {
        self.droppable(name)?;
        self.0.retain(|s| s.policy.name() != name);
        Ok(())
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, RosterEntry> {
        self.0.iter()
    }

    /// Returns the first policy that applies to a stream.
    pub(super) fn first_for(&self, of: &Descriptor) -> Option<&Arc<Policy>> {
        let mut policies = self.0.iter().map(|s| &s.policy);
        policies.find(|policy| policy.is_for(of))
    }

    /// Counts one more stream of this policy that is beyond the bound.
    pub(super) fn count_beyond(&mut self, policy: &Arc<Policy>) {
        let its = |s: &&mut RosterEntry| Arc::ptr_eq(&s.policy, policy);
        self.0.iter_mut().filter(its).for_each(|s| s.beyond += 1);
    }

    /// Resets the counts, before streams are matched with policies again.
    pub(super) fn forget_beyond(&mut self) {
        self.0.iter_mut().for_each(|s| s.beyond = 0);
    }

    fn insert(&mut self, policy: Arc<Policy>) {
        self.0.retain(|s| s.policy.name() != policy.name());
        let at = self
            .0
            .partition_point(|s| s.policy.order() < policy.order());
        self.0.insert(at, RosterEntry { policy, beyond: 0 });
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

/// Checks the policies of the configuration.
pub(crate) fn check(policies: &[PolicySpec]) -> Result<(), ConfigError> {
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
