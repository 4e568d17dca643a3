//! Packed arrays whose bytes lie elsewhere, in a file or in memory of somebody else: only those
//! that a reading needs are fetched, and they are counted.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ProgressiveError;
use crate::bytes::{ByteSource, fetched};
use crate::element::Element;
use crate::header::ArrayHeader;
use crate::listing::{ArrayListing, WantedArray};
use crate::read::{ArrayReader, BucketIndex};
use crate::shape::Region;

/// Bytes that are fetched at once by those who leave them.
const SKIMMED_BYTES: u64 = 1 << 20;

/// A packed array of which the header was read, and the buckets are read as they are needed.
/// Several threads may read it at once.
#[derive(Debug)]
pub struct ArraySource<S> {
    source: S,
    header: ArrayHeader,
    /// Where the array begins.
    start: u64,
    header_bytes: u64,
    /// Bytes that are there from there on, which may be fewer than those of the array.
    bytes: u64,
    read: AtomicU64,
}

impl<S: ByteSource> ArraySource<S> {
    /// Reads the header of the only array.
    ///
    /// # Errors
    ///
    /// It cannot be read, is damaged, or is of a later version; or there are several arrays.
    pub fn open(source: S) -> Result<Self, ProgressiveError> {
        Self::open_one(source, &WantedArray::default())
    }

    /// Reads the header of one of several arrays.
    ///
    /// # Errors
    ///
    /// It cannot be read, is damaged, or is of a later version; or it is not one array that is
    /// meant.
    pub fn open_one(source: S, wanted: &WantedArray) -> Result<Self, ProgressiveError> {
        let listing = ArrayListing::read(&source)?;
        let (start, header) = listing.one(wanted)?;
        let header_bytes = header.encode().len() as u64;
        Ok(Self {
            source,
            header,
            start,
            header_bytes,
            bytes: listing.bytes() - start,
            read: AtomicU64::new(header_bytes),
        })
    }

    /// What is known of the array before its values are read.
    pub fn header(&self) -> &ArrayHeader {
        &self.header
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Where the array begins.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of the header.
    pub fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    /// Number of bytes of the array that are there.
    pub fn bytes(&self) -> u64 {
        self.bytes.min(self.header.array_bytes())
    }

    /// Number of bytes that were read since the array was opened, the header among them.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The place of a bucket in the source, if all of it is there.
    ///
    /// # Errors
    ///
    /// The array has fewer buckets, or is cut short before the end of this one.
    pub fn place(&self, bucket: usize) -> Result<Range<u64>, ProgressiveError> {
        let buckets = self.header.buckets();
        let entry = buckets
            .get(bucket)
            .ok_or_else(|| ProgressiveError::Damaged {
                part: format!("bucket {bucket}"),
                reason: format!("the array has {} buckets", buckets.len()),
            })?;
        let before = buckets[..bucket].iter().map(|entry| entry.bytes);
        let start = before.fold(self.header_bytes, u64::saturating_add);
        let end = start.saturating_add(entry.bytes);
        match end > self.bytes {
            true => Err(ProgressiveError::CutShort {
                bytes: self.bytes,
                needed: end,
            }),
            false => Ok(self.start + start..self.start + end),
        }
    }

    /// Fetches the bytes of some buckets and leaves them, and returns their number: so the time of
    /// the bytes alone can be told, and a reading after it finds them in memory.
    ///
    /// # Errors
    ///
    /// They cannot be fetched, or the array has fewer buckets.
    pub fn skim(&self, buckets: Range<usize>) -> Result<u64, ProgressiveError> {
        let mut bytes = 0;
        for bucket in buckets {
            let place = self.place(bucket)?;
            for start in place.clone().step_by(SKIMMED_BYTES as usize) {
                let end = place.end.min(start + SKIMMED_BYTES);
                bytes += fetched(&self.source, start..end)?.len() as u64;
            }
        }
        Ok(bytes)
    }

    /// Reads the first buckets of a region, at a level, and returns the reading with the number of
    /// bytes that were read for it. Buckets of the whole array at full resolution are checked
    /// against their checksums.
    ///
    /// # Errors
    ///
    /// The bytes are fewer than the buckets have, cannot be read, or are damaged; or the array has
    /// fewer buckets, or values of another type.
    pub fn read<T: Element>(
        &self,
        buckets: usize,
        region: Region,
        level: usize,
        threads: usize,
    ) -> Result<(ArrayReader<T>, u64), ProgressiveError> {
        // What is cut short is refused before there is memory for what the header tells of.
        self.place(buckets.saturating_sub(1))?;
        let mut reader = ArrayReader::at_level(self.header.clone(), region, level, threads)?;
        let is_whole = level == 0 && region == self.header.shape().whole();
        let mut read = 0;
        for bucket in 0..buckets {
            read += match is_whole {
                true => self.read_whole(bucket, &mut reader)?,
                false => self.read_parts(bucket, &mut reader)?,
            };
        }
        Ok((reader, read))
    }

    /// Reads all of a bucket, checks its checksum, and returns the number of bytes.
    fn read_whole<T: Element>(
        &self,
        bucket: usize,
        reader: &mut ArrayReader<T>,
    ) -> Result<u64, ProgressiveError> {
        let bytes = fetched(&self.source, self.place(bucket)?)?;
        let read = bytes.len() as u64;
        self.read.fetch_add(read, Ordering::Relaxed);
        reader.read_whole(&bytes).map(|()| read)
    }

    /// Reads those parts of a bucket that the reader wants, and returns the number of bytes.
    fn read_parts<T: Element>(
        &self,
        bucket: usize,
        reader: &mut ArrayReader<T>,
    ) -> Result<u64, ProgressiveError> {
        let place = self.place(bucket)?;
        let first = fetched(&self.source, place.start..place.end.min(place.start + 4))?;
        let length = BucketIndex::encoded_len(&first)?;
        let end = place.start.saturating_add(length).min(place.end);
        let bytes = fetched(&self.source, place.start..end)?;
        let mut read = (first.len() + bytes.len()) as u64;
        let index = BucketIndex::decode(&self.header, bucket, &bytes)?;
        let mut parts = Vec::new();
        for wanted in reader.wanted(&index) {
            let at = place.start + wanted.start..place.start + wanted.end;
            let bytes = fetched(&self.source, at)?;
            read += bytes.len() as u64;
            parts.push((wanted, bytes));
        }
        self.read.fetch_add(read, Ordering::Relaxed);
        let find = |piece: Range<u64>| {
            if piece.is_empty() {
                return Some(&[][..]);
            }
            let at = parts.partition_point(|(place, _)| place.end < piece.end);
            let (place, bytes) = parts.get(at)?;
            let start = piece.start.checked_sub(place.start)?;
            let end = piece.end.checked_sub(place.start)?;
            bytes.get(start as usize..end as usize)
        };
        reader.read(&index, find).map(|()| read)
    }
}
