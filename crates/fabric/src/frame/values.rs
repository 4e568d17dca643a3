//! The values of a batch: integers as differences, doubles as the bytes in which each differs from
//! the one before, everything else with its length.

use std::sync::Arc;

use barograph_model::{Sample, VALUE_BYTES_MAX, Value, ValueType};
use barograph_stream::bytes::{ByteReader, put_bytes, put_i64, put_u64};

/// Appends the values of the samples, which are all of `value_type`.
pub(super) fn write(out: &mut Vec<u8>, value_type: ValueType, samples: &[Sample]) {
    let (mut int, mut bits) = (0i64, 0u64);
    for sample in samples {
        debug_assert_eq!(sample.value.value_type(), value_type);
        match &sample.value {
            Value::Int(v) => {
                put_i64(out, v.wrapping_sub(int));
                int = *v;
            }
            Value::Float(v) => {
                put_difference(out, bits ^ v.to_bits());
                bits = v.to_bits();
            }
            Value::Bool(v) => out.push(u8::from(*v)),
            Value::Text(v) | Value::Json(v) => put_bytes(out, v.as_bytes()),
            Value::Bytes(v) => put_bytes(out, v),
            Value::Floats(v) => {
                put_u64(out, v.len() as u64);
                v.iter()
                    .for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
            }
        }
    }
}

/// Reads one value of `value_type` for each of the samples; `None` if the bytes end too early or
/// break a rule.
pub(super) fn read(
    cut: &mut ByteReader<'_>,
    value_type: ValueType,
    samples: &mut [Sample],
) -> Option<()> {
    let (mut int, mut bits) = (0i64, 0u64);
    for sample in samples {
        sample.value = match value_type {
            ValueType::Int => {
                int = int.wrapping_add(cut.i64()?);
                Value::Int(int)
            }
            ValueType::Float => {
                bits ^= difference(cut)?;
                Value::Float(f64::from_bits(bits))
            }
            ValueType::Bool => Value::Bool(bool_of(cut.u8()?)?),
            ValueType::Text => Value::Text(Arc::from(text(cut)?)),
            ValueType::Json => Value::Json(Arc::from(text(cut)?)),
            ValueType::Bytes => {
                let length = cut.count(1)?;
                Value::Bytes(Arc::from(bounded(cut.take(length)?)?))
            }
            ValueType::Floats => {
                let length = cut.count(8)?;
                let bytes = bounded(cut.take(length * 8)?)?;
                let eight = |b: &[u8]| f64::from_le_bytes(b.try_into().expect("chunks of eight"));
                Value::Floats(bytes.chunks_exact(8).map(eight).collect())
            }
        };
    }
    Some(())
}

/// Appends the difference of two doubles' bits: a byte with the number of zero bytes at its lower
/// end (upper half) and of the bytes that follow (lower half), then these. Equal doubles are one
/// zero byte. Doubles that are small integers have zero bytes at their lower end; neighbours in
/// time have them at their upper end.
fn put_difference(out: &mut Vec<u8>, difference: u64) {
    if difference == 0 {
        return out.push(0);
    }
    let below = difference.trailing_zeros() / 8;
    let bytes = 8 - below - difference.leading_zeros() / 8;
    out.push((below << 4 | bytes) as u8);
    let shifted = difference >> (8 * below);
    out.extend_from_slice(&shifted.to_le_bytes()[..bytes as usize]);
}

fn difference(cut: &mut ByteReader<'_>) -> Option<u64> {
    let head = usize::from(cut.u8()?);
    let (below, bytes) = (head >> 4, head & 15);
    if bytes == 0 {
        return (below == 0).then_some(0);
    }
    if below + bytes > 8 {
        return None;
    }
    let mut eight = [0; 8];
    eight[below..below + bytes].copy_from_slice(cut.take(bytes)?);
    Some(u64::from_le_bytes(eight))
}

fn bool_of(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn text<'a>(cut: &mut ByteReader<'a>) -> Option<&'a str> {
    let text = cut.text()?;
    bounded(text.as_bytes()).map(|_| text)
}

fn bounded(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.len() <= VALUE_BYTES_MAX).then_some(bytes)
}
