//! Why an agent does not start.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Failures of starting an agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The configuration file is not what it should be.
    #[error("{}: {source}", path.display())]
    ConfigText {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A value in the configuration is out of range.
    #[error(transparent)]
    ConfigValue(#[from] barograph_model::ConfigError),
    /// The root of the fixture tree is not a directory.
    #[error("--sys-root {} is not a directory", path.display())]
    SysRoot {
        /// The path.
        path: PathBuf,
    },
    /// The state directory cannot be used.
    #[error("cannot {what} {}: {source} (choose a --state-dir that this user may write)", path.display())]
    State {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory cannot be made, or not opened to those who may read it.
    #[error("cannot make {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The intake.
    #[error(transparent)]
    Intake(#[from] barograph_intake::IntakeError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The `[sources]` part of the configuration.
    #[error(transparent)]
    Source(#[from] barograph_source::SourceError),
    /// Segment or run directory.
    #[error(transparent)]
    Stream(#[from] barograph_stream::StreamError),
    /// SQL.
    #[error(transparent)]
    Query(#[from] barograph_query::QueryError),
    /// HTTP.
    #[error(transparent)]
    Server(#[from] barograph_server::ServerError),
}
