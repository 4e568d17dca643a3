//! Exports: a selection of the node's archive and those of applications, copied as archives or as
//! text.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Descriptor, Sample, Span, Value, base64};
use barograph_stream::SCOPES_DIR;

use crate::compose::{self, OutputPlace};
use crate::context::SealerContext;
use crate::manifest::Manifest;
use crate::sets::HourSets;
use crate::snapshot::NodeSnapshot;
use crate::sources::{RawSource, SelectedUnits};
use crate::unit::{NewestSamples, SampleSource, SeriesUnit};
use crate::{
    ArchiveConfig, ArchiveError, ArchiveReader, ArchivedSeries, DiskStorage, Storage as _, Tier,
    View, sweep,
};

/// Destination of an export.
pub enum ExportTo<'a> {
    /// A directory that is empty or does not exist yet: it becomes an archive of only the
    /// selection, with its tiers; the raw files are partitioned as ours are. Samples of
    /// applications become an archive for each scope, below the directory ([`scope_path`]).
    Parquet(&'a Path),
    /// Lines of comma-separated values, below a line with their names.
    Csv(&'a mut dyn Write),
    /// One JSON object per line.
    JsonLines(&'a mut dyn Write),
}

/// A selection of series of one archive or several, at one moment.
///
/// All raw files of the span are held open: the limit of open files of this process is raised for
/// it as far as possible. If that is not enough, nothing is written, and the error says what to do.
#[derive(Debug)]
pub struct ArchiveExport {
    span: Span,
    parts: Vec<ExportPart>,
}

/// The wanted series of one archive.
#[derive(Debug)]
struct ExportPart {
    /// The scope of applications; `None` for the node's own archive.
    scope: Option<Box<str>>,
    view: View,
    /// Places in the view's list of series.
    places: Vec<usize>,
}

impl ArchiveExport {
    /// Returns an export of this span that has no series yet.
    pub fn new(span: Span) -> Self {
        let parts = Vec::new();
        Self { span, parts }
    }

    /// Adds the wanted series of an archive: that of a scope of applications, or of the node if
    /// `scope` is `None`.
    pub fn add(
        &mut self,
        archive: &ArchiveReader,
        scope: Option<&str>,
        wanted: &dyn Fn(&ArchivedSeries) -> bool,
    ) -> Result<(), ArchiveError> {
        let view = archive.view_held(self.span)?;
        let all = view.series().iter().enumerate();
        let places: Vec<usize> = all.filter(|(_, s)| wanted(s)).map(|(at, _)| at).collect();
        if !places.is_empty() {
            let scope = scope.map(Into::into);
            self.parts.push(ExportPart {
                scope,
                view,
                places,
            });
        }
        Ok(())
    }

    /// Returns how many series are selected.
    pub fn series(&self) -> usize {
        self.parts.iter().map(|part| part.places.len()).sum()
    }

    /// Whether any selected series has a sample within the span; reads up to the first one.
    pub fn has_samples(&self) -> Result<bool, ArchiveError> {
        let cancel = AtomicBool::new(false);
        for part in &self.parts {
            for chunk in part.view.scan(&part.places, self.span, &cancel) {
                if !chunk?.columns.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Writes each sample once, whatever the writers of the archives do meanwhile; returns how
    /// many. Text is ordered by archive and file, and in each by series. `progress` is called with
    /// the number of samples so far.
    pub fn write(
        &self,
        to: ExportTo<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, ArchiveError> {
        match to {
            ExportTo::Parquet(dir) => self.write_parquet(dir, progress),
            ExportTo::Csv(out) => {
                let write = io_error("write CSV");
                writeln!(out, "ts,iso,node,name,labels,value,unit,quality,error").map_err(write)?;
                self.write_text(progress, &mut |series, sample| {
                    csv_line(out, series, sample)
                })
            }
            ExportTo::JsonLines(out) => self.write_text(progress, &mut |series, sample| {
                json_line(out, series, sample)
            }),
        }
    }

    fn write_text(
        &self,
        progress: &mut dyn FnMut(u64),
        line: &mut Line<'_>,
    ) -> Result<u64, ArchiveError> {
        let cancel = AtomicBool::new(false);
        let mut rows = 0;
        for part in &self.parts {
            for chunk in part.view.scan(&part.places, self.span, &cancel) {
                let chunk = chunk?;
                let series = &part.view.series()[chunk.series];
                for row in 0..chunk.columns.len() {
                    if let Some(sample) = chunk.columns.sample(row) {
                        line(series, &sample).map_err(io_error("write a line"))?;
                    }
                }
                rows += chunk.columns.len() as u64;
                progress(rows);
            }
        }
        Ok(rows)
    }

    fn write_parquet(
        &self,
        dir: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, ArchiveError> {
        let there = DiskStorage
            .list(dir)
            .map_err(ArchiveError::io("list", dir))?;
        if !there.is_empty() {
            let full = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
            return Err(ArchiveError::io("export into", dir)(full));
        }
        let mut rows = 0;
        for part in &self.parts {
            let root = match &part.scope {
                Some(scope) => dir.join(scope_path(scope)),
                None => dir.to_owned(),
            };
            let before = rows;
            rows += part.write_parquet(self.span, &root, &mut |of_part| {
                progress(before + of_part);
            })?;
        }
        Ok(rows)
    }
}

/// Returns the path of the archive of a scope of applications in an export and in a target,
/// relative to that of the node. No path of the node's archive begins so: those begin with a tier
/// or with `nodes`.
pub fn scope_path(scope: &str) -> PathBuf {
    Path::new(SCOPES_DIR).join(scope)
}

/// A function that writes one sample.
type Line<'a> = dyn FnMut(&ArchivedSeries, &Sample) -> io::Result<()> + 'a;

fn csv_line(out: &mut dyn Write, series: &ArchivedSeries, sample: &Sample) -> io::Result<()> {
    let of = &series.descriptor;
    let value = match &sample.value {
        Value::Bytes(v) => base64(v),
        value => quoted(&value.to_string()),
    };
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{}",
        sample.ts,
        iso(sample.ts),
        quoted(&series.node),
        of.name,
        quoted(&labels(of)),
        value,
        quoted(of.unit.as_str()),
        sample.quality.as_str(),
        sample.error,
    )
}

/// Quotes a text that contains commas, quotes or line ends.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn json_line(out: &mut dyn Write, series: &ArchivedSeries, sample: &Sample) -> io::Result<()> {
    let of = &series.descriptor;
    let value = match &sample.value {
        Value::Int(v) => (*v).into(),
        // JSON has neither NaN nor infinities.
        Value::Float(v) => {
            serde_json::Number::from_f64(*v).map_or(serde_json::Value::Null, Into::into)
        }
        Value::Bool(v) => (*v).into(),
        Value::Text(v) | Value::Json(v) => serde_json::Value::from(&**v),
        Value::Bytes(v) => base64(v).into(),
        Value::Floats(v) => serde_json::Value::from(&**v),
    };
    let labels: serde_json::Map<_, _> = of
        .labels
        .iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let line = serde_json::json!({
        "ts": sample.ts,
        "iso": iso(sample.ts),
        "node": &*series.node,
        "name": of.name.as_str(),
        "labels": labels,
        "value": value,
        "unit": of.unit.as_str(),
        "quality": sample.quality.as_str(),
        "error": sample.error,
    });
    writeln!(out, "{line}")
}

fn labels(of: &Descriptor) -> String {
    let pairs = of.labels.iter();
    let labels: std::collections::BTreeMap<_, _> = pairs.collect();
    serde_json::to_string(&labels).expect("texts are JSON")
}

/// Returns a time like `2026-11-21T21:54:56.5Z`; empty if the calendar has no such year.
fn iso(ts: i64) -> String {
    let instant = jiff::Timestamp::from_nanosecond(ts.into());
    instant.map_or_else(|_| String::new(), |instant| instant.to_string())
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> ArchiveError {
    ArchiveError::io(what, "the export")
}

impl ExportPart {
    /// Writes an archive of its own at `root`.
    fn write_parquet(
        &self,
        span: Span,
        root: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, ArchiveError> {
        let view = &self.view;
        let mut rows = 0;
        for node in &view.nodes {
            let of_unit = |unit: &SeriesUnit| {
                let place = node.places.get(&unit.id);
                // The places are sorted.
                place.is_some_and(|place| self.places.binary_search(place).is_ok())
            };
            let config = ArchiveConfig::new(root, &*node.name);
            let context = SealerContext::new(config, Arc::new(DiskStorage), Arc::default());
            // This creates the directories.
            sweep::start(&context.layout, &node.name, &DiskStorage)?;
            for sets in HourSets::of(&node.sealed.manifest, &|sets| sets.has_raw(span)) {
                for (range, part) in raw_parts(view, node, &sets)? {
                    let source = SelectedUnits::new(RawSource::new(part)?, span, &of_unit);
                    rows += write(&context, source, range, OutputPlace::At(sets.hour))?;
                    progress(rows);
                }
            }
            for log in &node.logs {
                let range = (log.sequence(), log.sequence());
                let source = SelectedUnits::new(log.fork()?, span, &of_unit);
                rows += write(&context, source, range, OutputPlace::Hours)?;
                progress(rows);
            }
            let manifest = sweep::rebuild(&context.layout, &node.name, &DiskStorage)?;
            manifest.prepare(&context.layout, &DiskStorage)?;
            Manifest::publish(&context.layout, &DiskStorage)?;
        }
        Ok(rows)
    }
}

type Ranged = ((u64, u64), Arc<crate::parquet::ParquetPart>);

fn raw_parts(
    view: &View,
    node: &NodeSnapshot,
    sets: &HourSets,
) -> Result<Vec<Ranged>, ArchiveError> {
    let mut parts = Vec::new();
    for set in sets.open(node, &view.handles, &|_| (Tier::Raw, None))? {
        for (_, part) in set.parts {
            parts.push((part.index()?.about.sequences, part));
        }
    }
    Ok(parts)
}

/// Writes the files of one source and moves them into place.
fn write<S: SampleSource>(
    context: &SealerContext,
    source: S,
    range: (u64, u64),
    place: OutputPlace,
) -> Result<u64, ArchiveError> {
    let composed = compose::compose(context, &[source], range, place, &NewestSamples::default())
        .map_err(|f| f.error)?;
    let mut rows = 0;
    for file in composed.made {
        if file.key.tier == Tier::Raw {
            rows += file.part.rows;
        }
        let dir = file.path.parent().unwrap_or(Path::new("."));
        let place = DiskStorage.make_dir(dir);
        place
            .and_then(|()| DiskStorage.rename(&file.tmp, &file.path))
            .map_err(ArchiveError::io("rename into", &file.path))?;
    }
    Ok(rows)
}
