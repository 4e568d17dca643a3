//! The agent, the one process that serves a node: configuration, wiring, the event loop and the
//! ordered shutdown.
//!
//! This crate alone knows every part. A part decides what it can decide alone. Decisions that are
//! made here need what several parts know: the sentences about the node (`outlook.rs`, `who.rs`,
//! `saturation.rs`) are made of streams of all sources, `account.rs` joins the graph with the
//! sources, policies meet looks and forecasts, and what is asked of other nodes (`node_queries.rs`,
//! `node_calls.rs`, `cluster_insights.rs`) joins the fabric with the parts that answer. Controllers
//! (`controllers.rs`) join users, devices, the forecast of bandwidth and control groups.
//! `docs/design/0001-one-node.md` describes when each thing happens.

mod account;
mod actions;
mod aggregator;
mod agreement;
mod archive_watch;
mod assemble;
mod cluster_demand;
mod cluster_inputs;
mod cluster_insights;
mod cluster_watch;
mod config;
mod control;
mod control_events;
mod controller_words;
mod controllers;
mod decisions;
mod documents;
mod error;
mod event_columns;
mod event_feeds;
mod event_loop;
mod export;
mod fabric;
mod facts;
mod interference;
mod io_schedules;
mod look;
mod node_calls;
mod node_past;
mod node_queries;
mod node_questions;
mod outlook;
mod policies;
mod query_nodes;
mod reader_documents;
mod recorded_events;
mod reference;
mod refusal;
mod revocation_file;
mod rules;
mod saturation;
mod scope_places;
mod self_watch;
mod server_maps;
#[cfg(test)]
mod simulated;
mod staging;
mod start;
mod statements;
mod watches;
mod who;

pub use actions::{ActionConfig, action_words, check_work, event_facts, scheduled_words};
pub use barograph_call::{Board, CallError, CallOrigin, CallOutcome, CallRequest, CallsMade};
pub use barograph_fabric::security::CREDENTIALS_DIR;
pub use barograph_intake::ApplicationsConfig;
pub use barograph_recorder::{
    ArchiveConfig, ArchiveDocument, ForecastConfig, ProcessMeter, Randomness, World,
};
pub use barograph_server::RequestCounts;
pub use barograph_source::{BlockTraceMode, probe, tier_place};
pub use barograph_stream::{
    ACTIONS_DOCUMENT, AGENT_DOCUMENT, ARCHIVE_DOCUMENT, ActionsRow, AgentDocument, CALLS_DOCUMENT,
    CLUSTER_DOCUMENT, CLUSTER_INSIGHTS_DOCUMENT, CONTROLLERS_DOCUMENT, CallsRow,
    ClusterInsightsRow, ControllersRow, DECISIONS_DOCUMENT, DecisionsRow, FORECASTS_DOCUMENT,
    ForecastsRow, HANDLERS_DOCUMENT, HandlersRow, INSIGHTS_DOCUMENT, INTERFERENCE_DOCUMENT,
    IO_PHASES_DOCUMENT, InsightsRow, InterferenceRow, InterferenceStep, IoPhasesRow,
    KNOBS_DOCUMENT, KnobsRow, PEERS_DOCUMENT, POLICIES_DOCUMENT, PeersRow, PoliciesRow,
    RULES_DOCUMENT, RulesRow, SOURCES_DOCUMENT, STATEMENTS_DOCUMENT, SUBSCRIBERS_DOCUMENT,
    SourcesRow, StatementsRow, SubscribersRow, WATCHES_DOCUMENT, WatchesRow,
};
pub use config::{Config, QueryConfig, StreamsConfig};
pub use controllers::{
    ControlConfig, ControlModeConfig, ThresholdsConfig, WEIGHTS_DIR, WeightRights,
};
pub use error::AgentError;
pub use export::{ExportConfig, ReceiverConfig};
pub use fabric::ClusterConfig;
pub use interference::BandwidthConfig;
pub use io_schedules::{PolicyName, ScheduleConfig, VolumeConfig};
pub use look::{LookDocuments, look};
pub use reference::{config_file, config_markdown, sources_markdown};
pub use staging::StagingConfig;
pub use start::Agent;
pub use watches::{ChangelogConfig, EventConfig, WatchConfig};
pub use who::MOVING_BYTES_PER_SECOND_MIN;
