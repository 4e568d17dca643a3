//! What middleware asks about the place of blocks. Bodies are foreign: everything is bounded, and
//! what is wrong is told with what to send instead.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use barograph_model::{ControlFault, cut};
use barograph_placement::{IoDirection, KeyHash, SplitRule, TargetId};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::controllers::request::{read, wrong};

/// Most targets of a request.
const TARGETS_MAX: usize = 32;
/// Most blocks of a request.
const KEYS_MAX: usize = 256;
/// Most bytes of the key of a block.
const KEY_BYTES_MAX: usize = 4_096;
/// Most bytes of the path of a target.
const PATH_BYTES_MAX: usize = 4_096;
/// Most bytes of the label of a request; longer ones are cut.
const LABEL_BYTES_MAX: usize = 128;

/// Where blocks of equal size may go, checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdviceRequest {
    /// The keys of the blocks, with their hashes.
    pub keys: Vec<(String, KeyHash)>,
    /// Bytes of each block.
    pub bytes: u64,
    /// What is to be fast: the way there, or the way back.
    pub direction: IoDirection,
    /// Whether a block may be divided.
    pub split: SplitRule,
    pub targets: Vec<AskedTarget>,
    pub label: String,
    pub dry_run: bool,
    /// Whether nobody will do it: it does not count as on its way, and is no decision.
    pub is_look: bool,
}

/// A directory to which blocks may go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AskedTarget {
    /// Its path without what does not change where it leads, and as it was sent.
    pub path: String,
    pub sent: String,
    /// The number by which hashing knows it: the hash of the path, so that it is the same on each
    /// node and in each life of an agent.
    pub id: TargetId,
    /// Its share if nothing is known.
    pub weight: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdviceBody {
    #[serde(default)]
    keys: Vec<String>,
    bytes: u64,
    #[serde(default)]
    direction: DirectionBody,
    split_bytes_min: Option<u64>,
    targets: Vec<TargetBody>,
    label: Option<String>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    look: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DirectionBody {
    Read,
    #[default]
    Write,
}

/// A directory, with or without its weight.
#[derive(Deserialize)]
#[serde(untagged)]
enum TargetBody {
    Path(String),
    Weighted { path: String, weight: f64 },
}

impl AdviceRequest {
    /// Reads the body of a request.
    pub(super) fn parse(body: &Json) -> Result<Self, ControlFault> {
        let body: AdviceBody = read(body, "advice")?;
        let label = cut(body.label.unwrap_or_default(), LABEL_BYTES_MAX);
        let keys = match body.keys.is_empty() {
            // One block, which its label names.
            true => vec![label.clone()],
            false => body.keys,
        };
        if keys.len() > KEYS_MAX {
            return Err(wrong(format!(
                "{} keys: send {KEYS_MAX} at most, and ask again for the others",
                keys.len()
            )));
        }
        if keys.iter().any(|key| key.len() > KEY_BYTES_MAX) {
            return Err(wrong(format!("a key has {KEY_BYTES_MAX} bytes at most")));
        }
        if body.split_bytes_min == Some(0) {
            return Err(wrong(
                "split_bytes_min is 0: send the least bytes of a piece, or leave it out if blocks stay whole".into(),
            ));
        }
        Ok(Self {
            keys: keys
                .into_iter()
                .map(|key| {
                    let hash = KeyHash::of(key.as_bytes());
                    (key, hash)
                })
                .collect(),
            bytes: body.bytes,
            direction: match body.direction {
                DirectionBody::Read => IoDirection::Read,
                DirectionBody::Write => IoDirection::Write,
            },
            split: match body.split_bytes_min {
                Some(bytes_min) => SplitRule::Pieces { bytes_min },
                None => SplitRule::Whole,
            },
            targets: targets(body.targets)?,
            label,
            dry_run: body.dry_run,
            is_look: body.look,
        })
    }
}

fn targets(sent: Vec<TargetBody>) -> Result<Vec<AskedTarget>, ControlFault> {
    if sent.is_empty() || sent.len() > TARGETS_MAX {
        return Err(wrong(format!(
            "{} targets: send 1 to {TARGETS_MAX} directories to which the blocks may go",
            sent.len()
        )));
    }
    let mut ids = BTreeSet::new();
    let targets = sent.into_iter().map(|sent| {
        let (sent, weight) = match sent {
            TargetBody::Path(path) => (path, 1.0),
            TargetBody::Weighted { path, weight } => (path, weight),
        };
        let path = plain(&sent)?;
        if !weight.is_finite() || weight < 0.0 {
            return Err(wrong(format!(
                "the weight of {path:?} is {weight}: send a number of at least 0, such as 1"
            )));
        }
        let id = TargetId(KeyHash::of(path.as_bytes()).number());
        match ids.insert(id) {
            true => Ok(AskedTarget {
                path,
                sent,
                id,
                weight,
            }),
            false => Err(wrong(format!("{path:?} is listed twice"))),
        }
    });
    targets.collect()
}

/// A path without what does not change where it leads: it is compared as a text.
fn plain(path: &str) -> Result<String, ControlFault> {
    let is_whole = path.starts_with('/') && path.len() <= PATH_BYTES_MAX && !path.contains('\0');
    let parts = Path::new(path).components();
    let is_plain = is_whole && parts.clone().all(|part| part != Component::ParentDir);
    let plain: Option<PathBuf> = is_plain.then(|| parts.collect());
    let text = plain.map(|plain| plain.to_str().map(str::to_owned));
    text.flatten().ok_or_else(|| {
        wrong(format!(
            "{:?} is no target: send the absolute path of a directory, without `..`, of {PATH_BYTES_MAX} bytes at most",
            cut(path.to_owned(), LABEL_BYTES_MAX)
        ))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_and_targets_are_read() {
        let body = json!({
            "keys": ["a", "b"], "bytes": 7, "direction": "read", "split_bytes_min": 3,
            "targets": ["/x//y/./", { "path": "/z", "weight": 2.5 }],
        });
        let request = AdviceRequest::parse(&body).unwrap();
        assert_eq!(request.keys.len(), 2);
        assert_eq!(request.keys[1].1, KeyHash::of(b"b"));
        assert_eq!(request.direction, IoDirection::Read);
        assert_eq!(request.split, SplitRule::Pieces { bytes_min: 3 });
        let targets = request.targets.iter();
        let targets: Vec<_> = targets.map(|it| (&*it.path, it.weight)).collect();
        assert_eq!(targets, [("/x/y", 1.0), ("/z", 2.5)]);
        // It is told as it was sent.
        assert_eq!(request.targets[0].sent, "/x//y/./");
        let one = json!({ "bytes": 7, "targets": ["/"], "label": "step 3" });
        let request = AdviceRequest::parse(&one).unwrap();
        assert_eq!(request.keys[0].0, "step 3");
        assert_eq!(request.split, SplitRule::Whole);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let many: Vec<String> = (0..=TARGETS_MAX).map(|n| format!("/{n}")).collect();
        let keys: Vec<String> = (0..=KEYS_MAX).map(|n| n.to_string()).collect();
        let table = [
            (json!(7), "invalid type"),
            (json!({ "targets": ["/"] }), "missing field `bytes`"),
            (json!({ "bytes": -1, "targets": ["/"] }), "invalid value"),
            (json!({ "bytes": 1, "targets": [] }), "send 1 to 32"),
            (json!({ "bytes": 1, "targets": many }), "send 1 to 32"),
            (json!({ "bytes": 1, "targets": ["a"] }), "absolute path"),
            (
                json!({ "bytes": 1, "targets": ["/a/../b"] }),
                "without `..`",
            ),
            (
                json!({ "bytes": 1, "targets": ["/a", "/a/"] }),
                "listed twice",
            ),
            (
                json!({ "bytes": 1, "targets": [{ "path": "/a", "weight": -1 }] }),
                "at least 0",
            ),
            (
                json!({ "bytes": 1, "targets": ["/"], "keys": keys }),
                "256 at most",
            ),
            (
                json!({ "bytes": 1, "targets": ["/"], "keys": ["x".repeat(4_097)] }),
                "4096 bytes at most",
            ),
            (
                json!({ "bytes": 1, "targets": ["/"], "split_bytes_min": 0 }),
                "split_bytes_min is 0",
            ),
            (
                json!({ "bytes": 1, "targets": ["/"], "direction": "up" }),
                "unknown variant",
            ),
            (
                json!({ "bytes": 1, "targets": ["/"], "x": 1 }),
                "unknown field",
            ),
        ];
        for (body, expect) in table {
            let refused = AdviceRequest::parse(&body).unwrap_err().message;
            assert!(refused.contains(expect), "{body}: {refused}");
        }
    }
}
