//! The header of a file of a block: magic number, length of the header, fields, key, and the
//! checksum of all of these. The bytes of the block follow.

use crate::block::UserId;
use crate::bytes::{ByteReader, BytesFault};
use crate::key::{BlockKey, DATASET_BYTES_MAX, NAME_BYTES_MAX};

const MAGIC: &[u8; 8] = b"BAROSTG1";
/// Bytes of the longest header.
pub(crate) const HEADER_BYTES_MAX: usize = 64 + DATASET_BYTES_MAX + NAME_BYTES_MAX;
/// Bytes of the shortest header.
const HEADER_BYTES_MIN: usize = 53;

/// What a file says of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHead {
    pub(crate) user: UserId,
    pub(crate) key: BlockKey,
    pub(crate) version: u64,
    pub(crate) epoch: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
    pub(crate) refetch_us: u32,
}

impl FileHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([0; 2]);
        out.extend(self.user.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.checksum.to_le_bytes());
        out.extend(self.refetch_us.to_le_bytes());
        self.key.encode(&mut out);
        let bytes = u16::try_from(out.len() + 4).expect("keys are bounded, so headers are");
        out[8..10].copy_from_slice(&bytes.to_le_bytes());
        let checksum = crc32fast::hash(&out);
        out.extend(checksum.to_le_bytes());
        out
    }

    /// The length of a header, from its first ten bytes.
    pub(crate) fn length(start: &[u8; 10]) -> Option<usize> {
        let bytes = usize::from(u16::from_le_bytes([start[8], start[9]]));
        let is_header = start.starts_with(MAGIC);
        (is_header && (HEADER_BYTES_MIN..=HEADER_BYTES_MAX).contains(&bytes)).then_some(bytes)
    }

    /// A header, of which `bytes` are all.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BytesFault> {
        let (fields, checksum) = bytes.split_last_chunk::<4>().ok_or(BytesFault)?;
        if crc32fast::hash(fields) != u32::from_le_bytes(*checksum) {
            return Err(BytesFault);
        }
        let mut reader = ByteReader::new(fields);
        if reader.take(8)? != MAGIC || usize::from(reader.u16()?) != bytes.len() {
            return Err(BytesFault);
        }
        let user = reader.u32()?;
        let [version, epoch, bytes] = [reader.u64()?, reader.u64()?, reader.u64()?];
        let [checksum, refetch_us] = [reader.u32()?, reader.u32()?];
        let key = BlockKey::decode(&mut reader)?;
        reader.end()?;
        Ok(Self {
            user,
            key,
            version,
            epoch,
            bytes,
            checksum,
            refetch_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_changed_one_is_taken() {
        let head = FileHead {
            user: 1000,
            key: BlockKey::named("d", &[9; 4_096]).expect("within its bounds"),
            version: 7,
            epoch: 2,
            bytes: 1 << 20,
            checksum: 5,
            refetch_us: 0,
        };
        let bytes = head.encode();
        let start = bytes.first_chunk().expect("a header has ten bytes");
        assert_eq!(FileHead::length(start), Some(bytes.len()));
        assert_eq!(FileHead::decode(&bytes), Ok(head));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(FileHead::decode(&bad), Err(BytesFault), "byte {at}");
            assert_eq!(
                FileHead::decode(&bytes[..at]),
                Err(BytesFault),
                "cut at {at}"
            );
        }
    }
}
