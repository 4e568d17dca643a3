//! Parser of `job_stats` files, a piece at a time (`lprocfs_jobstats_seq_show` in
//! `lustre/obdclass/lprocfs_jobstats.c`; Lustre manual, "Lustre Jobstats"):
//!
//! ```text
//! job_stats:
//! - job_id:          4711
//!   snapshot_time:   1700000000.123456789 secs.nsecs
//!   start_time:      1699999000.000000001 secs.nsecs
//!   elapsed_time:    1000.123456788 secs.nsecs
//!   read_bytes:      { samples: 9, unit: bytes, min: 512, max: 512, sum: 4608, sumsq: 0, hist: … }
//!   setattr:         { samples:    3, unit:  reqs }
//! - job_id:          "node17:my\x20solver:1000"
//! ```
//!
//! The files are meant to be YAML, but the kernel writes one line for each counter, and these lines
//! are parsed: a general parser would take seconds for the files of a busy server. A file may have
//! hundreds of megabytes, so no file is ever in memory as a whole.

use rustix::fd::AsFd;
use rustix::io::Errno;

use crate::util::faults::BadLines;
use crate::util::parse::{Words, number, words};

/// Longest line that is understood, in bytes; a histogram is its longest part.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest name of a job, in bytes. The kernel's names have 31 bytes, each of which may be written
/// as four.
const JOB_BYTES_MAX: usize = 256;
/// Most bytes that are read of one file.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// The counters of a job on one target.
pub(super) type JobCounters = [u64; COUNTS];
/// Number of these counters.
pub(super) const COUNTS: usize = 5;
pub(super) const READ_BYTES: usize = 0;
pub(super) const WRITE_BYTES: usize = 1;
pub(super) const READ_OPS: usize = 2;
pub(super) const WRITE_OPS: usize = 3;
pub(super) const METADATA_OPS: usize = 4;

/// Operations on names and attributes, as metadata targets count them. `samedir_rename`,
/// `crossdir_rename` and the like are left out, since they count renames again.
const METADATA: [&[u8]; 15] = [
    b"open",
    b"close",
    b"mknod",
    b"link",
    b"unlink",
    b"mkdir",
    b"rmdir",
    b"rename",
    b"getattr",
    b"setattr",
    b"getxattr",
    b"setxattr",
    b"statfs",
    b"sync",
    b"migrate",
];

/// One job on one target.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JobEntry<'a> {
    /// The job's name as in the file, without quotes.
    pub(super) job: &'a [u8],
    pub(super) counts: JobCounters,
    /// Time at which counting began, in nanoseconds of some clock; 0 if the release does not give
    /// it.
    pub(super) start: u64,
    /// Nanoseconds from `start` to the job's newest operation; 0 if the release does not give it.
    pub(super) elapsed_ns: u64,
}

/// The counters that a target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobstatsKind {
    /// Counters of data; operations on objects are left out, since they are made by the metadata
    /// server and not by the job.
    Object,
    /// Counters of names, attributes, and the data of small files.
    Metadata,
}

/// A buffer for reading files of any length.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    buffer: Vec<u8>,
}

impl Pieces {
    /// Calls `each` with every line, without its newline, and returns how the file ended.
    fn lines(&mut self, file: impl AsFd, mut each: impl FnMut(&[u8])) -> Result<Ending, Errno> {
        self.buffer.resize(LINE_BYTES_MAX, 0);
        let (mut filled, mut taken) = (0, 0u64);
        // Whether the position is within a line that is too long.
        let mut skipping = false;
        let mut ending = Ending::Whole;
        loop {
            let read = match rustix::io::read(&file, &mut self.buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            taken += read as u64;
            if taken > FILE_BYTES_MAX {
                return Err(Errno::FBIG);
            }
            let end = filled + read;
            let mut start = 0;
            while let Some(length) = newline(&self.buffer[start..end]) {
                if !std::mem::take(&mut skipping) {
                    each(&self.buffer[start..start + length]);
                }
                start += length + 1;
            }
            self.buffer.copy_within(start..end, 0);
            filled = end - start;
            if filled == self.buffer.len() {
                (filled, skipping, ending) = (0, true, Ending::TooLong);
            }
        }
        Ok(match filled > 0 || skipping {
            true => Ending::Cut,
            false => ending,
        })
    }
}

/// The end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Whole,
    /// In the middle of a line.
    Cut,
    /// At its end, but with a line that was too long.
    TooLong,
}

fn newline(bytes: &[u8]) -> Option<usize> {
    use std::io::BufRead as _;
    let mut rest = bytes;
    // The search of the standard library, which compares many bytes at a time.
    let length = rest.skip_until(b'\n').ok()?;
    (bytes[..length].last() == Some(&b'\n')).then(|| length - 1)
}

/// Calls `each` with every entry that was understood as a whole. The others are reported, since
/// their counts would be too low.
pub(super) fn read(
    file: impl AsFd,
    kind: JobstatsKind,
    pieces: &mut Pieces,
    each: impl FnMut(&JobEntry<'_>),
) -> Result<BadLines, Errno> {
    let mut entries = Entries::new(kind, each);
    let ending = pieces.lines(file, |line| entries.line(line))?;
    Ok(entries.finish(ending))
}

struct Entries<F> {
    kind: JobstatsKind,
    each: F,
    job: Vec<u8>,
    open: bool,
    /// Whether the open entry has had no bad line.
    good: bool,
    counts: JobCounters,
    start: u64,
    elapsed_ns: u64,
    /// Number of counters in the open entry; `expected` is that of the first entry, since every
    /// entry of a file has the same.
    fields: usize,
    expected: Option<usize>,
    bad: BadLines,
}

impl<F: FnMut(&JobEntry<'_>)> Entries<F> {
    fn new(kind: JobstatsKind, each: F) -> Self {
        Self {
            kind,
            each,
            job: Vec::new(),
            open: false,
            good: false,
            counts: [0; COUNTS],
            start: 0,
            elapsed_ns: 0,
            fields: 0,
            expected: None,
            bad: BadLines::default(),
        }
    }

    fn line(&mut self, line: &[u8]) {
        let text = line.trim_ascii_start();
        if let Some(first) = text.strip_prefix(b"- ") {
            self.close();
            self.begin(first, line);
        } else if !self.field(text) {
            self.good = false;
            self.bad.add(line);
        }
    }

    fn begin(&mut self, first: &[u8], line: &[u8]) {
        self.open = true;
        let name = first.trim_ascii_start().strip_prefix(b"job_id");
        let name = name.map(|rest| unquoted(after_colon(rest)));
        match name.filter(|name| !name.is_empty() && name.len() <= JOB_BYTES_MAX) {
            Some(name) => {
                self.good = true;
                self.job.clear();
                self.job.extend_from_slice(name);
            }
            None => {
                self.good = false;
                self.bad.add(line);
            }
        }
        self.counts = [0; COUNTS];
        (self.start, self.elapsed_ns, self.fields) = (0, 0, 0);
    }

    /// Parses one line of an entry, or a line before the first entry. Returns whether it was
    /// understood.
    fn field(&mut self, text: &[u8]) -> bool {
        let Some(colon) = text.iter().position(|b| *b == b':') else {
            return text.is_empty();
        };
        let (key, value) = (text[..colon].trim_ascii_end(), &text[colon + 1..]);
        if !self.open {
            return key == b"job_stats";
        }
        match key {
            b"snapshot_time" => return true,
            b"start_time" => return nanoseconds(value).map(|v| self.start = v).is_some(),
            b"elapsed_time" => return nanoseconds(value).map(|v| self.elapsed_ns = v).is_some(),
            // The output of lctl repeats this line for every target.
            b"job_stats" => return true,
            _ => {}
        }
        self.fields += 1;
        let done = match (key, self.kind) {
            (b"read_bytes", _) => self.data(value, READ_BYTES, READ_OPS),
            (b"write_bytes", _) => self.data(value, WRITE_BYTES, WRITE_OPS),
            // These lines are times, except in the first releases, which had no other names for
            // bytes.
            (b"read", _) => self.old_data(value, READ_BYTES, READ_OPS),
            (b"write", _) => self.old_data(value, WRITE_BYTES, WRITE_OPS),
            (_, JobstatsKind::Metadata) if METADATA.contains(&key) => self.metadata(value),
            _ => Some(()),
        };
        done.is_some()
    }

    fn data(&mut self, value: &[u8], bytes: usize, ops: usize) -> Option<()> {
        let (samples, rest) = samples(value)?;
        self.counts[ops] = samples;
        if samples > 0 {
            self.counts[bytes] = sum(rest)?;
        }
        Some(())
    }

    fn old_data(&mut self, value: &[u8], bytes: usize, ops: usize) -> Option<()> {
        let (_, rest) = samples(value)?;
        match unit(rest)? {
            b"bytes" => self.data(value, bytes, ops),
            _ => Some(()),
        }
    }

    fn metadata(&mut self, value: &[u8]) -> Option<()> {
        let (samples, _) = samples(value)?;
        let ops = &mut self.counts[METADATA_OPS];
        *ops = ops.checked_add(samples)?;
        Some(())
    }

    fn close(&mut self) {
        if !std::mem::take(&mut self.open) || !self.good {
            return;
        }
        if self.fields < *self.expected.get_or_insert(self.fields) || self.fields == 0 {
            self.bad.add(&self.job);
            return;
        }
        (self.each)(&JobEntry {
            job: &self.job,
            counts: self.counts,
            start: self.start,
            elapsed_ns: self.elapsed_ns,
        });
    }

    fn finish(mut self, ending: Ending) -> BadLines {
        if ending == Ending::Cut {
            self.good = false;
            self.bad.add(b"(cut)");
        }
        if ending == Ending::TooLong {
            self.bad.add(b"(a line that is too long)");
        }
        self.close();
        self.bad
    }
}

fn after_colon(rest: &[u8]) -> &[u8] {
    let rest = rest.trim_ascii_start();
    // Some releases omit the colon.
    rest.strip_prefix(b":").unwrap_or(rest).trim_ascii()
}

fn unquoted(name: &[u8]) -> &[u8] {
    let inner = name.strip_prefix(b"\"").and_then(|n| n.strip_suffix(b"\""));
    inner.unwrap_or(name)
}

/// Parses the number after `{ samples:`, and returns it with the rest.
fn samples(value: &[u8]) -> Option<(u64, &[u8])> {
    let value = value.trim_ascii_start().strip_prefix(b"{")?;
    let value = value.trim_ascii_start().strip_prefix(b"samples:")?;
    let (first, rest) = first_part(value)?;
    // A value without its closing brace was cut.
    value.trim_ascii_end().ends_with(b"}").then_some(())?;
    Some((number(first)?, rest))
}

fn unit(rest: &[u8]) -> Option<&[u8]> {
    first_part(part(rest, b"unit:")?).map(|(unit, _)| unit)
}

fn sum(rest: &[u8]) -> Option<u64> {
    number(first_part(part(rest, b"sum:")?)?.0)
}

/// Splits at the first comma or brace. The kernel writes no comma without a blank after it, but
/// some languages have such commas in numbers, so that one is refused.
fn first_part(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = value.iter().position(|b| matches!(b, b',' | b'}'))?;
    let (first, rest) = value.split_at(end);
    let foreign = rest[0] == b',' && !rest.get(1).is_some_and(u8::is_ascii_whitespace);
    (!foreign).then_some((first.trim_ascii(), rest))
}

/// The value with this name among the parts that commas separate; `sum:` does not match `sumsq:`.
fn part<'a>(rest: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = rest;
    loop {
        let comma = rest.iter().position(|b| *b == b',')?;
        rest = rest[comma + 1..].trim_ascii_start();
        if let Some(value) = rest.strip_prefix(name) {
            return Some(value);
        }
    }
}

/// Parses `1700000000.123456789 secs.nsecs` to nanoseconds.
fn nanoseconds(value: &[u8]) -> Option<u64> {
    let mut words: Words<'_> = words(value);
    let time = words.next()?;
    let point = time.iter().position(|b| *b == b'.');
    let (seconds, rest) = match point {
        Some(at) => (&time[..at], &time[at + 1..]),
        None => (time, &b"0"[..]),
    };
    let seconds = number(seconds)?;
    let fraction = number(rest).filter(|_| rest.len() <= 9)?;
    let scale = 10u64.pow(9 - u32::try_from(rest.len()).ok()?);
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * scale)
}

/// The name of a job as the bytes of a label: `\xHH` becomes one byte again.
pub(super) fn unescaped(name: &[u8]) -> Vec<u8> {
    let hex = |b: u8| (b as char).to_digit(16);
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        let byte = match rest {
            [b'\\', b'x', high, low, ..] => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match byte {
            Some((high, low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    type Got = Vec<(String, JobCounters)>;

    fn parse(text: &[u8], kind: JobstatsKind) -> (Got, bool) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file.rewind().unwrap();
        let mut got = Vec::new();
        let bad = read(&file, kind, &mut Pieces::default(), |entry| {
            got.push((String::from_utf8_lossy(entry.job).into(), entry.counts));
        });
        (got, bad.unwrap().any())
    }

    const OBJECT: &str = "job_stats:
- job_id:          cp.0
  snapshot_time:   1537070542
  read_bytes:      { samples:         256, unit: bytes, min: 4194304, max: 4194304, sum:      1073741824 }
  write_bytes:     { samples:           0, unit: bytes, min:       0, max:       0, sum:               0 }
  getattr:         { samples:           9, unit:  reqs }
- job_id:          \"a: {b}, sum: 7\"
  snapshot_time:   1896533.424837288 secs.nsecs
  start_time:      379104.213451005 secs.nsecs
  elapsed_time:    1517429.211386283 secs.nsecs
  read_bytes:      { samples: 1, unit: bytes, min: 1, max: 1, sum: 5, sumsq: 99999999999999999999, hist: { 4K: 1, 8K: 2 } }
  write_bytes:     { samples: 2, unit: bytes, min: 1, max: 1, sum: 6, sumsq: 1 }
  getattr:         { samples: 0, unit: usecs, min: 0, max: 0, sum: 0, sumsq: 0 }
";

    #[test]
    fn entries_of_object_targets() {
        let (got, bad) = parse(OBJECT.as_bytes(), JobstatsKind::Object);
        let expect = vec![
            ("cp.0".to_owned(), [1 << 30, 0, 256, 0, 0]),
            ("a: {b}, sum: 7".to_owned(), [5, 6, 1, 2, 0]),
        ];
        assert_eq!((got, bad), (expect, false));
        assert_eq!(
            parse(b"job_stats:\n", JobstatsKind::Object),
            (vec![], false)
        );
    }

    #[test]
    fn entries_of_metadata_targets_and_of_old_releases() {
        let text = "job_stats:
- job_id:        test_id.222.25844
  snapshot_time: 1322494486
  open:          { samples:\t       3, unit: reqs }
  close:         { samples:\t       2, unit: reqs }
  rename:        { samples:\t       1, unit: reqs }
  samedir_rename:  { samples:\t       1, unit: reqs }
";
        let (got, bad) = parse(text.as_bytes(), JobstatsKind::Metadata);
        let expect = vec![("test_id.222.25844".to_owned(), [0, 0, 0, 0, 6])];
        assert_eq!((got, bad), (expect, false));
        let text = "job_stats:
- job_id         4854
  snapshot_time: 1322494602
  read:          { samples:  0, unit: bytes, min:  0, max:  0, sum:  0 }
  write:         { samples:  1, unit: bytes, min: 10, max: 10, sum: 10 }
  sync:          { samples:  0, unit: reqs }
";
        let (got, bad) = parse(text.as_bytes(), JobstatsKind::Object);
        let expect = vec![("4854".to_owned(), [0, 10, 0, 1, 0])];
        assert_eq!((got, bad), (expect, false));
    }

    /// An entry is given completely or not at all.
    #[test]
    fn a_cut_file_gives_whole_entries_only() {
        let whole = parse(OBJECT.as_bytes(), JobstatsKind::Object).0;
        for end in 0..OBJECT.len() {
            let (got, bad) = parse(&OBJECT.as_bytes()[..end], JobstatsKind::Object);
            let inside = end > 0 && OBJECT.as_bytes()[end - 1] != b'\n';
            assert!(!inside || bad, "cut at {end} went unnoticed");
            // Without a second entry, nothing shows that the first lacks a line.
            let first = OBJECT.find("- job_id:          \"").unwrap();
            if end > first {
                assert!(whole.starts_with(&got), "cut at {end}: {got:?}");
            }
        }
    }

    #[test]
    fn what_is_bad_takes_its_entry_away_and_no_other() {
        let check = |from: &str, to: &str, expect: &[&str]| {
            let text = OBJECT.replacen(from, to, 1);
            assert_ne!(text, OBJECT);
            let (got, bad) = parse(text.as_bytes(), JobstatsKind::Object);
            let got: Vec<_> = got.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!((got, bad), (expect.to_vec(), true), "{to}");
        };
        let second = ["a: {b}, sum: 7"];
        check("256", "-1", &second);
        check("256", "2,5", &second);
        check("1073741824 }", "1073741824", &second);
        check("1073741824", "99999999999999999999", &second);
        check("samples:         256", "Proben: 256", &second);
        check("cp.0", "", &second);
        check("cp.0", &"x".repeat(300), &second);
        check(
            "getattr:         { samples:           9",
            "garbage\n  getattr: { samples: 9",
            &second,
        );
        check(
            "  write_bytes:     { samples: 2, unit: bytes, min: 1, max: 1, sum: 6, sumsq: 1 }\n",
            "",
            &["cp.0"],
        );
        check("379104.213451005", "yesterday", &["cp.0"]);
    }

    #[test]
    fn lines_longer_than_all_memory_are_passed_over() {
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        let text = OBJECT.replacen("cp.0", &format!("cp.0\n{long}"), 1);
        let (got, bad) = parse(text.as_bytes(), JobstatsKind::Object);
        assert_eq!((got.len(), bad), (2, true));
        let exact = "y".repeat(LINE_BYTES_MAX);
        let text = OBJECT.replacen("cp.0", &format!("cp.0\n{exact}"), 1);
        assert!(parse(text.as_bytes(), JobstatsKind::Object).1);
    }

    #[test]
    fn times_and_names() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(nanoseconds(text.as_bytes()), expect, "{text}");
        };
        check("  12.5 secs.usecs", Some(12_500_000_000));
        check("1.000000001 secs.nsecs", Some(1_000_000_001));
        check("7", Some(7_000_000_000));
        check("99999999999.0", None);
        check("1.0000000001", None);
        check("-1.0", None);
        check("1.", None);
        check("", None);
        let name = |text: &str, expect: &[u8]| assert_eq!(unescaped(text.as_bytes()), expect);
        name("my\\x20solver", b"my solver");
        name("\\xFF\\x", b"\xff\\x");
        name("\\xzz", b"\\xzz");
        name("%h.%e.%u", b"%h.%e.%u");
    }
}
