//! The greatest rate of transfer of a disk, and its origin.
//!
//! A configured value takes precedence. Next is the rate that `baro probe` measured, then the rate
//! that a table gives for the disk's link; but once a higher rate than the measured or tabulated
//! one was observed, the observed one counts, since the disk achieved it. An observed rate alone is
//! a weak estimate: a disk under little load has never shown its limit, and would seem to be at its
//! limit with every request.
//!
//! The table ([`crate::util::link`]): an NVMe drive is assumed to use 90 % of its PCIe link, a SATA
//! or SAS disk 92 % of its phy, and a disk with platters at most 250 MB/s. Virtual disks are in no
//! table.

use barograph_model::NS_PER_S;

use crate::util::rate::per_second;

/// Shortest time over which a rate is taken, so that two reads close together do not look like a
/// bandwidth.
const SECOND_NS: i64 = NS_PER_S * 9 / 10;
/// Share of all bytes that the fastest seconds must have moved for their rate to count as the
/// disk's limit: a single burst into a cache is too little, and slow hours do not hide one fast
/// minute.
const FASTEST_SHARE: f64 = 0.02;
const LEAST_BYTES_PER_SECOND: f64 = 4096.0;
const BUCKETS_PER_OCTAVE: f64 = 8.0;
/// Number of buckets, up to 1 TiB/s; the last bucket has all rates above.
const BUCKETS: usize = 224;

/// The origin of the bandwidth of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BandwidthOrigin {
    Configured,
    Probed,
    Table,
    Observed,
}

impl BandwidthOrigin {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Probed => "probed",
            Self::Table => "table",
            Self::Observed => "observed",
        }
    }
}

/// The candidates for the bandwidth of one disk.
#[derive(Debug)]
pub(super) struct Bandwidth {
    pub(super) configured: Option<u64>,
    pub(super) probed: Option<f64>,
    pub(super) table: Option<f64>,
    observed: Observed,
}

impl Bandwidth {
    pub(super) fn new(configured: Option<u64>, table: Option<f64>) -> Self {
        Self {
            configured,
            probed: None,
            table,
            observed: Observed::new(),
        }
    }

    /// Records the number of bytes that the disk had moved at this time, reads and writes together.
    pub(super) fn observe(&mut self, at_ns: i64, bytes: u64) {
        if self.configured.is_none() {
            self.observed.add(at_ns, bytes);
        }
    }

    /// The greatest rate in bytes per second, and its origin.
    pub(super) fn now(&self) -> Option<(f64, BandwidthOrigin)> {
        if let Some(configured) = self.configured {
            return Some((configured as f64, BandwidthOrigin::Configured));
        }
        let probed = self.probed.map(|rate| (rate, BandwidthOrigin::Probed));
        let table = self.table.map(|rate| (rate, BandwidthOrigin::Table));
        let observed = self
            .observed
            .rate
            .map(|rate| (rate, BandwidthOrigin::Observed));
        match (probed.or(table), observed) {
            (Some(known), Some(seen)) if seen.0 > known.0 => Some(seen),
            (known, _) => known,
        }
    }
}

/// Seconds of about the same rate: their bytes and the fastest rate.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    bytes: u64,
    fastest: f64,
}

/// The observed seconds, by rate.
#[derive(Debug)]
struct Observed {
    buckets: Box<[Bucket; BUCKETS]>,
    /// Time and number of bytes at the beginning of the present second.
    since: Option<(i64, u64)>,
    rate: Option<f64>,
}

impl Observed {
    fn new() -> Self {
        Self {
            buckets: Box::new([Bucket::default(); BUCKETS]),
            since: None,
            rate: None,
        }
    }

    fn add(&mut self, at_ns: i64, bytes: u64) {
        let (since_ns, old) = *self.since.get_or_insert((at_ns, bytes));
        let elapsed_ns = at_ns.saturating_sub(since_ns);
        if bytes >= old && elapsed_ns < SECOND_NS {
            return;
        }
        self.since = Some((at_ns, bytes));
        let growth = bytes.checked_sub(old).filter(|growth| *growth > 0);
        let Some((growth, rate)) = growth.and_then(|g| Some((g, per_second(g, elapsed_ns)?)))
        else {
            return;
        };
        let bucket = &mut self.buckets[place(rate)];
        bucket.bytes = bucket.bytes.saturating_add(growth);
        bucket.fastest = bucket.fastest.max(rate);
        self.rate = self.fastest();
    }

    /// The rate of the slowest of the fastest seconds.
    fn fastest(&self) -> Option<f64> {
        let all: f64 = self.buckets.iter().map(|b| b.bytes as f64).sum();
        let mut passed = 0.0;
        let from_top = self.buckets.iter().rev().filter(|b| b.bytes > 0);
        for bucket in from_top {
            passed += bucket.bytes as f64;
            if passed >= all * FASTEST_SHARE {
                return Some(bucket.fastest);
            }
        }
        None
    }
}

/// The index of the bucket of a rate.
fn place(rate: f64) -> usize {
    let place = (rate / LEAST_BYTES_PER_SECOND).log2() * BUCKETS_PER_OCTAVE;
    (place.max(0.0) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = NS_PER_S;

    #[test]
    fn what_is_known_best_counts() {
        let mut disk = Bandwidth::new(None, None);
        assert_eq!(disk.now(), None);
        disk.observe(0, 0);
        disk.observe(S, 100_000);
        assert_eq!(disk.now(), None, "it may be able to do far more");
        disk.table = Some(5e5);
        assert_eq!(disk.now(), Some((5e5, BandwidthOrigin::Table)));
        disk.probed = Some(3e5);
        assert_eq!(disk.now(), Some((3e5, BandwidthOrigin::Probed)));
        // It exceeded the measured rate.
        disk.observe(2 * S, 500_000);
        assert_eq!(disk.now(), Some((4e5, BandwidthOrigin::Observed)));
        disk.configured = Some(1);
        assert_eq!(disk.now(), Some((1.0, BandwidthOrigin::Configured)));
    }

    #[test]
    fn one_burst_is_not_what_a_disk_can_do() {
        let mut seen = Observed::new();
        let (mut at, mut bytes) = (0, 0);
        let mut second = |seen: &mut Observed, rate: u64| {
            (at, bytes) = (at + S, bytes + rate);
            seen.add(at, bytes);
            seen.rate
        };
        second(&mut seen, 0);
        assert_eq!(second(&mut seen, 300_000_000), Some(3e8));
        for _ in 0..200 {
            second(&mut seen, 100_000_000);
        }
        assert_eq!(second(&mut seen, 100_000_000), Some(1e8));
        // A fast minute counts, and slow hours do not hide it.
        for _ in 0..60 {
            second(&mut seen, 200_000_000);
        }
        for _ in 0..7200 {
            second(&mut seen, 10_000);
        }
        assert_eq!(seen.rate, Some(2e8));
    }

    #[test]
    fn reads_close_together_and_resets_are_no_bandwidth() {
        let mut seen = Observed::new();
        for at in 0..9 {
            seen.add(at * S / 10, 1_000_000 * at as u64);
        }
        assert_eq!(seen.rate, None);
        seen.add(9 * S / 10, 9_000_000);
        assert_eq!(seen.rate, Some(1e7));
        seen.add(10 * S, 0);
        seen.add(11 * S, 0);
        assert_eq!(seen.rate, Some(1e7));
        seen.add(12 * S, i64::MAX as u64);
        seen.add(i64::MAX, u64::MAX);
        assert!(seen.rate.unwrap().is_finite());
    }
}
