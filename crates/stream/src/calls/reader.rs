//! A program's side of a calls file: read-only, without a lock, and without a system call except to
//! wait.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::Call;
use super::layout::{
    BYTE_ORDER, CALLS_VERSION_MAJOR, HEADER_BYTES, MAGIC, SLOT_BYTES, SLOT_WORDS, SLOTS_MAX,
    file_bytes, header, slot, slot_at, state, whole,
};
use crate::handle::sleep_on;
use crate::line::snapshot_of;
use crate::map::{FileMap, MapAccess};
use crate::reader::{FileId, FilePlace};
use crate::{Incarnation, RunDir, StreamError};

/// Name of the calls file in a scope's directory.
pub const CALLS_FILE: &str = "calls";

/// The result of one read of a calls file.
#[derive(Clone, Debug, PartialEq)]
pub enum NextCall<C = Call> {
    /// A call; the cursor is now behind it.
    Call(C),
    /// There is no new call.
    Nothing,
    /// This many calls were overwritten, or are not valid; the cursor is now behind them.
    Missed(u64),
}

/// A calls file mapped for reading.
#[derive(Debug)]
pub struct CallsReader {
    map: FileMap,
    place: FilePlace,
    /// Identity of the file when it was opened by its name.
    file: FileId,
    slots: u64,
    incarnation: Incarnation,
}

impl CallsReader {
    /// Maps the calls file of a scope, after the checks of the directory's owner, and checks that
    /// this program can read its format. [`StreamError::NoAgent`] if there is none.
    pub fn of(scope: &RunDir) -> Result<Self, StreamError> {
        Self::at(FilePlace::new(scope.clone(), CALLS_FILE))
    }

    /// Maps the calls file at a path, in a directory that the user chose.
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        Self::at(FilePlace::of_path(path))
    }

    fn at(place: FilePlace) -> Result<Self, StreamError> {
        let (file, metadata, id) = place.open()?;
        let bytes = usize::try_from(metadata.len()).unwrap_or(0);
        let is_possible = (HEADER_BYTES..=file_bytes(SLOTS_MAX)).contains(&bytes);
        if !metadata.is_file() || !is_possible || !bytes.is_multiple_of(8) {
            return Err(StreamError::Corrupt {
                path: place.path(),
                reason: format!("no calls file has {bytes} bytes"),
            });
        }
        let map =
            FileMap::new(&file, bytes, MapAccess::Read).map_err(|source| StreamError::Io {
                what: "map",
                path: place.path(),
                source,
            })?;
        let found = check_header(&map, &place.path())?;
        Ok(Self {
            map,
            place,
            file: id,
            slots: found.slots,
            incarnation: found.incarnation,
        })
    }

    /// Device and inode of the mapped file; no other file has them while it is mapped.
    pub fn file_id(&self) -> (u64, u64) {
        self.file
    }

    /// Identity of the file's life: cursors have no meaning in another one.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether the agent has closed this file: open the path anew.
    pub fn is_closed(&self) -> bool {
        self.map.word(header::STATE).load(Ordering::Acquire) != state::LIVE
    }

    /// Whether the path names another file now, or this one is closed. It makes a system call: call
    /// it at most once per second.
    pub fn is_replaced(&self) -> bool {
        self.is_closed() || self.is_moved()
    }

    /// Whether the path names another file now. It makes a system call.
    pub fn is_moved(&self) -> bool {
        self.place.is_doubtful(self.file)
    }

    /// Number of calls ever written: a cursor that equals it has no calls to read. One load.
    #[inline(always)]
    pub fn written(&self) -> u64 {
        self.map.word(header::WRITTEN).load(Ordering::Acquire)
    }

    /// The cursor of the oldest call that is still there: the start for a new reader.
    pub fn oldest(&self) -> u64 {
        let first = first_of(&self.map);
        self.written().saturating_sub(self.slots).max(first)
    }

    /// Reads the call at the cursor and advances the cursor. The returned call is complete, and a
    /// copy.
    pub fn next(&self, cursor: &mut u64) -> NextCall {
        next(&self.map, self.slots, cursor)
    }

    /// The futex word, for inline reads too: it changes after [`Self::written`] has, and lives as
    /// long as this reader. In files of format 1.0 it is the lower half of that word.
    pub fn word(&self) -> &AtomicU32 {
        let (_, minor) = halves(self.map.word(header::VERSION).load(Ordering::Acquire));
        match minor {
            0 => self.map.half_word(header::WRITTEN),
            _ => self.map.half_word(header::MOVED),
        }
    }

    /// Sleeps until the word is no longer `seen`, at most `timeout`; may also end early without a
    /// reason, and ends when the file is closed. Load `seen` from [`Self::word`] *before* looking
    /// for calls.
    pub fn wait(&self, seen: u32, timeout: Duration) {
        if self.word().load(Ordering::Acquire) == seen && !self.is_closed() {
            sleep_on(self.word(), seen, timeout, NonZeroU32::MAX);
        }
    }
}

/// [`CallsReader::next`] on any mapping.
pub(super) fn next(map: &FileMap, slots: u64, cursor: &mut u64) -> NextCall {
    // Laps by the writer after which a reader gives up.
    const LAPS_MAX: usize = 64;
    let from = *cursor;
    // Positions before the file's first call do not count as missed: no call was ever written
    // there.
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
            return decoded.map_or(NextCall::Missed(1), NextCall::Call);
        }
        // The slot was overwritten meanwhile, or was never written, which no agent leaves.
        let again = map.word(header::WRITTEN).load(Ordering::Acquire);
        if again.wrapping_sub(position) < slots {
            *cursor += 1;
            return NextCall::Missed(1);
        }
        if again == written {
            // The slot of the oldest call is being written.
            *cursor += 1;
            return NextCall::Missed(1);
        }
    }
    match missed {
        0 => NextCall::Nothing,
        missed => NextCall::Missed(missed),
    }
}

/// Copies the used parts of a slot: most calls use a fifth of it, and each cache line has to come
/// from the cache of another core. Torn or invalid lengths copy too little or too much, but only
/// inside the slot.
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

fn first_of(map: &FileMap) -> u64 {
    map.word(header::FIRST).load(Ordering::Acquire)
}

/// The contents of a valid header.
pub(super) struct CallsHeader {
    pub slots: u64,
    pub first: u64,
    pub is_closed: bool,
    pub incarnation: Incarnation,
}

/// Checks the header of a mapping that has room for one, and that its slots are inside.
pub(super) fn check_header(map: &FileMap, path: &Path) -> Result<CallsHeader, StreamError> {
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
    Ok(CallsHeader {
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
