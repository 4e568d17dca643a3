//! A tier on a file system that is full: a small tmpfs in a mount namespace of its own.

use std::process::{Command, Stdio};
use std::sync::Arc;

use barograph_model::ManualClock;
use barograph_staging::{BlockStore, FaultCode};

use crate::common::{MIB, RETRY_NS, bytes, config, get, put};

/// The directory that the test below gets when it runs itself within the namespace.
const INSIDE: &str = "STAGING_TEST_TMPFS";
const NAME: &str = "tmpfs::a_full_file_system_is_no_room_and_later_is";

#[test]
fn a_full_file_system_is_no_room_and_later_is() {
    if let Some(path) = std::env::var_os(INSIDE) {
        return on_small_disk(path.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m,mode=700 none \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script]);
    command
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", NAME])
        .env(INSIDE, directory.path());
    let run = command.stdin(Stdio::null()).output();
    let can_mount = Command::new("unshare")
        .args(["--mount", "--map-root-user", "true"])
        .status();
    match (run, can_mount) {
        (Ok(run), Ok(status)) if status.success() => {
            let text = String::from_utf8_lossy(&run.stdout);
            assert!(run.status.success(), "{text}");
        }
        // Without namespaces, the test of failing disks has the same fault.
        _ => println!("no mount namespaces here"),
    }
}

fn on_small_disk(path: &std::path::Path) {
    let clock = Arc::new(ManualClock::default());
    let store = BlockStore::open(config(MIB, &[path]), clock.clone()).unwrap();
    let data = bytes(1, 3 << 20);
    put(&store, 1, 1, &data).unwrap();
    let error = put(&store, 2, 1, &data).unwrap_err();
    let code = error.code();
    assert!(
        matches!(code, Some(FaultCode::Disk | FaultCode::Full)),
        "{error}"
    );
    // What did not fit has left nothing.
    assert_eq!(store.tiers()[1].bytes, 3 * MIB);
    assert!(get(&store, 1).unwrap() == data);
    store
        .delete(crate::common::USER, &crate::common::key(1), 1)
        .unwrap();
    clock.advance(RETRY_NS);
    put(&store, 2, 1, &data).unwrap();
    assert!(get(&store, 2).unwrap() == data);
}
