//! The risk that an assumed value is wrong some ticks from now, and the time for which it will have
//! been wrong.
//!
//! It mixes three models, weighted by how well each predicted the results of looks. Two count from
//! the last time that the value became wrong ([`GapDistribution`]: regular or irregular steps); the
//! third counts from the last look ([`Waits`]: a wandering value, or a forecast whose error grows).
//! If a forecast has a half width, the third model starts from that.

use super::gaps::GapDistribution;

/// Waits have a bucket each up to this length, and four per doubling beyond it.
const SINGLE: u64 = 16;
const BUCKETS: usize = 80;
/// Weight, in looks, of the prior for the shortest wait, of which nothing is known.
const PRIOR: f64 = 0.3;
/// Weight, in looks, of a forecast's half width as a prior, or of a shorter wait as the prior of a
/// longer one.
const PRIOR_SAID: f64 = 1.5;
/// Share of a look's weight that is left after the next one of the same bucket.
const KEEP: f64 = 0.997;
/// Weight, in misses, of a wait that was never wrong, where each look was compared with all before.
const LEAST: f64 = 0.25;
/// Share of a model's score that is left after the next look.
const KEEP_SCORE: f64 = 0.99;
/// Share of a miss's weight that is left after the next look, where expected and actual misses are
/// compared.
const KEEP_MISSES: f64 = 0.98;
/// Least probability of a model: none is believed to know better than this.
const CERTAIN: f64 = 0.002;
/// A miss is a surprise if its expected probability was less than this.
const SURPRISE: f64 = 0.02;
/// Number of surprises, of which each look forgets a tenth, after which what was learned is in
/// doubt.
const SURPRISES_MAX: f64 = 1.5;

/// The models: gaps as seen, gaps smoothed, waits.
const MODELS: usize = 3;

/// The risk of one way of assuming values, learned from looks.
#[derive(Clone, Debug)]
pub(super) struct Risk {
    gaps: GapDistribution,
    waits: Waits,
    /// The score of each model's predictions, in nats.
    scores: [f64; MODELS],
    surprises: f64,
    /// Recent misses: their expected number, and their actual number.
    expected: f64,
    missed: f64,
}

/// The probability of being wrong after each of a series of growing waits.
pub(super) struct Curve<'a> {
    gaps: &'a GapDistribution,
    alive: [f32; 2],
    waits: [f64; BUCKETS],
    weights: [f64; MODELS],
}

impl Risk {
    /// Creates a risk that is learned only from looks as they come.
    pub(super) fn new() -> Self {
        Self::with(0.0)
    }

    /// Creates a risk that is learned from each look for all waits, by [`compare`](Self::compare).
    pub(super) fn compared() -> Self {
        Self::with(LEAST)
    }

    fn with(least: f64) -> Self {
        Self {
            gaps: GapDistribution::new(),
            waits: Waits::new(least),
            scores: [0.0; MODELS],
            surprises: 0.0,
            expected: 0.0,
            missed: 0.0,
        }
    }

    /// Takes in a look, `ticks` after the last; `prior` is the probability of `missed` by the
    /// forecast's half width. Returns whether what was learned has just come into doubt.
    pub(super) fn look(&mut self, ticks: u64, missed: bool, prior: Option<f64>) -> bool {
        let curve = self.curve(ticks, |_| None);
        let mut each = curve.each(ticks);
        if let Some(prior) = prior {
            each[2] = self.waits.blend(bucket(ticks), prior, PRIOR_SAID);
        }
        let expected = mix(each, curve.weights);
        for (score, wrong) in self.scores.iter_mut().zip(each) {
            *score = KEEP_SCORE * *score + likelihood(wrong, missed).ln();
        }
        self.gaps.look(ticks, missed);
        self.waits.look(bucket(ticks), missed, 1.0);
        self.expected = KEEP_MISSES * self.expected + expected;
        self.missed = KEEP_MISSES * self.missed + f64::from(u8::from(missed));
        self.doubt(missed && expected < SURPRISE)
    }

    /// The ratio of actual to expected misses.
    pub(super) fn bias(&self) -> f64 {
        ((self.missed + 2.0) / (self.expected + 2.0)).clamp(0.7, 6.0)
    }

    /// Records whether the value of an earlier look, `ticks` ago, no longer held (`missed`).
    /// `weight`: the share of that time that is new.
    pub(super) fn compare(&mut self, ticks: u64, missed: bool, weight: f64) {
        self.waits.look(bucket(ticks), missed, weight);
    }

    /// Takes in a look that does not show whether the assumed value was wrong before it.
    pub(super) fn skip(&mut self, ticks: u64) {
        self.gaps.look(ticks, false);
    }

    /// Returns the expectation for waits up to `ticks_max`; `prior` returns the probability of
    /// being wrong at a number of ticks ahead, by the forecast's half width.
    pub(super) fn curve(&self, ticks_max: u64, prior: impl Fn(u64) -> Option<f64>) -> Curve<'_> {
        Curve {
            gaps: &self.gaps,
            alive: self.gaps.alive(),
            waits: self.waits.expect(bucket(ticks_max), prior),
            weights: weights(self.scores),
        }
    }

    fn doubt(&mut self, surprised: bool) -> bool {
        self.surprises = 0.9 * self.surprises + f64::from(u8::from(surprised));
        let doubtful = self.surprises > SURPRISES_MAX;
        if doubtful {
            self.gaps.doubt();
            self.waits.doubt();
            self.surprises = 0.0;
        }
        doubtful
    }
}

impl Curve<'_> {
    /// The probability of being wrong `ticks` from now.
    pub(super) fn wrong(&self, ticks: u64) -> f64 {
        mix(self.each(ticks), self.weights)
    }

    /// Calls `visit` with each wait of `waits`, which rise from 1, and the expected time, in ticks,
    /// for which the value will have been wrong at a look after that wait.
    pub(super) fn late(&self, waits: impl Iterator<Item = u64>, mut visit: impl FnMut(u64, f64)) {
        let (mut at, mut wrong, mut late) = (0, 0.0, 0.0);
        for wait in waits {
            let then = self.wrong(wait);
            // The value is right at the look itself; between two waits the probability of being
            // wrong grows about evenly.
            let between = (wait - at - 1) as f64;
            late += wrong + between * (wrong + then) / 2.0;
            visit(wait, late);
            (at, wrong) = (wait, then);
        }
    }

    fn each(&self, ticks: u64) -> [f64; MODELS] {
        let [seen, smooth] = self.gaps.within(ticks, self.alive);
        [seen, smooth, self.waits[bucket(ticks)]]
    }
}

/// The waits to evaluate, rising, the last one `ticks_max`: each up to 64, then 8 per doubling.
pub(super) fn candidates(ticks_max: u64) -> impl Iterator<Item = u64> {
    let next = move |ticks: &u64| {
        let step = (*ticks / 64).next_power_of_two().max(1) * if *ticks < 64 { 1 } else { 8 };
        (*ticks < ticks_max).then(|| ticks.saturating_add(step).min(ticks_max))
    };
    std::iter::successors(Some(1.min(ticks_max)), next)
}

fn mix(wrong: [f64; MODELS], weights: [f64; MODELS]) -> f64 {
    let sum: f64 = wrong
        .iter()
        .zip(weights)
        .map(|(wrong, weight)| wrong * weight)
        .sum();
    sum.clamp(0.0, 1.0)
}

fn weights(scores: [f64; MODELS]) -> [f64; MODELS] {
    let best = scores.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let likely = scores.map(|score| (score - best).exp());
    let sum: f64 = likely.iter().sum();
    likely.map(|likely| likely / sum)
}

fn likelihood(wrong: f64, missed: bool) -> f64 {
    let wrong = wrong.clamp(CERTAIN, 1.0 - CERTAIN);
    if missed { wrong } else { 1.0 - wrong }
}

fn bucket(ticks: u64) -> usize {
    if ticks <= SINGLE {
        return ticks.max(1) as usize - 1;
    }
    let whole = ticks.ilog2();
    let quarter = (ticks >> (whole - 2)) & 3;
    let bucket = SINGLE + u64::from(whole - SINGLE.ilog2()) * 4 + quarter - 1;
    (bucket as usize).min(BUCKETS - 1)
}

/// The shortest wait of a bucket.
fn shortest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SINGLE {
        return bucket + 1;
    }
    let beyond = bucket + 1 - SINGLE;
    (4 + beyond % 4) << (beyond / 4 + u64::from(SINGLE.ilog2()) - 2)
}

/// The share of looks that found the assumed value wrong, by the time since the look before.
#[derive(Clone, Debug)]
struct Waits {
    looks: [f64; BUCKETS],
    misses: [f64; BUCKETS],
    /// Misses of each wait before any was seen.
    least: f64,
}

impl Waits {
    fn new(least: f64) -> Self {
        Self {
            looks: [0.0; BUCKETS],
            misses: [0.0; BUCKETS],
            least,
        }
    }

    fn look(&mut self, bucket: usize, missed: bool, weight: f64) {
        let keep = 1.0 - weight * (1.0 - KEEP);
        self.looks[bucket] = keep * self.looks[bucket] + weight;
        self.misses[bucket] = keep * self.misses[bucket] + weight * f64::from(u8::from(missed));
    }

    fn doubt(&mut self) {
        for bucket in 0..BUCKETS {
            self.looks[bucket] *= 0.25;
            self.misses[bucket] *= 0.25;
        }
    }

    fn blend(&self, bucket: usize, prior: f64, weight: f64) -> f64 {
        (self.misses[bucket] + weight * prior) / (self.looks[bucket] + weight)
    }

    /// The expectation up to the bucket `last`. Without data and without a half width, each tick
    /// becomes wrong independently. A wrong value stays wrong: where a longer wait was found right
    /// more often, both are pooled.
    fn expect(&self, last: usize, prior: impl Fn(u64) -> Option<f64>) -> [f64; BUCKETS] {
        // Misses, looks and first bucket of each pool.
        let mut pools = [(0.0, 0.0, 0); BUCKETS];
        let mut count = 0;
        let (mut ticks, mut wrong) = (1, 0.0_f64);
        for bucket in 0..=last {
            let now = shortest(bucket);
            let (longer, weight) = match prior(now) {
                Some(said) => (said, PRIOR_SAID),
                None if bucket == 0 => (0.5, PRIOR),
                None => (longer(wrong, now as f64 / ticks as f64), PRIOR_SAID),
            };
            let misses = (weight * longer).max(self.least.min(0.5 * weight));
            let mut pool = (
                self.misses[bucket] + misses,
                self.looks[bucket] + weight,
                bucket,
            );
            while let Some(&(misses, looks, from)) = pools[..count].last()
                && misses * pool.1 > pool.0 * looks
            {
                pool = (misses + pool.0, looks + pool.1, from);
                count -= 1;
            }
            pools[count] = pool;
            count += 1;
            (ticks, wrong) = (now, pool.0 / pool.1);
        }
        let mut expected = [1.0; BUCKETS];
        let mut to = last + 1;
        for (misses, looks, from) in pools[..count].iter().rev() {
            expected[*from..to].fill(misses / looks);
            to = *from;
        }
        expected
    }
}

/// The probability of being wrong after `times` a wait after which it is `wrong`.
fn longer(wrong: f64, times: f64) -> f64 {
    if wrong <= 0.0 {
        0.0
    } else {
        1.0 - (1.0 - wrong).powf(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(shortest(index)), index, "{}", shortest(index));
        }
        assert!((1..4000).map(bucket).is_sorted());
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn candidates_rise_to_the_longest() {
        for longest in [1, 2, 63, 64, 65, 1000, 1 << 40] {
            let all: Vec<u64> = candidates(longest).collect();
            assert!(all.is_sorted() && all[0] == 1 && all.last() == Some(&longest));
            assert!(all.len() < 600, "{}", all.len());
        }
    }

    #[test]
    fn longer_waits_are_wrong_at_least_as_often() {
        let mut waits = Waits::new(LEAST);
        for (ticks, missed) in [(1, false), (3, true), (3, true), (9, false), (9, false)] {
            waits.look(bucket(ticks), missed, 1.0);
        }
        let expected = waits.expect(BUCKETS - 1, |_| None);
        assert!(expected.is_sorted(), "{expected:?}");
        assert!(expected[0] < 0.2 && expected[8] > 0.3, "{expected:?}");
        assert!(expected.iter().all(|wrong| (0.0..=1.0).contains(wrong)));
    }

    #[test]
    fn what_is_told_again_counts_for_what_is_new() {
        let [mut once, mut often] = [Waits::new(LEAST), Waits::new(LEAST)];
        once.look(bucket(8), false, 1.0);
        (0..8).for_each(|_| often.look(bucket(8), false, 0.125));
        let [once, often] = [once, often].map(|waits| waits.expect(bucket(8), |_| None)[7]);
        assert!((once - often).abs() < 0.01, "{once} {often}");
    }
}
