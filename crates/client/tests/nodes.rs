//! Observers of other nodes: their mirrors are segments in the run directory of this node.

use std::path::Path;
use std::time::Duration;

use barograph_client::{ClientError, HistoryRange, LatestValue, Observer, Woken};
use barograph_model::{Clock as _, NS_PER_S, Sample, SqlFaultKind, SqlLimits, Value, ValueType};
use barograph_stream::{AGENT_DOCUMENT, Segment, SegmentConfig, StreamWriter};

use crate::node::{Node, descriptor, selector};

const VDA: &str = "disk.read.bytes{device=vda}";
const SAID: &str = "forecast.disk.read.bytes{device=vda}";
const SHORT: Duration = Duration::from_millis(40);

/// The mirror of another node, which the test writes.
struct Mirror {
    segment: Segment,
    writer: StreamWriter,
}

impl Mirror {
    /// A mirror with the stream [`VDA`] that has one value.
    fn make(node: &Node, name: &str, value: f64) -> Self {
        let dir = node.run_dir().mirror(name);
        std::fs::create_dir_all(dir.path()).unwrap();
        let config = SegmentConfig {
            streams_max: 16,
            ..SegmentConfig::new(name)
        };
        let now_ns = node.clock.now_ns();
        let mut segment = Segment::create(&dir.segment(), config, now_ns).unwrap();
        let stream = descriptor(VDA, ValueType::Float);
        let writer = segment.register(&stream, Some(16), now_ns).unwrap();
        let mut mirror = Self { segment, writer };
        mirror.put(node, value);
        mirror
    }

    /// Takes in a value, as if it came of the owner now.
    fn put(&mut self, node: &Node, value: f64) {
        let now_ns = node.clock.now_ns();
        self.writer.look(&Sample::measured(now_ns, value)).unwrap();
        self.segment.heartbeat(now_ns);
        self.segment.wake(self.writer.wake_bit());
    }
}

/// A node with one stream, which mirrors b.
fn cluster() -> (Node, Mirror) {
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 1.0);
    let mirror = Mirror::make(&node, "b", 2.0);
    (node, mirror)
}

fn number(value: &LatestValue) -> f64 {
    value.sample.as_ref().unwrap().value.as_f64().unwrap()
}

fn newest(observer: &Observer) -> LatestValue {
    observer.latest(&selector(VDA)).remove(0)
}

/// Removes the mirrors as an agent does that ends or starts.
fn remove_mirrors(run_dir: &Path) {
    std::fs::remove_dir_all(run_dir.join("nodes")).unwrap();
}

#[test]
fn values_of_another_node_with_their_age() {
    let (mut node, mut mirror) = cluster();
    let c = Mirror::make(&node, "c", 3.0);
    let observer = node.observer();
    assert_eq!(observer.nodes(), ["b", "c"]);
    let other = observer.of_node("b").unwrap();
    assert_eq!((other.node().as_str(), other.is_mirror()), ("b", true));
    assert_eq!(
        (observer.node().as_str(), observer.is_mirror()),
        ("n1", false)
    );
    assert_eq!(other.run_dir(), &node.run_dir().mirror("b"));

    let mut held = other.stream(&selector(VDA)).unwrap();
    let mut watch = other.watch(&selector("disk.*"));
    node.clock.advance(NS_PER_S);
    node.put(VDA, 9.0);
    let value = held.latest().unwrap();
    assert_eq!(
        (number(&value), value.age_ns, value.stale),
        (2.0, NS_PER_S, false)
    );
    assert_eq!(newest(&other), value);
    assert_eq!(number(&newest(&observer)), 9.0);
    assert_eq!(watch.next(SHORT).unwrap().len(), 1);
    assert_eq!(held.wait(SHORT), Woken::TimedOut);

    mirror.put(&node, 4.0);
    assert_eq!(held.wait(SHORT), Woken::News);
    assert_eq!(held.latest_f64().map(|(_, value)| value), Some(4.0));
    let updates = watch.next(SHORT).unwrap();
    assert_eq!((updates.len(), updates[0].stale), (1, false));
    let status = other.status().unwrap();
    assert_eq!(
        (status.node.as_str(), status.alive, status.streams),
        ("b", true, 1)
    );
    assert_eq!(other.streams(&selector("*")).len(), 1);

    // From one mirror to another, and back.
    assert_eq!(other.nodes(), ["b", "c"]);
    assert_eq!(number(&newest(&other.of_node("c").unwrap())), 3.0);
    let own = other.of_node("n1").unwrap();
    assert_eq!((number(&newest(&own)), own.is_mirror()), (9.0, false));
    drop(c);
}

#[test]
fn a_node_that_is_not_heard_is_stale() {
    let (mut node, mut mirror) = cluster();
    let other = node.observer().of_node("b").unwrap();
    let mut held = other.stream(&selector(VDA)).unwrap();
    node.clock.advance(6 * NS_PER_S);
    node.put(VDA, 1.0);
    node.segment.heartbeat(node.clock.now_ns());
    // The agent of this node lives, and nothing has come of the other one.
    let value = held.latest().unwrap();
    assert_eq!(
        (number(&value), value.age_ns, value.stale),
        (2.0, 6 * NS_PER_S, true)
    );
    assert!(newest(&other).stale && !newest(&node.observer()).stale);
    assert!(!other.status().unwrap().alive);
    let mut watch = other.watch(&selector(VDA));
    assert!(watch.next(SHORT).unwrap()[0].stale);

    mirror.put(&node, 3.0);
    let value = held.latest().unwrap();
    assert_eq!((number(&value), value.age_ns, value.stale), (3.0, 0, false));
    assert!(other.status().unwrap().alive);
    // Looks that are more frequent are told once a second.
    mirror.segment.expect_interval(&mirror.writer, NS_PER_S / 5);
    for (seconds, is_stale) in [(3, false), (1, true)] {
        node.clock.advance(seconds * NS_PER_S);
        mirror.segment.heartbeat(node.clock.now_ns());
        assert_eq!(held.latest().unwrap().stale, is_stale);
        assert_eq!(newest(&other).stale, is_stale);
    }
    mirror.put(&node, 4.0);
    assert!(!held.latest().unwrap().stale);
    // Its values are heard of, and the next look at the resource is overdue.
    mirror.segment.expect_interval(&mirror.writer, NS_PER_S);
    node.clock.advance(4 * NS_PER_S);
    mirror.segment.heartbeat(node.clock.now_ns());
    assert!(held.latest().unwrap().stale && other.status().unwrap().alive);
}

#[test]
fn a_mirror_goes_and_comes_back() {
    let (node, mirror) = cluster();
    let observer = node.observer();
    let other = observer.of_node("b").unwrap();
    let mut held = other.stream(&selector(VDA)).unwrap();
    let mut watch = other.watch(&selector(VDA));
    assert_eq!(watch.next(SHORT).unwrap().len(), 1);

    // The agent ends: it removes its mirrors and closes them.
    remove_mirrors(node.dir.path());
    drop(mirror);
    let value = held.latest().unwrap();
    assert_eq!((number(&value), value.stale), (2.0, true));
    assert!(newest(&other).stale && !other.status().unwrap().alive);
    assert_eq!(other.nodes(), [""; 0]);
    assert!(matches!(
        observer.of_node("b"),
        Err(ClientError::UnknownNode(_))
    ));
    let gone = other.sql("SELECT 1", &SqlLimits::default()).unwrap_err();
    assert!(
        gone.message.starts_with("no node b is mirrored here"),
        "{gone}"
    );
    assert!(matches!(other.archive(), Err(ClientError::UnknownNode(_))));
    assert_eq!(held.wait(SHORT), Woken::TimedOut);

    let mirror = Mirror::make(&node, "b", 5.0);
    let value = held.latest().unwrap();
    assert_eq!(
        (number(&value), value.stale, held.restarted()),
        (5.0, false, 1)
    );
    assert_eq!(number(&newest(&other)), 5.0);
    assert_eq!(watch.next(SHORT).unwrap().len(), 1);
    assert!(other.sql("SELECT 1", &SqlLimits::default()).is_ok());

    // The agent was killed: its mirrors are neither closed nor heard, and the next one removes
    // them.
    remove_mirrors(node.dir.path());
    node.clock.advance(6 * NS_PER_S);
    node.segment.heartbeat(node.clock.now_ns());
    assert!(held.latest().unwrap().stale);
    mirror.segment.heartbeat(0);
    let again = Mirror::make(&node, "b", 6.0);
    assert_eq!(
        held.latest_f64().map(|(_, value)| value),
        Some(5.0),
        "no clock is read"
    );
    let value = held.latest().unwrap();
    assert_eq!(
        (number(&value), value.stale, held.restarted()),
        (6.0, false, 2)
    );
    assert_eq!(held.latest_f64().map(|(_, value)| value), Some(6.0));
    drop((mirror, again));
}

#[test]
fn a_node_that_is_not_mirrored() {
    let (node, _mirror) = cluster();
    let _long = Mirror::make(&node, "login-1", 3.0);
    let check = |observer: &Observer, name: &str, expect: &str| match observer.of_node(name) {
        Ok(_) => panic!("{name} is mirrored"),
        Err(error) => {
            let text = error.to_string();
            let advice = " `baro node list` shows the nodes that are known; cluster.mirror_nodes \
                          and cluster.mirror choose what of them is mirrored";
            assert_eq!(text.strip_suffix(advice), Some(expect), "{text}");
        }
    };
    let observer = node.observer();
    check(
        &observer,
        "x",
        "no node x is mirrored here (mirrored: b, login-1):",
    );
    let near = "no node login1 is mirrored here (mirrored: b, login-1): did you mean login-1?";
    check(&observer, "login1", near);
    check(&observer.of_node("b").unwrap(), "login1", near);
    let Err(unknown) = observer
        .of_node("b")
        .unwrap()
        .stream(&selector("disk.raed.bytes"))
    else {
        panic!("it is no stream")
    };
    let text = "no stream matches disk.raed.bytes in what is mirrored of b (see cluster.mirror): \
                did you mean disk.read.bytes?";
    assert_eq!(unknown.to_string(), text);
    // What no node can be called leads to no path.
    for name in ["", "..", "../nodes/b", "b/../b", "/", "b/"] {
        let found = observer.of_node(name);
        assert!(matches!(found, Err(ClientError::UnknownNode(_))), "{name}");
    }
    remove_mirrors(node.dir.path());
    let near = "no node N1 is mirrored here (mirrored: none): did you mean n1?";
    check(&observer, "N1", near);
    assert!(observer.nodes().is_empty());
}

#[test]
fn history_and_sql_of_a_mirror() {
    let (mut node, mut mirror) = cluster();
    node.clock.advance(NS_PER_S);
    mirror.put(&node, 3.0);
    node.put(VDA, 7.0);
    let other = node.observer().of_node("b").unwrap();
    let past = other.history(&selector(VDA), &HistoryRange::default());
    let values: Vec<_> = past[0].samples.iter().map(|s| s.value.as_f64()).collect();
    assert_eq!(values, [Some(2.0), Some(3.0)]);
    assert_eq!(other.archive_dir(), None);

    let ask = |observer: &Observer, sql: &str| {
        let rows = observer.sql(sql, &SqlLimits::default());
        rows.map(|rows| String::from_utf8(rows.to_json_rows()).unwrap())
    };
    let sql = "SELECT node, value FROM disk_read_bytes WHERE newest";
    assert_eq!(ask(&other, sql).unwrap(), r#"[{"node":"b","value":3.0}]"#);
    let sql = "SELECT node, value FROM cluster_disk_read_bytes WHERE newest ORDER BY node";
    let both = r#"[{"node":"b","value":3.0},{"node":"n1","value":7.0}]"#;
    assert_eq!(ask(&node.observer(), sql).unwrap(), both);
    let sql = "SELECT node, state FROM nodes";
    assert_eq!(
        ask(&other, sql).unwrap(),
        r#"[{"node":"b","state":"live"}]"#
    );

    // What is not mirrored is refused: no rows would mean that there is nothing.
    for table in [
        "sources",
        "insights",
        "rules",
        "policies",
        "interference",
        "forecasts",
        "peers",
        "loss",
        "calls",
        "knobs",
        "publications",
    ] {
        let fault = ask(&other, &format!("SELECT * FROM {table}")).unwrap_err();
        assert_eq!(fault.kind, SqlFaultKind::Statement, "{table}: {fault}");
        assert!(
            fault.message.contains("baro sql --nodes b"),
            "{table}: {fault}"
        );
        ask(&node.observer(), &format!("SELECT * FROM {table}")).unwrap();
    }
}

#[test]
fn forecasts_of_another_node_are_there_if_they_are_mirrored() {
    let (node, mut mirror) = cluster();
    let other = node.observer().of_node("b").unwrap();
    assert_eq!(other.expected(&selector(VDA), Duration::ZERO), []);
    assert_eq!(other.latest_predicted(&selector(VDA)), [newest(&other)]);

    let said = descriptor(SAID, ValueType::Floats);
    let now_ns = node.clock.now_ns();
    let mut writer = mirror.segment.register(&said, Some(16), now_ns).unwrap();
    let knots = Value::Floats([0.0, 2.0, 0.5, 10.0, 12.0, 0.5].into());
    writer.look(&Sample::measured(now_ns, knots)).unwrap();
    node.clock.advance(NS_PER_S);
    let expected = other.expected(&selector(VDA), Duration::from_secs(4));
    assert_eq!(number(&expected[0]), 7.0);
    let mut held = other.stream(&selector(VDA)).unwrap();
    assert_eq!(number(&held.latest_predicted().unwrap()), 3.0);
}

/// An aggregator names its archive of a node in the directory of the mirror.
#[test]
fn the_archive_of_a_mirror_is_that_of_the_aggregator() {
    let (node, _mirror) = cluster();
    let kept = tempfile::tempdir().unwrap();
    let document = format!("{{\"node\": \"b\", \"archive\": {:?}}}", kept.path());
    let mirror = node.run_dir().mirror("b");
    mirror
        .publish(AGENT_DOCUMENT, document.as_bytes(), 0o644)
        .unwrap();
    let other = node.observer().of_node("b").unwrap();
    assert_eq!(other.archive_dir().as_deref(), Some(kept.path()));
    assert_eq!(
        other.archive().unwrap().path().as_deref(),
        Some(kept.path())
    );
    assert_eq!(node.observer().archive_dir(), None);
}
