//! The agent's side of a calls file: creating it, or continuing the existing one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::thread::futex;

use super::layout::{
    BYTE_ORDER, CALLS_VERSION_MAJOR, CALLS_VERSION_MINOR, HEADER_BYTES, MAGIC, SLOT_BYTES,
    SLOT_WORDS, SLOTS, begun, file_bytes, header, slot, slot_at, state, whole,
};
use super::reader::{CallsReader, check_header};
use super::{Call, NextCall};
use crate::layout::POSITION_MAX;
use crate::line::rewrite;
use crate::map::{FileMap, MapAccess};
use crate::{Incarnation, StreamError};

/// A calls file with the right to write to it; only one exists at a time, in the agent.
#[derive(Debug)]
pub struct CallsWriter {
    map: FileMap,
    path: PathBuf,
    incarnation: Incarnation,
    written: u64,
}

impl CallsWriter {
    /// Continues the file of an earlier agent, or, if there is none or it is not valid, creates a
    /// new one in its place. Everyone who can enter the directory may read it.
    pub fn open_or_create(path: &Path, now_ns: i64) -> Result<Self, StreamError> {
        match Self::open(path) {
            Ok(writer) => Ok(writer),
            Err(_) => {
                say_goodbye(path);
                Self::create(path, now_ns)
            }
        }
    }

    fn open(path: &Path) -> Result<Self, StreamError> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(path);
        let file = opened.map_err(io_error("open", path))?;
        let length = file.metadata().map_err(io_error("look at", path))?;
        let corrupt = |reason: &str| StreamError::Corrupt {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let bytes = file_bytes(SLOTS);
        if !length.is_file() || length.len() != bytes as u64 {
            return Err(corrupt("it is not a file of the right length"));
        }
        // With a hole in the file, a store would be a fault when memory is short.
        reserve(&file, bytes).map_err(io_error("reserve", path))?;
        let map = FileMap::new(&file, bytes, MapAccess::Write).map_err(io_error("map", path))?;
        let found = check_header(&map, path)?;
        let written = map.word(header::WRITTEN).load(Ordering::Acquire);
        if found.slots != SLOTS || found.is_closed || written < found.first {
            return Err(corrupt("it is not one to go on with"));
        }
        // A file of 1.0 has no futex word of its own yet: it is stored before the version promises
        // it.
        map.half_word(header::MOVED)
            .store(written as u32, Ordering::Release);
        // The version is set back because this program does not maintain the additions of a later
        // minor version.
        map.set(header::VERSION, version_word(), Ordering::Release);
        Ok(Self {
            map,
            path: path.to_owned(),
            incarnation: found.incarnation,
            written,
        })
    }

    fn create(path: &Path, now_ns: i64) -> Result<Self, StreamError> {
        let incarnation = Incarnation::draw().map_err(io_error("name", path))?;
        let new = path.with_extension("new");
        let bytes = file_bytes(SLOTS);
        let make = || -> io::Result<FileMap> {
            match fs::remove_file(&new) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&new)?;
            // Set whatever the umask was.
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            file.set_len(bytes as u64)?;
            reserve(&file, bytes)?;
            FileMap::new(&file, bytes, MapAccess::Write)
        };
        let writer = Self {
            map: make().map_err(|source| {
                let _ = fs::remove_file(&new);
                io_error("make", &new)(source)
            })?,
            path: path.to_owned(),
            incarnation,
            written: 0,
        };
        writer.write_header(now_ns);
        fs::rename(&new, path).map_err(io_error("rename", &new))?;
        Ok(writer)
    }

    fn write_header(&self, now_ns: i64) {
        let set = |at, value| self.map.set(at, value, Ordering::Relaxed);
        set(header::VERSION, version_word());
        let order = u64::from(BYTE_ORDER) | (HEADER_BYTES as u64) << 32;
        set(header::ORDER, order);
        set(header::FILE_BYTES, self.map.bytes() as u64);
        self.map.copy_in(header::INCARNATION, &self.incarnation.0);
        set(header::CREATED, now_ns as u64);
        set(header::STATE, state::LIVE);
        set(header::SLOTS, SLOTS);
        set(header::SLOT_BYTES, SLOT_BYTES as u64);
        // Stored last: without it the file is not valid.
        let magic = u64::from_le_bytes(MAGIC);
        self.map.set(header::MAGIC, magic, Ordering::Release);
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identity of the file's life; a file that replaces an invalid one has another.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Number of calls ever written: the id of the last call, and the position of the next one.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ensures that the next call has at least the id `position + 1`, so that ids of a file that is
    /// gone are not given again. Does nothing if the file is beyond that position.
    pub fn advance_to(&mut self, position: u64) {
        // Numbers at the end of the range cannot have been given.
        if position <= self.written || position > POSITION_MAX {
            return;
        }
        self.map.set(header::FIRST, position, Ordering::Release);
        self.publish(position);
    }

    /// Writes a call into the next slot, replacing its content, and wakes the waiting programs. The
    /// call's id is assigned here and returned; the one in `call` is ignored. If the call does not
    /// fit, returns an error and writes nothing.
    pub fn fire(&mut self, call: &Call) -> Result<u64, StreamError> {
        let id = self.written + 1;
        let mut words = call.encode().map_err(|reason| StreamError::Call {
            name: call.name.chars().take(64).collect(),
            reason,
        })?;
        words[slot::ID / 8] = id;
        let at = slot_at(self.written, SLOTS);
        let place = self.map.words(at, SLOT_WORDS);
        let place = place.expect("slots are inside: the length was checked");
        place[0].store(begun(self.written), Ordering::Release);
        rewrite(place, &words, whole(self.written));
        self.publish(id);
        self.wake();
        Ok(id)
    }

    /// The call with this id, if its slot still holds it.
    pub fn call(&self, id: u64) -> Option<Call> {
        let mut cursor = id.checked_sub(1)?;
        match super::reader::next(&self.map, SLOTS, &mut cursor) {
            NextCall::Call(call) if call.id == id => Some(call),
            _ => None,
        }
    }

    /// Opens a reader of the same file.
    pub fn reader(&self) -> Result<CallsReader, StreamError> {
        CallsReader::open(&self.path)
    }

    fn publish(&mut self, written: u64) {
        self.written = written;
        self.map.set(header::WRITTEN, written, Ordering::Release);
        let moved = self.map.half_word(header::MOVED);
        moved.store(written as u32, Ordering::Release);
    }

    /// Wakes the threads that sleep on the futex word, and programs of format 1.0, whose futex word
    /// is the lower half of `written`: the kernel takes an address, nothing is read or stored by
    /// that here.
    fn wake(&self) {
        for at in [header::MOVED, header::WRITTEN] {
            // A failure is ignored: a waiting program also looks at intervals.
            let word = self.map.half_word(at);
            let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Marks the file as closed for good, and wakes the waiting programs. Not for the end of an
    /// agent: the next agent continues the file.
    pub fn close(self) {
        self.map
            .set(header::STATE, state::CLOSED, Ordering::Release);
        self.wake();
    }
}

fn version_word() -> u64 {
    u64::from(CALLS_VERSION_MAJOR) | u64::from(CALLS_VERSION_MINOR) << 32
}

/// Makes the programs that have mapped an invalid file open the path anew. A file that is not a
/// calls file at all is left alone.
fn say_goodbye(path: &Path) {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(path);
    let Ok(file) = opened else { return };
    let mut magic = [0; 8];
    let is_file = file.metadata().is_ok_and(|m| m.is_file());
    if is_file && file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC {
        let _ = file.write_all_at(&state::CLOSED.to_le_bytes(), header::STATE as u64);
        // Programs only look at these words.
        let mut words = [0; 16];
        if file
            .read_exact_at(&mut words, header::WRITTEN as u64)
            .is_ok()
        {
            let [written, moved] = [0, 8].map(|at| {
                let word = words[at..at + 8].try_into().expect("eight bytes");
                u64::from_le_bytes(word).wrapping_add(1)
            });
            let _ = file.write_all_at(&written.to_le_bytes(), header::WRITTEN as u64);
            let moved = (moved as u32).to_le_bytes();
            let _ = file.write_all_at(&moved, header::MOVED as u64);
        }
    }
}

/// Makes the file system allocate the bytes. A file system that cannot do so (ENOTSUP) is trusted
/// to have them.
fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    const TRIES: usize = 100;
    let one = || fallocate(file, FallocateFlags::empty(), 0, bytes as u64);
    let mut tries = std::iter::repeat_with(one).take(TRIES);
    match tries.find(|done| !matches!(done, Err(rustix::io::Errno::INTR))) {
        Some(Ok(()) | Err(rustix::io::Errno::NOTSUP)) => Ok(()),
        Some(Err(errno)) => Err(errno.into()),
        None => Err(io::ErrorKind::Interrupted.into()),
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StreamError {
    let path = path.to_owned();
    move |source| StreamError::Io { what, path, source }
}
