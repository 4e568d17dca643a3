//! `asof(pattern, ts)`: the samples that held at a time. It is made to be called once per row of
//! another table.
//!
//! The samples around the last call's time are kept, sorted, as long as the statement runs: the
//! next rows mostly ask for times nearby.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::SampleChunk;
use barograph_model::{Columns, NS_PER_S, Sample, Span};
use rusqlite::Result;

use crate::QueryError;
use crate::asof_samples::{AsofSamples, AsofSeries};
use crate::error::too_large;
use crate::feed::{apart, bytes};
use crate::held;
use crate::listing::{Arguments, Batches, one};
use crate::live::Live;
use crate::matching::{matching, selector};
use crate::reading::{KnownSeries, Reading};

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
    let mut window_ns = WINDOW_NS;
    loop {
        let from = ts.div_euclid(window_ns).saturating_mul(window_ns);
        let span = Span {
            from,
            to: from.saturating_add(window_ns - 1),
        };
        let of = Arc::clone(&reading);
        let found = apart(live, move |cancel| window(&of, span, cancel))?;
        let Some((before, all)) = found else {
            window_ns /= 8;
            if window_ns < WINDOW_NS_MIN {
                return Err(too_large(format!(
                    "there are more than {SAMPLES_MAX} samples in a second: name fewer streams"
                )));
            }
            continue;
        };
        let mut claim = live.memory.claim();
        claim.set(all.iter().map(bytes).sum())?;
        let samples = reading.series.iter().zip(before.into_iter().zip(all));
        let series = samples.map(|(known, (before, columns))| AsofSeries {
            cells: known.cells(),
            unit: known.descriptor.unit.as_str().into(),
            before,
            columns,
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

/// The sample of each series that held before the span, and its samples in the span.
type Window = (Vec<Option<Sample>>, Vec<Columns>);

/// Reads the samples of a span; `None` if there are too many.
fn window(
    reading: &Reading,
    span: Span,
    cancel: &AtomicBool,
) -> Result<Option<Window>, QueryError> {
    let empty = |known: &KnownSeries| Columns::new(known.descriptor.value_type);
    let mut all: Vec<Columns> = reading.series.iter().map(empty).collect();
    let mut count = 0;
    let is_whole = reading.each(span, cancel, &mut |chunk: SampleChunk| {
        count += chunk.columns.len();
        append(&mut all[chunk.series], &chunk.columns);
        Ok(count <= SAMPLES_MAX)
    })?;
    if !is_whole {
        return Ok(None);
    }
    let before = held::at(reading, span.from.saturating_sub(1), cancel)?;
    Ok(Some((before, all.into_iter().map(sorted).collect())))
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
