//! Changes of a map of servers, step by step.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    ChangeEnd, ChangeRefusal, ControllerMessage, ControllerOutput, ControllerWord, DatasetMap,
    EpochController, EpochMember, EpochNode, EpochOrder, EpochRecord, EpochServer, EpochTimes,
    EpochUse, EpochUseId, NodeServer, OperationStart, ProcessWord, ServerAnswer, ServerMap,
};

const MS: i64 = 1_000_000;
const TIMES: EpochTimes = EpochTimes {
    drain_ns: 300 * MS,
    repeat_ns: 40 * MS,
};
const PATIENCE_NS: i64 = 500 * MS;

/// These servers, at home on one node.
fn servers_at(servers: std::ops::Range<u64>, node: u64) -> BTreeMap<u64, u64> {
    servers.map(|server| (server, node)).collect()
}

fn lead_map() -> ServerMap {
    ServerMap {
        epoch: 7,
        servers: BTreeSet::from([1, 2, 3]),
    }
}

/// A controller whose record is always taken at once.
struct Lead(EpochController);

impl Lead {
    fn new(members: std::ops::Range<u64>) -> Self {
        let map = lead_map();
        let record = EpochRecord {
            term: 4,
            map,
            last_epoch: 9,
            change: None,
            homes: servers_at(1..4, 0),
        };
        let (controller, _) = EpochController::take_over(5, record, members, TIMES);
        let mut lead = Self(controller);
        lead.0.saved(true, 0);
        lead
    }

    /// Does what a save leads to, and returns what is sent and told.
    fn settle(&mut self, outputs: Vec<ControllerOutput>, now_ns: i64) -> Vec<ControllerOutput> {
        let mut rest = Vec::new();
        for output in outputs {
            match output {
                ControllerOutput::Save(_) => {
                    let after = self.0.saved(true, now_ns);
                    rest.extend(self.settle(after, now_ns));
                }
                output => rest.push(output),
            }
        }
        rest
    }
}

#[test]
fn a_change_prepares_fences_and_switches() {
    let mut lead = Lead::new(0..2);
    let change = lead.0.change(BTreeSet::from([1, 2])).unwrap();
    let told = lead.settle(change, 0);
    // The number after the last one, which was aborted.
    assert_eq!(
        (
            told.len(),
            lead.0.record().change.as_ref().unwrap().map.epoch
        ),
        (2, 10)
    );
    assert_eq!(lead.0.change(BTreeSet::from([1])), Err(ChangeRefusal::Busy));
    let drained = ProcessWord::Drained { epoch: 10 };
    let suspended = ProcessWord::Suspended {
        epoch: 10,
        running: 3,
    };
    assert_eq!(lead.0.hear_member(0, &suspended), []);
    assert_eq!(lead.0.hear_member(0, &drained), []);
    let outputs = lead.0.hear_member(1, &drained);
    let told = lead.settle(outputs, 3);
    // The servers of both maps are fenced.
    assert_eq!(told.len(), 3);
    let fenced = ProcessWord::Fenced { epoch: 10 };
    assert_eq!(lead.0.hear_server(1, &fenced), []);
    assert_eq!(lead.0.hear_server(2, &fenced), []);
    assert_eq!(lead.0.hear_server(3, &ProcessWord::Fenced { epoch: 9 }), []);
    assert_eq!(lead.0.record().map.epoch, 7);
    // Nobody knows whether the third one serves, until it is gone for certain.
    let outputs = lead.0.server_gone(3, None);
    let told = lead.settle(outputs, 4);
    let map = ServerMap {
        epoch: 10,
        servers: BTreeSet::from([1, 2]),
    };
    assert_eq!(
        told.last(),
        Some(&ControllerOutput::Ended(ChangeEnd::Switched(map)))
    );
    assert!(lead.0.is_idle());
    assert_eq!(
        lead.0.change(BTreeSet::from([1, 2])),
        Err(ChangeRefusal::Unchanged)
    );
    assert_eq!(
        lead.0.change(BTreeSet::new()),
        Err(ChangeRefusal::NoServers)
    );
}

#[test]
fn a_server_moves_when_it_has_ended_at_home_and_the_store_knows_it() {
    let mut lead = Lead::new(0..1);
    let told_of = |server| {
        let map = lead_map();
        let what = ControllerWord::Switch { map };
        let message = ControllerMessage { term: 5, what };
        ControllerOutput::ToServer(server, message)
    };
    assert_eq!(*lead.0.servers_of(0), BTreeSet::from([1, 2, 3]));
    // It claims to be on another node, which also says that it has ended.
    assert!(!lead.0.may_be_on(3, 9) && lead.0.may_be_on(3, 0));
    assert_eq!(lead.0.server_there(3, 9), []);
    assert_eq!(lead.0.server_gone(3, Some(9)), []);
    let gone = lead.0.server_gone(3, Some(0));
    assert!(lead.0.is_gone(3) && *lead.0.servers_of(0) == BTreeSet::from([1, 2]));
    let [ControllerOutput::Save(record)] = &gone[..] else {
        panic!("{gone:?}")
    };
    assert_eq!(record.homes, servers_at(1..3, 0));
    // While that is being saved it comes back there, and a fourth one begins.
    assert_eq!(lead.0.server_there(3, 0), []);
    assert_eq!(lead.0.server_there(4, 9), []);
    assert!(lead.0.servers_of(9).is_empty() && !lead.0.servers_of(0).contains(&3));
    let again = lead.0.saved(true, 1);
    assert!(lead.0.servers_of(9).is_empty() && !lead.0.servers_of(0).contains(&3));
    let [ControllerOutput::Save(record)] = &again[..] else {
        panic!("{again:?}")
    };
    assert_eq!(record.homes.get(&4), Some(&9));
    assert_eq!(lead.0.saved(true, 2), [told_of(3), told_of(4)]);
    assert_eq!(*lead.0.servers_of(9), BTreeSet::from([4]));
    // A change begins while a home is saved; it goes on when both are.
    assert_eq!(lead.0.server_gone(4, Some(9)).len(), 1);
    assert_eq!(lead.0.change(BTreeSet::from([1, 2])), Ok(vec![]));
    let again = lead.0.saved(true, 3);
    assert!(matches!(&again[..], [ControllerOutput::Save(record)] if record.change.is_some()));
    assert_eq!(lead.0.saved(true, 3).len(), 1, "the member is to drain");
}

#[test]
fn a_member_that_is_gone_is_not_waited_for() {
    let mut lead = Lead::new(0..2);
    let change = lead.0.change(BTreeSet::from([1, 2])).unwrap();
    lead.settle(change, 0);
    lead.0.hear_member(0, &ProcessWord::Drained { epoch: 10 });
    let outputs = lead.0.member_gone(1);
    let told = lead.settle(outputs, 1);
    assert_eq!(told.len(), 3, "the servers are fenced: {told:?}");
}

#[test]
fn an_operation_of_an_epoch_that_does_not_exist_shuts_nobody_out() {
    let server = EpochServer::new(7);
    assert_eq!(server.serve(u64::MAX), ServerAnswer::Served);
    assert_eq!(server.serve(7), ServerAnswer::Served);
    assert_eq!(server.serve(6), ServerAnswer::Fenced { fence: 7 });
}

#[test]
fn at_the_deadline_members_at_work_abort_and_silent_ones_do_not() {
    for is_at_work in [false, true] {
        let mut lead = Lead::new(0..2);
        let change = lead.0.change(BTreeSet::from([1, 2])).unwrap();
        lead.settle(change, 0);
        lead.0.hear_member(0, &ProcessWord::Drained { epoch: 10 });
        if is_at_work {
            let word = ProcessWord::Suspended {
                epoch: 10,
                running: 1,
            };
            lead.0.hear_member(1, &word);
        }
        // Who has not answered is asked again.
        assert_eq!(lead.0.next_ns(), Some(TIMES.repeat_ns));
        assert_eq!(lead.0.tick(TIMES.repeat_ns).len(), 1);
        let outputs = lead.0.tick(TIMES.drain_ns);
        let told = lead.settle(outputs, TIMES.drain_ns);
        let is_aborted = matches!(
            told.last(),
            Some(ControllerOutput::Ended(ChangeEnd::Aborted {
                epoch: 10,
                ..
            }))
        );
        assert_eq!(is_aborted, is_at_work, "{told:?}");
        assert_eq!(lead.0.record().change.is_some(), !is_at_work);
    }
}

#[test]
fn a_member_that_hears_nothing_goes_on_alone() {
    let map = ServerMap {
        epoch: 7,
        servers: BTreeSet::from([1]),
    };
    let mut member = EpochMember::new(map.clone(), PATIENCE_NS);
    assert_eq!(member.begin(1, 0), OperationStart::Now(map.clone()));
    let prepare = ControllerWord::Prepare { epoch: 8 };
    let prepare = ControllerMessage {
        term: 1,
        what: prepare,
    };
    let says = member.hear(&prepare, 10).says;
    assert_eq!(
        says,
        Some(ProcessWord::Suspended {
            epoch: 8,
            running: 1
        })
    );
    let until_ns = 10 + PATIENCE_NS;
    let later = OperationStart::Later {
        at_ns: Some(until_ns),
    };
    assert_eq!(member.begin(2, 11), later);
    // Being told again does not prolong it.
    member.hear(&prepare, 500);
    assert_eq!(member.begin(2, until_ns - 1), later);
    assert_eq!(member.end(1).says, Some(ProcessWord::Drained { epoch: 8 }));
    assert_eq!(member.begin(2, until_ns), OperationStart::Now(map));
    // A server knows better.
    let output = member.refused(2, 8);
    assert_eq!(output.says, Some(ProcessWord::Uses { epoch: 7 }));
    let waits = OperationStart::Later { at_ns: None };
    assert_eq!(member.begin(3, until_ns + 1), waits);
    let map = ServerMap {
        epoch: 8,
        servers: BTreeSet::from([1, 2]),
    };
    let what = ControllerWord::Switch { map: map.clone() };
    let switch = |term| ControllerMessage {
        term,
        what: what.clone(),
    };
    // Not by one who was followed by another.
    assert!(!member.hear(&switch(0), until_ns + 2).is_open);
    assert!(member.hear(&switch(1), until_ns + 2).is_open);
    assert_eq!(member.begin(3, until_ns + 3), OperationStart::Now(map));
}

#[test]
fn blocks_stay_where_they_were_written() {
    let map = |epoch, servers: &[u64]| ServerMap {
        epoch,
        servers: servers.iter().copied().collect(),
    };
    let mut dataset = DatasetMap::default();
    assert_eq!(dataset.map_of(0), None);
    dataset.extend(0, &map(1, &[1, 2]));
    dataset.extend(100, &map(2, &[1, 2, 3]));
    // Nothing was written in epoch 3, and an old epoch comes late.
    dataset.extend(200, &map(3, &[1]));
    dataset.extend(200, &map(4, &[2, 3]));
    dataset.extend(300, &map(2, &[9]));
    for (block, expect) in [(0, 1), (99, 1), (100, 2), (199, 2), (200, 4), (u64::MAX, 4)] {
        assert_eq!(dataset.map_of(block).unwrap().epoch, expect, "{block}");
    }
    assert!(dataset.needs(1) && dataset.needs(3) && !dataset.needs(9));
}

#[test]
fn who_does_not_say_that_it_uses_the_map_is_told_again() {
    let mut lead = Lead::new(0..3);
    let change = lead.0.change(BTreeSet::from([1, 2])).unwrap();
    lead.settle(change, 0);
    for member in 0..3 {
        let outputs = lead
            .0
            .hear_member(member, &ProcessWord::Drained { epoch: 10 });
        lead.settle(outputs, 0);
    }
    for server in 1..=3 {
        let outputs = lead
            .0
            .hear_server(server, &ProcessWord::Fenced { epoch: 10 });
        lead.settle(outputs, 100 * MS);
    }
    assert!(lead.0.is_idle());
    lead.0.hear_member(0, &ProcessWord::Uses { epoch: 10 });
    lead.0.member_gone(1);
    assert_eq!(lead.0.tick(139 * MS), []);
    let mut told = Vec::new();
    for at_ms in (140..1_000).step_by(40) {
        told.extend(lead.0.tick(at_ms * MS));
    }
    // The one that is silent, and not for ever.
    assert_eq!((told.len(), lead.0.next_ns()), (4, None));
    let is_meant = |it: &ControllerOutput| matches!(it, ControllerOutput::ToMember(2, _));
    assert!(told.iter().all(is_meant), "{told:?}");
}

fn use_of(process: u128) -> EpochUseId {
    EpochUseId { process, slot: 0 }
}

fn order(prepare: u64, epoch: u64, fence: u64) -> EpochOrder {
    let servers = BTreeSet::from([1, 2, 3]);
    EpochOrder {
        prepare,
        fence,
        map: ServerMap { epoch, servers },
    }
}

#[test]
fn a_node_controller_answers_for_its_members() {
    let mut node = EpochNode::default();
    let at_work = |running| EpochUse::Member {
        running,
        refused: 0,
    };
    for process in [1, 2] {
        let output = node.report(use_of(process), at_work(0), 0);
        assert!(output.has_changed && output.tell.is_none());
    }
    let tell = node.hear(5, &order(0, 7, 7), None).unwrap();
    assert_eq!(tell.uses, [use_of(1), use_of(2)]);
    assert_eq!(node.hear(5, &order(0, 7, 7), None), None, "once");
    assert_eq!(
        node.hear(4, &order(8, 7, 7), None),
        None,
        "it leads no more"
    );
    node.report(use_of(2), at_work(3), tell.number);
    let tell = node.hear(5, &order(8, 7, 7), None).unwrap();
    assert_eq!(tell.order, order(8, 7, 7));
    // Until all have been told of it before they were counted, nothing is said of the epoch.
    node.report(use_of(1), at_work(0), tell.number);
    let said = |node: &EpochNode| {
        let word = node.word();
        (word.prepared, word.running, word.is_drained)
    };
    assert_eq!(said(&node), (0, 3, false));
    node.report(use_of(2), at_work(3), tell.number);
    assert_eq!(said(&node), (8, 3, false));
    assert!(!node.report(use_of(2), at_work(3), tell.number).has_changed);
    node.report(use_of(2), at_work(0), tell.number);
    assert_eq!(said(&node), (8, 0, true));
    // Who comes now has not drained, and is told at once.
    let output = node.report(use_of(3), at_work(0), 0);
    assert_eq!(output.tell.map(|it| it.uses), Some(vec![use_of(3)]));
    assert_eq!(said(&node), (0, 0, false));
    assert!(node.leave(3, true) && !node.leave(3, true));
    assert_eq!(said(&node), (8, 0, true));
    node.hear(5, &order(0, 8, 8), None).unwrap();
    assert_eq!(node.hear(5, &order(8, 7, 7), None), None, "it comes late");
    assert_eq!((node.word().epoch, node.word().members), (8, 2));
    // What was ordered while nobody used the map is not told any more.
    assert!(node.leave(1, true) && node.leave(2, true) && node.is_unused());
    assert_eq!(node.report(use_of(4), at_work(0), 0).tell, None);
}

#[test]
fn a_server_is_told_a_fence_when_the_leader_knows_of_it() {
    let mut node = EpochNode::default();
    let homes = BTreeSet::from([1]);
    let serves = |number, oldest_epoch| EpochUse::Server {
        number,
        oldest_epoch,
    };
    let said = |node: &EpochNode| {
        let servers = node.word().servers;
        servers
            .iter()
            .map(|it: &NodeServer| (it.process, it.fence))
            .collect::<Vec<_>>()
    };
    node.report(use_of(1), serves(1, None), 0);
    assert_eq!(node.hear(5, &order(0, 7, 7), None), None);
    let word = node.word();
    let elsewhere = BTreeSet::from([0, 2]);
    let told = node.hear(5, &order(0, 7, 7), Some((&word, &elsewhere)));
    assert_eq!(told, None, "its home is not in the store");
    let tell = node
        .hear(5, &order(0, 7, 7), Some((&word, &homes)))
        .unwrap();
    assert_eq!(said(&node), [(1, 0)]);
    node.report(use_of(1), serves(1, Some(7)), tell.number);
    assert_eq!(said(&node), [(1, 7)]);
    let tell = node.hear(5, &order(8, 7, 8), None).unwrap();
    node.report(use_of(1), serves(1, Some(7)), tell.number);
    assert_eq!(said(&node), [(1, 0)], "it serves one of epoch 7");
    node.report(use_of(1), serves(1, Some(8)), tell.number);
    assert_eq!(said(&node), [(1, 8)]);
    // The next process of the server is there before the end of this one was seen.
    node.report(use_of(2), serves(1, None), 0);
    assert_eq!(said(&node), [(1, 0), (2, 0)]);
    assert!(node.leave(1, true));
    assert_eq!((said(&node), node.word().gone), (vec![(2, 0)], vec![]));
    // The next leader knows of none, and what it has heard of is told what it orders.
    let word = node.word();
    assert_eq!(node.hear(6, &order(0, 8, 8), None), None);
    let tell = node
        .hear(6, &order(0, 9, 9), Some((&word, &homes)))
        .unwrap();
    assert_eq!(tell.order, order(0, 9, 9));
    node.report(use_of(2), serves(1, None), tell.number);
    assert_eq!(said(&node), [(2, 9)]);
    assert!(node.leave(2, true) && !node.has_uses());
    assert_eq!(node.word().gone, [(1, 2)]);
    node.report(use_of(3), serves(1, None), 0);
    assert_eq!(node.word().gone, []);
}
