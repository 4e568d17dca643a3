//! Compiles a parsed expression: resolves its columns and functions.
//!
//! This module is separate because insights and rules share it. It refuses an expression if
//! SQLite's precedence differs from the parser's, or if the expression has no meaning for a stream;
//! the error shows what to write instead.

use barograph_model::near;
use sqlparser::ast::{
    self, BinaryOperator, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    Spanned as _, UnaryOperator,
};

use crate::StatementError;
use crate::expr::{ColumnField, ColumnRef, Expr, ScalarFunction};
use crate::text::WildcardKind;
use crate::value::{ArithmeticOp, CompareOp, ComparisonConversion, SqlValue, whole_number};

/// Deepest nesting of an expression: each level takes stack at every evaluation.
const DEPTH_MAX: usize = 100;
/// Most operations in one SELECT. IN, BETWEEN and CASE repeat their operand, so a short text can
/// contain many.
const OPERATIONS_MAX: usize = 10_000;

/// Names of the scalar functions.
const SCALARS: [&str; 8] = [
    "abs", "round", "min", "max", "coalesce", "ifnull", "nullif", "iif",
];

/// The result of compiling an expression.
pub type Compiled = Result<Expr, StatementError>;

/// The meaning of the names in an expression: the tables and aggregates of an insight, or the
/// functions of streams in a rule.
pub trait ExprEnvironment: Sized {
    /// The kind of statement that owns the expression, with its article, for messages: "an
    /// insight".
    const OWNER: &'static str;
    /// The functions that the environment has besides the scalar ones, for messages.
    const FUNCTIONS: &'static str;

    /// Compiles a column, with its table's name or alias if one was written.
    fn column(&self, table: Option<&Ident>, column: &Ident) -> Compiled;

    /// Compiles a function of the environment, by its lower-case name; `None` if the environment
    /// has no such function. Arguments are compiled with [`Compiler::expr`].
    fn function(
        compiler: &mut Compiler<Self>,
        name: &str,
        args: &[&ast::Expr],
    ) -> Result<Option<Expr>, StatementError>;
}

/// Compiles the expressions of one statement, and counts their operations.
#[derive(Debug)]
pub struct Compiler<E> {
    /// The meaning of the names.
    pub environment: E,
    depth: usize,
    operations: usize,
}

fn refuse<T>(message: impl Into<String>) -> Result<T, StatementError> {
    Err(StatementError::new(message))
}

impl<E: ExprEnvironment> Compiler<E> {
    /// Returns a compiler that has compiled nothing yet.
    pub fn new(environment: E) -> Self {
        Self {
            environment,
            depth: 0,
            operations: 0,
        }
    }

    /// Compiles an expression; its depth and the number of its operations are bounded.
    pub fn expr(&mut self, e: &ast::Expr) -> Compiled {
        if self.depth >= DEPTH_MAX {
            return Err(StatementError::Limit {
                what: "levels of an expression".into(),
                max: DEPTH_MAX,
                limit: "DEPTH_MAX",
            });
        }
        if self.operations >= OPERATIONS_MAX {
            return Err(StatementError::Limit {
                what: "operations in a SELECT".into(),
                max: OPERATIONS_MAX,
                limit: "OPERATIONS_MAX",
            });
        }
        self.operations += 1;
        self.depth += 1;
        let compiled = self.at_depth(e);
        self.depth -= 1;
        compiled
    }

    fn at_depth(&mut self, e: &ast::Expr) -> Compiled {
        match e {
            ast::Expr::Nested(inner) => self.expr(inner),
            ast::Expr::Identifier(ident) => self.environment.column(None, ident),
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] => self.environment.column(Some(table), column),
                _ => refuse(format!("{e}: write table.column")),
            },
            ast::Expr::Value(value) => literal(&value.value, false),
            ast::Expr::UnaryOp { op, expr } => self.unary(*op, expr),
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::IsNull(inner) => self.is_null(inner),
            ast::Expr::IsNotNull(inner) => Ok(Expr::Not(Box::new(self.is_null(inner)?))),
            ast::Expr::InList {
                expr,
                list,
                negated,
            } => self.in_list(expr, list, *negated),
            ast::Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let from = self.comparison(CompareOp::Ge, expr, low)?;
                let to = self.comparison(CompareOp::Le, expr, high)?;
                Ok(negate(*negated, Expr::And(Box::new(from), Box::new(to))))
            }
            ast::Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            } => {
                let like = self.like(WildcardKind::Like, expr, pattern)?;
                Ok(negate(*negated, like))
            }
            ast::Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(operand.as_deref(), conditions, else_result.as_deref()),
            ast::Expr::Function(function) => self.function(function),
            _ => refuse(format!("{} cannot compute {e}", E::OWNER)),
        }
    }

    fn boxed(&mut self, e: &ast::Expr) -> Result<Box<Expr>, StatementError> {
        self.expr(e).map(Box::new)
    }

    fn unary(&mut self, op: UnaryOperator, e: &ast::Expr) -> Compiled {
        match op {
            UnaryOperator::Minus => match e {
                // -9223372036854775808 is an integer, although its digits alone are not.
                ast::Expr::Value(v) if matches!(v.value, ast::Value::Number(..)) => {
                    literal(&v.value, true)
                }
                _ => Ok(Expr::Negate(self.boxed(e)?)),
            },
            UnaryOperator::Plus => self.expr(e),
            UnaryOperator::Not => Ok(Expr::Not(self.boxed(e)?)),
            _ => refuse(format!("{} cannot compute {op}", E::OWNER)),
        }
    }

    fn binary(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Compiled {
        let arith = |op| Ok::<_, StatementError>(Some(op));
        let arith = match op {
            BinaryOperator::Plus => arith(ArithmeticOp::Add),
            BinaryOperator::Minus => arith(ArithmeticOp::Sub),
            BinaryOperator::Multiply => arith(ArithmeticOp::Mul),
            BinaryOperator::Divide => arith(ArithmeticOp::Div),
            BinaryOperator::Modulo => arith(ArithmeticOp::Rem),
            _ => Ok(None),
        }?;
        if let Some(op) = arith {
            return Ok(Expr::Arith(op, self.boxed(left)?, self.boxed(right)?));
        }
        match op {
            BinaryOperator::And => Ok(Expr::And(self.boxed(left)?, self.boxed(right)?)),
            BinaryOperator::Or => Ok(Expr::Or(self.boxed(left)?, self.boxed(right)?)),
            BinaryOperator::Eq => self.comparison(CompareOp::Eq, left, right),
            BinaryOperator::NotEq => self.comparison(CompareOp::Ne, left, right),
            BinaryOperator::Lt => self.comparison(CompareOp::Lt, left, right),
            BinaryOperator::LtEq => self.comparison(CompareOp::Le, left, right),
            BinaryOperator::Gt => self.comparison(CompareOp::Gt, left, right),
            BinaryOperator::GtEq => self.comparison(CompareOp::Ge, left, right),
            BinaryOperator::Glob => self.like(WildcardKind::Glob, left, right),
            _ => refuse(format!("{} cannot compute {op}", E::OWNER)),
        }
    }

    fn is_null(&mut self, e: &ast::Expr) -> Compiled {
        self.operand(e).map(|e| Expr::IsNull(Box::new(e)))
    }

    fn comparison(&mut self, op: CompareOp, a: &ast::Expr, b: &ast::Expr) -> Compiled {
        let (a, b) = (self.operand(a)?, self.operand(b)?);
        let convert = convert(affinity(&a), affinity(&b));
        Ok(Expr::Compare(op, convert, Box::new(a), Box::new(b)))
    }

    fn like(&mut self, wild: WildcardKind, text: &ast::Expr, p: &ast::Expr) -> Compiled {
        let (text, pattern) = (self.operand(text)?, self.operand(p)?);
        Ok(Expr::Like(wild, Box::new(text), Box::new(pattern)))
    }

    /// Compiles an operand of a comparison. The parser groups `a = b < c` differently from SQLite,
    /// so a comparison of comparisons needs parentheses.
    fn operand(&mut self, e: &ast::Expr) -> Compiled {
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
            self.expr(e)
        }
    }

    fn in_list(&mut self, e: &ast::Expr, list: &[ast::Expr], negated: bool) -> Compiled {
        if list.len() > DEPTH_MAX {
            return refuse(format!("IN takes at most {DEPTH_MAX} values"));
        }
        let mut any: Option<Expr> = None;
        for item in list {
            let (needle, item) = (self.operand(e)?, self.expr(item)?);
            let convert = convert(affinity(&needle), Affinity::None);
            let same = Expr::Compare(CompareOp::Eq, convert, Box::new(needle), Box::new(item));
            any = Some(match any {
                None => same,
                Some(before) => Expr::Or(Box::new(before), Box::new(same)),
            });
        }
        Ok(negate(
            negated,
            any.unwrap_or(Expr::Literal(SqlValue::Int(0))),
        ))
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Compiled {
        let mut arms = Vec::with_capacity(conditions.len());
        for when in conditions {
            let condition = match operand {
                None => self.expr(&when.condition)?,
                Some(operand) => self.comparison(CompareOp::Eq, operand, &when.condition)?,
            };
            arms.push((condition, self.expr(&when.result)?));
        }
        let otherwise = otherwise.map(|e| self.boxed(e)).transpose()?;
        Ok(Expr::Case { arms, otherwise })
    }

    fn function(&mut self, function: &ast::Function) -> Compiled {
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
                E::OWNER
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
        match E::function(self, &name, &args)? {
            Some(expr) => Ok(expr),
            None => self.scalar(&name, &args, &function.name),
        }
    }

    fn scalar(&mut self, name: &str, args: &[&ast::Expr], at: &ast::ObjectName) -> Compiled {
        let compiled: Vec<Expr> = args
            .iter()
            .map(|e| self.expr(e))
            .collect::<Result<_, _>>()?;
        let function = match (name, args.len()) {
            ("abs", 1) => ScalarFunction::Abs,
            ("round", 1 | 2) => ScalarFunction::Round,
            ("min", 2..) => ScalarFunction::Min,
            ("max", 2..) => ScalarFunction::Max,
            ("coalesce", 2..) | ("ifnull", 2) => ScalarFunction::Coalesce,
            ("nullif", 2) => ScalarFunction::Nullif,
            ("iif", 2 | 3) => {
                let mut args = compiled.into_iter();
                let arms = args.next().zip(args.next()).into_iter().collect();
                return Ok(Expr::Case {
                    arms,
                    otherwise: args.next().map(Box::new),
                });
            }
            _ => {
                return refuse(format!(
                    "no function {name} with {} arguments{}: there are {}, abs, round, \
                     coalesce, ifnull, nullif and iif{}",
                    args.len(),
                    at.span().start,
                    E::FUNCTIONS,
                    hint(name, E::FUNCTIONS),
                ));
            }
        };
        Ok(Expr::Call(function, compiled))
    }
}

/// The functions of similar names, as the end of an error; empty if there are none.
fn hint(name: &str, functions: &str) -> String {
    let known = SCALARS.into_iter().chain(functions.split(", "));
    let is_known = known.clone().any(|known| known == name);
    match near(name, known).as_slice() {
        near if near.is_empty() || is_known => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

impl ColumnField {
    /// Returns the column's name, for messages.
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

fn literal(value: &ast::Value, negative: bool) -> Compiled {
    Ok(Expr::Literal(match value {
        ast::Value::Number(digits, _) => {
            let sign = if negative { "-" } else { "" };
            let number = format!("{sign}{}", digits.replace('_', ""));
            match whole_number(&number) {
                Some(val) => val,
                None => return refuse(format!("{number} is not a number")),
            }
        }
        ast::Value::SingleQuotedString(text) => SqlValue::Text(text.as_str().into()),
        ast::Value::Boolean(truth) => SqlValue::truth(*truth),
        ast::Value::Null => SqlValue::Null,
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
        Expr::Column(ColumnRef { field, .. }) => match field {
            ColumnField::Value => Affinity::Blob,
            ColumnField::Ts | ColumnField::Error => Affinity::Numeric,
            ColumnField::Quality | ColumnField::Node(_) | ColumnField::Label(_) => Affinity::Text,
        },
        _ => Affinity::None,
    }
}

/// Returns the conversion before a comparison. Between two columns, a numeric one converts the
/// other, and no other conversion happens; otherwise the only column decides.
fn convert(a: Affinity, b: Affinity) -> ComparisonConversion {
    match (a, b) {
        (Affinity::Numeric, _) | (_, Affinity::Numeric) => ComparisonConversion::Numeric,
        (Affinity::None, Affinity::Text) | (Affinity::Text, Affinity::None) => {
            ComparisonConversion::Text
        }
        _ => ComparisonConversion::None,
    }
}
