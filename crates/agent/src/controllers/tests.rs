//! Plans and reports over a tree of plain files in the place of `/proc` and `/sys`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use barograph_model::ManualClock;
use barograph_stream::{DECISIONS_DOCUMENT, DecisionsRow};
use tempfile::TempDir;

use super::*;
use crate::control_events::ControlEvents;
use crate::decisions::ControllerSwitches;
use crate::io_schedules::{IoSchedules, ScheduleConfig};
use crate::server_maps::{MapControl, ServerMaps};

// Numbers that have no names on any machine.
pub(super) const USER: u32 = 3_000_001;
pub(super) const STRANGER: u32 = 3_000_002;
pub(super) const MB: f64 = 1e6;
const WEIGHT: &str = "sys/fs/cgroup/blkio/jobs/a/blkio.bfq.weight";

/// A node with one disk, whose partition has the root file system, and one control group.
pub(super) struct Node {
    dir: TempDir,
    pub(super) clock: Arc<ManualClock>,
    pub(super) control: ControlShared,
    pub(super) steps: ControlSteps,
    readers: Vec<Child>,
}

impl Node {
    pub(super) fn new(config: &ControlConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/self/mountinfo",
            "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             25 24 0:50 / /data rw - btrfs /dev/sda1 rw\n\
             26 24 0:51 / /files/my\\040files rw - nfs server:/x rw\n\
             33 24 0:27 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n",
        );
        put("sys/devices/sda/dev", "8:0\n");
        put("sys/devices/sda/queue/scheduler", "none [bfq]\n");
        put("sys/devices/sda/stat", "0 0 0 0 0 0 0 0 0 0 0\n");
        put("sys/devices/sda/sda1/partition", "1\n");
        put("sys/devices/sda/sda1/dev", "8:1\n");
        put("sys/devices/dm-0/dev", "253:0\n");
        put("sys/devices/dm-0/stat", "0 0 0 0 0 0 0 0 0 0 0\n");
        put(WEIGHT, "100\n");
        let link = |name: &str, to: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(dir.path().join(to), path).unwrap();
        };
        link("sys/block/sda", "sys/devices/sda");
        link("sys/block/dm-0", "sys/devices/dm-0");
        link("sys/devices/dm-0/slaves/sda1", "sys/devices/sda/sda1");
        link("sys/dev/block/8:1", "sys/devices/sda/sda1");
        link("sys/dev/block/253:0", "sys/devices/dm-0");
        link("sys/class/block/sda1", "sys/devices/sda/sda1");
        fs::create_dir(dir.path().join("run")).unwrap();
        let clock = Arc::new(ManualClock::at(1_000 * NS_PER_S));
        let of_control: Arc<dyn Clock> = clock.clone();
        let run_dir = RunDir::new(dir.path().join("run"));
        let state_dir = dir.path().join("state");
        let places = (dir.path(), &*state_dir);
        let switches = ControllerSwitches::of_test(&state_dir, &of_control);
        let events = ControlEvents::new(&of_control, 1);
        let maps = MapControl::new(config.scale_down, &switches, &events, &of_control);
        let told = (events, switches);
        let schedules = IoSchedules::new(&ScheduleConfig::default(), &of_control, told);
        let desks = (schedules, ServerMaps::new(maps));
        let control = ControlShared::new(config, places, &run_dir, &of_control, desks);
        Self {
            control,
            clock,
            steps: ControlSteps::default(),
            readers: Vec::new(),
            dir,
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn weight(&self) -> u32 {
        let text = fs::read_to_string(self.path(WEIGHT)).unwrap();
        text.trim().parse().unwrap()
    }

    /// A process of the user in the control group.
    pub(super) fn reader(&mut self, uid: u32) -> u32 {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        self.readers.push(child);
        let dir = self.path(&format!("proc/{pid}"));
        fs::create_dir_all(&dir).unwrap();
        let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        fs::write(dir.join("status"), status).unwrap();
        fs::write(dir.join("cgroup"), "7:blkio:/jobs/a\n0::/other\n").unwrap();
        pid
    }

    fn kill(&mut self, pid: u32) {
        let at = self.readers.iter().position(|it| it.id() == pid).unwrap();
        let mut child = self.readers.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A read of one second at a bandwidth, of bytes that came from the disk as a share; gives the
    /// plan and the answer to its report.
    pub(super) fn read(
        &self,
        asker: &RequestSender,
        bandwidth: f64,
        from_disk: f64,
    ) -> (Json, Json) {
        let plan = self.control.plan(&field(), asker).unwrap();
        let stat = self.path("sys/block/sda/stat");
        let before: u64 = {
            let text = fs::read_to_string(&stat).unwrap();
            text.split(' ').nth(2).unwrap().parse().unwrap()
        };
        let sectors = before + (bandwidth * from_disk / 512.0) as u64;
        fs::write(&stat, format!("0 0 {sectors} 0 0 0 0 0 0 0 0\n")).unwrap();
        self.clock.advance(NS_PER_S);
        let report =
            json!({ "decision": plan["decision"], "bytes": bandwidth as u64, "seconds": 1.0 });
        let told = self.control.report(&report, asker).unwrap();
        (plan, told)
    }

    pub(super) fn rows(&self, asker: &RequestSender) -> Vec<DecisionsRow> {
        let answer = self.control.decisions(&json!({}), asker).unwrap();
        serde_json::from_value(answer["decisions"].clone()).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for mut child in self.readers.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A request for an array of ten buckets, of which the bound needs three.
pub(super) fn field() -> Json {
    let buckets: Vec<Json> = (0..10)
        .map(|at| json!({ "bytes": 10_000_000, "nrmse": 10_f64.powi(-at - 1) }))
        .collect();
    json!({
        "path": "/scratch/field.baro", "label": "field.baro", "buckets": buckets,
        "base_bytes": 1_000_000, "error": { "nrmse": 1.5e-3 }, "priority": 9,
    })
}

pub(super) fn asker(uid: u32, pid: Option<u32>, may_control: bool) -> RequestSender {
    RequestSender {
        uid: Some(uid),
        pid,
        via: "read.sock".into(),
        may_control,
    }
}

#[test]
fn a_reader_learns_and_then_reads_more_than_its_bound_needs() {
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    let asker = asker(USER, Some(pid), true);
    let (first, told) = node.read(&asker, 100.0 * MB, 1.0);
    assert_eq!(first["bandwidth"]["basis"], "none");
    assert_eq!(
        (&first["buckets"], &first["bytes"]),
        (&json!(3), &json!(31_000_000))
    );
    assert_eq!(first["device"], "sda");
    assert_eq!(told["measured"], true);
    for _ in 0..7 {
        node.read(&asker, 100.0 * MB, 1.0);
    }
    let plan = node.control.plan(&field(), &asker).unwrap();
    assert_eq!(plan["bandwidth"]["basis"], "measured");
    assert_eq!(plan["bandwidth"]["value"], 100.0 * MB);
    assert_eq!(
        (&plan["buckets"], &plan["degree"]),
        (&json!(10), &json!(1.0))
    );
    // A slow step is followed down to what the bound needs.
    for _ in 0..32 {
        node.read(&asker, 10.0 * MB, 1.0);
    }
    let plan = node.control.plan(&field(), &asker).unwrap();
    assert_eq!(
        (&plan["buckets"], &plan["degree"]),
        (&json!(3), &json!(0.0))
    );
}

#[test]
fn a_weight_is_set_for_the_readers_own_group_and_restored_by_its_report() {
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    let asker = asker(USER, Some(pid), true);
    let plan = node.control.plan(&field(), &asker).unwrap();
    let weight = plan["weight"].as_u64().unwrap();
    assert!(weight > 100 && plan["weight_reason"].is_null(), "{plan}");
    assert_eq!(u64::from(node.weight()), weight);
    let rows = node.rows(&asker);
    let [of_buckets, of_weight] = &*rows else {
        panic!("{rows:?}")
    };
    assert_eq!((&*of_buckets.outcome, of_buckets.id), ("proposed", 1));
    assert_eq!((&*of_weight.outcome, of_weight.plan), ("done", 1));
    assert_eq!(
        (&*of_weight.subject, &*of_weight.label),
        ("jobs/a", "field.baro")
    );
    let report = json!({ "decision": 1, "bytes": 31_000_000, "seconds": 0.5, "nrmse": 9e-4 });
    node.control.report(&report, &asker).unwrap();
    assert_eq!(node.weight(), 100);
    let rows = node.rows(&asker);
    assert_eq!(rows[0].outcome, "done");
    assert_eq!(rows[0].effect.as_ref().unwrap()["after"], 62.0 * MB);
    assert_eq!(rows[0].inputs["reported_nrmse"], 9e-4);
    assert_eq!(rows[1].outcome, "reverted");
    assert!(
        rows[1].outcome_reason.contains("100 was restored"),
        "{rows:?}"
    );
    let again = node.control.report(&report, &asker).unwrap_err();
    assert!(again.message.contains("already"), "{again:?}");
}

#[test]
fn a_weight_ends_with_its_time_and_with_its_process() {
    for is_killed in [false, true] {
        let mut node = Node::new(&ControlConfig::default());
        let pid = node.reader(USER);
        let asker = asker(USER, Some(pid), true);
        node.control.plan(&field(), &asker).unwrap();
        let mut steps = std::mem::take(&mut node.steps);
        assert!(node.control.step(&mut steps).is_some());
        assert!(node.weight() > 100);
        let expect = match is_killed {
            true => {
                node.kill(pid);
                node.clock.advance(LOOK_NS);
                "its process ended"
            }
            false => {
                node.clock.advance(31 * NS_PER_S);
                "its time was over"
            }
        };
        node.control.step(&mut steps);
        assert_eq!(node.weight(), 100, "{expect}");
        let row = &node.rows(&asker)[1];
        assert_eq!(row.outcome, "reverted");
        assert!(row.outcome_reason.contains(expect), "{row:?}");
        // The documents follow, and then there is nothing to do.
        node.clock.advance(DOCUMENT_NS);
        assert_eq!(node.control.step(&mut steps), None);
        let document = node.control.run_dir.document(DECISIONS_DOCUMENT).unwrap();
        let told: Vec<DecisionsRow> = serde_json::from_slice(&document.unwrap()).unwrap();
        assert_eq!(told[1].outcome, "reverted");
    }
}

#[test]
fn a_weight_that_was_put_off_is_told_when_it_is_set() {
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    let asker = asker(USER, Some(pid), true);
    node.control.plan(&field(), &asker).unwrap();
    // Another controller writes the file, and a new plan has to wait.
    fs::write(node.path(WEIGHT), "333\n").unwrap();
    let plan = node.control.plan(&field(), &asker).unwrap();
    assert!(plan["weight"].is_null(), "{plan}");
    let outcome = |node: &Node| {
        let rows = node.rows(&asker);
        let mut of_plan = rows.iter().filter(|row| plan["decision"] == row.plan);
        let of_weight = of_plan.find(|row| row.controller == "weight");
        of_weight.unwrap().outcome.clone()
    };
    assert_eq!(outcome(&node), "deferred");
    let mut steps = std::mem::take(&mut node.steps);
    for _ in 0..3 {
        node.clock.advance(LOOK_NS);
        node.control.step(&mut steps);
    }
    assert_eq!(outcome(&node), "done");
    assert!(node.weight() > 100 && node.weight() != 333);
}

#[test]
fn a_killed_agent_has_its_weights_restored_by_the_next() {
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    node.control
        .plan(&field(), &asker(USER, Some(pid), true))
        .unwrap();
    let ours = node.weight();
    assert!(ours > 100);
    // As after a kill: the journal is there and nobody has restored the file. A copy stands for
    // the journal, since this process would remove its entry.
    let journal = node.path("state/weights");
    let copy = node.path("copy/weights");
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(&journal).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    drop(Weights::open(&node.control.trees, &node.path("copy")));
    assert_eq!(node.weight(), 100);
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 0);
}

#[test]
fn weights_need_their_right_and_their_own_process() {
    let table = [
        (WeightRights::Controllers, true, None),
        (WeightRights::Controllers, false, Some("right to control")),
        (WeightRights::Everyone, false, None),
        (WeightRights::Off, true, Some("weights are off")),
    ];
    for (weights, may_control, expect) in table {
        let config = ControlConfig {
            weights,
            ..ControlConfig::default()
        };
        let mut node = Node::new(&config);
        let pid = node.reader(USER);
        let asker = asker(USER, Some(pid), may_control);
        let plan = node.control.plan(&field(), &asker).unwrap();
        let reason = plan["weight_reason"].as_str();
        match expect {
            None => assert!(node.weight() > 100 && reason.is_none(), "{plan}"),
            Some(expect) => {
                assert!(reason.unwrap().contains(expect), "{plan}");
                assert_eq!((node.weight(), &plan["weight"]), (100, &Json::Null));
            }
        }
    }
    let mut node = Node::new(&ControlConfig::default());
    let pid = node.reader(USER);
    for (uid, pid, expect) in [
        (STRANGER, Some(pid), "not one of user 3000002"),
        (USER, None, "not known over TCP"),
    ] {
        let plan = node.control.plan(&field(), &asker(uid, pid, true)).unwrap();
        let reason = plan["weight_reason"].as_str().unwrap();
        assert!(reason.contains(expect), "{reason}");
        assert_eq!(node.weight(), 100);
    }
}

#[test]
fn one_process_has_the_weight_of_a_group_and_may_plan_again() {
    let mut node = Node::new(&ControlConfig::default());
    let (first, second) = (node.reader(USER), node.reader(USER));
    let (one, other) = (
        asker(USER, Some(first), true),
        asker(USER, Some(second), true),
    );
    let plan = node.control.plan(&field(), &one).unwrap();
    let refused = node.control.plan(&field(), &other).unwrap();
    let reason = refused["weight_reason"].as_str().unwrap();
    assert!(reason.contains("has its weight at present"), "{reason}");
    let mut urgent = field();
    urgent["priority"] = json!(1);
    let again = node.control.plan(&urgent, &one).unwrap();
    assert!(again["weight"].as_u64() < plan["weight"].as_u64());
    assert_eq!(Some(u64::from(node.weight())), again["weight"].as_u64());
    // The report of the plan whose lease went on ends nothing.
    let report = |plan: &Json| json!({ "decision": plan["decision"], "bytes": 1, "seconds": 1.0 });
    node.control.report(&report(&plan), &one).unwrap();
    assert_ne!(node.weight(), 100);
    node.control.report(&report(&again), &one).unwrap();
    assert_eq!(node.weight(), 100);
}

#[test]
fn a_stranger_spoils_and_sees_nothing_of_others() {
    let node = Node::new(&ControlConfig::default());
    let (user, stranger) = (asker(USER, None, false), asker(STRANGER, None, false));
    for _ in 0..9 {
        node.read(&user, 100.0 * MB, 1.0);
    }
    for _ in 0..50 {
        node.read(&stranger, 2.0 * MB, 1.0);
    }
    let plan = node.control.plan(&field(), &user).unwrap();
    assert_eq!(plan["bandwidth"]["value"], 100.0 * MB);
    let id = &plan["decision"];
    let report = json!({ "decision": id, "bytes": 1, "seconds": 1.0 });
    let refused = node.control.report(&report, &stranger).unwrap_err();
    assert_eq!(refused.kind, ControlFaultKind::Unknown);
    let shown = node.control.decisions(&json!({ "id": id }), &stranger);
    assert_eq!(shown.unwrap_err().kind, ControlFaultKind::Unknown);
    assert!(
        node.rows(&stranger)
            .iter()
            .all(|row| row.user == STRANGER.to_string())
    );
    let all = node.rows(&asker(0, None, true));
    assert!(
        all.iter().any(|row| row.user == USER.to_string()),
        "control sees all"
    );
}

#[test]
fn a_short_read_measures_nothing_and_so_a_longer_one_is_asked_for() {
    let node = Node::new(&ControlConfig::default());
    let user = asker(USER, None, false);
    for _ in 0..9 {
        let (_, told) = node.read(&user, 1_000.0, 1.0);
        assert_eq!(told["measured"], false);
        let reason = told["reason"].as_str().unwrap();
        assert!(reason.contains("too few to measure"), "{reason}");
    }
    // A reader without a bound and with a small base.
    let mut small = field();
    small["error"] = Json::Null;
    small["base_bytes"] = json!(1_000);
    let plan = node.control.plan(&small, &user).unwrap();
    assert_eq!(
        (&plan["buckets"], &plan["bytes"]),
        (&json!(0), &json!(1_000))
    );
    assert_eq!(plan["bandwidth"]["basis"], "none");
    assert_eq!(plan["probe"], json!({ "bucket": 0, "bytes": 4 << 20 }));
}

#[test]
fn what_was_in_memory_measures_nothing() {
    let node = Node::new(&ControlConfig::default());
    let user = asker(USER, None, false);
    let (_, told) = node.read(&user, 5_000.0 * MB, 0.01);
    assert_eq!(told["measured"], false);
    assert!(
        told["reason"].as_str().unwrap().contains("in memory"),
        "{told}"
    );
    let row = &node.rows(&user)[0];
    assert_eq!(row.outcome, "done");
    assert!(row.inputs.contains_key("not_measured"));
}

#[test]
fn a_dry_run_is_recorded_and_changes_nothing() {
    let dry = ControlConfig {
        mode: ControlModeConfig::DryRun,
        ..ControlConfig::default()
    };
    for (config, asked) in [(dry, false), (ControlConfig::default(), true)] {
        let mut node = Node::new(&config);
        let pid = node.reader(USER);
        let asker = asker(USER, Some(pid), true);
        let mut body = field();
        body["dry_run"] = json!(asked);
        let plan = node.control.plan(&body, &asker).unwrap();
        assert_eq!(
            (&plan["dry_run"], &plan["weight"]),
            (&json!(true), &Json::Null)
        );
        let reason = plan["weight_reason"].as_str().unwrap();
        assert!(reason.contains("it would be"), "{reason}");
        assert_eq!(node.weight(), 100);
        let rows = node.rows(&asker);
        assert!(rows.iter().all(|row| row.outcome == "dry_run"), "{rows:?}");
    }
    let off = ControlConfig {
        mode: ControlModeConfig::Off,
        ..ControlConfig::default()
    };
    let refused = Node::new(&off)
        .control
        .plan(&field(), &asker(USER, None, true));
    assert_eq!(refused.unwrap_err().kind, ControlFaultKind::Refused);
}

#[test]
fn devices_are_found_by_name_number_and_path() {
    let node = Node::new(&ControlConfig::default());
    let user = asker(USER, None, false);
    let device = |place: Json| {
        let mut body = field();
        body.as_object_mut().unwrap().remove("path");
        body.as_object_mut()
            .unwrap()
            .extend(place.as_object().unwrap().clone());
        let plan = node.control.plan(&body, &user);
        plan.map(|plan| plan["device"].as_str().unwrap().to_owned())
            .map_err(|fault| fault.message)
    };
    for (place, expect) in [
        (json!({ "device": "sda" }), "sda"),
        (json!({ "device": "8:1" }), "sda"),
        (json!({ "device": "253:0" }), "dm-0"),
        (json!({ "device": "0:50" }), "sda"),
        (json!({ "device": "0:51" }), "0:51"),
        (json!({ "path": "/etc/x" }), "sda"),
        (json!({ "path": "/data/x" }), "sda"),
        (json!({ "path": "/files/my files/x" }), "0:51"),
        (json!({ "path": "/files/my filesystem" }), "sda"),
    ] {
        assert_eq!(device(place.clone()).unwrap(), expect, "{place}");
    }
    for name in ["", "..", "sda/../sda", "sdz", "sd\0a"] {
        let refused = device(json!({ "device": name })).unwrap_err();
        assert!(refused.contains("no block device"), "{refused}");
    }
    let trees = &node.control.trees;
    let place = request::PlanPlace::Device("dm-0".into());
    let found = trees.device(&place, false).unwrap();
    assert_eq!(
        found.disk.as_deref(),
        Some("sda"),
        "the disk below a volume"
    );
}

#[test]
fn a_flood_of_plans_is_refused_and_counted() {
    let node = Node::new(&ControlConfig::default());
    let user = asker(USER, None, false);
    let refused = (0..150).filter(|_| node.control.plan(&field(), &user).is_err());
    assert_eq!(refused.count(), 50);
    let answer = node.control.decisions(&json!({}), &user).unwrap();
    assert_eq!(answer["refused"], 50);
    assert!(
        node.control
            .plan(&field(), &asker(STRANGER, None, false))
            .is_ok()
    );
}
