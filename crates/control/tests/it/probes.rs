//! Which back end is found on which machine, and the reasons against the others.

use std::os::unix::fs::symlink;

use barograph_control::ControlError;
use barograph_control::cgroup::{BlockDevice, WeightBackend};

use crate::tree::{NUMBER, Tree};

const MAX: WeightBackend = WeightBackend::V2Max { device: NUMBER };
const COST: &str = "8:0 enable=1 ctrl=auto\n8:16 enable=1 ctrl=auto rpct=95.00 rlat=75000\n";
const NO_COST: &str = "8:0 enable=1 ctrl=auto\n8:16 enable=0 ctrl=auto\n";

/// A file in the tree.
type File = (&'static str, &'static str);

#[test]
fn the_first_back_end_that_has_an_effect_is_found() {
    let v1: File = ("v1/jobs/a/blkio.bfq.weight", "100\n");
    let v1_device: File = ("v1/jobs/a/blkio.bfq.weight_device", "default 100\n");
    let v1_own: File = (
        "v1/jobs/a/blkio.bfq.weight_device",
        "default 100\n8:16 300\n",
    );
    let v2: File = ("v2/jobs/a/io.bfq.weight", "default 100\n");
    let v2_own: File = ("v2/jobs/a/io.bfq.weight", "default 100\n8:16 300\n");
    let weight: File = ("v2/jobs/a/io.weight", "default 100\n");
    let limit: File = ("v2/jobs/a/io.max", "");
    let deadline: File = ("block/sdb/queue/scheduler", "none [mq-deadline] bfq\n");
    let cost: File = ("v2/io.cost.qos", COST);
    let no_cost: File = ("v2/io.cost.qos", NO_COST);
    // The files, the back end, and words of the reason against each one before it.
    let table: &[(&[File], Option<WeightBackend>, &[&str])] = &[
        (&[v1], Some(WeightBackend::V1Bfq), &[]),
        (&[v1, v1_device, v2], Some(WeightBackend::V1Bfq), &[]),
        (&[v2], Some(WeightBackend::V2Bfq), &["there is no"]),
        (
            &[v1, v1_own, v2],
            Some(WeightBackend::V2Bfq),
            &["for sdb alone"],
        ),
        (
            &[v1, v2, weight, cost, limit, deadline],
            Some(WeightBackend::V2Cost),
            &["sdb is mq-deadline", "sdb is mq-deadline"],
        ),
        (
            &[v2_own, weight, no_cost, limit],
            Some(MAX),
            &["there is no", "300 for sdb alone", "not enabled for sdb"],
        ),
        (
            &[weight, limit],
            Some(MAX),
            &["there is no", "there is no", "no root"],
        ),
        (
            &[v1, v2, weight, deadline],
            None,
            &["mq-deadline", "mq-deadline", "io.cost.qos", "io.max"],
        ),
        (&[], None, &["there is no"; 4]),
        (
            &[("v1/jobs/a/blkio.bfq.weight", "weight\n"), v2],
            Some(WeightBackend::V2Bfq),
            &["is not a weight"],
        ),
    ];
    for (files, expect, reasons) in table {
        let tree = Tree::new();
        files.iter().for_each(|(name, text)| tree.write(name, text));
        let found = tree.probe();
        assert_eq!(found.backend, *expect, "{files:?}: {found:?}");
        assert_eq!(found.refused.len(), reasons.len(), "{files:?}: {found:?}");
        for (refusal, words) in found.refused.iter().zip(*reasons) {
            let words = match *words {
                "no root" => "not the root of all groups",
                words => words,
            };
            assert!(refusal.reason.contains(words), "{words}: {refusal:?}");
            assert!(!refusal.remedy.is_empty(), "{refusal:?}");
        }
    }
}

#[test]
fn a_machine_without_control_groups_has_reasons() {
    let tree = Tree::new();
    std::fs::remove_dir_all(tree.path("v1")).unwrap();
    std::fs::remove_dir_all(tree.path("v2")).unwrap();
    let found = tree.probe();
    assert_eq!(found.backend, None);
    let all = found.refused.iter();
    assert!(
        all.clone().all(|it| it.reason.contains("is not mounted")),
        "{found:?}"
    );
    assert_eq!(all.count(), 4);
}

#[test]
fn groups_and_devices_are_not_looked_for_elsewhere() {
    let tree = Tree::with(WeightBackend::V1Bfq);
    tree.write("outside/blkio.bfq.weight", "100\n");
    symlink(tree.path("outside"), tree.path("v1/link")).unwrap();
    symlink(tree.path("outside"), tree.path("v1/jobs/link")).unwrap();
    let roots = tree.roots();
    let device = BlockDevice::read(roots.block(), "sdb").unwrap();
    for group in [
        "link",
        "jobs/link",
        "../outside",
        "jobs/../../outside",
        "/jobs/a",
        // The root has a name, but no share.
        "",
    ] {
        let found = barograph_control::cgroup::probe(&roots, group, &device);
        assert_eq!(found.backend, None, "{group}");
        let reason = &found.refused[0].reason;
        let expect = match group {
            "" => "the root of all groups",
            _ => "no name of a control group",
        };
        assert!(reason.contains(expect), "{group}: {reason}");
    }
    for device in ["..", "../block/sdb", "", "sdb/queue", "a\0b"] {
        let read = BlockDevice::read(roots.block(), device);
        assert!(matches!(read, Err(ControlError::Name { .. })), "{device:?}");
    }
    let missing = BlockDevice::read(roots.block(), "sdc");
    assert!(matches!(missing, Err(ControlError::Io { .. })));
}
