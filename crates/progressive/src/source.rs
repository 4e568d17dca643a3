//! Packed arrays whose bytes lie elsewhere, in a file or in memory of somebody else: only those
//! that a reading needs are fetched, and they are counted.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::ProgressiveError;
use crate::bytes::{ByteSource, fetched};
use crate::element::Element;
use crate::header::ArrayHeader;
use crate::listing::{ArrayListing, WantedArray};
use crate::mesh_file::MeshPoints;
use crate::read::{ArrayReader, BucketIndex};
use crate::shape::Region;

/// Bytes that are fetched at once by those who leave them.
const SKIMMED_BYTES: u64 = 1 << 20;
/// Bytes that are compared with a checksum at once.
const CHECKED_BYTES: u64 = 1 << 20;

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
    /// The order of values on a mesh, once it was needed.
    order: OnceLock<Arc<[u32]>>,
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
        Ok(Self::at(source, start, header, &listing))
    }

    /// The array at a place of the listing.
    pub(crate) fn at(source: S, start: u64, header: ArrayHeader, listing: &ArrayListing) -> Self {
        let header_bytes = header.encode().len() as u64;
        Self {
            source,
            header,
            start,
            header_bytes,
            bytes: listing.bytes() - start,
            read: AtomicU64::new(header_bytes),
            order: OnceLock::new(),
        }
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
            bytes += self.skim_place(self.place(bucket)?)?;
        }
        Ok(bytes)
    }

    /// As [`Self::skim`], for so many bytes from the beginning of a bucket on, or for as many as
    /// there are.
    ///
    /// # Errors
    ///
    /// They cannot be fetched.
    pub fn skim_from(&self, bucket: usize, bytes: u64) -> Result<u64, ProgressiveError> {
        let mut left = bytes;
        let buckets = bucket..self.header.buckets().len();
        for place in buckets.map_while(|bucket| self.place(bucket).ok()) {
            let end = place.end.min(place.start.saturating_add(left));
            left -= self.skim_place(place.start..end)?;
        }
        Ok(bytes - left)
    }

    fn skim_place(&self, place: Range<u64>) -> Result<u64, ProgressiveError> {
        let mut bytes = 0;
        for start in place.clone().step_by(SKIMMED_BYTES as usize) {
            let end = place.end.min(start + SKIMMED_BYTES);
            bytes += fetched(&self.source, start..end)?.len() as u64;
        }
        Ok(bytes)
    }

    /// Reads the first buckets of a region, at a level, and returns the reading with the number of
    /// bytes that were read for it. Buckets of the whole array at full resolution are checked
    /// against their checksums. Values on a mesh are read as a whole, and given in the order of its
    /// points; the bytes of the points count in [`Self::bytes_read`] alone.
    ///
    /// # Errors
    ///
    /// The bytes are fewer than the buckets have, cannot be read, or are damaged; or the array has
    /// fewer buckets, or values of another type; or a part or a level of values on a mesh is asked
    /// for.
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
        if self.header.on_mesh {
            reader.set_order(self.mesh_order(is_whole, threads)?);
        }
        let mut read = 0;
        for bucket in 0..buckets {
            read += match is_whole {
                true => self.read_whole(bucket, &mut reader)?,
                false => self.read_parts(bucket, &mut reader)?,
            };
        }
        Ok((reader, read))
    }

    /// The points of the mesh that the values are on; `None` if they are on none.
    ///
    /// # Errors
    ///
    /// The points cannot be read or are damaged, or are not as many as the values.
    pub fn mesh_points(&self, threads: usize) -> Result<Option<MeshPoints>, ProgressiveError> {
        if !self.header.on_mesh {
            return Ok(None);
        }
        let (points, read) = MeshPoints::read(&self.source, threads)?;
        self.read.fetch_add(read, Ordering::Relaxed);
        let (count, values) = (points.count(), self.header.shape().count());
        match count == values {
            true => Ok(Some(points)),
            false => Err(ProgressiveError::Damaged {
                part: "the mesh of the file".into(),
                reason: format!("it has {count} points for {values} values"),
            }),
        }
    }

    /// The order of values on a mesh, of which only readings of all values make use.
    fn mesh_order(&self, is_whole: bool, threads: usize) -> Result<Arc<[u32]>, ProgressiveError> {
        if !is_whole {
            return Err(ProgressiveError::Mesh {
                reason: "values on a mesh are read as a whole, without a region or a level".into(),
            });
        }
        if let Some(order) = self.order.get() {
            return Ok(Arc::clone(order));
        }
        let order = self.mesh_points(threads)?.map(|points| points.order());
        let order: Arc<[u32]> = order.unwrap_or_default().into();
        Ok(Arc::clone(self.order.get_or_init(|| order)))
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
        let (index, read) = self.index(bucket)?;
        Ok(read + self.read_pieces(&index, bucket, reader)?)
    }

    /// Reads the index of a bucket, and returns it with the number of bytes.
    fn index(&self, bucket: usize) -> Result<(BucketIndex, u64), ProgressiveError> {
        let place = self.place(bucket)?;
        let first = fetched(&self.source, place.start..place.end.min(place.start + 4))?;
        let length = BucketIndex::encoded_len(&first)?;
        let end = place.start.saturating_add(length).min(place.end);
        let bytes = fetched(&self.source, place.start..end)?;
        let read = (first.len() + bytes.len()) as u64;
        self.read.fetch_add(read, Ordering::Relaxed);
        let index = BucketIndex::decode(&self.header, bucket, &bytes)?;
        Ok((index, read))
    }

    /// Reads those pieces of a bucket that the reader wants, and returns the number of bytes.
    fn read_pieces<T: Element>(
        &self,
        index: &BucketIndex,
        bucket: usize,
        reader: &mut ArrayReader<T>,
    ) -> Result<u64, ProgressiveError> {
        let place = self.place(bucket)?;
        let mut read = 0;
        let mut parts = Vec::new();
        for wanted in reader.wanted(index) {
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
        reader.read(index, find).map(|()| read)
    }

    /// Reads the first buckets of a region at full resolution, box by box, and hands on each box
    /// with its values. Together the boxes are the region; each has at most `values_max` values, or
    /// as many as a block. In memory are a few times the values of a box, and the lengths of all
    /// pieces. The values are those of [`Self::read`].
    ///
    /// Buckets of the whole array are read twice: they are checked against their checksums before
    /// the first box is handed on.
    ///
    /// # Errors
    ///
    /// Those of [`Self::read`], and what `take` returns.
    pub fn read_boxes<T: Element, E: From<ProgressiveError>>(
        &self,
        buckets: usize,
        region: Region,
        values_max: usize,
        threads: usize,
        mut take: impl FnMut(&Region, &[T]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.place(buckets.saturating_sub(1))?;
        if self.header.on_mesh {
            let reason = "values on a mesh are read at once, since they are sorted".into();
            return Err(ProgressiveError::Mesh { reason }.into());
        }
        if region == self.header.shape().whole() {
            (0..buckets).try_for_each(|bucket| self.check(bucket))?;
        }
        let indexes: Result<Vec<_>, _> = (0..buckets)
            .map(|bucket| self.index(bucket).map(|(index, _)| index))
            .collect();
        let indexes = indexes?;
        let mut values = Vec::new();
        for part in self.header.shape().parts(region, values_max) {
            let mut reader = ArrayReader::new(self.header.clone(), part, threads)?;
            for (bucket, index) in indexes.iter().enumerate() {
                self.read_pieces(index, bucket, &mut reader)?;
            }
            values.resize(part.count(), T::default());
            reader.put_values(&mut values);
            take(&part, &values)?;
        }
        Ok(())
    }

    /// Compares a bucket with its checksum.
    fn check(&self, bucket: usize) -> Result<(), ProgressiveError> {
        let place = self.place(bucket)?;
        let mut checksum = crc32fast::Hasher::new();
        let mut at = place.start;
        while at < place.end {
            let end = place.end.min(at + CHECKED_BYTES);
            let bytes = fetched(&self.source, at..end)?;
            checksum.update(&bytes);
            at = end;
        }
        self.read
            .fetch_add(place.end - place.start, Ordering::Relaxed);
        match checksum.finalize() == self.header.buckets()[bucket].checksum {
            true => Ok(()),
            false => Err(ProgressiveError::Damaged {
                part: format!("bucket {bucket}"),
                reason: "its checksum does not match".into(),
            }),
        }
    }
}
