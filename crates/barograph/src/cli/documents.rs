//! The documents of an agent as commands read them: typed for people, and as they are for `--json`.

use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_agent::{AGENT_DOCUMENT, AgentDocument};
use barograph_client::RunDir;
use barograph_model::Labels;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value as Json};

use super::{Target, Usage};

/// A row of a document. As JSON it is what the agent has written, of whatever version it is.
pub(super) struct DocumentRow<T> {
    row: T,
    json: Json,
}

impl<T> Deref for DocumentRow<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.row
    }
}

impl<T> Serialize for DocumentRow<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for DocumentRow<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let row = T::deserialize(&json).map_err(D::Error::custom)?;
        Ok(Self { row, json })
    }
}

/// Reads a document; `None` if there is none. A null in it is a value of `T`.
pub(super) fn document<T: DeserializeOwned>(
    run_dir: &RunDir,
    name: &str,
) -> anyhow::Result<Option<T>> {
    let Some(bytes) = run_dir.document(name)? else {
        return Ok(None);
    };
    let read = serde_json::from_slice(&bytes).map(Some);
    read.with_context(|| damaged(run_dir, name))
}

fn damaged(run_dir: &RunDir, name: &str) -> String {
    let path = run_dir.path().join(name);
    format!(
        "the agent's {} is damaged, or of another version",
        path.display()
    )
}

/// Reads a document that every agent has.
pub(super) fn document_of_agent<T: DeserializeOwned>(
    run_dir: &RunDir,
    name: &str,
) -> anyhow::Result<T> {
    document(run_dir, name)?.with_context(|| {
        let path = run_dir.path().display();
        format!("no agent serves {path}: start one with `baro up`")
    })
}

/// Reads the rows of a document in all scopes that this user may read.
pub(super) fn rows_of_scopes<T: DeserializeOwned>(
    target: &Target,
    name: &str,
) -> anyhow::Result<Vec<DocumentRow<T>>> {
    let mut all = Vec::new();
    for (scope, run_dir) in target.run_dir().scopes() {
        let rows: Option<Vec<Map<String, Json>>> = document(&run_dir, name)?;
        for mut row in rows.into_iter().flatten() {
            row.insert("scope".into(), scope.as_str().into());
            let row = DocumentRow::deserialize(Json::Object(row));
            all.push(row.with_context(|| damaged(&run_dir, name))?);
        }
    }
    Ok(all)
}

/// A value as text for people; empty if there is none.
pub(super) fn shown(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The labels of a row; none if they are not valid.
pub(super) fn labels_of<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Labels {
    Labels::new(
        pairs
            .into_iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    )
    .unwrap_or_default()
}

/// The state directory that the agent names. Only for an agent of this user: files are written
/// there with this user's rights, so nobody else may choose the place.
pub(super) fn state_of_agent(run_dir: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let found = run_dir.map_or_else(RunDir::find, RunDir::new);
    let me = std::fs::metadata("/proc/self")?.uid();
    let is_ours = std::fs::metadata(found.path()).is_ok_and(|dir| dir.uid() == me);
    let agent: Option<AgentDocument> = match is_ours {
        true => document(&found, AGENT_DOCUMENT)?,
        false => None,
    };
    match (agent, run_dir) {
        (Some(agent), _) => Ok(agent.state),
        (None, None) => Ok(None),
        (None, Some(dir)) => {
            let dir = dir.display();
            let text = format!("{dir} has no agent of this user: name its --state-dir or --config");
            Err(Usage(text).into())
        }
    }
}
