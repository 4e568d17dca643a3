//! The parser of `CREATE RULE …` and `DROP RULE …`.

use std::collections::HashMap;
use std::time::Duration;

use barograph_model::{CALL_EXPIRES_DEFAULT, CALL_EXPIRES_MAX, CALL_EXPIRES_MIN, Labels, Name};
use barograph_statement::{
    Compiled, Compiler, StatementAction, StatementError, StatementKind, StatementWords, ast,
    length_ns, statement_head,
};

use crate::event_rule::{ActionLimits, RuleWork, action_limits};
use crate::leaf::{LeafFunction, StreamFunctions};
use crate::subject::{FiringPayload, RuleAction, RuleDefinition, TextPiece};

/// Longest name of a handler, in bytes.
pub(crate) const CALL_NAME_BYTES_MAX: usize = 127;
/// Most members of a payload that is an object.
pub(crate) const PAYLOAD_MEMBERS_MAX: usize = 32;

/// The words that end an expression.
const CLAUSES: [&str; 8] = [
    "CALL", "FIRE", "THEN", "PAYLOAD", "TO", "ON", "COOLDOWN", "EXPIRES",
];
/// Most nodes that a rule names.
const NODES_MAX: usize = 64;

#[derive(Debug)]
pub(crate) enum RuleStatement {
    Create {
        or_replace: bool,
        definition: Box<RuleDefinition>,
    },
    Drop {
        name: String,
        if_exists: bool,
    },
}

/// Reads a statement.
pub(crate) fn parse(sql: &str) -> Result<RuleStatement, StatementError> {
    let mut words = StatementWords::new(sql)?;
    match statement_head(StatementKind::Rule, &mut words)? {
        StatementAction::Create { or_replace } => Ok(RuleStatement::Create {
            or_replace,
            definition: Box::new(create(words, sql)?),
        }),
        StatementAction::Drop { if_exists } => {
            let name = words.dotted_name();
            words.end()?;
            Ok(RuleStatement::Drop { name, if_exists })
        }
    }
}

/// What a `CREATE RULE` on streams does in place of a call, and the limits on doing it; `None` of
/// another statement.
///
/// # Errors
///
/// The text is no statement on rules on streams.
pub fn work_of_condition(sql: &str) -> Result<Option<(RuleWork, ActionLimits)>, StatementError> {
    let RuleStatement::Create { definition, .. } = parse(sql)? else {
        return Ok(None);
    };
    Ok(definition.action.map(|action| (action.work, action.limits)))
}

fn create(mut words: StatementWords, sql: &str) -> Result<RuleDefinition, StatementError> {
    let name = Name::new(words.dotted_name())?;
    let help = match words.keyword("HELP") {
        true => words.text("HELP 'what it is for'")?,
        false => String::new(),
    };
    words.expect("WHEN")?;
    let condition = words.expression(&CLAUSES, "the condition")?;
    if words.keyword("THEN") {
        return acting(words, (name, help, sql), &condition);
    }
    // FIRE is the older word.
    if !words.keyword("FIRE") {
        words.expect("CALL")?;
    }
    let call = words.text("CALL 'name of the handler'")?;
    if call.is_empty() || call.len() > CALL_NAME_BYTES_MAX {
        return Err(StatementError::new(format!(
            "the name of a handler has 1 to {CALL_NAME_BYTES_MAX} bytes"
        )));
    }
    let (mut payload, mut target, mut nodes) = (None, None, None);
    let (mut cooldown_ns, mut expires_ns) = (None, None);
    loop {
        if payload.is_none() && words.keyword("PAYLOAD") {
            payload = Some(words.expression(&CLAUSES, "the payload")?);
        } else if target.is_none() && words.keyword("TO") {
            target = Some(pairs(&words.text("TO 'rank=0'")?)?);
        } else if nodes.is_none() && words.keyword("ON") {
            nodes = Some(nodes_of(&mut words)?);
        } else if cooldown_ns.is_none() && words.keyword("COOLDOWN") {
            cooldown_ns = Some(length_ns(&words.text("COOLDOWN '10 s'")?)?);
        } else if expires_ns.is_none() && words.keyword("EXPIRES") {
            expires_ns = Some(expires(&words.text("EXPIRES '60 s'")?)?);
        } else {
            break;
        }
    }
    words.end()?;
    let mut leaves = StreamFunctions::default();
    let condition = condition_of(&condition, &mut leaves)?;
    let condition_leaves = leaves.all.len();
    let payload = payload.map(|e| payload_of(&e, &mut leaves)).transpose()?;
    leaves.settle(&condition);
    Ok(RuleDefinition {
        name,
        sql: sql.to_owned(),
        help,
        condition,
        condition_leaves,
        leaves: leaves.all,
        call,
        action: None,
        payload: payload.unwrap_or(FiringPayload::None),
        target: target.unwrap_or_default(),
        nodes,
        cooldown_ns: cooldown_ns.unwrap_or(0),
        expires_ns: expires_ns.unwrap_or(CALL_EXPIRES_DEFAULT.as_nanos() as i64),
    })
}

/// Reads what stands after `THEN`: the action of a rule that calls no program's handler.
fn acting(
    mut words: StatementWords,
    (name, help, sql): (Name, String, &str),
    condition: &ast::Expr,
) -> Result<RuleDefinition, StatementError> {
    let mut work = RuleWork::parse(&mut words, &|text| {
        let pieces = pieces(text)?;
        let labels = pieces
            .iter()
            .filter(|piece| matches!(piece, TextPiece::Label(_)));
        Ok(labels.count())
    })?;
    let wrong = match &work {
        RuleWork::Run { .. } | RuleWork::Mail { .. } => None,
        RuleWork::Post { url, body } => (url.contains(['{', '}']) || body.is_some()).then_some(
            "a condition posts JSON of its own to a fixed address: leave out BODY and braces",
        ),
        RuleWork::Copy { .. }
        | RuleWork::Move { .. }
        | RuleWork::Delete { .. }
        | RuleWork::Mark { .. } => Some("a condition has no file: use RUN, or a rule ON EVENT"),
        RuleWork::Call { .. } => Some("write CALL in place of THEN CALL"),
    };
    if let Some(text) = wrong {
        return Err(StatementError::new(text));
    }
    let call = work.summary();
    let (cooldown_ns, limits) = action_limits(&mut words)?;
    words.end()?;
    if limits.breaker.is_some() {
        return Err(StatementError::new(
            "BREAK is for rules on events and schedules: a condition has COOLDOWN and RATE",
        ));
    }
    let mut leaves = StreamFunctions::default();
    let condition = condition_of(condition, &mut leaves)?;
    Ok(RuleDefinition {
        name,
        sql: sql.to_owned(),
        help,
        condition,
        condition_leaves: leaves.all.len(),
        leaves: leaves.all,
        call,
        action: Some(RuleAction {
            texts: match &work {
                RuleWork::Post { .. } => Vec::new(),
                _ => {
                    let texts = work.texts().into_iter().map(|text| pieces(text));
                    let texts: Result<_, String> = texts.collect();
                    texts.map_err(StatementError::new)?
                }
            },
            work,
            limits,
        }),
        payload: FiringPayload::None,
        target: Vec::new(),
        nodes: None,
        cooldown_ns,
        expires_ns: 0,
    })
}

/// Compiles the condition, which reads some stream.
fn condition_of(e: &ast::Expr, leaves: &mut StreamFunctions) -> Compiled {
    let condition = compile(e, leaves)?;
    leaves.settle(&condition);
    if leaves.all.iter().all(|l| l.of == LeafFunction::Label) {
        return Err(StatementError::new(
            "the condition reads no stream: write something like latest('disk.busy.ratio') > 0.9",
        ));
    }
    Ok(condition)
}

/// `ON CLUSTER`, which gives no name, or `ON NODES 'a, b'`.
fn nodes_of(words: &mut StatementWords) -> Result<Vec<String>, StatementError> {
    if words.keyword("CLUSTER") {
        return Ok(Vec::new());
    }
    if !words.keyword("NODES") {
        return Err(words.unexpected("CLUSTER or NODES"));
    }
    let text = words.text("ON NODES 'login1, login2'")?;
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.len() > NODES_MAX || names.iter().any(String::is_empty) {
        return Err(StatementError::new(format!(
            "ON NODES has 1 to {NODES_MAX} names of nodes with commas between them; ON CLUSTER means all"
        )));
    }
    Ok(names)
}

fn compile(e: &ast::Expr, leaves: &mut StreamFunctions) -> Compiled {
    Compiler::new(leaves).expr(e)
}

/// A value, or `json_object('name', value, …)`.
fn payload_of(
    e: &ast::Expr,
    leaves: &mut StreamFunctions,
) -> Result<FiringPayload, StatementError> {
    let wrong =
        || StatementError::new("write PAYLOAD value or PAYLOAD json_object('name', value, …)");
    let ast::Expr::Function(function) = e else {
        return Ok(FiringPayload::Value(compile(e, leaves)?));
    };
    if !function
        .name
        .to_string()
        .eq_ignore_ascii_case("json_object")
    {
        return Ok(FiringPayload::Value(compile(e, leaves)?));
    }
    let ast::FunctionArguments::List(list) = &function.args else {
        return Err(wrong());
    };
    let arg = |arg: &ast::FunctionArg| match arg {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => Ok(e.clone()),
        _ => Err(wrong()),
    };
    let args: Vec<ast::Expr> = list.args.iter().map(arg).collect::<Result<_, _>>()?;
    if !args.len().is_multiple_of(2) || !list.clauses.is_empty() {
        return Err(wrong());
    }
    if args.len() / 2 > PAYLOAD_MEMBERS_MAX {
        return Err(StatementError::Limit {
            what: "members of a payload".into(),
            max: PAYLOAD_MEMBERS_MAX,
            limit: "PAYLOAD_MEMBERS_MAX",
        });
    }
    let mut members = Vec::new();
    for pair in args.chunks_exact(2) {
        let ast::Expr::Value(key) = &pair[0] else {
            return Err(wrong());
        };
        let ast::Value::SingleQuotedString(key) = &key.value else {
            return Err(wrong());
        };
        members.push((key.clone(), compile(&pair[1], leaves)?));
    }
    Ok(FiringPayload::Object(members))
}

fn expires(text: &str) -> Result<i64, StatementError> {
    let ns = length_ns(text)?;
    let span = Duration::from_nanos(ns.max(0).unsigned_abs());
    if (CALL_EXPIRES_MIN..=CALL_EXPIRES_MAX).contains(&span) {
        Ok(ns)
    } else {
        Err(StatementError::new(format!(
            "EXPIRES '{text}': a call waits for its program between 1 s and 24 h"
        )))
    }
}

/// `label=value,…`, where a value may hold `{label}` of the subject.
fn pairs(text: &str) -> Result<Vec<(String, Vec<TextPiece>)>, StatementError> {
    let wrong = |what: &str| {
        StatementError::new(format!(
            "TO '{text}': {what}; write label=value,… like 'rank=0,job={{job}}'"
        ))
    };
    let mut seen = HashMap::new();
    let mut pairs = Vec::new();
    for pair in text.split(',').filter(|p| !p.trim().is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong("no ="))?;
        let (name, value) = (name.trim(), value.trim());
        if seen.insert(name, value).is_some() {
            return Err(wrong("a label twice"));
        }
        pairs.push((name.to_owned(), pieces(value).map_err(|e| wrong(&e))?));
    }
    // What labels may be, and their bounds.
    Labels::new(seen)?;
    Ok(pairs)
}

fn pieces(mut value: &str) -> Result<Vec<TextPiece>, String> {
    let mut pieces = Vec::new();
    while let Some((before, rest)) = value.split_once('{') {
        let (label, after) = rest.split_once('}').ok_or("a { is not closed")?;
        if label.trim().is_empty() {
            return Err("{} names no label".into());
        }
        if !before.is_empty() {
            pieces.push(TextPiece::Text(before.to_owned()));
        }
        pieces.push(TextPiece::Label(label.trim().to_owned()));
        value = after;
    }
    if value.contains('}') {
        return Err("a } was not opened".into());
    }
    if !value.is_empty() {
        pieces.push(TextPiece::Text(value.to_owned()));
    }
    Ok(pieces)
}
