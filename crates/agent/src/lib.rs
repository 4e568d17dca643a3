//! The one process that serves a node: configuration, wiring, the event loop, ordered shutdown.
//!
//! It alone knows every part; it decides nothing that a part could decide. What happens when is
//! `docs/design/0001-one-node.md`.

mod account;
mod applications;
mod archive_config;
mod archive_watch;
mod config;
mod control;
#[cfg(test)]
#[path = "../../forecast/tests/it/counting.rs"]
mod counting;
mod documents;
mod error;
mod event_loop;
mod export;
mod forecasts;
mod histories;
mod history;
mod look;
mod outlook;
mod policies;
mod policy_statements;
mod reference;
mod saturation;
mod self_watch;
mod start;
mod statements;
mod streams;
mod triggers;
mod who;

pub use applications::{
    ApplicationsConfig, Board, By, CALLS_DOCUMENT, FireError, FireRequest, Fired,
    HANDLERS_DOCUMENT, KNOBS_DOCUMENT, Outcome,
};
pub use archive_config::ArchiveConfig;
pub use barograph_source::{BlockTraceMode, probe};
pub use config::{Config, QueryConfig, StreamsConfig};
pub use documents::{
    AGENT_DOCUMENT, ARCHIVE_DOCUMENT, FORECASTS_DOCUMENT, INSIGHTS_DOCUMENT, POLICIES_DOCUMENT,
    SOURCES_DOCUMENT, STATEMENTS_DOCUMENT,
};
pub use error::AgentError;
pub use export::{ExportConfig, ReceiverConfig};
pub use forecasts::ForecastConfig;
pub use look::{Look, look};
pub use reference::{config_file, config_markdown, sources_markdown};
pub use start::Agent;
pub use triggers::TRIGGERS_DOCUMENT;
