//! Controllers that are paused, explained and reverted, and weights that have no effect.

use barograph_model::ControllerVerb;

use super::tests::{MB, Node, STRANGER, USER, asker, field};
use super::*;

fn verb(node: &Node, verb: ControllerVerb, body: Json, who: &RequestSender) -> Json {
    let answer = node.control.verb(verb, &body, who);
    answer.unwrap_or_else(|fault| panic!("{body}: {fault}"))
}

fn refused(node: &Node, verb: ControllerVerb, body: Json, who: &RequestSender) -> ControlFault {
    node.control.verb(verb, &body, who).unwrap_err()
}

fn row(node: &Node, name: &str) -> ControllersRow {
    let rows = node.control.controller_rows().into_iter();
    rows.into_iter().find(|row| row.name == name).unwrap()
}

#[test]
fn weights_without_effect_are_taken_back_and_held_off() {
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    let asker = asker(USER, Some(pid), true);
    let mut without = 0;
    for n in 0..20 {
        let (plan, _) = node.read(&asker, (90.0 + f64::from(n * 7 % 13)) * MB, 1.0);
        if plan["weight"].is_null() {
            let reason = plan["weight_reason"].as_str().unwrap();
            assert!(reason.contains("can be compared"), "{reason}");
            without += 1;
        }
    }
    assert_eq!(without, 4, "one read of five has no weight");
    let plan = node.control.plan(&field(), &asker).unwrap();
    let reason = plan["weight_reason"].as_str().unwrap();
    assert!(reason.contains("held off for 600 s more"), "{reason}");
    assert_eq!(node.weight(), 100);
    let told = node.rows(&asker);
    let held = told.iter().find(|row| row.value == "held_off").unwrap();
    assert_eq!((&*held.controller, &*held.device), ("weight", "sda"));
    assert!(
        held.reason.contains("16 reads with a raised weight"),
        "{held:?}"
    );
    let weight = row(&node, "weight");
    assert_eq!((&*weight.mode, weight.held_off.len()), ("live", 1));
    // Other readers have theirs, and this one has it again when the time is over.
    let other = node.reader(STRANGER);
    let other = super::tests::asker(STRANGER, Some(other), true);
    assert!(node.control.plan(&field(), &other).unwrap()["weight"].as_u64() > Some(100));
    node.control.mark(node.control.weights().end_all("end"));
    node.clock.advance(601 * NS_PER_S);
    let plan = node.control.plan(&field(), &asker).unwrap();
    assert!(plan["weight"].as_u64() > Some(100), "{plan}");
}

#[test]
fn weights_with_an_effect_stay() {
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    let asker = asker(USER, Some(pid), true);
    for _ in 0..60 {
        let plan = node.control.plan(&field(), &asker).unwrap();
        let fast = if plan["weight"].is_null() {
            50.0
        } else {
            100.0
        };
        let report = json!({
            "decision": plan["decision"], "bytes": (fast * MB) as u64, "seconds": 1.0,
        });
        let stat = node.path("sys/block/sda/stat");
        let before = fs_sectors(&stat);
        let sectors = before + (fast * MB / 512.0) as u64;
        std::fs::write(&stat, format!("0 0 {sectors} 0 0 0 0 0 0 0 0\n")).unwrap();
        node.clock.advance(NS_PER_S);
        node.control.report(&report, &asker).unwrap();
    }
    assert_eq!(row(&node, "weight").held_off, [] as [Json; 0]);
    let told = node.rows(&asker);
    let weight = told
        .iter()
        .find(|row| row.controller == "weight" && row.effect.is_some());
    let effect = weight.unwrap().effect.as_ref().unwrap();
    assert_eq!(
        (&effect["before"], &effect["after"]),
        (&json!(50.0 * MB), &json!(100.0 * MB))
    );
}

fn fs_sectors(stat: &Path) -> u64 {
    let text = std::fs::read_to_string(stat).unwrap();
    text.split(' ').nth(2).unwrap().parse().unwrap()
}

#[test]
fn a_pause_gives_weights_back_and_is_seen() {
    use ControllerVerb::{Explain, List, Pause, Resume};
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    let asker = asker(USER, Some(pid), true);
    node.control.plan(&field(), &asker).unwrap();
    assert!(node.weight() > 100);
    let body = json!({ "controller": "weight", "seconds": 600, "reason": "maintenance" });
    let told = verb(&node, Pause, body.clone(), &asker);
    assert_eq!(
        (&told["controller"]["mode"], &told["controller"]["reason"]),
        (&json!("paused"), &json!("maintenance"))
    );
    assert_eq!(node.weight(), 100);
    let weight = node
        .rows(&asker)
        .into_iter()
        .find(|it| it.subject == "jobs/a")
        .unwrap();
    assert_eq!(weight.outcome, "reverted");
    assert!(
        weight.outcome_reason.contains("paused for 600 s by"),
        "{weight:?}"
    );
    let plan = node.control.plan(&field(), &asker).unwrap();
    let reason = plan["weight_reason"].as_str().unwrap();
    assert!(
        reason.contains("weights are paused by") && reason.contains("maintenance"),
        "{reason}"
    );
    let twice = refused(&node, Pause, body, &asker);
    assert!(twice.message.contains("resume it first"), "{twice}");
    let explained = verb(&node, Explain, json!({ "controller": "weight" }), &asker);
    assert!(
        explained["explanation"][0]
            .as_str()
            .unwrap()
            .starts_with("its mode is paused")
    );
    // It ends by itself, and this is recorded as well.
    let mut steps = std::mem::take(&mut node.steps);
    node.control.step(&mut steps);
    node.clock.advance(600 * NS_PER_S);
    node.control.step(&mut steps);
    assert_eq!(row(&node, "weight").mode, "live");
    let of_us = super::tests::asker(node.control.uid, None, true);
    let modes = node
        .rows(&of_us)
        .into_iter()
        .filter(|row| row.subject == "mode");
    let modes: Vec<Json> = modes.map(|row| row.value).collect();
    assert_eq!(modes, ["live", "paused"]);
    let not = refused(&node, Resume, json!({ "controller": "weight" }), &asker);
    assert!(not.message.contains("weight is not paused"), "{not}");
    let list = verb(&node, List, json!({}), &asker);
    assert_eq!(list["controllers"][1]["outcomes"]["done"], 2);
}

#[test]
fn a_paused_augmentation_reads_what_the_bound_needs() {
    use ControllerVerb::{DryRun, Pause, Resume};
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    let asker = asker(USER, Some(pid), true);
    for _ in 0..9 {
        node.read(&asker, 100.0 * MB, 1.0);
    }
    let buckets = |node: &Node| {
        let plan = node.control.plan(&field(), &asker).unwrap();
        (plan["buckets"].as_u64().unwrap(), plan["dry_run"].clone())
    };
    let body = json!({ "controller": "augmentation" });
    assert_eq!(buckets(&node), (10, json!(false)));
    verb(&node, Pause, body.clone(), &asker);
    assert_eq!(buckets(&node), (3, json!(false)));
    verb(&node, Resume, body.clone(), &asker);
    assert_eq!(buckets(&node), (10, json!(false)));
    let on = |on: bool| json!({ "controller": "augmentation", "on": on });
    verb(&node, DryRun, on(true), &asker);
    assert_eq!(buckets(&node), (10, json!(true)));
    assert_eq!(row(&node, "augmentation").mode, "dry_run");
    let twice = refused(&node, DryRun, on(true), &asker);
    assert!(twice.message.contains("already in a dry run"), "{twice}");
    verb(&node, DryRun, on(false), &asker);
    let without = refused(&node, DryRun, body, &asker);
    assert!(without.message.contains("send on"), "{without}");
}

#[test]
fn a_weight_is_taken_back_by_its_user_and_by_who_may_control() {
    use ControllerVerb::Revert;
    let config = ControlConfig {
        weights: WeightRights::Everyone,
        ..ControlConfig::default()
    };
    let mut node = Node::new(&config);
    let pid = node.reader(USER);
    let user = asker(USER, Some(pid), false);
    let plan = node.control.plan(&field(), &user).unwrap();
    let (read, weight) = (
        plan["decision"].as_u64().unwrap(),
        plan["decision"].as_u64().unwrap() + 1,
    );
    let stranger = asker(STRANGER, None, false);
    let unknown = refused(&node, Revert, json!({ "id": weight }), &stranger);
    assert_eq!(unknown.kind, ControlFaultKind::Unknown);
    assert!(node.weight() > 100);
    let of_buckets = refused(&node, Revert, json!({ "id": read }), &user);
    assert!(
        of_buckets
            .message
            .contains("baro control pause augmentation"),
        "{of_buckets}"
    );
    verb(
        &node,
        Revert,
        json!({ "id": weight, "reason": "a test" }),
        &user,
    );
    assert_eq!(node.weight(), 100);
    let again = refused(&node, Revert, json!({ "id": weight }), &user);
    assert!(again.message.contains("taken back already"), "{again}");
    assert!(again.message.contains("a test"), "{again}");
    let nothing = refused(&node, Revert, json!({}), &user);
    assert!(nothing.message.contains("send id"), "{nothing}");
}

#[test]
fn requests_that_make_no_sense_are_refused_with_what_to_send() {
    use ControllerVerb::{Explain, Pause, Revert};
    let node = Node::new(&ControlConfig::default());
    let (ours, reader) = (asker(USER, None, true), asker(USER, None, false));
    for (asked, body, who, kind, message) in [
        (
            Pause,
            json!({ "controller": "weights" }),
            &ours,
            ControlFaultKind::Unknown,
            "there are augmentation, weight",
        ),
        (
            Explain,
            json!({ "controller": "x" }),
            &reader,
            ControlFaultKind::Unknown,
            "no controller is called",
        ),
        (
            Pause,
            json!({}),
            &ours,
            ControlFaultKind::Statement,
            "send controller",
        ),
        (
            Pause,
            json!({ "controller": "weight", "seconds": -1 }),
            &ours,
            ControlFaultKind::Statement,
            "seconds is -1",
        ),
        (
            Pause,
            json!({ "controller": "weight", "seconds": 1e300 }),
            &ours,
            ControlFaultKind::Statement,
            "for a pause without an end",
        ),
        (
            Pause,
            json!({ "controller": "weight", "untill": 1 }),
            &ours,
            ControlFaultKind::Statement,
            "unknown field",
        ),
        (
            Revert,
            json!({ "id": 4711 }),
            &ours,
            ControlFaultKind::Unknown,
            "has no decision 4711",
        ),
        (
            Revert,
            json!({ "id": "x" }),
            &ours,
            ControlFaultKind::Statement,
            "invalid type",
        ),
    ] {
        let fault = refused(&node, asked, body.clone(), who);
        assert_eq!(fault.kind, kind, "{body}: {fault}");
        assert!(fault.message.contains(message), "{body}: {fault}");
    }
    let rows = node.control.controller_rows();
    assert!(
        rows.iter()
            .all(|row| row.mode == "live" || row.name == "server-maps")
    );
}

#[test]
fn readers_change_no_controller() {
    use ControllerVerb::{DryRun, Pause, Resume};
    let node = Node::new(&ControlConfig::default());
    let reader = asker(USER, None, false);
    for (asked, body) in [
        (Pause, json!({ "controller": "weight" })),
        (Resume, json!({ "controller": "weight" })),
        (DryRun, json!({ "controller": "weight", "on": true })),
    ] {
        let fault = refused(&node, asked, body.clone(), &reader);
        assert_eq!(fault.kind, ControlFaultKind::Refused, "{body}: {fault}");
        assert!(fault.message.contains("right to control"), "{fault}");
    }
}
