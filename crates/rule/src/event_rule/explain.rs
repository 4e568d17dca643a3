//! Explanations: for one rule and one event, each clause with its outcome and the values that it
//! saw.

use std::fmt;

use barograph_model::cut;
use barograph_statement::{EvalFault, Expr, SqlValue};

use super::EventClause;
use super::columns::{EVENT_RULE_COLUMNS, EventFacts, EventRow, EventValues, KindSet, place_of};
use super::known::KnownRule;
use super::recent::RecentActions;

/// Most bytes of a clause, and of a value, in an explanation. A longer one is cut.
const EXPLANATION_TEXT_BYTES_MAX: usize = 512;

/// The outcome of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplanationOutcome {
    /// The clause holds.
    Holds,
    /// The clause does not hold, so that the rule does not fire.
    Fails,
    /// The clause is NULL, which is not true, so that the rule does not fire.
    Unknown,
    /// The clause could not be computed, so that the rule does not fire.
    Fault(EvalFault),
}

/// A clause of a rule, with the values that it saw in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The clause, such as `path GLOB '/data/*'` or `COOLDOWN`.
    pub clause: String,
    /// The outcome of the clause.
    pub outcome: ExplanationOutcome,
    /// The names and values that the clause saw, as SQL writes them.
    pub values: Vec<(String, String)>,
}

impl Explanation {
    /// Whether the clause holds.
    pub fn holds(&self) -> bool {
        self.outcome == ExplanationOutcome::Holds
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            ExplanationOutcome::Holds => write!(f, "holds: {}", self.clause)?,
            ExplanationOutcome::Fails => write!(f, "does not hold: {}", self.clause)?,
            ExplanationOutcome::Unknown => write!(f, "is NULL: {}", self.clause)?,
            ExplanationOutcome::Fault(fault) => write!(f, "fails with {fault}: {}", self.clause)?,
        }
        for (at, (name, value)) in self.values.iter().enumerate() {
            let before = if at == 0 { " (" } else { ", " };
            write!(f, "{before}{name} = {value}")?;
        }
        match self.values.is_empty() {
            true => Ok(()),
            false => f.write_str(")"),
        }
    }
}

/// Explains a rule for an event as if the event came now. All clauses are told, also those after
/// one that does not hold.
pub(super) fn explain(
    known: &KnownRule,
    event: &EventFacts<'_>,
    recent: &RecentActions,
) -> Vec<Explanation> {
    let rule = &known.rule;
    let row = EventRow::new(event);
    let is_kind = rule.kinds.meets(KindSet::of(event));
    let kinds: Vec<&str> = rule.kinds().collect();
    let mut values = vec![("kind".into(), quoted(event.kind))];
    for (name, is_so) in [("reconciled", event.reconciled), ("beyond", event.beyond)] {
        if is_so {
            values.push((name.into(), "1".into()));
        }
    }
    let clause = match rule.schedule {
        Some(_) => "ON SCHEDULE".to_owned(),
        None => format!("ON EVENT {}", kinds.join(", ")),
    };
    let mut all = vec![told(clause, is_kind, values)];
    if !rule.sources.is_empty() {
        let sources: Vec<String> = rule.sources.iter().map(|source| quoted(source)).collect();
        all.push(told(
            format!("FROM {}", sources.join(", ")),
            rule.takes_source(event),
            vec![("source".into(), quoted(event.source))],
        ));
    }
    let parts = rule.conditions.iter();
    all.extend(parts.map(|part| of_clause(part, known, &row, &[])));
    let effect = recent.is_effect(&rule.name, event);
    let is_match = all.iter().all(Explanation::holds) && !effect;
    if effect {
        let uid = event.uid.map_or("NULL".to_owned(), |uid| uid.to_string());
        let clause = "the event is no effect of the rule's own action";
        let values = vec![
            ("path".into(), value(&row.value(super::columns::PATH))),
            ("uid".into(), uid),
        ];
        all.push(told(clause.into(), false, values));
    }
    let own = u64::from(is_match);
    let windows = known.windows.iter();
    let counts: Vec<u64> = windows
        .map(|window| window.count(event.ts).saturating_add(own))
        .collect();
    let parts = rule.counts.iter();
    all.extend(parts.map(|part| of_clause(part, known, &row, &counts)));
    if rule.cooldown_ns > 0 {
        let values = known.fired_ns.map(|fired_ns| {
            let ns = fired_ns.abs_diff(event.ts);
            ("time to the last firing".to_owned(), seconds(ns))
        });
        all.push(told(
            format!("COOLDOWN {}", seconds(rule.cooldown_ns.unsigned_abs())),
            !rule.is_cooling(known.fired_ns, event.ts),
            values.into_iter().collect(),
        ));
    }
    all
}

fn told(clause: String, holds: bool, values: Vec<(String, String)>) -> Explanation {
    let outcome = match holds {
        true => ExplanationOutcome::Holds,
        false => ExplanationOutcome::Fails,
    };
    Explanation {
        clause: cut(clause, EXPLANATION_TEXT_BYTES_MAX),
        outcome,
        values,
    }
}

fn of_clause(
    part: &EventClause,
    known: &KnownRule,
    row: &EventRow<'_>,
    counts: &[u64],
) -> Explanation {
    let input = EventValues { row, counts };
    let outcome = match part.expr.eval(input).map(|result| result.val.is_true()) {
        Ok(Some(true)) => ExplanationOutcome::Holds,
        Ok(Some(false)) => ExplanationOutcome::Fails,
        Ok(None) => ExplanationOutcome::Unknown,
        Err(fault) => ExplanationOutcome::Fault(fault),
    };
    let values = part.leaves().into_iter().filter_map(|leaf| match leaf {
        Expr::Column(column) => {
            let place = place_of(column);
            let name = *EVENT_RULE_COLUMNS.get(place)?;
            Some((name.to_owned(), value(&row.value(place))))
        }
        Expr::Computed(number) => {
            let ns = *known.rule.windows_ns.get(*number)?;
            let name = format!("count_over('{}')", seconds(ns.unsigned_abs()));
            Some((name, counts.get(*number)?.to_string()))
        }
        _ => None,
    });
    Explanation {
        values: values.collect(),
        clause: cut(part.text.clone(), EXPLANATION_TEXT_BYTES_MAX),
        outcome,
    }
}

fn value(value: &SqlValue) -> String {
    match value {
        SqlValue::Text(text) => quoted(text),
        other => other
            .as_text()
            .map_or("NULL".into(), |text| text.to_string()),
    }
}

/// A text as SQL writes it. Control characters, which would move the reader's terminal, are
/// written as `\u{…}`.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("'");
    for char in text.chars() {
        match char {
            '\'' => quoted.push_str("''"),
            _ if char.is_control() => quoted.extend(char.escape_default()),
            _ => quoted.push(char),
        }
    }
    cut(quoted, EXPLANATION_TEXT_BYTES_MAX) + "'"
}

/// A length of time in seconds, without zeros at its end.
fn seconds(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    match rest {
        0 => format!("{whole} s"),
        rest => format!("{whole}.{} s", format!("{rest:09}").trim_end_matches('0')),
    }
}
