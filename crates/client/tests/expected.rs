//! Values of streams between two looks, for callers that accept predictions.

use std::time::Duration;

use barograph_client::LatestValue;
use barograph_model::{NS_PER_S, Quality, ValueType};

use crate::node::{Node, START_NS, selector};

const VDA: &str = "disk.read.bytes{device=vda}";
const VDB: &str = "disk.read.bytes{device=vdb}";
const MEMORY: &str = "memory.free.bytes";

/// A node with a disk that reads 10 bytes a second, give or take 1 a second, forecast for 4 s, and
/// with streams without a forecast.
fn node() -> Node {
    let mut node = Node::with(&[VDA, VDB, MEMORY]);
    node.put(VDA, 100.0);
    node.put(VDB, 7.0);
    node.forecast(VDA, &[0.0, 100.0, 0.0, 4.0, 140.0, 4.0]);
    node
}

/// Value, error, quality, time in s after the start, age in s.
fn shown(value: &LatestValue) -> Option<(f64, f32, &'static str, f64, f64)> {
    let sample = value.sample.as_ref()?;
    let seconds = |ns: i64| ns as f64 / NS_PER_S as f64;
    let (ts, age) = (seconds(sample.ts - START_NS), seconds(value.age_ns));
    let number = sample.value.as_f64().unwrap_or(f64::NAN);
    Some((number, sample.error, sample.quality.as_str(), ts, age))
}

#[test]
fn what_is_forecast_is_predicted_and_what_is_not_is_measured() {
    let node = node();
    let observer = node.observer();
    let mut held = observer.stream(&selector(VDA)).unwrap();
    let other = Some((7.0, 0.0, "measured", 0.0));
    for (advance_ns, expect) in [
        // At the very time of a look nothing is predicted.
        (0, (100.0, 0.0, "measured", 0.0, 0.0)),
        (NS_PER_S / 2, (105.0, 0.5, "predicted", 0.5, 0.5)),
        (NS_PER_S / 2, (110.0, 1.0, "predicted", 1.0, 1.0)),
        (3 * NS_PER_S, (140.0, 4.0, "predicted", 4.0, 4.0)),
        // No forecast reaches that time.
        (1, (100.0, 0.0, "measured", 0.0, 4.000_000_001)),
    ] {
        node.clock.advance(advance_ns);
        let found = observer.latest_predicted(&selector("disk.*"));
        assert_eq!(shown(&found[0]), Some(expect));
        let rest =
            shown(&found[1]).map(|(value, error, quality, ts, _)| (value, error, quality, ts));
        assert_eq!(rest, other);
        assert_eq!(held.latest_predicted().as_ref(), Some(&found[0]));
        // A caller that does not ask for predictions does not get them.
        let measured = observer.latest(&selector(VDA));
        assert_eq!(
            shown(&measured[0]).map(|m| (m.0, m.2)),
            Some((100.0, "measured"))
        );
    }
    let empty = observer.latest_predicted(&selector(MEMORY));
    assert_eq!(empty[0].sample, None);
}

#[test]
fn what_holds_is_said_anew_at_each_look() {
    let mut node = node();
    let observer = node.observer();
    // The same projection as before: nothing is appended, but it is of now.
    node.clock.advance(3 * NS_PER_S);
    node.put(VDA, 100.0);
    node.forecast(VDA, &[0.0, 100.0, 0.0, 4.0, 140.0, 4.0]);
    node.clock.advance(NS_PER_S);
    let found = observer.latest_predicted(&selector(VDA));
    assert_eq!(shown(&found[0]), Some((110.0, 1.0, "predicted", 4.0, 1.0)));
    let found = observer.expected(&selector("*"), Duration::from_secs(3));
    assert_eq!(found.len(), 1);
    assert_eq!(shown(&found[0]), Some((140.0, 4.0, "predicted", 7.0, 1.0)));
    assert_eq!(
        observer.expected(&selector("*"), Duration::from_secs(4)),
        []
    );
}

#[test]
fn handles_find_projections_that_come_later_and_anew() {
    let mut node = Node::with(&[MEMORY]);
    node.put(MEMORY, 1.0);
    let observer = node.observer();
    let mut held = observer.stream(&selector(MEMORY)).unwrap();
    node.clock.advance(NS_PER_S);
    let mut quality = |node: &Node| {
        let value = held.latest_predicted();
        let found = value.and_then(|value| Some(value.sample?.quality));
        assert_eq!(node.observer().latest_predicted(&selector(MEMORY)).len(), 1);
        found
    };
    assert_eq!(quality(&node), Some(Quality::Measured));
    node.forecast(MEMORY, &[0.0, 1.0, 0.0, 9.0, 1.0, 0.0]);
    assert_eq!(quality(&node), Some(Quality::Predicted));
    node.retire(&format!("forecast.{MEMORY}"));
    assert_eq!(quality(&node), Some(Quality::Measured));
    // A stream whose value is not a projection is ignored.
    node.add(&format!("forecast.{MEMORY}"), ValueType::Float);
    node.put(&format!("forecast.{MEMORY}"), 5.0);
    assert_eq!(quality(&node), Some(Quality::Measured));
    node.restart(&[MEMORY]);
    node.put(MEMORY, 1.0);
    node.forecast(MEMORY, &[0.0, 1.0, 0.0, 9.0, 1.0, 0.0]);
    node.clock.advance(NS_PER_S);
    assert_eq!(quality(&node), Some(Quality::Predicted));
}
