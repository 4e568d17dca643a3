//! Tests of rules in Markdown: a document has rules in blocks of SQL, and below each rule tables of
//! events for which it fires or not.
//!
//! ````markdown
//! ```sql
//! CREATE RULE h5 ON EVENT close_write WHERE path GLOB '/data/*.h5' THEN RUN '/bin/index' '{path}'
//! ```
//!
//! | kind        | path         | fires |
//! | ----------- | ------------ | ----- |
//! | close_write | /data/a.h5   | yes   |
//! | close_write | /data/a\|b   | no    |
//! ````
//!
//! The events of a table with the column `ts` come one after the other, so that windows and
//! cooldowns apply. Without that column, each row is the first event of the rule. The columns are
//! those of [`EventFacts`] and `fires`; an empty cell is unknown. A cell may be between backticks,
//! and has `\|`, `\\`, and `\xNN` for a byte.

mod cells;

use barograph_model::{cut, near};
use thiserror::Error;

use super::columns::EventFacts;
use super::explain::Explanation;
use super::rules::EventRules;
use super::statement::EventRuleStatement;
use super::{EventRule, EventRuleLimits};

use cells::{cells, instant, number, truth, unescaped};

/// Most bytes of a document.
const MARKDOWN_BYTES_MAX: usize = 1 << 20;
const COLUMNS: [&str; 14] = [
    "kind",
    "path",
    "old_path",
    "job",
    "source",
    "node",
    "size",
    "uid",
    "gid",
    "ts",
    "directory",
    "complete",
    "reconciled",
    "fires",
];

/// The reason why a document is no test of rules, with the line from 1 on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {reason}")]
pub struct MarkdownFault {
    /// The number of the line.
    pub line: usize,
    /// The fault, and what to write instead.
    pub reason: String,
}

/// The test of one rule of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkdownRule {
    /// The name of the rule.
    pub name: String,
    /// The number of events.
    pub rows: usize,
    /// The events for which the rule did not do what the table says.
    pub differences: Vec<RowDifference>,
}

/// A row of a table for which a rule did not do what the table says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDifference {
    /// The number of the row's line, from 1 on.
    pub line: usize,
    /// Whether the rule fired. The table says the opposite.
    pub fired: bool,
    /// The clauses of the rule, with the values that they saw.
    pub explanations: Vec<Explanation>,
}

/// Tries the rules of a Markdown document on its tables of events.
///
/// # Errors
///
/// A rule or a table is wrong, or there is none.
pub fn check_rule_markdown(text: &str) -> Result<Vec<MarkdownRule>, MarkdownFault> {
    if text.len() > MARKDOWN_BYTES_MAX {
        return fault(
            1,
            format!("the document has more than {MARKDOWN_BYTES_MAX} bytes"),
        );
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut tests: Vec<(EventRule, MarkdownRule, usize)> = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let line = line.trim();
        if line.starts_with("```") {
            let end = end_of_block(&lines, at)?;
            if line
                .trim_start_matches('`')
                .trim()
                .eq_ignore_ascii_case("sql")
            {
                let rule = rule(&lines[at + 1..end], at + 2)?;
                let test = MarkdownRule {
                    name: rule.name.clone(),
                    rows: 0,
                    differences: Vec::new(),
                };
                tests.push((rule, test, at + 1));
            }
            at = end + 1;
        } else if line.starts_with('|') {
            let rows = lines[at..]
                .iter()
                .take_while(|line| line.trim().starts_with('|'));
            let end = at + rows.count();
            if let Some(table) = Table::new(&lines, at, end)? {
                match tests.last_mut() {
                    Some((rule, test, _)) => table.check(rule, test)?,
                    None => return fault(at + 1, "a table of events stands below its rule"),
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    if let Some((rule, _, line)) = tests.iter().find(|(_, test, _)| test.rows == 0) {
        let reason = format!(
            "the rule {} has no table of events with kind and fires",
            rule.name
        );
        return fault(*line, reason);
    }
    match tests.is_empty() {
        true => fault(1, "no rule: write it in a block that begins with ```sql"),
        false => Ok(tests.into_iter().map(|(_, test, _)| test).collect()),
    }
}

fn fault<T>(line: usize, reason: impl Into<String>) -> Result<T, MarkdownFault> {
    let reason = reason.into();
    Err(MarkdownFault { line, reason })
}

/// The place of the line that ends a block.
fn end_of_block(lines: &[&str], begin: usize) -> Result<usize, MarkdownFault> {
    let ticks = |line: &str| line.trim().bytes().take_while(|b| *b == b'`').count();
    let opened = ticks(lines[begin]);
    let ends = |line: &&str| ticks(line) >= opened && line.trim().bytes().all(|b| b == b'`');
    match lines[begin + 1..].iter().position(ends) {
        Some(length) => Ok(begin + 1 + length),
        None => fault(begin + 1, "the block is not closed"),
    }
}

fn rule(lines: &[&str], line: usize) -> Result<EventRule, MarkdownFault> {
    match EventRuleStatement::parse(&lines.join("\n")) {
        Ok(EventRuleStatement::Create { rule, .. }) if rule.schedule.is_some() => {
            fault(line, "a rule on a schedule has no events to be tested with")
        }
        Ok(EventRuleStatement::Create { rule, .. }) => Ok(*rule),
        Ok(EventRuleStatement::Drop { .. }) => fault(line, "write CREATE RULE … ON EVENT …"),
        Err(error) => fault(line, error.to_string()),
    }
}

/// A table of events.
struct Table<'t> {
    lines: &'t [&'t str],
    /// The number of the first line with an event.
    first_line: usize,
    /// The columns, as places in [`COLUMNS`].
    columns: Vec<usize>,
}

/// The values of a row's cells, which an event borrows.
#[derive(Default)]
struct Row {
    path: Vec<u8>,
    old_path: Vec<u8>,
    texts: [String; 4],
    event: EventFacts<'static>,
    fires: bool,
}

impl<'t> Table<'t> {
    /// Reads the head of a table; `None` if it is none of events.
    fn new(lines: &'t [&'t str], at: usize, end: usize) -> Result<Option<Self>, MarkdownFault> {
        let head = cells(lines[at]);
        if !head.iter().any(|cell| cell == "fires") {
            return Ok(None);
        }
        let mut columns = Vec::new();
        for name in head {
            let Some(place) = COLUMNS.iter().position(|known| *known == name) else {
                let hint = match near(&name, COLUMNS).as_slice() {
                    [] => format!("the columns are {}", COLUMNS.join(", ")),
                    near => format!("did you mean {}?", near.join(" or ")),
                };
                return fault(at + 1, format!("an event has no column {name}: {hint}"));
            };
            if columns.contains(&place) {
                return fault(at + 1, format!("the column {name} stands twice"));
            }
            columns.push(place);
        }
        if !columns.contains(&0) {
            return fault(at + 1, "a table of events has the column kind");
        }
        let is_line = |cell: &String| {
            let dashes = cell.trim_matches(':');
            !dashes.is_empty() && dashes.bytes().all(|b| b == b'-')
        };
        let below = lines[..end].get(at + 1).map(|line| cells(line));
        if !below.is_some_and(|cells| cells.len() == columns.len() && cells.iter().all(is_line)) {
            return fault(
                at + 1,
                "the second line of a table is | --- | … with as many columns",
            );
        }
        Ok(Some(Self {
            lines: &lines[at + 2..end],
            first_line: at + 3,
            columns,
        }))
    }

    fn check(&self, rule: &EventRule, test: &mut MarkdownRule) -> Result<(), MarkdownFault> {
        let anew = || {
            let mut rules = EventRules::new(EventRuleLimits::default());
            // A set without rules takes one.
            let _ = rules.add(rule.clone(), true);
            rules
        };
        let has_time = self.columns.contains(&9);
        let mut rules = anew();
        for (at, line) in self.lines.iter().enumerate() {
            let line_number = self.first_line + at;
            let row = self
                .row(line, rule)
                .or_else(|reason| fault(line_number, reason))?;
            let [kind, job, source, node] = &row.texts;
            let event = EventFacts {
                kind,
                job,
                source,
                node,
                path: &row.path,
                old_path: &row.old_path,
                index: at as u64,
                ..row.event
            };
            if !has_time {
                rules = anew();
            }
            let explanations = rules.explain(&rule.name, &event).unwrap_or_default();
            let mut fired = false;
            rules.evaluate(&event, &mut |_, _| fired = true);
            test.rows += 1;
            if fired != row.fires {
                test.differences.push(RowDifference {
                    line: line_number,
                    fired,
                    explanations,
                });
            }
        }
        Ok(())
    }

    fn row(&self, line: &str, rule: &EventRule) -> Result<Row, String> {
        let cells = cells(line);
        if cells.len() != self.columns.len() {
            return Err(format!(
                "{} cells, but {} columns",
                cells.len(),
                self.columns.len()
            ));
        }
        let mut row = Row::default();
        row.event.complete = true;
        row.texts[2] = rule
            .sources
            .first()
            .cloned()
            .unwrap_or_else(|| "test".into());
        let mut fires = None;
        for (cell, column) in cells.iter().zip(&self.columns) {
            let name = COLUMNS[*column];
            let bytes = unescaped(cell).map_err(|fault| format!("{name}: {fault}"))?;
            if bytes.is_empty() {
                continue;
            }
            match name {
                "path" => row.path = bytes,
                "old_path" => row.old_path = bytes,
                "fires" => fires = Some(truth(name, &bytes)?),
                _ => row.set(name, &bytes)?,
            }
        }
        row.fires = fires.ok_or("fires: write yes or no")?;
        if super::columns::KindSet::place(&row.texts[0]).is_none() {
            let hint = match near(&row.texts[0], super::EVENT_RULE_KINDS).as_slice() {
                [] => format!("the kinds are {}", super::EVENT_RULE_KINDS.join(", ")),
                near => format!("did you mean {}?", near.join(" or ")),
            };
            let kind = cut(row.texts[0].clone(), 64);
            return Err(format!("there is no kind of events '{kind}': {hint}"));
        }
        Ok(row)
    }
}

impl Row {
    fn set(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let text = || {
            let text = std::str::from_utf8(bytes).map_err(|_| format!("{name}: not UTF-8"))?;
            Ok::<_, String>(text.to_owned())
        };
        match name {
            "kind" => self.texts[0] = text()?,
            "job" => self.texts[1] = text()?,
            "source" => self.texts[2] = text()?,
            "node" => self.texts[3] = text()?,
            "size" => self.event.size = Some(number(name, bytes)?),
            "uid" => self.event.uid = Some(number(name, bytes)?),
            "gid" => self.event.gid = Some(number(name, bytes)?),
            "ts" => self.event.ts = instant(name, bytes)?,
            "directory" => self.event.directory = truth(name, bytes)?,
            "complete" => self.event.complete = truth(name, bytes)?,
            _ => self.event.reconciled = truth(name, bytes)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
