//! Prometheus' side of the server: its names for streams, the exposition, and its query API.
//!
//! It stands apart from our own API since the words, the errors and the forgiving reading of requests
//! are Prometheus', not ours.

mod answer;
pub mod api;
pub mod exposition;
pub mod names;
pub mod promql;
mod request;
