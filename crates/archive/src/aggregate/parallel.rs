//! Many Parquet files to buckets: row group by row group, by several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Span, ValueType};

use super::Fold;
use crate::parquet::{
    Index, IndexSeries, Numbered, Numbers, ParquetPart, Piece, SampleGroup, TierGroup, plan,
};
use crate::{ArchiveError, Tier};

/// What is asked of the files.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Samples within it count; of tiers the buckets that start in it.
    pub span: Span,
    /// The length of a bucket: a multiple of those of the files.
    pub step_ns: i64,
    /// Most threads.
    pub threads: usize,
    /// Set by the asker who has gone away.
    pub cancel: &'a AtomicBool,
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
    let units = units(parts, wanted, ask.span)?;
    let slots: Vec<Mutex<Option<Done>>> = units.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<ArchiveError>> = Mutex::new(None);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = units.get(at) else { break };
            match unit.read(ask) {
                Ok(done) => {
                    *slots[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                }
                Err(error) => {
                    next.store(units.len(), Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                }
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
    let mut all: BTreeMap<usize, Fold> = BTreeMap::new();
    for slot in slots {
        let done = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (key, fold) in done.into_iter().flatten() {
            match all.get_mut(&key) {
                Some(earlier) => earlier.merge(fold),
                None => {
                    all.insert(key, fold);
                }
            }
        }
    }
    Ok(all)
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
        let (mut ts, mut ints) = (Vec::new(), Vec::new());
        let mut numbered = Numbered::default();
        for (piece, key) in self.pieces.iter().zip(&self.keys) {
            let fold = self.fold(&mut done, piece, *key, ask)?;
            ts.clear();
            group.times(piece, &mut ts)?;
            if self.index.series[piece.series].descriptor.value_type == ValueType::Text {
                fold.add_texts(&ts, &group.texts(piece)?, ask.span);
                continue;
            }
            match group.numbers(piece, &mut numbered)? {
                Numbers::Doubles(v) => fold.add_doubles(&ts, v, &mut ints, ask.span),
                Numbers::Ints(v) => fold.add_ints(&ts, v, ask.span),
            }
        }
        Ok(done)
    }

    fn read_tier(&self, ask: &Ask<'_>) -> Result<Done, ArchiveError> {
        let mut group = TierGroup::new(self.part, &self.index, self.group);
        let mut done = Done::new();
        for (piece, key) in self.pieces.iter().zip(&self.keys) {
            let fold = self.fold(&mut done, piece, *key, ask)?;
            fold.add_buckets(&group.buckets(piece)?, ask.span);
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
            done.push((key, Fold::new(value_type, ask.step_ns)));
        }
        Ok(&mut done.last_mut().expect("it was pushed just now").1)
    }
}
