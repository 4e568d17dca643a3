//! A process that takes in, claims, does and settles actions is killed at random moments, many
//! times: no action is lost, and one is done twice only if its process was killed while it had the
//! lease.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use barograph_action::{
    ActionFilter, ActionOutcome, ActionQueue, ActionRequest, ActionState, Delivery, QueueConfig,
    RetryPolicy,
};

use crate::support::{RealClock, request, start};

const ROLE: &str = "BAROGRAPH_TEST_CRASH";
const TOTAL: u64 = 900;
const CLAIMED_MAX: usize = 8;
const LEASE_NS: i64 = 200_000_000;

fn open(folder: &Path) -> ActionQueue {
    let clock = Arc::new(RealClock::new());
    ActionQueue::open(&folder.join("queue"), QueueConfig::default(), clock).unwrap()
}

/// Number of the requests that were acknowledged to whoever offers them.
fn acknowledged(folder: &Path) -> u64 {
    let lines = std::fs::read_to_string(folder.join("acknowledged")).unwrap_or_default();
    // The last line may be half of one.
    let whole = lines.rfind('\n').map_or("", |end| &lines[..end]);
    whole.lines().last().map_or(0, |line| line.parse().unwrap())
}

fn offered(index: u64) -> ActionRequest {
    ActionRequest {
        delivery: match index % 3 {
            0 => Delivery::AtMostOnce,
            _ => Delivery::AtLeastOnce,
        },
        retry: RetryPolicy {
            attempts_max: 1_000,
            ..RetryPolicy::default()
        },
        ..request("r", index)
    }
}

#[test]
fn plays_its_role() {
    let Some(folder) = std::env::var_os(ROLE).map(PathBuf::from) else {
        return;
    };
    let queue = open(&folder);
    let mut next = acknowledged(&folder);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("acknowledged"));
    let mut log = log.unwrap();
    loop {
        if next < TOTAL {
            let batch: Vec<_> = (next..(next + 10).min(TOTAL)).map(offered).collect();
            let outcome = queue.enqueue(&batch).unwrap();
            assert_eq!(outcome.refused(), 0);
            next += batch.len() as u64;
            log.write_all(format!("{next}\n").as_bytes()).unwrap();
        }
        let claimed = queue
            .claim("child", &[start("r")], CLAIMED_MAX, LEASE_NS)
            .unwrap();
        let status = queue.status();
        if claimed.is_empty() {
            if next >= TOTAL && status.waiting + status.running == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut ended = Vec::new();
        for action in claimed {
            let (key, number) = (action.key.to_string(), action.lease.number);
            let run = folder.join("runs").join(format!("{key}+{number}"));
            OpenOptions::new()
                .create_new(true)
                .write(true)
                .open(run)
                .unwrap();
            let effect = folder.join("effects").join(&key);
            // The receiver tells repetitions by the key.
            let made = OpenOptions::new().create_new(true).write(true).open(effect);
            assert!(
                made.is_ok() || number > 1,
                "{key} was done before its first lease"
            );
            std::thread::sleep(Duration::from_millis(1));
            ended.push((action.lease, ActionOutcome::Done { output: Vec::new() }));
        }
        queue.settle(&ended, 0.5).unwrap();
    }
}

fn child(folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["crash::plays_its_role", "--exact", "--nocapture"])
        .env(ROLE, folder)
        .stdout(Stdio::null());
    command
}

fn names(folder: PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn nothing_is_lost_when_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("runs")).unwrap();
    std::fs::create_dir(folder.join("effects")).unwrap();
    let random = RandomState::new();
    let mut kills = 0;
    for turn in 0..60_u64 {
        let mut child = child(folder).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(10 + random.hash_one(turn) % 50));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if status.success() {
            break;
        }
        assert_eq!(status.code(), None, "the child has failed by itself");
        kills += 1;
    }
    let output = child(folder).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(kills >= 10, "the work was done after {kills} kills");

    assert_eq!(acknowledged(folder), TOTAL);
    let queue = open(folder);
    assert_eq!(queue.status().set_aside, None);
    let list = queue.list(&ActionFilter::default()).unwrap();
    assert_eq!(list.len() as u64, TOTAL);
    let effects = names(folder.join("effects"));
    let mut runs: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for name in names(folder.join("runs")) {
        let (key, number) = name.rsplit_once('+').unwrap();
        runs.entry(key.to_owned())
            .or_default()
            .push(number.parse().unwrap());
    }
    let (mut again, mut unknown) = (0, 0);
    for info in &list {
        let key = info.key.to_string();
        let runs = runs.get(&key).map_or(0, Vec::len);
        again += runs.saturating_sub(1);
        match (info.delivery, info.state) {
            (_, ActionState::Done) => assert!(effects.contains(&key), "{key} was not done"),
            (Delivery::AtMostOnce, ActionState::Dead) => {
                unknown += 1;
                assert!(
                    info.reason.as_ref().unwrap().starts_with("outcome unknown"),
                    "{info:?}"
                );
            }
            _ => panic!("{info:?}"),
        }
        if info.delivery == Delivery::AtMostOnce {
            assert!(runs <= 1 && info.attempts == 1, "{info:?} ran {runs} times");
        }
    }
    // What was done again had a lease when its process was killed.
    assert!(
        again + unknown <= kills * CLAIMED_MAX,
        "{again} again, {unknown} unknown"
    );
    println!("{kills} kills: {again} done again, {unknown} of unknown outcome, none lost");
}
