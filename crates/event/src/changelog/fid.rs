//! The identifiers of Lustre: FIDs of files and directories, in bytes and in text.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::event::ObjectId;

/// Bytes of a FID in a record.
pub(crate) const FID_BYTES: usize = 16;

/// The identifier of a file or directory of a Lustre file system. It is never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid {
    /// Sequence, which a client or server has been granted.
    pub sequence: u64,
    /// Number within the sequence.
    pub object: u32,
    /// Version, which is 0 so far.
    pub version: u32,
}

impl Fid {
    /// The FID of no object.
    pub const NONE: Self = Self::new(0, 0, 0);
    /// The root directory of each Lustre file system.
    pub const ROOT: Self = Self::new(0x2_0000_0007, 1, 0);

    /// The FID with these parts.
    pub const fn new(sequence: u64, object: u32, version: u32) -> Self {
        Self {
            sequence,
            object,
            version,
        }
    }

    /// Whether it is the FID of no object.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The FID as the model of events has it.
    pub fn id(self) -> ObjectId {
        ObjectId::of(
            self.sequence,
            u64::from(self.object) << 32 | u64::from(self.version),
        )
    }

    /// The FID of an id that [`Self::id`] has given.
    pub(crate) fn from_id(id: ObjectId) -> Self {
        let number = u128::from_be_bytes(id.0);
        Self::new((number >> 64) as u64, (number >> 32) as u32, number as u32)
    }

    /// Reads the text `[0x200000402:0x1:0x0]`, with or without brackets.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let inner = text.strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]"));
        let mut parts = inner.unwrap_or(text).split(|byte| *byte == b':');
        let sequence = hexadecimal(parts.next()?)?;
        let object = hexadecimal(parts.next()?)?.try_into().ok()?;
        let version = hexadecimal(parts.next()?)?.try_into().ok()?;
        let is_end = parts.next().is_none();
        is_end.then_some(Self::new(sequence, object, version))
    }

    /// Reads the bytes of a FID in the order of the host.
    pub(crate) fn from_bytes(bytes: [u8; FID_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            sequence: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            object: u32::from_ne_bytes([i, j, k, l]),
            version: u32::from_ne_bytes([m, n, o, p]),
        }
    }

    /// The bytes of the FID in the order of the host.
    pub(crate) fn to_bytes(self) -> [u8; FID_BYTES] {
        let mut bytes = [0; FID_BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.object.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.version.to_ne_bytes());
        bytes
    }
}

impl fmt::Display for Fid {
    /// Writes the text that `lfs` prints, in which a sequence of zero has no `0x`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sequence {
            0 => write!(f, "[0:0x{:x}:0x{:x}]", self.object, self.version),
            sequence => write!(
                f,
                "[0x{sequence:x}:0x{:x}:0x{:x}]",
                self.object, self.version
            ),
        }
    }
}

/// A number of hexadecimal digits, with or without `0x` before them.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The hash function of tables by FID. Servers choose FIDs, so that it need not resist attacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FidHasher(u64);

/// What makes hash functions of tables by FID.
pub(crate) type FidHash = BuildHasherDefault<FidHasher>;

impl Hasher for FidHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ self.0 >> 29
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_fids() {
        let check = |text: &str, fid: Option<Fid>| {
            assert_eq!(Fid::parse(text.as_bytes()), fid, "{text}");
        };
        check("[0x200000402:0x1:0x0]", Some(Fid::new(0x2_0000_0402, 1, 0)));
        check("0x200000402:0x1:0x0", Some(Fid::new(0x2_0000_0402, 1, 0)));
        check("[0:0x0:0x0]", Some(Fid::NONE));
        check("[0:0x50:0xb]", Some(Fid::new(0, 0x50, 0xb)));
        for text in [
            "",
            "[]",
            "[0x1:0x2]",
            "[0x1:0x2:0x3:0x4]",
            "[0x1:0x1ffffffff:0x0]",
            "[0x1:-1:0x0]",
            "[0x:0x0:0x0]",
            "[0x1:0x2:0x3",
        ] {
            check(text, None);
        }
        assert_eq!(Fid::NONE.to_string(), "[0:0x0:0x0]");
        assert_eq!(Fid::ROOT.to_string(), "[0x200000007:0x1:0x0]");
        assert!(Fid::NONE.id().is_none());
    }

    proptest! {
        #[test]
        fn every_fid_returns(sequence: u64, object: u32, version: u32) {
            let fid = Fid::new(sequence, object, version);
            prop_assert_eq!(Fid::parse(fid.to_string().as_bytes()), Some(fid));
            prop_assert_eq!(Fid::from_bytes(fid.to_bytes()), fid);
            prop_assert_eq!(Fid::from_id(fid.id()), fid);
        }
    }
}
