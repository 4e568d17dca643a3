//! How likely what is said of a stream is wrong some ticks from now, and for how long it will have been.
//!
//! Two models, mixed by how well each foresaw what looks found. One counts from the last time that it went wrong
//! ([`Gaps`]: steps, regular or not); the other from the last look ([`Waits`]: what wanders, or a forecast whose error
//! grows). Where a forecast says its own error, that is where the second begins.

use super::gaps::{Gaps, WAIT_TICKS_MAX};

/// Two buckets per doubling of the wait.
const BUCKETS: usize = 48;
/// What the prior of a bucket weighs, in looks.
const PRIOR: f64 = 2.0;
/// What is left of a look's weight after the next one of the same bucket.
const KEEP: f64 = 0.97;
/// What is left of a model's score after the next look.
const KEEP_SCORE: f64 = 0.95;
/// No model is believed to know better than this.
const CERTAIN: f64 = 0.002;
/// A miss that was held for less likely than this is a surprise.
const SURPRISE: f64 = 0.02;
/// So many surprises, of which each look forgets a tenth, cast doubt on what was learned.
const SURPRISES_MAX: f64 = 1.5;

/// How far what was said is off at each look, learned for one way of saying it.
#[derive(Clone, Debug)]
pub(super) struct Risk {
    gaps: Gaps,
    waits: Waits,
    /// How much better the second model foresaw, in nats.
    score: f64,
    surprises: f64,
}

/// The probability of being wrong at each of a growing series of waits.
pub(super) struct Curve {
    gaps: [f32; WAIT_TICKS_MAX],
    scale: u64,
    waits: [f64; BUCKETS],
    /// Of the second model.
    weight: f64,
}

/// What a look found, against what was expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The probability that what was said was wrong, as expected before.
    pub expected: f64,
    /// What was learned has just been called in doubt.
    pub doubtful: bool,
}

impl Risk {
    pub(super) fn new() -> Self {
        Self {
            gaps: Gaps::new(),
            waits: Waits::new(),
            score: 0.0,
            surprises: 0.0,
        }
    }

    /// After a look `ticks` after the last; `prior` is what the forecast held for the probability of `missed`.
    pub(super) fn look(&mut self, ticks: u64, missed: bool, prior: Option<f64>) -> Found {
        let curve = self.curve(|_| None);
        let (by_gaps, mut by_waits) = curve.each(ticks);
        if let Some(prior) = prior {
            by_waits = self.waits.blend(bucket(ticks), prior);
        }
        let expected = mix(by_gaps, by_waits, curve.weight);
        let gain = likelihood(by_waits, missed).ln() - likelihood(by_gaps, missed).ln();
        self.score = KEEP_SCORE * self.score + gain;
        self.gaps.look(ticks, missed);
        self.waits.look(bucket(ticks), missed);
        Found {
            expected,
            doubtful: self.doubt(missed && expected < SURPRISE),
        }
    }

    /// What is to be expected from now on; `prior` is what the forecast holds for the probability of being wrong so
    /// many ticks ahead.
    pub(super) fn curve(&self, prior: impl Fn(u64) -> Option<f64>) -> Curve {
        let mut curve = Curve {
            gaps: [0.0; WAIT_TICKS_MAX],
            scale: self.gaps.scale(),
            waits: self.waits.expect(prior),
            weight: 1.0 / (1.0 + (-self.score).exp()),
        };
        self.gaps.expect(&mut curve.gaps);
        let mut sum = 0.0;
        for probability in &mut curve.gaps {
            sum += *probability;
            *probability = sum.min(1.0);
        }
        curve
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

impl Curve {
    /// The probability of being wrong `ticks` from now.
    pub(super) fn wrong(&self, ticks: u64) -> f64 {
        let (gaps, waits) = self.each(ticks);
        mix(gaps, waits, self.weight)
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

    fn each(&self, ticks: u64) -> (f64, f64) {
        let at = ticks as f64 / self.scale as f64;
        let whole = at as usize;
        let known = |index: usize| match index {
            0 => 0.0,
            index => f64::from(self.gaps.get(index - 1).copied().unwrap_or(1.0)),
        };
        let (low, high) = (known(whole), known(whole.saturating_add(1)));
        let gaps = low + (high - low) * (at - whole as f64);
        (gaps, self.waits[bucket(ticks)])
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

fn mix(gaps: f64, waits: f64, weight: f64) -> f64 {
    (gaps * (1.0 - weight) + waits * weight).clamp(0.0, 1.0)
}

fn likelihood(wrong: f64, missed: bool) -> f64 {
    let wrong = wrong.clamp(CERTAIN, 1.0 - CERTAIN);
    if missed { wrong } else { 1.0 - wrong }
}

/// Two per doubling: 1, (none), 2, 3, 4, 6, 8, …
fn bucket(ticks: u64) -> usize {
    let ticks = ticks.max(1);
    let whole = ticks.ilog2() as usize;
    let upper = ticks as f64 >= (1u64 << whole.min(62)) as f64 * std::f64::consts::SQRT_2;
    (2 * whole + usize::from(upper)).min(BUCKETS - 1)
}

/// The share of looks that found what was said wrong, by how long after the look before.
#[derive(Clone, Debug)]
struct Waits {
    looks: [f64; BUCKETS],
    misses: [f64; BUCKETS],
}

impl Waits {
    fn new() -> Self {
        Self {
            looks: [0.0; BUCKETS],
            misses: [0.0; BUCKETS],
        }
    }

    fn look(&mut self, bucket: usize, missed: bool) {
        self.looks[bucket] = KEEP * self.looks[bucket] + 1.0;
        self.misses[bucket] = KEEP * self.misses[bucket] + f64::from(u8::from(missed));
    }

    fn doubt(&mut self) {
        for bucket in 0..BUCKETS {
            self.looks[bucket] *= 0.25;
            self.misses[bucket] *= 0.25;
        }
    }

    fn blend(&self, bucket: usize, prior: f64) -> f64 {
        (self.misses[bucket] + PRIOR * prior) / (self.looks[bucket] + PRIOR)
    }

    /// Where nothing was seen and the forecast says nothing: as if each stretch went wrong by itself.
    fn expect(&self, prior: impl Fn(u64) -> Option<f64>) -> [f64; BUCKETS] {
        let mut expected = [0.0; BUCKETS];
        let mut before = 0.5_f64;
        for (bucket, expected) in expected.iter_mut().enumerate() {
            let longer = if bucket == 0 {
                before
            } else {
                1.0 - (1.0 - before).powf(std::f64::consts::SQRT_2)
            };
            let ticks = 2.0_f64.powf(bucket as f64 / 2.0) as u64;
            before = self.blend(bucket, prior(ticks).unwrap_or(longer)).max(if bucket == 0 { 0.0 } else { before });
            *expected = before;
        }
        expected
    }
}
