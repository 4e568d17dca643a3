//! Documents: how a part of the agent writes the JSON in which it describes itself.
//!
//! It stands alone because every part of the agent writes such documents.

use std::path::Path;

use barograph_model::Labels;
use barograph_stream::{AGENT_DOCUMENT, RunDir};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tracing::warn;

/// Writes one, for all who may read the run directory. Rows go straight into its bytes: thousands of them must not keep a sampler waiting.
pub fn publish(run_dir: &RunDir, name: &str, document: &impl Serialize) {
    let written = serde_json::to_vec(document).map_err(|error| error.to_string());
    let published = written.and_then(|bytes| {
        let published = run_dir.publish(name, &bytes, 0o644);
        published.map_err(|error| error.to_string())
    });
    if let Err(error) = published {
        warn!(error, "a document is not up to date");
    }
}

/// Says in the agent's document where its archive is by now.
pub fn name_archive(run_dir: &RunDir, dir: Option<&Path>) {
    let Ok(Some(bytes)) = run_dir.document(AGENT_DOCUMENT) else {
        return; // It has not been written yet, and will have it.
    };
    if let Ok(Json::Object(mut document)) = serde_json::from_slice(&bytes) {
        document.insert("archive".into(), json!(dir));
        publish(run_dir, AGENT_DOCUMENT, &document);
    }
}

/// Labels as an object.
pub struct LabelsJson<'a>(pub &'a Labels);

impl Serialize for LabelsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}
