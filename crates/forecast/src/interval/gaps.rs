//! The gaps between the times at which a stream leaves its bound: a renewal process, learned from
//! looks.
//!
//! Of a change it is only known that it was between two looks. Its place between them is weighted
//! by the distribution learned so far (one step of Turnbull's estimator, 1976, for censored data),
//! and so is that of the change before it, so that even looks far apart sharpen the distribution.
//! While there is little data, a Pareto prior acts like Lindy's law: a gap that has lasted long
//! lasts longer (`15 t` more with even chances after `t`). It never quite disappears, so nothing is
//! ever certain. Two distributions are computed: one of the gaps as seen, which is right where gaps
//! repeat, and one smoothed over a third of each gap. A part of the first is taken from the second,
//! for the case that the next gap is a new one; the size of that part is learned from how many gaps
//! were new.

use std::sync::OnceLock;

/// Gaps up to this number of ticks have a bin each.
const BINS: usize = 256;
/// Longest wait that is evaluated, in ticks.
const WAIT_TICKS_MAX: usize = 64;
/// Most places within a wait at which the change may have been.
const PLACES_MAX: usize = 16;
/// Weight of the prior, in changes.
const PRIOR: f32 = 0.5;
/// Weight, in changes, of the case that a gap is unlike all seen ones; gaps that were new add to
/// it.
const NOVEL: f32 = 0.01;
/// Share of a change's weight that is left after the next one: about 60 changes count.
const KEEP: f32 = 1.0 - 1.0 / 60.0;
/// Most times that the tick of the histogram may double.
const SHIFT_MAX: u32 = 24;

/// The distribution of gaps between changes, and the time of the last change.
#[derive(Clone, Debug)]
pub(super) struct GapDistribution {
    /// Weight of gaps of `index + 1` ticks.
    bins: [f32; BINS],
    /// Weight of longer gaps.
    beyond: f32,
    /// The number of remembered gaps that were unlike all gaps seen before.
    novel: f32,
    /// `survivors[t]`: the share of gaps longer than `t` ticks.
    survivors: [f32; BINS + 1],
    /// The same shares, smoothed.
    smooth: [f32; BINS + 1],
    /// The place of the last change: `places[j]` is the probability that it was `j` strides before
    /// the look that found it.
    places: [f32; PLACES_MAX],
    /// Ticks from one place to the next.
    stride: usize,
    places_len: usize,
    /// Ticks since the look that found the last change.
    since: usize,
    /// Ticks of the histogram are `2^shift` ticks of the policy.
    shift: u32,
    /// Policy ticks since the last look that do not make a whole tick of the histogram.
    rest: u64,
}

impl GapDistribution {
    pub(super) fn new() -> Self {
        let mut gaps = Self {
            bins: [0.0; BINS],
            beyond: 0.0,
            novel: 0.0,
            survivors: [1.0; BINS + 1],
            smooth: [1.0; BINS + 1],
            places: [0.0; PLACES_MAX],
            stride: 1,
            places_len: 1,
            since: 0,
            shift: 0,
            rest: 0,
        };
        gaps.places[0] = 1.0;
        gaps.count_survivors();
        gaps
    }

    /// Policy ticks per tick of the histogram.
    fn scale(&self) -> u64 {
        1 << self.shift
    }

    /// Takes in a look, `ticks` policy ticks after the one before.
    pub(super) fn look(&mut self, ticks: u64, changed: bool) {
        let ticks = ticks.saturating_add(self.rest);
        let waited = (ticks >> self.shift).min(1 << 40) as usize;
        self.rest = if changed {
            0
        } else {
            ticks & (self.scale() - 1)
        };
        if changed {
            self.change(waited.max(1));
            self.fit();
        } else {
            self.since = self.since.saturating_add(waited);
            if self.since > BINS && self.shift < SHIFT_MAX {
                self.coarsen();
            }
        }
    }

    /// Reduces the weight of what was learned to a quarter.
    pub(super) fn doubt(&mut self) {
        for weight in &mut self.bins {
            *weight *= 0.25;
        }
        self.beyond *= 0.25;
        self.novel *= 0.25;
        self.count_survivors();
    }

    /// The probability that there was no change from the last one until now, by the gaps as seen
    /// and as smoothed.
    pub(super) fn alive(&self) -> [f32; 2] {
        let alive = |survivors| self.left(survivors, 0, 0.0);
        [&self.survivors, &self.smooth].map(alive)
    }

    /// The probability that the next change comes within `ticks` policy ticks, by the gaps as seen
    /// and as smoothed, given the result of [`Self::alive`]. Waits longer than [`WAIT_TICKS_MAX`]
    /// are not trusted: 1.
    pub(super) fn within(&self, ticks: u64, alive: [f32; 2]) -> [f64; 2] {
        let ahead = ticks as f64 / self.scale() as f64;
        if ahead > WAIT_TICKS_MAX as f64 {
            return [1.0; 2];
        }
        let (whole, part) = (ahead as usize, ahead.fract() as f32);
        let wrong = |survivors, alive: f32| {
            let left = self.left(survivors, whole, part);
            f64::from((1.0 - left / alive.max(f32::MIN_POSITIVE)).clamp(0.0, 1.0))
        };
        [
            wrong(&self.survivors, alive[0]),
            wrong(&self.smooth, alive[1]),
        ]
    }

    /// The probability that there is no change from the last one until `whole` ticks and a `part`
    /// of one after the last look.
    fn left(&self, survivors: &[f32; BINS + 1], whole: usize, part: f32) -> f32 {
        let mut left = 0.0;
        for (back, place) in self.places[..self.places_len].iter().enumerate() {
            let age = self.since + back * self.stride + whole;
            let low = survivor(survivors, age);
            let next = if part > 0.0 {
                survivor(survivors, age + 1)
            } else {
                low
            };
            left += place * (low + (next - low) * part);
        }
        left
    }

    /// Takes in a change within the last `waited` ticks, with none before them since the last
    /// change.
    fn change(&mut self, waited: usize) {
        // If there are more places than can be kept, they are spaced evenly.
        let stride = waited.div_ceil(PLACES_MAX);
        let len = waited.div_ceil(stride).min(PLACES_MAX);
        let mut places = [0.0_f32; PLACES_MAX];
        let mut sum = 0.0;
        for (back, place) in places[..len].iter_mut().enumerate() {
            for (before, weight) in self.places[..self.places_len].iter().enumerate() {
                let gap = self.gap(waited, back * stride, before * self.stride);
                *place += weight * self.share(gap);
            }
            sum += *place;
        }
        self.count_novel(waited);
        if sum > 0.0 {
            self.learn(&places[..len], waited, stride);
            places[..len].iter_mut().for_each(|place| *place /= sum);
        } else {
            places[..len].fill(1.0 / len as f32);
        }
        self.places = places;
        self.places_len = len;
        self.stride = stride;
        self.since = 0;
        self.count_survivors();
    }

    /// Adds one gap, spread over its possible lengths by their probability.
    fn learn(&mut self, places: &[f32], waited: usize, stride: usize) {
        let sum: f32 = places.iter().sum();
        self.bins.iter_mut().for_each(|weight| *weight *= KEEP);
        self.beyond *= KEEP;
        for back in 0..places.len() {
            for before in 0..self.places_len {
                let gap = self.gap(waited, back * stride, before * self.stride);
                let likely = self.share(gap);
                let weight = self.places[before] * likely / sum;
                match self.bins.get_mut(gap - 1) {
                    Some(bin) => *bin += weight,
                    None => self.beyond += weight,
                }
            }
        }
    }

    /// Estimates the probability that this gap is unlike all seen ones: the weight of new gaps
    /// follows it, by one step of expectation and maximization per gap.
    fn count_novel(&mut self, waited: usize) {
        let (from, to) = (self.since.min(BINS), (self.since + waited).min(BINS));
        let seen: f32 = self.bins[from..to].iter().sum();
        let seen = seen
            + if self.since + waited > BINS {
                self.beyond
            } else {
                0.0
            };
        let all = self.bins.iter().sum::<f32>() + self.beyond;
        let new = (NOVEL + self.novel) * (self.smooth[from] - self.smooth[to]);
        let novel = if all > 0.0 && new > 0.0 {
            new / (new + seen)
        } else {
            0.0
        };
        self.novel = KEEP * self.novel + novel;
    }

    /// Ticks between a change `back` ticks before now and one `before` ticks before the look that
    /// found it.
    fn gap(&self, waited: usize, back: usize, before: usize) -> usize {
        (self.since + waited + before).saturating_sub(back).max(1)
    }

    /// The share of gaps of exactly `gap` ticks.
    fn share(&self, gap: usize) -> f32 {
        survivor(&self.survivors, gap - 1) - survivor(&self.survivors, gap)
    }

    fn count_survivors(&mut self) {
        // Each bin is spread over a third of its gap to both sides; `edges` has where its weight
        // begins and ends.
        let mut edges = [0.0; BINS + 1];
        let mut smooth_beyond = self.beyond;
        for (index, weight) in self
            .bins
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0.0)
        {
            let reach = (index + 1) / 3;
            let each = weight / (2 * reach + 1) as f32;
            edges[index - reach] += each;
            edges[(index + reach + 1).min(BINS)] -= each;
            smooth_beyond += each * (index + reach + 1).saturating_sub(BINS) as f32;
        }
        let mut level = 0.0;
        let mut smooth = [0.0; BINS];
        for (smooth, edge) in smooth.iter_mut().zip(&edges) {
            level += edge;
            *smooth = level.max(0.0);
        }
        count(&smooth, smooth_beyond, PRIOR, lindy(), &mut self.smooth);
        count(
            &self.bins,
            self.beyond,
            NOVEL + self.novel,
            &self.smooth,
            &mut self.survivors,
        );
    }

    /// Adapts the length of the histogram's tick to the gaps.
    fn fit(&mut self) {
        let seen = self.bins.iter().sum::<f32>() + self.beyond;
        let short: f32 = self.bins[..BINS / 8].iter().sum();
        if self.beyond > 0.5 * seen && self.shift < SHIFT_MAX {
            self.coarsen();
        } else if short > 0.5 * seen && self.shift > 0 {
            self.refine();
        }
    }

    fn coarsen(&mut self) {
        for index in 0..BINS / 2 {
            self.bins[index] = self.bins[2 * index] + self.bins[2 * index + 1];
        }
        self.bins[BINS / 2..].fill(0.0);
        if self.stride > 1 {
            self.stride = self.stride.div_ceil(2);
        } else {
            for index in 0..PLACES_MAX / 2 {
                self.places[index] = self.places[2 * index] + self.places[2 * index + 1];
            }
            self.places[PLACES_MAX / 2..].fill(0.0);
            self.places_len = self.places_len.div_ceil(2);
        }
        self.rest += (self.since as u64 & 1) << self.shift;
        self.since /= 2;
        self.shift += 1;
        self.count_survivors();
    }

    fn refine(&mut self) {
        for index in (0..BINS / 2).rev() {
            let half = self.bins[index] / 2.0;
            self.bins[2 * index] = half;
            self.bins[2 * index + 1] = half;
        }
        self.since *= 2;
        self.stride *= 2;
        self.shift -= 1;
        self.rest = 0;
        self.count_survivors();
    }
}

/// The share of gaps longer than `ticks`.
fn survivor(survivors: &[f32; BINS + 1], ticks: usize) -> f32 {
    match survivors.get(ticks) {
        Some(share) => *share,
        None => survivors[BINS] * prior(ticks) / prior(BINS),
    }
}

fn count(
    bins: &[f32; BINS],
    beyond: f32,
    weight: f32,
    prior: &[f32; BINS + 1],
    survivors: &mut [f32; BINS + 1],
) {
    let total = bins.iter().sum::<f32>() + beyond + weight;
    let mut longer = beyond;
    for ticks in (0..=BINS).rev() {
        survivors[ticks] = (longer + weight * prior[ticks]) / total;
        if let Some(index) = ticks.checked_sub(1) {
            longer += bins[index];
        }
    }
}

/// The prior's share of gaps longer than `ticks`: a gap that has lasted for `t` ends within as long
/// again with a probability of a sixth.
fn prior(ticks: usize) -> f32 {
    (ticks as f32 + 1.0).sqrt().sqrt().recip()
}

/// The prior for each wait that has a bin.
fn lindy() -> &'static [f32; BINS + 1] {
    static LINDY: OnceLock<[f32; BINS + 1]> = OnceLock::new();
    LINDY.get_or_init(|| std::array::from_fn(prior))
}
