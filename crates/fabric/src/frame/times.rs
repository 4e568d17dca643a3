//! The times of a batch. The first is relative to the frame's time, the second to the first; from
//! then on, what is written is by how much a difference differs from the one before, which is near
//! 0 for streams that are polled evenly (Gorilla, VLDB 2015, section 4.1.1).

use barograph_model::Sample;
use barograph_stream::bytes::{ByteReader, put_i64};

/// Appends the times of the samples. All arithmetic wraps, so that every time round-trips.
pub(super) fn write(out: &mut Vec<u8>, base_ns: i64, samples: &[Sample]) {
    let Some((first, rest)) = samples.split_first() else {
        return;
    };
    put_i64(out, first.ts.wrapping_sub(base_ns));
    let (mut before, mut step) = (first.ts, 0i64);
    for sample in rest {
        let next = sample.ts.wrapping_sub(before);
        put_i64(out, next.wrapping_sub(step));
        (before, step) = (sample.ts, next);
    }
}

/// Reads `count` times and hands each to `each`; `None` if the bytes end too early.
pub(super) fn read(
    cut: &mut ByteReader<'_>,
    base_ns: i64,
    count: usize,
    mut each: impl FnMut(i64),
) -> Option<()> {
    if count == 0 {
        return Some(());
    }
    let mut before = base_ns.wrapping_add(cut.i64()?);
    each(before);
    let mut step = 0i64;
    for _ in 1..count {
        step = step.wrapping_add(cut.i64()?);
        before = before.wrapping_add(step);
        each(before);
    }
    Some(())
}
