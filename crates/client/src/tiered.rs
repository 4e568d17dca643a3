//! Packed files over several tiers of storage: a small file of JSON says which bytes lie in which
//! part, and a part is a file on each tier. Readers see the bytes of one file.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use barograph_progressive::{ByteSource, PartHeader};
use serde_json::{Value as Json, json};

use crate::file_bytes::FileBytes;

/// What the file says that it is.
const FORMAT: &str = "barograph array in parts";
const VERSION: u64 = 1;
/// Most bytes of the file.
const INDEX_BYTES_MAX: u64 = 16 << 20;
/// Most parts.
pub const PARTS_MAX: usize = 64;
/// Most extents.
const EXTENTS_MAX: usize = 1 << 18;

/// Where the bytes of a packed file lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartsIndex {
    pub(crate) parts: Vec<IndexedPart>,
    /// Bytes and number of the part, in the order of the packed file. Within a part the bytes are
    /// in the same order.
    pub(crate) extents: Vec<(u64, usize)>,
}

/// A part as it is named in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedPart {
    /// Its path; one that is not absolute begins where the index lies.
    pub(crate) file: PathBuf,
    pub(crate) header: PartHeader,
}

impl PartsIndex {
    /// The text of the index.
    ///
    /// # Errors
    ///
    /// A path is no UTF-8.
    pub(crate) fn encode(&self) -> io::Result<String> {
        let parts = self.parts.iter().map(|part| {
            let file = part.file.to_str().ok_or_else(|| {
                let text = format!("{}: the path is no UTF-8", part.file.display());
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?;
            let (id, bytes) = (hex(&part.header.id), part.header.bytes);
            Ok(json!({ "file": file, "id": id, "bytes": bytes }))
        });
        let parts: Vec<Json> = parts.collect::<io::Result<_>>()?;
        let extents = self.extents.iter();
        let document = json!({
            "format": FORMAT,
            "version": VERSION,
            "parts": parts,
            "extents": extents.map(|(bytes, part)| json!([bytes, part])).collect::<Vec<_>>(),
        });
        Ok(format!("{document}\n"))
    }

    /// Reads the text of an index.
    pub(crate) fn decode(text: &[u8]) -> io::Result<Self> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let document: Json = serde_json::from_slice(text)
            .map_err(|error| wrong(&format!("it is no packed file and no index: {error}")))?;
        if document["format"].as_str() != Some(FORMAT) {
            return Err(wrong("it is no packed file, and no index of parts"));
        }
        if document["version"].as_u64() != Some(VERSION) {
            return Err(wrong("the index of parts is of a later version"));
        }
        let index = Self::of(&document);
        let index = index.ok_or_else(|| wrong("the index of parts is damaged"))?;
        match index.is_sound() {
            true => Ok(index),
            false => Err(wrong("the index of parts does not agree with itself")),
        }
    }

    fn of(document: &Json) -> Option<Self> {
        let parts = document["parts"].as_array()?.iter().map(|part| {
            let header = PartHeader {
                id: unhex(part["id"].as_str()?)?,
                bytes: part["bytes"].as_u64()?,
            };
            let file = part["file"].as_str()?.into();
            Some(IndexedPart { file, header })
        });
        let extents = document["extents"].as_array()?.iter().map(|extent| {
            let part = usize::try_from(extent[1].as_u64()?).ok()?;
            Some((extent[0].as_u64()?, part))
        });
        Some(Self {
            parts: parts.collect::<Option<_>>()?,
            extents: extents.collect::<Option<_>>()?,
        })
    }

    /// Whether the extents are those of the parts.
    fn is_sound(&self) -> bool {
        let mut left: Vec<u64> = self.parts.iter().map(|part| part.header.bytes).collect();
        let is_few = self.parts.len() <= PARTS_MAX && self.extents.len() <= EXTENTS_MAX;
        let mut all = 0_u64;
        let is_there = self.extents.iter().all(|&(bytes, part)| {
            let Some(rest) = left.get_mut(part) else {
                return false;
            };
            let (Some(less), Some(more)) = (rest.checked_sub(bytes), all.checked_add(bytes)) else {
                return false;
            };
            (*rest, all) = (less, more);
            true
        });
        // No file is longer, so that places in parts are numbers too.
        is_few && is_there && all <= i64::MAX as u64 / 2 && left.iter().all(|rest| *rest == 0)
    }
}

/// The bytes of a packed file whose parts lie on several tiers. A part is opened when bytes of it
/// are asked for: a coarse reading needs no slow tier, not even one that is there.
#[derive(Debug)]
pub struct TieredBytes {
    parts: Vec<Part>,
    extents: Vec<Extent>,
    bytes: u64,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    header: PartHeader,
    file: OnceLock<FileBytes>,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Its end in the packed file.
    end: u64,
    bytes: u64,
    part: usize,
    /// Where it begins in the part.
    at: u64,
}

/// A part of a packed file, for those who show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Its path.
    pub path: PathBuf,
    /// Bytes of the packed file that it has.
    pub bytes: u64,
}

impl TieredBytes {
    fn of(index: &PartsIndex, dir: &Path) -> Self {
        let parts = index.parts.iter().map(|part| Part {
            path: dir.join(&part.file),
            header: part.header,
            file: OnceLock::new(),
        });
        let mut taken = vec![PartHeader::BYTES as u64; index.parts.len()];
        let mut end = 0;
        let extents = index.extents.iter().map(|&(bytes, part)| {
            end += bytes;
            let at = taken[part];
            taken[part] += bytes;
            Extent {
                end,
                bytes,
                part,
                at,
            }
        });
        let extents = extents.collect();
        Self {
            parts: parts.collect(),
            extents,
            bytes: end,
        }
    }

    /// The parts, from the one with the first byte on.
    pub fn parts(&self) -> Vec<FilePart> {
        let part = |part: &Part| FilePart {
            path: part.path.clone(),
            bytes: part.header.bytes,
        };
        self.parts.iter().map(part).collect()
    }

    /// The number of the part in which a byte lies.
    pub fn part_of(&self, place: u64) -> Option<usize> {
        let at = self.extents.partition_point(|it| it.end <= place);
        self.extents.get(at).map(|extent| extent.part)
    }
}

impl Part {
    /// The open part. What fails is tried again by the next reading.
    fn file(&self) -> io::Result<&FileBytes> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = FileBytes::open(&self.path)?;
        let mut head = [0; PartHeader::BYTES];
        file.file().read_exact_at(&mut head, 0)?;
        let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let header = PartHeader::decode(&head).map_err(|error| wrong(error.to_string()))?;
        if header != self.header {
            return Err(wrong("it is the part of another file".into()));
        }
        Ok(self.file.get_or_init(|| file))
    }

    fn read(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let read = self.file().and_then(|it| it.file().read_exact_at(out, at));
        read.map_err(|error| {
            let text = format!("part {}: {error}", self.path.display());
            io::Error::new(error.kind(), text)
        })
    }
}

impl ByteSource for TieredBytes {
    fn byte_count(&self) -> u64 {
        self.bytes
    }

    fn fetch(&self, place: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        let count = usize::try_from(place.end.saturating_sub(place.start));
        let count = count.map_err(|_| io::ErrorKind::OutOfMemory)?;
        if place.end > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count)?;
        bytes.resize(count, 0);
        let (mut at, mut rest) = (place.start, &mut bytes[..]);
        let first = self.extents.partition_point(|it| it.end <= at);
        for extent in &self.extents[first..] {
            if rest.is_empty() {
                break;
            }
            let here = rest.len().min((extent.end - at) as usize);
            let (out, more) = rest.split_at_mut(here);
            let skipped = at - (extent.end - extent.bytes);
            self.parts[extent.part].read(out, extent.at + skipped)?;
            (rest, at) = (more, at + here as u64);
        }
        Ok(Cow::Owned(bytes))
    }
}

/// The bytes of a packed file, which lies in one piece or over several tiers.
#[derive(Debug)]
pub enum ArrayBytes {
    /// One file has all bytes.
    One(FileBytes),
    /// There is a part on each tier.
    Tiered(TieredBytes),
}

impl ArrayBytes {
    /// Opens a packed file, or the index of one that has parts.
    ///
    /// # Errors
    ///
    /// It cannot be opened, is no regular file, or is an index that is damaged.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = FileBytes::open(path)?;
        Ok(match index_of(&file)? {
            Some(index) => {
                let dir = path.parent().unwrap_or(Path::new(""));
                Self::Tiered(TieredBytes::of(&index, dir))
            }
            None => Self::One(file),
        })
    }

    /// The parts and their tiers; none of a file in one piece.
    pub fn tiers(&self) -> Option<&TieredBytes> {
        match self {
            Self::One(_) => None,
            Self::Tiered(tiered) => Some(tiered),
        }
    }
}

impl ByteSource for ArrayBytes {
    fn byte_count(&self) -> u64 {
        match self {
            Self::One(file) => file.byte_count(),
            Self::Tiered(tiered) => tiered.byte_count(),
        }
    }

    fn fetch(&self, place: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::One(file) => file.fetch(place),
            Self::Tiered(tiered) => tiered.fetch(place),
        }
    }
}

/// The index that a file is; `None` if it is none, but perhaps a packed file.
pub(crate) fn index_of(file: &FileBytes) -> io::Result<Option<PartsIndex>> {
    let bytes = file.byte_count();
    if bytes == 0 || file.fetch(0..1)?[0] != b'{' {
        return Ok(None);
    }
    if bytes > INDEX_BYTES_MAX {
        let text =
            format!("it is no packed file, and an index has at most {INDEX_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    PartsIndex::decode(&file.fetch(0..bytes)?).map(Some)
}

/// The parts of a file that something else takes the place of.
pub(crate) struct OldParts {
    owner: Option<u32>,
    parts: Vec<IndexedPart>,
}

impl OldParts {
    /// The parts of a file, with their whole paths; none of what is no index.
    pub(crate) fn of(path: &Path) -> Self {
        let file = path
            .canonicalize()
            .and_then(|path| Ok((FileBytes::open(&path)?, path)));
        let found = file.ok().and_then(|(file, path)| {
            let index = index_of(&file).ok().flatten()?;
            Some((owner(&file)?, index.parts, path))
        });
        let Some((owner, mut parts, path)) = found else {
            let parts = Vec::new();
            return Self { owner: None, parts };
        };
        let dir = path.parent().unwrap_or(Path::new("/"));
        parts
            .iter_mut()
            .for_each(|part| part.file = dir.join(&part.file));
        let owner = Some(owner);
        Self { owner, parts }
    }

    /// Removes the parts that are those of the owner of the file.
    pub(crate) fn remove(&self) {
        if let Some(owner) = self.owner {
            let parts = self.parts.iter();
            parts.for_each(|part| remove_part(&part.file, &part.header.id, owner));
        }
    }
}

/// The user to whom a file belongs.
pub(crate) fn owner(file: &FileBytes) -> Option<u32> {
    file.file().metadata().ok().map(|seen| seen.uid())
}

/// Removes a file if it is this part, and belongs to this user: an index can name the files of
/// anybody.
pub(crate) fn remove_part(path: &Path, id: &[u8; 16], of: u32) {
    let mut head = [0; PartHeader::BYTES];
    let Ok(file) = FileBytes::open(path) else {
        return;
    };
    let read = file.file().read_exact_at(&mut head, 0).is_ok();
    let is_it = PartHeader::decode(&head).is_ok_and(|header| header.id == *id);
    // One that was killed before the header has left an empty file.
    let is_left = (read && is_it) || file.byte_count() == 0;
    if is_left && owner(&file) == Some(of) {
        let _ = std::fs::remove_file(path);
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(text, 16).ok())?;
    number.map(u128::to_be_bytes)
}
