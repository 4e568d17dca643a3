//! Rules with streams that are named, and the firings that came of them.

use std::collections::BTreeMap;

use barograph_model::{Descriptor, Kind, Labels, Name, Sample, StreamKey, Unit, Value, ValueType};
use barograph_rule::{Firing, RuleLimits, RuleReport, Rules};
use barograph_statement::{StatementError, StatementOutcome};

pub(crate) const S: i64 = 1_000_000_000;

pub(crate) struct RuleRig {
    pub rules: Rules,
    pub now: i64,
    pub keys: BTreeMap<String, StreamKey>,
    pub fired: Vec<Firing>,
    next_key: u32,
}

impl Default for RuleRig {
    fn default() -> Self {
        Self::with(RuleLimits::default())
    }
}

/// A stream that is called so: a counter when its name ends with `bytes`, whole when with `bytes`
/// or `count`.
pub(crate) fn described(text: &str) -> Descriptor {
    let name = text.split('{').next().unwrap();
    let is_whole = name.ends_with("bytes") || name.ends_with("count");
    let value_type = match is_whole {
        true => barograph_model::ValueType::Int,
        false if name.ends_with("phase") => barograph_model::ValueType::Text,
        false => barograph_model::ValueType::Float,
    };
    let mut descriptor = descriptor(text, value_type);
    if name.ends_with("bytes") {
        descriptor.kind = Kind::Counter;
    }
    descriptor
}

impl RuleRig {
    pub(crate) fn with(limits: RuleLimits) -> Self {
        Self {
            rules: Rules::new(limits),
            now: 1_000 * S,
            keys: BTreeMap::new(),
            fired: Vec::new(),
            next_key: 0,
        }
    }

    pub(crate) fn execute(&mut self, sql: &str) -> Result<StatementOutcome, StatementError> {
        self.rules.execute(sql, self.now)
    }

    pub(crate) fn create(&mut self, sql: &str) {
        self.execute(&format!("CREATE RULE {sql}")).unwrap();
    }

    pub(crate) fn add(&mut self, text: &str) -> StreamKey {
        self.add_of(text, "")
    }

    /// Adds a stream of this scope.
    pub(crate) fn add_of(&mut self, text: &str, scope: &str) -> StreamKey {
        let key = StreamKey(self.next_key);
        self.next_key += 1;
        self.rules
            .stream_added(key, &described(text), &scope.into());
        self.keys.insert(text.to_owned(), key);
        key
    }

    pub(crate) fn remove(&mut self, text: &str) {
        let key = self.keys.remove(text).unwrap();
        self.rules.stream_removed(key);
    }

    /// A sample of now, of a stream that is made if needed.
    pub(crate) fn set(&mut self, text: &str, value: impl Into<Value>) {
        let key = match self.keys.get(text) {
            Some(key) => *key,
            None => self.add(text),
        };
        self.rules
            .sample(key, &Sample::measured(self.now, value.into()));
    }

    pub(crate) fn look(&mut self, text: &str) {
        self.rules.looked(self.keys[text], self.now);
    }

    /// Evaluates now; gives what fired, as `rule{subject}`.
    pub(crate) fn run(&mut self) -> Vec<String> {
        let mut fired = Vec::new();
        self.rules.evaluate(self.now, &mut |f| fired.push(f));
        let mut names: Vec<String> = fired
            .iter()
            .map(|f| format!("{}{}", f.rule, f.subject))
            .collect();
        names.sort();
        self.fired.append(&mut fired);
        names
    }

    /// Goes on by so many seconds, evaluating at each deadline.
    pub(crate) fn pass(&mut self, seconds: f64) -> Vec<String> {
        let until = self.now + (seconds * 1e9) as i64;
        let mut fired = Vec::new();
        while let Some(at) = self.rules.next_deadline_ns()
            && at <= until
        {
            self.now = self.now.max(at);
            fired.extend(self.run());
        }
        self.now = until;
        fired.extend(self.run());
        fired
    }

    pub(crate) fn report(&self, name: &str) -> RuleReport {
        let mut reports = self.rules.reports().into_iter();
        reports.find(|r| r.name == name).unwrap()
    }

    pub(crate) fn evaluations(&self) -> u64 {
        self.rules.reports().iter().map(|r| r.evaluations).sum()
    }
}

pub(crate) fn descriptor(text: &str, value_type: ValueType) -> Descriptor {
    let (name, labels) = text
        .trim_end_matches('}')
        .split_once('{')
        .unwrap_or((text, ""));
    let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    Descriptor {
        labels: Labels::new(pairs).unwrap(),
        ..Descriptor::gauge(Name::new(name).unwrap(), value_type, Unit::new("").unwrap())
    }
}
