//! `CREATE WATCH …` and `DROP WATCH …`, from text to clauses.
//!
//! This module is separate because the crate that watches is another one: it checks the values and
//! knows the defaults.

use crate::{
    StatementAction, StatementError, StatementKind, StatementWords, length_ns, statement_head,
};

/// Keywords of the clauses. Each clause may appear once, in any order.
const CLAUSES: [&str; 5] = ["READERS", "BY", "EVERY", "THREADS", "DIRECTORIES"];
const ON: &str = "ON '/data'";

/// A statement on watches.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchStatement {
    /// `CREATE [OR REPLACE] WATCH name ON '/path' …`
    Create {
        /// Whether an existing watch of this name is replaced.
        or_replace: bool,
        /// The clauses of the watch.
        watch: WatchText,
    },
    /// `DROP WATCH [IF EXISTS] name`
    Drop {
        /// Name of the watch.
        name: String,
        /// Whether a missing watch is no error.
        if_exists: bool,
    },
}

/// A watch as it was written; `None` for a clause that was left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchText {
    /// Name of the watch.
    pub name: String,
    /// `ON '/data'`: the directory, not checked yet.
    pub path: String,
    /// `READERS 'all'`: the users who may read its events, not checked yet.
    pub readers: Option<String>,
    /// `BY 'scan'`: the collector, not checked yet.
    pub collector: Option<String>,
    /// `EVERY '5 min'`: the time between two walks, in ns.
    pub every_ns: Option<i64>,
    /// `THREADS 16`: threads of a walk; a number of at least 0.
    pub threads: Option<f64>,
    /// `DIRECTORIES 1000000`: most directories; a number of at least 0.
    pub directories: Option<f64>,
}

impl WatchStatement {
    /// Reads a statement.
    ///
    /// # Errors
    ///
    /// The statement is not one on watches, or a clause is wrong or stands twice.
    pub fn parse(sql: &str) -> Result<Self, StatementError> {
        let mut words = StatementWords::new(sql)?;
        match statement_head(StatementKind::Watch, &mut words)? {
            StatementAction::Create { or_replace } => Ok(Self::Create {
                or_replace,
                watch: create(words)?,
            }),
            StatementAction::Drop { if_exists } => {
                let name = name(&mut words)?;
                words.end()?;
                Ok(Self::Drop { name, if_exists })
            }
        }
    }
}

fn name(words: &mut StatementWords) -> Result<String, StatementError> {
    let name = words.dotted_name();
    match name.is_empty() {
        true => Err(words.unexpected("the name of the watch")),
        false => Ok(name),
    }
}

fn create(mut words: StatementWords) -> Result<WatchText, StatementError> {
    if words.at_keyword("ON") {
        return Err(words.unexpected("the name of the watch"));
    }
    let mut watch = WatchText {
        name: name(&mut words)?,
        ..WatchText::default()
    };
    if !words.keyword("ON") {
        return Err(words.unexpected(ON));
    }
    watch.path = words.text(ON)?;
    let mut seen = [false; CLAUSES.len()];
    while let Some(at) = CLAUSES.iter().position(|clause| words.keyword(clause)) {
        let clause = CLAUSES[at];
        if std::mem::replace(&mut seen[at], true) {
            return Err(StatementError::new(format!("{clause} stands twice")));
        }
        match clause {
            "READERS" => watch.readers = Some(words.text("READERS 'all'")?),
            "BY" => watch.collector = Some(words.text("BY 'inotify'")?),
            "EVERY" => watch.every_ns = Some(length_ns(&words.text("EVERY '5 min'")?)?),
            "THREADS" => watch.threads = Some(words.number("THREADS 16")?),
            _ => watch.directories = Some(words.number("DIRECTORIES 1000000")?),
        }
    }
    if !words.at_end() {
        let wanted = format!("{} or the end of the statement", CLAUSES.join(", "));
        return Err(words.unexpected(&wanted));
    }
    words.end()?;
    Ok(watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements() {
        let check = |sql: &str, expect: &str| {
            let seen = match WatchStatement::parse(sql) {
                Ok(WatchStatement::Create { or_replace, watch }) => {
                    let WatchText {
                        name,
                        path,
                        readers,
                        collector,
                        every_ns,
                        threads,
                        directories,
                    } = watch;
                    format!(
                        "{or_replace} {name} {path} {readers:?} {collector:?} {every_ns:?} {threads:?} {directories:?}"
                    )
                }
                Ok(WatchStatement::Drop { name, if_exists }) => format!("drop {name} {if_exists}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(seen, expect, "{sql}");
        };
        check(
            "CREATE WATCH a.b ON '/data'",
            "false a.b /data None None None None None",
        );
        check(
            "create or replace watch a on '/x y' every '5 min' by 'scan' threads 8 directories 10 readers 'all'",
            r#"true a /x y Some("all") Some("scan") Some(300000000000) Some(8.0) Some(10.0)"#,
        );
        check("DROP WATCH IF EXISTS a", "drop a true");
        check(
            "CREATE WATCH ON '/data'",
            "expected the name of the watch, found ON",
        );
        check(
            "CREATE WATCH a '/data'",
            "expected ON '/data', found '/data'",
        );
        check(
            "CREATE WATCH a ON '/d' BY 'scan' BY 'scan'",
            "BY stands twice",
        );
        check(
            "CREATE WATCH a ON '/d' NOW",
            "expected READERS, BY, EVERY, THREADS, DIRECTORIES or the end of the statement, found NOW",
        );
    }
}
