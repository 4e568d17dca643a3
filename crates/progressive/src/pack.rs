//! An array into buckets: the blocks are decomposed, the steps of coding are divided among buckets,
//! and every bucket gets the error that a reading up to it has, measured on what a reader has then.

use crate::ProgressiveError;
use crate::basis::Basis;
use crate::block::{BlockWriter, Coding, GRID_MAX, Spread, WrittenBlock};
use crate::element::{Element, exp2, lowest_bit};
use crate::error::{ErrorBound, ErrorSum, MeasuredError, ValueRange};
use crate::header::{ArrayHeader, BucketEntry, PLANES_MAX};
use crate::pieces::put_number;
use crate::planes::{CodingStep, PASSES};
use crate::shape::{Region, Shape, copy_box};
use crate::work::shared;

/// The first bucket is about this precise, as a share of the range: no reader wants less.
const BASE_NRMSE: f64 = 0.1;
/// Largest multiple: the differences of a bucket have 32 bits at least.
const MULTIPLE_MAX: f64 = (1 << 22) as f64;
/// Where approximations of multiples end: most of them are nearer than half of the distance then.
const GRID_RMSE: f64 = 0.3;

/// How an array is packed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackConfig {
    /// How neighbours are predicted from each other.
    pub basis: Basis,
    /// The error at which buckets of approximations end, as a share of the range (NRMSE).
    pub finest: f64,
    /// Whether a last bucket makes a reading exact, bit by bit.
    pub is_exact: bool,
    /// A value that stands for a missing one, beside those that are no numbers.
    pub fill: Option<f64>,
    /// Number of threads; results have the same bits with any number.
    pub threads: usize,
}

impl Default for PackConfig {
    fn default() -> Self {
        Self {
            basis: Basis::default(),
            finest: 1e-8,
            is_exact: true,
            fill: None,
            threads: 1,
        }
    }
}

/// An array as a header and buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedArray {
    /// What is known without the buckets.
    pub header: ArrayHeader,
    /// The bytes of each bucket.
    pub buckets: Vec<Vec<u8>>,
}

/// Packs an array, whose values are in C order: the last axis is the one whose values lie side by
/// side.
///
/// # Errors
///
/// The number of values is not that of the shape, or the finest error is no share of a range.
pub fn pack<T: Element>(
    values: &[T],
    shape: Shape,
    config: &PackConfig,
) -> Result<PackedArray, ProgressiveError> {
    if values.len() != shape.count() {
        return Err(ProgressiveError::Shape {
            reason: format!("{} values for {:?}", values.len(), shape.dims()),
        });
    }
    if !(config.finest > 0.0 && config.finest < 1.0) {
        return Err(ProgressiveError::Bound {
            bound: ErrorBound::Nrmse(config.finest).to_string(),
            reason: "the finest error is a share of the range, between 0 and 1",
        });
    }
    let coding = coding(values, &shape, config);
    let blocks: Vec<Region> = (0..shape.block_count() as usize)
        .map(|at| shape.block(at))
        .collect();
    let prepared = shared(config.threads, blocks, |region| {
        let mut own = vec![T::default(); region.count()];
        let target = region.within(&region);
        copy_box(
            (values, shape.whole().size, &region),
            (&mut own, region.size, &target),
        );
        let writer = BlockWriter::new(own, &region, coding.0);
        let spread = writer.spread();
        (writer, spread)
    });
    let mut spread = Spread::new();
    prepared.iter().for_each(|(_, more)| spread.merge(more));
    let (coding, range) = coding;
    let finest = match coding.grid {
        // Whoever wants the values exactly is better served by differences from there on.
        Some(grid) if config.is_exact => {
            let distance = exp2(grid) / (2.0 * range.half_width());
            config.finest.max(GRID_RMSE * distance)
        }
        _ => config.finest,
    };
    let planes = Planes::of(&spread, &range, coding.exponent, finest);
    let steps = planes.buckets(&spread, &range, coding.exponent);
    let writers: Vec<_> = prepared.into_iter().map(|(writer, _)| writer).collect();
    let written = shared(config.threads, writers, |writer| {
        writer.write(&steps, planes.lowest)
    });
    Ok(assemble::<T>(
        shape,
        coding,
        range,
        planes.highest,
        &steps,
        &written,
        config.is_exact,
    ))
}

/// Finds the range of the values, and how they are coded.
fn coding<T: Element>(values: &[T], shape: &Shape, config: &PackConfig) -> (Coding, ValueRange) {
    let fill = config.fill.map(|value| T::from_f64(value).to_bits());
    let there = |value: &&T| value.to_f64().is_finite() && Some(value.to_bits()) != fill;
    let range = ValueRange::of(values.iter().filter(there).map(|value| value.to_f64()));
    let bits = range.magnitude().to_bits() >> 52;
    let coding = Coding {
        basis: config.basis,
        // Within what the header can say; values far beyond it are still within f64's range.
        exponent: (bits as i32 - 1_022).clamp(-1_000, 1_000),
        long: shape.long(),
        fill,
        min: range.min,
        max: range.max,
        grid: grid(values.iter().filter(there).copied(), &range),
    };
    (coding, range)
}

/// The power of 2 of which all values are multiples, if these are whole numbers of 22 bits at most:
/// then a reading that is near enough is exact once it is rounded.
fn grid<T: Element>(values: impl Iterator<Item = T>, range: &ValueRange) -> Option<i32> {
    let lowest = |least: i32, value: T| match value.to_f64() {
        // The zero that has a sign is no multiple that would be found again.
        0.0 if value.to_bits() != 0 => None,
        0.0 => Some(least),
        value => lowest_bit(value).map(|bit| bit.min(least)),
    };
    let grid = { values }.try_fold(i32::MAX, lowest)?;
    let is_moderate = (-GRID_MAX..=GRID_MAX).contains(&grid);
    (is_moderate && range.magnitude() * exp2(-grid) <= MULTIPLE_MAX).then_some(grid)
}

/// The planes that are coded.
#[derive(Clone, Copy, Debug)]
struct Planes {
    highest: i32,
    lowest: i32,
}

impl Planes {
    /// The planes that a finest error needs.
    fn of(spread: &Spread, range: &ValueRange, exponent: i32, finest: f64) -> Self {
        let Some(highest) = spread.highest() else {
            // All coefficients are 0, so there is nothing to code.
            return Self {
                highest: 0,
                lowest: 1,
            };
        };
        let most = squared(range, exponent, finest);
        let deepest = highest + 1 - PLANES_MAX as i32;
        let planes = (deepest..=highest).rev();
        let lowest = planes.into_iter().find(|&plane| spread.left(plane) <= most);
        Self {
            highest,
            lowest: lowest.unwrap_or(deepest),
        }
    }

    /// The steps of each bucket. The first one has those down to a coarse picture; each other one
    /// has one step of all levels, since coefficients of all levels weigh alike: a plane's bits
    /// have the same gain in every level.
    fn buckets(&self, spread: &Spread, range: &ValueRange, exponent: i32) -> Vec<Vec<CodingStep>> {
        let coarse = squared(range, exponent, BASE_NRMSE);
        let steps = (self.lowest..=self.highest)
            .rev()
            .flat_map(|plane| (0..PASSES).map(move |pass| CodingStep { plane, pass }));
        let mut buckets = vec![Vec::new()];
        for step in steps {
            let is_first = buckets.len() == 1 && spread.left(step.plane + 1) > coarse;
            match buckets.last_mut() {
                Some(bucket) if is_first || bucket.is_empty() => bucket.push(step),
                _ => buckets.push(vec![step]),
            }
        }
        buckets
    }
}

/// The squared sum of differences that an NRMSE allows, of values divided by 2 to the exponent.
fn squared(range: &ValueRange, exponent: i32, nrmse: f64) -> f64 {
    let width = 2.0 * (range.half_width() / exp2(exponent));
    let most = nrmse * width;
    most * most * range.count as f64
}

fn assemble<T: Element>(
    shape: Shape,
    coding: Coding,
    range: ValueRange,
    highest: i32,
    steps: &[Vec<CodingStep>],
    blocks: &[WrittenBlock],
    is_exact: bool,
) -> PackedArray {
    let mut buckets = Vec::with_capacity(steps.len() + 1);
    let mut entries = Vec::with_capacity(steps.len() + 1);
    let mut put = |pieces: Vec<&[u8]>, steps: usize, error: MeasuredError| {
        let bytes = bucket(&pieces);
        entries.push(BucketEntry {
            steps: steps as u16,
            bytes: bytes.len() as u64,
            checksum: crc32fast::hash(&bytes),
            error,
        });
        buckets.push(bytes);
    };
    for (at, steps) in steps.iter().enumerate() {
        let mut sum = ErrorSum::default();
        let mut pieces: Vec<&[u8]> = Vec::new();
        for block in blocks {
            sum.merge(&block.errors[at]);
            if at == 0 {
                pieces.push(&block.head);
            }
            pieces.extend(block.pieces[at].iter().map(Vec::as_slice));
        }
        put(pieces, steps.len(), sum.error(range.count, coding.exponent));
    }
    if is_exact {
        let pieces = blocks.iter().map(|block| block.exact.as_slice());
        put(pieces.collect(), 0, MeasuredError::default());
    }
    PackedArray {
        header: ArrayHeader {
            name: String::new(),
            step: None,
            shape,
            element: T::TYPE,
            coding,
            range,
            highest,
            is_exact,
            buckets: entries,
        },
        buckets,
    }
}

/// A bucket: the lengths of its pieces, the length of these in 4 bytes before them, and the pieces.
fn bucket(pieces: &[&[u8]]) -> Vec<u8> {
    let mut index = Vec::new();
    pieces
        .iter()
        .for_each(|piece| put_number(&mut index, piece.len() as u64));
    let mut bytes = (index.len() as u32).to_le_bytes().to_vec();
    bytes.extend(index);
    pieces.iter().for_each(|piece| bytes.extend(*piece));
    bytes
}
