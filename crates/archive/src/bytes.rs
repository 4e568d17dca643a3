//! Numbers and texts as bytes, written and read: the parts that the formats of this crate are made
//! of.
//!
//! This module stands alone because the bytes to read may be anything: each step checks that enough
//! bytes are left.

/// Appends an unsigned number: seven bits per byte, least significant first (LEB128).
pub(crate) fn put_u64(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends a signed number with its sign as the last bit, so that small numbers are short.
pub(crate) fn put_i64(out: &mut Vec<u8>, v: i64) {
    put_u64(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Appends bytes after their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The rest of the bytes that are being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of bytes left.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let mut v = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return None;
            }
            v |= bits << shift;
            if byte < 0x80 {
                return Some(v);
            }
        }
        None
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        let v = self.u64()?;
        Some((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// Reads a count of things of at least `each_min` bytes each; `None` if fewer bytes are left.
    pub(crate) fn count(&mut self, each_min: usize) -> Option<usize> {
        let count = usize::try_from(self.u64()?).ok()?;
        (count.checked_mul(each_min)? <= self.0.len()).then_some(count)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.u64()?).ok()?;
        std::str::from_utf8(self.take(length)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        let mut out = Vec::new();
        let signed = [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN];
        let unsigned = [0, 127, 128, u64::MAX];
        signed.iter().for_each(|v| put_i64(&mut out, *v));
        unsigned.iter().for_each(|v| put_u64(&mut out, *v));
        let mut cut = ByteReader::new(&out);
        assert!(signed.iter().all(|v| cut.i64() == Some(*v)));
        assert!(unsigned.iter().all(|v| cut.u64() == Some(*v)));
        assert!(cut.is_empty() && cut.u8().is_none());
    }

    #[test]
    fn what_does_not_fit_is_nothing() {
        assert_eq!(ByteReader::new(&[0xFF; 9]).u64(), None);
        assert_eq!(ByteReader::new(&[0xFF; 11]).u64(), None);
        assert_eq!(ByteReader::new(&[5, b'a']).text(), None);
        assert_eq!(ByteReader::new(&[1, 0xFF]).text(), None);
        assert_eq!(ByteReader::new(&[200, 1, 0]).count(1), None);
        assert_eq!(ByteReader::new(&[1, 2]).take(3), None);
    }
}
