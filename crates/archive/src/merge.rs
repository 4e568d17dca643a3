//! Merging: many files of an hour become one for each tier. There are fewer files to open, and they
//! compress better.
//!
//! This module stands alone because always whole sets are merged: the raw files, from which the
//! tiers are made anew. So a tier holds either all samples of a series in the set or none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::compose::{self, ComposeFailure, OutputPlace};
use crate::parquet::ParquetPart;
use crate::part::{NewFile, PartKey};
use crate::seal::Sealer;
use crate::sources::RawSource;
use crate::tier::HOUR_NS;
use crate::unit::NewestSamples;
use crate::{ArchiveError, Tier, swap};

/// An hour that is over is merged if it has more sets than this.
const SETS_MAX: usize = 4;
/// An hour that is not over, or that gets samples late, is merged if it has more sets than this.
const SETS_MAX_NOW: usize = 32;
/// Most sets that are merged together: their files are open at the same time.
const SETS_AT_ONCE: usize = 64;

impl Sealer {
    /// Merges one hour that has too many files; returns how many were replaced.
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

    /// Merges every hour that has more than one set; returns how many files were replaced.
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

    /// Returns the sets of each hour.
    fn hours(&self) -> BTreeMap<i64, Vec<Set>> {
        let mut hours: BTreeMap<i64, Vec<Set>> = BTreeMap::new();
        // In the order of keys, the files of one set are neighbours.
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
        let place = OutputPlace::At(first.key.hour);
        match compose::compose(
            &self.context,
            &sources,
            range,
            place,
            &NewestSamples::default(),
        ) {
            Ok(composed) => self.replace(run, composed.made),
            Err(ComposeFailure {
                error,
                source: Some(at),
            }) => self.leave_out(run[at], error),
            Err(ComposeFailure { error, .. }) => Err(error),
        }
    }

    /// Sets a damaged raw file aside. The tiers of its set stay, so nothing is merged across it: a
    /// merged file claims all log segments from its first to its last.
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

    fn replace(&mut self, run: &[Set], mut made: Vec<NewFile>) -> Result<usize, ArchiveError> {
        let mut next = self.manifest.clone();
        let keys = self.manifest.parts.keys().copied();
        let old: Vec<PartKey> = keys.filter(|key| run.iter().any(|s| s.same(key))).collect();
        for key in &old {
            next.parts.remove(key);
        }
        // The same commit marks their copies as stale: if it fails, the copies still count.
        let copies = old.iter().filter(|key| self.may_be_copied(key));
        next.add_stale_copies(copies.copied());
        let waiting = self.let_wait(&old, &mut made);
        if let Err(error) = self.put(next, &made) {
            // Whether a file in these directories counts, and what is left of the exchange, is
            // found out before the next change.
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

    /// Puts the new files into directories that are exchanged for those of their hours, if the file
    /// system can do that; returns these directories.
    fn let_wait(&mut self, old: &[PartKey], made: &mut [NewFile]) -> Vec<PathBuf> {
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
    /// Key of one of the files.
    key: PartKey,
    /// Whether the raw file exists.
    raw: bool,
}

impl Set {
    fn same(&self, key: &PartKey) -> bool {
        self.key.of(key.tier) == *key
    }
}

/// Returns runs of neighbouring sets that all have their raw files.
fn runs(sets: &[Set]) -> impl Iterator<Item = &[Set]> {
    sets.chunk_by(|a, b| a.raw && b.raw)
        .flat_map(|run| run.chunks(SETS_AT_ONCE))
        .filter(|run| run.len() > 1)
}
