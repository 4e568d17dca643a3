//! The past as files and tables, for programs that compute over much of it in their own process.
//!
//! This module stands alone because it needs no agent: an archive can be read where no agent runs
//! any more.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use barograph_model::{Clock, Descriptor, PastRequest, Selector, Span, SqlFault, unbounded};
use barograph_query::{Moment, PastReader, ScopeChoice, Table};
use barograph_stream::{RunDir, gate};

use crate::ClientError;

/// Default for the most samples that one call returns; more is an error.
pub const ARCHIVE_SAMPLES_DEFAULT: usize = 10_000_000;

/// A selection of the past: streams, a time range, and a bound on the answer.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveRange<'a> {
    /// The streams.
    pub selector: &'a Selector,
    /// Start of the range, ns since the epoch, inclusive.
    pub start_ns: i64,
    /// End of the range, ns since the epoch, exclusive.
    pub stop_ns: i64,
    /// Most samples, or most buckets if a step is given.
    pub samples_max: usize,
}

/// Reads rings, log and Parquet files as one. Cheap to clone, for use from any thread.
#[derive(Clone, Debug)]
pub struct ArchiveView {
    reader: Arc<PastReader>,
    place: Place,
}

/// The place that names an archive's directory.
#[derive(Clone, Debug)]
enum Place {
    /// The agent of this run directory names it.
    Agent(RunDir),
    /// This directory itself.
    Path(PathBuf),
}

impl ArchiveView {
    /// Opens the archive of the agent that serves a run directory, together with the samples that
    /// are only in its rings. An agent without an archive still has rings.
    pub fn open(run_dir: &RunDir, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let reader = PastReader::open(run_dir, ScopeChoice::Readable, clock)?;
        Ok(Self {
            reader: Arc::new(reader),
            place: Place::Agent(run_dir.clone()),
        })
    }

    /// Opens the archive in a directory, without any rings.
    pub fn of_path(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let path = path.into();
        if !path.is_dir() {
            return Err(ClientError::NoArchive { path });
        }
        let reader = PastReader::of_archive(path.clone(), clock)?;
        Ok(Self {
            reader: Arc::new(reader),
            place: Place::Path(path),
        })
    }

    /// The directory of the archive; `None` if the agent keeps no archive.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Agent(run_dir) => PastReader::archive_of(run_dir),
            Place::Path(path) => Some(path.clone()),
        }
    }

    /// Lists the nodes that have samples in the archive.
    pub fn nodes(&self) -> Result<Vec<Arc<str>>, SqlFault> {
        self.reader.nodes()
    }

    /// Lists the Parquet files of a tier (`raw`, `1s`, `1min`, `1h`) that may hold samples of the
    /// selection.
    pub fn files(&self, tier: &str, stretch: &ArchiveRange<'_>) -> Result<Vec<PathBuf>, SqlFault> {
        let cancel = AtomicBool::new(false);
        stretch.ask(&cancel, |request| self.reader.files(tier, request))
    }

    /// Returns the Parquet files of a tier (`raw`, `1s`, `1min`, `1h`) that may hold samples of the
    /// selection, and its remaining samples as a table: together each sample once.
    pub fn moment(
        &self,
        tier: &str,
        stretch: &ArchiveRange<'_>,
        cancel: &AtomicBool,
    ) -> Result<Moment, SqlFault> {
        stretch.ask(cancel, |request| self.reader.moment(tier, request))
    }

    /// Returns the selection as one table: every sample, or whole buckets of `step_ns`.
    pub fn table(
        &self,
        stretch: &ArchiveRange<'_>,
        step_ns: Option<i64>,
        cancel: &AtomicBool,
    ) -> Result<Table, SqlFault> {
        let whole = step_ns
            .filter(|ns| *ns > 0)
            .map_or(*stretch, |ns| stretch.whole(ns));
        whole.ask(cancel, |request| self.reader.table(request, step_ns))
    }
}

impl ArchiveRange<'_> {
    fn ask<T>(
        &self,
        cancel: &AtomicBool,
        ask: impl FnOnce(&PastRequest<'_>) -> Result<T, SqlFault>,
    ) -> Result<T, SqlFault> {
        let wanted = |_: &str, d: &Descriptor| self.selector.matches(d.name.as_str(), &d.labels);
        ask(&PastRequest {
            wanted: &wanted,
            span: Span {
                from: self.start_ns,
                to: self.stop_ns.saturating_sub(1),
            },
            samples_max: self.samples_max,
            cancel,
            holds: &unbounded,
        })
    }

    /// Extends the range so that its first and last bucket are whole.
    fn whole(self, step_ns: i64) -> Self {
        let from = self.start_ns.div_euclid(step_ns).saturating_mul(step_ns);
        let last = self.stop_ns.saturating_sub(1).div_euclid(step_ns);
        Self {
            start_ns: from,
            stop_ns: last.saturating_add(1).saturating_mul(step_ns),
            ..self
        }
    }
}

/// The archive of a run directory, opened when it is first needed.
#[derive(Default)]
pub(crate) struct ArchiveOnce(Mutex<Option<ArchiveView>>);

impl ArchiveOnce {
    pub(crate) fn open(
        &self,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
    ) -> Result<ArchiveView, ClientError> {
        let mut held = gate::lock(&self.0);
        if let Some(archive) = &*held {
            return Ok(archive.clone());
        }
        let archive = ArchiveView::open(run_dir, Arc::clone(clock))?;
        Ok(held.insert(archive).clone())
    }
}
