//! What writers of raw files and of tiers share: series come one after the other, and their rows fill row
//! groups.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_model::{Descriptor, SeriesId};

use super::index::IndexSeries;
use super::rows::{Words, words};
use super::sink::FileSink;
use super::{About, GROUP_ROWS_MAX, GROUP_ROWS_OF_NAMES, GROUP_TEXT_BYTES_MAX, Summary};
use crate::ArchiveError;
use crate::storage::OutFile;

/// Rows that are taken at a time: between two looks at how many bytes wait.
const STEP_ROWS: usize = 8 << 10;

/// What waits for its row group.
pub(super) trait Rows: Default {
    /// How many there are.
    fn count(&self) -> usize;
    /// Bytes of their texts.
    fn text_bytes(&self) -> usize;
    /// Writes them; there are some.
    fn write(&self, sink: &mut FileSink) -> Result<(), ArchiveError>;
    /// Lets go of them, but not of their memory.
    fn clear(&mut self);
}

/// A file that is written.
pub(super) struct SeriesWriter<R> {
    /// For messages.
    pub path: PathBuf,
    sink: FileSink,
    rows: R,
    written: u64,
    /// Of the series whose rows come now.
    words: Option<Words>,
}

impl<R: Rows> SeriesWriter<R> {
    pub fn create(out: Box<dyn OutFile>, path: &Path, about: About) -> Result<Self, ArchiveError> {
        Ok(Self {
            path: path.to_owned(),
            sink: FileSink::create(path, out, about)?,
            rows: R::default(),
            written: 0,
            words: None,
        })
    }

    /// The series whose rows come now, as the index has it: a new one, unless it was the last. Where it has another
    /// name than the last, what waits may be a row group by itself.
    pub fn series(
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

    /// Takes so many rows of the series; `bytes_of` tells the bytes of the texts, bytes or arrays of each. `extend` appends a range of them to those that wait, and tells whether
    /// doubles hold their values.
    pub fn write(
        &mut self,
        descriptor: &Descriptor,
        count: usize,
        bytes_of: impl Fn(usize) -> usize,
        extend: impl Fn(&mut R, &Words, Range<usize>) -> bool,
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
            // The row that reaches the bound too: there is always one.
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
    pub fn finish(mut self) -> Result<Summary, ArchiveError> {
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
