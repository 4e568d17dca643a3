//! Packed files are divided among tiers of storage, moved between them, and put together again.
//!
//! The parts are written and durable before the index takes the place of what was there, and what
//! was there is removed after that: whenever the work is killed, one of both is whole. The names of
//! all parts are noted beside the file first, so that the next one can remove those without an
//! owner.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::{
    FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use barograph_progressive::{
    ArrayListing, ByteSource as _, NoRoom, PartHeader, PlacedExtent, ProgressiveError, place_arrays,
};
use serde_json::{Value as Json, json};
use thiserror::Error;

use crate::file_bytes::FileBytes;
use crate::tiered::{
    ArrayBytes, FilePart, IndexedPart, PARTS_MAX, PartsIndex, hex, index_of, owner, remove_part,
    unhex,
};

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 4 << 20;
/// Most bytes of the notes about parts.
const NOTES_BYTES_MAX: u64 = 1 << 20;
/// Times that a file is opened again since another one has taken its name.
const OPENED_MAX: usize = 8;

/// A directory of a tier, and the most bytes of a file that are placed in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierDir {
    /// Path of the directory.
    pub dir: PathBuf,
    /// Most bytes.
    pub bytes_max: u64,
}

/// Why a file was not placed; it is as it was.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// The tiers have too little room.
    #[error("the tiers have no room for {bytes} of its {all} bytes")]
    NoRoom {
        /// Bytes that were left.
        bytes: u64,
        /// Bytes of the file.
        all: u64,
    },
    /// There are too many tiers, or none.
    #[error("a file has 1 to {PARTS_MAX} tiers")]
    Tiers,
    /// The file has no parts.
    #[error("it is one file already")]
    One,
    /// Somebody else places or appends.
    #[error("somebody else is writing to the file: try again")]
    Busy,
    /// It is no file of packed arrays.
    #[error(transparent)]
    NoArrays(#[from] ProgressiveError),
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Adds the path to an error of a file.
fn of(path: &Path) -> impl Fn(io::Error) -> PlaceError {
    let path = path.to_owned();
    move |error| PlaceError::Io {
        path: path.clone(),
        error,
    }
}

/// Returns which bytes of a packed file would lie on which tier; nothing is changed.
///
/// # Errors
///
/// The file cannot be read, or the tiers have too little room.
pub fn plan_tiers(path: &Path, tiers: &[TierDir]) -> Result<Vec<PlacedExtent>, PlaceError> {
    planned(&ArrayBytes::open(path).map_err(of(path))?, tiers)
}

fn planned(source: &ArrayBytes, tiers: &[TierDir]) -> Result<Vec<PlacedExtent>, PlaceError> {
    if tiers.is_empty() || tiers.len() > PARTS_MAX {
        return Err(PlaceError::Tiers);
    }
    let listing = ArrayListing::read(source)?;
    let rooms: Vec<u64> = tiers.iter().map(|tier| tier.bytes_max).collect();
    place_arrays(&listing, &rooms).map_err(|NoRoom { bytes }| PlaceError::NoRoom {
        bytes,
        all: listing.end(),
    })
}

/// Divides a packed file among tiers, given from the fastest to the slowest, or moves it to these,
/// and returns its parts. `path` becomes a small file that says where they are, and is read as
/// before. `copied` is told the bytes that are copied so far, and those of all.
///
/// # Errors
///
/// The file cannot be read, the tiers have too little room, or they cannot be written: then the
/// file is as it was.
pub fn place_file(
    path: &Path,
    tiers: &[TierDir],
    copied: impl FnMut(u64, u64),
) -> Result<Vec<FilePart>, PlaceError> {
    let held = HeldFile::hold(path)?;
    let planned = planned(&held.source, tiers)
        .and_then(|extents| Ok((held.parts_of(&extents, tiers)?, extents)));
    let (parts, extents) = match planned {
        Ok(planned) => planned,
        Err(error) => {
            held.finish();
            return Err(error);
        }
    };
    if parts.iter().all(|part| part.is_kept) {
        // It lies as it should: a rule that places what has changed must not go on for ever.
        held.finish();
        return Ok(parts.iter().map(|part| file_part(&part.part)).collect());
    }
    held.note(&parts)?;
    let written = held.write(&parts, &extents, copied);
    let index = match written {
        Ok(index) => index,
        Err(error) => {
            let new = parts.iter().filter(|part| !part.is_kept);
            new.for_each(|part| held.remove(&part.part));
            held.finish();
            return Err(error);
        }
    };
    held.remove_but(&index);
    held.finish();
    Ok(index.parts.iter().map(file_part).collect())
}

fn file_part(part: &IndexedPart) -> FilePart {
    FilePart {
        path: part.file.clone(),
        bytes: part.header.bytes,
    }
}

/// Puts the parts of a packed file together, so that `path` is the only file, and returns its
/// bytes. `copied` is told the bytes that are copied so far, and those of all.
///
/// # Errors
///
/// The file has no parts, a part cannot be read, or the file cannot be written: then it is as it
/// was.
pub fn join_file(path: &Path, mut copied: impl FnMut(u64, u64)) -> Result<u64, PlaceError> {
    let held = HeldFile::hold(path)?;
    if held.index.is_none() {
        held.finish();
        return Err(PlaceError::One);
    }
    held.note(&[])?;
    let all = held.source.byte_count();
    let written = held.replace(|file| {
        let mut done = 0;
        held.copy(0..all, file, |bytes| {
            done += bytes;
            copied(done, all);
        })
    });
    if let Err(error) = written {
        held.finish();
        return Err(error);
    }
    let none = PartsIndex {
        parts: Vec::new(),
        extents: Vec::new(),
    };
    held.remove_but(&none);
    held.finish();
    Ok(all)
}

/// A part that the file will have.
struct NewPart {
    part: IndexedPart,
    tier: usize,
    ranges: Vec<Range<u64>>,
    /// Whether it is there already, with the same bytes in the same directory.
    is_kept: bool,
}

/// A packed file that nobody else places or appends to.
struct HeldFile {
    path: PathBuf,
    /// The file itself; its lock keeps others from appending.
    file: FileBytes,
    source: ArrayBytes,
    index: Option<PartsIndex>,
    /// The notes about parts; their lock keeps others from placing.
    notes: File,
    notes_path: PathBuf,
}

impl HeldFile {
    /// Takes hold of a file, and removes what a killed one has left.
    fn hold(path: &Path) -> Result<Self, PlaceError> {
        // Notes lie beside the file itself, not beside a link to it.
        let path = &path.canonicalize().map_err(of(path))?;
        let notes_path = with_suffix(path, ".placing").map_err(of(path))?;
        let notes = held_notes(&notes_path)?;
        let file = FileBytes::open(path).map_err(of(path))?;
        lock(file.file(), path)?;
        let held = Self {
            path: path.to_owned(),
            index: index_of(&file).map_err(of(path))?,
            source: ArrayBytes::open(path).map_err(of(path))?,
            file,
            notes,
            notes_path,
        };
        held.clean().map_err(of(&held.notes_path))?;
        Ok(held)
    }

    /// Removes the parts that are noted and are not those of the file.
    fn clean(&self) -> io::Result<()> {
        let mut text = Vec::new();
        (&self.notes).take(NOTES_BYTES_MAX).read_to_end(&mut text)?;
        // Notes that were not written to their end are of one who had no part yet.
        let noted: Json = serde_json::from_slice(&text).unwrap_or_default();
        for part in noted.as_array().into_iter().flatten() {
            let id = part["id"].as_str().and_then(unhex);
            let (Some(id), Some(file)) = (id, part["file"].as_str()) else {
                continue;
            };
            let own = self.index.iter().flat_map(|index| &index.parts);
            if own.clone().all(|own| own.header.id != id) {
                let header = PartHeader { id, bytes: 0 };
                let file = PathBuf::from(file);
                self.remove(&IndexedPart { file, header });
            }
        }
        let _ = std::fs::remove_file(self.new_path()?);
        self.notes.set_len(0)
    }

    /// Where the file is written before it gets its name.
    fn new_path(&self) -> io::Result<PathBuf> {
        with_suffix(&self.path, ".placing.new")
    }

    /// The parts for these extents.
    fn parts_of(
        &self,
        extents: &[PlacedExtent],
        tiers: &[TierDir],
    ) -> Result<Vec<NewPart>, PlaceError> {
        let mut parts: Vec<NewPart> = Vec::new();
        for (number, tier) in tiers.iter().enumerate() {
            let ranges = ranges(extents.iter().map(|it| (it.bytes, it.tier)), number);
            if ranges.is_empty() {
                continue;
            }
            let dir = tier.dir.canonicalize().map_err(of(&tier.dir))?;
            let (part, is_kept) = match self.part_there(&dir, &ranges) {
                Some(part) => (part, true),
                None => (self.new_part(&dir, &ranges)?, false),
            };
            parts.push(NewPart {
                part,
                tier: number,
                ranges,
                is_kept,
            });
        }
        Ok(parts)
    }

    /// The part that has these bytes and lies in this directory.
    fn part_there(&self, dir: &Path, meant: &[Range<u64>]) -> Option<IndexedPart> {
        let index = self.index.as_ref()?;
        let mut parts = index.parts.iter().enumerate();
        let is_same = |&(number, part): &(usize, &IndexedPart)| {
            part.file.parent() == Some(dir)
                && ranges(index.extents.iter().copied(), number) == meant
        };
        parts.find(is_same).map(|(_, part)| part.clone())
    }

    fn new_part(&self, dir: &Path, ranges: &[Range<u64>]) -> Result<IndexedPart, PlaceError> {
        let mut id = [0; 16];
        let random = Path::new("/dev/urandom");
        let read = File::open(random).and_then(|mut file| file.read_exact(&mut id));
        read.map_err(of(random))?;
        let suffix = format!(".{}.part", hex(&id[..8]));
        let name = with_suffix(&self.path, &suffix).map_err(of(&self.path))?;
        let header = PartHeader {
            id,
            bytes: ranges.iter().map(|range| range.end - range.start).sum(),
        };
        let file = dir.join(name.file_name().unwrap_or_default());
        Ok(IndexedPart { file, header })
    }

    /// Notes the parts that are there or will be.
    fn note(&self, parts: &[NewPart]) -> Result<(), PlaceError> {
        let own = self.index.iter().flat_map(|index| &index.parts);
        let all = own.chain(parts.iter().map(|part| &part.part));
        let noted = all.map(|part| {
            json!({ "file": self.dir().join(&part.file).to_str(), "id": hex(&part.header.id) })
        });
        let text = Json::Array(noted.collect()).to_string();
        let written = self.notes.write_all_at(text.as_bytes(), 0);
        let written = written.and_then(|()| self.notes.sync_all());
        written.map_err(of(&self.notes_path))
    }

    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Writes the parts and then the index, and returns it.
    fn write(
        &self,
        parts: &[NewPart],
        extents: &[PlacedExtent],
        mut copied: impl FnMut(u64, u64),
    ) -> Result<PartsIndex, PlaceError> {
        let new = || parts.iter().filter(|part| !part.is_kept);
        let all = new().map(|part| part.part.header.bytes).sum();
        let mut done = 0;
        for NewPart { part, ranges, .. } in new() {
            let written = self.write_part(part, ranges, |bytes| {
                done += bytes;
                copied(done, all);
            });
            written.map_err(of(&part.file))?;
        }
        let number = |tier| parts.iter().position(|part| part.tier == tier);
        let extents = extents
            .iter()
            .filter_map(|it| Some((it.bytes, number(it.tier)?)));
        let index = PartsIndex {
            parts: parts.iter().map(|part| part.part.clone()).collect(),
            extents: extents.collect(),
        };
        let text = index.encode().map_err(of(&self.path))?;
        self.replace(|file| file.write_all(text.as_bytes()))?;
        Ok(index)
    }

    /// Writes a part, and makes it durable.
    fn write_part(
        &self,
        part: &IndexedPart,
        ranges: &[Range<u64>],
        mut copied: impl FnMut(u64),
    ) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&part.file)?;
        let mut fill = || {
            self.give(&file)?;
            file.write_all(&part.header.encode())?;
            for range in ranges {
                self.copy(range.clone(), &mut file, &mut copied)?;
            }
            file.sync_all()?;
            sync_dir(part.file.parent().unwrap_or(Path::new("/")))
        };
        fill().inspect_err(|_| {
            let _ = std::fs::remove_file(&part.file);
        })
    }

    fn copy(
        &self,
        range: Range<u64>,
        file: &mut File,
        mut copied: impl FnMut(u64),
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + COPY_BYTES);
            file.write_all(&self.source.fetch(at..end)?)?;
            copied(end - at);
            at = end;
        }
        Ok(())
    }

    /// Gives a new file the owner and the permissions of the file: nobody gets more by a part.
    fn give(&self, new: &File) -> io::Result<()> {
        let (seen, own) = (self.file.file().metadata()?, new.metadata()?);
        let mut mode = seen.mode() & 0o666;
        if (seen.uid(), seen.gid()) != (own.uid(), own.gid())
            && let Err(error) = fchown(new, Some(seen.uid()), Some(seen.gid()))
        {
            if seen.uid() != own.uid() {
                return Err(error);
            }
            // The rights were those of another group.
            mode &= !0o060;
        }
        new.set_permissions(Permissions::from_mode(mode))
    }

    /// Removes a file if it is this part, and of the file's owner.
    fn remove(&self, part: &IndexedPart) {
        if let Some(owner) = owner(&self.file) {
            remove_part(&self.dir().join(&part.file), &part.header.id, owner);
        }
    }

    /// Puts another file in the place of the file.
    fn replace(&self, put: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), PlaceError> {
        let path = self.new_path().map_err(of(&self.path))?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let written = options.open(&path).and_then(|mut file| {
            self.give(&file)?;
            put(&mut file)?;
            file.sync_all()?;
            self.check_name()?;
            std::fs::rename(&path, &self.path)
        });
        written.map_err(|error| {
            let _ = std::fs::remove_file(&path);
            of(&self.path)(error)
        })?;
        // From here on it is the new file that counts, even if this cannot be done.
        let _ = sync_dir(self.dir());
        Ok(())
    }

    /// Whether the name is still that of the file that was read.
    fn check_name(&self) -> io::Result<()> {
        let (now, read) = (std::fs::metadata(&self.path)?, self.file.file().metadata()?);
        match (now.dev(), now.ino()) == (read.dev(), read.ino()) {
            true => Ok(()),
            false => Err(io::Error::other("somebody has replaced the file meanwhile")),
        }
    }

    /// Removes the parts that the file had, but those that it still has.
    fn remove_but(&self, index: &PartsIndex) {
        let own = self.index.iter().flat_map(|index| &index.parts);
        for part in own {
            if index
                .parts
                .iter()
                .all(|kept| kept.header.id != part.header.id)
            {
                self.remove(part);
            }
        }
    }

    /// Removes the notes: there is nothing left to be removed.
    fn finish(self) {
        let _ = std::fs::remove_file(&self.notes_path);
    }
}

/// Opens and locks the notes beside a file.
fn held_notes(path: &Path) -> Result<File, PlaceError> {
    for _ in 0..OPENED_MAX {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).mode(0o600);
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = options.custom_flags(flags).open(path).map_err(of(path))?;
        let seen = file.metadata().map_err(of(path))?;
        // Parts are removed by what the notes say: those of somebody else are not believed.
        if !seen.is_file() || seen.uid() != rustix::process::geteuid().as_raw() {
            let text = "it is no file of this user: remove it";
            return Err(of(path)(io::Error::new(
                io::ErrorKind::PermissionDenied,
                text,
            )));
        }
        lock(&file, path)?;
        // Whoever held them before may have removed them meanwhile.
        let is_same = |now: std::fs::Metadata| (now.dev(), now.ino()) == (seen.dev(), seen.ino());
        if std::fs::symlink_metadata(path).is_ok_and(is_same) {
            return Ok(file);
        }
    }
    Err(PlaceError::Busy)
}

fn lock(file: &File, path: &Path) -> Result<(), PlaceError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => PlaceError::Busy,
        TryLockError::Error(error) => of(path)(error),
    })
}

/// The ranges of the file's bytes that have this number, where extents follow each other.
fn ranges(extents: impl Iterator<Item = (u64, usize)>, number: usize) -> Vec<Range<u64>> {
    let mut start = 0;
    let mut ranges = Vec::new();
    for (bytes, of) in extents {
        if of == number {
            ranges.push(start..start + bytes);
        }
        start += bytes;
    }
    ranges
}

fn with_suffix(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut name: OsString = name.to_owned();
    name.push(suffix);
    Ok(path.with_file_name(name))
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests;
