//! A walk through the frames of a file in order, with a buffer of a fixed size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::format::{FRAME_BYTES, FrameHeader, PAYLOAD_BYTES_MAX, ParsedFrame};

/// Largest read in bytes: the longest frame fits.
const BUFFER_BYTES: usize = 1 << 20;
/// Frames begin at multiples of this number of bytes.
const FRAME_STEP: u64 = 8;
const _: () = assert!(BUFFER_BYTES >= FRAME_BYTES + PAYLOAD_BYTES_MAX);

/// Calls `each` for every good frame between `from` and `length`, with its offset and its size in
/// bytes. The walk ends at the first frame that is torn, damaged, or refused by `each`; the reason
/// is returned.
pub(crate) fn frames(
    file: &File,
    from: u64,
    length: u64,
    mut each: impl FnMut(u64, FrameHeader, &[u8], usize) -> Result<(), &'static str>,
) -> io::Result<&'static str> {
    let left = usize::try_from(length.saturating_sub(from)).unwrap_or(usize::MAX);
    let mut buffer = vec![0; left.min(BUFFER_BYTES)];
    let (mut end, mut held) = (from, 0);
    loop {
        let at = end + held as u64;
        let room = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX);
        let room = room.min(buffer.len() - held);
        let read = read_some(file, &mut buffer[held..held + room], at)?;
        held += read;
        let mut used = 0;
        let why = loop {
            match FrameHeader::parse(&buffer[used..held]) {
                ParsedFrame::Whole(frame, payload, bytes) => {
                    if let Err(why) = each(end, frame, payload, bytes) {
                        break Some(why);
                    }
                    used += bytes;
                    end += bytes as u64;
                }
                ParsedFrame::Bad(why) => break Some(why),
                ParsedFrame::Short(_) if read == 0 => break Some("a frame is not whole"),
                ParsedFrame::Short(_) => break None,
            }
        };
        if let Some(why) = why {
            return Ok(why);
        }
        buffer.copy_within(used..held, 0);
        held -= used;
    }
}

/// Whether a whole frame that is not empty begins after `from`, at any offset where one can begin.
pub(crate) fn any_frame(file: &File, from: u64, length: u64) -> io::Result<bool> {
    let (mut buffer, mut at) = (vec![0; BUFFER_BYTES], from + FRAME_STEP);
    while at < length {
        let room = usize::try_from(length - at).unwrap_or(usize::MAX);
        let room = room.min(BUFFER_BYTES);
        let mut held = 0;
        while held < room {
            match read_some(file, &mut buffer[held..room], at + held as u64)? {
                0 => break,
                read => held += read,
            }
        }
        let is_last = at + held as u64 >= length || held < room;
        let mut used = 0;
        while used < held {
            match FrameHeader::parse(&buffer[used..held]) {
                // Zeros are not a frame: their checksum is not zero.
                ParsedFrame::Whole(..) => return Ok(true),
                // The frame may continue after the buffer, which holds the longest frame from its
                // beginning.
                ParsedFrame::Short(_) if used > 0 && !is_last => break,
                ParsedFrame::Short(_) | ParsedFrame::Bad(_) => used += FRAME_STEP as usize,
            }
        }
        if is_last {
            break;
        }
        at += used as u64;
    }
    Ok(false)
}

fn read_some(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
