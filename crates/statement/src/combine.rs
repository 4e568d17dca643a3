//! SELECTs over all nodes of a cluster, as two statements: one that each node runs on its own
//! tables, and one that makes the answer from the rows of all nodes.
//!
//! A sum is the sum of the nodes' sums, a mean is a sum and a count. An order and a limit apply to
//! each node and then to all of them. What cannot be made from parts, such as a median, is refused.

use sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Ident, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, Value,
};

use crate::StatementError;
use crate::words::StatementWords;

/// Name of the table with the rows of all nodes, in the second statement.
pub const NODE_ROWS: &str = "node_rows";
/// Beginning of the names of columns that the first statement adds for the order of the second.
const ORDER: &str = "order:";
/// Aggregates that cannot be made from one number of each node.
const WHOLE_AGGREGATES: &[&str] = &[
    "median",
    "percentile",
    "percentile_cont",
    "percentile_disc",
    "twa",
    "json_group_array",
    "json_group_object",
];

/// A SELECT over all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CombinedSelect {
    partial: String,
    whole: Whole,
}

/// The statement over the rows of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whole {
    /// The whole text.
    Text(String),
    /// The texts before and after the columns that the nodes have returned.
    Rows { before: &'static str, after: String },
}

impl CombinedSelect {
    /// Reads a SELECT.
    pub fn parse(sql: &str) -> Result<Self, StatementError> {
        let query = StatementWords::new(sql)?.query()?;
        let select = plain_select(&query)?;
        let is_grouped = !group_by(select)?.is_empty() || select.having.is_some();
        let mut items = select.projection.iter().filter_map(item_expr);
        if is_grouped || items.any(has_aggregate) {
            aggregated(&query, select)
        } else {
            rows(&query, select)
        }
    }

    /// The statement that each node runs.
    pub fn partial(&self) -> &str {
        &self.partial
    }

    /// The statement over [`NODE_ROWS`], the rows of all nodes, which have these columns.
    pub fn whole(&self, columns: &[String]) -> String {
        match &self.whole {
            Whole::Text(text) => text.clone(),
            Whole::Rows { before, after } => {
                let shown = columns.iter().filter(|name| !name.starts_with(ORDER));
                let shown: Vec<String> = shown.map(|name| quoted(name).to_string()).collect();
                format!("{before} {} FROM {NODE_ROWS}{after}", shown.join(", "))
            }
        }
    }
}

/// The only SELECT of a query.
fn plain_select(query: &Query) -> Result<&Select, StatementError> {
    let SetExpr::Select(select) = &*query.body else {
        let text = "only a single SELECT is combined over nodes, without UNION, EXCEPT or VALUES";
        return Err(StatementError::new(text));
    };
    if !select.named_window.is_empty() || query.fetch.is_some() {
        let text = "windows and FETCH are not combined over nodes";
        return Err(StatementError::new(text));
    }
    Ok(select)
}

fn item_expr(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

fn group_by(select: &Select) -> Result<&[Expr], StatementError> {
    match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) if modifiers.is_empty() => Ok(keys),
        other => Err(StatementError::new(format!(
            "{other} is not combined over nodes: name the groups"
        ))),
    }
}

fn order_of(query: &Query) -> Result<&[OrderByExpr], StatementError> {
    match &query.order_by {
        None => Ok(&[]),
        Some(OrderBy {
            kind: OrderByKind::Expressions(keys),
            ..
        }) => Ok(keys),
        Some(other) => Err(StatementError::new(format!(
            "{other} is not combined over nodes"
        ))),
    }
}

/// A name that SQL takes for nothing else.
fn quoted(name: &str) -> Expr {
    Expr::Identifier(Ident::with_quote('"', name))
}

/// The words `ASC`, `DESC` and `NULLS …` of an order.
fn ordered(by: &Expr, key: &OrderByExpr) -> String {
    let key = OrderByExpr {
        expr: by.clone(),
        ..key.clone()
    };
    key.to_string()
}

fn order_text(keys: &[String]) -> String {
    match keys {
        [] => String::new(),
        keys => format!(" ORDER BY {}", keys.join(", ")),
    }
}

fn limit_text(query: &Query) -> String {
    let limit = query.limit_clause.as_ref();
    limit.map_or_else(String::new, LimitClause::to_string)
}

/// A SELECT without aggregates: each node returns the rows that may be in the answer.
fn rows(query: &Query, select: &Select) -> Result<CombinedSelect, StatementError> {
    let mut partial = select.clone();
    let mut keys = Vec::new();
    for (at, key) in order_of(query)?.iter().enumerate() {
        let name = match &key.expr {
            Expr::Value(_) => {
                keys.push(ordered(&key.expr, key));
                continue;
            }
            Expr::Identifier(name) if is_alias(select, name) => name.value.clone(),
            other if select.distinct.is_some() => {
                return Err(StatementError::new(format!(
                    "ORDER BY {other} of a SELECT DISTINCT is not combined over nodes: give it a name \
                     in the SELECT"
                )));
            }
            other => {
                let name = format!("{ORDER}{at}");
                partial.projection.push(SelectItem::ExprWithAlias {
                    expr: other.clone(),
                    alias: Ident::with_quote('"', &name),
                });
                name
            }
        };
        keys.push(ordered(&quoted(&name), key));
    }
    let mut part = query.clone();
    *part.body = SetExpr::Select(Box::new(partial));
    part.limit_clause = limit_of_each(query)?;
    Ok(CombinedSelect {
        partial: part.to_string(),
        whole: Whole::Rows {
            before: match select.distinct {
                Some(_) => "SELECT DISTINCT",
                None => "SELECT",
            },
            after: order_text(&keys) + &limit_text(query),
        },
    })
}

fn is_alias(select: &Select, name: &Ident) -> bool {
    alias_expr(select, name).is_some()
}

/// The expression that the SELECT names so.
fn alias_expr<'s>(select: &'s Select, name: &Ident) -> Option<&'s Expr> {
    select.projection.iter().find_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias }
            if alias.value.eq_ignore_ascii_case(&name.value) =>
        {
            Some(expr)
        }
        _ => None,
    })
}

/// The limit of each node: a row that is among the first of all nodes is among the first of its
/// own, and those that are passed over may all be of one node.
fn limit_of_each(query: &Query) -> Result<Option<LimitClause>, StatementError> {
    let (limit, offset) = match &query.limit_clause {
        None => return Ok(None),
        Some(LimitClause::LimitOffset {
            limit,
            offset,
            limit_by,
        }) if limit_by.is_empty() => (limit.clone(), offset.as_ref().map(|offset| &offset.value)),
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            (Some(limit.clone()), Some(offset))
        }
        Some(other) => {
            return Err(StatementError::new(format!(
                "{other} is not combined over nodes"
            )));
        }
    };
    let number = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse::<u64>().ok(),
            _ => None,
        },
        _ => None,
    };
    let offset = offset.map_or(Some(0), number);
    let limit = limit.as_ref().map_or(Some(u64::MAX), number);
    let (Some(limit), Some(offset)) = (limit, offset) else {
        let text = "LIMIT and OFFSET over nodes are numbers";
        return Err(StatementError::new(text));
    };
    let most = limit.saturating_add(offset);
    if most > i64::MAX as u64 {
        return Ok(None);
    }
    Ok(Some(LimitClause::LimitOffset {
        limit: Some(Expr::value(Value::Number(most.to_string(), false))),
        offset: None,
        limit_by: Vec::new(),
    }))
}

/// A SELECT with aggregates or groups: each node returns its groups, with the parts of aggregates.
fn aggregated(query: &Query, select: &Select) -> Result<CombinedSelect, StatementError> {
    let mut parts = Parts {
        select,
        keys: Vec::new(),
        parts: Vec::new(),
    };
    for key in group_by(select)? {
        let key = parts.resolved(key)?;
        parts.keys.push(key);
    }
    let mut shown = Vec::new();
    for item in &select.projection {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, expr.to_string()),
            SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.clone()),
            other => {
                return Err(StatementError::new(format!(
                    "{other} beside aggregates is not combined over nodes: name the columns"
                )));
            }
        };
        shown.push(format!(
            "{} AS {}",
            parts.whole(expr, false)?,
            quoted(&name)
        ));
    }
    let having = match &select.having {
        Some(having) => format!(" HAVING {}", parts.whole(having, true)?),
        None => String::new(),
    };
    let mut keys = Vec::new();
    for key in order_of(query)? {
        let by = match &key.expr {
            Expr::Value(_) => key.expr.clone(),
            other => parts.whole(other, true)?,
        };
        keys.push(ordered(&by, key));
    }
    let names: Vec<String> = (0..parts.keys.len()).map(key_name).collect();
    let groups = match &names[..] {
        [] => String::new(),
        names => format!(" GROUP BY {}", names.join(", ")),
    };
    let distinct = match select.distinct {
        Some(_) => "DISTINCT ",
        None => "",
    };
    let whole = format!(
        "SELECT {distinct}{} FROM {NODE_ROWS}{groups}{having}{}{}",
        shown.join(", "),
        order_text(&keys),
        limit_text(query),
    );
    let mut part = query.clone();
    *part.body = SetExpr::Select(Box::new(parts.partial()));
    (part.order_by, part.limit_clause) = (None, None);
    Ok(CombinedSelect {
        partial: part.to_string(),
        whole: Whole::Text(whole),
    })
}

fn key_name(at: usize) -> String {
    format!("\"k{at}\"")
}

/// The columns of the first statement: the keys of groups, and the parts of aggregates.
struct Parts<'s> {
    select: &'s Select,
    keys: Vec<Expr>,
    parts: Vec<Expr>,
}

impl Parts<'_> {
    /// The statement of each node.
    fn partial(self) -> Select {
        let named = |letter: char, (at, expr): (usize, Expr)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', format!("{letter}{at}")),
        };
        let keys = self.keys.iter().cloned().enumerate();
        let parts = self.parts.into_iter().enumerate();
        let projection = keys
            .map(|key| named('k', key))
            .chain(parts.map(|part| named('a', part)));
        Select {
            projection: projection.collect(),
            group_by: GroupByExpr::Expressions(self.keys, Vec::new()),
            having: None,
            distinct: None,
            ..self.select.clone()
        }
    }

    /// The expression that a group is named by: an alias and a position stand for a column of the
    /// answer.
    fn resolved(&self, key: &Expr) -> Result<Expr, StatementError> {
        let of_position = |text: &str| {
            let at = text.parse::<usize>().ok()?.checked_sub(1)?;
            item_expr(self.select.projection.get(at)?)
        };
        let found = match key {
            // As in SQLite, a column comes before the alias of what is computed from it.
            Expr::Identifier(name) => {
                alias_expr(self.select, name).filter(|expr| !mentions(expr, name))
            }
            Expr::Value(value) => match &value.value {
                Value::Number(text, _) => of_position(text),
                _ => None,
            },
            _ => None,
        };
        let key = found.unwrap_or(key);
        if has_aggregate(key) {
            return Err(StatementError::new(format!(
                "GROUP BY {key} is an aggregate"
            )));
        }
        Ok(key.clone())
    }

    /// A further part; returns its column in the rows of all nodes.
    fn part(&mut self, expr: Expr) -> Expr {
        let known = self.parts.iter().position(|part| *part == expr);
        let at = known.unwrap_or_else(|| {
            self.parts.push(expr);
            self.parts.len() - 1
        });
        quoted(&format!("a{at}"))
    }

    /// The expression over the rows of all nodes. Where `has_aliases`, as after HAVING, names of
    /// the SELECT stand for their expressions.
    fn whole(&mut self, expr: &Expr, has_aliases: bool) -> Result<Expr, StatementError> {
        if let Some(at) = self.keys.iter().position(|key| key == expr) {
            return Ok(quoted(&format!("k{at}")));
        }
        let mut expr = expr.clone();
        match &mut expr {
            Expr::Value(_) => return Ok(expr),
            Expr::Identifier(name) => {
                let named = alias_expr(self.select, name).filter(|_| has_aliases);
                let named = named.ok_or_else(|| ungrouped(&expr))?;
                return self.whole(&named.clone(), false);
            }
            Expr::Function(function) if aggregate(function) => return self.aggregate(function),
            Expr::Function(function) => {
                for argument in arguments(function) {
                    *argument = self.whole(argument, has_aliases)?;
                }
                return Ok(expr);
            }
            _ => {}
        }
        let Some(operands) = operands(&mut expr) else {
            return Err(ungrouped(&expr));
        };
        for operand in operands {
            *operand = self.whole(operand, has_aliases)?;
        }
        Ok(expr)
    }

    fn aggregate(&mut self, function: &Function) -> Result<Expr, StatementError> {
        let name = function.name.to_string().to_ascii_lowercase();
        let refuse = |why: &str| {
            Err(StatementError::new(format!(
                "{function} is not combined over nodes: {why}"
            )))
        };
        if function.over.is_some() {
            return refuse("it is a window");
        }
        if WHOLE_AGGREGATES.contains(&&*name) {
            return refuse(
                "it cannot be computed from one value of each node; ask without combining",
            );
        }
        if is_distinct(function) && !matches!(&*name, "min" | "max") {
            return refuse("nodes may have the same values; SELECT DISTINCT … can be combined");
        }
        let of = |name: &str| {
            let mut part = function.clone();
            part.name = Ident::new(name).into();
            Expr::Function(part)
        };
        Ok(match &*name {
            "count" => {
                let part = self.part(of("count"));
                parsed(&format!("coalesce(sum({part}), 0)"))?
            }
            "avg" => {
                let (sum, count) = (self.part(of("total")), self.part(of("count")));
                parsed(&format!("sum({sum}) / nullif(sum({count}), 0)"))?
            }
            "group_concat" | "string_agg" => {
                let mut whole = function.clone();
                whole.filter = None;
                let part = self.part(of(&name));
                if let Some(first) = arguments(&mut whole).next() {
                    *first = part;
                }
                Expr::Function(whole)
            }
            // sum, total, min and max of the nodes' own.
            name => {
                let part = self.part(of(name));
                parsed(&format!("{name}({part})"))?
            }
        })
    }
}

fn ungrouped(expr: &Expr) -> StatementError {
    StatementError::new(format!(
        "{expr} is neither in GROUP BY nor in an aggregate that is combined over nodes: each node has \
         its own"
    ))
}

fn parsed(text: &str) -> Result<Expr, StatementError> {
    let mut words = StatementWords::new(text)?;
    words.expression(&[], "an aggregate")
}

/// Whether a function call is an aggregate. `min` and `max` of several arguments are not.
fn aggregate(function: &Function) -> bool {
    let name = function.name.to_string().to_ascii_lowercase();
    match &*name {
        "min" | "max" => match &function.args {
            FunctionArguments::List(list) => list.args.len() == 1,
            _ => false,
        },
        "count" | "sum" | "total" | "avg" | "group_concat" | "string_agg" => true,
        name => function.over.is_some() || WHOLE_AGGREGATES.contains(&name),
    }
}

fn is_distinct(function: &Function) -> bool {
    match &function.args {
        FunctionArguments::List(list) => {
            list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
        }
        _ => false,
    }
}

/// The arguments of a function that are expressions.
fn arguments(function: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let list = match &mut function.args {
        FunctionArguments::List(list) => Some(&mut list.args),
        FunctionArguments::None | FunctionArguments::Subquery(_) => None,
    };
    list.into_iter()
        .flatten()
        .filter_map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
}

/// Whether a name is in the expression.
fn mentions(expr: &Expr, name: &Ident) -> bool {
    if let Expr::Identifier(found) = expr {
        return found.value.eq_ignore_ascii_case(&name.value);
    }
    parts_of(&mut expr.clone()).any(|part| mentions(part, name))
}

/// The arguments of a function, or the operands of an expression.
fn parts_of(expr: &mut Expr) -> impl Iterator<Item = &mut Expr> {
    let parts: Vec<&mut Expr> = match expr {
        Expr::Function(function) => arguments(function).collect(),
        other => operands(other).unwrap_or_default(),
    };
    parts.into_iter()
}

/// Whether an aggregate is in the expression.
fn has_aggregate(expr: &Expr) -> bool {
    let is_one = matches!(expr, Expr::Function(function) if aggregate(function));
    is_one || parts_of(&mut expr.clone()).any(|part| has_aggregate(part))
}

/// The operands of an expression; `None` if it is of a kind that has no place beside aggregates.
fn operands(expr: &mut Expr) -> Option<Vec<&mut Expr>> {
    Some(match expr {
        Expr::Nested(one)
        | Expr::IsNull(one)
        | Expr::IsNotNull(one)
        | Expr::UnaryOp { expr: one, .. }
        | Expr::Cast { expr: one, .. } => vec![one],
        Expr::BinaryOp { left, right, .. } => vec![left, right],
        Expr::Between {
            expr, low, high, ..
        } => vec![expr, low, high],
        Expr::InList { expr, list, .. } => {
            let mut all = vec![&mut **expr];
            all.extend(list.iter_mut());
            all
        }
        Expr::Case {
            operand,
            conditions,
            else_result,
            ..
        } => {
            let mut all: Vec<&mut Expr> = Vec::new();
            all.extend(operand.as_deref_mut());
            for when in conditions {
                all.push(&mut when.condition);
                all.push(&mut when.result);
            }
            all.extend(else_result.as_deref_mut());
            all
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
