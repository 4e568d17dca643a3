//! Clients that are slow, silent or hostile.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use barograph_model::NS_PER_S;
use barograph_staging::client::{ClientConfig, PutOptions, ServerAddress, StagingMap};
use barograph_staging::wire::{Answer, FrameHead, HEAD_BYTES, Hello, Request};
use barograph_staging::{FaultCode, StagingClient};

use crate::common::{MIB, Served, bytes, client, clock, head, key, serve_with};

fn hasty() -> Served {
    serve_with(|config| {
        config.frame_ns = 2 * NS_PER_S;
        config.rate_min = 1 << 40;
        config.user_connections_max = 4;
    })
}

fn connect(served: &Served) -> UnixStream {
    let stream = UnixStream::connect(served.directory.path().join("socket")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

fn greeted(served: &Served) -> UnixStream {
    let mut stream = connect(served);
    stream
        .write_all(&Request::Hello(Hello::new(0, b"", false)).encode())
        .unwrap();
    assert!(matches!(answer(&mut stream), Answer::Welcome(_)));
    stream
}

fn answer(stream: &mut impl std::io::Read) -> Answer {
    let mut start = [0; HEAD_BYTES];
    stream.read_exact(&mut start).unwrap();
    let frame = FrameHead::decode(start).unwrap();
    let mut body = vec![0; frame.bytes];
    stream.read_exact(&mut body).unwrap();
    Answer::decode(frame.kind, &body).unwrap()
}

fn is_closed(stream: &mut UnixStream) -> bool {
    let mut rest = Vec::new();
    // A reset is an end as well.
    stream.read_to_end(&mut rest).map_or(true, |_| true)
}

#[test]
fn half_a_frame_and_silence_ends_the_connection_and_frees_its_room() {
    let served = hasty();
    let data = bytes(1, 1 << 20);
    let request = Request::Put(head(&key(1), 1, &data)).encode();
    let cases: [&[u8]; 4] = [
        &[1],
        &request[..3],
        &request[..request.len() - 1],
        // All of the request, and none of its data: the room is reserved by then.
        &request,
    ];
    for (at, case) in cases.into_iter().enumerate() {
        let mut stream = greeted(&served);
        stream.write_all(case).unwrap();
        assert!(is_closed(&mut stream), "case {at}");
    }
    // A byte now and then gains no time.
    let mut stream = greeted(&served);
    let slow = request.iter().take(100).try_for_each(|byte| {
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(&[*byte])
    });
    assert!(slow.is_err() || is_closed(&mut stream));
    let mut silent = connect(&served);
    assert!(is_closed(&mut silent));
    while served.store.tiers()[0].bytes > 0 || served.store.dirty_bytes() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(
        served.server.counts().broken >= 5,
        "{:?}",
        served.server.counts()
    );
    // Others are served all the while.
    client(1, &[&served])
        .put(&key(1), 1, &data, &PutOptions::default())
        .unwrap();
}

#[test]
fn a_user_has_so_many_connections_and_no_more() {
    let served = serve_with(|config| config.user_connections_max = 4);
    let held: Vec<_> = (0..4).map(|_| greeted(&served)).collect();
    assert!(is_closed(&mut connect(&served)));
    assert_eq!(served.server.counts().refused, 1);
    drop(held);
    let client = client(1, &[&served]);
    while client
        .put(&key(1), 1, b"x", &PutOptions::default())
        .is_err()
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nonsense_is_answered_and_ends_the_connection() {
    let served = hasty();
    let frames: [&[u8]; 5] = [
        &[255; 64],
        &[0; 64],
        &[2, 0, 0, 0, 99, 1],
        &[3, 0, 0, 0, 16, 1, 2],
        &Request::Hello(Hello::new(0, b"", false)).encode(),
    ];
    for frame in frames {
        let mut stream = greeted(&served);
        stream.write_all(frame).unwrap();
        assert!(matches!(answer(&mut stream), Answer::Fault { .. }));
        assert!(is_closed(&mut stream));
    }
}

/// A put beyond the budget of its user takes no memory, whatever it announces.
#[test]
fn what_is_announced_takes_no_more_than_the_budget() {
    let served = serve_with(|_| ());
    let mut streams = Vec::new();
    for number in 0..20 {
        let mut stream = greeted(&served);
        let mut huge = head(&key(number), 1, b"");
        huge.bytes = 30 * MIB;
        stream.write_all(&Request::Put(huge).encode()).unwrap();
        let told = answer(&mut stream);
        assert!(
            matches!(told, Answer::Go | Answer::Fault { .. }),
            "{told:?}"
        );
        streams.push(stream);
    }
    assert!(served.store.tiers()[0].bytes <= 64 * MIB);
    assert!(served.store.dirty_bytes() <= 32 * MIB);
    drop(streams);
    while served.store.tiers()[0].bytes > 0 || served.store.tiers()[1].bytes > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn strangers_on_tcp_displace_each_other_alone() {
    let tokens = tempfile::tempdir().unwrap();
    let served = serve_with(|config| {
        config.tcp = Some("127.0.0.1:0".parse().unwrap());
        config.tokens = Some(tokens.path().to_owned());
        config.strangers_max = 2;
    });
    let address = served.server.tcp_address().unwrap();
    let mut strangers: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for stranger in &mut strangers[..3] {
        stranger
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        assert_eq!(stranger.read(&mut [0]).unwrap_or(0), 0);
    }
    client(1, &[&served])
        .put(&key(1), 1, b"x", &PutOptions::default())
        .unwrap();
}

/// A server that takes connections and says nothing costs a client its timeout, not more.
#[test]
fn a_silent_server_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = ClientConfig {
        timeout_ns: NS_PER_S / 20,
        tries: 1,
        ..ClientConfig::default()
    };
    let address = ServerAddress::Tcp(listener.local_addr().unwrap());
    let map = StagingMap {
        epoch: 0,
        servers: [(0, address)].into(),
    };
    let client = StagingClient::new(config, map, clock());
    let code = Some(FaultCode::Unreachable);
    assert_eq!(client.get(&key(1)).unwrap_err().code(), code);
    assert_eq!(client.stat(&key(1)).unwrap_err().code(), code);
}
