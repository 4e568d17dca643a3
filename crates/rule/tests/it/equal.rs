//! Rules against an evaluator that keeps every sample and computes everything from the beginning.

use std::collections::{BTreeMap, BTreeSet};

use barograph_model::{Labels, Quality, Sample};
use proptest::prelude::*;

use crate::rig::{RuleRig, S, described, descriptor};

/// A stream as it was told: each sample, and until when it was seen to hold.
#[derive(Clone, Default)]
struct Told {
    samples: Vec<(i64, f64, i64)>,
    /// Times of last looks: nobody looked from then until the next sample.
    last_looks: BTreeSet<i64>,
    is_counter: bool,
}

impl Told {
    fn sample(&mut self, ts: i64, value: f64) {
        self.samples.retain(|(at, ..)| *at <= ts);
        self.last_looks.retain(|at| *at < ts);
        self.samples.push((ts, value, ts));
    }

    fn end(&mut self, ts: i64, value: f64) {
        self.sample(ts, value);
        self.last_looks.insert(ts);
    }

    /// The last sample up to a time; `None` if nobody looked then.
    fn held_at(&self, ts: i64) -> Option<f64> {
        let last = self.samples.iter().rposition(|s| s.0 <= ts)?;
        (!self.is_last_look(last)).then_some(self.samples[last].1)
    }

    /// Whether the sample is a mark; a later one of the same time is none.
    fn is_last_look(&self, at: usize) -> bool {
        let is_last = self
            .samples
            .get(at + 1)
            .is_none_or(|s| s.0 > self.samples[at].0);
        is_last && self.last_looks.contains(&self.samples[at].0)
    }

    fn look(&mut self, at: i64) {
        if let Some(last) = self.samples.last_mut() {
            last.2 = last.2.max(at);
        }
    }

    fn seen(&self) -> Option<i64> {
        self.samples.last().map(|(_, _, seen)| *seen)
    }

    fn latest(&self) -> Option<f64> {
        let (_, value, _) = self.samples.last()?;
        (!value.is_nan()).then_some(*value)
    }

    fn age(&self, now: i64) -> Option<f64> {
        Some((now - self.seen()?).max(0) as f64 / 1e9)
    }

    /// The window that ends at the last sign of life, unless that is too old.
    fn window(&self, now: i64, w: i64) -> Option<(i64, i64)> {
        let end = self.seen()?;
        (now - end < w).then_some((end - w, end))
    }

    /// Values and the times from and to which they held.
    fn holds(&self) -> Vec<(i64, i64, f64)> {
        let next = |i: usize| self.samples.get(i + 1).map_or(self.samples[i].2, |s| s.0);
        let all = self.samples.iter().enumerate();
        let known = all.filter(|(i, _)| !self.is_last_look(*i));
        known
            .map(|(i, (ts, value, _))| (*ts, next(i), *value))
            .collect()
    }

    fn rate(&self, now: i64, w: i64) -> Option<f64> {
        let (from, to) = self.window(now, w)?;
        // Stretches of time with a known slope.
        let mut slopes: Vec<(i64, i64, f64)> = Vec::new();
        for (at, pair) in self.samples.windows(2).enumerate() {
            let ((t0, v0, held), (t1, v1, _)) = (pair[0], pair[1]);
            let held = if held >= t1 { t0 } else { held };
            if !v0.is_nan() && !self.is_last_look(at) {
                slopes.push((t0, held, 0.0));
            }
            let change = v1 - v0;
            let is_known = !change.is_nan() && (!self.is_counter || change >= 0.0);
            if is_known && t1 > held {
                slopes.push((held, t1, change / (t1 - held) as f64));
            }
        }
        if let Some((ts, value, held)) = self.samples.last()
            && !value.is_nan()
            && !self.is_last_look(self.samples.len() - 1)
        {
            slopes.push((*ts, *held, 0.0));
        }
        let part = |a: i64, b: i64| (b.min(to) - a.max(from)).max(0) as f64;
        let time: f64 = slopes.iter().map(|(a, b, _)| part(*a, *b)).sum();
        let change: f64 = slopes
            .iter()
            .map(|(a, b, slope)| slope * part(*a, *b))
            .sum();
        (time > 0.0).then(|| change / time * 1e9)
    }

    fn delta(&self, now: i64, w: i64) -> Option<f64> {
        let (from, _) = self.window(now, w)?;
        let latest = self.latest()?;
        if !self.is_counter {
            let first = || Some(self.samples.iter().find(|s| s.0 > from)?.1);
            let before = self.held_at(from).or_else(first)?;
            return (!before.is_nan()).then_some(latest - before);
        }
        let pairs = self.samples.windows(2).filter(|p| p[1].0 > from);
        let steps = pairs.filter(|p| p[1].0 > p[0].0).map(|p| p[1].1 - p[0].1);
        Some(steps.filter(|d| *d > 0.0).sum())
    }

    fn avg(&self, now: i64, w: i64) -> Option<f64> {
        let (from, to) = self.window(now, w)?;
        let holds = self.holds();
        let known = holds.iter().filter(|h| !h.2.is_nan());
        let parts: Vec<(f64, f64)> = known
            .map(|(a, b, v)| ((b.min(&to) - a.max(&from)).max(0) as f64, *v))
            .collect();
        let time: f64 = parts.iter().map(|p| p.0).sum();
        let area: f64 = parts.iter().map(|p| p.0 * p.1).sum();
        if time > 0.0 {
            Some(area / time)
        } else {
            self.latest()
        }
    }

    fn extreme(&self, now: i64, w: i64, of: fn(f64, f64) -> f64) -> Option<f64> {
        let (from, _) = self.window(now, w)?;
        let inside = self.samples.iter().filter(|s| s.0 > from);
        let values = inside.map(|s| s.1).chain(self.held_at(from));
        values.filter(|v| !v.is_nan()).reduce(of)
    }

    fn count(&self, now: i64, w: i64) -> f64 {
        self.samples.iter().filter(|s| s.0 > now - w).count() as f64
    }

    fn ago(&self, now: i64, w: i64) -> Option<f64> {
        self.held_at(now - w).filter(|held| !held.is_nan())
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Of which stream, how much later than the newest (or earlier), what.
    Sample(usize, i64, i32),
    Look(usize),
    /// The last look before a time in which nobody looks.
    End(usize),
    Pass(i64),
    Remove(usize),
}

/// Streams of three names; the last is never removed.
const STREAMS: [&str; 8] = [
    "a.bytes{k=0}",
    "a.bytes{k=1}",
    "a.bytes{k=2}",
    "b.level{k=0,m=0}",
    "b.level{k=0,m=1}",
    "b.level{k=1,m=0}",
    "g.level{q=0}",
    "g.level{q=1}",
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ms = 1_000_000_i64;
    let step = prop_oneof![
        6 => (0..STREAMS.len(), -400..900_i64, -3..9_i32)
            .prop_map(move |(at, by, value)| Step::Sample(at, by * ms, value)),
        3 => (0..STREAMS.len()).prop_map(Step::Look),
        1 => (0..STREAMS.len()).prop_map(Step::End),
        4 => (1..2_500_i64).prop_map(move |by| Step::Pass(by * ms + 7)),
        1 => (0..6_usize).prop_map(Step::Remove),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Both worlds, told the same.
struct Pair {
    rig: RuleRig,
    told: BTreeMap<String, Told>,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            rig: RuleRig::default(),
            told: BTreeMap::new(),
        };
        pair.sample(STREAMS[6], 0, 0);
        pair
    }

    fn sample(&mut self, text: &str, by: i64, value: i32) {
        if !self.rig.keys.contains_key(text) {
            self.rig.add(text);
        }
        let descriptor = described(text);
        let is_whole = descriptor.value_type == barograph_model::ValueType::Int;
        let told = self.told.entry(text.to_owned()).or_insert_with(|| Told {
            is_counter: is_whole,
            ..Told::default()
        });
        // A little in the past, never in the future; -3 is no number where that can be.
        let ts = (self.rig.now + by.min(0)).max(1);
        let number = if value == -3 && !is_whole {
            f64::NAN
        } else {
            f64::from(value)
        };
        told.sample(ts, number);
        let value: barograph_model::Value = if is_whole {
            i64::from(value).into()
        } else {
            number.into()
        };
        let key = self.rig.keys[text];
        self.rig.rules.sample(key, &Sample::measured(ts, value));
    }

    fn look(&mut self, text: &str) {
        if let Some(told) = self.told.get_mut(text)
            // The look after a last look gives a sample.
            && !told.is_last_look(told.samples.len() - 1)
        {
            told.look(self.rig.now);
            self.rig.look(text);
        }
    }

    fn end(&mut self, text: &str) {
        let Some(told) = self.told.get_mut(text) else {
            return;
        };
        let Some(&(_, number, seen)) = told.samples.last() else {
            return;
        };
        told.end(seen, number);
        let value: barograph_model::Value = match told.is_counter {
            true => (number as i64).into(),
            false => number.into(),
        };
        let mut sample = Sample::measured(seen, value);
        sample.quality = Quality::Ended;
        self.rig.rules.sample(self.rig.keys[text], &sample);
    }

    fn remove(&mut self, text: &str) {
        if self.told.remove(text).is_some() {
            self.rig.remove(text);
        }
    }
}

fn labels(text: &str) -> Labels {
    descriptor(text, barograph_model::ValueType::Int).labels
}

/// The streams of a metric whose labels agree with a subject's; the one with the newest sample. Of
/// equals the one that was added last.
fn other<'a>(pair: &'a Pair, subject: &str, metric: &str) -> Option<&'a Told> {
    let own = labels(subject);
    let agrees = |text: &str| {
        let other = labels(text);
        own.iter().all(|(n, v)| other.get(n).is_none_or(|o| o == v))
    };
    let meant = |text: &str| text.starts_with(&format!("{metric}{{")) && agrees(text);
    let found = pair.told.iter().filter(|(text, _)| meant(text));
    let newest =
        |(text, told): &(&String, &Told)| (told.samples.last().map(|s| s.0), pair.rig.keys[*text]);
    found.max_by_key(newest).map(|(_, told)| told)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn functions_are_those_of_all_samples(steps in steps()) {
        let w = 3 * S;
        let mut pair = Pair::new();
        for metric in ["a.bytes", "b.level"] {
            let of = |f: &str| format!("'{f}', {f}('{metric}', '3 s')");
            let timed = ["rate", "delta", "avg_over", "min_over", "max_over", "count_over", "ago"];
            let members: Vec<String> = timed.iter().map(|f| of(f)).collect();
            pair.rig.create(&format!(
                "{metric} WHEN (latest('{metric}') IS NULL OR 1 = 1) AND latest('flip.count') = 1 CALL 'x' \
                 PAYLOAD json_object('latest', latest('{metric}'), 'age', age('{metric}'), {})",
                members.join(", ")
            ));
        }
        for step in steps {
            match step {
                Step::Sample(at, by, value) => pair.sample(STREAMS[at], by, value),
                Step::Look(at) => pair.look(STREAMS[at]),
                Step::End(at) => pair.end(STREAMS[at]),
                Step::Pass(by) => drop(pair.rig.pass(by as f64 / 1e9)),
                Step::Remove(at) => pair.remove(STREAMS[at]),
            }
            pair.rig.fired.clear();
            for flip in [0_i64, 1] {
                pair.rig.set("flip.count", flip);
                pair.rig.run();
            }
            let now = pair.rig.now;
            let subjects = pair.told.keys().filter(|t| !t.starts_with('g')).count();
            prop_assert_eq!(pair.rig.fired.len(), subjects);
            for firing in &pair.rig.fired {
                let text = format!("{}{}", firing.rule, firing.subject);
                let told = &pair.told[&text];
                let expect = [
                    ("latest", told.latest()),
                    ("age", told.age(now)),
                    ("rate", told.rate(now, w)),
                    ("delta", told.delta(now, w)),
                    ("avg_over", told.avg(now, w)),
                    ("min_over", told.extreme(now, w, f64::min)),
                    ("max_over", told.extreme(now, w, f64::max)),
                    ("count_over", Some(told.count(now, w))),
                    ("ago", told.ago(now, w)),
                ];
                for (name, expect) in expect {
                    let seen = firing.payload[name].as_f64();
                    let same = match (seen, expect) {
                        (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * (1.0 + b.abs()),
                        (a, b) => a == b,
                    };
                    prop_assert!(same, "{} of {}: {:?}, not {:?}: {:?} at {}", name, text, seen,
                        expect, told.samples, now);
                }
            }
        }
    }

    #[test]
    fn firings_are_those_of_looking_always(steps in steps()) {
        let mut pair = Pair::new();
        let mut slow: Vec<Slow> = CONDITIONS.iter().map(|c| Slow::new(*c)).collect();
        for (at, (sql, ..)) in CONDITIONS.iter().enumerate() {
            let cooldown = if at % 2 == 0 { "" } else { "COOLDOWN '2 s'" };
            pair.rig.create(&format!("t{at} WHEN {sql} CALL 'x' {cooldown}"));
        }
        for step in steps {
            match step {
                Step::Sample(at, by, value) => {
                    pair.sample(STREAMS[at], by, value);
                    settle(&mut pair, &mut slow)?;
                }
                Step::Look(at) => pair.look(STREAMS[at]),
                Step::End(at) => pair.end(STREAMS[at]),
                // In small steps, for those who look always, and not only when told to.
                Step::Pass(by) => {
                    let until = pair.rig.now + by;
                    while pair.rig.now < until {
                        let due = pair.rig.rules.next_deadline_ns().unwrap_or(i64::MAX);
                        let step = (pair.rig.now + S / 10).min(until);
                        pair.rig.now = step.min(due.max(pair.rig.now));
                        settle(&mut pair, &mut slow)?;
                    }
                }
                Step::Remove(at) => {
                    pair.remove(STREAMS[at]);
                    for slow in slow.iter_mut() {
                        slow.forget(STREAMS[at]);
                    }
                }
            }
            settle(&mut pair, &mut slow)?;
        }
    }
}

/// Truth of a condition for a subject; takes the pair of worlds, the subject's name and the time
/// since when it is there.
type Truth = fn(&Pair, &str, i64) -> Option<bool>;

/// SQL, the metric of its subjects, whether it asks for absence, what it means.
type Condition = (&'static str, &'static str, bool, Truth);

const CONDITIONS: [Condition; 9] = [
    ("latest('a.bytes') > 5", "a.bytes", false, |p, s, _| {
        Some(p.told.get(s)?.latest()? > 5.0)
    }),
    (
        "rate('a.bytes', '4 s') > 0.3719",
        "a.bytes",
        false,
        |p, s, _| Some(p.told.get(s)?.rate(p.rig.now, 4 * S)? > 0.3719),
    ),
    (
        "age('a.bytes') > 1.25 AND latest('b.level') >= 3",
        "a.bytes",
        false,
        |p, s, _| {
            let old = p.told.get(s)?.age(p.rig.now)? > 1.25;
            let level = other(p, s, "b.level").and_then(Told::latest)?;
            Some(old && level >= 3.0)
        },
    ),
    (
        "count_over('a.bytes', '5 s') < 2 OR max_over('b.level', '4 s') - min_over('b.level', '4 s') > 3.5",
        "a.bytes",
        false,
        |p, s, _| {
            let few = p
                .told
                .get(s)?
                .samples
                .last()
                .map(|_| p.told[s].count(p.rig.now, 5 * S) < 2.0);
            let other = other(p, s, "b.level").filter(|o| !o.samples.is_empty());
            let spread = other.and_then(|o| {
                Some(
                    o.extreme(p.rig.now, 4 * S, f64::max)?
                        - o.extreme(p.rig.now, 4 * S, f64::min)?,
                )
            });
            if few == Some(true) {
                Some(true)
            } else {
                spread.map(|s| s > 3.5)
            }
        },
    ),
    (
        "latest('a.bytes') - ago('a.bytes', '3 s') > 2",
        "a.bytes",
        false,
        |p, s, _| {
            let told = p.told.get(s)?;
            Some(told.latest()? - told.ago(p.rig.now, 3 * S)? > 2.0)
        },
    ),
    (
        "avg_over('b.level', '4 s') > 4.1237 AND NOT absent('g.level', '2 s')",
        "b.level",
        true,
        |p, s, _| {
            let seen = p
                .told
                .iter()
                .filter(|(t, _)| t.starts_with('g'))
                .filter_map(|(_, t)| t.seen());
            let absent = p.rig.now - seen.max()? >= 2 * S;
            Some(p.told.get(s)?.avg(p.rig.now, 4 * S)? > 4.1237 && !absent)
        },
    ),
    (
        "delta('a.bytes', '4 s') >= 3",
        "a.bytes",
        false,
        |p, s, _| Some(p.told.get(s)?.delta(p.rig.now, 4 * S)? >= 3.0),
    ),
    (
        "absent('a.bytes', '3 s')",
        "a.bytes",
        true,
        |p, s, since| {
            let seen = p.told.get(s).and_then(Told::seen);
            Some(p.rig.now - seen.unwrap_or(since).max(since) >= 3 * S)
        },
    ),
    (
        "age('b.level') BETWEEN 0.75 AND 2 AND latest('g.level') >= 0",
        "b.level",
        false,
        |p, s, _| {
            let age = p.told.get(s)?.age(p.rig.now)?;
            Some((0.75..=2.0).contains(&age) && other(p, s, "g.level")?.latest()? >= 0.0)
        },
    ),
];

/// One rule, looked at always.
struct Slow {
    condition: Condition,
    subjects: BTreeMap<String, Watched>,
}

#[derive(Clone, Copy, Default)]
struct Watched {
    was_true: bool,
    fired: Option<i64>,
    /// The last sign of life, and that of a stream that is gone.
    last: i64,
    gone: i64,
}

impl Slow {
    fn new(condition: Condition) -> Self {
        Self {
            condition,
            subjects: BTreeMap::new(),
        }
    }

    /// A stream is gone, and its subject with it unless its absence is asked for.
    fn forget(&mut self, text: &str) {
        if !self.condition.2 {
            self.subjects.remove(text);
        } else if let Some(watched) = self.subjects.get_mut(text) {
            watched.gone = watched.gone.max(watched.last);
        }
    }

    fn look(&mut self, pair: &Pair, cooldown: i64) -> BTreeSet<String> {
        let (_, metric, _, truth) = self.condition;
        let prefix = format!("{metric}{{");
        for text in pair.told.keys().filter(|t| t.starts_with(&prefix)) {
            self.subjects.entry(text.clone()).or_default();
        }
        let mut fired = BTreeSet::new();
        for (text, watched) in &mut self.subjects {
            if let Some(seen) = pair.told.get(text).and_then(Told::seen) {
                watched.last = seen;
            }
            let is_true = truth(pair, text, watched.gone) == Some(true);
            let rests = watched.fired.is_some_and(|at| pair.rig.now - at < cooldown);
            if is_true && !watched.was_true && !rests {
                watched.fired = Some(pair.rig.now);
                fired.insert(text.clone());
            }
            watched.was_true = is_true;
        }
        fired
    }
}

fn settle(pair: &mut Pair, slow: &mut [Slow]) -> Result<(), TestCaseError> {
    pair.rig.fired.clear();
    pair.rig.run();
    for (at, slow) in slow.iter_mut().enumerate() {
        let cooldown = if at % 2 == 0 { 0 } else { 2 * S };
        let expect = slow.look(pair, cooldown);
        let name = format!("t{at}");
        let own = pair.rig.fired.iter().filter(|f| f.rule == name);
        let is_of_stream = |f: &&barograph_rule::Firing| !f.subject.is_empty();
        let seen: BTreeSet<String> = own
            .filter(is_of_stream)
            .map(|f| format!("{}{}", slow.condition.1, f.subject))
            .collect();
        prop_assert_eq!(seen, expect, "{} at {}", CONDITIONS[at].0, pair.rig.now);
    }
    Ok(())
}
