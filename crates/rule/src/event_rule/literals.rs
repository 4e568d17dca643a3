//! The literals that a path must have if a rule is to match: at its beginning, or anywhere in it.
//!
//! They stand alone because they follow from conditions, and the index only compares them.

use std::collections::BTreeMap;

use aho_corasick::AhoCorasick;
use barograph_statement::text::WildcardKind;
use barograph_statement::{CompareOp, Expr, SqlValue};

use super::EventRule;
use super::columns::{DIR, EVENT_RULE_COLUMNS, PATH, place_of};

/// Most beginnings of paths, or literals, under which one rule is found. A rule with more is looked
/// at for every path.
const BEGINNINGS_MAX: usize = 32;
/// Length of a beginning from which on a rule is found by it, in bytes. `/` tells nothing apart.
const BEGINNING_BYTES_MIN: usize = 2;

/// The columns whose text is a part of the path.
const PARTS: [&str; 4] = ["path", "name", "dir", "ext"];

/// A search for many literals in one pass.
#[derive(Debug, Default)]
pub(super) struct LiteralSearch {
    automaton: Option<AhoCorasick>,
    /// The numbers of the automaton's literals.
    numbers: Vec<u32>,
}

impl LiteralSearch {
    /// A search for these literals, which have numbers.
    pub(super) fn new(literals: &BTreeMap<String, u32>) -> Self {
        match literals.is_empty() {
            true => Self::default(),
            false => Self {
                // It fails beyond 2^31 bytes of literals; then each is found everywhere.
                automaton: AhoCorasick::new(literals.keys()).ok(),
                numbers: literals.values().copied().collect(),
            },
        }
    }

    /// The numbers of the literals that are in a text, in ascending order.
    pub(super) fn found(&self, text: &str) -> Vec<u32> {
        let Some(automaton) = &self.automaton else {
            return self.numbers.clone();
        };
        let all = automaton.find_overlapping_iter(text);
        let all = all.filter_map(|found| self.numbers.get(found.pattern().as_usize()));
        let mut all: Vec<u32> = all.copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The literals of which a path must have one if the rule is to match, where they are better than
/// its beginnings; `None` if a beginning is known, or nothing.
pub(super) fn parts_of_rule(rule: &EventRule) -> Option<Vec<String>> {
    if weight(&beginnings_of_rule(rule)) >= BEGINNING_BYTES_MIN {
        return None;
    }
    let all = rule.conditions.iter().filter_map(|part| parts(&part.expr));
    let best = all.max_by_key(|texts| weight(texts))?;
    (weight(&best) > 0).then_some(best)
}

/// The literals of which a path must have one if the expression is true of its event; `None` if it
/// may be true of any path.
fn parts(e: &Expr) -> Option<Vec<String>> {
    match e {
        Expr::And(a, b) => {
            let both = [parts(a), parts(b)].into_iter().flatten();
            both.max_by_key(|texts| weight(texts))
        }
        Expr::Or(a, b) => {
            let mut either = parts(a)?;
            either.extend(parts(b)?);
            (either.len() <= BEGINNINGS_MAX).then_some(either)
        }
        Expr::Like(WildcardKind::Glob, text, pattern) => {
            let pattern = literal(pattern).filter(|_| is_part(text))?;
            Some(vec![longest_literal(pattern).to_owned()])
        }
        Expr::Compare(CompareOp::Eq, _, a, b) => {
            let text = match (&**a, &**b) {
                (a, b) if is_part(a) => literal(b)?,
                (a, b) if is_part(b) => literal(a)?,
                _ => return None,
            };
            Some(vec![text.to_owned()])
        }
        _ => None,
    }
}

/// The longest text of a pattern that stands for itself. Nothing after a class is taken, since a
/// bracket may be a part of one.
fn longest_literal(pattern: &str) -> &str {
    let plain = pattern.find('[').map_or(pattern, |at| &pattern[..at]);
    let pieces = plain.split(['*', '?']);
    pieces.max_by_key(|piece| piece.len()).unwrap_or_default()
}

/// Whether the text of the expression is a part of the path.
fn is_part(e: &Expr) -> bool {
    match e {
        Expr::Column(column) => {
            let name = EVENT_RULE_COLUMNS.get(place_of(column));
            name.is_some_and(|name| PARTS.contains(name))
        }
        _ => false,
    }
}

/// The beginnings of which a path must have one if the rule is to match. No beginning begins with
/// another one, so that a path has at most one of them.
pub(super) fn beginnings_of_rule(rule: &EventRule) -> Vec<String> {
    let all = rule
        .conditions
        .iter()
        .filter_map(|part| beginnings(&part.expr));
    let best = all.max_by_key(|texts| weight(texts));
    let mut best = best.unwrap_or_else(|| vec![String::new()]);
    best.sort();
    best.dedup_by(|next, first| next.starts_with(first.as_str()));
    best
}

/// The length of the shortest beginning: how much the beginnings tell apart.
fn weight(texts: &[String]) -> usize {
    texts.iter().map(String::len).min().unwrap_or(usize::MAX)
}

/// The beginnings of which a path must have one if the expression is true of it; `None` if it may
/// be true of any path.
fn beginnings(e: &Expr) -> Option<Vec<String>> {
    match e {
        Expr::And(a, b) => {
            let both = [beginnings(a), beginnings(b)].into_iter().flatten();
            both.max_by_key(|texts| weight(texts))
        }
        Expr::Or(a, b) => {
            let mut either = beginnings(a)?;
            either.extend(beginnings(b)?);
            (either.len() <= BEGINNINGS_MAX).then_some(either)
        }
        Expr::Like(WildcardKind::Glob, text, pattern) => {
            let pattern = literal(pattern).filter(|_| is_path(text))?;
            let end = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
            Some(vec![pattern[..end].to_owned()])
        }
        Expr::Compare(CompareOp::Eq, _, a, b) => {
            let text = match (&**a, &**b) {
                (a, b) if is_path(a) => literal(b)?,
                (a, b) if is_path(b) => literal(a)?,
                _ => return None,
            };
            Some(vec![text.to_owned()])
        }
        _ => None,
    }
}

/// Whether the expression is the path, or its directory, with which the path begins.
fn is_path(e: &Expr) -> bool {
    matches!(e, Expr::Column(column) if [PATH, DIR].contains(&place_of(column)))
}

fn literal(e: &Expr) -> Option<&str> {
    match e {
        Expr::Literal(SqlValue::Text(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::statement::EventRuleStatement;
    use super::*;

    fn rule(tail: &str) -> EventRule {
        let sql = format!("CREATE RULE r ON EVENT create {tail} THEN RUN '/x'");
        match EventRuleStatement::parse(&sql).unwrap() {
            EventRuleStatement::Create { rule, .. } => *rule,
            EventRuleStatement::Drop { .. } => panic!("{sql}"),
        }
    }

    #[test]
    fn beginnings_of_conditions() {
        let check = |condition: &str, expect: &[&str]| {
            let seen = beginnings_of_rule(&rule(&format!("WHERE {condition}")));
            assert_eq!(seen, expect, "{condition}");
        };
        check("path GLOB '/data/*.h5'", &["/data/"]);
        check("path GLOB '/data/x'", &["/data/x"]);
        check("path GLOB '/a?b*'", &["/a"]);
        check("path GLOB '/a[bc]*'", &["/a"]);
        check("size > 5", &[""]);
        check(
            "size > 5 AND path GLOB '/a/*' AND dir GLOB '/a/b*'",
            &["/a/b"],
        );
        check("path = '/a' OR dir = '/b'", &["/a", "/b"]);
        check("path IN ('/a/b', '/a', '/c')", &["/a", "/c"]);
        check("path GLOB '/a*' OR size > 5", &[""]);
        check("NOT path GLOB '/a*'", &[""]);
        check("path <> '/a'", &[""]);
        check("path LIKE '/a%'", &[""]);
        check("old_path GLOB '/a*' AND name GLOB 'b*'", &[""]);
        check("'/a*' GLOB path", &[""]);
        check("'/a' = path", &["/a"]);
        check(
            "(path GLOB '/a*' AND size > 1) OR path = '/b'",
            &["/a", "/b"],
        );
        check("size > 1 OR (size < 3 AND path GLOB '/a*')", &[""]);
    }

    #[test]
    fn parts_of_conditions() {
        let check = |condition: &str, expect: &[&str]| {
            let seen = parts_of_rule(&rule(&format!("WHERE {condition}")));
            assert_eq!(seen.unwrap_or_default(), expect, "{condition}");
        };
        check("path GLOB '*/project7/*.h5'", &["/project7/"]);
        check("name GLOB '*.tif'", &[".tif"]);
        check("ext = 'tif'", &["tif"]);
        check("ext IN ('tif', 'h5')", &["tif", "h5"]);
        check("ext = 'h5' AND name GLOB 'run?of*'", &["run"]);
        check("path GLOB '/*.h5'", &[".h5"]);
        check("name GLOB '*a[bc]defg*'", &["a"]);
        // A beginning is better.
        check("path GLOB '/data/*.h5'", &[]);
        check("ext = 'h5' OR size > 1", &[]);
        check("NOT ext = 'h5'", &[]);
        check("name GLOB '*'", &[]);
        check("ext = ''", &[]);
        check("old_path GLOB '*abc*'", &[]);
        check("kind = 'create'", &[]);
    }

    #[test]
    fn literals_are_found_also_within_each_other() {
        let literals = ["ab", "b", "abc", "zz"];
        let literals = literals
            .iter()
            .zip(0..)
            .map(|(text, at)| ((*text).to_owned(), at));
        let search = LiteralSearch::new(&literals.collect());
        assert_eq!(search.found("xabcx"), [0, 1, 2]);
        assert_eq!(search.found("bab"), [0, 1]);
        assert_eq!(search.found(""), [0_u32; 0]);
        assert_eq!(LiteralSearch::default().found("a"), [0_u32; 0]);
    }
}
