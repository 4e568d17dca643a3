//! Tests of the bounds of one PromQL query: points, regular expressions, brackets, labels.

use std::sync::atomic::AtomicBool;

use barograph_model::SqlFaultKind;
use barograph_server::promql::{FaultKind, Grid, PromFault, PromQuery, QueryContext};

use crate::fixture::{S, T0};
use crate::memory::MemoryPast;
use crate::promql::{add, ask, ask_within, past_of};

#[test]
fn a_query_holds_so_many_points_at_once() {
    let mut past = past_of("t.count", &[(0, 1.0)], 1, 1_000);
    let grid = Grid::between(T0, T0 + 999 * S, S);
    let check =
        |past: &MemoryPast, query: &str, part: &str| match ask_within(past, query, grid, |c| {
            c.points_max = 10_000
        }) {
            Ok(_) => assert_eq!(part, "", "{query}"),
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::Execution, "{fault}");
                assert!(!part.is_empty() && fault.message.contains(part), "{fault}");
            }
        };
    // Left-associative operands are dropped before the next one is read; right-associative ones all
    // wait.
    let gauge = "barograph_t_count";
    check(&past, &[gauge; 80].join(" * "), "");
    check(&past, &[gauge; 80].join(" ^ "), "10000");
    check(&past, &["1"; 80].join(" ^ "), "10000");
    check(&past, &["vector(1)"; 80].join(" ^ "), "10000");
    check(&past, &["vector(1)"; 80].join(" or "), "");
    check(&past, &format!("{0} + ({0} or {0})", "(1 + vector(1))"), "");
    // Partners with values at different times: every series of the many side is there once for each
    // of them.
    for device in 0..4 {
        let device = format!("{device}");
        let turn = [(i64::from(device.as_bytes()[0]) % 8 * 100, 1.0)];
        add(&mut past, "t.turn", &device, &turn, (0, 0));
        add(&mut past, "t.wide", &device, &[(0, 1.0)], (0, 0));
    }
    let joined = "barograph_t_wide * on(node) group_left(device) barograph_t_turn";
    check(&past, joined, "duplicate series");
    let joined = "label_replace(last_over_time(barograph_t_wide[1h]), \"d\", \"$1\", \"device\", \"(.)\") \
                  * on(node) group_left(device) last_over_time(barograph_t_turn[90s])";
    check(&past, joined, "10000");
}

#[test]
fn regular_expressions_within_bounds() {
    let check = |query: &str, part: &str| match PromQuery::parse(query) {
        Ok(_) => assert_eq!(part, "", "{query}"),
        Err(fault) => {
            assert_eq!(fault.kind, FaultKind::BadData, "{query}: {fault}");
            let is_meant = !part.is_empty() && fault.message.contains(part);
            assert!(is_meant, "{query}: {fault}");
        }
    };
    let selector = |count: usize, matcher: &str| format!("x{{{}}}", vec![matcher; count].join(","));
    check(&selector(20, r#"a=~"b.*""#), "");
    check(&selector(100, r#"a="b.*""#), "");
    check(&selector(21, r#"a=~"b.*""#), "more than 20");
    check(&selector(21, "a !~ # why\n\t`b`"), "more than 20");
    check(&[r#"x{a=~"b"}"#; 21].join(" + "), "more than 20");
    check(
        &selector(2, &format!("a=~'{}'", "b".repeat(2_100))),
        "4096 bytes",
    );
    // Each of these takes nearly all memory that the parser allows.
    check("x{a=~`(.{100}){100}`}", "too large");
    check(r#"x{a=~"\\w{140}"}"#, "too large");
    check(r#"x{a=~"[a-z]{140}"}"#, "");
    // These are valid only if braces stand for themselves.
    check(r#"x{a=~"{b}[a-z]{140}{}"}"#, "");
    check(r#"x{a=~"{b}\\w{140}"}"#, "too large");
    check(r#"x{a=~"("}"#, "illegal regex");
    let replaced = |count: usize, pattern: &str| {
        let after = format!(r#", "a", "$1", "b", "{pattern}")"#).repeat(count);
        format!("{}x{after}", "label_replace(".repeat(count))
    };
    check(&replaced(20, "b.*"), "");
    check(&replaced(21, "b.*"), "more than 20");
    check(&replaced(1, r"\\w{140}"), "too large");
}

#[test]
fn nothing_hides_from_the_count_of_brackets() {
    let nested = format!("{}1{}", "(".repeat(2_000), ")".repeat(2_000));
    for before in [
        "",
        "# a comment\r",
        "\"\\\"\" == ",
        "`\\`` == ",
        "`\\\\` == ",
    ] {
        let fault = PromQuery::parse(&format!("{before}{nested}")).unwrap_err();
        assert!(
            fault.message.contains("more than 1000"),
            "{before}: {fault}"
        );
    }
}

#[test]
fn an_escape_that_cuts_a_character_is_refused() {
    for (query, is_fine) in [
        ("x{a=\"\\é\"}", false),
        ("x{a=~'\\\u{a3bc}'}", false),
        ("{~\"u`\u{2}\\\u{a3bc}!>~\"}", false),
        ("x{a=\"é\\n\"}", true),
        ("x{a=`\\é`}", false),
        ("label_replace(x, 'a', '\\é', 'b', '')", false),
    ] {
        assert_eq!(PromQuery::parse(query).is_ok(), is_fine, "{query}");
    }
}

#[test]
fn labels_do_not_grow_for_ever() {
    let past = past_of("t.count", &[(0, 1.0)], 1, 10);
    let mut query = "barograph_t_count".to_owned();
    for _ in 0..60 {
        query = format!(r#"label_join({query}, "device", "", "device", "device")"#);
    }
    let fault = ask(&past, &query, 5).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Execution);
    assert!(
        fault.message.contains("device would have 8192 bytes"),
        "{fault}"
    );
    let mut query = "barograph_t_count".to_owned();
    for at in 0..90 {
        let long = "v".repeat(90);
        query = format!(r#"label_join({query}, "l{at}", "{long}", "none", "none")"#);
    }
    let fault = ask_within(&past, &query, Grid::instant(T0), |c| c.points_max = 500).unwrap_err();
    assert!(fault.message.contains("500"), "{fault}");
}

#[test]
fn bounds() {
    let past = past_of("t.count", &[(0, 1.0)], 1, 11_000);
    let grid = Grid::between(T0, T0 + 10_999 * S, S);
    let check = |query: &str, change: fn(&mut QueryContext<'_>), kind: FaultKind, part: &str| {
        let fault = ask_within(&past, query, grid, change).unwrap_err();
        assert_eq!(fault.kind, kind, "{fault}");
        assert!(fault.message.contains(part), "{fault}");
    };
    let gauge = "barograph_t_count";
    check(
        gauge,
        |c| c.points_max = 10_999,
        FaultKind::Execution,
        "points",
    );
    check(
        gauge,
        |c| c.until_ns = i64::MIN,
        FaultKind::Timeout,
        "timed out",
    );
    check(gauge, |c| c.samples_max = 0, FaultKind::Execution, "");
    let window = "rate(barograph_t_count[1h])";
    check(
        window,
        |c| c.samples_max = 3_599,
        FaultKind::Execution,
        "in one range",
    );
    assert!(ask_within(&past, window, grid, |c| c.samples_max = 3_600).is_ok());
    static GONE: AtomicBool = AtomicBool::new(true);
    check(gauge, |c| c.cancel = &GONE, FaultKind::Canceled, "");
    assert_eq!(
        PromFault::from(barograph_model::SqlFault {
            kind: SqlFaultKind::Busy,
            message: String::new()
        })
        .kind,
        FaultKind::Unavailable
    );
}
