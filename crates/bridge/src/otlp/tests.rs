//! Tests of parsed requests, with the points as text.

use super::*;

const HEAD: &str = r#"{"resourceMetrics": [{"resource": {"attributes": [
    {"key": "service.name", "value": {"stringValue": "shop"}},
    {"key": "telemetry.sdk.name", "value": {"stringValue": "x"}},
    {"key": "process.command_args", "value": {"arrayValue": {"values": []}}},
    {"key": "rank", "value": {"intValue": "3"}}]},
    "scopeMetrics": [{"scope": {"name": "s"}, "metrics": ["#;

fn json(metric: &str) -> String {
    format!("{HEAD}{metric}]}}]}}]}}")
}

/// The parsed points as text, followed by refusals after `!`.
fn read(metric: &str) -> String {
    let parsed = read_otlp_json(json(metric).as_bytes()).unwrap();
    let points = parsed.points.iter().map(|point| {
        let (origin, about) = (&point.origin, &point.about);
        assert_eq!(origin.source.labels, [("rank".to_owned(), "3".to_owned())]);
        let tags: Vec<String> = origin
            .labels
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        let value = match &point.measured {
            PointValue::Value(value) => format!("{value:?}"),
            PointValue::Distribution(d) => format!("{:?}", d.counts),
        };
        let delta = if about.is_delta { "+" } else { "" };
        let (kind, unit) = (about.kind.as_str(), &about.unit);
        let (service, name, ts) = (&origin.source.name, &origin.name, point.ts);
        let ts = ts.map_or("now".into(), |ts| ts.to_string());
        format!(
            "{service}.{name}{{{}}} {delta}{kind} {value}{unit}@{ts}",
            tags.join(",")
        )
    });
    let refusals = parsed.refusals.iter();
    let refusals = refusals.map(|refusal| format!("!{} {}", refusal.place, refusal.reason));
    points.chain(refusals).collect::<Vec<_>>().join("; ")
}

#[test]
fn numbers() {
    let check = |metric: &str, expect: &str| assert_eq!(read(metric), expect, "{metric}");
    check(
        r#"{"name": "temp", "unit": "Cel", "gauge": {"dataPoints": [
            {"timeUnixNano": "17", "asDouble": 1.5, "attributes": [
                {"key": "room", "value": {"stringValue": "a"}}, {"key": "n", "value": {"intValue": 2}},
                {"key": "b", "value": {"boolValue": true}}, {"key": "none", "value": {}}]},
            {"timeUnixNano": 18, "asInt": "7"}]}}"#,
        "shop.temp{b=true,n=2,room=a} gauge Float(1.5)celsius@17; shop.temp{} gauge Float(7.0)celsius@18",
    );
    check(
        r#"{"name": "done", "unit": "{request}", "sum": {"isMonotonic": true, "aggregationTemporality": 2,
            "dataPoints": [{"asInt": "9007199254740993"}, {"asDouble": 0.5}]}}"#,
        "shop.done{} counter Int(9007199254740993)request@now; shop.done{} counter Float(0.5)request@now",
    );
    check(
        r#"{"name": "open", "sum": {"aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA",
            "dataPoints": [{"asInt": -3}]}}"#,
        "shop.open{} +gauge Float(-3.0)@now",
    );
}

#[test]
fn what_is_not_taken_says_why() {
    let check = |metric: &str, expect: &str| {
        let found = read(metric);
        assert!(found.contains(expect), "{metric}: {found}");
    };
    check(
        r#"{"name": "a", "sum": {"dataPoints": [{"asInt": 1}]}}"#,
        "!0 a: its temporality is not said",
    );
    check(
        r#"{"name": "a", "exponentialHistogram": {"dataPoints": [{"count": 1}, {}]}}"#,
        "!0 a: exponential histograms are not taken",
    );
    check(
        r#"{"name": "a", "gauge": {"dataPoints": [{"asDouble": "NaN"}, {}]}}"#,
        "!0 a: its value is no number; !1 a: its value is no number",
    );
    check(
        r#"{"name": "a", "gauge": {"dataPoints": [{"asInt": 1, "attributes": [
            {"key": "l", "value": {"arrayValue": {"values": [{"intValue": 1}]}}}]}]}}"#,
        "!0 a: the attribute \"l\" is a list",
    );
    check(
        r#"{"gauge": {"dataPoints": [{"asInt": 1}]}}"#,
        "!0 : a metric has no name",
    );
    check(
        r#"{"name": "a", "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"count": 1, "bucketCounts": ["1"], "explicitBounds": [1]}]}}"#,
        "!0 a: a histogram needs one bucket more than bounds",
    );
    assert_eq!(
        read(r#"{"name": "a", "gauge": {"dataPoints": [{"flags": 1}]}}"#),
        ""
    );
    for text in ["", "[1]", "{\"resourceMetrics\": 1}", "{"] {
        assert!(read_otlp_json(text.as_bytes()).is_err(), "{text}");
    }
    assert!(read_otlp_protobuf(&[0xff; 9]).is_err());
}

#[test]
fn histograms_and_summaries_are_families() {
    assert_eq!(
        read(
            r#"{"name": "h", "unit": "s", "histogram": {"aggregationTemporality": 1, "dataPoints": [
            {"timeUnixNano": 5, "count": "3", "sum": 2.5, "bucketCounts": ["1", 2], "explicitBounds": [1]}]}}"#
        ),
        "shop.h.count{} +counter Int(3)count@5; shop.h.sum{} +counter Float(2.5)seconds@5; \
         shop.h{} gauge [1, 2]seconds@5"
    );
    assert_eq!(
        read(
            r#"{"name": "q", "summary": {"dataPoints": [{"timeUnixNano": 5, "count": "3", "sum": 2.5,
            "quantileValues": [{"quantile": 0.5, "value": 1}, {"quantile": 0.999, "value": 2},
            {"quantile": 1, "value": "NaN"}]}]}}"#
        ),
        "shop.q.count{} counter Int(3)count@5; shop.q.sum{} counter Float(2.5)@5; \
         shop.q.p50{} gauge Float(1.0)@5; shop.q.p99_9{} gauge Float(2.0)@5"
    );
}

#[test]
fn protobuf_and_json_are_one() {
    let text = json(
        r#"{"name": "h", "unit": "s", "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"timeUnixNano": 5, "count": 3, "sum": 2.5, "min": 0.25, "bucketCounts": [1, 2], "explicitBounds": [1]}]}},
        {"name": "g", "gauge": {"dataPoints": [{"timeUnixNano": 5, "asInt": 1}]}}"#,
    );
    let request: ExportMetricsServiceRequest = serde_json::from_str(&text).unwrap();
    let by_json = read_otlp_json(text.as_bytes()).unwrap();
    let by_protobuf = read_otlp_protobuf(&request.encode_to_vec()).unwrap();
    assert_eq!(by_protobuf.points, by_json.points);
    assert_eq!(by_json.points.len(), 4);
}

#[test]
fn units_and_quantiles() {
    for (ucum, expect) in [
        ("By", "bytes"),
        ("By/s", "bytes/s"),
        ("ms", "ms"),
        ("1", "1"),
        ("{packet}/s", "packet/s"),
        ("", ""),
        (&"x".repeat(31), ""),
    ] {
        assert_eq!(unit(ucum), expect);
    }
    for (q, expect) in [
        (0.0, ".p0"),
        (0.5, ".p50"),
        (0.99, ".p99"),
        (0.999, ".p99_9"),
        (0.075, ".p7_5"),
        (1.0, ".p100"),
    ] {
        assert_eq!(quantile_name(q).unwrap(), expect);
    }
    assert!(quantile_name(1.5).is_err());
    assert!(quantile_name(f64::NAN).is_err());
}
