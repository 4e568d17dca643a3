//! All triggers of a node: statements change them, samples and time run through them.
//!
//! It reads no clock, file or socket. What a sample costs is what the subjects that read its stream
//! cost, and that is bounded; a subject is evaluated at most once per [`Triggers::evaluate`].

use std::collections::{BTreeSet, HashMap};

use barograph_model::{Descriptor, Labels, Sample, StreamKey};

use super::leaf::{Leaf, Of, Wakes};
use super::report::{Firing, TriggerReport, TriggerState};
use super::statement::{self, Statement};
use super::stream::{Reader, Streams};
use super::subject::{Definition, Subject};
use crate::value::Known;
use crate::{Executed, InsightError, TriggerLimits, names};

/// All triggers of a node.
pub struct Triggers {
    limits: TriggerLimits,
    streams: Streams,
    triggers: Vec<Option<Trigger>>,
    work: Work,
    now_ns: i64,
    /// Subjects, and pairs of a subject and a stream, of all triggers.
    subjects: usize,
    bindings: usize,
    ignored: u64,
    set_backs: u64,
    values: Vec<Known>,
}

/// What is to be evaluated, and when.
#[derive(Debug, Default)]
struct Work {
    dirty: Vec<(u32, u32)>,
    deadlines: BTreeSet<(i64, u32, u32)>,
}

/// One trigger.
#[derive(Debug)]
struct Trigger {
    definition: Definition,
    first: usize,
    /// The streams that each leaf's selector matches.
    matching: Vec<Vec<StreamKey>>,
    subjects: Vec<Option<Subject>>,
    free: Vec<u32>,
    of_key: HashMap<StreamKey, u32>,
    /// Whether a stream has ever matched the first leaf.
    was_met: bool,
    made_ns: i64,
    fired: u64,
    suppressed: u64,
    failed: u64,
    evaluations: u64,
    last_fired_ns: Option<i64>,
    /// Why it last failed to make its call.
    reason: String,
}

impl Triggers {
    /// None yet.
    pub fn new(limits: TriggerLimits) -> Self {
        Self {
            streams: Streams::new(limits.clone()),
            limits,
            triggers: Vec::new(),
            work: Work::default(),
            now_ns: i64::MIN,
            subjects: 0,
            bindings: 0,
            ignored: 0,
            set_backs: 0,
            values: Vec::new(),
        }
    }

    /// Carries out `CREATE TRIGGER …` or `DROP TRIGGER …`. A trigger is evaluated first at the next
    /// [`Triggers::evaluate`]; one that is replaced begins anew.
    pub fn execute(&mut self, sql: &str, now_ns: i64) -> Result<Executed, InsightError> {
        self.now_ns = self.now_ns.max(now_ns);
        match statement::parse(sql, self.limits.sql_bytes_max)? {
            Statement::Create {
                or_replace,
                definition,
            } => {
                let name = definition.name.to_string();
                self.admit(&name, or_replace)?;
                if let Some(at) = self.find(&name) {
                    self.remove(at);
                }
                self.install(*definition, now_ns);
                Ok(Executed::Created(name))
            }
            Statement::Drop { name, if_exists } => {
                self.droppable(&name, if_exists)?;
                if let Some(at) = self.find(&name) {
                    self.remove(at);
                }
                Ok(Executed::Dropped(name))
            }
        }
    }

    /// What [`Triggers::execute`] would do now; changes nothing.
    pub fn intent(&self, sql: &str) -> Result<Executed, InsightError> {
        match statement::parse(sql, self.limits.sql_bytes_max)? {
            Statement::Create {
                or_replace,
                definition,
            } => {
                let name = definition.name.to_string();
                self.admit(&name, or_replace)?;
                Ok(Executed::Created(name))
            }
            Statement::Drop { name, if_exists } => {
                self.droppable(&name, if_exists)?;
                Ok(Executed::Dropped(name))
            }
        }
    }

    /// A stream appeared. One beyond the bounds is ignored; [`Triggers::ignored`] counts them.
    pub fn stream_added(&mut self, key: StreamKey, descriptor: &Descriptor) {
        self.stream_removed(key);
        if !self.streams.add(key, descriptor) {
            self.ignored += 1;
            return;
        }
        for trigger in 0..self.triggers.len() {
            self.meet(trigger, key, descriptor);
        }
    }

    /// A stream is gone.
    pub fn stream_removed(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.remove(key) else {
            return;
        };
        for reader in &stream.readers {
            let Some(subject) = subject_of(&mut self.triggers, reader.trigger, reader.subject)
            else {
                continue;
            };
            let leaf = reader.leaf as usize;
            subject.bound[leaf].retain(|bound| *bound != key);
            if let Some(newest) = &stream.newest {
                subject.last_ns[leaf] = subject.last_ns[leaf].max(newest.seen_ns);
            }
            self.bindings -= 1;
            mark(&mut self.triggers, &mut self.work, *reader);
        }
        for at in 0..self.triggers.len() {
            let Some(trigger) = &mut self.triggers[at] else {
                continue;
            };
            for (leaf, keys) in trigger.definition.leaves.iter().zip(&mut trigger.matching) {
                if matches(leaf, &stream.descriptor) {
                    keys.retain(|known| *known != key);
                }
            }
            let Some(subject) = trigger.of_key.remove(&key) else {
                continue;
            };
            if trigger.definition.tells_absence() {
                if let Some(Some(gone)) = trigger.subjects.get_mut(subject as usize) {
                    gone.key = None;
                }
            } else {
                self.remove_subject(at, subject);
            }
            self.take_in(at);
        }
    }

    /// The newest sample of a stream. The streams' readers alone decide what that costs.
    pub fn sample(&mut self, key: StreamKey, sample: &Sample) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let before_ns = stream.newest.as_ref().map(|n| n.seen_ns);
        self.streams.sample(key, sample, self.now_ns);
        self.wake(key, before_ns, Wakes::Sample);
    }

    /// The resource of a stream was looked at, and its newest sample still holds.
    pub fn looked(&mut self, key: StreamKey, looked_ns: i64) {
        let newest = self.streams.get_mut(key).and_then(|s| s.newest.as_mut());
        let Some(newest) = newest.filter(|n| n.seen_ns < looked_ns) else {
            return;
        };
        let before_ns = std::mem::replace(&mut newest.seen_ns, looked_ns);
        self.wake(key, Some(before_ns), Wakes::Look);
    }

    /// Samples of a stream from before the oldest that it was given, oldest first; later ones are left
    /// out. For windows that reach further back than whoever watches the stream.
    pub fn seed(&mut self, key: StreamKey, past: &[Sample]) {
        self.streams.seed(key, past, self.now_ns);
        self.wake(key, None, Wakes::Look);
    }

    /// Streams whose past is wanted, each with how far back, in ns. Each is told once.
    pub fn take_wanted(&mut self) -> Vec<(StreamKey, i64)> {
        self.streams.take_young()
    }

    /// Evaluates what has news or is due, and hands over each firing.
    pub fn evaluate(&mut self, now_ns: i64, fire: &mut dyn FnMut(Firing)) {
        if now_ns < self.now_ns {
            self.set_back(now_ns);
        }
        self.now_ns = now_ns;
        while let Some(&(at_ns, trigger, subject)) = self.work.deadlines.first()
            && at_ns <= now_ns
        {
            self.work.deadlines.pop_first();
            if let Some(due) = subject_of(&mut self.triggers, trigger, subject) {
                due.deadline_ns = None;
            }
            mark_subject(&mut self.triggers, &mut self.work, trigger, subject);
        }
        let mut dirty = std::mem::take(&mut self.work.dirty);
        for (trigger, subject) in dirty.drain(..) {
            self.evaluate_one(trigger, subject, fire);
        }
        // Its room is used again. Evaluating marks nothing.
        if self.work.dirty.is_empty() {
            self.work.dirty = dirty;
        }
    }

    /// When time alone could change something next; `None`: never. What has news is due at once.
    pub fn next_deadline_ns(&self) -> Option<i64> {
        if !self.work.dirty.is_empty() {
            return Some(self.now_ns);
        }
        self.work.deadlines.first().map(|(at_ns, ..)| *at_ns)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.triggers.iter().flatten().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Streams that were ignored because of the bounds.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// How often the clock was found set back.
    pub fn set_backs(&self) -> u64 {
        self.set_backs
    }

    /// Points and windows that are held, and windows that were refused for lack of room.
    pub fn windows(&self) -> (usize, usize, u64) {
        let (points, windows) = self.streams.held();
        (points, windows, self.streams.windows_refused)
    }

    /// How each trigger is doing, by name.
    pub fn reports(&self) -> Vec<TriggerReport> {
        let all = self.triggers.iter().flatten();
        let mut reports: Vec<TriggerReport> = all.map(Trigger::report).collect();
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    fn find(&self, name: &str) -> Option<usize> {
        let is_it = |t: &Option<Trigger>| {
            t.as_ref()
                .is_some_and(|t| t.definition.name.as_str() == name)
        };
        self.triggers.iter().position(is_it)
    }

    fn admit(&self, name: &str, or_replace: bool) -> Result<(), InsightError> {
        match self.find(name) {
            Some(_) if or_replace => Ok(()),
            Some(_) => Err(InsightError::statement(format!(
                "{name} is the name of a trigger: CREATE OR REPLACE it, or drop it first"
            ))),
            None if self.len() >= self.limits.triggers_max => Err(InsightError::Limit {
                what: "triggers".into(),
                max: self.limits.triggers_max,
                limit: "triggers_max",
            }),
            None => Ok(()),
        }
    }

    fn droppable(&self, name: &str, if_exists: bool) -> Result<(), InsightError> {
        if if_exists || self.find(name).is_some() {
            return Ok(());
        }
        let known = self.triggers.iter().flatten();
        let near = names::near(name, known.map(|t| t.definition.name.as_str()));
        Err(InsightError::statement(match near.as_slice() {
            [] => format!("there is no trigger {name}: see the table declared_triggers"),
            near => format!(
                "there is no trigger {name}: did you mean {}?",
                near.join(" or ")
            ),
        }))
    }

    fn install(&mut self, definition: Definition, now_ns: i64) {
        let leaves = definition.leaves.len();
        let trigger = Trigger {
            first: definition.first(),
            matching: vec![Vec::new(); leaves],
            definition,
            subjects: Vec::new(),
            free: Vec::new(),
            of_key: HashMap::new(),
            was_met: false,
            made_ns: now_ns,
            fired: 0,
            suppressed: 0,
            failed: 0,
            evaluations: 0,
            last_fired_ns: None,
            reason: String::new(),
        };
        let at = match self.triggers.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.triggers.push(None);
                self.triggers.len() - 1
            }
        };
        let first = trigger.first;
        let mut matching = vec![Vec::new(); leaves];
        for (key, stream) in self.streams.iter() {
            for (leaf, keys) in trigger.definition.leaves.iter().zip(&mut matching) {
                if matches(leaf, &stream.descriptor) {
                    keys.push(key);
                }
            }
        }
        let tells_absence = trigger.definition.tells_absence();
        let labels = spelt_out(&trigger.definition.leaves[first]);
        self.triggers[at] = Some(Trigger {
            matching,
            ..trigger
        });
        if self.matching(at, first).is_empty() {
            if tells_absence {
                let subject = Subject::new(None, None, labels, leaves, now_ns);
                self.add_subject(at, subject);
            }
        } else {
            self.take_in(at);
        }
    }

    fn matching(&self, trigger: usize, leaf: usize) -> &[StreamKey] {
        self.triggers[trigger]
            .as_ref()
            .map_or(&[], |t| t.matching[leaf].as_slice())
    }

    fn remove(&mut self, at: usize) {
        let count = self.triggers[at].as_ref().map_or(0, |t| t.subjects.len());
        for subject in 0..count {
            self.remove_subject(at, subject as u32);
        }
        self.triggers[at] = None;
    }

    /// A new stream and one trigger.
    fn meet(&mut self, at: usize, key: StreamKey, descriptor: &Descriptor) {
        let Some(trigger) = &mut self.triggers[at] else {
            return;
        };
        let first = trigger.first;
        let mut met = Vec::new();
        for (leaf, keys) in trigger.matching.iter_mut().enumerate() {
            if matches(&trigger.definition.leaves[leaf], descriptor) {
                keys.push(key);
                met.push(leaf);
            }
        }
        for &leaf in &met {
            let Some(trigger) = &self.triggers[at] else {
                return;
            };
            if trigger.definition.leaves[leaf].is_own {
                continue;
            }
            let all = trigger.subjects.iter().enumerate();
            let agreeing = all.filter_map(|(subject, state)| {
                let agrees = state.as_ref()?.agrees(&descriptor.labels);
                agrees.then_some(subject as u32)
            });
            let agreeing: Vec<u32> = agreeing.collect();
            for subject in agreeing {
                self.bind(at, subject, leaf, key);
            }
        }
        if met.contains(&first) {
            self.make_subject(at, key);
        }
    }

    /// Makes subjects of streams that had no room, where there is room again.
    fn take_in(&mut self, at: usize) {
        let Some(trigger) = &self.triggers[at] else {
            return;
        };
        let keys = &trigger.matching[trigger.first];
        let room = self.limits.subjects_max.saturating_sub(trigger.count());
        if keys.len() == trigger.of_key.len() || room == 0 {
            return;
        }
        let left = keys.iter().filter(|key| !trigger.of_key.contains_key(key));
        let left: Vec<StreamKey> = left.take(room).copied().collect();
        for key in left {
            self.make_subject(at, key);
        }
    }

    fn make_subject(&mut self, at: usize, key: StreamKey) {
        let (Some(trigger), Some(stream)) = (&mut self.triggers[at], self.streams.get(key)) else {
            return;
        };
        let descriptor = stream.descriptor.clone();
        if !trigger.was_met {
            trigger.was_met = true;
            // The one that stood for no stream.
            self.remove_subject(at, 0);
        }
        let Some(trigger) = &mut self.triggers[at] else {
            return;
        };
        let has_come_back = |s: &Option<Subject>| {
            s.as_ref().is_some_and(|s| {
                let same = |d: &std::sync::Arc<Descriptor>| {
                    d.name == descriptor.name && d.labels == descriptor.labels
                };
                s.key.is_none() && s.descriptor.as_ref().is_some_and(same)
            })
        };
        if let Some(back) = trigger.subjects.iter().position(has_come_back) {
            if let Some(subject) = &mut trigger.subjects[back] {
                subject.key = Some(key);
            }
            trigger.of_key.insert(key, back as u32);
            self.bind_own(at, back as u32, key);
            return;
        }
        let is_full = |t: &Trigger| t.count() >= self.limits.subjects_max;
        if is_full(trigger) || self.subjects >= self.limits.subjects_all_max {
            // One that is gone makes room for one that is there.
            let is_gone = |s: &Option<Subject>| s.as_ref().is_some_and(|s| s.key.is_none());
            match trigger.subjects.iter().position(is_gone) {
                Some(gone) => self.remove_subject(at, gone as u32),
                None => return,
            }
        }
        let labels = descriptor.labels.clone();
        let leaves = self.leaves(at);
        let subject = Subject::new(Some(key), Some(descriptor), labels, leaves, self.now_ns);
        let subject = self.add_subject(at, subject);
        if let Some(trigger) = &mut self.triggers[at] {
            trigger.of_key.insert(key, subject);
        }
        self.bind_own(at, subject, key);
    }

    fn leaves(&self, at: usize) -> usize {
        let trigger = self.triggers[at].as_ref();
        trigger.map_or(0, |t| t.definition.leaves.len())
    }

    /// Puts a subject in its place, with the streams of others that it reads.
    fn add_subject(&mut self, at: usize, subject: Subject) -> u32 {
        let Some(trigger) = &mut self.triggers[at] else {
            return 0;
        };
        let mut wanted: Vec<(usize, StreamKey)> = Vec::new();
        for (leaf, keys) in trigger.matching.iter().enumerate() {
            if trigger.definition.leaves[leaf].is_own {
                continue;
            }
            let agrees = |key: &&StreamKey| {
                let stream = self.streams.get(**key);
                stream.is_some_and(|s| subject.agrees(&s.descriptor.labels))
            };
            // One more than there is room for, so that it is told.
            let room = self.limits.candidates_max + 1;
            wanted.extend(keys.iter().filter(agrees).take(room).map(|key| (leaf, *key)));
        }
        let place = match trigger.free.pop() {
            Some(free) => {
                trigger.subjects[free as usize] = Some(subject);
                free
            }
            None => {
                trigger.subjects.push(Some(subject));
                trigger.subjects.len() as u32 - 1
            }
        };
        self.subjects += 1;
        for (leaf, key) in wanted {
            self.bind(at, place, leaf, key);
        }
        mark_subject(&mut self.triggers, &mut self.work, at as u32, place);
        place
    }

    /// Gives a subject its own stream.
    fn bind_own(&mut self, at: usize, subject: u32, key: StreamKey) {
        for leaf in 0..self.leaves(at) {
            let own = |t: &Trigger| t.definition.leaves[leaf].is_own;
            if self.triggers[at].as_ref().is_some_and(own) {
                self.bind(at, subject, leaf, key);
            }
        }
        mark_subject(&mut self.triggers, &mut self.work, at as u32, subject);
    }

    fn bind(&mut self, at: usize, subject: u32, leaf: usize, key: StreamKey) {
        let Some(trigger) = &mut self.triggers[at] else {
            return;
        };
        let definition = &trigger.definition;
        let Some(Some(state)) = trigger.subjects.get_mut(subject as usize) else {
            return;
        };
        let is_full = state.bound[leaf].len() >= self.limits.candidates_max;
        if is_full || self.bindings >= self.limits.bindings_all_max {
            state.left_out += 1;
            return;
        }
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let reads = &definition.leaves[leaf];
        let reader = Reader {
            trigger: at as u32,
            subject,
            leaf: leaf as u32,
            wakes: match leaf < definition.condition_leaves {
                true => reads.wakes(),
                false => Wakes::Never,
            },
        };
        stream.readers.push(reader);
        state.bound[leaf].push(key);
        self.bindings += 1;
        if reads.of.is_windowed() {
            self.streams.keep(key, reads.ns);
        }
        mark(&mut self.triggers, &mut self.work, reader);
    }

    fn remove_subject(&mut self, at: usize, subject: u32) {
        let Some(trigger) = &mut self.triggers[at] else {
            return;
        };
        let place = trigger.subjects.get_mut(subject as usize);
        let Some(state) = place.and_then(Option::take) else {
            return;
        };
        trigger.free.push(subject);
        if let Some(key) = state.key {
            trigger.of_key.remove(&key);
        }
        if let Some(deadline_ns) = state.deadline_ns {
            let entry = (deadline_ns, at as u32, subject);
            self.work.deadlines.remove(&entry);
        }
        self.subjects -= 1;
        for (leaf, keys) in state.bound.iter().enumerate() {
            let reads = &trigger.definition.leaves[leaf];
            for &key in keys {
                self.bindings -= 1;
                if let Some(stream) = self.streams.get_mut(key) {
                    let is_it = |r: &Reader| {
                        (r.trigger, r.subject, r.leaf) == (at as u32, subject, leaf as u32)
                    };
                    stream.readers.retain(|r| !is_it(r));
                }
                if reads.of.is_windowed() {
                    self.streams.release(key, reads.ns);
                }
            }
        }
    }

    /// Marks those who read a stream, if what has come concerns them.
    fn wake(&mut self, key: StreamKey, before_ns: Option<i64>, news: Wakes) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        // How old the last sign of life was when conditions were evaluated last.
        let old_ns = before_ns.map(|ns| self.now_ns.saturating_sub(ns));
        for reader in &stream.readers {
            let concerned = match reader.wakes {
                Wakes::Never => false,
                Wakes::Sample => news == Wakes::Sample,
                Wakes::Look => true,
            };
            let Some(trigger) = self.triggers.get(reader.trigger as usize) else {
                continue;
            };
            let leaf = trigger
                .as_ref()
                .map(|t| &t.definition.leaves[reader.leaf as usize]);
            if concerned && !leaf.is_some_and(|leaf| stays(leaf, old_ns)) {
                mark(&mut self.triggers, &mut self.work, *reader);
            }
        }
    }

    fn evaluate_one(&mut self, at: u32, place: u32, fire: &mut dyn FnMut(Firing)) {
        let now_ns = self.now_ns;
        let Some(Some(trigger)) = self.triggers.get_mut(at as usize) else {
            return;
        };
        let Some(Some(subject)) = trigger.subjects.get_mut(place as usize) else {
            return;
        };
        if !std::mem::take(&mut subject.dirty) {
            return;
        }
        trigger.evaluations += 1;
        let definition = &trigger.definition;
        let (truth, deadline_ns) =
            subject.look(definition, &self.streams, now_ns, &mut self.values);
        subject.fault = truth.err();
        let is_true = truth.unwrap_or(false);
        let rises = is_true && !subject.was_true;
        subject.was_true = is_true;
        let over_ns = |fired_ns: i64| fired_ns.saturating_add(definition.cooldown_ns);
        let rest_ns = subject.fired_ns.map(over_ns).filter(|ns| *ns > now_ns);
        if rises && rest_ns.is_some() {
            trigger.suppressed += 1;
        } else if rises {
            match firing(definition, subject, &self.streams, now_ns, &mut self.values) {
                Ok(firing) => {
                    subject.fired_ns = Some(now_ns);
                    trigger.fired += 1;
                    trigger.last_fired_ns = Some(now_ns);
                    trigger.reason.clear();
                    fire(firing);
                }
                Err(reason) => {
                    trigger.failed += 1;
                    trigger.reason = reason;
                }
            }
        }
        let is_gone = subject.key.is_none() && subject.descriptor.is_some();
        let deadline_ns = match deadline_ns {
            None if is_gone => subject.fired_ns.map(over_ns).filter(|ns| *ns > now_ns),
            deadline_ns => deadline_ns,
        };
        if let Some(before_ns) = subject.deadline_ns.take() {
            self.work.deadlines.remove(&(before_ns, at, place));
        }
        if let Some(deadline_ns) = deadline_ns {
            subject.deadline_ns = Some(deadline_ns);
            self.work.deadlines.insert((deadline_ns, at, place));
        } else if is_gone {
            // Its absence has been told.
            self.remove_subject(at as usize, place);
            self.take_in(at as usize);
        }
    }

    /// Time goes on from earlier than it was: nothing is later than now.
    fn set_back(&mut self, now_ns: i64) {
        self.set_backs += 1;
        self.streams.set_back(now_ns);
        for at in 0..self.triggers.len() {
            let Some(trigger) = &mut self.triggers[at] else {
                continue;
            };
            let count = trigger.subjects.len();
            for subject in trigger.subjects.iter_mut().flatten() {
                subject.since_ns = subject.since_ns.min(now_ns);
                subject.fired_ns = subject.fired_ns.map(|ns| ns.min(now_ns));
                for last_ns in &mut subject.last_ns {
                    *last_ns = (*last_ns).min(now_ns);
                }
            }
            for place in 0..count {
                mark_subject(&mut self.triggers, &mut self.work, at as u32, place as u32);
            }
        }
    }
}

impl Trigger {
    /// How many subjects there are.
    fn count(&self) -> usize {
        self.subjects.len() - self.free.len()
    }

    fn report(&self) -> TriggerReport {
        let subjects = || self.subjects.iter().flatten();
        let holding = subjects().filter(|s| s.was_true).count();
        let beyond = self.matching[self.first].len() - self.of_key.len();
        let left_out: u64 = subjects().map(|s| s.left_out).sum();
        let fault = subjects().find_map(|s| Some((s.fault?, s.name())));
        let count = self.count();
        let state = match (&fault, count) {
            (Some(_), _) => TriggerState::Failed,
            (None, _) if !self.reason.is_empty() => TriggerState::Failed,
            (None, 0) => TriggerState::Waiting,
            _ if holding > 0 => TriggerState::Holding,
            _ => TriggerState::Armed,
        };
        let mut reasons = Vec::new();
        reasons.extend(fault.map(|(fault, name)| format!("{name}: {fault}")));
        if !self.reason.is_empty() {
            reasons.push(self.reason.clone());
        }
        if state == TriggerState::Waiting {
            let first = &self.definition.leaves[self.first];
            reasons.push(format!("no stream is {}", first.selector));
        }
        if beyond > 0 {
            reasons.push(format!("{beyond} streams are beyond the bound of subjects"));
        }
        if left_out > 0 {
            reasons.push(format!("{left_out} streams that it could read are left out"));
        }
        TriggerReport {
            name: self.definition.name.to_string(),
            sql: self.definition.sql.clone(),
            help: self.definition.help.clone(),
            call: self.definition.call.clone(),
            state,
            reason: reasons.join("; "),
            subjects: count,
            holding,
            beyond,
            left_out,
            fired: self.fired,
            suppressed: self.suppressed,
            failed: self.failed,
            evaluations: self.evaluations,
            made_ns: self.made_ns,
            last_fired_ns: self.last_fired_ns,
        }
    }
}

fn subject_of(triggers: &mut [Option<Trigger>], trigger: u32, subject: u32) -> Option<&mut Subject> {
    let trigger = triggers.get_mut(trigger as usize)?.as_mut()?;
    trigger.subjects.get_mut(subject as usize)?.as_mut()
}

fn mark(triggers: &mut [Option<Trigger>], work: &mut Work, reader: Reader) {
    if reader.wakes != Wakes::Never {
        mark_subject(triggers, work, reader.trigger, reader.subject);
    }
}

fn mark_subject(triggers: &mut [Option<Trigger>], work: &mut Work, trigger: u32, subject: u32) {
    if let Some(state) = subject_of(triggers, trigger, subject)
        && !state.dirty
    {
        state.dirty = true;
        work.dirty.push((trigger, subject));
    }
}

/// Whether a sign of life cannot change what a leaf says, since the one before it was young enough when
/// it was looked at last. Its deadline stands, and is moved when it is reached.
fn stays(leaf: &Leaf, old_ns: Option<i64>) -> bool {
    match (leaf.of, old_ns) {
        (Of::Absent, Some(old_ns)) => old_ns < leaf.ns,
        (Of::Age, Some(old_ns)) => {
            let at = leaf.crossings.as_ref();
            at.is_some_and(|at| at.iter().all(|ns| old_ns < *ns))
        }
        _ => false,
    }
}

fn matches(leaf: &Leaf, descriptor: &Descriptor) -> bool {
    leaf.of != Of::Label
        && leaf
            .selector
            .matches(descriptor.name.as_str(), &descriptor.labels)
}

/// The labels that a selector leaves no choice of.
fn spelt_out(leaf: &Leaf) -> Labels {
    let literal = leaf.selector.labels.iter().filter(|(_, p)| p.is_literal());
    let pairs = literal.map(|(name, pattern)| (name.as_str(), pattern.as_str()));
    Labels::new(pairs).unwrap_or_default()
}

fn firing(
    definition: &Definition,
    subject: &Subject,
    streams: &Streams,
    now_ns: i64,
    values: &mut Vec<Known>,
) -> Result<Firing, String> {
    let explanation = subject.explanation(definition, values);
    let payload = subject
        .payload(definition, streams, now_ns, values)
        .map_err(|fault| format!("{}: PAYLOAD: {fault}: it did not fire", subject.name()))?;
    Ok(Firing {
        trigger: definition.name.to_string(),
        call: definition.call.clone(),
        payload,
        target: subject.target(definition)?,
        subject: subject.labels.clone(),
        stream: subject.key,
        fired_ns: now_ns,
        expires_ns: definition.expires_ns,
        explanation,
    })
}
