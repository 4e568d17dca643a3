//! Forged Parquet files: bytes of the index and of pages are changed, and all checksums are made to
//! hold.
//!
//! The code is written from archive-format.md alone and shares nothing with the reader. It is used
//! by the tests and by the fuzz target.

const TAIL_BYTES: usize = 28;
/// Number of columns by the version of the index.
const RAW_COLUMNS: [usize; 5] = [0, 11, 13, 13, 26];
const TIER_COLUMNS: usize = 13;

/// Writes bytes at offsets (modulo the length) of the unpacked index and of the column chunks.
pub(super) fn forge(whole: &[u8], index: &[(u16, u8)], pages: &[(u16, u8)]) -> Vec<u8> {
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
    let version = word(tail_at + 12);
    mend(&mut plain, &file, version);
    for (at, byte) in index {
        let at = usize::from(*at) % plain.len();
        plain[at] = *byte;
    }
    end(&mut file, &plain, version);
    file.extend(&whole[footer_at..]);
    file
}

/// Returns the raw file of numbers and texts in version 1 of the index: without the columns of
/// bytes and arrays, and without the bytes of each series. (The footer still has those columns; our
/// reader does not read it.)
pub(super) fn older(whole: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let footer_at = whole.len() - 8 - word(whole.len() - 8);
    let tail_at = footer_at - TAIL_BYTES;
    let data_end = tail_at - word(tail_at);
    assert_eq!(word(tail_at + 12), 3, "without columns of events");
    let plain = zstd::bulk::decompress(&whole[data_end..tail_at], word(tail_at + 4)).unwrap();
    let mut out = Vec::new();
    let (mut at, mut from) = (0, 0);
    let text = |at: &mut usize| {
        let length = varint(&plain, at);
        *at += length;
    };
    let numbers = |at: &mut usize, count: usize| {
        for _ in 0..count {
            varint(&plain, at);
        }
    };
    text(&mut at);
    text(&mut at);
    numbers(&mut at, 2);
    for _ in 0..varint(&plain, &mut at) {
        varint(&plain, &mut at);
        for column in 0..RAW_COLUMNS[2] {
            if column == RAW_COLUMNS[1] {
                out.extend(&plain[from..at]);
            }
            numbers(&mut at, 2);
            at += 4;
        }
        from = at;
    }
    for _ in 0..varint(&plain, &mut at) {
        at += 16;
        text(&mut at);
        let labels = varint(&plain, &mut at);
        for _ in 0..2 * labels + 2 {
            text(&mut at);
        }
        at += 2;
        numbers(&mut at, 3);
        at += 2;
        let lives = varint(&plain, &mut at);
        numbers(&mut at, 4 * lives);
        out.extend(&plain[from..at]);
        numbers(&mut at, 1);
        from = at;
    }
    assert_eq!(at, plain.len());
    let mut file = whole[..data_end].to_vec();
    end(&mut file, &out, 1);
    file.extend(&whole[footer_at..]);
    file
}

/// Returns the offset of the footer.
pub(super) fn footer_at(whole: &[u8]) -> usize {
    let length = whole[whole.len() - 8..].first_chunk().unwrap();
    whole.len() - 8 - u32::from_le_bytes(*length) as usize
}

/// Makes the checksum of a footer hold; one without its key stays as it is.
pub(super) fn reseal(footer: &mut [u8]) {
    let key = b"barograph.footer\x18\x08";
    let Some(at) = footer.windows(key.len()).rposition(|bytes| bytes == key) else {
        return;
    };
    let at = at + key.len();
    footer[at..at + 8].copy_from_slice(b"00000000");
    let crc = format!("{:08x}", crc32fast::hash(footer));
    footer[at..at + 8].copy_from_slice(crc.as_bytes());
}

/// Appends the index and its tail.
fn end(file: &mut Vec<u8>, plain: &[u8], version: usize) {
    let packed = zstd::bulk::compress(plain, 3).unwrap();
    let mut tail = Vec::new();
    let sizes = [packed.len() as u32, plain.len() as u32];
    let crc = crc32fast::hash(&packed);
    for word in [sizes[0], sizes[1], crc, version as u32] {
        tail.extend(word.to_le_bytes());
    }
    tail.extend(crc32fast::hash(&tail).to_le_bytes());
    tail.extend(b"BAROINDX");
    file.extend(packed);
    file.extend(tail);
}

/// Writes the checksums of the column chunks into the index.
fn mend(plain: &mut [u8], file: &[u8], version: usize) {
    let mut at = 0;
    let node = varint(plain, &mut at);
    at += node;
    let tier = varint(plain, &mut at);
    let raw = &plain[at..at + tier] == b"raw";
    at += tier;
    let columns = if raw {
        RAW_COLUMNS[version]
    } else {
        TIER_COLUMNS
    };
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
