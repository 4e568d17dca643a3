//! Tests of the insight graph from outside: through statements, samples and a sink.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod beside;
mod curated;
mod curated_of_cluster;
mod equal_to_sqlite;
mod graph;
mod hostile;
mod looks;
mod rig;
