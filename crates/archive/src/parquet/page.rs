//! The pages of one column chunk: their headers are parsed, and they are unpacked, under bounds.
//!
//! The `parquet` crate has such a reader, but it trusts the sizes in a header, so that a file of a
//! few bytes can ask for gigabytes. Here a page that is longer than its rows allow is an error.

use ::parquet::basic::Encoding;
use ::parquet::column::page::{Page, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result};
use bytes::Bytes;

/// Most bytes of a page after unpacking: row groups are written with fewer.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// Greatest depth of nested structures that are skipped in a header.
const NEST_MAX: u32 = 8;

/// A reader of the pages of a chunk, compressed with zstd.
pub(super) struct ChunkPages {
    bytes: Bytes,
    /// Rows that data pages may still have.
    rows_left: u32,
    /// The header of the page at the beginning of `bytes`, once it was read.
    next: Option<Header>,
    zstd: zstd::bulk::Decompressor<'static>,
}

/// A summary of the pages of a chunk.
#[derive(Debug, Default)]
pub(super) struct PagesSummary {
    /// Bytes of the headers, and of the unpacked pages.
    pub plain_bytes: i64,
    /// Bytes of the dictionary page in the file; 0 without one.
    pub dictionary_bytes: u64,
    /// Encodings of the values.
    pub encodings: Vec<Encoding>,
}

/// The fields of a page's header that are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    /// Kind of the page: 0 is data, 2 a dictionary.
    kind: i64,
    plain_bytes: i64,
    packed_bytes: i64,
    values: i64,
    encoding: i64,
    /// Size of the header itself, in bytes.
    bytes: usize,
}

const DATA: i64 = 0;
const DICTIONARY: i64 = 2;

impl ChunkPages {
    /// Returns a reader of the pages of a chunk of so many rows.
    pub(super) fn new(bytes: Bytes, rows: u32) -> std::io::Result<Self> {
        Ok(Self {
            bytes,
            rows_left: rows,
            next: None,
            zstd: zstd::bulk::Decompressor::new()?,
        })
    }

    /// Returns the summary of the chunk, from the headers of its pages.
    pub(super) fn written(mut self) -> Result<PagesSummary> {
        let mut written = PagesSummary::default();
        while let Some(header) = self.peek()? {
            let bytes = header.bytes as i64;
            written.plain_bytes += bytes + header.plain_bytes;
            if header.kind == DICTIONARY {
                written.dictionary_bytes += (bytes + header.packed_bytes) as u64;
            }
            let encoding = encoding(header.encoding)?;
            if !written.encodings.contains(&encoding) {
                written.encodings.push(encoding);
            }
            self.pass(header);
        }
        Ok(written)
    }

    /// Returns the header of the next page.
    fn peek(&mut self) -> Result<Option<Header>> {
        if self.next.is_none() && !self.bytes.is_empty() {
            let header =
                Header::read(&self.bytes).ok_or_else(|| bad("a page has a wrong header"))?;
            let packed = usize::try_from(header.packed_bytes).unwrap_or(usize::MAX);
            let plain = usize::try_from(header.plain_bytes).unwrap_or(usize::MAX);
            let room = self.bytes.len() - header.bytes;
            if packed > room || plain > PAGE_BYTES_MAX {
                return Err(bad("a page is larger than its column"));
            }
            if !(0..=i64::from(self.rows_left)).contains(&header.values) {
                return Err(bad("a page has more rows than its row group"));
            }
            self.next = Some(header);
        }
        Ok(self.next)
    }

    /// Skips the next page, and returns its packed bytes.
    fn pass(&mut self, header: Header) -> Bytes {
        if header.kind == DATA {
            self.rows_left -= header.values as u32;
        }
        let end = header.bytes + header.packed_bytes as usize;
        let page = self.bytes.split_to(end);
        self.next = None;
        page.slice(header.bytes..)
    }
}

impl PageReader for ChunkPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(header) = self.peek()? else {
            return Ok(None);
        };
        let packed = self.pass(header);
        let plain_bytes = header.plain_bytes as usize;
        let plain = self.zstd.decompress(&packed, plain_bytes);
        let plain = plain.map_err(|e| bad(&format!("a page cannot be unpacked: {e}")))?;
        if plain.len() != plain_bytes {
            return Err(bad("a page has another size than its header says"));
        }
        let (buf, num_values) = (Bytes::from(plain), header.values as u32);
        let encoding = encoding(header.encoding)?;
        Ok(Some(if header.kind == DICTIONARY {
            Page::DictionaryPage {
                buf,
                num_values,
                encoding,
                is_sorted: false,
            }
        } else {
            Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            }
        }))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Ok(self.peek()?.map(|header| PageMetadata {
            num_rows: None,
            num_levels: (header.kind == DATA).then_some(header.values as usize),
            is_dict: header.kind == DICTIONARY,
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if let Some(header) = self.peek()? {
            self.pass(header);
        }
        Ok(())
    }
}

impl Iterator for ChunkPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn bad(reason: &str) -> ParquetError {
    ParquetError::General(reason.into())
}

/// Returns the encoding of a code; only the encodings that we write are accepted.
fn encoding(code: i64) -> Result<Encoding> {
    Ok(match code {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        5 => Encoding::DELTA_BINARY_PACKED,
        8 => Encoding::RLE_DICTIONARY,
        _ => return Err(bad(&format!("a page has the unexpected encoding {code}"))),
    })
}

impl Header {
    /// Parses the header at the beginning of `bytes`, in Thrift's compact protocol (parquet.thrift,
    /// PageHeader).
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut cut = Thrift(bytes);
        let mut header = Self {
            kind: -1,
            plain_bytes: -1,
            packed_bytes: -1,
            values: -1,
            encoding: -1,
            bytes: 0,
        };
        let mut id = 0;
        while let Some(field) = cut.field(&mut id)? {
            match (id, field) {
                (1, INT) => header.kind = cut.int()?,
                (2, INT) => header.plain_bytes = cut.int()?,
                (3, INT) => header.packed_bytes = cut.int()?,
                // The header of a data page, or of a dictionary: values and encoding come first.
                (5 | 7, STRUCT) => {
                    let mut id = 0;
                    while let Some(field) = cut.field(&mut id)? {
                        match (id, field) {
                            (1, INT) => header.values = cut.int()?,
                            (2, INT) => header.encoding = cut.int()?,
                            _ => cut.skip(field, 0)?,
                        }
                    }
                }
                _ => cut.skip(field, 0)?,
            }
        }
        header.bytes = bytes.len() - cut.0.len();
        let known = [DATA, DICTIONARY].contains(&header.kind);
        let whole = header.plain_bytes >= 0 && header.packed_bytes >= 0 && header.values >= 0;
        (known && whole).then_some(header)
    }
}

const INT: u8 = 5;
const STRUCT: u8 = 12;

/// The rest of a message in Thrift's compact protocol.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut cut = barograph_stream::bytes::ByteReader::new(self.0);
        let v = cut.u64()?;
        self.0 = &self.0[self.0.len() - cut.len()..];
        Some(v)
    }

    fn int(&mut self) -> Option<i64> {
        let v = self.varint()?;
        Some((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// Returns the next field's type, and sets `id`; `None` at the end of the struct.
    fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *id = match byte >> 4 {
            0 => self.int()?,
            delta => id.checked_add(i64::from(delta))?,
        };
        Some(Some(byte & 0xF))
    }

    fn skip(&mut self, field: u8, nested: u32) -> Option<()> {
        match field {
            // True and false are in the type.
            1 | 2 => {}
            3 => {
                self.byte()?;
            }
            4..=6 => {
                self.varint()?;
            }
            7 => self.pass(8)?,
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.pass(length)?;
            }
            STRUCT if nested < NEST_MAX => {
                let mut id = 0;
                while let Some(field) = self.field(&mut id)? {
                    self.skip(field, nested + 1)?;
                }
            }
            // Lists, sets and maps: no header that we write has one.
            _ => return None,
        }
        Some(())
    }

    fn pass(&mut self, length: usize) -> Option<()> {
        self.0 = self.0.get(length..)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a data page: 3 rows in 24 bytes, packed to 9, encoded plain. An unknown text
    /// field and the statistics are skipped.
    const HEADER: &[u8] = &[
        0x15, 0, 0x15, 48, 0x15, 18, 0x2C, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0x1C, 0x18, 1, b'x',
        0, 0, 0x58, 2, b'a', b'b', 0,
    ];

    #[test]
    fn a_header() {
        let expect = Header {
            kind: DATA,
            plain_bytes: 24,
            packed_bytes: 9,
            values: 3,
            encoding: 0,
            bytes: HEADER.len(),
        };
        assert_eq!(Header::read(HEADER), Some(expect));
        for cut in 0..HEADER.len() {
            assert_eq!(Header::read(&HEADER[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn headers_that_lie() {
        let said = |at: usize, byte: u8, rows: u32| {
            let mut bytes = HEADER.to_vec();
            bytes[at] = byte;
            bytes.extend([0; 9]);
            let mut pages = ChunkPages::new(bytes.into(), rows).unwrap();
            pages.get_next_page().unwrap_err().to_string()
        };
        insta::assert_snapshot!(said(5, 20, 3), @"Parquet error: a page is larger than its column");
        insta::assert_snapshot!(said(5, 18, 2), @"Parquet error: a page has more rows than its row group");
        insta::assert_snapshot!(said(5, 17, 3), @"Parquet error: a page has a wrong header");
        insta::assert_snapshot!(said(1, 6, 3), @"Parquet error: a page has a wrong header");
        insta::assert_snapshot!(said(5, 18, 3), @"Parquet error: a page cannot be unpacked: Unknown frame descriptor");
    }
}
