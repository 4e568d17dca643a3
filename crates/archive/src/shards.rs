//! Merging whole archives: those of several nodes into one, and those that several agents have kept
//! of one node, without doubles.
//!
//! A sample is known by its series, the life of its stream and its number, which are the same
//! wherever it was kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_model::{Clock, Quality, Sample, Selector, SeriesId, Span, StreamKey};

use crate::{
    ArchiveConfig, ArchiveError, ArchiveLayout, ArchiveReader, DeclaredStream, DiskStorage,
    Journal, JournalEntry, KeepConfig, Keeper, View,
};

/// Entries that are handed over at a time.
const ENTRIES_MAX: usize = 8_192;
/// Bytes that wait for the writer.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Longest wait until what was handed over is on disk.
const DURABLE_WAIT: Duration = Duration::from_secs(60);
/// The one stream that is written at a time.
const KEY: StreamKey = StreamKey(0);

/// The result of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergedArchives {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of series.
    pub series: u64,
    /// Number of samples.
    pub samples: u64,
    /// Samples that were in more than one archive.
    pub doubles: u64,
}

/// Writes all samples of these archives into a new one in `out`, which must be empty or not exist.
/// The tiers are computed anew, so times of which only tiers are left are not in it. `progress` is
/// called with the number of samples so far.
///
/// The samples of one series are in memory at a time.
pub fn merge_archives(
    inputs: &[ArchiveReader],
    out: &Path,
    clock: &Arc<dyn Clock>,
    progress: &mut dyn FnMut(u64),
) -> Result<MergedArchives, ArchiveError> {
    let there = ArchiveLayout::nodes(out).map_err(ArchiveError::io("list", out))?;
    if !there.is_empty() {
        let full = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
        return Err(ArchiveError::io("merge into", out)(full));
    }
    let views = inputs.iter().map(|input| input.view_held(Span::ALL));
    let views: Vec<View> = views.collect::<Result<_, _>>()?;
    let nodes: BTreeSet<Arc<str>> = views
        .iter()
        .flat_map(|view| view.series().iter().map(|one| Arc::clone(&one.node)))
        .collect();
    let mut merged = MergedArchives::default();
    for node in nodes {
        merged.nodes += 1;
        merge_node(&views, &node, out, clock, &mut merged, progress)?;
    }
    Ok(merged)
}

fn merge_node(
    views: &[View],
    node: &Arc<str>,
    out: &Path,
    clock: &Arc<dyn Clock>,
    merged: &mut MergedArchives,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ArchiveError> {
    let config = ArchiveConfig {
        durable: Selector::parse("*").into_iter().collect(),
        buffer_bytes_max: BUFFER_BYTES_MAX,
        bytes_max: u64::MAX,
        free_bytes_min: 0,
        keep: KeepConfig::FOREVER,
        ..ArchiveConfig::new(out, &**node)
    };
    let keeper = Keeper::start(config, Arc::new(DiskStorage), Arc::clone(clock))?;
    let of_node = |view: &View| -> Vec<SeriesId> {
        let own = view.series().iter().filter(|one| one.node == *node);
        own.map(|one| one.id).collect()
    };
    let all: BTreeSet<SeriesId> = views.iter().flat_map(of_node).collect();
    for id in all {
        let lives = samples_of(views, node, id, &mut merged.doubles)?;
        let Some(descriptor) = views.iter().find_map(|view| {
            let one = view.series().iter().find(|one| one.id == id)?;
            Some(Arc::clone(&one.descriptor))
        }) else {
            continue;
        };
        merged.series += 1;
        for (life, samples) in lives {
            let declared = DeclaredStream {
                descriptor: Arc::clone(&descriptor),
                life,
                depth: u32::MAX,
            };
            let mut entries = vec![JournalEntry::Declare(KEY, declared)];
            for (number, sample) in samples {
                entries.push(JournalEntry::Sample(KEY, number, sample));
                merged.samples += 1;
                if entries.len() >= ENTRIES_MAX {
                    hand_over(&keeper, &mut entries, out)?;
                    progress(merged.samples);
                }
            }
            entries.push(JournalEntry::Retire(KEY));
            hand_over(&keeper, &mut entries, out)?;
        }
        progress(merged.samples);
    }
    keeper.seal()
}

/// The samples of a series in all archives, by life and number, each once.
fn samples_of(
    views: &[View],
    node: &Arc<str>,
    id: SeriesId,
    doubles: &mut u64,
) -> Result<BTreeMap<i64, BTreeMap<u64, Sample>>, ArchiveError> {
    let cancel = AtomicBool::new(false);
    let mut lives: BTreeMap<i64, BTreeMap<u64, Sample>> = BTreeMap::new();
    for view in views {
        let is_it = |at: &usize| view.series()[*at].node == *node && view.series()[*at].id == id;
        let places: Vec<usize> = (0..view.series().len()).filter(is_it).collect();
        for chunk in view.scan(&places, Span::ALL, &cancel) {
            let chunk = chunk?;
            let life = lives.entry(chunk.life).or_default();
            for (row, number) in chunk.columns.numbers.iter().enumerate() {
                let Some(sample) = chunk.columns.sample(row) else {
                    continue;
                };
                match life.get_mut(number) {
                    None => drop(life.insert(*number, sample)),
                    Some(known) => {
                        *doubles += 1;
                        // Who missed samples has a mark in place of the first; who has them knows
                        // better.
                        if known.quality == Quality::Ended {
                            *known = sample;
                        }
                    }
                }
            }
        }
    }
    Ok(lives)
}

/// Hands entries over, and waits until they are on disk: none is lost for lack of room.
fn hand_over(
    keeper: &Keeper,
    entries: &mut Vec<JournalEntry>,
    out: &Path,
) -> Result<(), ArchiveError> {
    let journal: Journal = keeper.journal();
    let position = journal.submit(entries);
    if journal.wait_durable(position, DURABLE_WAIT) {
        return Ok(());
    }
    let why = match keeper.status().trouble {
        trouble if trouble.is_empty() => {
            let seconds = DURABLE_WAIT.as_secs();
            format!("nothing was written for {seconds} s: the disk is slow, or samples do not fit")
        }
        trouble => trouble,
    };
    Err(ArchiveError::io("write to", out)(io::Error::other(why)))
}
