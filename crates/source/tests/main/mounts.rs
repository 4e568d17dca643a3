//! Tests of mounts that do not answer, simulated by a function that does not return.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use barograph_source::sources::filesystem::{Filesystems, Space, StatFn};

use crate::support::{Reader, Tree};

/// Blocks every call on a path that contains `hung`, until opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    held: AtomicUsize,
}

impl Gate {
    fn stat(self: &Arc<Self>) -> Arc<StatFn> {
        let gate = self.clone();
        Arc::new(move |path: &CStr| {
            if path.to_string_lossy().contains("/hung") {
                gate.held.fetch_add(1, Ordering::SeqCst);
                let mut open = gate.open.lock().unwrap();
                while !*open {
                    open = gate.opened.wait(open).unwrap();
                }
            }
            Ok(Space {
                total_bytes: 100,
                free_bytes: 50,
                available_bytes: 50,
                ..Space::default()
            })
        })
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Opens the gate at the end of a test, so that no call stays blocked.
struct Opener(Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn reader(mounts: &str, timeout_ms: u64) -> (Tree, Reader, Opener) {
    let tree = Tree::of("empty");
    tree.write("proc/self/mountinfo", mounts);
    let mut config = tree.config();
    config.filesystem.timeout_ms = timeout_ms;
    let gate = Arc::new(Gate::default());
    let reader = Reader::new(Box::new(Filesystems::with_stat(
        &config.sys_root,
        &config.tiers,
        &config.filesystem,
        gate.stat(),
    )));
    (tree, reader, Opener(gate))
}

fn line(index: usize, mount: &str) -> String {
    format!("{index} 1 0:{index} / /{mount} rw - nfs4 srv:/{mount} rw\n")
}

fn flag(reader: &Reader, mount: &str) -> Option<f64> {
    let labels = format!("{{device=srv:/{mount},fstype=nfs4,mount=/{mount},tier=pfs}}");
    reader.number(&format!("filesystem.responding.flag{labels}"))
}

#[test]
fn a_hung_mount_is_reported_the_others_are_served_and_it_comes_back() {
    a_hung_mount_among_others();
}

pub(crate) fn a_hung_mount_among_others() {
    let mounts = [line(1, "a"), line(2, "hung"), line(3, "b")].concat();
    let (_tree, mut reader, gate) = reader(&mounts, 1000);
    for _ in 0..4 {
        reader.read().unwrap();
        assert_eq!(flag(&reader, "hung"), Some(0.0));
        assert_eq!(
            (flag(&reader, "a"), flag(&reader, "b")),
            (Some(1.0), Some(1.0))
        );
    }
    assert_eq!(
        gate.0.held.load(Ordering::SeqCst),
        1,
        "it is not asked again while it hangs"
    );
    let missing = reader.source.report().missing;
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(
        missing[0].what.contains("/hung") && missing[0].why.contains("3 s"),
        "{missing:?}"
    );
    gate.0.open();
    // The late answer belongs to an earlier round; the next round asks again.
    while flag(&reader, "hung") != Some(1.0) {
        reader.read().unwrap();
    }
    assert!(reader.source.report().missing.is_empty());
}

#[test]
fn many_that_hang_at_once_hold_up_no_other() {
    let mut mounts: String = (1..=40).map(|i| line(i, &format!("hung{i}"))).collect();
    mounts += &line(99, "well");
    let (_tree, mut reader, _gate) = reader(&mounts, 3000);
    reader.read().unwrap();
    assert_eq!(flag(&reader, "well"), Some(1.0));
    assert!((1..=40).all(|i| flag(&reader, &format!("hung{i}")) == Some(0.0)));
}

#[test]
fn more_than_there_are_threads_for() {
    let mounts: String = (1..=80).map(|i| line(i, &format!("hung{i}"))).collect();
    let (_tree, mut reader, gate) = reader(&mounts, 3000);
    reader.read().unwrap();
    assert_eq!(
        gate.0.held.load(Ordering::SeqCst),
        64,
        "threads are bounded"
    );
    let missing = reader.source.report().missing;
    assert_eq!(missing.len(), 80);
    assert_eq!(
        missing
            .iter()
            .filter(|m| m.why.contains("all 64 threads"))
            .count(),
        16
    );
}

#[test]
fn a_hung_mount_that_is_unmounted_is_gone() {
    let (tree, mut reader, gate) = reader(&[line(1, "hung"), line(2, "a")].concat(), 1000);
    reader.read().unwrap();
    tree.write("proc/self/mountinfo", line(2, "a"));
    reader.read().unwrap();
    assert!(reader.streams("hung").is_empty());
    tree.write("proc/self/mountinfo", [line(2, "a"), line(3, "b")].concat());
    gate.0.open();
    reader.read().unwrap();
    assert_eq!(
        (flag(&reader, "a"), flag(&reader, "b")),
        (Some(1.0), Some(1.0))
    );
}
