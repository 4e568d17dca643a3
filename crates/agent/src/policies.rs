//! Policies: which streams may be looked at seldom, and the error that is allowed between two
//! looks.
//!
//! Policies are beside the forecasters, where samples pass, since looks and forecasts meet only
//! here. A look at a stream goes to its policy, which decides when the next one is wanted, and the
//! poller asks for that (`Sink::wanted`). A look at a cheap stream goes to the streams that follow
//! it as their sentinel. A pressure event of the kernel goes to the streams whose policies ask for
//! it.

mod document;
mod governed;
mod pressure;
mod roster;
pub(crate) mod statement;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use barograph_forecast::interval::{MoveOutcome, ProjectionBuffers};
use barograph_model::{Descriptor, IntervalRequest, Sample, StreamKey, ValueType};
use barograph_source::{IntervalCaps, PolicySpecKind, SourcesConfig};

use self::governed::Governed;
use self::pressure::PressureTriggers;
pub(crate) use self::pressure::WakeLoop;
#[cfg(test)]
pub(crate) use self::roster::POLICIES_MADE_MAX;
pub(crate) use self::roster::{ChangePolicies, Policy, PolicyChange, PolicyRoster, check};
use barograph_recorder::{Forecasts, Streams};

/// Most streams under policies. Further streams are read as configured, and counted.
const GOVERNED_MAX: usize = 512;
/// Beginning of the names of the poller's streams about sources. The poller appends to them when it
/// reads a source, so no policy applies to them.
const OF_THE_POLLER: &str = "source.";

/// The policy of one stream, and the streams that follow it.
#[derive(Default)]
struct Slot {
    governed: Option<Box<Governed>>,
    followers: Vec<StreamKey>,
}

/// All policies, and all streams under them.
pub(crate) struct Policies {
    roster: PolicyRoster,
    /// Limits of the intervals of sources, by name.
    caps: BTreeMap<&'static str, IntervalCaps>,
    /// Numeric streams of sources, by key, for policies that are made later.
    known: Vec<Option<Box<Descriptor>>>,
    slots: Vec<Option<Box<Slot>>>,
    governed: usize,
    wishes: u64,
    pressure: PressureTriggers,
    buffers: ProjectionBuffers,
}

/// The policies, with the parts that a change of them changes too.
pub(crate) struct PolicyChanger<'a, 'c> {
    /// The policies in force.
    pub policies: &'a mut Policies,
    /// The forecasters. An error-bounded policy gives its streams a forecaster.
    pub forecasts: &'a mut Forecasts,
    /// The streams in which their projections are published.
    pub streams: &'a mut Streams<'c>,
}

impl ChangePolicies for PolicyChanger<'_, '_> {
    fn roster(&self) -> &PolicyRoster {
        &self.policies.roster
    }

    fn change(&mut self, change: PolicyChange) -> Result<(), String> {
        match change {
            PolicyChange::Declare(policy) => self.policies.roster.make(policy)?,
            PolicyChange::Drop(name) => self.policies.roster.remove(&name)?,
        }
        self.policies.match_again(self.forecasts, self.streams);
        Ok(())
    }
}

impl PolicyChanger<'_, '_> {
    /// Replaces all policies by these.
    pub(crate) fn become_these(&mut self, wanted: Vec<Policy>) {
        if self.policies.roster.become_these(wanted) {
            self.policies.match_again(self.forecasts, self.streams);
        }
    }
}

impl Policies {
    /// Returns a set without policies, for the sources of a configuration. `wake` makes the loop
    /// run at once.
    pub(crate) fn new(sources: &SourcesConfig, wake: WakeLoop) -> Self {
        let caps = barograph_source::catalogue().map(|source| {
            let poll = sources.poll_of(source.name);
            (source.name, poll.caps())
        });
        let is_here = sources.sys_root == Path::new("/");
        Self {
            roster: PolicyRoster::default(),
            caps: caps.collect(),
            known: Vec::new(),
            slots: Vec::new(),
            governed: 0,
            wishes: 0,
            pressure: PressureTriggers::new(is_here.then(|| "/proc/pressure".into()), wake),
            buffers: ProjectionBuffers::default(),
        }
    }

    /// Finds the policy of each stream again, and the pressure triggers that policies need.
    fn match_again(&mut self, forecasts: &mut Forecasts, streams: &mut Streams<'_>) {
        self.wishes += 1;
        self.roster.forget_beyond();
        let keys = (0..self.known.len()).filter_map(|key| u32::try_from(key).ok());
        // Streams that lose their policy come first, so that there is room.
        for key in keys.clone().map(StreamKey) {
            self.release_other(key, forecasts, streams);
        }
        for key in keys.map(StreamKey) {
            self.govern(key, forecasts, streams);
        }
        self.listen();
    }

    fn listen(&mut self) {
        let policies = self.roster.iter();
        self.pressure
            .set(policies.filter_map(|s| s.policy.pressure));
    }

    /// Takes a new stream of a source.
    pub(crate) fn stream_added(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        forecasts: &mut Forecasts,
        streams: &mut Streams<'_>,
    ) {
        let has_numbers = matches!(descriptor.value_type, ValueType::Int | ValueType::Float);
        if !has_numbers || descriptor.name.as_str().starts_with(OF_THE_POLLER) {
            return;
        }
        let known = Descriptor {
            help: String::new(),
            ..descriptor.clone()
        };
        *place(&mut self.known, key) = Some(Box::new(known));
        self.govern(key, forecasts, streams);
        // Other streams may have waited for this one as their sentinel.
        let mut policies = self.roster.iter();
        if policies.any(|s| s.policy.is_sentinel(descriptor)) {
            (0..self.slots.len()).for_each(|at| self.follow(StreamKey(at as u32)));
        }
    }

    /// Forgets a retired stream.
    pub(crate) fn stream_removed(&mut self, key: StreamKey) {
        let index = key.0 as usize;
        if let Some(known) = self.known.get_mut(index) {
            *known = None;
        }
        let Some(slot) = self.slots.get_mut(index).and_then(Option::take) else {
            return;
        };
        if let Some(governed) = slot.governed {
            self.governed -= 1;
            self.forget(key, governed.cheap);
        }
        for dear in slot.followers {
            if let Some(governed) = self.governed_mut(dear) {
                governed.follow(None);
            }
            self.follow(dear);
        }
    }

    /// Takes the interval at which the stream's source is read now.
    pub(crate) fn interval(&mut self, key: StreamKey, interval_ns: i64) {
        let Some(governed) = self.governed_mut(key) else {
            return;
        };
        governed.interval_ns = interval_ns;
        if governed.caps.interval_ns == 0 {
            governed.caps.interval_ns = interval_ns;
        }
    }

    /// Records a look at a stream, whether its value has changed or not, and passes it to the
    /// stream's forecaster.
    pub(crate) fn looked(&mut self, key: StreamKey, sample: &Sample, forecasts: &mut Forecasts) {
        let Some(Some(slot)) = self.slots.get_mut(key.0 as usize) else {
            forecasts.looked(key, sample);
            return;
        };
        let number = sample.value.as_f64().filter(|v| v.is_finite());
        match &mut slot.governed {
            None => {
                forecasts.looked(key, sample);
            }
            Some(governed) => {
                let outlook = forecasts.outlook(key, sample.ts);
                let is_said = forecasts.looked(key, sample);
                let half_width = |ahead_ns| forecasts.half_width(key, ahead_ns);
                governed.planner.look(sample, outlook, is_said, half_width);
            }
        }
        if let (Some(value), false) = (number, slot.followers.is_empty()) {
            self.moved(key, sample.ts, value, forecasts);
        }
    }

    /// Passes a look at a cheap stream to the streams that follow it: each is called, gets a
    /// derived projection, or stays as it is.
    fn moved(&mut self, cheap: StreamKey, ts_ns: i64, value: f64, forecasts: &mut Forecasts) {
        let followers = std::mem::take(&mut self.slot(cheap).followers);
        for &dear in &followers {
            let Some(governed) = self.governed_mut(dear) else {
                continue;
            };
            match governed
                .planner
                .moved(ts_ns, value, || forecasts.outlook(dear, ts_ns))
            {
                MoveOutcome::Call => {
                    let is_news = governed.planner.call();
                    self.wishes += u64::from(is_news);
                }
                MoveOutcome::Say => forecasts.unsay(dear),
                MoveOutcome::Nothing => {}
            }
        }
        self.slot(cheap).followers = followers;
    }

    /// Publishes the projections of the streams that were looked at, also of those under policies,
    /// at the end of a round. Returns true if some have to wait: then call it again
    /// [`barograph_recorder::PROJECT_NS`] later.
    pub(crate) fn project(
        &mut self,
        now_ns: i64,
        forecasts: &mut Forecasts,
        streams: &mut Streams<'_>,
    ) -> bool {
        forecasts.project_by(now_ns, streams, |key, looked_ns, floats| {
            let slot = self.slots.get(key.0 as usize).and_then(Option::as_ref);
            let governed = slot.and_then(|slot| slot.governed.as_ref());
            let buffers = &mut self.buffers;
            governed.map_or(looked_ns, |g| g.planner.project(looked_ns, floats, buffers))
        })
    }

    /// Calls for looks at streams whose pressure triggers have fired since the last call.
    pub(crate) fn hear(&mut self) {
        for trigger in self.pressure.fired() {
            let governed = self.slots.iter_mut().flatten();
            let governed = governed.filter_map(|slot| slot.governed.as_mut());
            for governed in governed.filter(|g| g.policy.pressure.as_ref() == Some(trigger)) {
                self.wishes += u64::from(governed.planner.call());
            }
        }
    }

    /// Returns when a look at the stream is wanted, if a policy decides about it.
    pub(crate) fn wanted(&self, key: StreamKey) -> Option<IntervalRequest> {
        let slot = self.slots.get(key.0 as usize)?.as_ref()?;
        slot.governed.as_ref()?.wanted()
    }

    /// Returns a number that changes whenever a result of [`Self::wanted`] changes without a look
    /// at its stream. It is 0 as long as there was never a policy.
    pub(crate) fn wishes(&self) -> u64 {
        self.wishes
    }

    /// Takes the policy from a stream that now belongs to another policy or to none.
    fn release_other(
        &mut self,
        key: StreamKey,
        forecasts: &mut Forecasts,
        streams: &mut Streams<'_>,
    ) {
        let meant = self.policy_of(key);
        let Some(Some(slot)) = self.slots.get_mut(key.0 as usize) else {
            return;
        };
        let is_other = |g: &Governed| meant.as_ref().is_none_or(|m| !Arc::ptr_eq(m, &g.policy));
        let Some(governed) = slot.governed.take_if(|g| is_other(g)) else {
            return;
        };
        self.governed -= 1;
        self.forget(key, governed.cheap);
        if let Some(Some(known)) = self.known.get(key.0 as usize) {
            forecasts.unfollow(key, known, streams);
        }
    }

    /// Gives a stream without a policy the one that applies to it.
    fn govern(&mut self, key: StreamKey, forecasts: &mut Forecasts, streams: &mut Streams<'_>) {
        let Some(policy) = self.policy_of(key) else {
            return;
        };
        if self.governed_mut(key).is_some() {
            return;
        }
        if self.governed >= GOVERNED_MAX {
            self.roster.count_beyond(&policy);
            return;
        }
        let Some(Some(known)) = self.known.get(key.0 as usize) else {
            return;
        };
        let source = barograph_source::source_of(known.name.as_str());
        let caps = source.and_then(|source| self.caps.get(source).copied());
        let governed = Governed::new(policy, source, caps.unwrap_or(IntervalCaps::none(0)));
        if governed.policy.spec.kind == PolicySpecKind::ErrorBounded {
            forecasts.follow(key, known, governed.step_ns(), streams);
        }
        self.governed += 1;
        self.slot(key).governed = Some(Box::new(governed));
        self.follow(key);
    }

    /// Returns the first policy that applies to a stream.
    fn policy_of(&self, key: StreamKey) -> Option<Arc<Policy>> {
        let known = self.known.get(key.0 as usize)?.as_ref()?;
        self.roster.first_for(known).map(Arc::clone)
    }

    /// Makes a stream that needs a sentinel and has none follow the first one that exists.
    fn follow(&mut self, dear: StreamKey) {
        let Some(governed) = self.governed_mut(dear).filter(|g| g.cheap.is_none()) else {
            return;
        };
        let policy = Arc::clone(&governed.policy);
        if policy.sentinel.is_none() {
            return;
        }
        let is_it = |known: &Option<Box<Descriptor>>| {
            let known = known.as_ref();
            known.is_some_and(|known| policy.is_sentinel(known))
        };
        let mut found = self.known.iter().enumerate();
        let found = found.find(|(at, known)| *at != dear.0 as usize && is_it(known));
        let Some(cheap) = found.and_then(|(at, _)| u32::try_from(at).ok()) else {
            return;
        };
        let cheap = StreamKey(cheap);
        self.slot(cheap).followers.push(dear);
        if let Some(governed) = self.governed_mut(dear) {
            governed.follow(Some(cheap));
        }
    }

    /// Removes a stream from the followers of its cheap stream.
    fn forget(&mut self, dear: StreamKey, cheap: Option<StreamKey>) {
        if let Some(Some(slot)) = cheap.and_then(|key| self.slots.get_mut(key.0 as usize)) {
            slot.followers.retain(|key| *key != dear);
        }
    }

    fn governed_mut(&mut self, key: StreamKey) -> Option<&mut Governed> {
        let slot = self.slots.get_mut(key.0 as usize)?.as_mut()?;
        slot.governed.as_deref_mut()
    }

    fn slot(&mut self, key: StreamKey) -> &mut Slot {
        place(&mut self.slots, key).get_or_insert_default()
    }
}

/// Returns the entry of a key, and makes room for it if necessary.
fn place<T>(all: &mut Vec<Option<T>>, key: StreamKey) -> &mut Option<T> {
    let index = key.0 as usize;
    if all.len() <= index {
        all.resize_with(index + 1, || None);
    }
    &mut all[index]
}
