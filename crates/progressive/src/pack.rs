//! An array into buckets: the blocks are decomposed, the steps of coding are divided among buckets,
//! and every bucket gets the error that a reading up to it has, measured on what a reader has then.

use crate::ProgressiveError;
use crate::basis::Basis;
use crate::block::{BlockPlan, BlockWriter, Coding, Spread};
use crate::element::{Element, exp2};
use crate::error::{ErrorBound, ValueRange};
use crate::header::{ArrayHeader, PLANES_MAX};
use crate::planes::{CodingStep, PASSES};
use crate::shape::Shape;
use crate::spool::{BucketIndexes, MemorySpool, PieceSpool};
use crate::values::{SliceValues, ValueSource, coding, values_of};
use crate::work::in_order;

/// The first bucket is about this precise, as a share of the range: no reader wants less.
const BASE_NRMSE: f64 = 0.1;
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

/// An array as a header and buckets whose pieces a [`PieceSpool`] has.
#[derive(Clone, Debug, PartialEq)]
pub struct SpooledArray {
    /// What is known without the buckets.
    pub header: ArrayHeader,
    /// The bytes of each bucket that come before its pieces.
    pub starts: Vec<Vec<u8>>,
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
    let dims = shape.whole().size;
    let mut spool = MemorySpool::default();
    let packed = pack_from(&SliceValues { values, dims }, shape, config, &mut spool)?;
    // A bucket may have no pieces.
    spool.buckets.resize_with(packed.starts.len(), Vec::new);
    let buckets = packed.starts.into_iter().zip(spool.buckets);
    let bucket = |(mut start, pieces): (Vec<u8>, Vec<u8>)| {
        start.extend(pieces);
        start
    };
    Ok(PackedArray {
        header: packed.header,
        buckets: buckets.map(bucket).collect(),
    })
}

/// Packs an array that need not be in memory: values are asked for as they are needed, and packed
/// pieces are given to a spool. In memory are a few blocks for each thread, and the lengths of all
/// pieces. A bucket is its [`SpooledArray::starts`] and the pieces that the spool has of it.
///
/// The values are gone through three times: for their range, for the planes of the coefficients,
/// and to be coded. Coefficients are computed twice, since they would take more room than values.
///
/// # Errors
///
/// The finest error is no share of a range, values cannot be read, or pieces cannot be kept.
pub fn pack_from<T: Element>(
    source: &impl ValueSource<T>,
    shape: Shape,
    config: &PackConfig,
    spool: &mut impl PieceSpool,
) -> Result<SpooledArray, ProgressiveError> {
    if !(config.finest > 0.0 && config.finest < 1.0) {
        return Err(ProgressiveError::Bound {
            bound: ErrorBound::Nrmse(config.finest).to_string(),
            reason: "the finest error is a share of the range, between 0 and 1",
        });
    }
    let (coding, range) = coding(source, &shape, config.basis, config.fill)?;
    let (count, threads) = (shape.block_count() as usize, config.threads);
    let block = |at: usize| {
        let region = shape.block(at);
        let values = values_of(source, &region)?;
        Ok(BlockWriter::new(values, &region, coding))
    };
    let mut spread = Spread::new();
    let seen = |at: usize| block(at).map(|writer| writer.spread());
    in_order(threads, count, seen, |more| {
        spread.merge(&more);
        Ok(())
    })?;
    let planes = Planes::of(
        &spread,
        &range,
        coding.exponent,
        finest(&coding, &range, config),
    );
    let plan = BlockPlan {
        buckets: planes.buckets(&spread, &range, coding.exponent),
        lowest: planes.lowest,
        is_exact: config.is_exact,
    };
    let mut indexes = BucketIndexes::new(plan.buckets.len() + usize::from(plan.is_exact));
    let written = |at: usize| block(at).map(|writer| writer.write(&plan));
    in_order(threads, count, written, |block| indexes.take(&block, spool))?;
    let steps: Vec<usize> = plan.buckets.iter().map(Vec::len).collect();
    let (buckets, starts) = indexes.finish(&steps, |sum| sum.error(range.count, coding.exponent));
    let header = ArrayHeader {
        name: String::new(),
        step: None,
        on_mesh: false,
        shape,
        element: T::TYPE,
        coding,
        range,
        highest: planes.highest,
        is_exact: config.is_exact,
        buckets,
    };
    Ok(SpooledArray { header, starts })
}

/// The error at which the approximations end.
fn finest(coding: &Coding, range: &ValueRange, config: &PackConfig) -> f64 {
    match coding.grid {
        // Whoever wants the values exactly is better served by differences from there on.
        Some(grid) if config.is_exact => {
            let distance = exp2(grid) / (2.0 * range.half_width());
            config.finest.max(GRID_RMSE * distance)
        }
        _ => config.finest,
    }
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
