//! Reads: from the first replica that has the block for certain; the others are repaired.

use super::buffer::BlockBuffer;
use super::config::{GetOptions, MappedCheck, StagingMap};
use super::connection::Got;
use super::{StagingClient, is_later, no_servers};
use crate::block::{BlockInfo, checksum};
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;
use crate::memory::MappedBlock;
use crate::store::{PutHead, PutTarget};
use crate::wire::{GetForm, Request};

/// How often a block that goes from shared memory while it is read is asked for there again.
const MAPPED_TRIES: usize = 2;

/// What is wanted of a block.
struct Wanted<'a> {
    key: &'a BlockKey,
    from: u64,
    bytes: u64,
    accept_unconfirmed: bool,
}

/// What replicas have answered that do not have the block for certain.
#[derive(Default)]
struct Lacking {
    /// They have no good copy, or perhaps an old one.
    to_repair: Vec<u64>,
    unconfirmed: Vec<(u64, u64)>,
    unreachable: Vec<String>,
    corrupt: Option<StagingError>,
    not_known: Option<StagingError>,
    /// A server that would know the block has none.
    not_found: Option<StagingError>,
    other: Option<StagingError>,
}

impl StagingClient {
    /// Reads a block.
    ///
    /// # Errors
    ///
    /// [`FaultCode::NotFound`] if there is none; [`FaultCode::Unreachable`] at once if all replicas
    /// are gone; [`FaultCode::Unconfirmed`] if what there is may be older than what was
    /// acknowledged; [`FaultCode::Corrupt`] if no replica has a good copy.
    pub fn get(&self, key: &BlockKey) -> Result<(BlockInfo, Vec<u8>), StagingError> {
        let mut out = Vec::new();
        let info = self.get_into(key, &mut out, &GetOptions::default())?;
        Ok((info, out))
    }

    /// Reads a block into a buffer, which becomes as long as the block.
    ///
    /// # Errors
    ///
    /// As for [`StagingClient::get`].
    pub fn get_into(
        &self,
        key: &BlockKey,
        out: &mut Vec<u8>,
        options: &GetOptions,
    ) -> Result<BlockInfo, StagingError> {
        self.get_whole(key, &mut BlockBuffer::Growing(out), options)
    }

    /// Reads a block into memory of the caller, of which it takes the beginning. After an error the
    /// memory may have been written to.
    ///
    /// # Errors
    ///
    /// As for [`StagingClient::get`]; [`FaultCode::TooLong`] if the block is longer than the
    /// memory, with its bytes as [`StagingError::number`].
    pub fn get_to(
        &self,
        key: &BlockKey,
        memory: &mut [u8],
        options: &GetOptions,
    ) -> Result<BlockInfo, StagingError> {
        self.get_whole(key, &mut BlockBuffer::fixed(memory), options)
    }

    fn get_whole(
        &self,
        key: &BlockKey,
        out: &mut BlockBuffer<'_>,
        options: &GetOptions,
    ) -> Result<BlockInfo, StagingError> {
        let accept_unconfirmed = options.accept_unconfirmed;
        let wanted = Wanted {
            key,
            from: 0,
            bytes: u64::MAX,
            accept_unconfirmed,
        };
        self.in_epoch(|map| self.get_in(map, &wanted, out))
    }

    /// Reads a part of a block into a buffer. It is shorter if the block ends before. The bytes
    /// have been checked by the server, not by this client.
    ///
    /// # Errors
    ///
    /// As for [`StagingClient::get`]; [`FaultCode::BadRequest`] if the block ends before `from`.
    pub fn get_range(
        &self,
        key: &BlockKey,
        from: u64,
        bytes: u64,
        out: &mut Vec<u8>,
    ) -> Result<BlockInfo, StagingError> {
        let wanted = Wanted {
            key,
            from,
            bytes,
            accept_unconfirmed: false,
        };
        let mut out = BlockBuffer::Growing(out);
        self.in_epoch(|map| self.get_in(map, &wanted, &mut out))
    }

    /// A block in the memory of a server on this node, to be read there; `None` if no replica has
    /// it in memory that this process sees.
    ///
    /// # Errors
    ///
    /// That of the last replica that was asked.
    pub fn map_block(&self, key: &BlockKey) -> Result<Option<MappedBlock>, StagingError> {
        let wanted = Wanted {
            key,
            from: 0,
            bytes: 0,
            accept_unconfirmed: false,
        };
        self.in_epoch(|map| {
            let mut last = None;
            for server in self.replicas(key, map) {
                let mut nothing = BlockBuffer::fixed(&mut []);
                match self.ask(map, server, &wanted, GetForm::Place, &mut nothing) {
                    Ok(Got::Mapped(block)) => return Ok(Some(block)),
                    Ok(Got::Bytes(_)) => {}
                    Err(error) if is_later(&error, map.epoch) => return Err(error),
                    Err(error) => last = Some(error),
                }
            }
            last.map_or(Ok(None), Err)
        })
    }

    fn get_in(
        &self,
        map: &StagingMap,
        wanted: &Wanted<'_>,
        out: &mut BlockBuffer<'_>,
    ) -> Result<BlockInfo, StagingError> {
        let order = self.order(wanted.key, map);
        let replicas = self.config.replicas.max(1).min(order.len());
        let mut lacking = Lacking::default();
        for (place, server) in order.iter().enumerate() {
            // Blocks of former maps may be on servers that are not their replicas any more. They
            // are asked last, and not at all if a replica would know the block.
            if place == replicas && !lacking.may_be_elsewhere(replicas) {
                break;
            }
            match self.get_one(map, *server, wanted, out) {
                Ok(info) => {
                    if place >= replicas {
                        self.counted().found_elsewhere += 1;
                    }
                    self.repair(map, &lacking.to_repair, wanted, &info, out.bytes());
                    return Ok(info);
                }
                Err(error) if is_later(&error, map.epoch) => return Err(error),
                Err(error) if error.code() == Some(FaultCode::TooLong) => return Err(error),
                Err(error) => lacking.take(*server, place < replicas, error),
            }
        }
        let newest = lacking
            .unconfirmed
            .iter()
            .max_by_key(|(_, version)| *version);
        if let Some((server, _)) = newest.filter(|_| wanted.accept_unconfirmed) {
            return self.get_over_socket(map, *server, wanted, out);
        }
        Err(lacking.error(wanted.key, replicas))
    }

    /// Reads a block from a server that has it for certain.
    fn get_one(
        &self,
        map: &StagingMap,
        server: u64,
        wanted: &Wanted<'_>,
        out: &mut BlockBuffer<'_>,
    ) -> Result<BlockInfo, StagingError> {
        let certain = Wanted {
            accept_unconfirmed: false,
            ..*wanted
        };
        for _ in 0..MAPPED_TRIES {
            let begun_ns = self.clock.monotonic_ns();
            match self.ask(map, server, &certain, GetForm::Place, out)? {
                Got::Bytes(info) => {
                    self.counted().gets_socket += 1;
                    self.observe_read(server, &info, out.bytes(), begun_ns);
                    return Ok(info);
                }
                Got::Mapped(block) => match self.copy_out(&block, wanted, out) {
                    Some(copied) => {
                        copied?;
                        self.observe_read(server, block.info(), out.bytes(), begun_ns);
                        return Ok(*block.info());
                    }
                    None => self.counted().mapped_stale += 1,
                },
            }
        }
        self.get_over_socket(map, server, &certain, out)
    }

    fn get_over_socket(
        &self,
        map: &StagingMap,
        server: u64,
        wanted: &Wanted<'_>,
        out: &mut BlockBuffer<'_>,
    ) -> Result<BlockInfo, StagingError> {
        match self.ask(map, server, wanted, GetForm::Bytes, out)? {
            Got::Bytes(info) => {
                self.counted().gets_socket += 1;
                Ok(info)
            }
            Got::Mapped(_) => Err(super::nonsense()),
        }
    }

    fn ask(
        &self,
        map: &StagingMap,
        server: u64,
        wanted: &Wanted<'_>,
        form: GetForm,
        out: &mut BlockBuffer<'_>,
    ) -> Result<Got, StagingError> {
        let epoch = map.epoch;
        let got = self.on_server(map, server, 0, |connection, until_ns| {
            let form = match connection.has_memory() {
                true => form,
                false => GetForm::Bytes,
            };
            let request = Request::Get {
                epoch,
                key: wanted.key.clone(),
                from: wanted.from,
                bytes: wanted.bytes,
                accept_unconfirmed: wanted.accept_unconfirmed,
                form,
            };
            let data_until = |bytes| self.until(bytes);
            connection.get(&request, epoch, out, until_ns, data_until)
        });
        if got
            .as_ref()
            .is_err_and(|error| error.code() == Some(FaultCode::Corrupt))
        {
            self.counted().corrupt += 1;
        }
        got
    }

    /// Copies a block from shared memory; `None` if it has gone meanwhile.
    fn copy_out(
        &self,
        block: &MappedBlock,
        wanted: &Wanted<'_>,
        out: &mut BlockBuffer<'_>,
    ) -> Option<Result<(), StagingError>> {
        let all = block.info().bytes;
        if wanted.from > all {
            let text = format!("the block has {all} bytes");
            return Some(Err(StagingError::fault(FaultCode::BadRequest, text)));
        }
        let bytes = wanted.bytes.min(all - wanted.from);
        let out = match out.room(bytes) {
            Ok(out) => out,
            Err(error) => return Some(Err(error)),
        };
        block.copy_into(wanted.from as usize, out)?;
        let is_checked = self.config.mapped == Some(MappedCheck::Checksum) && bytes == all;
        if is_checked && checksum(out) != block.info().checksum {
            self.counted().corrupt += 1;
            let text = format!("{}: the memory does not have its checksum", wanted.key);
            return Some(Err(StagingError::fault(FaultCode::Corrupt, text)));
        }
        self.counted().gets_mapped += 1;
        Some(Ok(()))
    }

    /// Sends a block that was read whole to replicas that lack it.
    fn repair(
        &self,
        map: &StagingMap,
        servers: &[u64],
        wanted: &Wanted<'_>,
        info: &BlockInfo,
        bytes: &[u8],
    ) {
        if bytes.len() as u64 != info.bytes {
            return;
        }
        let head = PutHead {
            key: wanted.key.clone(),
            version: info.version,
            bytes: info.bytes,
            checksum: info.checksum,
            epoch: map.epoch,
            refetch_us: 0,
            target: PutTarget::Fast,
            wait_ns: 0,
        };
        for server in servers {
            match self.put_one(map, *server, &head, bytes) {
                Ok(_) => self.counted().repaired += 1,
                Err(_) => self.counted().repairs_failed += 1,
            }
        }
    }
}

impl Lacking {
    fn take(&mut self, server: u64, is_replica: bool, error: StagingError) {
        match error.code() {
            Some(FaultCode::Unconfirmed) => self.unconfirmed.push((server, error.number())),
            Some(FaultCode::Corrupt) => self.corrupt = Some(error),
            Some(FaultCode::NotKnown) => self.not_known = Some(error),
            Some(FaultCode::NotFound) => {
                // A server that is no replica has no reason to know the block.
                if is_replica {
                    self.not_found = Some(error);
                }
                // It has not missed the block: it was deleted, or never put.
                return;
            }
            Some(FaultCode::Unreachable | FaultCode::Fenced | FaultCode::Disk) => {
                self.unreachable.push(format!("server {server}: {error}"));
                return;
            }
            _ => {
                self.other = Some(error);
                return;
            }
        }
        if is_replica {
            self.to_repair.push(server);
        }
    }

    /// Whether servers that are no replicas are worth asking.
    fn may_be_elsewhere(&self, replicas: usize) -> bool {
        let is_settled = self.not_found.is_some() || self.other.is_some();
        !is_settled && self.unreachable.len() < replicas
    }

    fn error(self, key: &BlockKey, replicas: usize) -> StagingError {
        if replicas == 0 {
            return no_servers();
        }
        if self.unreachable.len() >= replicas {
            let text = format!(
                "{key}: all replicas are gone: {}",
                self.unreachable.join("; ")
            );
            return StagingError::fault(FaultCode::Unreachable, text);
        }
        if let Some(error) = self.other {
            return error;
        }
        if !self.unreachable.is_empty() {
            let text = format!(
                "{key}: not on the replicas that can be reached; {}",
                self.unreachable.join("; ")
            );
            let knowing = u64::from(self.not_found.is_some());
            return StagingError::numbered(FaultCode::Unreachable, knowing, text);
        }
        if let Some(error) = self.not_found {
            return error;
        }
        if let Some((_, version)) = self.unconfirmed.iter().max_by_key(|(_, version)| *version) {
            let text =
                format!("{key}: version {version} may be older than one that was acknowledged");
            return StagingError::numbered(FaultCode::Unconfirmed, *version, text);
        }
        self.corrupt.or(self.not_known).unwrap_or_else(no_servers)
    }
}
