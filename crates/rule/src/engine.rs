//! All rules of a node, changed by statements and evaluated on samples and time.
//!
//! It reads no clock, file or socket. The cost of a sample is bounded by the subjects that read its
//! stream; a subject is evaluated at most once per [`Rules::evaluate`].

mod members;
mod tell;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use barograph_model::{Descriptor, Sample, StreamKey, near};

use crate::RuleLimits;
use crate::cluster::{ClusterSelector, cluster_selectors};
use crate::leaf::{LeafFunction, LeafWakes, StreamFunction};
use crate::report::{Firing, FiringSummary, RuleReport};
use crate::statement::{self, RuleStatement};
use crate::stream::{RuleStream, RuleStreams, StreamUse};
use crate::subject::{RuleDefinition, RuleSubject};
use barograph_statement::{StatementError, StatementOutcome, UncertainValue};

/// All rules of a node.
pub struct Rules {
    limits: RuleLimits,
    streams: RuleStreams,
    rules: Vec<Option<Rule>>,
    work: Work,
    now_ns: i64,
    /// Subjects, and pairs of a subject and a stream, of all rules.
    subjects: usize,
    bindings: usize,
    /// Number that grows when the set of streams that are read changes.
    version: u64,
    /// The selectors of all rules that mean streams of all nodes.
    cluster_reads: Arc<[ClusterSelector]>,
    ignored: u64,
    set_backs: u64,
    values: Vec<UncertainValue>,
}

/// The subjects to be evaluated: those that have changed, and those with a deadline.
#[derive(Debug, Default)]
struct Work {
    dirty: Vec<(u32, u32)>,
    deadlines: BTreeSet<(i64, u32, u32)>,
}

#[derive(Debug)]
struct Rule {
    definition: RuleDefinition,
    first: usize,
    /// The streams that each leaf's selector matches.
    matching: Vec<Vec<StreamKey>>,
    subjects: Vec<Option<RuleSubject>>,
    free: Vec<u32>,
    of_key: HashMap<StreamKey, u32>,
    /// Whether a stream has ever matched the first leaf.
    was_met: bool,
    made_ns: i64,
    fired: u64,
    suppressed: u64,
    failed: u64,
    missed: u64,
    evaluations: u64,
    last_fired_ns: Option<i64>,
    /// The reason why it last failed to make its call.
    reason: String,
    /// The reason why windows are too short, and the time until which that matters.
    unfilled: Option<(String, i64)>,
}

impl Rules {
    /// Makes the rules of a node, of which there are none yet.
    pub fn new(limits: RuleLimits) -> Self {
        Self {
            streams: RuleStreams::new(limits.clone()),
            limits,
            rules: Vec::new(),
            work: Work::default(),
            now_ns: i64::MIN,
            subjects: 0,
            bindings: 0,
            version: 0,
            cluster_reads: Arc::default(),
            ignored: 0,
            set_backs: 0,
            values: Vec::new(),
        }
    }

    /// Carries out `CREATE RULE …` or `DROP RULE …`. A rule is evaluated first at the next
    /// [`Rules::evaluate`]; one that is replaced begins anew.
    pub fn execute(&mut self, sql: &str, now_ns: i64) -> Result<StatementOutcome, StatementError> {
        self.now_ns = self.now_ns.max(now_ns);
        match statement::parse(sql)? {
            RuleStatement::Create {
                or_replace,
                definition,
            } => {
                let name = definition.name.to_string();
                self.admit(&name, or_replace)?;
                if let Some(at) = self.find(&name) {
                    self.remove(at);
                }
                self.install(*definition, now_ns);
                self.collect_cluster_reads();
                Ok(StatementOutcome::Created(name))
            }
            RuleStatement::Drop { name, if_exists } => {
                self.droppable(&name, if_exists)?;
                if let Some(at) = self.find(&name) {
                    self.remove(at);
                    self.collect_cluster_reads();
                }
                Ok(StatementOutcome::Dropped(name))
            }
        }
    }

    /// Returns the outcome that [`Rules::execute`] would have now; changes nothing.
    pub fn intent(&self, sql: &str) -> Result<StatementOutcome, StatementError> {
        match statement::parse(sql)? {
            RuleStatement::Create {
                or_replace,
                definition,
            } => {
                let name = definition.name.to_string();
                self.admit(&name, or_replace)?;
                Ok(StatementOutcome::Created(name))
            }
            RuleStatement::Drop { name, if_exists } => {
                self.droppable(&name, if_exists)?;
                Ok(StatementOutcome::Dropped(name))
            }
        }
    }

    /// Takes a stream that appeared, of this scope (`u1000`, `all`; empty for the node's own
    /// streams). One beyond the bounds is ignored; [`Rules::ignored`] counts them.
    pub fn stream_added(&mut self, key: StreamKey, descriptor: &Descriptor, scope: &Arc<str>) {
        self.add(key, RuleStream::new(descriptor, false, scope));
    }

    /// Takes a stream of some node of the cluster that appeared, by the descriptor with which rules
    /// name it, of a scope as in [`Rules::stream_added`]. Only selectors of such streams match it
    /// ([`Rules::cluster_reads`]).
    pub fn cluster_stream_added(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        scope: &Arc<str>,
    ) {
        self.add(key, RuleStream::new(descriptor, true, scope));
    }

    fn add(&mut self, key: StreamKey, stream: RuleStream) {
        self.stream_removed(key);
        let descriptor = Arc::clone(&stream.descriptor);
        let is_of_cluster = stream.is_of_cluster;
        if !self.streams.add(key, stream) {
            self.ignored += 1;
            return;
        }
        for rule in 0..self.rules.len() {
            self.meet(rule, key, (&descriptor, is_of_cluster));
        }
    }

    /// Removes a stream that is gone.
    pub fn stream_removed(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.remove(key) else {
            return;
        };
        for reader in &stream.readers {
            let Some(subject) = subject_of(&mut self.rules, reader.rule, reader.subject) else {
                continue;
            };
            let leaf = reader.leaf as usize;
            subject.bound[leaf].retain(|bound| *bound != key);
            if let Some(newest) = &stream.newest {
                subject.last_ns[leaf] = subject.last_ns[leaf].max(newest.seen_ns);
            }
            self.bindings -= 1;
            mark(&mut self.rules, &mut self.work, *reader);
        }
        for at in 0..self.rules.len() {
            let Some(rule) = &mut self.rules[at] else {
                continue;
            };
            for (leaf, keys) in rule.definition.leaves.iter().zip(&mut rule.matching) {
                if matches(leaf, &stream.descriptor, stream.is_of_cluster) {
                    keys.retain(|known| *known != key);
                }
            }
            let Some(subject) = rule.of_key.remove(&key) else {
                continue;
            };
            if rule.definition.tells_absence() {
                if let Some(Some(gone)) = rule.subjects.get_mut(subject as usize) {
                    gone.key = None;
                }
            } else {
                self.remove_subject(at, subject);
            }
            self.take_in(at);
        }
    }

    /// Takes the newest sample of a stream. The cost depends only on the uses of the stream.
    pub fn sample(&mut self, key: StreamKey, sample: &Sample) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let before_ns = stream.newest.as_ref().map(|n| n.seen_ns);
        // One from before the last sign of life moves that back.
        let before_ns = before_ns.filter(|ns| *ns <= sample.ts);
        self.streams.sample(key, sample, self.now_ns);
        self.wake(key, before_ns, LeafWakes::Sample);
    }

    /// Takes a look at a stream that found its newest sample unchanged.
    pub fn looked(&mut self, key: StreamKey, looked_ns: i64) {
        let newest = self.streams.get_mut(key).and_then(|s| s.newest.as_mut());
        let Some(newest) = newest.filter(|n| n.seen_ns < looked_ns) else {
            return;
        };
        let before_ns = std::mem::replace(&mut newest.seen_ns, looked_ns);
        self.wake(key, Some(before_ns), LeafWakes::Look);
    }

    /// Takes samples of a stream from before the oldest that it has, oldest first; later ones are
    /// left out. They fill windows that reach further back than the agent follows the stream.
    pub fn seed(&mut self, key: StreamKey, past: &[Sample]) {
        self.seed_summaries(key, &[], past);
    }

    /// Takes the same, after summaries of still older samples, oldest first.
    pub fn seed_summaries(&mut self, key: StreamKey, older: &[FiringSummary], past: &[Sample]) {
        self.streams.seed(key, older, past, self.now_ns);
        self.wake(key, None, LeafWakes::Sample);
    }

    /// Notes that windows of a stream do not reach back as far as they should. The reports of their
    /// rules have the reason until the windows are long enough.
    pub fn unfilled(&mut self, key: StreamKey, reason: &str) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        for reader in &stream.readers {
            let Some(Some(rule)) = self.rules.get_mut(reader.rule as usize) else {
                continue;
            };
            let leaf = &rule.definition.leaves[reader.leaf as usize];
            if !leaf.of.is_windowed() {
                continue;
            }
            let before_ns = rule.unfilled.as_ref().map_or(i64::MIN, |(_, ns)| *ns);
            let until_ns = self.now_ns.saturating_add(leaf.ns).max(before_ns);
            rule.unfilled = Some((reason.to_owned(), until_ns));
        }
    }

    /// Counts lost samples of a stream, for each rule that reads the stream.
    pub fn missed(&mut self, key: StreamKey, samples: u64) {
        let readers = self.streams.get(key).map(|s| s.readers.as_slice());
        let mut readers: Vec<u32> = readers.into_iter().flatten().map(|r| r.rule).collect();
        readers.dedup();
        for at in readers {
            if let Some(Some(rule)) = self.rules.get_mut(at as usize) {
                rule.missed += samples;
            }
        }
    }

    /// Notes that the call of a rule that has fired was not made.
    pub fn call_failed(&mut self, rule: &str, reason: String) {
        if let Some(at) = self.find(rule)
            && let Some(rule) = &mut self.rules[at]
        {
            rule.failed += 1;
            rule.reason = reason;
        }
    }

    /// Returns the streams whose past is needed, with its length in ns. Each stream is returned
    /// once.
    pub fn take_wanted(&mut self) -> Vec<(StreamKey, i64)> {
        self.streams.take_young()
    }

    /// A number that grows whenever the result of [`Rules::is_read`] may have changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The selectors of all rules that mean streams of all nodes: the same `Arc` until they change.
    pub fn cluster_reads(&self) -> &Arc<[ClusterSelector]> {
        &self.cluster_reads
    }

    fn collect_cluster_reads(&mut self) {
        let rules = self.rules.iter().flatten();
        let reads = cluster_selectors(rules.flat_map(|rule| &rule.definition.leaves));
        if *reads != *self.cluster_reads {
            self.cluster_reads = reads.into();
        }
    }

    /// Whether some rule reads the stream: samples of other streams need not be passed on.
    pub fn is_read(&self, key: StreamKey) -> bool {
        self.streams.get(key).is_some_and(|s| !s.readers.is_empty())
    }

    /// The descriptor of a stream; `None` when it is not followed.
    pub fn descriptor(&self, key: StreamKey) -> Option<&Arc<Descriptor>> {
        self.streams.get(key).map(|s| &s.descriptor)
    }

    /// Whether a sample of the stream is known.
    pub fn has_sample(&self, key: StreamKey) -> bool {
        self.streams.get(key).is_some_and(|s| s.newest.is_some())
    }

    /// Evaluates the subjects that have changed or are due, and hands over each firing.
    pub fn evaluate(&mut self, now_ns: i64, fire: &mut dyn FnMut(Firing)) {
        if now_ns < self.now_ns {
            self.set_back(now_ns);
        }
        self.now_ns = now_ns;
        while let Some(&(at_ns, rule, subject)) = self.work.deadlines.first()
            && at_ns <= now_ns
        {
            self.work.deadlines.pop_first();
            if let Some(due) = subject_of(&mut self.rules, rule, subject) {
                due.deadline_ns = None;
            }
            mark_subject(&mut self.rules, &mut self.work, rule, subject);
        }
        let mut dirty = std::mem::take(&mut self.work.dirty);
        for (rule, subject) in dirty.drain(..) {
            self.evaluate_one(rule, subject, fire);
        }
        // Its room is used again. Evaluating marks nothing.
        if self.work.dirty.is_empty() {
            self.work.dirty = dirty;
        }
    }

    /// The next time at which time alone may change a result, if any. Changed subjects are due now.
    pub fn next_deadline_ns(&self) -> Option<i64> {
        if !self.work.dirty.is_empty() {
            return Some(self.now_ns);
        }
        self.work.deadlines.first().map(|(at_ns, ..)| *at_ns)
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.iter().flatten().count()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Streams that were ignored because of the bounds.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The number of times that the clock was found set back.
    pub fn set_backs(&self) -> u64 {
        self.set_backs
    }

    /// Points and windows that are held, and windows that were refused for lack of room.
    pub fn windows(&self) -> (usize, usize, u64) {
        let (points, windows) = self.streams.held();
        (points, windows, self.streams.windows_refused)
    }

    /// The reports of all rules, by name.
    pub fn reports(&self) -> Vec<RuleReport> {
        let all = self.rules.iter().flatten();
        let reports = all.map(|rule| rule.report(self.now_ns));
        let mut reports: Vec<RuleReport> = reports.collect();
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    fn find(&self, name: &str) -> Option<usize> {
        let is_it = |t: &Option<Rule>| {
            t.as_ref()
                .is_some_and(|t| t.definition.name.as_str() == name)
        };
        self.rules.iter().position(is_it)
    }

    fn admit(&self, name: &str, or_replace: bool) -> Result<(), StatementError> {
        match self.find(name) {
            Some(_) if or_replace => Ok(()),
            Some(_) => Err(StatementError::new(format!(
                "{name} is the name of a rule: CREATE OR REPLACE it, or drop it first"
            ))),
            None if self.len() >= self.limits.rules_max => Err(StatementError::Limit {
                what: "rules".into(),
                max: self.limits.rules_max,
                limit: "rules_max",
            }),
            None => Ok(()),
        }
    }

    fn droppable(&self, name: &str, if_exists: bool) -> Result<(), StatementError> {
        if if_exists || self.find(name).is_some() {
            return Ok(());
        }
        let known = self.rules.iter().flatten();
        let near = near(name, known.map(|t| t.definition.name.as_str()));
        Err(StatementError::new(match near.as_slice() {
            [] => format!("there is no rule {name}: see the table rules"),
            near => format!(
                "there is no rule {name}: did you mean {}?",
                near.join(" or ")
            ),
        }))
    }

    /// Marks the subjects that read a stream, if the change concerns them.
    fn wake(&mut self, key: StreamKey, before_ns: Option<i64>, news: LeafWakes) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        // How old the last sign of life was when conditions were evaluated last.
        let old_ns = before_ns.map(|ns| self.now_ns.saturating_sub(ns));
        for reader in &stream.readers {
            let concerned = match reader.wakes {
                LeafWakes::Never => false,
                LeafWakes::Sample => news == LeafWakes::Sample,
                LeafWakes::Look => true,
            };
            let Some(rule) = self.rules.get(reader.rule as usize) else {
                continue;
            };
            let leaf = rule
                .as_ref()
                .map(|t| &t.definition.leaves[reader.leaf as usize]);
            if concerned && !leaf.is_some_and(|leaf| stays(leaf, old_ns)) {
                mark(&mut self.rules, &mut self.work, *reader);
            }
        }
    }

    fn evaluate_one(&mut self, at: u32, place: u32, fire: &mut dyn FnMut(Firing)) {
        let now_ns = self.now_ns;
        let Some(Some(rule)) = self.rules.get_mut(at as usize) else {
            return;
        };
        let Some(Some(subject)) = rule.subjects.get_mut(place as usize) else {
            return;
        };
        if !std::mem::take(&mut subject.dirty) {
            return;
        }
        rule.evaluations += 1;
        let definition = &rule.definition;
        let (truth, deadline_ns) =
            subject.look(definition, &self.streams, now_ns, &mut self.values);
        subject.fault = truth.err();
        let is_true = truth.unwrap_or(false);
        let rises = is_true && !subject.was_true;
        subject.was_true = is_true;
        let over_ns = |fired_ns: i64| fired_ns.saturating_add(definition.cooldown_ns);
        let rest_ns = subject.fired_ns.map(over_ns).filter(|ns| *ns > now_ns);
        if rises && rest_ns.is_some() {
            rule.suppressed += 1;
        } else if rises {
            match firing(definition, subject, &self.streams, now_ns, &mut self.values) {
                Ok(firing) => {
                    subject.fired_ns = Some(now_ns);
                    rule.fired += 1;
                    rule.last_fired_ns = Some(now_ns);
                    rule.reason.clear();
                    fire(firing);
                }
                Err(reason) => {
                    rule.failed += 1;
                    rule.reason = reason;
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
            // Its absence has been evaluated.
            self.remove_subject(at as usize, place);
            self.take_in(at as usize);
        }
    }

    /// Removes times later than `now_ns`, since the clock was set back.
    fn set_back(&mut self, now_ns: i64) {
        self.set_backs += 1;
        self.streams.set_back(now_ns);
        for at in 0..self.rules.len() {
            let Some(rule) = &mut self.rules[at] else {
                continue;
            };
            let count = rule.subjects.len();
            for subject in rule.subjects.iter_mut().flatten() {
                subject.since_ns = subject.since_ns.min(now_ns);
                subject.fired_ns = subject.fired_ns.map(|ns| ns.min(now_ns));
                for last_ns in &mut subject.last_ns {
                    *last_ns = (*last_ns).min(now_ns);
                }
            }
            for place in 0..count {
                mark_subject(&mut self.rules, &mut self.work, at as u32, place as u32);
            }
        }
    }
}

fn subject_of(rules: &mut [Option<Rule>], rule: u32, subject: u32) -> Option<&mut RuleSubject> {
    let rule = rules.get_mut(rule as usize)?.as_mut()?;
    rule.subjects.get_mut(subject as usize)?.as_mut()
}

fn mark(rules: &mut [Option<Rule>], work: &mut Work, reader: StreamUse) {
    if reader.wakes != LeafWakes::Never {
        mark_subject(rules, work, reader.rule, reader.subject);
    }
}

fn mark_subject(rules: &mut [Option<Rule>], work: &mut Work, rule: u32, subject: u32) {
    if let Some(state) = subject_of(rules, rule, subject)
        && !state.dirty
    {
        state.dirty = true;
        work.dirty.push((rule, subject));
    }
}

/// Whether a sign of life cannot change the value of a leaf, since the previous one was young
/// enough at the last evaluation. The leaf's deadline stands, and is moved when it is reached.
fn stays(leaf: &StreamFunction, old_ns: Option<i64>) -> bool {
    match (leaf.of, old_ns) {
        (LeafFunction::Absent, Some(old_ns)) => old_ns < leaf.ns,
        (LeafFunction::Age, Some(old_ns)) => {
            let at = leaf.crossings.as_ref();
            at.is_some_and(|at| at.iter().all(|ns| old_ns < *ns))
        }
        _ => false,
    }
}

fn matches(leaf: &StreamFunction, descriptor: &Descriptor, is_of_cluster: bool) -> bool {
    leaf.of != LeafFunction::Label
        && (!is_of_cluster || leaf.reads_cluster())
        && leaf
            .selector
            .matches(descriptor.name.as_str(), &descriptor.labels)
}

fn firing(
    definition: &RuleDefinition,
    subject: &RuleSubject,
    streams: &RuleStreams,
    now_ns: i64,
    values: &mut Vec<UncertainValue>,
) -> Result<Firing, String> {
    let explanation = subject.explanation(definition, values);
    let payload = subject
        .payload(definition, streams, now_ns, values)
        .map_err(|fault| format!("PAYLOAD: {fault}: it did not fire"))?;
    Ok(Firing {
        rule: definition.name.to_string(),
        call: definition.call.clone(),
        action: subject.action(definition)?,
        payload,
        target: subject.target(definition)?,
        nodes: definition.nodes.clone(),
        subject: subject.labels.clone(),
        scopes: subject.scopes(streams),
        fired_ns: now_ns,
        expires_ns: definition.expires_ns,
        explanation,
    })
}
