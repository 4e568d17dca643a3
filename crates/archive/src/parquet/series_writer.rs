//! The common part of the writers of raw files and of tiers: series come one after the other, and
//! their rows fill row groups.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_model::{Descriptor, SeriesId};

use super::index::IndexSeries;
use super::rows::{SeriesWords, words};
use super::sink::FileSink;
use super::{FileIdentity, FileSummary, GROUP_ROWS_MAX, GROUP_ROWS_OF_NAMES, GROUP_TEXT_BYTES_MAX};
use crate::ArchiveError;
use crate::storage::OutFile;

/// Rows that are taken between two checks of how many bytes wait.
const STEP_ROWS: usize = 8 << 10;

/// Rows that wait for their row group.
pub(super) trait PendingRows: Default {
    /// Returns the number of rows.
    fn count(&self) -> usize;
    /// Returns the bytes of their texts.
    fn text_bytes(&self) -> usize;
    /// Writes the rows, of which there is at least one.
    fn write(&self, sink: &mut FileSink) -> Result<(), ArchiveError>;
    /// Removes the rows, but keeps the memory.
    fn clear(&mut self);
}

/// A file that is being written.
pub(super) struct SeriesWriter<R> {
    /// Path for messages.
    pub path: PathBuf,
    sink: FileSink,
    rows: R,
    written: u64,
    /// Name, labels and unit of the series whose rows come now.
    words: Option<SeriesWords>,
}

impl<R: PendingRows> SeriesWriter<R> {
    pub(super) fn create(
        out: Box<dyn OutFile>,
        path: &Path,
        about: FileIdentity,
        (rows, version): (R, u32),
    ) -> Result<Self, ArchiveError> {
        Ok(Self {
            path: path.to_owned(),
            sink: FileSink::create(path, out, about, version)?,
            rows,
            written: 0,
            words: None,
        })
    }

    /// Begins a series unless it is the last one, and returns its entry in the index. If its name
    /// differs from that of the last one, the waiting rows may become a row group.
    pub(super) fn series(
        &mut self,
        id: SeriesId,
        descriptor: &Arc<Descriptor>,
    ) -> Result<&mut IndexSeries, ArchiveError> {
        let last = self.sink.index.series.last();
        let is_named = |series: &IndexSeries| series.descriptor.name == descriptor.name;
        if self.rows.count() >= GROUP_ROWS_OF_NAMES && !last.is_some_and(is_named) {
            self.flush()?;
        }
        let all = &mut self.sink.index.series;
        if all.last().is_none_or(|series| series.id != id) {
            all.push(IndexSeries::new(id, descriptor, self.written));
            self.words = None;
        }
        Ok(all.last_mut().expect("it was pushed just now"))
    }

    /// Takes `count` rows of the series; `bytes_of` returns the bytes of the text, bytes or array
    /// of a row. `extend` appends a range of rows to the waiting ones, and returns whether doubles
    /// hold their values exactly.
    pub(super) fn write(
        &mut self,
        descriptor: &Descriptor,
        count: usize,
        bytes_of: impl Fn(usize) -> usize,
        extend: impl Fn(&mut R, &SeriesWords, Range<usize>) -> bool,
    ) -> Result<(), ArchiveError> {
        let mut from = 0;
        while from < count {
            let room = GROUP_ROWS_MAX - self.rows.count();
            let most = count.min(from + room.min(STEP_ROWS));
            let mut bytes = self.rows.text_bytes();
            let fits = |row: &usize| {
                bytes += bytes_of(*row);
                bytes < GROUP_TEXT_BYTES_MAX
            };
            // The row that reaches the bound is included, so there is always one.
            let to = most.min(from + (from..most).take_while(fits).count() + 1);
            let words = self.words.get_or_insert_with(|| words(descriptor));
            if !extend(&mut self.rows, words, from..to) {
                let series = self.sink.index.series.last_mut();
                series.expect("it was told of").exact = true;
            }
            self.written += (to - from) as u64;
            from = to;
            let full = self.rows.count() == GROUP_ROWS_MAX;
            if full || self.rows.text_bytes() >= GROUP_TEXT_BYTES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the last row group, the index and the footer, and syncs the file.
    pub(super) fn finish(mut self) -> Result<FileSummary, ArchiveError> {
        self.flush()?;
        self.sink.finish()
    }

    fn flush(&mut self) -> Result<(), ArchiveError> {
        if self.rows.count() > 0 {
            self.rows.write(&mut self.sink)?;
            self.rows.clear();
        }
        Ok(())
    }
}
