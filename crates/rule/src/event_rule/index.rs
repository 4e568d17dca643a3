//! The index of rules by kind, source and the literal beginning of a path, or a literal in it, so
//! that most rules are not looked at for an event.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use super::EventRule;
use super::columns::{EVENT_RULE_KINDS, EventRow, KindSet};
use super::literals::{LiteralSearch, beginnings_of_rule, parts_of_rule};

/// The places of rules in a list, by what their events must have.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    of_kind: Vec<KindRules>,
    /// The literals of all rules that are found by one.
    search: LiteralSearch,
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
        let mut literals = BTreeMap::new();
        for (at, rule) in rules {
            let place = match parts_of_rule(rule) {
                Some(parts) => {
                    let number = |part: String| {
                        let next = literals.len() as u32;
                        *literals.entry(part).or_insert(next)
                    };
                    RulePlace::Parts(parts.into_iter().map(number).collect())
                }
                None => RulePlace::Beginnings(beginnings_of_rule(rule)),
            };
            for kind in rule.kinds.places() {
                let rules = &mut of_kind[kind];
                if rule.sources.is_empty() {
                    rules.of_all_sources.add(&place, at);
                }
                for source in &rule.sources {
                    let of_source = rules.of_source.entry(source.clone()).or_default();
                    of_source.add(&place, at);
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
        let search = LiteralSearch::new(&literals);
        Self { of_kind, search }
    }

    /// Puts the places of the rules that may match an event into `found`, in ascending order.
    pub(super) fn find(&self, row: &EventRow<'_>, found: &mut Vec<u32>) {
        found.clear();
        // The literals in the path, looked for once, if any rule needs them.
        let parts = OnceCell::new();
        for rules in KindSet::of(row.facts)
            .places()
            .filter_map(|kind| self.of_kind.get(kind))
        {
            let of_source = rules.of_source.get(row.facts.source);
            let all = [Some(&rules.of_all_sources), of_source];
            for rules in all.into_iter().flatten().filter(|rules| !rules.is_empty()) {
                rules.find(&row.path(), found);
                if !rules.of_part.is_empty() {
                    let parts = parts.get_or_init(|| self.search.found(&row.path()));
                    rules.find_parts(parts, found);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
    }
}

/// What a path must have if a rule is to match.
enum RulePlace {
    /// One of these beginnings.
    Beginnings(Vec<String>),
    /// One of the literals with these numbers.
    Parts(Vec<u32>),
}

/// Rules by the beginning of the path, which is empty for a rule that takes all paths, or by a
/// literal in it.
#[derive(Debug, Default)]
struct PathRules {
    /// In the order of the beginnings, each once.
    entries: Vec<PathEntry>,
    /// Numbers of literals and rules, in their order.
    of_part: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct PathEntry {
    beginning: String,
    rules: Vec<u32>,
    /// The place of the longest other beginning with which this one begins.
    above: Option<u32>,
}

impl PathRules {
    fn add(&mut self, place: &RulePlace, rule: usize) {
        let beginnings = match place {
            RulePlace::Beginnings(beginnings) => beginnings,
            RulePlace::Parts(parts) => {
                let parts = parts.iter().map(|part| (*part, rule as u32));
                return self.of_part.extend(parts);
            }
        };
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
        self.of_part.sort_unstable();
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
        self.entries.is_empty() && self.of_part.is_empty()
    }

    /// Adds the rules of the literals with these numbers.
    fn find_parts(&self, parts: &[u32], found: &mut Vec<u32>) {
        for part in parts {
            let from = self.of_part.partition_point(|(at, _)| at < part);
            let of_part = self.of_part[from..].iter();
            found.extend(
                of_part
                    .take_while(|(at, _)| at == part)
                    .map(|(_, rule)| *rule),
            );
        }
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
    fn rules_are_found_by_all_beginnings_of_a_path() {
        let texts = ["", "/", "/a", "/a/b", "/a/b/c", "/a/c", "/b", "/a/b/"];
        let mut rules = PathRules::default();
        for (at, text) in texts.iter().enumerate() {
            rules.add(&RulePlace::Beginnings(vec![(*text).to_owned()]), at);
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
