//! The readers' side of a segment: any process, read-only, without a lock or a system call per
//! value.
//!
//! Another process wrote everything in the file: lengths and offsets are checked before use, and
//! contents that make no sense give an error or an absent stream, never a panic. One thing no
//! reader can check: if the file is made shorter while it is mapped, the next access is a SIGBUS. A
//! writer never does that (it creates a new file), so readers map only files whose owner they
//! trust: `trusted_dir.rs` checks that only the owner of the run directory, or root, can change
//! them.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use barograph_model::NS_PER_S;

use crate::entry::{DirectoryEntry, EntryBounds, StreamDirectory};
use crate::handle::{StreamReader, sleep_on, sleep_on_any};
use crate::layout::{
    self, CELL_BYTES, DESCRIPTOR_BYTES, LINE_BYTES, STREAMS_MAX, TEXT_SLOT_BYTES, descriptor,
    header, state,
};
use crate::line;
use crate::map::{FileMap, MapAccess};
use crate::run_dir::SEGMENT;
use crate::{Incarnation, RunDir, StreamError};

/// Age of the heartbeat, in ns, beyond which the agent counts as dead; so it does if its heartbeat
/// is as far in the future. The agent's loop beats once a second, and on a busy machine it may be
/// seconds late while it lives; all its values would be called stale meanwhile. So five beats have
/// to be missed. Only an agent that was killed or hangs is noticed this late, since one that ends
/// closes its segment.
pub const HEARTBEAT_AGE_NS_MAX: i64 = 5 * NS_PER_S;

/// Whether a segment is still being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// The agent has not closed the segment; check the age of its heartbeat.
    Live,
    /// The agent has ended or was replaced: open the path anew.
    Closed,
}

/// A segment mapped for reading. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SegmentReader {
    map: Arc<FileMap>,
    place: Arc<FilePlace>,
    /// Identity of the file when it was opened by its name.
    file: FileId,
    geometry: Geometry,
}

/// Device and inode of a file; those of a mapped file are not given to another one.
pub(crate) type FileId = (u64, u64);

/// The run directory and name of an agent's file.
#[derive(Debug)]
pub(crate) struct FilePlace {
    run_dir: RunDir,
    name: OsString,
}

impl FilePlace {
    pub(crate) fn new(run_dir: RunDir, name: impl Into<OsString>) -> Self {
        let name = name.into();
        Self { run_dir, name }
    }

    /// Creates a place from a path; the user chose its directory.
    pub(crate) fn of_path(path: &Path) -> Self {
        let above = path.parent().unwrap_or(path);
        let above = match above.as_os_str().is_empty() {
            true => Path::new("."),
            false => above,
        };
        Self::new(RunDir::new(above), path.file_name().unwrap_or_default())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.run_dir.path().join(&self.name)
    }

    /// Opens the file that is there now and returns its identity. [`StreamError::NoAgent`] if there
    /// is none.
    pub(crate) fn open(&self) -> Result<(File, Metadata, FileId), StreamError> {
        let file = self.run_dir.open()?.file(&self.name)?;
        let file = file.ok_or_else(|| StreamError::NoAgent {
            path: self.run_dir.path().into(),
        })?;
        let metadata = file.metadata().map_err(|source| StreamError::Io {
            what: "look at",
            path: self.path(),
            source,
        })?;
        let id = (metadata.dev(), metadata.ino());
        Ok((file, metadata, id))
    }

    /// Whether another file seems to have the name now, judged by a look at the path. A file that
    /// was removed without a successor does no harm.
    pub(crate) fn is_doubtful(&self, file: FileId) -> bool {
        std::fs::metadata(self.path()).is_ok_and(|m| (m.dev(), m.ino()) != file)
    }
}

/// The segments that this process has mapped for reading.
static MAPPED: Mutex<Vec<(FileId, Weak<FileMap>)>> = Mutex::new(Vec::new());

/// Maps a segment, or shares the mapping of another reader in this process: the kernel counts the
/// pages of each mapping as memory of the process. Never waits: after a fork the lock may be held
/// for ever, and then the reader has a mapping of its own.
fn shared_map(file: &File, bytes: usize, id: FileId) -> io::Result<Arc<FileMap>> {
    let new = || FileMap::new(file, bytes, MapAccess::Read).map(Arc::new);
    let Ok(mut mapped) = MAPPED.try_lock() else {
        return new();
    };
    mapped.retain(|(_, map)| map.strong_count() > 0);
    let known = mapped.iter().filter(|(known, _)| *known == id);
    // As long as it is mapped, no other file has this identity.
    let same = |map: &Arc<FileMap>| map.bytes() == bytes;
    if let Some(map) = known.filter_map(|(_, map)| map.upgrade()).find(same) {
        return Ok(map);
    }
    let map = new()?;
    mapped.push((id, Arc::downgrade(&map)));
    Ok(map)
}

#[derive(Clone, Copy, Debug)]
struct Geometry {
    slots_max: usize,
    descriptors_at: usize,
    lines_at: usize,
    rings_at: usize,
    incarnation: Incarnation,
}

impl SegmentReader {
    /// Maps the segment of a run directory, after the checks of the directory's owner, and checks
    /// that this program can read its format.
    pub fn of(run_dir: &RunDir) -> Result<Self, StreamError> {
        Self::at(FilePlace::new(run_dir.clone(), SEGMENT))
    }

    /// Maps the segment at a path, in a directory that the user chose.
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        Self::at(FilePlace::of_path(path))
    }

    fn at(place: FilePlace) -> Result<Self, StreamError> {
        let (file, metadata, id) = place.open()?;
        Self::map(Arc::new(place), &file, &metadata, id)
    }

    fn map(
        place: Arc<FilePlace>,
        file: &File,
        metadata: &Metadata,
        id: FileId,
    ) -> Result<Self, StreamError> {
        let bytes = usize::try_from(metadata.len()).unwrap_or(0);
        if !metadata.is_file() || bytes < header::BYTES || !bytes.is_multiple_of(8) {
            return Err(StreamError::Corrupt {
                path: place.path(),
                reason: format!("{bytes} bytes cannot hold a header"),
            });
        }
        let map = shared_map(file, bytes, id).map_err(|source| StreamError::Io {
            what: "map",
            path: place.path(),
            source,
        })?;
        let geometry = check_header(&map, &place.path())?;
        Ok(Self {
            map,
            place,
            file: id,
            geometry,
        })
    }

    /// Checks whether the agent was replaced; returns `true` if this reader has now opened another
    /// segment (all handles must then be resolved anew).
    pub fn reopen_if_replaced(&mut self) -> Result<bool, StreamError> {
        if !self.place.is_doubtful(self.file) {
            return Ok(false);
        }
        // The path may name another file again at any moment, so the identity of the opened file
        // decides.
        let (file, metadata, id) = self.place.open()?;
        let is_other = id != self.file;
        if is_other {
            *self = Self::map(Arc::clone(&self.place), &file, &metadata, id)?;
        }
        Ok(is_other)
    }

    /// Whether the agent still writes at `now_ns`, in ns since the epoch: it has not closed the
    /// segment, and its heartbeat is at most [`HEARTBEAT_AGE_NS_MAX`] old. A heartbeat that is
    /// further than that in the future proves nothing either: the clock was set back since.
    #[inline]
    pub fn is_alive(&self, now_ns: i64) -> bool {
        let away_ns = now_ns.saturating_sub(self.heartbeat_ns()).saturating_abs();
        self.state() == SegmentState::Live && away_ns <= HEARTBEAT_AGE_NS_MAX
    }

    /// Whether this is the mirror of another node, in a run directory.
    pub fn is_mirror(&self) -> bool {
        self.place.run_dir.mirrored_node().is_some()
    }

    /// The identity of the writer's life.
    pub fn incarnation(&self) -> Incarnation {
        self.geometry.incarnation
    }

    /// The name of the node.
    pub fn node(&self) -> String {
        let mut bytes = [0u8; 64];
        self.map
            .copy_out(header::NODE, &mut bytes)
            .expect("the header is inside");
        let length = usize::from(bytes[0]).min(layout::NODE_BYTES_MAX);
        String::from_utf8_lossy(&bytes[1..=length]).into_owned()
    }

    /// The process id of the writer.
    pub fn pid(&self) -> u64 {
        self.word(header::PID)
    }

    /// The time at which the segment was created, ns since the epoch.
    pub fn created_ns(&self) -> i64 {
        self.word(header::CREATED_NS) as i64
    }

    /// The time of the agent's last heartbeat, ns since the epoch.
    pub fn heartbeat_ns(&self) -> i64 {
        self.word(header::HEARTBEAT_NS) as i64
    }

    /// Whether the agent has closed the segment.
    pub fn state(&self) -> SegmentState {
        if self.word(header::STATE) == state::LIVE {
            SegmentState::Live
        } else {
            SegmentState::Closed
        }
    }

    /// Number of registrations that were refused for lack of room.
    pub fn refused(&self) -> u64 {
        self.word(header::REFUSED)
    }

    /// Most streams that the segment can hold.
    pub fn streams_max(&self) -> usize {
        self.geometry.slots_max
    }

    /// A number that changes whenever the agent has written or the directory has changed. Read it,
    /// look at the streams of interest, and if nothing is new sleep in [`SegmentReader::wait_tick`]
    /// with the number that was read.
    pub fn tick(&self) -> u32 {
        self.tick_word().load(Ordering::Acquire)
    }

    /// Sleeps until [`SegmentReader::tick`] is no longer `seen`, at most `timeout`; returns how
    /// long it slept. May end early.
    pub fn wait_tick(&self, seen: u32, timeout: Duration) -> Duration {
        Self::wait_ticks(&[(self, seen)], timeout)
    }

    /// Sleeps like [`SegmentReader::wait_tick`], over several segments: until the tick of one of
    /// them is no longer the given one.
    #[expect(
        clippy::disallowed_methods,
        reason = "a wait ends by the system's clock"
    )]
    pub fn wait_ticks(seen: &[(&Self, u32)], timeout: Duration) -> Duration {
        let started = Instant::now();
        if seen.iter().all(|(reader, tick)| reader.tick() == *tick) {
            match seen {
                [] => std::thread::sleep(timeout),
                [(reader, tick)] => sleep_on(reader.tick_word(), *tick, timeout, NonZeroU32::MAX),
                several => {
                    let words: Vec<_> = several.iter().map(|(r, t)| (r.tick_word(), *t)).collect();
                    sleep_on_any(&words, timeout);
                }
            }
        }
        started.elapsed()
    }

    /// A number that grows with every stream that is registered or retired.
    #[inline]
    pub fn directory_version(&self) -> u64 {
        self.word(header::DIRECTORY_VERSION)
    }

    /// Returns the streams of the segment at present.
    pub fn directory(&self) -> StreamDirectory {
        // The version is read first: after a change during the walk the caller comes back.
        let version = self.directory_version();
        let used = (self.word(header::SLOTS_USED) as usize).min(self.geometry.slots_max);
        let entries = (0..used).filter_map(|slot| self.entry(slot)).collect();
        StreamDirectory { version, entries }
    }

    /// Returns a handle on the stream of a directory entry. An entry of another segment (before
    /// [`Self::reopen_if_replaced`]) gives a handle whose stream is gone.
    pub fn stream(&self, entry: &DirectoryEntry) -> StreamReader {
        let here = entry.incarnation == self.geometry.incarnation;
        let first_at = self.descriptor_at(entry.slot) + descriptor::FIRST;
        StreamReader::new(&self.map, (self.geometry.lines_at, first_at), entry, here)
    }

    /// The present interval between looks at the entry's resource, in ns; 0 if it is unknown, or if
    /// the stream has ended.
    pub fn interval_ns(&self, entry: &DirectoryEntry) -> i64 {
        if entry.incarnation != self.geometry.incarnation || entry.slot >= self.geometry.slots_max {
            return 0;
        }
        let at = self.descriptor_at(entry.slot);
        let interval = self.word(at + descriptor::INTERVAL_NS) as i64;
        // Checked afterwards: a slot that still belongs to this stream did so when the interval was
        // read.
        let live = u64::from(descriptor::LIVE) | (u64::from(entry.generation) << 32);
        if self.word(at + descriptor::STATE) == live {
            interval
        } else {
            0
        }
    }

    fn tick_word(&self) -> &AtomicU32 {
        self.map.half_word(header::TICK)
    }

    fn word(&self, at: usize) -> u64 {
        self.map.word(at).load(Ordering::Acquire)
    }

    fn descriptor_at(&self, slot: usize) -> usize {
        self.geometry.descriptors_at + slot * DESCRIPTOR_BYTES
    }

    fn entry(&self, slot: usize) -> Option<DirectoryEntry> {
        let words = self
            .map
            .words(self.descriptor_at(slot), DESCRIPTOR_BYTES / 8)?;
        let mut copy = [0; DESCRIPTOR_BYTES / 8];
        // If a descriptor changes during the copy, the directory version changes too.
        line::snapshot(words, &mut copy)?;
        let mut bytes = [0; DESCRIPTOR_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(copy) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let bounds = EntryBounds {
            rings_at: self.geometry.rings_at,
            segment_bytes: self.map.bytes(),
            incarnation: self.geometry.incarnation,
        };
        DirectoryEntry::parse(slot, &bytes, bounds)
    }
}

fn check_header(map: &FileMap, path: &Path) -> Result<Geometry, StreamError> {
    let corrupt = |reason: &str| StreamError::Corrupt {
        path: path.into(),
        reason: reason.into(),
    };
    let word = |at| map.word(at).load(Ordering::Acquire);
    let halves = |at| (word(at) as u32, (word(at) >> 32) as u32);
    if word(header::MAGIC) != layout::MAGIC {
        return Err(corrupt("it does not start with BAROSEG"));
    }
    let (major, minor) = halves(header::VERSION);
    if major != layout::VERSION_MAJOR {
        return Err(StreamError::Version {
            path: path.into(),
            major,
            minor,
        });
    }
    let (order, header_bytes) = halves(header::ORDER);
    let (slots_max, descriptor_bytes) = halves(header::SLOTS_MAX);
    let (cell_bytes, text_bytes) = halves(header::CELL);
    if order != layout::BYTE_ORDER {
        return Err(corrupt("it was written with another byte order"));
    }
    if header_bytes as usize != header::BYTES
        || descriptor_bytes as usize != DESCRIPTOR_BYTES
        || cell_bytes as usize != CELL_BYTES
        || text_bytes as usize != TEXT_SLOT_BYTES
    {
        return Err(corrupt("its sizes are not those of this version"));
    }
    if word(header::SEGMENT_BYTES) != map.bytes() as u64 {
        return Err(corrupt("its length is not the one in its header"));
    }
    if !(1..=STREAMS_MAX).contains(&slots_max) {
        return Err(corrupt(
            "it claims more streams than any segment holds, or none",
        ));
    }
    let slots_max = slots_max as usize;
    let inside = |at: u64, each: usize| {
        let end = usize::try_from(at)
            .ok()?
            .checked_add(slots_max.checked_mul(each)?)?;
        (at as usize >= header::BYTES && at.is_multiple_of(8) && end <= map.bytes())
            .then_some(at as usize)
    };
    let descriptors_at = inside(word(header::DESCRIPTORS_AT), DESCRIPTOR_BYTES);
    let lines_at = inside(word(header::LINES_AT), LINE_BYTES);
    let rings_at = usize::try_from(word(header::RINGS_AT)).ok();
    let rings_at = rings_at.filter(|at| (header::BYTES..=map.bytes()).contains(at));
    let (Some(descriptors_at), Some(lines_at), Some(rings_at)) =
        (descriptors_at, lines_at, rings_at)
    else {
        return Err(corrupt("its directory or its rings lie outside of it"));
    };
    let mut incarnation = [0; 16];
    map.copy_out(header::INCARNATION, &mut incarnation)
        .expect("the header is inside");
    Ok(Geometry {
        slots_max,
        descriptors_at,
        lines_at,
        rings_at,
        incarnation: Incarnation(incarnation),
    })
}
