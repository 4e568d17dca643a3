//! The poller: one loop over deadlines. It reads the sources that are due, applies the batches that
//! slow sources handed over, and counts both. It never waits.

mod entry;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S, Sink};

use crate::budget::{BudgetConfig, Purse};
use crate::config::IntervalCaps;
use crate::fact::FactTable;
use crate::policy::IntervalPolicy;
use crate::sources::TABLE;
use crate::sources::block_trace::remove_leftovers;
use crate::util::file::SysRoot;
use crate::util::mounts::MountSign;
use crate::worker::ReaderPool;
use crate::{FactSpec, Source, SourceReport, SourcesConfig};
pub use entry::SelfFact;
use entry::{PollDone, PollerEntry};

/// Longest wait of [`Poller::stop`] for all slow sources together.
pub const STOP_WAIT: Duration = Duration::from_secs(2);

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
    entries: Vec<PollerEntry>,
    /// The next deadline of each entry, in the order of `entries`. Searching some tens of numbers
    /// that lie side by side is faster than keeping a heap in order, and no outdated deadlines
    /// remain.
    deadlines_ns: Vec<i64>,
    /// Room for the indexes of the entries that are due in a turn.
    due: Vec<usize>,
    /// The value of [`Sink::wishes`] at which the wishes of policies were last applied.
    wishes: u64,
    purse: Purse,
    pool: ReaderPool,
    /// Whether the mount table has changed since the last call.
    have_mounts_changed: Box<dyn Fn() -> bool + Send>,
    /// Time of the last question whether it has changed.
    mounts_asked_ns: i64,
}

impl Poller {
    /// Creates a poller of all sources that the configuration enables, due at once.
    pub fn new(config: &SourcesConfig, clock: Arc<dyn Clock>) -> Self {
        if !config.poll_of("block_trace").is_enabled() {
            // A killed agent leaves its trace switched on, which costs time whether or not it is
            // read.
            remove_leftovers(&SysRoot::new(&config.sys_root));
        }
        let sources = crate::all_sources(config).into_iter().map(|source| {
            let policy = config.poll_of(source.name()).interval_policy();
            (source, policy)
        });
        let mut poller = Self::with_sources(sources, clock);
        let mounts = MountSign::new(&SysRoot::new(&config.sys_root));
        poller.have_mounts_changed = Box::new(move || mounts.has_changed());
        for entry in &mut poller.entries {
            entry.pace.caps = config.poll_of(entry.name).caps();
        }
        poller
    }

    /// Creates a poller of these sources and no others.
    pub fn with_sources(
        sources: impl IntoIterator<Item = (Box<dyn Source>, IntervalPolicy)>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now_ns = clock.monotonic_ns();
        let entries: Vec<_> = sources
            .into_iter()
            .enumerate()
            .map(|(index, source)| PollerEntry::new(source, index, now_ns))
            .collect();
        Self {
            pool: ReaderPool::new(Arc::clone(&clock)),
            clock,
            deadlines_ns: vec![now_ns; entries.len()],
            due: Vec::with_capacity(entries.len()),
            entries,
            wishes: 0,
            purse: Purse::default(),
            have_mounts_changed: Box::new(|| false),
            mounts_asked_ns: i64::MIN,
        }
    }

    /// Reads slow sources on the caller's thread, for a simulation.
    pub fn with_inline_reads(mut self) -> Self {
        self.pool = ReaderPool::inline(Arc::clone(&self.clock));
        self
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
    pub fn with_caps(mut self, source: &str, caps: IntervalCaps) -> Self {
        let of_name = self.entries.iter_mut().find(|e| e.name == source);
        of_name.into_iter().for_each(|e| e.pace.caps = caps);
        self
    }

    /// Time at which [`Poller::run_due`] next has something to do, in monotonic time of the clock.
    pub fn next_deadline_ns(&self) -> i64 {
        let deadlines_ns = self.deadlines_ns.iter().copied();
        deadlines_ns.min().unwrap_or(i64::MAX)
    }

    /// Applies the batches that slow sources have ready and reads each source that is due once.
    /// Returns how many reads ended. If a read makes a policy want another source sooner, that
    /// source is read in the next run.
    ///
    /// Slow sources are asked first: most have ended when the others are read, and need no turn of
    /// their own. Among sources of a kind those that cost least are read first, since each waits
    /// for those before it.
    pub fn run_due(&mut self, sink: &mut dyn Sink) -> usize {
        let begin_ns = self.clock.monotonic_ns();
        let mut read = self.collect(begin_ns, sink);
        self.pool.relieve();
        self.heed(sink);
        self.look_for_mounts(begin_ns);
        let mut due = std::mem::take(&mut self.due);
        due.extend((0..self.entries.len()).filter(|&index| self.deadlines_ns[index] <= begin_ns));
        due.sort_by_key(|&index| self.entries[index].place());
        for index in due.drain(..) {
            let entry = &mut self.entries[index];
            let done = entry.run(begin_ns, &*self.clock, &self.pool, sink);
            read += usize::from(done == PollDone::Read);
            if matches!(done, PollDone::Read | PollDone::Missed) {
                entry.publish(&*self.clock, sink);
            }
            self.replan(index, begin_ns);
        }
        self.due = due;
        read += self.collect(begin_ns, sink);
        self.heed(sink);
        self.share(begin_ns);
        read
    }

    /// Applies the batches that slow sources have ready, and returns their number.
    fn collect(&mut self, now_ns: i64, sink: &mut dyn Sink) -> usize {
        let mut read = 0;
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if entry.collect(sink) {
                entry.publish(&*self.clock, sink);
                read += 1;
                self.replan(index, now_ns);
            }
        }
        read
    }

    /// Waits until a slow source has a batch ready, for at most this long, and returns whether one
    /// has.
    pub fn wait_for_batch(&self, longest: Duration) -> bool {
        let has_one = || self.entries.iter().any(PollerEntry::has_batch);
        self.pool.wait_until(has_one, longest)
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
            self.replan(index, now_ns);
        }
    }

    /// Has the sources of whose kind there was nothing read if the mount table has changed. Users
    /// may mount and unmount as fast as they like (FUSE), so this is asked once a second.
    fn look_for_mounts(&mut self, now_ns: i64) {
        let is_any_absent = self.entries.iter().any(|entry| entry.is_absent);
        if !is_any_absent || now_ns.saturating_sub(self.mounts_asked_ns) < NS_PER_S {
            return;
        }
        self.mounts_asked_ns = now_ns;
        if !(self.have_mounts_changed)() {
            return;
        }
        for index in 0..self.entries.len() {
            self.entries[index].look_again(now_ns);
            self.replan(index, now_ns);
        }
    }

    fn replan(&mut self, index: usize, turn_ns: i64) {
        self.deadlines_ns[index] = self.entries[index].next_look_ns(turn_ns);
    }

    /// Gives each source whose streams are under policies its share of the budget, if it is time
    /// to.
    fn share(&mut self, now_ns: i64) {
        if self.wishes == 0 || !self.purse.is_due(now_ns) {
            return;
        }
        let least_ns = self.purse.config.shortest_ns();
        let ask = |e: &PollerEntry| e.pace.ask(now_ns, least_ns, e.books.cost_ns_mean());
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
        self.pool.stop(STOP_WAIT);
        for entry in self.entries.iter().filter(|entry| entry.is_being_read()) {
            tracing::warn!(
                source = entry.name,
                "a read has not ended at shutdown, left behind"
            );
        }
    }
}
