//! What reads have cost: a line through their bytes and seconds, of which the newest count most.

use crate::bytes::{ByteReader, BytesFault};

/// The part of what is known that is left after one more read: about the last hundred count.
const KEPT: f64 = 0.99;

/// What a read costs: seconds until the first byte, and seconds for each byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// Seconds of a read of no bytes.
    pub latency_s: f64,
    /// Seconds for each byte more.
    pub byte_s: f64,
}

impl ReadCost {
    /// Expected seconds of a read of so many bytes.
    pub fn read_s(&self, bytes: u64) -> f64 {
        self.latency_s + self.byte_s * bytes as f64
    }

    pub(crate) fn encode(cost: Option<Self>, out: &mut Vec<u8>) {
        // What is not known is told as what is no number.
        let cost = cost.map_or((f64::NAN, f64::NAN), |it| (it.latency_s, it.byte_s));
        out.extend(cost.0.to_bits().to_le_bytes());
        out.extend(cost.1.to_bits().to_le_bytes());
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Option<Self>, BytesFault> {
        let [latency_s, byte_s] = [reader.u64()?, reader.u64()?].map(f64::from_bits);
        let is_sound = |it: f64| it.is_finite() && it >= 0.0;
        Ok((is_sound(latency_s) && is_sound(byte_s)).then_some(Self { latency_s, byte_s }))
    }
}

/// Sums over the reads of one kind: all that least squares need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadTimes {
    reads: f64,
    bytes: f64,
    seconds: f64,
    bytes_bytes: f64,
    bytes_seconds: f64,
}

impl ReadTimes {
    /// Takes in that a read of so many bytes took so many seconds.
    pub(crate) fn observe(&mut self, bytes: u64, seconds: f64) {
        if !(seconds.is_finite() && seconds >= 0.0) {
            return;
        }
        let bytes = bytes as f64;
        let add = |sum: &mut f64, more: f64| *sum = *sum * KEPT + more;
        add(&mut self.reads, 1.0);
        add(&mut self.bytes, bytes);
        add(&mut self.seconds, seconds);
        add(&mut self.bytes_bytes, bytes * bytes);
        add(&mut self.bytes_seconds, bytes * seconds);
    }

    /// What a read costs by these; `None` without any. Neither part is negative: where the line
    /// through all would have such a part, the other one takes all of the time.
    pub(crate) fn cost(&self) -> Option<ReadCost> {
        if self.reads <= 0.0 {
            return None;
        }
        let (bytes, seconds) = (self.bytes / self.reads, self.seconds / self.reads);
        let spread = self.bytes_bytes / self.reads - bytes * bytes;
        let with = self.bytes_seconds / self.reads - bytes * seconds;
        // Reads that are all of one length say nothing of the parts.
        let is_spread = spread > 1e-6 * bytes * bytes;
        let byte_s = match is_spread {
            true => with / spread,
            false if bytes > 0.0 => seconds / bytes,
            false => 0.0,
        };
        let byte_s = match bytes > 0.0 {
            true => byte_s.clamp(0.0, seconds / bytes),
            false => 0.0,
        };
        Some(ReadCost {
            latency_s: (seconds - byte_s * bytes).max(0.0),
            byte_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(reads: &[(u64, f64)]) -> Option<ReadCost> {
        let mut times = ReadTimes::default();
        reads
            .iter()
            .for_each(|(bytes, seconds)| times.observe(*bytes, *seconds));
        times.cost()
    }

    #[test]
    fn latency_and_rate_are_found_where_lengths_differ() {
        assert_eq!(cost(&[]), None);
        let found = cost(&[(0, 0.5), (100, 1.5), (200, 2.5)]).unwrap();
        assert!((found.latency_s - 0.5).abs() < 1e-9 && (found.byte_s - 0.01).abs() < 1e-9);
        assert!((found.read_s(1_000) - 10.5).abs() < 1e-6);
        // Of one length, all of the time counts as that of its bytes.
        let found = cost(&[(100, 1.0), (100, 1.0)]).unwrap();
        assert!(found.latency_s.abs() < 1e-9 && (found.byte_s - 0.01).abs() < 1e-9);
        let found = cost(&[(0, 1.0), (0, f64::NAN)]).unwrap();
        assert_eq!((found.latency_s, found.byte_s), (1.0, 0.0));
    }

    #[test]
    fn no_part_is_negative() {
        // The longer reads were faster.
        let found = cost(&[(100, 3.0), (200, 1.0)]).unwrap();
        assert!(found.byte_s == 0.0 && (found.latency_s - 2.0).abs() < 0.02);
        // A line through these begins below 0.
        let found = cost(&[(100, 0.1), (200, 3.0)]).unwrap();
        assert!(found.latency_s == 0.0 && found.byte_s > 0.0);
    }

    #[test]
    fn newer_reads_count_more() {
        let mut times = ReadTimes::default();
        (0..1_000).for_each(|_| times.observe(10, 1.0));
        (0..1_000).for_each(|_| times.observe(10, 2.0));
        let found = times.cost().unwrap();
        assert!((found.read_s(10) - 2.0).abs() < 1e-3, "{found:?}");
    }
}
