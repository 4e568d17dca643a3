//! Documents: the JSON files in the run directory in which the parts of the agent describe
//! themselves.
//!
//! It is a module of its own because every part of the agent writes such documents.

use std::path::Path;

use barograph_model::{Labels, NS_PER_S};
use barograph_stream::{AGENT_DOCUMENT, RunDir};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tracing::warn;

/// Time between two writes of documents in which only counters have changed.
pub const DOCUMENTS_NS: i64 = 5 * NS_PER_S;

/// Writes a document that everyone who may read the run directory can read. The rows are serialized
/// directly to bytes, since thousands of rows must not delay a sampler. A failure is logged.
pub fn publish(run_dir: &RunDir, name: &str, document: &impl Serialize) {
    publish_rendered(run_dir, name, serde_json::to_vec(document));
}

/// Writes a document as [`publish`] does, from its bytes.
pub fn publish_rendered(run_dir: &RunDir, name: &str, bytes: serde_json::Result<Vec<u8>>) {
    let written = bytes.map_err(|error| error.to_string());
    let published = written.and_then(|bytes| {
        let published = run_dir.publish(name, &bytes, 0o644);
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

/// Labels that serialize as a JSON object.
pub struct LabelsJson<'a>(pub &'a Labels);

impl Serialize for LabelsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}
