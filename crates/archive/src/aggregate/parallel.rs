//! Many Parquet files to buckets: row group by row group, by several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::Span;

use super::{Budget, Fold, Rows};
use crate::parquet::{
    Index, IndexSeries, Numbered, Numbers, ParquetPart, Piece, SampleGroup, TierGroup, plan,
};
use crate::{ArchiveError, Tier};

/// What is asked of the files.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Samples within it count; of tiers the buckets that start in it.
    pub span: Span,
    /// What is read: with samples before and after the span, which tell what held at its ends.
    pub read: Span,
    /// The length of a bucket: a multiple of those of the files.
    pub step_ns: i64,
    /// Most threads.
    pub threads: usize,
    /// Set by the asker who has gone away.
    pub cancel: &'a AtomicBool,
    /// Bounds the buckets.
    pub budget: &'a Budget<'a>,
}

/// A row group to be read.
struct Unit<'a> {
    part: &'a ParquetPart,
    index: Arc<Index>,
    group: usize,
    pieces: Vec<Piece>,
    /// For each piece, whose it is to be.
    keys: Vec<usize>,
}

/// What a row group gave: in order of the file, a key perhaps several times.
type Done = Vec<(usize, Fold)>;

/// The buckets of the wanted series of all parts, by the key that `wanted` gives them (index of the part, the
/// series; the same key is for one series in several parts). Parts are in order: later ones have the
/// last value. Both raw files and tiers may be among them; what is in both counts twice.
pub fn aggregate(
    parts: &[&ParquetPart],
    wanted: &dyn Fn(usize, &IndexSeries) -> Option<usize>,
    ask: &Ask<'_>,
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
            // Where no thread can be had, those that are there do it all.
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

/// What the row groups gave, one after the other: a bucket that several share is there once as soon as
/// those before are done.
#[derive(Default)]
struct Gathered {
    all: BTreeMap<usize, Fold>,
    /// How many row groups are in `all`.
    through: usize,
    /// Row groups that were read before one that comes first.
    early: BTreeMap<usize, Done>,
}

impl Gathered {
    fn add(&mut self, at: usize, done: Done, budget: &Budget<'_>) -> Result<(), ArchiveError> {
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
    fn read(&self, ask: &Ask<'_>) -> Result<Done, ArchiveError> {
        if self.index.about.tier == Tier::Raw {
            self.read_samples(ask)
        } else {
            self.read_tier(ask)
        }
    }

    fn read_samples(&self, ask: &Ask<'_>) -> Result<Done, ArchiveError> {
        let mut group = SampleGroup::new(self.part, &self.index, self.group);
        let mut done = Done::new();
        let mut ts = Vec::new();
        let mut numbered = Numbered::default();
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
                Numbers::Doubles(v) => {
                    let add = |fold: &mut Fold, at| fold.add_doubles(rows, v, at);
                    ask.budget.add(fold, count, add)?;
                }
                Numbers::Ints(v) => {
                    let add = |fold: &mut Fold, at| fold.add_ints(rows, v, at);
                    ask.budget.add(fold, count, add)?;
                }
            }
        }
        Ok(done)
    }

    fn read_tier(&self, ask: &Ask<'_>) -> Result<Done, ArchiveError> {
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

    /// Where a piece goes.
    fn fold<'d>(
        &self,
        done: &'d mut Done,
        piece: &Piece,
        key: usize,
        ask: &Ask<'_>,
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
