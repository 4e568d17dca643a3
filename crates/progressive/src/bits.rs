//! Plain bits: those of which nothing better is known than that both are equally likely.

/// Writes bits, the lowest one of a word first.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    word: u64,
    used: u32,
}

impl BitWriter {
    /// Writes the lowest `count` bits of `bits`, at most 32.
    pub(crate) fn put(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.used;
        self.used += count;
        while self.used >= 8 {
            self.bytes.push(self.word as u8);
            self.word >>= 8;
            self.used -= 8;
        }
    }

    /// Writes those bits of a word that `mask` has.
    pub(crate) fn put_masked(&mut self, word: u64, mask: u64) {
        let (bits, count) = (compress(word, mask), mask.count_ones());
        self.put(bits & 0xffff_ffff, count.min(32));
        self.put(bits >> 32, count.saturating_sub(32));
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.used > 0 {
            self.bytes.push(self.word as u8);
        }
        self.bytes
    }
}

/// Reads bits from the end of a piece towards its beginning. Past it there are zeros.
#[derive(Debug)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    word: u64,
    left: u32,
}

impl<'a> BitReader<'a> {
    pub(crate) fn from_end(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            word: 0,
            left: 0,
        }
    }

    /// Reads `count` bits, at most 32.
    pub(crate) fn get(&mut self, count: u32) -> u64 {
        while self.left < count {
            let byte = match self.bytes {
                [rest @ .., last] => {
                    self.bytes = rest;
                    *last
                }
                [] => 0,
            };
            self.word |= u64::from(byte) << self.left;
            self.left += 8;
        }
        let bits = self.word & ((1 << count) - 1);
        self.word >>= count;
        self.left -= count;
        bits
    }

    /// Reads the bits that `mask` has, into their places.
    pub(crate) fn get_masked(&mut self, mask: u64) -> u64 {
        let count = mask.count_ones();
        let low = self.get(count.min(32));
        let high = self.get(count.saturating_sub(32));
        expand(low | high << 32, mask)
    }
}

/// The bits of `word` that `mask` has, side by side at the low end.
fn compress(word: u64, mut mask: u64) -> u64 {
    if mask == u64::MAX {
        return word;
    }
    let (mut bits, mut at) = (0, 0);
    while mask != 0 {
        bits |= (word >> mask.trailing_zeros() & 1) << at;
        at += 1;
        mask &= mask - 1;
    }
    bits
}

/// The low bits of `bits` at the places that `mask` has.
fn expand(mut bits: u64, mut mask: u64) -> u64 {
    if mask == u64::MAX {
        return bits;
    }
    let mut word = 0;
    while mask != 0 {
        word |= (bits & 1) << mask.trailing_zeros();
        bits >>= 1;
        mask &= mask - 1;
    }
    word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(words in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40)) {
            let mut writer = BitWriter::default();
            for (word, mask) in &words {
                writer.put_masked(*word, *mask);
            }
            let mut bytes = writer.finish();
            bytes.reverse();
            let mut reader = BitReader::from_end(&bytes);
            for (word, mask) in &words {
                prop_assert_eq!(reader.get_masked(*mask), word & mask);
            }
        }
    }
}
