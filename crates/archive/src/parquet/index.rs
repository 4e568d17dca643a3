//! The index of a Parquet file: which series the rows belong to, and where the column chunks are,
//! with their checksums.
//!
//! This module stands alone because its bytes are foreign: whatever they are, the result of
//! [`ParquetIndex::decode`] is consistent. The index lies right before Parquet's footer, where
//! other readers never look.

use std::path::Path;
use std::sync::Arc;

use super::schema::ZSTD_LEVEL;
use barograph_model::{Descriptor, Kind, Labels, Name, Quality, SeriesId, Span, Unit, ValueType};

use super::{FORMAT, FileIdentity, GROUP_ROWS_MAX, NOWHEN, corrupt, schema, widen};
use crate::ArchiveError;
use crate::Tier;
use barograph_stream::bytes::{ByteReader, put_bytes, put_i64, put_u64};

/// Size of the [`IndexTail`] before Parquet's footer, in bytes.
pub(super) const TAIL_BYTES: usize = 28;
const MAGIC: &[u8; 8] = b"BAROINDX";
/// Most bytes of an index before compression: about 200,000 series.
const INDEX_BYTES_MAX: usize = 64 << 20;

const EXACT: u8 = 1;
const ERRORS: u8 = 2;
const BACKWARDS: u8 = 4;
/// The code, in place of a quality, of a series whose samples have several.
const MIXED: u8 = 0xFF;

/// The index of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ParquetIndex {
    /// Identity of the file.
    pub about: FileIdentity,
    /// The version with which it is written.
    pub(super) version: u32,
    /// Series, in the order of their rows.
    pub series: Vec<IndexSeries>,
    pub(super) groups: Vec<RowGroup>,
}

/// One series of a file; its rows are consecutive.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSeries {
    /// Identity of the series.
    pub id: SeriesId,
    /// Descriptor of its stream.
    pub descriptor: Arc<Descriptor>,
    /// Its first row in the file, from 0.
    pub first_row: u64,
    /// Number of its rows.
    pub rows: u64,
    /// Times of its rows in ns since the epoch; a bucket lasts until its end.
    pub span: Span,
    /// Its lives in order; none in tiers.
    pub lives: Vec<LifeRows>,
    /// Bytes of its texts, JSON, bytes and arrays; 0 in tiers, and if they were not counted.
    pub(crate) bytes: u64,
    /// Whether some integers are rounded in the columns of doubles.
    pub(super) exact: bool,
    /// Whether some errors are not 0.
    pub(super) errors: bool,
    /// The quality of all samples, if they have the same.
    pub(super) quality: Option<Quality>,
    /// Whether some time is before that of the previous row.
    pub backwards: bool,
}

/// The rows of one life of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeRows {
    /// Time of the stream's registration, in ns since the epoch.
    pub life: i64,
    /// Number of samples.
    pub rows: u64,
    /// Number of the first sample, counted in the life from 1.
    pub first: u64,
    /// Number of the last sample.
    pub last: u64,
}

impl LifeRows {
    /// Whether no number is missing between the first and the last.
    pub fn is_whole(&self) -> bool {
        self.last - self.first == self.rows - 1
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowGroup {
    pub rows: u32,
    /// Chunks by column of the schema.
    pub chunks: Vec<ColumnChunk>,
}

/// The place of a column chunk, which is its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnChunk {
    pub offset: u64,
    pub length: u32,
    pub crc32: u32,
}

/// The fixed end of an index, by which the index is found.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexTail {
    /// Bytes of the compressed index.
    pub bytes: usize,
    plain_bytes: usize,
    crc32: u32,
    version: u32,
}

impl IndexSeries {
    /// Returns a series that has no rows yet.
    pub(super) fn new(id: SeriesId, descriptor: &Arc<Descriptor>, first_row: u64) -> Self {
        Self {
            id,
            descriptor: Arc::clone(descriptor),
            first_row,
            rows: 0,
            span: NOWHEN,
            lives: Vec::new(),
            bytes: 0,
            exact: false,
            errors: false,
            quality: None,
            backwards: false,
        }
    }
}

impl ParquetIndex {
    pub(super) fn new(about: FileIdentity, version: u32) -> Self {
        Self {
            about,
            version,
            series: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Returns the number of samples or buckets.
    pub fn rows(&self) -> u64 {
        self.series.iter().map(|series| series.rows).sum()
    }

    /// Returns the times of the rows; without rows `from` is after `to`.
    pub fn span(&self) -> Span {
        let spans = self.series.iter().map(|series| series.span);
        spans.fold(NOWHEN, widen)
    }

    /// Returns the bytes of the index, which lie before the footer.
    pub(super) fn encode(&self, path: &Path) -> Result<Vec<u8>, ArchiveError> {
        let mut plain = Vec::new();
        self.put(&mut plain);
        if plain.len() > INDEX_BYTES_MAX {
            return Err(corrupt(path, "there are too many series for one file", 0));
        }
        let mut bytes = zstd::bulk::compress(&plain, ZSTD_LEVEL)
            .map_err(ArchiveError::io("compress the index of", path))?;
        let crc32 = crc32fast::hash(&bytes);
        let (Ok(packed_bytes), Ok(plain_bytes)) =
            (u32::try_from(bytes.len()), u32::try_from(plain.len()))
        else {
            return Err(corrupt(path, "there are too many series for one file", 0));
        };
        let mut tail = Vec::with_capacity(TAIL_BYTES);
        for word in [packed_bytes, plain_bytes, crc32, self.version] {
            tail.extend_from_slice(&word.to_le_bytes());
        }
        tail.extend_from_slice(&crc32fast::hash(&tail).to_le_bytes());
        tail.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&tail);
        Ok(bytes)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.about.node.as_bytes());
        put_bytes(out, self.about.tier.as_str().as_bytes());
        put_u64(out, self.about.sequences.0);
        put_u64(out, self.about.sequences.1);
        put_u64(out, self.groups.len() as u64);
        for group in &self.groups {
            put_u64(out, group.rows.into());
            for chunk in &group.chunks {
                put_u64(out, chunk.offset);
                put_u64(out, chunk.length.into());
                out.extend_from_slice(&chunk.crc32.to_le_bytes());
            }
        }
        put_u64(out, self.series.len() as u64);
        for series in &self.series {
            put_series(out, series);
            if self.about.tier == Tier::Raw {
                put_u64(out, series.bytes);
            }
        }
    }

    /// Decodes what [`Self::encode`] wrote, without the tail; `data_end` is the offset of the index
    /// in the file.
    pub(super) fn decode(
        path: &Path,
        tail: IndexTail,
        bytes: &[u8],
        data_end: u64,
    ) -> Result<Self, ArchiveError> {
        let bad = |reason: &str| corrupt(path, format!("its index {reason}"), data_end);
        if crc32fast::hash(bytes) != tail.crc32 {
            return Err(bad("does not match its checksum"));
        }
        let plain = zstd::bulk::decompress(bytes, tail.plain_bytes)
            .map_err(|e| bad(&format!("cannot be unpacked: {e}")))?;
        let mut cut = ByteReader::new(&plain);
        let index = Self::cut(&mut cut, tail.version)
            .ok_or_else(|| bad("is cut short or lists nonsense"))?;
        if !cut.is_empty() {
            return Err(bad("is followed by more"));
        }
        index.check(data_end).map_err(bad)?;
        Ok(index)
    }

    fn cut(cut: &mut ByteReader<'_>, version: u32) -> Option<Self> {
        let about = FileIdentity {
            node: cut.text()?.to_owned(),
            tier: Tier::from_name(cut.text()?)?,
            sequences: (cut.u64()?, cut.u64()?),
        };
        let columns = schema::columns(about.tier, version);
        let count = cut.count(columns)?;
        let mut groups = Vec::with_capacity(count);
        for _ in 0..count {
            groups.push(cut_group(cut, columns)?);
        }
        let count = cut.count(16)?;
        let mut series = Vec::with_capacity(count);
        let mut first_row = 0;
        for _ in 0..count {
            let mut next = cut_series(cut, first_row, about.tier)?;
            if about.tier == Tier::Raw && version > 1 {
                next.bytes = cut.u64()?;
            }
            first_row = next.first_row.checked_add(next.rows)?;
            series.push(next);
        }
        Some(Self {
            about,
            version,
            series,
            groups,
        })
    }

    fn check(&self, data_end: u64) -> Result<(), &'static str> {
        let rows: u64 = self.groups.iter().map(|g| u64::from(g.rows)).sum();
        if rows != self.rows() {
            return Err("counts other rows by series than by row group");
        }
        for group in &self.groups {
            if group.rows == 0 || group.rows as usize > GROUP_ROWS_MAX {
                return Err("lists a row group of a wrong size");
            }
            let fits = |chunk: &ColumnChunk| {
                let end = chunk.offset.checked_add(u64::from(chunk.length));
                chunk.offset >= 4 && end.is_some_and(|end| end <= data_end)
            };
            if !group.chunks.iter().all(fits) {
                return Err("lists a column chunk that is outside of the file");
            }
        }
        Ok(())
    }
}

impl IndexTail {
    /// Returns the version of the index.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Decodes the last [`TAIL_BYTES`] bytes before the footer; `at` is their offset.
    pub(super) fn decode(
        path: &Path,
        tail: &[u8; TAIL_BYTES],
        at: u64,
    ) -> Result<Self, ArchiveError> {
        if &tail[20..] != MAGIC {
            let reason =
                "it has no index of barograph: another program wrote it, or it is cut short";
            return Err(corrupt(path, reason, at));
        }
        let word = |i: usize| {
            let bytes = [tail[i], tail[i + 1], tail[i + 2], tail[i + 3]];
            u32::from_le_bytes(bytes)
        };
        if crc32fast::hash(&tail[..16]) != word(16) {
            return Err(corrupt(path, "the end of its index is damaged", at));
        }
        if word(12) > FORMAT {
            return Err(ArchiveError::Newer {
                path: path.to_owned(),
                found: word(12),
                known: FORMAT,
            });
        }
        let (bytes, plain_bytes) = (word(0) as usize, word(4) as usize);
        let packed_max = zstd::zstd_safe::compress_bound(INDEX_BYTES_MAX);
        if plain_bytes > INDEX_BYTES_MAX || bytes > packed_max || bytes as u64 > at {
            return Err(corrupt(path, "its index is too large", at));
        }
        Ok(Self {
            bytes,
            plain_bytes,
            crc32: word(8),
            version: word(12),
        })
    }
}

fn put_series(out: &mut Vec<u8>, series: &IndexSeries) {
    let descriptor = &series.descriptor;
    out.extend_from_slice(&series.id.0);
    put_bytes(out, descriptor.name.as_str().as_bytes());
    put_u64(out, descriptor.labels.iter().len() as u64);
    for (name, value) in descriptor.labels.iter() {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
    put_bytes(out, descriptor.unit.as_str().as_bytes());
    put_bytes(out, descriptor.help.as_bytes());
    out.push(descriptor.value_type as u8);
    out.push(descriptor.kind as u8);
    put_u64(out, series.rows);
    put_i64(out, series.span.from);
    put_i64(out, series.span.to);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        flag(series.exact, EXACT) | flag(series.errors, ERRORS) | flag(series.backwards, BACKWARDS),
    );
    out.push(series.quality.map_or(MIXED, |quality| quality as u8));
    put_u64(out, series.lives.len() as u64);
    for life in &series.lives {
        put_i64(out, life.life);
        put_u64(out, life.rows);
        put_u64(out, life.first);
        put_u64(out, life.last);
    }
}

fn cut_group(cut: &mut ByteReader<'_>, columns: usize) -> Option<RowGroup> {
    let rows = u32::try_from(cut.u64()?).ok()?;
    let mut chunks = Vec::with_capacity(columns);
    for _ in 0..columns {
        chunks.push(ColumnChunk {
            offset: cut.u64()?,
            length: u32::try_from(cut.u64()?).ok()?,
            crc32: cut.u32()?,
        });
    }
    Some(RowGroup { rows, chunks })
}

fn cut_series(cut: &mut ByteReader<'_>, first_row: u64, tier: Tier) -> Option<IndexSeries> {
    let id = SeriesId(cut.take(16)?.try_into().ok()?);
    let descriptor = cut_descriptor(cut)?;
    let rows = cut.u64()?;
    let span = Span {
        from: cut.i64()?,
        to: cut.i64()?,
    };
    let flags = cut.u8()?;
    let quality = match cut.u8()? {
        MIXED => None,
        code => Some(Quality::from_u8(code)?),
    };
    let count = cut.count(4)?;
    let mut lives = Vec::with_capacity(count);
    for _ in 0..count {
        lives.push(cut_life(cut)?);
    }
    let of_lives = lives
        .iter()
        .try_fold(0u64, |sum, life: &LifeRows| sum.checked_add(life.rows));
    let adds_up = (tier != Tier::Raw && lives.is_empty()) || of_lives == Some(rows);
    (adds_up && rows > 0 && span.from <= span.to).then(|| IndexSeries {
        id,
        descriptor: Arc::new(descriptor),
        first_row,
        rows,
        span,
        lives,
        bytes: 0,
        exact: flags & EXACT != 0,
        errors: flags & ERRORS != 0,
        quality,
        backwards: flags & BACKWARDS != 0,
    })
}

fn cut_life(cut: &mut ByteReader<'_>) -> Option<LifeRows> {
    let life = LifeRows {
        life: cut.i64()?,
        rows: cut.u64()?,
        first: cut.u64()?,
        last: cut.u64()?,
    };
    let between = life.last.checked_sub(life.first)?;
    // The column of numbers is signed.
    let fits = i64::try_from(life.last).is_ok();
    (fits && life.rows > 0 && between >= life.rows - 1).then_some(life)
}

fn cut_descriptor(cut: &mut ByteReader<'_>) -> Option<Descriptor> {
    let name = Name::new(cut.text()?).ok()?;
    let count = cut.count(2)?;
    let mut labels = Vec::with_capacity(count);
    for _ in 0..count {
        labels.push((cut.text()?, cut.text()?));
    }
    Some(Descriptor {
        name,
        labels: Labels::new(labels).ok()?,
        unit: Unit::new(cut.text()?).ok()?,
        help: cut.text()?.to_owned(),
        value_type: ValueType::from_u8(cut.u8()?)?,
        kind: Kind::from_u8(cut.u8()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_not_larger_than_it_can_be_when_compressed() {
        let tail = |packed_bytes: u32| {
            let mut tail = Vec::new();
            for word in [packed_bytes, 100, 0, FORMAT] {
                tail.extend_from_slice(&word.to_le_bytes());
            }
            tail.extend_from_slice(&crc32fast::hash(&tail).to_le_bytes());
            tail.extend_from_slice(MAGIC);
            let tail = tail.as_slice().try_into().unwrap();
            // The file may have any size: holes take no space.
            IndexTail::decode(Path::new("foreign"), tail, u64::MAX).map(|tail| tail.bytes)
        };
        assert_eq!(tail(64 << 20).unwrap(), 64 << 20);
        for packed_bytes in [65 << 20, u32::MAX] {
            let error = tail(packed_bytes).unwrap_err().to_string();
            assert!(error.contains("its index is too large"), "{error}");
        }
    }
}
