//! What is stored of a name: its kind, its attributes, and where the blocks of its bytes are.
//!
//! An entry is one block, so it is replaced whole, and with it the whole file. The blocks of a file
//! have numbers that are used once: they are never written again, only replaced by others.

use std::collections::BTreeMap;

/// Most blocks of a file.
pub(crate) const FILE_BLOCKS_MAX: u64 = 1 << 20;
/// Bytes of the largest file: where the numbers of the kernel end.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Bytes of the smallest blocks that files may have.
pub(crate) const BLOCK_BYTES_MIN: u64 = 4 << 10;
/// Bytes of the largest blocks that files may have.
pub(crate) const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the longest target of a symbolic link: one less than `PATH_MAX`.
pub(crate) const TARGET_BYTES_MAX: usize = 4_095;

const MAGIC: [u8; 4] = *b"BSF1";

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
}

/// The names in a directory, with their kinds.
pub(crate) type Names = Vec<(Vec<u8>, Kind)>;

/// The name of a block of a file: its writer, and the number that the writer has given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockRef {
    pub(crate) writer: u128,
    pub(crate) number: u64,
}

/// What is stored of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// The permission bits.
    pub(crate) mode: u16,
    pub(crate) mtime_ns: i64,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// Bytes of its blocks; the last bytes of a block are not stored if they are zero.
    pub(crate) block_bytes: u64,
    /// The number of the file, which it keeps when it is renamed.
    pub(crate) id: u128,
    /// The path to which it is being renamed: it is there if the entry of that path has its number.
    pub(crate) moving_to: Vec<u8>,
    /// The path that it had before; a former entry may still be there.
    pub(crate) moved_from: Vec<u8>,
    /// The blocks by their place in the file. Where there is none, the file has zeros.
    pub(crate) blocks: BTreeMap<u64, BlockRef>,
    /// The target of a symbolic link.
    pub(crate) target: Vec<u8>,
}

impl Entry {
    pub(crate) fn new(kind: Kind, mode: u16, mtime_ns: i64, block_bytes: u64, id: u128) -> Self {
        Self {
            kind,
            mode,
            mtime_ns,
            size: 0,
            block_bytes,
            id,
            moving_to: Vec::new(),
            moved_from: Vec::new(),
            blocks: BTreeMap::new(),
            target: Vec::new(),
        }
    }

    /// The entry as bytes. Blocks that follow each other and were written one after the other are
    /// one run.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(self.kind.number() as u8);
        out.extend(self.mode.to_le_bytes());
        out.extend(self.mtime_ns.to_le_bytes());
        out.extend(self.size.to_le_bytes());
        out.extend(self.block_bytes.to_le_bytes());
        out.extend(self.id.to_le_bytes());
        for bytes in [&self.moving_to, &self.moved_from, &self.target] {
            out.extend((bytes.len() as u16).to_le_bytes());
            out.extend(bytes);
        }
        for (first, count, block) in self.runs() {
            out.extend(first.to_le_bytes());
            out.extend(count.to_le_bytes());
            out.extend(block.writer.to_le_bytes());
            out.extend(block.number.to_le_bytes());
        }
        out
    }

    fn runs(&self) -> Vec<(u64, u64, BlockRef)> {
        let mut runs: Vec<(u64, u64, BlockRef)> = Vec::new();
        for (index, block) in &self.blocks {
            match runs.last_mut() {
                Some((first, count, of))
                    if *first + *count == *index
                        && of.writer == block.writer
                        && of.number.checked_add(*count) == Some(block.number) =>
                {
                    *count += 1;
                }
                _ => runs.push((*index, 1, *block)),
            }
        }
        runs
    }

    /// The entry of foreign bytes; `None` if they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        if take(&mut rest)? != MAGIC {
            return None;
        }
        let [kind] = take(&mut rest)?;
        let mut entry = Self {
            kind: Kind::of_number(kind.into())?,
            mode: u16::from_le_bytes(take(&mut rest)?) & 0o7777,
            mtime_ns: i64::from_le_bytes(take(&mut rest)?),
            size: u64::from_le_bytes(take(&mut rest)?),
            block_bytes: u64::from_le_bytes(take(&mut rest)?),
            id: u128::from_le_bytes(take(&mut rest)?),
            moving_to: short(&mut rest)?,
            moved_from: short(&mut rest)?,
            target: short(&mut rest)?,
            blocks: BTreeMap::new(),
        };
        if entry.size > FILE_BYTES_MAX
            || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&entry.block_bytes)
        {
            return None;
        }
        let (mut from, end) = (0, entry.size.div_ceil(entry.block_bytes));
        let mut blocks = 0_u64;
        while !rest.is_empty() {
            let first = u64::from_le_bytes(take(&mut rest)?);
            let count = u64::from_le_bytes(take(&mut rest)?);
            let writer = u128::from_le_bytes(take(&mut rest)?);
            let number = u64::from_le_bytes(take(&mut rest)?);
            blocks = blocks.checked_add(count)?;
            let behind = first.checked_add(count)?;
            let is_sound = first >= from && count > 0 && behind <= end;
            if !is_sound || blocks > FILE_BLOCKS_MAX || number.checked_add(count).is_none() {
                return None;
            }
            let numbered = (first..behind).zip(number..);
            let run = numbered.map(|(index, number)| (index, BlockRef { writer, number }));
            entry.blocks.extend(run);
            from = behind;
        }
        Some(entry)
    }
}

impl Kind {
    /// The number of the kind, in entries and in the two last bits of their versions.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::File => 0,
            Self::Directory => 1,
            Self::Link => 2,
        }
    }

    pub(crate) fn of_number(number: u64) -> Option<Self> {
        [Self::File, Self::Directory, Self::Link]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

fn short(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = u16::from_le_bytes(take(rest)?);
    let (taken, behind) = rest.split_at_checked(length.into())?;
    *rest = behind;
    Some(taken.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let mut entry = Entry::new(Kind::File, 0o640, -5, 4_096, 77);
        entry.size = 40_000;
        entry.moved_from = b"a/\xff".to_vec();
        for (index, writer, number) in [(0, 1, 10), (1, 1, 11), (3, 1, 13), (4, 2, 14), (9, 2, 15)]
        {
            entry.blocks.insert(index, BlockRef { writer, number });
        }
        entry
    }

    #[test]
    fn entries_come_back_with_their_runs() {
        let entry = entry();
        assert_eq!(entry.runs().len(), 4);
        assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        let mut link = Entry::new(Kind::Link, 0o777, 1, 4_096, 1);
        link.target = b"../x".to_vec();
        assert_eq!(Entry::decode(&link.encode()), Some(link));
    }

    #[test]
    fn bytes_of_strangers_are_no_entries() {
        let good = entry().encode();
        let head = good.len() - 4 * 40;
        for cut in (0..good.len()).filter(|cut| *cut < head || !(cut - head).is_multiple_of(40)) {
            assert_eq!(Entry::decode(&good[..cut]), None, "{cut} bytes");
        }
        for (what, place, byte) in [
            ("another magic", 0, b'X'),
            ("no kind", 4, 3),
            ("a size beyond all numbers", 22, 0xff),
            ("blocks of no size", 24, 0),
            ("a run behind the end", head + 120, 10),
            ("a run before the one before it", head + 40, 1),
            ("an empty run", head + 8, 0),
            ("more blocks than a file may have", head + 15, 1),
        ] {
            let mut bytes = good.clone();
            bytes[place] = byte;
            assert_eq!(Entry::decode(&bytes), None, "{what}");
        }
    }
}
