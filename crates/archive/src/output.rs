//! The files of one hour while they are written: raw and tiers, from samples in the order of the
//! files.
//!
//! This module stands alone because it is the only place where tiers are made of samples.

use std::path::PathBuf;

use barograph_model::{Buckets, Columns, SeriesId, Span};

use crate::aggregate::Fold;
use crate::context::SealerContext;
use crate::hours::HourRange;
use crate::manifest::union;
use crate::parquet::{FileIdentity, FileSummary, RawWriter, TierWriter};
use crate::part::{FilePart, NewFile, PartKey};
use crate::storage::OutFile;
use crate::unit::{NewestSamples, SeriesUnit};
use crate::{ArchiveError, FileAccess, Tier};

/// The tier of seconds holds a series whose buckets have more samples than this on average.
const SAMPLES_A_SECOND: usize = 2;
/// Most buckets of a series that have no sample of their own.
const FILLED_MAX: usize = 1 << 17;
/// The tiers of buckets.
const TIERS: [Tier; 3] = [Tier::Second, Tier::Minute, Tier::Hour];

/// The files of one hour. Each is created with its first row: no file is empty.
pub(crate) struct HourOutput<'a> {
    context: &'a SealerContext,
    range: (u64, u64),
    hours: HourRange,
    before: &'a NewestSamples,
    raw: Option<RawWriter>,
    tiers: [Option<TierWriter>; 3],
    /// The series whose rows come now, its buckets so far, and its number of rows.
    now: Option<(SeriesUnit, [Fold; 3], usize)>,
    /// The last sample written, so that none is written twice.
    last: Option<(SeriesId, i64, u64)>,
    /// Times of all samples so far.
    times: Option<Span>,
}

impl<'a> HourOutput<'a> {
    pub(crate) fn new(
        context: &'a SealerContext,
        range: (u64, u64),
        hours: HourRange,
        before: &'a NewestSamples,
    ) -> Self {
        Self {
            context,
            range,
            hours,
            before,
            raw: None,
            tiers: [None, None, None],
            now: None,
            last: None,
            times: None,
        }
    }

    /// Returns the instants whose samples belong here.
    pub(crate) fn span(&self) -> Span {
        self.hours.span
    }

    /// Takes samples of a unit: units come in the order of the files, each by number.
    pub(crate) fn push(
        &mut self,
        unit: &SeriesUnit,
        columns: &Columns,
    ) -> Result<(), ArchiveError> {
        let fresh = self.fresh(unit, columns);
        let columns = fresh.as_ref().unwrap_or(columns);
        let (Some(from), Some(to)) = (columns.ts.iter().min(), columns.ts.iter().max()) else {
            return Ok(());
        };
        let span = Span {
            from: *from,
            to: *to,
        };
        self.times = Some(self.times.map_or(span, |times| union(times, span)));
        if self.now.as_ref().is_none_or(|now| now.0.id != unit.id) {
            self.end_series()?;
            let value_type = unit.descriptor.value_type;
            let folds = TIERS.map(|tier| {
                let step_ns = tier.step_ns().expect("a tier of buckets has a step");
                let mut fold = Fold::new(value_type, step_ns, self.hours.span);
                if let Some((ts, value)) = self.before.of(unit.id, unit.life) {
                    fold.follow(unit.life, ts, value);
                }
                fold
            });
            self.now = Some((unit.clone(), folds, 0));
        }
        if let Some((_, folds, rows)) = &mut self.now {
            *rows += columns.len();
            // All three tiers hold the same types.
            if Tier::Hour.holds(unit.descriptor.value_type) {
                for fold in folds {
                    fill(fold, unit.life, columns, *rows);
                }
            }
        }
        let raw = match &mut self.raw {
            Some(raw) => raw,
            none => {
                let (out, path, about) = begin(self.context, self.hours, self.range, Tier::Raw)?;
                let events = self.context.config.events.clone();
                none.insert(RawWriter::with_events(out, &path, about, events)?)
            }
        };
        raw.write(unit.id, &unit.descriptor, unit.life, columns)
    }

    /// Returns the samples without those that were already written; `None` if all are new. A sample
    /// is in two sources if the log's writer could not cut what it could not sync.
    fn fresh(&mut self, unit: &SeriesUnit, columns: &Columns) -> Option<Columns> {
        let last = self
            .last
            .filter(|last| (last.0, last.1) == (unit.id, unit.life));
        let mut last = last.map_or(0, |last| last.2);
        let ascends = columns.numbers.is_sorted_by(|a, b| a < b);
        let mut fresh = None;
        if !ascends || columns.numbers.first().is_some_and(|n| *n <= last) {
            let mut kept = Columns::new(columns.values.value_type());
            for (row, number) in columns.numbers.iter().enumerate() {
                if let Some(sample) = columns.sample(row).filter(|_| *number > last) {
                    kept.push(*number, &sample);
                    last = *number;
                }
            }
            fresh = Some(kept);
        }
        last = last.max(columns.numbers.last().copied().unwrap_or(0));
        self.last = Some((unit.id, unit.life, last));
        fresh
    }

    /// Writes the buckets of the series whose rows came last.
    fn end_series(&mut self) -> Result<(), ArchiveError> {
        let Some((unit, folds, rows)) = self.now.take() else {
            return Ok(());
        };
        for ((tier, fold), writer) in TIERS.into_iter().zip(folds).zip(&mut self.tiers) {
            let buckets: Buckets = fold.finish();
            if !tier.holds(unit.descriptor.value_type) {
                continue;
            }
            if tier == Tier::Second && rows <= SAMPLES_A_SECOND * buckets.len() {
                continue;
            }
            let writer = match writer {
                Some(writer) => writer,
                none => {
                    let (out, path, about) = begin(self.context, self.hours, self.range, tier)?;
                    none.insert(TierWriter::create(out, &path, about)?)
                }
            };
            writer.write(unit.id, &unit.descriptor, &buckets)?;
        }
        Ok(())
    }

    /// Finishes and syncs the files.
    pub(crate) fn finish(mut self) -> Result<Vec<NewFile>, ArchiveError> {
        self.end_series()?;
        let mut made = Vec::new();
        let Some(span) = self.times else {
            return Ok(made);
        };
        let mut note = |tier: Tier, summary: FileSummary| {
            let key = key(self.hours, self.range, tier);
            made.push(NewFile {
                key,
                part: FilePart {
                    rows: summary.rows,
                    bytes: summary.bytes,
                    span,
                    copied: false,
                    crc32: Some(summary.crc32),
                },
                tmp: tmp(self.context, key),
                path: key.path(&self.context.layout),
            });
        };
        if let Some(raw) = self.raw {
            note(Tier::Raw, raw.finish()?);
        }
        for (tier, writer) in TIERS.into_iter().zip(self.tiers) {
            if let Some(writer) = writer {
                note(tier, writer.finish()?);
            }
        }
        Ok(made)
    }
}

/// Adds samples to buckets. A file of one hour has few buckets; if the clock was changed, values
/// that hold for long would fill more of them than fit in memory.
fn fill(fold: &mut Fold, life: i64, columns: &Columns, rows: usize) {
    let mut at = 0;
    while at < columns.len() {
        at = fold.add(life, columns, at);
        if fold.len() > FILLED_MAX + rows {
            fold.stop_holding();
        }
    }
}

/// Creates a file at its temporary path.
fn begin(
    context: &SealerContext,
    hours: HourRange,
    range: (u64, u64),
    tier: Tier,
) -> Result<(Box<dyn OutFile>, PathBuf, FileIdentity), ArchiveError> {
    let path = tmp(context, key(hours, range, tier));
    let storage = &*context.storage;
    let out = storage.unlink(&path);
    let out = out.and_then(|()| storage.create(&path, FileAccess::Shared));
    let about = FileIdentity {
        node: context.config.node.clone(),
        tier,
        sequences: range,
    };
    Ok((out.map_err(ArchiveError::io("make", &path))?, path, about))
}

fn key(hours: HourRange, range: (u64, u64), tier: Tier) -> PartKey {
    PartKey {
        first: range.0,
        hour: hours.hour,
        last: range.1,
        tier,
    }
}

fn tmp(context: &SealerContext, key: PartKey) -> PathBuf {
    let name = format!("{}-{}.parquet", key.tier.as_str(), key.hour);
    context.layout.tmp_dir().join(name)
}
