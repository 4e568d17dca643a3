//! A keeper whose disk is full for minutes, and that is killed meanwhile.

use super::*;

/// Time for which the disk is full, before and after the keeper is killed, in seconds.
const FULL_S: i64 = 240;

/// The faults that the keeper tells of the others.
fn faults(rack: &Rack<'_>) -> Vec<String> {
    let fabric = rack.agents[0].as_ref().unwrap().fabric.as_ref().unwrap();
    let peers = fabric.peers().into_iter();
    peers.filter_map(|peer| peer.fault).collect()
}

#[test]
fn a_full_disk_is_said_costs_no_other_node_and_leaves_no_hole() {
    let dir = memory_dir();
    let time = virtual_time();
    let mut nodes = machines(dir.path(), &time, 5);
    for node in &mut nodes {
        // What no archive has, such as projections unless told otherwise, is lost with the rings.
        node.config.archive.leave_out.clear();
    }
    let mut rack = Rack::new(&nodes, &time, 5);
    assert_eq!(faults(&rack), [""; 0]);
    rack.fill_disk(true);
    rack.run(FULL_S);
    let told = faults(&rack);
    let is_told = |fault: &String| fault.contains("history is not");
    assert!(told.len() == 2 && told.iter().all(is_told), "{told:?}");
    // What cannot be written is mirrored all the same, while the window has room.
    rack.check_views();
    rack.tell("the keeper is killed");
    rack.agents[0].take().unwrap().cut();
    nodes[0].restart_after_power_cut();
    rack.forgot.insert(0);
    rack.start(0);
    rack.run(FULL_S);
    let told = faults(&rack);
    assert!(told.len() == 2 && told.iter().all(is_told), "{told:?}");
    for (node, agent) in NODES.iter().zip(&rack.agents).skip(1) {
        let fabric = agent.as_ref().unwrap().fabric.as_ref().unwrap();
        assert_eq!(fabric.status().lost, 0, "{node}: {:?}", fabric.sent_to());
    }
    let (compared, past) = rack.finish(HEALED_S);
    assert!(past > 0, "rings have turned over");
    assert!(compared[0] > 1_000, "{compared:?}");
}
