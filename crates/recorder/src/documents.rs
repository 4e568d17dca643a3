//! Documents: the JSON files in the run directory in which the parts of the agent describe
//! themselves.
//!
//! It is a module of its own because every part of the agent writes such documents.

use std::path::Path;

use barograph_archive::ArchiveLosses;
use barograph_model::NS_PER_S;
use barograph_stream::{AGENT_DOCUMENT, RunDir};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tracing::warn;

/// Time between two writes of documents in which only counters have changed.
pub const DOCUMENTS_NS: i64 = 5 * NS_PER_S;

/// Writes a document that everyone who may read the run directory can read. The rows are serialized
/// directly to bytes, since thousands of rows must not delay a sampler. A failure is logged.
pub fn publish(run_dir: &RunDir, name: &str, document: &impl Serialize) {
    publish_rendered(run_dir, name, serde_json::to_vec(document));
}

/// Writes a document as [`publish`] does, which only the agent's user may read.
pub fn publish_private(run_dir: &RunDir, name: &str, document: &impl Serialize) {
    write(run_dir, name, serde_json::to_vec(document), 0o600);
}

/// Writes a document as [`publish`] does, from its bytes.
pub fn publish_rendered(run_dir: &RunDir, name: &str, bytes: serde_json::Result<Vec<u8>>) {
    write(run_dir, name, bytes, 0o644);
}

fn write(run_dir: &RunDir, name: &str, bytes: serde_json::Result<Vec<u8>>, mode: u32) {
    let written = bytes.map_err(|error| error.to_string());
    let published = written.and_then(|bytes| {
        let published = run_dir.publish(name, &bytes, mode);
        published.map_err(|error| error.to_string())
    });
    if let Err(error) = published {
        warn!(error, "a document is not up to date");
    }
}

/// Sets the directory of the archive in the agent's document, if that document exists already.
pub fn name_archive(run_dir: &RunDir, dir: Option<&Path>) {
    let Ok(Some(bytes)) = run_dir.document(AGENT_DOCUMENT) else {
        return; // The document has not been written yet; it will contain the directory when it is.
    };
    if let Ok(Json::Object(mut document)) = serde_json::from_slice(&bytes) {
        document.insert("archive".into(), json!(dir));
        publish(run_dir, AGENT_DOCUMENT, &document);
    }
}

/// The contents of `archive.json` while history is kept; it is null while history is off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveDocument {
    /// Directory of the archive.
    pub dir: String,
    /// Bytes of its Parquet files.
    pub bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Number of its Parquet files.
    pub files: u64,
    /// Number of samples in them.
    pub samples: u64,
    /// Time of the oldest sample, in ns since the epoch; none while there is none.
    pub oldest_ts: Option<i64>,
    /// Bytes that wait to be written.
    pub waiting_bytes: u64,
    /// Number of files that wait to be copied to the target.
    pub waiting_copies: u64,
    /// Number of copies of merged files that wait to be removed from the target.
    pub stale_copies: u64,
    /// The losses.
    pub losses: ArchiveLosses,
    /// The present problems; empty if there are none.
    pub trouble: String,
}
