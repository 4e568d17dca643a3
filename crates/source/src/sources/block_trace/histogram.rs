//! A histogram in bounded memory: counts by the leading bits of the value, as in HdrHistogram. A
//! quantile is at most 1/32 (3.2 %) below the true one, and exact for powers of two and their
//! simple sums, such as sizes of requests.

/// Number of bits after the leading one by which values are distinguished.
const BITS: u32 = 5;
/// Number of counts per power of two.
const PARTS: usize = 1 << BITS;
/// Number of bits of the largest value: 2^41 ns are 36 minutes. Larger values count as the largest.
const BITS_MAX: u32 = 41;
const PLACES: usize = (BITS_MAX - BITS + 1) as usize * PARTS;

/// Counts of values, which can decay.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Box<[f64]>,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self {
            counts: vec![0.0; PLACES].into_boxed_slice(),
        }
    }

    pub(super) fn add(&mut self, value: u64) {
        self.counts[place(value)] += 1.0;
    }

    /// Multiplies every count by a factor.
    pub(super) fn decay(&mut self, factor: f64) {
        self.counts.iter_mut().for_each(|count| *count *= factor);
    }

    /// The number of values.
    pub(super) fn total(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// For each share, in ascending order: the least value that this share of values does not
    /// exceed, and how much larger the true one may be. `None` if there are no values.
    pub(super) fn quantiles<const N: usize>(&self, shares: [f64; N]) -> Option<[(u64, u64); N]> {
        let total = self.total();
        if total <= 0.0 {
            return None;
        }
        let mut found = [(0, 0); N];
        let (mut below, mut next) = (0.0, 0);
        for (place, count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0.0) {
            below += count;
            // The last value also covers a remainder that is due to rounding.
            while next < N && below >= shares[next] * total * (1.0 - 1e-12) {
                found[next] = (least(place), least(place + 1) - least(place) - 1);
                next += 1;
            }
        }
        (next == N).then_some(found)
    }
}

/// The index of the count of a value.
fn place(value: u64) -> usize {
    let value = value.min((1 << BITS_MAX) - 1);
    if value < PARTS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - BITS;
    (shift as usize) * PARTS + (value >> shift) as usize
}

/// The least value that belongs to this count.
fn least(place: usize) -> u64 {
    if place < 2 * PARTS {
        return place as u64;
    }
    let shift = place / PARTS - 1;
    ((place % PARTS + PARTS) as u64) << shift
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_follow_one_another() {
        assert_eq!(place(0), 0);
        assert_eq!(place(u64::MAX), PLACES - 1);
        for at in 0..PLACES {
            assert_eq!(place(least(at)), at);
            assert_eq!(place(least(at + 1) - 1), at);
        }
        for exact in [
            512,
            4096,
            8192,
            12_288,
            65_536,
            131_072,
            1 << 20,
            1280 << 10,
        ] {
            assert_eq!(least(place(exact)), exact);
        }
    }

    #[test]
    fn nothing_has_no_quantile_and_one_value_has_all() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantiles([0.5]), None);
        histogram.add(4096);
        assert_eq!(
            histogram.quantiles([0.01, 0.5, 1.0]),
            Some([(4096, 127); 3])
        );
        histogram.decay(0.0);
        assert_eq!(histogram.quantiles([0.5]), None);
    }

    #[test]
    fn what_decays_loses_its_say() {
        let mut histogram = Histogram::new();
        (0..100).for_each(|_| histogram.add(1000));
        histogram.decay(1.0 / 128.0);
        (0..2).for_each(|_| histogram.add(8));
        assert_eq!(
            histogram.quantiles([0.7, 0.9]).unwrap().map(|q| q.0),
            [8, 992]
        );
    }

    proptest! {
        #[test]
        fn quantiles_are_close_to_the_true_ones(
            mut values in proptest::collection::vec(0..(1u64 << 40), 1..300),
            share in 0.0..=1.0f64,
        ) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|v| histogram.add(*v));
            values.sort_unstable();
            let rank = (share * values.len() as f64).ceil().max(1.0) as usize - 1;
            let [(value, error)] = histogram.quantiles([share]).unwrap();
            let truth = values[rank];
            prop_assert!(value <= truth && truth <= value + error, "{value} + {error}, truly {truth}");
            prop_assert!(error as f64 <= value as f64 / 32.0);
        }
    }
}
