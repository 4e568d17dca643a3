//! What is packed is read: within the error that each bucket states, in parts, and exactly.

use barograph_progressive::{
    ArrayHeader, ArrayReader, Basis, Element, ErrorBound, PackConfig, PackedArray, Shape, pack,
};
use proptest::prelude::*;

const BASES: [Basis; 3] = [Basis::Linear, Basis::Cubic, Basis::Wavelet];

/// A smooth field with a step, some noise, and an offset.
fn field(dims: &[usize], noise: f64) -> Vec<f64> {
    let count: usize = dims.iter().product();
    let mut state = 3_u64;
    (0..count)
        .map(|at| {
            let mut left = at;
            let mut value = 0.0;
            for (axis, &n) in dims.iter().enumerate().rev() {
                let x = (left % n) as f64 / n as f64;
                left /= n;
                value += (x * (3.0 + axis as f64)).sin() + f64::from(u8::from(x > 0.6)) * 0.5;
            }
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            100.0 + value + noise * ((state >> 40) as f64 / (1 << 24) as f64 - 0.5)
        })
        .collect()
}

fn read<T: Element>(packed: &PackedArray, buckets: usize) -> ArrayReader<T> {
    let whole = packed.header.shape().whole();
    let mut reader = ArrayReader::new(packed.header.clone(), whole, 1).unwrap();
    for bucket in &packed.buckets[..buckets] {
        reader.read_whole(bucket).unwrap();
    }
    reader
}

/// Reads an array bucket by bucket, and compares each reading with the stated error.
fn check_all<T: Element>(values: &[T], packed: &PackedArray, fill: Option<f64>) {
    let there = |value: f64| value.is_finite() && Some(value) != fill;
    let mut reader = read::<T>(packed, 0);
    // So that no square is too small or too large for f64.
    let magnitude = packed.header.range().magnitude();
    let unit = if magnitude > 0.0 {
        f64::exp2(magnitude.log2().floor())
    } else {
        1.0
    };
    for (at, bucket) in packed.buckets.iter().enumerate() {
        reader.read_whole(bucket).unwrap();
        let seen = reader.values();
        let (mut squares, mut linf, mut count) = (0.0, 0.0_f64, 0.0);
        for (value, seen) in values.iter().zip(&seen) {
            let (value, seen) = (value.to_f64(), seen.to_f64());
            if there(value) {
                let difference = value / unit - seen / unit;
                squares += difference * difference;
                linf = linf.max(difference.abs());
                count += 1.0;
            } else {
                assert!(value == seen || value.is_nan() && seen.is_nan());
            }
        }
        let error = packed.header.buckets()[at].error;
        let (stated, most) = (error.rmse / unit, error.linf / unit);
        let rmse = if count > 0.0 {
            f64::sqrt(squares / count)
        } else {
            0.0
        };
        assert!(
            rmse <= stated * (1.0 + 1e-12),
            "bucket {at}: {rmse} {stated}"
        );
        assert!(
            // A header says it to 1/512, and nothing below 2^-1064.
            stated <= rmse * (1.0 + 1.01 / 512.0) + 1e-18 + 6e-321 / unit,
            "bucket {at}: {rmse} {stated}"
        );
        assert!(linf <= most * (1.0 + 1e-12), "bucket {at}: {linf} {most}");
    }
    if packed.header.is_exact() {
        let seen = reader.values();
        let same = values
            .iter()
            .zip(&seen)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "the last bucket makes the reading exact");
    }
}

#[test]
fn all_shapes_bases_and_types() {
    for dims in [
        &[1][..],
        &[5],
        &[1_000],
        &[300_000],
        &[40, 51],
        &[1, 33, 1],
        &[600, 530],
        &[20, 21, 22],
        &[9, 1, 70, 65],
        &[12, 10, 9, 11],
    ] {
        let values = field(dims, 0.01);
        let single: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        for basis in BASES {
            let config = PackConfig {
                basis,
                ..PackConfig::default()
            };
            let shape = Shape::new(dims).unwrap();
            check_all(&values, &pack(&values, shape, &config).unwrap(), None);
            check_all(&single, &pack(&single, shape, &config).unwrap(), None);
        }
    }
}

#[test]
fn values_that_are_missing_odd_or_all_the_same() {
    let shape = Shape::new(&[30, 20]).unwrap();
    let base = field(&[30, 20], 0.0);
    let mut cases: Vec<(&str, Vec<f64>, Option<f64>)> = vec![
        ("constant", vec![7.25; 600], None),
        ("zero", vec![0.0; 600], None),
        ("nothing", vec![f64::NAN; 600], None),
        ("tiny", base.iter().map(|v| v * 1e-320).collect(), None),
        ("small", base.iter().map(|v| v * 1e-200).collect(), None),
        ("huge", base.iter().map(|v| v * 1e306).collect(), None),
        (
            "both ends",
            base.iter().map(|v| (v - 101.0) * 8e307).collect(),
            None,
        ),
        (
            "offset",
            base.iter().map(|v| v * 1e-9 + 1e6).collect(),
            None,
        ),
    ];
    let mut holes = base.clone();
    for at in 0..200 {
        holes[at * 3] = [f64::NAN, f64::INFINITY, -9999.0][at % 3];
    }
    cases.push(("holes", holes.clone(), None));
    cases.push((
        "fill",
        holes
            .iter()
            .map(|v| if v.is_finite() { *v } else { -9999.0 })
            .collect(),
        Some(-9999.0),
    ));
    for (name, values, fill) in cases {
        println!("{name}");
        let config = PackConfig {
            fill,
            ..PackConfig::default()
        };
        let packed = pack(&values, shape, &config).unwrap();
        check_all(&values, &packed, fill);
        if name == "constant" {
            assert_eq!(packed.header.buckets()[0].error.linf, 0.0);
            assert!(packed.buckets[0].len() < 64);
        }
    }
}

#[test]
fn multiples_of_a_power_of_2_cost_no_more_than_they_have() {
    let dims = [200, 190];
    let shape = Shape::new(&dims).unwrap();
    let field = field(&dims, 0.01);
    let steps = |unit: f64| -> Vec<f64> {
        field
            .iter()
            .map(|value| (value * 50.0).round() * unit)
            .collect()
    };
    for unit in [1.0, 0.125, 4096.0, f64::exp2(-200.0)] {
        let values = steps(unit);
        let packed = pack(&values, shape, &PackConfig::default()).unwrap();
        check_all(&values, &packed, None);
        let bytes: usize = packed.buckets.iter().map(Vec::len).sum();
        assert!(bytes * 8 < values.len() * 4, "{bytes}");
        if unit > 1e-30 {
            let single: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            check_all(
                &single,
                &pack(&single, shape, &PackConfig::default()).unwrap(),
                None,
            );
        }
    }
    // A zero with a sign, a hole, and no approximation that goes on for ever.
    let mut values = steps(1.0);
    (values[3], values[4], values[5]) = (-0.0, f64::NAN, 0.0);
    check_all(
        &values,
        &pack(&values, shape, &PackConfig::default()).unwrap(),
        None,
    );
    let config = PackConfig {
        is_exact: false,
        ..PackConfig::default()
    };
    let packed = pack(&steps(1.0), shape, &config).unwrap();
    assert!(packed.header.buckets_for(&ErrorBound::Nrmse(1e-7)).is_ok());
}

#[test]
fn a_bound_is_kept_or_said_to_be_out_of_reach() {
    let dims = [90, 110];
    let values = field(&dims, 0.02);
    let shape = Shape::new(&dims).unwrap();
    let config = PackConfig {
        is_exact: false,
        finest: 1e-6,
        ..PackConfig::default()
    };
    let packed = pack(&values, shape, &config).unwrap();
    let width = 2.0 * packed.header.range().half_width();
    for bound in [
        "nrmse=1e-2",
        "nrmse=1e-5",
        "psnr=70",
        "psnr_max=100",
        "linf=0.001",
    ] {
        let bound = ErrorBound::parse(bound).unwrap();
        let buckets = packed.header.buckets_for(&bound).unwrap();
        let seen = read::<f64>(&packed, buckets).values();
        let squares: f64 = values
            .iter()
            .zip(&seen)
            .map(|(a, b)| (a - b) * (a - b))
            .sum();
        let rmse = (squares / values.len() as f64).sqrt();
        let linf = values
            .iter()
            .zip(&seen)
            .fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
        match bound {
            ErrorBound::Nrmse(most) => assert!(rmse / width <= most),
            ErrorBound::Psnr(least) => assert!(20.0 * (width / rmse).log10() >= least),
            ErrorBound::PsnrMax(least) => {
                assert!(20.0 * (packed.header.range().magnitude() / rmse).log10() >= least);
            }
            ErrorBound::Linf(most) => assert!(linf <= most),
        }
        assert!(
            buckets == 1
                || !bound.holds(
                    &packed.header.buckets()[buckets - 2].error,
                    packed.header.range()
                )
        );
    }
    let error = packed
        .header
        .buckets_for(&ErrorBound::Nrmse(1e-12))
        .unwrap_err();
    assert!(error.to_string().contains("the best one has"), "{error}");
}

#[test]
fn threads_make_no_difference() {
    let dims = [1_100, 700];
    let values = field(&dims, 0.1);
    let shape = Shape::new(&dims).unwrap();
    let of = |threads| {
        let config = PackConfig {
            threads,
            ..PackConfig::default()
        };
        pack(&values, shape, &config).unwrap()
    };
    let one = of(1);
    assert_eq!(one, of(3));
    let read = |threads| {
        let whole = one.header.shape().whole();
        let mut reader = ArrayReader::<f64>::new(one.header.clone(), whole, threads).unwrap();
        one.buckets[..9]
            .iter()
            .for_each(|bucket| reader.read_whole(bucket).unwrap());
        reader.values()
    };
    assert_eq!(read(1), read(4));
}

/// Reads a part with the pieces that it asks for alone: all other bytes are wrong.
fn read_part(
    packed: &PackedArray,
    mut reader: ArrayReader<f64>,
    buckets: usize,
) -> (ArrayReader<f64>, u64) {
    let mut fetched = 0;
    for (at, bucket) in packed.buckets[..buckets].iter().enumerate() {
        let length = barograph_progressive::BucketIndex::encoded_len(bucket).unwrap();
        let head = &bucket[..length as usize];
        let index = barograph_progressive::BucketIndex::decode(&packed.header, at, head).unwrap();
        let mut known = vec![0xa5; bucket.len()];
        for place in reader.wanted(&index) {
            let place = place.start as usize..place.end as usize;
            fetched += place.len() as u64;
            known[place.clone()].copy_from_slice(&bucket[place]);
        }
        reader
            .read(&index, |place| {
                known.get(place.start as usize..place.end as usize)
            })
            .unwrap();
    }
    (reader, fetched)
}

#[test]
fn a_region_is_a_part_of_the_whole() {
    let dims = [70, 150, 140];
    let values = field(&dims, 0.05);
    let shape = Shape::new(&dims).unwrap();
    let packed = pack(&values, shape, &PackConfig::default()).unwrap();
    let all: u64 = packed
        .buckets
        .iter()
        .map(|bucket| bucket.len() as u64)
        .sum();
    let region = shape.region(&[10..20, 40..49, 3..30]).unwrap();
    for buckets in [1, 7, packed.buckets.len()] {
        let whole = read::<f64>(&packed, buckets).values();
        let reader = ArrayReader::new(packed.header.clone(), region, 1).unwrap();
        let (reader, fetched) = read_part(&packed, reader, buckets);
        assert_eq!(reader.dims(), [10, 9, 27]);
        assert!(fetched < all / 6, "{fetched} of {all}");
        let seen = reader.values();
        let mut at = 0;
        for a in 10..20 {
            for b in 40..49 {
                for c in 3..30 {
                    assert_eq!(seen[at], whole[(a * 150 + b) * 140 + c]);
                    at += 1;
                }
            }
        }
    }
}

#[test]
fn a_coarser_resolution_is_a_smaller_picture() {
    let dims = [600, 300];
    let values = field(&dims, 0.0);
    let shape = Shape::new(&dims).unwrap();
    for basis in BASES {
        let config = PackConfig {
            basis,
            ..PackConfig::default()
        };
        let packed = pack(&values, shape, &config).unwrap();
        let all = packed.buckets.len() - 1;
        let mut least = u64::MAX;
        for level in 1..4 {
            let reader =
                ArrayReader::at_level(packed.header.clone(), shape.whole(), level, 1).unwrap();
            let (reader, fetched) = read_part(&packed, reader, all);
            assert!(fetched < least, "{level}: {fetched} of {least}");
            least = fetched;
            let step = 1 << level;
            assert_eq!(
                reader.dims(),
                [2 * 300_usize.div_ceil(step), 300_usize.div_ceil(step)]
            );
            let seen = reader.values();
            // Near the values at the same places, where the field is smooth.
            let (row, column) = (40 / step, 48 / step);
            let near = seen[row * reader.dims()[1] + column];
            let there = values[40 * 300 + 48];
            assert!(
                (near - there).abs() < 0.05,
                "{basis:?} {level}: {near} {there}"
            );
        }
    }
}

#[test]
fn what_cannot_be_packed_or_read_is_said() {
    let shape = Shape::new(&[4]).unwrap();
    assert!(pack(&[1.0, 2.0], shape, &PackConfig::default()).is_err());
    for finest in [0.0, -1.0, f64::NAN, 1.0] {
        let config = PackConfig {
            finest,
            ..PackConfig::default()
        };
        assert!(pack(&[1.0; 4], shape, &config).is_err());
    }
    let packed = pack(&[1.0, 2.0, 4.0, 8.0], shape, &PackConfig::default()).unwrap();
    let other = ArrayReader::<f32>::new(packed.header.clone(), shape.whole(), 1);
    assert!(other.err().unwrap().to_string().contains("F64"));
    let mut reader = read::<f64>(&packed, packed.buckets.len());
    assert!(reader.read_whole(&packed.buckets[0]).is_err());
    for (name, step) in [
        ("", None),
        ("pressure", Some(0)),
        (&*"é".repeat(127), Some(u64::MAX)),
    ] {
        let mut header = packed.header.clone();
        (header.name, header.step) = (name.into(), step);
        assert_eq!(ArrayHeader::decode(&header.encode()).unwrap(), header);
    }
    let mut long = packed.header.clone();
    long.name = "é".repeat(200);
    let kept = ArrayHeader::decode(&long.encode()).unwrap().name;
    assert_eq!(kept, "é".repeat(127), "characters stay whole");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_values_are_read_as_stated(
        a in 1..7_usize, b in 1..9_usize, c in 1..30_usize,
        bits in prop::collection::vec(prop_oneof![4 => -1e3..1e3_f64, 1 => any::<f64>()], 1..200),
        at in 0..3_usize,
    ) {
        let shape = Shape::new(&[a, b, c]).unwrap();
        let values: Vec<f64> = (0..shape.count()).map(|i| bits[i % bits.len()]).collect();
        let config = PackConfig { basis: BASES[at], ..PackConfig::default() };
        let packed = pack(&values, shape, &config).unwrap();
        let last = read::<f64>(&packed, packed.buckets.len()).values();
        let same = values.iter().zip(&last).all(|(a, b)| a.to_bits() == b.to_bits());
        prop_assert!(same);
        let range = packed.header.range();
        for (at, entry) in packed.header.buckets().iter().enumerate() {
            let seen = read::<f64>(&packed, at + 1).values();
            let there = values.iter().zip(&seen).filter(|(value, _)| value.is_finite());
            let worst = there.fold(0.0, |most: f64, (a, b)| most.max((a / 2.0 - b / 2.0).abs()));
            prop_assert!(worst <= entry.error.linf / 2.0 * (1.0 + 1e-12), "{worst} {:?} {:?}", entry, range);
        }
    }
}
