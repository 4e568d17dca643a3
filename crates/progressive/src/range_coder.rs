//! An adaptive binary range coder: each decision costs about as many bits as it was improbable
//! (Martin 1979, with the carry of LZMA's coder).
//!
//! A reader never fails: past the end it sees zeros, which give some decisions. Whether data is
//! whole is for checksums to say.

/// Bits of a probability.
const PROBABILITY_BITS: u32 = 16;
/// How fast the two estimates of a probability follow what is seen.
const RATES: [u32; 2] = [4, 7];
/// The range is renewed when it is below this.
const RANGE_MIN: u32 = 1 << 24;

/// The probability that a decision is `false`, as it was of late: the mean of a fast and of a slow
/// estimate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probability([u16; 2]);

impl Probability {
    /// An estimate before any decision, as a share of 2^16.
    pub(crate) const fn new(share: u16) -> Self {
        Self([share; 2])
    }

    /// The bound of the part of a range that stands for `false`.
    fn bound(self, range: u32) -> u32 {
        let sum = u32::from(self.0[0]) + u32::from(self.0[1]);
        // At least one of each kind stays possible.
        let share = (sum >> 1).clamp(32, (1 << PROBABILITY_BITS) - 32);
        (range >> PROBABILITY_BITS) * share
    }

    fn learn(&mut self, decision: bool) {
        for (estimate, rate) in self.0.iter_mut().zip(RATES) {
            match decision {
                true => *estimate -= *estimate >> rate,
                false => *estimate += (u16::MAX - *estimate) >> rate,
            }
        }
    }
}

/// Writes decisions.
#[derive(Debug)]
pub(crate) struct RangeWriter {
    bytes: Vec<u8>,
    low: u64,
    range: u32,
    /// The last byte, which a carry may still change, and the number of 0xff bytes after it.
    last: u8,
    full: u64,
    is_begun: bool,
}

impl RangeWriter {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            low: 0,
            range: u32::MAX,
            last: 0,
            full: 0,
            is_begun: false,
        }
    }

    pub(crate) fn put(&mut self, probability: &mut Probability, decision: bool) {
        let bound = probability.bound(self.range);
        match decision {
            false => self.range = bound,
            true => {
                self.low += u64::from(bound);
                self.range -= bound;
            }
        }
        probability.learn(decision);
        while self.range < RANGE_MIN {
            self.shift();
            self.range <<= 8;
        }
    }

    fn shift(&mut self) {
        let carry = self.low >> 32;
        if self.low < 0xff00_0000 || carry == 1 {
            if self.is_begun {
                self.bytes.push(self.last.wrapping_add(carry as u8));
            }
            self.is_begun = true;
            for _ in 0..self.full {
                self.bytes.push(0xff_u8.wrapping_add(carry as u8));
            }
            self.full = 0;
            self.last = (self.low >> 24) as u8;
        } else {
            self.full += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// Ends the writing, with as few bytes as tell the decisions, whatever follows them.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        // Any number of the range will do: the one of which the fewest bits have to be told.
        let (low, high) = (self.low, self.low + u64::from(self.range));
        let value = |free: u32| low.div_ceil(1 << free) << free;
        let fits = |&free: &u32| value(free) + (1 << free) <= high;
        let free = (0..=32).rev().find(fits).unwrap_or(0);
        self.low = value(free);
        let told = (32 - free).div_ceil(8);
        // The byte that waits for a carry, and those that are told.
        for _ in 0..=told {
            self.shift();
        }
        self.bytes
    }
}

/// Reads decisions.
#[derive(Debug)]
pub(crate) struct RangeReader<'a> {
    bytes: &'a [u8],
    at: usize,
    code: u32,
    range: u32,
}

impl<'a> RangeReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Self {
            bytes,
            at: 0,
            code: 0,
            range: u32::MAX,
        };
        for _ in 0..4 {
            reader.code = reader.code << 8 | u32::from(reader.byte());
        }
        reader
    }

    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    pub(crate) fn get(&mut self, probability: &mut Probability) -> bool {
        let bound = probability.bound(self.range);
        let decision = self.code >= bound;
        match decision {
            false => self.range = bound,
            true => {
                self.code -= bound;
                self.range -= bound;
            }
        }
        probability.learn(decision);
        while self.range < RANGE_MIN {
            self.code = self.code << 8 | u32::from(self.byte());
            self.range <<= 8;
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(decisions: &[bool], contexts: usize) -> Vec<u8> {
        let mut probabilities = vec![Probability::new(1 << 15); contexts];
        let mut writer = RangeWriter::new();
        for (i, &decision) in decisions.iter().enumerate() {
            writer.put(&mut probabilities[i % contexts], decision);
        }
        writer.finish()
    }

    #[test]
    fn what_is_sure_costs_nearly_nothing() {
        for decision in [false, true] {
            let bytes = written(&vec![decision; 100_000], 1);
            assert!(bytes.len() < 100, "{}", bytes.len());
        }
        assert!(written(&[false], 1).len() <= 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(decisions in prop::collection::vec(prop::bool::weighted(0.9), 0..3_000), contexts in 1..9_usize, after: [u8; 5]) {
            let mut bytes = written(&decisions, contexts);
            bytes.extend(after);
            let mut probabilities = vec![Probability::new(1 << 15); contexts];
            let mut reader = RangeReader::new(&bytes);
            for (i, &decision) in decisions.iter().enumerate() {
                prop_assert_eq!(reader.get(&mut probabilities[i % contexts]), decision);
            }
        }

        #[test]
        fn foreign_bytes_give_some_decisions(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut probability = Probability::new(1 << 15);
            let mut reader = RangeReader::new(&bytes);
            for _ in 0..2_000 {
                reader.get(&mut probability);
            }
        }
    }
}
