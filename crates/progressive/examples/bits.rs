//! Bits of a value at errors of an array, and the time to pack and read it: `bits FILE N [N …]`,
//! where FILE has values of f64 as they are in memory, and N are the lengths of the axes.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a measurement by hand"
)]

use std::time::Instant;

use barograph_progressive::{ArrayReader, Basis, ErrorBound, PackConfig, Shape, pack};

fn main() {
    let mut words = std::env::args().skip(1);
    let file = words.next().expect("bits FILE N [N …]");
    let dims: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
    let bytes = std::fs::read(file).unwrap();
    let values: Vec<f64> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|it| f64::from_le_bytes(*it))
        .collect();
    let shape = Shape::new(&dims).unwrap();
    let megabytes = values.len() as f64 * 8e-6;
    for basis in [Basis::Linear, Basis::Cubic, Basis::Wavelet] {
        let config = PackConfig {
            basis,
            finest: 1e-6,
            is_exact: false,
            ..PackConfig::default()
        };
        let begin = Instant::now();
        let packed = pack(&values, shape, &config).unwrap();
        let pack_s = begin.elapsed().as_secs_f64();
        print!("{basis:?}:");
        let mut all = 0;
        for target in [1e-1, 1e-2, 1e-3, 1e-4, 1e-5] {
            let bound = ErrorBound::Nrmse(target);
            all = packed.header.buckets_for(&bound).unwrap();
            let bytes: usize = packed.buckets[..all].iter().map(Vec::len).sum();
            print!(" {:.3}", bytes as f64 * 8.0 / values.len() as f64);
        }
        let begin = Instant::now();
        let whole = shape.whole();
        let mut reader = ArrayReader::<f64>::new(packed.header.clone(), whole, 1).unwrap();
        for bucket in &packed.buckets[..all] {
            reader.read_whole(bucket).unwrap();
        }
        let read = reader.values();
        let read_s = begin.elapsed().as_secs_f64();
        assert_eq!(read.len(), values.len());
        println!(
            " bits; pack {:.0} MB/s ({} buckets), read to 1e-5 {:.0} MB/s",
            megabytes / pack_s,
            packed.buckets.len(),
            megabytes / read_s
        );
    }
}
