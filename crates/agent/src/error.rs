//! The errors that keep an agent from starting.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// An error that keeps an agent from starting.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The configuration file is no TOML, or has an unknown key or a value of the wrong type.
    #[error("{}: {source}", path.display())]
    ConfigText {
        /// The file.
        path: PathBuf,
        /// Error of the parser, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A value in the configuration is out of range.
    #[error(transparent)]
    ConfigValue(#[from] barograph_model::ConfigError),
    /// The path of `--sys-root` is not a directory.
    #[error("--sys-root {} is not a directory", path.display())]
    SysRoot {
        /// The path.
        path: PathBuf,
    },
    /// The state directory cannot be used.
    #[error("cannot {what} {}: {source} (choose a --state-dir that this user may write)", path.display())]
    State {
        /// The action that failed, as a verb of the message.
        what: &'static str,
        /// The file or directory of that action.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A directory cannot be made, or cannot be opened to the users who may read it.
    #[error("cannot make {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The intake cannot start.
    #[error(transparent)]
    Intake(#[from] barograph_intake::IntakeError),
    /// The node cannot take part in its cluster.
    #[error(transparent)]
    Fabric(#[from] barograph_fabric::transport::ZenohFault),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The `[sources]` table of the configuration is not valid.
    #[error(transparent)]
    Source(#[from] barograph_source::SourceError),
    /// The segment or the run directory cannot be used.
    #[error(transparent)]
    Stream(#[from] barograph_stream::StreamError),
    /// SQL cannot be set up.
    #[error(transparent)]
    Query(#[from] barograph_query::QueryError),
    /// The HTTP server cannot start.
    #[error(transparent)]
    Server(#[from] barograph_server::ServerError),
}
