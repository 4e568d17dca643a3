//! One source in the poller: how it is read, when it is read next, and what the poller counts about
//! it.

use barograph_model::{Clock, Labels, NS_PER_S, Sink, seconds};

use crate::books::Books;
use crate::config::IntervalCaps;
use crate::fact::{FactSet, facts};
use crate::feed::FactFeed;
use crate::pace::Pace;
use crate::policy::IntervalPolicy;
use crate::report::counted;
use crate::worker::{FIRST_LOOK_NS, ReadRequest, ReaderPool, Worker};
use crate::{
    ABSENT_NS, MissingPart, Source, SourceBatch, SourceCoverage, SourceReport, SourceState,
};

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

pub(super) struct PollerEntry {
    pub(super) name: &'static str,
    policy: IntervalPolicy,
    interval_ns: i64,
    /// Time at which the source is to be read next. Its deadline may be earlier: a check whether a
    /// slow read hangs.
    pub(super) next_read_ns: i64,
    /// Time at which the newest read was due. Fixed intervals are counted from here, so that
    /// sources whose intervals are multiples of each other stay due at the same moments, for which
    /// the loop wakes once.
    last_due_ns: i64,
    /// A moment at which the source is due if its interval is fixed at whole seconds. Each source
    /// has a second of its own, so that they do not all wait for each other at once.
    phase_ns: i64,
    /// Time at which the newest read began.
    last_read_ns: Option<i64>,
    /// Whether this machine has nothing of the kind that the source reads, by the last read.
    pub(super) is_absent: bool,
    /// The wishes of policies for the source, and its share of the budget.
    pub(super) pace: Pace,
    driver: Driver,
    feed: FactFeed,
    pub(super) books: Books,
    own: Own,
}

/// The poller's own facts about a source.
struct Own {
    facts: FactSet<SelfFact>,
    batch: SourceBatch,
    feed: FactFeed,
}

enum Driver {
    /// A source that is read on the loop.
    Live {
        source: Box<dyn Source>,
        batch: SourceBatch,
    },
    /// A source that is read by a pool of threads, with the report of its last read.
    Slow {
        worker: Worker,
        report: SourceCoverage,
    },
}

/// The work that was done at a deadline.
#[derive(PartialEq, Eq)]
pub(super) enum PollDone {
    /// A read was made.
    Read,
    /// A slow source was asked for a read; its batch will come later.
    Asked,
    /// No read: the previous one has not ended, or hangs, or the source has panicked.
    Missed,
    /// A check whether a read still runs, which it does.
    Nothing,
}

impl PollerEntry {
    /// The source is due at once, and later in a second of its own: the one of this `index`.
    pub(super) fn new(
        (source, policy): (Box<dyn Source>, IntervalPolicy),
        index: usize,
        now_ns: i64,
    ) -> Self {
        let name = source.name();
        let driver = match source.is_slow() {
            false => Driver::Live {
                source,
                batch: SourceBatch::new(),
            },
            true => Driver::Slow {
                worker: Worker::new(source),
                report: SourceCoverage::default(),
            },
        };
        let labels = Labels::new([("source", name)]).expect("names of sources are short");
        Self {
            name,
            policy,
            interval_ns: policy.start().interval_ns,
            next_read_ns: now_ns,
            last_due_ns: now_ns,
            phase_ns: now_ns.saturating_add(index as i64 * NS_PER_S),
            last_read_ns: None,
            is_absent: false,
            pace: Pace::new(IntervalCaps::none(policy.start().interval_ns)),
            driver,
            feed: FactFeed::default(),
            books: Books::default(),
            own: Own {
                facts: FactSet::new(labels),
                batch: SourceBatch::new(),
                feed: FactFeed::default(),
            },
        }
    }

    fn worker(&self) -> Option<&Worker> {
        match &self.driver {
            Driver::Slow { worker, .. } => Some(worker),
            Driver::Live { .. } => None,
        }
    }

    /// The place among the entries that are due in one turn: slow sources before the others, and
    /// cheap ones before costly ones.
    pub(super) fn place(&self) -> (bool, i64) {
        (self.worker().is_none(), self.books.cost_ns_mean())
    }

    /// Whether a slow source has a batch ready.
    pub(super) fn has_batch(&self) -> bool {
        self.worker().is_some_and(Worker::has_ended)
    }

    /// Whether a slow source is being read.
    pub(super) fn is_being_read(&self) -> bool {
        self.worker()
            .is_some_and(|worker| worker.is_reading() && !worker.is_waiting())
    }

    fn busy_for_ns(&self, now_ns: i64) -> Option<i64> {
        self.worker()?.busy_for_ns(now_ns)
    }

    /// Applies the batch that a slow source has ready; returns whether there was one.
    pub(super) fn collect(&mut self, sink: &mut dyn Sink) -> bool {
        let Driver::Slow { worker, report } = &mut self.driver else {
            return false;
        };
        let Some((outcome, outbox)) = worker.take() else {
            return false;
        };
        *report = outcome.report;
        self.books.samples_last = outbox.samples.len();
        self.books.facts_refused = outcome.refused;
        let was_absent = std::mem::replace(&mut self.is_absent, outcome.is_absent);
        self.feed
            .apply(outbox, &self.policy, self.interval_ns, sink);
        // The read may have waited for a thread.
        let asked_ns = self.last_read_ns.unwrap_or(outcome.begun_ns);
        self.books.skew_ns += outcome.begun_ns.saturating_sub(asked_ns).max(0);
        self.books.close(outcome.result, outcome.cost_ns);
        self.pace.close(outcome.cost_ns);
        self.adapt(sink);
        // The plan begins at the read's end: a deadline since then is due now, and not missed.
        if was_absent != self.is_absent {
            self.next_read_ns = self.last_due_ns;
            self.schedule(outcome.ended_ns);
        } else if self.pace.wants.is_some() {
            self.schedule(outcome.ended_ns);
        }
        true
    }

    /// Does what is due: a read, or a check whether the running read hangs. The turn of the poller
    /// began at `turn_ns`.
    pub(super) fn run(
        &mut self,
        turn_ns: i64,
        clock: &dyn Clock,
        pool: &ReaderPool,
        sink: &mut dyn Sink,
    ) -> PollDone {
        let now_ns = clock.monotonic_ns();
        if now_ns < self.next_read_ns {
            return match self.look_for_stall(now_ns) {
                true => PollDone::Missed,
                false => PollDone::Nothing,
            };
        }
        let skew_ns = now_ns - self.next_read_ns;
        self.last_due_ns = self.next_read_ns;
        let done = match &mut self.driver {
            Driver::Live { source, batch } => {
                self.last_read_ns = Some(now_ns);
                batch.begin(now_ns);
                let result = source.read(clock.now_ns(), batch);
                self.books.samples_last = batch.samples().len();
                self.books.facts_refused = batch.refused();
                self.books.skew_ns = skew_ns;
                self.is_absent = result.is_ok() && source.is_absent();
                self.feed
                    .apply(batch.outbox(), &self.policy, self.interval_ns, sink);
                let cost_ns = clock.monotonic_ns().saturating_sub(now_ns);
                self.books.close(result, cost_ns);
                self.pace.close(cost_ns);
                self.adapt(sink);
                PollDone::Read
            }
            Driver::Slow { worker, .. } => {
                // Reads of one turn have the same time, and so the same looks at them.
                let asked = worker.ask(turn_ns, pool);
                match asked {
                    ReadRequest::Started => {
                        self.books.skew_ns = skew_ns;
                        self.last_read_ns = Some(now_ns);
                    }
                    ReadRequest::Busy => self.books.missed += 1,
                    ReadRequest::Panicked => {
                        self.books.missed += 1;
                        self.books.samples_last = 0;
                        self.books
                            .fail("its read has panicked, restart the agent".to_owned());
                    }
                }
                self.look_for_stall(now_ns);
                if asked == ReadRequest::Started {
                    PollDone::Asked
                } else {
                    PollDone::Missed
                }
            }
        };
        self.schedule(clock.monotonic_ns());
        done
    }

    /// Moves up the next read of an absent source: the mount table has changed.
    pub(super) fn look_again(&mut self, now_ns: i64) {
        if self.is_absent && self.busy_for_ns(now_ns).is_none() {
            self.next_read_ns = self.next_read_ns.min(now_ns);
        }
    }

    /// Moves up the next read if policies want it sooner. While a slow read runs nothing is done:
    /// its batch will bring new wishes.
    pub(super) fn heed(&mut self, now_ns: i64, sink: &mut dyn Sink) {
        let busy = self.busy_for_ns(now_ns).is_some();
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

    /// Sets the next deadline one interval after the previous deadline, or earlier if the source's
    /// own second comes before, whenever the read ended; deadlines that have passed meanwhile count
    /// as missed. Under a policy it is one interval after the last read.
    fn schedule(&mut self, now_ns: i64) {
        if self.pace.wants.is_some()
            && let Some(last_ns) = self.last_read_ns
        {
            self.next_read_ns = last_ns;
        }
        let mut next_ns = self.next_read_ns.saturating_add(self.interval_ns);
        let is_fixed = matches!(self.policy, IntervalPolicy::Fixed { .. });
        if is_fixed && self.pace.wants.is_none() && self.interval_ns % NS_PER_S == 0 {
            next_ns -= (next_ns - self.phase_ns).rem_euclid(self.interval_ns);
        }
        let late_ns = now_ns.saturating_sub(next_ns);
        if late_ns < 0 {
            self.next_read_ns = next_ns;
            return;
        }
        let missed = late_ns / self.interval_ns + 1;
        self.books.missed += missed as u64;
        self.next_read_ns = next_ns.saturating_add(missed.saturating_mul(self.interval_ns));
    }

    /// The time of the next read, or before it, of the next look at a read that runs: whenever it
    /// has taken twice as long, and when it begins to count as hung.
    pub(super) fn next_look_ns(&self, now_ns: i64) -> i64 {
        let Some(worker) = self.worker() else {
            return self.next_read_ns;
        };
        let Some(busy_ns) = worker.busy_for_ns(now_ns) else {
            return self.next_read_ns;
        };
        let first_ns = FIRST_LOOK_NS.min(self.interval_ns / 4);
        let mut after_ns = busy_ns.saturating_mul(2).max(first_ns);
        if !self.books.stalled {
            after_ns = after_ns.min(worker.stall_ns());
        }
        let left_ns = after_ns.saturating_sub(busy_ns).max(1);
        self.next_read_ns.min(now_ns.saturating_add(left_ns))
    }

    /// Returns whether the read that runs has begun to count as hung.
    fn look_for_stall(&mut self, now_ns: i64) -> bool {
        let Some(worker) = self.worker() else {
            return false;
        };
        let busy_ns = worker.busy_for_ns(now_ns).unwrap_or(0);
        let has_begun = busy_ns >= worker.stall_ns() && !self.books.stalled;
        if has_begun {
            self.books.stalled = true;
            tracing::error!(
                source = self.name,
                "a read has not ended in time; its streams stand still"
            );
        }
        has_begun
    }

    fn adapt(&mut self, sink: &mut dyn Sink) {
        let any = sink.wishes() > 0;
        self.pace.want(any.then(|| self.feed.wants(sink)).flatten());
        let configured_ns = self.feed.wanted_interval_ns(&self.policy);
        let mut wanted_ns = self.pace.interval_ns().unwrap_or(configured_ns);
        if self.is_absent {
            wanted_ns = wanted_ns.max(ABSENT_NS);
        }
        if wanted_ns != self.interval_ns {
            self.interval_ns = wanted_ns;
            self.feed.announce(wanted_ns, sink);
            self.own.feed.announce(wanted_ns, sink);
        }
    }

    pub(super) fn publish(&mut self, clock: &dyn Clock, sink: &mut dyn Sink) {
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

    pub(super) fn report(&self, now_ns: i64) -> SourceReport {
        let books = &self.books;
        let SourceCoverage {
            mut sees,
            mut missing,
        } = match &self.driver {
            Driver::Live { source, .. } => source.report(),
            Driver::Slow { report, .. } => report.clone(),
        };
        if self.feed.refused() > 0 || books.facts_refused > 0 {
            missing.push(MissingPart::new(
                counted(self.feed.refused() + books.facts_refused as usize, "stream"),
                "a limit on the number of streams was reached",
                "raise the limit, or leave devices out in the configuration",
            ));
        }
        let (busy_ns, hangs, waits) = match &self.driver {
            Driver::Slow { worker, .. } => {
                let busy_ns = worker.busy_for_ns(now_ns).unwrap_or(0);
                let hangs = busy_ns >= worker.stall_ns();
                (busy_ns, hangs, worker.is_waiting())
            }
            _ => (0, false, false),
        };
        let busy_s = busy_ns / NS_PER_S;
        if hangs {
            sees = match waits {
                true => format!("waits for a thread since {busy_s} s: the system has none"),
                false => format!("hangs in a read since {busy_s} s"),
            };
        }
        let nothing = books.samples_last == 0;
        let state = if hangs || (books.failing && nothing) {
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
