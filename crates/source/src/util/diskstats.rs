//! The counters of one block device, from `/proc/diskstats` and `/sys/block/*/stat`
//! (<https://docs.kernel.org/admin-guide/iostats.html>).

use crate::util::parse::{Words, words};

/// Length in bytes of the sectors in which the kernel counts, whatever the device's own are.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Most devices directly below one. RAID 10 of md has at most 384.
pub(crate) const SLAVES_MAX: usize = 512;
/// Shares of the requests for which latencies are given as quantiles.
pub(crate) const LATENCY_SHARES: [f64; 3] = [0.5, 0.9, 0.99];

/// The counters since the device appeared, except `inflight`, which is a present value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) read_ops: u64,
    pub(crate) read_merged: u64,
    pub(crate) read_bytes: u64,
    pub(crate) read_ms: u64,
    pub(crate) write_ops: u64,
    pub(crate) write_merged: u64,
    pub(crate) write_bytes: u64,
    pub(crate) write_ms: u64,
    pub(crate) inflight: u64,
    pub(crate) busy_ms: u64,
    pub(crate) queue_ms: u64,
    /// Present since Linux 4.18.
    pub(crate) discard_bytes: Option<u64>,
    /// Present since Linux 5.5.
    pub(crate) flush_ops: Option<u64>,
}

impl Counters {
    /// Parses the words after the name. Kernels give 11, 15 or 17 of them, newer ones perhaps more.
    pub(crate) fn parse(mut words: Words<'_>) -> Option<Self> {
        let mut next = || words.number();
        let bytes = |sectors: u64| {
            sectors
                .checked_mul(SECTOR_BYTES)
                .filter(|bytes| *bytes <= i64::MAX as u64)
        };
        let mut counters = Self {
            read_ops: next()?,
            read_merged: next()?,
            read_bytes: bytes(next()?)?,
            read_ms: next()?,
            write_ops: next()?,
            write_merged: next()?,
            write_bytes: bytes(next()?)?,
            write_ms: next()?,
            inflight: next()?,
            busy_ms: next()?,
            queue_ms: next()?,
            ..Self::default()
        };
        let mut optional = [None; 6];
        for slot in &mut optional {
            if words.at_end() {
                break;
            }
            *slot = Some(words.number()?);
        }
        let [_, _, discard_sectors, _, flush_ops, _] = optional;
        if let Some(sectors) = discard_sectors {
            counters.discard_bytes = Some(bytes(sectors)?);
        }
        counters.flush_ops = flush_ops;
        Some(counters)
    }

    /// Whether the device was never used.
    pub(crate) fn is_untouched(&self) -> bool {
        self.read_ops == 0 && self.write_ops == 0
    }

    /// The growth since `old`; `None` if any counter decreased.
    pub(crate) fn since(&self, old: &Self) -> Option<Self> {
        Some(Self {
            read_ops: self.read_ops.checked_sub(old.read_ops)?,
            read_merged: self.read_merged.checked_sub(old.read_merged)?,
            read_bytes: self.read_bytes.checked_sub(old.read_bytes)?,
            read_ms: self.read_ms.checked_sub(old.read_ms)?,
            write_ops: self.write_ops.checked_sub(old.write_ops)?,
            write_merged: self.write_merged.checked_sub(old.write_merged)?,
            write_bytes: self.write_bytes.checked_sub(old.write_bytes)?,
            write_ms: self.write_ms.checked_sub(old.write_ms)?,
            inflight: self.inflight,
            busy_ms: self.busy_ms.checked_sub(old.busy_ms)?,
            queue_ms: self.queue_ms.checked_sub(old.queue_ms)?,
            discard_bytes: None,
            flush_ops: None,
        })
    }
}

/// Parses a line of `/proc/diskstats`: major, minor, name, counters.
pub(crate) fn parse_line(line: &[u8]) -> Option<(&[u8], Counters)> {
    let mut words = words(line);
    words.number()?;
    words.number()?;
    let name = words.next()?;
    Some((name, Counters::parse(words)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kernels() {
        let check = |line: &str, expect: Option<(u64, Option<u64>, Option<u64>)>| {
            let got = parse_line(line.as_bytes());
            let got = got.map(|(_, c)| (c.read_bytes, c.discard_bytes, c.flush_ops));
            assert_eq!(got, expect, "{line}");
        };
        check("8 0 sda 1 2 3 4 5 6 7 8 9 10 11", Some((1536, None, None)));
        check(
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
            Some((1536, Some(7168), None)),
        );
        check(
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17",
            Some((1536, Some(7168), Some(16))),
        );
        check(
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18",
            Some((1536, Some(7168), Some(16))),
        );
        check("8 0 sda 1 2 3 4 5 6 7 8 9 10", None);
        check("8 0 sda 1 2 x 4 5 6 7 8 9 10 11", None);
        check("8 0", None);
        check("", None);
        check("8 0 sda 1 2 9223372036854775807 4 5 6 7 8 9 10 11", None);
        check(
            "8 0 sda 1 2 99999999999999999999999 4 5 6 7 8 9 10 11",
            None,
        );
    }
}
