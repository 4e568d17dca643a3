//! The index of rules by kind, source and the literal beginning of a path, so that most rules are
//! not looked at for an event.

use std::collections::HashMap;

use barograph_statement::text::WildcardKind;
use barograph_statement::{CompareOp, Expr, SqlValue};

use super::EventRule;
use super::columns::{DIR, EVENT_RULE_KINDS, EventRow, KindSet, PATH, place_of};

/// Most beginnings of paths under which one rule is found. A rule with more is looked at for every
/// path.
const BEGINNINGS_MAX: usize = 32;

/// The places of rules in a list, by what their events must have.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    of_kind: Vec<KindRules>,
}

#[derive(Debug, Default)]
struct KindRules {
    of_all_sources: PathRules,
    of_source: HashMap<String, PathRules>,
}

impl RuleIndex {
    /// Makes the index of these rules.
    pub(super) fn new<'r>(rules: impl Iterator<Item = (usize, &'r EventRule)>) -> Self {
        let mut of_kind: Vec<KindRules> = Vec::new();
        of_kind.resize_with(EVENT_RULE_KINDS.len(), KindRules::default);
        for (at, rule) in rules {
            let beginnings = beginnings_of_rule(rule);
            for kind in rule.kinds.places() {
                let rules = &mut of_kind[kind];
                if rule.sources.is_empty() {
                    rules.of_all_sources.add(&beginnings, at);
                }
                for source in &rule.sources {
                    let of_source = rules.of_source.entry(source.clone()).or_default();
                    of_source.add(&beginnings, at);
                }
            }
        }
        for rules in &mut of_kind {
            rules.of_all_sources.settle();
            #[expect(clippy::iter_over_hash_type, reason = "each is settled by itself")]
            for rules in rules.of_source.values_mut() {
                rules.settle();
            }
        }
        Self { of_kind }
    }

    /// Puts the places of the rules that may match an event into `found`, in ascending order.
    pub(super) fn find(&self, row: &EventRow<'_>, found: &mut Vec<u32>) {
        found.clear();
        for rules in KindSet::of(row.facts)
            .places()
            .filter_map(|kind| self.of_kind.get(kind))
        {
            let of_source = rules.of_source.get(row.facts.source);
            let all = [Some(&rules.of_all_sources), of_source];
            for rules in all.into_iter().flatten().filter(|rules| !rules.is_empty()) {
                rules.find(&row.path(), found);
            }
        }
        found.sort_unstable();
        found.dedup();
    }
}

/// Rules by the beginning of the path, which is empty for a rule that takes all paths.
#[derive(Debug, Default)]
struct PathRules {
    /// In the order of the beginnings, each once.
    entries: Vec<PathEntry>,
}

#[derive(Debug)]
struct PathEntry {
    beginning: String,
    rules: Vec<u32>,
    /// The place of the longest other beginning with which this one begins.
    above: Option<u32>,
}

impl PathRules {
    fn add(&mut self, beginnings: &[String], rule: usize) {
        for beginning in beginnings {
            self.entries.push(PathEntry {
                beginning: beginning.clone(),
                rules: vec![rule as u32],
                above: None,
            });
        }
    }

    /// Sorts the entries and connects them, after the last rule is added.
    fn settle(&mut self) {
        self.entries.sort_by(|a, b| a.beginning.cmp(&b.beginning));
        self.entries.dedup_by(|next, first| {
            let is_same = next.beginning == first.beginning;
            if is_same {
                first.rules.append(&mut next.rules);
            }
            is_same
        });
        // The beginnings that the current one begins with, the longest last.
        let mut above: Vec<u32> = Vec::new();
        for at in 0..self.entries.len() {
            while let Some(last) = above.last()
                && !self.entries[at]
                    .beginning
                    .starts_with(&self.entries[*last as usize].beginning)
            {
                above.pop();
            }
            self.entries[at].above = above.last().copied();
            above.push(at as u32);
        }
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the rules of all beginnings of a path. The longest of them is the greatest entry that
    /// is not greater than the path, or is above it.
    fn find(&self, path: &str, found: &mut Vec<u32>) {
        let greater = self
            .entries
            .partition_point(|entry| *entry.beginning <= *path);
        let mut at = greater.checked_sub(1);
        let mut is_met = false;
        while let Some(entry) = at.and_then(|at| self.entries.get(at)) {
            is_met = is_met || path.starts_with(&entry.beginning);
            if is_met {
                found.extend_from_slice(&entry.rules);
            }
            at = entry.above.map(|above| above as usize);
        }
    }
}

/// The beginnings of which a path must have one if the rule is to match. No beginning begins with
/// another one, so that a path has at most one of them.
fn beginnings_of_rule(rule: &EventRule) -> Vec<String> {
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
    use super::super::columns::EventFacts;
    use super::super::statement::EventRuleStatement;
    use super::*;

    fn rule(tail: &str) -> EventRule {
        rule_on("create", tail)
    }

    fn rule_on(kinds: &str, tail: &str) -> EventRule {
        let sql = format!("CREATE RULE r ON EVENT {kinds} {tail} THEN RUN '/x'");
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
    fn rules_are_found_by_all_beginnings_of_a_path() {
        let texts = ["", "/", "/a", "/a/b", "/a/b/c", "/a/c", "/b", "/a/b/"];
        let mut rules = PathRules::default();
        for (at, text) in texts.iter().enumerate() {
            rules.add(&[(*text).to_owned()], at);
        }
        rules.settle();
        for path in [
            "", "x", "/", "/a", "/a/b", "/a/bb", "/a/b/", "/a/b/c/d", "/a/b/d", "/a/d", "/z", "~",
        ] {
            let mut found = Vec::new();
            rules.find(path, &mut found);
            found.sort_unstable();
            let all = texts.iter().enumerate();
            let expect = all.filter(|(_, text)| path.starts_with(**text));
            let expect: Vec<u32> = expect.map(|(at, _)| at as u32).collect();
            assert_eq!(found, expect, "{path}");
        }
    }

    #[test]
    fn rules_that_cannot_match_are_not_looked_at() {
        let rules = [
            rule("FROM 's' WHERE path GLOB '/a/*'"),
            rule("WHERE path GLOB '/a/*'"),
            rule("FROM 't', 's'"),
            rule(""),
        ];
        let index = RuleIndex::new(rules.iter().enumerate());
        let check = |kind: &str, source: &str, path: &str, expect: &[u32]| {
            let facts = EventFacts {
                kind,
                source,
                path: path.as_bytes(),
                ..EventFacts::default()
            };
            let mut found = Vec::new();
            index.find(&EventRow::new(&facts), &mut found);
            assert_eq!(found, expect, "{kind} {source} {path}");
        };
        check("create", "s", "/a/b", &[0, 1, 2, 3]);
        check("create", "s", "/b", &[2, 3]);
        check("create", "t", "/a/", &[1, 2, 3]);
        check("create", "u", "", &[3]);
        check("unlink", "s", "/a/b", &[]);
        check("unknown", "s", "/a/b", &[]);
    }

    #[test]
    fn found_contents_count_as_close_write() {
        let of = |kinds: &str| rule_on(kinds, "WHERE path GLOB '/a/*'");
        let rules = [
            of("close_write"),
            of("create, close_write"),
            of("write"),
            of("mkdir"),
        ];
        let index = RuleIndex::new(rules.iter().enumerate());
        let check = |kind: &str, reconciled: bool, directory: bool, expect: &[u32]| {
            let facts = EventFacts {
                kind,
                path: b"/a/b",
                reconciled,
                directory,
                ..EventFacts::default()
            };
            let mut found = Vec::new();
            index.find(&EventRow::new(&facts), &mut found);
            assert_eq!(found, expect, "{kind} {reconciled} {directory}");
        };
        let facts = EventFacts {
            kind: "create",
            path: b"/a/b",
            beyond: true,
            ..EventFacts::default()
        };
        let mut found = Vec::new();
        index.find(&EventRow::new(&facts), &mut found);
        assert_eq!(found, [0, 1]);
        check("create", true, false, &[0, 1]);
        check("create", false, false, &[1]);
        check("create", true, true, &[1]);
        check("write", true, false, &[0, 1, 2]);
        check("write", false, false, &[2]);
        check("close_write", false, false, &[0, 1]);
        check("close_write", true, false, &[0, 1]);
        check("rename", true, false, &[]);
        check("mkdir", true, true, &[3]);
    }
}
