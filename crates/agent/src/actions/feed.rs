//! The way of durable events from their sources to the rules: for each source a cursor, up to which
//! the rules have seen its events, and the events after it.
//!
//! A source only hands events over that are durable in its log, and never waits. What finds no room
//! here is read from the log later.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_action::EventCursor;
use barograph_model::{Descriptor, Sample, Value};
use barograph_stream::ScopeReader;

/// Most bytes of events of one source that wait in memory.
const SOURCE_BYTES_MAX: usize = 1 << 20;

/// The log of a source.
#[derive(Clone, Debug)]
pub(crate) struct EventLog {
    /// The directory of the archive; `None` if nothing is kept.
    pub dir: Option<PathBuf>,
    /// The stream of the source.
    pub stream: Descriptor,
    /// The users who may read its events.
    pub reader: ScopeReader,
}

/// Events of a source that follow each other and are durable.
#[derive(Debug)]
pub(crate) struct DurableEvents {
    /// The number of the last event before them.
    pub after: u64,
    /// The number of the last of them.
    pub last: u64,
    /// The records of the events.
    pub samples: Vec<Sample>,
}

/// Events that the rules have not seen.
pub(super) enum FeedWork {
    /// These, of which the rules have seen those up to the cursor.
    Memory(EventCursor, DurableEvents),
    /// Those after the cursor, up to the event with this number, which the log has.
    Log(EventCursor, u64, EventLog),
}

/// The events of all sources that rules have to see.
#[derive(Default)]
pub(super) struct EventFeeds {
    state: Mutex<FeedsState>,
    news: Condvar,
}

#[derive(Default)]
struct FeedsState {
    sources: BTreeMap<String, SourceFeed>,
    /// Cursors of sources that have not begun yet.
    kept: BTreeMap<String, EventCursor>,
    /// There are rules.
    is_active: bool,
    /// The agent is stopping.
    is_over: bool,
    /// The source that was served last.
    served: String,
}

struct SourceFeed {
    log: EventLog,
    /// The number of the last durable event.
    durable: u64,
    /// The last event that the rules have seen; `None` while there are no rules.
    cursor: Option<EventCursor>,
    waiting: VecDeque<DurableEvents>,
    bytes: usize,
    /// The watch was dropped.
    is_ended: bool,
}

impl SourceFeed {
    fn is_idle(&self) -> bool {
        let cursor = self.cursor.as_ref();
        cursor.is_none_or(|cursor| cursor.index >= self.durable)
    }

    /// Forgets the events in memory.
    fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Takes what the rules are to see next.
    fn next(&mut self) -> Option<FeedWork> {
        let cursor = self.cursor.clone()?;
        while let Some(first) = self.waiting.front() {
            if first.after > cursor.index {
                return Some(FeedWork::Log(cursor, first.after, self.log.clone()));
            }
            let events = self.waiting.pop_front()?;
            self.bytes = self.bytes.saturating_sub(bytes_of(&events.samples));
            if events.last > cursor.index {
                return Some(FeedWork::Memory(cursor, events));
            }
        }
        (self.durable > cursor.index).then(|| FeedWork::Log(cursor, self.durable, self.log.clone()))
    }
}

impl EventFeeds {
    fn lock(&self) -> MutexGuard<'_, FeedsState> {
        // Nothing that holds this lock can leave half a change behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a source whose last durable event has this number. Returns the cursor that has to
    /// be kept before an event of the source comes; `None` if there are no rules, or one is kept.
    pub(super) fn begin(
        &self,
        source: &str,
        log: EventLog,
        last: u64,
        now_ns: i64,
    ) -> Option<EventCursor> {
        let mut state = self.lock();
        let known = state.kept.remove(source);
        let before = state.sources.remove(source).and_then(|feed| feed.cursor);
        let cursor = before.or(known);
        let (is_active, is_kept) = (state.is_active, cursor.is_some());
        let begins = || EventCursor {
            source: source.to_owned(),
            index: last,
            ts: now_ns,
        };
        let cursor = is_active.then(|| cursor.unwrap_or_else(begins));
        let feed = SourceFeed {
            log,
            durable: last,
            cursor: cursor.clone(),
            waiting: VecDeque::new(),
            bytes: 0,
            is_ended: false,
        };
        state.sources.insert(source.to_owned(), feed);
        self.news.notify_one();
        cursor.filter(|_| !is_kept)
    }

    /// The number of the last event of a source that the rules have seen; 0 if that is unknown.
    pub(super) fn seen(&self, source: &str) -> u64 {
        let state = self.lock();
        let feed = state.sources.get(source);
        let cursor = feed.and_then(|feed| feed.cursor.as_ref());
        let cursor = cursor.or_else(|| state.kept.get(source));
        cursor.map_or(0, |cursor| cursor.index)
    }

    /// Takes durable events of a source.
    pub(super) fn offer(&self, source: &str, events: DurableEvents) {
        let mut state = self.lock();
        let Some(feed) = state.sources.get_mut(source) else {
            return;
        };
        feed.durable = feed.durable.max(events.last);
        if feed.cursor.is_none() {
            return;
        }
        let bytes = bytes_of(&events.samples);
        if feed.bytes + bytes > SOURCE_BYTES_MAX {
            feed.clear();
        } else {
            feed.bytes += bytes;
            feed.waiting.push_back(events);
        }
        self.news.notify_one();
    }

    /// Ends a source, of which no further events come. Its last ones are seen yet.
    pub(super) fn end(&self, source: &str) {
        let mut state = self.lock();
        if let Some(feed) = state.sources.get_mut(source) {
            feed.is_ended = true;
            if feed.is_idle() {
                state.retire(source);
            }
        }
    }

    /// Has the rules see events from now on, after these cursors where they name a source. Returns
    /// the cursors of the other sources, which have to be kept.
    pub(super) fn activate(&self, kept: Vec<EventCursor>, now_ns: i64) -> Vec<EventCursor> {
        let mut state = self.lock();
        if state.is_active {
            return Vec::new();
        }
        state.is_active = true;
        let by_source = kept
            .into_iter()
            .map(|cursor| (cursor.source.clone(), cursor));
        state.kept = by_source.collect();
        let mut new = Vec::new();
        let FeedsState { sources, kept, .. } = &mut *state;
        for (source, feed) in sources {
            feed.cursor = Some(kept.remove(source).unwrap_or_else(|| {
                let cursor = EventCursor {
                    source: source.clone(),
                    index: feed.durable,
                    ts: now_ns,
                };
                new.push(cursor.clone());
                cursor
            }));
        }
        self.news.notify_one();
        new
    }

    /// Has no rule see events from now on.
    pub(super) fn deactivate(&self) {
        let mut state = self.lock();
        state.is_active = false;
        state.kept.clear();
        for feed in state.sources.values_mut() {
            feed.cursor = None;
            feed.clear();
        }
    }

    /// Takes the next events that rules are to see, of each source in turn.
    pub(super) fn next(&self) -> Option<FeedWork> {
        let mut state = self.lock();
        let after = state.sources.range(state.served.clone()..);
        let names: Vec<String> = after
            .filter(|(name, _)| **name != state.served)
            .chain(state.sources.range(..=state.served.clone()))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let work = state.sources.get_mut(&name).and_then(SourceFeed::next);
            if work.is_some() {
                state.served = name;
                return work;
            }
        }
        None
    }

    /// Notes that the rules have seen the events up to this cursor, and that this is kept.
    pub(super) fn seen_up_to(&self, cursor: &EventCursor) {
        let mut state = self.lock();
        if let Some(feed) = state.sources.get_mut(&cursor.source)
            && feed.cursor.is_some()
        {
            feed.cursor = Some(cursor.clone());
            if feed.is_ended && feed.is_idle() {
                state.retire(&cursor.source);
            }
        }
    }

    /// The readers of each source, by name.
    pub(super) fn readers(&self) -> BTreeMap<String, ScopeReader> {
        let state = self.lock();
        let sources = state.sources.iter();
        sources
            .map(|(name, feed)| (name.clone(), feed.log.reader))
            .collect()
    }

    /// Tells whoever waits to end.
    pub(super) fn stop(&self) {
        self.lock().is_over = true;
        self.news.notify_all();
    }

    /// Whether the agent is stopping.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Whether rules see events.
    pub(super) fn is_active(&self) -> bool {
        self.lock().is_active
    }

    /// Waits so long, or for the stop.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread that evaluates rules waits here"
    )]
    pub(super) fn pause(&self, ns: i64) {
        let state = self.lock();
        let time = Duration::from_nanos(ns.unsigned_abs());
        let going_on = |state: &mut FeedsState| !state.is_over;
        drop(self.news.wait_timeout_while(state, time, going_on));
    }

    /// Waits until something may have come, at most so long.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread that evaluates rules waits here"
    )]
    pub(super) fn wait(&self, time: Duration) {
        let state = self.lock();
        if state.is_over {
            return;
        }
        let has_work = state.sources.values().any(|feed| !feed.is_idle());
        if !has_work {
            drop(self.news.wait_timeout(state, time));
        }
    }
}

impl FeedsState {
    /// Forgets a source that has ended; its cursor stays, for when it is watched again.
    fn retire(&mut self, source: &str) {
        let feed = self.sources.remove(source);
        if let Some(cursor) = feed.and_then(|feed| feed.cursor) {
            self.kept.insert(source.to_owned(), cursor);
        }
    }
}

fn bytes_of(samples: &[Sample]) -> usize {
    let values = samples.iter().map(|sample| match &sample.value {
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    });
    size_of_val(samples) + values.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use barograph_model::{Kind, Labels, Name, Quality, Unit, ValueType};

    use super::*;

    fn log() -> EventLog {
        EventLog {
            dir: None,
            stream: Descriptor {
                name: Name::new("events").unwrap(),
                labels: Labels::default(),
                value_type: ValueType::Bytes,
                unit: Unit::new("record").unwrap(),
                kind: Kind::State,
                help: String::new(),
            },
            reader: ScopeReader::All,
        }
    }

    fn events(after: u64, last: u64, bytes: usize) -> DurableEvents {
        let sample = Sample {
            ts: 1,
            value: Value::Bytes(Arc::from(vec![0; bytes])),
            quality: Quality::Measured,
            error: 0.0,
        };
        DurableEvents {
            after,
            last,
            samples: vec![sample],
        }
    }

    fn cursor(source: &str, index: u64) -> EventCursor {
        EventCursor {
            source: source.into(),
            index,
            ts: 5,
        }
    }

    /// What is to be seen next, as a text; it is seen then.
    fn step(feeds: &EventFeeds) -> String {
        match feeds.next() {
            None => "nothing".into(),
            Some(FeedWork::Memory(cursor, events)) => {
                let index = events.last;
                feeds.seen_up_to(&EventCursor { index, ..cursor });
                format!("memory {}..{}", cursor.index, events.last)
            }
            Some(FeedWork::Log(cursor, until, _)) => {
                let index = until;
                feeds.seen_up_to(&EventCursor { index, ..cursor });
                format!("log {}..{until}", cursor.index)
            }
        }
    }

    #[test]
    fn rules_see_what_is_recorded_after_the_first_of_them_was_made() {
        let feeds = EventFeeds::default();
        assert_eq!(feeds.begin("a", log(), 3, 5), None);
        feeds.offer("a", events(3, 9, 10));
        assert_eq!(step(&feeds), "nothing");
        assert_eq!(feeds.activate(Vec::new(), 5), [cursor("a", 9)]);
        assert_eq!(feeds.activate(Vec::new(), 5), [], "they see events already");
        feeds.offer("a", events(9, 12, 10));
        feeds.offer("a", events(12, 20, 10));
        assert_eq!(
            [step(&feeds), step(&feeds), step(&feeds)],
            ["memory 9..12", "memory 12..20", "nothing"]
        );
        // A source that begins later is seen from its present end on, which has to be kept.
        assert_eq!(feeds.begin("b", log(), 7, 5), Some(cursor("b", 7)));
        feeds.deactivate();
        feeds.offer("a", events(20, 30, 10));
        assert_eq!((step(&feeds), feeds.seen("a")), ("nothing".into(), 0));
    }

    #[test]
    fn what_has_no_room_and_what_came_meanwhile_is_read_from_the_log() {
        let feeds = EventFeeds::default();
        let new = feeds.activate(vec![cursor("a", 4), cursor("c", 1)], 5);
        assert_eq!(new, []);
        assert_eq!(feeds.seen("a"), 4);
        assert_eq!(
            feeds.begin("a", log(), 10, 5),
            None,
            "its cursor is kept already"
        );
        assert_eq!(step(&feeds), "log 4..10");
        // A part that is not there is before what is.
        feeds.offer("a", events(12, 15, 10));
        assert_eq!(
            [step(&feeds), step(&feeds)],
            ["log 10..12", "memory 12..15"]
        );
        for n in 0..3 {
            feeds.offer("a", events(15 + n, 16 + n, SOURCE_BYTES_MAX / 2));
        }
        assert_eq!(
            [step(&feeds), step(&feeds)],
            ["log 15..17", "memory 17..18"]
        );
        feeds.offer("a", events(18, 19, 10));
        assert_eq!([step(&feeds), step(&feeds)], ["memory 18..19", "nothing"]);
    }

    #[test]
    fn sources_take_turns_and_one_that_ends_is_seen_to_its_end() {
        let feeds = EventFeeds::default();
        feeds.activate(Vec::new(), 5);
        for source in ["a", "b"] {
            feeds.begin(source, log(), 0, 5);
            feeds.offer(source, events(0, 1, 10));
            feeds.offer(source, events(1, 2, 10));
        }
        let turns: Vec<u64> = (0..4)
            .map(|_| {
                step(&feeds);
                feeds.seen("a") * 10 + feeds.seen("b")
            })
            .collect();
        assert_eq!(turns, [10, 11, 21, 22]);
        feeds.offer("a", events(2, 3, 10));
        feeds.end("a");
        assert_eq!(feeds.readers().len(), 2);
        assert_eq!(step(&feeds), "memory 2..3");
        assert_eq!((feeds.readers().len(), feeds.seen("a")), (1, 3));
        assert_eq!(
            feeds.begin("a", log(), 8, 5),
            None,
            "it goes on after its cursor"
        );
        assert_eq!(step(&feeds), "log 3..8");
    }
}
