//! Random numbers that are the same on every machine: for training, synthetic series and tests. Not
//! for secrets.

/// SplitMix64 (Steele, Lea, Flood 2014): a seed gives the same numbers everywhere, since it does
/// not use the machine's mathematical library.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator. Seeds that differ by one give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a uniform number in 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniform number between `low` and `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns a uniform number in 0 to `bound`, without `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Returns true in a `share` (0 to 1) of cases.
    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// Returns a nearly normal number of mean 0 and variance 1, never beyond 6: twelve uniform
    /// numbers less 6, which needs no logarithm.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// Shuffles the items (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_of_a_seed_are_those_of_the_reference() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_keep_to_their_ranges_and_moments() {
        let mut random = Random::new(1);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..20_000 {
            let unit = random.unit();
            assert!((0.0..1.0).contains(&unit));
            assert!(random.below(7) < 7);
            let normal = random.normal();
            sum += normal;
            squares += normal * normal;
        }
        assert_eq!(random.below(0), 0);
        assert!((sum / 20_000.0).abs() < 0.03);
        assert!((squares / 20_000.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_shuffled_slice_has_the_same_items() {
        let mut items: Vec<usize> = (0..100).collect();
        Random::new(9).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
