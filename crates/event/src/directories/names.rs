//! The names of directories in blocks, each with its length before it.

/// The place of no name.
pub(super) const NAMELESS: u32 = u32::MAX;
/// Bytes of a block.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of names that are no longer used, from which on the names are to be written anew.
const WASTE_MIN: usize = 1 << 20;
/// The first byte of a length that has two more bytes.
const LONG: u8 = u8::MAX;

/// Names by their places, which are numbers of bytes.
#[derive(Debug, Default)]
pub(super) struct Names {
    blocks: Vec<Box<[u8]>>,
    /// Bytes of the last block that are used.
    filled: usize,
    /// Bytes of all names, and of those that are no longer used.
    written: usize,
    waste: usize,
}

impl Names {
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Whether so many names are no longer used that the others are to be written anew.
    pub(super) fn is_wasteful(&self) -> bool {
        self.waste > WASTE_MIN && self.waste > self.written / 2
    }

    /// The name at a place; `None` for [`NAMELESS`].
    pub(super) fn get(&self, at: u32) -> Option<&[u8]> {
        if at == NAMELESS {
            return None;
        }
        let at = at as usize;
        let (block, at) = (&self.blocks[at / BLOCK_BYTES], at % BLOCK_BYTES);
        let (length, start) = match block[at] {
            LONG => (u16::from_le_bytes([block[at + 1], block[at + 2]]), at + 3),
            length => (u16::from(length), at + 1),
        };
        Some(&block[start..start + usize::from(length)])
    }

    /// Adds a name, which is no longer than a path may be, and gives its place; `None` if there is
    /// no further place.
    pub(super) fn put(&mut self, name: &[u8]) -> Option<u32> {
        let bytes = stored_bytes(name);
        let is_new = self.blocks.is_empty() || self.filled + bytes > BLOCK_BYTES;
        let (block, at) = match is_new {
            true => (self.blocks.len(), 0),
            false => (self.blocks.len() - 1, self.filled),
        };
        let place = u32::try_from(block * BLOCK_BYTES + at).ok();
        let place = place.filter(|place| *place != NAMELESS)?;
        if is_new {
            self.blocks.push(vec![0; BLOCK_BYTES].into());
        }
        let into = &mut self.blocks[block][at..at + bytes];
        match u8::try_from(name.len()) {
            Ok(length) if length != LONG => into[0] = length,
            _ => {
                into[0] = LONG;
                into[1..3].copy_from_slice(&(name.len() as u16).to_le_bytes());
            }
        }
        into[bytes - name.len()..].copy_from_slice(name);
        self.filled = at + bytes;
        self.written += bytes;
        Some(place)
    }

    /// Takes in that a name is no longer used.
    pub(super) fn give_back(&mut self, at: u32) {
        self.waste += self.get(at).map_or(0, stored_bytes);
    }
}

fn stored_bytes(name: &[u8]) -> usize {
    match name.len() < usize::from(LONG) {
        true => 1 + name.len(),
        false => 3 + name.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PATH_BYTES_MAX;

    #[test]
    fn names_of_all_lengths() {
        let mut names = Names::default();
        let lengths = || (0..600).chain([PATH_BYTES_MAX]).cycle().take(3_000);
        let name = |length: usize| vec![length as u8; length];
        let places: Vec<u32> = lengths().filter_map(|of| names.put(&name(of))).collect();
        assert_eq!(places.len(), 3_000);
        for (place, length) in places.iter().zip(lengths()) {
            assert_eq!(names.get(*place), Some(&name(length)[..]));
        }
        assert!(!names.is_wasteful());
        places
            .iter()
            .take(2_900)
            .for_each(|at| names.give_back(*at));
        assert_eq!(names.is_wasteful(), names.written > 2 << 20);
        assert_eq!(names.get(NAMELESS), None);
    }
}
