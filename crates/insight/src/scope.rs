//! The names in the expressions of a SELECT: columns of its tables, and aggregates.

use std::sync::Arc;

use barograph_statement::ast::{self, Ident};
use barograph_statement::{
    ColumnField, ColumnRef, Compiled, Compiler, Expr, ExprEnvironment, SqlValue, StatementError,
};

use crate::aggregate::{Aggregate, AggregateKind};
use crate::slot::{OVER_NODES, SlotStore};

#[derive(Clone, Debug)]
pub(crate) struct FromTable {
    pub table: u32,
    /// The table's name, or its alias.
    pub alias: String,
    /// Label pairs that must be equal to join: this table's, and the column to its left.
    pub using: Vec<(Arc<str>, ColumnRef)>,
}

/// The part of a SELECT in which an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectClause {
    /// Over single rows: no aggregates.
    Where,
    /// Over rows, or over a group if there are aggregates.
    Group,
    /// Inside an aggregate.
    Argument,
}

/// The environment of the expressions of one SELECT.
pub(crate) struct SelectScope<'a> {
    store: &'a SlotStore,
    node: &'a Arc<str>,
    from: &'a [FromTable],
    place: SelectClause,
    /// The aggregates that the expressions use, each once.
    pub aggregates: Vec<Aggregate>,
}

fn refuse<T>(message: impl Into<String>) -> Result<T, StatementError> {
    Err(StatementError::new(message))
}

/// Compiles an expression that stands in this part of the SELECT.
pub(crate) fn compile_at(
    compiler: &mut Compiler<SelectScope<'_>>,
    e: &ast::Expr,
    place: SelectClause,
) -> Compiled {
    let before = std::mem::replace(&mut compiler.environment.place, place);
    let compiled = compiler.expr(e);
    compiler.environment.place = before;
    compiled
}

impl ExprEnvironment for SelectScope<'_> {
    const OWNER: &'static str = "an insight";
    const FUNCTIONS: &'static str = "sum, total, avg, min, max, count";

    fn column(&self, table: Option<&Ident>, column: &Ident) -> Compiled {
        let from = match table {
            Some(table) => self
                .from
                .iter()
                .position(|f| f.alias.eq_ignore_ascii_case(&table.value))
                .ok_or_else(|| StatementError::new(format!("{table} is not in FROM")))?,
            None if self.from.len() == 1 => 0,
            None => return self.joined(column),
        };
        self.field(from, column)
    }

    fn function(
        compiler: &mut Compiler<Self>,
        name: &str,
        args: &[&ast::Expr],
    ) -> Result<Option<Expr>, StatementError> {
        let Some(kind) = aggregate_kind(name, args.len()) else {
            return Ok(None);
        };
        match compiler.environment.place {
            SelectClause::Where => {
                return refuse("WHERE is about single rows: put aggregates in HAVING");
            }
            SelectClause::Argument => return refuse("an aggregate cannot stand inside another"),
            SelectClause::Group => {}
        }
        let arg = args
            .first()
            .map(|e| compile_at(compiler, e, SelectClause::Argument))
            .transpose()?;
        let aggregate = Aggregate { kind, arg };
        let aggregates = &mut compiler.environment.aggregates;
        let known = aggregates.iter().position(|a| *a == aggregate);
        Ok(Some(Expr::Computed(known.unwrap_or_else(|| {
            aggregates.push(aggregate);
            aggregates.len() - 1
        }))))
    }
}

impl<'a> SelectScope<'a> {
    pub(crate) fn new(store: &'a SlotStore, node: &'a Arc<str>, from: &'a [FromTable]) -> Self {
        Self {
            store,
            node,
            from,
            place: SelectClause::Group,
            aggregates: Vec::new(),
        }
    }

    /// Compiles a column without a table name if FROM has several tables: it must be a column of
    /// USING.
    fn joined(&self, column: &Ident) -> Compiled {
        let keys = self.from.iter().flat_map(|f| &f.using);
        for (name, left) in keys {
            if name.eq_ignore_ascii_case(&column.value) {
                return Ok(Expr::Column(left.clone()));
            }
        }
        let alias = self.from.first().map_or("table", |f| f.alias.as_str());
        refuse(format!(
            "{column}: say which table's, like {alias}.{column}"
        ))
    }

    fn field(&self, from: usize, column: &Ident) -> Compiled {
        let field = match column.value.to_ascii_lowercase().as_str() {
            "value" | "metric" => ColumnField::Value,
            "ts" | "timestamp" => ColumnField::Ts,
            "error" => ColumnField::Error,
            "quality" => ColumnField::Quality,
            // A table over all nodes has it as a label.
            "node" if !self.is_over_nodes(from) => ColumnField::Node(self.node.clone()),
            // An insight sees only newest samples.
            "newest" => return Ok(Expr::Literal(SqlValue::Int(1))),
            "looked" | "age_ns" | "unit" => {
                return refuse(format!(
                    "{column} is no part of a sample: an insight cannot read it"
                ));
            }
            _ => ColumnField::Label(self.label(from, column)?),
        };
        Ok(Expr::Column(ColumnRef { from, field }))
    }

    fn is_over_nodes(&self, from: usize) -> bool {
        let table = &self.store.tables[self.from[from].table as usize];
        table.made_by.is_none() && table.name.starts_with(OVER_NODES)
    }

    /// Returns a label column. The labels of a table without streams are not known, so any label is
    /// accepted; it is NULL for a stream without it.
    pub(crate) fn label(&self, from: usize, column: &Ident) -> Result<Arc<str>, StatementError> {
        let table_id = self.from[from].table;
        let table = &self.store.tables[table_id as usize];
        let labels = self.store.label_names(table_id);
        let unknown = !table.slots.is_empty() || table.made_by.is_some();
        if unknown && !labels.iter().any(|l| l.eq_ignore_ascii_case(&column.value)) {
            let fixed = ["ts", "value", "quality", "error", "node"].map(str::to_owned);
            return Err(StatementError::UnknownColumn {
                table: table.name.clone(),
                column: column.value.clone(),
                known: fixed.into_iter().chain(labels).collect(),
            });
        }
        Ok(column.value.as_str().into())
    }

    /// Returns the label of this name in the leftmost table that has it, for USING.
    pub(crate) fn label_of_left(&self, column: &Ident) -> Result<ColumnRef, StatementError> {
        let key = self.from.iter().flat_map(|f| &f.using);
        let key = key.filter(|(name, _)| name.eq_ignore_ascii_case(&column.value));
        if let Some((_, left)) = key.into_iter().next() {
            return Ok(left.clone());
        }
        let has = |from: usize| self.label(from, column).map(|l| (from, l));
        let found = (0..self.from.len()).map(has);
        let first = found.reduce(|a, b| if a.is_ok() { a } else { b });
        let (from, label) = first.unwrap_or_else(|| refuse("USING needs a table to its left"))?;
        Ok(ColumnRef {
            from,
            field: ColumnField::Label(label),
        })
    }
}

fn aggregate_kind(name: &str, args: usize) -> Option<AggregateKind> {
    Some(match (name, args) {
        ("count", 0) => AggregateKind::Rows,
        ("count", 1) => AggregateKind::Count,
        ("sum", 1) => AggregateKind::Sum,
        ("total", 1) => AggregateKind::Total,
        ("avg", 1) => AggregateKind::Avg,
        ("min", 1) => AggregateKind::Min,
        ("max", 1) => AggregateKind::Max,
        _ => return None,
    })
}
