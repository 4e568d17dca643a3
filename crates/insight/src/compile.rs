//! Compiles a parsed expression: finds its columns and functions.
//!
//! Whole SELECTs are compiled in `plan`. If SQLite's precedence differs from the parser's, or an
//! expression has no meaning for a stream, it is refused, and the error shows what to write
//! instead.

use std::sync::Arc;

use sqlparser::ast::{
    self, BinaryOperator, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    UnaryOperator,
};

use crate::InsightError;
use crate::aggregate::{Aggregate, Kind};
use crate::expr::{Column, Expr, Field, Function};
use crate::plan::From;
use crate::slot::Store;
use crate::text::{self, Wild};
use crate::trigger::leaf::{FUNCTIONS, Leaves};
use crate::value::{Arith, Cmp, Convert, Val};

/// Deepest expression: each level takes stack at every evaluation.
const DEPTH_MAX: usize = 100;
/// Most operations in one SELECT. IN, BETWEEN and CASE repeat their operand, so a short text can
/// contain many.
const OPERATIONS_MAX: usize = 10_000;

/// The part of a SELECT that an expression belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Evaluated over single rows: no aggregates.
    Where,
    /// Evaluated over rows, or over a group if there are aggregates.
    Group,
    /// Inside an aggregate.
    Argument,
}

type Compiled = Result<Expr, InsightError>;

/// Compiles the expressions of one SELECT.
pub(crate) struct Compiler<'a> {
    store: &'a Store,
    node: &'a Arc<str>,
    from: &'a [From],
    aggregates: Vec<Aggregate>,
    /// In a trigger, its functions of streams, which take the place of aggregates.
    leaves: Option<&'a mut Leaves>,
    depth: usize,
    operations: usize,
}

fn refuse<T>(message: impl Into<String>) -> Result<T, InsightError> {
    Err(InsightError::statement(message))
}

impl<'a> Compiler<'a> {
    pub fn new(store: &'a Store, node: &'a Arc<str>, from: &'a [From]) -> Self {
        Self {
            store,
            node,
            from,
            aggregates: Vec::new(),
            leaves: None,
            depth: 0,
            operations: 0,
        }
    }

    /// A compiler for the expressions of a trigger: over functions of streams, without tables.
    pub fn of_trigger(store: &'a Store, node: &'a Arc<str>, leaves: &'a mut Leaves) -> Self {
        Self {
            leaves: Some(leaves),
            ..Self::new(store, node, &[])
        }
    }

    /// The aggregates that the expressions use.
    pub fn into_aggregates(self) -> Vec<Aggregate> {
        self.aggregates
    }

    pub fn expr(&mut self, e: &ast::Expr, place: Place) -> Compiled {
        if self.depth >= DEPTH_MAX {
            return Err(InsightError::Limit {
                what: "levels of an expression".into(),
                max: DEPTH_MAX,
                limit: "DEPTH_MAX",
            });
        }
        if self.operations >= OPERATIONS_MAX {
            return Err(InsightError::Limit {
                what: "operations in a SELECT".into(),
                max: OPERATIONS_MAX,
                limit: "OPERATIONS_MAX",
            });
        }
        self.operations += 1;
        self.depth += 1;
        let compiled = self.at_depth(e, place);
        self.depth -= 1;
        compiled
    }

    fn at_depth(&mut self, e: &ast::Expr, place: Place) -> Compiled {
        match e {
            ast::Expr::Nested(inner) => self.expr(inner, place),
            ast::Expr::Identifier(ident) => self.column(None, ident),
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] => self.column(Some(table), column),
                _ => refuse(format!("{e}: write table.column")),
            },
            ast::Expr::Value(value) => literal(&value.value, false),
            ast::Expr::UnaryOp { op, expr } => self.unary(*op, expr, place),
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right, place),
            ast::Expr::IsNull(inner) => self.is_null(inner, place),
            ast::Expr::IsNotNull(inner) => Ok(Expr::Not(Box::new(self.is_null(inner, place)?))),
            ast::Expr::InList {
                expr,
                list,
                negated,
            } => self.in_list(expr, list, *negated, place),
            ast::Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let from = self.comparison(Cmp::Ge, expr, low, place)?;
                let to = self.comparison(Cmp::Le, expr, high, place)?;
                Ok(negate(*negated, Expr::And(Box::new(from), Box::new(to))))
            }
            ast::Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            } => {
                let like = self.like(Wild::Like, expr, pattern, place)?;
                Ok(negate(*negated, like))
            }
            ast::Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(
                operand.as_deref(),
                conditions,
                else_result.as_deref(),
                place,
            ),
            ast::Expr::Function(function) => self.function(function, place),
            _ => refuse(format!("{} cannot compute {e}", self.whose())),
        }
    }

    fn whose(&self) -> &'static str {
        match self.leaves {
            None => "an insight",
            Some(_) => "a trigger",
        }
    }

    fn boxed(&mut self, e: &ast::Expr, place: Place) -> Result<Box<Expr>, InsightError> {
        self.expr(e, place).map(Box::new)
    }

    fn unary(&mut self, op: UnaryOperator, e: &ast::Expr, place: Place) -> Compiled {
        match op {
            UnaryOperator::Minus => match e {
                // -9223372036854775808 is an integer, although its digits alone are not.
                ast::Expr::Value(v) if matches!(v.value, ast::Value::Number(..)) => {
                    literal(&v.value, true)
                }
                _ => Ok(Expr::Negate(self.boxed(e, place)?)),
            },
            UnaryOperator::Plus => self.expr(e, place),
            UnaryOperator::Not => Ok(Expr::Not(self.boxed(e, place)?)),
            _ => refuse(format!("{} cannot compute {op}", self.whose())),
        }
    }

    fn binary(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        place: Place,
    ) -> Compiled {
        let arith = |op| Ok::<_, InsightError>(Some(op));
        let arith = match op {
            BinaryOperator::Plus => arith(Arith::Add),
            BinaryOperator::Minus => arith(Arith::Sub),
            BinaryOperator::Multiply => arith(Arith::Mul),
            BinaryOperator::Divide => arith(Arith::Div),
            BinaryOperator::Modulo => arith(Arith::Rem),
            _ => Ok(None),
        }?;
        if let Some(op) = arith {
            return Ok(Expr::Arith(
                op,
                self.boxed(left, place)?,
                self.boxed(right, place)?,
            ));
        }
        match op {
            BinaryOperator::And => Ok(Expr::And(
                self.boxed(left, place)?,
                self.boxed(right, place)?,
            )),
            BinaryOperator::Or => Ok(Expr::Or(
                self.boxed(left, place)?,
                self.boxed(right, place)?,
            )),
            BinaryOperator::Eq => self.comparison(Cmp::Eq, left, right, place),
            BinaryOperator::NotEq => self.comparison(Cmp::Ne, left, right, place),
            BinaryOperator::Lt => self.comparison(Cmp::Lt, left, right, place),
            BinaryOperator::LtEq => self.comparison(Cmp::Le, left, right, place),
            BinaryOperator::Gt => self.comparison(Cmp::Gt, left, right, place),
            BinaryOperator::GtEq => self.comparison(Cmp::Ge, left, right, place),
            BinaryOperator::Glob => self.like(Wild::Glob, left, right, place),
            _ => refuse(format!("{} cannot compute {op}", self.whose())),
        }
    }

    fn is_null(&mut self, e: &ast::Expr, place: Place) -> Compiled {
        self.operand(e, place).map(|e| Expr::IsNull(Box::new(e)))
    }

    fn comparison(&mut self, op: Cmp, a: &ast::Expr, b: &ast::Expr, place: Place) -> Compiled {
        let (a, b) = (self.operand(a, place)?, self.operand(b, place)?);
        let convert = convert(affinity(&a), affinity(&b));
        Ok(Expr::Compare(op, convert, Box::new(a), Box::new(b)))
    }

    fn like(&mut self, wild: Wild, text: &ast::Expr, p: &ast::Expr, place: Place) -> Compiled {
        let (text, pattern) = (self.operand(text, place)?, self.operand(p, place)?);
        Ok(Expr::Like(wild, Box::new(text), Box::new(pattern)))
    }

    /// An operand of a comparison. The parser groups `a = b < c` differently from SQLite, so a
    /// comparison of comparisons needs parentheses.
    fn operand(&mut self, e: &ast::Expr, place: Place) -> Compiled {
        let loose = match e {
            ast::Expr::BinaryOp { op, .. } => !matches!(
                op,
                BinaryOperator::Plus
                    | BinaryOperator::Minus
                    | BinaryOperator::Multiply
                    | BinaryOperator::Divide
                    | BinaryOperator::Modulo
            ),
            ast::Expr::UnaryOp { op, .. } => *op == UnaryOperator::Not,
            ast::Expr::IsNull(_)
            | ast::Expr::IsNotNull(_)
            | ast::Expr::InList { .. }
            | ast::Expr::Between { .. }
            | ast::Expr::Like { .. } => true,
            _ => false,
        };
        if loose {
            refuse(format!("put parentheses around {e}"))
        } else {
            self.expr(e, place)
        }
    }

    fn in_list(
        &mut self,
        e: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        place: Place,
    ) -> Compiled {
        if list.len() > DEPTH_MAX {
            return refuse(format!("IN takes at most {DEPTH_MAX} values"));
        }
        let mut any: Option<Expr> = None;
        for item in list {
            let (needle, item) = (self.operand(e, place)?, self.expr(item, place)?);
            let convert = convert(affinity(&needle), Affinity::None);
            let same = Expr::Compare(Cmp::Eq, convert, Box::new(needle), Box::new(item));
            any = Some(match any {
                None => same,
                Some(before) => Expr::Or(Box::new(before), Box::new(same)),
            });
        }
        Ok(negate(negated, any.unwrap_or(Expr::Literal(Val::Int(0)))))
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
        place: Place,
    ) -> Compiled {
        let mut arms = Vec::with_capacity(conditions.len());
        for when in conditions {
            let condition = match operand {
                None => self.expr(&when.condition, place)?,
                Some(operand) => self.comparison(Cmp::Eq, operand, &when.condition, place)?,
            };
            arms.push((condition, self.expr(&when.result, place)?));
        }
        let otherwise = otherwise.map(|e| self.boxed(e, place)).transpose()?;
        Ok(Expr::Case { arms, otherwise })
    }

    fn function(&mut self, function: &ast::Function, place: Place) -> Compiled {
        let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
            return refuse(format!("there is no function {}", function.name));
        };
        let FunctionArguments::List(list) = &function.args else {
            return refuse(format!("{function}: write name(argument, …)"));
        };
        let plain = function.over.is_none()
            && function.filter.is_none()
            && function.null_treatment.is_none()
            && function.within_group.is_empty()
            && function.parameters == FunctionArguments::None
            && !function.uses_odbc_syntax
            && list.duplicate_treatment.is_none()
            && list.clauses.is_empty();
        if !plain {
            return refuse(format!(
                "{function}: no DISTINCT, FILTER, OVER or ORDER BY in {}",
                self.whose()
            ));
        }
        let name = name.value.to_ascii_lowercase();
        let mut args = Vec::with_capacity(list.args.len());
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => args.push(e),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if name == "count" => {}
                _ => return refuse(format!("{function}: arguments are expressions")),
            }
        }
        if let Some(leaves) = &mut self.leaves {
            return match leaves.call(&name, &args)? {
                Some(leaf) => Ok(Expr::Aggregate(leaf)),
                None => self.scalar(&name, &args, place),
            };
        }
        match aggregate_kind(&name, args.len()) {
            Some(kind) => self.aggregate(kind, &args, place),
            None => self.scalar(&name, &args, place),
        }
    }

    fn aggregate(&mut self, kind: Kind, args: &[&ast::Expr], place: Place) -> Compiled {
        match place {
            Place::Where => return refuse("WHERE is about single rows: put aggregates in HAVING"),
            Place::Argument => return refuse("an aggregate cannot stand inside another"),
            Place::Group => {}
        }
        let arg = args
            .first()
            .map(|e| self.expr(e, Place::Argument))
            .transpose()?;
        let aggregate = Aggregate { kind, arg };
        let known = self.aggregates.iter().position(|a| *a == aggregate);
        Ok(Expr::Aggregate(known.unwrap_or_else(|| {
            self.aggregates.push(aggregate);
            self.aggregates.len() - 1
        })))
    }

    fn scalar(&mut self, name: &str, args: &[&ast::Expr], place: Place) -> Compiled {
        let compiled: Vec<Expr> = args
            .iter()
            .map(|e| self.expr(e, place))
            .collect::<Result<_, _>>()?;
        let function = match (name, args.len()) {
            ("abs", 1) => Function::Abs,
            ("round", 1 | 2) => Function::Round,
            ("min", 2..) => Function::Min,
            ("max", 2..) => Function::Max,
            ("coalesce", 2..) | ("ifnull", 2) => Function::Coalesce,
            ("nullif", 2) => Function::Nullif,
            ("iif", 2 | 3) => {
                let mut args = compiled.into_iter();
                let arms = args.next().zip(args.next()).into_iter().collect();
                return Ok(Expr::Case {
                    arms,
                    otherwise: args.next().map(Box::new),
                });
            }
            _ => {
                let others = match self.leaves {
                    None => "sum, total, avg, min, max, count",
                    Some(_) => FUNCTIONS,
                };
                return refuse(format!(
                    "no function {name} with {} arguments: there are {others}, abs, round, \
                     coalesce, ifnull, nullif and iif",
                    args.len()
                ));
            }
        };
        Ok(Expr::Call(function, compiled))
    }

    fn column(&self, table: Option<&Ident>, column: &Ident) -> Compiled {
        if self.leaves.is_some() {
            return refuse(format!(
                "{column}: a trigger reads a stream as latest('{column}'), and a label of its \
                 subject as label('{column}')"
            ));
        }
        let from = match table {
            Some(table) => self
                .from
                .iter()
                .position(|f| f.alias.eq_ignore_ascii_case(&table.value))
                .ok_or_else(|| InsightError::statement(format!("{table} is not in FROM")))?,
            None if self.from.len() == 1 => 0,
            None => return self.joined(column),
        };
        self.field(from, column)
    }

    /// A column without its table, if there are several tables: it must be one that USING made
    /// equal.
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
            "value" | "metric" => Field::Value,
            "ts" | "timestamp" => Field::Ts,
            "error" => Field::Error,
            "quality" => Field::Quality,
            "node" => Field::Node(self.node.clone()),
            // An insight sees only newest samples.
            "newest" => return Ok(Expr::Literal(Val::Int(1))),
            "looked" | "age_ns" | "unit" => {
                return refuse(format!(
                    "{column} is no part of a sample: an insight cannot read it"
                ));
            }
            _ => Field::Label(self.label(from, column)?),
        };
        Ok(Expr::Column(Column { from, field }))
    }

    /// A label column. While a table has no streams, its labels are unknown and any is accepted; it
    /// is NULL for streams without this label.
    pub fn label(&self, from: usize, column: &Ident) -> Result<Arc<str>, InsightError> {
        let table_id = self.from[from].table;
        let table = &self.store.tables[table_id as usize];
        let labels = self.store.label_names(table_id);
        let unknown = !table.slots.is_empty() || table.made_by.is_some();
        if unknown && !labels.iter().any(|l| l.eq_ignore_ascii_case(&column.value)) {
            let fixed = ["ts", "value", "quality", "error", "node"].map(str::to_owned);
            return Err(InsightError::UnknownColumn {
                table: table.name.clone(),
                column: column.value.clone(),
                known: fixed.into_iter().chain(labels).collect(),
            });
        }
        Ok(column.value.as_str().into())
    }

    /// The leftmost table's label with this name, for USING.
    pub fn label_of_left(&self, column: &Ident) -> Result<Column, InsightError> {
        let key = self.from.iter().flat_map(|f| &f.using);
        let key = key.filter(|(name, _)| name.eq_ignore_ascii_case(&column.value));
        if let Some((_, left)) = key.into_iter().next() {
            return Ok(left.clone());
        }
        let has = |from: usize| self.label(from, column).map(|l| (from, l));
        let found = (0..self.from.len()).map(has);
        let first = found.reduce(|a, b| if a.is_ok() { a } else { b });
        let (from, label) = first.unwrap_or_else(|| refuse("USING needs a table to its left"))?;
        Ok(Column {
            from,
            field: Field::Label(label),
        })
    }
}

impl Field {
    /// The column's name, for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Value => "value",
            Self::Ts => "ts",
            Self::Error => "error",
            Self::Quality => "quality",
            Self::Node(_) => "node",
            Self::Label(name) => name,
        }
    }
}

fn negate(negated: bool, e: Expr) -> Expr {
    if negated { Expr::Not(Box::new(e)) } else { e }
}

fn aggregate_kind(name: &str, args: usize) -> Option<Kind> {
    Some(match (name, args) {
        ("count", 0) => Kind::Rows,
        ("count", 1) => Kind::Count,
        ("sum", 1) => Kind::Sum,
        ("total", 1) => Kind::Total,
        ("avg", 1) => Kind::Avg,
        ("min", 1) => Kind::Min,
        ("max", 1) => Kind::Max,
        _ => return None,
    })
}

fn literal(value: &ast::Value, negative: bool) -> Compiled {
    Ok(Expr::Literal(match value {
        ast::Value::Number(digits, _) => {
            let sign = if negative { "-" } else { "" };
            let number = format!("{sign}{}", digits.replace('_', ""));
            match text::whole_number(&number) {
                Some(val) => val,
                None => return refuse(format!("{number} is not a number")),
            }
        }
        ast::Value::SingleQuotedString(text) => Val::Text(text.as_str().into()),
        ast::Value::Boolean(truth) => Val::truth(*truth),
        ast::Value::Null => Val::Null,
        other => return refuse(format!("{other}: write numbers, 'text' or NULL")),
    }))
}

/// The affinity of an expression, as SQLite calls it: only columns have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affinity {
    None,
    Blob,
    Text,
    Numeric,
}

fn affinity(e: &Expr) -> Affinity {
    match e {
        Expr::Column(Column { field, .. }) => match field {
            Field::Value => Affinity::Blob,
            Field::Ts | Field::Error => Affinity::Numeric,
            Field::Quality | Field::Node(_) | Field::Label(_) => Affinity::Text,
        },
        _ => Affinity::None,
    }
}

/// The conversion before a comparison. Between two columns only a numeric one converts the other;
/// otherwise the only column decides.
fn convert(a: Affinity, b: Affinity) -> Convert {
    match (a, b) {
        (Affinity::Numeric, _) | (_, Affinity::Numeric) => Convert::Numeric,
        (Affinity::None, Affinity::Text) | (Affinity::Text, Affinity::None) => Convert::Text,
        _ => Convert::None,
    }
}
