//! The blocks of a file system on their servers: entries, blocks of files, and errors as programs
//! know them.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barograph_model::Clock;
use barograph_staging::client::{GetOptions, ListCursor, PutOptions, PutReport};
use barograph_staging::{
    BlockKey, BlockName, FaultCode, ListQuery, ServerStatus, StagingClient, StagingError,
};
use fuser::Errno;

use crate::cache::BlockCache;
use crate::complaints::Complaints;
use crate::entry::{BLOCK_BYTES_MAX, BlockRef, Entry, Kind, Names};
use crate::keys::{self, Datasets, Stored, first_version, next_version, stored};

/// Does something with the servers of a file system. A map of servers may have the way to them
/// change with each operation.
pub trait Servers: Send + Sync {
    /// Has `act` done, with the client of the servers in force, once or, if their epoch is over,
    /// again.
    ///
    /// # Errors
    ///
    /// That of `act`, or why there are no servers.
    fn act(
        &self,
        act: &mut dyn FnMut(&StagingClient) -> Result<(), StagingError>,
    ) -> Result<(), StagingError>;
}

impl Servers for StagingClient {
    fn act(
        &self,
        act: &mut dyn FnMut(&StagingClient) -> Result<(), StagingError>,
    ) -> Result<(), StagingError> {
        act(self)
    }
}

/// What is at a path: an entry and its version, or the version after which there may be one.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) version: u64,
    pub(crate) entry: Option<Entry>,
}

/// A file system on servers.
pub(crate) struct Volume {
    servers: Arc<dyn Servers>,
    datasets: Datasets,
    clock: Arc<dyn Clock>,
    put: PutOptions,
    get: GetOptions,
    pub(crate) block_bytes: u64,
    /// The number of this mount among all that write.
    writer: u128,
    next: AtomicU64,
    cache: BlockCache,
    complaints: Complaints,
}

/// How a [`Volume`] is made.
pub(crate) struct VolumeParts {
    pub(crate) servers: Arc<dyn Servers>,
    pub(crate) datasets: Datasets,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) put: PutOptions,
    pub(crate) get: GetOptions,
    pub(crate) block_bytes: u64,
    pub(crate) cache_bytes: u64,
}

impl Volume {
    /// A file system; a mount gets a number that no other one has.
    pub(crate) fn new(parts: VolumeParts) -> std::io::Result<Self> {
        let mut random = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        Ok(Self {
            servers: parts.servers,
            datasets: parts.datasets,
            complaints: Complaints::new(Arc::clone(&parts.clock)),
            clock: parts.clock,
            put: parts.put,
            get: parts.get,
            block_bytes: parts.block_bytes,
            writer: u128::from_le_bytes(random),
            next: AtomicU64::new(0),
            cache: BlockCache::new(parts.cache_bytes),
        })
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// A new entry of this mount.
    pub(crate) fn new_entry(&self, kind: Kind, mode: u32) -> Entry {
        let id = self.writer.wrapping_add(self.number().into());
        let mode = (mode & 0o7777) as u16;
        Entry::new(kind, mode, self.now_ns(), self.block_bytes, id)
    }

    /// What is at a path. What is left of a rename that was killed is put in order.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Found, Errno> {
        let found = self.read_entry(path)?;
        let Some(entry) = found.entry.as_ref().filter(|it| !it.moving_to.is_empty()) else {
            return Ok(found);
        };
        let moved = self.read_entry(&entry.moving_to)?;
        if moved.entry.is_none_or(|moved| moved.id != entry.id) {
            return Ok(found);
        }
        let version = self.remove_entry(path, found.version)?;
        Ok(Found {
            version,
            entry: None,
        })
    }

    /// Removes the entry that a file had before it was renamed, if a kill has left it.
    pub(crate) fn settle(&self, path: &[u8], entry: &mut Entry) -> Result<(), Errno> {
        let former = std::mem::take(&mut entry.moved_from);
        if former.is_empty() || former == path {
            return Ok(());
        }
        let found = self.read_entry(&former)?;
        let is_left = |it: &Entry| it.id == entry.id && it.moving_to == path;
        if found.entry.as_ref().is_some_and(is_left) {
            self.remove_entry(&former, found.version)?;
        }
        Ok(())
    }

    /// Whether a path can have an entry.
    pub(crate) fn check_path(&self, path: &[u8]) -> Result<(), Errno> {
        self.datasets.entry(path).map(drop)
    }

    /// Gives a file another path, in the place of what is there. The entry says where it goes
    /// before it is there, so that a kill between the steps leaves one file, at either path.
    /// Returns the version of the new entry.
    pub(crate) fn move_entry(
        &self,
        from: &[u8],
        moved: &Found,
        to: &[u8],
        replaced: &Found,
    ) -> Result<u64, Errno> {
        let mut entry = moved.entry.clone().ok_or(Errno::ENOENT)?;
        self.settle(from, &mut entry)?;
        if let Some(mut other) = replaced.entry.clone() {
            self.settle(to, &mut other)?;
        }
        entry.moving_to = to.to_vec();
        let marked = self.put_entry(from, moved, &entry)?;
        entry.moving_to.clear();
        entry.moved_from = from.to_vec();
        let version = self.put_entry(to, replaced, &entry)?;
        if let Err(error) = self.remove_entry(from, marked) {
            if error == Errno::ESTALE {
                // Another mount has changed the file meanwhile: it stays where it was.
                self.remove_entry(to, version)?;
            }
            return Err(error);
        }
        Ok(version)
    }

    fn read_entry(&self, path: &[u8]) -> Result<Found, Errno> {
        let key = self.datasets.entry(path)?;
        let mut bytes = Vec::new();
        let got = self.act(|client| client.get_into(&key, &mut bytes, &self.get));
        let version = match got {
            Ok(info) => info.version,
            Err(error) if is_absent(&error) => 0,
            Err(error) => return Err(self.failed("read", &key, &error)),
        };
        if version == 0 || stored(version) == Stored::Removed {
            return Ok(Found {
                version,
                entry: None,
            });
        }
        match Entry::decode(&bytes) {
            Some(entry) => Ok(Found {
                version,
                entry: Some(entry),
            }),
            None => {
                self.complaints.tell(&format!("{key}: no entry of a file"));
                Err(Errno::EIO)
            }
        }
    }

    /// Puts the entry of a path in the place of one, and returns its version.
    ///
    /// # Errors
    ///
    /// `ESTALE` if it is not that one any more.
    pub(crate) fn put_entry(&self, path: &[u8], base: &Found, entry: &Entry) -> Result<u64, Errno> {
        let what = Stored::Entry(entry.kind);
        let version = match base.entry.is_some() {
            true => next_version(base.version, what),
            false => first_version(base.version, self.now_ns(), what),
        };
        self.put_version(path, version, &entry.encode())?;
        Ok(version)
    }

    /// Removes the entry of a path. Its trace stays where a server could not be reached, so that
    /// the entry does not come back with it. Returns the version of the trace.
    pub(crate) fn remove_entry(&self, path: &[u8], base: u64) -> Result<u64, Errno> {
        let version = next_version(base, Stored::Removed);
        let key = self.datasets.entry(path)?;
        let delete = |version_max| self.act(|client| client.delete(&key, version_max));
        match self.put_version(path, version, b"") {
            // If the key is not deleted, the trace is what lists and reads find.
            Ok(true) => drop(delete(version)),
            Ok(false) => {}
            // Servers that have no room for a trace have to be able to make some.
            Err(error) if error == Errno::ENOSPC || error == Errno::EAGAIN => {
                delete(base).map_err(|_| error)?;
            }
            Err(error) => return Err(error),
        }
        Ok(version)
    }

    /// Puts a version of an entry; returns whether all replicas have it.
    fn put_version(&self, path: &[u8], version: u64, bytes: &[u8]) -> Result<bool, Errno> {
        let key = self.datasets.entry(path)?;
        let report = match self.act(|client| client.put(&key, version, bytes, &self.put)) {
            Ok(report) => report,
            Err(error) if error.code() == Some(FaultCode::OldVersion) => {
                return Err(Errno::ESTALE);
            }
            Err(error) => return Err(self.failed("written", &key, &error)),
        };
        self.tell_lacking(&key, &report);
        let is_old = |(_, error): &(u64, StagingError)| error.code() == Some(FaultCode::OldVersion);
        if report.failed.iter().any(is_old) {
            // Another mount has written at the same moment: the first replica decides.
            let mut now = Vec::new();
            let got = self.act(|client| client.get_into(&key, &mut now, &self.get));
            let info = got.map_err(|error| self.failed("read", &key, &error))?;
            if info.version != version || now != bytes {
                return Err(Errno::ESTALE);
            }
        }
        Ok(report.failed.is_empty())
    }

    /// The names in a directory with their kinds, sorted.
    pub(crate) fn list(&self, directory: &[u8]) -> Result<Names, Errno> {
        let mut names = Vec::new();
        self.each_in(directory, |name, kind| {
            names.push((name, kind));
            true
        })?;
        Ok(names)
    }

    /// Whether there is a name in a directory.
    pub(crate) fn has_names(&self, directory: &[u8]) -> Result<bool, Errno> {
        let mut has = false;
        self.each_in(directory, |_, _| {
            has = true;
            false
        })?;
        Ok(has)
    }

    fn each_in(
        &self,
        directory: &[u8],
        mut take: impl FnMut(Vec<u8>, Kind) -> bool,
    ) -> Result<(), Errno> {
        let prefix = keys::prefix(directory);
        let mut cursor = ListCursor::new(ListQuery {
            dataset: self.datasets.names.clone(),
            name: prefix.clone(),
            ..ListQuery::default()
        });
        let listed = self.act(|client| {
            while let Some((key, info)) = cursor.next(client)? {
                let (BlockName::Bytes(name), Stored::Entry(kind)) =
                    (key.name(), stored(info.version))
                else {
                    continue;
                };
                // Another file system may have a name that begins with that of this one.
                let is_ours = key.dataset() == self.datasets.names;
                let name = name.strip_prefix(&*prefix).filter(|_| is_ours);
                if name.is_some_and(|name| !take(name.to_vec(), kind)) {
                    break;
                }
            }
            Ok(())
        });
        listed.map_err(|error| self.refused("a directory was not read", &error))
    }

    /// Puts a block of a file under a number of its own.
    pub(crate) fn put_block(&self, bytes: &[u8]) -> Result<BlockRef, Errno> {
        let block = BlockRef {
            writer: self.writer,
            number: self.number(),
        };
        let key = self.datasets.block(block)?;
        let version = self.now_ns().max(1).unsigned_abs();
        let report = self
            .act(|client| client.put(&key, version, bytes, &self.put))
            .map_err(|error| self.failed("written", &key, &error))?;
        self.tell_lacking(&key, &report);
        Ok(block)
    }

    /// A whole block of a file, from a cache if it was read of late.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it is not there.
    pub(crate) fn get_block(&self, block: BlockRef) -> Result<Arc<Vec<u8>>, Errno> {
        if let Some(bytes) = self.cache.get(block) {
            return Ok(bytes);
        }
        let mut bytes = Vec::new();
        self.read_block(block, &mut bytes)?;
        let bytes = Arc::new(bytes);
        self.cache.put(block, &bytes);
        Ok(bytes)
    }

    /// A part of a block of a file, which is shorter where the block ends.
    pub(crate) fn get_part(
        &self,
        block: BlockRef,
        from: u64,
        bytes: u64,
    ) -> Result<Vec<u8>, Errno> {
        let cut = |all: &[u8]| {
            let from = all.len().min(from as usize);
            all[from..all.len().min(from.saturating_add(bytes as usize))].to_vec()
        };
        if let Some(all) = self.cache.get(block) {
            return Ok(cut(&all));
        }
        let key = self.datasets.block(block)?;
        let mut out = Vec::new();
        match self.act(|client| client.get_range(&key, from, bytes, &mut out)) {
            Ok(_) => Ok(out),
            Err(error) if is_absent(&error) => Err(Errno::ENOENT),
            Err(error) => match error.code() {
                // The block ends before, or only a read of all of it takes what is unconfirmed.
                Some(FaultCode::BadRequest | FaultCode::Unconfirmed) => {
                    self.read_block(block, &mut out)?;
                    Ok(cut(&out))
                }
                _ => Err(self.failed("read", &key, &error)),
            },
        }
    }

    fn read_block(&self, block: BlockRef, out: &mut Vec<u8>) -> Result<(), Errno> {
        let key = self.datasets.block(block)?;
        // A number is put once, so what there is cannot be older than anything.
        let options = GetOptions {
            accept_unconfirmed: true,
        };
        match self.act(|client| client.get_into(&key, out, &options)) {
            Ok(info) if info.bytes <= BLOCK_BYTES_MAX => Ok(()),
            Ok(_) => Err(Errno::EIO),
            Err(error) if is_absent(&error) => Err(Errno::ENOENT),
            Err(error) => Err(self.failed("read", &key, &error)),
        }
    }

    /// Removes blocks that no entry has any more. One that cannot be removed stays, and takes room.
    pub(crate) fn delete_blocks(&self, blocks: impl IntoIterator<Item = BlockRef>) {
        for block in blocks {
            self.cache.forget(block);
            let Ok(key) = self.datasets.block(block) else {
                continue;
            };
            if let Err(error) = self.act(|client| client.delete(&key, u64::MAX)) {
                let text = format!("{key} takes room until it is removed by --clean: {error}");
                self.complaints.tell(&text);
            }
        }
    }

    /// Removes the blocks that no entry has: what mounts have left that were killed. Returns how
    /// many these were. No other mount may write meanwhile.
    pub(crate) fn clean(&self) -> Result<u64, StagingError> {
        let mut used = std::collections::BTreeSet::new();
        for key in self.all_keys(&self.datasets.names)? {
            let mut bytes = Vec::new();
            match self.act(|client| client.get_into(&key, &mut bytes, &GetOptions::default())) {
                Ok(info) if stored(info.version) == Stored::Removed => continue,
                Ok(_) => {}
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(error),
            }
            let Some(entry) = Entry::decode(&bytes) else {
                let text = format!("{key} is no entry of a file, so nothing is removed");
                return Err(StagingError::Config(text));
            };
            used.extend(entry.blocks.into_values());
        }
        let mut removed = 0;
        for key in self.all_keys(&self.datasets.data)? {
            let block = self.datasets.block_of(&key);
            if block.is_some_and(|block| !used.contains(&block)) {
                self.act(|client| client.delete(&key, u64::MAX))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn all_keys(&self, dataset: &str) -> Result<Vec<BlockKey>, StagingError> {
        let mut cursor = ListCursor::new(ListQuery {
            dataset: dataset.to_owned(),
            ..ListQuery::default()
        });
        let mut keys = Vec::new();
        self.act(|client| {
            while let Some((key, _)) = cursor.next(client)? {
                keys.push(key);
            }
            Ok(())
        })?;
        Ok(keys)
    }

    /// Whether the servers answer.
    pub(crate) fn check(&self) -> Result<(), StagingError> {
        let query = ListQuery {
            dataset: self.datasets.names.clone(),
            blocks_max: 1,
            ..ListQuery::default()
        };
        self.act(|client| client.list(&query).map(drop))
    }

    /// What the servers tell of their tiers, of those that do.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        let mut all = Vec::new();
        let asked = self.act(|client| {
            let servers: Vec<u64> = client.map().servers.keys().copied().collect();
            let told = servers.iter().map(|server| client.server_status(*server));
            all = told.filter_map(Result::ok).collect();
            Ok(())
        });
        asked.map_or_else(|_| Vec::new(), |()| all)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn act<T>(
        &self,
        mut act: impl FnMut(&StagingClient) -> Result<T, StagingError>,
    ) -> Result<T, StagingError> {
        let mut done = None;
        self.servers.act(&mut |client| {
            done = Some(act(client)?);
            Ok(())
        })?;
        done.ok_or_else(|| StagingError::Config("no server was asked".into()))
    }

    /// Says once in a while that blocks have fewer replicas than they should.
    fn tell_lacking(&self, key: &BlockKey, report: &PutReport) {
        let failed = report.failed.iter();
        let old = |error: &StagingError| error.code() == Some(FaultCode::OldVersion);
        if let Some((server, error)) = failed.into_iter().find(|(_, error)| !old(error)) {
            let text = format!("{key} has fewer replicas: not on server {server}: {error}");
            self.complaints.tell(&text);
        }
    }

    fn failed(&self, what: &str, key: &BlockKey, error: &StagingError) -> Errno {
        self.refused(&format!("{key} was not {what}"), error)
    }

    fn refused(&self, what: &str, error: &StagingError) -> Errno {
        self.complaints.tell(&format!("{what}: {error}"));
        errno(error)
    }
}

/// Whether there is no such block, as far as anybody knows: a server that was killed answers that
/// it does not know, and if all replicas say so, none has it. If replicas are gone, another one
/// that would know it has to say so.
fn is_absent(error: &StagingError) -> bool {
    match error.code() {
        Some(FaultCode::NotFound | FaultCode::NotKnown) => true,
        Some(FaultCode::Unreachable) => error.number() > 0,
        _ => false,
    }
}

/// The error as programs know it.
fn errno(error: &StagingError) -> Errno {
    match error.code() {
        Some(FaultCode::Full) => Errno::ENOSPC,
        Some(FaultCode::Busy | FaultCode::Stopping | FaultCode::Fenced) => Errno::EAGAIN,
        Some(FaultCode::Denied) => Errno::EACCES,
        _ => Errno::EIO,
    }
}
