//! Writes by other protocols over HTTP: OTLP metrics and line protocol.
//!
//! The module stands alone because these paths accept input from foreign programs. Their bodies are
//! parsed by `barograph-bridge` and passed to a [`barograph_bridge::Ingest`].

mod body;
mod http;
mod probe;

use std::sync::Arc;

use barograph_bridge::Ingest;

pub(crate) use http::{INGESTS_MAX, line_protocol, otlp_metrics};
pub(crate) use probe::{health, ping};

/// The receiver of writes, and the ways on which they may come.
#[derive(Clone, Debug)]
pub struct Ingesting {
    /// The receiver of the points.
    pub to: Arc<dyn Ingest>,
    /// Whether writes are accepted over TCP too; over the unix sockets they always are.
    pub over_tcp: bool,
}
