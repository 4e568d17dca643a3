//! The seal of Parquet's footer: a checksum of the footer among its own keys.
//!
//! This module stands alone because writing and checking must agree on the seal byte by byte, and
//! neither knows more of the footer. Parquet's footer has no checksum of its own, and most of its
//! bytes can be flipped so that one reader still accepts the file and another does not. The value
//! is written as zeros, and the checksum is that of the footer with those zeros.

use super::END_BYTES;

/// Key of the checksum in the footer.
pub(super) const KEY: &str = "barograph.footer";
/// Value of the key while the footer is written.
pub(super) const UNSEALED: &str = "00000000";
/// The bytes between key and value in Thrift's compact protocol: the next field, a text, of this
/// length.
const BETWEEN: [u8; 2] = [0x18, UNSEALED.len() as u8];

/// Writes the checksum into a footer; `bytes` end with the footer, its length and the file's magic.
/// Returns false if the footer has no place for it.
pub(super) fn seal(bytes: &mut [u8]) -> bool {
    let Some(end) = bytes.len().checked_sub(END_BYTES as usize) else {
        return false;
    };
    let length = bytes[end..]
        .first_chunk()
        .map(|four| u32::from_le_bytes(*four));
    let from = length.and_then(|length| end.checked_sub(length as usize));
    let Some(footer) = from.and_then(|from| bytes.get_mut(from..end)) else {
        return false;
    };
    let Some(at) = place(footer) else {
        return false;
    };
    let sum = sum(footer, at);
    footer[at..at + UNSEALED.len()].copy_from_slice(sum.as_bytes());
    true
}

/// Whether a footer is as it was sealed; `None` if it has no seal, as in files of older versions.
pub(super) fn is_whole(footer: &[u8]) -> Option<bool> {
    let at = place(footer)?;
    Some(footer[at..at + UNSEALED.len()] == *sum(footer, at).as_bytes())
}

/// Returns the offset of the value: after the last such key, since earlier ones may be part of a
/// text.
fn place(footer: &[u8]) -> Option<usize> {
    let key = [KEY.as_bytes(), &BETWEEN].concat();
    let at = footer.windows(key.len()).rposition(|bytes| bytes == key)? + key.len();
    (footer.len() >= at + UNSEALED.len()).then_some(at)
}

/// Returns the CRC-32 of the footer with zeros for its value, formatted as the value.
fn sum(footer: &[u8], at: usize) -> String {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&footer[..at]);
    crc.update(UNSEALED.as_bytes());
    crc.update(&footer[at + UNSEALED.len()..]);
    format!("{:08x}", crc.finalize())
}
