//! The record of the newest log segment: its sequence, and how much of it is on disk.
//!
//! This module stands alone because nothing else shows that the newest segment was deleted or cut:
//! each segment names the previous one, and the manifest knows only sealed ones. The record is a
//! small file beside the segments, which the writer overwrites in place after each sync. It is
//! never ahead of what is on disk.

use std::io::Read as _;

use crate::{ArchiveError, ArchiveLayout, Storage, open};

const MAGIC: [u8; 8] = *b"BARONEWS";
/// Size of the record in bytes.
const BYTES: usize = 32;
const CRC_AT: usize = BYTES - 4;

/// The content of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestSegment {
    /// Sequence of the segment; 0 if none was made yet.
    pub sequence: u64,
    /// Bytes of the segment that are certainly on disk.
    pub bytes: u64,
}

impl NewestSegment {
    /// Reads the record of a node; `None` if there is none, as beside segments of earlier versions.
    pub(crate) fn read(layout: &ArchiveLayout) -> Result<Option<Self>, ArchiveError> {
        let path = layout.newest();
        let file = match open::regular(&path) {
            Err(error) if error.is_gone() => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::with_capacity(BYTES);
        let mut limited = file.take(BYTES as u64 + 1);
        let read = limited.read_to_end(&mut bytes);
        read.map_err(ArchiveError::io("read", &path))?;
        let record = Self::decode(&bytes);
        let damaged = || ArchiveError::corrupt(&path, "it is no record of the newest log", 0);
        record.ok_or_else(damaged).map(Some)
    }

    /// Replaces the record. It is not synced.
    pub(crate) fn write(
        self,
        layout: &ArchiveLayout,
        storage: &dyn Storage,
    ) -> Result<(), ArchiveError> {
        let path = layout.newest();
        let written = storage.overwrite(&path, &self.encode());
        written.map_err(ArchiveError::io("write", path))
    }

    /// Like [`Self::write`], and synced: for a record that must be on disk before what follows.
    pub(crate) fn write_synced(
        self,
        layout: &ArchiveLayout,
        storage: &dyn Storage,
    ) -> Result<(), ArchiveError> {
        self.write(layout, storage)?;
        let path = layout.newest();
        // Truncating to the present length syncs the file.
        let synced = storage.truncate(&path, BYTES as u64);
        synced.map_err(ArchiveError::io("sync", path))
    }

    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let crc = u32::from_le_bytes(bytes[CRC_AT..].try_into().ok()?);
        let holds = bytes[..8] == MAGIC && crc32fast::hash(&bytes[..CRC_AT]) == crc;
        let word = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        holds.then_some(())?;
        Some(Self {
            sequence: word(8)?,
            bytes: word(16)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_any_byte_changed_is_none() {
        let record = NewestSegment {
            sequence: 7,
            bytes: 4_096,
        };
        let bytes = record.encode();
        assert_eq!(NewestSegment::decode(&bytes), Some(record));
        for at in 0..BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(NewestSegment::decode(&damaged), None, "{at}");
            assert_eq!(NewestSegment::decode(&bytes[..at]), None, "{at}");
        }
    }
}
