//! The values that held at a time: the last sample of each series up to it.
//!
//! It stands alone because it reads backwards, and only the series whose sample is not found yet.

use std::sync::atomic::AtomicBool;

use barograph_archive::SampleChunk;
use barograph_model::{NS_PER_S, Sample, Span};

use crate::QueryError;
use crate::reading::Reading;

/// Greatest age at which a value is searched: a value that is looked at is appended again within
/// minutes, and an older sample shows little about the requested time.
pub(crate) const BACK_NS_MAX: i64 = 86_400 * NS_PER_S;
/// The span in which nearly all values are found: an unchanged value is appended again within less.
const BACK_NS_FIRST: i64 = 300 * NS_PER_S;

/// The last sample of each series up to `ts`, at most [`BACK_NS_MAX`] before it.
pub(crate) fn at(
    reading: &Reading,
    ts: i64,
    cancel: &AtomicBool,
) -> Result<Vec<Option<Sample>>, QueryError> {
    let (first, rest) = spans(ts);
    search(reading, None, Some(first), rest, cancel)
}

/// Like [`at`], but only for the series at these positions.
pub(crate) fn of(
    reading: &Reading,
    positions: &[usize],
    ts: i64,
    cancel: &AtomicBool,
) -> Result<Vec<Option<Sample>>, QueryError> {
    let (first, rest) = spans(ts);
    search(reading, Some(positions), Some(first), rest, cancel)
}

/// The last sample of each series, however old.
pub(crate) fn newest(
    reading: &Reading,
    cancel: &AtomicBool,
) -> Result<Vec<Option<Sample>>, QueryError> {
    search(reading, None, None, Span::ALL, cancel)
}

/// The span that is searched first for the values at a time, and the rest.
fn spans(ts: i64) -> (Span, Span) {
    let first = Span {
        from: ts.saturating_sub(BACK_NS_FIRST),
        to: ts,
    };
    let rest = Span {
        from: ts.saturating_sub(BACK_NS_MAX),
        to: first.from.saturating_sub(1),
    };
    (first, rest)
}

fn search(
    reading: &Reading,
    positions: Option<&[usize]>,
    first: Option<Span>,
    rest: Span,
    cancel: &AtomicBool,
) -> Result<Vec<Option<Sample>>, QueryError> {
    let mut found: Vec<Option<Sample>> = vec![None; reading.series.len()];
    let all = Span {
        from: rest.from,
        to: first.map_or(rest.to, |first| first.to),
    };
    for tail in reading.tails(all) {
        keep_latest(&mut found, &tail);
    }
    let stretches = reading.stretches(rest);
    for span in first.into_iter().chain(stretches.into_iter().rev()) {
        let span = Span {
            from: span.from.max(all.from),
            to: span.to.min(all.to),
        };
        let is_open = |at: &usize| {
            let known = reading.series[*at].archived;
            // The found sample may be older than one that the archive has from before the clock was
            // set back.
            let is_last = found[*at]
                .as_ref()
                .is_some_and(|sample| sample.ts >= span.to);
            !is_last && known.is_some_and(|known| known.meets(&span))
        };
        let open: Vec<usize> = match positions {
            Some(positions) => positions.iter().copied().filter(is_open).collect(),
            None => (0..found.len()).filter(is_open).collect(),
        };
        reading.each_at(&open, span, cancel, &mut |chunk| {
            keep_latest(&mut found, &chunk);
            Ok(true)
        })?;
    }
    Ok(found)
}

fn keep_latest(found: &mut [Option<Sample>], chunk: &SampleChunk) {
    let latest = (0..chunk.columns.len()).max_by_key(|&row| chunk.columns.ts[row]);
    let Some(sample) = latest.and_then(|row| chunk.columns.sample(row)) else {
        return;
    };
    let known = &mut found[chunk.series];
    if known.as_ref().is_none_or(|known| known.ts <= sample.ts) {
        *known = Some(sample);
    }
}
