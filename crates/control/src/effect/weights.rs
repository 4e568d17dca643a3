//! Whether the raised weights of one reader on one device make its reads faster.
//!
//! Of five reads that would have a raised weight, one has none on purpose, at a place that changes,
//! so that a program that does the same at each fifth read compares nothing but that. After sixteen
//! reads with a weight and four without, a rank-sum test says whether those with one were faster.
//! If it cannot say so with a confidence of 90 %, weights are held off.

use std::collections::VecDeque;

use super::HOLD_OFF_NS;
use super::rank::{larger_by_chance, median};

/// Reads of a round, of which one has no weight.
const ROUND: u64 = 5;
/// Fewest reads with a weight, and without one, that are compared.
const WITH_MIN: usize = 16;
const WITHOUT_MIN: usize = 4;
/// Most of each that are compared: the newest ones.
const COMPARED_MAX: usize = 32;
/// The greatest probability of a difference by chance at which the effect counts as shown.
const CHANCE_MAX: f64 = 0.1;

/// What the next read may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightVerdict {
    /// The weight that is proposed for it.
    Weigh,
    /// None, since reads with a weight are compared with it.
    Compare,
    /// None until then, since weights have shown no effect.
    HeldOff {
        /// The end, in ns on the caller's clock.
        until_ns: i64,
    },
}

/// What a comparison has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightFinding {
    /// Number and median bandwidth of the reads with a weight, in bytes/s.
    pub with: (usize, f64),
    /// The same of those without.
    pub without: (usize, f64),
    /// The probability of such a difference by chance.
    pub chance: f64,
    /// Whether the effect is there.
    pub is_effective: bool,
}

impl WeightFinding {
    /// The finding as a sentence.
    pub fn sentence(&self) -> String {
        let ((with, fast), (without, slow)) = (self.with, self.without);
        let mega = 1e6;
        format!(
            "{with} reads with a raised weight had {:.3} MB/s (median), {without} without one {:.3} MB/s; \
             by chance alone they would be as fast with a probability of {:.2}, and less than \
             {CHANCE_MAX} is wanted",
            fast / mega,
            slow / mega,
            self.chance
        )
    }
}

/// What is known of the effect of one reader's weights on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightEffect {
    asked: u64,
    with: VecDeque<f64>,
    without: VecDeque<f64>,
    held_until_ns: Option<i64>,
    last: Option<WeightFinding>,
}

impl WeightEffect {
    /// Whether the next read for which a raised weight is proposed may have it.
    pub fn next(&mut self, now_ns: i64) -> WeightVerdict {
        if let Some(until_ns) = self.held_until(now_ns) {
            return WeightVerdict::HeldOff { until_ns };
        }
        let (round, place) = (self.asked / ROUND, self.asked % ROUND);
        self.asked += 1;
        match place == place_of_comparison(round) {
            true => WeightVerdict::Compare,
            false => WeightVerdict::Weigh,
        }
    }

    /// The time until which weights are held off.
    pub fn held_until(&self, now_ns: i64) -> Option<i64> {
        self.held_until_ns.filter(|until_ns| now_ns < *until_ns)
    }

    /// What the last comparison has found.
    pub fn last(&self) -> Option<&WeightFinding> {
        self.last.as_ref()
    }

    /// The median bandwidth of the reads without a weight, as far as there are any.
    pub fn without(&self) -> Option<f64> {
        let known = !self.without.is_empty();
        known.then(|| median(&self.without.iter().copied().collect::<Vec<_>>()))
    }

    /// Takes in the bandwidth of a read that had the weight, or that had none for the comparison.
    /// Returns what a comparison has found, if this was the last read that it needed.
    pub fn observe(
        &mut self,
        had_weight: bool,
        bandwidth: f64,
        now_ns: i64,
    ) -> Option<WeightFinding> {
        if !(bandwidth.is_finite() && bandwidth > 0.0) || self.held_until(now_ns).is_some() {
            return None;
        }
        let of = match had_weight {
            true => &mut self.with,
            false => &mut self.without,
        };
        if of.len() == COMPARED_MAX {
            of.pop_front();
        }
        of.push_back(bandwidth);
        if self.with.len() < WITH_MIN || self.without.len() < WITHOUT_MIN {
            return None;
        }
        let with: Vec<f64> = self.with.drain(..).collect();
        let without: Vec<f64> = self.without.drain(..).collect();
        let chance = larger_by_chance(&with, &without);
        let finding = WeightFinding {
            with: (with.len(), median(&with)),
            without: (without.len(), median(&without)),
            chance,
            is_effective: chance < CHANCE_MAX,
        };
        if !finding.is_effective {
            self.held_until_ns = Some(now_ns.saturating_add(HOLD_OFF_NS));
        }
        self.last = Some(finding);
        Some(finding)
    }
}

/// The place in a round of the read without a weight: the last one first, then any (splitmix64).
fn place_of_comparison(round: u64) -> u64 {
    if round == 0 {
        return ROUND - 1;
    }
    let mixed = round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed ^ (mixed >> 27)) >> 32) % ROUND
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads until the first finding, with these bandwidths; returns it and the number of reads.
    fn read(effect: &mut WeightEffect, of: impl Fn(bool, u64) -> f64) -> (WeightFinding, u64) {
        for n in 0..1_000 {
            let had_weight = match effect.next(n) {
                WeightVerdict::Weigh => true,
                WeightVerdict::Compare => false,
                WeightVerdict::HeldOff { .. } => panic!("held off before a finding"),
            };
            let bandwidth = of(had_weight, n as u64);
            if let Some(finding) = effect.observe(had_weight, bandwidth, n) {
                return (finding, n as u64 + 1);
            }
        }
        panic!("no finding");
    }

    #[test]
    fn a_weight_with_an_effect_stays_and_is_compared_again() {
        let mut effect = WeightEffect::default();
        let faster = |had_weight, n| if had_weight { 200.0 } else { 100.0 } + (n % 7) as f64;
        for _ in 0..5 {
            let (finding, reads) = read(&mut effect, faster);
            assert!(finding.is_effective && finding.chance < 0.01, "{finding:?}");
            assert_eq!((finding.with.0, finding.without.0, reads), (16, 4, 20));
            assert_eq!(effect.held_until(0), None);
        }
    }

    #[test]
    fn one_without_effect_is_held_off_and_tried_again_later() {
        let mut effect = WeightEffect::default();
        let noise = |_, n: u64| 100.0 + (n.wrapping_mul(7_919) % 13) as f64;
        let (finding, _) = read(&mut effect, noise);
        assert!(!finding.is_effective, "{finding:?}");
        assert!(finding.sentence().contains("16 reads with a raised weight"));
        let until_ns = effect.held_until(20).unwrap();
        assert_eq!(
            effect.next(until_ns - 1),
            WeightVerdict::HeldOff { until_ns }
        );
        // What was under way counts for nothing.
        assert_eq!(effect.observe(true, 1e9, 30), None);
        assert_ne!(effect.next(until_ns), WeightVerdict::HeldOff { until_ns });
        let slower = |had_weight, _| if had_weight { 50.0 } else { 100.0 };
        let mut effect = WeightEffect::default();
        assert!(!read(&mut effect, slower).0.is_effective);
    }

    #[test]
    fn comparisons_are_one_of_five_at_changing_places() {
        let mut effect = WeightEffect::default();
        let all: Vec<WeightVerdict> = (0..500).map(|_| effect.next(0)).collect();
        let mut places = [0; ROUND as usize];
        for round in all.chunks(ROUND as usize) {
            let at: Vec<usize> = (0..round.len())
                .filter(|at| round[*at] == WeightVerdict::Compare)
                .collect();
            assert_eq!(at.len(), 1);
            places[at[0]] += 1;
        }
        assert!(places.iter().all(|count| *count >= 10), "{places:?}");
        assert_eq!(all[..4], [WeightVerdict::Weigh; 4]);
    }

    #[test]
    fn absurd_bandwidths_are_left_out_and_the_rest_is_bounded() {
        let mut effect = WeightEffect::default();
        for bandwidth in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert_eq!(effect.observe(false, bandwidth, 0), None);
        }
        assert_eq!(effect.without(), None);
        for _ in 0..1_000 {
            assert_eq!(
                effect.observe(true, 1.0, 0),
                None,
                "nothing to compare with"
            );
        }
        assert_eq!(effect.with.len(), COMPARED_MAX);
        effect.observe(false, 3.0, 0);
        assert_eq!(effect.without(), Some(3.0));
    }
}
