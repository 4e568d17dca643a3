//! The hierarchical decomposition of a block: from the finest to the coarsest level, neighbours are
//! predicted from each other along every axis, and what remains are coefficients that are mostly
//! near 0.
//!
//! Steps of lifting (Sweldens 1996) give each basis: the linear one is the prolongation of Tango
//! (section III-B), the cubic one interpolates from four neighbours (Deslauriers and Dubuc), and
//! the wavelet is Cohen, Daubechies and Feauveau's 9/7, whose coefficients have nearly the squared
//! error of the values. All arithmetic is in f64, in a fixed order and without fused operations, so
//! that results have the same bits on every machine.

use crate::shape::{AXES_MAX, Region, strides};

/// An axis is divided no further if it is shorter than this.
const SPLIT_MIN: usize = 8;
/// Most lines that are transformed together.
const LANES: usize = 32;

/// How values are predicted from their neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// From two neighbours.
    Linear,
    /// From four neighbours.
    Cubic,
    /// The 9/7 wavelet, which also smooths what remains.
    #[default]
    Wavelet,
}

/// A step of lifting: values of one parity get weighted sums of their neighbours of the other one.
enum LiftStep {
    /// Odd values get the weighted sum of both even neighbours.
    OddFromTwo(f64),
    /// Even values get the weighted sum of both odd neighbours.
    EvenFromTwo(f64),
    /// Odd values get the negative mean of their four even neighbours by a cubic, where there are
    /// four.
    OddFromFour,
}

impl Basis {
    fn steps(self) -> &'static [LiftStep] {
        use LiftStep::{EvenFromTwo, OddFromFour, OddFromTwo};
        match self {
            Self::Linear => &[OddFromTwo(-0.5)],
            Self::Cubic => &[OddFromFour],
            Self::Wavelet => &[
                OddFromTwo(-1.586_134_342_059_924),
                EvenFromTwo(-0.052_980_118_572_961),
                OddFromTwo(0.882_911_075_530_934),
                EvenFromTwo(0.443_506_852_043_971),
            ],
        }
    }

    /// Factors of the smoothed and of the remaining values, such that a coefficient of any level
    /// weighs about as much in the squared error of the values.
    fn scales(self) -> (f64, f64) {
        match self {
            Self::Linear | Self::Cubic => (std::f64::consts::SQRT_2, 1.0),
            Self::Wavelet => (1.149_604_398_860_241, 0.869_864_451_624_781),
        }
    }
}

/// The levels of a block: which part of its coefficients belongs to which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Lengths of the block's axes.
    pub(crate) dims: [usize; AXES_MAX],
    /// The lengths of what is left at each level, from the whole block to the coarsest one.
    sizes: Vec<[usize; AXES_MAX]>,
}

impl Levels {
    pub(crate) fn new(dims: [usize; AXES_MAX]) -> Self {
        let mut sizes = vec![dims];
        let mut size = dims;
        while size.iter().any(|&n| n >= SPLIT_MIN) {
            size = size.map(|n| if n >= SPLIT_MIN { n.div_ceil(2) } else { n });
            sizes.push(size);
        }
        Self { dims, sizes }
    }

    /// Number of levels with coefficients of their own, the coarsest one included.
    pub(crate) fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Lengths of the axes at a level: 0 is the finest one.
    pub(crate) fn size(&self, level: usize) -> [usize; AXES_MAX] {
        self.sizes[level.min(self.sizes.len() - 1)]
    }

    /// The boxes of a level's coefficients in the block. The coarsest level has one.
    pub(crate) fn bands(&self, level: usize) -> Vec<Region> {
        let size = self.sizes[level];
        let Some(&low) = self.sizes.get(level + 1) else {
            let start = [0; AXES_MAX];
            return vec![Region { start, size }];
        };
        // Of each axis the low or the high half, but not the low one of all.
        let band = |choice: usize| {
            let is_high = |axis: usize| choice >> axis & 1 == 1;
            Region {
                start: std::array::from_fn(|a| if is_high(a) { low[a] } else { 0 }),
                size: std::array::from_fn(|a| if is_high(a) { size[a] - low[a] } else { low[a] }),
            }
        };
        let bands = (1..1 << AXES_MAX).map(band);
        bands.filter(|band| band.count() > 0).collect()
    }

    /// Replaces the values of a block by coefficients.
    pub(crate) fn forward(&self, basis: Basis, data: &mut [f64]) {
        let mut lines = Lines::default();
        for level in 1..self.sizes.len() {
            let (size, low) = (self.sizes[level - 1], self.sizes[level]);
            for axis in (0..AXES_MAX).rev().filter(|&axis| low[axis] < size[axis]) {
                let stride = strides(self.dims)[axis];
                self.each_run(axis, size, |at, lanes| {
                    lines.resize(size[axis], lanes);
                    lines.take_turns(data, at, stride);
                    lines.lift(basis);
                    lines.put_halves(data, at, stride);
                });
            }
        }
    }

    /// Replaces the coefficients of the levels from `finest` on by values of that level.
    pub(crate) fn inverse(&self, basis: Basis, finest: usize, data: &mut [f64]) {
        let mut lines = Lines::default();
        for level in (finest + 1..self.sizes.len()).rev() {
            let (size, low) = (self.sizes[level - 1], self.sizes[level]);
            for axis in (0..AXES_MAX).filter(|&axis| low[axis] < size[axis]) {
                let stride = strides(self.dims)[axis];
                self.each_run(axis, size, |at, lanes| {
                    lines.resize(size[axis], lanes);
                    lines.take_halves(data, at, stride);
                    lines.unlift(basis);
                    lines.put_turns(data, at, stride);
                });
            }
        }
    }

    /// The factor between the values of a level and the coefficients that stand for them: each
    /// division of an axis makes a constant the square root of 2 times as large.
    pub(crate) fn value_scale(&self, level: usize) -> f64 {
        let divided = |pair: &[[usize; AXES_MAX]]| {
            let axes = pair[0].iter().zip(pair[1]);
            axes.filter(|(size, next)| *next < **size).count()
        };
        let levels = &self.sizes[..=level.min(self.sizes.len() - 1)];
        let splits: usize = levels.windows(2).map(divided).sum();
        let whole = (1_u64 << (splits / 2)) as f64;
        match splits % 2 {
            0 => whole,
            _ => whole * std::f64::consts::SQRT_2,
        }
    }

    /// Hands over where lines of an axis within a box begin: the first one of some that lie side by
    /// side, and their number. Lines of the last axis come one by one.
    fn each_run(&self, axis: usize, size: [usize; AXES_MAX], mut each: impl FnMut(usize, usize)) {
        let mut across = size;
        across[axis] = 1;
        let across = Region {
            start: [0; AXES_MAX],
            size: across,
        };
        let run = across.size[AXES_MAX - 1];
        for start in across.runs(self.dims) {
            for at in (0..run).step_by(LANES) {
                each(start + at, LANES.min(run - at));
            }
        }
    }
}

/// Some lines that are transformed together: rows of their values at even and at odd places.
#[derive(Default)]
struct Lines {
    even: Vec<f64>,
    odd: Vec<f64>,
    /// Number of lines, which is the length of a row.
    lanes: usize,
}

impl Lines {
    /// Makes room for lines of `n` values.
    fn resize(&mut self, n: usize, lanes: usize) {
        self.lanes = lanes;
        self.even.resize(n.div_ceil(2) * lanes, 0.0);
        self.odd.resize(n / 2 * lanes, 0.0);
    }

    /// Takes values in which even and odd places take turns.
    fn take_turns(&mut self, data: &[f64], at: usize, stride: usize) {
        take(&mut self.even, self.lanes, data, at, 2 * stride);
        take(&mut self.odd, self.lanes, data, at + stride, 2 * stride);
    }

    fn put_turns(&self, data: &mut [f64], at: usize, stride: usize) {
        put(&self.even, self.lanes, data, at, 2 * stride);
        put(&self.odd, self.lanes, data, at + stride, 2 * stride);
    }

    /// Takes values in which the even places are before the odd ones.
    fn take_halves(&mut self, data: &[f64], at: usize, stride: usize) {
        let low = self.even.len() / self.lanes * stride;
        take(&mut self.even, self.lanes, data, at, stride);
        take(&mut self.odd, self.lanes, data, at + low, stride);
    }

    fn put_halves(&self, data: &mut [f64], at: usize, stride: usize) {
        let low = self.even.len() / self.lanes * stride;
        put(&self.even, self.lanes, data, at, stride);
        put(&self.odd, self.lanes, data, at + low, stride);
    }

    fn lift(&mut self, basis: Basis) {
        for step in basis.steps() {
            self.apply(step, 1.0);
        }
        let (even, odd) = basis.scales();
        self.even.iter_mut().for_each(|value| *value *= even);
        self.odd.iter_mut().for_each(|value| *value *= odd);
    }

    fn unlift(&mut self, basis: Basis) {
        let (even, odd) = basis.scales();
        let (even, odd) = (1.0 / even, 1.0 / odd);
        self.even.iter_mut().for_each(|value| *value *= even);
        self.odd.iter_mut().for_each(|value| *value *= odd);
        for step in basis.steps().iter().rev() {
            self.apply(step, -1.0);
        }
    }

    /// Does a step of lifting, or undoes it if `sign` is -1. Beyond the ends, lines are mirrored.
    fn apply(&mut self, step: &LiftStep, sign: f64) {
        let Self { even, odd, lanes } = self;
        let lanes = *lanes;
        match step {
            LiftStep::OddFromTwo(weight) => {
                add(odd, even, lanes, sign * weight);
                // A last odd place has the same neighbour on both sides.
                if odd.len() == even.len() {
                    let last = odd.len() - lanes;
                    add_twice(&mut odd[last..], &even[last..], sign * weight);
                }
            }
            LiftStep::EvenFromTwo(weight) => {
                add_twice(&mut even[..lanes], odd, sign * weight);
                add(&mut even[lanes..], odd, lanes, sign * weight);
                if even.len() > odd.len() {
                    let last = even.len() - lanes;
                    add_twice(&mut even[last..], &odd[odd.len() - lanes..], sign * weight);
                }
            }
            LiftStep::OddFromFour => apply_cubic(even, odd, lanes, sign),
        }
    }
}

/// Adds to each row of `to` the weighted sum of the same and the next row of `from`, as far as
/// there are both.
fn add(to: &mut [f64], from: &[f64], lanes: usize, weight: f64) {
    let next = &from[lanes.min(from.len())..];
    for ((value, a), b) in to.iter_mut().zip(from).zip(next) {
        *value += weight * (a + b);
    }
}

/// Adds the weighted sum of a row with itself.
fn add_twice(to: &mut [f64], from: &[f64], weight: f64) {
    for (value, a) in to.iter_mut().zip(from) {
        *value += weight * (a + a);
    }
}

/// Predicts odd values from four even ones, and from two or one near the ends.
fn apply_cubic(even: &[f64], odd: &mut [f64], lanes: usize, sign: f64) {
    let rows = odd.len() / lanes;
    let evens = even.len() / lanes;
    for i in 0..rows {
        let row = |at: usize| &even[at * lanes..(at + 1) * lanes];
        let to = &mut odd[i * lanes..(i + 1) * lanes];
        if i == 0 || i + 2 >= evens {
            let right = row((i + 1).min(evens - 1));
            for ((value, a), b) in to.iter_mut().zip(row(i)).zip(right) {
                *value += -0.5 * sign * (a + b);
            }
            continue;
        }
        for ((value, a), b) in to.iter_mut().zip(row(i)).zip(row(i + 1)) {
            *value += -9.0 / 16.0 * sign * (a + b);
        }
        for ((value, a), b) in to.iter_mut().zip(row(i - 1)).zip(row(i + 2)) {
            *value += 1.0 / 16.0 * sign * (a + b);
        }
    }
}

/// Takes rows that are `stride` apart.
fn take(rows: &mut [f64], lanes: usize, data: &[f64], at: usize, stride: usize) {
    if lanes == 1 {
        let places = data.get(at..).unwrap_or_default().iter().step_by(stride);
        rows.iter_mut()
            .zip(places)
            .for_each(|(value, from)| *value = *from);
        return;
    }
    for (i, row) in rows.chunks_exact_mut(lanes).enumerate() {
        let from = at + i * stride;
        row.copy_from_slice(&data[from..from + lanes]);
    }
}

/// Puts rows back to where they are `stride` apart.
fn put(rows: &[f64], lanes: usize, data: &mut [f64], at: usize, stride: usize) {
    if lanes == 1 {
        let places = data
            .get_mut(at..)
            .unwrap_or_default()
            .iter_mut()
            .step_by(stride);
        rows.iter().zip(places).for_each(|(value, to)| *to = *value);
        return;
    }
    for (i, row) in rows.chunks_exact(lanes).enumerate() {
        let to = at + i * stride;
        data[to..to + lanes].copy_from_slice(row);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Basis; 3] = [Basis::Linear, Basis::Cubic, Basis::Wavelet];

    fn noise(count: usize) -> Vec<f64> {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn energy(values: &[f64]) -> f64 {
        values.iter().map(|v| v * v).sum()
    }

    #[test]
    fn bands_are_all_of_a_block() {
        for dims in [
            [1, 1, 1, 5],
            [1, 1, 9, 300],
            [3, 8, 17, 33],
            [1, 1, 1, 1 << 18],
        ] {
            let levels = Levels::new(dims);
            assert!(
                levels.count() <= 18,
                "a block's axis has at most 2^18 values"
            );
            let mut seen = vec![0_u8; dims.iter().product()];
            for band in (0..levels.count()).flat_map(|level| levels.bands(level)) {
                for at in band.runs(dims) {
                    seen[at..at + band.size[3]].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{dims:?}");
        }
    }

    #[test]
    fn smooth_data_has_small_coefficients() {
        let levels = Levels::new([1, 1, 64, 64]);
        let smooth: Vec<f64> = (0..64 * 64)
            .map(|i| ((i % 64) as f64 / 20.0).sin() * ((i / 64) as f64 / 15.0).cos())
            .collect();
        for (basis, most) in [
            (Basis::Linear, 1e-2),
            (Basis::Cubic, 1e-3),
            (Basis::Wavelet, 1e-3),
        ] {
            let mut data = smooth.clone();
            levels.forward(basis, &mut data);
            // Away from the ends, where the mirrored line has a kink.
            let inner = Region {
                start: [0, 0, 36, 36],
                size: [1, 1, 24, 24],
            };
            let largest = inner
                .runs(levels.dims)
                .flat_map(|at| data[at..at + 24].to_vec())
                .fold(0.0, |most: f64, v| most.max(v.abs()));
            assert!(largest < most, "{basis:?}: {largest}");
        }
    }

    #[test]
    fn the_wavelet_keeps_the_squared_sum() {
        let levels = Levels::new([1, 1, 128, 128]);
        let mut data = noise(128 * 128);
        let before = energy(&data);
        levels.forward(Basis::Wavelet, &mut data);
        let ratio = energy(&data) / before;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_coarse_level_is_a_small_picture() {
        let dims = [1, 1, 64, 96];
        let levels = Levels::new(dims);
        for basis in ALL {
            let mut data = vec![7.5; 64 * 96];
            levels.forward(basis, &mut data);
            levels.inverse(basis, 2, &mut data);
            assert_eq!(levels.size(2), [1, 1, 16, 24]);
            let scale = levels.value_scale(2);
            let picture = Region {
                start: [0; 4],
                size: levels.size(2),
            };
            for at in picture.runs(dims) {
                for value in &data[at..at + 24] {
                    assert!((value / scale - 7.5).abs() < 1e-6, "{basis:?} {value}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_decomposed_is_composed(a in 1..20_usize, b in 1..12_usize, c in 1..30_usize, d in 1..70_usize) {
            let levels = Levels::new([a.min(4), b, c, d]);
            let before = noise(levels.dims.iter().product());
            for basis in ALL {
                let mut data = before.clone();
                levels.forward(basis, &mut data);
                levels.inverse(basis, 0, &mut data);
                let worst = data.iter().zip(&before).fold(0.0, |most: f64, (x, y)| most.max((x - y).abs()));
                prop_assert!(worst < 1e-12, "{basis:?} {worst}");
            }
        }
    }
}
