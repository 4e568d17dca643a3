//! Insights: streams computed from other streams, written in SQL, kept up to date by increments.
//!
//! An insight is a SELECT over the newest sample of each input stream, with one output stream per
//! group: `CREATE INSIGHT tier.available.bytes AS SELECT tier, sum(value) FROM
//! filesystem_free_bytes GROUP BY tier`. Its values are those that SQLite gives to the same SELECT
//! over the same samples, which its tests check. Insights may read insights, so they form a graph
//! without cycles.

mod aggregate;
mod cluster;
mod curated;
mod error;
mod graph;
mod insight;
mod limits;
mod names;
mod plan;
mod report;
mod row;
mod rows;
mod scope;
mod slot;
mod snapshot;
mod statement;

pub use cluster::{
    CLUSTER_INSIGHTS_MAX, ClusterInsight, ClusterInsightReport, ClusterInsights, InsightOffer,
};
pub use curated::{
    FIFTEEN, curated, curated_inputs, curated_inputs_of_cluster, curated_of_cluster,
};
pub use error::InsightError;
pub use graph::Graph;
pub use limits::GraphLimits;
pub use report::{InsightReport, InsightState, InsightTestRow, NoValueReason};
pub use snapshot::{TableSnapshot, TestQuery};
