//! Tests of the server over real sockets and a real segment, with a fake SQL engine and a fake
//! agent.

#![expect(clippy::unwrap_used, reason = "tests panic; that is how they fail")]

mod client;
mod control;
mod fixture;
mod guests;
mod life;
mod limits;
mod memory;
mod metrics;
mod nodes;
mod prometheus;
mod prometheus_equal;
mod promql;
mod promql_bounds;
mod promql_hostile;
mod reads;
mod ring_past;
mod scopes;
mod sql;
mod watch;
mod writes;
