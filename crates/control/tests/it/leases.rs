//! Leases on a tree of plain files: what is written, restored, left to others, and given up.

use std::os::unix::fs::symlink;

use barograph_control::cgroup::{
    FIGHT_WAIT_NS_MIN, FIGHTS_MAX, IoSetting, LeaseEnd, LeaseState, RestoreOutcome, SetOutcome,
    WeightBackend, WeightLease,
};
use barograph_control::{
    ControlError, ControlMode, DecisionOutcome, DecisionValue, ErrorBound, WeightFunction,
    WeightInputs,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::tree::{BACKENDS, GROUP, NUMBER, Tree};

const S: i64 = 1_000_000_000;
const V1: WeightBackend = WeightBackend::V1Bfq;

/// A setting for a back end, and the contents of its file with it.
fn setting(backend: WeightBackend) -> (IoSetting, &'static str) {
    match backend {
        WeightBackend::V1Bfq => (IoSetting::Weight(400), "400\n"),
        WeightBackend::V2Bfq | WeightBackend::V2Cost => (IoSetting::Weight(400), "default 400\n"),
        WeightBackend::V2Max { .. } => {
            let (read, write) = (Some(1 << 20), None);
            (
                IoSetting::Limit { read, write },
                "8:16 rbps=1048576 wbps=max\n",
            )
        }
    }
}

#[test]
fn a_setting_is_written_and_restored_by_every_back_end() {
    for (backend, fresh) in BACKENDS {
        let tree = Tree::with(backend);
        let mut lease = tree.lease(backend);
        assert_eq!(
            (lease.state(), tree.entries().len()),
            (&LeaseState::Idle, 0)
        );
        assert_eq!(tree.get(backend), fresh, "{backend:?}");

        let (setting, text) = setting(backend);
        assert_eq!(lease.set(setting, S).unwrap(), SetOutcome::Written);
        assert_eq!(tree.get(backend), text, "{backend:?}");
        assert_eq!(lease.step(2 * S).unwrap(), &LeaseState::Held(setting));
        assert_eq!(tree.entries().len(), 1);

        let old = lease.old();
        let end = LeaseEnd::Released(RestoreOutcome::Restored(old));
        assert_eq!(lease.release(), end, "{backend:?}");
        let restored = match backend {
            // The kernel drops the line of a device without limits; a plain file keeps it.
            WeightBackend::V2Max { .. } => "8:16 rbps=max wbps=max\n",
            _ => fresh,
        };
        assert_eq!(tree.get(backend), restored, "{backend:?}");
        assert!(tree.entries().is_empty());
    }
}

#[test]
fn a_lease_that_ends_in_any_way_restores() {
    let tree = Tree::with(V1);
    tree.put(V1, "250\n");
    let set = |lease: &mut WeightLease| lease.set(IoSetting::Weight(900), S).unwrap();

    let mut lease = tree.lease(V1);
    set(&mut lease);
    drop(lease);
    assert_eq!(
        (&*tree.get(V1), tree.entries().len()),
        ("250\n", 0),
        "dropped"
    );

    let mut lease = tree.lease(V1);
    set(&mut lease);
    lease.renew(10 * S);
    assert!(matches!(lease.step(9 * S).unwrap(), LeaseState::Held(_)));
    let old = IoSetting::Weight(250);
    let end = LeaseEnd::Expired(RestoreOutcome::Restored(old));
    assert_eq!(lease.step(10 * S).unwrap(), &LeaseState::Ended(end));
    assert_eq!(
        (&*tree.get(V1), tree.entries().len()),
        ("250\n", 0),
        "expired"
    );
    let late = lease.set(IoSetting::Weight(900), 11 * S);
    assert!(matches!(late, Err(ControlError::Ended { .. })), "{late:?}");
    assert_eq!(tree.get(V1), "250\n");

    // Nothing was written, so nothing is restored.
    let lease = tree.lease(V1);
    tree.put(V1, "300\n");
    assert_eq!(
        lease.release(),
        LeaseEnd::Released(RestoreOutcome::Unchanged)
    );
    assert_eq!(tree.get(V1), "300\n");
}

#[test]
fn what_is_restored_is_what_was_there_before_the_first_write() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    tree.put(V1, "300\n");
    for weight in [400, 500, 500, 600] {
        lease.set(IoSetting::Weight(weight), S).unwrap();
    }
    let old = IoSetting::Weight(300);
    assert_eq!(
        lease.release(),
        LeaseEnd::Released(RestoreOutcome::Restored(old))
    );
    assert_eq!(tree.get(V1), "300\n");
}

#[test]
fn a_value_of_another_controller_is_not_written_over_at_once() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    lease.set(IoSetting::Weight(400), 0).unwrap();
    tree.put(V1, "700\n");
    let retry_ns = S + FIGHT_WAIT_NS_MIN;
    let contended = LeaseState::Contended {
        turns: 1,
        theirs: IoSetting::Weight(700),
        retry_ns,
    };
    assert_eq!(lease.step(S).unwrap(), &contended);
    assert_eq!(
        tree.entries().len(),
        0,
        "nothing of the lease is in the file"
    );
    let deferred = SetOutcome::Deferred { until_ns: retry_ns };
    assert_eq!(lease.set(IoSetting::Weight(500), S).unwrap(), deferred);
    assert_eq!(lease.step(retry_ns - 1).unwrap(), &contended);
    assert_eq!(tree.get(V1), "700\n");

    // After the wait the newest wish is written, and theirs is what is restored.
    let held = LeaseState::Held(IoSetting::Weight(500));
    assert_eq!(lease.step(retry_ns).unwrap(), &held);
    assert_eq!((&*tree.get(V1), lease.fights()), ("500\n", 1));
    drop(lease);
    assert_eq!(tree.get(V1), "700\n");
}

#[test]
fn a_change_that_only_a_set_sees_is_a_dispute_too() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    lease.set(IoSetting::Weight(400), 0).unwrap();
    tree.put(V1, "700\n");
    let outcome = lease.set(IoSetting::Weight(500), 0).unwrap();
    assert!(
        matches!(outcome, SetOutcome::Deferred { .. }),
        "{outcome:?}"
    );
    drop(lease);
    assert_eq!(
        tree.get(V1),
        "700\n",
        "theirs is left by a lease that ends meanwhile"
    );
}

#[test]
fn a_dispute_that_does_not_end_is_given_up() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    lease.set(IoSetting::Weight(400), 0).unwrap();
    let (mut now, mut waits) = (0, Vec::new());
    loop {
        tree.put(V1, "700\n");
        match *lease.step(now).unwrap() {
            LeaseState::Contended { retry_ns, .. } => {
                waits.push(retry_ns - now);
                now = retry_ns;
                lease.step(now).unwrap();
                assert_eq!(tree.get(V1), "400\n");
            }
            LeaseState::Ended(LeaseEnd::Contended) => break,
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(waits.len() as u32, FIGHTS_MAX - 1);
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
    assert_eq!((tree.get(V1), tree.entries().len()), ("700\n".into(), 0));
    assert!(lease.set(IoSetting::Weight(400), now).is_err());
}

#[test]
fn a_last_change_of_somebody_else_is_left() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    lease.set(IoSetting::Weight(400), 0).unwrap();
    tree.put(V1, "700\n");
    let theirs = RestoreOutcome::Theirs(IoSetting::Weight(700));
    assert_eq!(lease.release(), LeaseEnd::Released(theirs));
    assert_eq!((tree.get(V1), tree.entries().len()), ("700\n".into(), 0));
}

#[test]
fn a_file_that_vanishes_ends_the_lease() {
    for is_group in [false, true] {
        let tree = Tree::with(V1);
        let mut lease = tree.lease(V1);
        lease.set(IoSetting::Weight(400), 0).unwrap();
        std::fs::remove_file(tree.file(V1)).unwrap();
        if is_group {
            std::fs::remove_dir(tree.path("v1").join(GROUP)).unwrap();
            // A new group of the same name is another one.
            tree.write(&format!("v1/{GROUP}/blkio.bfq.weight"), "100\n");
        }
        let ended = LeaseState::Ended(LeaseEnd::Vanished);
        assert_eq!(lease.step(S).unwrap(), &ended);
        assert!(tree.entries().is_empty());
        let late = lease.set(IoSetting::Weight(500), S).unwrap_err();
        assert!(late.to_string().contains("is gone"), "{late}");
        assert_eq!(lease.release(), LeaseEnd::Vanished);
        if is_group {
            assert_eq!(tree.get(V1), "100\n");
        }
    }
}

#[test]
fn nothing_is_written_without_a_journal_nor_out_of_range() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    for refused in [
        IoSetting::Weight(0),
        IoSetting::Weight(1_001),
        IoSetting::Limit {
            read: None,
            write: None,
        },
    ] {
        let set = lease.set(refused, 0);
        assert!(matches!(set, Err(ControlError::Value { .. })), "{set:?}");
    }
    std::fs::remove_dir(tree.path("journal")).unwrap();
    assert!(lease.set(IoSetting::Weight(400), 0).is_err());
    assert_eq!(tree.get(V1), "100\n");
}

#[test]
fn a_group_has_one_lease_at_a_time() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    let mut late = tree.lease(V1);
    lease.set(IoSetting::Weight(400), 0).unwrap();
    let set = late.set(IoSetting::Weight(500), 0);
    assert!(matches!(set, Err(ControlError::Leased { .. })), "{set:?}");
    drop(late);
    assert_eq!((&*tree.get(V1), tree.entries().len()), ("400\n", 1));
    let take = || WeightLease::take(&tree.roots(), GROUP, V1, &tree.journal(), S);
    assert!(matches!(take(), Err(ControlError::Leased { .. })));
    // Another back end of the same group is another file.
    let max = WeightBackend::V2Max { device: NUMBER };
    tree.put(max, "");
    assert!(WeightLease::take(&tree.roots(), GROUP, max, &tree.journal(), S).is_ok());
    drop(lease);
    assert!(take().is_ok());
}

#[test]
fn links_and_pipes_in_the_place_of_files_are_refused() {
    let tree = Tree::with(V1);
    tree.write("secret", "100\n");
    std::fs::remove_file(tree.file(V1)).unwrap();
    symlink(tree.path("secret"), tree.file(V1)).unwrap();
    let take = || WeightLease::take(&tree.roots(), GROUP, V1, &tree.journal(), S);
    assert!(matches!(take(), Err(ControlError::Io { .. })));

    // A pipe would keep whoever opens it waiting.
    std::fs::remove_file(tree.file(V1)).unwrap();
    mknodat(CWD, tree.file(V1), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(matches!(take(), Err(ControlError::Io { .. })));

    // A file that becomes a link while it is held.
    std::fs::remove_file(tree.file(V1)).unwrap();
    tree.put(V1, "100\n");
    let mut lease = tree.lease(V1);
    lease.set(IoSetting::Weight(400), 0).unwrap();
    std::fs::remove_file(tree.file(V1)).unwrap();
    symlink(tree.path("secret"), tree.file(V1)).unwrap();
    assert!(lease.set(IoSetting::Weight(500), 0).is_err());
    drop(lease);
    assert_eq!(
        std::fs::read_to_string(tree.path("secret")).unwrap(),
        "100\n"
    );
}

#[test]
fn a_decision_is_carried_out_by_a_lease_and_a_dry_run_is_not() {
    let tree = Tree::with(V1);
    let mut lease = tree.lease(V1);
    let function = WeightFunction::new(V1.range().unwrap(), 1 << 30);
    let inputs = WeightInputs {
        priority: 10.0,
        bytes: 1 << 30,
        bound: Some(ErrorBound::nrmse(1.0)),
        urgency: 1.0,
    };
    let mut decide = |mode| {
        let mut decision = function.propose(&inputs).decision(1, 0, GROUP, &inputs);
        // The administrator lets no group have more than 800.
        decision.limit("weight_max", 1.0, 800.0);
        decision.carry_out(mode, |weight| {
            let set = lease.set(IoSetting::Weight(weight as u32), 0);
            set.map(Into::into).map_err(|error| error.to_string())
        });
        assert_eq!(decision.proposed, DecisionValue::Number(1_000.0));
        assert_eq!(decision.limits[0].limit, "weight_max");
        decision.outcome
    };
    assert_eq!(decide(ControlMode::DryRun), DecisionOutcome::DryRun);
    assert_eq!((&*tree.get(V1), tree.entries().len()), ("100\n", 0));
    assert_eq!(decide(ControlMode::Live), DecisionOutcome::Done);
    assert_eq!(tree.get(V1), "800\n");
    tree.put(V1, "50\n");
    let outcome = decide(ControlMode::Live);
    assert!(
        matches!(outcome, DecisionOutcome::Deferred { .. }),
        "{outcome:?}"
    );
    assert_eq!(tree.get(V1), "50\n");
    drop(lease);

    // A group that is gone.
    let mut lease = tree.lease(V1);
    std::fs::remove_file(tree.file(V1)).unwrap();
    let mut decision = function.propose(&inputs).decision(2, 0, GROUP, &inputs);
    decision.carry_out(ControlMode::Live, |weight| {
        let set = lease.set(IoSetting::Weight(weight as u32), 0);
        set.map(Into::into).map_err(|error| error.to_string())
    });
    let outcome = decision.outcome;
    assert!(
        matches!(&outcome, DecisionOutcome::Failed { reason } if reason.contains("is gone")),
        "{outcome:?}"
    );
}
