//! The ledger of jobs: it sums what each job read and wrote, as the growth of the job's entries on
//! all targets, and chooses the jobs that have streams of their own.
//!
//! An entry exists on one target, from the job's first operation there until the target's
//! `job_cleanup_interval` has passed without one. A job's counters are the sums of the growth of
//! its entries, so they only grow, even if entries end or begin anew.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use barograph_model::NS_PER_S;

use crate::SourceBatch;
use crate::fact::{FactSet, FactTable};
use crate::util::parse::escape;

use super::parse::{
    COUNTS, JobCounters, JobEntry, METADATA_OPS, READ_BYTES, READ_OPS, WRITE_BYTES, WRITE_OPS,
    unescaped,
};
use super::{Job, Jobs};

/// Most entries of all targets that are kept from one poll to the next.
pub(super) const ENTRIES_MAX: usize = 1 << 18;
/// Most jobs that are told apart in one poll; jobs beyond that are summed like those without
/// streams.
const JOBS_TOLD_MAX: usize = 1 << 16;
/// Polls for which an absent entry is kept: while entries end, the list of older releases may skip
/// others.
const ABSENT_ROUNDS: u32 = 6;
/// Greatest difference between the clocks of a target and of this source, over the time of one
/// poll.
const SLACK_NS: i64 = NS_PER_S;
/// Label of the job that stands for all jobs without streams.
const OTHER: &str = "other";

/// Number of counters that are also given as rates.
const RATES: usize = 3;
const RATED: [usize; RATES] = [READ_BYTES, WRITE_BYTES, METADATA_OPS];

/// The entries of one target, as of the last poll.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: HashMap<u64, Seen>,
    read_ns: Option<i64>,
    /// Time since the poll before, in the present poll.
    elapsed_ns: Option<i64>,
}

#[derive(Debug)]
struct Seen {
    counts: JobCounters,
    start: u64,
    round: u32,
}

impl Book {
    /// Begins a poll of the target.
    pub(super) fn begin(&mut self, at_ns: i64) {
        let elapsed = self.read_ns.map(|then_ns| at_ns.saturating_sub(then_ns));
        self.elapsed_ns = elapsed.filter(|ns| *ns > 0);
    }
}

/// The sums of one job in this poll, over all targets.
#[derive(Debug, Default)]
struct Sum {
    name: Box<[u8]>,
    /// The values of its entries.
    whole: JobCounters,
    /// The growth of its entries since the last poll.
    growth: JobCounters,
    /// Rates per second of the part of the growth that surely happened since the last poll.
    rates: [f64; RATES],
}

/// A job with streams of its own.
struct Followed {
    label: String,
    facts: FactSet<Job>,
    counts: JobCounters,
    /// Time at which the job was last among those with the most new bytes, and had some.
    top_ns: i64,
    seen_ns: i64,
}

/// The counts of the newest poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobCounts {
    pub(super) jobs: usize,
    /// Number of those jobs whose names cannot be labels.
    pub(super) unnameable: usize,
    /// Number of entries for which there was no memory.
    pub(super) refused: usize,
}

/// The sums and streams of all jobs.
pub(super) struct Ledger {
    jobs_max: usize,
    keep_ns: i64,
    hasher: RandomState,
    round: u32,
    entries: usize,
    jobs: BTreeMap<u64, Sum>,
    /// The sum of the jobs beyond those that are told apart.
    rest: Sum,
    rest_jobs: usize,
    followed: BTreeMap<u64, Followed>,
    other: FactSet<Job>,
    other_counts: JobCounters,
    /// Whether there has ever been a job without streams.
    others: bool,
    total: FactSet<Jobs>,
    total_counts: JobCounters,
    /// Whether some target was read before, so that rates can be computed.
    rated: bool,
    ranking: Vec<(Rank, u64)>,
    pub(super) found: JobCounts,
}

/// New bytes, then new operations, then all bytes.
type Rank = (u64, u64, u64);

impl Ledger {
    pub(super) fn new(jobs_max: usize, keep_ns: i64) -> Self {
        let other = FactSet::labelled([("job", OTHER.to_owned())]);
        Self {
            jobs_max,
            keep_ns,
            hasher: RandomState::new(),
            round: 0,
            entries: 0,
            jobs: BTreeMap::new(),
            rest: Sum::default(),
            rest_jobs: 0,
            followed: BTreeMap::new(),
            other: other.expect("a short label"),
            other_counts: [0; COUNTS],
            others: false,
            total: FactSet::new(barograph_model::Labels::none()),
            total_counts: [0; COUNTS],
            rated: false,
            ranking: Vec::new(),
            found: JobCounts::default(),
        }
    }

    /// Begins a poll of all targets.
    pub(super) fn begin<'a>(&mut self, books: impl Iterator<Item = &'a Book>) {
        self.round = self.round.wrapping_add(1);
        self.entries = books.map(|book| book.entries.len()).sum();
        self.jobs.clear();
        self.rest = Sum::default();
        self.rest_jobs = 0;
        self.rated = false;
        self.found = JobCounts::default();
    }

    /// Adds an entry of the target that is being read.
    pub(super) fn enter(&mut self, book: &mut Book, entry: &JobEntry<'_>) {
        let key = self.hasher.hash_one(entry.job);
        let elapsed_ns = book.elapsed_ns;
        let (growth, recent) = match book.entries.get_mut(&key) {
            // An entry is twice in one list if the list changed while it was read.
            Some(seen) if seen.round == self.round => return,
            Some(seen) => {
                let step = seen.step(entry, elapsed_ns);
                (seen.counts, seen.start) = (entry.counts, entry.start);
                seen.round = self.round;
                step
            }
            None if self.entries >= ENTRIES_MAX => {
                self.found.refused += 1;
                return;
            }
            None => {
                let seen = Seen {
                    counts: entry.counts,
                    start: entry.start,
                    round: self.round,
                };
                book.entries.insert(key, seen);
                self.entries += 1;
                (entry.counts, began_since(entry, elapsed_ns))
            }
        };
        let job = match self.jobs.len() < JOBS_TOLD_MAX || self.jobs.contains_key(&key) {
            true => self.jobs.entry(key).or_insert_with(|| Sum {
                name: entry.job.into(),
                ..Sum::default()
            }),
            false => {
                self.rest_jobs += 1;
                &mut self.rest
            }
        };
        add(&mut job.whole, &entry.counts);
        add(&mut job.growth, &growth);
        if let Some(elapsed_ns) = elapsed_ns.filter(|_| recent) {
            for (rate, of) in job.rates.iter_mut().zip(RATED) {
                *rate += growth[of] as f64 * NS_PER_S as f64 / elapsed_ns as f64;
            }
        }
    }

    /// Ends the poll of a target whose file was read to its end.
    pub(super) fn end(&mut self, book: &mut Book, at_ns: i64) {
        self.rated |= book.elapsed_ns.is_some();
        book.read_ns = Some(at_ns);
        let round = self.round;
        book.entries
            .retain(|_, seen| round.wrapping_sub(seen.round) <= ABSENT_ROUNDS);
    }

    /// Ends the poll of all targets: chooses the jobs that have streams, and puts all facts.
    pub(super) fn settle(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        let at_ns = batch.monotonic_ns();
        self.found.jobs = self.jobs.len() + self.rest_jobs;
        self.rank();
        self.update(at_ns, batch);
        self.promote(at_ns, batch);
        self.put(now_ns, batch);
    }

    /// Ranks the jobs with the most new traffic, at most `jobs_max`.
    fn rank(&mut self) {
        self.ranking.clear();
        let ranked = self.jobs.iter().map(|(key, job)| (job.rank(), *key));
        self.ranking.extend(ranked);
        let top = self.jobs_max.min(self.ranking.len());
        if top == 0 {
            self.ranking.clear();
        } else {
            let greater = |a: &(Rank, u64), b: &(Rank, u64)| b.cmp(a);
            self.ranking.select_nth_unstable_by(top - 1, greater);
            self.ranking.truncate(top);
            self.ranking.sort_unstable_by(greater);
        }
    }

    /// Adds the growth to the jobs that have streams, and ends the streams of jobs that have been
    /// absent for long.
    fn update(&mut self, at_ns: i64, batch: &mut SourceBatch) {
        for (key, followed) in &mut self.followed {
            if let Some(job) = self.jobs.get(key) {
                add(&mut followed.counts, &job.growth);
                followed.seen_ns = at_ns;
            }
        }
        for (rank, key) in &self.ranking {
            if let Some(followed) = self.followed.get_mut(key).filter(|_| rank.is_active()) {
                followed.top_ns = at_ns;
            }
        }
        let keep_ns = self.keep_ns;
        self.followed.retain(|_, followed| {
            let stays = at_ns.saturating_sub(followed.seen_ns) < keep_ns;
            if !stays {
                followed.facts.retire(batch);
            }
            stays
        });
    }

    /// Gives streams to the highest ranked jobs that have none, while there is room, or a job that
    /// has not been highly ranked for long can make room.
    fn promote(&mut self, at_ns: i64, batch: &mut SourceBatch) {
        for at in 0..self.ranking.len() {
            let (rank, key) = self.ranking[at];
            if self.followed.contains_key(&key) {
                continue;
            }
            let Some((label, facts)) = self.name(key) else {
                self.found.unnameable += 1;
                continue;
            };
            if self.followed.len() >= self.jobs_max && !self.make_room(&rank, at_ns, batch) {
                return;
            }
            let followed = Followed {
                label,
                facts,
                counts: self.jobs[&key].whole,
                top_ns: if rank.is_active() { at_ns } else { i64::MIN },
                seen_ns: at_ns,
            };
            self.followed.insert(key, followed);
        }
    }

    /// Ends the streams of the job that was highly ranked the longest time ago. This is done only
    /// for a job that is active, and only after `keep_ns`, so that streams do not flicker.
    fn make_room(&mut self, rank: &Rank, at_ns: i64, batch: &mut SourceBatch) -> bool {
        let oldest = self.followed.iter().min_by_key(|(_, f)| f.top_ns);
        let Some((key, oldest)) = oldest.map(|(key, f)| (*key, f.top_ns)) else {
            return false;
        };
        if !rank.is_active() || at_ns.saturating_sub(oldest) < self.keep_ns {
            return false;
        }
        if let Some(mut gone) = self.followed.remove(&key) {
            gone.facts.retire(batch);
        }
        true
    }

    /// The label of a job and its facts. Returns nothing if the name cannot be a label, or if
    /// another job has the label.
    fn name(&self, key: u64) -> Option<(String, FactSet<Job>)> {
        let label = escape(&unescaped(&self.jobs[&key].name));
        let taken = label == OTHER || self.followed.values().any(|f| f.label == label);
        let facts = FactSet::labelled([("job", label.clone())]).ok()?;
        (!taken).then_some((label, facts))
    }

    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        let mut other_rates = self.rest.rates;
        let mut total_rates = self.rest.rates;
        add(&mut self.other_counts, &self.rest.growth);
        add(&mut self.total_counts, &self.rest.growth);
        self.others |= self.rest_jobs > 0;
        for (key, job) in &self.jobs {
            add(&mut self.total_counts, &job.growth);
            sum(&mut total_rates, &job.rates);
            if !self.followed.contains_key(key) {
                add(&mut self.other_counts, &job.growth);
                sum(&mut other_rates, &job.rates);
                self.others = true;
            }
        }
        let rated = self.rated;
        for (key, followed) in &mut self.followed {
            let of_job = self.jobs.get(key).map_or([0.0; RATES], |job| job.rates);
            let rates = rated.then_some(of_job);
            put(&mut followed.facts, now_ns, batch, &followed.counts, rates);
        }
        let jobs = self.found.jobs as u64;
        self.total.count(batch, now_ns, Jobs::Count, jobs);
        let rates = rated.then_some(total_rates);
        put(&mut self.total, now_ns, batch, &self.total_counts, rates);
        if self.others {
            let rates = rated.then_some(other_rates);
            put(&mut self.other, now_ns, batch, &self.other_counts, rates);
        }
    }

    /// Number of jobs that have streams of their own.
    pub(super) fn followed(&self) -> usize {
        self.followed.len()
    }

    /// Ends all streams after the last target has gone.
    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.followed
            .values_mut()
            .for_each(|followed| followed.facts.retire(batch));
        self.other.retire(batch);
        self.total.retire(batch);
        *self = Self::new(self.jobs_max, self.keep_ns);
    }
}

impl Seen {
    /// The growth of an entry, and whether the growth surely happened since the last poll.
    fn step(&self, entry: &JobEntry<'_>, elapsed_ns: Option<i64>) -> (JobCounters, bool) {
        let mut growth = [0; COUNTS];
        let steps = entry.counts.iter().zip(&self.counts);
        let grew = growth
            .iter_mut()
            .zip(steps)
            .try_for_each(|(growth, (new, old))| {
                *growth = new.checked_sub(*old)?;
                Some(())
            });
        match (grew, self.start == entry.start) {
            (Some(()), true) => (growth, true),
            // The entry began anew: all of its counts are new.
            (_, false) => (entry.counts, began_since(entry, elapsed_ns)),
            // Older releases do not give the time when counting began; this is the only sign there.
            (None, true) if entry.start == 0 => (entry.counts, false),
            (None, true) => ([0; COUNTS], false),
        }
    }
}

/// Whether an entry that was absent at the last poll of its target began since then. In releases
/// that do not give an entry's start its age is 0, so that it counts as new.
fn began_since(entry: &JobEntry<'_>, elapsed_ns: Option<i64>) -> bool {
    let age_ns = i64::try_from(entry.elapsed_ns).unwrap_or(i64::MAX);
    elapsed_ns.is_some_and(|elapsed_ns| age_ns <= elapsed_ns.saturating_add(SLACK_NS))
}

impl Sum {
    fn rank(&self) -> Rank {
        let of = |counts: &JobCounters, which: [usize; 2]| {
            let [a, b] = which.map(|at| counts[at]);
            a.saturating_add(b)
        };
        let bytes = [READ_BYTES, WRITE_BYTES];
        let recent = self.rates.iter().any(|rate| *rate > 0.0);
        let growth = if recent { self.growth } else { [0; COUNTS] };
        let ops = of(&growth, [READ_OPS, WRITE_OPS]).saturating_add(growth[METADATA_OPS]);
        (of(&growth, bytes), ops, of(&self.whole, bytes))
    }
}

trait Activity {
    /// Whether the job had new traffic.
    fn is_active(&self) -> bool;
}

impl Activity for Rank {
    fn is_active(&self) -> bool {
        self.0 > 0 || self.1 > 0
    }
}

/// A table of facts of jobs, in the order of the counts and of the rates.
pub(super) trait JobTable: FactTable {
    const COUNTERS: [Self; COUNTS];
    const RATES: [Self; RATES];
}

impl JobTable for Job {
    const COUNTERS: [Self; COUNTS] = [
        Self::ReadBytes,
        Self::WriteBytes,
        Self::ReadOps,
        Self::WriteOps,
        Self::MetadataOps,
    ];
    const RATES: [Self; RATES] = [Self::ReadRate, Self::WriteRate, Self::MetadataRate];
}

impl JobTable for Jobs {
    const COUNTERS: [Self; COUNTS] = [
        Self::ReadBytes,
        Self::WriteBytes,
        Self::ReadOps,
        Self::WriteOps,
        Self::MetadataOps,
    ];
    const RATES: [Self; RATES] = [Self::ReadRate, Self::WriteRate, Self::MetadataRate];
}

fn put<T: JobTable>(
    facts: &mut FactSet<T>,
    now_ns: i64,
    batch: &mut SourceBatch,
    counts: &JobCounters,
    rates: Option<[f64; RATES]>,
) {
    for (fact, count) in T::COUNTERS.into_iter().zip(counts) {
        facts.count(batch, now_ns, fact, *count);
    }
    for (fact, rate) in T::RATES.into_iter().zip(rates.into_iter().flatten()) {
        facts.derived(batch, now_ns, fact, rate);
    }
}

fn add(to: &mut JobCounters, growth: &JobCounters) {
    for (to, growth) in to.iter_mut().zip(growth) {
        *to = to.saturating_add(*growth);
    }
}

fn sum(to: &mut [f64; RATES], rates: &[f64; RATES]) {
    for (to, rate) in to.iter_mut().zip(rates) {
        *to += rate;
    }
}
