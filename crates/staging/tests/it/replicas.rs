//! Two servers with replicas: acknowledgements, repairs, and replicas that are gone.

use std::path::Path;

use barograph_model::NS_PER_S;
use barograph_staging::client::PutOptions;
use barograph_staging::{FaultCode, PutTarget};

use crate::common::{PATIENCE_NS, Served, bytes, client, key, serve};

const DURABLE: PutOptions = PutOptions {
    acks: None,
    target: PutTarget::Durable,
    refetch_us: 0,
    wait_ns: NS_PER_S,
};

/// Spoils the bytes of all blocks in the files of a server.
fn spoil(served: &Served) -> usize {
    let user = rustix::process::geteuid().as_raw();
    let files = served.directory.path().join(format!("tier/u{user}"));
    let paths = std::fs::read_dir(&files)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let change = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 0x40;
        std::fs::write(path, bytes).unwrap();
    };
    paths.map(|path| change(&path)).count()
}

#[test]
fn a_copy_without_its_checksum_is_repaired_from_a_replica() {
    let [a, b] = [serve(), serve()];
    let client = client(2, &[&a, &b]);
    let data = bytes(1, 70 << 20);
    for number in 0..4 {
        client
            .put(&key(number), 1, &data[..70_000], &DURABLE)
            .unwrap();
    }
    let user = rustix::process::geteuid().as_raw();
    // Files that were written by this server count as checked: a restart forgets that.
    let Served {
        directory,
        server,
        store,
    } = a;
    server.stop(PATIENCE_NS).unwrap();
    drop(store);
    let tier = directory.path().join("tier");
    let store = crate::common::open(crate::common::config(1 << 20, &[&tier]));
    let config = barograph_staging::server::ServerConfig {
        unix: Some(directory.path().join("socket")),
        ..Default::default()
    };
    let server = barograph_staging::StagingServer::start(store.clone(), config).unwrap();
    let a = Served {
        directory,
        server,
        store,
    };
    assert_eq!(spoil(&a), 4);
    for number in 0..4 {
        assert!(client.get(&key(number)).unwrap().1 == data[..70_000]);
    }
    let found = a.store.counts().corrupt;
    assert!(found > 0, "no block was read from the first server");
    assert_eq!(client.counts().repaired, found);
    let whole = (0..4).filter(|number| a.store.get(user, &key(*number), false).is_ok());
    assert!(whole.count() as u64 >= found);
    assert_eq!(client.counts().repairs_failed, 0);
}

#[test]
fn puts_are_acknowledged_by_as_many_as_demanded() {
    let [a, b] = [serve(), serve()];
    let client = client(2, &[&a, &b]);
    let report = client
        .put(&key(1), 1, b"both", &PutOptions::default())
        .unwrap();
    assert_eq!(report.acknowledged.len(), 2);
    drop(b);
    let error = client
        .put(&key(1), 2, b"one", &PutOptions::default())
        .unwrap_err();
    assert_eq!(error.code(), Some(FaultCode::TooFew), "{error}");
    let one = PutOptions {
        acks: Some(1),
        ..PutOptions::default()
    };
    let report = client.put(&key(1), 3, b"one", &one).unwrap();
    assert_eq!((report.acknowledged.len(), report.failed.len()), (1, 1));
    assert_eq!(client.get(&key(1)).unwrap().1, b"one");
    // A block that no reachable replica has may be on the other one.
    assert_eq!(
        client.get(&key(2)).unwrap_err().code(),
        Some(FaultCode::Unreachable)
    );
    drop(a);
    let error = client.get(&key(1)).unwrap_err();
    assert!(
        error.to_string().contains("all replicas are gone"),
        "{error}"
    );
}

#[test]
fn a_replica_that_lacks_a_block_gets_it() {
    let [a, b] = [serve(), serve()];
    let only_a = client(1, &[&a]);
    for number in 0..10 {
        only_a
            .put(&key(number), 1, b"x", &PutOptions::default())
            .unwrap();
    }
    // Both know all: a server that has none was never sent it.
    let both = client(2, &[&a, &b]);
    for number in 0..10 {
        assert_eq!(both.get(&key(number)).unwrap().1, b"x");
    }
    let page = both.list(&barograph_staging::ListQuery::default()).unwrap();
    assert_eq!((page.blocks.len(), page.next), (10, None));
}
