//! Streams that are mirrored because somebody needs them, beside the configured ones.

use barograph_fabric::StreamDemand;
use barograph_fabric::transport::MemoryNetwork;
use barograph_model::{Descriptor, NS_PER_S, Name};

use crate::cluster::{Member, START_NS, descriptor};

#[test]
fn what_is_demanded_is_mirrored_for_as_long_as_it_is() {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    let mut a = Member::new(&network, "a", 1, now_ns);
    let mut b = Member::new(&network, "b", 2, now_ns);
    let name = Name::new("other.value").unwrap();
    let other = Descriptor {
        name,
        ..descriptor(0)
    };
    let other = b.segment.register(&other, Some(256), now_ns).unwrap();
    b.writers.push(other);
    let of_all = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| StreamDemand::of_all(*text))
            .collect()
    };
    let of_node = |text: &str, node: &str| StreamDemand {
        selector: text.into(),
        node: Some(node.into()),
    };
    let mut streams_after = |a: &mut Member, demanded: Vec<StreamDemand>| {
        a.node.demand(demanded);
        for step in 0..20 {
            now_ns += NS_PER_S / 10;
            b.put(now_ns, step);
            b.node.step(now_ns);
            a.node.step(now_ns);
        }
        let peer = a.peer("b");
        assert_eq!((peer.missed, peer.holes, &peer.fault), (0, 0, &None));
        peer.streams
    };
    assert_eq!(streams_after(&mut a, Vec::new()), 3);
    assert_eq!(streams_after(&mut a, of_all(&["other?value"])), 4);
    // Of another node, and of this one.
    assert_eq!(streams_after(&mut a, vec![of_node("other.*", "c")]), 3);
    assert_eq!(streams_after(&mut a, vec![of_node("other.*", "b")]), 4);
    assert_eq!(a.node.status().selectors_left_out, 0);
    // A subscription has room for 256 selectors, of which one is configured.
    let many: Vec<String> = (0..300).map(|n| format!("no.{n}")).collect();
    let many: Vec<&str> = ["other?value"]
        .into_iter()
        .chain(many.iter().map(String::as_str))
        .collect();
    assert_eq!(streams_after(&mut a, of_all(&many)), 4);
    assert_eq!(a.node.status().selectors_left_out, 301 - 255);
    assert_eq!(
        streams_after(&mut a, Vec::new()),
        3,
        "nobody needs it any more"
    );
}
