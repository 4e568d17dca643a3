//! One line of `trace_pipe`: a request that was issued to a device, one that the device completed,
//! or events that were lost (<https://docs.kernel.org/trace/ftrace.html>; `print_trace_line` in
//! kernel/trace/trace.c; `block_rq_issue` and `block_rq_complete` in include/trace/events/block.h).
//!
//! ```text
//!     dd-77    [000] .....   123.456789: block_rq_issue: 254,0 W 4096 () 2048 + 8 none,0,0 [dd]
//! <idle>-0     [001] d.h1.   123.456999: block_rq_complete: 254,0 W () 2048 + 8 none,0,0 [0]
//! CPU:1 [LOST 12 EVENTS]
//! ```
//!
//! Differences between kernels are skipped: the flags (four letters, five, or none), the priority
//! after the sectors (newer kernels), the process or error code at the end. Before the time is the
//! thread, whose name may contain anything, and after it, if that option is set, its process in
//! parentheses.

use crate::util::parse::{number, words};

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceLine {
    /// A request was issued to its device.
    Issue(TraceRequest),
    /// A device completed a request, or a part of it.
    Complete(TraceRequest),
    /// This number of events was overwritten before they were read; `None` if the kernel does not
    /// know it.
    Lost(Option<u64>),
    /// A comment, or another event.
    Other,
    /// A line that is not as the kernel documents.
    Bad,
}

/// The request of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Time of the event by the trace's clock, in ns.
    pub at_ns: u64,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The operation of the request.
    pub operation: Operation,
    /// Beginning of the request, in sectors of 512 bytes from the beginning of the disk.
    pub sector: u64,
    /// Length of the request, in sectors.
    pub sectors: u64,
}

/// The kind of a request, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Data is read from the device.
    Read,
    /// Data is written to the device.
    Write,
    /// Neither: flushes, discards, zone management, commands of drivers.
    Other,
}

/// The process that issued a request to its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issuer<'a> {
    /// Number of the process, or of the thread if the trace does not have that of the process.
    pub process: u32,
    /// Name of the thread.
    pub command: &'a [u8],
}

const ISSUE: &[u8] = b"block_rq_issue: ";
const COMPLETE: &[u8] = b"block_rq_complete: ";

/// Parses one line, without its newline.
pub fn parse(line: &[u8]) -> TraceLine {
    // Only at the very beginning of a line: before an event, names of processes are aligned to the
    // right.
    if let Some(rest) = line.strip_prefix(b"CPU:") {
        return lost(rest).map_or(TraceLine::Bad, TraceLine::Lost);
    }
    let mut from = 0;
    // A name has at most 15 bytes: it can contain a colon and a blank, but not the name of an
    // event.
    while let Some(colon) = line[from..].iter().position(|b| *b == b':') {
        let (before, after) = (&line[..from + colon], &line[from + colon + 1..]);
        if let Some(event) = after.strip_prefix(b" ") {
            if let Some(event) = event.strip_prefix(ISSUE) {
                return request(before, event, true).map_or(TraceLine::Bad, TraceLine::Issue);
            }
            if let Some(event) = event.strip_prefix(COMPLETE) {
                return request(before, event, false).map_or(TraceLine::Bad, TraceLine::Complete);
            }
        }
        from += colon + 1;
    }
    match line.trim_ascii().first() {
        None | Some(b'#') => TraceLine::Other,
        Some(_) => TraceLine::Bad,
    }
}

/// The process that issued the request, from a line for which [`parse`] gives [`TraceLine::Issue`]:
/// ` fio-1235 ( 1234) [000] ..... 123.456789: block_rq_issue: …`.
pub fn issuer(line: &[u8]) -> Option<Issuer<'_>> {
    let event = line.windows(ISSUE.len()).position(|part| part == ISSUE)?;
    let before = &line[..event];
    // The processor is in the last bracket before the event, since the flags and the time have
    // none.
    let mut thread = before[..before.iter().rposition(|b| *b == b'[')?].trim_ascii();
    let mut process = None;
    if let Some(inner) = thread.strip_suffix(b")") {
        let open = inner.iter().rposition(|b| *b == b'(')?;
        // The kernel writes dashes if it does not know the process.
        process = number(inner[open + 1..].trim_ascii());
        thread = thread[..open].trim_ascii_end();
    }
    let dash = thread.iter().rposition(|b| *b == b'-')?;
    let own = number(&thread[dash + 1..])?;
    Some(Issuer {
        process: u32::try_from(process.unwrap_or(own)).ok()?,
        command: &thread[..dash],
    })
}

/// Parses `1 [LOST 12 EVENTS]`, with or without the number of events.
fn lost(rest: &[u8]) -> Option<Option<u64>> {
    let mut words = words(rest);
    number(words.next()?)?;
    (words.next()? == b"[LOST").then_some(())?;
    match words.next()? {
        b"EVENTS]" => Some(None),
        count => {
            let count = number(count)?;
            (words.next()? == b"EVENTS]").then_some(Some(count))
        }
    }
}

/// Parses `254,0 W 4096 () 2048 + 8 …`; only the event of an issue has the number of bytes.
fn request(before: &[u8], event: &[u8], is_issue: bool) -> Option<TraceRequest> {
    let at_ns = time_ns(before)?;
    let mut head = words(event);
    let device = device(head.next()?)?;
    let operation = operation(head.next()?)?;
    if is_issue {
        number(head.next()?)?;
    }
    (head.next()?.first() == Some(&b'(')).then_some(())?;
    // The parentheses contain the bytes of a SCSI command, separated by blanks, or nothing.
    let close = event.iter().position(|b| *b == b')')?;
    let mut tail = words(&event[close + 1..]);
    // A flush is completed at sector 2^64 - 1.
    let sector = unsigned(tail.next()?)?;
    (tail.next()? == b"+").then_some(())?;
    let sectors = number(tail.next()?).filter(|n| *n <= u64::from(u32::MAX))?;
    // Without a following word, the number may be cut off.
    tail.next()?;
    Some(TraceRequest {
        at_ns,
        device,
        operation,
        sector,
        sectors,
    })
}

/// Parses the time, the last word: seconds with a fraction of six digits.
fn time_ns(before: &[u8]) -> Option<u64> {
    let start = before.iter().rposition(|b| matches!(b, b' ' | b'\t'))? + 1;
    let word = &before[start..];
    let dot = word.iter().position(|b| *b == b'.')?;
    let (seconds, fraction) = (number(&word[..dot])?, &word[dot + 1..]);
    (fraction.len() == 6).then_some(())?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(number(fraction)? * 1000)
}

fn device(word: &[u8]) -> Option<(u32, u32)> {
    let comma = word.iter().position(|b| *b == b',')?;
    let half = |word| number(word).and_then(|n| u32::try_from(n).ok());
    Some((half(&word[..comma])?, half(&word[comma + 1..])?))
}

/// Parses the letters of `blk_fill_rwbs` in kernel/trace/blktrace.c: `F` for a flush before the
/// request, a letter for the operation, and letters for its options.
fn operation(word: &[u8]) -> Option<Operation> {
    let letter = match word {
        [b'F', second @ (b'R' | b'W' | b'D' | b'N'), ..] => *second,
        [first, ..] => *first,
        [] => return None,
    };
    match letter {
        b'R' => Some(Operation::Read),
        b'W' => Some(Operation::Write),
        b'A'..=b'Z' => Some(Operation::Other),
        _ => None,
    }
}

fn unsigned(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(
        at_ns: u64,
        device: (u32, u32),
        operation: Operation,
        sector: u64,
        sectors: u64,
    ) -> TraceRequest {
        TraceRequest {
            at_ns,
            device,
            operation,
            sector,
            sectors,
        }
    }

    #[test]
    fn lines_of_many_kernels() {
        use Operation::{Other, Read, Write};
        let check =
            |line: &str, expect: TraceLine| assert_eq!(parse(line.as_bytes()), expect, "{line}");
        // New kernels: with priorities, and five letters of flags.
        check(
            "    kworker/0:1H-77      [000] .....   123.456789: block_rq_issue: 254,0 W 4096 () 2048 + 8 none,0,0 [kworker/0:1H]",
            TraceLine::Issue(request(123_456_789_000, (254, 0), Write, 2048, 8)),
        );
        check(
            "          <idle>-0       [001] d.h1.   123.456999: block_rq_complete: 254,0 W () 2048 + 8 none,0,0 [0]",
            TraceLine::Complete(request(123_456_999_000, (254, 0), Write, 2048, 8)),
        );
        // Older kernels: without priorities, and four letters.
        check(
            "             dd-1234  [003] d..2 19654.923315: block_rq_issue: 8,16 RA 131072 () 6500840 + 256 [dd]",
            TraceLine::Issue(request(19_654_923_315_000, (8, 16), Read, 6_500_840, 256)),
        );
        // 2.6.3x to 3.x, with the command of the driver, and with flags switched off.
        check(
            "  smartd-900   [000]  1.000001: block_rq_issue: 8,0 N 36 (12 00 00 00 24 00 ..) 0 + 0 [smartd]",
            TraceLine::Issue(request(1_000_001_000, (8, 0), Other, 0, 0)),
        );
        check(
            "  <idle>-0 [007] ..s. 19654.923562: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]",
            TraceLine::Complete(request(19_654_923_562_000, (8, 0), Other, u64::MAX, 0)),
        );
        check(
            "  a-1 [007] ..s. 1.923562: block_rq_complete: 259,3 FWFSM () 16 + 24 be,0,4 [-5]",
            TraceLine::Complete(request(1_923_562_000, (259, 3), Write, 16, 24)),
        );
        check(
            " fstrim-9 [0] ..... 5.000000: block_rq_issue: 259,0 DS 4096 () 325863736 + 8 be,0,4 [fstrim]",
            TraceLine::Issue(request(5_000_000_000, (259, 0), Other, 325_863_736, 8)),
        );
        // With the thread group, and a name that imitates other parts of the line.
        check(
            " a: b [x] 1.0: c-9    (   9) [000] ..... 5.000000: block_rq_issue: 8,0 R 512 () 8 + 1 [a: b [x] 1.0: c]",
            TraceLine::Issue(request(5_000_000_000, (8, 0), Read, 8, 1)),
        );
        check("CPU:2 [LOST 1234 EVENTS]", TraceLine::Lost(Some(1234)));
        check("CPU:2 [LOST EVENTS]", TraceLine::Lost(None));
        check(
            " CPU:2 [LOST 5 EVENTS-9 [000] ..... 5.0: x: y",
            TraceLine::Bad,
        );
        check("", TraceLine::Other);
        check("# tracer: nop", TraceLine::Other);
    }

    #[test]
    fn who_handed_it_over() {
        let event = "5.000000: block_rq_issue: 8,0 R 512 () 8 + 1 [x]";
        let check = |before: &str, process: u32, command: &str| {
            let line = format!("{before} {event}");
            let command = command.as_bytes();
            let issuer = issuer(line.as_bytes());
            assert_eq!(issuer, Some(Issuer { process, command }), "{line}");
        };
        check("  kworker/0:1H-77      [000] .....  ", 77, "kworker/0:1H");
        check("             dd-1234  [003] d..2", 1234, "dd");
        check("  smartd-900   [000] ", 900, "smartd");
        check("  my-prog-900   (    850) [000] .....", 850, "my-prog");
        check("  a-9 (-------) [000] .....", 9, "a");
        check(
            " a: b [x] 1.0: c-9    (   9) [000] .....",
            9,
            "a: b [x] 1.0: c",
        );
        check(" (x)-9 [000] .....", 9, "(x)");
        for before in [
            "",
            "dd",
            "dd-x [000]",
            "dd-9",
            "dd-99999999999 [0]",
            ") [0]",
        ] {
            let line = format!("{before} {event}");
            assert_eq!(issuer(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn what_is_no_such_line() {
        let good = " a-1 [000] ..... 5.000000: block_rq_issue: 8,0 R 512 () 8 + 1 [a]";
        assert!(matches!(parse(good.as_bytes()), TraceLine::Issue(_)));
        let changes = [
            ("5.000000", "5.0000"),
            ("5.000000", "5,000000"),
            ("5.000000", "5000000"),
            ("5.000000", "99999999999999999999.000000"),
            ("8,0", "8:0"),
            ("8,0", "8,-1"),
            ("8,0", "8,99999999999"),
            (" R ", " ? "),
            (" 512 ", " x "),
            ("()", ""),
            (" 8 ", " 99999999999999999999 "),
            ("+ 1", "- 1"),
            ("+ 1", "+ 5000000000"),
        ];
        for (from, to) in changes {
            let line = good.replace(from, to);
            assert_eq!(parse(line.as_bytes()), TraceLine::Bad, "{line}");
        }
        for line in [
            "CPU:",
            "CPU:x [LOST 1 EVENTS]",
            "CPU:1 [LOST x EVENTS]",
            "CPU:1 [LOST 1",
            "hello",
        ] {
            assert_eq!(parse(line.as_bytes()), TraceLine::Bad, "{line}");
        }
    }

    #[test]
    fn a_line_cut_anywhere_is_never_another() {
        let lines = [
            " a-1 [000] ..... 5.000000: block_rq_issue: 8,0 R 512 () 81 + 16 none,0,0 [a]",
            " a-1 [000] ..... 5.000000: block_rq_complete: 8,0 R () 81 + 16 [0]",
            "CPU:2 [LOST 1234 EVENTS]",
        ];
        for line in lines {
            let whole = parse(line.as_bytes());
            for end in 0..line.len() {
                let cut = parse(&line.as_bytes()[..end]);
                assert!(
                    cut == whole || matches!(cut, TraceLine::Bad | TraceLine::Other),
                    "{end}: {cut:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
            issuer(&bytes);
        }

        /// Words of such lines in any order and number test more of the parser than arbitrary
        /// bytes.
        #[test]
        fn any_words_are_read_without_a_panic(
            words in proptest::collection::vec(prop_oneof![
                Just("block_rq_issue:".to_owned()), Just("block_rq_complete:".to_owned()), Just(":".to_owned()),
                Just("8,0".to_owned()), Just("R".to_owned()), Just("()".to_owned()), Just("+".to_owned()),
                Just("5.000000:".to_owned()), Just("CPU:".to_owned()), Just("[LOST".to_owned()), any::<u64>().prop_map(|n| n.to_string()),
            ], 0..14),
        ) {
            let line = words.join(" ");
            parse(line.as_bytes());
            issuer(line.as_bytes());
        }
    }
}
