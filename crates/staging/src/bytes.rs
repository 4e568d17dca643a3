//! Reading and writing of little-endian fields: what the frames between processes and the headers
//! of files share. Every length of a reader is checked before it is used.

/// A field that is not in the bytes, or is longer than its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BytesFault;

/// Takes fields from foreign bytes, in order.
pub(crate) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], BytesFault> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(BytesFault)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BytesFault> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(BytesFault)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, BytesFault> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, BytesFault> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BytesFault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, BytesFault> {
        self.array().map(u64::from_le_bytes)
    }

    /// A flag, of which only 0 and 1 are taken.
    pub(crate) fn flag(&mut self) -> Result<bool, BytesFault> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BytesFault),
        }
    }

    /// Bytes with their length (16 bits) before them, of which there may be `bytes_max`.
    pub(crate) fn short(&mut self, bytes_max: usize) -> Result<&'a [u8], BytesFault> {
        let bytes = usize::from(self.u16()?);
        match bytes <= bytes_max {
            true => self.take(bytes),
            false => Err(BytesFault),
        }
    }

    /// A text with its length (16 bits) before it.
    pub(crate) fn text(&mut self, bytes_max: usize) -> Result<&'a str, BytesFault> {
        std::str::from_utf8(self.short(bytes_max)?).map_err(|_| BytesFault)
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), BytesFault> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(BytesFault),
        }
    }
}

/// Appends a text of at most 65,535 bytes with its length before it; a longer one is cut short at
/// the border of a character.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.floor_char_boundary(usize::from(u16::MAX));
    put_short(out, &text.as_bytes()[..bytes]);
}

/// Appends bytes with their length (16 bits) before them.
pub(crate) fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).expect("callers bound what they put by 16 bits");
    out.extend(length.to_le_bytes());
    out.extend(bytes);
}
