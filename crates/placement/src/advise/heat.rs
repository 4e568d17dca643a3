//! The heat of file segments: how often each was read, where reads count less the older they are
//! (HFetch, Devarajan, Kougkas, Sun, "HFetch: hierarchical data prefetching for scientific
//! workflows in multi-tiered storage environments", IPDPS 2020, scores segments so).
//!
//! All heat decays by the same factor, so the order of segments does not change with time. It is
//! kept as the time at which the heat was or will be 1, which does not change with time either.

use std::collections::{BTreeMap, BTreeSet};

/// Most segments whose heat is kept; beyond it the coldest is forgotten.
pub const HEAT_SEGMENTS_MAX: usize = 65_536;

/// The heat of segments.
#[derive(Clone, Debug)]
pub struct SegmentHeat {
    tau_ns: f64,
    segments_max: usize,
    /// The time at which the heat of each is 1, in ns, as an ordered number.
    ones: BTreeMap<u64, i64>,
    coldest: BTreeSet<(i64, u64)>,
    forgotten: u64,
}

impl SegmentHeat {
    /// No segment was read. A read counts a third after `tau_s` seconds; heat is kept of
    /// `segments_max` segments, and of [`HEAT_SEGMENTS_MAX`] at most.
    pub fn new(tau_s: f64, segments_max: usize) -> Self {
        let tau_ns = if tau_s > 1e-6 { tau_s * 1e9 } else { 1e3 };
        Self {
            tau_ns,
            segments_max: segments_max.clamp(1, HEAT_SEGMENTS_MAX),
            ones: BTreeMap::new(),
            coldest: BTreeSet::new(),
            forgotten: 0,
        }
    }

    /// Takes in a read of a segment.
    pub fn read(&mut self, segment: u64, now_ns: i64) {
        let heat = self.heat(segment, now_ns) + 1.0;
        self.set(segment, now_ns, heat);
        if self.ones.len() > self.segments_max
            && let Some((_, coldest)) = self.coldest.first().copied()
        {
            self.forget(coldest);
            self.forgotten += 1;
        }
    }

    /// The heat of a segment: the number of its reads, each less the older it is.
    pub fn heat(&self, segment: u64, now_ns: i64) -> f64 {
        match self.ones.get(&segment) {
            Some(one_ns) => (one_ns.saturating_sub(now_ns) as f64 / self.tau_ns).exp(),
            None => 0.0,
        }
    }

    /// Reads per second that the heat of a segment stands for: of one that is read at a steady
    /// rate, its heat is the rate times the time constant.
    pub fn reads_per_s(&self, segment: u64, now_ns: i64) -> f64 {
        self.heat(segment, now_ns) / (self.tau_ns / 1e9)
    }

    /// The hottest segments, the hottest first.
    pub fn hottest(&self, count: usize) -> Vec<u64> {
        let hottest = self.coldest.iter().rev().take(count);
        hottest.map(|(_, segment)| *segment).collect()
    }

    /// Forgets a segment.
    pub fn forget(&mut self, segment: u64) {
        if let Some(one_ns) = self.ones.remove(&segment) {
            self.coldest.remove(&(one_ns, segment));
        }
    }

    /// How many segments were forgotten, since there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn set(&mut self, segment: u64, now_ns: i64, heat: f64) {
        self.forget(segment);
        // A conversion of floats saturates.
        let one_ns = now_ns.saturating_add((heat.ln() * self.tau_ns) as i64);
        self.ones.insert(segment, one_ns);
        self.coldest.insert((one_ns, segment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn heat_decays_and_the_coldest_is_forgotten() {
        let mut heat = SegmentHeat::new(10.0, 2);
        heat.read(1, 0);
        heat.read(1, 0);
        heat.read(2, 0);
        assert!((heat.heat(1, 0) - 2.0).abs() < 1e-6);
        assert!((heat.heat(1, 10 * S) - 2.0 * (-1.0_f64).exp()).abs() < 1e-6);
        assert_eq!(heat.hottest(5), [1, 2]);
        heat.read(3, S);
        assert_eq!((heat.hottest(5), heat.forgotten()), (vec![1, 3], 1));
        assert_eq!(heat.heat(2, S), 0.0);
    }

    #[test]
    fn a_steady_rate_is_found() {
        let mut heat = SegmentHeat::new(10.0, 8);
        for read in 0..1_000 {
            heat.read(1, read * S / 4);
        }
        let rate = heat.reads_per_s(1, 250 * S);
        assert!((rate - 4.0).abs() < 0.2, "{rate}");
    }
}
