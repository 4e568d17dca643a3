//! Tests of the exposition, byte for byte, and of what must not be in it.

use barograph_model::{Descriptor, Kind, Labels, Sample, Value, ValueType};

use crate::fixture::{Fixture, S, T0, descriptor};

fn exposition(fixture: &Fixture) -> String {
    let found = fixture.ask("GET /metrics", &[], b"");
    assert_eq!(found.status, 200);
    assert_eq!(
        found.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    found.text().to_owned()
}

const GOLDEN: &str = r##"# HELP barograph_a_flag What it is.
# TYPE barograph_a_flag gauge
barograph_a_flag{device="vda",node="n1"} 1
# HELP barograph_disk_busy_ratio What it is.
# TYPE barograph_disk_busy_ratio gauge
barograph_disk_busy_ratio{device="a",node="n1"} 0.25
barograph_disk_busy_ratio{device="b",node="n1"} NaN
barograph_disk_busy_ratio{device="c",node="n1"} +Inf
barograph_disk_busy_ratio{device="d",node="n1"} -Inf
barograph_disk_busy_ratio{device="e",node="n1"} 1e300
# HELP barograph_pool_read_bytes_total Two\nlines \\ "one".
# TYPE barograph_pool_read_bytes_total counter
barograph_pool_read_bytes_total{device="v\"d\\a\nx",node="n1"} 9007199254740993
# HELP barograph_remote_count What it is.
# TYPE barograph_remote_count gauge
barograph_remote_count{node="n2"} -3
# HELP barograph_tier_name_info What it is.
# TYPE barograph_tier_name_info gauge
barograph_tier_name_info{device="vda",node="n1",value="nvme \"fast\""} 1
barograph_tier_name_info{value="label",node="n1",value_="text"} 1
# HELP node_disk_discarded_sectors_total What it is.
# TYPE node_disk_discarded_sectors_total counter
node_disk_discarded_sectors_total{device="vda",node="n1"} 3
# HELP node_disk_read_bytes_total What it is.
# TYPE node_disk_read_bytes_total counter
node_disk_read_bytes_total{device="vda",node="n1"} 9007199254740993
# HELP node_vmstat_pgpgin What it is.
# TYPE node_vmstat_pgpgin untyped
node_vmstat_pgpgin{node="n1"} 1.5
# HELP barograph__metrics_left_out_streams Streams that have a sample and are not shown here, by reason.
# TYPE barograph__metrics_left_out_streams gauge
barograph__metrics_left_out_streams{node="n1",reason="old"} 0
barograph__metrics_left_out_streams{node="n1",reason="conflict"} 1
# HELP barograph__server_watchers Watchers connected.
# TYPE barograph__server_watchers gauge
barograph__server_watchers{node="n1"} 0
# HELP barograph__server_refused_connections_total Connections refused for lack of room.
# TYPE barograph__server_refused_connections_total counter
barograph__server_refused_connections_total{node="n1"} 0
# HELP barograph__server_refused_watchers_total Watchers refused for lack of room.
# TYPE barograph__server_refused_watchers_total counter
barograph__server_refused_watchers_total{node="n1"} 0
# HELP barograph__server_skipped_ticks_total Ticks that watchers were too slow for.
# TYPE barograph__server_skipped_ticks_total counter
barograph__server_skipped_ticks_total{node="n1"} 0
"##;

#[test]
fn golden() {
    let mut fixture = Fixture::new();
    let with_labels = |name: &str, value_type, labels: &[(&str, &str)]| Descriptor {
        labels: Labels::new(labels.iter().copied()).unwrap(),
        ..descriptor(name, "x", value_type)
    };
    let odd_help = Descriptor {
        help: "Two\nlines \\ \"one\".".into(),
        ..descriptor("pool.read.bytes", "v\"d\\a\nx", ValueType::Int)
    };
    // Two names that become one in Prometheus: the second stream is left out.
    let conflict = Descriptor {
        kind: Kind::Gauge,
        ..descriptor("pool.read.bytes_total", "x", ValueType::Int)
    };
    let pagein = with_labels("vm.pagein.bytes", ValueType::Int, &[]);
    let ratio = |device| descriptor("disk.busy.ratio", device, ValueType::Float);
    let cases: Vec<(Descriptor, Value)> = vec![
        (odd_help, Value::Int((1 << 53) + 1)),
        (conflict, Value::Int(1)),
        (
            descriptor("disk.read.bytes", "vda", ValueType::Int),
            Value::Int((1 << 53) + 1),
        ),
        (
            descriptor("disk.discard.bytes", "vda", ValueType::Int),
            Value::Int(1536),
        ),
        (pagein, Value::Int(1536)),
        (ratio("a"), Value::Float(0.25)),
        (ratio("b"), Value::Float(f64::NAN)),
        (ratio("c"), Value::Float(f64::INFINITY)),
        (ratio("d"), Value::Float(f64::NEG_INFINITY)),
        (ratio("e"), Value::Float(1e300)),
        (
            descriptor("a.flag", "vda", ValueType::Bool),
            Value::Bool(true),
        ),
        (
            descriptor("tier.name", "vda", ValueType::Text),
            Value::text("nvme \"fast\""),
        ),
        (
            with_labels("tier.name", ValueType::Text, &[("value", "label")]),
            Value::text("text"),
        ),
        (
            with_labels("remote.count", ValueType::Int, &[("node", "n2")]),
            Value::Int(-3),
        ),
    ];
    for (descriptor, value) in cases {
        let sample = Sample {
            value,
            ..Sample::measured(T0, 0)
        };
        fixture.register(&descriptor).look(&sample).unwrap();
    }
    let _without_sample = fixture.register(&descriptor("never.count", "vda", ValueType::Int));
    assert_eq!(exposition(&fixture), GOLDEN);
}

#[test]
fn openmetrics() {
    let mut fixture = Fixture::new();
    let odd_help = Descriptor {
        help: "Two\nlines \\ \"one\".".into(),
        ..descriptor("pool.read.bytes", "vda", ValueType::Int)
    };
    let page_faults = Descriptor {
        labels: Labels::none(),
        kind: Kind::Counter,
        ..descriptor("vm.faults.count", "x", ValueType::Int)
    };
    let flag = descriptor("a.flag", "vda", ValueType::Bool);
    for (descriptor, value) in [
        (odd_help, Value::Int(5)),
        (page_faults, Value::Int(7)),
        (flag, Value::Bool(false)),
    ] {
        let sample = Sample {
            value,
            ..Sample::measured(T0, 0)
        };
        fixture.register(&descriptor).look(&sample).unwrap();
    }
    let accept =
        "accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let found = fixture.ask("GET /metrics", &[accept], b"");
    assert_eq!(
        found.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let text = found.text();
    let streams = r##"# HELP barograph_a_flag What it is.
# TYPE barograph_a_flag gauge
barograph_a_flag{device="vda",node="n1"} 0
# HELP barograph_pool_read_bytes Two\nlines \\ \"one\".
# TYPE barograph_pool_read_bytes counter
barograph_pool_read_bytes_total{device="vda",node="n1"} 5
# HELP node_vmstat_pgfault What it is.
# TYPE node_vmstat_pgfault unknown
node_vmstat_pgfault{node="n1"} 7
# HELP barograph__metrics"##;
    assert!(text.starts_with(streams), "{text}");
    assert!(text.contains(
        "# TYPE barograph__server_skipped_ticks counter\nbarograph__server_skipped_ticks_total{"
    ));
    assert!(text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn old_values_are_left_out() {
    let mut fixture = Fixture::new();
    let mut fast = fixture.register(&descriptor("fast.count", "vda", ValueType::Int));
    let mut slow = fixture.register(&descriptor("slow.count", "vda", ValueType::Int));
    let mut unsaid = fixture.register(&descriptor("unsaid.count", "vda", ValueType::Int));
    fixture.segment.expect_interval(&fast, S);
    fixture.segment.expect_interval(&slow, 20 * S);
    for writer in [&mut fast, &mut slow, &mut unsaid] {
        writer.look(&Sample::measured(T0, 5)).unwrap();
    }
    let check = |shown: [bool; 3]| {
        let text = exposition(&fixture);
        let found =
            ["fast", "slow", "unsaid"].map(|n| text.contains(&format!("barograph_{n}_count{{")));
        assert_eq!(found, shown, "{text}");
        let old = shown.iter().filter(|s| !**s).count();
        assert!(
            text.contains(&format!("reason=\"old\"}} {old}\n")),
            "{text}"
        );
    };
    fixture.clock.advance(10 * S);
    check([true, true, true]);
    fixture.clock.advance(1);
    check([false, true, false]);
    // A look that finds the same value makes it fresh again.
    fast.look(&Sample::measured(T0 + 10 * S, 5)).unwrap();
    check([true, true, false]);
    fixture.clock.advance(50 * S);
    check([false, false, false]);
}
