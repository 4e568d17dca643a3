//! Batches: successive samples of one stream, column by column.

use barograph_model::{Quality, Sample, Value, ValueType};
use barograph_stream::NUMBER_MAX;
use barograph_stream::bytes::{ByteReader, put_i64, put_u64};

use super::fault::{FrameFault, malformed};
use super::{times, values};

/// Bits of the byte that says which columns of a batch are left out.
const IS_EXACT: u8 = 1;
const IS_ONE_QUALITY: u8 = 2;

/// Fewest bytes of a sample: its time and its value. A count is believed only if so many bytes
/// follow it.
const SAMPLE_BYTES_MIN: usize = 2;

/// Successive samples of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The stream's reference.
    pub reference: u32,
    /// Type of the values.
    pub value_type: ValueType,
    /// Number of the first sample in the stream's life, from 1. A batch without samples has the
    /// number of the next one: it tells that the newest value was looked at again.
    pub first: u64,
    /// Time of the last look at the stream, ns since the epoch.
    pub looked_ns: i64,
    /// The samples; their numbers ascend by one.
    pub samples: Vec<Sample>,
}

impl Batch {
    /// An empty batch, to be read into.
    pub fn empty() -> Self {
        Self {
            reference: 0,
            value_type: ValueType::Int,
            first: 0,
            looked_ns: 0,
            samples: Vec::new(),
        }
    }
}

/// Appends a batch to the payload of a section of batches.
pub(super) fn write(
    out: &mut Vec<u8>,
    base_ns: i64,
    (reference, value_type): (u32, ValueType),
    (first, looked_ns): (u64, i64),
    samples: &[Sample],
) {
    put_u64(out, u64::from(reference));
    put_u64(out, first);
    put_i64(out, looked_ns.wrapping_sub(base_ns));
    put_u64(out, samples.len() as u64);
    let Some(sample) = samples.first() else {
        return out.push(value_type as u8);
    };
    let quality = sample.quality;
    let is_exact = samples.iter().all(|s| s.error.to_bits() == 0);
    let is_one_quality = samples.iter().all(|s| s.quality == quality);
    out.push(value_type as u8);
    out.push((u8::from(is_exact) * IS_EXACT) | (u8::from(is_one_quality) * IS_ONE_QUALITY));
    match is_one_quality {
        true => out.push(quality as u8),
        false => out.extend(samples.iter().map(|s| s.quality as u8)),
    }
    if !is_exact {
        let errors = samples.iter().flat_map(|s| s.error.to_le_bytes());
        out.extend(errors);
    }
    times::write(out, base_ns, samples);
    values::write(out, value_type, samples);
}

/// Reads the next batch of a section into `batch`, whose samples are replaced.
pub(super) fn read(
    cut: &mut ByteReader<'_>,
    base_ns: i64,
    batch: &mut Batch,
) -> Result<(), FrameFault> {
    batch.samples.clear();
    read_parts(cut, base_ns, batch).ok_or_else(|| malformed("batches"))
}

fn read_parts(cut: &mut ByteReader<'_>, base_ns: i64, batch: &mut Batch) -> Option<()> {
    batch.reference = u32::try_from(cut.u64()?).ok()?;
    batch.first = cut.u64()?;
    batch.looked_ns = base_ns.wrapping_add(cut.i64()?);
    let count = cut.count(SAMPLE_BYTES_MIN)?;
    batch.value_type = ValueType::from_u8(cut.u8()?)?;
    // A batch without samples has the number after the last one.
    let end = batch.first.checked_add(count as u64)?;
    if batch.first == 0 || end > NUMBER_MAX + 1 {
        return None;
    }
    if count == 0 {
        return Some(());
    }
    let flags = cut.u8()?;
    if flags & !(IS_EXACT | IS_ONE_QUALITY) != 0 {
        return None;
    }
    let qualities = match flags & IS_ONE_QUALITY {
        0 => cut.take(count)?,
        _ => cut.take(1)?,
    };
    let errors = match flags & IS_EXACT {
        0 => cut.take(count * 4)?,
        _ => &[],
    };
    let samples = &mut batch.samples;
    let sample = |ts| Sample {
        ts,
        value: Value::Bool(false),
        quality: Quality::Measured,
        error: 0.0,
    };
    times::read(cut, base_ns, count, |ts| samples.push(sample(ts)))?;
    values::read(cut, batch.value_type, samples)?;
    for (sample, quality) in samples.iter_mut().zip(qualities.iter().cycle()) {
        sample.quality = Quality::from_u8(*quality)?;
    }
    for (sample, error) in samples.iter_mut().zip(errors.chunks_exact(4)) {
        sample.error = f32::from_le_bytes(error.try_into().expect("chunks of four"));
    }
    Some(())
}
