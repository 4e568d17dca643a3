//! A Parquet file that is read by series: only the rows of the wanted series are decoded.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::Span;
use bytes::Bytes;

use super::index::{ColumnChunk, IndexSeries, IndexTail, ParquetIndex, TAIL_BYTES};
use super::plan::{RowsPiece, plan};
use super::{END_BYTES, corrupt};
use crate::{ArchiveError, Tier, open};

/// The first and the last bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes of the file that are read at once to compute its checksum.
const HASHED_BYTES: usize = 1 << 20;
/// Largest footer that is checked, in bytes: that of a file with thousands of row groups.
const FOOTER_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a column chunk: its rows are bounded, and so are the bytes of long values.
const CHUNK_BYTES_MAX: u32 = 64 << 20;

/// A Parquet file of the archive. It is held open, so it can still be read after it is unlinked.
#[derive(Debug)]
pub struct ParquetPart {
    path: PathBuf,
    file: File,
    bytes: u64,
    tail: IndexTail,
    /// Offset of the index, which follows the rows.
    data_end: u64,
    index: Mutex<Option<Arc<ParquetIndex>>>,
}

impl ParquetPart {
    /// Opens a file and finds its index, which is not read yet.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        Self::from_file(path, open::regular(path)?)
    }

    /// Like [`Self::open`], for a file that is already open and may be unlinked by now.
    pub fn from_file(path: &Path, file: File) -> Result<Self, ArchiveError> {
        let meta = file.metadata().map_err(ArchiveError::io("read", path))?;
        let bytes = meta.len();
        let short = || corrupt(path, "it is too short for a Parquet file", bytes);
        let mut end = [0; END_BYTES as usize];
        let end_at = bytes.checked_sub(END_BYTES).ok_or_else(short)?;
        read_at(&file, path, &mut end, end_at)?;
        if &end[4..] != MAGIC {
            let reason = "it does not end as Parquet does: it is cut short or something else";
            return Err(corrupt(path, reason, end_at));
        }
        let footer = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
        let before = u64::from(footer) + TAIL_BYTES as u64;
        let tail_at = end_at.checked_sub(before).ok_or_else(short)?;
        let mut tail = [0; TAIL_BYTES];
        read_at(&file, path, &mut tail, tail_at)?;
        let tail = IndexTail::decode(path, &tail, tail_at)?;
        let data_end = tail_at.checked_sub(tail.bytes as u64).ok_or_else(short)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            tail,
            data_end,
            index: Mutex::new(None),
        })
    }

    /// Whether no name leads to the file any more.
    pub(crate) fn is_unlinked(&self) -> bool {
        crate::release::is_unlinked(&self.file)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the index: read and checked at the first call, then kept until
    /// [`Self::forget_index`].
    pub fn index(&self) -> Result<Arc<ParquetIndex>, ArchiveError> {
        let mut kept = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = &*kept {
            return Ok(Arc::clone(index));
        }
        let mut bytes = vec![0; self.tail.bytes];
        read_at(&self.file, &self.path, &mut bytes, self.data_end)?;
        let index = ParquetIndex::decode(&self.path, self.tail, &bytes, self.data_end)?;
        let index = Arc::new(index);
        *kept = Some(Arc::clone(&index));
        Ok(index)
    }

    /// Frees the index, which is most of the memory of an open file.
    pub fn forget_index(&self) {
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the index; an error if the file is a tier and `raw` is true, or the other way round.
    pub(super) fn index_of(&self, raw: bool) -> Result<Arc<ParquetIndex>, ArchiveError> {
        let index = self.index()?;
        if (index.about.tier == Tier::Raw) == raw {
            return Ok(index);
        }
        let reason = format!("it is of the tier {}", index.about.tier.as_str());
        Err(corrupt(&self.path, reason, self.data_end))
    }

    pub(super) fn plan(
        &self,
        index: &ParquetIndex,
        wanted: &dyn Fn(&IndexSeries) -> bool,
        span: Span,
    ) -> Vec<(usize, Vec<RowsPiece>)> {
        let pieces = plan(index, span, &|_, series| wanted(series));
        let pieces = pieces.into_iter().enumerate();
        pieces.filter(|(_, pieces)| !pieces.is_empty()).collect()
    }

    /// Returns the error that this file is damaged.
    pub(crate) fn corrupt(&self, reason: &str) -> ArchiveError {
        corrupt(&self.path, reason, 0)
    }

    /// Returns the version of its index.
    pub(super) fn version(&self) -> u32 {
        self.tail.version()
    }

    /// Whether it holds buckets whose means are over samples, and not over time.
    pub(crate) fn is_of_samples(&self) -> bool {
        self.version() < 2
    }

    /// Returns the offset of Parquet's footer, and its bytes.
    pub(super) fn footer(&self) -> Result<(u64, Vec<u8>), ArchiveError> {
        let at = self.data_end + self.tail.bytes as u64 + TAIL_BYTES as u64;
        let length = self.bytes.saturating_sub(END_BYTES).saturating_sub(at);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > FOOTER_BYTES_MAX {
            return Err(corrupt(&self.path, "its footer is too large", at));
        }
        let mut bytes = vec![0; length];
        read_at(&self.file, &self.path, &mut bytes, at)?;
        Ok((at, bytes))
    }

    /// Checks that the file begins as Parquet does, and that every byte before the index belongs to
    /// one column chunk.
    pub(super) fn check_places(&self, index: &ParquetIndex) -> Result<(), ArchiveError> {
        let mut begin = [0; MAGIC.len()];
        read_at(&self.file, &self.path, &mut begin, 0)?;
        if begin != *MAGIC {
            return Err(corrupt(&self.path, "it does not begin as Parquet does", 0));
        }
        let mut end = MAGIC.len() as u64;
        for chunk in index.groups.iter().flat_map(|group| &group.chunks) {
            if chunk.offset != end {
                return Err(corrupt(&self.path, "its columns leave a gap", end));
            }
            end += u64::from(chunk.length);
        }
        if end != self.data_end {
            return Err(corrupt(&self.path, "its columns leave a gap", end));
        }
        Ok(())
    }

    /// Returns the CRC-32 of the whole file.
    pub fn crc32(&self) -> Result<u32, ArchiveError> {
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; HASHED_BYTES];
        let mut at = 0;
        while at < self.bytes {
            let left = usize::try_from(self.bytes - at).unwrap_or(usize::MAX);
            let piece = &mut buffer[..left.min(HASHED_BYTES)];
            read_at(&self.file, &self.path, piece, at)?;
            hasher.update(piece);
            at += piece.len() as u64;
        }
        Ok(hasher.finalize())
    }

    /// Returns the bytes of a column chunk after checking them.
    pub(super) fn chunk(&self, chunk: &ColumnChunk) -> Result<Bytes, ArchiveError> {
        if chunk.length > CHUNK_BYTES_MAX {
            return Err(corrupt(&self.path, "a column is too large", chunk.offset));
        }
        let mut bytes = vec![0; chunk.length as usize];
        read_at(&self.file, &self.path, &mut bytes, chunk.offset)?;
        if crc32fast::hash(&bytes) != chunk.crc32 {
            let reason = "a column does not match its checksum";
            return Err(corrupt(&self.path, reason, chunk.offset));
        }
        Ok(bytes.into())
    }
}

fn read_at(file: &File, path: &Path, bytes: &mut [u8], at: u64) -> Result<(), ArchiveError> {
    match file.read_exact_at(bytes, at) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(corrupt(path, "it was cut short while it was open", at))
        }
        result => result.map_err(ArchiveError::io("read", path)),
    }
}
