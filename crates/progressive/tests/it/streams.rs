//! Arrays that are packed and read in parts give the same bytes and values as those in memory, and
//! what fails on the way is an error.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use barograph_progressive::{
    ArraySource, ByteSource, PackConfig, PackedArray, PieceSpool, ProgressiveError, Region, Shape,
    ValueSource, pack, pack_from,
};
use proptest::prelude::*;

/// A rough field that every machine computes with the same bits.
fn field(count: usize) -> Vec<f64> {
    let mut state = 5_u64;
    (0..count)
        .map(|at| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let slope = (at % 97) as f64 / 16.0 + (at / 97) as f64 / 4_096.0;
            slope + (state >> 40) as f64 / f64::from(1 << 28)
        })
        .collect()
}

/// Values that are handed out until a call is to fail.
struct Values<'a> {
    values: &'a [f64],
    dims: [usize; 4],
    calls: AtomicUsize,
    fails_at: usize,
}

impl<'a> Values<'a> {
    fn new(values: &'a [f64], shape: Shape, fails_at: usize) -> Self {
        Self {
            values,
            dims: shape.whole().size,
            calls: AtomicUsize::new(0),
            fails_at,
        }
    }
}

impl ValueSource<f64> for Values<'_> {
    fn put_values(&self, region: &Region, values: &mut [f64]) -> io::Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.fails_at {
            return Err(io::Error::other("no more values"));
        }
        let run = region.size[3];
        for (values, at) in values.chunks_exact_mut(run).zip(region.runs(self.dims)) {
            values.copy_from_slice(&self.values[at..at + run]);
        }
        Ok(())
    }
}

/// Pieces that are kept until a call is to fail.
struct Pieces {
    buckets: Vec<Vec<u8>>,
    calls: usize,
    fails_at: usize,
}

impl Pieces {
    fn new(fails_at: usize) -> Self {
        Self {
            buckets: vec![Vec::new(); 256],
            calls: 0,
            fails_at,
        }
    }
}

impl PieceSpool for Pieces {
    fn append(&mut self, bucket: usize, bytes: &[u8]) -> io::Result<()> {
        self.calls += 1;
        if self.calls > self.fails_at {
            return Err(io::Error::other("no more room"));
        }
        self.buckets[bucket].extend(bytes);
        Ok(())
    }
}

fn spooled(values: &[f64], shape: Shape, config: &PackConfig) -> PackedArray {
    let source = Values::new(values, shape, usize::MAX);
    let mut pieces = Pieces::new(usize::MAX);
    let packed = pack_from(&source, shape, config, &mut pieces).unwrap();
    let buckets = packed.starts.iter().zip(&pieces.buckets);
    PackedArray {
        header: packed.header,
        buckets: buckets
            .map(|(start, rest)| [&start[..], rest].concat())
            .collect(),
    }
}

fn bytes(packed: &PackedArray) -> Vec<u8> {
    let mut bytes = packed.header.encode();
    packed.buckets.iter().for_each(|it| bytes.extend(it));
    bytes
}

/// Reads box by box.
fn boxed<S: ByteSource>(
    source: &ArraySource<S>,
    region: Region,
    buckets: usize,
    values_max: usize,
) -> Result<Vec<f64>, ProgressiveError> {
    let mut all = vec![f64::NAN; region.count()];
    let mut put = 0;
    source.read_boxes(buckets, region, values_max, 2, |part, values: &[f64]| {
        let run = part.size[3];
        let places = part.within(&region).runs(region.size);
        for (values, at) in values.chunks_exact(run).zip(places) {
            all[at..at + run].copy_from_slice(values);
        }
        put += values.len();
        Ok::<_, ProgressiveError>(())
    })?;
    assert_eq!(put, all.len(), "each value comes once");
    Ok(all)
}

#[test]
fn the_bytes_are_those_of_version_1() {
    for (dims, expect) in [
        (&[300_000][..], 0x6f1b_1e82),
        (&[700, 601], 0xcd1a_b567),
        (&[70, 65, 64], 0xaada_eed4),
        (&[33, 5, 17, 18], 0x96ba_5c45),
    ] {
        let shape = Shape::new(dims).unwrap();
        let config = PackConfig {
            // What zstd makes may be other bytes in other versions of it.
            is_exact: false,
            threads: 2,
            ..PackConfig::default()
        };
        let packed = pack(&field(shape.count()), shape, &config).unwrap();
        assert_eq!(crc32fast::hash(&bytes(&packed)), expect, "{dims:?}");
    }
}

#[test]
fn what_fails_at_any_call_is_an_error() {
    let shape = Shape::new(&[1_030, 300]).unwrap();
    let values = field(shape.count());
    for threads in [1, 3] {
        let config = PackConfig {
            finest: 1e-2,
            threads,
            ..PackConfig::default()
        };
        let mut calls = 0;
        loop {
            let source = Values::new(&values, shape, calls);
            match pack_from(&source, shape, &config, &mut Pieces::new(usize::MAX)) {
                Ok(_) => break,
                Err(error) => {
                    let reason = "no more values".to_owned();
                    assert_eq!(error, ProgressiveError::Fetch { reason });
                }
            }
            calls += 1;
        }
        assert_eq!(calls, 2 + 3 + 3, "stretches, and twice the blocks");
        let source = Values::new(&values, shape, usize::MAX);
        let mut all = Pieces::new(usize::MAX);
        pack_from(&source, shape, &config, &mut all).unwrap();
        for calls in [0, 1, 2, all.calls / 2, all.calls - 1] {
            let failed = pack_from(&source, shape, &config, &mut Pieces::new(calls));
            let reason = "no more room".to_owned();
            assert_eq!(failed.unwrap_err(), ProgressiveError::Spool { reason });
        }
    }
}

#[test]
fn values_that_change_meanwhile_give_some_array() {
    struct Changing(AtomicUsize);
    impl ValueSource<f64> for Changing {
        fn put_values(&self, _: &Region, values: &mut [f64]) -> io::Result<()> {
            let kinds = [1.0, 1e300, f64::NAN, -3e-300, 0.1, f64::INFINITY, -7.0];
            for value in values {
                *value = kinds[self.0.fetch_add(1, Ordering::Relaxed) % kinds.len()];
            }
            Ok(())
        }
    }
    for dims in [&[1][..], &[9, 11], &[600, 513]] {
        for first in 0..7 {
            let source = Changing(AtomicUsize::new(first));
            let shape = Shape::new(dims).unwrap();
            let mut pieces = Pieces::new(usize::MAX);
            pack_from(&source, shape, &PackConfig::default(), &mut pieces).unwrap();
        }
    }
}

#[test]
fn boxes_are_checked_before_the_first_one_is_handed_on() {
    let shape = Shape::new(&[1_030, 300]).unwrap();
    let packed = pack(&field(shape.count()), shape, &PackConfig::default()).unwrap();
    let mut bytes = bytes(&packed);
    let buckets = packed.buckets.len();
    let whole = shape.whole();
    let source = ArraySource::open(&*bytes).unwrap();
    let same = source.read::<f64>(buckets, whole, 0, 1).unwrap().0.values();
    assert_eq!(boxed(&source, whole, buckets, 1).unwrap(), same);
    let refused = source.read_boxes(buckets, whole, 1, 1, |_, _: &[f64]| {
        Err(ProgressiveError::Fetch {
            reason: "enough".into(),
        })
    });
    assert!(refused.unwrap_err().to_string().contains("enough"));
    let wrong = source.read_boxes(1, whole, 1, 1, |_, _: &[f32]| Ok::<_, ProgressiveError>(()));
    assert!(wrong.is_err());
    let end = bytes.len() - 9;
    let cut = ArraySource::open(&bytes[..end]).unwrap();
    let error = boxed(&cut, whole, buckets, 1).unwrap_err();
    assert!(
        matches!(error, ProgressiveError::CutShort { .. }),
        "{error}"
    );
    bytes[end] ^= 1;
    let source = ArraySource::open(&*bytes).unwrap();
    let taken = source.read_boxes(buckets, whole, 1, 1, |_, _: &[f64]| {
        panic!("nothing is handed on")
    });
    let error: ProgressiveError = taken.unwrap_err();
    assert!(error.to_string().contains("its checksum does not match"));
    assert!(boxed(&source, whole, buckets - 1, 1).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn parts_are_the_same_as_all_at_once(
        (dims, from, to) in prop_oneof![
            prop::collection::vec(1..300_000_usize, 1),
            prop::collection::vec(1..700_usize, 2),
            prop::collection::vec(1..90_usize, 3),
            prop::collection::vec(1..24_usize, 4),
        ].prop_flat_map(|dims| {
            let at = || prop::collection::vec(any::<prop::sample::Index>(), dims.len());
            (Just(dims.clone()), at(), at())
        }),
        threads in 1..5_usize,
        finest in prop_oneof![Just(1e-1), Just(1e-3)],
        is_exact in any::<bool>(),
        values_max in 1..500_000_usize,
        holes in any::<bool>(),
    ) {
        let shape = Shape::new(&dims).unwrap();
        let mut values = field(shape.count());
        if holes {
            values.iter_mut().step_by(5).for_each(|value| *value = f64::NAN);
        }
        let config = PackConfig { finest, is_exact, threads, ..PackConfig::default() };
        let packed = pack(&values, shape, &PackConfig { threads: 1, ..config }).unwrap();
        prop_assert_eq!(&packed, &spooled(&values, shape, &config));
        let bytes = bytes(&packed);
        let source = ArraySource::open(&*bytes).unwrap();
        let ranges: Vec<_> = dims.iter().zip(from.iter().zip(&to)).map(|(&n, (from, to))| {
            let start = from.index(n);
            start..start + 1 + to.index(n - start)
        }).collect();
        for region in [shape.whole(), shape.region(&ranges).unwrap()] {
            for buckets in [1, packed.buckets.len()] {
                let (reader, _) = source.read::<f64>(buckets, region, 0, threads).unwrap();
                let seen = boxed(&source, region, buckets, values_max).unwrap();
                let all = reader.values();
                prop_assert!(seen.iter().zip(&all).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}
