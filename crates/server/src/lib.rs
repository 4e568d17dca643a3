//! HTTP server on loopback and unix sockets: JSON, Arrow, server-sent events, Prometheus exposition
//! and the web page.
//!
//! The server reads the segment as any foreign process would and never touches the agent's loop.
//! SQL comes through [`barograph_model::SqlEngine`], control through [`Control`]. The crate stands
//! alone because it owns axum and the access rights of clients. [`Exports`] sends samples to other
//! systems.

mod actions;
mod api;
mod app;
mod blocking;
mod config;
mod control;
mod counts;
mod declared;
mod deliver;
mod demand;
mod event_feed;
mod events;
mod execute;
mod export;
mod fault;
mod fire;
mod followed;
mod history;
mod ingest;
mod json;
mod listen;
mod params;
mod peer;
mod planning;
mod prometheus;
mod request_body;
mod rights;
mod sender;
mod server;
mod share;
mod site;
mod stall;
mod view;
mod watch;

pub use config::{IngestConfig, NodeInfo, ServerConfig, ServerError, ServerLimits};
pub use control::{Control, HeldDemand};
pub use counts::RequestCounts;
pub use event_feed::{EventFeeds, EventMessage, EventMessages, EventQuery};
pub use export::{
    ExportConfig, ExportCounts, ExportHeaders, ExportReceiver, ExportSelection, ExportStatus,
    Exporter, Exports,
};
pub use prometheus::promql;
pub use server::Server;
pub use site::Site;
