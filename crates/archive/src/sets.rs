//! The Parquet files of an hour, opened so that each sample is read once, whatever was merged since
//! the view was taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::{Columns, SeriesId, Span};

use crate::compose::within_numbers;
use crate::handles::FileCache;
use crate::layout::first_hour;
use crate::manifest::Manifest;
use crate::parquet::ParquetPart;
use crate::part::{FilePart, PartKey};
use crate::snapshot::NodeSnapshot;
use crate::{ArchiveError, Tier};

/// Most reads of the manifest, which is read again if some of its files are gone.
const LOOKS_MAX: usize = 16;

/// The sets of one hour, in order. A set is the files that one sealing or one merge made of it.
#[derive(Clone, Debug)]
pub(crate) struct HourSets {
    /// The place of the files: the hour since the epoch.
    pub(crate) hour: i64,
    sets: Vec<BTreeMap<Tier, (PartKey, FilePart)>>,
}

/// The files of a set that were chosen and exist.
pub(crate) struct OpenSet {
    pub(crate) parts: Vec<(Tier, Arc<ParquetPart>)>,
    /// Whether the set also holds log segments that the view reads as such.
    pub(crate) beyond: bool,
}

/// A function that chooses tiers of a set, given which ones it has: the first, and a second one for
/// the series that the first does not hold.
pub(crate) type Choose<'a> = dyn Fn(&dyn Fn(Tier) -> bool) -> (Tier, Option<Tier>) + 'a;

impl HourSets {
    /// Returns the hours of a manifest, in the order in which their first samples were archived.
    pub(crate) fn of(manifest: &Manifest, wanted: &dyn Fn(&Self) -> bool) -> Vec<Self> {
        let mut hours: BTreeMap<i64, Self> = BTreeMap::new();
        for (key, part) in &manifest.parts {
            let of = hours.entry(key.hour).or_insert_with(|| Self {
                hour: key.hour,
                sets: Vec::new(),
            });
            of.add(*key, *part);
        }
        let mut hours: Vec<Self> = hours.into_values().filter(wanted).collect();
        hours.sort_by_key(|sets| (sets.first(), first_hour(sets.hour), sets.hour));
        hours
    }

    /// Adds a file. Keys come in order, so the files of a set are neighbours.
    fn add(&mut self, key: PartKey, part: FilePart) {
        let same = |set: &BTreeMap<Tier, (PartKey, FilePart)>| {
            set.values().any(|(other, _)| other.of(key.tier) == key)
        };
        match self.sets.last_mut() {
            Some(set) if same(set) => {
                set.insert(key.tier, (key, part));
            }
            _ => self.sets.push(BTreeMap::from([(key.tier, (key, part))])),
        }
    }

    fn first(&self) -> u64 {
        let keys = self.sets.iter().flat_map(|set| set.values());
        keys.map(|(key, _)| key.first).min().unwrap_or(0)
    }

    /// Whether the sets have samples within the span.
    pub(crate) fn has_raw(&self, span: Span) -> bool {
        let raw = self.sets.iter().filter_map(|set| set.get(&Tier::Raw));
        raw.into_iter().any(|(_, part)| part.span.meets(&span))
    }

    /// Returns the keys of the raw files.
    pub(crate) fn raw(&self) -> impl Iterator<Item = PartKey> {
        let raw = self.sets.iter().filter_map(|set| set.get(&Tier::Raw));
        raw.map(|(key, _)| *key)
    }

    /// Whether any file of the sets meets the span.
    pub(crate) fn meets(&self, span: Span) -> bool {
        let parts = self.sets.iter().flat_map(|set| set.values());
        parts.into_iter().any(|(_, part)| part.span.meets(&span))
    }

    /// Opens the chosen files of every set.
    pub(crate) fn open(
        &self,
        node: &NodeSnapshot,
        handles: &FileCache,
        choose: &Choose<'_>,
    ) -> Result<Vec<OpenSet>, ArchiveError> {
        match self.try_open(node, handles, choose, false)? {
            Some(open) => Ok(open),
            None => self.open_newer(node, handles, choose),
        }
    }

    /// Opens the files that replaced files which are gone.
    fn open_newer(
        &self,
        node: &NodeSnapshot,
        handles: &FileCache,
        choose: &Choose<'_>,
    ) -> Result<Vec<OpenSet>, ArchiveError> {
        for look in 1..=LOOKS_MAX {
            let manifest = Manifest::read(&node.sealed.layout)?.unwrap_or_default();
            let mut newer = Self {
                hour: self.hour,
                sets: Vec::new(),
            };
            let through = node.sealed.manifest.sealed_through;
            for (key, part) in &manifest.parts {
                if key.hour == self.hour && key.first <= through {
                    newer.add(*key, *part);
                }
            }
            // A file that the newest manifest lists and nobody can open was deleted by hand.
            if let Some(open) = newer.try_open(node, handles, choose, look == LOOKS_MAX)? {
                return Ok(open);
            }
        }
        Ok(Vec::new())
    }

    /// Opens the chosen files; `None` if a file is gone, unless such files are skipped.
    fn try_open(
        &self,
        node: &NodeSnapshot,
        handles: &FileCache,
        choose: &Choose<'_>,
        pass_over: bool,
    ) -> Result<Option<Vec<OpenSet>>, ArchiveError> {
        let sealed = &node.sealed;
        let mut open = Vec::new();
        for set in &self.sets {
            let beyond = set
                .values()
                .any(|(key, _)| key.last > sealed.manifest.sealed_through);
            let (first, second) = match beyond {
                // Only samples show which of them are beyond the sealed segments.
                true => (Tier::Raw, None),
                false => choose(&|tier| set.contains_key(&tier)),
            };
            let mut parts = Vec::new();
            let has_raw = set.contains_key(&Tier::Raw);
            let mut wanted = vec![first];
            wanted.extend(second);
            while !wanted.is_empty() {
                let tier = wanted.remove(0);
                let Some((key, part)) = set.get(&tier) else {
                    continue;
                };
                let held = sealed.held.get(key).map(|held| &held.file);
                match handles.open(&sealed.layout, *key, part, held) {
                    // Time-weighted means are computed from the samples as long as these exist.
                    Ok(part) if tier != Tier::Raw && part.is_of_samples() && has_raw => {
                        parts.clear();
                        wanted = vec![Tier::Raw];
                    }
                    Ok(part) => parts.push((tier, part)),
                    Err(error) if error.is_gone() && pass_over => {}
                    Err(error) if error.is_gone() => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
            open.push(OpenSet { parts, beyond });
        }
        Ok(Some(open))
    }
}

impl NodeSnapshot {
    /// Removes the samples that the view reads from the log.
    pub(crate) fn cut_beyond(&self, id: SeriesId, life: i64, columns: &mut Columns) {
        let known = self.sealed.manifest.series.get(&id);
        let archived = known.map(|known| known.archived).unwrap_or_default();
        let number_max = match life.cmp(&archived.life) {
            std::cmp::Ordering::Less => return,
            std::cmp::Ordering::Equal => archived.number,
            std::cmp::Ordering::Greater => 0,
        };
        *columns = within_numbers(columns, number_max);
    }
}
