//! A selection of the archive, copied out: as an archive of its own, or as text.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{Descriptor, Sample, Span, Value, base64};

use crate::compose::{self, Newest, Place, Source, Unit};
use crate::manifest::Manifest;
use crate::seal::Context;
use crate::sets::Sets;
use crate::snapshot::Node;
use crate::sources::{RawSource, Selected};
use crate::{Archive, ArchiveConfig, ArchiveError, Disk, Series, Storage as _, Tier, View, sweep};

/// Where a selection goes.
pub enum ExportTo<'a> {
    /// A directory that is empty or not there yet: an archive in which the selection is all there is,
    /// with its tiers; the raw files are partitioned as ours are.
    Parquet(&'a Path),
    /// Lines of comma-separated values, below a line with their names.
    Csv(&'a mut dyn Write),
    /// An object a line.
    JsonLines(&'a mut dyn Write),
}

/// Copies the samples of the wanted series within the span, as they are at one moment, each once, whatever
/// the writer of the archive does meanwhile; how many. As text they come file by file, and in each by
/// series. `progress` is told the samples so far.
///
/// All raw files of the span are held open: the limit of this process for open files is raised for it as far
/// as it may be. Where that is not enough, nothing is written, and the error says what to do.
pub fn export(
    root: &Path,
    wanted: &dyn Fn(&Series) -> bool,
    span: Span,
    to: ExportTo<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ArchiveError> {
    let view = Archive::open(root).view_held(span)?;
    match to {
        ExportTo::Parquet(dir) => export_parquet(&view, wanted, span, dir, progress),
        ExportTo::Csv(out) => {
            let write = io_error("write CSV");
            writeln!(out, "ts,iso,node,name,labels,value,unit,quality,error").map_err(write)?;
            export_text(&view, wanted, span, progress, &mut |series, sample| {
                csv_line(out, series, sample)
            })
        }
        ExportTo::JsonLines(out) => {
            export_text(&view, wanted, span, progress, &mut |series, sample| {
                json_line(out, series, sample)
            })
        }
    }
}

/// Writes one sample.
type Line<'a> = dyn FnMut(&Series, &Sample) -> io::Result<()> + 'a;

fn export_text(
    view: &View,
    wanted: &dyn Fn(&Series) -> bool,
    span: Span,
    progress: &mut dyn FnMut(u64),
    line: &mut Line<'_>,
) -> Result<u64, ArchiveError> {
    let all = view.series().iter().enumerate();
    let places: Vec<usize> = all.filter(|(_, s)| wanted(s)).map(|(at, _)| at).collect();
    let cancel = AtomicBool::new(false);
    let mut rows = 0;
    for chunk in view.scan(&places, span, &cancel) {
        let chunk = chunk?;
        let series = &view.series()[chunk.series];
        for row in 0..chunk.columns.len() {
            if let Some(sample) = chunk.columns.sample(row) {
                line(series, &sample).map_err(io_error("write a line"))?;
            }
        }
        rows += chunk.columns.len() as u64;
        progress(rows);
    }
    Ok(rows)
}

fn csv_line(out: &mut dyn Write, series: &Series, sample: &Sample) -> io::Result<()> {
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

/// In quotes, where there are commas, quotes or line ends.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn json_line(out: &mut dyn Write, series: &Series, sample: &Sample) -> io::Result<()> {
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

/// `2026-11-21T21:54:56.5Z`; nothing where a calendar has no such year.
fn iso(ts: i64) -> String {
    let instant = jiff::Timestamp::from_nanosecond(ts.into());
    instant.map_or_else(|_| String::new(), |instant| instant.to_string())
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> ArchiveError {
    ArchiveError::io(what, "the export")
}

fn export_parquet(
    view: &View,
    wanted: &dyn Fn(&Series) -> bool,
    span: Span,
    dir: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ArchiveError> {
    let there = Disk.list(dir).map_err(ArchiveError::io("list", dir))?;
    if !there.is_empty() {
        let full = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
        return Err(ArchiveError::io("export into", dir)(full));
    }
    let mut rows = 0;
    for node in &view.nodes {
        let of_unit = |unit: &Unit| {
            let place = node.places.get(&unit.id);
            place.is_some_and(|place| wanted(&view.series()[*place]))
        };
        let config = ArchiveConfig::new(dir, &*node.name);
        let context = Context::new(config, Arc::new(Disk), Arc::default());
        // Makes the directories.
        sweep::start(&context.layout, &node.name, &Disk)?;
        for sets in Sets::of(&node.sealed.manifest, &|sets| sets.has_raw(span)) {
            for (range, part) in raw_parts(view, node, &sets)? {
                let source = Selected::new(RawSource::new(part)?, span, &of_unit);
                rows += write(&context, source, range, Place::At(sets.hour))?;
                progress(rows);
            }
        }
        for log in &node.logs {
            let range = (log.sequence(), log.sequence());
            let source = Selected::new(log.fork()?, span, &of_unit);
            rows += write(&context, source, range, Place::Hours)?;
            progress(rows);
        }
        let manifest = sweep::rebuild(&context.layout, &node.name, &Disk)?;
        manifest.prepare(&context.layout, &Disk)?;
        Manifest::publish(&context.layout, &Disk)?;
    }
    Ok(rows)
}

type Ranged = ((u64, u64), Arc<crate::parquet::ParquetPart>);

fn raw_parts(view: &View, node: &Node, sets: &Sets) -> Result<Vec<Ranged>, ArchiveError> {
    let mut parts = Vec::new();
    for set in sets.open(node, &view.handles, &|_| (Tier::Raw, None))? {
        for (_, part) in set.parts {
            parts.push((part.index()?.about.sequences, part));
        }
    }
    Ok(parts)
}

/// Makes the files of one source and puts them into place.
fn write<S: Source>(
    context: &Context,
    source: S,
    range: (u64, u64),
    place: Place,
) -> Result<u64, ArchiveError> {
    let composed = compose::compose(context, &[source], range, place, &Newest::default())
        .map_err(|f| f.error)?;
    let mut rows = 0;
    for file in composed.made {
        if file.key.tier == Tier::Raw {
            rows += file.part.rows;
        }
        let dir = file.path.parent().unwrap_or(Path::new("."));
        let place = Disk.make_dir(dir);
        place
            .and_then(|()| Disk.rename(&file.tmp, &file.path))
            .map_err(ArchiveError::io("rename into", &file.path))?;
    }
    Ok(rows)
}
