//! The values that held at a time: the last sample of each series up to it, and the time until
//! which its value held.
//!
//! It stands alone because it reads backwards (and forwards, where a life may have ended), and only
//! the series whose sample is not found yet.

use std::sync::atomic::AtomicBool;

use barograph_archive::SampleChunk;
use barograph_model::{NS_PER_S, Quality, Sample, Span};

use crate::QueryError;
use crate::reading::{KnownSeries, Reading};
use crate::snapshot::StreamsSnapshot;

/// Greatest age at which a value is searched: a value that is looked at is appended again within
/// minutes, and an older sample shows little about the requested time.
pub(crate) const BACK_NS_MAX: i64 = 86_400 * NS_PER_S;
/// The span in which nearly all values are found: an unchanged value is appended again within less.
const BACK_NS_FIRST: i64 = 300 * NS_PER_S;

/// A sample that held at a time.
#[derive(Clone, Debug)]
pub(crate) struct HeldSample {
    pub(crate) sample: Sample,
    /// Time of the stream's registration, and number of the sample in that life.
    pub(crate) life: i64,
    pub(crate) number: u64,
}

impl HeldSample {
    /// The sample in this row of a chunk.
    fn of(chunk: &SampleChunk, row: usize) -> Option<Self> {
        Some(Self {
            sample: chunk.columns.sample(row)?,
            life: chunk.life,
            number: *chunk.columns.numbers.get(row)?,
        })
    }
}

/// The last sample of each series up to `ts`, at most [`BACK_NS_MAX`] before it.
pub(crate) fn at(
    reading: &Reading,
    ts: i64,
    cancel: &AtomicBool,
) -> Result<Vec<Option<HeldSample>>, QueryError> {
    let (first, rest) = spans(ts);
    search(reading, None, Some(first), rest, cancel)
}

/// Like [`at`], but only for the series at these positions.
pub(crate) fn of(
    reading: &Reading,
    positions: &[usize],
    ts: i64,
    cancel: &AtomicBool,
) -> Result<Vec<Option<HeldSample>>, QueryError> {
    let (first, rest) = spans(ts);
    search(reading, Some(positions), Some(first), rest, cancel)
}

/// The last sample of each series, however old.
pub(crate) fn newest(
    reading: &Reading,
    cancel: &AtomicBool,
) -> Result<Vec<Option<HeldSample>>, QueryError> {
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
) -> Result<Vec<Option<HeldSample>>, QueryError> {
    let mut found: Vec<Option<HeldSample>> = vec![None; reading.series.len()];
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
                .is_some_and(|held| held.sample.ts >= span.to);
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

fn keep_latest(found: &mut [Option<HeldSample>], chunk: &SampleChunk) {
    let latest = (0..chunk.columns.len()).max_by_key(|&row| chunk.columns.ts[row]);
    let Some(held) = latest.and_then(|row| HeldSample::of(chunk, row)) else {
        return;
    };
    let known = &mut found[chunk.series];
    if known
        .as_ref()
        .is_none_or(|known| known.sample.ts <= held.sample.ts)
    {
        *known = Some(held);
    }
}

/// Until when the last samples up to `ts` held, by series: `i64::MAX` where the same life goes on
/// after `ts`. Where nobody looked, nothing holds: after the mark of a last look, and after the
/// last sample of a life that an agent could not mark because it was killed. A value that a program
/// has put is not looked at; it holds until another life begins.
pub(crate) fn ends(
    reading: &Reading,
    lasts: &[Option<HeldSample>],
    ts: i64,
    (snapshot, now_ns): (&StreamsSnapshot, i64),
    cancel: &AtomicBool,
) -> Result<Vec<i64>, QueryError> {
    let mut ends = vec![i64::MAX; lasts.len()];
    let mut open = Vec::new();
    for (at, (known, last)) in reading.series.iter().zip(lasts).enumerate() {
        let Some(last) = last else { continue };
        let stream = known.stream.as_ref().filter(|s| s.life() == last.life);
        let is_newest = known
            .newest
            .is_none_or(|newest| newest == (last.life, last.number));
        match stream {
            _ if last.sample.quality == Quality::Ended => ends[at] = last.sample.ts,
            Some(stream) if is_newest => {
                ends[at] = snapshot.known_until_ns(&known.scope, stream, last.sample.ts, now_ns);
            }
            Some(_) => {} // A gap before the next sample of the life would have a mark.
            None => open.push(at),
        }
    }
    let next = lives_after(reading, &open, ts, cancel)?;
    for (at, next) in open.into_iter().zip(next) {
        let (known, last) = (&reading.series[at], &lasts[at]);
        let Some(last) = last else { continue };
        let next = next.or_else(|| known.stream.as_ref().map(|stream| stream.life()));
        ends[at] = match next {
            Some(life) if life == last.life => i64::MAX,
            None if is_put(known) => i64::MAX,
            _ => last.sample.ts,
        };
    }
    Ok(ends)
}

/// Whether programs put the values of a series: those of the scopes of applications.
pub(crate) fn is_put(known: &KnownSeries) -> bool {
    !known.scope.is_empty()
}

/// The life of the first sample after `ts`, at most [`BACK_NS_MAX`] later, of the series at these
/// positions.
fn lives_after(
    reading: &Reading,
    positions: &[usize],
    ts: i64,
    cancel: &AtomicBool,
) -> Result<Vec<Option<i64>>, QueryError> {
    let after = Span {
        from: ts.saturating_add(1),
        to: ts.saturating_add(BACK_NS_MAX),
    };
    let mut found: Vec<Option<(i64, i64)>> = vec![None; reading.series.len()];
    let keep = |found: &mut [Option<(i64, i64)>], chunk: &SampleChunk| {
        if let Some(ts) = chunk.columns.ts.iter().min() {
            let first = found[chunk.series].get_or_insert((*ts, chunk.life));
            *first = (*first).min((*ts, chunk.life));
        }
    };
    for tail in reading.tails(after) {
        keep(&mut found, &tail);
    }
    let is_later = |at: &usize| {
        let archived = reading.series[*at].archived;
        archived.is_some_and(|known| known.meets(&after))
    };
    let mut open: Vec<usize> = positions.iter().copied().filter(is_later).collect();
    for span in reading.stretches(after) {
        let span = Span {
            from: span.from.max(after.from),
            to: span.to.min(after.to),
        };
        // A sample of the ring may be later than one that the archive has.
        open.retain(|at| found[*at].is_none_or(|(ts, _)| ts > span.from));
        reading.each_at(&open, span, cancel, &mut |chunk| {
            keep(&mut found, &chunk);
            Ok(true)
        })?;
    }
    let life = |at: &usize| found[*at].map(|(_, life)| life);
    Ok(positions.iter().map(life).collect())
}
