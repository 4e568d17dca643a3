//! `asof(pattern, ts)`: the samples that held at a time. It is made to be called once per row of
//! another table.
//!
//! The samples around the last call's time are kept, sorted, as long as the statement runs: the
//! next rows mostly ask for times nearby.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::SampleChunk;
use barograph_model::{Columns, NS_PER_S, Quality, Span};
use rusqlite::Result;

use crate::QueryError;
use crate::asof_samples::{AsofSamples, AsofSeries, HeldSamples};
use crate::error::{failed, too_large};
use crate::feed::{apart, bytes};
use crate::held::{self, HeldSample};
use crate::listing::{Arguments, Batches, one};
use crate::live::Live;
use crate::matching::{matching, selector};
use crate::reading::{KnownSeries, Reading};
use crate::snapshot::StreamsSnapshot;

/// The time around `ts` that is read at once…
const WINDOW_NS: i64 = 3_600 * NS_PER_S;
/// …less if it has more samples than this…
const SAMPLES_MAX: usize = 1_000_000;
/// …but at least this much.
const WINDOW_NS_MIN: i64 = NS_PER_S;

pub(crate) fn asof(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let pattern = arguments.text(0)?;
    let Some(ts) = arguments.instant(1, live.now_ns())? else {
        return Ok(Box::new(std::iter::empty())); // No sample holds at NULL.
    };
    let mut kept = live
        .asof
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let (statement, now_ns) = (live.watch.statement(), live.monotonic_ns());
    let is_good = |held: &&mut AsofSamples| held.answers(statement, now_ns, pattern, ts);
    let held = match kept.as_mut().filter(is_good) {
        Some(held) => held,
        None => {
            *kept = None; // The memory of the old samples is given back first.
            kept.insert(read(live, arguments, ts)?)
        }
    };
    Ok(one(held.rows(ts)))
}

/// Reads the samples around a time.
fn read(live: &Arc<Live>, arguments: &Arguments, ts: i64) -> Result<AsofSamples> {
    let reading = Arc::new(matching(live, &selector(arguments)?, Span::ALL)?);
    let (snapshot, now_ns) = (live.current().map_err(failed)?, live.now_ns());
    let mut window_ns = WINDOW_NS;
    loop {
        let from = ts.div_euclid(window_ns).saturating_mul(window_ns);
        let span = Span {
            from,
            to: from.saturating_add(window_ns - 1),
        };
        let (of, seen) = (Arc::clone(&reading), Arc::clone(&snapshot));
        let found = apart(live, move |cancel| {
            window(&of, span, (&seen, now_ns), cancel)
        })?;
        let Some(all) = found else {
            window_ns /= 8;
            if window_ns < WINDOW_NS_MIN {
                return Err(too_large(format!(
                    "there are more than {SAMPLES_MAX} samples in a second: name fewer streams"
                )));
            }
            continue;
        };
        let mut claim = live.memory.claim();
        claim.set(all.iter().map(|samples| bytes(&samples.columns)).sum())?;
        let series = reading.series.iter().zip(all);
        let series = series.map(|(known, samples)| AsofSeries {
            cells: known.cells(),
            unit: known.descriptor.unit.as_str().into(),
            samples,
        });
        return Ok(AsofSamples {
            pattern: arguments.text(0)?.to_owned(),
            statement: live.watch.statement(),
            read_ns: live.monotonic_ns(),
            span,
            series: series.collect(),
            _claim: claim,
        });
    }
}

/// Reads the samples of a span, by series; `None` if there are too many.
fn window(
    reading: &Reading,
    span: Span,
    seen: (&StreamsSnapshot, i64),
    cancel: &AtomicBool,
) -> Result<Option<Vec<HeldSamples>>, QueryError> {
    let empty = |known: &KnownSeries| (Columns::new(known.descriptor.value_type), Vec::new());
    let mut all: Vec<(Columns, Vec<i64>)> = reading.series.iter().map(empty).collect();
    let mut count = 0;
    let is_whole = reading.each(span, cancel, &mut |chunk: SampleChunk| {
        count += chunk.columns.len();
        let (columns, lives) = &mut all[chunk.series];
        append(columns, &chunk.columns);
        lives.resize(columns.len(), chunk.life);
        Ok(count <= SAMPLES_MAX)
    })?;
    if !is_whole {
        return Ok(None);
    }
    let before = held::at(reading, span.from.saturating_sub(1), cancel)?;
    let mut samples = Vec::with_capacity(all.len());
    let mut lasts = Vec::with_capacity(all.len());
    for ((columns, lives), before) in all.into_iter().zip(before) {
        let order = order_by_time(&columns.ts);
        let lives: Vec<i64> = order.into_iter().map(|row| lives[row]).collect();
        let columns = sorted(columns);
        lasts.push(last(&columns, &lives).or_else(|| before.clone()));
        samples.push(until_the_next(before, columns, &lives));
    }
    let ends = held::ends(reading, &lasts, span.to, seen, cancel)?;
    for (samples, end) in samples.iter_mut().zip(ends) {
        samples.until_ns = end;
        if let Some((_, until_ns)) = samples
            .before
            .as_mut()
            .filter(|_| samples.columns.is_empty())
        {
            *until_ns = end;
        }
    }
    Ok(Some(samples))
}

/// The last row of sorted samples, with the lives of all rows.
fn last(columns: &Columns, lives: &[i64]) -> Option<HeldSample> {
    let row = columns.len().checked_sub(1)?;
    Some(HeldSample {
        sample: columns.sample(row)?,
        life: lives[row],
        number: columns.numbers[row],
    })
}

/// Sorted samples and the one before them, each until the next; how long the last one held is not
/// known yet.
fn until_the_next(before: Option<HeldSample>, columns: Columns, lives: &[i64]) -> HeldSamples {
    let is_last_look = |quality: Quality, life: i64, next: Option<&i64>| {
        quality == Quality::Ended || next.is_some_and(|next| *next != life)
    };
    let rows = 0..columns.len();
    let ends = |row: &usize| is_last_look(columns.quality[*row], lives[*row], lives.get(row + 1));
    HeldSamples {
        before: before.map(|before| {
            let ends = is_last_look(before.sample.quality, before.life, lives.first());
            let until_ns = if ends { before.sample.ts } else { i64::MAX };
            (before.sample, until_ns)
        }),
        last_looks: rows.filter(ends).collect(),
        columns,
        until_ns: i64::MAX,
    }
}

/// Appends samples of the same series.
pub(crate) fn append(to: &mut Columns, from: &Columns) {
    for (row, number) in from.numbers.iter().enumerate() {
        if let Some(sample) = from.sample(row) {
            to.push(*number, &sample);
        }
    }
}

/// Returns the rows in order of these times; rows of the same time keep their order.
pub(crate) fn order_by_time(ts: &[i64]) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..ts.len()).collect();
    rows.sort_by_key(|&row| ts[row]);
    rows
}

/// Sorts samples by time; samples of the same time keep their order.
pub(crate) fn sorted(columns: Columns) -> Columns {
    if columns.ts.is_sorted() {
        return columns;
    }
    let mut out = Columns::new(columns.values.value_type());
    for row in order_by_time(&columns.ts) {
        if let Some(sample) = columns.sample(row) {
            out.push(columns.numbers[row], &sample);
        }
    }
    out
}
