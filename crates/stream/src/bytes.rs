//! Numbers and texts as bytes, written and read: the parts of the formats that have no fixed
//! layout, which are the index of the archive's Parquet files and the frames between nodes.
//!
//! This module stands alone because the bytes to read may be anything: each step checks that enough
//! bytes are left.

/// Appends an unsigned number: seven bits per byte, least significant first (LEB128).
pub fn put_u64(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends a signed number with its sign as the last bit, so that small numbers are short.
pub fn put_i64(out: &mut Vec<u8>, v: i64) {
    put_u64(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Appends bytes after their length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The rest of the bytes that are being read.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    /// Begins to read these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether no byte is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of bytes left.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads `length` bytes; `None` if fewer are left.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads one byte; `None` if none is left.
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads four bytes, least significant first.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// Reads what [`put_u64`] wrote; `None` also if the number has more than 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
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

    /// Reads what [`put_i64`] wrote.
    pub fn i64(&mut self) -> Option<i64> {
        let v = self.u64()?;
        Some((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// Reads a count of things of at least `each_min` bytes each; `None` if fewer bytes are left.
    pub fn count(&mut self, each_min: usize) -> Option<usize> {
        let count = usize::try_from(self.u64()?).ok()?;
        (count.checked_mul(each_min)? <= self.0.len()).then_some(count)
    }

    /// Reads a text after its length; `None` also if it is not UTF-8.
    pub fn text(&mut self) -> Option<&'a str> {
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
