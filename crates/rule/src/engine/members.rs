//! Which streams are subjects of a trigger, and which streams its subjects read: what changes when
//! triggers and streams come and go.
//!
//! Apart from the engine, where samples and time run through what is settled here.

use std::collections::HashMap;

use barograph_model::{Descriptor, Labels, StreamKey};

use super::{Trigger, Triggers, mark, mark_subject, matches};
use crate::leaf::{Leaf, Wakes};
use crate::stream::Reader;
use crate::subject::{Definition, Subject};

impl Triggers {
    pub(super) fn install(&mut self, definition: Definition, now_ns: i64) {
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
            missed: 0,
            evaluations: 0,
            last_fired_ns: None,
            reason: String::new(),
            unfilled: None,
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

    pub(super) fn remove(&mut self, at: usize) {
        let count = self.triggers[at].as_ref().map_or(0, |t| t.subjects.len());
        for subject in 0..count {
            self.remove_subject(at, subject as u32);
        }
        self.triggers[at] = None;
    }

    /// A new stream and one trigger.
    pub(super) fn meet(&mut self, at: usize, key: StreamKey, descriptor: &Descriptor) {
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
    pub(super) fn take_in(&mut self, at: usize) {
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
            wanted.extend(
                keys.iter()
                    .filter(agrees)
                    .take(room)
                    .map(|key| (leaf, *key)),
            );
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
        self.version += 1;
        if reads.of.is_windowed() {
            self.streams.keep(key, reads.ns);
        }
        mark(&mut self.triggers, &mut self.work, reader);
    }

    pub(super) fn remove_subject(&mut self, at: usize, subject: u32) {
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
        self.version += 1;
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
}

/// The labels that a selector leaves no choice of.
fn spelt_out(leaf: &Leaf) -> Labels {
    let literal = leaf.selector.labels.iter().filter(|(_, p)| p.is_literal());
    let pairs = literal.map(|(name, pattern)| (name.as_str(), pattern.as_str()));
    Labels::new(pairs).unwrap_or_default()
}
