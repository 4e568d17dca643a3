//! Test of an agent on this machine, under a policy.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use barograph_agent::{Agent, Config, POLICIES_DOCUMENT};
use barograph_model::NS_PER_S;
use barograph_source::PolicySpec;
use barograph_testing::wait_for;
use serde_json::Value as Json;

use crate::{config, latest, observer};

const FILE_BYTES: usize = 64 << 20;
const ERROR_BYTES: i64 = 16 << 20;

/// Returns a configuration that reads only the file systems of this machine, and seldom without a
/// policy.
fn here(dir: &Path) -> Config {
    let mut config = config(dir);
    config.sources.sys_root = "/".into();
    for name in barograph_source::source_names() {
        let poll = config.sources.poll.entry(name.to_owned()).or_default();
        poll.enabled = Some(name == "filesystem");
        poll.interval_ms = Some(600_000);
        poll.interval_min_ms = 100;
    }
    config.policy = vec![PolicySpec {
        name: "space".into(),
        streams: vec!["filesystem.available.bytes".into()],
        error: Some("16 MiB".into()),
        interval_min_ms: 100,
        interval_max_ms: 1_000,
        ..PolicySpec::default()
    }];
    config
}

fn rows(dir: &Path) -> Vec<Json> {
    let text = std::fs::read(dir.join("run").join(POLICIES_DOCUMENT)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_written_file_is_known_within_what_the_policy_bears() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |mount: &str| dir.path().starts_with(mount).then_some(mount.len());
    let agent = Agent::start(here(dir.path())).unwrap();
    let observer = observer(dir.path());
    // Returns the free bytes of the directory's file system as the agent knows them, and the time
    // of that look.
    let known = || {
        let streams = latest(&observer, "filesystem.available.bytes");
        let streams = streams.iter().filter_map(|s| {
            let path = s.descriptor.labels.get("mount")?;
            Some((mount(path)?, path.to_owned(), s))
        });
        let (_, path, newest) = streams.max_by_key(|(len, ..)| *len)?;
        let value = newest.sample.as_ref()?.value.as_f64()? as i64;
        Some((path, value, newest.looked_ns, newest.interval_ns))
    };
    let Some((path, ..)) = known() else {
        // Not every directory is on a file system that the agent follows.
        return agent.stop();
    };
    let truth = || {
        let space = rustix::fs::statvfs(path.as_str()).unwrap();
        i64::try_from(space.f_bavail * space.f_frsize).unwrap()
    };
    // The policy makes the interval far shorter than configured.
    let (.., interval_ns) = wait_for("it is read as the policy wants", || {
        known().filter(|(.., interval_ns)| *interval_ns <= NS_PER_S)
    });
    assert!(interval_ns >= 100_000_000, "{interval_ns}");
    let before = known().unwrap();
    let mut file = File::create(dir.path().join("written")).unwrap();
    file.write_all(&vec![7; FILE_BYTES]).unwrap();
    file.sync_all().unwrap();
    wait_for("what was written is known", || {
        let (_, value, looked_ns, _) = known()?;
        let is_later = looked_ns > before.2;
        (is_later && (value - truth()).abs() <= ERROR_BYTES).then_some(())
    });
    let row = wait_for("the document says so", || {
        let rows = rows(dir.path()).into_iter();
        let mut rows = rows.filter(|row| row["labels"]["mount"] == path);
        rows.find(|row| row["looks"].as_u64().is_some_and(|looks| looks > 1))
    });
    assert_eq!(row["name"], "space");
    assert_eq!(row["source"], "filesystem");
    assert!(!latest(&observer, "forecast.filesystem.available.bytes").is_empty());
    agent.stop();
}
