//! Tests of the age of an insight: that of its stalest input.

use crate::rig::Rig;

/// The entry `name{labels}: looked, every interval` for every output, sorted.
fn looks(rig: &mut Rig) -> Vec<String> {
    rig.run();
    rig.graph.confirm(&mut rig.out);
    let of = |key: &u32| {
        (
            rig.out.looks.get(key).copied(),
            rig.out.intervals.get(key).copied(),
        )
    };
    let line = |(key, (descriptor, _)): (&u32, &(barograph_model::Descriptor, _))| {
        let (looked, interval) = of(key);
        format!(
            "{descriptor}: {}, every {}",
            looked.unwrap_or(0),
            interval.unwrap_or(0)
        )
    };
    let mut lines: Vec<String> = rig.out.live.iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn a_group_is_as_old_as_its_stalest_input() {
    let mut rig = Rig::default();
    let a = rig.stream("disk.read.bytes{device=a,tier=ssd}", 1);
    let b = rig.stream("disk.read.bytes{device=b,tier=ssd}", 2);
    let c = rig.stream("disk.read.bytes{device=c,tier=hdd}", 3);
    rig.create(
        "CREATE INSIGHT t.bytes AS SELECT tier, sum(value) FROM disk_read_bytes GROUP BY tier",
    )
    .unwrap();
    rig.create("CREATE INSIGHT all.bytes AS SELECT sum(value) FROM t_bytes")
        .unwrap();
    rig.graph.interval(a, 10);
    rig.graph.interval(b, 20);
    rig.graph.interval(c, 5);
    rig.graph.looked(a, 5_000);
    rig.graph.looked(b, 4_000);
    rig.graph.looked(c, 6_000);
    let expect = [
        "all.bytes: 4000, every 20",
        "t.bytes{tier=hdd}: 6000, every 5",
        "t.bytes{tier=ssd}: 4000, every 20",
    ];
    assert_eq!(looks(&mut rig), expect);
    // Everything is looked at and nothing changes: nothing is put, and all ages are smaller.
    let puts = rig.out.puts;
    [a, b, c]
        .into_iter()
        .for_each(|key| rig.graph.looked(key, 7_000));
    let expect = [
        "all.bytes: 7000, every 20",
        "t.bytes{tier=hdd}: 7000, every 5",
        "t.bytes{tier=ssd}: 7000, every 20",
    ];
    assert_eq!(looks(&mut rig), expect);
    assert_eq!(rig.out.puts, puts);
}

#[test]
fn an_input_without_a_sample_has_no_part_in_it() {
    let mut rig = Rig::default();
    let a = rig.stream("disk.read.bytes{device=a}", 1);
    rig.add("disk.read.bytes{device=b}", barograph_model::ValueType::Int);
    rig.create("CREATE INSIGHT all.bytes AS SELECT sum(value) FROM disk_read_bytes")
        .unwrap();
    rig.graph.looked(a, 9_000);
    assert_eq!(looks(&mut rig), ["all.bytes: 9000, every 0"]);
}
