//! What the start after a kill restores, and what it leaves. A lease that is forgotten without
//! being dropped is what a kill leaves: `crash` kills a process.

use barograph_control::cgroup::{IoSetting, RecoveredWeight, RestoreOutcome, WeightBackend};
use barograph_model::fnv1a;
use serde_json::json;

use crate::tree::{BACKENDS, GROUP, Tree};

const V1: WeightBackend = WeightBackend::V1Bfq;

/// A tree in which a killed process has left weights, the last of which is in the file.
fn left(weights: &[u32]) -> Tree {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    for weight in weights {
        lease.set(IoSetting::Weight(*weight), 0).unwrap();
    }
    std::mem::forget(lease);
    tree
}

fn only(recovered: Vec<RecoveredWeight>) -> RestoreOutcome {
    let [one] = <[_; 1]>::try_from(recovered).unwrap();
    one.outcome
}

#[test]
fn what_a_killed_process_has_left_is_restored_once() {
    for (backend, _) in BACKENDS {
        let tree = Tree::with(backend);
        let mut lease = tree.lease(backend);
        let (old, ours) = match backend {
            WeightBackend::V2Max { .. } => {
                let (read, write) = (Some(5), Some(7));
                (lease.old(), IoSetting::Limit { read, write })
            }
            _ => (IoSetting::Weight(100), IoSetting::Weight(400)),
        };
        lease.set(ours, 0).unwrap();
        std::mem::forget(lease);
        let outcome = only(tree.recover());
        assert_eq!(outcome, RestoreOutcome::Restored(old), "{backend:?}");
        assert!(tree.recover().is_empty());
        assert_eq!(tree.lease(backend).old(), old);
    }
}

#[test]
fn a_kill_between_journal_and_file_is_known() {
    // The journal has the second weight, the file still the first.
    let tree = left(&[400, 500]);
    tree.put(V1, "400\n");
    let old = IoSetting::Weight(100);
    assert_eq!(only(tree.recover()), RestoreOutcome::Restored(old));
    assert_eq!(tree.get(V1), "100\n");
    // The journal has the first weight, the file none of ours.
    let tree = left(&[400]);
    tree.put(V1, "100\n");
    assert_eq!(only(tree.recover()), RestoreOutcome::Unchanged);
    // A file of the journal that was not finished is no entry.
    let tree = Tree::with(V1);
    tree.write("journal/.weight-0.json.new", "{\"vers");
    tree.write("journal/README", "not an entry");
    assert!(tree.recover().is_empty());
    assert_eq!(tree.entries(), ["README"]);
}

#[test]
fn what_somebody_else_has_changed_since_is_theirs() {
    let tree = left(&[300, 400, 500]);
    // Also a weight that was ours before the last two.
    for theirs in ["300\n", "700\n"] {
        tree.put(V1, theirs);
        let entry = tree.entries();
        let weight = IoSetting::Weight(theirs.trim().parse().unwrap());
        let text = std::fs::read(tree.path("journal").join(&entry[0])).unwrap();
        assert_eq!(only(tree.recover()), RestoreOutcome::Theirs(weight));
        assert_eq!((&*tree.get(V1), tree.entries().len()), (theirs, 0));
        std::fs::write(tree.path("journal").join(&entry[0]), text).unwrap();
    }
}

#[test]
fn a_group_that_is_gone_or_another_one_is_not_restored() {
    let gone = left(&[400]);
    std::fs::remove_dir_all(gone.path("v1/jobs")).unwrap();
    assert_eq!(only(gone.recover()), RestoreOutcome::Vanished);

    let other = left(&[400]);
    edit(&other, |entry| entry["group_id"] = json!(u64::MAX));
    assert_eq!(only(other.recover()), RestoreOutcome::Vanished);
    assert_eq!((&*other.get(V1), other.entries().len()), ("400\n", 0));

    let unmounted = left(&[400]);
    std::fs::remove_dir_all(unmounted.path("v1")).unwrap();
    assert_eq!(only(unmounted.recover()), RestoreOutcome::Vanished);
}

/// Changes the one entry of the journal.
fn edit(tree: &Tree, change: impl FnOnce(&mut serde_json::Value)) {
    let path = tree.path("journal").join(&tree.entries()[0]);
    let mut entry = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut entry);
    std::fs::write(&path, entry.to_string()).unwrap();
}

#[test]
fn damaged_and_forged_entries_lead_nowhere() {
    // A value that the file does not take: it is kept for somebody to look at.
    let tree = left(&[400]);
    edit(&tree, |entry| entry["old"] = json!({"weight": 5_000}));
    let outcome = only(tree.recover());
    assert!(matches!(outcome, RestoreOutcome::Failed(_)), "{outcome:?}");
    assert_eq!((&*tree.get(V1), tree.entries().len()), ("400\n", 1));

    // A group out of the root, under the name that its entry would have.
    let tree = left(&[400]);
    tree.write("outside/blkio.bfq.weight", "400\n");
    edit(&tree, |entry| entry["group"] = json!("../outside"));
    let name = format!(
        "weight-{:016x}.json",
        fnv1a(b"blkio.bfq.weight  ../outside")
    );
    let journal = tree.path("journal");
    std::fs::rename(journal.join(&tree.entries()[0]), journal.join(name)).unwrap();
    let outcome = only(tree.recover());
    assert!(
        matches!(&outcome, RestoreOutcome::Failed(reason) if reason.contains("..")),
        "{outcome:?}"
    );
    let outside = std::fs::read_to_string(tree.path("outside/blkio.bfq.weight"));
    assert_eq!(outside.unwrap(), "400\n");

    // An entry of a newer program is left for it.
    let tree = left(&[400]);
    edit(&tree, |entry| entry["version"] = json!(2));
    let outcome = only(tree.recover());
    assert!(
        matches!(&outcome, RestoreOutcome::Failed(reason) if reason.contains("version 2")),
        "{outcome:?}"
    );
    assert_eq!(tree.entries().len(), 1);

    // Anything else is told and removed.
    let long = format!("\"{}\"", "a".repeat(20_000));
    for text in [
        "",
        "{",
        "null",
        "[1]",
        "{\"version\":1}",
        "{\"version\":-1}",
        &long,
    ] {
        let tree = left(&[400]);
        let path = journal_file(&tree);
        std::fs::write(path, text).unwrap();
        let outcome = only(tree.recover());
        assert!(
            matches!(&outcome, RestoreOutcome::Failed(reason) if reason.contains("damaged")),
            "{outcome:?}"
        );
        assert_eq!(
            (&*tree.get(V1), tree.entries().len()),
            ("400\n", 0),
            "{text}"
        );
    }
    // So is an entry under the name of another group.
    let tree = left(&[400]);
    edit(&tree, |entry| entry["group"] = json!("jobs"));
    let outcome = only(tree.recover());
    assert!(
        matches!(&outcome, RestoreOutcome::Failed(reason) if reason.contains("another group")),
        "{outcome:?}"
    );
    assert!(tree.path("v1").join(GROUP).is_dir());
}

fn journal_file(tree: &Tree) -> std::path::PathBuf {
    tree.path("journal").join(&tree.entries()[0])
}
