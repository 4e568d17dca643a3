//! All of an archive at one moment, for readers in any process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Buckets, Columns, Span};

use crate::{ArchiveError, Losses, Series, Tier};

/// An archive that is read. Keeps what it learned of files between views.
#[derive(Debug)]
pub struct Archive {
    root: PathBuf,
}

impl Archive {
    /// The archive at `root`, which need not be there yet.
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it holds now. The same `Arc` as before when nothing has changed, which costs a few
    /// `stat` calls.
    pub fn view(&self) -> Result<Arc<View>, ArchiveError> {
        unimplemented!()
    }
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// A log segment.
    Log,
    /// A Parquet file of this tier.
    Parquet(Tier),
    /// Samples in memory: of tests.
    Memory,
}

/// A file of the archive, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct PartInfo {
    /// Where it was measured.
    pub node: Arc<str>,
    /// What it is.
    pub kind: PartKind,
    /// The file.
    pub path: PathBuf,
    /// Rows: samples, or buckets.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Times of the rows.
    pub span: Span,
    /// Log segments that it holds, both included.
    pub sequences: (u64, u64),
    /// Whether a copy is at the object store.
    pub copied: bool,
}

/// Samples of one life of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Index into [`View::series`].
    pub series: usize,
    /// When the stream was registered.
    pub life: i64,
    /// The samples.
    pub columns: Columns,
}

/// Chunks one by one, so that memory is that of a few row groups.
pub type Scan<'a> = Box<dyn Iterator<Item = Result<Chunk, ArchiveError>> + Send + 'a>;

/// The archive at one moment. It holds its files open: what is unlinked meanwhile goes on being read.
#[derive(Debug)]
pub struct View {
    series: Vec<Series>,
    /// What a test put there, in order.
    memory: Vec<Chunk>,
}

impl View {
    /// An archive in memory, for tests of readers: the chunks in the order in which they were
    /// archived.
    pub fn in_memory(series: Vec<Series>, chunks: Vec<Chunk>) -> Self {
        Self {
            series,
            memory: chunks,
        }
    }

    /// Every series, by name, labels and node.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The disjoint stretches of time, oldest first, such that no sample of one lies in another: whoever
    /// wants rows in order of time sorts one at a time.
    pub fn stretches(&self, span: Span) -> Vec<Span> {
        let within = self.memory.iter().flat_map(|chunk| &chunk.columns.ts);
        let within: Vec<i64> = within.copied().filter(|ts| span.holds(*ts)).collect();
        match (within.iter().min(), within.iter().max()) {
            (Some(&from), Some(&to)) => vec![Span { from, to }],
            _ => Vec::new(),
        }
    }

    /// The samples of the wanted series (indexes into [`Self::series`], ascending) within the span,
    /// each once: chunks of one series and life are in the order of their numbers.
    pub fn scan<'a>(&'a self, wanted: &'a [usize], span: Span, cancel: &'a AtomicBool) -> Scan<'a> {
        let chunks = self.memory.iter().filter(|c| wanted.contains(&c.series));
        Box::new(chunks.filter_map(move |chunk| {
            if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                return Some(Err(ArchiveError::Cancelled));
            }
            let mut columns = Columns::new(chunk.columns.values.value_type());
            for row in 0..chunk.columns.len() {
                let sample = chunk.columns.sample(row)?;
                if span.holds(sample.ts) {
                    columns.push(chunk.columns.numbers[row], &sample);
                }
            }
            (!columns.is_empty()).then_some(Ok(Chunk { columns, ..*chunk }))
        }))
    }

    /// As [`Self::scan`], only what no Parquet file of [`Self::parts`] has: what is in the log (and, in
    /// tests, in memory).
    pub fn scan_log<'a>(
        &'a self,
        wanted: &'a [usize],
        span: Span,
        cancel: &'a AtomicBool,
    ) -> Scan<'a> {
        self.scan(wanted, span, cancel)
    }

    /// The wanted series by buckets of `step_ns` (starts are multiples of it), from the coarsest tier
    /// whose buckets fit into the step and the span, raw where there is none; parts are read in parallel by at
    /// most `threads`. Indexes into [`Self::series`] with what they have; a tier's last value is that
    /// of its last part.
    pub fn buckets(
        &self,
        _wanted: &[usize],
        _span: Span,
        _step_ns: i64,
        _threads: usize,
        _cancel: &AtomicBool,
    ) -> Result<BTreeMap<usize, Buckets>, ArchiveError> {
        unimplemented!()
    }

    /// What there is, for people.
    pub fn parts(&self) -> Vec<PartInfo> {
        Vec::new()
    }

    /// What was lost, by node.
    pub fn losses(&self) -> Vec<(Arc<str>, Losses)> {
        Vec::new()
    }
}
