//! The poller: one loop over deadlines. It reads the sources that are due, applies the batches that
//! slow sources handed over, and counts both. It never waits.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Clock, Labels, NS_PER_S, Sink};

use crate::books::Books;
use crate::budget::{BudgetConfig, Purse};
use crate::config::Caps;
use crate::fact::{FactSet, FactTable, facts};
use crate::feed::Feed;
use crate::pace::Pace;
use crate::policy::IntervalPolicy;
use crate::report::counted;
use crate::sources::TABLE;
use crate::sources::block_trace::remove_leftovers;
use crate::util::file::SysRoot;
use crate::worker::{Asked, Wake, Worker};
use crate::{Batch, FactSpec, Missing, Report, Source, SourceReport, SourceState, SourcesConfig};

/// How long [`Poller::stop`] waits for slow sources in total.
pub const STOP_WAIT: Duration = Duration::from_secs(2);

facts! {
    /// The facts that the poller measures about each source.
    pub enum SelfFact in "source" {
        Polls: Counter Int "polls.count" "count" "Polls of the source.";
        Errors: Counter Int "errors.count" "count" "Polls that failed in part or completely.";
        Missed: Counter Int "missed.count" "count" "Deadlines that passed without a poll because the previous poll was still running or late.";
        Cost: Counter Float "cost.seconds" "seconds" "Time spent polling the source.";
        Skew: Gauge Float "skew.seconds" "seconds" "Time by which the last poll began too late.";
        Interval: Gauge Float "interval.seconds" "seconds" "Present time between two polls.";
        Up: State Bool "up.flag" "flag" "Whether the last poll succeeded; a device or file system that this machine does not have is not a failure.";
    }
}

/// Every fact that the sources and the poller can give, for the reference documentation.
pub fn all_facts() -> impl Iterator<Item = &'static FactSpec> {
    TABLE
        .iter()
        .flat_map(|entry| entry.facts.iter().copied().flatten())
        .chain(SelfFact::SPECS)
}

/// Reads each source when it is due.
pub struct Poller {
    clock: Arc<dyn Clock>,
    entries: Vec<Entry>,
    /// The next deadline of each entry, in the order of `entries`. Searching some tens of numbers
    /// that lie side by side is faster than keeping a heap in order, and no outdated deadlines
    /// remain.
    deadlines_ns: Vec<i64>,
    /// The value of [`Sink::wishes`] at which the wishes of policies were last applied.
    wishes: u64,
    purse: Purse,
}

struct Entry {
    name: &'static str,
    policy: IntervalPolicy,
    interval_ns: i64,
    /// When the source is to be read next. Its deadline may be earlier: a check whether a slow read
    /// hangs.
    next_read_ns: i64,
    /// When the newest read began.
    last_read_ns: Option<i64>,
    /// The wishes of policies for the source, and its share of the budget.
    pace: Pace,
    driver: Driver,
    feed: Feed,
    books: Books,
    own: Own,
}

/// The poller's own facts about a source.
struct Own {
    facts: FactSet<SelfFact>,
    batch: Batch,
    feed: Feed,
}

enum Driver {
    /// A source that is read on the loop.
    Live {
        source: Box<dyn Source>,
        batch: Batch,
    },
    /// A source that is read on a thread of its own, with the report of its last read.
    Slow { worker: Worker, report: Report },
    /// A slow source for which the system had no thread.
    Dead,
}

/// What was done at a deadline.
#[derive(PartialEq, Eq)]
enum Done {
    /// A read was made.
    Read,
    /// A slow source was asked for a read; its batch will come later.
    Asked,
    /// No read: it was not yet time for one, or the previous one has not ended.
    Nothing,
}

impl Poller {
    /// Creates a poller of all sources that the configuration enables, due at once. `wake` is
    /// called from another thread when a slow source's batch is ready: call [`Poller::run_due`]
    /// soon after.
    pub fn new(
        config: &SourcesConfig,
        clock: Arc<dyn Clock>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        if !config.poll_of("block_trace").is_enabled() {
            // A killed agent leaves its trace switched on, which costs time whether or not it is
            // read.
            remove_leftovers(&SysRoot::new(&config.sys_root));
        }
        let sources = crate::all_sources(config).into_iter().map(|source| {
            let policy = config.poll_of(source.name()).interval_policy();
            (source, policy)
        });
        let mut poller = Self::with_sources(sources, clock, wake);
        for entry in &mut poller.entries {
            entry.pace.caps = config.poll_of(entry.name).caps();
        }
        poller
    }

    /// Creates a poller of these sources and no others.
    pub fn with_sources(
        sources: impl IntoIterator<Item = (Box<dyn Source>, IntervalPolicy)>,
        clock: Arc<dyn Clock>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        let now_ns = clock.monotonic_ns();
        let entries: Vec<_> = sources
            .into_iter()
            .map(|(source, policy)| Entry::new(source, policy, now_ns, &clock, &wake))
            .collect();
        Self {
            clock,
            deadlines_ns: vec![now_ns; entries.len()],
            entries,
            wishes: 0,
            purse: Purse::default(),
        }
    }

    /// Sets the budget for reading the sources whose streams are under policies.
    pub fn with_budget(mut self, budget: BudgetConfig) -> Self {
        self.purse = Purse::new(budget);
        let floor_ns = budget.shortest_ns();
        let entries = self.entries.iter_mut();
        entries.for_each(|e| e.pace.give(0, floor_ns));
        self
    }

    /// Sets the range of intervals that policies may choose for the source of this name.
    pub fn with_caps(mut self, source: &str, caps: Caps) -> Self {
        let of_name = self.entries.iter_mut().find(|e| e.name == source);
        of_name.into_iter().for_each(|e| e.pace.caps = caps);
        self
    }

    /// When [`Poller::run_due`] next has something to do, in monotonic time of the clock.
    pub fn next_deadline_ns(&self) -> i64 {
        let deadlines_ns = self.deadlines_ns.iter().copied();
        deadlines_ns.min().unwrap_or(i64::MAX)
    }

    /// Applies the batches that slow sources have ready and reads each source that is due once.
    /// Returns how many reads ended. If a read makes a policy want another source sooner, that
    /// source is read in the next run.
    pub fn run_due(&mut self, sink: &mut dyn Sink) -> usize {
        let begin_ns = self.clock.monotonic_ns();
        let mut read = 0;
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if entry.collect(begin_ns, sink) {
                entry.publish(&*self.clock, sink);
                read += 1;
                self.replan(index);
            }
        }
        self.heed(sink);
        for index in 0..self.entries.len() {
            if self.deadlines_ns[index] > begin_ns {
                continue;
            }
            let entry = &mut self.entries[index];
            let done = entry.run(&*self.clock, sink);
            read += usize::from(done == Done::Read);
            if done != Done::Asked {
                entry.publish(&*self.clock, sink);
            }
            self.replan(index);
        }
        self.heed(sink);
        self.share(begin_ns);
        read
    }

    /// Moves up the deadlines of sources that policies want to read sooner for a reason other than
    /// their own reads, such as a sentinel.
    fn heed(&mut self, sink: &mut dyn Sink) {
        let wishes = sink.wishes();
        if wishes == std::mem::replace(&mut self.wishes, wishes) {
            return;
        }
        let now_ns = self.clock.monotonic_ns();
        for index in 0..self.entries.len() {
            self.entries[index].heed(now_ns, sink);
            self.replan(index);
        }
    }

    fn replan(&mut self, index: usize) {
        let look_ns = self.entries[index].next_look_ns(self.clock.monotonic_ns());
        self.deadlines_ns[index] = look_ns;
    }

    /// Gives each source whose streams are under policies its share of the budget, if it is time
    /// to.
    fn share(&mut self, now_ns: i64) {
        if self.wishes == 0 || !self.purse.is_due(now_ns) {
            return;
        }
        let least_ns = self.purse.config.shortest_ns();
        let ask = |e: &Entry| e.pace.ask(now_ns, least_ns, e.books.cost_ns_mean());
        let shares = self
            .purse
            .share(now_ns, self.entries.iter().filter_map(ask));
        let mut shares = shares.map(<[_]>::iter);
        let under_policies = self.entries.iter_mut().filter(|e| e.pace.wants.is_some());
        for entry in under_policies {
            let share = shares.as_mut().and_then(Iterator::next);
            let floor_ns = share.map_or(least_ns, |share| share.interval_ns.max(least_ns));
            entry.pace.give(now_ns, floor_ns);
        }
    }

    /// The report of every source.
    pub fn reports(&self) -> Vec<SourceReport> {
        let now_ns = self.clock.monotonic_ns();
        self.entries
            .iter()
            .map(|entry| entry.report(now_ns))
            .collect()
    }

    /// Ends the threads of slow sources and waits for them, at most [`STOP_WAIT`] in total. A
    /// thread that hangs in the kernel is left to end on its own.
    pub fn stop(self) {
        let workers = self.entries.iter().filter_map(|entry| match &entry.driver {
            Driver::Slow { worker, .. } => Some((entry.name, worker)),
            Driver::Live { .. } | Driver::Dead => None,
        });
        let workers: Vec<_> = workers.collect();
        workers.iter().for_each(|(_, worker)| worker.stop());
        let share = STOP_WAIT / workers.len().max(1) as u32;
        for (name, worker) in workers {
            if !worker.ended_within(share) {
                tracing::warn!(
                    source = name,
                    "still hangs in a read at shutdown, left behind"
                );
            }
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        for entry in &self.entries {
            if let Driver::Slow { worker, .. } = &entry.driver {
                worker.stop();
            }
        }
    }
}

impl Entry {
    fn new(
        source: Box<dyn Source>,
        policy: IntervalPolicy,
        now_ns: i64,
        clock: &Arc<dyn Clock>,
        wake: &Wake,
    ) -> Self {
        let name = source.name();
        let mut books = Books::default();
        let driver = match source.is_slow() {
            false => Driver::Live {
                source,
                batch: Batch::new(),
            },
            true => match Worker::start(source, clock.clone(), wake.clone()) {
                Ok(worker) => Driver::Slow {
                    worker,
                    report: Report::default(),
                },
                Err(e) => {
                    books.fail(format!("no thread for the source: {e}"));
                    Driver::Dead
                }
            },
        };
        let labels = Labels::new([("source", name)]).expect("names of sources are short");
        Self {
            name,
            policy,
            interval_ns: policy.start().interval_ns,
            next_read_ns: now_ns,
            last_read_ns: None,
            pace: Pace::new(Caps::none(policy.start().interval_ns)),
            driver,
            feed: Feed::default(),
            books,
            own: Own {
                facts: FactSet::new(labels),
                batch: Batch::new(),
                feed: Feed::default(),
            },
        }
    }

    /// Applies the batch that a slow source has ready; returns whether there was one.
    fn collect(&mut self, now_ns: i64, sink: &mut dyn Sink) -> bool {
        let Driver::Slow { worker, report } = &mut self.driver else {
            return false;
        };
        let Some((outcome, outbox)) = worker.take() else {
            return false;
        };
        *report = outcome.report;
        self.books.samples_last = outbox.samples.len();
        self.books.facts_refused = outcome.refused;
        self.feed
            .apply(outbox, &self.policy, self.interval_ns, sink);
        self.books.close(outcome.result, outcome.cost_ns);
        self.pace.close(outcome.cost_ns);
        self.adapt(sink);
        if self.pace.wants.is_some() {
            self.schedule(now_ns);
        }
        true
    }

    /// Does what is due: a read, or a check whether the running read hangs.
    fn run(&mut self, clock: &dyn Clock, sink: &mut dyn Sink) -> Done {
        let now_ns = clock.monotonic_ns();
        if now_ns < self.next_read_ns {
            self.look_for_stall(now_ns);
            return Done::Nothing;
        }
        let skew_ns = now_ns - self.next_read_ns;
        let done = match &mut self.driver {
            Driver::Live { source, batch } => {
                self.last_read_ns = Some(now_ns);
                batch.begin(now_ns);
                let result = source.read(clock.now_ns(), batch);
                self.books.samples_last = batch.samples().len();
                self.books.facts_refused = batch.refused();
                self.books.skew_ns = skew_ns;
                self.feed
                    .apply(batch.outbox(), &self.policy, self.interval_ns, sink);
                let cost_ns = clock.monotonic_ns().saturating_sub(now_ns);
                self.books.close(result, cost_ns);
                self.pace.close(cost_ns);
                self.adapt(sink);
                Done::Read
            }
            Driver::Slow { worker, .. } => {
                let asked = worker.ask(now_ns);
                match asked {
                    Asked::Started => {
                        self.books.skew_ns = skew_ns;
                        self.last_read_ns = Some(now_ns);
                    }
                    Asked::Busy => self.books.missed += 1,
                    Asked::Ended => {
                        self.books.missed += 1;
                        self.books.samples_last = 0;
                        self.books
                            .fail("its thread has ended, restart the agent".to_owned());
                    }
                }
                self.look_for_stall(now_ns);
                if asked == Asked::Started {
                    Done::Asked
                } else {
                    Done::Nothing
                }
            }
            Driver::Dead => {
                self.books.missed += 1;
                Done::Nothing
            }
        };
        self.schedule(clock.monotonic_ns());
        done
    }

    /// Moves up the next read if policies want it sooner. While a slow read runs nothing is done:
    /// its batch will bring new wishes.
    fn heed(&mut self, now_ns: i64, sink: &mut dyn Sink) {
        let busy = match &self.driver {
            Driver::Live { .. } => false,
            Driver::Slow { worker, .. } => worker.busy_for_ns(now_ns).is_some(),
            Driver::Dead => true,
        };
        let Some(last_ns) = self.last_read_ns.filter(|_| !busy) else {
            return;
        };
        self.pace.wants = self.feed.wants(sink);
        if self.pace.wants.is_none() {
            // The policies may no longer apply.
            self.adapt(sink);
        }
        let interval_ns = self.pace.interval_ns().unwrap_or(self.interval_ns);
        let due_ns = last_ns.saturating_add(interval_ns).max(now_ns);
        self.next_read_ns = self.next_read_ns.min(due_ns);
    }

    /// Sets the next deadline one interval after the previous deadline, whenever the read ended;
    /// deadlines that have passed meanwhile count as missed. Under a policy it is one interval
    /// after the last read.
    fn schedule(&mut self, now_ns: i64) {
        if self.pace.wants.is_some()
            && let Some(last_ns) = self.last_read_ns
        {
            self.next_read_ns = last_ns;
        }
        let next_ns = self.next_read_ns.saturating_add(self.interval_ns);
        let late_ns = now_ns.saturating_sub(next_ns);
        if late_ns < 0 {
            self.next_read_ns = next_ns;
            return;
        }
        let missed = late_ns / self.interval_ns + 1;
        self.books.missed += missed as u64;
        self.next_read_ns = next_ns.saturating_add(missed.saturating_mul(self.interval_ns));
    }

    fn next_look_ns(&self, now_ns: i64) -> i64 {
        match &self.driver {
            Driver::Slow { worker, .. } if !self.books.stalled => {
                match worker.busy_for_ns(now_ns) {
                    Some(busy_ns) => {
                        let left_ns = worker.stall_ns().saturating_sub(busy_ns);
                        self.next_read_ns.min(now_ns.saturating_add(left_ns.max(1)))
                    }
                    None => self.next_read_ns,
                }
            }
            _ => self.next_read_ns,
        }
    }

    fn look_for_stall(&mut self, now_ns: i64) {
        let Driver::Slow { worker, .. } = &self.driver else {
            return;
        };
        let busy_ns = worker.busy_for_ns(now_ns).unwrap_or(0);
        if busy_ns >= worker.stall_ns() && !self.books.stalled {
            self.books.stalled = true;
            tracing::error!(
                source = self.name,
                "hangs in a read; its streams stand still"
            );
        }
    }

    fn adapt(&mut self, sink: &mut dyn Sink) {
        let any = sink.wishes() > 0;
        self.pace.want(any.then(|| self.feed.wants(sink)).flatten());
        let configured_ns = self.feed.wanted_interval_ns(&self.policy);
        let wanted_ns = self.pace.interval_ns().unwrap_or(configured_ns);
        if wanted_ns != self.interval_ns {
            self.interval_ns = wanted_ns;
            self.feed.announce(wanted_ns, sink);
            self.own.feed.announce(wanted_ns, sink);
        }
    }

    fn publish(&mut self, clock: &dyn Clock, sink: &mut dyn Sink) {
        let Own {
            facts,
            batch: own,
            feed,
        } = &mut self.own;
        let books = &self.books;
        // A source that never had anything to read has not failed; one that had streams and gives
        // nothing has.
        let mute = books.samples_last == 0 && (books.failing || self.feed.live() > 0);
        let now_ns = clock.now_ns();
        own.begin(clock.monotonic_ns());
        let seconds = |ns: i64| ns as f64 / NS_PER_S as f64;
        facts.count(own, now_ns, SelfFact::Polls, books.polls);
        facts.count(own, now_ns, SelfFact::Errors, books.errors);
        facts.count(own, now_ns, SelfFact::Missed, books.missed);
        facts.measured(own, now_ns, SelfFact::Cost, seconds(books.cost_ns));
        facts.measured(own, now_ns, SelfFact::Skew, seconds(books.skew_ns));
        facts.measured(own, now_ns, SelfFact::Interval, seconds(self.interval_ns));
        facts.measured(own, now_ns, SelfFact::Up, !mute && !books.stalled);
        let fixed = IntervalPolicy::Fixed {
            interval_ns: self.interval_ns,
        };
        feed.apply(own.outbox(), &fixed, self.interval_ns, sink);
    }

    fn report(&self, now_ns: i64) -> SourceReport {
        let books = &self.books;
        let Report {
            mut sees,
            mut missing,
        } = match &self.driver {
            Driver::Live { source, .. } => source.report(),
            Driver::Slow { report, .. } => report.clone(),
            Driver::Dead => Report::default(),
        };
        if self.feed.refused() > 0 || books.facts_refused > 0 {
            missing.push(Missing::new(
                counted(self.feed.refused() + books.facts_refused as usize, "stream"),
                "a limit on the number of streams was reached",
                "raise the limit, or leave devices out in the configuration",
            ));
        }
        let (busy_ns, hangs) = match &self.driver {
            Driver::Slow { worker, .. } => {
                let busy_ns = worker.busy_for_ns(now_ns).unwrap_or(0);
                (busy_ns, busy_ns >= worker.stall_ns())
            }
            _ => (0, false),
        };
        if hangs {
            sees = format!("hangs in a read since {} s", busy_ns / NS_PER_S);
        }
        let nothing = books.samples_last == 0;
        let state = if hangs || matches!(self.driver, Driver::Dead) || (books.failing && nothing) {
            SourceState::Down
        } else if nothing && !missing.is_empty() {
            SourceState::Unavailable
        } else if books.failing || !missing.is_empty() {
            SourceState::Partial
        } else {
            SourceState::Ok
        };
        SourceReport {
            source: self.name,
            state,
            sees,
            streams: self.feed.live(),
            missing,
            polls: books.polls,
            errors: books.errors,
            cost_ns_mean: books.cost_ns_mean(),
            interval_ns: self.interval_ns,
            pace: self.pace.report(),
            last_error: books.last_error.clone(),
        }
    }
}
