//! Evaluating rules on durable events and on times: what fires becomes a request, and requests and
//! cursor are kept in one transaction. It is a step without a thread: [`RuleEvaluator::step`] waits
//! for nothing but the disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use barograph_action::{ActionRequest, EventCursor};
use barograph_event::{FileEvent, decode};
use barograph_model::{NS_PER_S, Value};
use barograph_rule::{EventFacts, RecentActions};
use jiff::tz::TimeZone;
use tracing::warn;

use super::ActionsShared;
use super::feed::{DurableEvents, EventLog, FeedWork};
use super::request::{event_facts, request};
use super::schedule::{latest_ns, time_cursor, time_facts};
use crate::recorded_events::RecordedEvents;

/// Most events that are read from a log at a time.
const LOG_EVENTS_MAX: usize = 16_384;
/// Requests at which those that are there are kept before further events are evaluated.
const REQUESTS_MAX: usize = 4_096;
/// How much earlier than the latest one before them events of a log may be, in ns.
const BACK_NS: i64 = 3_600 * NS_PER_S;
/// Time after which the disk is tried again, in ns.
const AGAIN_NS: i64 = NS_PER_S;
/// Shortest time between two looks at the times of rules on schedules, in ns.
const LOOK_NS: i64 = NS_PER_S / 2;

/// What an evaluation has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There may be more.
    More,
    /// All events are seen.
    Idle,
    /// The disk refuses, and is tried again after so many ns.
    Blocked(i64),
}

/// Requests that are not kept yet, with their cursor, and the events that are evaluated next.
struct Pending {
    requests: Vec<ActionRequest>,
    cursor: EventCursor,
    rest: Option<EventRun>,
}

/// Events of a source that are to be evaluated.
struct EventRun {
    events: VecDeque<FileEvent>,
    /// The number up to which they are all.
    last: u64,
}

/// The evaluation of rules on the events of all sources.
pub(super) struct RuleEvaluator {
    shared: Arc<ActionsShared>,
    /// What could not be kept. The rules have counted its events, so they are not evaluated again.
    pending: Option<Pending>,
    /// The disk has refused last.
    is_troubled: bool,
    /// The time of the monotonic clock before which no schedule is looked at, in ns.
    look_ns: i64,
}

impl RuleEvaluator {
    pub(super) fn new(shared: Arc<ActionsShared>) -> Self {
        Self {
            shared,
            pending: None,
            is_troubled: false,
            look_ns: i64::MIN,
        }
    }

    /// Takes the next events, evaluates all rules on them, and keeps what fires.
    pub(super) fn step(&mut self) -> Progress {
        if self.pending.is_none() {
            match self.next_time() {
                Ok(pending) => self.pending = pending,
                Err(reason) => return self.blocked(&reason),
            }
        }
        if self.pending.is_none() {
            match self.shared.feeds.next() {
                None => return Progress::Idle,
                Some(FeedWork::Memory(cursor, events)) => {
                    let run = EventRun {
                        last: events.last,
                        events: decoded(&events, cursor.index),
                    };
                    self.pending = Some(self.evaluate(cursor, run));
                }
                Some(FeedWork::Log(cursor, until, log)) => match self.read(&cursor, until, &log) {
                    Ok(run) => self.pending = Some(self.evaluate(cursor, run)),
                    Err(reason) => return self.blocked(&reason),
                },
            }
        }
        self.keep()
    }

    /// Keeps the pending requests with their cursor.
    fn keep(&mut self) -> Progress {
        let Some(mut pending) = self.pending.take() else {
            return Progress::More;
        };
        let Some(queue) = self.shared.queue() else {
            self.pending = Some(pending);
            return Progress::Blocked(AGAIN_NS);
        };
        match queue.enqueue_up_to(&pending.requests, &pending.cursor) {
            Ok(kept) => {
                if kept.refused() > 0 {
                    let refused = kept.refused();
                    warn!(
                        refused,
                        "events have no action: the queue of actions is full"
                    );
                }
                self.is_troubled = false;
                self.shared.feeds.seen_up_to(&pending.cursor);
                if kept.accepted > 0 {
                    self.shared.wake_workers();
                }
                let rest = pending.rest.take();
                self.pending = rest.map(|rest| self.evaluate(pending.cursor, rest));
                Progress::More
            }
            Err(fault) => {
                self.pending = Some(pending);
                self.blocked(&fault.to_string())
            }
        }
    }

    /// The requests of a rule whose time has come since it was looked last, if there is one. Of
    /// several times of the rule, it is the latest one.
    fn next_time(&mut self) -> Result<Option<Pending>, String> {
        let monotonic_ns = self.shared.clock.monotonic_ns();
        if monotonic_ns < self.look_ns {
            return Ok(None);
        }
        let due = self.due();
        let Some(queue) = self.shared.queue().filter(|_| !due.is_empty()) else {
            return Ok(None);
        };
        let cursors = queue.cursors().map_err(|fault| fault.to_string())?;
        let cursors = cursors.into_iter();
        let cursors: BTreeMap<String, u64> = cursors
            .map(|cursor| (cursor.source, cursor.index))
            .collect();
        for (rule, time_ns) in due {
            let cursor = time_cursor(&rule, time_ns);
            let seen = cursors.get(&cursor.source);
            if seen.is_some_and(|seen| *seen >= cursor.index) {
                continue;
            }
            // A rule without a cursor was kept before there was one: it fires at its next time.
            let requests = match seen {
                Some(_) => self.requests_of_time(&rule, &cursor),
                None => Vec::new(),
            };
            return Ok(Some(Pending {
                requests,
                cursor,
                rest: None,
            }));
        }
        self.look_ns = monotonic_ns.saturating_add(LOOK_NS);
        Ok(None)
    }

    /// The rules on schedules, with the latest time of each.
    fn due(&self) -> Vec<(String, i64)> {
        let (now_ns, zone) = (self.shared.clock.now_ns(), TimeZone::system());
        let rules = self.shared.rules();
        let times = rules.list().filter_map(|rule| {
            let time_ns = latest_ns(rule.schedule.as_ref()?, now_ns, &zone)?;
            Some((rule.name.clone(), time_ns))
        });
        times.collect()
    }

    fn requests_of_time(&self, rule: &str, cursor: &EventCursor) -> Vec<ActionRequest> {
        let facts = time_facts(cursor, &self.shared.node);
        let mut requests = Vec::new();
        let mut rules = self.shared.rules();
        rules.evaluate_time(rule, &facts, &mut |rule, _| match request(
            rule,
            &facts,
            Vec::new(),
            self.shared.owner,
        ) {
            Ok(made) => requests.push(made),
            Err(fault) => warn!(rule = rule.name, %fault, "a time has no action"),
        });
        requests
    }

    fn blocked(&mut self, reason: &str) -> Progress {
        if !std::mem::replace(&mut self.is_troubled, true) {
            warn!(reason, "rules do not see events now; it is tried again");
        }
        Progress::Blocked(AGAIN_NS)
    }

    /// Evaluates all rules on these events, as far as there is room for requests.
    fn evaluate(&self, mut cursor: EventCursor, mut run: EventRun) -> Pending {
        let mut requests = Vec::new();
        let mut rules = self.shared.rules();
        while let Some(event) = run.events.pop_front() {
            cursor.ts = cursor.ts.max(event.ts);
            cursor.index = event.index;
            let facts = event_facts(&event, &cursor.source, &self.shared.node);
            let causes = causes(rules.recent(), &facts);
            rules.evaluate(&facts, &mut |rule, _| match request(
                rule,
                &facts,
                causes.clone(),
                self.shared.owner,
            ) {
                Ok(made) => requests.push(made),
                Err(fault) => warn!(rule = rule.name, %fault, "an event has no action"),
            });
            if requests.len() >= REQUESTS_MAX {
                break;
            }
        }
        let is_over = run.events.is_empty();
        if is_over {
            cursor.index = run.last;
        }
        Pending {
            requests,
            cursor,
            rest: (!is_over).then_some(run),
        }
    }

    /// Reads the first events of a log after the cursor, up to the number `until`.
    fn read(&self, cursor: &EventCursor, until: u64, log: &EventLog) -> Result<EventRun, String> {
        let Some(dir) = &log.dir else {
            return Ok(EventRun {
                events: VecDeque::new(),
                last: until,
            });
        };
        let recorded = RecordedEvents {
            dir,
            node: &self.shared.node,
            stream: &log.stream,
        };
        let from_ns = cursor.ts.saturating_sub(BACK_NS);
        let numbers = cursor.index.saturating_add(1)..=until;
        let events = recorded.first_of(numbers, from_ns, LOG_EVENTS_MAX)?;
        let last = match events.last() {
            Some(event) if events.len() >= LOG_EVENTS_MAX => event.index,
            _ => until,
        };
        Ok(EventRun {
            events: events.into(),
            last,
        })
    }
}

/// The rules of whose actions an event is an effect, each once.
fn causes(recent: &RecentActions, event: &EventFacts<'_>) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    for cause in recent.rules_that_caused(event) {
        if !causes.iter().any(|known| known == cause) {
            causes.push(cause.to_owned());
        }
    }
    causes
}

/// The events after the one with this number.
fn decoded(events: &DurableEvents, after: u64) -> VecDeque<FileEvent> {
    let records = events
        .samples
        .iter()
        .filter_map(|sample| match &sample.value {
            Value::Bytes(record) => decode(record, sample.ts).ok(),
            _ => None,
        });
    records.filter(|event| event.index > after).collect()
}
