//! What can go wrong for who asks, and what to do about it.

use std::path::PathBuf;

use barograph_model::ModelError;
use barograph_query::QueryError;
use barograph_stream::StreamError;
use thiserror::Error;

/// Failures of an [`Observer`](crate::Observer).
#[derive(Debug, Error)]
pub enum ClientError {
    /// No agent has ever served the run directory.
    #[error(
        "no agent serves {}: start one with `baro up`, or name its run directory \
         (--run-dir, BAROGRAPH_RUN_DIR)", path.display()
    )]
    NoAgent {
        /// The run directory.
        path: PathBuf,
    },
    /// There is no archive in a directory.
    #[error("there is no archive in {}: name the directory that `baro status` tells (--archive-dir)", path.display())]
    NoArchive {
        /// The directory.
        path: PathBuf,
    },
    /// The archive is there and cannot be read.
    #[error(transparent)]
    Archive(QueryError),
    /// The segment is there and cannot be read.
    #[error(transparent)]
    Segment(StreamError),
    /// A selector that cannot be read.
    #[error(transparent)]
    Selector(#[from] ModelError),
    /// Nothing matches.
    #[error("no stream matches {selector}{}", did_you_mean(near))]
    UnknownStream {
        /// What was asked for.
        selector: String,
        /// Streams that may have been meant, best first.
        near: Vec<String>,
    },
    /// One stream was asked for and several match.
    #[error(
        "{selector} matches {count} streams ({}): name one by its labels, as name{{label=value}}",
        some_of(matches, *count)
    )]
    Ambiguous {
        /// What was asked for.
        selector: String,
        /// How many match.
        count: usize,
        /// The first of them.
        matches: Vec<String>,
    },
}

impl From<StreamError> for ClientError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::NoAgent { path } => Self::NoAgent { path },
            other => Self::Segment(other),
        }
    }
}

impl From<QueryError> for ClientError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Stream(error) => error.into(),
            other => Self::Archive(other),
        }
    }
}

fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() {
        " (`baro streams` lists what there is)".into()
    } else {
        format!(": did you mean {}?", near.join(", "))
    }
}

fn some_of(matches: &[String], count: usize) -> String {
    let dots = if count > matches.len() { ", …" } else { "" };
    format!("{}{dots}", matches.join(", "))
}
