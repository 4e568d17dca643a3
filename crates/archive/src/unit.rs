//! The samples that are sealed or merged: their sources, and the newest of each life, which the
//! next sealing needs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_model::{
    Columns, Descriptor, Quality, SeriesId, Span, TEXT_BYTES_MAX, Value, text_start,
};

use crate::{ArchiveError, Tier};

/// One life of one series in a source.
#[derive(Clone, Debug)]
pub(crate) struct SeriesUnit {
    pub(crate) id: SeriesId,
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) life: i64,
    /// Number of samples.
    pub(crate) rows: u64,
    /// Upper bound of the bytes of their texts, JSON, bytes and arrays; 0 if they were not counted.
    pub(crate) bytes: u64,
    /// Times of the samples.
    pub(crate) span: Span,
}

/// A function that takes samples of a unit, given by its index.
pub(crate) type UnitSink<'a> = dyn FnMut(usize, Columns) -> Result<(), ArchiveError> + 'a;

/// A source of samples.
pub(crate) trait SampleSource {
    /// Returns the path of the file.
    fn path(&self) -> &Path;
    /// Returns the units in the file.
    fn units(&self) -> Vec<SeriesUnit>;
    /// Passes on the samples of the wanted units within the span, each unit by number, in any
    /// number of pieces.
    fn read(
        &self,
        wanted: &[usize],
        span: Span,
        stop: &AtomicBool,
        each: &mut UnitSink<'_>,
    ) -> Result<(), ArchiveError>;
}

/// The newest samples of the previous sealing: their values held until the first samples of the
/// next one. Values without buckets are not kept, and of texts only the beginning.
#[derive(Debug, Default)]
pub(crate) struct NewestSamples {
    /// Number, time and value by series and life.
    samples: HashMap<(SeriesId, i64), (u64, i64, Value)>,
}

impl NewestSamples {
    /// Returns time and value of the newest sample of a life.
    pub(crate) fn of(&self, id: SeriesId, life: i64) -> Option<(i64, &Value)> {
        let newest = self.samples.get(&(id, life));
        newest.map(|(_, ts, value)| (*ts, value))
    }

    /// Keeps the last of these samples, if it is the newest of its life.
    pub(crate) fn add(&mut self, unit: &SeriesUnit, columns: &Columns) {
        let Some(row) = columns.len().checked_sub(1) else {
            return;
        };
        let (number, key) = (columns.numbers[row], (unit.id, unit.life));
        let is_newer = |newest: &(u64, i64, Value)| number > newest.0;
        if !Tier::Hour.holds(unit.descriptor.value_type)
            || !self.samples.get(&key).is_none_or(is_newer)
        {
            return;
        }
        match columns.sample(row) {
            Some(sample) if sample.quality != Quality::Ended => {
                let value = match sample.value {
                    Value::Text(text) => Value::text(text_start(&text, TEXT_BYTES_MAX)),
                    number => number,
                };
                self.samples.insert(key, (number, sample.ts, value));
            }
            _ => {
                self.samples.remove(&key);
            }
        }
    }
}
