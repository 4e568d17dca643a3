//! Samples that reveal when they are torn: all of sample `n` depends on `n`, which is its time.

use barograph_model::{Descriptor, Name, Quality, Sample, TEXT_BYTES_MAX, Unit, Value, ValueType};

/// All types of values that a segment holds.
pub(crate) const TYPES: [ValueType; 7] = [
    ValueType::Int,
    ValueType::Float,
    ValueType::Bool,
    ValueType::Text,
    ValueType::Bytes,
    ValueType::Json,
    ValueType::Floats,
];

/// Returns well mixed bits of `n` (SplitMix64).
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns sample number `n` of a stream of this type.
pub(crate) fn sample(value_type: ValueType, n: u64) -> Sample {
    let bits = mix(n);
    let value = match value_type {
        ValueType::Int => Value::Int(bits as i64),
        ValueType::Float => Value::Float((bits >> 11) as f64),
        ValueType::Bool => Value::Bool(bits & 1 == 1),
        ValueType::Text => {
            let word = format!("{bits:016x}");
            let length = bits as usize % (TEXT_BYTES_MAX + 1);
            Value::text(&word.repeat(8)[..length])
        }
        ValueType::Bytes => {
            let words = (0..bits % 200).map(|at| mix(n ^ at << 32));
            Value::Bytes(
                words
                    .flat_map(u64::to_le_bytes)
                    .skip(bits as usize % 8)
                    .collect(),
            )
        }
        ValueType::Json => {
            let document = format!("[{n},{:?}]", format!("{bits:x}").repeat(bits as usize % 90));
            Value::Json(document.into())
        }
        ValueType::Floats => {
            let words = (0..bits % 300).map(|at| mix(n ^ at << 32));
            // Integers: they are the same in JSON, and never NaN.
            Value::Floats(words.map(|word| (word >> 11) as f64).collect())
        }
    };
    Sample {
        ts: n as i64,
        value,
        quality: Quality::from_u8((bits >> 8) as u8 % 4).unwrap(),
        error: (bits >> 48) as f32,
    }
}

/// Panics if a part of a sample does not belong to its time.
pub(crate) fn check(found: &Sample) {
    let n = u64::try_from(found.ts).expect("times are numbers of samples");
    assert_eq!(
        *found,
        sample(found.value.value_type(), n),
        "sample {n} is torn"
    );
}

/// Returns a descriptor of this name and type.
pub(crate) fn descriptor(name: &str, value_type: ValueType) -> Descriptor {
    Descriptor::gauge(
        Name::new(name).unwrap(),
        value_type,
        Unit::new("bytes").unwrap(),
    )
}

/// Number of repetitions of a test: more by night.
pub(crate) fn rounds(by_day: u64, by_night: u64) -> u64 {
    match std::env::var_os("BAROGRAPH_NIGHTLY") {
        Some(_) => by_night,
        None => by_day,
    }
}
