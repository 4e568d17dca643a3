//! Many files of an hour become one of each tier: fewer to open, and better compressed.
//!
//! It stands alone because what is merged is always whole sets: the raw files, with the tiers made anew of
//! them. So a tier holds of a series either all of the set's samples or none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::compose::{self, Failure, HOUR_NS, Made, Newest, Place};
use crate::manifest::PartKey;
use crate::parquet::ParquetPart;
use crate::seal::Sealer;
use crate::sources::RawSource;
use crate::{ArchiveError, Tier, swap};

/// An hour that is over is merged when it has more sets than this.
const SETS_MAX: usize = 4;
/// One that is not over, or gets samples late.
const SETS_MAX_NOW: usize = 32;
/// Most sets that are merged at once: their files are open together.
const SETS_AT_ONCE: usize = 64;

impl Sealer {
    /// Merges one hour that has too many files; how many were replaced.
    pub(crate) fn merge_next(&mut self) -> Result<usize, ArchiveError> {
        let now = self.clock.now_ns();
        let crowded = |(hour, sets): &(&i64, &Vec<Set>)| {
            let over = (**hour + 1).saturating_mul(HOUR_NS) <= now;
            sets.len() > if over { SETS_MAX } else { SETS_MAX_NOW }
        };
        let hours = self.hours();
        let runs = hours.iter().filter(crowded).map(|(_, sets)| runs(sets));
        let Some(run) = runs.flatten().next().map(<[Set]>::to_vec) else {
            return Ok(0);
        };
        self.merge(&run)
    }

    /// Merges every hour that has more than one set; how many files were replaced.
    pub(crate) fn merge_all(&mut self) -> Result<usize, ArchiveError> {
        let mut replaced = 0;
        loop {
            self.settle()?;
            let hours = self.hours();
            let Some(run) = hours.values().flat_map(|sets| runs(sets)).next() else {
                return Ok(replaced);
            };
            if self.stopped() {
                return Err(ArchiveError::Cancelled);
            }
            replaced += self.merge(run)?;
        }
    }

    /// The sets of each hour.
    fn hours(&self) -> BTreeMap<i64, Vec<Set>> {
        let mut hours: BTreeMap<i64, Vec<Set>> = BTreeMap::new();
        // In the order of the keys the files of one set are neighbours.
        for key in self.manifest.parts.keys() {
            let sets = hours.entry(key.hour).or_default();
            match sets.last_mut() {
                Some(set) if set.same(key) => set.raw |= key.tier == Tier::Raw,
                _ => sets.push(Set {
                    key: *key,
                    raw: key.tier == Tier::Raw,
                }),
            }
        }
        hours
    }

    fn merge(&mut self, run: &[Set]) -> Result<usize, ArchiveError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(0);
        };
        let range = (first.key.first, last.key.last);
        let mut sources = Vec::new();
        for set in run {
            let path = set.key.of(Tier::Raw).path(&self.context.layout);
            let open = ParquetPart::open(&path);
            match open.and_then(|part| RawSource::new(Arc::new(part))) {
                Ok(source) => sources.push(source),
                Err(error) => return self.leave_out(*set, error),
            }
        }
        let place = Place::At(first.key.hour);
        match compose::compose(&self.context, &sources, range, place, &Newest::default()) {
            Ok(composed) => self.replace(run, composed.made),
            Err(Failure {
                error,
                source: Some(at),
            }) => self.leave_out(run[at], error),
            Err(Failure { error, .. }) => Err(error),
        }
    }

    /// Sets a damaged raw file aside. The tiers of its set stay, so nothing is merged across it: what is
    /// merged claims all log segments from its first to its last.
    fn leave_out(&mut self, set: Set, error: ArchiveError) -> Result<usize, ArchiveError> {
        let key = set.key.of(Tier::Raw);
        let mut next = self.manifest.clone();
        next.parts.remove(&key);
        if !self.is_copied(&key) {
            next.keep_copies_of(&key);
        }
        self.set_aside(&key.path(&self.context.layout), error, &mut next)?;
        self.put(next, &[]).map(|()| 1)
    }

    fn replace(&mut self, run: &[Set], mut made: Vec<Made>) -> Result<usize, ArchiveError> {
        let mut next = self.manifest.clone();
        let keys = self.manifest.parts.keys().copied();
        let old: Vec<PartKey> = keys.filter(|key| run.iter().any(|s| s.same(key))).collect();
        for key in &old {
            next.parts.remove(key);
        }
        // Their copies go with the same commit: should it fail, they go on to count.
        let copies = old.iter().filter(|key| self.may_be_copied(key));
        next.add_stale_copies(copies.copied());
        let waiting = self.let_wait(&old, &mut made);
        if let Err(error) = self.put(next, &made) {
            // Whether something in them counts, and what is left of them, is found out before the next change.
            self.sweep_due |= !waiting.is_empty();
            return Err(error);
        }
        let layout = self.context.layout.clone();
        for dir in waiting {
            let storage = &*self.context.storage;
            if let Err(error) = swap::finish(storage, &layout, &self.manifest, &dir) {
                tracing::warn!(%error, dir = %dir.display(), "merged files wait to be put in their place");
                self.sweep_due = true;
                return Ok(old.len());
            }
        }
        self.unlink(old.iter().map(|key| key.path(&layout)));
        Ok(old.len())
    }

    /// Has what was made put into directories that are exchanged for those of its hour, where that can be: which.
    fn let_wait(&mut self, old: &[PartKey], made: &mut [Made]) -> Vec<PathBuf> {
        let (layout, storage) = (&self.context.layout, &*self.context.storage);
        match swap::begin(storage, layout, old, made) {
            Ok(dirs) => {
                for file in made {
                    file.path = file.key.waiting(layout);
                }
                dirs
            }
            Err(error) => {
                tracing::debug!(%error, "merged files are not exchanged for their sources");
                self.sweep_due = true;
                Vec::new()
            }
        }
    }
}

/// The files of one sealing in one hour.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// Of one of its files.
    key: PartKey,
    /// Whether its raw file is there.
    raw: bool,
}

impl Set {
    fn same(&self, key: &PartKey) -> bool {
        self.key.of(key.tier) == *key
    }
}

/// Neighbours whose raw files are all there.
fn runs(sets: &[Set]) -> impl Iterator<Item = &[Set]> {
    sets.chunk_by(|a, b| a.raw && b.raw)
        .flat_map(|run| run.chunks(SETS_AT_ONCE))
        .filter(|run| run.len() > 1)
}
