//! Damages the header and the buckets of a packed array, whose checksums are made to match.
//!
//! The first byte chooses an array. Then follow changes: each is a position (two bytes) and a byte.

#![no_main]

use std::sync::OnceLock;

use barograph_progressive::{
    ArrayHeader, ArrayReader, Basis, BucketIndex, Element, ElementType, PackConfig, Shape, pack,
};
use libfuzzer_sys::fuzz_target;

/// Arrays with more values are not read: a header may tell of any number.
const VALUES_MAX: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, changes)) = input.split_first() else {
        return;
    };
    let (header, whole) = &arrays()[usize::from(choice) % arrays().len()];
    let mut bytes = whole.clone();
    for change in changes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let end = bytes.len();
        bytes[at % end] = change[2];
    }
    let (head, buckets) = bytes.split_at_mut(*header);
    let checksum = crc32fast::hash(&head[..*header - 4]);
    head[*header - 4..].copy_from_slice(&checksum.to_le_bytes());
    let Ok(header) = ArrayHeader::decode(head) else {
        return;
    };
    if header.shape().count() > VALUES_MAX {
        return;
    }
    match header.element() {
        ElementType::F32 => read::<f32>(header, buckets),
        ElementType::F64 => read::<f64>(header, buckets),
    }
});

fn read<T: Element>(header: ArrayHeader, mut bytes: &[u8]) {
    let whole = header.shape().whole();
    let mut readers: Vec<ArrayReader<T>> = [0, 2]
        .map(|level| ArrayReader::at_level(header.clone(), whole, level, 1))
        .into_iter()
        .flatten()
        .collect();
    for (at, entry) in header.buckets().iter().enumerate() {
        let Some((bucket, rest)) = bytes.split_at_checked(entry.bytes as usize) else {
            return;
        };
        bytes = rest;
        let Ok(index) = BucketIndex::decode(&header, at, bucket) else {
            return;
        };
        for reader in &mut readers {
            let _ = reader.wanted(&index);
            let _ = reader.read(&index, |place| {
                bucket.get(place.start as usize..place.end as usize)
            });
            let count: usize = reader.dims().iter().product();
            assert_eq!(reader.values().len(), count);
        }
    }
}

/// Arrays, each with the length of its header and all bytes.
fn arrays() -> &'static [(usize, Vec<u8>)] {
    static ARRAYS: OnceLock<Vec<(usize, Vec<u8>)>> = OnceLock::new();
    ARRAYS.get_or_init(|| {
        let mut arrays = Vec::new();
        for (dims, basis) in [
            (&[30, 21][..], Basis::Wavelet),
            (&[200], Basis::Cubic),
            (&[9, 8, 7], Basis::Linear),
        ] {
            let shape = Shape::new(dims).expect("it is a shape");
            let mut values: Vec<f64> = (0..shape.count()).map(|at| (at as f64 / 9.0).sin()).collect();
            values[5] = f64::NAN;
            values[6] = f64::INFINITY;
            let single: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            let config = PackConfig {
                basis,
                finest: 1e-4,
                ..PackConfig::default()
            };
            for packed in [pack(&values, shape, &config), pack(&single, shape, &config)] {
                let packed = packed.expect("it is an array");
                let mut bytes = packed.header.encode();
                let length = bytes.len();
                packed.buckets.iter().for_each(|bucket| bytes.extend(bucket));
                arrays.push((length, bytes));
            }
        }
        arrays
    })
}
