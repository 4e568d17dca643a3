//! The head of a statement: CREATE or DROP, with the kind of thing and its name.
//!
//! This module is separate because every kind of statement begins in the same way, and because a
//! part that passes a statement on needs to know only its kind.

use barograph_model::StatementKind;

use crate::{StatementError, StatementWords};

/// The action of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementAction {
    /// `CREATE [OR REPLACE] …`
    Create {
        /// Whether an existing thing of this name is replaced; otherwise it is an error.
        or_replace: bool,
    },
    /// `DROP … [IF EXISTS]`
    Drop {
        /// Whether a missing thing is no error.
        if_exists: bool,
    },
}

/// The result of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementOutcome {
    /// The thing of this name was made, or replaced.
    Created(String),
    /// The thing of this name was dropped, or did not exist (`IF EXISTS`).
    Dropped(String),
}

/// The head of a statement, read without the rest of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementHead {
    /// The action of the statement.
    pub action: StatementAction,
    /// The kind of thing that is made or dropped.
    pub kind: StatementKind,
    /// The name of the thing, not checked yet; empty if the statement has none.
    pub name: String,
    /// Whether `ON CLUSTER` comes after the name: the thing belongs to all nodes of the cluster.
    pub on_cluster: bool,
}

impl StatementHead {
    /// Reads the head of a statement.
    pub fn read(sql: &str) -> Result<Self, StatementError> {
        let mut words = StatementWords::new(sql)?;
        let kind = Self::kind(sql)?;
        let action = statement_head(kind, &mut words)?;
        let name = words.dotted_name();
        let on_cluster = words.keyword("ON") && words.keyword("CLUSTER");
        Ok(Self {
            action,
            kind,
            name,
            on_cluster,
        })
    }

    fn kind(sql: &str) -> Result<StatementKind, StatementError> {
        let mut words = StatementWords::new(sql)?;
        if words.keyword("CREATE") {
            if words.keyword("OR") {
                words.expect("REPLACE")?;
            }
        } else if !words.keyword("DROP") {
            return Err(StatementError::new(
                "write CREATE or DROP, and INSIGHT, POLICY, RULE or WATCH",
            ));
        }
        let mut kinds = StatementKind::ALL.into_iter();
        let kind = kinds.find(|kind| take_kind(*kind, &mut words));
        kind.ok_or_else(|| words.unexpected("INSIGHT, POLICY, RULE or WATCH"))
    }
}

/// Takes CREATE or DROP with the word of this kind, up to the name.
pub fn statement_head(
    kind: StatementKind,
    words: &mut StatementWords,
) -> Result<StatementAction, StatementError> {
    let is_create = words.keyword("CREATE");
    let or_replace = is_create && words.keyword("OR");
    if or_replace {
        words.expect("REPLACE")?;
    }
    if !is_create && !words.keyword("DROP") {
        return Err(StatementError::new(usage(kind)));
    }
    if !take_kind(kind, words) {
        return Err(words.unexpected(keywords(kind)[0]));
    }
    if is_create {
        return Ok(StatementAction::Create { or_replace });
    }
    let if_exists = words.keyword("IF");
    if if_exists {
        words.expect("EXISTS")?;
    }
    Ok(StatementAction::Drop { if_exists })
}

fn take_kind(kind: StatementKind, words: &mut StatementWords) -> bool {
    keywords(kind).iter().any(|keyword| words.keyword(keyword))
}

fn keywords(kind: StatementKind) -> &'static [&'static str] {
    match kind {
        StatementKind::Insight => &["INSIGHT"],
        StatementKind::Policy => &["POLICY"],
        StatementKind::Rule => &["RULE", "TRIGGER"],
        StatementKind::Watch => &["WATCH"],
    }
}

fn usage(kind: StatementKind) -> &'static str {
    match kind {
        StatementKind::Insight => "write CREATE INSIGHT name AS SELECT … or DROP INSIGHT name",
        StatementKind::Policy => {
            "write CREATE POLICY name FOR 'pattern of streams' ERROR '1 %' or DROP POLICY name"
        }
        StatementKind::Rule => {
            "write CREATE RULE name WHEN condition CALL 'handler' or DROP RULE name"
        }
        StatementKind::Watch => "write CREATE WATCH name ON '/data' or DROP WATCH name",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let check = |sql: &str, expect: &str| {
            let seen = match StatementHead::read(sql) {
                Ok(head) => {
                    let StatementHead {
                        action,
                        kind,
                        name,
                        on_cluster,
                    } = head;
                    let place = if on_cluster { " on cluster" } else { "" };
                    format!("{action:?} {kind:?} {name}{place}")
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(seen, expect, "{sql}");
        };
        let usage = "write CREATE or DROP, and INSIGHT, POLICY, RULE or WATCH";
        check(
            "create insight a.b AS",
            "Create { or_replace: false } Insight a.b",
        );
        check(
            "-- why\nCREATE OR REPLACE POLICY \"c\"",
            "Create { or_replace: true } Policy c",
        );
        check(
            "CREATE INSIGHT a.b ON CLUSTER AS",
            "Create { or_replace: false } Insight a.b on cluster",
        );
        check(
            "DROP INSIGHT a on cluster",
            "Drop { if_exists: false } Insight a on cluster",
        );
        check("DROP RULE IF EXISTS a;", "Drop { if_exists: true } Rule a");
        check("drop trigger a", "Drop { if_exists: false } Rule a");
        check("DROP RULE", "Drop { if_exists: false } Rule ");
        check(
            "CREATE TABLE a",
            "expected INSIGHT, POLICY, RULE or WATCH, found TABLE",
        );
        check("CREATE OR RULE a", "expected REPLACE, found RULE");
        check("", usage);
        check("SELECT 1", usage);
    }
}
