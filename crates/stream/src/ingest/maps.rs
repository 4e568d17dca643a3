//! Server maps: how a program uses a map of servers, and what its agent tells it of the map
//! (docs/design/0012-agreement.md, "Epochs").
//!
//! Each use has a slot of two halves in the file: in one the program counts its operations that
//! run, in the other the agent stores what is newest of the map. Neither sends the other anything.
//! What makes that enough is the order on both sides (Dekker's): the program counts an operation
//! and then looks at what it is told; the agent stores what it tells and then looks at the counts.
//! So one of them sees the other: no operation begins in an epoch that its agent believes to be
//! over.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::layout::{MAPS_MAX, SERVER_NUMBERS, map_slot, map_slot_at, maps_at};
use super::{IngestFile, Producer};
use crate::StreamError;
use crate::line::Word;

/// Name of the publication by which a program says that it is a member of a map.
pub const MAP_PUBLICATION: &str = "io.map";
/// Name of the publication by which a program says that it is a server of a map.
pub const SERVER_PUBLICATION: &str = "io.server";
/// The label with the name of a map.
pub const MAP_LABEL: &str = "map";
/// The label with the number of a server.
pub const SERVER_LABEL: &str = "server";
/// Name of the value with the load of a request: its bytes, times one more than the requests that
/// were before it.
pub const SERVER_LOAD: &str = "load";
/// Name of the value with the time from a request to its answer.
pub const SERVER_SERVICE: &str = "service.seconds";
/// Name of the value with the number of requests that a server has served so far.
pub const SERVER_REQUESTS: &str = "requests";

/// Words of a set of servers.
const SET_WORDS: usize = SERVER_NUMBERS as usize / 64;
/// Words that the agent tells, without their check.
const TOLD_WORDS: usize = 4 + SET_WORDS;
/// Number of epochs of which a server can have operations at the same time, and know it.
const EPOCHS: usize = 8;
/// Bits of the count in a word of running operations; the epoch is above them.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const EPOCH_MASK: u64 = u64::MAX >> COUNT_BITS;
/// Most attempts to copy what is told while the agent stores it.
const COPIES_MAX: usize = 64;

/// A set of servers, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerSet([u64; SET_WORDS]);

impl ServerSet {
    /// No server.
    pub const EMPTY: Self = Self([0; SET_WORDS]);

    /// Adds a server. Returns false if there can be none of this number.
    pub fn insert(&mut self, server: u32) -> bool {
        let word = self.0.get_mut(server as usize / 64);
        word.map(|word| *word |= 1 << (server % 64)).is_some()
    }

    /// Whether it has a server.
    pub fn contains(&self, server: u32) -> bool {
        let word = self.0.get(server as usize / 64);
        word.is_some_and(|word| word >> (server % 64) & 1 == 1)
    }

    /// The number of servers.
    pub fn len(&self) -> usize {
        let ones = self.0.iter().map(|word| word.count_ones());
        ones.sum::<u32>() as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The servers, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = (0_u32..).zip(&self.0);
        words.flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

impl Default for ServerSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl std::fmt::Debug for ServerSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<u32> for ServerSet {
    /// The servers with these numbers; those of which there can be none are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(servers: I) -> Self {
        let mut set = Self::EMPTY;
        for server in servers {
            set.insert(server);
        }
        set
    }
}

/// Whether a map has a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    /// The map is kept, and what is told of it holds.
    Told = 1,
    /// Nobody keeps it: the program goes on with the servers that it has declared.
    Off = 2,
}

/// What the agent tells a program of a map. The newest counts, whatever came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapWords {
    /// Whether the map has a controller.
    pub state: MapState,
    /// The epoch that is being prepared, if it is greater than `epoch`: operations wait for it.
    pub prepare: u64,
    /// The epoch in force.
    pub epoch: u64,
    /// The first epoch that servers serve.
    pub fence: u64,
    /// The servers of the epoch in force.
    pub servers: ServerSet,
}

impl MapWords {
    /// What is told where nobody keeps maps.
    pub const OFF: Self = Self {
        state: MapState::Off,
        prepare: 0,
        epoch: 0,
        fence: 0,
        servers: ServerSet::EMPTY,
    };

    fn encode(&self) -> [u64; TOLD_WORDS] {
        let mut words = [0; TOLD_WORDS];
        words[..4].copy_from_slice(&[self.state as u64, self.prepare, self.epoch, self.fence]);
        words[4..].copy_from_slice(&self.servers.0);
        words
    }

    fn decode(words: &[u64; TOLD_WORDS]) -> Option<Self> {
        let [state, prepare, epoch, fence, servers @ ..] = *words;
        let state = match state {
            1 => MapState::Told,
            2 => MapState::Off,
            _ => return None,
        };
        Some(Self {
            state,
            prepare,
            epoch,
            fence,
            servers: ServerSet(servers),
        })
    }
}

/// What a program finds in the agent's half of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapTold {
    /// No agent has said anything.
    Nothing,
    /// What was told last.
    Words(MapWords),
    /// It is being changed all the time.
    Torn,
}

/// How a program uses a map, as the agent reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUse {
    /// The number of the publication that names the map.
    pub publication: u32,
    /// The operations of a member, or the requests at a server, that have begun and not ended.
    pub running: u64,
    /// Operations that wait to begin.
    pub waiting: u64,
    /// The greatest fence with which a server has refused an operation of the member.
    pub refused: u64,
    /// The operations of a member that have ended and were not refused.
    pub ended: u64,
    /// The lowest epoch of a running request at a server.
    pub oldest_epoch: Option<u64>,
    /// The servers that a member has declared.
    pub declared: ServerSet,
    /// What the file says that it was told last, by this agent or one before it.
    pub told: Option<MapWords>,
}

/// A sum of words that changes when any of them does.
///
/// The agent stores what it tells by one `pwrite`, which has no order within itself: only a sum of
/// all words shows that a copy is of one piece.
fn check_of(words: &[u64; TOLD_WORDS]) -> u64 {
    // Four sums side by side, since each step of one waits for the step before.
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sums = [1, 2, 3, 4];
    for four in words.as_chunks::<4>().0 {
        for (sum, word) in sums.iter_mut().zip(four) {
            *sum = (*sum ^ word).wrapping_mul(ODD).rotate_left(29);
        }
    }
    let joined = sums.iter().fold(0_u64, |all, sum| {
        (all ^ sum).wrapping_mul(ODD).rotate_left(29)
    });
    joined | 1
}

const _: () = assert!(TOLD_WORDS.is_multiple_of(4));

/// Copies what is told from the agent's half of a slot.
fn told_in(words: &[AtomicU64]) -> MapTold {
    for _ in 0..COPIES_MAX {
        let mut copy = [0; TOLD_WORDS];
        for (to, from) in copy.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        let check = words[TOLD_WORDS].load(Ordering::Relaxed);
        if check == 0 && copy[0] == 0 {
            return MapTold::Nothing;
        }
        if check == check_of(&copy) {
            return MapWords::decode(&copy).map_or(MapTold::Nothing, MapTold::Words);
        }
        std::hint::spin_loop();
    }
    MapTold::Torn
}

/// Counts an operation as running, before what is told is looked at.
///
/// The agent stores what it tells before it looks at the count ([`IngestFile::tell_map`]). The
/// fences on both sides order each one's store before its load, so at least one of the two sees
/// what the other has stored.
#[inline]
fn count_in<W: CountWord>(running: &W) {
    running.add(1);
    W::barrier(Ordering::SeqCst);
}

/// A word with a count.
pub(crate) trait CountWord: Word {
    /// Adds to the word.
    fn add(&self, more: u64);
}

impl CountWord for AtomicU64 {
    #[inline]
    fn add(&self, more: u64) {
        self.fetch_add(more, Ordering::SeqCst);
    }
}

/// A request that a server has begun, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRequest(u8);

impl CountedRequest {
    /// As a number, for other languages.
    pub fn to_raw(self) -> u8 {
        self.0
    }

    /// What [`Self::to_raw`] has given.
    pub fn from_raw(raw: u8) -> Option<Self> {
        (usize::from(raw) < EPOCHS).then_some(Self(raw))
    }
}

/// Counts a request of an epoch in the words of a server; `None` if there are more than can be
/// counted. If there is no word for its epoch, it counts as one of an earlier epoch: a fence waits
/// for it then, though it need not.
fn count_request(words: &[AtomicU64], epoch: u64) -> Option<CountedRequest> {
    let epoch = epoch.min(EPOCH_MASK);
    loop {
        let of = |at: usize| {
            let word = words[at].load(Ordering::Relaxed);
            (word >> COUNT_BITS, word & COUNT_MASK, word)
        };
        let all = || 0..EPOCHS.min(words.len());
        let same = all().find(|at| matches!(of(*at), (its, 1.., _) if its == epoch));
        let at = same
            .or_else(|| all().find(|at| of(*at).1 == 0))
            .or_else(|| all().min_by_key(|at| of(*at).0))?;
        let (its, count, word) = of(at);
        if count == COUNT_MASK {
            return None;
        }
        let now = match count {
            0 => epoch,
            _ => its.min(epoch),
        };
        let next = now << COUNT_BITS | (count + 1);
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        if words[at]
            .compare_exchange(word, next, success, failure)
            .is_ok()
        {
            fence(Ordering::SeqCst);
            return Some(CountedRequest(at as u8));
        }
    }
}

impl Producer {
    /// Takes a slot for the use of a map: a publication that this process has declared, with the
    /// servers that it knows. Returns false if there is no such slot, or no memory.
    ///
    /// Memory is reserved first: a look at a place without memory could be a fault.
    pub fn use_map(&self, slot: u8, publication: u32, declared: &ServerSet) -> bool {
        if !self.is_ours() || usize::from(slot) >= MAPS_MAX || !self.reserve_maps() {
            return false;
        }
        let at = self.slot_at(slot);
        self.words_in(at + map_slot::DECLARED, &declared.0);
        let publication = u64::from(publication) + 1;
        self.store(at + map_slot::PUBLICATION, publication);
        true
    }

    /// What is told of the map of a slot.
    #[inline]
    pub fn map_told(&self, slot: u8) -> MapTold {
        let words = self.slot_words(slot, map_slot::TOLD, TOLD_WORDS + 1);
        words.map_or(MapTold::Nothing, told_in)
    }

    /// Counts an operation of a member. What is told is looked at after it, and not before.
    #[inline]
    pub fn count_operation(&self, slot: u8) {
        if let Some([running, ..]) = self.slot_words(slot, map_slot::RUNNING, 1) {
            count_in(running);
        }
    }

    /// Whether an epoch is prepared, so that the agent waits for the end of operations.
    ///
    /// It is asked when none is left, and without a copy of the other words: a word that is being
    /// stored meanwhile does not matter, since the agent reads the counts after it.
    #[inline]
    pub fn is_drain_awaited(&self, slot: u8) -> bool {
        let words = self.slot_words(slot, map_slot::TOLD, TOLD_WORDS);
        words.is_some_and(|words| {
            words[1].load(Ordering::Relaxed) > words[2].load(Ordering::Relaxed)
        })
    }

    /// The fence that is told, for the end of a request; as in [`Self::is_drain_awaited`].
    #[inline]
    pub fn told_fence(&self, slot: u8) -> u64 {
        let words = self.slot_words(slot, map_slot::TOLD, TOLD_WORDS);
        words.map_or(0, |words| words[3].load(Ordering::Relaxed))
    }

    /// Counts the end of an operation. Returns how many are left.
    #[inline]
    pub fn uncount_operation(&self, slot: u8) -> u64 {
        let Some([running, ..]) = self.slot_words(slot, map_slot::RUNNING, 1) else {
            return 0;
        };
        let left = |running: u64| running.checked_sub(1);
        let before = running.fetch_update(Ordering::SeqCst, Ordering::Relaxed, left);
        // Before what is told is looked at, as at the beginning.
        fence(Ordering::SeqCst);
        before.map_or(0, |before| before - 1)
    }

    /// Counts an operation that has done what it was to do, for whoever asks how many there are in
    /// a second. It is no part of the agreement on epochs.
    #[inline]
    pub fn count_ended(&self, slot: u8) {
        if let Some([ended, ..]) = self.slot_words(slot, map_slot::ENDED, 1) {
            ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an operation that waits, or one that waits no longer.
    pub fn count_waiting(&self, slot: u8, waits: bool) {
        if let Some([waiting, ..]) = self.slot_words(slot, map_slot::WAITING, 1) {
            let next = |waiting: u64| match waits {
                true => waiting.checked_add(1),
                false => waiting.checked_sub(1),
            };
            let _ = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        }
    }

    /// Notes the fence with which a server has refused an operation.
    pub fn note_refusal(&self, slot: u8, fence: u64) {
        if let Some([refused, ..]) = self.slot_words(slot, map_slot::REFUSED, 1) {
            refused.fetch_max(fence, Ordering::Relaxed);
        }
    }

    /// Counts a request at a server. What is told is looked at after it, and not before. `None` if
    /// there are more than can be counted.
    #[inline]
    pub fn count_request(&self, slot: u8, epoch: u64) -> Option<CountedRequest> {
        count_request(self.slot_words(slot, map_slot::EPOCHS, EPOCHS)?, epoch)
    }

    /// Counts the end of a request. Returns the epoch as which it was counted, and how many of that
    /// epoch are left; `None` if none was counted.
    #[inline]
    pub fn uncount_request(&self, slot: u8, request: CountedRequest) -> Option<(u64, u64)> {
        let words = self.slot_words(slot, map_slot::EPOCHS, EPOCHS)?;
        let word = words.get(usize::from(request.0))?;
        let left = |word: u64| (word & COUNT_MASK > 0).then(|| word - 1);
        let before = word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, left);
        fence(Ordering::SeqCst);
        let before = before.ok()?;
        Some((before >> COUNT_BITS, (before & COUNT_MASK) - 1))
    }

    /// Number of requests at a server that have begun and not ended.
    #[inline]
    pub fn running_requests(&self, slot: u8) -> u64 {
        let words = self.slot_words(slot, map_slot::EPOCHS, EPOCHS);
        let words = words.unwrap_or_default().iter();
        words
            .map(|word| word.load(Ordering::Relaxed) & COUNT_MASK)
            .sum()
    }

    fn slot_at(&self, slot: u8) -> usize {
        map_slot_at(self.rings_max(), slot)
    }

    #[inline]
    fn slot_words(&self, slot: u8, at: usize, count: usize) -> Option<&[AtomicU64]> {
        if usize::from(slot) >= MAPS_MAX {
            return None;
        }
        self.words(self.slot_at(slot) + at, count)
    }
}

impl IngestFile {
    /// Tells the program what is newest of the map of a slot. When this has returned, what is read
    /// by [`Self::map_uses`] was counted by a program that either had this before it, or is
    /// counted. Call [`Self::wake_phases`] after it.
    pub fn tell_map(&self, slot: u8, words: &MapWords) -> Result<(), StreamError> {
        if usize::from(slot) >= MAPS_MAX {
            return Ok(());
        }
        let told = words.encode();
        let mut bytes = [0; (TOLD_WORDS + 1) * 8];
        let all = told.iter().copied().chain([check_of(&told)]);
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(all) {
            *to = word.to_le_bytes();
        }
        let at = map_slot_at(self.rings_max(), slot) + map_slot::TOLD;
        let written = self.file.write_all_at(&bytes, at as u64);
        written.map_err(|source| self.io("write", source))?;
        // The kernel has stored it on this processor, or one that this thread has left since: the
        // fence orders that before every load that follows (see `count_in`).
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// How the program uses maps now, by slot.
    pub fn map_uses(&self) -> Result<Vec<(u8, MapUse)>, StreamError> {
        const BYTES: usize = MAPS_MAX * map_slot::BYTES;
        let mut bytes = [0; BYTES];
        let at = maps_at(self.rings_max());
        self.read(&mut bytes, at)?;
        let publications: [u64; MAPS_MAX] = std::array::from_fn(|slot| {
            let slot = slot * map_slot::BYTES;
            word_in(&bytes, slot + map_slot::PUBLICATION)
        });
        if publications == [0; MAPS_MAX] {
            return Ok(Vec::new());
        }
        // Once more: what was stored before the publication is there now, whatever the order in
        // which the first read went over the slot.
        self.read(&mut bytes, at)?;
        let slots = (0_u8..)
            .zip(publications)
            .zip(bytes.chunks(map_slot::BYTES));
        Ok(slots
            .filter_map(|((slot, publication), bytes)| {
                let publication = u32::try_from(publication.checked_sub(1)?).ok()?;
                Some((slot, use_in(bytes, publication)))
            })
            .collect())
    }
}

/// Reads a slot, of which any word may be anything.
fn use_in(bytes: &[u8], publication: u32) -> MapUse {
    let epochs: [u64; EPOCHS] = words_of(bytes, map_slot::EPOCHS);
    let busy = || epochs.iter().filter(|word| *word & COUNT_MASK > 0);
    let requests: u64 = busy().map(|word| word & COUNT_MASK).sum();
    let told: [u64; TOLD_WORDS] = words_of(bytes, map_slot::TOLD);
    let check = word_in(bytes, map_slot::TOLD + TOLD_WORDS * 8);
    MapUse {
        publication,
        running: word_in(bytes, map_slot::RUNNING).saturating_add(requests),
        waiting: word_in(bytes, map_slot::WAITING),
        refused: word_in(bytes, map_slot::REFUSED),
        ended: word_in(bytes, map_slot::ENDED),
        oldest_epoch: busy().map(|word| word >> COUNT_BITS).min(),
        declared: ServerSet(words_of(bytes, map_slot::DECLARED)),
        told: MapWords::decode(&told).filter(|_| check == check_of(&told)),
    }
}

fn words_of<const N: usize>(bytes: &[u8], at: usize) -> [u64; N] {
    std::array::from_fn(|n| word_in(bytes, at + n * 8))
}

fn word_in(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests;
