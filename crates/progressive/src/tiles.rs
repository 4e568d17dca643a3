//! Coefficients of one band in tiles of 64, and their bit planes as words: the bit of a word is the
//! place of a coefficient in its tile, so that one operation treats 64 coefficients.

use crate::shape::{AXES_MAX, Region, strides};

/// Coefficients of a tile.
pub(crate) const TILE: usize = 64;
/// Lengths of a tile's axes, by the number of long axes of the array.
const TILE_SIDES: [[usize; AXES_MAX]; AXES_MAX + 1] = [
    [1, 1, 1, TILE],
    [1, 1, 1, TILE],
    [1, 1, 8, 8],
    [1, 4, 4, 4],
    [2, 2, 4, 4],
];

/// How the coefficients of a band lie in tiles.
#[derive(Clone, Debug)]
pub(crate) struct Tiling {
    band: Region,
    /// Lengths of a tile's axes; all products are [`TILE`].
    sides: [usize; AXES_MAX],
    /// Numbers of tiles along the axes.
    counts: [usize; AXES_MAX],
}

impl Tiling {
    /// `long_axes` are those axes of the array that are longer than 1.
    pub(crate) fn new(band: Region, long_axes: [bool; AXES_MAX]) -> Self {
        let count = long_axes.iter().filter(|&&is_long| is_long).count();
        let mut left = TILE_SIDES[count][AXES_MAX - count.max(1)..].iter();
        let mut sides = long_axes.map(|is_long| match is_long {
            true => left.next().copied().unwrap_or(1),
            false => 1,
        });
        if count == 0 {
            sides[AXES_MAX - 1] = TILE;
        }
        let counts = std::array::from_fn(|axis| band.size[axis].div_ceil(sides[axis]));
        Self {
            band,
            sides,
            counts,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.counts.iter().product()
    }

    /// Place of a tile among the tiles, by axis.
    pub(crate) fn place(&self, tile: usize) -> [usize; AXES_MAX] {
        let steps = strides(self.counts);
        std::array::from_fn(|axis| tile / steps[axis] % self.counts[axis])
    }

    /// The axes along which a tile is longer than 1, which are those that have neighbours.
    pub(crate) fn axes(&self) -> Vec<TileAxis> {
        let steps = strides(self.counts);
        let inner = strides(self.sides);
        let long = (0..AXES_MAX).filter(|&axis| self.sides[axis] > 1);
        long.map(|axis| {
            let beside = |tile: usize| {
                let place = tile / steps[axis] % self.counts[axis];
                let before = (place > 0).then(|| tile - steps[axis]);
                let after = (place + 1 < self.counts[axis]).then(|| tile + steps[axis]);
                [before, after].map(|tile| tile.unwrap_or(self.len()) as u32)
            };
            let (stride, side) = (inner[axis], self.sides[axis]);
            TileAxis {
                stride: stride as u32,
                span: (stride * (side - 1)) as u32,
                first: layer(stride, side, 0),
                last: layer(stride, side, side - 1),
                beside: (0..self.len()).map(beside).collect(),
            }
        })
        .collect()
    }

    /// Hands over each run of coefficients of a tile that lie side by side: its place in the block,
    /// its first bit in the tile's words, and its length.
    pub(crate) fn runs(
        &self,
        tile: usize,
        dims: [usize; AXES_MAX],
        mut each: impl FnMut(usize, usize, usize),
    ) {
        let place = self.place(tile);
        let first: [usize; AXES_MAX] = std::array::from_fn(|axis| place[axis] * self.sides[axis]);
        let size: [usize; AXES_MAX] =
            std::array::from_fn(|axis| self.sides[axis].min(self.band.size[axis] - first[axis]));
        let (outer, inner) = (strides(dims), strides(self.sides));
        for a in 0..size[0] {
            for b in 0..size[1] {
                for c in 0..size[2] {
                    let at = [a, b, c, 0];
                    let place = (0..AXES_MAX)
                        .map(|axis| (self.band.start[axis] + first[axis] + at[axis]) * outer[axis])
                        .sum();
                    let bit = a * inner[0] + b * inner[1] + c * inner[2];
                    each(place, bit, size[AXES_MAX - 1]);
                }
            }
        }
    }

    /// The bits of a tile that stand for coefficients: tiles at the ends of a band have fewer.
    pub(crate) fn valid(&self, tile: usize) -> u64 {
        let mut valid = 0;
        self.runs(tile, self.band.size, |_, bit, count| {
            valid |= ones(count) << bit
        });
        valid
    }
}

/// An axis along which tiles are longer than 1.
#[derive(Clone, Debug)]
pub(crate) struct TileAxis {
    /// Distance of neighbours within a tile, in bits.
    stride: u32,
    /// Distance of a tile's first and last coefficients, in bits.
    span: u32,
    /// The bits of the first and of the last coefficients.
    first: u64,
    last: u64,
    /// The tiles before and after each tile; the number of tiles stands for none.
    beside: Vec<[u32; 2]>,
}

impl TileAxis {
    /// For every coefficient of a tile, whether its neighbours before and after it along this axis
    /// are set in `words`, which has a word for each tile and a word of zeros after them.
    pub(crate) fn neighbours(&self, tile: usize, words: &[u64]) -> [u64; 2] {
        let [before, after] = self.beside[tile].map(|tile| words[tile as usize]);
        let word = words[tile];
        [
            (word << self.stride) & !self.first | (before & self.last) >> self.span,
            (word >> self.stride) & !self.last | (after & self.first) << self.span,
        ]
    }
}

/// The bits of the coefficients at a place along an axis.
fn layer(stride: usize, side: usize, at: usize) -> u64 {
    let pattern = ones(stride) << (at * stride);
    let period = stride * side;
    (0..TILE / period).fold(0, |mask, n| mask | pattern << (n * period))
}

/// A word with this many bits set at its low end.
pub(crate) fn ones(count: usize) -> u64 {
    match count {
        TILE.. => u64::MAX,
        _ => (1 << count) - 1,
    }
}

/// Swaps rows and columns of a matrix of 64 by 64 bits (Warren, Hacker's Delight, section 7-3).
pub(crate) fn transpose(rows: &mut [u64; TILE]) {
    let mut width = 32;
    let mut mask = u64::from(u32::MAX);
    while width > 0 {
        let mut at = 0;
        while at < TILE {
            let swap = ((rows[at] >> width) ^ rows[at + width]) & mask;
            rows[at] ^= swap << width;
            rows[at + width] ^= swap;
            at = (at + width + 1) & !width;
        }
        width >>= 1;
        mask ^= mask << width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_transposed() {
        let mut rows = [0; TILE];
        let mut state = 7_u64;
        for row in &mut rows {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *row = state;
        }
        let before = rows;
        transpose(&mut rows);
        for (i, row) in rows.iter().enumerate() {
            for (j, column) in before.iter().enumerate() {
                assert_eq!(row >> j & 1, column >> i & 1, "{i} {j}");
            }
        }
    }

    /// Every coefficient is in one tile, and its neighbours are those beside it in the band.
    #[test]
    fn neighbours_are_beside_each_other() {
        for (size, long) in [
            ([1, 1, 1, 200], [false, false, false, true]),
            ([1, 1, 19, 21], [false, false, true, true]),
            ([1, 5, 1, 9], [false, true, false, true]),
            ([1, 9, 6, 7], [false, true, true, true]),
            ([3, 5, 6, 7], [true; 4]),
            ([1, 1, 1, 1], [false; 4]),
        ] {
            let band = Region {
                start: [0; 4],
                size,
            };
            let tiling = Tiling::new(band, long);
            let axes = tiling.axes();
            let count: usize = size.iter().product();
            for marked in 0..count {
                let mut words = vec![0; tiling.len() + 1];
                let mut found = 0;
                for (tile, word) in words[..tiling.len()].iter_mut().enumerate() {
                    tiling.runs(tile, size, |at, bit, run| {
                        if (at..at + run).contains(&marked) {
                            *word |= 1 << (bit + marked - at);
                            found += 1;
                        }
                    });
                }
                assert_eq!(found, 1);
                let steps = strides(size);
                let place = |at: usize| steps.map(|step| at / step);
                let mut beside = 0;
                for tile in 0..tiling.len() {
                    let near = axes.iter().flat_map(|axis| axis.neighbours(tile, &words));
                    let near = near.fold(0, |all, word| all | word) & tiling.valid(tile);
                    tiling.runs(tile, size, |at, bit, run| {
                        for i in 0..run {
                            let is_near = near >> (bit + i) & 1 == 1;
                            let differ = (0..4).filter(|&axis| {
                                place(at + i)[axis] % size[axis] != place(marked)[axis] % size[axis]
                            });
                            let away: usize = differ
                                .map(|axis| {
                                    let of = |at: usize| place(at)[axis] % size[axis];
                                    of(at + i).abs_diff(of(marked))
                                })
                                .sum();
                            assert_eq!(is_near, away == 1, "{size:?} {marked} {}", at + i);
                            beside += usize::from(is_near);
                        }
                    });
                }
                assert!(beside > 0 || count == 1, "{size:?} {marked}");
            }
        }
    }
}
