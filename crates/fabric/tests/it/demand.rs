//! Streams that are mirrored because somebody needs them, beside the configured ones.

use barograph_fabric::StreamDemand;
use barograph_fabric::transport::MemoryNetwork;
use barograph_model::{Descriptor, NS_PER_S, Name};
use barograph_stream::{RunDir, SegmentReader};

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

#[test]
fn what_is_demanded_takes_no_room_from_what_is_configured() {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    // Room for four streams: three are configured, and two are demanded.
    let mut a = Member::with(&network, "a", 1, now_ns, 16, 4);
    let mut b = Member::new(&network, "b", 2, now_ns);
    for i in 0..2 {
        let other = Descriptor {
            name: Name::new("other.value").unwrap(),
            ..descriptor(i)
        };
        let other = b.segment.register(&other, Some(256), now_ns).unwrap();
        b.writers.push(other);
    }
    a.node.demand(vec![StreamDemand::of_all("other.*")]);
    let mut mirrored = |a: &mut Member, b: &mut Member| {
        for step in 0..20 {
            now_ns += NS_PER_S / 10;
            b.put(now_ns, step);
            b.node.step(now_ns);
            a.node.step(now_ns);
        }
        assert_eq!((a.peer("b").missed, &a.peer("b").fault), (0, &None));
        let mirror = RunDir::new(a.dir.path()).mirror("b");
        let entries = SegmentReader::of(&mirror).unwrap().directory().entries;
        let mut names: Vec<String> = entries.iter().map(|e| e.descriptor.to_string()).collect();
        names.sort();
        names
    };
    let shown = mirrored(&mut a, &mut b);
    assert_eq!(shown.len(), 4);
    assert!(shown[0].starts_with("other.value"), "{shown:?}");
    let configured = b.segment.register(&descriptor(3), Some(256), START_NS);
    b.writers.push(configured.unwrap());
    let expect: Vec<String> = (0..4).map(|i| descriptor(i).to_string()).collect();
    assert_eq!(mirrored(&mut a, &mut b), expect);
}
