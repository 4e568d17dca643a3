//! The I/O counters of one control group: `io.stat` of version 2, `blkio.throttle.*` of version 1
//! (<https://docs.kernel.org/admin-guide/cgroup-v2.html>,
//! <https://docs.kernel.org/admin-guide/cgroup-v1/blkio-controller.html>).

use crate::error::BadLines;
use crate::util::parse::{cut, lines, number, words};

/// Sums over devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sources) struct Traffic {
    pub(in crate::sources) read_bytes: u64,
    pub(in crate::sources) write_bytes: u64,
    pub(in crate::sources) read_ops: u64,
    pub(in crate::sources) write_ops: u64,
}

impl Traffic {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Devices whose traffic is counted again at the devices below them, as `major:minor`.
pub(in crate::sources) type Stacked = [Vec<u8>];

/// `8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0`
///
/// Some kernels write several devices before the first number; only the last has the numbers.
pub(in crate::sources) fn parse_v2(bytes: &[u8], stacked: &Stacked) -> (Traffic, BadLines) {
    let mut sum = Traffic::default();
    let bad = each_line(bytes, |line| {
        let mut one = Traffic::default();
        let mut counts = false;
        for word in words(line) {
            let Some(at) = word.iter().position(|b| *b == b'=') else {
                counts = is_device(word)? && !is_stacked(word, stacked);
                continue;
            };
            let slot = match &word[..at] {
                b"rbytes" => &mut one.read_bytes,
                b"wbytes" => &mut one.write_bytes,
                b"rios" => &mut one.read_ops,
                b"wios" => &mut one.write_ops,
                _ => continue,
            };
            *slot = number(&word[at + 1..])?;
        }
        if counts {
            sum.read_bytes = sum.read_bytes.saturating_add(one.read_bytes);
            sum.write_bytes = sum.write_bytes.saturating_add(one.write_bytes);
            sum.read_ops = sum.read_ops.saturating_add(one.read_ops);
            sum.write_ops = sum.write_ops.saturating_add(one.write_ops);
        }
        Some(())
    });
    (sum, bad)
}

/// Reads and writes of a version 1 file: lines like `8:0 Read 4096`, and a `Total`.
pub(in crate::sources) fn parse_v1(bytes: &[u8], stacked: &Stacked) -> ((u64, u64), BadLines) {
    let (mut reads, mut writes) = (0u64, 0u64);
    let bad = each_line(bytes, |line| {
        let mut words = words(line);
        let device = words.next()?;
        if device == b"Total" {
            return number(words.next()?).map(|_| ());
        }
        is_device(device)?;
        let slot = match words.next()? {
            b"Read" => &mut reads,
            b"Write" => &mut writes,
            _ => return number(words.next()?).map(|_| ()),
        };
        let value = number(words.next()?)?;
        if !is_stacked(device, stacked) {
            *slot = slot.saturating_add(value);
        }
        Some(())
    });
    ((reads, writes), bad)
}

fn each_line(bytes: &[u8], mut parse: impl FnMut(&[u8]) -> Option<()>) -> BadLines {
    let mut bad = BadLines::default();
    for line in lines(bytes) {
        if parse(line).is_none() {
            bad.add(line);
        }
    }
    if !cut(bytes).is_empty() {
        bad.add(cut(bytes));
    }
    bad
}

/// Always true, or nothing if the word is no `major:minor`.
fn is_device(word: &[u8]) -> Option<bool> {
    let colon = word.iter().position(|b| *b == b':')?;
    number(&word[..colon])?;
    number(&word[colon + 1..])?;
    Some(true)
}

fn is_stacked(device: &[u8], stacked: &Stacked) -> bool {
    stacked.iter().any(|s| s == device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2() {
        let check = |text: &str, expect: (u64, u64, u64, u64), bad: bool| {
            let (t, lines) = parse_v2(text.as_bytes(), &[b"253:0".to_vec()]);
            let got = (t.read_bytes, t.write_bytes, t.read_ops, t.write_ops);
            assert_eq!((got, lines.any()), (expect, bad), "{text}");
        };
        check("", (0, 0, 0, 0), false);
        check(
            "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n",
            (1, 2, 3, 4),
            false,
        );
        check(
            "8:0 rbytes=1 wios=4\n8:16 rbytes=10 cost.usage=7\n",
            (11, 0, 0, 4),
            false,
        );
        check(
            "7:0 7:1 8:0 rbytes=1 wbytes=2 rios=3 wios=4\n",
            (1, 2, 3, 4),
            false,
        );
        check(
            "253:0 rbytes=1 wbytes=2\n8:0 rbytes=1\n",
            (1, 0, 0, 0),
            false,
        );
        check("8:0 rbytes=x\n8:16 rbytes=2\n", (2, 0, 0, 0), true);
        check("x rbytes=1\n", (0, 0, 0, 0), true);
        check("8:0 rbytes=1", (0, 0, 0, 0), true);
        check("8:0 rbytes=99999999999999999999\n", (0, 0, 0, 0), true);
    }

    #[test]
    fn version_1() {
        let check = |text: &str, expect: (u64, u64), bad: bool| {
            let (got, lines) = parse_v1(text.as_bytes(), &[b"253:0".to_vec()]);
            assert_eq!((got, lines.any()), (expect, bad), "{text}");
        };
        check("Total 0\n", (0, 0), false);
        check(
            "8:0 Read 5\n8:0 Write 7\n8:0 Sync 12\n8:0 Total 12\nTotal 12\n",
            (5, 7),
            false,
        );
        check("253:0 Read 5\n8:0 Read 5\n", (5, 0), false);
        check("8:0 Read\n8:0 Write 7\n", (0, 7), true);
        check("8:0 Read 5", (0, 0), true);
    }
}
