//! The values of an array that is packed: they come box by box from wherever they lie, and are
//! looked at once as a whole before anything is coded.

use std::io;

use crate::ProgressiveError;
use crate::basis::Basis;
use crate::block::{Coding, GRID_MAX};
use crate::element::{Element, exp2, lowest_bit};
use crate::error::ValueRange;
use crate::shape::{AXES_MAX, Region, Shape, copy_box};

/// Largest multiple: the differences of a bucket have 32 bits at least.
const MULTIPLE_MAX: f64 = (1 << 22) as f64;
/// Values that are looked at together: those of a block, so that they stay in the cache.
const STRETCH_VALUES: usize = 1 << 18;

/// The values of an array, which are asked for box by box, by several threads at once. Each box is
/// asked for up to three times; packing assumes that its values are the same each time.
pub trait ValueSource<T>: Sync {
    /// Puts the values of a box into `values`, which has as many places, in C order.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    fn put_values(&self, region: &Region, values: &mut [T]) -> io::Result<()>;
}

impl<T, S: ValueSource<T>> ValueSource<T> for &S {
    fn put_values(&self, region: &Region, values: &mut [T]) -> io::Result<()> {
        (**self).put_values(region, values)
    }
}

/// Values in memory, in C order.
pub(crate) struct SliceValues<'a, T> {
    pub(crate) values: &'a [T],
    /// Lengths of the axes.
    pub(crate) dims: [usize; AXES_MAX],
}

impl<T: Element> ValueSource<T> for SliceValues<'_, T> {
    fn put_values(&self, region: &Region, values: &mut [T]) -> io::Result<()> {
        let target = region.within(region);
        copy_box(
            (self.values, self.dims, region),
            (values, region.size, &target),
        );
        Ok(())
    }
}

/// The values of a box.
pub(crate) fn values_of<T: Element>(
    source: &impl ValueSource<T>,
    region: &Region,
) -> Result<Vec<T>, ProgressiveError> {
    let mut values = vec![T::default(); region.count()];
    let put = source.put_values(region, &mut values);
    put.map(|()| values)
        .map_err(|error| ProgressiveError::Fetch {
            reason: error.to_string(),
        })
}

/// Finds the range of the values, and how they are coded. `fill` stands for a missing value.
pub(crate) fn coding<T: Element>(
    source: &impl ValueSource<T>,
    shape: &Shape,
    basis: Basis,
    fill: Option<f64>,
) -> Result<(Coding, ValueRange), ProgressiveError> {
    let fill = fill.map(|value| T::from_f64(value).to_bits());
    let there = |value: &&T| value.to_f64().is_finite() && Some(value.to_bits()) != fill;
    let mut range = ValueRange::NOTHING;
    // The greatest power of 2 of which all values up to here are multiples, if there is one.
    let mut grid = Some(i32::MAX);
    // In C order: of two zeros with different signs, the order decides which one is the smallest.
    for region in shape.stretches(STRETCH_VALUES) {
        let values = values_of(source, &region)?;
        range = range.with(values.iter().filter(there).map(|value| value.to_f64()));
        grid = grid.and_then(|grid| common_grid(grid, values.iter().filter(there).copied()));
    }
    let bits = range.magnitude().to_bits() >> 52;
    let coding = Coding {
        basis,
        // Within what the header can say; values far beyond it are still within f64's range.
        exponent: (bits as i32 - 1_022).clamp(-1_000, 1_000),
        long: shape.long(),
        fill,
        min: range.min,
        max: range.max,
        grid: grid.filter(|&grid| is_moderate(grid, &range)),
    };
    Ok((coding, range))
}

/// The power of 2 of which all values are multiples and 2 to the power of `grid` too.
fn common_grid<T: Element>(grid: i32, values: impl Iterator<Item = T>) -> Option<i32> {
    let lowest = |least: i32, value: T| match value.to_f64() {
        // The zero that has a sign is no multiple that would be found again.
        0.0 if value.to_bits() != 0 => None,
        0.0 => Some(least),
        value => lowest_bit(value).map(|bit| bit.min(least)),
    };
    { values }.try_fold(grid, lowest)
}

/// Whether all values are whole numbers of 22 bits at most on this grid: then a reading that is
/// near enough is exact once it is rounded.
fn is_moderate(grid: i32, range: &ValueRange) -> bool {
    (-GRID_MAX..=GRID_MAX).contains(&grid) && range.magnitude() * exp2(-grid) <= MULTIPLE_MAX
}
