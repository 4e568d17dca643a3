//! Feeds for subscribers that keep history, without a network: streams that end, and an archive
//! that cannot be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_fabric::frame::FeedReach;
use barograph_fabric::{Subscriber, SubscriberConfig};
use barograph_model::NS_PER_S;
use barograph_stream::Incarnation;

use super::feeds::{DEPTH, Owner, Random, START_NS, Taken, descriptor, sample};

pub(super) fn subscriber_of_history() -> Subscriber {
    Subscriber::new(SubscriberConfig {
        incarnation: Incarnation([200; 16]),
        first_feed: 1,
        selectors: vec!["test.*".into()],
        reach: FeedReach::Archive,
        window_bytes: 1 << 16,
        streams_max: 64,
        scope: "".into(),
    })
}

/// Carries what is due in both directions, without faults.
fn exchange(owner: &mut Owner, subscriber: &mut Subscriber, taken: &mut Taken, now_ns: i64) {
    let node: Arc<str> = "subscriber".into();
    for _ in 0..3 {
        while let Some((_, frame)) = owner.publisher.due(now_ns) {
            subscriber.receive(&frame, now_ns, taken).unwrap();
        }
        while let Some(message) = subscriber.due(now_ns) {
            owner.publisher.receive(&node, &message, now_ns).unwrap();
        }
    }
}

/// A subscriber that keeps history has fallen behind, and the archive hangs for so many seconds.
/// Returns the numbers that have arrived in the end, the owner's count of lost samples, and after
/// how many seconds something of the stream came again.
fn run_with_hanging_archive(hangs_s: i64) -> (Vec<u64>, u64, i64) {
    let mut random = Random(7);
    let mut owner = Owner::new(0);
    let mut subscriber = subscriber_of_history();
    let mut taken = Taken::default();
    let life_ns = START_NS;
    let mut writer = owner
        .segment
        .register(&descriptor(0), Some(DEPTH), life_ns)
        .unwrap();
    let archived = (descriptor(0).series_id(), life_ns);
    let (step_ns, behind) = (NS_PER_S / 10, 20..60);
    let mut back_s = None;
    for step in 0..1_800 {
        let now_ns = START_NS + step * step_ns;
        let hangs = (behind.end..behind.end + hangs_s * 10).contains(&step);
        owner.archive.hangs.store(hangs, Ordering::Relaxed);
        let sample = sample(0, now_ns, &mut random);
        for _ in 0..if step < 100 { 4 } else { 0 } {
            writer.append(&sample).unwrap();
            let mut lives = owner.archive.lives.lock().unwrap();
            lives.entry(archived).or_default().push(sample.clone());
        }
        if behind.contains(&step) {
            continue;
        }
        let before = taken
            .streams
            .first()
            .map_or(0, |stream| stream.samples.len());
        exchange(&mut owner, &mut subscriber, &mut taken, now_ns);
        let after = taken
            .streams
            .first()
            .map_or(0, |stream| stream.samples.len());
        if step >= behind.end && after > before {
            back_s.get_or_insert((step - behind.end) / 10);
        }
    }
    let numbers = taken.streams[0].samples.iter().map(|sample| sample.0);
    (
        numbers.collect(),
        owner.publisher.counts().lost,
        back_s.unwrap(),
    )
}

#[test]
fn an_archive_that_hangs_holds_a_stream_for_a_minute_at_most() {
    // It comes back in time: nothing is lost.
    let (numbers, lost, _) = run_with_hanging_archive(0);
    assert_eq!((numbers, lost), ((1..=400).collect(), 0));
    // It does not: the stream goes on with what its ring has, and the rest is counted.
    let (numbers, lost, back_s) = run_with_hanging_archive(170);
    assert_eq!(numbers.len() as u64 + lost, 400);
    assert_eq!(numbers.last(), Some(&400));
    assert!(
        lost > 0 && (60..70).contains(&back_s),
        "{lost} lost, {back_s} s"
    );
}

/// A burst overruns a ring, and is in the archive so many seconds later. Returns the numbers that
/// have arrived in the end, and the owner's count of lost samples.
fn run_with_late_archive(late_s: i64) -> (Vec<u64>, u64) {
    let mut random = Random(8);
    let mut owner = Owner::new(0);
    let mut subscriber = subscriber_of_history();
    let mut taken = Taken::default();
    let mut writer = owner
        .segment
        .register(&descriptor(0), Some(DEPTH), START_NS)
        .unwrap();
    let archived = (descriptor(0).series_id(), START_NS);
    let mut waiting = Vec::new();
    for step in 0..300 {
        let now_ns = START_NS + step * NS_PER_S / 10;
        let bursts = match step {
            0 => 1,
            20 => 10 * DEPTH,
            _ => 0,
        };
        for _ in 0..bursts {
            let sample = sample(0, now_ns, &mut random);
            writer.append(&sample).unwrap();
            waiting.push((now_ns + late_s * NS_PER_S, sample));
        }
        let mut lives = owner.archive.lives.lock().unwrap();
        let due = waiting.extract_if(.., |(at_ns, _)| *at_ns <= now_ns);
        let life = lives.entry(archived).or_default();
        life.extend(due.map(|(_, sample)| sample));
        drop(lives);
        exchange(&mut owner, &mut subscriber, &mut taken, now_ns);
    }
    let numbers = taken.streams[0].samples.iter().map(|sample| sample.0);
    (numbers.collect(), owner.publisher.counts().lost)
}

#[test]
fn what_is_not_in_the_archive_yet_is_waited_for() {
    let all = 10 * u64::from(DEPTH) + 1;
    for late_s in [0, 1, 2] {
        assert_eq!(run_with_late_archive(late_s), ((1..=all).collect(), 0));
    }
    // Nobody knows whether it comes at all: the stream goes on with what its ring has.
    let (numbers, lost) = run_with_late_archive(10);
    assert_eq!(numbers.len() as u64 + lost, all);
    assert!(lost > 0 && numbers.last() == Some(&all));
}

#[test]
fn a_stream_that_ends_is_kept_to_its_end() {
    let mut random = Random(9);
    let mut owner = Owner::new(0);
    let mut subscriber = subscriber_of_history();
    let mut taken = Taken::default();
    let mut writer = owner
        .segment
        .register(&descriptor(0), Some(DEPTH), START_NS)
        .ok();
    let archived = (descriptor(0).series_id(), START_NS);
    for step in 0..200 {
        let now_ns = START_NS + step * NS_PER_S / 10;
        if let Some(writer) = &mut writer {
            let sample = sample(0, now_ns, &mut random);
            writer.append(&sample).unwrap();
            let mut lives = owner.archive.lives.lock().unwrap();
            lives.entry(archived).or_default().push(sample);
        }
        if step == 29 {
            owner.segment.retire(writer.take().unwrap());
        }
        // The end comes between two looks of the feed.
        if !(20..30).contains(&step) {
            exchange(&mut owner, &mut subscriber, &mut taken, now_ns);
        }
    }
    let numbers = taken.streams[0].samples.iter().map(|sample| sample.0);
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
    assert!(taken.streams.iter().all(|stream| !stream.is_live));
}
