//! The parser of `CREATE RULE … ON EVENT …`.

use barograph_model::{Name, fnv1a, near};
use barograph_statement::{
    Compiler, Expr, StatementAction, StatementError, StatementKind, StatementWords, ast, length_ns,
    statement_head,
};

use super::arguments::fields_of;
use super::columns::{EVENT_RULE_KINDS, EventNames, KindSet};
use super::glob::GlobCheck;
use super::limits::{
    ActionDelivery, ActionLimits, ActionRate, BREAK_MAX, CONCURRENCY_MAX, NODE_BYTES_MAX,
    QuietTime, RATE_MAX, RETRIES_MAX, RULE_SOURCES_MAX,
};
use super::schedule::RuleSchedule;
use super::work::RuleWork;
use super::{EventClause, EventRule};

/// The words that end a condition.
const ENDS: [&str; 2] = ["WHEN", "THEN"];
/// Keywords of the clauses after the action. Each may stand once, in any order.
const CLAUSES: [&str; 9] = [
    "COOLDOWN",
    "CONCURRENCY",
    "TIMEOUT",
    "RETRY",
    "DELIVERY",
    "QUIET",
    "RATE",
    "BREAK",
    "ON",
];

/// A statement on rules on events.
#[derive(Clone, Debug)]
pub enum EventRuleStatement {
    /// `CREATE [OR REPLACE] RULE name ON EVENT …`
    Create {
        /// Whether an existing rule of this name is replaced.
        or_replace: bool,
        /// The rule.
        rule: Box<EventRule>,
    },
    /// `DROP RULE [IF EXISTS] name`
    Drop {
        /// Name of the rule.
        name: String,
        /// Whether a missing rule is no error.
        if_exists: bool,
    },
}

impl EventRuleStatement {
    /// Whether a text begins like a rule on events or on a schedule. Another `CREATE RULE` is one
    /// on streams, and a `DROP RULE` may be of either.
    pub fn is_one(sql: &str) -> bool {
        let begins = || {
            let mut words = StatementWords::new(sql).ok()?;
            let head = statement_head(StatementKind::Rule, &mut words).ok()?;
            words.dotted_name();
            if words.keyword("HELP") {
                words.text_if_next();
            }
            let is_create = matches!(head, StatementAction::Create { .. });
            let is_on = is_create && words.keyword("ON");
            Some(is_on && (words.at_keyword("EVENT") || words.at_keyword("SCHEDULE")))
        };
        begins() == Some(true)
    }

    /// Reads a statement.
    ///
    /// # Errors
    ///
    /// The text is no statement on rules on events. The error names the place of the fault.
    pub fn parse(sql: &str) -> Result<Self, StatementError> {
        let mut words = StatementWords::located(sql)?;
        match statement_head(StatementKind::Rule, &mut words)? {
            StatementAction::Create { or_replace } => Ok(Self::Create {
                or_replace,
                rule: Box::new(create(words, sql)?),
            }),
            StatementAction::Drop { if_exists } => {
                let name = words.dotted_name();
                words.end()?;
                Ok(Self::Drop { name, if_exists })
            }
        }
    }
}

fn create(mut words: StatementWords, sql: &str) -> Result<EventRule, StatementError> {
    let name = Name::new(words.dotted_name())?;
    let help = match words.keyword("HELP") {
        true => words.text("HELP 'what it is for'")?,
        false => String::new(),
    };
    words.expect("ON")?;
    let mut schedule = None;
    let (mut kinds, mut sources) = (KindSet::default(), Vec::new());
    if words.keyword("SCHEDULE") {
        schedule = Some(RuleSchedule::parse(&mut words)?);
    } else {
        words.expect("EVENT")?;
        kinds = kinds_of(&mut words)?;
        sources = sources_of(&mut words)?;
    }
    let mut names = EventNames::default();
    if schedule.is_some() && !words.at_keyword("THEN") {
        return Err(words.unexpected("THEN, since a rule on a schedule has no event"));
    }
    let conditions = match words.keyword("WHERE") {
        true => condition(&words.expression(&ENDS, "the condition")?, &mut names)?,
        false => Vec::new(),
    };
    names.windows_ns = Some(Vec::new());
    let counts = match words.keyword("WHEN") {
        true => condition(&words.expression(&ENDS, "the condition")?, &mut names)?,
        false => Vec::new(),
    };
    let windows_ns = names.windows_ns.unwrap_or_default();
    if windows_ns.is_empty() && !counts.is_empty() {
        return Err(StatementError::new(
            "WHEN counts nothing: write something like WHEN count_over('1 min') > 10, and \
             conditions on one event in WHERE",
        ));
    }
    words.expect("THEN")?;
    let work = RuleWork::parse(&mut words, &fields_of)?;
    if schedule.is_some() && matches!(work, RuleWork::Mark { .. }) {
        return Err(StatementError::new(
            "a rule on a schedule has no event, and no file to mark",
        ));
    }
    let (cooldown_ns, limits) = action_limits(&mut words)?;
    words.end()?;
    Ok(EventRule {
        name: name.to_string(),
        sql: sql.to_owned(),
        version: fnv1a(sql.trim().as_bytes()),
        help,
        sources,
        schedule,
        work,
        cooldown_ns,
        limits,
        kinds,
        conditions,
        counts,
        windows_ns,
    })
}

fn kinds_of(words: &mut StatementWords) -> Result<KindSet, StatementError> {
    let mut kinds = KindSet::default();
    loop {
        let place = words.place();
        let Some(kind) = words.word_if_next() else {
            return Err(words.unexpected("a kind of events, like create"));
        };
        let Some(at) = KindSet::place(&kind) else {
            let hint = match near(&kind, EVENT_RULE_KINDS).as_slice() {
                [] => format!("the kinds are {}", EVENT_RULE_KINDS.join(", ")),
                near => format!("did you mean {}?", near.join(" or ")),
            };
            return Err(StatementError::new(format!(
                "there is no kind of events {kind}{place}: {hint}"
            )));
        };
        if !kinds.add(at) {
            return Err(StatementError::new(format!(
                "{kind} stands twice in ON EVENT{place}"
            )));
        }
        if !words.comma() {
            return Ok(kinds);
        }
    }
}

fn sources_of(words: &mut StatementWords) -> Result<Vec<String>, StatementError> {
    let mut sources: Vec<String> = Vec::new();
    if !words.keyword("FROM") {
        return Ok(sources);
    }
    loop {
        let place = words.place();
        let source = words.text("FROM 'source'")?;
        if source.is_empty() || sources.contains(&source) {
            return Err(StatementError::new(format!(
                "FROM '{source}'{place}: write the name of each source once"
            )));
        }
        if sources.len() >= RULE_SOURCES_MAX {
            return Err(StatementError::Limit {
                what: "sources of a rule on events".into(),
                max: RULE_SOURCES_MAX,
                limit: "RULE_SOURCES_MAX",
            });
        }
        sources.push(source);
        if !words.comma() {
            return Ok(sources);
        }
    }
}

/// Compiles the operands of AND each by itself.
fn condition(e: &ast::Expr, names: &mut EventNames) -> Result<Vec<EventClause>, StatementError> {
    let mut compiler = Compiler::new(names);
    let mut open = vec![e];
    let mut parts = Vec::new();
    while let Some(e) = open.pop() {
        match e {
            ast::Expr::Nested(inner) => open.push(inner),
            ast::Expr::BinaryOp {
                left,
                op: ast::BinaryOperator::And,
                right,
            } => open.extend([&**right, &**left]),
            other => {
                let expr = compiler.expr(other)?;
                parts.push(EventClause {
                    text: other.to_string(),
                    glob: GlobCheck::of(&expr),
                    expr,
                });
            }
        }
    }
    Ok(parts)
}

/// Reads the clauses after an action, up to the end of the statement: the cooldown, in ns, and the
/// limits.
pub(crate) fn action_limits(
    words: &mut StatementWords,
) -> Result<(i64, ActionLimits), StatementError> {
    let mut limits = ActionLimits::default();
    let mut cooldown_ns = 0;
    let mut seen = [false; CLAUSES.len()];
    let mut place = words.place();
    while let Some(at) = CLAUSES.iter().position(|clause| words.keyword(clause)) {
        let clause = CLAUSES[at];
        if std::mem::replace(&mut seen[at], true) {
            return Err(StatementError::new(format!("{clause} stands twice{place}")));
        }
        match clause {
            "ON" => limits.node = Some(node(words)?),
            "COOLDOWN" => cooldown_ns = length_ns(&words.text("COOLDOWN '10 s'")?)?,
            "CONCURRENCY" => {
                limits.concurrency_max = whole(words, clause, 1, CONCURRENCY_MAX)?;
            }
            "TIMEOUT" => limits.timeout_ns = length_ns(&words.text("TIMEOUT '10 min'")?)?,
            "RETRY" => limits.retries_max = Some(whole(words, clause, 0, RETRIES_MAX)?),
            "DELIVERY" => limits.delivery = delivery(words)?,
            "RATE" => limits.rate = Some(rate(words, clause, RATE_MAX)?),
            "BREAK" => limits.breaker = Some(rate(words, clause, BREAK_MAX)?),
            _ => {
                let from = words.text("QUIET '08:00' TO '18:00'")?;
                words.expect("TO")?;
                let to = words.text("QUIET '08:00' TO '18:00'")?;
                limits.quiet = Some(QuietTime::parse(&from, &to)?);
            }
        }
        place = words.place();
    }
    if !words.at_end() {
        let wanted = format!("{} NODE or the end of the statement", CLAUSES.join(", "));
        return Err(words.unexpected(&wanted));
    }
    let is_retried = limits.retries_max.is_some_and(|retries| retries > 0);
    if limits.delivery == ActionDelivery::AtMostOnce && is_retried {
        return Err(StatementError::new(
            "an action that is delivered at most once has no RETRY: leave one of them out",
        ));
    }
    Ok((cooldown_ns, limits))
}

/// `100 PER '1 min'`.
fn rate(words: &mut StatementWords, clause: &str, max: u32) -> Result<ActionRate, StatementError> {
    let count_max = whole(words, clause, 1, max)?;
    words.expect("PER")?;
    let per_ns = length_ns(&words.text(&format!("{clause} 100 PER '1 min'"))?)?;
    Ok(ActionRate { count_max, per_ns })
}

fn whole(
    words: &mut StatementWords,
    clause: &str,
    min: u32,
    max: u32,
) -> Result<u32, StatementError> {
    let place = words.place();
    let number = words.number(&format!("{clause} {min} to {max}"))?;
    match (f64::from(min)..=f64::from(max)).contains(&number) && number.fract() == 0.0 {
        true => Ok(number as u32),
        false => Err(StatementError::new(format!(
            "{clause} {number}{place}: write a whole number from {min} to {max}"
        ))),
    }
}

/// `NODE 'name'`.
fn node(words: &mut StatementWords) -> Result<String, StatementError> {
    words.expect("NODE")?;
    let place = words.place();
    let name = words.text("ON NODE 'name'")?;
    match name.is_empty() || name.len() > NODE_BYTES_MAX || name.chars().any(char::is_control) {
        false => Ok(name),
        true => Err(StatementError::new(format!(
            "ON NODE '{name}'{place}: the name of a node has 1 to {NODE_BYTES_MAX} bytes"
        ))),
    }
}

fn delivery(words: &mut StatementWords) -> Result<ActionDelivery, StatementError> {
    let place = words.place();
    let text = words.text("DELIVERY 'at_least_once' or 'at_most_once'")?;
    match text.as_str() {
        "at_least_once" => Ok(ActionDelivery::AtLeastOnce),
        "at_most_once" => Ok(ActionDelivery::AtMostOnce),
        _ => Err(StatementError::new(format!(
            "DELIVERY '{text}'{place}: write 'at_least_once' or 'at_most_once'"
        ))),
    }
}

impl EventClause {
    /// Whether the expression is one of a column or a count, for values in explanations.
    pub(super) fn leaves(&self) -> Vec<&Expr> {
        let mut leaves: Vec<&Expr> = Vec::new();
        self.expr.visit(&mut |e| {
            if matches!(e, Expr::Column(_) | Expr::Computed(_)) && !leaves.contains(&e) {
                leaves.push(e);
            }
        });
        leaves
    }
}

#[cfg(test)]
mod tests;
