//! The place of a reader in the events of one source: which event is new, which was given already,
//! and which have to be read from the history first.
//!
//! There is no I/O here, so that losses, restarts and late logs are tested as tables.

use std::collections::VecDeque;
use std::sync::Arc;

use barograph_event::{EventFlags, FileEvent};
use barograph_model::{Descriptor, NS_PER_S};

use super::filter::EventGap;
use super::position::EventMark;

/// Longest wait for events to come to the log, in ns of the monotonic clock.
pub(super) const LOG_WAIT_NS: i64 = 5 * NS_PER_S;
/// Time before the last event from which later ones are looked for first, in ns: the times of a
/// source may go back.
const BACK_NS: i64 = 3_600 * NS_PER_S;
/// Number of the last events whose times are known, so that an event that was recorded again is
/// told from another one with its number.
const RECENT_MAX: usize = 1_024;

/// What is to be done with an event from the ring of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingVerdict {
    /// The event was given before.
    Known,
    /// The event is the next one.
    Next,
    /// Events before it have to be read from the history first.
    Behind,
}

/// Events that are to be read from the history: those with numbers from `from` to below `until`,
/// none of them earlier than `from_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryRequest {
    pub from: u64,
    pub until: u64,
    pub from_ns: i64,
    /// Whether the greatest number in the history is to be found out too.
    pub wants_top: bool,
}

/// The answer to a [`HistoryRequest`].
#[derive(Debug, Default)]
pub(super) struct HistoryPage {
    /// Events in the order of their numbers, the smallest ones of the range.
    pub events: Vec<FileEvent>,
    /// Whether there may be more of them.
    pub is_full: bool,
    /// The greatest number in the history, if it was asked for.
    pub top: Option<u64>,
}

/// What came of a page of the history.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Caught {
    /// Events to give, after the gap if it comes first.
    pub events: Vec<FileEvent>,
    /// Events that are missing before the given ones.
    pub gap_before: Option<EventGap>,
    /// Events that are missing after the given ones.
    pub gap_after: Option<EventGap>,
    /// The next step.
    pub then: CatchUpStep,
}

/// The next step of a catch-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CatchUpStep {
    /// The next page is to be read now.
    #[default]
    More,
    /// A page is to be read later: events are on their way to the log.
    Wait,
    /// The catch-up has ended.
    Done,
}

/// Events of a source that are read from the history.
#[derive(Debug)]
struct CatchUp {
    /// Number before which it ends; `u64::MAX` if it ends with the history.
    until: u64,
    /// Number of events that are to be found: exactly, where that is known, and at least.
    expected: Option<u64>,
    at_least: u64,
    found: u64,
    /// How many numbers between the events that were given no event had.
    skipped: u64,
    /// Monotonic time since which events of the end of the history are awaited.
    awaited_since: Option<i64>,
    /// Whether all of the history is read, and not only its end.
    is_wide: bool,
    /// Whether the last event that was given has been found in the history, so that nothing after
    /// it can have been deleted.
    is_verified: bool,
    /// The greatest number that was in the history at this monotonic time. What is before it is in
    /// the log after [`LOG_WAIT_NS`], or nowhere.
    horizon: Option<(u64, i64)>,
    /// Monotonic time since which the history cannot be read.
    failing_since: Option<i64>,
}

/// The place of a reader in one source.
#[derive(Debug)]
pub(super) struct SourceCursor {
    source: Arc<str>,
    /// The last event that was given or passed over.
    last: Option<EventMark>,
    /// The last events, oldest first.
    recent: VecDeque<EventMark>,
    /// The stream's life whose ring was looked at, and the number of the last event there.
    ring: Option<(Arc<Descriptor>, u64)>,
    /// Number of events that were given from the history and come later in the ring.
    beyond: u64,
    catch_up: Option<CatchUp>,
    /// Where a reader begins that has seen no event of the source.
    start: CursorStart,
}

/// The beginning of a reader that has seen no event of a source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CursorStart {
    /// Earliest time of its events, in ns since the epoch; `None` for all events.
    pub since_ns: Option<i64>,
    /// Time before which an event was recorded so long ago that all earlier ones are in the log.
    pub logged_ns: i64,
}

impl SourceCursor {
    /// A place after the event with this mark; `None` for a source of which nothing was seen.
    pub(super) fn after(source: &str, last: Option<EventMark>, start: CursorStart) -> Self {
        Self {
            start,
            source: source.into(),
            last,
            recent: last.into_iter().collect(),
            ring: None,
            beyond: 0,
            catch_up: None,
        }
    }

    pub(super) fn source(&self) -> &Arc<str> {
        &self.source
    }

    pub(super) fn last(&self) -> Option<EventMark> {
        self.last
    }

    /// Takes notice of the newest event of a ring, after which the ring is followed.
    pub(super) fn ring_is_at(&mut self, life: &Arc<Descriptor>, event: &FileEvent) {
        self.ring = Some((Arc::clone(life), event.index));
    }

    /// Has all read that the history has after the last event.
    pub(super) fn catch_up_from_history(&mut self) {
        let is_verified = self.last.is_none_or(|last| last.index == 0);
        self.begin_catch_up(u64::MAX, (None, 0), is_verified);
    }

    /// Judges an event from the ring of a life of the stream, before which so many samples of the
    /// ring were overwritten unread.
    pub(super) fn judge(
        &mut self,
        life: &Arc<Descriptor>,
        event: &FileEvent,
        lost: u64,
    ) -> RingVerdict {
        let before = self.ring.replace((Arc::clone(life), event.index));
        let is_known_ring = before
            .as_ref()
            .is_some_and(|(held, _)| Arc::ptr_eq(held, life));
        if !is_known_ring {
            self.beyond = 0;
        }
        let Some(last) = self.last else {
            if lost == 0 {
                return RingVerdict::Next;
            }
            return self.fall_behind(event, Some(lost), lost);
        };
        if event.index <= last.index && !self.is_other_event(event) {
            self.beyond = self.beyond.saturating_sub(lost.saturating_add(1));
            return RingVerdict::Known;
        }
        if event.index <= last.index {
            // An agent that was killed gave the number to an event that was never durable.
            let index = event.index.saturating_sub(1).saturating_sub(lost);
            self.recent.retain(|mark| mark.index <= index);
            self.last = Some(EventMark { index, ts: None });
            if lost == 0 {
                return RingVerdict::Next;
            }
            return self.fall_behind(event, Some(lost), lost);
        }
        let is_new_life = before.is_some() && !is_known_ring;
        if event.index == last.index + 1 || (lost == 0 && !is_new_life) {
            self.beyond = 0;
            return RingVerdict::Next;
        }
        if is_known_ring {
            let unseen = lost.saturating_sub(self.beyond);
            return self.fall_behind(event, Some(unseen), unseen);
        }
        // The ring tells what it has lost, but the history may have to give more, or has given it.
        let verdict = self.fall_behind(event, None, lost);
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.is_verified = !is_new_life;
        }
        verdict
    }

    /// Has the events before this one read from the history.
    fn fall_behind(
        &mut self,
        event: &FileEvent,
        expected: Option<u64>,
        at_least: u64,
    ) -> RingVerdict {
        self.begin_catch_up(event.index, (expected, at_least), true);
        self.beyond = 0;
        RingVerdict::Behind
    }

    /// Whether another event had the number of this one.
    fn is_other_event(&self, event: &FileEvent) -> bool {
        let at = self
            .recent
            .binary_search_by_key(&event.index, |mark| mark.index);
        let held = at.ok().and_then(|at| self.recent[at].ts);
        held.is_some_and(|ts| ts != event.ts)
    }

    /// Takes an event as given.
    pub(super) fn advance(&mut self, event: &FileEvent) {
        let mark = EventMark {
            index: event.index,
            ts: Some(event.ts),
        };
        self.last = Some(mark);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(mark);
    }

    fn begin_catch_up(
        &mut self,
        until: u64,
        (expected, at_least): (Option<u64>, u64),
        is_verified: bool,
    ) {
        self.catch_up = Some(CatchUp {
            until,
            expected,
            at_least,
            found: 0,
            skipped: 0,
            awaited_since: None,
            is_wide: self.last.is_none_or(|last| last.ts.is_none()),
            is_verified,
            horizon: None,
            failing_since: None,
        });
    }

    /// What is to be read next; `None` if there is no catch-up.
    pub(super) fn request(&self) -> Option<HistoryRequest> {
        let catch_up = self.catch_up.as_ref()?;
        let last = self.last.unwrap_or(EventMark { index: 0, ts: None });
        let from = match catch_up.is_verified {
            true => last.index.saturating_add(1),
            false => last.index,
        };
        let back_ns = match (catch_up.is_wide, last.ts) {
            (false, Some(ts)) => ts.saturating_sub(BACK_NS),
            _ => i64::MIN,
        };
        Some(HistoryRequest {
            from,
            until: catch_up.until,
            from_ns: match self.last {
                Some(_) => back_ns,
                None => self.start.since_ns.unwrap_or(i64::MIN),
            },
            wants_top: catch_up.is_wide && catch_up.horizon.is_none(),
        })
    }

    /// Takes a page of the history at a monotonic time.
    pub(super) fn take(&mut self, page: HistoryPage, now_ns: i64) -> Caught {
        let Some(mut catch_up) = self.catch_up.take() else {
            return Caught {
                then: CatchUpStep::Done,
                ..Caught::default()
            };
        };
        catch_up.failing_since = None;
        if let Some(top) = page.top {
            catch_up.horizon = Some((top, now_ns));
        }
        let is_settled = |catch_up: &CatchUp, index: u64| {
            (catch_up.horizon).is_some_and(|(top, at)| index <= top && now_ns - at >= LOG_WAIT_NS)
        };
        let mut caught = Caught::default();
        let mut events = page.events.into_iter().peekable();
        if !catch_up.is_verified {
            let first = events.peek();
            match self.verify(
                &catch_up,
                first,
                |index| is_settled(&catch_up, index),
                now_ns,
            ) {
                Verified::Yes { is_same } => {
                    if is_same {
                        events.next();
                    }
                    catch_up.is_verified = true;
                }
                Verified::No(gap) => {
                    if let Some(first) = gap.before {
                        let index = first.saturating_sub(1);
                        self.last = Some(EventMark { index, ts: None });
                    }
                    catch_up.is_verified = true;
                    caught.gap_before = Some(gap);
                }
                Verified::NotYet => {
                    caught.then = catch_up.widen_or_wait(first.map(|event| event.index), now_ns);
                    self.catch_up = Some(catch_up);
                    return caught;
                }
            }
        }
        let is_all = (catch_up.expected)
            .is_some_and(|expected| catch_up.found + events.len() as u64 >= expected);
        let mut hole = None;
        for event in events {
            let next = self.last.map(|last| last.index.saturating_add(1));
            if next.is_some_and(|next| event.index < next) {
                continue; // It was recorded twice.
            }
            // A reader that begins anywhere takes the first event as it comes, once it cannot be
            // that earlier ones are on their way to the log.
            let is_next = match next {
                Some(next) => event.index == next,
                None => event.index <= 1 || self.start.is_logged(&event),
            };
            if !is_next && !is_all && !is_settled(&catch_up, event.index) {
                hole = Some(event.index);
                break;
            }
            if (self.ring.as_ref()).is_some_and(|(_, index)| event.index > *index) {
                self.beyond += 1;
            }
            self.advance(&event);
            catch_up.skipped += next.map_or(0, |next| event.index - next);
            catch_up.found += 1;
            caught.events.push(event);
        }
        self.conclude(catch_up, &mut caught, (hole, page.is_full), now_ns);
        caught
    }

    /// Decides how a catch-up goes on after a page, of which the events before `hole` were given.
    fn conclude(
        &mut self,
        mut catch_up: CatchUp,
        caught: &mut Caught,
        (hole, is_full): (Option<u64>, bool),
        now_ns: i64,
    ) {
        let next = self.last.map_or(0, |last| last.index.saturating_add(1));
        let has_all = next == catch_up.until
            || (catch_up.expected).is_some_and(|expected| catch_up.found >= expected);
        let is_settled = (catch_up.horizon).is_some_and(|(_, at)| now_ns - at >= LOG_WAIT_NS);
        let is_over = !is_full && (catch_up.until == u64::MAX || is_settled);
        caught.then = match hole {
            Some(index) => catch_up.widen_or_wait(Some(index), now_ns),
            None if has_all || is_over => CatchUpStep::Done,
            None if is_full => CatchUpStep::More,
            None => catch_up.widen_or_wait(None, now_ns),
        };
        if caught.then != CatchUpStep::Done {
            self.catch_up = Some(catch_up);
            return;
        }
        // The ring may have had some of the events twice.
        let numbers = catch_up.skipped + catch_up.until.saturating_sub(next);
        let missing = catch_up
            .at_least
            .saturating_sub(catch_up.found)
            .min(numbers);
        if missing > 0 {
            let reason = "the ring has overwritten them, and they are not in the history";
            caught.gap_after = Some(self.gap(&catch_up, Some(missing), reason));
        }
    }

    /// Takes notice that the history could not be read at a monotonic time. After a while the
    /// events are given up, which is told.
    pub(super) fn cannot_read(&mut self, reason: &str, now_ns: i64) -> Caught {
        let mut caught = Caught {
            then: CatchUpStep::Wait,
            ..Caught::default()
        };
        let Some(mut catch_up) = self.catch_up.take() else {
            return caught;
        };
        let since = *catch_up.failing_since.get_or_insert(now_ns);
        if now_ns - since < LOG_WAIT_NS {
            self.catch_up = Some(catch_up);
            return caught;
        }
        let missing = catch_up.at_least.saturating_sub(catch_up.found);
        let missing = (missing > 0).then_some(missing);
        let reason = format!("the history cannot be read: {reason}");
        caught.gap_after = Some(self.gap(&catch_up, missing, &reason));
        caught.then = CatchUpStep::Done;
        caught
    }

    fn gap(&self, catch_up: &CatchUp, missing: Option<u64>, reason: &str) -> EventGap {
        EventGap {
            source: self.source.to_string(),
            after: self.last.map_or(0, |last| last.index),
            before: (catch_up.until != u64::MAX).then_some(catch_up.until),
            missing,
            reason: reason.to_owned(),
        }
    }

    /// Whether nothing between the last event and the first one of the history was deleted.
    fn verify(
        &self,
        catch_up: &CatchUp,
        first: Option<&FileEvent>,
        is_settled: impl Fn(u64) -> bool,
        now_ns: i64,
    ) -> Verified {
        let Some(last) = self.last else {
            return Verified::Yes { is_same: false };
        };
        let gap = |before: Option<u64>, reason: &str| {
            Verified::No(EventGap {
                before,
                ..self.gap(catch_up, None, reason)
            })
        };
        match first {
            Some(first) if first.index == last.index => {
                match last.ts.is_none_or(|ts| ts == first.ts) {
                    true => Verified::Yes { is_same: true },
                    false => gap(
                        Some(first.index),
                        "the agent was killed before they were durable, and has given their \
                         numbers to other events",
                    ),
                }
            }
            Some(first) if first.index == last.index.saturating_add(1) => {
                Verified::Yes { is_same: false }
            }
            Some(first) if is_settled(first.index) => {
                gap(Some(first.index), "the history begins after them")
            }
            None if (catch_up.horizon).is_some_and(|(_, at)| now_ns - at >= LOG_WAIT_NS) => gap(
                None,
                "the history has neither the last event nor a later one",
            ),
            _ => Verified::NotYet,
        }
    }
}

/// Whether a reader's last event is in the history.
enum Verified {
    /// It is, as the first event of the page or just before it.
    Yes { is_same: bool },
    /// Events may be missing.
    No(EventGap),
    /// It is not known yet.
    NotYet,
}

impl CursorStart {
    /// Whether all events before this one have come to the log.
    fn is_logged(&self, event: &FileEvent) -> bool {
        // One that comparing has found may have the time of its file.
        !event.flags.has(EventFlags::RECONCILED) && event.ts < self.logged_ns
    }
}

impl CatchUp {
    /// Has all of the history read, or waits for the log if that was done. `index` is the first
    /// event that cannot be given yet.
    fn widen_or_wait(&mut self, index: Option<u64>, now_ns: i64) -> CatchUpStep {
        if !self.is_wide {
            // Where events are known to be missing, they are most likely on their way.
            let since = *self.awaited_since.get_or_insert(now_ns);
            if self.expected.is_some() && now_ns - since < LOG_WAIT_NS {
                return CatchUpStep::Wait;
            }
            self.is_wide = true;
            return CatchUpStep::More;
        }
        let is_beyond = |(top, _): (u64, i64)| index.is_some_and(|index| index > top);
        if self.horizon.is_some_and(is_beyond) {
            self.horizon = None;
        }
        CatchUpStep::Wait
    }
}

#[cfg(test)]
mod tests;
