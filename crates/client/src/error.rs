//! Errors of reading, each with its remedy.

use std::path::PathBuf;

use barograph_model::ModelError;
use barograph_query::QueryError;
use barograph_stream::{StreamError, UnknownNode};
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
    /// A directory holds no archive.
    #[error("there is no archive in {}: name the directory that `baro status` tells (--archive-dir)", path.display())]
    NoArchive {
        /// The directory.
        path: PathBuf,
    },
    /// The archive exists but cannot be read.
    #[error(transparent)]
    Archive(QueryError),
    /// The segment exists but cannot be read.
    #[error(transparent)]
    Segment(StreamError),
    /// A selector has a syntax error.
    #[error(transparent)]
    Selector(#[from] ModelError),
    /// No node of this name is mirrored here.
    #[error(transparent)]
    UnknownNode(#[from] UnknownNode),
    /// No stream matches a selector.
    #[error("no stream matches {selector}{}{}", in_mirror(mirror_of.as_deref()), did_you_mean(near))]
    UnknownStream {
        /// The selector.
        selector: String,
        /// Names of streams that may have been meant, best first.
        near: Vec<String>,
        /// The node whose mirror was searched; none if it was the node's own segment.
        mirror_of: Option<String>,
    },
    /// Several streams match a selector that must match one.
    #[error(
        "{selector} matches {count} streams ({}): name one by its labels, as name{{label=value}}",
        some_of(matches, *count)
    )]
    Ambiguous {
        /// The selector.
        selector: String,
        /// The number of streams that match.
        count: usize,
        /// The first of the streams that match.
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

fn in_mirror(mirror_of: Option<&str>) -> String {
    let of = |node| format!(" in what is mirrored of {node} (see cluster.mirror)");
    mirror_of.map(of).unwrap_or_default()
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
