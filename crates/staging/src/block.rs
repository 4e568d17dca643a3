//! What is known of a block beside its bytes.

use crate::bytes::{ByteReader, BytesFault};

/// The number of a user: the uid of the kernel.
pub type UserId = u32;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Its version. Versions of a key only grow.
    pub version: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// The CRC-32 (IEEE) of its bytes.
    pub checksum: u32,
    /// The epoch of the server map in which it was put here.
    pub epoch: u64,
    /// Whether the block is the newest that this server was sent. It is not certain if the server
    /// was killed since, or was not in the map of servers for a time: then a newer version may have
    /// been acknowledged.
    pub is_confirmed: bool,
    /// Whether the block is on no durable tier yet.
    pub is_dirty: bool,
    /// The fastest tier that has it: 0 for memory, and n for the nth directory of the server.
    pub tier: u8,
}

/// Bytes of an encoded [`BlockInfo`].
pub(crate) const INFO_BYTES: usize = 8 + 8 + 4 + 8 + 3;

impl BlockInfo {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.version.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.checksum.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend([u8::from(self.is_confirmed), u8::from(self.is_dirty)]);
        out.push(self.tier);
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, BytesFault> {
        let info = Self {
            version: reader.u64()?,
            bytes: reader.u64()?,
            checksum: reader.u32()?,
            epoch: reader.u64()?,
            is_confirmed: reader.flag()?,
            is_dirty: reader.flag()?,
            tier: reader.u8()?,
        };
        match info.bytes <= crate::BLOCK_BYTES_MAX {
            true => Ok(info),
            false => Err(BytesFault),
        }
    }
}

/// The checksum of bytes: CRC-32 (IEEE 802.3), as in [`BlockInfo::checksum`].
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
