//! Where middleware puts blocks: the questions of a program to the agent of its node, and what is
//! done without an answer.
//!
//! An answer is never waited for longer than [`DECISION_WAIT_MAX`](crate::DECISION_WAIT_MAX), and
//! there is always one: without an agent it is weighted rendezvous hashing by the weights of the
//! question, which gives each block the same place on each node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_placement::{
    DomainId, KeyHash, PlacementError, Rendezvous, RendezvousTarget, TargetId,
};
use barograph_stream::RunDir;
use serde_json::{Value as Json, json};

use crate::control_door::ControlDoor;

/// A directory to which blocks may go.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviceTarget {
    /// Its absolute path, without links and `..`.
    pub path: String,
    /// Its share if nothing is known of the targets, of at least 0; 1 for equal shares.
    pub weight: f64,
}

/// What a program asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdviceQuestion {
    /// The keys of the blocks, of 256 at most; none for one block, which the label names.
    pub keys: Vec<String>,
    /// Bytes of each block.
    pub bytes: u64,
    /// Whether the way back is to be fast, and not the way there.
    pub is_read: bool,
    /// Least bytes of a piece if blocks may be divided; `None` if they stay whole.
    pub split_bytes_min: Option<u64>,
    /// Where the blocks may go, of 32 at most.
    pub targets: Vec<AdviceTarget>,
    /// A short text that names the question in decisions.
    pub label: String,
    /// Whether hashing answers, and what the agent would answer is recorded alone.
    pub dry_run: bool,
}

/// A part of a block, or all of it, and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct AdvisedPiece {
    /// The path of the target, as it was asked.
    pub path: String,
    /// Bytes that go there.
    pub bytes: u64,
}

/// Where a block goes.
#[derive(Clone, Debug, PartialEq)]
pub struct AdvisedBlock {
    /// Its key.
    pub key: String,
    /// Its pieces, in the order of the block's bytes; none if no target has room.
    pub pieces: Vec<AdvisedPiece>,
    /// Expected seconds until it is there, if they are known.
    pub expected_s: Option<f64>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The number of the agent's decision, for [`PlacementAdviser::report`]; `None` without one.
    pub decision: Option<u64>,
    /// One sentence about it.
    pub reason: String,
    /// The blocks, in the order of the question.
    pub blocks: Vec<AdvisedBlock>,
}

/// The way to the adviser of the agent. It may be shared by threads.
#[derive(Debug)]
pub struct PlacementAdviser {
    door: ControlDoor,
}

impl PlacementAdviser {
    /// The adviser of the agent with this run directory.
    pub fn new(run_dir: RunDir) -> Self {
        Self {
            door: ControlDoor::new(run_dir),
        }
    }

    /// Asks where blocks go.
    ///
    /// # Errors
    ///
    /// The question makes no sense even without an agent: there is no target with a weight.
    pub fn advise(&self, question: &AdviceQuestion) -> Result<Advice, PlacementError> {
        let why = match self.door.post("advise", &body(question)) {
            Ok(answer) => match read(&answer, question) {
                Some(advice) => return Ok(advice),
                None => "the agent's answer is not understood".to_owned(),
            },
            Err(why) => why,
        };
        hashed(question, &why)
    }

    /// Tells the agent how long the blocks of a decision took; returns whether it has heard it.
    pub fn report(&self, decision: u64, bytes: u64, time: Duration) -> bool {
        let body = json!({ "decision": decision, "bytes": bytes, "seconds": time.as_secs_f64() });
        self.door.post("report", &body).is_ok()
    }
}

fn body(question: &AdviceQuestion) -> Json {
    let targets = question.targets.iter();
    let targets = targets.map(|it| json!({ "path": it.path, "weight": it.weight }));
    json!({
        "keys": question.keys,
        "bytes": question.bytes,
        "direction": if question.is_read { "read" } else { "write" },
        "split_bytes_min": question.split_bytes_min,
        "targets": targets.collect::<Vec<_>>(),
        "label": question.label,
        "dry_run": question.dry_run,
    })
}

/// The answer of an agent; `None` if it does not fit the question.
fn read(answer: &Json, question: &AdviceQuestion) -> Option<Advice> {
    let blocks = answer["blocks"].as_array()?;
    if blocks.len() != question.keys.len().max(1) {
        return None;
    }
    let blocks = blocks.iter().map(|block| {
        let pieces = block["pieces"].as_array()?.iter().map(|piece| {
            Some(AdvisedPiece {
                path: piece["path"].as_str()?.to_owned(),
                bytes: piece["bytes"].as_u64()?,
            })
        });
        Some(AdvisedBlock {
            key: block["key"].as_str()?.to_owned(),
            pieces: pieces.collect::<Option<_>>()?,
            expected_s: block["expected_s"].as_f64(),
        })
    });
    Some(Advice {
        decision: Some(answer["decision"].as_u64()?),
        reason: answer["reason"].as_str()?.to_owned(),
        blocks: blocks.collect::<Option<_>>()?,
    })
}

/// The answer of hashing alone.
fn hashed(question: &AdviceQuestion, why: &str) -> Result<Advice, PlacementError> {
    let targets = question.targets.iter().map(|it| {
        // The numbers are those that the agent has, so that both hash alike: of paths without what
        // does not change where they lead.
        let plain: PathBuf = Path::new(&it.path).components().collect();
        let id = KeyHash::of(plain.as_os_str().as_encoded_bytes()).number();
        RendezvousTarget {
            id: TargetId(id),
            domain: DomainId(id),
            weight: it.weight,
        }
    });
    let targets: Vec<_> = targets.collect();
    let hash = Rendezvous::new(&targets)?;
    let of_label = [question.label.clone()];
    let keys = match question.keys.is_empty() {
        true => &of_label[..],
        false => &question.keys,
    };
    let blocks = keys.iter().map(|key| {
        let chosen = hash.first(KeyHash::of(key.as_bytes()));
        let at = targets.iter().position(|it| Some(it.id) == chosen);
        let piece = at.map(|at| AdvisedPiece {
            path: question.targets[at].path.clone(),
            bytes: question.bytes,
        });
        AdvisedBlock {
            key: key.clone(),
            pieces: piece.into_iter().collect(),
            expected_s: None,
        }
    });
    Ok(Advice {
        decision: None,
        reason: format!("by hashing alone: {why}"),
        blocks: blocks.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(paths: &[(&str, f64)]) -> AdviceQuestion {
        let targets = paths.iter().map(|(path, weight)| AdviceTarget {
            path: (*path).to_owned(),
            weight: *weight,
        });
        AdviceQuestion {
            keys: (0..100).map(|n| n.to_string()).collect(),
            bytes: 7,
            targets: targets.collect(),
            ..AdviceQuestion::default()
        }
    }

    #[test]
    fn without_an_agent_hashing_answers() {
        let dir = tempfile::tempdir().unwrap();
        let adviser = PlacementAdviser::new(RunDir::new(dir.path().join("none")));
        let advice = adviser.advise(&question(&[("/a", 1.0), ("/b", 3.0), ("/c", 0.0)]));
        let advice = advice.unwrap();
        let alike = adviser.advise(&question(&[("//a/", 1.0), ("/b/.", 3.0)]));
        let alike = alike.unwrap();
        assert_eq!(
            alike.blocks[7].pieces[0].path == "//a/",
            advice.blocks[7].pieces[0].path == "/a"
        );
        assert!(
            advice.reason.contains("no agent answers"),
            "{}",
            advice.reason
        );
        assert_eq!(advice.decision, None);
        let of = |path: &str| {
            let blocks = advice.blocks.iter();
            blocks.filter(|it| it.pieces[0].path == path).count()
        };
        assert_eq!((of("/a") + of("/b"), of("/c")), (100, 0));
        assert!(of("/b") > of("/a"));
        assert!(!adviser.report(1, 7, Duration::ZERO));
        assert!(adviser.advise(&question(&[("/a", f64::NAN)])).is_err());
        assert!(adviser.advise(&question(&[("/a", 0.0)])).is_ok());
    }

    #[test]
    fn an_answer_that_does_not_fit_is_not_used() {
        let mut asked = question(&[("/a", 1.0)]);
        asked.keys.truncate(1);
        let answer = json!({
            "decision": 4, "reason": "so",
            "blocks": [{ "key": "0", "pieces": [{ "path": "/a", "bytes": 7 }], "expected_s": null }],
        });
        let advice = read(&answer, &asked).unwrap();
        assert_eq!((advice.decision, advice.blocks.len()), (Some(4), 1));
        for wrong in [
            json!({}),
            json!({ "decision": 4, "reason": "so", "blocks": [] }),
            json!({ "decision": 4, "reason": "so", "blocks": [{ "key": "0" }] }),
            json!({ "decision": 4, "reason": "so", "blocks": [{ "key": "0", "pieces": [{}] }] }),
        ] {
            assert_eq!(read(&wrong, &asked), None, "{wrong}");
        }
    }
}
