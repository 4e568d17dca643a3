//! `gaps`: times in which nobody looked, as opposed to times in which a value held.

use std::sync::Arc;

use barograph_archive::SampleChunk;
use barograph_model::Quality;
use rusqlite::Result;

use super::{identities, span};
use crate::cell::CellRow;
use crate::cell::SeriesCells;
use crate::feed::apart;
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::matching::{matching, selector};

/// Consecutive samples of one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    /// Time of the stream's registration, and number of the first sample: runs are sorted by them.
    life: i64,
    number: u64,
    from_ns: i64,
    to_ns: i64,
    /// Whether the last sample marks a last look, after which nobody looked.
    is_last_look: bool,
}

/// From the last look to the next sample, if there is one.
type Gap = (i64, Option<i64>);

pub(super) fn gaps(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let span = span(live, arguments, 1)?;
    let reading = Arc::new(matching(live, &selector(arguments)?, span)?);
    let identities = identities(&reading);
    let memory = Arc::clone(&live.memory);
    let found = apart(live, move |cancel| {
        let mut all: Vec<Vec<Run>> = vec![Vec::new(); reading.series.len()];
        let (mut claim, mut held) = (memory.claim(), 0);
        let mut fault = None;
        reading.each(span, cancel, &mut |chunk| {
            let runs = &mut all[chunk.series];
            let before = runs.capacity();
            add(runs, &chunk);
            held += (runs.capacity() - before) * size_of::<Run>();
            fault = claim.set(held).err();
            Ok(fault.is_none())
        })?;
        // SQLite carries the fault: memory is short.
        Ok(fault.map_or_else(|| Ok(all.into_iter().map(between).collect::<Vec<_>>()), Err))
    })??;
    let rows = identities.into_iter().zip(found);
    let rows = rows.flat_map(|(identity, gaps)| {
        let row = move |gap| row_of(gap, &identity);
        gaps.into_iter().map(row)
    });
    Ok(Box::new(std::iter::once(Ok(rows.collect()))))
}

/// Adds the samples of a chunk to the runs of its series; samples that follow the newest run extend
/// it.
fn add(runs: &mut Vec<Run>, chunk: &SampleChunk) {
    let columns = &chunk.columns;
    for (row, (number, ts)) in columns.numbers.iter().zip(&columns.ts).enumerate() {
        let is_last_look = columns.quality[row] == Quality::Ended;
        let follows =
            |run: &&mut Run| !run.is_last_look && run.life == chunk.life && run.number < *number;
        match runs.last_mut().filter(follows) {
            Some(run) => {
                run.to_ns = *ts;
                run.is_last_look = is_last_look;
            }
            None => runs.push(Run {
                life: chunk.life,
                number: *number,
                from_ns: *ts,
                to_ns: *ts,
                is_last_look,
            }),
        }
    }
}

/// The gaps between the runs of a series: after each last look, and between lives, since a killed
/// agent could not mark its last look.
fn between(mut runs: Vec<Run>) -> Vec<Gap> {
    runs.sort_unstable();
    let mut gaps = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        match runs.get(at + 1) {
            Some(next) if run.is_last_look || next.life != run.life => {
                if next.from_ns > run.to_ns {
                    gaps.push((run.to_ns, Some(next.from_ns)));
                }
            }
            None if run.is_last_look => gaps.push((run.to_ns, None)),
            Some(_) | None => {}
        }
    }
    gaps
}

fn row_of((ts, until): Gap, identity: &SeriesCells) -> CellRow {
    let [name, labels, node] = identity.cells();
    let gap_ns = until.map(|until| until.saturating_sub(ts));
    vec![ts.into(), until.into(), gap_ns.into(), name, labels, node]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between() {
        let run = |life, number, from_ns, to_ns, is_last_look| Run {
            life,
            number,
            from_ns,
            to_ns,
            is_last_look,
        };
        let check = |runs: &[Run], expect: &[Gap]| {
            assert_eq!(between(runs.to_vec()), expect, "{runs:?}");
        };
        check(&[], &[]);
        check(&[run(1, 1, 10, 20, false)], &[]);
        check(&[run(1, 1, 10, 20, true)], &[(20, None)]);
        // The same run in two chunks, in any order.
        check(&[run(1, 9, 21, 30, false), run(1, 1, 10, 20, false)], &[]);
        check(
            &[run(1, 1, 10, 20, true), run(1, 9, 31, 40, false)],
            &[(20, Some(31))],
        );
        // A killed agent; then an agent that was stopped.
        check(
            &[run(5, 1, 60, 70, true), run(1, 1, 10, 20, false)],
            &[(20, Some(60)), (70, None)],
        );
        // The clock was set back.
        check(&[run(1, 1, 10, 20, true), run(2, 1, 15, 40, false)], &[]);
    }
}
