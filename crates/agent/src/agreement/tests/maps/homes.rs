//! Servers that move to another node.

use super::super::Cluster;
use super::{Programs, change, remove, start};
use crate::agreement::core::{LeaderAnswer, LeaderQuestion};
use crate::controller_words::MapChange;

type Moved = (u32, String, Option<String>);

/// Servers that are on other nodes than the leader has saved.
fn moved(cluster: &mut Cluster, programs: &mut Programs) -> Vec<Moved> {
    let (core, _, _) = cluster.nodes[3].agent.as_mut().unwrap();
    assert!(core.ask(LeaderQuestion::Maps { id: 6, user: None }));
    programs.run(cluster, 200);
    let (core, _, _) = cluster.nodes[3].agent.as_mut().unwrap();
    match &core.take_answers()[..] {
        [(6, LeaderAnswer::Maps(maps))] => maps[0].moved_servers.clone(),
        other => panic!("{other:?}"),
    }
}

fn lose_leader(cluster: &mut Cluster, programs: &mut Programs) {
    let led = cluster.leader(4).unwrap();
    let leader = cluster.nodes.iter().position(|it| it.name == led);
    cluster.nodes[leader.unwrap()].agent = None;
    programs.run(cluster, 8_000);
}

#[test]
fn a_server_moves_when_it_has_ended_where_it_was_and_every_leader_knows_where() {
    let (mut cluster, mut programs) = start();
    let name = |cluster: &Cluster, node: usize| cluster.nodes[node].name.clone();
    // Its next process is there while the one before runs on its node.
    programs.begin(3, 21, 1);
    programs.run(&mut cluster, 1_000);
    assert_eq!(programs.of(21).told, None);
    let told = (1, name(&cluster, 3), Some(name(&cluster, 4)));
    assert_eq!(moved(&mut cluster, &mut programs), [told]);
    assert_eq!(change(&mut cluster, &mut programs, remove(0)), Ok(2));
    programs.run(&mut cluster, 1_000);
    assert_eq!(programs.of(21).told, None);
    assert_eq!(programs.of(11).told.unwrap().1.fence, 2);

    programs.end(&cluster, 11, true);
    programs.run(&mut cluster, 1_000);
    assert_eq!(programs.of(21).told.unwrap().1.fence, 2);
    assert_eq!(moved(&mut cluster, &mut programs), []);

    // The next leader hears of the end on the old node, and nothing of the new one.
    cluster.cut_off.insert(3);
    lose_leader(&mut cluster, &mut programs);
    let refused = change(&mut cluster, &mut programs, remove(2)).unwrap_err();
    assert!(
        refused.contains("nothing is heard of server 1"),
        "{refused}"
    );
    cluster.cut_off.clear();
    programs.run(&mut cluster, 3_000);
    assert_eq!(change(&mut cluster, &mut programs, remove(2)), Ok(3));
    programs.run(&mut cluster, 1_000);
    assert_eq!(programs.of(21).told.unwrap().1.fence, 3);
}

#[test]
fn a_server_whose_node_is_lost_moves_when_somebody_says_that_it_has_ended() {
    let (mut cluster, mut programs) = start();
    cluster.nodes[3].agent = None;
    programs.0.retain(|it| it.process != 10);
    programs.begin(4, 21, 0);
    programs.run(&mut cluster, 1_000);
    assert_eq!(programs.of(21).told, None);
    let gone = MapChange {
        gone: vec![0],
        ..MapChange::default()
    };
    assert_eq!(change(&mut cluster, &mut programs, gone), Ok(1));
    programs.run(&mut cluster, 1_000);
    let told = programs.of(21).told;
    assert!(told.is_some(), "it is told as soon as it may be");
}
