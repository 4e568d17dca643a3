//! Statements: `CREATE …` and `DROP …` of insights, policies, rules and watches, from text to data.
//!
//! Every kind of statement has the same head, the same words and the same expressions, which are
//! read and compiled here. Expressions compute what SQLite computes: operators `+ - * / %`,
//! comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, GLOB, IS NULL, CASE, and the functions iif,
//! coalesce, ifnull, nullif, abs, round, min and max of several arguments. The [`ExprEnvironment`]
//! gives the names in an expression their meaning: an insight has columns and aggregates, a rule
//! has functions of streams.
//!
//! The crate reads no clock, file or socket. It is the one owner of `sqlparser`, whose syntax tree
//! it passes on as [`ast`].

mod combine;
mod compile;
mod error;
mod expr;
mod head;
mod length;
mod policy;
pub mod text;
mod value;
mod watch;
mod words;

pub use barograph_model::StatementKind;
pub use combine::{CombinedSelect, NODE_ROWS};
pub use compile::{Compiled, Compiler, ExprEnvironment};
pub use error::StatementError;
pub use expr::{ColumnField, ColumnRef, EvalFault, Expr, ExprInput, OVERFLOW, ScalarFunction};
pub use head::{StatementAction, StatementHead, StatementOutcome, statement_head};
pub use length::{LENGTH_NS_MAX, length_ns};
pub use policy::{PolicyStatement, PolicyText};
pub use sqlparser::ast;
pub use value::{
    ArithmeticOp, CompareOp, ComparisonConversion, SqlValue, UncertainValue, arith, compare,
    whole_number,
};
pub use watch::{WatchStatement, WatchText};
pub use words::{SQL_BYTES_MAX, StatementWords};
