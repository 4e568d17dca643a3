//! Puts: a place in the fastest tier that has room, the bytes, and the moment from which they hold.

use std::sync::Arc;

use super::state::Entry;
use super::stock::BlockStore;
use crate::BLOCK_BYTES_MAX;
use crate::block::{BlockInfo, UserId};
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;
use crate::memory::{MemoryBlock, MemoryDraft};
use crate::tier::{BoundFault, FileCopy, FileHead, FileWriter, TierFault};

/// Where a block has to be before its put is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutTarget {
    /// In the fastest tier that has room; it is flushed later.
    Fast,
    /// On a durable tier.
    Durable,
}

/// A put, before its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutHead {
    /// The key of the block.
    pub key: BlockKey,
    /// The version, which may not be older than the one that is stored.
    pub version: u64,
    /// The length, in bytes: at most [`BLOCK_BYTES_MAX`].
    pub bytes: u64,
    /// The checksum of the bytes ([`checksum`](crate::checksum)).
    pub checksum: u32,
    /// The epoch of the map of servers by which it was sent here.
    pub epoch: u64,
    /// The time that its owner needs to have the block again, in microseconds, if it is a copy of
    /// something that lies elsewhere: it may then be dropped. 0 for a block that must stay.
    pub refetch_us: u32,
    /// Where it has to be before it is acknowledged.
    pub target: PutTarget,
    /// The longest time that the put waits for room, in nanoseconds.
    pub wait_ns: i64,
}

/// The place of a block that is being put.
enum Draft {
    Memory(MemoryDraft),
    File(FileWriter),
}

/// The reason why there is no place for a block now.
struct NoPlace {
    /// Whether waiting may help.
    may_come: bool,
    reason: String,
}

/// A put whose bytes are on their way. Dropped before its end, it leaves nothing.
pub struct PutWriter<'a> {
    store: &'a BlockStore,
    user: UserId,
    head: PutHead,
    draft: Option<Draft>,
    hasher: crc32fast::Hasher,
    written: u64,
    /// Dirty bytes that are reserved and belong to no block yet.
    dirty: Option<u64>,
}

impl BlockStore {
    /// Begins a put of a user. Waits for room, up to the time that the put and the store allow.
    ///
    /// # Errors
    ///
    /// [`FaultCode::OldVersion`] if a newer version is stored, or another block with this version;
    /// [`FaultCode::Full`] if no tier has room; [`FaultCode::Busy`] if the wait was in vain;
    /// [`FaultCode::BadRequest`] if the block is too large.
    pub fn put(&self, user: UserId, head: PutHead) -> Result<PutWriter<'_>, StagingError> {
        if head.bytes > BLOCK_BYTES_MAX {
            let text = format!("{}: a block has at most {BLOCK_BYTES_MAX} bytes", head.key);
            return Err(StagingError::fault(FaultCode::BadRequest, text));
        }
        let wait_ns = head.wait_ns.clamp(0, self.config.wait_ns_max);
        let until_ns = self.clock.monotonic_ns().saturating_add(wait_ns);
        let mut has_waited = false;
        loop {
            if let Some(entry) = self.lock().entry(user, &head.key) {
                check_version(entry, &head)?;
            }
            let none = match self.place(user, &head) {
                Ok(writer) => return Ok(writer),
                Err(none) => none,
            };
            if !none.may_come {
                self.lock().counts.refused_full += 1;
                let text = format!("no room for {}: {}", head.key, none.reason);
                return Err(StagingError::fault(FaultCode::Full, text));
            }
            if self.clock.monotonic_ns() >= until_ns {
                self.lock().counts.refused_busy += 1;
                let waited_ms = wait_ns / barograph_model::NS_PER_MS;
                let (key, reason) = (&head.key, none.reason);
                let text = format!("no room for {key} within {waited_ms} ms: {reason}");
                return Err(StagingError::fault(FaultCode::Busy, text));
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.lock().counts.puts_waited += 1;
            }
            self.wait_for_room(until_ns);
        }
    }

    fn place(&self, user: UserId, head: &PutHead) -> Result<PutWriter<'_>, NoPlace> {
        let mut reasons: Vec<String> = Vec::new();
        let is_fast = head.target == PutTarget::Fast;
        let fits_dirty = head.bytes <= self.config.dirty_bounds().user_bytes_max;
        if is_fast && (self.lower.is_empty() || fits_dirty) {
            let dirty = self.reserve_dirty(user, head.bytes).map_err(|()| NoPlace {
                may_come: true,
                reason: self.flush_reason(),
            })?;
            match self.reserve_memory(user, head.bytes, f64::INFINITY) {
                Ok(draft) => {
                    return Ok(self.writer(user, head, Draft::Memory(draft), dirty));
                }
                Err(fault) => reasons.push(format!("memory: {}", said(fault))),
            }
            self.release_dirty(user, dirty);
        }
        for (index, tier) in self.lower.iter().enumerate() {
            let makes_clean = self.makes_clean(index);
            if head.target == PutTarget::Durable && !tier.is_durable() {
                continue;
            }
            let dirty = match makes_clean {
                true => None,
                false => match self.reserve_dirty(user, head.bytes) {
                    Ok(dirty) => dirty,
                    Err(()) => continue,
                },
            };
            match self.create_file(index, &file_head(user, head)) {
                Ok(file) => return Ok(self.writer(user, head, Draft::File(file), dirty)),
                Err(reason) => reasons.push(reason),
            }
            self.release_dirty(user, dirty);
        }
        if reasons.is_empty() {
            reasons.push("no tier is durable".into());
        }
        // What is dirty can be evicted when it is flushed.
        let may_come = is_fast && self.lock().dirty.total().bytes > 0;
        let reason = reasons.join("; ");
        Err(NoPlace { may_come, reason })
    }

    /// Begins a file on a tier, for which room is made.
    pub(crate) fn create_file(&self, tier: usize, head: &FileHead) -> Result<FileWriter, String> {
        let lower = &self.lower[tier];
        let name = &lower.name;
        loop {
            let now_ns = self.clock.monotonic_ns();
            if !lower.is_usable(now_ns) {
                return Err(format!("{name}: failed a short time ago"));
            }
            match lower.create(tier, head.clone()) {
                Ok(file) => return Ok(file),
                Err(TierFault::Bound(fault)) => {
                    let has_room =
                        lower.sweep(now_ns) || self.evict_files(tier, head.user, head.bytes, fault);
                    if !has_room {
                        return Err(format!("{name}: {}", said(fault)));
                    }
                }
                Err(TierFault::TooLarge(bytes_max)) => {
                    return Err(format!(
                        "{name}: a copy has at most {bytes_max} bytes there"
                    ));
                }
                Err(TierFault::Disk(reason)) => {
                    lower.note_fault(self.clock.monotonic_ns());
                    return Err(reason);
                }
            }
        }
    }

    fn writer(
        &self,
        user: UserId,
        head: &PutHead,
        draft: Draft,
        dirty: Option<u64>,
    ) -> PutWriter<'_> {
        PutWriter {
            store: self,
            user,
            head: head.clone(),
            draft: Some(draft),
            hasher: crc32fast::Hasher::new(),
            written: 0,
            dirty,
        }
    }

    /// Room for dirty bytes; none is needed where nothing below memory could make them clean.
    fn reserve_dirty(&self, user: UserId, bytes: u64) -> Result<Option<u64>, ()> {
        if self.lower.is_empty() {
            return Ok(None);
        }
        let taken = self.lock().dirty.take(user, bytes);
        taken.map(|()| Some(bytes)).map_err(drop)
    }

    pub(crate) fn release_dirty(&self, user: UserId, dirty: Option<u64>) {
        if let Some(bytes) = dirty {
            self.lock().dirty.give(user, bytes);
        }
    }

    fn flush_reason(&self) -> String {
        let now_ns = self.clock.monotonic_ns();
        let failed = self.lower.iter().find(|tier| !tier.is_usable(now_ns));
        match failed {
            Some(tier) => format!("{}: failed a short time ago", tier.name),
            None => "flushing to lower tiers is behind".into(),
        }
    }
}

impl PutWriter<'_> {
    /// The bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.head.bytes - self.written
    }

    /// Whether [`PutWriter::fill`] needs a buffer of its caller.
    pub fn needs_spare(&self) -> bool {
        matches!(self.draft, Some(Draft::File(_)))
    }

    /// Takes the next bytes by a function that fills the buffer that it is given, of at most
    /// `bytes_max` bytes. Where the block goes to memory, the buffer is its place there; otherwise
    /// it is `spare`.
    ///
    /// # Errors
    ///
    /// Those of the function, and [`FaultCode::Disk`] if the tier fails. The put is then over.
    pub fn fill<E: From<StagingError>>(
        &mut self,
        bytes_max: usize,
        spare: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let mut bytes = left.min(bytes_max);
        match self.draft.as_mut() {
            Some(Draft::Memory(draft)) => {
                let from = self.written as usize;
                let place = &mut draft.bytes_mut()[from..from + bytes];
                fill(place)?;
                self.hasher.update(place);
            }
            Some(Draft::File(_)) => {
                bytes = bytes.min(spare.len());
                fill(&mut spare[..bytes])?;
                self.append(&spare[..bytes])?;
            }
            None => return Err(over().into()),
        }
        self.written += bytes as u64;
        Ok(())
    }

    /// Appends bytes to a file. If its tier fails, the tiers below are tried with the next put.
    fn append(&mut self, bytes: &[u8]) -> Result<(), StagingError> {
        let Some(Draft::File(file)) = self.draft.as_mut() else {
            return Err(over());
        };
        self.hasher.update(bytes);
        let written = file.write(bytes);
        written.map_err(|fault| {
            file.tier().note_fault(self.store.clock.monotonic_ns());
            failed(fault)
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    ///
    /// [`FaultCode::BadRequest`] if they are more than was announced; [`FaultCode::Disk`] if the
    /// tier fails.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StagingError> {
        if bytes.len() as u64 > self.left() {
            let text = "more bytes than were announced";
            return Err(StagingError::fault(FaultCode::BadRequest, text));
        }
        let mut spare = vec![0; bytes.len().min(256 << 10)];
        while !bytes.is_empty() {
            let before = self.written;
            self.fill(bytes.len(), &mut spare, |place| {
                place.copy_from_slice(&bytes[..place.len()]);
                Ok::<(), StagingError>(())
            })?;
            bytes = &bytes[(self.written - before) as usize..];
        }
        Ok(())
    }

    /// Ends the put: from now on the block holds.
    ///
    /// # Errors
    ///
    /// [`FaultCode::Corrupt`] if the bytes do not have the checksum that was announced,
    /// [`FaultCode::BadRequest`] if there are fewer, [`FaultCode::OldVersion`] if a newer version
    /// has come meanwhile, [`FaultCode::Disk`] if the tier fails.
    pub fn finish(mut self) -> Result<BlockInfo, StagingError> {
        if self.left() > 0 {
            let text = format!("{} bytes of {} are missing", self.left(), self.head.key);
            return Err(StagingError::fault(FaultCode::BadRequest, text));
        }
        let hasher = std::mem::take(&mut self.hasher);
        if hasher.finalize() != self.head.checksum {
            let text = format!("{}: the bytes do not have their checksum", self.head.key);
            return Err(StagingError::fault(FaultCode::Corrupt, text));
        }
        match self.draft.take() {
            Some(Draft::Memory(draft)) => {
                let full = || StagingError::fault(FaultCode::Full, "memory has no slot left");
                let block = Arc::new(draft.publish().ok_or_else(full)?);
                self.commit(Some(block), None)
            }
            Some(Draft::File(file)) => {
                let tier = Arc::clone(file.tier());
                let copy = file.finish().map_err(|fault| {
                    tier.note_fault(self.store.clock.monotonic_ns());
                    failed(fault)
                })?;
                self.commit(None, Some(Arc::new(copy)))
            }
            None => Err(over()),
        }
    }

    fn commit(
        mut self,
        memory: Option<Arc<MemoryBlock>>,
        file: Option<Arc<FileCopy>>,
    ) -> Result<BlockInfo, StagingError> {
        let store = self.store;
        let mut garbage: Vec<Arc<FileCopy>> = Vec::new();
        let done = self.replace(memory, file, &mut garbage);
        store.discard(garbage);
        if done.is_ok() {
            store.tell_work();
        }
        done
    }

    /// Puts the new entry in place of the old one, unless that is newer.
    fn replace(
        &mut self,
        memory: Option<Arc<MemoryBlock>>,
        file: Option<Arc<FileCopy>>,
        garbage: &mut Vec<Arc<FileCopy>>,
    ) -> Result<BlockInfo, StagingError> {
        let (store, head, user) = (self.store, &self.head, self.user);
        let mut state = store.lock();
        let serial = state.serial();
        if let Some(entry) = state.entry(user, &head.key) {
            if let Err(error) = check_version(entry, head) {
                garbage.extend(file);
                return Err(error);
            }
            let must_be_durable = head.target == PutTarget::Durable && entry.dirty.is_some();
            if entry.version == head.version && entry.has_copy() && !must_be_durable {
                // It is here already. It was sent again, so nothing newer was acknowledged.
                garbage.extend(file);
                entry.epoch = head.epoch.max(entry.epoch);
                entry.is_recovered = false;
                state.counts.puts += 1;
                return Ok(state.info(&state.users[&user].blocks[&head.key]));
            }
        }
        let old = state.remove(user, &head.key);
        let dirty = self.dirty.take();
        let key = Arc::new(head.key.clone());
        let mut entry = Entry {
            serial,
            version: head.version,
            bytes: head.bytes,
            checksum: head.checksum,
            epoch: head.epoch,
            refetch_us: head.refetch_us,
            is_recovered: false,
            dirty: None,
            is_moving: false,
            memory,
            files: file.into_iter().collect(),
            previous: None,
            used_ns: store.clock.monotonic_ns(),
            uses: 0,
        };
        if let Some(old) = old {
            if let Some(block) = &old.memory {
                block.retire();
            }
            garbage.extend(old.files);
            garbage.extend(old.previous);
        }
        if dirty.is_some() {
            // Until the new version is durable, the newest durable one stays.
            let is_durable = |file: &Arc<FileCopy>| store.makes_clean(file.tier);
            let kept = (0..garbage.len())
                .filter(|at| is_durable(&garbage[*at]))
                .max_by_key(|at| garbage[*at].head.version);
            entry.previous = kept.map(|at| garbage.swap_remove(at));
        }
        let blocks = state.users.entry(user).or_default();
        blocks.blocks.insert(Arc::clone(&key), entry);
        if dirty.is_some() {
            state.queue_dirty(user, &key);
        }
        state.counts.puts += 1;
        let entry = &state.users[&user].blocks[&key];
        Ok(state.info(entry))
    }
}

impl Drop for PutWriter<'_> {
    fn drop(&mut self) {
        self.draft = None;
        self.store.release_dirty(self.user, self.dirty.take());
        self.store.tell_room();
    }
}

/// Refuses versions that are older than the stored one, and other blocks of its version. A block
/// of which no copy is left may be put again.
fn check_version(entry: &Entry, head: &PutHead) -> Result<(), StagingError> {
    let stored = entry.version;
    let is_same = (entry.bytes, entry.checksum) == (head.bytes, head.checksum);
    let why = match head.version.cmp(&stored) {
        std::cmp::Ordering::Less => "is older than the stored",
        std::cmp::Ordering::Equal if !is_same && entry.has_copy() => "is another block than",
        _ => return Ok(()),
    };
    let (key, version) = (&head.key, head.version);
    let text = format!("{key}: version {version} {why} version {stored}");
    Err(StagingError::numbered(FaultCode::OldVersion, stored, text))
}

fn file_head(user: UserId, head: &PutHead) -> FileHead {
    FileHead {
        user,
        key: head.key.clone(),
        version: head.version,
        epoch: head.epoch,
        bytes: head.bytes,
        checksum: head.checksum,
        refetch_us: head.refetch_us,
    }
}

fn said(fault: BoundFault) -> &'static str {
    match fault {
        BoundFault::User => "the share of this user is used up",
        BoundFault::Total => "it is full",
    }
}

fn over() -> StagingError {
    StagingError::fault(FaultCode::BadRequest, "the put is over")
}

fn failed(fault: TierFault) -> StagingError {
    let text = match fault {
        TierFault::Disk(text) => text,
        TierFault::Bound(fault) => said(fault).into(),
        TierFault::TooLarge(bytes_max) => format!("a copy has at most {bytes_max} bytes"),
    };
    StagingError::fault(FaultCode::Disk, text)
}
