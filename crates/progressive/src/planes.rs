//! The coding of a group's coefficients by bit planes, from the highest one down, each in two
//! passes: first the coefficients beside significant ones, then all others and the refinement of
//! those that were significant before. A coefficient is significant from its highest bit on.
//!
//! What is significant is coded by the range coder, in the context of how many neighbours are;
//! signs and refinements are plain bits. (The order of the passes is that of JPEG 2000's block
//! coder, of which the passes of refinement and of cleaning up are one here.)

use crate::basis::Levels;
use crate::bits::{BitReader, BitWriter};
use crate::element::exp2;
use crate::range_coder::{Probability, RangeReader, RangeWriter};
use crate::shape::AXES_MAX;
use crate::tiles::{TILE, TileAxis, Tiling, transpose};

/// Passes of a plane.
pub(crate) const PASSES: usize = 2;
/// Most significant neighbours of a coefficient: two along each axis.
const NEIGHBOURS_MAX: usize = 2 * AXES_MAX;

/// One step of the coding: a pass of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodingStep {
    /// Exponent of the plane: its bit stands for 2 to the power of it.
    pub(crate) plane: i32,
    /// 0 or 1.
    pub(crate) pass: usize,
}

/// What writer and reader know of a group of levels in a block.
#[derive(Debug)]
pub(crate) struct GroupState {
    bands: Vec<BandState>,
    contexts: Contexts,
}

#[derive(Debug)]
struct BandState {
    tiling: Tiling,
    axes: Vec<TileAxis>,
    /// The bits that stand for coefficients, by tile.
    valid: Vec<u64>,
    /// Significant coefficients, with a word of zeros after the tiles.
    significant: Vec<u64>,
    /// Those that were significant before the present plane.
    before: Vec<u64>,
    /// Those that the first pass of the present plane has decided.
    decided: Vec<u64>,
}

/// Probabilities of all kinds of decisions.
#[derive(Clone, Debug)]
struct Contexts {
    /// That a coefficient stays insignificant, by its significant neighbours, in each pass.
    coefficient: [[Probability; NEIGHBOURS_MAX + 1]; PASSES],
    /// That all of a tile without significant neighbours stay so.
    tile: Probability,
    /// The same of a coefficient of a tile that has one.
    first: Probability,
}

impl Contexts {
    fn new() -> Self {
        // Shares of 2^16, about as smooth data has them.
        let near = |count: usize| Probability::new(60_000 - 4_000 * count as u16);
        Self {
            coefficient: [std::array::from_fn(near), std::array::from_fn(near)],
            tile: Probability::new(60_000),
            first: Probability::new(64_000),
        }
    }
}

impl GroupState {
    /// The state before the first step.
    pub(crate) fn new(
        levels: &Levels,
        group: std::ops::Range<usize>,
        long: [bool; AXES_MAX],
    ) -> Self {
        let bands = group.flat_map(|level| levels.bands(level));
        let state = |band| {
            let tiling = Tiling::new(band, long);
            let count = tiling.len();
            BandState {
                axes: tiling.axes(),
                valid: (0..count).map(|tile| tiling.valid(tile)).collect(),
                significant: vec![0; count + 1],
                before: vec![0; count],
                decided: vec![0; count],
                tiling,
            }
        };
        Self {
            bands: bands.map(state).collect(),
            contexts: Contexts::new(),
        }
    }

    /// Number of tiles of all bands.
    pub(crate) fn tiles(&self) -> usize {
        self.bands.iter().map(|band| band.tiling.len()).sum()
    }

    /// Puts values that lie tile by tile into a block.
    fn put(&self, values: &[f64], block: &mut [f64], dims: [usize; AXES_MAX]) {
        let mut tiles = values.chunks_exact(TILE);
        for band in &self.bands {
            for (tile, values) in (0..band.tiling.len()).zip(&mut tiles) {
                band.tiling.runs(tile, dims, |at, bit, count| {
                    block[at..at + count].copy_from_slice(&values[bit..bit + count]);
                });
            }
        }
    }

    /// Goes through a step, with what is to be decided asked of `coder`.
    fn step(&mut self, step: CodingStep, coder: &mut impl StepCoder) {
        let mut offset = 0;
        for band in &mut self.bands {
            if step.pass == 0 {
                let count = band.before.len();
                band.before.copy_from_slice(&band.significant[..count]);
                band.decided.fill(0);
            }
            for tile in 0..band.tiling.len() {
                coder.enter(offset + tile, step.plane);
                match step.pass {
                    0 => band.near(tile, &mut self.contexts, coder),
                    _ => band.rest(tile, &mut self.contexts, coder),
                }
            }
            offset += band.tiling.len();
        }
    }
}

/// What writes decisions, or reads them.
trait StepCoder {
    /// Begins with the next tile of the group.
    fn enter(&mut self, tile: usize, plane: i32);

    /// Codes whether any of these coefficients of the tile becomes significant.
    fn any(&mut self, probability: &mut Probability, of: u64) -> bool;

    /// Codes whether a coefficient of the tile becomes significant, with its sign if it does.
    fn one(&mut self, probability: &mut Probability, bit: u32) -> bool;

    /// Codes the bits of these coefficients of the tile, which were significant before.
    fn refine(&mut self, of: u64);
}

impl BandState {
    fn near(&mut self, tile: usize, contexts: &mut Contexts, coder: &mut impl StepCoder) {
        let open = self.valid[tile] & !self.significant[tile];
        if open == 0 {
            return;
        }
        let counts = self.counts(tile);
        let near = open & counts.iter().fold(0, |any, word| any | word);
        if near != 0 {
            self.decided[tile] = near;
            let probabilities = &mut contexts.coefficient[0];
            self.significant[tile] |= significance(near, &counts, probabilities, coder);
        }
    }

    fn rest(&mut self, tile: usize, contexts: &mut Contexts, coder: &mut impl StepCoder) {
        let before = self.before[tile];
        if before != 0 {
            coder.refine(before);
        }
        let open = self.valid[tile] & !self.significant[tile] & !self.decided[tile];
        if open == 0 {
            return;
        }
        let counts = self.counts(tile);
        let near = open & counts.iter().fold(0, |any, word| any | word);
        let found = if near == 0 {
            if !coder.any(&mut contexts.tile, open) {
                return;
            }
            significance(
                open,
                &counts,
                std::slice::from_mut(&mut contexts.first),
                coder,
            )
        } else {
            significance(open, &counts, &mut contexts.coefficient[1], coder)
        };
        self.significant[tile] |= found;
    }

    /// The number of significant neighbours of each coefficient of a tile: the words have the bits
    /// of the numbers, the lowest one first.
    fn counts(&self, tile: usize) -> [u64; 4] {
        let mut counts = [0; 4];
        for axis in &self.axes {
            for mut carry in axis.neighbours(tile, &self.significant) {
                for word in &mut counts {
                    (*word, carry) = (*word ^ carry, *word & carry);
                }
            }
        }
        counts
    }
}

/// Codes which of these coefficients become significant, and returns them.
fn significance(
    mut open: u64,
    counts: &[u64; 4],
    probabilities: &mut [Probability],
    coder: &mut impl StepCoder,
) -> u64 {
    let mut found = 0;
    while open != 0 {
        let bit = open.trailing_zeros();
        open &= open - 1;
        let count = counts
            .iter()
            .rev()
            .fold(0, |n, word| n << 1 | word >> bit & 1);
        let context = (count as usize).min(probabilities.len() - 1);
        if coder.one(&mut probabilities[context], bit) {
            found |= 1 << bit;
        }
    }
    found
}

/// The coefficients of a group as bit planes, and their writer.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    state: GroupState,
    source: PlaneSource,
    /// What a reader knows of the coefficients after what was written, tile by tile.
    known: Vec<f64>,
}

#[derive(Debug)]
struct PlaneSource {
    /// Exponent of the lowest plane.
    lowest: i32,
    /// The words of all tiles, plane by plane from the lowest one on.
    planes: Vec<u64>,
    /// The signs, by tile.
    negative: Vec<u64>,
    tiles: usize,
}

impl GroupWriter {
    /// Takes the coefficients of a group from a block. The planes are those from `lowest` on;
    /// magnitudes are below 2 to the power of `lowest + 62`.
    pub(crate) fn new(
        state: GroupState,
        block: &[f64],
        dims: [usize; AXES_MAX],
        lowest: i32,
    ) -> Self {
        let tiles = state.tiles();
        let mut source = PlaneSource {
            lowest,
            planes: Vec::new(),
            negative: Vec::with_capacity(tiles),
            tiles,
        };
        let unit = exp2(-lowest);
        let mut offset = 0;
        for band in &state.bands {
            for tile in 0..band.tiling.len() {
                let (mut words, mut negative) = ([0; TILE], 0);
                band.tiling.runs(tile, dims, |at, bit, count| {
                    for (i, value) in block[at..at + count].iter().enumerate() {
                        words[bit + i] = (value.abs() * unit) as u64;
                        negative |= u64::from(value.is_sign_negative()) << (bit + i);
                    }
                });
                source.negative.push(negative);
                transpose(&mut words);
                source.take(offset + tile, &words);
            }
            offset += band.tiling.len();
        }
        Self {
            known: vec![0.0; tiles * TILE],
            state,
            source,
        }
    }

    /// Puts the coefficients as a reader knows them into a block.
    pub(crate) fn put(&self, block: &mut [f64], dims: [usize; AXES_MAX]) {
        self.state.put(&self.known, block, dims);
    }

    /// Writes these steps. The piece is empty if they change nothing.
    pub(crate) fn write(&mut self, steps: &[CodingStep]) -> Vec<u8> {
        let mut coder = StepWriter {
            source: &self.source,
            known: KnownValues::new(&mut self.known),
            ranges: RangeWriter::new(),
            bits: BitWriter::default(),
            word: 0,
            negative: 0,
            is_empty: true,
        };
        let contexts = self.state.contexts.clone();
        for &step in steps {
            self.state.step(step, &mut coder);
        }
        if coder.is_empty {
            self.state.contexts = contexts;
            return Vec::new();
        }
        let mut bytes = coder.ranges.finish();
        bytes.extend(coder.bits.finish().iter().rev());
        bytes
    }
}

impl PlaneSource {
    fn take(&mut self, tile: usize, words: &[u64; TILE]) {
        let count = words
            .iter()
            .rposition(|&word| word != 0)
            .map_or(0, |last| last + 1);
        if self.planes.len() < count * self.tiles {
            self.planes.resize(count * self.tiles, 0);
        }
        for (plane, &word) in words[..count].iter().enumerate() {
            self.planes[plane * self.tiles + tile] = word;
        }
    }

    fn words(&self, plane: i32) -> Option<&[u64]> {
        let index = usize::try_from(plane - self.lowest).ok()?;
        self.planes
            .get(index * self.tiles..(index + 1) * self.tiles)
    }
}

struct StepWriter<'a> {
    source: &'a PlaneSource,
    known: KnownValues<'a>,
    ranges: RangeWriter,
    bits: BitWriter,
    word: u64,
    negative: u64,
    /// Whether nothing but decisions that all is insignificant was written.
    is_empty: bool,
}

impl StepCoder for StepWriter<'_> {
    fn enter(&mut self, tile: usize, plane: i32) {
        self.known.enter(tile, plane);
        self.word = self.source.words(plane).map_or(0, |words| words[tile]);
        self.negative = self.source.negative[tile];
    }

    fn any(&mut self, probability: &mut Probability, of: u64) -> bool {
        let any = self.word & of != 0;
        self.ranges.put(probability, any);
        any
    }

    fn one(&mut self, probability: &mut Probability, bit: u32) -> bool {
        let is_one = self.word >> bit & 1 == 1;
        self.ranges.put(probability, is_one);
        if is_one {
            let is_negative = self.negative >> bit & 1;
            self.bits.put(is_negative, 1);
            self.known.find(bit, is_negative == 1);
            self.is_empty = false;
        }
        is_one
    }

    fn refine(&mut self, of: u64) {
        self.bits.put_masked(self.word, of);
        self.known.refine(self.word, of);
        self.is_empty = false;
    }
}

/// The coefficients of a group as far as they are read.
#[derive(Debug)]
pub(crate) struct GroupReader {
    state: GroupState,
    /// The coefficients, tile by tile: the middles of the intervals in which they are known to lie.
    values: Vec<f64>,
}

impl GroupReader {
    pub(crate) fn new(state: GroupState) -> Self {
        let values = vec![0.0; state.tiles() * TILE];
        Self { state, values }
    }

    /// Reads steps that [`GroupWriter::write`] has written. An empty piece stands for steps that
    /// change nothing.
    pub(crate) fn read(&mut self, steps: &[CodingStep], bytes: &[u8]) {
        if bytes.is_empty() {
            let contexts = self.state.contexts.clone();
            steps
                .iter()
                .for_each(|&step| self.state.step(step, &mut NothingFound));
            self.state.contexts = contexts;
            return;
        }
        let mut coder = StepReader {
            known: KnownValues::new(&mut self.values),
            ranges: RangeReader::new(bytes),
            bits: BitReader::from_end(bytes),
        };
        for &step in steps {
            self.state.step(step, &mut coder);
        }
    }

    /// Puts the coefficients into a block.
    pub(crate) fn put(&self, block: &mut [f64], dims: [usize; AXES_MAX]) {
        self.state.put(&self.values, block, dims);
    }
}

/// The decisions of an empty piece.
struct NothingFound;

impl StepCoder for NothingFound {
    fn enter(&mut self, _: usize, _: i32) {}

    fn any(&mut self, _: &mut Probability, _: u64) -> bool {
        false
    }

    fn one(&mut self, _: &mut Probability, _: u32) -> bool {
        false
    }

    // No writer leaves a piece with refinements empty.
    fn refine(&mut self, _: u64) {}
}

struct StepReader<'a> {
    known: KnownValues<'a>,
    ranges: RangeReader<'a>,
    bits: BitReader<'a>,
}

impl StepCoder for StepReader<'_> {
    fn enter(&mut self, tile: usize, plane: i32) {
        self.known.enter(tile, plane);
    }

    fn any(&mut self, probability: &mut Probability, _: u64) -> bool {
        self.ranges.get(probability)
    }

    fn one(&mut self, probability: &mut Probability, bit: u32) -> bool {
        let is_one = self.ranges.get(probability);
        if is_one {
            self.known.find(bit, self.bits.get(1) == 1);
        }
        is_one
    }

    fn refine(&mut self, of: u64) {
        let bits = self.bits.get_masked(of);
        self.known.refine(bits, of);
    }
}

/// What is known of the coefficients of a group: the middle of the interval in which each is.
struct KnownValues<'a> {
    values: &'a mut [f64],
    /// Beginning of the present tile.
    tile: usize,
    /// The middle of the interval of a coefficient that becomes significant, and half of the
    /// plane's unit.
    middle: f64,
    half: f64,
}

impl<'a> KnownValues<'a> {
    fn new(values: &'a mut [f64]) -> Self {
        Self {
            values,
            tile: 0,
            middle: 0.0,
            half: 0.0,
        }
    }

    fn enter(&mut self, tile: usize, plane: i32) {
        let unit = exp2(plane);
        self.tile = tile * TILE;
        (self.middle, self.half) = (1.5 * unit, 0.5 * unit);
    }

    /// A coefficient of the tile has become significant.
    fn find(&mut self, bit: u32, is_negative: bool) {
        let sign = if is_negative { -1.0 } else { 1.0 };
        self.values[self.tile + bit as usize] = sign * self.middle;
    }

    /// The next bits of those coefficients of the tile that `of` has.
    fn refine(&mut self, bits: u64, of: u64) {
        let values = &mut self.values[self.tile..][..TILE];
        let mut left = of;
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let value = &mut values[bit as usize];
            let is_up = (bits >> bit & 1 == 1) != (*value < 0.0);
            *value += if is_up { self.half } else { -self.half };
        }
    }
}
