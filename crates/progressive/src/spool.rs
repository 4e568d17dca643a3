//! Packed pieces, which come block by block and belong into buckets: a spool keeps them until all
//! blocks are packed, and what goes before them in each bucket is found meanwhile.

use std::io;

use crate::ProgressiveError;
use crate::block::WrittenBlock;
use crate::error::{ErrorSum, MeasuredError};
use crate::header::BucketEntry;
use crate::pieces::put_number;

/// What keeps the pieces of each bucket until an array is packed, in memory or in a file.
pub trait PieceSpool: Send {
    /// Keeps bytes after those that the bucket has.
    ///
    /// # Errors
    ///
    /// They cannot be kept.
    fn append(&mut self, bucket: usize, bytes: &[u8]) -> io::Result<()>;
}

/// Pieces in memory, by bucket.
#[derive(Default)]
pub(crate) struct MemorySpool {
    pub(crate) buckets: Vec<Vec<u8>>,
}

impl PieceSpool for MemorySpool {
    fn append(&mut self, bucket: usize, bytes: &[u8]) -> io::Result<()> {
        if self.buckets.len() <= bucket {
            self.buckets.resize_with(bucket + 1, Vec::new);
        }
        self.buckets[bucket].extend(bytes);
        Ok(())
    }
}

/// All buckets of an array that is being packed, without their pieces.
pub(crate) struct BucketIndexes {
    buckets: Vec<GrowingIndex>,
}

/// What is known of a bucket while its pieces come.
#[derive(Clone, Default)]
struct GrowingIndex {
    /// The lengths of the pieces as the bucket has them.
    lengths: Vec<u8>,
    bytes: u64,
    checksum: crc32fast::Hasher,
    errors: ErrorSum,
}

impl BucketIndexes {
    /// The indexes of this many buckets, which have no pieces yet.
    pub(crate) fn new(buckets: usize) -> Self {
        Self {
            buckets: vec![GrowingIndex::default(); buckets],
        }
    }

    /// Takes the next block.
    pub(crate) fn take(
        &mut self,
        block: &WrittenBlock,
        spool: &mut impl PieceSpool,
    ) -> Result<(), ProgressiveError> {
        let mut put = |bucket: usize, piece: &[u8]| {
            self.buckets[bucket].add(piece);
            let kept = match piece {
                [] => Ok(()),
                _ => spool.append(bucket, piece),
            };
            kept.map_err(|error| ProgressiveError::Spool {
                reason: error.to_string(),
            })
        };
        put(0, &block.head)?;
        for (bucket, pieces) in block.pieces.iter().enumerate() {
            pieces.iter().try_for_each(|piece| put(bucket, piece))?;
        }
        if let Some(exact) = &block.exact {
            put(block.pieces.len(), exact)?;
        }
        for (bucket, errors) in self.buckets.iter_mut().zip(&block.errors) {
            bucket.errors.merge(errors);
        }
        Ok(())
    }

    /// What the header has of each bucket, and the bytes before the pieces of each. `steps` are the
    /// numbers of steps of those that have some, and `error` makes an error of a sum.
    pub(crate) fn finish(
        self,
        steps: &[usize],
        error: impl Fn(&ErrorSum) -> MeasuredError,
    ) -> (Vec<BucketEntry>, Vec<Vec<u8>>) {
        let finish = |(at, bucket): (usize, GrowingIndex)| {
            let mut start = (bucket.lengths.len() as u32).to_le_bytes().to_vec();
            start.extend(bucket.lengths);
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&start);
            checksum.combine(&bucket.checksum);
            let entry = BucketEntry {
                steps: steps.get(at).map_or(0, |&count| count as u16),
                bytes: start.len() as u64 + bucket.bytes,
                checksum: checksum.finalize(),
                // The last bucket of an exact array has no steps, and no sum.
                error: error(&bucket.errors),
            };
            (entry, start)
        };
        self.buckets.into_iter().enumerate().map(finish).unzip()
    }
}

impl GrowingIndex {
    fn add(&mut self, piece: &[u8]) {
        put_number(&mut self.lengths, piece.len() as u64);
        self.bytes += piece.len() as u64;
        self.checksum.update(piece);
    }
}
