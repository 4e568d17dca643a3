//! Prometheus' side of the server: its names for streams, the exposition, and its query API.
//!
//! It stands apart from our own API since names, errors and the lenient parsing of requests follow
//! Prometheus.

mod answer;
pub(crate) mod api;
pub(crate) mod exposition;
mod labels;
pub(crate) mod names;
pub mod promql;
mod request;
