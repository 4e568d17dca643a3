//! The numbers of the events that were seen, by which lost ones are noticed.
//!
//! What a source says of itself is believed only within its own stream: nobody can make the events
//! of another user's programs look lost, or seen before.

use std::collections::HashMap;
use std::sync::Arc;

use barograph_model::SeriesId;
use barograph_stream::ControlEventRecord;

use crate::Update;

/// Most streams whose numbers are kept: the ones not heard of for longest are forgotten, and then
/// what they have lost is not told.
const STREAMS_MAX: usize = 4_096;
/// Most threads of a stream whose numbers are kept.
const THREADS_MAX: usize = 64;

/// The streams and threads whose events were seen.
#[derive(Default)]
pub(super) struct Sequences {
    streams: HashMap<(Arc<str>, SeriesId), Vec<Seen>>,
    /// Number of events so far.
    turn: u64,
}

/// A thread of a program whose events were seen.
struct Seen {
    life: u64,
    thread: u32,
    /// The number of its last event.
    last: u64,
    /// Lost events that are still to be told.
    put_off: u64,
    turn: u64,
}

impl Sequences {
    /// Takes in an event: returns how many of its thread were lost before it; `None` if it was seen
    /// before.
    pub(super) fn note(
        &mut self,
        update: &Update,
        record: &ControlEventRecord<'_>,
        is_past: bool,
    ) -> Option<u64> {
        self.turn += 1;
        let turn = self.turn;
        let key = key_of(update);
        let is_new = !self.streams.contains_key(&key);
        if is_new && self.streams.len() >= STREAMS_MAX {
            self.forget_oldest();
        }
        let threads = self.streams.entry(key).or_default();
        if let Some(seen) = find(threads, record) {
            if record.sequence <= seen.last {
                return is_past.then_some(0);
            }
            let missed = record.sequence - seen.last - 1;
            (seen.last, seen.turn) = (record.sequence, turn);
            return Some(missed);
        }
        if threads.len() >= THREADS_MAX {
            let oldest = threads.iter().enumerate().min_by_key(|(_, seen)| seen.turn);
            if let Some((oldest, _)) = oldest {
                threads.swap_remove(oldest);
            }
        }
        threads.push(Seen {
            life: record.life,
            thread: record.thread,
            last: record.sequence,
            put_off: 0,
            turn,
        });
        // It is not known when the thread began, nor whether its earlier events were for this
        // reader: it may have published elsewhere before, or to an agent that has ended.
        Some(0)
    }

    /// Keeps lost events for the next event of the thread that is given.
    pub(super) fn put_off(
        &mut self,
        update: &Update,
        record: &ControlEventRecord<'_>,
        missed: u64,
    ) {
        if missed > 0
            && let Some(threads) = self.streams.get_mut(&key_of(update))
            && let Some(seen) = find(threads, record)
        {
            seen.put_off = seen.put_off.saturating_add(missed);
        }
    }

    /// The lost events that were kept for this one.
    pub(super) fn take_put_off(&mut self, update: &Update, record: &ControlEventRecord<'_>) -> u64 {
        let threads = self.streams.get_mut(&key_of(update));
        let seen = threads.and_then(|threads| find(threads, record));
        seen.map_or(0, |seen| std::mem::take(&mut seen.put_off))
    }

    fn forget_oldest(&mut self) {
        let last_turn = |threads: &Vec<Seen>| threads.iter().map(|seen| seen.turn).max();
        let oldest = self
            .streams
            .iter()
            .min_by_key(|(_, threads)| last_turn(threads));
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.streams.remove(&key);
        }
    }
}

fn key_of(update: &Update) -> (Arc<str>, SeriesId) {
    (Arc::clone(&update.node), update.series)
}

fn find<'s>(threads: &'s mut [Seen], record: &ControlEventRecord<'_>) -> Option<&'s mut Seen> {
    let is_it = |seen: &&mut Seen| (seen.life, seen.thread) == (record.life, record.thread);
    threads.iter_mut().find(is_it)
}

#[cfg(test)]
mod tests {
    use barograph_model::{Descriptor, Name, Sample, Unit, ValueType};
    use barograph_stream::ControlProperties;

    use super::*;

    fn update(node: &str, stream: &str) -> Update {
        let name = Name::new(stream).unwrap();
        let descriptor = Descriptor::gauge(name, ValueType::Bytes, Unit::new("").unwrap());
        Update {
            index: 0,
            series: descriptor.series_id(),
            descriptor: Arc::new(descriptor),
            node: node.into(),
            sample: Sample::measured(0, 0),
            lost: 0,
            stale: false,
        }
    }

    fn record(life: u64, thread: u32, sequence: u64) -> ControlEventRecord<'static> {
        ControlEventRecord {
            kind: "a",
            subject: "",
            value: None,
            confidence: 1.0,
            pid: 1,
            thread,
            life,
            sequence,
            properties: ControlProperties::default(),
        }
    }

    #[test]
    fn lost_events_are_told_within_their_thread() {
        let mut sequences = Sequences::default();
        let old = update("n1", "old");
        assert_eq!(sequences.note(&old, &record(1, 0, 7), true), Some(0));
        let mut note = |update: &Update, of: (u64, u32, u64)| {
            sequences.note(update, &record(of.0, of.1, of.2), false)
        };
        assert_eq!(note(&old, (1, 0, 8)), Some(0));
        assert_eq!(note(&old, (1, 0, 12)), Some(3));
        assert_eq!(note(&old, (1, 0, 12)), None, "it was seen before");
        assert_eq!(note(&old, (1, 0, 3)), None);
        // When another thread began is not known, nor is it of another life.
        assert_eq!(note(&old, (1, 1, 5)), Some(0));
        assert_eq!(note(&old, (1, 1, 7)), Some(1));
        assert_eq!(note(&old, (2, 0, 1)), Some(0));
        // The same numbers on another node, or in another stream, are of others.
        assert_eq!(note(&update("n1", "new"), (1, 0, 3)), Some(0));
        assert_eq!(note(&update("n2", "old"), (1, 0, 3)), Some(0));
        assert_eq!(note(&old, (1, 0, u64::MAX)), Some(u64::MAX - 13));
    }

    #[test]
    fn what_was_lost_before_an_event_that_is_passed_over_is_told_later() {
        let mut sequences = Sequences::default();
        let update = update("n1", "a");
        let (first, second) = (record(1, 0, 1), record(1, 0, 2));
        sequences.note(&update, &first, true);
        sequences.put_off(&update, &first, 3);
        sequences.put_off(&update, &first, 2);
        sequences.note(&update, &second, false);
        assert_eq!(sequences.take_put_off(&update, &second), 5);
        assert_eq!(sequences.take_put_off(&update, &second), 0);
    }

    #[test]
    fn streams_and_threads_are_bounded() {
        let mut sequences = Sequences::default();
        let one = update("n1", "a");
        for thread in 0..2 * THREADS_MAX as u32 {
            sequences.note(&one, &record(1, thread, 1), false);
        }
        assert_eq!(
            sequences.streams.values().map(Vec::len).sum::<usize>(),
            THREADS_MAX
        );
        for n in 0..STREAMS_MAX + 10 {
            sequences.note(&update("n1", &format!("a.b{n}")), &record(1, 0, 1), false);
        }
        assert_eq!(sequences.streams.len(), STREAMS_MAX);
    }
}
