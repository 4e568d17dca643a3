//! The loop of rules: it reads new samples from the segments, evaluates and fires.
//! [`RuleLoop::step`] does the work that is due and returns the time of the next,
//! [`RuleLoop::apply`] takes in the past that was read, and neither waits. [`run`] is the shell
//! that waits.

use std::sync::Arc;
use std::time::Duration;

use barograph_model::{NS_PER_MS, NS_PER_S};
use barograph_rule::{Firing, RuleLimits, Rules};
use barograph_stream::SegmentTicks;
use serde_json::Value as Json;
use tracing::warn;

use super::backfill::{FoundPasts, PastEvent, PastOrder, RuleBackfill};
use super::follow::StreamFollower;
use super::past::PastThread;
use super::{RulesShared, document};

/// Longest time between two steps: scopes may have come, looks may have changed nothing, and the
/// agent may be stopping.
const STEP_NS_MAX: i64 = 250 * NS_PER_MS;
/// Shortest time between two steps, unless there is news: times closer together are one step.
const STEP_NS_MIN: i64 = NS_PER_MS / 10;
/// Most reads of the past before an evaluation: a new rule needs earlier samples of its streams,
/// and reading them may find further streams.
const FILLS_MAX: usize = 4;
/// The document is written at most so often, in ns.
const DOCUMENT_NS: i64 = NS_PER_S;

/// The loop, with everything that it owns.
pub(crate) struct RuleLoop {
    shared: Arc<RulesShared>,
    follower: StreamFollower,
    /// The request for the past that is under way; meanwhile no rule is evaluated, since windows
    /// are filled before a condition is computed for the first time.
    backfill: Option<RuleBackfill>,
    /// The order of that request, until a reader has it.
    order: Option<PastOrder>,
    /// Requests since the rules were evaluated last.
    fills: usize,
    fired: Vec<Firing>,
    published: Json,
    next_document_ns: i64,
}

impl RuleLoop {
    pub(super) fn new(shared: Arc<RulesShared>) -> Self {
        Self {
            follower: StreamFollower::new(&shared.run_dir, shared.demand.is_some()),
            shared,
            backfill: None,
            order: None,
            fills: 0,
            fired: Vec::new(),
            published: Json::Null,
            next_document_ns: 0,
        }
    }

    /// Does the work that is due. Returns the time of the next, in ns of the monotonic clock;
    /// `None` if there is no rule, or the agent stops.
    pub(crate) fn step(&mut self) -> Option<i64> {
        if self.is_over() {
            return None;
        }
        let monotonic_ns = self.shared.clock.monotonic_ns();
        if let Some(backfill) = &self.backfill {
            let deadline_ns = backfill.deadline_ns();
            if monotonic_ns < deadline_ns {
                return Some(deadline_ns);
            }
            self.apply(PastEvent::Ended);
        }
        let now_ns = self.shared.clock.now_ns();
        let mut state = self.shared.lock();
        self.follower.feed(&mut state.rules, now_ns);
        if self.fills < FILLS_MAX {
            let streams = self.follower.take_wanted(&state.rules);
            if !streams.is_empty() {
                self.fills += 1;
                let backfill = RuleBackfill::new(streams, monotonic_ns);
                let deadline_ns = backfill.deadline_ns();
                self.order = Some(backfill.order());
                self.backfill = Some(backfill);
                return Some(deadline_ns);
            }
        }
        drop(state);
        self.fills = 0;
        let next_ns = self.evaluate(monotonic_ns, now_ns);
        self.call();
        Some(next_ns)
    }

    /// Takes in the past that was read for the request that is under way, without which it has no
    /// effect.
    pub(crate) fn apply(&mut self, event: PastEvent) {
        match event {
            PastEvent::Found(found) => self.seed(found),
            PastEvent::Ended => {
                let late = self.backfill.as_ref().map(RuleBackfill::late);
                self.seed(late.unwrap_or_default());
                self.backfill = None;
            }
        }
    }

    /// The order for the past of streams, once for each request. A reader answers it by
    /// [`RuleLoop::apply`].
    pub(crate) fn take_order(&mut self) -> Option<PastOrder> {
        self.order.take()
    }

    /// Returns whether there is nothing to do any more. Whoever makes the next rule starts anew,
    /// with streams as they are then.
    fn is_over(&self) -> bool {
        let mut state = self.shared.lock();
        if !state.rules.is_empty() && !state.is_over {
            return false;
        }
        if !state.is_over {
            state.rules = Rules::new(RuleLimits::default());
        }
        state.is_running = false;
        true
    }

    /// Gives windows the past of their streams.
    fn seed(&mut self, found: FoundPasts) {
        let Some(backfill) = self.backfill.as_mut().filter(|_| !found.is_empty()) else {
            return;
        };
        backfill.found(&found);
        let now_ns = self.shared.clock.now_ns();
        let mut state = self.shared.lock();
        self.follower.feed(&mut state.rules, now_ns);
        self.follower
            .seed(&mut state.rules, backfill.streams(), found, now_ns);
    }

    /// Evaluates the rules, and writes their document if it changed. Returns the time of the next
    /// step.
    fn evaluate(&mut self, monotonic_ns: i64, now_ns: i64) -> i64 {
        let mut state = self.shared.lock();
        let fired = &mut self.fired;
        state
            .rules
            .evaluate(now_ns, &mut |firing| fired.push(firing));
        let due_ns = state.rules.next_deadline_ns();
        let is_written = monotonic_ns < self.next_document_ns && self.fired.is_empty();
        let news = (!is_written).then(|| document(&state));
        drop(state);
        if let Some(news) = news.filter(|news| *news != self.published) {
            self.next_document_ns = monotonic_ns + DOCUMENT_NS;
            self.shared.publish();
            self.published = news;
        }
        let left_ns = due_ns.map_or(i64::MAX, |at_ns| at_ns.saturating_sub(now_ns));
        monotonic_ns.saturating_add(left_ns.clamp(STEP_NS_MIN, STEP_NS_MAX))
    }

    /// Hands over the firings, without the lock.
    fn call(&mut self) {
        let mut failures = self.shared.action.failures();
        for firing in self.fired.drain(..) {
            if let Err(reason) = self.shared.fire(&firing) {
                failures.push((firing.rule, reason));
            }
        }
        for (rule, reason) in failures {
            warn!(rule, reason, "a call came to nothing");
            self.shared.lock().rules.call_failed(&rule, reason);
        }
    }

    /// The present ticks of all segments, to sleep on after a step.
    fn ticks(&self) -> SegmentTicks {
        self.follower.ticks()
    }
}

/// Runs the loop until there is no rule, or the agent stops.
pub(super) fn run(mut rule_loop: RuleLoop) {
    let clock = Arc::clone(&rule_loop.shared.clock);
    let mut past = PastThread::new(&clock);
    loop {
        // Before the step, so that what comes during it is not slept over.
        let ticks = rule_loop.ticks();
        let Some(next_ns) = rule_loop.step() else {
            return;
        };
        if let Some(order) = rule_loop.take_order() {
            past.start(order);
        }
        let wait_ns = next_ns.saturating_sub(clock.monotonic_ns()).max(0);
        let wait = Duration::from_nanos(wait_ns.unsigned_abs());
        if rule_loop.backfill.is_none() {
            ticks.wait(wait);
        } else if let Some(event) = past.wait(wait) {
            rule_loop.apply(event);
        }
    }
}

#[cfg(test)]
mod tests;
