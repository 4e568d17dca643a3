//! Nodes over zenoh on loopback, with real threads.

use std::net::TcpListener;
use std::sync::Arc;

use barograph_fabric::transport::{
    HELLO_VERSION, Hello, Transport as _, TransportEvent, ZenohConfig, ZenohFault, ZenohTransport,
};
use barograph_model::{Clock as _, NS_PER_S};
use barograph_stream::SystemClock;
use zenoh::Wait as _;

use crate::cluster::hello;

/// Longest wait of a test for the network, in ns.
const PATIENCE_NS: i64 = 30 * NS_PER_S;

/// An address of this machine that nobody listens at.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn open(hello: Hello, listen: &[&str], peers: &[&str]) -> ZenohTransport {
    let config = ZenohConfig {
        hello,
        listen: listen.iter().map(|&address| address.into()).collect(),
        peers: peers.iter().map(|&peer| peer.into()).collect(),
        death_ns: NS_PER_S,
        credentials: None,
        revocation_list: None,
    };
    ZenohTransport::open(&config, Arc::new(SystemClock::new())).unwrap()
}

/// Receives until an event is the wanted one.
fn expect(
    transport: &mut ZenohTransport,
    is_it: impl Fn(&TransportEvent) -> bool,
) -> TransportEvent {
    let mut seen = Vec::new();
    let over_ns = SystemClock::new().now_ns() + PATIENCE_NS;
    while SystemClock::new().now_ns() < over_ns {
        match transport.receive(over_ns) {
            Some(event) if is_it(&event) => return event,
            Some(event) => seen.push(event),
            None => {}
        }
    }
    panic!("the event did not come; there were {seen:?}");
}

/// Has a transport receive until something holds. Events are not looked at.
fn wait_until(transport: &mut ZenohTransport, holds: impl Fn(&ZenohTransport) -> bool) {
    let over_ns = SystemClock::new().now_ns() + PATIENCE_NS;
    while !holds(transport) {
        let now_ns = SystemClock::new().now_ns();
        let (peers, refusals) = (transport.peers(), transport.refusals());
        assert!(
            now_ns < over_ns,
            "there are {peers:?}, and refused are {refusals:?}"
        );
        transport.receive(now_ns + NS_PER_S / 100);
    }
}

fn appeared(node: &str) -> impl Fn(&TransportEvent) -> bool {
    move |event| *event == TransportEvent::Appeared(node.into())
}

fn gone(node: &str) -> impl Fn(&TransportEvent) -> bool {
    move |event| *event == TransportEvent::Gone(node.into())
}

#[test]
fn nodes_on_loopback_meet_talk_and_leave() {
    let address = free_address();
    let mut a = open(hello("rack", "a", 1), &[&address], &[]);
    let mut b = open(hello("rack", "b", 2), &["127.0.0.1:0"], &[&address]);
    expect(&mut a, appeared("b"));
    expect(&mut b, appeared("a"));
    // A node learns of the others from the one that it was told of.
    let mut c = open(hello("rack", "c", 3), &["127.0.0.1:0"], &[&address]);
    expect(&mut c, appeared("b"));
    expect(&mut b, appeared("c"));
    let message = vec![7; 300_000];
    c.send("b", message.clone()).unwrap();
    let came = expect(&mut b, |event| {
        matches!(event, TransportEvent::Message { .. })
    });
    let from = "c".into();
    let bytes = message;
    assert_eq!(came, TransportEvent::Message { from, bytes });
    let over_ns = SystemClock::new().now_ns() + PATIENCE_NS;
    while b.peers().iter().any(|peer| peer.round_trip_ns.is_none()) {
        let now_ns = SystemClock::new().now_ns();
        assert!(now_ns < over_ns, "round trips: {:?}", b.peers());
        for transport in [&mut a, &mut b, &mut c] {
            transport.receive(now_ns + NS_PER_S / 100);
        }
    }
    drop(c);
    expect(&mut b, gone("c"));
    assert!(b.send("c", vec![1]).is_err());
}

#[test]
fn strangers_and_namesakes_are_refused_on_both_sides() {
    let address = free_address();
    let mut a = open(hello("rack", "a", 1), &[&address], &[]);
    let check = |a: &mut ZenohTransport, other: Hello, reason: &str| {
        let mut b = open(other, &["127.0.0.1:0"], &[&address]);
        for transport in [&mut *a, &mut b] {
            wait_until(transport, |transport| {
                let refusals = transport.refusals();
                refusals.len() == 1 && refusals[0].to_string().contains(reason)
            });
        }
        assert_eq!(b.peers(), []);
        drop(b);
        wait_until(a, |a| a.refusals().is_empty());
    };
    check(&mut a, hello("other", "b", 2), "correct the address");
    check(&mut a, hello("rack", "a", 3), "rename one of the two");
    let older = Hello {
        version: HELLO_VERSION + 1,
        ..hello("rack", "b", 4)
    };
    check(&mut a, older, "install the newer");
    assert_eq!(a.peers(), []);
    assert!(a.counts().refused >= 3, "{:?}", a.counts());
}

#[test]
fn an_address_that_is_taken_or_outside_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = |listen: String| {
        let config = ZenohConfig {
            hello: hello("rack", "a", 1),
            listen: vec![listen],
            peers: Vec::new(),
            death_ns: NS_PER_S,
            credentials: None,
            revocation_list: None,
        };
        ZenohTransport::open(&config, Arc::new(SystemClock::new())).err()
    };
    let fault = open(taken.local_addr().unwrap().to_string());
    assert!(matches!(fault, Some(ZenohFault::Zenoh(_))), "{fault:?}");
    let fault = open("192.0.2.1:7447".into());
    assert!(
        matches!(fault, Some(ZenohFault::Address { .. })),
        "{fault:?}"
    );
}

/// A router of zenoh, as `zenohd` is one, which connects to others.
fn router(address: &str, others: &[&str]) -> zenoh::Session {
    let others: Vec<String> = others.iter().map(|other| format!("tcp/{other}")).collect();
    let network = format!(
        r#"{{
            mode: "router",
            listen: {{ endpoints: ["tcp/{address}"] }},
            connect: {{ endpoints: {others:?} }},
            scouting: {{ multicast: {{ enabled: false }} }},
        }}"#
    );
    let config = zenoh::Config::from_json5(&network).unwrap();
    zenoh::open(config).wait().unwrap()
}

/// Has two nodes meet, and one tell the other something.
fn meet_and_talk(a: &mut ZenohTransport, b: &mut ZenohTransport, message: &[u8]) {
    expect(a, appeared("b"));
    expect(b, appeared("a"));
    let (from, bytes) = ("b".into(), message.to_vec());
    let wanted = TransportEvent::Message { from, bytes };
    let over_ns = SystemClock::new().now_ns() + PATIENCE_NS;
    // It is sent until it has come, since a router may learn of nodes before it learns what they
    // read.
    loop {
        let now_ns = SystemClock::new().now_ns();
        assert!(now_ns < over_ns, "the message did not come");
        let _ = b.send("a", message.to_vec());
        b.receive(now_ns);
        if a.receive(now_ns + NS_PER_S / 5).as_ref() == Some(&wanted) {
            return;
        }
    }
}

#[test]
fn nodes_that_know_only_a_router_meet() {
    let address = free_address();
    let between = router(&address, &[]);
    let mut a = open(hello("rack", "a", 1), &["127.0.0.1:0"], &[&address]);
    let mut b = open(hello("rack", "b", 2), &["127.0.0.1:0"], &[&address]);
    meet_and_talk(&mut a, &mut b, &[1; 300_000]);
    // They are connected to each other, and need the router no longer.
    between.close().wait().unwrap();
    drop(between);
    drop(b);
    expect(&mut a, gone("b"));
    let mut b = open(hello("rack", "b", 3), &["127.0.0.1:0"], &[&address]);
    // It is away for as long as it takes to be tried several times.
    let until_ns = SystemClock::new().now_ns() + 3 * NS_PER_S;
    while SystemClock::new().now_ns() < until_ns {
        a.receive(until_ns);
        assert_eq!((a.peers(), b.peers()), (Vec::new(), Vec::new()));
    }
    let _between = router(&address, &[]);
    meet_and_talk(&mut a, &mut b, &[2; 300_000]);
}

#[test]
fn nodes_that_cannot_reach_each_other_meet_through_two_routers() {
    let addresses = [free_address(), free_address()];
    let _first = router(&addresses[0], &[]);
    let second = router(&addresses[1], &[&addresses[0]]);
    // They listen at no address, so that nothing reaches them but through the routers.
    let mut a = open(hello("rack", "a", 1), &[], &[&addresses[0]]);
    let mut b = open(hello("rack", "b", 2), &[], &[&addresses[1]]);
    meet_and_talk(&mut a, &mut b, &[1; 300_000]);
    second.close().wait().unwrap();
    drop(second);
    expect(&mut a, gone("b"));
    expect(&mut b, gone("a"));
    assert!(a.send("b", vec![1]).is_err());
    let until_ns = SystemClock::new().now_ns() + 3 * NS_PER_S;
    while SystemClock::new().now_ns() < until_ns {
        a.receive(until_ns);
        assert_eq!(a.peers(), []);
    }
    let _second = router(&addresses[1], &[&addresses[0]]);
    meet_and_talk(&mut a, &mut b, &[2; 300_000]);
}
