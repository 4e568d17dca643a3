//! Files with a key and a value on each line, of which only some keys are wanted. A running kernel
//! gives the same lines in the same order at each read, so a key is first looked for on the line
//! where it was before.

use crate::util::faults::BadLines;
use crate::util::parse::{cut, lines};

/// Number of bytes that are searched together; a count of them fits a byte.
const BLOCK_BYTES: usize = 64;

/// The wanted lines of such a file.
#[derive(Debug)]
pub(crate) struct KeyedLines<const N: usize> {
    keys: [&'static [u8]; N],
    /// The byte that ends a key.
    mark: u8,
    /// Index of the line and of the key, sorted by line; at most one entry for each key.
    places: Vec<(usize, usize)>,
    lines: usize,
}

impl<const N: usize> KeyedLines<N> {
    pub(crate) fn new(keys: [&'static [u8]; N], mark: u8) -> Self {
        Self {
            keys,
            mark,
            places: Vec::with_capacity(N),
            lines: 0,
        }
    }

    /// The values in the order of the keys; `value` gets the index of a key and the text after the
    /// key. If a key occurs twice, the first one counts. While the number of lines and the lines of
    /// the keys are those of the previous read, the other lines are not searched for keys.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        value: impl Fn(usize, &[u8]) -> Option<u64>,
    ) -> ([Option<u64>; N], BadLines) {
        match self.as_before(bytes, &value) {
            Some(values) => (values, BadLines::default()),
            None => self.search(bytes, &value),
        }
    }

    /// The values, if there are as many lines as before and each key is on the line where it was.
    fn as_before(
        &self,
        bytes: &[u8],
        value: &impl Fn(usize, &[u8]) -> Option<u64>,
    ) -> Option<[Option<u64>; N]> {
        let mut values = [None; N];
        let mut rest = bytes;
        let mut at = 0;
        for (line, key) in &self.places {
            rest = skip_lines(rest, line - at)?;
            at = *line;
            let text = rest.strip_prefix(self.keys[*key])?.split_first()?;
            let text = Some(text).filter(|(mark, _)| **mark == self.mark)?.1;
            values[*key] = Some(value(*key, lines(text).next()?)?);
        }
        let same = at + newlines(rest) == self.lines && cut(bytes).is_empty();
        (same && !self.places.is_empty()).then_some(values)
    }

    fn search(
        &mut self,
        bytes: &[u8],
        value: &impl Fn(usize, &[u8]) -> Option<u64>,
    ) -> ([Option<u64>; N], BadLines) {
        let mut values = [None; N];
        let mut bad = BadLines::default();
        self.places.clear();
        self.lines = 0;
        for line in lines(bytes) {
            self.lines += 1;
            let Some(end) = line.iter().position(|b| *b == self.mark) else {
                bad.add(line);
                continue;
            };
            let wanted = self.keys.iter().position(|key| *key == &line[..end]);
            let Some(key) = wanted.filter(|key| values[*key].is_none()) else {
                continue;
            };
            values[key] = value(key, &line[end + 1..]);
            match values[key] {
                Some(_) => self.places.push((self.lines - 1, key)),
                None => bad.add(line),
            }
        }
        if !cut(bytes).is_empty() || bytes.is_empty() {
            bad.add(cut(bytes));
        }
        if bad.any() {
            // A bad line must be noticed again at the next read.
            self.places.clear();
        }
        (values, bad)
    }
}

/// The bytes after the first `count` lines. They are skipped block by block, since most lines are
/// only passed over.
fn skip_lines(bytes: &[u8], mut count: usize) -> Option<&[u8]> {
    let mut rest = bytes;
    while let Some((block, behind)) = rest.split_first_chunk::<BLOCK_BYTES>() {
        let here = newlines_in(block);
        if here >= count {
            break;
        }
        count -= here;
        rest = behind;
    }
    let Some(last) = count.checked_sub(1) else {
        return Some(rest);
    };
    let mut ends = rest.iter().enumerate().filter(|(_, b)| **b == b'\n');
    let (end, _) = ends.nth(last)?;
    Some(&rest[end + 1..])
}

fn newlines(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    let in_blocks: usize = blocks.iter().map(newlines_in).sum();
    in_blocks + rest.iter().filter(|b| **b == b'\n').count()
}

/// Counts the newlines of a fixed number of bytes, so that many are compared at a time.
fn newlines_in(block: &[u8; BLOCK_BYTES]) -> usize {
    let count: u8 = block.iter().map(|b| u8::from(*b == b'\n')).sum();
    usize::from(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::parse::number;

    fn keyed() -> KeyedLines<3> {
        KeyedLines::new([b"a", b"b", b"ab"], b' ')
    }

    fn read(keyed: &mut KeyedLines<3>, text: &str) -> ([Option<u64>; 3], bool) {
        let (values, bad) = keyed.read(text.as_bytes(), |_, text| number(text));
        (values, bad.any())
    }

    /// The result for a file does not depend on what was read before: lines that moved, appeared,
    /// vanished, are bad or cut.
    #[test]
    fn what_was_before_changes_nothing() {
        let check = |text: &str, expect: ([Option<u64>; 3], bool)| {
            assert_eq!(read(&mut keyed(), text), expect, "{text:?}");
            let others = [
                "a 1\nx 0\nb 2\n",
                "x 0\na 1\nb 2\n",
                "b 1\nx 0\na 2\n",
                "a 1\nb 2\nab 3\n",
                "x 0\na 3\n",
                "a 1\n",
                "a one\n",
                "",
            ];
            for other in others {
                let mut keyed = keyed();
                for text in [other, other, text] {
                    read(&mut keyed, text);
                }
                assert_eq!(read(&mut keyed, text), expect, "{text:?} after {other:?}");
            }
        };
        check("", ([None, None, None], true));
        check("a 1\nx 0\nb 2\n", ([Some(1), Some(2), None], false));
        check("a 10\nx 0\nb 20\n", ([Some(10), Some(20), None], false));
        check("b 1\nx 0\na 2\n", ([Some(2), Some(1), None], false));
        check(
            "a 1\nx 0\nb 2\nab 3\n",
            ([Some(1), Some(2), Some(3)], false),
        );
        check("a 1\nx 0\nb 2\nx 0\n", ([Some(1), Some(2), None], false));
        check("ab 1\nx 0\nb 2\n", ([None, Some(2), Some(1)], false));
        check("a 1\nx 0\n", ([Some(1), None, None], false));
        check("a 1\nx 0\nb 2", ([Some(1), None, None], true));
        check("a 1\nx 0\nb 2\nx", ([Some(1), Some(2), None], true));
        check("a 1\nx 0\nb two\n", ([Some(1), None, None], true));
        check("a 1\nx 0\nb\n", ([Some(1), None, None], true));
    }

    #[test]
    fn the_first_of_two_counts() {
        let twice = "a 1\na 2\nb 3\n";
        let mut keyed = keyed();
        for _ in 0..2 {
            let expect = ([Some(1), Some(3), None], false);
            assert_eq!(read(&mut keyed, twice), expect);
        }
    }

    #[test]
    fn a_steady_file_is_not_searched() {
        let mut keyed = keyed();
        read(&mut keyed, "a 1\nx 0\nb 2\n");
        let steady = |text: &str| keyed.as_before(text.as_bytes(), &|_, text| number(text));
        assert_eq!(steady("a 9\ny 0\nb 8\n"), Some([Some(9), Some(8), None]));
        for moved in [
            "x 0\na 9\nb 8\n",
            "a 9\nx 0\nb 8\nx 0\n",
            "a 9\nx 0\n",
            "a 9\nx 0\nb 8\nx",
        ] {
            assert_eq!(steady(moved), None, "{moved:?}");
        }
    }

    #[test]
    fn lines_are_passed_over() {
        let lengths = [0, 1, 5, 62, 63, 64, 65, 130, 0, 0, 7];
        let text: String = lengths.map(|length| "x".repeat(length) + "\n").concat();
        assert_eq!(newlines(text.as_bytes()), lengths.len());
        let mut rest = text.as_bytes();
        for (count, length) in lengths.into_iter().enumerate() {
            assert_eq!(skip_lines(text.as_bytes(), count), Some(rest), "{count}");
            rest = &rest[length + 1..];
        }
        let check = |text: &[u8], count: usize, expect: Option<&[u8]>| {
            assert_eq!(skip_lines(text, count), expect, "{count}");
        };
        check(text.as_bytes(), lengths.len(), Some(b""));
        check(text.as_bytes(), lengths.len() + 1, None);
        check(b"a\nb", 1, Some(b"b"));
        check(b"a\nb", 2, None);
        check(b"", 0, Some(b""));
        check(&[b'\n'; 200], 200, Some(b""));
        assert_eq!(newlines(&[b'\n'; 1000]), 1000);
    }
}
