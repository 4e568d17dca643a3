//! Nodes that return after the others have forgotten them.

use super::*;

/// Time for which nodes are away, in seconds. A node that has gone is forgotten after ten minutes.
const AWAY_S: i64 = 3_600;
/// Time in which they are whole again, in seconds: an hour of history is fetched.
const RETURNED_S: i64 = 180;

#[test]
fn nodes_that_were_forgotten_return_and_are_whole() {
    let dir = memory_dir();
    let time = virtual_time();
    let nodes = machines(dir.path(), &time, 3);
    let mut rack = Rack::new(&nodes, &time, 3);
    let stopped = rack.agents[1].take().unwrap();
    stopped.stop();
    rack.network.cut(NODES[2], true);
    rack.cut = Some((2, time.now_ns()));
    let mut away = Away::default();
    for _ in 0..AWAY_S / 60 {
        rack.run(60);
        rack.check_mirrors(&mut away);
        rack.check_bounds();
    }
    // Those that run know of nobody any more.
    for (here, agent) in rack.agents.iter().enumerate() {
        let Some(agent) = agent else {
            continue;
        };
        assert_eq!(agent.fabric.as_ref().unwrap().peers(), [], "{here}");
        for of in 0..NODES.len() {
            assert!(!rack.mirror(here, of).segment().exists(), "{here} {of}");
        }
    }
    let (compared, past) = rack.finish(RETURNED_S);
    // The hour of the node that was cut off came from its archive.
    let hour = AWAY_S.unsigned_abs();
    assert!(
        past > hour && compared[0] as u64 > hour,
        "{compared:?} {past}"
    );
}
