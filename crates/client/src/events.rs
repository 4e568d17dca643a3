//! File events as they come: each once and in the order of its source, over losses of the rings and
//! restarts of the agent and of the reader.
//!
//! An [`EventFeed`] follows the rings. What a ring no longer has is read from the history, and what
//! that does not have either is told as a gap ([`EventGap`]).

mod cursor;
mod filter;
mod position;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_event::{EVENT_STREAM, FileEvent, SOURCE_LABEL, decode};
use barograph_model::{
    Clock, Descriptor, NS_PER_MS, NS_PER_S, Past as _, PastRequest, Pattern, Selector, Span,
    SqlFault, SqlLimits, Value, unbounded,
};
use barograph_query::{Cell, Rows};

use crate::{Observer, Update, Watch};
use cursor::{
    CatchUpStep, Caught, CursorStart, HistoryPage, HistoryRequest, LOG_WAIT_NS, RingVerdict,
    SourceCursor,
};

pub use filter::{EventFilter, EventGap, event_json, gap_json};
pub use position::{EventMark, EventPosition, POSITION_BYTES_MAX, PositionFault};

/// Most events that are read from the history at a time.
const PAGE_EVENTS_MAX: usize = 4_096;
/// Number of updates of rings beyond which one look stops growing (by at most one ring).
const LOOK_UPDATES_MAX: usize = 1_024;
/// Longest time beyond its timeout in which a call looks for events that are wanted, unless a read
/// of the history takes longer.
const STEP_MAX: Duration = Duration::from_millis(50);
/// Shortest time between two reads of the history for events that are not there yet, in ns.
const LOG_PAUSE_NS: i64 = 200 * NS_PER_MS;
/// Longest time of one read of the history, in ns.
const READ_TIME_NS_MAX: i64 = 60 * NS_PER_S;
/// Time before the end of a source's history in which its last event is looked for first, in ns.
const LAST_NS: i64 = 60 * NS_PER_S;

/// Where an [`EventFeed`] begins.
#[derive(Clone, Debug, Default)]
pub enum EventStart {
    /// With the events that are recorded from now on.
    #[default]
    Now,
    /// With the events of the history from this time on, in ns since the epoch.
    Since(i64),
    /// After the events that a reader has seen; of a source that is not among them, with the events
    /// of the history from the given time on, or else with its first one.
    After(EventPosition, Option<i64>),
}

/// What an [`EventFeed`] gives.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    /// An event, and the name of its source.
    Event(FileEvent, Arc<str>),
    /// Events that cannot be given.
    Gap(EventGap),
}

/// Gives the events that a reader wants and may read, each once and in the order of its source.
///
/// After a kill of the agent, events that it had told and that were not durable are followed by
/// others with their numbers.
pub struct EventFeed {
    observer: Observer,
    filter: EventFilter,
    watch: Watch,
    cursors: BTreeMap<Arc<str>, SourceCursor>,
    /// The beginning of sources that appear later.
    start: CursorStart,
    /// Sources whose history is to be read before rings are followed.
    waiting: VecDeque<Arc<str>>,
    /// The source whose history is being read, and the event of its ring that comes after it.
    behind: Option<(Arc<str>, Option<FileEvent>)>,
    /// Monotonic time of the next read of the history, in ns.
    read_ns: i64,
    updates: VecDeque<Update>,
    ready: VecDeque<Ready>,
    position: EventPosition,
}

/// Something that is to be given, or passed over, and the reader's place in its source after it.
struct Ready {
    source: Arc<str>,
    mark: Option<EventMark>,
    item: Option<FeedItem>,
}

impl Observer {
    /// Follows file events: those that this process may read and the filter wants.
    ///
    /// # Errors
    ///
    /// The history cannot be read now, so that it is not known where each source is.
    pub fn events(&self, filter: EventFilter, start: EventStart) -> Result<EventFeed, SqlFault> {
        EventFeed::new(self.clone(), filter, start)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.follower.clock()
    }
}

impl EventFeed {
    fn new(observer: Observer, filter: EventFilter, start: EventStart) -> Result<Self, SqlFault> {
        let source = filter.source.iter();
        let labels = source.map(|name| (SOURCE_LABEL.to_owned(), Pattern::new(name)));
        let selector = Selector {
            name: Pattern::new(EVENT_STREAM),
            labels: labels.collect(),
        };
        let logged_ns = observer.clock().now_ns().saturating_sub(LOG_WAIT_NS);
        let since_ns = match &start {
            EventStart::Since(ns) => Some(*ns),
            EventStart::After(_, since_ns) => *since_ns,
            EventStart::Now => None,
        };
        let watch = observer.watch_of(&selector, LOOK_UPDATES_MAX);
        let mut feed = Self {
            observer,
            filter,
            watch,
            cursors: BTreeMap::new(),
            start: CursorStart {
                since_ns,
                logged_ns,
            },
            waiting: VecDeque::new(),
            behind: None,
            read_ns: i64::MIN,
            updates: VecDeque::new(),
            ready: VecDeque::new(),
            position: EventPosition::default(),
        };
        feed.begin(&start)?;
        Ok(feed)
    }

    /// Finds the place in each source with which the feed begins.
    fn begin(&mut self, start: &EventStart) -> Result<(), SqlFault> {
        // What the rings have already was told to others, or is read from the history.
        let mut newest: BTreeMap<Arc<str>, (Arc<Descriptor>, FileEvent)> = BTreeMap::new();
        for update in self.watch.next(Duration::ZERO).into_iter().flatten() {
            if let Some((event, source)) = self.event_of(&update) {
                newest.insert(source, (update.descriptor, event));
            }
        }
        for (source, end_ns) in self.sources()? {
            let last = match start {
                EventStart::Now => match newest.get(&source) {
                    Some((_, event)) => Some(mark_of(event)),
                    None => self.last_of(&source, end_ns)?,
                },
                EventStart::Since(_) => None,
                EventStart::After(position, since_ns) => {
                    let first = EventMark { index: 0, ts: None };
                    let first = since_ns.is_none().then_some(first);
                    position.get(&source).or(first)
                }
            };
            let cursor = SourceCursor::after(&source, last, self.start);
            self.cursors.insert(source, cursor);
        }
        if let EventStart::After(position, _) = start {
            self.position = position.clone();
            for (source, mark) in position.iter() {
                let is_meant = (self.filter.source.as_ref()).is_none_or(|name| name == source);
                if is_meant && !self.cursors.contains_key(source) {
                    let cursor = SourceCursor::after(source, Some(mark), self.start);
                    self.cursors.insert(source.into(), cursor);
                }
            }
        }
        for (source, cursor) in &mut self.cursors {
            if let Some((life, event)) = newest.get(source) {
                cursor.ring_is_at(life, event);
            }
            if let Some(mark) = cursor.last().filter(|mark| mark.index > 0) {
                self.position.set(source, mark);
            }
            if !matches!(start, EventStart::Now) {
                cursor.catch_up_from_history();
                self.waiting.push_back(Arc::clone(source));
            }
        }
        Ok(())
    }

    /// Returns the next event or gap, and waits for one at most so long.
    pub fn next(&mut self, timeout: Duration) -> Option<FeedItem> {
        let mut left = timeout;
        let began_ns = self.observer.clock().monotonic_ns();
        loop {
            while let Some(ready) = self.ready.pop_front() {
                if let Some(mark) = ready.mark {
                    self.position.set(&ready.source, mark);
                }
                if let Some(item) = ready.item {
                    return Some(item);
                }
            }
            let is_busy = self.advance();
            let before_ns = self.observer.clock().monotonic_ns();
            if is_busy {
                // A long history may have nothing that is wanted.
                let spent = Duration::from_nanos((before_ns - began_ns).max(0).unsigned_abs());
                if self.ready.is_empty() && spent > timeout.saturating_add(STEP_MAX) {
                    return None;
                }
                continue;
            }
            if self.behind.is_none() {
                let updates = self.watch.next(left)?;
                self.updates.extend(updates);
            } else if left.is_zero() {
                return None;
            } else {
                self.wait_for_log(left, before_ns);
            }
            let waited_ns = self.observer.clock().monotonic_ns() - before_ns;
            left = left.saturating_sub(Duration::from_nanos(waited_ns.max(0).unsigned_abs()));
        }
    }

    /// The reader's place after what was given last: a feed that begins after it leaves nothing
    /// out. Events that the filter has passed over are behind it.
    pub fn position(&self) -> &EventPosition {
        &self.position
    }

    /// About how many bytes of events are held.
    pub fn held_bytes(&self) -> usize {
        let event = |event: &FileEvent| {
            size_of::<Ready>() + event.path.len() + event.old_path.len() + event.detail.len()
        };
        let ready = self.ready.iter().map(|ready| match &ready.item {
            Some(FeedItem::Event(one, _)) => event(one),
            _ => size_of::<Ready>(),
        });
        let updates = self
            .updates
            .iter()
            .map(|update| match &update.sample.value {
                Value::Bytes(record) => size_of::<Update>() + record.len(),
                _ => size_of::<Update>(),
            });
        ready.sum::<usize>() + updates.sum::<usize>()
    }

    /// Does what can be done without waiting; returns whether something was done.
    fn advance(&mut self) -> bool {
        if let Some((source, _)) = &self.behind {
            let source = Arc::clone(source);
            return self.read_history(&source);
        }
        if let Some(source) = self.waiting.pop_front() {
            self.behind = Some((source, None));
            return true;
        }
        let Some(update) = self.updates.pop_front() else {
            return false;
        };
        let Some((event, source)) = self.event_of(&update) else {
            return true;
        };
        let fresh = || SourceCursor::after(&source, None, self.start);
        let cursor = self
            .cursors
            .entry(Arc::clone(&source))
            .or_insert_with(fresh);
        match cursor.judge(&update.descriptor, &event, update.lost) {
            RingVerdict::Known => {}
            RingVerdict::Next => {
                cursor.advance(&event);
                self.give(&source, event);
            }
            RingVerdict::Behind => self.behind = Some((source, Some(event))),
        }
        true
    }

    /// Reads the next page of a source's history, unless it is too early.
    fn read_history(&mut self, source: &Arc<str>) -> bool {
        let clock = Arc::clone(self.observer.clock());
        let began_ns = clock.monotonic_ns();
        if began_ns < self.read_ns {
            return false;
        }
        let Some(cursor) = self.cursors.get_mut(source) else {
            self.behind = None;
            return true;
        };
        let page = cursor
            .request()
            .map(|request| page(&self.observer, source, &request));
        let now_ns = clock.monotonic_ns();
        let caught = match page {
            Some(Ok(page)) => cursor.take(page, now_ns),
            Some(Err(fault)) => cursor.cannot_read(&fault.message, now_ns),
            None => Caught {
                then: CatchUpStep::Done,
                ..Caught::default()
            },
        };
        self.read_ns = match caught.then {
            // A history that takes long to read is read less often.
            CatchUpStep::Wait => now_ns + LOG_PAUSE_NS.max(4 * (now_ns - began_ns)),
            _ => i64::MIN,
        };
        let is_done = caught.then == CatchUpStep::Done;
        self.give_gap(source, caught.gap_before);
        for event in caught.events {
            self.give(source, event);
        }
        self.give_gap(source, caught.gap_after);
        if is_done
            && let Some((source, event)) = self.behind.take()
            && let Some(event) = event
            && let Some(cursor) = self.cursors.get_mut(&source)
            && cursor.last().is_none_or(|last| last.index < event.index)
        {
            cursor.advance(&event);
            self.give(&source, event);
        }
        true
    }

    fn give(&mut self, source: &Arc<str>, event: FileEvent) {
        let mark = mark_of(&event);
        let is_wanted = self.filter.wants(&event);
        self.ready.push_back(Ready {
            source: Arc::clone(source),
            mark: Some(mark),
            item: is_wanted.then(|| FeedItem::Event(event, Arc::clone(source))),
        });
    }

    fn give_gap(&mut self, source: &Arc<str>, gap: Option<EventGap>) {
        self.ready.extend(gap.map(|gap| Ready {
            source: Arc::clone(source),
            mark: None,
            item: Some(FeedItem::Gap(gap)),
        }));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a reader waits until events are in the log, for a bounded time"
    )]
    fn wait_for_log(&self, left: Duration, now_ns: i64) {
        let pause_ns = self.read_ns.saturating_sub(now_ns).max(0);
        std::thread::sleep(left.min(Duration::from_nanos(pause_ns.unsigned_abs())));
    }

    /// The event of an update, and its source.
    fn event_of(&self, update: &Update) -> Option<(FileEvent, Arc<str>)> {
        let Value::Bytes(record) = &update.sample.value else {
            return None;
        };
        let event = decode(record, update.sample.ts).ok()?;
        let source = update
            .descriptor
            .labels
            .get(SOURCE_LABEL)
            .unwrap_or_default();
        let known = self.cursors.get(source);
        let source = known.map_or_else(|| source.into(), |cursor| Arc::clone(cursor.source()));
        Some((event, source))
    }

    /// The sources that have events now or had them, and the times of their ends.
    fn sources(&self) -> Result<Vec<(Arc<str>, i64)>, SqlFault> {
        let reader = self.observer.past_reader();
        let reader = reader.map_err(|error| self.observer.fault(error))?;
        let node = self.observer.node();
        let name = self.filter.source.as_deref();
        let wanted = |of: &str, descriptor: &Descriptor| {
            let source = descriptor.labels.get(SOURCE_LABEL);
            of == node
                && descriptor.name.as_str() == EVENT_STREAM
                && name.is_none_or(|name| source == Some(name))
        };
        let found = reader.series(&PastRequest {
            wanted: &wanted,
            span: Span::ALL,
            samples_max: usize::MAX,
            cancel: &AtomicBool::new(false),
            holds: &unbounded,
        })?;
        let sources = found.iter().map(|series| {
            let source = series.descriptor.labels.get(SOURCE_LABEL);
            (source.unwrap_or_default().into(), series.known.to)
        });
        Ok(sources.collect())
    }

    /// The last event of a source whose ring has none.
    fn last_of(&self, source: &str, end_ns: i64) -> Result<Option<EventMark>, SqlFault> {
        // Times may go back; the last minute nearly always has the last event.
        for from_ns in [end_ns.saturating_sub(LAST_NS), i64::MIN] {
            let sql = format!(
                "SELECT ts, idx FROM events WHERE {SOURCE_LABEL} = '{}' AND ts >= {from_ns} \
                 ORDER BY idx DESC LIMIT 1",
                quoted(source)
            );
            let rows = self.observer.sql(&sql, &limits())?;
            if let (Some(Cell::Int(ts)), Some(Cell::Int(index))) = (rows.get(0, 0), rows.get(0, 1))
            {
                let (index, ts) = (index.unsigned_abs(), Some(*ts));
                return Ok(Some(EventMark { index, ts }));
            }
        }
        Ok(None)
    }
}

fn mark_of(event: &FileEvent) -> EventMark {
    EventMark {
        index: event.index,
        ts: Some(event.ts),
    }
}

/// Reads a page of the history of a source, in which rings are as well.
fn page(
    observer: &Observer,
    source: &str,
    request: &HistoryRequest,
) -> Result<HistoryPage, SqlFault> {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let source = quoted(source);
    // Before the page, so that what is in the page and not below it was recorded later.
    let top = match request.wants_top {
        true => {
            let sql = format!("SELECT max(idx) FROM events WHERE {SOURCE_LABEL} = '{source}'");
            let rows = observer.sql(&sql, &limits())?;
            match rows.get(0, 0) {
                Some(Cell::Int(top)) => Some(top.unsigned_abs()),
                _ => Some(0),
            }
        }
        false => None,
    };
    let sql = format!(
        "SELECT ts, value FROM events WHERE {SOURCE_LABEL} = '{source}' AND ts >= {} \
         AND idx >= {} AND idx < {} ORDER BY idx LIMIT {PAGE_EVENTS_MAX}",
        request.from_ns,
        whole(request.from),
        whole(request.until),
    );
    let rows = observer.sql(&sql, &limits())?;
    Ok(HistoryPage {
        events: (0..rows.len())
            .filter_map(|row| event_of_row(&rows, row))
            .collect(),
        is_full: rows.len() >= PAGE_EVENTS_MAX,
        top,
    })
}

fn event_of_row(rows: &Rows, row: usize) -> Option<FileEvent> {
    match (rows.get(row, 0)?, rows.get(row, 1)?) {
        (Cell::Int(ts), Cell::Blob(record)) => decode(record, *ts).ok(),
        _ => None,
    }
}

fn limits() -> SqlLimits {
    SqlLimits {
        time_ns_max: READ_TIME_NS_MAX,
        ..SqlLimits::default()
    }
}

fn quoted(text: &str) -> String {
    text.replace('\'', "''")
}
