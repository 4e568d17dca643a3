//! Buckets of many Parquet files, read row group by row group by several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::Span;

use super::{BucketBudget, Fold, Rows};
use crate::parquet::{
    ColumnNumbers, IndexSeries, NumberBuffers, ParquetIndex, ParquetPart, RowsPiece, SampleGroup,
    TierGroup, plan,
};
use crate::{ArchiveError, Tier};

/// The parameters of a read.
#[derive(Clone, Copy, Debug)]
pub struct FoldRequest<'a> {
    /// The span in which samples count, and in which buckets of tiers start.
    pub span: Span,
    /// The span that is read: it includes samples before and after `span`, which show the values
    /// that held at its ends.
    pub read: Span,
    /// Length of a bucket in ns: a multiple of those of the files.
    pub step_ns: i64,
    /// Most threads that read.
    pub threads: usize,
    /// Set when the caller does not need the result any more.
    pub cancel: &'a AtomicBool,
    /// Bound of the buckets.
    pub budget: &'a BucketBudget<'a>,
}

/// A row group to read.
struct Unit<'a> {
    part: &'a ParquetPart,
    index: Arc<ParquetIndex>,
    group: usize,
    pieces: Vec<RowsPiece>,
    /// The key of each piece.
    keys: Vec<usize>,
}

/// The result of a row group: in the order of the file, perhaps with several folds for one key.
type Done = Vec<(usize, Fold)>;

/// Returns the buckets of the wanted series of all files, by the keys that `wanted` returns
/// (arguments: the index of the file, and the series; one series in several files has one key).
/// Files are in order: later ones have the last value. There may be both raw files and tiers; what
/// is in both counts twice.
pub fn aggregate(
    parts: &[&ParquetPart],
    wanted: &dyn Fn(usize, &IndexSeries) -> Option<usize>,
    ask: &FoldRequest<'_>,
) -> Result<BTreeMap<usize, Fold>, ArchiveError> {
    let units = units(parts, wanted, ask.read)?;
    let gathered = Mutex::new(Gathered::default());
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<ArchiveError>> = Mutex::new(None);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = units.get(at) else { break };
            let done = unit.read(ask).and_then(|done| {
                let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
                gathered.add(at, done, ask.budget)
            });
            if let Err(error) = done {
                next.store(units.len(), Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..ask.threads.min(units.len()) {
            // If no thread can be started, the existing ones do all the work.
            let thread = std::thread::Builder::new().name("archive-read".into());
            if thread.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let gathered = gathered
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(gathered.all)
}

/// The results of the row groups, merged in order: a bucket that several of them share becomes one
/// as soon as the earlier ones are done.
#[derive(Default)]
struct Gathered {
    all: BTreeMap<usize, Fold>,
    /// Number of row groups that are merged into `all`.
    through: usize,
    /// Row groups that were read before an earlier one.
    early: BTreeMap<usize, Done>,
}

impl Gathered {
    fn add(
        &mut self,
        at: usize,
        done: Done,
        budget: &BucketBudget<'_>,
    ) -> Result<(), ArchiveError> {
        self.early.insert(at, done);
        while let Some(done) = self.early.remove(&self.through) {
            self.through += 1;
            for (key, fold) in done {
                match self.all.get_mut(&key) {
                    Some(earlier) => budget.merge(earlier, fold)?,
                    None => {
                        self.all.insert(key, fold);
                    }
                }
            }
        }
        Ok(())
    }
}

fn units<'a>(
    parts: &[&'a ParquetPart],
    wanted: &dyn Fn(usize, &IndexSeries) -> Option<usize>,
    span: Span,
) -> Result<Vec<Unit<'a>>, ArchiveError> {
    let mut units = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let index = part.index()?;
        let keys: Vec<Option<usize>> = index.series.iter().map(|s| wanted(at, s)).collect();
        let plan = plan(&index, span, &|series, _| keys[series].is_some());
        for (group, pieces) in plan.into_iter().enumerate() {
            if pieces.is_empty() {
                continue;
            }
            let of_piece = pieces.iter().filter_map(|piece| keys[piece.series]);
            units.push(Unit {
                part,
                index: Arc::clone(&index),
                group,
                keys: of_piece.collect(),
                pieces,
            });
        }
    }
    Ok(units)
}

impl Unit<'_> {
    fn read(&self, ask: &FoldRequest<'_>) -> Result<Done, ArchiveError> {
        if self.index.about.tier == Tier::Raw {
            self.read_samples(ask)
        } else {
            self.read_tier(ask)
        }
    }

    fn read_samples(&self, ask: &FoldRequest<'_>) -> Result<Done, ArchiveError> {
        let mut group = SampleGroup::new(self.part, &self.index, self.group);
        let mut done = Done::new();
        let mut ts = Vec::new();
        let mut numbered = NumberBuffers::default();
        for (piece, key) in self.pieces.iter().zip(&self.keys) {
            let fold = self.fold(&mut done, piece, *key, ask)?;
            ts.clear();
            group.times(piece, &mut ts)?;
            let series = &self.index.series[piece.series];
            let value_type = series.descriptor.value_type;
            let quality = group.last_looks(piece, series)?;
            let rows = Rows {
                life: series.lives[piece.life].life,
                ts: &ts,
                quality: &quality,
            };
            let count = ts.len();
            if !value_type.is_number() {
                let values = group.long(piece, value_type)?;
                let add = |fold: &mut Fold, at| fold.add_long(rows, &values, at);
                ask.budget.add(fold, count, add)?;
                continue;
            }
            match group.numbers(piece, &mut numbered)? {
                ColumnNumbers::Doubles(v) => {
                    let add = |fold: &mut Fold, at| fold.add_doubles(rows, v, at);
                    ask.budget.add(fold, count, add)?;
                }
                ColumnNumbers::Ints(v) => {
                    let add = |fold: &mut Fold, at| fold.add_ints(rows, v, at);
                    ask.budget.add(fold, count, add)?;
                }
            }
        }
        Ok(done)
    }

    fn read_tier(&self, ask: &FoldRequest<'_>) -> Result<Done, ArchiveError> {
        let mut group = TierGroup::new(self.part, &self.index, self.group);
        let mut done = Done::new();
        for (piece, key) in self.pieces.iter().zip(&self.keys) {
            let fold = self.fold(&mut done, piece, *key, ask)?;
            let buckets = group.buckets(piece)?;
            let budget = ask.budget;
            budget.grow(fold, |fold| fold.add_buckets(&buckets))?;
        }
        Ok(done)
    }

    /// Returns the fold to which a piece belongs.
    fn fold<'d>(
        &self,
        done: &'d mut Done,
        piece: &RowsPiece,
        key: usize,
        ask: &FoldRequest<'_>,
    ) -> Result<&'d mut Fold, ArchiveError> {
        if ask.cancel.load(Ordering::Relaxed) {
            return Err(ArchiveError::Cancelled);
        }
        if done.last().is_none_or(|(newest, _)| *newest != key) {
            let value_type = self.index.series[piece.series].descriptor.value_type;
            done.push((key, Fold::new(value_type, ask.step_ns, ask.span)));
        }
        Ok(&mut done.last_mut().expect("it was pushed just now").1)
    }
}
