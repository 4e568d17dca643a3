//! Texts that are almost PromQL are answered or refused within bounds, without a panic. The fuzz
//! target `promql` tests the same for longer.

use std::sync::atomic::AtomicBool;

use barograph_model::{ManualClock, Value, ValueType};
use barograph_server::promql::{
    FaultKind, Grid, PromQuery, QueryAnswer, QueryContext, Regexes, matchers,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::fixture::{S, T0, descriptor};
use crate::memory::MemoryPast;
use crate::prometheus_equal::QUERIES;

const PIECES: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "`",
    "\\",
    "#",
    "\n",
    ",",
    "=",
    "=~",
    "!~",
    "-",
    "+",
    "^",
    "@",
    ":",
    " offset ",
    " by ",
    " bool ",
    " on(",
    "group_left(",
    "5m",
    "1e30",
    "-1",
    "0x",
    "inf",
    "NaN",
    "1y",
    "9999999999y",
    "é",
    "\u{0}",
    "sum",
    "topk",
    "rate",
    "x[1m]",
    "label_replace",
    "$1",
    "(?:",
    ".*",
    "__name__",
]; // fmt: skip

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % n.max(1)
    }

    /// A query with some characters removed, doubled or replaced.
    fn text(&mut self) -> String {
        let mut chars: Vec<char> = QUERIES[self.below(QUERIES.len())].chars().collect();
        for _ in 0..=self.below(4) {
            let at = self.below(chars.len());
            match self.below(4) {
                0 if !chars.is_empty() => drop(chars.remove(at)),
                1 => {
                    let other = QUERIES[self.below(QUERIES.len())];
                    let cut = self.below(other.len());
                    chars.truncate(at);
                    chars.extend(other.chars().skip(cut));
                }
                _ => drop(chars.splice(at..at, PIECES[self.below(PIECES.len())].chars())),
            }
        }
        chars.into_iter().collect()
    }
}

/// Two temperatures and a number of cores, over 133 s.
fn past() -> MemoryPast {
    let mut past = MemoryPast::default();
    for (name, device) in [
        ("t.temperature", "a"),
        ("t.temperature", "b"),
        ("t.cores", "a"),
    ] {
        let samples = (0..20).map(|i| (T0 + i * 7 * S, Value::Float((i * i % 5) as f64)));
        past.add(
            &descriptor(name, device, ValueType::Float),
            samples,
            3 * S,
            T0 + 140 * S,
        );
    }
    past
}

/// A change to a query, with its positions.
type Edit = (u8, Index, Index, Index);

/// A query with some characters removed, inserted or replaced, or made an operand of another one.
fn edited(query: &str, edits: &[Edit]) -> String {
    let mut chars: Vec<char> = query.chars().collect();
    for (kind, at, from, cut) in edits {
        let other = QUERIES[from.index(QUERIES.len())];
        let at = at.index(chars.len() + 1);
        match kind {
            0 if at < chars.len() => drop(chars.remove(at)),
            1 => {
                chars.truncate(at);
                chars.extend(other.chars().skip(cut.index(other.len())));
            }
            2 => {
                const BETWEEN: [&str; 6] = [
                    " + ",
                    " or ",
                    " > bool ",
                    " and ",
                    " ^ ",
                    " * on(node) group_left ",
                ];
                let between = BETWEEN[cut.index(BETWEEN.len())];
                let one: String = chars.iter().collect();
                chars = format!("({one}){between}({other})").chars().collect();
            }
            _ => {
                let piece = PIECES[from.index(PIECES.len())];
                drop(chars.splice(at..at, piece.chars()));
            }
        }
    }
    chars.into_iter().collect()
}

/// The number of points in an answer.
fn points(answer: &QueryAnswer) -> usize {
    match answer {
        QueryAnswer::Scalar(values) => values.len(),
        QueryAnswer::Vector(series) => series.iter().map(|s| s.points.len()).sum(),
        QueryAnswer::Matrix(_) | QueryAnswer::Text(_) => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    /// The bound on points refuses a query or changes nothing; evaluation itself asserts that all
    /// are counted.
    #[test]
    fn within_the_points(
        query in select(QUERIES),
        edits in vec(any::<Edit>().prop_map(|(kind, a, b, c)| (kind % 5, a, b, c)), 0..5),
        points_max in 1_usize..400,
    ) {
        let text = edited(query, &edits);
        let Ok(query) = PromQuery::parse(&text) else { return Ok(()) };
        let (past, clock, cancel) = (past(), ManualClock::at(T0), AtomicBool::new(false));
        for grid in [Grid::instant(T0 + 100 * S), Grid::between(T0, T0 + 100 * S, 9 * S)] {
            let ask = |points_max: usize| {
                let context = QueryContext {
                    holds: &barograph_model::unbounded,
                    past: &past,
                    clock: &clock,
                    cancel: &cancel,
                    samples_max: 1_000,
                    points_max,
                    until_ns: i64::MAX,
                };
                query.answer(&context, grid)
            };
            match (ask(1_000_000), ask(points_max)) {
                (Ok(free), Ok(bound)) => {
                    prop_assert_eq!(format!("{:?}", free), format!("{:?}", bound), "{}", text);
                    prop_assert!(points(&bound) <= points_max, "{}", text);
                }
                (_, Err(fault)) if fault.message.contains("points of series at once") => {
                    prop_assert_eq!(fault.kind, FaultKind::Execution);
                }
                (Err(free), Err(bound)) => prop_assert_eq!(free.message, bound.message),
                (free, bound) => prop_assert!(false, "{}: {:?}, {:?}", text, free, bound),
            }
        }
    }
}

#[test]
fn almost_promql() {
    let past = past();
    let (clock, cancel) = (ManualClock::at(T0), AtomicBool::new(false));
    let context = QueryContext {
        holds: &barograph_model::unbounded,
        past: &past,
        clock: &clock,
        cancel: &cancel,
        samples_max: 10_000,
        points_max: 10_000,
        until_ns: i64::MAX,
    };
    let mut chance = Chance(3);
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..5_000 {
        let text = chance.text();
        let _ = matchers(&text, &mut Regexes::default());
        for grid in [
            Grid::instant(T0 + 100 * S),
            Grid::between(T0, T0 + 100 * S, 9 * S),
        ] {
            match PromQuery::parse(&text).and_then(|query| query.answer(&context, grid)) {
                Ok(_) => answered += 1,
                Err(fault) => {
                    assert!(!fault.message.is_empty(), "{text}");
                    refused += 1;
                }
            }
        }
    }
    assert!(
        answered > 500 && refused > 500,
        "{answered} answered, {refused} refused"
    );
}
