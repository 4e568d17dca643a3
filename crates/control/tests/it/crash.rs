//! Processes that are killed while they hold a lease: on a tree of plain files, and on the control
//! groups of the machine where it has version 1 of blkio with bfq and lets this user make groups.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use barograph_control::cgroup::{
    CgroupRoots, IoSetting, LeaseEnd, LeaseState, RestoreOutcome, WeightBackend, WeightLease,
    delegate, recover,
};

use crate::tree::{GROUP, Tree};

const V1: WeightBackend = WeightBackend::V1Bfq;
const BLKIO: &str = "/sys/fs/cgroup/blkio";

/// The example `hold_lease`, which `cargo test` builds beside the tests.
fn holder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/hold_lease");
    assert!(
        path.is_file(),
        "{} is not built: run `cargo test -p barograph-control` or build its examples",
        path.display()
    );
    path
}

/// Starts a process that holds the lease of a group, and returns once the weight is written.
fn hold(tree: &Tree, v1: &Path, group: &str, weight: u32) -> Child {
    let weight = weight.to_string();
    held(&mut command(&holder(), tree, v1, group, &weight))
}

fn command(program: &Path, tree: &Tree, v1: &Path, group: &str, weights: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(v1)
        .arg(tree.path("v2"))
        .arg(tree.path("block"))
        .args([group, "sdb"])
        .arg(tree.path("journal"))
        .arg(weights)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

fn held(command: &mut Command) -> Child {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let output = child.stdout.as_mut().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "blkio.bfq.weight Written\n");
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), None, "the child has ended by itself");
}

#[test]
fn a_killed_holder_on_plain_files_is_cleaned_up_after() {
    let tree = Tree::with(V1);
    for weight in [400, 900] {
        let child = hold(&tree, &tree.path("v1"), GROUP, weight);
        kill(child);
        assert_eq!(tree.get(V1), format!("{weight}\n"));
        let recovered = tree.recover();
        let old = IoSetting::Weight(100);
        assert_eq!(recovered[0].outcome, RestoreOutcome::Restored(old));
        assert_eq!((&*tree.get(V1), tree.entries().len()), ("100\n", 0));
    }
    // One that ends in order restores by itself.
    let mut child = hold(&tree, &tree.path("v1"), GROUP, 400);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!((&*tree.get(V1), tree.entries().len()), ("100\n", 0));
}

/// A group of the machine, which is removed at the end.
struct RealGroup {
    name: String,
    path: PathBuf,
}

impl RealGroup {
    /// A new group; or the reason why there is none here.
    fn make(what: &str) -> Result<Self, String> {
        let name = format!("barograph-test-{what}-{}", std::process::id());
        let path = Path::new(BLKIO).join(&name);
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let group = Self { name, path };
        let weight = group.path.join(V1.file());
        match weight.is_file() {
            true => Ok(group),
            false => Err(format!("{} is not there", weight.display())),
        }
    }

    fn weight(&self) -> String {
        std::fs::read_to_string(self.path.join(V1.file())).unwrap()
    }

    fn put(&self, text: &str) {
        std::fs::write(self.path.join(V1.file()), text).unwrap();
    }

    fn remove(&self) {
        // A group in which a process has ended may be busy for a moment; none was ever put in it.
        std::fs::remove_dir(&self.path).unwrap();
    }
}

impl Drop for RealGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// The control groups of the machine with block devices of the tree: a test may not change the
/// scheduler of a disk, so that it is the tree whose device has bfq.
fn real_roots(tree: &Tree) -> CgroupRoots {
    CgroupRoots::open(Path::new(BLKIO), &tree.path("v2"), &tree.path("block")).unwrap()
}

#[test]
fn a_killed_holder_of_a_group_of_the_machine_is_cleaned_up_after() {
    let group = match RealGroup::make("kill") {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let tree = Tree::new();
    let roots = real_roots(&tree);
    assert_eq!(group.weight(), "100\n");

    kill(hold(&tree, Path::new(BLKIO), &group.name, 400));
    assert_eq!(group.weight(), "400\n");
    let recovered = recover(&roots, &tree.journal()).unwrap();
    assert_eq!(recovered[0].group, group.name);
    let old = IoSetting::Weight(100);
    assert_eq!(recovered[0].outcome, RestoreOutcome::Restored(old));
    assert_eq!((&*group.weight(), tree.entries().len()), ("100\n", 0));

    // What somebody else has written since is theirs.
    kill(hold(&tree, Path::new(BLKIO), &group.name, 500));
    group.put("300\n");
    let recovered = recover(&roots, &tree.journal()).unwrap();
    let theirs = RestoreOutcome::Theirs(IoSetting::Weight(300));
    assert_eq!(recovered[0].outcome, theirs);
    assert_eq!((&*group.weight(), tree.entries().len()), ("300\n", 0));

    group.remove();
    assert!(!group.path.exists());
}

#[test]
fn the_kernel_takes_the_whole_range_and_tells_a_removed_group() {
    let group = match RealGroup::make("range") {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let tree = Tree::new();
    let (roots, journal) = (real_roots(&tree), tree.journal());
    let mut lease = WeightLease::take(&roots, &group.name, V1, &journal, i64::MAX).unwrap();
    let range = V1.range().unwrap();
    for weight in [range.min(), 2, range.default(), 999, range.max()] {
        lease.set(IoSetting::Weight(weight), 0).unwrap();
        assert_eq!(group.weight(), format!("{weight}\n"));
    }
    // The kernel refuses what is out of the range, as does the lease before it.
    for text in ["0\n", "1001\n"] {
        let written = std::fs::write(group.path.join(V1.file()), text);
        assert!(written.is_err(), "{text}");
    }
    group.put("700\n");
    let state = lease.step(0).unwrap();
    assert!(matches!(state, LeaseState::Contended { .. }), "{state:?}");
    let LeaseState::Contended { retry_ns, .. } = *state else {
        return;
    };
    let held = LeaseState::Held(IoSetting::Weight(range.max()));
    assert_eq!(lease.step(retry_ns).unwrap(), &held);

    group.remove();
    let ended = LeaseState::Ended(LeaseEnd::Vanished);
    assert_eq!(lease.step(retry_ns).unwrap(), &ended);
    assert!(tree.entries().is_empty());
    assert_eq!(lease.release(), LeaseEnd::Vanished);
}

#[test]
fn a_kill_at_any_moment_leaves_what_can_be_restored() {
    let group = match RealGroup::make("moments") {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let tree = Tree::new();
    let roots = real_roots(&tree);
    let mut restored = 0;
    for turn in 0..30 {
        let v1 = Path::new(BLKIO);
        let mut command = command(&holder(), &tree, v1, &group.name, "300,400,500");
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        // The child goes on setting weights while its lines are read, and must not find its output
        // closed.
        let mut lines = output.lines();
        for line in lines.by_ref().take(1 + turn % 5) {
            assert_eq!(line.unwrap(), "blkio.bfq.weight Written");
        }
        kill(child);
        for one in recover(&roots, &tree.journal()).unwrap() {
            let old = IoSetting::Weight(100);
            assert_eq!(one.outcome, RestoreOutcome::Restored(old), "turn {turn}");
            restored += 1;
        }
        assert_eq!(
            (&*group.weight(), tree.entries().len()),
            ("100\n", 0),
            "turn {turn}"
        );
    }
    // Each turn had a first weight, and no turn restored one of the journal alone.
    assert_eq!(restored, 30);
    group.remove();
}

/// A user without any rights.
const NOBODY: u32 = 65_534;

#[test]
fn a_user_without_privileges_sets_what_root_has_delegated() {
    let group = match RealGroup::make("delegate") {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root gives files of groups away");
    }
    let tree = Tree::new();
    let roots = real_roots(&tree);
    // The other user reaches the tree, the program and its journal.
    let program = tree.path("hold_lease");
    // By another process: one that a test beside this forks meanwhile would hold the copy open for
    // writing for a moment, and it could not be executed.
    let copied = Command::new("cp").arg(holder()).arg(&program).status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(tree.path(""), Permissions::from_mode(0o755)).unwrap();
    chown(tree.path("journal"), Some(NOBODY), None).unwrap();
    let as_nobody = || {
        let mut command = command(&program, &tree, Path::new(BLKIO), &group.name, "400");
        command.uid(NOBODY).gid(NOBODY);
        command
    };

    let refused = as_nobody().stderr(Stdio::piped()).output().unwrap();
    let reason = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(reason.contains(&format!("chown {NOBODY}")), "{reason}");
    assert_eq!(group.weight(), "100\n");

    delegate(&roots, &group.name, V1, NOBODY).unwrap();
    let mut child = held(&mut as_nobody());
    assert_eq!(group.weight(), "400\n");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!((&*group.weight(), tree.entries().len()), ("100\n", 0));
    group.remove();
}

#[test]
fn only_a_file_of_a_group_is_delegated() {
    let tree = Tree::with(V1);
    let roots = tree.roots();
    for group in ["", "..", "jobs/../../block/sdb", "jobs", "none"] {
        assert!(delegate(&roots, group, V1, 0).is_err(), "{group}");
    }
    // A file that is not of the documented form, and one that is a link.
    tree.put(V1, "8:16\n");
    assert!(delegate(&roots, GROUP, V1, 0).is_err());
    std::fs::remove_file(tree.file(V1)).unwrap();
    std::os::unix::fs::symlink(tree.path("block/sdb/dev"), tree.file(V1)).unwrap();
    assert!(delegate(&roots, GROUP, V1, 0).is_err());
}
