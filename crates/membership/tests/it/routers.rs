//! Members that know only routers of zenoh, which have certificates of the cluster too.

use std::path::Path;
use std::sync::Arc;

use barograph_fabric::transport::ZenohTransport;
use barograph_stream::SystemClock;
use zenoh::Wait as _;

use crate::admission::{authority, joined};
use crate::secured::{appeared, deliver, expect, free_address, gone, hello, open_by};

/// A router of zenoh, as `zenohd` is one, with the configuration that the guide shows.
fn router(dir: &Path, [own, other]: [&str; 2]) -> zenoh::Session {
    let guide = include_str!("../../../../docs/guide/cluster.md");
    let (_, text) = guide.split_once("```json5\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let text = text
        .replace("0.0.0.0:7447", own)
        .replace("router2:7447", other)
        .replace("/etc/zenohd/cluster", &dir.to_string_lossy());
    let config = zenoh::Config::from_json5(&text).unwrap();
    zenoh::open(config).wait().unwrap()
}

#[test]
fn members_that_cannot_reach_each_other_meet_through_routers_with_certificates() {
    let temp = tempfile::tempdir().unwrap();
    let a_dir = authority(temp.path(), "rack");
    let dirs = ["b", "router1", "router2"].map(|name| joined(&a_dir, name));
    let addresses = [free_address(), free_address()];
    let [first, second] = [&addresses[0], &addresses[1]];
    let _first = router(&dirs[1], [first, second]);
    let of_b = router(&dirs[2], [second, first]);
    // They listen at no address, so that nothing reaches them but through the routers.
    let join = |dir, node, number, address: &str| {
        let clock = Arc::new(SystemClock::new());
        open_by(clock, Some(dir), hello(node, number), (&[], &[address])).unwrap()
    };
    let mut a = join(&a_dir, "a", 1, first);
    let mut b = join(&dirs[0], "b", 2, second);
    meet_and_talk(&mut a, &mut b);
    of_b.close().wait().unwrap();
    drop(of_b);
    expect(&mut [&mut a], gone("b"));
    expect(&mut [&mut b], gone("a"));
    let _of_b = router(&dirs[2], [second, first]);
    meet_and_talk(&mut a, &mut b);
}

fn meet_and_talk(a: &mut ZenohTransport, b: &mut ZenohTransport) {
    expect(&mut [&mut *a], appeared("b"));
    expect(&mut [&mut *b], appeared("a"));
    deliver((b, "b"), (a, "a"), &[7; 300_000]);
}
