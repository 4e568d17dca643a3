//! Tests of PromQL over constructed samples; expected values were computed by hand.

use std::sync::atomic::AtomicBool;

use barograph_model::{Clock as _, ManualClock, Value, ValueType};
use barograph_server::promql::{FaultKind, Grid, PromFault, PromQuery, QueryAnswer, QueryContext};

use crate::fixture::{S, T0, descriptor};
use crate::memory::MemoryPast;

/// Seconds from `T0`, and values.
pub(crate) type Samples<'a> = &'a [(i64, f64)];

/// One series `t.count{device="a"}`, a gauge, or `t.bytes`, a counter.
pub(crate) fn past_of(
    name: &str,
    samples: Samples<'_>,
    interval_s: i64,
    looked_s: i64,
) -> MemoryPast {
    let mut past = MemoryPast::default();
    add(&mut past, name, "a", samples, (interval_s, looked_s));
    past
}

pub(crate) fn add(
    past: &mut MemoryPast,
    name: &str,
    device: &str,
    samples: Samples<'_>,
    (interval_s, looked_s): (i64, i64),
) {
    let samples = samples.iter().map(|(s, v)| (T0 + s * S, Value::Float(*v)));
    let descriptor = descriptor(name, device, ValueType::Float);
    past.add(&descriptor, samples, interval_s * S, T0 + looked_s * S);
}

pub(crate) fn ask_within(
    past: &MemoryPast,
    query: &str,
    grid: Grid,
    change: impl FnOnce(&mut QueryContext<'_>),
) -> Result<QueryAnswer, PromFault> {
    let (clock, cancel) = (ManualClock::at(T0), AtomicBool::new(false));
    let mut context = QueryContext {
        holds: &barograph_model::unbounded,
        past,
        clock: &clock,
        cancel: &cancel,
        samples_max: 100_000,
        points_max: 100_000,
        until_ns: clock.monotonic_ns() + S,
    };
    change(&mut context);
    PromQuery::parse(query)?.answer(&context, grid)
}

pub(crate) fn ask(past: &MemoryPast, query: &str, at_s: i64) -> Result<QueryAnswer, PromFault> {
    ask_within(past, query, Grid::instant(T0 + at_s * S), |_| {})
}

/// An answer as lines `labels value` or `range labels ts:value…`, or the error.
fn show(answer: Result<QueryAnswer, PromFault>) -> String {
    let lines: Vec<String> = match answer {
        Err(fault) => vec![format!("{:?}: {fault}", fault.kind)],
        Ok(QueryAnswer::Text(text)) => vec![format!("{text:?}")],
        Ok(QueryAnswer::Scalar(values)) => values.iter().map(f64::to_string).collect(),
        Ok(QueryAnswer::Vector(series)) => series
            .iter()
            .map(|s| {
                let points = s
                    .points
                    .iter()
                    .map(|p| p.map_or("-".into(), |v| v.to_string()));
                format!("{} {}", s.labels, points.collect::<Vec<_>>().join(" "))
            })
            .collect(),
        Ok(QueryAnswer::Matrix(series)) => series
            .iter()
            .map(|(labels, samples)| {
                let samples = samples
                    .iter()
                    .map(|(ts, v)| format!("{}:{v}", (ts - T0) / S));
                format!("{labels} {}", samples.collect::<Vec<_>>().join(" "))
            })
            .collect(),
    };
    lines.join("\n")
}

#[track_caller]
fn check(past: &MemoryPast, query: &str, at_s: i64, expect: &str) {
    assert_eq!(show(ask(past, query, at_s)), expect, "{query} at {at_s}");
}

/// Checks the only value, which has no label except the device.
#[track_caller]
fn check_value(past: &MemoryPast, query: &str, at_s: i64, expect: f64) {
    let answer = show(ask(past, query, at_s));
    let value = answer
        .strip_prefix(r#"{device="a", node="n1"} "#)
        .unwrap_or(&answer);
    let found: f64 = value
        .parse()
        .unwrap_or_else(|_| panic!("{query}: {answer}"));
    let is_near = found == expect || (found - expect).abs() <= 1e-12 * expect.abs();
    assert!(
        is_near || found.is_nan() && expect.is_nan(),
        "{query}: {found}, not {expect}"
    );
}

#[test]
fn functions_of_ranges() {
    // Without an interval only samples count.
    let samples = [(10, 4.0), (20, 8.0), (30, 2.0), (40, 2.0), (50, 6.0)];
    let past = past_of("t.count", &samples, 0, 0);
    let check = |function: &str, expect: f64| {
        let query = format!("{function}(barograph_t_count[1m])");
        check_value(&past, &query, 60, expect);
    };
    check("avg_over_time", 4.4);
    check("sum_over_time", 22.0);
    check("min_over_time", 2.0);
    check("max_over_time", 8.0);
    check("count_over_time", 5.0);
    check("present_over_time", 1.0);
    check("stdvar_over_time", 5.44);
    check("stddev_over_time", 5.44f64.sqrt());
    check("changes", 3.0);
    check("resets", 1.0);
    check("idelta", 4.0);
    check("irate", 0.4);
    // The edges are 10 s before the first and after the last look, less than 1.1 intervals, so the
    // growth is extrapolated to both.
    check("delta", 2.0 * 60.0 / 40.0);
    // The counter was reset at 8: it grew by 10 in 40 s, extrapolated to 60 s. With 4 at the first
    // look it was 0 only 16 s before, so zero is no limit.
    check("increase", 10.0 * 60.0 / 40.0);
    check("rate", 10.0 / 40.0);
    // Least squares: mean of x 20, mean of y 4.4; sum of products -20, of squares 1000.
    check("deriv", -20.0 / 1000.0);
    check_value(
        &past,
        "predict_linear(barograph_t_count[1m], 40)",
        60,
        4.4 - 0.02 * 70.0,
    );
    check_value(
        &past,
        "quantile_over_time(0.5, barograph_t_count[1m])",
        60,
        4.0,
    );
    check_value(
        &past,
        "quantile_over_time(0.9, barograph_t_count[1m])",
        60,
        6.0 * 0.4 + 8.0 * 0.6,
    );
    check_value(
        &past,
        "quantile_over_time(-1, barograph_t_count[1m])",
        60,
        f64::NEG_INFINITY,
    );
    check_value(
        &past,
        "quantile_over_time(2, barograph_t_count[1m])",
        60,
        f64::INFINITY,
    );
}

#[test]
fn rates_reach_to_the_edges_of_the_range_but_not_below_zero() {
    let check = |samples: Samples<'_>, query: &str, at_s: i64, expect: f64| {
        check_value(&past_of("t.count", samples, 0, 0), query, at_s, expect);
    };
    let increase = "increase(barograph_t_count[60s])";
    // Both edges are further than 1.1 intervals away: half an interval is added at each.
    check(&[(20, 100.0), (30, 110.0), (40, 120.0)], increase, 60, 30.0);
    // It grew from 1 to 11 within 10 s: it was 0 one second before.
    check(
        &[(10, 1.0), (20, 11.0)],
        increase,
        60,
        10.0 * (10.0 + 1.0 + 5.0) / 10.0,
    );
    // delta() does not stop at zero.
    check(
        &[(10, 1.0), (20, 11.0)],
        "delta(barograph_t_count[60s])",
        60,
        10.0 * 25.0 / 10.0,
    );
    // A sample at the left edge is outside, one at the right edge inside.
    check(
        &[(0, 0.0), (30, 30.0), (60, 90.0)],
        increase,
        60,
        60.0 * (30.0 + 15.0) / 30.0,
    );
}

#[test]
fn a_value_that_did_not_change_was_there_at_every_look() {
    // Looked at every 10 s, sampled when it changed, last looked at after 200 s.
    let past = past_of("t.bytes", &[(0, 50.0), (95, 80.0)], 10, 200);
    let samples = |range: &str, at_s, expect: &str| {
        let query = format!("barograph_t_bytes_total{range}");
        let answer = show(ask(&past, &query, at_s));
        let labels = r#"{__name__="barograph_t_bytes_total", device="a", node="n1"} "#;
        assert_eq!(
            answer.strip_prefix(labels).unwrap_or(&answer),
            expect,
            "{query} at {at_s}"
        );
    };
    samples("[30s]", 60, "40:50 50:50 60:50");
    // The look at 90 and the sample at 95 are two looks; half an interval decides.
    samples("[40s]", 110, "80:50 95:80 105:80");
    samples("[30s]", 205, "185:80 195:80");
    samples("[30s]", 240, "");
    check_value(&past, "rate(barograph_t_bytes_total[1m])", 60, 0.0);
    check_value(&past, "rate(barograph_t_bytes_total[1m])", 180, 0.0);
    check_value(
        &past,
        "avg_over_time(barograph_t_bytes_total[40s])",
        110,
        (50.0 + 160.0) / 3.0,
    );
    check_value(
        &past,
        "count_over_time(barograph_t_bytes_total[1m])",
        60,
        6.0,
    );
    // Instant selectors reach five minutes beyond the last look, and no further.
    check_value(&past, "barograph_t_bytes_total * 1", 499, 80.0);
    check(&past, "barograph_t_bytes_total", 500, "");
    check_value(
        &past,
        "timestamp(barograph_t_bytes_total)",
        44,
        (T0 / S + 40) as f64,
    );
    check_value(
        &past,
        "timestamp(barograph_t_bytes_total)",
        400,
        (T0 / S + 195) as f64,
    );
    // After a silence longer than the look-back the value is not known to be the same.
    let silent = past_of("t.bytes", &[(0, 50.0), (1_000, 50.0)], 10, 1_000);
    check(
        &silent,
        "barograph_t_bytes_total",
        299,
        &show(ask(&silent, "barograph_t_bytes_total", 1_000)),
    );
    check(&silent, "barograph_t_bytes_total", 300, "");
    check(&silent, "rate(barograph_t_bytes_total[1m])", 120, "");
    // With rare looks, three intervals count instead of five minutes.
    let rare = past_of("t.bytes", &[(0, 1.0)], 600, 0);
    check_value(&rare, "barograph_t_bytes_total + 0", 1_799, 1.0);
    check(&rare, "barograph_t_bytes_total", 1_800, "");
}

#[test]
fn where_nobody_looks_there_is_no_value() {
    // However short the gap was.
    let mut missed = past_of("t.bytes", &[(0, 50.0), (20, 50.0), (100, 50.0)], 10, 120);
    missed.last_look(1);
    for (at, expect) in [
        (0, "50"),
        (19, "50"),
        (20, "50"),
        (21, ""),
        (99, ""),
        (100, "50"),
        (125, "50"),
    ] {
        let expect = match expect {
            "" => String::new(),
            value => format!("{{}} {value}"),
        };
        check(&missed, "sum(barograph_t_bytes_total)", at, &expect);
    }
    // A stream that has ended is gone after its last sample; sums do not count it any longer.
    let mut ended = past_of("t.bytes", &[(0, 50.0), (40, 50.0)], 10, 40);
    ended.end();
    check_value(&ended, "barograph_t_bytes_total + 0", 39, 50.0);
    check_value(&ended, "barograph_t_bytes_total + 0", 40, 50.0);
    check(&ended, "barograph_t_bytes_total", 41, "");
    add(&mut ended, "t.bytes", "b", &[(30, 7.0)], (10, 60));
    check(&ended, "sum(barograph_t_bytes_total)", 35, "{} 57");
    check(&ended, "sum(barograph_t_bytes_total)", 50, "{} 7");
}

#[test]
fn texts_are_labels_that_take_turns() {
    let mut past = MemoryPast::default();
    let texts = [(0, "clean"), (30, "degraded"), (60, "clean")];
    let samples = texts.map(|(s, text)| (T0 + s * S, Value::text(text)));
    let state = descriptor("t.state", "md0", ValueType::Text);
    past.add(&state, samples, 10 * S, T0 + 80 * S);
    let series = |text: &str, value: &str| {
        format!(
            r#"{{__name__="barograph_t_state_info", device="md0", node="n1", value="{text}"}} {value}"#
        )
    };
    for (at_s, text) in [
        (29, "clean"),
        (30, "degraded"),
        (59, "degraded"),
        (61, "clean"),
    ] {
        check(&past, "barograph_t_state_info", at_s, &series(text, "1"));
    }
    check(&past, r#"barograph_t_state_info{value="clean"}"#, 40, "");
    check(&past, r#"{value="degraded"}"#, 40, &series("degraded", "1"));
    let looks = show(ask(&past, "barograph_t_state_info[2m]", 80));
    assert_eq!(
        looks,
        [
            series("clean", "0:1 10:1 20:1 60:1 70:1 80:1"),
            series("degraded", "30:1 40:1 50:1")
        ]
        .join("\n")
    );
}

/// Two devices of a gauge, with a counter beside them.
fn machines() -> MemoryPast {
    let mut past = MemoryPast::default();
    add(&mut past, "t.count", "a", &[(0, 3.0)], (0, 0));
    add(&mut past, "t.count", "b", &[(0, -1.5)], (0, 0));
    add(&mut past, "u.count", "a", &[(0, 10.0)], (0, 0));
    add(&mut past, "u.count", "c", &[(0, 20.0)], (0, 0));
    past
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of questions")]
fn operators_and_functions() {
    let past = machines();
    let check = |query: &str, expect: &str| {
        let expect = expect
            .replace("t{", r#"{__name__="barograph_t_count", "#)
            .replace("u{", r#"{__name__="barograph_u_count", "#)
            .replace('\'', "\"")
            .replace("|", r#", node="n1""#);
        check(
            &past,
            &query
                .replace("t{", "barograph_t_count{")
                .replace("u{", "barograph_u_count{"),
            10,
            &expect,
        );
    };
    check("1 + 2 * 3 ^ 2 % 4", "3");
    check("-2 ^ 2", "-4");
    check("1 > bool 2", "0");
    check("'text'", "'text'");
    check("t{}", "t{device='a'|} 3\nt{device='b'|} -1.5");
    check("t{} > 0", "t{device='a'|} 3");
    check("0 < t{}", "t{device='a'|} 3");
    check("t{} > bool 0", "{device='a'|} 1\n{device='b'|} 0");
    check("-t{}", "{device='a'|} -3\n{device='b'|} 1.5");
    check("t{} + u{}", "{device='a'|} 13");
    check("u{} > t{}", "u{device='a'|} 10");
    check("t{} and u{}", "t{device='a'|} 3");
    check("t{} unless u{}", "t{device='b'|} -1.5");
    check(
        "t{} or u{}",
        "t{device='a'|} 3\nt{device='b'|} -1.5\nu{device='c'|} 20",
    );
    check("sum(t{}) by (node)", "{node='n1'} 1.5");
    check("max(t{}) without (device)", "{node='n1'} 3");
    check(
        "count({__name__=~'barograph_(t|u)_count'}) by (__name__)",
        "{__name__='barograph_t_count'} 2\n{__name__='barograph_u_count'} 2",
    );
    check("avg(u{})", "{} 15");
    check("min(t{})", "{} -1.5");
    check("group(t{})", "{} 1");
    check("stddev(u{})", "{} 5");
    check("stdvar(u{})", "{} 25");
    check("quantile(0.25, u{})", "{} 12.5");
    check("topk(1, u{})", "u{device='c'|} 20");
    check("topk(5, t{})", "t{device='a'|} 3\nt{device='b'|} -1.5");
    check("bottomk(1, u{}) by (node)", "u{device='a'|} 10");
    check("topk(0, u{})", "");
    check(
        "t{} / on(node) group_left() sum(u{}) by (node)",
        "{device='a'|} 0.1\n{device='b'|} -0.05",
    );
    check(
        "sum(u{}) by (node) * ignoring(device) group_right() t{}",
        "{device='a'|} 90\n{device='b'|} -45",
    );
    check(
        "abs(t{device='b'})".replace('\'', "\"").as_str(),
        "{device='b'|} 1.5",
    );
    check("ceil(t{})", "{device='a'|} 3\n{device='b'|} -1");
    check("floor(t{})", "{device='a'|} 3\n{device='b'|} -2");
    check("round(t{})", "{device='a'|} 3\n{device='b'|} -1");
    check("round(t{}, 2)", "{device='a'|} 4\n{device='b'|} -2");
    check("clamp(t{}, 0, 1)", "{device='a'|} 1\n{device='b'|} 0");
    check("clamp(t{}, 1, 0)", "");
    check("clamp_min(t{}, 0)", "{device='a'|} 3\n{device='b'|} 0");
    check("clamp_max(t{}, 0)", "{device='a'|} 0\n{device='b'|} -1.5");
    check("sgn(t{})", "{device='a'|} 1\n{device='b'|} -1");
    check("sqrt(vector(16))", "{} 4");
    check("exp(vector(0))", "{} 1");
    check(
        "ln(vector(1)) + log2(vector(8)) + log10(vector(1000))",
        "{} 6",
    );
    check("scalar(t{})", "NaN");
    check("time()", "1700000010");
    check("hour() * 100 + minute()", "{} 2213");
    check("year(vector(0))", "{} 1970");
    check("sort(t{})", "t{device='b'|} -1.5\nt{device='a'|} 3");
    check("sort_desc(u{})", "u{device='c'|} 20\nu{device='a'|} 10");
    check("absent(t{})", "");
    check("absent(t{device=\"x\"})", "{device='x'} 1");
    check("absent_over_time(t{device=\"x\"}[5m])", "{device='x'} 1");
    check(
        "label_replace(t{device=\"a\"}, \"disk\", \"x-$1\", \"device\", \"(.*)\")",
        "t{device='a', disk='x-a'|} 3",
    );
    check(
        "label_replace(t{device=\"a\"}, \"disk\", \"x\", \"device\", \"b\")",
        "t{device='a'|} 3",
    );
    check(
        "label_join(t{device=\"a\"}, \"both\", \"/\", \"device\", \"node\")",
        "{__name__='barograph_t_count', both='a/n1', device='a'|} 3",
    );
    check("t{} offset -5s", "t{device='a'|} 3\nt{device='b'|} -1.5");
    check("t{} offset 11s", "");
    check("t{} @ 1699999999", "");
    check("t{} @ end()", "t{device='a'|} 3\nt{device='b'|} -1.5");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of questions")]
fn what_is_refused_and_how() {
    let past = machines();
    let check = |query: &str, kind: FaultKind, part: &str| {
        let fault = ask(&past, query, 10).unwrap_err();
        assert_eq!(fault.kind, kind, "{query}: {fault}");
        assert!(fault.message.contains(part), "{query}: {fault}");
    };
    let bad = FaultKind::BadData;
    for wrong in [
        "", "(", "t{", "1 +", "rate(t)", "sum(", "{}", "a{b='c}", "foo[5m", "1 > 2",
    ] {
        check(wrong, bad, "");
    }
    for long in [
        "a[1e30]",
        "a offset 1e30",
        "a offset -1e30",
        "a OFFSET # c\n 1e30+1",
        "a[5m:1e30]",
        "a offset inf",
    ] {
        check(long, bad, "too long");
    }
    check(
        "max_over_time(barograph_t_count[5m:1m])",
        bad,
        "subqueries are not supported",
    );
    check(
        "histogram_quantile(0.9, barograph_t_count)",
        bad,
        "no histograms",
    );
    check(
        "count_values(\"v\", barograph_t_count)",
        bad,
        "not supported",
    );
    check(
        "double_exponential_smoothing(barograph_t_count[5m], 0.5, 0.5)",
        bad,
        "not supported",
    );
    check("{a=\"b\" or c=\"d\"}", bad, "or");
    check(&"(".repeat(900), bad, "");
    check(
        &format!("{}1{}", "(".repeat(200), ")".repeat(200)),
        bad,
        "nested deeper",
    );
    check(&format!("1{}", "+1".repeat(200)), bad, "nested deeper");
    check(&format!("1{}", "+1".repeat(2_000)), bad, "operators");
    check(&format!("1{}", " ".repeat(20_000)), bad, "bytes");
    let execution = FaultKind::Execution;
    check(
        "abs({__name__=~\"barograph_.*\"})",
        execution,
        "same labelset",
    );
    check(
        "barograph_t_count + on(node) barograph_u_count",
        execution,
        "many-to-many",
    );
    check(
        "barograph_t_count + on(node) sum(barograph_u_count) by (node)",
        execution,
        "group_left",
    );
    check(
        "barograph_t_count * on(node) group_left(device) sum(barograph_u_count) by (node)",
        execution,
        "grouping labels",
    );
}

#[test]
fn a_sliding_window_sees_what_each_window_alone_sees() {
    let mut past = MemoryPast::default();
    let mut value = 1u64;
    let samples: Vec<(i64, f64)> = (0..400)
        .map(|i| {
            value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (i * 7 + (value >> 61) as i64, (value >> 60) as f64)
        })
        .collect();
    add(&mut past, "t.count", "a", &samples, (3, 3_000));
    for (range, step_s) in [("1m", 7), ("10s", 10), ("10s", 45), ("5m", 1)] {
        for function in ["sum_over_time", "rate", "last_over_time", "count_over_time"] {
            let query = format!("{function}(barograph_t_count[{range}])");
            let grid = Grid::between(T0 - 100 * S, T0 + 2_900 * S, step_s * S);
            let Ok(QueryAnswer::Vector(all)) = ask_within(&past, &query, grid, |_| {}) else {
                panic!("{query}");
            };
            for (step, at) in grid.times().enumerate() {
                let alone = ask_within(&past, &query, Grid::instant(at), |_| {}).unwrap();
                let QueryAnswer::Vector(alone) = alone else {
                    panic!("{query}")
                };
                let alone = alone.first().and_then(|s| s.points[0]);
                assert_eq!(all[0].points[step], alone, "{query} at {step}");
            }
        }
    }
}
