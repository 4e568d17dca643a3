//! The recorder: it takes every sample of a scope and passes it to the segment that all processes
//! read, to the journal of the archive, and to the forecaster of its stream.
//!
//! The crate stands alone because the sampling thread and the scopes of applications record in the
//! same way, and mirrors of other nodes will too.

mod archive_config;
mod backoff;
mod copies;
mod documents;
mod forecasts;
mod histories;
mod history;
mod outputs;
mod predecessor;
mod range;
mod streams;
mod work;
mod world;

pub use archive_config::ArchiveConfig;
pub use backoff::Backoff;
pub use copies::{ScopeCopies, ScopeTarget};
pub use documents::{
    ArchiveDocument, DOCUMENTS_NS, name_archive, publish, publish_private, publish_rendered,
};
pub use forecasts::{
    ForecastConfig, ForecastRoom, Forecasts, PROJECT_NS, PredictedReach, declare_projections,
};
pub use histories::ScopeHistories;
pub use history::{History, PrepareArchive};
pub use outputs::Outputs;
pub use predecessor::take_over;
pub use range::seconds;
pub use streams::Streams;
pub use work::{Job, JobQueue, QueuedJob, Work};
pub use world::{ProcessMeter, Randomness, World};
