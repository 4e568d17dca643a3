//! The thread of rules: it reads what is new in the segments, evaluates, fires, and sleeps until
//! there is news or time alone could change something.

use std::sync::Arc;
use std::time::Duration;

use barograph_model::NS_PER_S;
use barograph_rule::{Firing, RuleLimits, Rules};
use serde_json::Value as Json;
use tracing::warn;

use super::backfill::{Ask, Backfill};
use super::follow::Follow;
use super::{Shared, document};

/// The thread looks at least so often: for scopes that have come, for looks that changed nothing, and
/// whether it is to stop.
const SLEEP_MAX: Duration = Duration::from_millis(250);
/// …and sleeps at least so long, unless there is news: times that follow each other closely are one look.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// So many times in one look the past of streams is read that rules have come to read.
const FILLS_MAX: usize = 4;
/// The document is written at most so often, in ns.
const DOCUMENT_NS: i64 = NS_PER_S;

/// What the thread has.
pub(super) struct Watch<'a> {
    shared: &'a Arc<Shared>,
    follow: Follow,
    backfill: Backfill,
    fired: Vec<(Firing, String)>,
    published: Json,
    next_document_ns: i64,
}

impl<'a> Watch<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>) -> Self {
        Self {
            shared,
            follow: Follow::new(&shared.run_dir),
            backfill: Backfill::new(&shared.clock),
            fired: Vec::new(),
            published: Json::Null,
            next_document_ns: 0,
        }
    }

    /// Until there is no rule, or the agent stops.
    pub(super) fn run(mut self) {
        loop {
            // Before the look, so that what comes during it is not slept over.
            let ticks = self.follow.ticks();
            let Some(sleep) = self.round() else {
                return;
            };
            self.call();
            ticks.wait(sleep);
        }
    }

    /// One look; how long nothing is to be done after it, or `None` at the end.
    fn round(&mut self) -> Option<Duration> {
        let clock = &self.shared.clock;
        let (monotonic_ns, now_ns) = (clock.monotonic_ns(), clock.now_ns());
        let mut state = self.shared.lock();
        if state.rules.is_empty() || state.is_over {
            // Whoever makes the next rule starts anew, with streams as they are then.
            let is_over = state.is_over;
            if !is_over {
                state.rules = Rules::new(RuleLimits::default());
            }
            state.is_running = false;
            return None;
        }
        self.follow.feed(&mut state.rules, now_ns);
        // Windows are filled before a condition is computed for the first time.
        for _ in 0..FILLS_MAX {
            let asks = self.follow.take_asks(&state.rules);
            if asks.is_empty() {
                break;
            }
            drop(state);
            self.fill(&asks);
            state = self.shared.lock();
            self.follow.feed(&mut state.rules, now_ns);
        }
        let now_ns = clock.now_ns();
        let (fired, follow) = (&mut self.fired, &self.follow);
        state.rules.evaluate(now_ns, &mut |firing| {
            let scope = firing.stream.map_or("", |key| follow.scope_of(key));
            let scope = scope.to_owned();
            fired.push((firing, scope));
        });
        let due_ns = state.rules.next_deadline_ns();
        let is_written = monotonic_ns < self.next_document_ns && self.fired.is_empty();
        let news = (!is_written).then(|| document(&state));
        drop(state);
        if let Some(news) = news.filter(|news| *news != self.published) {
            self.next_document_ns = monotonic_ns + DOCUMENT_NS;
            self.shared.publish(&news);
            self.published = news;
        }
        let left_ns = due_ns.map_or(i64::MAX, |at_ns| at_ns.saturating_sub(now_ns));
        let left = Duration::from_nanos(left_ns.max(0).unsigned_abs());
        Some(left.clamp(SLEEP_MIN, SLEEP_MAX))
    }

    /// Gives windows the past of their streams, without the lock while it is read.
    fn fill(&mut self, asks: &[Ask]) {
        let Self {
            shared,
            follow,
            backfill,
            ..
        } = self;
        let is_over = || shared.lock().is_over;
        backfill.read(asks, &is_over, &mut |told| {
            let mut state = shared.lock();
            follow.feed(&mut state.rules, shared.clock.now_ns());
            follow.seed(&mut state.rules, asks, told, &*shared.clock);
        });
    }

    /// Hands over what has fired, without the lock.
    fn call(&mut self) {
        for (firing, scope) in self.fired.drain(..) {
            if let Err(reason) = self.shared.fire.fire(&firing, &scope) {
                warn!(
                    rule = firing.rule,
                    call = firing.call,
                    reason,
                    "a call came to nothing"
                );
                let mut state = self.shared.lock();
                state.rules.call_failed(&firing.rule, reason);
            }
        }
    }
}
