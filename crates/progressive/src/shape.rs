//! The shape of an array, and the blocks into which it is divided: every block is transformed and
//! coded by itself, so that parts can be read alone and threads share the work.

use std::ops::Range;

use crate::ProgressiveError;

/// Most axes of an array.
pub const AXES_MAX: usize = 4;
/// Most values of an array.
pub const VALUES_MAX: u64 = 1 << 40;
/// Most blocks of an array.
pub const BLOCKS_MAX: u64 = 1 << 22;
/// Longest sides of a block, in values, by the number of axes that are longer than 1. A block has
/// at most 2^18 values, which stay in a processor's cache.
const BLOCK_SIDES: [[usize; AXES_MAX]; AXES_MAX + 1] = [
    [1, 1, 1, 1],
    [1, 1, 1, 1 << 18],
    [1, 1, 512, 512],
    [1, 64, 64, 64],
    [32, 32, 16, 16],
];

/// The lengths of an array's axes. The last axis is the one whose values lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    axes: usize,
    /// The lengths; those before the first axis are 1.
    dims: [usize; AXES_MAX],
}

/// A box of values: where it begins and how long it is, by axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First value of each axis; the axes before an array's first one have 0.
    pub start: [usize; AXES_MAX],
    /// Number of values of each axis; the axes before an array's first one have 1.
    pub size: [usize; AXES_MAX],
}

impl Shape {
    /// A shape of 1 to 4 axes.
    ///
    /// # Errors
    ///
    /// There are no axes or too many, an axis is empty, or there are too many values.
    pub fn new(dims: &[usize]) -> Result<Self, ProgressiveError> {
        let refused = |reason: String| Err(ProgressiveError::Shape { reason });
        if dims.is_empty() || dims.len() > AXES_MAX {
            return refused(format!("{} axes: it must be 1 to {AXES_MAX}", dims.len()));
        }
        let mut all = [1; AXES_MAX];
        all[AXES_MAX - dims.len()..].copy_from_slice(dims);
        let count = dims.iter().try_fold(1_u64, |count, &n| {
            count.checked_mul(n as u64).filter(|&it| it <= VALUES_MAX)
        });
        let shape = Self {
            axes: dims.len(),
            dims: all,
        };
        match count {
            None => refused(format!("more than {VALUES_MAX} values")),
            Some(0) => refused("an axis has no values".into()),
            Some(_) if shape.block_count() > BLOCKS_MAX => {
                refused(format!("more than {BLOCKS_MAX} blocks"))
            }
            Some(_) => Ok(shape),
        }
    }

    /// The lengths of the axes.
    pub fn dims(&self) -> &[usize] {
        &self.dims[AXES_MAX - self.axes..]
    }

    /// Number of values.
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// The box of all values.
    pub fn whole(&self) -> Region {
        Region {
            start: [0; AXES_MAX],
            size: self.dims,
        }
    }

    /// A box given by ranges of the axes, if it is within the array and not empty.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn region(&self, ranges: &[Range<usize>]) -> Result<Region, ProgressiveError> {
        let is_within = |(range, &length): (&Range<usize>, &usize)| {
            range.start < range.end && range.end <= length
        };
        if ranges.len() != self.axes || !ranges.iter().zip(self.dims()).all(is_within) {
            return Err(ProgressiveError::Shape {
                reason: format!("the region {ranges:?} is not within {:?}", self.dims()),
            });
        }
        let mut region = self.whole();
        for (axis, range) in (AXES_MAX - self.axes..).zip(ranges) {
            region.start[axis] = range.start;
            region.size[axis] = range.len();
        }
        Ok(region)
    }

    /// Number of axes that are longer than 1: what the coding of the array depends on.
    pub(crate) fn long_axes(&self) -> usize {
        self.dims.iter().filter(|&&n| n > 1).count()
    }

    /// Which axes are longer than 1.
    pub(crate) fn long(&self) -> [bool; AXES_MAX] {
        self.dims.map(|n| n > 1)
    }

    /// The longest sides of this array's blocks.
    fn block_sides(&self) -> [usize; AXES_MAX] {
        let sides = BLOCK_SIDES[self.long_axes()];
        // The sides belong to the long axes, in their order.
        let mut left = sides[AXES_MAX - self.long_axes()..].iter();
        self.dims.map(|n| match n {
            1 => 1,
            _ => left.next().copied().unwrap_or(1),
        })
    }

    /// Numbers of blocks along the axes.
    fn block_counts(&self) -> [usize; AXES_MAX] {
        let sides = self.block_sides();
        std::array::from_fn(|axis| self.dims[axis].div_ceil(sides[axis]))
    }

    /// Number of blocks.
    pub(crate) fn block_count(&self) -> u64 {
        self.block_counts().iter().map(|&n| n as u64).product()
    }

    /// The box of a block. Blocks of an axis differ in length by at most 1.
    pub(crate) fn block(&self, index: usize) -> Region {
        let counts = self.block_counts();
        let mut left = index;
        let mut region = Region::default();
        for axis in (0..AXES_MAX).rev() {
            let (count, n) = (counts[axis], self.dims[axis]);
            let at = left % count;
            left /= count;
            region.start[axis] = bound(n, count, at);
            region.size[axis] = bound(n, count, at + 1) - bound(n, count, at);
        }
        region
    }

    /// The blocks that have values of a region.
    pub(crate) fn blocks_of(&self, region: &Region) -> Vec<usize> {
        let cells = self.cells(region);
        let runs = cells.runs(self.block_counts());
        runs.flat_map(|first| first..first + cells.size[AXES_MAX - 1])
            .collect()
    }

    /// The blocks that have values of a region, as a box of the grid of blocks.
    fn cells(&self, region: &Region) -> Region {
        let counts = self.block_counts();
        // The block of a value: the last one that does not begin after it.
        let cell = |axis: usize, at: usize| {
            let (count, n) = (counts[axis] as u64, self.dims[axis] as u64);
            (((at as u64 + 1) * count - 1) / n) as usize
        };
        let first = |axis: usize| cell(axis, region.start[axis]);
        let last = |axis: usize| cell(axis, region.start[axis] + region.size[axis] - 1);
        Region {
            start: std::array::from_fn(first),
            size: std::array::from_fn(|axis| last(axis) + 1 - first(axis)),
        }
    }

    /// Boxes of at most so many values that follow each other in C order and are all of the array.
    pub(crate) fn stretches(&self, values_max: usize) -> impl Iterator<Item = Region> + use<> {
        stretches(self.dims, values_max)
    }

    /// The parts of a region that boxes of whole blocks have, so that each block is in one of them.
    /// A box has at most so many values, or it is one block.
    pub(crate) fn parts(
        &self,
        region: Region,
        values_max: usize,
    ) -> impl Iterator<Item = Region> + use<> {
        let (shape, cells, counts) = (*self, self.cells(&region), self.block_counts());
        let side = |axis: usize| self.dims[axis].div_ceil(counts[axis]);
        let largest: usize = (0..AXES_MAX).map(side).product();
        let parts = stretches(cells.size, values_max / largest);
        parts.filter_map(move |part| {
            let first: [usize; AXES_MAX] =
                std::array::from_fn(|axis| cells.start[axis] + part.start[axis]);
            let end = |axis: usize| first[axis] + part.size[axis];
            let bound = |axis: usize, at: usize| bound(shape.dims[axis], counts[axis], at);
            let values = Region {
                start: std::array::from_fn(|axis| bound(axis, first[axis])),
                size: std::array::from_fn(|axis| bound(axis, end(axis)) - bound(axis, first[axis])),
            };
            values.common(&region)
        })
    }
}

impl Region {
    /// Number of values.
    pub fn count(&self) -> usize {
        self.size.iter().product()
    }

    /// The values that two boxes have in common; `None` if there are none.
    pub(crate) fn common(&self, other: &Self) -> Option<Self> {
        let mut common = Self::default();
        for axis in 0..AXES_MAX {
            let end = |region: &Self| region.start[axis] + region.size[axis];
            let start = self.start[axis].max(other.start[axis]);
            common.start[axis] = start;
            common.size[axis] = end(self).min(end(other)).checked_sub(start)?;
        }
        (common.count() > 0).then_some(common)
    }

    /// The same box with its place counted from the beginning of another one that has it.
    pub fn within(&self, outer: &Self) -> Self {
        Self {
            start: std::array::from_fn(|axis| self.start[axis] - outer.start[axis]),
            size: self.size,
        }
    }

    /// Places of the runs of values that lie side by side, in an array of these lengths: each run
    /// has as many values as the box is long in the last axis.
    pub fn runs(&self, dims: [usize; AXES_MAX]) -> impl Iterator<Item = usize> + use<> {
        let (start, size) = (self.start, self.size);
        let strides = strides(dims);
        (0..size[0]).flat_map(move |a| {
            (0..size[1]).flat_map(move |b| {
                (0..size[2]).map(move |c| {
                    let at = [a, b, c, 0];
                    (0..AXES_MAX)
                        .map(|axis| (start[axis] + at[axis]) * strides[axis])
                        .sum()
                })
            })
        })
    }
}

/// Where a block of an axis begins, of `count` blocks of `n` values.
fn bound(n: usize, count: usize, at: usize) -> usize {
    (at as u64 * n as u64 / count as u64) as usize
}

/// Boxes that follow each other in C order and are all of an array of these lengths. A box has at
/// most so many values, or it is one value.
fn stretches(dims: [usize; AXES_MAX], values_max: usize) -> impl Iterator<Item = Region> + use<> {
    // The axis along which the array is cut: all after it are whole, and of those before it a box
    // has one place each.
    let mut axis = AXES_MAX - 1;
    let mut inner = 1;
    while axis > 0 && inner * dims[axis] <= values_max {
        inner *= dims[axis];
        axis -= 1;
    }
    let step = (values_max / inner).clamp(1, dims[axis]);
    let steps = dims[axis].div_ceil(step);
    let outer: usize = dims[..axis].iter().product();
    (0..outer * steps).map(move |index| {
        let mut region = Region {
            start: [0; AXES_MAX],
            size: dims,
        };
        region.start[axis] = index % steps * step;
        region.size[axis] = step.min(dims[axis] - region.start[axis]);
        let mut left = index / steps;
        for before in (0..axis).rev() {
            region.start[before] = left % dims[before];
            region.size[before] = 1;
            left /= dims[before];
        }
        region
    })
}

/// Distances between neighbours along the axes, in values.
pub(crate) fn strides(dims: [usize; AXES_MAX]) -> [usize; AXES_MAX] {
    let mut strides = [1; AXES_MAX];
    for axis in (0..AXES_MAX - 1).rev() {
        strides[axis] = strides[axis + 1] * dims[axis + 1];
    }
    strides
}

/// Copies a box of `from`, an array of the lengths `from_dims`, to a place of the same size in
/// `to`.
pub(crate) fn copy_box<T: Copy>(
    (from, from_dims, from_box): (&[T], [usize; AXES_MAX], &Region),
    (to, to_dims, to_box): (&mut [T], [usize; AXES_MAX], &Region),
) {
    let run = from_box.size[AXES_MAX - 1];
    let targets = to_box.runs(to_dims);
    for (source, target) in from_box.runs(from_dims).zip(targets) {
        to[target..target + run].copy_from_slice(&from[source..source + run]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes_that_are_refused() {
        for (dims, expect) in [
            (&[][..], "0 axes"),
            (&[1, 1, 1, 1, 1], "5 axes"),
            (&[3, 0], "no values"),
            (&[usize::MAX, 2], "more than"),
            (&[1 << 40, 2], "more than"),
        ] {
            let error = Shape::new(dims).unwrap_err().to_string();
            assert!(error.contains(expect), "{dims:?}: {error}");
        }
        let shape = Shape::new(&[4, 5]).unwrap();
        assert!(shape.region(&[0..4, 5..5]).is_err());
        assert!(shape.region(&[0..5, 0..5]).is_err());
        let short = 0..4;
        assert!(shape.region(std::slice::from_ref(&short)).is_err());
        assert_eq!(shape.region(&[1..3, 2..5]).unwrap().count(), 6);
    }

    #[test]
    fn blocks_follow_the_long_axes() {
        let check = |dims: &[usize], count: u64, size: [usize; 4]| {
            let shape = Shape::new(dims).unwrap();
            let seen = (shape.block_count(), shape.block(0).size);
            assert_eq!(seen, (count, size), "{dims:?}");
        };
        check(&[7], 1, [1, 1, 1, 7]);
        check(&[1, 1, 300_000], 2, [1, 1, 1, 150_000]);
        check(&[300_000, 1], 2, [1, 1, 150_000, 1]);
        check(&[344, 403], 1, [1, 1, 344, 403]);
        check(&[1025, 512], 3, [1, 1, 341, 512]);
        check(&[65, 1, 64, 10], 2, [32, 1, 64, 10]);
        check(&[33, 33, 17, 17], 16, [16, 16, 8, 8]);
    }

    proptest! {
        #[test]
        fn blocks_are_all_of_the_array(a in 1..40_usize, b in 1..40_usize, c in 1..70_usize, d in 1..1_100_usize) {
            let shape = Shape::new(&[a, b, c, d]).unwrap();
            let blocks = (0..shape.block_count() as usize).map(|index| shape.block(index));
            let mut covered = 0;
            for block in blocks {
                prop_assert!(block.count() <= 1 << 18 && block.count() > 0);
                prop_assert_eq!(block.common(&shape.whole()), Some(block));
                covered += block.count();
            }
            prop_assert_eq!(covered, shape.count());
        }
    }
}
