//! Tests of the place in a source: a history as a table of numbers, rings that lose events, agents
//! that are killed.

use std::sync::Arc;

use barograph_event::{EventKind, FileEvent};
use barograph_model::{Descriptor, Name, Unit, ValueType};

use super::super::position::EventMark;
use super::*;

fn life() -> Arc<Descriptor> {
    let name = Name::new("events").unwrap();
    Arc::new(Descriptor::gauge(
        name,
        ValueType::Bytes,
        Unit::new("1").unwrap(),
    ))
}

/// An event whose time is its number, in seconds.
fn event(index: u64) -> FileEvent {
    FileEvent::new(EventKind::Create, index, index as i64 * NS_PER_S)
}

fn mark(index: u64) -> EventMark {
    EventMark {
        index,
        ts: Some(event(index).ts),
    }
}

fn cursor(last: u64) -> SourceCursor {
    SourceCursor::after("s", Some(mark(last)), CursorStart::default())
}

/// The answer of a history that has these events.
fn answer(history: &[FileEvent], request: &HistoryRequest, page: usize) -> HistoryPage {
    let wanted = |event: &&FileEvent| {
        (request.from..request.until).contains(&event.index) && event.ts >= request.from_ns
    };
    let mut events: Vec<FileEvent> = history.iter().filter(wanted).cloned().collect();
    events.sort_by_key(|event| event.index);
    let top = history.iter().map(|event| event.index).max();
    let is_full = events.len() >= page;
    events.truncate(page);
    HistoryPage {
        events,
        is_full,
        top: top.or(Some(0)).filter(|_| request.wants_top),
    }
}

/// Catches up over a history that changes with time, in seconds; returns what was given, gaps as
/// `after..before:missing`, and the time that it took.
fn caught_up(cursor: &mut SourceCursor, history: impl Fn(i64) -> Vec<FileEvent>) -> (String, i64) {
    let mut told = Vec::new();
    let gap = |gap: EventGap| {
        let shown = |number: Option<u64>| number.map_or("?".to_owned(), |n| n.to_string());
        format!(
            "{}..{}:{}",
            gap.after,
            shown(gap.before),
            shown(gap.missing)
        )
    };
    let mut now_s = 0;
    for _ in 0..200 {
        let Some(request) = cursor.request() else {
            break;
        };
        let page = answer(&history(now_s), &request, 3);
        let caught = cursor.take(page, now_s * NS_PER_S);
        told.extend(caught.gap_before.map(gap));
        told.extend(caught.events.iter().map(|event| event.index.to_string()));
        told.extend(caught.gap_after.map(gap));
        match caught.then {
            CatchUpStep::Done => return (told.join(" "), now_s),
            CatchUpStep::Wait => now_s += 1,
            CatchUpStep::More => {}
        }
    }
    panic!("no end after {told:?}")
}

fn numbers(of: impl IntoIterator<Item = u64>) -> Vec<FileEvent> {
    of.into_iter().map(event).collect()
}

#[test]
fn a_ring_that_is_followed() {
    let (first, second) = (life(), life());
    let mut cursor = cursor(5);
    let mut check = |life: &Arc<Descriptor>, index: u64, lost: u64, expect: RingVerdict| {
        assert_eq!(cursor.judge(life, &event(index), lost), expect, "{index}");
        if expect == RingVerdict::Next {
            cursor.advance(&event(index));
        }
    };
    check(&first, 4, 0, RingVerdict::Known);
    check(&first, 5, 0, RingVerdict::Known);
    check(&first, 6, 0, RingVerdict::Next);
    // Sources may leave numbers out.
    check(&first, 9, 0, RingVerdict::Next);
    // It was recorded again.
    check(&first, 9, 0, RingVerdict::Known);
    check(&first, 10, 0, RingVerdict::Next);
    // Another life of the stream begins where the last one ended, or after events that are unseen.
    check(&second, 11, 0, RingVerdict::Next);
    check(&first, 13, 0, RingVerdict::Behind);
}

#[test]
fn what_a_ring_has_lost_is_read_and_what_nobody_has_is_told() {
    let check = |history: &dyn Fn(i64) -> Vec<FileEvent>, lost: u64, expect: (&str, i64)| {
        let mut cursor = cursor(4);
        let life = life();
        assert_eq!(cursor.judge(&life, &event(5), 0), RingVerdict::Next);
        cursor.advance(&event(5));
        assert_eq!(cursor.judge(&life, &event(12), lost), RingVerdict::Behind);
        let (told, seconds) = caught_up(&mut cursor, history);
        assert_eq!((told.as_str(), seconds), expect);
    };
    check(&|_| numbers(1..=12), 6, ("6 7 8 9 10 11", 0));
    // Numbers that were never given are no loss.
    check(&|_| numbers([5, 6, 8, 11]), 3, ("6 8 11", 0));
    // Events on their way to the log.
    let slow = |now: i64| numbers(if now < 3 { 1..=8 } else { 1..=12 });
    check(&slow, 6, ("6 7 8 9 10 11", 3));
    let holed = |now: i64| {
        numbers(if now < 3 {
            vec![6, 9, 10]
        } else {
            (1..12).collect()
        })
    };
    check(&holed, 6, ("6 7 8 9 10 11", 3));
    // The first part of the log is gone, or its end.
    check(&|_| numbers(9..=12), 6, ("9 10 11 11..12:3", 10));
    check(&|_| numbers(1..=8), 6, ("6 7 8 8..12:3", 10));
    check(&|_| Vec::new(), 6, ("5..12:6", 10));
}

#[test]
fn readers_go_on_where_they_were() {
    let check = |last: u64, history: &dyn Fn(i64) -> Vec<FileEvent>, expect: (&str, i64)| {
        let mut cursor = cursor(last);
        cursor.catch_up_from_history();
        let (told, seconds) = caught_up(&mut cursor, history);
        assert_eq!((told.as_str(), seconds), expect, "after {last}");
    };
    check(2, &|_| numbers(1..=9), ("3 4 5 6 7 8 9", 0));
    check(9, &|_| numbers(1..=9), ("", 0));
    check(0, &|_| numbers(1..=2), ("1 2", 0));
    // The last event was deleted, but nothing after it.
    check(2, &|_| numbers(3..=4), ("3 4", 0));
    // Events after it were deleted; all of them; and there is no history any more.
    check(2, &|_| numbers(5..=6), ("2..5:? 5 6", 5));
    check(2, &|_| Vec::new(), ("2..?:?", 5));
    // Numbers that were left out, and events that are late.
    check(2, &|_| numbers([2, 7, 9]), ("7 9", 5));
    let late = |now: i64| {
        numbers(if now < 2 {
            vec![2, 8]
        } else {
            (2..9).collect()
        })
    };
    check(2, &late, ("3 4 5 6 7 8", 2));
}

#[test]
fn times_that_go_back_hide_nothing() {
    let mut events = numbers(1..=6);
    events[3].ts = -100_000 * NS_PER_S;
    let mut cursor = cursor(2);
    cursor.catch_up_from_history();
    let (told, seconds) = caught_up(&mut cursor, |_| events.clone());
    assert_eq!((told.as_str(), seconds), ("3 4 5 6", 0));
}

#[test]
fn a_reader_that_begins_at_a_time() {
    let check = |since_s: i64, logged_s: i64, history: &[u64], expect: (&str, i64)| {
        let start = CursorStart {
            since_ns: Some(since_s * NS_PER_S),
            logged_ns: logged_s * NS_PER_S,
        };
        let mut cursor = SourceCursor::after("s", None, start);
        cursor.catch_up_from_history();
        let (told, seconds) = caught_up(&mut cursor, |_| numbers(history.iter().copied()));
        assert_eq!((told.as_str(), seconds), expect, "since {since_s}");
    };
    check(3, 100, &[1, 2, 3, 4, 5, 6, 7], ("3 4 5 6 7", 0));
    check(8, 100, &[1, 2, 3], ("", 0));
    // The first event is so new that earlier ones may be on their way.
    check(3, 1, &[3, 4], ("3 4", 5));
}

#[test]
fn numbers_that_a_killed_agent_had_given_to_other_events() {
    let other = |index: u64| FileEvent {
        ts: 1_000 * NS_PER_S,
        ..event(index)
    };
    // The reader sees the first of the other events in the new ring.
    let mut one = cursor(4);
    let (before, after) = (life(), life());
    for index in 5..=7 {
        assert_eq!(one.judge(&before, &event(index), 0), RingVerdict::Next);
        one.advance(&event(index));
    }
    assert_eq!(one.judge(&after, &event(5), 0), RingVerdict::Known);
    for index in 6..=8 {
        assert_eq!(one.judge(&after, &other(index), 0), RingVerdict::Next);
        one.advance(&other(index));
    }
    // The new ring has lost the first of them.
    let mut two = cursor(7);
    assert_eq!(two.judge(&before, &event(7), 0), RingVerdict::Known);
    assert_eq!(two.judge(&after, &other(9), 2), RingVerdict::Behind);
    let history = [numbers(1..=5), (6..=9).map(other).collect()].concat();
    let (told, _) = caught_up(&mut two, |_| history.clone());
    assert_eq!(told, "7..7:? 7 8");
}

#[test]
fn a_history_that_cannot_be_read_is_given_up_after_a_while_and_told() {
    let mut cursor = cursor(4);
    let life = life();
    assert_eq!(cursor.judge(&life, &event(4), 0), RingVerdict::Known);
    assert_eq!(cursor.judge(&life, &event(9), 4), RingVerdict::Behind);
    for second in 0..5 {
        let caught = cursor.cannot_read("no room", second * NS_PER_S);
        assert_eq!((caught.then, caught.gap_after), (CatchUpStep::Wait, None));
    }
    let caught = cursor.cannot_read("no room", 5 * NS_PER_S);
    let gap = caught.gap_after.unwrap();
    assert_eq!((gap.after, gap.before, gap.missing), (4, Some(9), Some(4)));
    assert!(gap.reason.contains("no room"), "{}", gap.reason);
    assert_eq!(caught.then, CatchUpStep::Done);
    assert_eq!(cursor.request(), None);
}

#[test]
fn what_a_ring_loses_beside_the_history_is_told() {
    // The reader has taken 6 and 7 from the history, which the ring had too.
    let check = |lost: u64, until: u64, expect: &str| {
        let (mut cursor, life) = (cursor(5), life());
        cursor.ring_is_at(&life, &event(5));
        cursor.catch_up_from_history();
        assert_eq!(caught_up(&mut cursor, |_| numbers(5..=7)).0, "6 7");
        assert_eq!(
            cursor.judge(&life, &event(until), lost),
            RingVerdict::Behind
        );
        assert_eq!(caught_up(&mut cursor, |_| numbers(5..=7)).0, expect);
    };
    check(4, 10, "7..10:2");
    // A number that no event had.
    check(3, 10, "7..10:1");
    // Nothing is known of the ring before: what it says it has lost is missing at least.
    let (mut unknown, life) = (cursor(7), life());
    assert_eq!(unknown.judge(&life, &event(12), 3), RingVerdict::Behind);
    assert_eq!(caught_up(&mut unknown, |_| numbers(1..=9)).0, "8 9 9..12:1");
}
