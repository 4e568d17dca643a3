//! The streams that are subjects of a rule, and those that its subjects read, as rules and streams
//! come and go.
//!
//! They stand alone because the engine passes samples and time along these relations, and does not
//! change them.

use std::collections::HashMap;

use barograph_model::{Descriptor, Labels, StreamKey};

use super::{Rule, Rules, mark, mark_subject, matches};
use crate::leaf::{LeafWakes, StreamFunction};
use crate::stream::StreamUse;
use crate::subject::{RuleDefinition, RuleSubject};

impl Rules {
    pub(super) fn install(&mut self, definition: RuleDefinition, now_ns: i64) {
        let leaves = definition.leaves.len();
        let rule = Rule {
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
        let at = match self.rules.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.rules.push(None);
                self.rules.len() - 1
            }
        };
        let first = rule.first;
        let mut matching = vec![Vec::new(); leaves];
        for (key, stream) in self.streams.iter() {
            for (leaf, keys) in rule.definition.leaves.iter().zip(&mut matching) {
                if matches(leaf, &stream.descriptor, stream.is_of_cluster) {
                    keys.push(key);
                }
            }
        }
        let tells_absence = rule.definition.tells_absence();
        let labels = spelt_out(&rule.definition.leaves[first]);
        self.rules[at] = Some(Rule { matching, ..rule });
        if self.matching(at, first).is_empty() {
            if tells_absence {
                let subject = RuleSubject::new(None, None, labels, leaves, now_ns);
                self.add_subject(at, subject);
            }
        } else {
            self.take_in(at);
        }
    }

    fn matching(&self, rule: usize, leaf: usize) -> &[StreamKey] {
        self.rules[rule]
            .as_ref()
            .map_or(&[], |t| t.matching[leaf].as_slice())
    }

    pub(super) fn remove(&mut self, at: usize) {
        let count = self.rules[at].as_ref().map_or(0, |t| t.subjects.len());
        for subject in 0..count {
            self.remove_subject(at, subject as u32);
        }
        self.rules[at] = None;
    }

    /// A new stream and one rule.
    pub(super) fn meet(
        &mut self,
        at: usize,
        key: StreamKey,
        (descriptor, is_of_cluster): (&Descriptor, bool),
    ) {
        let Some(rule) = &mut self.rules[at] else {
            return;
        };
        let first = rule.first;
        let mut met = Vec::new();
        for (leaf, keys) in rule.matching.iter_mut().enumerate() {
            if matches(&rule.definition.leaves[leaf], descriptor, is_of_cluster) {
                keys.push(key);
                met.push(leaf);
            }
        }
        for &leaf in &met {
            let Some(rule) = &self.rules[at] else {
                return;
            };
            if rule.definition.leaves[leaf].is_own {
                continue;
            }
            let all = rule.subjects.iter().enumerate();
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
        let Some(rule) = &self.rules[at] else {
            return;
        };
        let keys = &rule.matching[rule.first];
        let room = self.limits.subjects_max.saturating_sub(rule.count());
        if keys.len() == rule.of_key.len() || room == 0 {
            return;
        }
        let left = keys.iter().filter(|key| !rule.of_key.contains_key(key));
        let left: Vec<StreamKey> = left.take(room).copied().collect();
        for key in left {
            self.make_subject(at, key);
        }
    }

    fn make_subject(&mut self, at: usize, key: StreamKey) {
        let (Some(rule), Some(stream)) = (&mut self.rules[at], self.streams.get(key)) else {
            return;
        };
        let (descriptor, scope) = (stream.descriptor.clone(), stream.scope.clone());
        if !rule.was_met {
            rule.was_met = true;
            // The one that stood for no stream.
            self.remove_subject(at, 0);
        }
        let Some(rule) = &mut self.rules[at] else {
            return;
        };
        let has_come_back = |s: &Option<RuleSubject>| {
            s.as_ref().is_some_and(|s| {
                let same = |d: &std::sync::Arc<Descriptor>| {
                    d.name == descriptor.name && d.labels == descriptor.labels
                };
                s.key.is_none() && s.descriptor.as_ref().is_some_and(same)
            })
        };
        if let Some(back) = rule.subjects.iter().position(has_come_back) {
            if let Some(subject) = &mut rule.subjects[back] {
                subject.key = Some(key);
                subject.scope = scope;
            }
            rule.of_key.insert(key, back as u32);
            self.bind_own(at, back as u32, key);
            return;
        }
        let is_full = |t: &Rule| t.count() >= self.limits.subjects_max;
        if is_full(rule) || self.subjects >= self.limits.subjects_all_max {
            // One that is gone makes room for one that is there.
            let is_gone = |s: &Option<RuleSubject>| s.as_ref().is_some_and(|s| s.key.is_none());
            match rule.subjects.iter().position(is_gone) {
                Some(gone) => self.remove_subject(at, gone as u32),
                None => return,
            }
        }
        let labels = descriptor.labels.clone();
        let leaves = self.leaves(at);
        let subject = RuleSubject {
            scope,
            ..RuleSubject::new(Some(key), Some(descriptor), labels, leaves, self.now_ns)
        };
        let subject = self.add_subject(at, subject);
        if let Some(rule) = &mut self.rules[at] {
            rule.of_key.insert(key, subject);
        }
        self.bind_own(at, subject, key);
    }

    fn leaves(&self, at: usize) -> usize {
        let rule = self.rules[at].as_ref();
        rule.map_or(0, |t| t.definition.leaves.len())
    }

    /// Puts a subject in its place, with the streams of others that it reads.
    fn add_subject(&mut self, at: usize, subject: RuleSubject) -> u32 {
        let Some(rule) = &mut self.rules[at] else {
            return 0;
        };
        let mut wanted: Vec<(usize, StreamKey)> = Vec::new();
        for (leaf, keys) in rule.matching.iter().enumerate() {
            if rule.definition.leaves[leaf].is_own {
                continue;
            }
            let agrees = |key: &&StreamKey| {
                let stream = self.streams.get(**key);
                stream.is_some_and(|s| subject.agrees(&s.descriptor.labels))
            };
            // One more than there is room for, so that it is counted.
            let room = self.limits.candidates_max + 1;
            wanted.extend(
                keys.iter()
                    .filter(agrees)
                    .take(room)
                    .map(|key| (leaf, *key)),
            );
        }
        let place = match rule.free.pop() {
            Some(free) => {
                rule.subjects[free as usize] = Some(subject);
                free
            }
            None => {
                rule.subjects.push(Some(subject));
                rule.subjects.len() as u32 - 1
            }
        };
        self.subjects += 1;
        for (leaf, key) in wanted {
            self.bind(at, place, leaf, key);
        }
        mark_subject(&mut self.rules, &mut self.work, at as u32, place);
        place
    }

    /// Gives a subject its own stream.
    fn bind_own(&mut self, at: usize, subject: u32, key: StreamKey) {
        for leaf in 0..self.leaves(at) {
            let own = |t: &Rule| t.definition.leaves[leaf].is_own;
            if self.rules[at].as_ref().is_some_and(own) {
                self.bind(at, subject, leaf, key);
            }
        }
        mark_subject(&mut self.rules, &mut self.work, at as u32, subject);
    }

    fn bind(&mut self, at: usize, subject: u32, leaf: usize, key: StreamKey) {
        let Some(rule) = &mut self.rules[at] else {
            return;
        };
        let definition = &rule.definition;
        let Some(Some(state)) = rule.subjects.get_mut(subject as usize) else {
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
        let reader = StreamUse {
            rule: at as u32,
            subject,
            leaf: leaf as u32,
            wakes: match leaf < definition.condition_leaves {
                true => reads.wakes(),
                false => LeafWakes::Never,
            },
        };
        stream.readers.push(reader);
        state.bound[leaf].push(key);
        self.bindings += 1;
        self.version += 1;
        if reads.of.is_windowed() {
            self.streams.keep(key, reads.ns);
        }
        mark(&mut self.rules, &mut self.work, reader);
    }

    pub(super) fn remove_subject(&mut self, at: usize, subject: u32) {
        let Some(rule) = &mut self.rules[at] else {
            return;
        };
        let place = rule.subjects.get_mut(subject as usize);
        let Some(state) = place.and_then(Option::take) else {
            return;
        };
        rule.free.push(subject);
        if let Some(key) = state.key {
            rule.of_key.remove(&key);
        }
        if let Some(deadline_ns) = state.deadline_ns {
            let entry = (deadline_ns, at as u32, subject);
            self.work.deadlines.remove(&entry);
        }
        self.subjects -= 1;
        self.version += 1;
        for (leaf, keys) in state.bound.iter().enumerate() {
            let reads = &rule.definition.leaves[leaf];
            for &key in keys {
                self.bindings -= 1;
                if let Some(stream) = self.streams.get_mut(key) {
                    let is_it = |r: &StreamUse| {
                        (r.rule, r.subject, r.leaf) == (at as u32, subject, leaf as u32)
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
fn spelt_out(leaf: &StreamFunction) -> Labels {
    let literal = leaf.selector.labels.iter().filter(|(_, p)| p.is_literal());
    let pairs = literal.map(|(name, pattern)| (name.as_str(), pattern.as_str()));
    Labels::new(pairs).unwrap_or_default()
}
