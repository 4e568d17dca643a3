//! An array out of its buckets: as many of them as the reader wants, of all blocks or of those of a
//! region, at full or at a coarser resolution.

use std::ops::Range;
use std::sync::Arc;

use crate::ProgressiveError;
use crate::block::{BlockReader, GROUPS};
use crate::element::Element;
use crate::header::ArrayHeader;
use crate::mesh::scatter;
use crate::pieces::Input;
use crate::planes::CodingStep;
use crate::shape::{AXES_MAX, Region, Shape, copy_box};
use crate::work::shared;

/// Places of a bucket's pieces, so that parts of it can be fetched alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketIndex {
    bucket: usize,
    /// Ends of the pieces, counted from the beginning of the bucket.
    ends: Vec<u64>,
    /// The beginning of the first one.
    first: u64,
}

impl BucketIndex {
    /// Number of bytes at the beginning of a bucket that [`Self::decode`] needs, from its first 4.
    ///
    /// # Errors
    ///
    /// There are fewer.
    pub fn encoded_len(bytes: &[u8]) -> Result<u64, ProgressiveError> {
        let mut input = Input::new("the index of a bucket", bytes);
        Ok(4 + u64::from(u32::from_le_bytes(input.array()?)))
    }

    /// Reads the index at the beginning of a bucket.
    ///
    /// # Errors
    ///
    /// It is damaged.
    pub fn decode(
        header: &ArrayHeader,
        bucket: usize,
        bytes: &[u8],
    ) -> Result<Self, ProgressiveError> {
        let mut input = Input::new("the index of a bucket", bytes);
        let entry = header.buckets.get(bucket);
        let entry = entry.ok_or_else(|| input.fault(format!("there is no bucket {bucket}")))?;
        let length = u32::from_le_bytes(input.array()?);
        let mut lengths = Input::new("the index of a bucket", input.take(length as usize)?);
        let first = 4 + u64::from(length);
        let mut end = first;
        let mut ends = Vec::new();
        for _ in 0..header.pieces(bucket) {
            end = end.saturating_add(lengths.number()?);
            ends.push(end);
        }
        match end == entry.bytes && lengths.is_empty() {
            true => Ok(Self {
                bucket,
                ends,
                first,
            }),
            false => Err(input.fault("its lengths are not those of the bucket")),
        }
    }

    /// The place of a piece in the bucket.
    fn piece(&self, at: usize) -> Range<u64> {
        let start = at
            .checked_sub(1)
            .map_or(self.first, |before| self.ends[before]);
        start..self.ends[at]
    }
}

/// A reading of an array, which becomes more precise with every bucket.
pub struct ArrayReader<T> {
    header: ArrayHeader,
    region: Region,
    level: usize,
    steps: Vec<Vec<CodingStep>>,
    blocks: Vec<ReadBlock<T>>,
    /// Number of buckets that were read.
    read: usize,
    has_failed: bool,
    threads: usize,
    /// The order of values on a mesh; `None` of other arrays.
    order: Option<Arc<[u32]>>,
}

struct ReadBlock<T> {
    index: usize,
    place: Region,
    /// `None` before the first bucket. It is much larger than the rest.
    reader: Option<Box<BlockReader<T>>>,
}

impl<T: Element> ArrayReader<T> {
    /// Begins to read the values of a region.
    ///
    /// # Errors
    ///
    /// The array has values of another type.
    pub fn new(
        header: ArrayHeader,
        region: Region,
        threads: usize,
    ) -> Result<Self, ProgressiveError> {
        Self::at_level(header, region, 0, threads)
    }

    /// Begins to read at a coarser resolution: each level has half as many values along an axis.
    /// The region is that of the array at full resolution, and only whole blocks are read.
    ///
    /// # Errors
    ///
    /// The array has values of another type.
    pub fn at_level(
        header: ArrayHeader,
        region: Region,
        level: usize,
        threads: usize,
    ) -> Result<Self, ProgressiveError> {
        if header.element != T::TYPE {
            return Err(ProgressiveError::Damaged {
                part: "the header".into(),
                reason: format!("the values are {:?} and not {:?}", header.element, T::TYPE),
            });
        }
        let blocks = header.shape.blocks_of(&region).into_iter();
        Ok(Self {
            blocks: blocks
                .map(|index| ReadBlock {
                    index,
                    place: header.shape.block(index),
                    reader: None,
                })
                .collect(),
            steps: header.steps(),
            read: 0,
            has_failed: false,
            header,
            region,
            level,
            threads,
            order: None,
        })
    }

    /// Gives values on a mesh in the order of its points from now on. The reading is one of all
    /// values, of which there are as many as the order has.
    pub(crate) fn set_order(&mut self, order: Arc<[u32]>) {
        self.order = Some(order);
    }

    /// Number of buckets that were read.
    pub fn buckets_read(&self) -> usize {
        self.read
    }

    /// The share of the array's blocks that this reading has: about the share of the bytes of a
    /// bucket that it needs at full resolution.
    pub fn share_of_blocks(&self) -> f64 {
        self.blocks.len() as f64 / self.header.shape.block_count() as f64
    }

    /// The parts of a bucket that this reading needs, as places in it. The index is not among them.
    pub fn wanted(&self, index: &BucketIndex) -> Vec<Range<u64>> {
        let mut wanted: Vec<Range<u64>> = Vec::new();
        let of = |block: &ReadBlock<T>| pieces(&self.header, self.level, index.bucket, block.index);
        for piece in self.blocks.iter().flat_map(of) {
            let place = index.piece(piece.0);
            match wanted.last_mut() {
                Some(last) if last.end == place.start => last.end = place.end,
                _ if place.is_empty() => {}
                _ => wanted.push(place),
            }
        }
        wanted
    }

    /// Takes the next bucket. `fetch` returns the bytes at a place in it, one of [`Self::wanted`]
    /// or a part of one.
    ///
    /// # Errors
    ///
    /// It is not the next bucket, a piece is not there, or the bytes are damaged. Then no further
    /// bucket can be read, and the values may be of any precision.
    pub fn read<'a>(
        &mut self,
        index: &BucketIndex,
        fetch: impl Fn(Range<u64>) -> Option<&'a [u8]> + Sync,
    ) -> Result<(), ProgressiveError> {
        let bucket = self.read;
        let fault = |reason: &str| ProgressiveError::Damaged {
            part: format!("bucket {bucket}"),
            reason: reason.into(),
        };
        if index.bucket != bucket || self.has_failed {
            return Err(fault("buckets are read in their order, each of them once"));
        }
        let (header, level, steps) = (&self.header, self.level, &self.steps[bucket]);
        let blocks = self.blocks.iter_mut().collect();
        let done = shared(self.threads, blocks, |block: &mut ReadBlock<T>| {
            let take = |at: usize| {
                let piece = fetch(index.piece(at));
                piece.ok_or_else(|| fault("a piece is not there"))
            };
            for (at, group) in pieces(header, level, bucket, block.index) {
                match (&mut block.reader, group) {
                    (None, _) => {
                        let (dims, coding) = (block.place.size, header.coding);
                        block.reader = Some(Box::new(BlockReader::new(dims, coding, take(at)?)?));
                    }
                    (Some(reader), Some(group)) => {
                        reader.read(group, steps, take(at)?);
                    }
                    (Some(reader), None) => reader.read_exact(take(at)?)?,
                }
            }
            Ok(())
        });
        let done = done.into_iter().collect::<Result<(), ProgressiveError>>();
        self.has_failed = done.is_err();
        self.read += usize::from(done.is_ok());
        done
    }

    /// Takes the next bucket as a whole, after checking its checksum.
    ///
    /// # Errors
    ///
    /// All buckets were read, or the bytes are damaged.
    pub fn read_whole(&mut self, bytes: &[u8]) -> Result<(), ProgressiveError> {
        let fault = |reason: &str| ProgressiveError::Damaged {
            part: format!("bucket {}", self.read),
            reason: reason.into(),
        };
        let entry = self
            .header
            .buckets
            .get(self.read)
            .ok_or_else(|| fault("there is none"))?;
        if entry.bytes != bytes.len() as u64 || entry.checksum != crc32fast::hash(bytes) {
            return Err(fault("its checksum does not match"));
        }
        let index = BucketIndex::decode(&self.header, self.read, bytes)?;
        self.read(&index, |place| {
            bytes.get(place.start as usize..place.end as usize)
        })
    }

    /// The lengths of the axes of [`Self::values`].
    pub fn dims(&self) -> Vec<usize> {
        let axes = AXES_MAX - self.header.shape.dims().len();
        self.layout().0[axes..].to_vec()
    }

    /// The values as far as they are read, in C order. Before the first bucket there are none.
    /// Those on a mesh are in its order, unless the reading is of an `ArraySource`.
    pub fn values(&self) -> Vec<T> {
        let mut values = vec![T::default(); self.layout().0.iter().product()];
        self.put_values(&mut values);
        values
    }

    /// Puts the values as far as they are read into memory of the caller, who has bounded it: a
    /// header may tell of any number of values.
    ///
    /// # Panics
    ///
    /// The memory has fewer values than [`Self::dims`] tell.
    pub fn put_values(&self, values: &mut [T]) {
        let (size, places) = self.layout();
        assert!(values.len() >= size.iter().product(), "room for all values");
        let parts = shared(self.threads, self.blocks.iter().collect(), |block| {
            block
                .reader
                .as_ref()
                .map(|reader| reader.values(self.level))
        });
        for ((block, part), (from, to)) in self.blocks.iter().zip(parts).zip(places) {
            if let Some(part) = part {
                copy_box((&part, block.place.size, &from), (&mut *values, size, &to));
            }
        }
        if let Some(order) = &self.order {
            let ordered = values[..order.len()].to_vec();
            scatter(&ordered, order, values);
        }
    }

    /// The size of the result, and for each block the part of it that is wanted and its place.
    fn layout(&self) -> ([usize; AXES_MAX], Vec<(Region, Region)>) {
        if self.level == 0 {
            let part = |block: &ReadBlock<T>| {
                let common = block.place.common(&self.region).unwrap_or_default();
                (common.within(&block.place), common.within(&self.region))
            };
            return (self.region.size, self.blocks.iter().map(part).collect());
        }
        coarse_layout(&self.header.shape, &self.blocks, self.level)
    }
}

/// The pieces of a block in a bucket that a reading at a level needs, with their groups; the head
/// of a block and its differences have none.
fn pieces(
    header: &ArrayHeader,
    level: usize,
    bucket: usize,
    block: usize,
) -> Vec<(usize, Option<usize>)> {
    let is_last = header.is_exact && bucket + 1 == header.buckets.len();
    if is_last {
        // Differences are those at full resolution.
        return match level {
            0 => vec![(block, None)],
            _ => Vec::new(),
        };
    }
    let heads = usize::from(bucket == 0);
    let first = block * (GROUPS + heads);
    let head = (heads > 0).then_some((first, None));
    let finest = level.min(GROUPS - 1);
    let groups = (finest..GROUPS).map(|group| (first + heads + group, Some(group)));
    head.into_iter().chain(groups).collect()
}

/// The layout of whole blocks at a coarser level.
fn coarse_layout<T: Element>(
    shape: &Shape,
    blocks: &[ReadBlock<T>],
    level: usize,
) -> ([usize; AXES_MAX], Vec<(Region, Region)>) {
    let coarse = |index: usize| crate::basis::Levels::new(shape.block(index).size).size(level);
    // The blocks of a region form a grid, so where one begins depends on those before it along each
    // axis alone.
    let mut starts: [std::collections::BTreeMap<usize, usize>; AXES_MAX] = Default::default();
    for block in blocks {
        let size = coarse(block.index);
        for axis in 0..AXES_MAX {
            starts[axis].insert(block.place.start[axis], size[axis]);
        }
    }
    let mut total = [0; AXES_MAX];
    for (starts, total) in starts.iter_mut().zip(&mut total) {
        for length in starts.values_mut() {
            let start = *total;
            *total += *length;
            *length = start;
        }
    }
    let part = |block: &ReadBlock<T>| {
        let size = coarse(block.index);
        let start = |axis: usize| starts[axis][&block.place.start[axis]];
        let from = Region {
            start: [0; AXES_MAX],
            size,
        };
        let to = Region {
            start: std::array::from_fn(start),
            size,
        };
        (from, to)
    };
    (total, blocks.iter().map(part).collect())
}
