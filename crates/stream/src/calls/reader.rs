//! A program's side of a calls file: read-only, without a lock, and without a system call until there is
//! something to wait for.

use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;

use super::Call;
use super::layout::{
    BYTE_ORDER, CALLS_VERSION_MAJOR, HEADER_BYTES, MAGIC, SLOT_BYTES, SLOT_WORDS, SLOTS_MAX,
    file_bytes, header, slot, slot_at, state, whole,
};
use crate::handle::sleep_on;
use crate::line::snapshot_of;
use crate::map::{Access, Map};
use crate::{Incarnation, StreamError};

/// What is next in a calls file.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<C = Call> {
    /// A call; the cursor is behind it.
    Call(C),
    /// Nothing yet.
    Nothing,
    /// So many calls were written over, or make no sense; the cursor is behind them.
    Missed(u64),
}

/// A calls file mapped for reading.
#[derive(Debug)]
pub struct CallsReader {
    map: Map,
    path: PathBuf,
    /// Device and inode: which file the path meant when it was opened.
    file: (u64, u64),
    slots: u64,
    incarnation: Incarnation,
}

impl CallsReader {
    /// Maps the file and checks that it is one that this program can read. [`StreamError::NoAgent`] when
    /// there is none.
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        let io_error = |what| {
            move |source| StreamError::Io {
                what,
                path: path.into(),
                source,
            }
        };
        // A pipe put there by someone else must not hold us up; files do not mind the flag.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(path);
        let file = opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StreamError::NoAgent {
                path: path.parent().unwrap_or(path).into(),
            },
            _ => io_error("open")(source),
        })?;
        let metadata = file.metadata().map_err(io_error("look at"))?;
        let bytes = usize::try_from(metadata.len()).unwrap_or(0);
        let is_possible = (HEADER_BYTES..=file_bytes(SLOTS_MAX)).contains(&bytes);
        if !metadata.is_file() || !is_possible || !bytes.is_multiple_of(8) {
            return Err(StreamError::Corrupt {
                path: path.into(),
                reason: format!("no calls file has {bytes} bytes"),
            });
        }
        check_owner(path, &metadata)?;
        let map = Map::new(&file, bytes, Access::Read).map_err(io_error("map"))?;
        let found = check_header(&map, path)?;
        Ok(Self {
            map,
            path: path.into(),
            file: (metadata.dev(), metadata.ino()),
            slots: found.slots,
            incarnation: found.incarnation,
        })
    }

    /// Which file it is: cursors mean nothing in another.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Device and inode of what was opened: a mapped file's are not given to another.
    pub fn identity(&self) -> (u64, u64) {
        self.file
    }

    /// Whether the agent has said that this file has no future: open the path anew.
    pub fn is_closed(&self) -> bool {
        self.map.word(header::STATE).load(Ordering::Acquire) != state::LIVE
    }

    /// Whether the path means another file by now, or this one is closed. A system call: at most once a
    /// second, please.
    pub fn is_replaced(&self) -> bool {
        let is_other = |m: std::fs::Metadata| (m.dev(), m.ino()) != self.file;
        self.is_closed() || std::fs::symlink_metadata(&self.path).is_ok_and(is_other)
    }

    /// Calls ever written: a cursor that equals it has nothing before it. One load.
    #[inline(always)]
    pub fn written(&self) -> u64 {
        self.map.word(header::WRITTEN).load(Ordering::Acquire)
    }

    /// The cursor of the oldest call that is still there: where a new reader begins.
    pub fn oldest(&self) -> u64 {
        let first = first_of(&self.map);
        self.written().saturating_sub(self.slots).max(first)
    }

    /// What is next at the cursor, which moves on. What is returned is a whole call, and was copied.
    pub fn next(&self, cursor: &mut u64) -> Next {
        next(&self.map, self.slots, cursor)
    }

    /// The futex word, for inline looks too: it moves after [`Self::written`] has, and lives as long as this. Files
    /// of format 1.0 have it in the lower half of that word.
    pub fn word(&self) -> &AtomicU32 {
        let (_, minor) = halves(self.map.word(header::VERSION).load(Ordering::Acquire));
        match minor {
            0 => self.map.half_word(header::WRITTEN),
            _ => self.map.half_word(header::MOVED),
        }
    }

    /// Sleeps until the word is no longer `seen`, at most `timeout`; also ends early for no reason now and
    /// then, and when the file is closed. Take `seen` from [`Self::word`] *before* you look for calls.
    pub fn wait(&self, seen: u32, timeout: Duration) {
        if self.word().load(Ordering::Acquire) == seen && !self.is_closed() {
            sleep_on(self.word(), seen, timeout, NonZeroU32::MAX);
        }
    }
}

/// Refuses a file that somebody else could have put there, and could truncate below us: it is root's, this user's, or
/// of whoever owns its directory, and nobody else writes to it.
fn check_owner(path: &Path, metadata: &std::fs::Metadata) -> Result<(), StreamError> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let ours = rustix::process::geteuid().as_raw();
    let of_directory = || Some(std::fs::metadata(path.parent()?).ok()?.uid());
    let owner = metadata.uid();
    let is_known = owner == 0 || owner == ours || of_directory() == Some(owner);
    if is_known && metadata.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    Err(StreamError::Corrupt {
        path: path.into(),
        reason: format!(
            "it belongs to user {owner} or others may write to it: it is not the agent's"
        ),
    })
}

/// [`CallsReader::next`] on any mapping.
pub(super) fn next(map: &Map, slots: u64, cursor: &mut u64) -> Next {
    // The writer would have to lap a reader that often to make it give up.
    const LAPS_MAX: usize = 64;
    let from = *cursor;
    // What was before the file's first call is not missed: nobody ever wrote it here.
    *cursor = from.max(first_of(map));
    let mut missed = 0;
    for _ in 0..LAPS_MAX {
        let written = map.word(header::WRITTEN).load(Ordering::Acquire);
        let Some(ahead) = written.checked_sub(*cursor).filter(|ahead| *ahead > 0) else {
            // Beyond the end: a cursor of another file, or a file that went back. Wait at its end.
            *cursor = written.max(first_of(map)).min(*cursor);
            break;
        };
        let gap = ahead.saturating_sub(slots);
        missed += gap;
        *cursor += gap;
        if missed > 0 {
            break;
        }
        let position = *cursor;
        let mut words = [0; SLOT_WORDS];
        let place = map.words(slot_at(position, slots), SLOT_WORDS);
        let is_still = place
            .and_then(|place| snapshot_of(place, &mut words, copy_used))
            .is_some();
        if is_still && words[0] == whole(position) {
            *cursor += 1;
            let decoded = Call::decode(&words).filter(|call| call.id == position + 1);
            return decoded.map_or(Next::Missed(1), Next::Call);
        }
        // It was written over meanwhile; unless it never was written, as no agent leaves it.
        let again = map.word(header::WRITTEN).load(Ordering::Acquire);
        if again.wrapping_sub(position) < slots {
            *cursor += 1;
            return Next::Missed(1);
        }
        if again == written {
            // The slot of the oldest is being written.
            *cursor += 1;
            return Next::Missed(1);
        }
    }
    match missed {
        0 => Next::Nothing,
        missed => Next::Missed(missed),
    }
}

/// Copies what a call takes of its slot: most take a fifth, and each line is one from another core's cache.
/// Lengths that are torn, or nonsense, copy too little or too much, inside the slot.
fn copy_used(place: &[AtomicU64], words: &mut [u64; SLOT_WORDS]) {
    let mut copy = |from: usize, bytes: usize| {
        let range = from / 8..(from + bytes).div_ceil(8).min(SLOT_WORDS);
        for (word, from) in words[range.clone()].iter_mut().zip(&place[range]) {
            *word = from.load(Ordering::Relaxed);
        }
    };
    copy(0, slot::TARGET);
    let lengths = place[slot::LENGTHS / 8].load(Ordering::Relaxed);
    copy(slot::TARGET, usize::from((lengths >> 32) as u16));
    copy(slot::PAYLOAD, usize::from((lengths >> 48) as u16));
    copy(slot::AT_FRAME, 8);
}

fn first_of(map: &Map) -> u64 {
    map.word(header::FIRST).load(Ordering::Acquire)
}

/// What a valid header says.
pub(super) struct Found {
    pub slots: u64,
    pub first: u64,
    pub is_closed: bool,
    pub incarnation: Incarnation,
}

/// Checks the header of a mapping that has room for one, and that its slots are inside.
pub(super) fn check_header(map: &Map, path: &Path) -> Result<Found, StreamError> {
    let corrupt = |reason: &str| StreamError::Corrupt {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let word = |at: usize| map.word(at).load(Ordering::Acquire);
    if map.bytes() < HEADER_BYTES || word(header::MAGIC) != u64::from_le_bytes(MAGIC) {
        return Err(corrupt("it does not begin as a calls file"));
    }
    let (major, minor) = halves(word(header::VERSION));
    if major != CALLS_VERSION_MAJOR {
        let path = path.to_owned();
        return Err(StreamError::Version { path, major, minor });
    }
    if halves(word(header::ORDER)) != (BYTE_ORDER, HEADER_BYTES as u32) {
        return Err(corrupt("its byte order or header is another"));
    }
    let slots = word(header::SLOTS);
    if !(1..=SLOTS_MAX).contains(&slots) || !slots.is_power_of_two() {
        return Err(corrupt("its slots are of an impossible number"));
    }
    let bytes = file_bytes(slots) as u64;
    if word(header::SLOT_BYTES) != SLOT_BYTES as u64 || word(header::FILE_BYTES) != bytes {
        return Err(corrupt("its parts are not where they belong"));
    }
    if (map.bytes() as u64) < bytes {
        return Err(corrupt("it is cut short"));
    }
    let mut incarnation = [0; 16];
    let copied = map.copy_out(header::INCARNATION, &mut incarnation);
    copied.ok_or_else(|| corrupt("it is cut short"))?;
    Ok(Found {
        slots,
        first: word(header::FIRST),
        is_closed: word(header::STATE) != state::LIVE,
        incarnation: Incarnation(incarnation),
    })
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

const _: () = assert!(slot::SEQUENCE == 0, "`snapshot` guards by the first word");
