//! Changes of the map of servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use barograph_control::ToldEpochs;
use barograph_model::NS_PER_S;
use barograph_staging::client::{ClientConfig, PutOptions};
use barograph_staging::{FaultCode, ServerMembership, StagingClient};

use crate::common::{Served, bytes, client, clock, key, map, serve};

fn tell(served: &Served, epoch: u64, membership: ServerMembership) {
    let told = ToldEpochs {
        prepare: 0,
        epoch,
        fence: epoch,
    };
    served.server.tell(told, membership);
}

#[test]
fn epochs_before_the_fence_are_refused() {
    let served = serve();
    let config = ClientConfig {
        timeout_ns: NS_PER_S,
        ..ClientConfig::default()
    };
    let old = StagingClient::new(config, map(0, &[&served]), clock());
    old.put(&key(1), 1, b"old", &PutOptions::default()).unwrap();
    let mapped = old.map_block(&key(1)).unwrap().unwrap();
    tell(&served, 2, ServerMembership::Stayed);
    let errors = [
        old.put(&key(1), 2, b"late", &PutOptions::default())
            .map(drop),
        old.get(&key(1)).map(drop),
        old.stat(&key(1)).map(drop),
        old.delete(&key(1), 9).map(drop),
        old.list(&Default::default()).map(drop),
    ];
    for error in errors {
        let error = error.unwrap_err();
        assert_eq!(
            (error.code(), error.number()),
            (Some(FaultCode::Fenced), 2),
            "{error}"
        );
    }
    // Shared memory is fenced as well.
    assert!(!mapped.is_current());
    assert!(served.server.counts().fenced >= 5 && old.counts().fenced >= 5);
    old.set_map(map(2, &[&served]));
    assert_eq!(old.get(&key(1)).unwrap().1, b"old");
    assert_eq!(served.server.fence(), 2);
}

#[test]
fn a_server_that_was_told_nothing_serves_no_later_epoch() {
    let served = serve();
    let client = client(1, &[]);
    client.set_map(map(3, &[&served]));
    assert_eq!(
        client.get(&key(1)).unwrap_err().code(),
        Some(FaultCode::Unreachable)
    );
}

/// A server was out of the map while the other took a newer version: what it has is not believed.
#[test]
fn blocks_from_before_an_absence_are_not_taken_for_the_newest() {
    let [a, b] = [serve(), serve()];
    let client = client(2, &[&a, &b]);
    for number in 0..8 {
        client
            .put(&key(number), 1, b"old", &PutOptions::default())
            .unwrap();
    }
    tell(&a, 1, ServerMembership::Stayed);
    let one = PutOptions {
        acks: Some(1),
        ..PutOptions::default()
    };
    client.set_map(map(1, &[&a]));
    for number in 0..4 {
        client.put(&key(number), 2, b"new", &one).unwrap();
    }
    client.delete(&key(7), 9).unwrap();
    tell(&b, 2, ServerMembership::Joined);
    tell(&a, 2, ServerMembership::Stayed);
    client.set_map(map(2, &[&a, &b]));
    for round in 0..2 {
        for number in 0..7 {
            let (info, read) = client.get(&key(number)).unwrap();
            let expect: (u64, &[u8]) = if number < 4 { (2, b"new") } else { (1, b"old") };
            assert_eq!((info.version, &*read), expect, "{round}: {number}");
        }
    }
    assert!(client.counts().repaired > 0);
    assert_eq!(
        client.get(&key(7)).unwrap_err().code(),
        Some(FaultCode::NotFound)
    );
}

#[test]
fn readers_go_on_while_epochs_change() {
    let [a, b] = [serve(), serve()];
    let client = client(2, &[&a, &b]);
    let data = bytes(1, 50_000);
    for number in 0..10 {
        client
            .put(&key(number), 1, &data, &PutOptions::default())
            .unwrap();
    }
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let number = reads.fetch_add(1, Ordering::Relaxed) % 10;
                assert!(client.get(&key(number)).unwrap().1 == data);
            }
        });
        for epoch in 1..30 {
            for served in [&a, &b] {
                tell(served, epoch, ServerMembership::Stayed);
            }
            let before = reads.load(Ordering::Relaxed);
            client.set_map(map(epoch, &[&a, &b]));
            while reads.load(Ordering::Relaxed) < before + 3 {
                std::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 80);
}
