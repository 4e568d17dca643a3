//! Writes by other protocols over HTTP: OTLP metrics and line protocol.
//!
//! The module stands alone because these paths accept input from foreign programs. Their bodies are
//! parsed by `barograph-bridge` and passed to a [`barograph_bridge::Ingest`].

mod body;
mod http;
mod probe;

pub(crate) use http::{line_protocol, otlp_metrics};
pub(crate) use probe::{health, ping};
