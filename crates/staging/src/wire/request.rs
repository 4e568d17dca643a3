//! What clients ask.

use barograph_model::NS_PER_MS;

use super::frame::{PROTOCOL, WireFault, framed};
use crate::BLOCK_BYTES_MAX;
use crate::block::UserId;
use crate::bytes::{ByteReader, BytesFault, put_short, put_text};
use crate::key::{BlockKey, DATASET_BYTES_MAX, NAME_BYTES_MAX};
use crate::store::{ListQuery, PutHead, PutTarget};

/// Bytes of the longest token of a user.
pub const TOKEN_BYTES_MAX: usize = 256;

const MAGIC: &[u8; 4] = b"BSTG";
const HELLO: u8 = 1;
const PUT: u8 = 2;
const GET: u8 = 3;
const DELETE: u8 = 4;
const STAT: u8 = 5;
const LIST: u8 = 6;
const STATUS: u8 = 7;
const LOCATE: u8 = 8;
/// Most keys of one question where blocks are.
pub const LOCATE_KEYS_MAX: usize = 1_000;
/// Most bytes of these keys.
pub const LOCATE_BYTES_MAX: usize = 48 << 10;

/// The first frame of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// The version of the protocol.
    pub protocol: u16,
    /// Whether the memory file of the user is wanted, over a unix socket.
    pub wants_memory: bool,
    /// The user, over TCP. Over a unix socket the kernel says who it is.
    pub user: UserId,
    /// The token of the user, over TCP.
    pub token: Vec<u8>,
}

impl std::fmt::Debug for Hello {
    /// Without the token.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Hello");
        shown
            .field("protocol", &self.protocol)
            .field("user", &self.user);
        shown.finish_non_exhaustive()
    }
}

/// How a block is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetForm {
    /// As bytes.
    Bytes,
    /// As its place in the memory file, or else as bytes.
    Place,
}

/// A request. Those for blocks name the epoch of the map of servers by which it came here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who asks.
    Hello(Hello),
    /// A block comes.
    Put(PutHead),
    /// A block, or a part of it, is wanted.
    Get {
        /// The epoch of the client's map.
        epoch: u64,
        /// The block.
        key: BlockKey,
        /// The first byte.
        from: u64,
        /// How many bytes; the block may end before.
        bytes: u64,
        /// Whether a block is wanted that may be older than one that was acknowledged.
        accept_unconfirmed: bool,
        /// How it is wanted.
        form: GetForm,
    },
    /// A block is to be deleted.
    Delete {
        /// The epoch of the client's map.
        epoch: u64,
        /// The block.
        key: BlockKey,
        /// The highest version that may be deleted.
        version_max: u64,
    },
    /// What is known of a block is wanted.
    Stat {
        /// The epoch of the client's map.
        epoch: u64,
        /// The block.
        key: BlockKey,
    },
    /// A page of a list is wanted.
    List {
        /// The epoch of the client's map.
        epoch: u64,
        /// Which blocks.
        query: ListQuery,
    },
    /// What the server knows of many blocks is wanted, and what reads of its tiers cost.
    Locate {
        /// The epoch of the client's map.
        epoch: u64,
        /// The blocks: at most [`LOCATE_KEYS_MAX`], of [`LOCATE_BYTES_MAX`] in all.
        keys: Vec<BlockKey>,
    },
    /// What the server tells of itself is wanted, by its own user.
    Status,
}

impl Request {
    /// The epoch of the client's map; `None` of what is not about blocks.
    pub fn epoch(&self) -> Option<u64> {
        match self {
            Self::Hello(_) | Self::Status => None,
            Self::Put(head) => Some(head.epoch),
            Self::Get { epoch, .. }
            | Self::Delete { epoch, .. }
            | Self::Stat { epoch, .. }
            | Self::Locate { epoch, .. }
            | Self::List { epoch, .. } => Some(*epoch),
        }
    }

    /// The request as a frame.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello(hello) => framed(HELLO, |out| encode_hello(hello, out)),
            Self::Put(head) => framed(PUT, |out| encode_put(head, out)),
            Self::Get {
                epoch,
                key,
                from,
                bytes,
                accept_unconfirmed,
                form,
            } => framed(GET, |out| {
                out.extend(epoch.to_le_bytes());
                key.encode(out);
                out.extend(from.to_le_bytes());
                out.extend(bytes.to_le_bytes());
                let is_place = *form == GetForm::Place;
                out.extend([u8::from(*accept_unconfirmed), u8::from(is_place)]);
            }),
            Self::Delete {
                epoch,
                key,
                version_max,
            } => framed(DELETE, |out| {
                out.extend(epoch.to_le_bytes());
                key.encode(out);
                out.extend(version_max.to_le_bytes());
            }),
            Self::Stat { epoch, key } => framed(STAT, |out| {
                out.extend(epoch.to_le_bytes());
                key.encode(out);
            }),
            Self::Locate { epoch, keys } => framed(LOCATE, |out| {
                out.extend(epoch.to_le_bytes());
                let count = u16::try_from(keys.len()).expect("clients ask for few keys at a time");
                out.extend(count.to_le_bytes());
                keys.iter().for_each(|key| key.encode(out));
            }),
            Self::Status => framed(STATUS, |_| ()),
            Self::List { epoch, query } => framed(LIST, |out| {
                out.extend(epoch.to_le_bytes());
                encode_query(query, out);
            }),
        }
    }

    /// A request, from the kind and body of its frame.
    ///
    /// # Errors
    ///
    /// The frame is no request.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireFault> {
        let mut reader = ByteReader::new(body);
        let request = match kind {
            HELLO => decode_hello(&mut reader),
            PUT => decode_put(&mut reader),
            GET => decode_get(&mut reader),
            DELETE => decode_delete(&mut reader),
            STAT => decode_stat(&mut reader),
            LIST => decode_list(&mut reader),
            LOCATE => decode_locate(&mut reader),
            STATUS => Ok(Self::Status),
            _ => return Err(WireFault::Kind(kind)),
        };
        let request = request.and_then(|request| reader.end().map(|()| request));
        request.map_err(WireFault::body(kind))
    }
}

impl Hello {
    /// The hello of a client of this version.
    pub fn new(user: UserId, token: &[u8], wants_memory: bool) -> Self {
        Self {
            protocol: PROTOCOL,
            wants_memory,
            user,
            token: token.to_vec(),
        }
    }
}

fn encode_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.extend(MAGIC);
    out.extend(hello.protocol.to_le_bytes());
    out.push(u8::from(hello.wants_memory));
    out.extend(hello.user.to_le_bytes());
    put_short(out, &hello.token[..hello.token.len().min(TOKEN_BYTES_MAX)]);
}

fn decode_hello(reader: &mut ByteReader<'_>) -> Result<Request, BytesFault> {
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(BytesFault);
    }
    let protocol = reader.u16()?;
    if protocol != PROTOCOL {
        // What follows may be laid out otherwise: the server answers that it is too new.
        let _ = reader.rest();
        return Ok(Request::Hello(Hello {
            protocol,
            wants_memory: false,
            user: UserId::MAX,
            token: Vec::new(),
        }));
    }
    Ok(Request::Hello(Hello {
        protocol,
        wants_memory: reader.flag()?,
        user: reader.u32()?,
        token: reader.short(TOKEN_BYTES_MAX)?.to_vec(),
    }))
}

fn encode_put(head: &PutHead, out: &mut Vec<u8>) {
    out.extend(head.epoch.to_le_bytes());
    head.key.encode(out);
    out.extend(head.version.to_le_bytes());
    out.extend(head.bytes.to_le_bytes());
    out.extend(head.checksum.to_le_bytes());
    out.extend(head.refetch_us.to_le_bytes());
    out.push(u8::from(head.target == PutTarget::Durable));
    let wait_ms = u32::try_from(head.wait_ns.max(0) / NS_PER_MS).unwrap_or(u32::MAX);
    out.extend(wait_ms.to_le_bytes());
}

fn decode_put(reader: &mut ByteReader<'_>) -> Result<Request, BytesFault> {
    let head = PutHead {
        epoch: reader.u64()?,
        key: BlockKey::decode(reader)?,
        version: reader.u64()?,
        bytes: reader.u64()?,
        checksum: reader.u32()?,
        refetch_us: reader.u32()?,
        target: match reader.flag()? {
            true => PutTarget::Durable,
            false => PutTarget::Fast,
        },
        wait_ns: i64::from(reader.u32()?) * NS_PER_MS,
    };
    match head.bytes <= BLOCK_BYTES_MAX {
        true => Ok(Request::Put(head)),
        false => Err(BytesFault),
    }
}

fn decode_get(reader: &mut ByteReader<'_>) -> Result<Request, BytesFault> {
    Ok(Request::Get {
        epoch: reader.u64()?,
        key: BlockKey::decode(reader)?,
        from: reader.u64()?,
        bytes: reader.u64()?,
        accept_unconfirmed: reader.flag()?,
        form: match reader.flag()? {
            true => GetForm::Place,
            false => GetForm::Bytes,
        },
    })
}

fn decode_delete(reader: &mut ByteReader<'_>) -> Result<Request, BytesFault> {
    Ok(Request::Delete {
        epoch: reader.u64()?,
        key: BlockKey::decode(reader)?,
        version_max: reader.u64()?,
    })
}

fn decode_stat(reader: &mut ByteReader<'_>) -> Result<Request, BytesFault> {
    let epoch = reader.u64()?;
    let key = BlockKey::decode(reader)?;
    Ok(Request::Stat { epoch, key })
}

fn decode_locate(reader: &mut ByteReader<'_>) -> Result<Request, BytesFault> {
    let epoch = reader.u64()?;
    let count = usize::from(reader.u16()?);
    if count > LOCATE_KEYS_MAX {
        return Err(BytesFault);
    }
    let keys: Result<_, _> = (0..count).map(|_| BlockKey::decode(reader)).collect();
    Ok(Request::Locate { epoch, keys: keys? })
}

fn encode_query(query: &ListQuery, out: &mut Vec<u8>) {
    put_text(out, &query.dataset);
    put_short(out, &query.name);
    out.push(u8::from(query.after.is_some()));
    if let Some(after) = &query.after {
        after.encode(out);
    }
    out.extend(query.blocks_max.to_le_bytes());
}

fn decode_list(reader: &mut ByteReader<'_>) -> Result<Request, BytesFault> {
    let epoch = reader.u64()?;
    let query = ListQuery {
        dataset: reader.text(DATASET_BYTES_MAX)?.to_owned(),
        name: reader.short(NAME_BYTES_MAX)?.to_vec(),
        after: match reader.flag()? {
            true => Some(BlockKey::decode(reader)?),
            false => None,
        },
        blocks_max: reader.u32()?,
    };
    Ok(Request::List { epoch, query })
}
