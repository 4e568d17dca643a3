//! Writes by other protocols over HTTP: OTLP metrics and line protocol.
//!
//! It stands alone because these paths take what strangers send. Their bodies are parsed by
//! `barograph-bridge` and handed to an [`barograph_bridge::Ingest`].

mod body;
mod http;
mod probe;

use std::sync::Arc;

use barograph_bridge::Ingest;

pub(crate) use http::{INGESTS_MAX, line_protocol, otlp_metrics};
pub(crate) use probe::{health, ping};

/// Where writes go, and from where they may come.
#[derive(Clone, Debug)]
pub struct Ingesting {
    /// The receiver of the points.
    pub to: Arc<dyn Ingest>,
    /// Whether writes are accepted over TCP too; over the unix sockets they always are.
    pub over_tcp: bool,
}
