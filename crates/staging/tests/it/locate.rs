//! Where blocks are: many at once, on several servers, of which some are gone.

use barograph_control::ToldEpochs;
use barograph_staging::client::{ClientConfig, PutOptions};
use barograph_staging::{BlockKey, FaultCode, ServerMembership, StagingClient};

use crate::common::{PATIENCE_NS, bytes, client, clock, head, key, map, put_as, serve};

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn many_blocks_are_found_in_one_question_also_where_a_server_is_gone() {
    let [a, b, c] = [serve(), serve(), serve()];
    let client = client(2, &[&a, &b, &c]);
    let keys: Vec<BlockKey> = (0..2_100).map(key).collect();
    for key in keys.iter().step_by(7) {
        client.put(key, 1, b"here", &PutOptions::default()).unwrap();
    }
    let found = client.locate(&keys).unwrap();
    assert_eq!((found.epoch, found.unreachable.len()), (0, 0));
    for (number, replicas) in found.blocks.iter().enumerate() {
        let expect = if number % 7 == 0 { 2 } else { 0 };
        assert_eq!(replicas.len(), expect, "{number}");
        assert!(replicas.iter().all(|it| it.is_on_node && it.info.tier == 0));
        assert!(
            replicas
                .iter()
                .all(|it| it.info.bytes == 4 && it.path.is_none())
        );
    }
    drop(c);
    let found = client.locate(&keys).unwrap();
    assert_eq!(found.unreachable, [2]);
    let whole = found.blocks.iter().filter(|replicas| !replicas.is_empty());
    assert_eq!(whole.count(), 300, "of two replicas one is left");
    drop((a, b));
    let error = client.locate(&keys[..1]).unwrap_err();
    assert_eq!(error.code(), Some(FaultCode::Unreachable));
    assert!(client.locate(&[]).unwrap().blocks.is_empty());
}

#[test]
fn tiers_and_costs_are_told_and_what_this_client_has_seen_counts_most() {
    let served = serve();
    let first = client(1, &[&served]);
    let options = PutOptions::default();
    // Memory has no room for the second one.
    first.put(&key(1), 1, &bytes(1, 1 << 20), &options).unwrap();
    first
        .put(&key(2), 1, &bytes(2, 70 << 20), &options)
        .unwrap();
    let found = first.locate(&[key(1), key(2)]).unwrap();
    let [memory, file] = [&found.blocks[0][0], &found.blocks[1][0]];
    assert_eq!((memory.info.tier, file.info.tier), (0, 1));
    let tier = served.directory.path().join("tier");
    assert_eq!(file.path.as_deref(), tier.to_str());
    assert_eq!(
        (memory.read_s, file.read_s),
        (None, None),
        "nobody has read"
    );
    first.get(&key(1)).unwrap();
    first.get(&key(2)).unwrap();
    let found = first.locate(&[key(1), key(2)]).unwrap();
    let [memory, file] = [0, 1].map(|at| found.blocks[at][0].read_s.unwrap());
    assert!(memory > 0.0 && file > memory, "{memory} {file}");
    // Another one is told what the server has seen; nobody has read memory over a socket.
    let other = client(1, &[&served]);
    let found = other.locate(&[key(1), key(2)]).unwrap();
    let [memory, file] = [0, 1].map(|at| found.blocks[at][0].read_s);
    assert!(memory.is_none() && file.is_some_and(|seconds| seconds > 0.0));
}

#[test]
fn what_is_certain_and_newest_comes_first_and_blocks_of_former_maps_are_found() {
    let [a, b] = [serve(), serve()];
    let both = client(2, &[&a, &b]);
    both.put(&key(1), 1, b"one", &PutOptions::default())
        .unwrap();
    for (served, version) in [(&a, 2), (&b, 3)] {
        put_as(
            &served.store,
            user(),
            head(&key(1), version, b"new"),
            b"new",
        )
        .unwrap();
        let found = both.locate(&[key(1)]).unwrap();
        let first = &found.blocks[0][0];
        let versions = found.blocks[0].iter().map(|it| it.info.version);
        assert_eq!(first.info.version, version);
        assert!(versions.is_sorted_by(|one, other| one >= other));
    }
    // Each block is on one of them, and is asked for with one replica: the map was another then.
    let only_a = client(1, &[&a]);
    only_a
        .put(&key(9), 1, b"x", &PutOptions::default())
        .unwrap();
    let swapped = client(1, &[&b, &a]);
    let found = swapped.locate(&[key(9)]).unwrap();
    assert_eq!(found.blocks[0].len(), 1);
    assert_eq!(found.blocks[0][0].server, 1);
}

#[test]
fn an_epoch_that_is_over_is_refused_and_the_next_map_is_asked() {
    let served = serve();
    let tell = |epoch| {
        let told = ToldEpochs {
            prepare: 0,
            epoch,
            fence: epoch,
        };
        served.server.tell(told, ServerMembership::Stayed);
    };
    tell(1);
    let config = ClientConfig {
        map_wait_ns: PATIENCE_NS,
        ..ClientConfig::default()
    };
    let client = StagingClient::new(config, map(1, &[&served]), clock());
    client
        .put(&key(1), 1, b"x", &PutOptions::default())
        .unwrap();
    tell(2);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| client.locate(&[key(1)]));
        client.set_map(map(2, &[&served]));
        let found = asked.join().unwrap().unwrap();
        assert_eq!(found.epoch, 2);
    });
}
