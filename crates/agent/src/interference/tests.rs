//! Tests of the figures that disks give by themselves.

use super::*;

#[test]
fn the_greatest_rate_is_one_of_both_counters_at_once() {
    let mut disk = Disk::default();
    // A second of reads, and a second of writes after it, are no second of both.
    for (second, read, written) in [(0, 0.0, 0.0), (1, 100.0, 0.0), (2, 100.0, 90.0)] {
        disk.moved(second * NS_PER_S, true, read);
        disk.moved(second * NS_PER_S, false, written);
    }
    assert_eq!(
        disk.capacity().map(|c| (c.value, c.origin)),
        Some((100.0, "seen"))
    );
    // Looks that are close together have no rate, also after the clock was set back.
    disk.moved(2 * NS_PER_S + 1_000, true, 5_000.0);
    disk.moved(2 * NS_PER_S + 1_000, false, 90.0);
    assert!((disk.fastest - 100.0).abs() < 1e-9);
    for second in [0, 1] {
        disk.moved(second * NS_PER_S, true, 5_000.0);
        disk.moved(second * NS_PER_S, false, 90.0);
    }
    assert!((disk.fastest - 100.0).abs() < 1e-9);
    // What the disk tells counts, where it tells something.
    disk.greatest = Some(70.0);
    disk.origin = origin("probed");
    assert_eq!(
        disk.capacity().map(|c| (c.value, c.origin)),
        Some((70.0, "probed"))
    );
    assert_eq!(origin("nonsense"), None);
}

#[test]
fn roles_are_those_of_the_named_streams() {
    let check = |name: &str, labels: &[(&str, &str)], expect: bool| {
        let descriptor = Descriptor {
            labels: Labels::new(labels.iter().copied()).unwrap(),
            ..Descriptor::gauge(
                Name::new(name).unwrap(),
                ValueType::Int,
                Unit::new("bytes").unwrap(),
            )
        };
        assert_eq!(Role::of(&descriptor).is_some(), expect, "{name} {labels:?}");
    };
    let device = ("device", "sda");
    check(
        "cgroup.device.write.bytes",
        &[device, ("cgroup", "/a")],
        true,
    );
    check("cgroup.device.write.bytes", &[device], false);
    check(
        "cgroup.device.read.bytes",
        &[device, ("cgroup", "/a")],
        false,
    );
    check("disk.write.bytes", &[device], true);
    check("disk.write.bytes", &[], false);
    check("disk.bandwidth.available", &[device], false);
}
