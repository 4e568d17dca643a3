//! The most frequent of very many things, in bounded memory: the Space-Saving algorithm (Metwally,
//! Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data Streams",
//! 2005).
//!
//! A counter is kept for at most `max` things. A thing without a counter takes the place of the
//! least frequent one and inherits its count, which becomes the error of the new count. For each
//! thing the true count lies in `[count - error, count]`, the error is at most the sum of all
//! weights divided by `max`, and every thing that occurs more often than that has a counter.
//!
//! So that counts follow the present, all of them can be multiplied by a factor below 1 from time
//! to time: the guarantee then holds for counts that decay in the same way, because it is linear. A
//! heap replaces the paper's list of buckets, which needs whole counts.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A count that has decayed to less than this has no stream any more.
pub(crate) const TOLD_MIN: f64 = 1.0 / 16.0;

/// A thing that has a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Heavy<K> {
    pub(crate) key: K,
    /// Upper bound of the true count.
    pub(crate) count: f64,
    /// Largest excess of the count over the true one.
    pub(crate) error: f64,
}

impl<K> Heavy<K> {
    /// The count rounded up to a whole number, and the error that goes with it.
    pub(crate) fn whole(&self) -> (u64, f64) {
        let count = self.count.ceil();
        (count as u64, count - (self.count - self.error).floor())
    }
}

/// Counters of the most frequent things.
#[derive(Debug)]
pub(crate) struct Top<K> {
    /// Counters in no order; a thing keeps its index until another thing takes it.
    counters: Vec<Heavy<K>>,
    /// Indices of `counters`, as a heap with the least count first.
    heap: Vec<u32>,
    /// The position in the heap of each index of `counters`.
    at: Vec<u32>,
    places: HashMap<K, u32, BuildHasherDefault<Multiply>>,
    max: usize,
}

impl<K: Copy + Eq + Hash + Ord> Top<K> {
    /// Creates a table of at most `max` counters, and at least one.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            counters: Vec::new(),
            heap: Vec::new(),
            at: Vec::new(),
            places: HashMap::default(),
            max: max.clamp(1, u32::MAX as usize),
        }
    }

    /// Counts one more occurrence of `key`.
    pub(crate) fn add(&mut self, key: K) {
        if let Some(place) = self.places.get(&key) {
            let place = *place as usize;
            self.counters[place].count += 1.0;
            return self.sink(self.at[place] as usize);
        }
        if self.counters.len() < self.max {
            let place = self.counters.len() as u32;
            self.counters.push(Heavy {
                key,
                count: 1.0,
                error: 0.0,
            });
            self.at.push(place);
            self.heap.push(place);
            self.places.insert(key, place);
            return self.rise(place as usize);
        }
        let place = self.heap[0];
        let least = &mut self.counters[place as usize];
        self.places.remove(&least.key);
        self.places.insert(key, place);
        *least = Heavy {
            key,
            count: least.count + 1.0,
            error: least.count,
        };
        self.sink(0);
    }

    /// Multiplies every count by a factor, which leaves their order as it is.
    pub(crate) fn decay(&mut self, factor: f64) {
        for counter in &mut self.counters {
            counter.count *= factor;
            counter.error *= factor;
        }
    }

    /// The `n` greatest counts, the greatest first; of equal ones the smaller key first.
    pub(crate) fn greatest(&self, n: usize, into: &mut Vec<Heavy<K>>) {
        let order = |a: &Heavy<K>, b: &Heavy<K>| {
            b.count.total_cmp(&a.count).then_with(|| a.key.cmp(&b.key))
        };
        into.clear();
        into.extend_from_slice(&self.counters);
        if n < into.len() {
            into.select_nth_unstable_by(n, order);
            into.truncate(n);
        }
        into.sort_unstable_by(order);
    }

    /// Whether the thing has a counter.
    #[cfg(test)]
    pub(crate) fn holds(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// The count at this position of the heap.
    fn count(&self, at: usize) -> f64 {
        self.counters[self.heap[at] as usize].count
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.at[self.heap[a] as usize] = a as u32;
        self.at[self.heap[b] as usize] = b as u32;
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.count(at) < self.count((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            if left < self.heap.len() && self.count(left) < self.count(least) {
                least = left;
            }
            if right < self.heap.len() && self.count(right) < self.count(least) {
                least = right;
            }
            if least == at {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

/// A hash function for these tables, which are small and whose keys are a few numbers: two
/// multiplications are enough, where the standard hash costs more than all the rest of a count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        // The hash table uses the high and the low bits.
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }

    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(26) ^ v).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
}

/// The share of a count that is left after a time, if half is left after `half_life_ns`.
pub(crate) fn left_after(elapsed_ns: i64, half_life_ns: i64) -> f64 {
    (-(elapsed_ns.max(0) as f64) / half_life_ns.max(1) as f64).exp2()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A count of one key, or a decay of all counts by this many quarters of a half-life.
    #[derive(Clone, Debug)]
    enum Step {
        Add(u32),
        Decay(u8),
    }

    /// A few keys often and many seldom, like hot extents.
    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (0..8u32).prop_map(Step::Add),
            20 => (0..500u32).prop_map(Step::Add),
            1 => (0..8u8).prop_map(Step::Decay),
        ]
    }

    fn run(steps: &[Step], max: usize) -> (Top<u32>, BTreeMap<u32, f64>) {
        let mut top = Top::new(max);
        let mut exact: BTreeMap<u32, f64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(key) => {
                    top.add(*key);
                    *exact.entry(*key).or_default() += 1.0;
                }
                Step::Decay(quarters) => {
                    let factor = left_after(i64::from(*quarters), 4);
                    top.decay(factor);
                    exact.values_mut().for_each(|count| *count *= factor);
                }
            }
        }
        (top, exact)
    }

    fn check(steps: &[Step], max: usize) -> Result<(), TestCaseError> {
        const ROUNDING: f64 = 1e-9;
        let (top, exact) = run(steps, max);
        let sum: f64 = exact.values().sum();
        let mut all = Vec::new();
        top.greatest(usize::MAX, &mut all);
        prop_assert!(all.len() <= max && all.len() == exact.len().min(max));
        let counted: f64 = all.iter().map(|heavy| heavy.count).sum();
        prop_assert!((counted - sum).abs() < ROUNDING * sum.max(1.0));
        let least = all.last().map_or(0.0, |heavy| heavy.count);
        for heavy in &all {
            let truth = exact[&heavy.key];
            prop_assert!(truth <= heavy.count + ROUNDING, "{heavy:?}, truly {truth}");
            prop_assert!(
                truth >= heavy.count - heavy.error - ROUNDING,
                "{heavy:?}, truly {truth}"
            );
            prop_assert!(heavy.error <= sum / max as f64 + ROUNDING);
            let (count, error) = heavy.whole();
            prop_assert!(truth <= count as f64 + ROUNDING);
            prop_assert!(truth >= count as f64 - error - ROUNDING);
        }
        for (key, truth) in &exact {
            prop_assert!(
                top.holds(key) || *truth <= least + ROUNDING,
                "{key} was lost"
            );
        }
        let mut some = Vec::new();
        top.greatest(3, &mut some);
        prop_assert_eq!(&some[..], &all[..all.len().min(3)]);
        Ok(())
    }

    proptest! {
        #[test]
        fn true_counts_are_within_what_is_said(
            steps in proptest::collection::vec(step(), 0..2000),
            max in 1..64usize,
        ) {
            check(&steps, max)?;
        }

        /// While there are enough counters, every count is exact.
        #[test]
        fn few_things_are_counted_exactly(keys in proptest::collection::vec(0..32u32, 0..500)) {
            let steps: Vec<_> = keys.into_iter().map(Step::Add).collect();
            let (top, exact) = run(&steps, 32);
            let mut all = Vec::new();
            top.greatest(usize::MAX, &mut all);
            for heavy in all {
                prop_assert_eq!((heavy.count, heavy.error), (exact[&heavy.key], 0.0));
            }
        }
    }

    #[test]
    fn the_worst_order_of_arrival() {
        // Every key is new: each takes the place of another, and only the bound is known.
        let steps: Vec<_> = (0..1000).map(Step::Add).collect();
        check(&steps, 10).unwrap();
        // The frequent key comes last.
        let steps: Vec<_> = (0..1000).chain([7; 300]).map(Step::Add).collect();
        check(&steps, 10).unwrap();
        let (top, _) = run(&steps, 10);
        let mut first = Vec::new();
        top.greatest(1, &mut first);
        assert_eq!(first[0].key, 7);
    }

    #[test]
    fn half_is_left_after_the_half_life() {
        assert_eq!(left_after(60, 60), 0.5);
        assert_eq!(left_after(0, 60), 1.0);
        assert_eq!(left_after(-5, 60), 1.0);
        assert_eq!(left_after(120, 60), 0.25);
        assert!(left_after(i64::MAX, 0) == 0.0);
    }
}
