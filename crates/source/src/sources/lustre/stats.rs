//! Parser for the format that all of Lustre's `stats` files share (`lprocfs_stats_seq_show` in
//! `lustre/obdclass/lprocfs_status.c`; Lustre manual, "Monitoring the OST Stats" and "Client
//! stats"):
//!
//! ```text
//! snapshot_time             1700000000.250000000 secs.nsecs
//! start_time                1699990000.250000000 secs.nsecs
//! elapsed_time              10000.000000000 secs.nsecs
//! read_bytes                1000 samples [bytes] 4096 4194304 4000000000 16000000000000000
//! read                      1000 samples [usecs] 10 90000 2000000 9000000000
//! create                    4 samples [reqs]
//! ```
//!
//! A line is a name, a count and a unit. The least, the greatest, the sum and the sum of squares
//! follow if the release and the counter have them. Lines of counters that are 0 are left out. Sums
//! of squares wrap around and are not read.

use crate::util::faults::BadLines;
use crate::util::parse::{cut, lines, number, words};

/// The use of a line, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineRole {
    /// Bytes and number of reads.
    ReadBytes,
    /// Bytes and number of writes.
    WriteBytes,
    /// Time of reads.
    ReadTime,
    /// Time of writes.
    WriteTime,
    /// Time of requests of every kind, from sending to reply.
    Request,
    /// A metadata operation, with its time if the release has it.
    Metadata,
    /// An operation that is only counted.
    Other,
}

/// A line that is read, by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineKey<T: 'static> {
    pub(super) name: &'static [u8],
    pub(super) role: LineRole,
    /// The fact that counts the operations of this line.
    pub(super) fact: Option<T>,
}

/// The counter of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineCount {
    pub(super) samples: u64,
    pub(super) sum: Option<u64>,
    pub(super) unit: SumUnit,
}

/// The unit of the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SumUnit {
    Bytes,
    Microseconds,
    #[default]
    Other,
}

/// Parses a file and adds its wanted lines to `counts`, which has a place for each key: a file
/// system that is mounted twice has two files.
pub(super) fn parse<T>(
    bytes: &[u8],
    keys: &[LineKey<T>],
    counts: &mut [Option<LineCount>],
) -> BadLines {
    let mut bad = BadLines::default();
    // The kernel's order is that of the keys, except in releases that differ.
    let mut next = 0;
    for line in lines(bytes) {
        let Some((name, count)) = parse_line(line) else {
            if !is_heading(line) {
                bad.add(line);
            }
            continue;
        };
        let places = (next..keys.len()).chain(0..next.min(keys.len()));
        let Some(place) = places.into_iter().find(|at| keys[*at].name == name) else {
            continue;
        };
        next = place + 1;
        counts[place] = Some(match counts[place] {
            None => count,
            Some(old) => old.and(count),
        });
    }
    if !cut(bytes).is_empty() || bytes.is_empty() {
        bad.add(cut(bytes));
    }
    bad
}

impl LineCount {
    fn and(self, other: Self) -> Self {
        let same = self.unit == other.unit;
        let sums = self.sum.zip(other.sum).filter(|_| same);
        Self {
            samples: self.samples.saturating_add(other.samples),
            sum: sums.map(|(a, b)| a.saturating_add(b)),
            unit: self.unit,
        }
    }

    /// The sum, if its unit is bytes.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.sum.filter(|_| self.unit == SumUnit::Bytes)
    }

    /// Operations and their time, if the time is known.
    pub(super) fn timed(&self) -> Option<Timed> {
        let microseconds = self.sum.filter(|_| self.unit == SumUnit::Microseconds)?;
        Some(Timed {
            ops: self.samples,
            microseconds,
        })
    }
}

/// Operations and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) ops: u64,
    pub(super) microseconds: u64,
}

impl Timed {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            ops: self.ops.saturating_add(other.ops),
            microseconds: self.microseconds.saturating_add(other.microseconds),
        }
    }

    pub(super) fn seconds(self) -> f64 {
        self.microseconds as f64 / 1e6
    }

    /// Mean seconds of an operation since `old`; 0 if there were none, `None` if a counter went
    /// back.
    pub(super) fn latency_since(self, old: Self) -> Option<f64> {
        let ops = self.ops.checked_sub(old.ops)?;
        let microseconds = self.microseconds.checked_sub(old.microseconds)?;
        Some(match ops {
            0 => 0.0,
            ops => microseconds as f64 / 1e6 / ops as f64,
        })
    }
}

fn parse_line(line: &[u8]) -> Option<(&[u8], LineCount)> {
    let mut words = words(line);
    let name = words.next()?;
    let samples = words.number()?;
    if words.next()? != b"samples" {
        return None;
    }
    // Some releases wrote `usec` and `regs`.
    let unit = match words.next()?.strip_prefix(b"[")?.strip_suffix(b"]")? {
        b"bytes" => SumUnit::Bytes,
        b"usec" | b"usecs" => SumUnit::Microseconds,
        _ => SumUnit::Other,
    };
    let sum = match (words.next(), words.next()) {
        (None, _) => None,
        // The least and the greatest of no samples are made-up numbers.
        (Some(_), Some(_)) => match words.next() {
            Some(sum) => Some(number(sum)?),
            // The counter has only the least and the greatest.
            None => None,
        },
        (Some(_), None) => return None,
    };
    Some((name, LineCount { samples, sum, unit }))
}

fn is_heading(line: &[u8]) -> bool {
    let first = words(line).next();
    let first = first.map(|word| word.strip_suffix(b":").unwrap_or(word));
    matches!(
        first,
        None | Some(b"snapshot_time" | b"start_time" | b"elapsed_time")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [LineKey<()>; 3] = [
        LineKey {
            name: b"read_bytes",
            role: LineRole::ReadBytes,
            fact: None,
        },
        LineKey {
            name: b"read",
            role: LineRole::ReadTime,
            fact: None,
        },
        LineKey {
            name: b"create",
            role: LineRole::Other,
            fact: None,
        },
    ];

    fn check(text: &str, expect: [Option<(u64, Option<u64>)>; 3], whole: bool) {
        let mut counts = [None; 3];
        let bad = parse(text.as_bytes(), &KEYS, &mut counts);
        let got = counts.map(|c: Option<LineCount>| c.map(|c| (c.samples, c.sum)));
        assert_eq!((got, !bad.any()), (expect, whole), "{text:?}");
    }

    #[test]
    fn lines_of_every_release() {
        let time = "snapshot_time 1438693135.640551 secs.usecs\n";
        check(time, [None; 3], true);
        let text = "snapshot_time             1790277040.611962111 secs.nsecs
start_time                1790008165.367572621 secs.nsecs
elapsed_time              268875.244389490 secs.nsecs
read_bytes                1000 samples [bytes] 1 4194304 4000 47236230193563213
read                      1000 samples [usecs] 1 1609928 7000 27868360314999
create                    7 samples [reqs]
getxattr_hits             201 samples [reqs]
";
        let full = [
            Some((1000, Some(4000))),
            Some((1000, Some(7000))),
            Some((7, None)),
        ];
        check(text, full, true);
        check(
            "create 3 samples [reqs] 1 1 3\nread 2 samples [usec] 1 2 3 4\n",
            [None, Some((2, Some(3))), Some((3, Some(3)))],
            true,
        );
        check(
            "snapshot_time:  1.2 secs.nsecs\ncreate 3 samples [regs]\n",
            [None, None, Some((3, None))],
            true,
        );
    }

    #[test]
    fn lines_that_are_none() {
        for bad in [
            "read_bytes\n",
            "read_bytes x samples [bytes] 1 2 3\n",
            "read_bytes 1,5 samples [bytes] 1 2 3\n",
            "read_bytes 1 Proben [bytes] 1 2 3\n",
            "read_bytes 1 samples bytes 1 2 3\n",
            "read_bytes 1 samples [bytes] 1\n",
            "read_bytes 1 samples [bytes] 1 2 3,0\n",
            "read_bytes 1 samples [bytes] 1 2 99999999999999999999\n",
            "read_bytes -1 samples [bytes] 1 2 3\n",
            "",
            "read_bytes 1 samples [bytes] 1 2 3",
        ] {
            check(bad, [None; 3], false);
        }
        // The least of no samples is the greatest number there is.
        check(
            "read_bytes 0 samples [bytes] 18446744073709551615 0 0 0\n",
            [Some((0, Some(0))), None, None],
            true,
        );
    }

    #[test]
    fn two_mounts_are_summed() {
        let mut counts = [None; 3];
        let text = b"read_bytes 2 samples [bytes] 1 2 30\ncreate 1 samples [reqs]\n";
        assert!(!parse(text, &KEYS, &mut counts).any());
        assert!(!parse(text, &KEYS, &mut counts).any());
        let read = counts[0].unwrap();
        assert_eq!(
            (read.samples, read.bytes(), read.timed()),
            (4, Some(60), None)
        );
        let create = counts[2].unwrap();
        assert_eq!((create.samples, create.sum), (2, None));
    }

    #[test]
    fn latency() {
        let timed = |ops, microseconds| Timed { ops, microseconds };
        let check = |new: Timed, old: Timed, expect: Option<f64>| {
            assert_eq!(new.latency_since(old), expect, "{new:?} {old:?}");
        };
        check(timed(30, 5000), timed(20, 3000), Some(0.0002));
        check(timed(20, 3000), timed(20, 3000), Some(0.0));
        check(timed(10, 3000), timed(20, 3000), None);
        check(timed(30, 2000), timed(20, 3000), None);
    }
}
