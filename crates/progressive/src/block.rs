//! One block: its values as coefficients of groups of levels, the values that are no numbers, and
//! the differences that make a reading exact.

use crate::ProgressiveError;
use crate::basis::{Basis, Levels};
use crate::element::{Element, exp2, of_ordered, ordered};
use crate::error::ErrorSum;
use crate::pieces::{Input, put_number, squeezed};
use crate::planes::{CodingStep, GroupReader, GroupState, GroupWriter};
use crate::shape::{AXES_MAX, Region};

/// Groups of levels, each of which can be read without the finer ones. The last one has all levels
/// from the fourth on.
pub const GROUPS: usize = 4;
/// Bound of the exponent of the grid.
pub(crate) const GRID_MAX: i32 = 900;
/// Exponents of coefficients that are told apart in a [`Spread`].
const EXPONENTS: std::ops::Range<i32> = -300..100;

/// How the values of an array are coded; the same for all of its blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coding {
    pub(crate) basis: Basis,
    /// Values are divided by 2 to the power of this.
    pub(crate) exponent: i32,
    /// Which axes of the array are longer than 1.
    pub(crate) long: [bool; AXES_MAX],
    /// The bits of the value that stands for a missing one.
    pub(crate) fill: Option<u64>,
    /// Range of the values that are there.
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// All values are multiples of 2 to the power of this.
    pub(crate) grid: Option<i32>,
}

impl Coding {
    /// The levels of a group in a block.
    fn group(levels: &Levels, group: usize) -> std::ops::Range<usize> {
        let last = levels.count() - 1;
        match group + 1 == GROUPS {
            true => last.min(GROUPS - 1)..levels.count(),
            false => group.min(last)..(group + 1).min(last),
        }
    }

    fn is_missing<T: Element>(&self, value: T) -> bool {
        !value.to_f64().is_finite() || self.fill == Some(value.to_bits())
    }

    /// The value that the composed number of a block stands for.
    fn value<T: Element>(&self, number: f64) -> T {
        let number = number * exp2(self.exponent);
        // The values are within the range, so this makes no error larger.
        T::from_f64(number.clamp(self.min, self.max))
    }

    /// What has to be added to the reading of a value to make it exact, as an unsigned number.
    fn difference<T: Element>(&self, value: T, read: T) -> u64 {
        let difference = match self.grid {
            Some(grid) => multiple(value, grid).wrapping_sub(multiple(read, grid)),
            None => {
                // In the width of the type, so that folding keeps it.
                let shift = 64 - 8 * T::TYPE.size();
                let places = ordered(value).wrapping_sub(ordered(read));
                (places << shift).cast_signed() >> shift
            }
        };
        (difference << 1 ^ difference >> 63).cast_unsigned()
    }

    /// The value of which a reading has a difference.
    fn corrected<T: Element>(&self, read: T, folded: u64) -> T {
        let difference = folded >> 1 ^ (folded & 1).wrapping_neg();
        match self.grid {
            Some(grid) => {
                let multiple = multiple(read, grid).wrapping_add(difference.cast_signed());
                T::from_f64(multiple as f64 * exp2(grid))
            }
            None => of_ordered(ordered(read).wrapping_add(difference)),
        }
    }
}

/// The number of times that a value has 2 to the power of an exponent, rounded.
fn multiple<T: Element>(value: T, grid: i32) -> i64 {
    (value.to_f64() * exp2(-grid)).round() as i64
}

/// How much of the squared sum of coefficients has which exponent.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    counts: Vec<u64>,
    squares: Vec<f64>,
}

impl Spread {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; EXPONENTS.len()],
            squares: vec![0.0; EXPONENTS.len()],
        }
    }

    fn add(&mut self, value: f64) {
        let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1_023;
        let at = exponent.clamp(EXPONENTS.start, EXPONENTS.end - 1) - EXPONENTS.start;
        self.counts[at as usize] += 1;
        self.squares[at as usize] += value * value;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum += more;
        }
        for (sum, more) in self.squares.iter_mut().zip(&other.squares) {
            *sum += more;
        }
    }

    /// The highest exponent of a coefficient; `None` if all are 0 or nearly so.
    pub(crate) fn highest(&self) -> Option<i32> {
        let last = self.counts.iter().rposition(|&count| count > 0)?;
        (last > 0).then_some(EXPONENTS.start + last as i32)
    }

    /// The squared error of all coefficients, about, if they are known down to a plane.
    pub(crate) fn left(&self, plane: i32) -> f64 {
        let square = exp2(2 * plane) / 12.0;
        let all = self.counts.iter().zip(&self.squares).enumerate();
        all.map(
            |(at, (&count, &squares))| match EXPONENTS.start + (at as i32) < plane {
                true => squares,
                false => count as f64 * square,
            },
        )
        .sum()
    }
}

/// A block that is being written.
pub(crate) struct BlockWriter<T> {
    values: Vec<T>,
    coding: Coding,
    levels: Levels,
    /// The middle of the block's values, which is taken from all of them.
    middle: f64,
    coefficients: Vec<f64>,
}

impl<T: Element> BlockWriter<T> {
    /// Decomposes the values of a block.
    pub(crate) fn new(values: Vec<T>, region: &Region, coding: Coding) -> Self {
        let unit = exp2(-coding.exponent);
        let there = values.iter().filter(|&&value| !coding.is_missing(value));
        let (min, max) = there.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
            let value = value.to_f64() * unit;
            (min.min(value), max.max(value))
        });
        let middle = if min <= max {
            min / 2.0 + max / 2.0
        } else {
            0.0
        };
        let mut last = 0.0;
        let number = |&value: &T| {
            // Missing values are as the one before them, so that they cost little.
            if !coding.is_missing(value) {
                last = value.to_f64() * unit - middle;
            }
            last
        };
        let mut coefficients: Vec<f64> = values.iter().map(number).collect();
        let levels = Levels::new(region.size);
        levels.forward(coding.basis, &mut coefficients);
        Self {
            values,
            coding,
            levels,
            middle,
            coefficients,
        }
    }

    pub(crate) fn spread(&self) -> Spread {
        let mut spread = Spread::new();
        self.coefficients
            .iter()
            .for_each(|&value| spread.add(value));
        spread
    }

    /// Writes the head and the pieces of all buckets, each with one for every group, and measures
    /// the error of a reading after each bucket.
    pub(crate) fn write(self, plan: &BlockPlan) -> WrittenBlock {
        let (buckets, lowest) = (&plan.buckets, plan.lowest);
        let dims = self.levels.dims;
        let state = |group| {
            let levels = Coding::group(&self.levels, group);
            GroupState::new(&self.levels, levels, self.coding.long)
        };
        let writer = |group| GroupWriter::new(state(group), &self.coefficients, dims, lowest);
        let mut writers: [GroupWriter; GROUPS] = std::array::from_fn(writer);
        let (head, is_holed) = self.head();
        let mut written = WrittenBlock {
            head,
            pieces: Vec::with_capacity(buckets.len()),
            errors: Vec::with_capacity(buckets.len()),
            exact: None,
        };
        let mut numbers = vec![0.0; self.values.len()];
        for steps in buckets {
            let pieces: [Vec<u8>; GROUPS] = std::array::from_fn(|at| writers[at].write(steps));
            let error = match written.errors.last() {
                // What changes nothing needs no look.
                Some(last) if pieces.iter().all(Vec::is_empty) => *last,
                _ => {
                    self.compose(&writers, &mut numbers);
                    self.error(is_holed, &numbers)
                }
            };
            written.errors.push(error);
            written.pieces.push(pieces);
        }
        if plan.is_exact {
            written.exact = Some(self.exact(&numbers));
        }
        written
    }

    /// Composes the numbers as a reader of what was written does.
    fn compose(&self, writers: &[GroupWriter], numbers: &mut [f64]) {
        for writer in writers {
            writer.put(numbers, self.levels.dims);
        }
        self.levels.inverse(self.coding.basis, 0, numbers);
    }

    /// The head: the middle, and which values are missing; and whether there are such.
    fn head(&self) -> (Vec<u8>, bool) {
        let mut head = self.middle.to_le_bytes().to_vec();
        let missing: Vec<usize> = (0..self.values.len())
            .filter(|&at| self.coding.is_missing(self.values[at]))
            .collect();
        let Some(&first) = missing.first() else {
            return (head, false);
        };
        let mut mask = vec![0; self.values.len().div_ceil(8)];
        missing.iter().for_each(|&at| mask[at / 8] |= 1 << (at % 8));
        let mask = squeezed(&mask);
        put_number(&mut head, mask.len() as u64);
        head.extend(mask);
        let size = T::TYPE.size();
        let bits = |at: usize| self.values[at].to_bits().to_le_bytes();
        head.extend(&bits(first)[..size]);
        if missing.iter().any(|&at| bits(at) != bits(first)) {
            let all: Vec<u8> = missing
                .iter()
                .flat_map(|&at| bits(at)[..size].to_vec())
                .collect();
            head.extend(squeezed(&all));
        }
        (head, true)
    }

    fn error(&self, is_holed: bool, numbers: &[f64]) -> ErrorSum {
        // A power of 2 that makes the largest magnitude about 1.
        let unit = exp2(-self.coding.exponent);
        let difference = |value: T, number: f64| {
            let read: T = self.coding.value(number + self.middle);
            value.to_f64() * unit - read.to_f64() * unit
        };
        let there = |value: T, number: f64| match self.coding.is_missing(value) {
            true => 0.0,
            false => difference(value, number),
        };
        match is_holed {
            true => ErrorSum::of(&self.values, numbers, there),
            false => ErrorSum::of(&self.values, numbers, difference),
        }
    }

    /// The differences of the values and their reading.
    fn exact(&self, numbers: &[f64]) -> Vec<u8> {
        let size = T::TYPE.size();
        let count = self.values.len();
        // All first bytes, then all second bytes, and so on: most differences are small.
        let mut bytes = vec![0; count * size];
        for (at, &value) in self.values.iter().enumerate() {
            if self.coding.is_missing(value) {
                continue;
            }
            let read: T = self.coding.value(numbers[at] + self.middle);
            let folded = self.coding.difference(value, read);
            for (byte, part) in folded.to_le_bytes()[..size].iter().enumerate() {
                bytes[byte * count + at] = *part;
            }
        }
        squeezed(&bytes)
    }
}

/// What is written of each block of an array.
pub(crate) struct BlockPlan {
    /// The steps of each bucket; there is one bucket at least.
    pub(crate) buckets: Vec<Vec<CodingStep>>,
    /// The lowest plane.
    pub(crate) lowest: i32,
    /// Whether differences make a reading exact.
    pub(crate) is_exact: bool,
}

/// The parts of a block.
pub(crate) struct WrittenBlock {
    pub(crate) head: Vec<u8>,
    /// By bucket and group.
    pub(crate) pieces: Vec<[Vec<u8>; GROUPS]>,
    /// After each bucket.
    pub(crate) errors: Vec<ErrorSum>,
    /// The differences that make a reading exact.
    pub(crate) exact: Option<Vec<u8>>,
}

/// A block that is being read.
pub(crate) struct BlockReader<T> {
    coding: Coding,
    levels: Levels,
    middle: f64,
    groups: [GroupReader; GROUPS],
    /// The missing values and their places.
    missing: Vec<(usize, T)>,
    /// The values, once they are known exactly.
    exact: Option<Vec<T>>,
}

impl<T: Element> BlockReader<T> {
    /// Reads the head of a block of these lengths.
    pub(crate) fn new(
        dims: [usize; AXES_MAX],
        coding: Coding,
        head: &[u8],
    ) -> Result<Self, ProgressiveError> {
        let levels = Levels::new(dims);
        let mut input = Input::new("the head of a block", head);
        let middle = f64::from_le_bytes(input.array()?);
        if !middle.is_finite() {
            return Err(input.fault("its middle is no number"));
        }
        let missing = missing(input, dims.iter().product())?;
        let reader = |group| {
            let of = Coding::group(&levels, group);
            GroupReader::new(GroupState::new(&levels, of, coding.long))
        };
        Ok(Self {
            groups: std::array::from_fn(reader),
            levels,
            coding,
            middle,
            missing,
            exact: None,
        })
    }

    /// Reads a piece of a group.
    pub(crate) fn read(&mut self, group: usize, steps: &[CodingStep], piece: &[u8]) {
        self.groups[group].read(steps, piece);
    }

    /// Composes the numbers of a level, in place in a block of the finest one's size.
    fn compose(&self, level: usize, numbers: &mut [f64]) {
        for group in &self.groups {
            group.put(numbers, self.levels.dims);
        }
        self.levels.inverse(self.coding.basis, level, numbers);
        let scale = self.levels.value_scale(level);
        if scale != 1.0 {
            numbers.iter_mut().for_each(|number| *number /= scale);
        }
    }

    /// The values as far as they are read. Those of a coarser level are in the first corner of the
    /// block, as long as the level; missing values are only at the finest level.
    pub(crate) fn values(&self, level: usize) -> Vec<T> {
        if let (Some(exact), 0) = (&self.exact, level) {
            return exact.clone();
        }
        let mut numbers = vec![0.0; self.levels.dims.iter().product()];
        self.compose(level, &mut numbers);
        let value = |&number: &f64| self.coding.value(number + self.middle);
        let mut values: Vec<T> = numbers.iter().map(value).collect();
        if level == 0 {
            self.missing
                .iter()
                .for_each(|&(at, value)| values[at] = value);
        }
        values
    }

    /// Makes the reading exact, if all buckets before were read.
    pub(crate) fn read_exact(&mut self, piece: &[u8]) -> Result<(), ProgressiveError> {
        let mut values = self.values(0);
        let (count, size) = (values.len(), T::TYPE.size());
        let bytes = Input::new("a piece of differences", piece).expanded(count * size)?;
        for (at, value) in values.iter_mut().enumerate() {
            let mut folded = [0; 8];
            for (byte, part) in folded[..size].iter_mut().enumerate() {
                *part = bytes[byte * count + at];
            }
            *value = self.coding.corrected(*value, u64::from_le_bytes(folded));
        }
        self.missing
            .iter()
            .for_each(|&(at, value)| values[at] = value);
        self.exact = Some(values);
        Ok(())
    }
}

/// Reads which values are missing.
fn missing<T: Element>(
    mut input: Input<'_>,
    count: usize,
) -> Result<Vec<(usize, T)>, ProgressiveError> {
    if input.is_empty() {
        return Ok(Vec::new());
    }
    let length = input.number()?;
    let mask = input.take(usize::try_from(length).unwrap_or(usize::MAX))?;
    let mask = Input::new("the mask of a block", mask).expanded(count.div_ceil(8))?;
    let places: Vec<usize> = (0..count)
        .filter(|at| mask[at / 8] >> (at % 8) & 1 == 1)
        .collect();
    let size = T::TYPE.size();
    let value = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(bytes);
        T::from_bits(u64::from_le_bytes(bits))
    };
    let first = value(input.take(size)?);
    if input.is_empty() {
        return Ok(places.into_iter().map(|at| (at, first)).collect());
    }
    let values = input.expanded(places.len() * size)?;
    let values = values.chunks_exact(size).map(value);
    Ok(places.into_iter().zip(values).collect())
}
