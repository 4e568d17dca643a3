//! Parquet files that lie: bytes of the index and of pages are changed, and all checksums are made to hold.
//!
//! Written from archive-format.md alone; it shares no code with the reader. Used by the tests and by the
//! fuzz target.

const TAIL_BYTES: usize = 28;
const RAW_COLUMNS: usize = 11;
const TIER_COLUMNS: usize = 13;

/// Writes bytes at places (modulo the length) of the unpacked index and of the column chunks.
pub fn forge(whole: &[u8], index: &[(u16, u8)], pages: &[(u16, u8)]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let footer_at = whole.len() - 8 - word(whole.len() - 8);
    let tail_at = footer_at - TAIL_BYTES;
    let data_end = tail_at - word(tail_at);
    let mut plain = zstd::bulk::decompress(&whole[data_end..tail_at], word(tail_at + 4)).unwrap();
    let mut file = whole[..data_end].to_vec();
    for (at, byte) in pages {
        let at = usize::from(*at) % (data_end - 4) + 4;
        file[at] = *byte;
    }
    mend(&mut plain, &file);
    for (at, byte) in index {
        let at = usize::from(*at) % plain.len();
        plain[at] = *byte;
    }
    let packed = zstd::bulk::compress(&plain, 3).unwrap();
    let mut tail = Vec::new();
    let sizes = [packed.len() as u32, plain.len() as u32];
    for word in [sizes[0], sizes[1], crc32fast::hash(&packed), 1] {
        tail.extend(word.to_le_bytes());
    }
    tail.extend(crc32fast::hash(&tail).to_le_bytes());
    tail.extend(b"BAROINDX");
    file.extend(packed);
    file.extend(tail);
    file.extend(&whole[footer_at..]);
    file
}

/// Puts the checksums of the column chunks into the index.
fn mend(plain: &mut [u8], file: &[u8]) {
    let mut at = 0;
    let node = varint(plain, &mut at);
    at += node;
    let tier = varint(plain, &mut at);
    let raw = &plain[at..at + tier] == b"raw";
    at += tier;
    let columns = if raw { RAW_COLUMNS } else { TIER_COLUMNS };
    varint(plain, &mut at);
    varint(plain, &mut at);
    for _ in 0..varint(plain, &mut at) {
        varint(plain, &mut at);
        for _ in 0..columns {
            let offset = varint(plain, &mut at);
            let length = varint(plain, &mut at);
            let crc = crc32fast::hash(&file[offset..offset + length]);
            plain[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            at += 4;
        }
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> usize {
    let mut v = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        v |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            break;
        }
    }
    v
}
