//! The I/O counters of one control group, device by device: `io.stat` of version 2, `blkio.*` of
//! version 1 (<https://docs.kernel.org/admin-guide/cgroup-v2.html>,
//! <https://docs.kernel.org/admin-guide/cgroup-v1/blkio-controller.html>).

use crate::util::faults::BadLines;
use crate::util::parse::{cut, lines, number, words};

/// Most devices of one file; a line of a further one is a bad line.
const DEVICES_MAX: usize = 4096;

/// Reads and writes, in bytes and in operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sources) struct IoTraffic {
    pub(in crate::sources) read_bytes: u64,
    pub(in crate::sources) write_bytes: u64,
    pub(in crate::sources) read_ops: u64,
    pub(in crate::sources) write_ops: u64,
}

impl IoTraffic {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(in crate::sources) fn add(&mut self, other: &Self) {
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
        self.read_ops = self.read_ops.saturating_add(other.read_ops);
        self.write_ops = self.write_ops.saturating_add(other.write_ops);
    }
}

/// A block device by its two numbers, `major:minor`.
pub(in crate::sources) type DeviceNumbers = (u64, u64);

/// Devices whose traffic is counted again at the devices below them.
pub(in crate::sources) type Stacked = [DeviceNumbers];

/// The traffic of one group on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sources) struct IoRow {
    pub(in crate::sources) device: DeviceNumbers,
    pub(in crate::sources) traffic: IoTraffic,
    /// Whether the file had both numbers of bytes, so that neither is zero merely because its line
    /// is missing.
    pub(in crate::sources) has_bytes: bool,
}

/// The traffic of one group by device. Its memory is reused for the next group.
#[derive(Debug, Default)]
pub(in crate::sources) struct IoTable {
    pub(in crate::sources) rows: Vec<IoRow>,
    /// Whether the total is unknown: some device with traffic is not counted, and on the counted
    /// devices the group moved nothing.
    pub(in crate::sources) is_partial: bool,
    /// Index of the row that was used last: files name one device in several lines, and the files
    /// of one group name the same devices in the same order.
    at: usize,
}

impl IoTable {
    pub(in crate::sources) fn clear(&mut self) {
        self.rows.clear();
        self.is_partial = false;
        self.at = 0;
    }

    /// The sum over all devices except stacked ones, if it is known.
    pub(in crate::sources) fn sum(&self, stacked: &Stacked) -> Option<IoTraffic> {
        let mut sum = IoTraffic::default();
        for row in self.rows.iter().filter(|r| !stacked.contains(&r.device)) {
            sum.add(&row.traffic);
        }
        (!self.is_partial).then_some(sum)
    }

    /// The row of this device; `None` if there are too many devices.
    fn of(&mut self, device: DeviceNumbers) -> Option<&mut IoRow> {
        let is_it = |at: &usize| self.rows.get(*at).is_some_and(|row| row.device == device);
        let near = [self.at, self.at + 1].into_iter().find(is_it);
        let found = near.or_else(|| self.rows.iter().position(|row| row.device == device));
        self.at = match found {
            Some(at) => at,
            None if self.rows.len() < DEVICES_MAX => {
                self.rows.push(IoRow {
                    device,
                    traffic: IoTraffic::default(),
                    has_bytes: false,
                });
                self.rows.len() - 1
            }
            None => return None,
        };
        Some(&mut self.rows[self.at])
    }
}

/// Parses lines like `8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0`.
///
/// Some kernels write several devices before the first number; only the last has the numbers.
pub(in crate::sources) fn parse_v2(bytes: &[u8], table: &mut IoTable) -> BadLines {
    each_line(bytes, |line| {
        let mut one = IoTraffic::default();
        let (mut device, mut counts) = (None, false);
        for word in words(line) {
            let Some(at) = word.iter().position(|b| *b == b'=') else {
                device = Some(device_of(word)?);
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
            counts = true;
        }
        if let Some(device) = device.filter(|_| counts) {
            let row = table.of(device)?;
            row.traffic.add(&one);
            row.has_bytes = true;
        }
        Some(())
    })
}

/// The unit that a file of version 1 counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sources) enum CountedUnit {
    Bytes,
    Ops,
}

/// Parses the reads and writes of a version 1 file: lines like `8:0 Read 4096`, and a `Total`.
pub(in crate::sources) fn parse_v1(
    bytes: &[u8],
    counts: CountedUnit,
    table: &mut IoTable,
) -> BadLines {
    each_line(bytes, |line| {
        let mut words = words(line);
        let device = words.next()?;
        if device == b"Total" {
            return number(words.next()?).map(|_| ());
        }
        let device = device_of(device)?;
        let kind = words.next()?;
        let value = number(words.next()?)?;
        let row = table.of(device)?;
        // It is the last line of a device.
        row.has_bytes |= (kind, counts) == (b"Total", CountedUnit::Bytes);
        let traffic = &mut row.traffic;
        let slot = match (kind, counts) {
            (b"Read", CountedUnit::Bytes) => &mut traffic.read_bytes,
            (b"Read", CountedUnit::Ops) => &mut traffic.read_ops,
            (b"Write", CountedUnit::Bytes) => &mut traffic.write_bytes,
            (b"Write", CountedUnit::Ops) => &mut traffic.write_ops,
            _ => return Some(()),
        };
        *slot = slot.saturating_add(value);
        Some(())
    })
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

/// Parses a word like `254:0`.
pub(super) fn device_of(word: &[u8]) -> Option<DeviceNumbers> {
    let colon = word.iter().position(|b| *b == b':')?;
    Some((number(&word[..colon])?, number(&word[colon + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACKED: [DeviceNumbers; 1] = [(253, 0)];

    #[test]
    fn version_2() {
        let check = |text: &str, expect: (u64, u64, u64, u64), bad: bool| {
            let mut table = IoTable::default();
            let lines = parse_v2(text.as_bytes(), &mut table);
            let t = table.sum(&STACKED).unwrap();
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
            let mut table = IoTable::default();
            let lines = parse_v1(text.as_bytes(), CountedUnit::Bytes, &mut table);
            let sum = table.sum(&STACKED).unwrap();
            let got = (sum.read_bytes, sum.write_bytes);
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

    #[test]
    fn devices_are_told_apart() {
        let mut table = IoTable::default();
        let bytes = "8:0 Read 5\n8:0 Write 7\n7:0 Read 1\n8:0 Read 1\nTotal 13\n";
        let ops = "8:0 Read 2\n7:0 Write 3\nTotal 5\n";
        assert!(!parse_v1(bytes.as_bytes(), CountedUnit::Bytes, &mut table).any());
        assert!(!parse_v1(ops.as_bytes(), CountedUnit::Ops, &mut table).any());
        let of = |read_bytes, write_bytes, read_ops, write_ops| IoTraffic {
            read_bytes,
            write_bytes,
            read_ops,
            write_ops,
        };
        let rows: Vec<_> = table.rows.iter().map(|r| (r.device, r.traffic)).collect();
        assert_eq!(rows, [((8, 0), of(6, 7, 2, 0)), ((7, 0), of(1, 0, 0, 3))]);
        // The memory is reused; its old content is gone.
        table.clear();
        assert!(!parse_v2(b"7:0 rbytes=9\n", &mut table).any());
        assert_eq!(table.sum(&[]), Some(of(9, 0, 0, 0)));
        // More devices than any machine has are refused.
        table.clear();
        let many: String = (0..5000).map(|n| format!("8:{n} rbytes=1\n")).collect();
        assert!(parse_v2(many.as_bytes(), &mut table).any());
        assert_eq!(table.rows.len(), DEVICES_MAX);
    }
}
