//! Bytes that are cut, changed or foreign: errors name the part, and nothing panics.

use barograph_progressive::{
    ArrayHeader, ArrayReader, ArraySource, BucketIndex, ErrorBound, PackConfig, PackedArray,
    ProgressiveError, Shape, pack,
};
use proptest::prelude::*;

fn packed() -> PackedArray {
    let mut values: Vec<f64> = (0..40 * 50)
        .map(|at| (f64::from(at) / 90.0).sin())
        .collect();
    values[77] = f64::NAN;
    values[78] = f64::INFINITY;
    pack(
        &values,
        Shape::new(&[40, 50]).unwrap(),
        &PackConfig::default(),
    )
    .unwrap()
}

#[test]
fn a_damaged_header_is_refused_and_a_later_one_is_named() {
    let bytes = packed().header.encode();
    assert_eq!(ArrayHeader::encoded_len(&bytes).unwrap(), bytes.len());
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(ArrayHeader::decode(&changed).is_err(), "byte {at}");
        assert!(ArrayHeader::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    let mut later = bytes.clone();
    later[8] = 9;
    let error = ArrayHeader::decode(&later).unwrap_err();
    assert!(
        matches!(error, ProgressiveError::Future { version: 9, .. }),
        "{error}"
    );
}

#[test]
fn a_source_is_read_as_far_as_it_goes() {
    let packed = packed();
    let mut bytes = packed.header.encode();
    let header = bytes.len() as u64;
    packed.buckets.iter().for_each(|it| bytes.extend(it));
    let whole = packed.header.shape().whole();
    let buckets = packed.buckets.len();
    let source = ArraySource::open(&*bytes).unwrap();
    assert_eq!(
        (source.bytes(), source.bytes_read()),
        (bytes.len() as u64, header)
    );
    let (_, read) = source.read::<f64>(buckets, whole, 0, 1).unwrap();
    assert_eq!(read + header, bytes.len() as u64);
    assert_eq!(source.bytes_read(), bytes.len() as u64);
    let part = packed.header.shape().region(&[3..5, 7..9]).unwrap();
    let (reader, more) = source.read::<f64>(2, part, 0, 1).unwrap();
    assert_eq!((reader.dims(), reader.buckets_read()), (vec![2, 2], 2));
    assert_eq!(source.bytes_read(), header + read + more);
    assert!(source.read::<f32>(1, whole, 0, 1).is_err());
    assert!(source.read::<f64>(buckets + 1, whole, 0, 1).is_err());
    let cut = ArraySource::open(&bytes[..bytes.len() - 1]).unwrap();
    let error = cut.read::<f64>(buckets, whole, 0, 1).map(drop).unwrap_err();
    let needed = bytes.len() as u64;
    let expect = ProgressiveError::CutShort {
        bytes: needed - 1,
        needed,
    };
    assert_eq!(error, expect);
    assert!(cut.read::<f64>(buckets - 1, whole, 0, 1).is_ok());
    let bound = ErrorBound::Nrmse(1e-3);
    assert!(cut.header().buckets_for(&bound).unwrap() < buckets);
}

#[test]
fn a_header_tells_of_no_blocks_for_which_there_is_nothing() {
    let mut bytes = packed().header.encode();
    assert_eq!(bytes[40..42], [40, 50], "the lengths of the axes");
    // 2^20 and 2^19 as LEB128.
    bytes.splice(40..42, [0x80, 0x80, 0x40, 0x80, 0x80, 0x20]);
    let length = bytes.len() as u32;
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    let error = ArrayHeader::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("bucket 0 has"), "{error}");
}

#[test]
fn a_damaged_bucket_is_named_and_those_before_it_are_used() {
    let packed = packed();
    let whole = packed.header.shape().whole();
    let mut reader = ArrayReader::<f64>::new(packed.header.clone(), whole, 1).unwrap();
    for bucket in &packed.buckets[..4] {
        reader.read_whole(bucket).unwrap();
    }
    let before = reader.values();
    let mut changed = packed.buckets[4].clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    let error = reader.read_whole(&changed).unwrap_err();
    assert!(
        error.to_string().starts_with("bucket 4 is damaged"),
        "{error}"
    );
    let same = reader
        .values()
        .iter()
        .zip(&before)
        .all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(same, "the reading is as it was");
    reader.read_whole(&packed.buckets[4]).unwrap();
}

/// Reads foreign buckets without their checksums.
fn read_foreign(header: &ArrayHeader, buckets: &[Vec<u8>]) {
    let whole = header.shape().whole();
    let Ok(mut reader) = ArrayReader::<f64>::new(header.clone(), whole, 1) else {
        return;
    };
    for (at, bucket) in buckets.iter().enumerate() {
        let Ok(index) = BucketIndex::decode(header, at, bucket) else {
            return;
        };
        let _ = reader.wanted(&index);
        if reader
            .read(&index, |place| {
                bucket.get(place.start as usize..place.end as usize)
            })
            .is_err()
        {
            return;
        }
        assert_eq!(reader.values().len(), header.shape().count());
    }
}

proptest! {
    #[test]
    fn changed_buckets_never_panic(bucket in 0..9_usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut packed = packed();
        for (at, value) in changes {
            let bytes = &mut packed.buckets[bucket];
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_foreign(&packed.header, &packed.buckets);
    }

    #[test]
    fn foreign_headers_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = ArrayHeader::decode(&bytes);
        let mut bytes = [b"BAROPROG\x01\x00".as_slice(), &bytes].concat();
        let _ = ArrayHeader::decode(&bytes);
        if let Ok(length) = ArrayHeader::encoded_len(&bytes) {
            bytes.resize(length, 0);
            let checksum = crc32fast::hash(&bytes[..length - 4]);
            bytes[length - 4..].copy_from_slice(&checksum.to_le_bytes());
            let _ = ArrayHeader::decode(&bytes);
        }
    }
}
