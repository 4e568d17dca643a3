//! Small pieces of bytes: numbers of variable length, and what is stored as zstd makes it.

use crate::ProgressiveError;

/// How hard zstd tries.
const ZSTD_LEVEL: i32 = 3;

/// Bytes that are being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    /// Name of the part, for errors.
    part: &'static str,
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(part: &'static str, bytes: &'a [u8]) -> Self {
        Self { part, bytes }
    }

    pub(crate) fn fault(&self, reason: impl Into<String>) -> ProgressiveError {
        ProgressiveError::Damaged {
            part: self.part.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], ProgressiveError> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or_else(|| self.fault("it is cut short"))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ProgressiveError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// A number as LEB128.
    pub(crate) fn number(&mut self) -> Result<u64, ProgressiveError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.fault("a number is too large"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What [`squeezed`] has made of exactly `count` bytes.
    pub(crate) fn expanded(&self, count: usize) -> Result<Vec<u8>, ProgressiveError> {
        let bytes = zstd::bulk::decompress(self.bytes, count);
        let bytes = bytes.map_err(|error| self.fault(error.to_string()))?;
        match bytes.len() == count {
            true => Ok(bytes),
            false => Err(self.fault(format!("{} bytes in place of {count}", bytes.len()))),
        }
    }
}

/// Appends a number as LEB128.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The bytes as zstd makes them.
pub(crate) fn squeezed(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, ZSTD_LEVEL)
        .expect("zstd takes all bytes into a buffer of its own size")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers(numbers in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|&number| put_number(&mut bytes, number));
            let mut input = Input::new("test", &bytes);
            for &number in &numbers {
                prop_assert_eq!(input.number().unwrap(), number);
            }
            prop_assert!(input.is_empty() && input.number().is_err());
        }

        #[test]
        fn foreign_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut input = Input::new("test", &bytes);
            let _ = input.expanded(100);
            while input.number().is_ok() {}
        }
    }
}
