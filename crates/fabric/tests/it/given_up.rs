//! Tests that what feeds give up is counted for each subscriber, and that the counts outlive the
//! feeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_fabric::frame::{
    FeedReach, FrameHeader, FrameKind, Position, Subscription, empty_frame,
};
use barograph_fabric::{
    EndedList, EndedQuery, EndedSeries, LifePoint, PastGap, PastReading, PastRun, PastSamples,
    PastSource, Publisher,
};
use barograph_model::{NS_PER_S, Sample};
use barograph_stream::{Segment, SubscribersRow};

use super::bounds::{START_NS, header, owner, subscribe, subscription};
use super::feeds::descriptor;

/// Life of the series that have ended before the feed.
const LIFE_NS: i64 = START_NS - 100 * NS_PER_S;

/// An archive with some series that have ended, each with one sample.
#[derive(Debug, Default)]
struct EndedArchive {
    series: usize,
    unlisted: u64,
    /// Whether searches, and readings of samples, never end.
    search_hangs: AtomicBool,
    reading_hangs: AtomicBool,
}

/// Result of a reading; `None` if it never comes.
#[derive(Debug)]
struct Found<T>(Option<T>);

impl<T: std::fmt::Debug + Send> PastReading<T> for Found<T> {
    fn take(&mut self) -> Option<T> {
        self.0.take()
    }
}

impl PastSource for EndedArchive {
    fn read(&self, gaps: Vec<PastGap>) -> Option<Box<dyn PastReading<PastSamples>>> {
        let run = |(gap, one): (usize, &PastGap)| {
            (one.after.number == 0).then(|| PastRun {
                gap,
                life_ns: LIFE_NS,
                first: 1,
                samples: vec![Sample::measured(LIFE_NS, 7i64)],
            })
        };
        let found = PastSamples {
            looked: gaps.len(),
            runs: gaps.iter().enumerate().filter_map(run).collect(),
            failed: Vec::new(),
        };
        let is_there = !self.reading_hangs.load(Ordering::Relaxed);
        Some(Box::new(Found(is_there.then_some(found))))
    }

    fn list(&self, _: EndedQuery) -> Option<Box<dyn PastReading<EndedList>>> {
        let ended = |i: usize| {
            let descriptor = Arc::new(descriptor(3 * i));
            let at = |number| LifePoint {
                life_ns: LIFE_NS,
                number,
            };
            EndedSeries {
                gap: PastGap {
                    series: descriptor.series_id(),
                    after: at(0),
                    after_ns: None,
                    before: at(u64::MAX),
                },
                descriptor,
            }
        };
        let list = EndedList {
            series: (0..self.series).map(ended).collect(),
            unlisted: self.unlisted,
            is_failed: false,
        };
        let is_there = !self.search_hangs.load(Ordering::Relaxed);
        Some(Box::new(Found(is_there.then_some(list))))
    }
}

/// A subscription of a node that keeps history, and that knows the first streams of the owner.
fn of_history(segment: &Segment, known: usize, streams_max: u64) -> Subscription {
    let entries = segment.reader().unwrap().directory().entries;
    let positions = entries.iter().take(known).map(|entry| Position {
        series: entry.series,
        life_ns: entry.created_ns,
        number: 0,
    });
    Subscription {
        positions: positions.collect(),
        reach: FeedReach::Archive,
        scope: "".into(),
        newest_life_ns: LIFE_NS - NS_PER_S,
        ..subscription(1 << 16, streams_max)
    }
}

/// Serves a subscriber that takes everything for so many seconds.
fn serve(publisher: &mut Publisher, node: &str, seconds: i64) {
    for step in 0..10 * seconds {
        let now_ns = START_NS + step * NS_PER_S / 10;
        while let Some((to, frame)) = publisher.due(now_ns) {
            assert_eq!(&*to, node);
            let (sent, _) = FrameHeader::read(&frame).unwrap();
            let taken = empty_frame(&header(FrameKind::Acknowledge, sent.feed, sent.number));
            publisher.receive(&to, &taken, now_ns).unwrap();
        }
    }
}

fn row(publisher: &Publisher) -> SubscribersRow {
    let mut rows = publisher.sent_to();
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

fn unsubscribe(publisher: &mut Publisher, feed: u64) {
    let end = empty_frame(&header(FrameKind::Unsubscribe, feed, 0));
    assert!(publisher.receive(&"b".into(), &end, START_NS).unwrap());
}

#[test]
fn streams_without_room_are_those_of_the_present_feed_and_the_most_at_a_time() {
    let (_dir, _segment, _writers, mut publisher) = owner(20);
    let unsent = |publisher: &Publisher| {
        let row = row(publisher);
        (row.state, row.unsent_streams, row.unsent_streams_max)
    };
    subscribe(&mut publisher, "b", 1, &subscription(1 << 16, 8));
    serve(&mut publisher, "b", 1);
    assert_eq!(unsent(&publisher), ("subscribed".into(), 12, 12));
    // A feed that ends at a hole, and the next one, are not counted twice.
    subscribe(&mut publisher, "b", 2, &subscription(1 << 16, 8));
    serve(&mut publisher, "b", 1);
    assert_eq!(unsent(&publisher), ("subscribed".into(), 12, 12));
    subscribe(&mut publisher, "b", 3, &subscription(1 << 16, 64));
    serve(&mut publisher, "b", 1);
    assert_eq!(unsent(&publisher), ("subscribed".into(), 0, 12));
    unsubscribe(&mut publisher, 3);
    assert_eq!(unsent(&publisher), ("gone".into(), 0, 12));
    assert_eq!(publisher.counts().unsent_streams_max, 12);
}

/// Serves a subscriber that lacks ended lives for 70 s, in two feeds, and returns its row.
fn given_up(archive: EndedArchive, known: usize, streams_max: u64) -> SubscribersRow {
    let (_dir, segment, _writers, mut publisher) = owner(4);
    publisher.read_past_from(Arc::new(archive));
    let wanted = of_history(&segment, known, streams_max);
    subscribe(&mut publisher, "b", 1, &wanted);
    serve(&mut publisher, "b", 70);
    unsubscribe(&mut publisher, 1);
    subscribe(&mut publisher, "b", 2, &wanted);
    row(&publisher)
}

#[test]
fn what_is_given_up_of_ended_lives_is_counted_by_its_reason() {
    let check = |archive: EndedArchive, (known, streams_max), expect: (u64, u64, u64)| {
        let shown = format!("{archive:?}");
        let row = given_up(archive, known, streams_max);
        let counted = (row.ended_unsent, row.ended_unread, row.searches_failed);
        assert_eq!(counted, expect, "{shown}");
        row
    };
    let with = |series| EndedArchive {
        series,
        ..EndedArchive::default()
    };
    let whole = check(with(3), (2, 64), (0, 0, 0));
    assert_eq!((whole.past, whole.lost), (3, 0));
    let unlisted = EndedArchive {
        unlisted: 9,
        ..with(3)
    };
    check(unlisted, (2, 64), (9, 0, 0));
    let hanging = EndedArchive {
        reading_hangs: true.into(),
        ..with(3)
    };
    check(hanging, (2, 64), (0, 3, 0));
    let unlistable = EndedArchive {
        search_hangs: true.into(),
        ..with(3)
    };
    check(unlistable, (2, 64), (0, 0, 1));
    // The subscriber has room for the streams that it knows, and none for ended ones.
    let row = check(with(3), (4, 4), (3, 0, 0));
    assert_eq!((row.past, row.lost), (0, 3), "each is read once");
}
