//! Hellos and their refusals, and the transport in memory.

use std::sync::Arc;

use barograph_fabric::frame::{FRAME_BYTES_MAX, FeedReach};
use barograph_fabric::transport::{
    BYTES_WAITING_MAX, HELLO_VERSION, Hello, HelloFault, MESSAGES_WAITING_MAX, MemoryNetwork,
    MemoryTransport, Refusal, SendFault, Transport, TransportEvent, check_name,
};
use barograph_fabric::{Subscriber, SubscriberConfig};
use barograph_model::Sample;
use barograph_stream::{Incarnation, NODE_NAME_BYTES_MAX};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::bounds::{START_NS, owner};
use crate::feeds::Taken;

fn hello(cluster: &str, node: &str) -> Hello {
    Hello {
        version: HELLO_VERSION,
        incarnation: Incarnation([3; 16]),
        start_ns: 1_700_000_000,
        cluster: cluster.into(),
        node: node.into(),
    }
}

fn events(transport: &mut MemoryTransport) -> Vec<TransportEvent> {
    std::iter::from_fn(|| transport.receive(0)).collect()
}

fn peers(transport: &MemoryTransport) -> Vec<Arc<str>> {
    transport.peers().into_iter().map(|p| p.node).collect()
}

#[test]
fn nodes_meet_talk_and_leave() {
    let network = MemoryNetwork::default();
    let mut a = network.join(hello("rack", "a")).unwrap();
    let mut b = network.join(hello("rack", "b")).unwrap();
    assert_eq!(events(&mut a), [TransportEvent::Appeared("b".into())]);
    assert_eq!(events(&mut b), [TransportEvent::Appeared("a".into())]);
    a.send("b", vec![1, 2]).unwrap();
    let from = "a".into();
    let bytes = vec![1, 2];
    assert_eq!(events(&mut b), [TransportEvent::Message { from, bytes }]);
    assert_eq!((a.counts().sent, b.counts().received), (1, 1));
    drop(b);
    assert_eq!(events(&mut a), [TransportEvent::Gone("b".into())]);
    assert_eq!(a.send("b", vec![1]), Err(SendFault::Unknown));
    assert_eq!(a.counts().unsent, 1);
}

#[test]
fn a_feed_goes_over_a_transport() {
    const SAMPLES: i64 = 500;
    let network = MemoryNetwork::default();
    let mut there = network.join(hello("rack", "owner")).unwrap();
    let mut here = network.join(hello("rack", "subscriber")).unwrap();
    let (_dir, _segment, mut writers, mut publisher) = owner(3);
    let mut subscriber = Subscriber::new(SubscriberConfig {
        incarnation: Incarnation([9; 16]),
        first_feed: 1,
        selectors: vec!["test.*".into()],
        reach: FeedReach::Rings,
        window_bytes: 1 << 16,
        streams_max: 8,
        scope: "".into(),
    });
    let mut taken = Taken::default();
    let sample = |stream: usize, step: i64| Sample::measured(START_NS + step, step * stream as i64);
    for step in 0..SAMPLES {
        let now_ns = START_NS + step;
        for (stream, writer) in writers.iter_mut().enumerate() {
            writer.append(&sample(stream, step)).unwrap();
        }
        while let Some(message) = subscriber.due(now_ns) {
            here.send("owner", message).unwrap();
        }
        while let Some(event) = there.receive(now_ns) {
            if let TransportEvent::Message { from, bytes } = event {
                publisher.receive(&from, &bytes, now_ns).unwrap();
            }
        }
        while let Some((to, frame)) = publisher.due(now_ns) {
            there.send(&to, frame).unwrap();
        }
        while let Some(event) = here.receive(now_ns) {
            if let TransportEvent::Message { bytes, .. } = event {
                subscriber.receive(&bytes, now_ns, &mut taken).unwrap();
            }
        }
    }
    assert_eq!(taken.streams.len(), 3);
    for (stream, mirrored) in taken.streams.iter().enumerate() {
        let numbered = |step| (step as u64 + 1, sample(stream, step));
        let expect: Vec<(u64, Sample)> = (0..SAMPLES).map(numbered).collect();
        assert_eq!(mirrored.samples, expect);
    }
}

#[test]
fn both_sides_read_why_they_are_refused() {
    let newer = Hello {
        version: HELLO_VERSION + 1,
        ..hello("rack", "b")
    };
    let check = |second: Hello, here: &str, there: &str| {
        let network = MemoryNetwork::default();
        let mut a = network.join(hello("rack", "a")).unwrap();
        let mut b = network.join(second).unwrap();
        for (transport, expect) in [(&mut a, here), (&mut b, there)] {
            let [refusal] = &transport.refusals()[..] else {
                panic!("there is one refusal: {expect}");
            };
            assert!(refusal.to_string().contains(expect), "{refusal}");
            assert_eq!(peers(transport), []);
            assert_eq!(
                (events(transport).len(), transport.counts().refused),
                (0, 1)
            );
        }
        assert_eq!(a.send("b", vec![1]), Err(SendFault::Unknown));
        drop(b);
        assert_eq!(a.refusals(), [], "the other node has gone");
        assert_eq!(a.counts().refused, 1);
    };
    check(newer, "newer barograph here", "newer barograph there");
    check(
        hello("other", "b"),
        "is of cluster other",
        "is of cluster rack",
    );
    check(
        hello("rack", "a"),
        "another node is named a",
        "another node is named a",
    );
}

#[test]
fn a_node_whose_name_is_taken_works_with_nobody() {
    let network = MemoryNetwork::default();
    let mut a = network.join(hello("rack", "a")).unwrap();
    let mut b = network.join(hello("rack", "b")).unwrap();
    let mut second = network.join(hello("rack", "b")).unwrap();
    let start_ns = 1_700_000_000;
    let node = "b".into();
    let refused = [Refusal::SameName { node, start_ns }];
    assert_eq!(second.refusals(), refused);
    assert_eq!(b.refusals(), refused);
    assert_eq!(events(&mut second), []);
    drop(second);
    assert_eq!(b.refusals(), []);
    assert_eq!(events(&mut b), [TransportEvent::Appeared("a".into())]);
    assert_eq!(events(&mut a), [TransportEvent::Appeared("b".into())]);
    assert_eq!(peers(&a), ["b".into()]);
}

#[test]
fn what_waits_is_bounded_and_counted() {
    let network = MemoryNetwork::default();
    let mut a = network.join(hello("rack", "a")).unwrap();
    let mut b = network.join(hello("rack", "b")).unwrap();
    for _ in 0..MESSAGES_WAITING_MAX {
        a.send("b", vec![1]).unwrap();
    }
    assert_eq!(a.send("b", vec![1]), Err(SendFault::Full));
    assert_eq!(events(&mut b).len(), MESSAGES_WAITING_MAX + 1);
    for _ in 0..BYTES_WAITING_MAX / FRAME_BYTES_MAX {
        a.send("b", vec![0; FRAME_BYTES_MAX]).unwrap();
    }
    assert_eq!(a.send("b", vec![1]), Err(SendFault::Full));
    let large = vec![0; FRAME_BYTES_MAX + 1];
    assert_eq!(a.send("b", large), Err(SendFault::Large));
    assert_eq!(a.counts().unsent, 3);
}

#[test]
fn names_are_checked_in_one_place() {
    let longest = "n".repeat(NODE_NAME_BYTES_MAX);
    for name in ["a", "node-7.rack_2", "7", &longest] {
        assert_eq!(check_name(name), Ok(()), "{name}");
    }
    for name in [
        "",
        ".",
        "../a",
        "a/b",
        "a*",
        "a$",
        "-a",
        "n\u{e9}",
        &"n".repeat(65),
    ] {
        assert!(
            matches!(check_name(name), Err(HelloFault::Name { .. })),
            "{name}"
        );
        assert!(MemoryNetwork::default().join(hello("rack", name)).is_err());
    }
}

proptest! {
    #[test]
    fn hellos_return(
        numbers in (1..=u8::MAX, any::<[u8; 16]>(), any::<i64>()),
        names in ("[a-z0-9][a-z0-9._-]{0,63}", "[A-Z][a-z0-9._-]{0,63}"),
        later in vec(any::<u8>(), 0..9),
    ) {
        let said = Hello {
            version: numbers.0,
            incarnation: Incarnation(numbers.1),
            start_ns: numbers.2,
            cluster: names.0.into(),
            node: names.1.into(),
        };
        let mut bytes = said.write();
        for end in 0..bytes.len() {
            prop_assert!(Hello::read(&bytes[..end]).is_err());
        }
        bytes.extend(later);
        prop_assert_eq!(Hello::read(&bytes), Ok(said));
    }

    #[test]
    fn any_hello_is_read_or_refused(body in vec(any::<u8>(), 0..80)) {
        let mut bytes = b"BARH".to_vec();
        bytes.extend(body);
        let _ = Hello::read(&bytes);
    }
}
