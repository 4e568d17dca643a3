//! How likely what is said of a stream is wrong some ticks from now, and for how long it will have been.
//!
//! Three models, mixed by how well each foresaw what looks found. Two count from the last time that it went wrong
//! ([`Gaps`]: steps, regular or not); the third from the last look ([`Waits`]: what wanders, or a forecast whose error
//! grows). Where a forecast says its own error, that is where the third begins.

use super::gaps::Gaps;

/// Waits have a bucket each up to here, and four per doubling beyond.
const SINGLE: u64 = 16;
const BUCKETS: usize = 80;
/// What it weighs, in looks, that nothing is known of the shortest wait.
const PRIOR: f64 = 0.3;
/// What it weighs, in looks, what a forecast says of its error, or a shorter wait of a longer one.
const PRIOR_SAID: f64 = 1.5;
/// What is left of a look's weight after the next one of the same bucket.
const KEEP: f64 = 0.997;
/// What it weighs, in misses, that a wait goes wrong that never did, where each look was compared with all before.
const LEAST: f64 = 0.25;
/// What is left of a model's score after the next look.
const KEEP_SCORE: f64 = 0.99;
/// What is left of a miss's weight after the next look, where models are held against what was.
const KEEP_MISSES: f64 = 0.98;
/// No model is believed to know better than this.
const CERTAIN: f64 = 0.002;
/// A miss that was held for less likely than this is a surprise.
const SURPRISE: f64 = 0.02;
/// So many surprises, of which each look forgets a tenth, cast doubt on what was learned.
const SURPRISES_MAX: f64 = 1.5;

/// Gaps as seen, gaps smoothed, waits.
const MODELS: usize = 3;

/// How far what was said is off at each look, learned for one way of saying it.
#[derive(Clone, Debug)]
pub(super) struct Risk {
    gaps: Gaps,
    waits: Waits,
    /// How well each model foresaw, in nats.
    scores: [f64; MODELS],
    surprises: f64,
    /// Misses of late: as the models expected them, and as they were.
    expected: f64,
    missed: f64,
}

/// The probability of being wrong at each of a growing series of waits.
pub(super) struct Curve<'a> {
    gaps: &'a Gaps,
    alive: [f32; 2],
    waits: [f64; BUCKETS],
    weights: [f64; MODELS],
}

impl Risk {
    /// Of what is only known at looks as they come.
    pub(super) fn new() -> Self {
        Self::with(0.0)
    }

    /// Of what each look says for all waits, by [`compare`](Self::compare).
    pub(super) fn compared() -> Self {
        Self::with(LEAST)
    }

    fn with(least: f64) -> Self {
        Self {
            gaps: Gaps::new(),
            waits: Waits::new(least),
            scores: [0.0; MODELS],
            surprises: 0.0,
            expected: 0.0,
            missed: 0.0,
        }
    }

    /// After a look `ticks` after the last; `prior` is what the forecast held for the probability of `missed`. Whether
    /// what was learned has just been called in doubt.
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

    /// How much more often it was wrong than the models expected.
    pub(super) fn bias(&self) -> f64 {
        ((self.missed + 2.0) / (self.expected + 2.0)).clamp(0.7, 6.0)
    }

    /// What an earlier look saw, so many ticks ago, no longer held, or did. `weight`: how much of that time is new.
    pub(super) fn compare(&mut self, ticks: u64, missed: bool, weight: f64) {
        self.waits.look(bucket(ticks), missed, weight);
    }

    /// A look that cannot say whether what was said was wrong before it.
    pub(super) fn skip(&mut self, ticks: u64) {
        self.gaps.look(ticks, false);
    }

    /// What is to be expected of waits up to `ticks_max`; `prior` is what the forecast holds for the probability of
    /// being wrong so many ticks ahead.
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

    /// How long what is said will have been wrong at a look `ticks` from now, in ticks: for each wait of `waits`,
    /// which rise from 1.
    pub(super) fn late(&self, waits: impl Iterator<Item = u64>, mut visit: impl FnMut(u64, f64)) {
        let (mut at, mut wrong, mut late) = (0, 0.0, 0.0);
        for wait in waits {
            let then = self.wrong(wait);
            // Right at the look itself: between, what is wrong grows about evenly.
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

/// Waits worth weighing, rising, the last one `ticks_max`: each up to 64, then 8 per doubling.
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

/// The share of looks that found what was said wrong, by how long after the look before.
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

    /// Up to the bucket `last`. Where nothing was seen and the forecast says nothing: as if each tick went wrong by itself.
    /// What is wrong stays so: where a longer wait was found right more often, both are pooled.
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

/// What is wrong with probability `wrong` after a wait, after `times` that wait.
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
