//! One server: round trips over both sockets and shared memory, and users of TCP.

use std::os::unix::fs::PermissionsExt as _;

use barograph_staging::client::{
    ClientConfig, GetOptions, MappedCheck, PutOptions, ServerAddress, StagingMap,
};
use barograph_staging::server::UserFilter;
use barograph_staging::{BlockKey, FaultCode, ListQuery, PutTarget, StagingClient};

use crate::common::{MIB, PATIENCE_NS, Served, bytes, client, clock, key, map, serve, serve_with};

const TOKEN: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A client that uses the socket alone.
fn socket_client(served: &Served) -> StagingClient {
    let config = ClientConfig {
        mapped: None,
        ..ClientConfig::default()
    };
    StagingClient::new(config, map(0, &[served]), clock())
}

#[test]
fn blocks_of_all_lengths_come_back_by_every_way() {
    let served = serve();
    let ways = [client(1, &[&served]), socket_client(&served)];
    let long = BlockKey::named("data", &bytes(3, 4_096)).unwrap();
    let cases = [
        (key(0), 0),
        (key(1), 1),
        (long, 100),
        (key(2), 4_097),
        (key(3), 1 << 20),
        (key(4), (1 << 20) + 1),
        // It goes to the tier of files, through a buffer.
        (key(5), 70 << 20),
    ];
    for (key, length) in cases {
        let data = bytes(length as u64, length);
        let report = ways[1].put(&key, 1, &data, &PutOptions::default()).unwrap();
        assert_eq!(report.acknowledged.len(), 1);
        for client in &ways {
            let (info, read) = client.get(&key).unwrap();
            assert!(read == data && info.bytes == length as u64, "{length}");
            let mut part = Vec::new();
            let from = length as u64 / 3;
            client.get_range(&key, from, 77, &mut part).unwrap();
            let from = from as usize;
            assert!(part == data[from..length.min(from + 77)], "{length}");
        }
        assert_eq!(ways[0].stat(&key).unwrap().bytes, length as u64);
    }
    assert!(ways[0].counts().gets_mapped > 0 && ways[1].counts().gets_mapped == 0);
    assert_eq!(ways[0].list(&ListQuery::default()).unwrap().blocks.len(), 7);
    assert!(ways[0].delete(&key(3), 1).unwrap());
    assert!(!ways[0].delete(&key(3), 1).unwrap());
    assert_eq!(
        ways[0].get(&key(3)).unwrap_err().code(),
        Some(FaultCode::NotFound)
    );
}

/// A block of 1 GiB, or of 256 MiB where memory is short.
#[test]
fn the_largest_block_streams_through_bounded_memory() {
    let free = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = free
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))
        .unwrap();
    let free_kib: u64 = free.split_whitespace().nth(1).unwrap().parse().unwrap();
    let length = if free_kib > 8 << 20 {
        1 << 30
    } else {
        256 << 20
    };
    let served = serve();
    let client = socket_client(&served);
    let mut data = vec![0; length];
    data[length / 2] = 1;
    let options = PutOptions {
        target: PutTarget::Durable,
        ..PutOptions::default()
    };
    client.put(&key(1), 1, &data, &options).unwrap();
    let (_, read) = client.get(&key(1)).unwrap();
    assert!(read == data);
    assert_eq!(served.store.tiers()[0].bytes, 0);
}

#[test]
fn a_mapped_block_tells_that_it_has_gone() {
    let served = serve();
    let client = client(1, &[&served]);
    let data = bytes(1, 100_001);
    client
        .put(&key(1), 1, &data, &PutOptions::default())
        .unwrap();
    let block = client.map_block(&key(1)).unwrap().unwrap();
    let mut pieces: Vec<u8> = Vec::new();
    block.pieces(|piece| pieces.extend(piece)).unwrap();
    assert!(pieces == data);
    for (from, length) in [(0, 100_001), (1, 7), (3, 0), (9, 64), (99_999, 2), (8, 8)] {
        let mut out = vec![0; length];
        block.copy_into(from, &mut out).unwrap();
        assert!(out == data[from..from + length], "{from} {length}");
    }
    assert!(block.copy_into(100_000, &mut [0; 2]).is_none());
    client
        .put(&key(1), 2, &data, &PutOptions::default())
        .unwrap();
    assert!(!block.is_current() && block.copy_into(0, &mut [0; 8]).is_none());
    // A new read gets the new version.
    assert_eq!(client.get(&key(1)).unwrap().0.version, 2);
}

/// Readers of shared memory while blocks are replaced all the time: each read is one version.
#[test]
fn reads_of_shared_memory_are_never_mixed() {
    let served = serve();
    let client = client(1, &[&served]);
    let version = |version: u64| vec![version as u8; 300_000];
    client
        .put(&key(1), 1, &version(1), &PutOptions::default())
        .unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut out = Vec::new();
            let mut last = 0;
            while last < 200 {
                let info = client
                    .get_into(&key(1), &mut out, &GetOptions::default())
                    .unwrap();
                assert!(info.version >= last, "{} after {last}", info.version);
                assert!(out == version(info.version), "version {}", info.version);
                last = info.version;
            }
        });
        for number in 2..=200 {
            let options = PutOptions {
                wait_ns: PATIENCE_NS,
                ..PutOptions::default()
            };
            client
                .put(&key(1), number, &version(number), &options)
                .unwrap();
        }
        reader.join().unwrap();
    });
    assert!(client.counts().gets_mapped > 0);
}

#[test]
fn users_of_tcp_need_their_token() {
    let tokens = tempfile::tempdir().unwrap();
    for user in ["41", "42"] {
        let path = tokens.path().join(user);
        std::fs::write(&path, TOKEN).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let served = serve_with(|config| {
        config.tcp = Some("127.0.0.1:0".parse().unwrap());
        config.tokens = Some(tokens.path().to_owned());
        config.users = UserFilter::These(vec![41, 42]);
    });
    let address = ServerAddress::Tcp(served.server.tcp_address().unwrap());
    let map = StagingMap {
        epoch: 0,
        servers: [(0, address)].into(),
    };
    let client = |user, token: &[u8]| {
        let config = ClientConfig {
            user,
            token: token.to_vec(),
            ..ClientConfig::default()
        };
        StagingClient::new(config, map.clone(), clock())
    };
    let [first, second] = [41, 42].map(|user| client(user, TOKEN));
    let data = bytes(1, 3 << 20);
    first
        .put(&key(1), 1, &data, &PutOptions::default())
        .unwrap();
    assert!(first.get(&key(1)).unwrap().1 == data);
    // The blocks of one are not seen by the other.
    assert_eq!(
        second.get(&key(1)).unwrap_err().code(),
        Some(FaultCode::NotFound)
    );
    for (user, token) in [(41, &b"0123456789abcdef"[..]), (43, TOKEN), (41, b"")] {
        let error = client(user, token).get(&key(1)).unwrap_err();
        assert_eq!(error.code(), Some(FaultCode::Denied), "{user}");
    }
    // This user is not served on the unix socket.
    let own = crate::common::client(1, &[&served]);
    assert_eq!(
        own.get(&key(1)).unwrap_err().code(),
        Some(FaultCode::Unreachable)
    );
}

#[test]
fn what_cannot_be_a_server_is_refused() {
    use barograph_staging::server::ServerConfig;
    use barograph_staging::{StagingServer, StoreConfig};
    for config in [
        ServerConfig::default(),
        ServerConfig {
            tcp: Some("127.0.0.1:0".parse().unwrap()),
            ..ServerConfig::default()
        },
        ServerConfig {
            tcp: Some("0.0.0.0:0".parse().unwrap()),
            tokens: Some("tokens".into()),
            ..ServerConfig::default()
        },
    ] {
        let store = crate::common::open(StoreConfig::default());
        assert!(StagingServer::start(store, config).is_err());
    }
}

#[test]
fn a_server_that_stops_in_order_keeps_everything() {
    let served = serve();
    let client = client(1, &[&served]);
    let data = bytes(1, 1 << 20);
    for number in 0..8 {
        client
            .put(&key(number), 1, &data, &PutOptions::default())
            .unwrap();
    }
    let Served {
        directory,
        server,
        store,
    } = served;
    server.stop(PATIENCE_NS).unwrap();
    drop(store);
    let store = crate::common::open(crate::common::config(
        1 << 20,
        &[&directory.path().join("tier")],
    ));
    let user = rustix::process::geteuid().as_raw();
    for number in 0..8 {
        assert!(
            store.stat(user, &key(number)).unwrap().is_confirmed,
            "{number}"
        );
    }
    assert_eq!(
        client.get(&key(1)).unwrap_err().code(),
        Some(FaultCode::Unreachable)
    );
}

#[test]
fn checksums_of_shared_memory_can_be_asked_for() {
    let served = serve();
    let config = ClientConfig {
        mapped: Some(MappedCheck::Checksum),
        ..ClientConfig::default()
    };
    let client = StagingClient::new(config, map(0, &[&served]), clock());
    let data = bytes(1, 1 << 20);
    client
        .put(&key(1), 1, &data, &PutOptions::default())
        .unwrap();
    assert!(client.get(&key(1)).unwrap().1 == data);
    assert_eq!(client.counts().gets_mapped, 1);
}

/// A server tells what it holds to its own user; the count of a put is in it at once.
#[test]
fn a_server_tells_its_status() {
    let served = serve();
    let client = client(1, &[&served]);
    client
        .put(&key(1), 1, &[7; 1_000], &PutOptions::default())
        .unwrap();
    let status = client.server_status(0).unwrap();
    assert_eq!((status.store.puts, status.fence), (1, 0));
    let paths: Vec<_> = status.tiers.iter().map(|tier| tier.path.clone()).collect();
    let tier = served.directory.path().join("tier");
    assert_eq!(paths, [None, Some(tier.to_str().unwrap().to_owned())]);
    let memory = status.tiers[0].held;
    assert_eq!((memory.blocks, memory.bytes_max), (1, 64 * MIB));
    assert_eq!(status.store.named()[0], ("puts", 1));
    assert_eq!(served.server.status().server.served, 2);
}

/// A map that is known at the start holds for the first request.
#[test]
fn a_server_that_is_told_before_it_starts_serves_no_earlier_epoch() {
    let served = serve_with(|config| {
        let told = barograph_control::ToldEpochs {
            prepare: 0,
            epoch: 4,
            fence: 4,
        };
        config.told = Some((told, barograph_staging::ServerMembership::Joined));
    });
    let config = ClientConfig {
        map_wait_ns: 0,
        ..ClientConfig::default()
    };
    let client = StagingClient::new(config, map(3, &[&served]), clock());
    let error = client.stat(&key(1)).unwrap_err();
    assert_eq!(
        (error.code(), error.number()),
        (Some(FaultCode::Fenced), 4),
        "{error}"
    );
}
