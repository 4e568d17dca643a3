//! The header of a frame: 56 bytes, with a checksum over the whole frame.

use barograph_stream::Incarnation;

use super::fault::FrameFault;
use super::layout::{FRAME_BYTES_MAX, HEADER_BYTES, VERSION};

/// First four bytes of every frame.
const MAGIC: [u8; 4] = *b"BARO";
const VERSION_AT: usize = 4;
const KIND_AT: usize = 5;
const CRC_AT: usize = 8;
const BODY_BYTES_AT: usize = 12;
const INCARNATION_AT: usize = 16;
const FEED_AT: usize = 32;
const NUMBER_AT: usize = 40;
const SENT_AT: usize = 48;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Samples of streams, with the announcements of these streams: from their owner to a
    /// subscriber.
    Samples = 1,
    /// The request of a subscriber for a feed.
    Subscribe = 2,
    /// The number of the newest frame that a subscriber has taken in.
    Acknowledge = 3,
    /// The end of a feed: the subscriber wants no more of it.
    Unsubscribe = 4,
}

impl FrameKind {
    fn from_u8(code: u8) -> Result<Self, FrameFault> {
        match code {
            1 => Ok(Self::Samples),
            2 => Ok(Self::Subscribe),
            3 => Ok(Self::Acknowledge),
            4 => Ok(Self::Unsubscribe),
            kind => Err(FrameFault::Kind { kind }),
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The content of the frame.
    pub kind: FrameKind,
    /// Incarnation of the sender's segment: a restarted agent has another one.
    pub incarnation: Incarnation,
    /// Number of the feed, which its subscriber has chosen. References belong to one feed.
    pub feed: u64,
    /// Number of the frame in its feed, from 1, so that a missing number is a lost frame. In an
    /// acknowledgement: the number of the newest frame that was taken in.
    pub number: u64,
    /// The sender's wall-clock time at which the frame was sent, ns since the epoch.
    pub sent_ns: i64,
}

impl FrameHeader {
    /// Writes the header over the first [`HEADER_BYTES`] of a frame whose body is complete.
    pub(super) fn seal(&self, frame: &mut [u8]) {
        let body_bytes = (frame.len() - HEADER_BYTES) as u32;
        frame[..HEADER_BYTES].fill(0);
        frame[..4].copy_from_slice(&MAGIC);
        frame[VERSION_AT] = VERSION;
        frame[KIND_AT] = self.kind as u8;
        frame[BODY_BYTES_AT..][..4].copy_from_slice(&body_bytes.to_le_bytes());
        frame[INCARNATION_AT..][..16].copy_from_slice(&self.incarnation.0);
        frame[FEED_AT..][..8].copy_from_slice(&self.feed.to_le_bytes());
        frame[NUMBER_AT..][..8].copy_from_slice(&self.number.to_le_bytes());
        frame[SENT_AT..][..8].copy_from_slice(&self.sent_ns.to_le_bytes());
        let crc = crc32fast::hash(&frame[BODY_BYTES_AT..]);
        frame[CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header, and returns it with the body. The checksum covers all that follows it, so
    /// the version and kind before it are judged first: a later version may have another checksum.
    pub fn read(frame: &[u8]) -> Result<(Self, &[u8]), FrameFault> {
        if !frame.starts_with(&MAGIC) {
            return Err(FrameFault::Foreign);
        }
        if frame.len() > FRAME_BYTES_MAX {
            let bytes = frame.len();
            return Err(FrameFault::Large { bytes });
        }
        let Some((header, body)) = frame.split_at_checked(HEADER_BYTES) else {
            return Err(FrameFault::Damaged);
        };
        let version = header[VERSION_AT];
        if version > VERSION {
            return Err(FrameFault::Newer { version });
        }
        let crc = crc32fast::hash(&frame[BODY_BYTES_AT..]);
        let is_whole = u32_at(header, BODY_BYTES_AT) as usize == body.len();
        if version == 0 || !is_whole || u32_at(header, CRC_AT) != crc {
            return Err(FrameFault::Damaged);
        }
        let mut incarnation = [0; 16];
        incarnation.copy_from_slice(&header[INCARNATION_AT..][..16]);
        let header = Self {
            kind: FrameKind::from_u8(header[KIND_AT])?,
            incarnation: Incarnation(incarnation),
            feed: u64_at(header, FEED_AT),
            number: u64_at(header, NUMBER_AT),
            sent_ns: u64_at(header, SENT_AT) as i64,
        };
        Ok((header, body))
    }
}

/// Whether a frame says of itself that it has samples: its receiver is then a subscriber, and else
/// a publisher. Nothing of it has been checked.
pub fn is_of_samples(frame: &[u8]) -> bool {
    frame.get(KIND_AT) == Some(&(FrameKind::Samples as u8))
}

/// The feed that a frame says it is of; 0 if it is too short. Nothing of it has been checked.
pub(crate) fn feed_of(frame: &[u8]) -> u64 {
    match frame.len() < HEADER_BYTES {
        true => 0,
        false => u64_at(frame, FEED_AT),
    }
}

/// Makes a frame that is its header alone, such as an acknowledgement.
pub fn empty_frame(header: &FrameHeader) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    header.seal(&mut frame);
    frame
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..][..4]);
    u32::from_le_bytes(four)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..][..8]);
    u64::from_le_bytes(eight)
}
