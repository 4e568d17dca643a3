//! Insights: streams computed from other streams, written in SQL, kept up to date by increments.
//!
//! An insight is a SELECT over the newest sample of each input stream, with one output stream per
//! group: `CREATE INSIGHT tier.available.bytes AS SELECT tier, sum(value) FROM filesystem_free_bytes
//! GROUP BY tier`. Its values are those that SQLite gives to the same SELECT over the same samples,
//! and that is its test. Insights may read insights, so they form a graph without cycles.
//!
//! A SELECT consists of label columns and one value (the column called `value`, or else the last);
//! `FROM` a metric's or an insight's table, joined to others by `JOIN … USING (label, …)` or `CROSS
//! JOIN`; `WHERE`, `GROUP BY` labels, `HAVING`. Several may be joined by `UNION ALL`. Columns:
//! `value`, `ts`, `quality`, `error`, `node`, and the labels. Aggregates: sum, total, avg, min,
//! max, count. Scalars: `+ - * / %`, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, GLOB, IS NULL,
//! CASE, iif, coalesce, ifnull, nullif, abs, round, min and max of several arguments.
//!
//! Decisions about questions of streams that SQL leaves open:
//!
//! * NULL is no value: the group's stream is retired, so that its last value is not taken for the
//!   present one. The one group of an aggregate without GROUP BY stays declared, without a sample.
//! * A stream is integer as long as its results are; once one is real, it is a stream of floats.
//! * An unknown column is refused if its table has streams. A table without any (announced by
//!   [`Graph::know_metric`]) accepts every label; it is NULL for a stream without it.
//! * A group has no value if it cannot be computed (an integer sum that overflows), or if another
//!   row has the same labels. Its insight reports the reason. Other groups are not affected.
//! * `sum` of integers is exact: if an intermediate sum overflows, but the whole sum does not,
//!   SQLite fails, and the insight has the whole sum.
//! * A sample's time is that of its newest input; its quality is *predicted* if any input is,
//!   otherwise *derived*; its error follows from the inputs' errors by interval arithmetic, and is
//!   infinite if they leave a filter or a choice open.

mod aggregate;
mod curated;
mod error;
mod graph;
mod ground;
mod insight;
mod limits;
mod names;
mod plan;
mod report;
mod row;
mod rows;
mod scope;
mod slot;
mod statement;

pub use curated::{FIFTEEN, curated, curated_inputs};
pub use error::InsightError;
pub use graph::Graph;
pub use ground::{Ground, Question};
pub use limits::Limits;
pub use report::{InsightReport, InsightState, Lack, TestRow};
