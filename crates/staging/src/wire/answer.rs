//! What servers answer.

use super::frame::{PROTOCOL, WireFault, framed};
use super::request::LOCATE_KEYS_MAX;
use crate::block::{BlockInfo, UserId};
use crate::bytes::{ByteReader, BytesFault, put_text};
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;
use crate::read_times::ReadCost;
use crate::status::ServerStatus;
use crate::store::ListPage;

const WELCOME: u8 = 129;
const GO: u8 = 130;
const INFO: u8 = 131;
const BLOCK: u8 = 132;
const PLACE: u8 = 133;
const DELETED: u8 = 134;
const PAGE: u8 = 135;
const FAULT: u8 = 136;
const STATUS: u8 = 137;
const PLACES: u8 = 138;
/// Bytes of the longest text of a fault.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Most blocks of a page in a frame.
const PAGE_BLOCKS_MAX: u32 = 1_000;
/// Most tiers of which the costs are told, and bytes of the longest path of one.
const TIERS_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 256;

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version of the protocol.
    pub protocol: u16,
    /// The user whom the server sees.
    pub user: UserId,
    /// If the memory file of the user comes with this frame: its bytes and its slots.
    pub memory: Option<(u64, u32)>,
}

/// Where a block is in its user's memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlace {
    /// The first byte.
    pub at: u64,
    /// The slot.
    pub slot: u32,
    /// The number that the slot has while the block is there.
    pub generation: u64,
}

/// A tier of a server, as it is told to those who ask where blocks are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocatedTier {
    /// Its directory; `None` for memory, and for other users than the server's own and root.
    pub path: Option<String>,
    /// What its reads cost over this kind of socket; `None` before the first.
    pub cost: Option<ReadCost>,
}

/// What a server knows of many blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocatedBlocks {
    /// Its tiers: memory first.
    pub tiers: Vec<LocatedTier>,
    /// The blocks, in the order of the question; `None` for one that is not here.
    pub blocks: Vec<Option<BlockInfo>>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The connection holds.
    Welcome(Welcome),
    /// The bytes of the block may be sent.
    Go,
    /// The block is taken, or what is known of it.
    Info(BlockInfo),
    /// Bytes of a block follow.
    Block {
        /// What is known of it.
        info: BlockInfo,
        /// How many bytes follow.
        bytes: u64,
    },
    /// The block is in the memory file.
    Place {
        /// What is known of it.
        info: BlockInfo,
        /// Where it is.
        place: MemoryPlace,
    },
    /// The block is deleted.
    Deleted {
        /// Its version.
        version: u64,
    },
    /// A page of a list.
    Page(ListPage),
    /// Which of many blocks are here.
    Places(LocatedBlocks),
    /// What the server tells of itself.
    Status(Box<ServerStatus>),
    /// The request is refused.
    Fault {
        /// The kind of the fault.
        code: FaultCode,
        /// The number that belongs to it.
        number: u64,
        /// What happened.
        text: String,
    },
}

impl Welcome {
    /// The answer of a server of this version.
    pub fn new(user: UserId, memory: Option<(u64, u32)>) -> Self {
        Self {
            protocol: PROTOCOL,
            user,
            memory,
        }
    }
}

impl Answer {
    /// The answer that tells an error.
    pub fn of_error(error: &StagingError) -> Self {
        Self::Fault {
            code: error.code().unwrap_or(FaultCode::Disk),
            number: error.number(),
            text: error.to_string(),
        }
    }

    /// The answer as a frame.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome(welcome) => framed(WELCOME, |out| {
                out.extend(welcome.protocol.to_le_bytes());
                out.extend(welcome.user.to_le_bytes());
                out.push(u8::from(welcome.memory.is_some()));
                let (bytes, slots) = welcome.memory.unwrap_or_default();
                out.extend(bytes.to_le_bytes());
                out.extend(slots.to_le_bytes());
            }),
            Self::Go => framed(GO, |_| ()),
            Self::Info(info) => framed(INFO, |out| info.encode(out)),
            Self::Block { info, bytes } => framed(BLOCK, |out| {
                info.encode(out);
                out.extend(bytes.to_le_bytes());
            }),
            Self::Place { info, place } => framed(PLACE, |out| {
                info.encode(out);
                out.extend(place.at.to_le_bytes());
                out.extend(place.slot.to_le_bytes());
                out.extend(place.generation.to_le_bytes());
            }),
            Self::Status(status) => framed(STATUS, |out| status.encode(out)),
            Self::Places(located) => framed(PLACES, |out| encode_located(located, out)),
            Self::Deleted { version } => framed(DELETED, |out| out.extend(version.to_le_bytes())),
            Self::Page(page) => framed(PAGE, |out| encode_page(page, out)),
            Self::Fault { code, number, text } => framed(FAULT, |out| {
                out.extend((*code as u16).to_le_bytes());
                out.extend(number.to_le_bytes());
                put_text(out, &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
            }),
        }
    }

    /// An answer, from the kind and body of its frame.
    ///
    /// # Errors
    ///
    /// The frame is no answer.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireFault> {
        let mut reader = ByteReader::new(body);
        let answer = match kind {
            WELCOME => decode_welcome(&mut reader),
            GO => Ok(Self::Go),
            INFO => BlockInfo::decode(&mut reader).map(Self::Info),
            BLOCK => decode_block(&mut reader),
            PLACE => decode_place(&mut reader),
            DELETED => reader.u64().map(|version| Self::Deleted { version }),
            PAGE => decode_page(&mut reader).map(Self::Page),
            PLACES => decode_located(&mut reader).map(Self::Places),
            STATUS => ServerStatus::decode(&mut reader).map(|it| Self::Status(it.into())),
            FAULT => decode_fault(&mut reader),
            _ => return Err(WireFault::Kind(kind)),
        };
        let answer = answer.and_then(|answer| reader.end().map(|()| answer));
        answer.map_err(WireFault::body(kind))
    }
}

fn decode_welcome(reader: &mut ByteReader<'_>) -> Result<Answer, BytesFault> {
    let (protocol, user, has_memory) = (reader.u16()?, reader.u32()?, reader.flag()?);
    let memory = (reader.u64()?, reader.u32()?);
    Ok(Answer::Welcome(Welcome {
        protocol,
        user,
        memory: has_memory.then_some(memory),
    }))
}

fn decode_block(reader: &mut ByteReader<'_>) -> Result<Answer, BytesFault> {
    let info = BlockInfo::decode(reader)?;
    let bytes = reader.u64()?;
    match bytes <= info.bytes {
        true => Ok(Answer::Block { info, bytes }),
        false => Err(BytesFault),
    }
}

fn decode_place(reader: &mut ByteReader<'_>) -> Result<Answer, BytesFault> {
    let info = BlockInfo::decode(reader)?;
    let place = MemoryPlace {
        at: reader.u64()?,
        slot: reader.u32()?,
        generation: reader.u64()?,
    };
    Ok(Answer::Place { info, place })
}

fn encode_page(page: &ListPage, out: &mut Vec<u8>) {
    let blocks = u32::try_from(page.blocks.len()).expect("pages are bounded by the store");
    out.extend(blocks.to_le_bytes());
    for (key, info) in &page.blocks {
        key.encode(out);
        info.encode(out);
    }
    out.push(u8::from(page.next.is_some()));
    if let Some(next) = &page.next {
        next.encode(out);
    }
}

fn decode_page(reader: &mut ByteReader<'_>) -> Result<ListPage, BytesFault> {
    let blocks = reader.u32()?;
    if blocks > PAGE_BLOCKS_MAX {
        return Err(BytesFault);
    }
    let mut page = ListPage::default();
    for _ in 0..blocks {
        let key = BlockKey::decode(reader)?;
        page.blocks.push((key, BlockInfo::decode(reader)?));
    }
    if reader.flag()? {
        page.next = Some(BlockKey::decode(reader)?);
    }
    Ok(page)
}

fn encode_located(located: &LocatedBlocks, out: &mut Vec<u8>) {
    let tiers = &located.tiers[..located.tiers.len().min(TIERS_MAX)];
    out.push(tiers.len() as u8);
    for tier in tiers {
        let path = tier.path.as_deref().unwrap_or_default();
        out.push(u8::from(tier.path.is_some()));
        put_text(out, &path[..path.floor_char_boundary(PATH_BYTES_MAX)]);
        ReadCost::encode(tier.cost, out);
    }
    let count = u16::try_from(located.blocks.len()).expect("questions are bounded");
    out.extend(count.to_le_bytes());
    for block in &located.blocks {
        out.push(u8::from(block.is_some()));
        if let Some(info) = block {
            info.encode(out);
        }
    }
}

fn decode_located(reader: &mut ByteReader<'_>) -> Result<LocatedBlocks, BytesFault> {
    let mut located = LocatedBlocks::default();
    let tiers = usize::from(reader.u8()?);
    if tiers > TIERS_MAX {
        return Err(BytesFault);
    }
    for _ in 0..tiers {
        let is_told = reader.flag()?;
        let path = reader.text(PATH_BYTES_MAX)?;
        located.tiers.push(LocatedTier {
            path: is_told.then(|| path.to_owned()),
            cost: ReadCost::decode(reader)?,
        });
    }
    let count = usize::from(reader.u16()?);
    if count > LOCATE_KEYS_MAX {
        return Err(BytesFault);
    }
    for _ in 0..count {
        let info = match reader.flag()? {
            true => Some(BlockInfo::decode(reader)?),
            false => None,
        };
        located.blocks.push(info);
    }
    Ok(located)
}

fn decode_fault(reader: &mut ByteReader<'_>) -> Result<Answer, BytesFault> {
    Ok(Answer::Fault {
        code: FaultCode::of_number(reader.u16()?).ok_or(BytesFault)?,
        number: reader.u64()?,
        text: reader.text(TEXT_BYTES_MAX)?.to_owned(),
    })
}
