//! Makes new Parquet files of the samples of log segments, or of Parquet files that are merged: one
//! for each hour and tier, sorted by series, life and number.
//!
//! This module stands alone because it bounds the memory that this takes: the sources are read once
//! for each run of series whose samples fit, however large the sources are.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::{Columns, SeriesId, Span};

use crate::ArchiveError;
use crate::context::SealerContext;
use crate::hours::{HourRange, HourSet, open_together};
use crate::manifest::union;
use crate::output::HourOutput;
use crate::part::NewFile;
use crate::unit::{NewestSamples, SampleSource, SeriesUnit};

/// Most samples that are sorted in memory together, of about 32 bytes each.
const PASS_ROWS_MAX: u64 = 256 << 10;
/// Bytes of one such sample.
const ROW_BYTES: u64 = 32;
/// Memory of a text, as a multiple of that of a number.
const TEXT_WEIGHT: u64 = 6;

/// The files to which samples go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputPlace {
    /// The files of their hours.
    Hours,
    /// The files at the place of this hour, for all samples: the place of the sources. A source
    /// that holds a run of hours is not spread over hours whose files hold the same log segments.
    At(i64),
}

/// The new files of one sealing or merge.
#[derive(Debug, Default)]
pub(crate) struct ComposedFiles {
    pub(crate) made: Vec<NewFile>,
    /// The newest samples, for the next sealing.
    pub(crate) newest: NewestSamples,
}

/// The reason why nothing was made.
#[derive(Debug)]
pub(crate) struct ComposeFailure {
    pub(crate) error: ArchiveError,
    /// Index of the damaged source, if one is damaged.
    pub(crate) source: Option<usize>,
}

impl From<ArchiveError> for ComposeFailure {
    fn from(error: ArchiveError) -> Self {
        Self {
            error,
            source: None,
        }
    }
}

/// Makes the files of all samples of the sources, which hold the log segments of `range` and follow
/// `before`. If it fails, nothing is left at the temporary paths.
pub(crate) fn compose<S: SampleSource>(
    context: &SealerContext,
    sources: &[S],
    range: (u64, u64),
    place: OutputPlace,
    before: &NewestSamples,
) -> Result<ComposedFiles, ComposeFailure> {
    let lives = lives(sources);
    let mut composed = ComposedFiles::default();
    let hours = match place {
        OutputPlace::Hours => hours(context, sources, &lives),
        OutputPlace::At(hour) => Ok(vec![HourRange::at(hour)]),
    };
    let result = hours.and_then(|hours| {
        write(
            context,
            sources,
            &lives,
            range,
            &hours,
            before,
            &mut composed,
        )
    });
    if result.is_err() {
        let storage = &*context.storage;
        // What cannot be deleted now is deleted at the next start.
        for path in storage.list(&context.layout.tmp_dir()).unwrap_or_default() {
            let _ = storage.unlink(&path);
        }
    }
    result.map(|()| composed)
}

fn write<S: SampleSource>(
    context: &SealerContext,
    sources: &[S],
    lives: &[SeriesLife],
    range: (u64, u64),
    hours: &[HourRange],
    before: &NewestSamples,
    composed: &mut ComposedFiles,
) -> Result<(), ComposeFailure> {
    for hours in open_together(hours) {
        let outputs = hours.iter();
        let mut outputs: Vec<_> = outputs
            .map(|hours| HourOutput::new(context, range, *hours, before))
            .collect();
        for pass in passes(lives) {
            read_pass(context, sources, pass, &mut outputs, &mut composed.newest)?;
        }
        for output in outputs {
            composed.made.extend(output.finish()?);
        }
    }
    Ok(())
}

/// A life of a series in all sources.
pub(crate) struct SeriesLife {
    pub(crate) unit: SeriesUnit,
    /// Indexes of a source and of a unit in it.
    places: Vec<(usize, usize)>,
}

/// Returns all lives in the order of the files: by name, labels, series, life.
fn lives<S: SampleSource>(sources: &[S]) -> Vec<SeriesLife> {
    let mut lives: BTreeMap<(SeriesId, i64), SeriesLife> = BTreeMap::new();
    for (source, units) in sources.iter().map(SampleSource::units).enumerate() {
        for (index, unit) in units.into_iter().enumerate().filter(|(_, u)| u.rows > 0) {
            let place = (source, index);
            let life = lives
                .entry((unit.id, unit.life))
                .or_insert_with(|| SeriesLife {
                    unit: SeriesUnit {
                        rows: 0,
                        bytes: 0,
                        ..unit.clone()
                    },
                    places: Vec::new(),
                });
            life.unit.rows += unit.rows;
            life.unit.bytes = life.unit.bytes.saturating_add(unit.bytes);
            life.unit.span = union(life.unit.span, unit.span);
            life.places.push(place);
        }
    }
    let mut lives: Vec<SeriesLife> = lives.into_values().collect();
    let key = |life: &SeriesLife| {
        let descriptor = Arc::clone(&life.unit.descriptor);
        (descriptor, life.unit.id, life.unit.life)
    };
    lives.sort_by(|a, b| {
        let ((of_a, id_a, life_a), (of_b, id_b, life_b)) = (key(a), key(b));
        (&of_a.name, &of_a.labels, id_a, life_a).cmp(&(&of_b.name, &of_b.labels, id_b, life_b))
    });
    lives
}

/// Splits lives into runs whose samples are sorted in memory together; a life that is too large is
/// alone.
fn passes(lives: &[SeriesLife]) -> impl Iterator<Item = &[SeriesLife]> {
    let mut left = lives;
    std::iter::from_fn(move || {
        let mut sum = 0_u64;
        let fits = |life: &&SeriesLife| {
            sum = sum.saturating_add(life.weight());
            sum <= PASS_ROWS_MAX
        };
        let count = left.iter().take_while(fits).count().max(1).min(left.len());
        let (pass, rest) = left.split_at(count);
        left = rest;
        (!pass.is_empty()).then_some(pass)
    })
}

impl SeriesLife {
    fn weight(&self) -> u64 {
        let rows = self.unit.rows;
        if self.unit.descriptor.value_type.is_number() {
            return rows;
        }
        let short = rows.saturating_mul(TEXT_WEIGHT);
        short.max(rows.saturating_add(self.unit.bytes / ROW_BYTES))
    }
}

fn read_pass<S: SampleSource>(
    context: &SealerContext,
    sources: &[S],
    pass: &[SeriesLife],
    outputs: &mut [HourOutput<'_>],
    newest: &mut NewestSamples,
) -> Result<(), ComposeFailure> {
    let (Some(first), Some(last)) = (outputs.first(), outputs.last()) else {
        return Ok(());
    };
    let span = union(first.span(), last.span());
    // A single life comes in the order in which it is written, so it may be of any size.
    let alone = pass.len() == 1;
    let mut waiting: Vec<Columns> = pass
        .iter()
        .map(|life| Columns::new(life.unit.descriptor.value_type))
        .collect();
    for (at, source) in sources.iter().enumerate() {
        let here = pass.iter().enumerate().flat_map(|(index, life)| {
            let places = life.places.iter().filter(move |place| place.0 == at);
            places.map(move |place| (place.1, index))
        });
        let mut here: Vec<(usize, usize)> = here.collect();
        here.sort_unstable();
        let wanted: Vec<usize> = here.iter().map(|(unit, _)| *unit).collect();
        if wanted.is_empty() {
            continue;
        }
        // An error of the writers is not the source's fault.
        let mut fault = None;
        let mut each = |unit: usize, columns: Columns| {
            let index = wanted.binary_search(&unit).expect("only these are wanted");
            let index = here[index].1;
            newest.add(&pass[index].unit, &columns);
            if !alone {
                append(&mut waiting[index], &columns);
                return Ok(());
            }
            distribute(&pass[index].unit, &columns, outputs).map_err(|error| {
                fault = Some(error);
                ArchiveError::Cancelled
            })
        };
        let read = source.read(&wanted, span, &context.stop, &mut each);
        match (fault, read) {
            (Some(error), _) => return Err(error.into()),
            (None, read) => read.map_err(|error| damaged(at, error))?,
        }
    }
    for (life, columns) in pass.iter().zip(waiting) {
        distribute(&life.unit, &columns, outputs)?;
    }
    Ok(())
}

/// Converts an error of a source: if it is damaged, the failure names it so that it can be left
/// out.
fn damaged(source: usize, error: ArchiveError) -> ComposeFailure {
    ComposeFailure {
        source: matches!(error, ArchiveError::Corrupt { .. }).then_some(source),
        error,
    }
}

/// Passes samples to the outputs of their hours.
fn distribute(
    unit: &SeriesUnit,
    columns: &Columns,
    outputs: &mut [HourOutput<'_>],
) -> Result<(), ArchiveError> {
    for output in outputs {
        let span = output.span();
        let inside = columns.ts.iter().filter(|ts| span.holds(**ts)).count();
        if inside == columns.len() && inside > 0 {
            output.push(unit, columns)?;
        } else if inside > 0 {
            output.push(unit, &within(columns, span))?;
        }
    }
    Ok(())
}

/// Returns the hours that have samples, in as few runs as are allowed.
fn hours<S: SampleSource>(
    context: &SealerContext,
    sources: &[S],
    lives: &[SeriesLife],
) -> Result<Vec<HourRange>, ComposeFailure> {
    let spans = lives.iter().map(|life| life.unit.span);
    let Some(span) = spans.reduce(union) else {
        return Ok(Vec::new());
    };
    if let Some(few) = HourRange::few(span) {
        return Ok(few);
    }
    let mut set = HourSet::default();
    for (at, source) in sources.iter().enumerate() {
        let all: Vec<usize> = (0..source.units().len()).collect();
        let mut each = |_: usize, columns: Columns| {
            set.add_times(&columns.ts);
            Ok(())
        };
        source
            .read(&all, Span::ALL, &context.stop, &mut each)
            .map_err(|error| damaged(at, error))?;
    }
    Ok(set.hours())
}

/// Appends samples of the same type.
pub(crate) fn append(to: &mut Columns, from: &Columns) {
    use barograph_model::Values::{Bool, Bytes, Float, Floats, Int, Json, Text};
    match (&mut to.values, &from.values) {
        (Int(to), Int(from)) => to.extend_from_slice(from),
        (Float(to), Float(from)) => to.extend_from_slice(from),
        (Bool(to), Bool(from)) => to.extend_from_slice(from),
        (Text(to), Text(from)) | (Json(to), Json(from)) => to.extend_from_slice(from),
        (Bytes(to), Bytes(from)) => to.extend_from_slice(from),
        (Floats(to), Floats(from)) => to.extend_from_slice(from),
        _ => return,
    }
    to.numbers.extend_from_slice(&from.numbers);
    to.ts.extend_from_slice(&from.ts);
    to.quality.extend_from_slice(&from.quality);
    to.error.extend_from_slice(&from.error);
}

/// Returns the samples up to a number.
pub(crate) fn within_numbers(columns: &Columns, number_max: u64) -> Columns {
    let mut inside = Columns::new(columns.values.value_type());
    for (row, number) in columns.numbers.iter().enumerate() {
        if let Some(sample) = columns.sample(row).filter(|_| *number <= number_max) {
            inside.push(*number, &sample);
        }
    }
    inside
}

/// Returns the samples within a span.
pub(crate) fn within(columns: &Columns, span: Span) -> Columns {
    let mut inside = Columns::new(columns.values.value_type());
    for row in 0..columns.len() {
        if let Some(sample) = columns.sample(row).filter(|s| span.holds(s.ts)) {
            inside.push(columns.numbers[row], &sample);
        }
    }
    inside
}
