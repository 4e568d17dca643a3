//! One connection to a server.

use std::sync::Arc;

use barograph_model::Clock;

use super::buffer::BlockBuffer;
use super::config::{ClientConfig, ServerAddress};
use super::dial::dial;
use super::nonsense;
use crate::block::BlockInfo;
use crate::error::{FaultCode, StagingError};
use crate::memory::{ArenaLayout, BlockPlace, MappedArena, MappedBlock};
use crate::store::PutHead;
use crate::transport::{FrameStream, TransportFault};
use crate::wire::{Answer, CHUNK_BYTES_MAX, EAGER_BYTES_MAX, Hello, MemoryPlace, Request};

/// Bytes that are checked while they are in the processor's cache.
const PIECE_BYTES: usize = 256 << 10;

/// What a read is answered by.
pub(super) enum Got {
    /// The bytes are in the buffer of the caller.
    Bytes(BlockInfo),
    /// The block is in shared memory.
    Mapped(MappedBlock),
}

/// A connection to a server.
pub(super) struct Connection {
    frames: FrameStream,
    memory: Option<Arc<MappedArena>>,
    /// Whether it can be used for another request.
    pub(super) is_sound: bool,
}

impl Connection {
    pub(super) fn open(
        address: &ServerAddress,
        config: &ClientConfig,
        clock: &Arc<dyn Clock>,
        until_ns: i64,
    ) -> Result<Self, StagingError> {
        let wants_memory = match address {
            ServerAddress::Unix(_) => config.mapped.is_some(),
            ServerAddress::Tcp(_) => false,
        };
        let socket = dial(address, &**clock, until_ns);
        let frames = socket.and_then(|socket| FrameStream::of_guest(socket, Arc::clone(clock)));
        let mut connection = Self {
            frames: frames.map_err(|error| unreachable(address, &error))?,
            memory: None,
            is_sound: true,
        };
        let hello = Hello::new(config.user, &config.token, wants_memory);
        connection.greet(hello, until_ns)?;
        Ok(connection)
    }

    fn greet(&mut self, hello: Hello, until_ns: i64) -> Result<(), StagingError> {
        let request = Request::Hello(hello).encode();
        self.frames.send(&request, until_ns).map_err(lost)?;
        let file = self.frames.receive_with(until_ns).map_err(lost)?;
        let Answer::Welcome(welcome) = self.answer(until_ns)? else {
            return Err(nonsense());
        };
        if let (Some(file), Some((bytes, slots))) = (file, welcome.memory) {
            // Without the memory, blocks come over the socket.
            self.memory = MappedArena::new(file, ArenaLayout { bytes, slots }).ok();
        }
        Ok(())
    }

    /// Whether the program around the client has left the connection as it was.
    pub(super) fn has_socket(&self) -> bool {
        self.frames.has_socket()
    }

    /// Whether blocks may be read from the memory of the server.
    pub(super) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// A request that is answered by one frame.
    pub(super) fn ask(&mut self, request: &Request, until_ns: i64) -> Result<Answer, StagingError> {
        self.sound(|connection| {
            let sent = connection.frames.send(&request.encode(), until_ns);
            sent.map_err(lost)?;
            connection.answer(until_ns)
        })
    }

    /// Puts a block.
    pub(super) fn put(
        &mut self,
        head: &PutHead,
        bytes: &[u8],
        until_ns: i64,
    ) -> Result<BlockInfo, StagingError> {
        self.sound(|connection| {
            let request = Request::Put(head.clone()).encode();
            let frames = &mut connection.frames;
            if bytes.is_empty() {
                frames.send(&request, until_ns).map_err(lost)?;
            } else if bytes.len() as u64 <= EAGER_BYTES_MAX {
                frames.send_data(&request, bytes, until_ns).map_err(lost)?;
            } else {
                frames.send(&request, until_ns).map_err(lost)?;
                let Answer::Go = connection.answer(until_ns)? else {
                    return Err(nonsense());
                };
                for chunk in bytes.chunks(CHUNK_BYTES_MAX) {
                    let sent = connection.frames.send_data(&[], chunk, until_ns);
                    sent.map_err(lost)?;
                }
            }
            match connection.answer(until_ns)? {
                Answer::Info(info) => Ok(info),
                _ => Err(nonsense()),
            }
        })
    }

    /// Reads a block, or the part that the request names, into a buffer. The answer has to come by
    /// a time; `data_until` gives the time for so many bytes behind it.
    pub(super) fn get(
        &mut self,
        request: &Request,
        epoch: u64,
        out: &mut BlockBuffer<'_>,
        until_ns: i64,
        data_until: impl FnOnce(u64) -> i64,
    ) -> Result<Got, StagingError> {
        match self.ask(request, until_ns)? {
            Answer::Block { info, bytes } => self.sound(|connection| {
                connection.receive(&info, bytes, out, data_until(bytes))?;
                Ok(Got::Bytes(info))
            }),
            Answer::Place { info, place } => {
                let MemoryPlace {
                    at,
                    slot,
                    generation,
                } = place;
                let place = BlockPlace {
                    at,
                    slot,
                    generation,
                };
                let memory = self.memory.as_ref();
                let block = memory.and_then(|memory| memory.block(place, info, epoch));
                block.map(Got::Mapped).ok_or_else(nonsense)
            }
            _ => Err(nonsense()),
        }
    }

    fn receive(
        &mut self,
        info: &BlockInfo,
        bytes: u64,
        out: &mut BlockBuffer<'_>,
        until_ns: i64,
    ) -> Result<(), StagingError> {
        let mut hasher = crc32fast::Hasher::new();
        let mut rest = out.room(bytes)?;
        while !rest.is_empty() {
            let head = self.frames.head(until_ns).map_err(lost)?;
            if !head.is_data() {
                let body = self.frames.body(head, until_ns).map_err(lost)?;
                return Err(refused(Answer::decode(head.kind, body)).unwrap_or_else(nonsense));
            }
            if head.bytes == 0 || head.bytes > rest.len() {
                return Err(nonsense());
            }
            let (chunk, after) = rest.split_at_mut(head.bytes);
            for piece in chunk.chunks_mut(PIECE_BYTES) {
                self.frames.take(piece, until_ns).map_err(lost)?;
                if bytes == info.bytes {
                    hasher.update(piece);
                }
            }
            rest = after;
        }
        if bytes == info.bytes && hasher.finalize() != info.checksum {
            let text = "the block did not have its checksum when it came";
            return Err(StagingError::fault(FaultCode::Corrupt, text));
        }
        Ok(())
    }

    /// An answer, or the fault that it tells.
    fn answer(&mut self, until_ns: i64) -> Result<Answer, StagingError> {
        let head = self.frames.head(until_ns).map_err(lost)?;
        let body = self.frames.body(head, until_ns).map_err(lost)?;
        let answer = Answer::decode(head.kind, body);
        match answer.map_err(|fault| lost(fault.into()))? {
            Answer::Fault { code, number, text } => Err(StagingError::Fault { code, number, text }),
            answer => Ok(answer),
        }
    }

    /// Notes whether the connection is good for more: after a fault that the server has told it
    /// is, after others it is not.
    fn sound<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, StagingError>,
    ) -> Result<T, StagingError> {
        self.is_sound = false;
        let done = act(self);
        let in_order = |error: &StagingError| {
            let ends = [
                FaultCode::Unreachable,
                FaultCode::BadRequest,
                FaultCode::Disk,
                // What follows has no place to go.
                FaultCode::TooLong,
            ];
            error.code().is_some_and(|code| !ends.contains(&code))
        };
        self.is_sound = done.as_ref().err().is_none_or(in_order);
        done
    }
}

/// The error that an answer in place of data tells.
fn refused(answer: Result<Answer, crate::wire::WireFault>) -> Option<StagingError> {
    match answer {
        Ok(Answer::Fault { code, number, text }) => {
            Some(StagingError::Fault { code, number, text })
        }
        _ => None,
    }
}

fn unreachable(address: &ServerAddress, error: &std::io::Error) -> StagingError {
    let text = match address {
        ServerAddress::Unix(path) => format!("{}: {error}", path.display()),
        ServerAddress::Tcp(address) => format!("{address}: {error}"),
    };
    StagingError::fault(FaultCode::Unreachable, text)
}

fn lost(fault: TransportFault) -> StagingError {
    StagingError::fault(FaultCode::Unreachable, fault.to_string())
}
