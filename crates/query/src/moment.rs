//! The archive as files, with the samples that are in no file yet: for programs that read Parquet
//! themselves.
//!
//! It stands alone because of its guarantee: files and tail are taken from one view, so that
//! together they hold each sample once.

use std::path::PathBuf;
use std::sync::Arc;

use barograph_archive::aggregate::{BucketBudget, Fold};
use barograph_archive::{PartInfo, PartKind, SampleChunk, Tier};
use barograph_model::{Buckets, Clock, PastRequest, Span, SqlFault, SqlFaultKind};
use barograph_stream::RunDir;

use crate::fault::fault;
use crate::reader::{PastReader, told, too_many};
use crate::reading::{KnownSeries, Reading};
use crate::table::{Table, TablePart};
use crate::{QueryError, source};

/// An empty span: a request for names alone copies no ring.
const NEVER: Span = Span {
    from: i64::MAX,
    to: i64::MIN,
};

/// The archive at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Parquet files of the tier, sorted by node and time.
    pub files: Vec<PathBuf>,
    /// The samples of log and rings that the files lack, or buckets of them.
    pub tail: Table,
}

impl PastReader {
    /// Opens the archive in a directory alone, without an agent's rings.
    pub fn of_archive(root: PathBuf, clock: Arc<dyn Clock>) -> Result<Self, QueryError> {
        Self::over(None, source::views_of(root), clock)
    }

    /// The archive's directory, if the agent of the run directory keeps an archive.
    pub fn archive_of(run_dir: &RunDir) -> Option<PathBuf> {
        source::archive_of(run_dir).map(|archive| archive.root)
    }

    /// The nodes that have series in rings or archive, sorted by name.
    pub fn nodes(&self) -> Result<Vec<Arc<str>>, SqlFault> {
        let (reading, _) = self.take(&|_, _| true, NEVER)?;
        let mut nodes: Vec<Arc<str>> = reading.series.into_iter().map(|s| s.node).collect();
        nodes.sort();
        nodes.dedup();
        Ok(nodes)
    }

    /// The files of a tier (`raw`, `1s`, `1min`, `1h`) that may hold requested samples.
    pub fn files(&self, tier: &str, request: &PastRequest<'_>) -> Result<Vec<PathBuf>, SqlFault> {
        let tier = tier_of(tier)?;
        let (reading, _) = self.take(request.wanted, request.span)?;
        Ok(files_of(&reading, tier, request))
    }

    /// The files of a tier (`raw`, `1s`, `1min`, `1h`) that may hold requested samples, and the
    /// samples in no file. Files are included if they overlap the span; other samples must be
    /// within it.
    pub fn moment(&self, tier: &str, request: &PastRequest<'_>) -> Result<Moment, SqlFault> {
        let tier = tier_of(tier)?;
        let (reading, _) = self.take(request.wanted, request.span)?;
        let files = files_of(&reading, tier, request);
        let mut parts: Vec<SampleChunk> = Vec::new();
        let mut count = 0;
        let is_whole = reading.each_unsealed(request.span, request.cancel, &mut |chunk| {
            count += chunk.columns.weight();
            parts.push(chunk);
            Ok(count <= request.samples_max)
        });
        if !is_whole.map_err(told)? {
            return Err(too_many(
                "samples that are not Parquet yet",
                request.samples_max,
            ));
        }
        let tail = match tier.step_ns() {
            None => table_of(&reading, &parts),
            Some(step_ns) => buckets_of(&reading, &parts, step_ns, request.samples_max)?,
        };
        Ok(Moment { files, tail })
    }

    /// The requested samples as a table, by name, labels, node and time: every sample, or buckets
    /// of `step_ns`.
    pub fn table(
        &self,
        request: &PastRequest<'_>,
        step_ns: Option<i64>,
    ) -> Result<Table, SqlFault> {
        use barograph_model::Past as _;
        if let Some(step_ns) = step_ns {
            let found = self.buckets(request, step_ns)?;
            let parts: Vec<_> = found
                .iter()
                .map(|(s, b)| (&s.node, &*s.descriptor, b))
                .collect();
            return Ok(Table::of_buckets(&parts));
        }
        let found = self.read(request)?;
        let parts = found.iter().map(|one| TablePart {
            node: &one.series.node,
            descriptor: &one.series.descriptor,
            life: None,
            columns: &one.columns,
        });
        Ok(Table::of_samples(&parts.collect::<Vec<_>>()))
    }
}

fn tier_of(name: &str) -> Result<Tier, SqlFault> {
    Tier::from_name(name).ok_or_else(|| {
        let known = Tier::ALL.map(Tier::as_str).join(", ");
        fault(
            SqlFaultKind::Statement,
            format!("no tier {name:?}: there are {known}"),
        )
    })
}

/// The files of a tier; a file is left out if its node has none of the series in its time.
fn files_of(reading: &Reading, tier: Tier, request: &PastRequest<'_>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (view, series) in reading.archives() {
        let is_wanted = |file: &PartInfo| {
            let has = |known: &KnownSeries| {
                known.node == file.node && known.archived.is_some_and(|span| span.meets(&file.span))
            };
            file.kind == PartKind::Parquet(tier)
                && file.span.meets(&request.span)
                && series.iter().any(has)
        };
        files.extend(view.parts().into_iter().filter(is_wanted));
    }
    files.sort_by(|a, b| (&a.node, a.span.from, &a.path).cmp(&(&b.node, b.span.from, &b.path)));
    files.into_iter().map(|file| file.path).collect()
}

fn table_of<'a>(reading: &'a Reading, chunks: &'a [SampleChunk]) -> Table {
    let part = |chunk: &'a SampleChunk| {
        let known: &KnownSeries = &reading.series[chunk.series];
        TablePart {
            node: &known.node,
            descriptor: &known.descriptor,
            life: Some(chunk.life),
            columns: &chunk.columns,
        }
    };
    Table::of_samples(&chunks.iter().map(part).collect::<Vec<_>>())
}

fn buckets_of(
    reading: &Reading,
    chunks: &[SampleChunk],
    step_ns: i64,
    buckets_max: usize,
) -> Result<Table, SqlFault> {
    let fold = |known: &KnownSeries| Fold::new(known.descriptor.value_type, step_ns, Span::ALL);
    let mut all: Vec<Fold> = reading.series.iter().map(fold).collect();
    // Types without buckets in the files have none here either.
    let has_buckets = |chunk: &&SampleChunk| {
        let known: &KnownSeries = &reading.series[chunk.series];
        Tier::Hour.holds(known.descriptor.value_type)
    };
    let budget = BucketBudget::of(buckets_max);
    for chunk in chunks.iter().filter(has_buckets) {
        let add = |fold: &mut Fold, at| fold.add(chunk.life, &chunk.columns, at);
        let added = budget.add(&mut all[chunk.series], chunk.columns.len(), add);
        added.map_err(|_| too_many("buckets that are not Parquet yet", buckets_max))?;
    }
    let buckets: Vec<Buckets> = all.into_iter().map(Fold::finish).collect();
    let parts = reading.series.iter().zip(&buckets);
    let parts = parts.map(|(known, buckets)| (&known.node, &*known.descriptor, buckets));
    Ok(Table::of_buckets(&parts.collect::<Vec<_>>()))
}
