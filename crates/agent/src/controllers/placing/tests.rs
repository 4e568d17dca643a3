//! Advice over states that are given, and the questions of users over a node without streams.

use barograph_client::TargetValue;
use barograph_placement::TargetId;

use super::*;
use crate::controllers::config::ControlConfig;
use crate::controllers::tests::{Node, STRANGER, USER};

const GB: f64 = 1e9;

fn asker(uid: u32) -> RequestSender {
    RequestSender {
        uid: Some(uid),
        pid: None,
        via: "read.sock".into(),
        may_control: false,
    }
}

/// A file system that is known since so many seconds.
fn target(mount: &str, free: f64, bandwidth: f64, age_s: i64) -> StorageTarget {
    let value = |value: f64| {
        Some(TargetValue {
            value,
            error: 0.0,
            looked_ns: (1_000 - age_s) * NS_PER_S,
            predicted: None,
        })
    };
    StorageTarget {
        mount: mount.to_owned(),
        device: format!("{mount}-device"),
        tier: "nvme".into(),
        is_writable: true,
        is_responding: true,
        capacity_bytes: value(100.0 * GB),
        free_bytes: value(free),
        queue_bytes: value(0.0),
        write_bytes_s: value(bandwidth),
        ..StorageTarget::default()
    }
}

fn request(keys: usize, bytes: u64, paths: &[&str]) -> AdviceRequest {
    let keys: Vec<String> = (0..keys).map(|n| format!("block {n}")).collect();
    AdviceRequest::parse(&json!({ "keys": keys, "bytes": bytes, "targets": paths })).unwrap()
}

/// How many blocks each path gets, of targets in the order of the paths.
fn counts(
    request: &AdviceRequest,
    known: &[Option<StorageTarget>],
    by_hashing: bool,
) -> Vec<usize> {
    let asked = request.targets.iter().zip(known);
    let candidates: Vec<Candidate> = asked
        .map(|(asked, known)| Candidate::new(asked, known.clone(), 1_000 * NS_PER_S))
        .collect();
    let blocks = place(request, &mut candidates.clone(), 0, by_hashing);
    let chosen: Vec<TargetId> = blocks
        .iter()
        .flat_map(|block| pieces(&block.decision).map(|(target, _)| target))
        .collect();
    let of = |it: &Candidate| chosen.iter().filter(|id| **id == it.asked.id).count();
    candidates.iter().map(of).collect()
}

#[test]
fn each_block_counts_for_those_after_it() {
    let request = request(100, 1_000_000_000, &["/a", "/b"]);
    // Room for ten blocks on the fast one, and the queues grow.
    let known = [
        Some(target("/a", 10.0 * GB, 2.0 * GB, 0)),
        Some(target("/b", 90.0 * GB, GB, 0)),
    ];
    let counts = counts(&request, &known, false);
    assert_eq!(counts[0], 10, "{counts:?}");
    assert_eq!(counts[1], 90, "{counts:?}");
}

#[test]
fn stale_state_and_a_pause_leave_hashing_by_weights() {
    let request = request(200, 1_000, &["/a", "/b"]);
    let fresh = |age_s| {
        [
            Some(target("/a", 50.0 * GB, 9.0 * GB, age_s)),
            Some(target("/b", 50.0 * GB, GB, age_s)),
        ]
    };
    // By their bandwidths, nine to one: what was told waits there.
    let fast = counts(&request, &fresh(0), false)[0];
    assert!((160..200).contains(&fast), "{fast}");
    for hashed in [
        counts(&request, &fresh(900), false),
        counts(&request, &fresh(0), true),
        counts(&request, &[None, None], false),
    ] {
        assert!((70..130).contains(&hashed[0]), "{hashed:?}");
        assert_eq!(hashed[0] + hashed[1], 200);
    }
    // One that cannot be written gets nothing in any case.
    let mut known = fresh(0);
    known[0].as_mut().unwrap().is_writable = false;
    for by_hashing in [false, true] {
        assert_eq!(counts(&request, &known, by_hashing), [0, 200]);
    }
}

#[test]
fn an_answer_is_a_decision_with_what_was_known() {
    let mut request = request(1, 20_000_000_000, &["/a", "/b", "/c"]);
    request.label = "checkpoint".into();
    let known = [
        Some(target("/a", 90.0 * GB, GB, 2)),
        Some(target("/b", 10.0 * GB, 9.0 * GB, 2)),
        None,
    ];
    let asked = request.targets.iter().zip(known);
    let candidates: Vec<Candidate> = asked
        .map(|(asked, known)| Candidate::new(asked, known, 1_000 * NS_PER_S))
        .collect();
    let advice = Advice {
        request: &request,
        candidates: &candidates,
        blocks: place(&request, &mut candidates.clone(), 0, false),
        by_hashing: String::new(),
    };
    let decision = advice.decision(7, 9, false);
    let row = decision.row();
    for part in [
        "free 90.000 GB (2.0 s ago)",
        "no stream says anything",
        "10000000000 bytes free",
    ] {
        assert!(row.contains(part), "{part}: {row}");
    }
    assert_eq!(decision.subject, "block 0");
    let answer = advice.answer(Some(7), false);
    let chosen = answer["blocks"][0]["pieces"][0]["path"].as_str().unwrap();
    assert!(["/a", "/c"].contains(&chosen), "{answer}");
    assert_eq!(decision.value, (*chosen).into());
    assert!(answer["targets"][1]["excluded"].is_string());
    assert_eq!(answer["targets"][0]["free_age_s"], 2.0);
}

#[test]
fn users_share_nothing_and_reports_are_of_their_own() {
    let mut node = Node::new(&ControlConfig::default());
    let body = json!({ "bytes": 1_000, "targets": ["/data/x"], "label": "step 1" });
    let answer = node.control.advise(&body, &asker(USER)).unwrap();
    let id = answer["decision"].as_u64().unwrap();
    let report = json!({ "decision": id, "bytes": 1_000, "seconds": 0.25 });
    let refused = node.control.report(&report, &asker(STRANGER)).unwrap_err();
    assert!(
        refused.message.contains("no decision"),
        "{}",
        refused.message
    );
    node.control.report(&report, &asker(USER)).unwrap();
    let again = node.control.report(&report, &asker(USER)).unwrap_err();
    assert!(again.message.contains("already"), "{}", again.message);
    let listed = node.control.decisions(&json!({}), &asker(USER)).unwrap();
    assert_eq!(listed["decisions"][0]["outcome"], "done");
    assert_eq!(listed["decisions"][0]["effect"]["after"], 0.25);
    let strange = node
        .control
        .decisions(&json!({}), &asker(STRANGER))
        .unwrap();
    assert_eq!(strange["decisions"].as_array().unwrap().len(), 0);
    // A look is no decision, and cannot be taken back any more than an advice.
    let look = json!({ "bytes": 1, "targets": ["/"], "look": true });
    let look = node.control.advise(&look, &asker(USER)).unwrap();
    assert!(look["decision"].is_null());
    let revert = barograph_model::ControllerVerb::Revert;
    let refused = node
        .control
        .verb(revert, &json!({ "id": id }), &asker(USER));
    assert!(refused.unwrap_err().message.contains("hashing alone"));
    let off = ControlConfig {
        mode: ControlModeConfig::Off,
        ..ControlConfig::default()
    };
    node = Node::new(&off);
    assert!(node.control.advise(&body, &asker(USER)).is_err());
}

#[test]
fn a_dry_run_is_answered_by_hashing_and_recorded() {
    let node = Node::new(&ControlConfig::default());
    let body = json!({ "bytes": 1, "targets": ["/a", "/b"], "keys": ["k"], "dry_run": true });
    let answer = node.control.advise(&body, &asker(USER)).unwrap();
    assert!(answer["dry_run"].as_bool().unwrap());
    assert!(
        answer["reason"]
            .as_str()
            .unwrap()
            .contains("by hashing alone")
    );
    let listed = node.control.decisions(&json!({}), &asker(USER)).unwrap();
    assert_eq!(listed["decisions"][0]["outcome"], "dry_run");
}

#[test]
fn what_many_users_ask_is_bounded() {
    let mut placements = Placements::default();
    for uid in 0..1_000 {
        placements.ledger(Some(uid)).placed(0, TargetId(1), 1);
    }
    assert_eq!(placements.ledgers.len(), USERS_MAX);
    assert!(placements.ledgers.contains_key(&Some(999)));
}
