//! The takeover of what a killed agent has left in its segment. The segment outlives it: it has the
//! newest samples of each stream, of which the archive lacks those that were not synced yet, and
//! the time at which the agent last looked, which only an agent that is stopped can write into the
//! archive.
//!
//! The next agent of the run directory takes this over before it replaces the segment: the archive
//! has it then, so that no later kill loses it. If the machine was restarted there is nothing to
//! take over: segments are memory.

use std::collections::HashMap;
use std::sync::Arc;

use barograph_archive::{
    ArchiveError, ArchiveReader, ArchivedUpTo, DeclaredStream, Journal, JournalEntry,
    JournalPosition,
};
use barograph_model::{Quality, Sample, SeriesId, StreamKey};
use barograph_stream::{DirectoryEntry, RunDir, SegmentReader, SegmentState};
use tracing::{info, warn};

use crate::History;

/// Hands the samples that the archive lacks to the journal, and after them the last look at each
/// stream as a sample of [`Quality::Ended`]. Does nothing if the predecessor has closed its segment
/// or was another node. Whatever cannot be read is left out: an agent starts in any case.
pub fn take_over(run_dir: &RunDir, node: &str, history: &History) {
    let Some((journal, dir)) = history.journal().zip(history.readable_dir()) else {
        return;
    };
    let Ok(segment) = SegmentReader::of(run_dir) else {
        return;
    };
    if segment.state() == SegmentState::Closed || segment.node() != node {
        return;
    }
    let archived = match archived(&ArchiveReader::open(dir), node) {
        Ok(archived) => archived,
        Err(error) => {
            warn!(%error, "what the agent before has left in memory is not taken over");
            return;
        }
    };
    let takeover = Takeover {
        segment: &segment,
        archived,
        journal,
    };
    let (samples, position) = takeover.run();
    let has_written = history.wait_written(position);
    info!(
        samples,
        has_written, "the agent before did not end by itself: the archive gets its last samples"
    );
}

/// The number of the last archived sample of each series, with its life.
fn archived(
    archive: &ArchiveReader,
    node: &str,
) -> Result<HashMap<SeriesId, ArchivedUpTo>, ArchiveError> {
    let view = archive.view()?;
    let of_node = view.series().iter().filter(|one| &*one.node == node);
    Ok(of_node.map(|one| (one.id, one.archived)).collect())
}

/// The way of samples from a segment to a journal.
struct Takeover<'s> {
    segment: &'s SegmentReader,
    archived: HashMap<SeriesId, ArchivedUpTo>,
    journal: Journal,
}

impl Takeover<'_> {
    /// Takes over all streams, and returns the number of samples and the position of the last.
    fn run(&self) -> (u64, JournalPosition) {
        let (mut entries, mut samples) = (Vec::new(), 0);
        let mut position = JournalPosition::default();
        let directory = self.segment.directory();
        for (key, entry) in (0..).map(StreamKey).zip(&directory.entries) {
            let left = self.left(entry);
            if left.is_empty() {
                continue;
            }
            let declared = DeclaredStream {
                descriptor: Arc::new(entry.descriptor.clone()),
                life: entry.created_ns,
                depth: entry.depth,
            };
            samples += left.len() as u64;
            entries.push(JournalEntry::Declare(key, declared));
            let left = left.into_iter();
            entries.extend(left.map(|(number, sample)| JournalEntry::Sample(key, number, sample)));
            entries.push(JournalEntry::Retire(key));
            position = self.journal.submit(&mut entries);
        }
        (samples, position)
    }

    /// The samples of a stream that the archive lacks, with their numbers, and its last look. None
    /// of a stream at which nobody looks: what programs put is in their own rings too, and is read
    /// from there.
    fn left(&self, entry: &DirectoryEntry) -> Vec<(u64, Sample)> {
        let stream = self.segment.stream(entry);
        let count = stream.count().unwrap_or_default();
        if self.segment.interval_ns(entry) == 0 || count == 0 {
            return Vec::new();
        }
        let archived = self.archived.get(&entry.series);
        let archived = match archived {
            Some(upto) if upto.life > entry.created_ns => return Vec::new(),
            Some(upto) if upto.life == entry.created_ns => upto.number,
            _ => 0,
        };
        // The newest sample is read in any case: the last look repeats its value.
        let mut samples = Vec::new();
        let scan = stream.scan(archived.min(count - 1), &mut samples);
        let Some(newest) = scan.and(samples.last()).cloned() else {
            return Vec::new();
        };
        let numbers = count + 1 - samples.len() as u64..;
        let mut left: Vec<(u64, Sample)> = numbers.zip(samples).collect();
        if newest.quality != Quality::Ended {
            let ended = Sample {
                ts: stream.looked_ns().max(newest.ts),
                quality: Quality::Ended,
                ..newest
            };
            left.push((count + 1, ended));
        }
        left.retain(|(number, _)| *number > archived);
        left
    }
}

#[cfg(test)]
mod tests;
