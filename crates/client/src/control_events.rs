//! Control events as they come: a subscription, which is a watch of their streams on all nodes that
//! are known here, with a filter.
//!
//! An event is consumed in one of three ways, by the thread that calls: [`check`] never waits,
//! [`wait`] sleeps until there is one, and [`dispatch`] runs a function for each. The program has
//! no thread of ours.
//!
//! [`check`]: ControlSubscription::check
//! [`wait`]: ControlSubscription::wait
//! [`dispatch`]: ControlSubscription::dispatch

mod event;
mod filter;
mod sequences;

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S, Pattern, Selector, Value};
use barograph_stream::{ControlEventRecord, PEERS_DOCUMENT, PeersRow, is_control_event_stream};

use crate::publish::life_of_this_process;
use crate::view_follower::ViewFollower;
use crate::{ClientError, Observer, Update, Watch};
use sequences::Sequences;

pub use event::{ControlEvent, control_event_json};
pub use filter::{ControlFilter, ControlFilterFault};

/// Most past events with which a subscription begins: the newest ones.
pub const CONTROL_PAST_MAX: usize = 4_096;
/// Most events for which one call of [`ControlSubscription::dispatch`] runs the function.
pub const CONTROL_DISPATCH_MAX: usize = 1_024;

/// The name that the streams of programs and agents match, with other names perhaps.
const STREAMS: &str = "*control.event.record";
/// Number of updates beyond which one look stops growing (by at most one ring).
const LOOK_UPDATES_MAX: usize = 1_024;
/// Time for which the differences of clocks of other nodes are not read again, in ns.
const CLOCKS_NS: i64 = NS_PER_S;
/// How far wrong the known difference of two clocks may be, in ns.
const SLACK_NS: i64 = NS_PER_S;

/// What a subscription has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlCounts {
    /// Events that were given.
    pub given: u64,
    /// Events that the filter has passed over.
    pub passed_over: u64,
    /// Events that were lost on the way, by the numbers of those that came after them.
    pub missed: u64,
    /// Samples of the streams that their rings no longer had when they were looked at; the events
    /// among them are missed as well, once a later one of their thread has come.
    pub overwritten: u64,
    /// Samples that are no events of this version.
    pub foreign: u64,
}

/// Gives the control events that a program wants and may read, those of each thread of a program in
/// their order.
pub struct ControlSubscription {
    watch: Watch,
    clock: Arc<dyn Clock>,
    home: Observer,
    filter: ControlFilter,
    sequences: Sequences,
    /// Past events with which it begins.
    past: VecDeque<ControlEvent>,
    updates: VecDeque<Update>,
    clocks: Clocks,
    /// Monotonic time at which it began.
    begun_ns: i64,
    counts: ControlCounts,
}

/// How far the clocks of other nodes are ahead of this one's.
#[derive(Default)]
struct Clocks {
    /// The name of this node.
    own: String,
    ahead_ns: BTreeMap<String, i64>,
    /// Monotonic time before which they are not read again.
    due_ns: Option<i64>,
}

impl Observer {
    /// Subscribes to control events: those of this node and of all nodes whose events are mirrored
    /// here; of the observer of a mirror, those of its node. It begins with the events that are
    /// published from now on, and with past ones if the filter asks for them.
    ///
    /// # Errors
    ///
    /// The agent's segment cannot be read.
    pub fn control_events(
        &self,
        filter: ControlFilter,
    ) -> Result<ControlSubscription, ClientError> {
        let clock = Arc::clone(self.follower.clock());
        let begun_ns = clock.monotonic_ns();
        let run_dir = &self.run_dir;
        let opened = ViewFollower::open_with_mirrors(run_dir, self.scopes, Arc::clone(&clock));
        let follower = opened.map_err(|error| self.of_this(error))?;
        let selector = Selector {
            name: Pattern::new(STREAMS),
            labels: filter.labels.clone(),
        };
        let watch = Watch::new(Arc::new(follower), selector, LOOK_UPDATES_MAX);
        let mut subscription = ControlSubscription {
            watch,
            clock,
            home: self.home().clone(),
            filter,
            sequences: Sequences::default(),
            past: VecDeque::new(),
            updates: VecDeque::new(),
            clocks: Clocks::default(),
            begun_ns,
            counts: ControlCounts::default(),
        };
        subscription.begin();
        Ok(subscription)
    }
}

impl ControlSubscription {
    /// Takes in what the rings have now: past events, if they are wanted, and the numbers that
    /// later ones are compared with.
    fn begin(&mut self) {
        let wants_past = !self.filter.past.is_zero();
        let past_ns = i64::try_from(self.filter.past.as_nanos()).unwrap_or(i64::MAX);
        let Self {
            watch,
            filter,
            sequences,
            past,
            clocks,
            clock,
            home,
            ..
        } = self;
        watch.take_first(wants_past, |update| {
            let Some(record) = record_of(&update) else {
                return;
            };
            sequences.note(&update, &record, true);
            if !wants_past {
                return;
            }
            let ahead_ns = clocks.ahead_ns(&update.node, home, &**clock);
            let age_ns = age_ns(clock.now_ns(), update.sample.ts, ahead_ns);
            if age_ns <= past_ns && wants(filter, &update, &record, age_ns) {
                past.push_back(ControlEvent::new(&update, &record, ahead_ns, age_ns, 0));
                if past.len() >= 2 * CONTROL_PAST_MAX {
                    keep_newest(past);
                }
            }
        });
        keep_newest(past);
    }

    /// Returns the next event that is here already.
    pub fn check(&mut self) -> Option<ControlEvent> {
        self.wait(Duration::ZERO)
    }

    /// Returns the next event, and waits for one at most so long.
    pub fn wait(&mut self, timeout: Duration) -> Option<ControlEvent> {
        if let Some(event) = self.past.pop_front() {
            self.counts.given += 1;
            return Some(self.aged(event));
        }
        let began_ns = self.clock.monotonic_ns();
        let (mut left, mut is_last_look) = (timeout, false);
        loop {
            while let Some(update) = self.updates.pop_front() {
                if let Some(event) = self.take(&update) {
                    self.counts.given += 1;
                    return Some(event);
                }
            }
            if is_last_look {
                return None;
            }
            let mut updates = self.watch.next(left)?;
            // Each stream is in its order, and all are by their times.
            updates.sort_by_key(|update| update.sample.ts);
            self.updates.extend(updates);
            let spent_ns = self.clock.monotonic_ns().saturating_sub(began_ns).max(0);
            left = timeout.saturating_sub(Duration::from_nanos(spent_ns.unsigned_abs()));
            is_last_look = left.is_zero();
        }
    }

    /// Waits for an event at most so long, and runs `handle` for it and for those that are here by
    /// then, in this thread, until it breaks. Returns how many it was run for:
    /// [`CONTROL_DISPATCH_MAX`] at most.
    pub fn dispatch(
        &mut self,
        timeout: Duration,
        mut handle: impl FnMut(&ControlEvent) -> ControlFlow<()>,
    ) -> usize {
        let mut next = self.wait(timeout);
        let mut handled = 0;
        while let Some(event) = next {
            handled += 1;
            if handle(&event).is_break() || handled == CONTROL_DISPATCH_MAX {
                break;
            }
            next = self.check();
        }
        handled
    }

    /// What it has counted so far.
    pub fn counts(&self) -> ControlCounts {
        self.counts
    }

    /// The event of an update, if it is wanted.
    fn take(&mut self, update: &Update) -> Option<ControlEvent> {
        self.counts.overwritten += update.lost;
        let is_ours = is_control_event_stream(update.descriptor.name.as_str());
        let Some(record) = record_of(update) else {
            self.counts.foreign += u64::from(is_ours);
            return None;
        };
        let missed = self.sequences.note(update, &record, false)?;
        self.counts.missed = self.counts.missed.saturating_add(missed);
        let ahead_ns = (self.clocks).ahead_ns(&update.node, &self.home, &*self.clock);
        let age_ns = age_ns(self.clock.now_ns(), update.sample.ts, ahead_ns);
        let is_before = ahead_ns.is_some() && self.is_before(age_ns);
        if is_before || !wants(&self.filter, update, &record, age_ns) {
            self.counts.passed_over += 1;
            // It is told with the next event that is given.
            self.sequences.put_off(update, &record, missed);
            return None;
        }
        let missed = missed + self.sequences.take_put_off(update, &record);
        let event = ControlEvent::new(update, &record, ahead_ns, age_ns, missed);
        Some(event)
    }

    /// Whether an event is older than those with which the subscription begins: what a mirror that
    /// has just come has of its node's past.
    fn is_before(&self, age_ns: i64) -> bool {
        let since_ns = self.clock.monotonic_ns().saturating_sub(self.begun_ns);
        let past_ns = i64::try_from(self.filter.past.as_nanos()).unwrap_or(i64::MAX);
        age_ns > since_ns.saturating_add(past_ns).saturating_add(SLACK_NS)
    }

    /// A past event, with its present age.
    fn aged(&self, mut event: ControlEvent) -> ControlEvent {
        event.age_ns = age_ns(self.clock.now_ns(), event.ts, event.clock_ahead_ns);
        event
    }
}

/// The record of an update; `None` if it is no event.
fn record_of(update: &Update) -> Option<ControlEventRecord<'_>> {
    let Value::Bytes(bytes) = &update.sample.value else {
        return None;
    };
    let is_event = is_control_event_stream(update.descriptor.name.as_str());
    is_event
        .then(|| ControlEventRecord::read(bytes).ok())
        .flatten()
}

fn wants(
    filter: &ControlFilter,
    update: &Update,
    record: &ControlEventRecord<'_>,
    age_ns: i64,
) -> bool {
    let is_own = filter.excludes_own && life_of_this_process() == Some(record.life);
    !is_own && filter.wants(&update.node, record, age_ns)
}

/// The age of an event, by its node's own clock as far as that is known.
fn age_ns(now_ns: i64, ts: i64, ahead_ns: Option<i64>) -> i64 {
    let then_ns = ts.saturating_sub(ahead_ns.unwrap_or_default());
    now_ns.saturating_sub(then_ns).max(0)
}

/// Orders past events by time, and keeps the newest.
fn keep_newest(past: &mut VecDeque<ControlEvent>) {
    past.make_contiguous().sort_by_key(|event| event.ts);
    let surplus = past.len().saturating_sub(CONTROL_PAST_MAX);
    past.drain(..surplus);
}

impl Clocks {
    /// How far the clock of a node is ahead; `None` of this one, or if it is not known.
    fn ahead_ns(&mut self, node: &str, home: &Observer, clock: &dyn Clock) -> Option<i64> {
        let now_ns = clock.monotonic_ns();
        if self.due_ns.is_none_or(|due_ns| now_ns >= due_ns) {
            self.due_ns = Some(now_ns.saturating_add(CLOCKS_NS));
            self.own = home.node();
            let document = home.run_dir().document(PEERS_DOCUMENT).ok().flatten();
            let rows = document.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            let rows: Vec<PeersRow> = rows.unwrap_or_default();
            let known = rows.into_iter();
            self.ahead_ns = known
                .filter_map(|row| Some((row.node, row.ahead_ns?)))
                .collect();
        }
        let of_other = (*node != *self.own).then(|| self.ahead_ns.get(node));
        of_other.flatten().copied()
    }
}
