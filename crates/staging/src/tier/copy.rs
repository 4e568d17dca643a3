//! A copy of a block in a tier below memory: a file, or an object of a store.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::header::FileHead;
use super::medium::CopyReader;

/// One file or object of a block: its header, and then the bytes of the block.
pub(crate) struct FileCopy {
    pub(crate) tier: usize,
    pub(crate) head: FileHead,
    /// Its name on the medium.
    pub(super) name: Box<str>,
    pub(super) header_bytes: u64,
    /// Whether its bytes were seen to have their checksum since the start.
    pub(crate) is_checked: AtomicBool,
}

impl FileCopy {
    /// Reads bytes of the block.
    pub(crate) fn read_at(
        &self,
        reader: &CopyReader,
        bytes: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        reader.read_at(bytes, self.header_bytes + offset)
    }

    /// Whether the bytes have their checksum: all of them are read.
    pub(crate) fn check(&self, reader: &CopyReader) -> io::Result<bool> {
        if self.is_checked.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let mut hasher = crc32fast::Hasher::new();
        let mut piece = vec![0; reader.piece_bytes()];
        let mut at = 0;
        while at < self.head.bytes {
            let bytes = (self.head.bytes - at).min(piece.len() as u64);
            let piece = &mut piece[..bytes as usize];
            self.read_at(reader, piece, at)?;
            hasher.update(piece);
            at += bytes;
        }
        let is_whole = hasher.finalize() == self.head.checksum;
        self.is_checked.store(is_whole, Ordering::Relaxed);
        Ok(is_whole)
    }
}
