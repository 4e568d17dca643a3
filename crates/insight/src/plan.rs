//! Makes a plan of a parsed SELECT: the inputs, filters, groups and computations of one insight.
//!
//! Single expressions are compiled in `barograph_statement`; this module checks the shape of a
//! whole SELECT. Anything that an insight cannot do is refused, and nothing is ignored silently.

use std::sync::Arc;

use barograph_statement::ast::{
    GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query,
    Select, SelectFlavor, SelectItem, SetExpr, SetOperator, SetQuantifier, TableAlias, TableFactor,
};
use barograph_statement::{ColumnField, ColumnRef, Compiler, Expr, SqlValue};

use crate::InsightError;
use crate::aggregate::Aggregate;
use crate::names;
use crate::scope::{FromTable, SelectClause, SelectScope, compile_at};
use crate::slot::SlotStore;

/// Most SELECTs joined by UNION ALL.
const BRANCHES_MAX: usize = 16;
/// Most tables in one FROM.
const FROM_MAX: usize = 8;

/// Names of the columns that every table has, or may get later. A label of an output must not have
/// such a name.
const RESERVED: [&str; 11] = [
    "value",
    "ts",
    "quality",
    "error",
    "node",
    "newest",
    "timestamp",
    "metric",
    "looked",
    "age_ns",
    "unit",
];

#[derive(Debug)]
pub(crate) struct SelectBranch {
    pub from: Vec<FromTable>,
    /// Conditions over labels only: they decide once which rows exist.
    pub fixed_filter: Vec<Expr>,
    /// The other conditions of WHERE, which are evaluated at each change.
    pub filter: Option<Expr>,
    /// Output labels: name, and a label column or a literal.
    pub labels: Vec<(String, Expr)>,
    /// `None`: one output per row. `Some([])`: one group of all rows, which exists even without
    /// rows.
    pub group: Option<Vec<ColumnRef>>,
    pub aggregates: Vec<Aggregate>,
    pub having: Option<Expr>,
    pub value: Expr,
}

/// All of an insight's SELECTs.
#[derive(Debug)]
pub(crate) struct InsightPlan {
    pub branches: Vec<SelectBranch>,
}

impl InsightPlan {
    pub(crate) fn new(
        query: &Query,
        store: &SlotStore,
        node: &Arc<str>,
    ) -> Result<Self, InsightError> {
        let selects = selects(query)?;
        let mut plan = Self {
            branches: Vec::with_capacity(selects.len()),
        };
        let mut head: Option<Head> = None;
        for select in selects {
            let (branch, its_head) = branch(select, head.as_ref(), store, node)?;
            plan.branches.push(branch);
            head.get_or_insert(its_head);
        }
        Ok(plan)
    }

    /// Returns the tables that are read, each once.
    pub(crate) fn tables(&self) -> Vec<u32> {
        let all = self
            .branches
            .iter()
            .flat_map(|b| b.from.iter().map(|f| f.table));
        let mut tables: Vec<u32> = all.collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }

    /// Returns the labels of a table that the plan reads.
    pub(crate) fn labels_read(&self, table: u32) -> Vec<Arc<str>> {
        let mut labels = Vec::new();
        for branch in &self.branches {
            let mut note = |column: &ColumnRef| {
                if let (true, ColumnField::Label(name)) =
                    (branch.from[column.from].table == table, &column.field)
                {
                    labels.push(name.clone());
                }
            };
            branch
                .from
                .iter()
                .flat_map(|f| &f.using)
                .for_each(|(_, left)| note(left));
            branch.group.iter().flatten().for_each(&mut note);
            branch.exprs().for_each(|e| {
                e.visit(&mut |e| {
                    if let Expr::Column(column) = e {
                        note(column);
                    }
                });
            });
            for from in branch.from.iter().filter(|f| f.table == table) {
                labels.extend(from.using.iter().map(|(name, _)| name.clone()));
            }
        }
        labels
    }

    /// Names of the output labels.
    pub(crate) fn columns(&self) -> Vec<String> {
        let first = self.branches.first();
        first.map_or_else(Vec::new, |b| {
            b.labels.iter().map(|(n, _)| n.clone()).collect()
        })
    }

    /// Returns whether an output may be a real, judging by the present streams.
    pub(crate) fn may_be_real(&self, store: &SlotStore) -> bool {
        self.branches.iter().any(|branch| {
            let column = |e: &Expr| match e {
                Expr::Column(ColumnRef {
                    from,
                    field: ColumnField::Value,
                }) => store.may_be_real(branch.from[*from].table),
                Expr::Column(ColumnRef { field, .. }) => *field == ColumnField::Error,
                _ => false,
            };
            branch.value.may_be_real(&|e| match e {
                Expr::Computed(n) => branch.aggregates[*n].may_be_real(&column),
                other => column(other),
            })
        })
    }
}

impl SelectBranch {
    fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let labels = self.labels.iter().map(|(_, e)| e);
        let args = self.aggregates.iter().filter_map(|a| a.arg.as_ref());
        let filters = self
            .fixed_filter
            .iter()
            .chain(&self.filter)
            .chain(&self.having);
        labels.chain(args).chain(filters).chain([&self.value])
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, InsightError> {
    Err(InsightError::statement(message))
}

/// Returns the SELECTs of a query that are joined by UNION ALL.
pub(crate) fn selects(query: &Query) -> Result<Vec<&Select>, InsightError> {
    let mut selects = Vec::new();
    collect(unadorned(query)?, &mut selects)?;
    Ok(selects)
}

/// Returns the body of a query. WITH, ORDER BY and other clauses around it are refused.
fn unadorned(query: &Query) -> Result<&SetExpr, InsightError> {
    if query.with.is_some() {
        return refuse("an insight has no WITH: make the inner SELECT an insight and read that");
    }
    if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
        return refuse("an insight has no ORDER BY or LIMIT: its groups are streams");
    }
    let plain = query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty();
    if plain {
        Ok(&query.body)
    } else {
        refuse("an insight ends after its SELECT")
    }
}

fn collect<'a>(body: &'a SetExpr, out: &mut Vec<&'a Select>) -> Result<(), InsightError> {
    match body {
        SetExpr::Select(select) => out.push(select),
        SetExpr::SetOperation {
            op: SetOperator::Union,
            set_quantifier: SetQuantifier::All,
            left,
            right,
        } => {
            collect(left, out)?;
            collect(right, out)?;
        }
        SetExpr::SetOperation { .. } => return refuse("SELECTs are joined by UNION ALL only"),
        _ => return refuse("an insight is a SELECT, or several joined by UNION ALL"),
    }
    if out.len() > BRANCHES_MAX {
        return Err(InsightError::limit(
            "SELECTs joined by UNION ALL".into(),
            BRANCHES_MAX,
            "BRANCHES_MAX",
        ));
    }
    Ok(())
}

/// The columns of the first SELECT, which give their names to the columns of all.
struct Head {
    names: Vec<Option<String>>,
    value_at: usize,
}

fn branch(
    select: &Select,
    head: Option<&Head>,
    store: &SlotStore,
    node: &Arc<str>,
) -> Result<(SelectBranch, Head), InsightError> {
    only_known_clauses(select)?;
    let from = from(select, store, node)?;
    let mut compiler = Compiler::new(SelectScope::new(store, node, &from));
    let items = items(select, &mut compiler)?;
    let own = Head {
        value_at: value_at(&items),
        names: items.iter().map(|i| i.0.clone()).collect(),
    };
    let head = head.unwrap_or(&own);
    if head.names.len() != items.len() {
        return refuse("SELECTs joined by UNION ALL must have the same number of columns");
    }
    let filter = select
        .selection
        .as_ref()
        .map(|e| compile_at(&mut compiler, e, SelectClause::Where))
        .transpose()?;
    let having = select
        .having
        .as_ref()
        .map(|e| compile_at(&mut compiler, e, SelectClause::Group))
        .transpose()?;
    let group = group(select, &mut compiler)?;
    let aggregates = compiler.environment.aggregates;

    let mut labels = Vec::new();
    let mut value = Expr::Literal(SqlValue::Null);
    for (i, (_, expr)) in items.into_iter().enumerate() {
        if i == head.value_at {
            value = expr;
        } else {
            labels.push((label_name(head.names[i].as_deref(), &labels)?, label(expr)?));
        }
    }
    let group = if group.is_empty() && aggregates.is_empty() {
        None
    } else {
        Some(group)
    };
    let (fixed_filter, filter) = split(filter);
    let branch = SelectBranch {
        from,
        fixed_filter,
        filter,
        labels,
        group,
        aggregates,
        having,
        value,
    };
    check_grouping(&branch)?;
    Ok((branch, own))
}

/// Refuses unknown clauses. It names every field, so that a clause which the parser learns later
/// fails to compile instead of being ignored. It copies and writes nothing, since an expression may
/// be as deep as a statement is long.
fn only_known_clauses(select: &Select) -> Result<(), InsightError> {
    let Select {
        select_token: _,
        optimizer_hints,
        projection: _,
        from: _,
        selection: _,
        group_by: _,
        having: _,
        distinct,
        select_modifiers: None,
        top: None,
        top_before_distinct: _,
        exclude: None,
        into: None,
        lateral_views,
        prewhere: None,
        connect_by,
        cluster_by,
        distribute_by,
        sort_by,
        named_window,
        qualify: None,
        window_before_qualify: _,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    } = select
    else {
        return unknown_clause();
    };
    if distinct.is_some() {
        return refuse("an insight has no DISTINCT: GROUP BY the labels");
    }
    let ordered = !(cluster_by.is_empty() && distribute_by.is_empty() && sort_by.is_empty());
    let others = !(lateral_views.is_empty() && connect_by.is_empty() && named_window.is_empty());
    if !ordered && !others && optimizer_hints.is_empty() {
        Ok(())
    } else {
        unknown_clause()
    }
}

fn unknown_clause() -> Result<(), InsightError> {
    refuse("an insight has SELECT, FROM, JOIN … USING, WHERE, GROUP BY and HAVING only")
}

fn from(
    select: &Select,
    store: &SlotStore,
    node: &Arc<str>,
) -> Result<Vec<FromTable>, InsightError> {
    let mut all: Vec<FromTable> = Vec::new();
    for tables in &select.from {
        all.push(table(&tables.relation, store)?);
        for join in &tables.joins {
            let using = using(join)?;
            let mut right = table(&join.relation, store)?;
            for ident in using {
                let left = SelectScope::new(store, node, &all).label_of_left(ident)?;
                let name =
                    SelectScope::new(store, node, std::slice::from_ref(&right)).label(0, ident)?;
                right.using.push((name, left));
            }
            all.push(right);
        }
    }
    let mut aliases: Vec<String> = all.iter().map(|f| f.alias.to_ascii_lowercase()).collect();
    aliases.sort();
    if let Some(twice) = aliases.windows(2).find(|w| w[0] == w[1]) {
        return refuse(format!("{} is in FROM twice: give each an alias", twice[0]));
    }
    match all.len() {
        0 => refuse("an insight reads FROM the table of a metric or an insight"),
        n if n > FROM_MAX => Err(InsightError::limit(
            "tables in FROM".into(),
            FROM_MAX,
            "FROM_MAX",
        )),
        _ => Ok(all),
    }
}

fn table(relation: &TableFactor, store: &SlotStore) -> Result<FromTable, InsightError> {
    let TableFactor::Table { name, alias, .. } = relation else {
        return refuse("FROM takes tables: make an inner SELECT an insight and read that");
    };
    let plain = match alias {
        Some(TableAlias {
            name: a, columns, ..
        }) if columns.is_empty() => [format!("{name} AS {a}"), format!("{name} {a}")],
        _ => [name.to_string(), String::new()],
    };
    if !plain.contains(&relation.to_string()) {
        return refuse(format!("{relation} has more than a table and an alias"));
    }
    let ident = single(name)?;
    let table_name = ident.value.to_ascii_lowercase();
    let Some(table) = store.table(&table_name) else {
        let near = names::near(&table_name, store.table_names());
        return Err(InsightError::UnknownInput {
            table: ident.value.clone(),
            near,
        });
    };
    let alias = alias.as_ref().map_or(table_name, |a| a.name.value.clone());
    Ok(FromTable {
        table,
        alias,
        using: Vec::new(),
    })
}

/// Returns the single word of a name.
fn single(name: &ObjectName) -> Result<&Ident, InsightError> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Ok(ident),
        _ => refuse(format!(
            "{name}: write the metric with underscores, like disk_read_bytes"
        )),
    }
}

fn using(join: &Join) -> Result<Vec<&Ident>, InsightError> {
    match &join.join_operator {
        JoinOperator::Join(JoinConstraint::Using(names))
        | JoinOperator::Inner(JoinConstraint::Using(names))
            if !join.global =>
        {
            names.iter().map(single).collect()
        }
        JoinOperator::CrossJoin(JoinConstraint::None) if !join.global => Ok(Vec::new()),
        _ => refuse("tables are joined by JOIN … USING (label, …) or by CROSS JOIN"),
    }
}

/// Returns the selected columns, compiled, with their names in SQL.
fn items(
    select: &Select,
    compiler: &mut Compiler<SelectScope<'_>>,
) -> Result<Vec<(Option<String>, Expr)>, InsightError> {
    let mut items = Vec::new();
    for item in &select.projection {
        let (name, expr) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (Some(alias.value.clone()), expr),
            SelectItem::UnnamedExpr(expr) => (column_name(expr), expr),
            _ => return refuse("name the columns: SELECT label, …, value"),
        };
        items.push((name, compile_at(compiler, expr, SelectClause::Group)?));
    }
    if items.is_empty() {
        refuse("SELECT needs a value")
    } else {
        Ok(items)
    }
}

fn column_name(expr: &barograph_statement::ast::Expr) -> Option<String> {
    match expr {
        barograph_statement::ast::Expr::Identifier(ident) => Some(ident.value.clone()),
        barograph_statement::ast::Expr::CompoundIdentifier(parts) => {
            parts.last().map(|p| p.value.clone())
        }
        barograph_statement::ast::Expr::Nested(inner) => column_name(inner),
        _ => None,
    }
}

/// Index of the column called `value`, or else of the last one.
fn value_at(items: &[(Option<String>, Expr)]) -> usize {
    let called_value = |name: &Option<String>| {
        name.as_deref()
            .is_some_and(|n| n.eq_ignore_ascii_case("value"))
    };
    items
        .iter()
        .position(|(name, _)| called_value(name))
        .unwrap_or(items.len() - 1)
}

fn label_name(name: Option<&str>, before: &[(String, Expr)]) -> Result<String, InsightError> {
    let Some(name) = name else {
        return refuse(
            "an insight has one value: alias it AS value and a literal label AS its name",
        );
    };
    if RESERVED.iter().any(|r| r.eq_ignore_ascii_case(name)) {
        return refuse(format!(
            "no label can be called {name}: every table has a column of that name"
        ));
    }
    if before
        .iter()
        .any(|(other, _)| other.eq_ignore_ascii_case(name))
    {
        return refuse(format!("the label {name} is selected twice"));
    }
    barograph_model::Labels::new([(name, "")])?;
    Ok(name.to_owned())
}

fn label(expr: Expr) -> Result<Expr, InsightError> {
    match &expr {
        Expr::Column(column) if column.field.is_static() => Ok(expr),
        Expr::Literal(SqlValue::Text(_) | SqlValue::Null) => Ok(expr),
        _ => refuse("beside the value, SELECT takes label columns and 'literals' only"),
    }
}

fn group(
    select: &Select,
    compiler: &mut Compiler<SelectScope<'_>>,
) -> Result<Vec<ColumnRef>, InsightError> {
    let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
        return refuse("GROUP BY takes labels");
    };
    if !modifiers.is_empty() {
        return refuse("GROUP BY takes labels");
    }
    let mut columns = Vec::new();
    for expr in exprs {
        match compile_at(compiler, expr, SelectClause::Where)? {
            Expr::Column(column) if column.field.is_static() => columns.push(column),
            _ => return refuse(format!("GROUP BY takes labels, not {expr}")),
        }
    }
    Ok(columns)
}

/// Splits WHERE into conditions over labels only, and the rest.
fn split(filter: Option<Expr>) -> (Vec<Expr>, Option<Expr>) {
    let (mut fixed, mut rest) = (Vec::new(), None);
    let mut todo: Vec<Expr> = filter.into_iter().collect();
    while let Some(expr) = todo.pop() {
        match expr {
            Expr::And(a, b) => todo.extend([*a, *b]),
            e if e.is_static() => fixed.push(e),
            e => {
                rest = Some(match rest {
                    None => e,
                    Some(before) => Expr::And(Box::new(before), Box::new(e)),
                });
            }
        }
    }
    (fixed, rest)
}

/// Refuses columns that are not grouped: SQLite would take their values from any row, but an
/// insight must be certain.
fn check_grouping(branch: &SelectBranch) -> Result<(), InsightError> {
    let Some(group) = &branch.group else {
        return match branch.having {
            Some(_) => refuse("HAVING needs a GROUP BY or an aggregate: use WHERE"),
            None => Ok(()),
        };
    };
    let mut loose = None;
    let outputs = branch.labels.iter().map(|(_, e)| e);
    for expr in outputs.chain(&branch.having).chain([&branch.value]) {
        expr.visit(&mut |e| {
            if let Expr::Column(column) = e
                && !group.contains(column)
            {
                loose = Some(column);
            }
        });
    }
    if let Some(ColumnRef { field, .. }) = loose {
        let column = field.name();
        return refuse(format!(
            "{column} stands outside the aggregates: GROUP BY it, or aggregate it"
        ));
    }
    let selected = |key: &ColumnRef| {
        branch
            .labels
            .iter()
            .any(|(_, e)| matches!(e, Expr::Column(c) if c == key))
    };
    match group
        .iter()
        .find(|key| !selected(key) && !matches!(key.field, ColumnField::Node(_)))
    {
        Some(key) => refuse(format!(
            "SELECT {} too: it tells the groups apart",
            key.field.name()
        )),
        None => Ok(()),
    }
}
