//! Parsers of the files of one process: `/proc/PID/io`, `/proc/PID/stat` (proc_pid_io(5),
//! proc_pid_stat(5)), and `fdinfo` of its io_uring rings (`io_uring/fdinfo.c` of the kernel).

use crate::util::parse::{lines, number, words};

/// Bytes that a process has read from and written to storage since it began. Page cache hits are
/// not included; bytes that were deleted before they were written are in `cancelled_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessIo {
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) cancelled_bytes: u64,
}

impl ProcessIo {
    pub(super) fn plus(self, more: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_add(more.read_bytes),
            write_bytes: self.write_bytes.saturating_add(more.write_bytes),
            cancelled_bytes: self.cancelled_bytes.saturating_add(more.cancelled_bytes),
        }
    }

    /// Subtracts; never below 0.
    pub(super) fn minus(self, less: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(less.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(less.write_bytes),
            cancelled_bytes: self.cancelled_bytes.saturating_sub(less.cancelled_bytes),
        }
    }
}

/// Parses `io`; returns nothing unless all three lines are complete.
pub(super) fn io(bytes: &[u8]) -> Option<ProcessIo> {
    let mut values = [None; 3];
    const KEYS: [&[u8]; 3] = [
        b"read_bytes: ",
        b"write_bytes: ",
        b"cancelled_write_bytes: ",
    ];
    for line in lines(bytes) {
        for (value, key) in values.iter_mut().zip(KEYS) {
            if let Some(rest) = line.strip_prefix(key) {
                *value = Some(number(rest)?);
            }
        }
    }
    Some(ProcessIo {
        read_bytes: values[0]?,
        write_bytes: values[1]?,
        cancelled_bytes: values[2]?,
    })
}

/// Parses the command, the number of the parent, and the start in ticks since boot:
/// `4711 (a (b) c) S 1 …`. A command may contain blanks and brackets, so it ends at the last
/// bracket.
pub(super) fn stat(bytes: &[u8]) -> Option<(&[u8], u32, u64)> {
    /// Field 4, counted from the state, which is field 3.
    const PARENT: usize = 1;
    /// Field 22, counted after the parent.
    const START: usize = 17;
    // A command may also contain a newline, so only the last one ends the line.
    let line = bytes.strip_suffix(b"\n")?;
    let open = line.iter().position(|b| *b == b'(')?;
    let close = line.iter().rposition(|b| *b == b')')?;
    let command = line.get(open + 1..close)?;
    let mut fields = words(&line[close + 1..]);
    let parent = u32::try_from(number(fields.nth(PARENT)?)?).ok()?;
    let start = fields.nth(START)?;
    Some((command, parent, number(start)?))
}

/// The lasting part of a command. A worker of the kernel keeps only the first part of its name
/// while it works for one queue after another: `kworker/u8:2` of `kworker/u8:2-flush-254:0` and
/// `kworker/u8:2+events` (`wq_worker_comm` in `kernel/workqueue.c`). Other commands are returned
/// whole, including those of rescuers, which have one queue (`kworker/R-writeback`).
pub(super) fn lasting(command: &[u8]) -> &[u8] {
    let rest = command.strip_prefix(b"kworker/");
    let Some(rest) = rest.filter(|rest| !rest.starts_with(b"R-")) else {
        return command;
    };
    let end = rest.iter().position(|b| matches!(b, b'-' | b'+'));
    &command[..end.map_or(command.len(), |at| command.len() - rest.len() + at)]
}

/// Fill level of one ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingFill {
    /// Submissions that the kernel has not taken yet.
    pub(super) queued: u64,
    /// Completions that the program has not taken yet.
    pub(super) completed: u64,
}

/// Parses the heads and tails of a ring. Returns nothing if one of the four is missing: the kernel
/// leaves them out while the ring is locked, and before Linux 5.18 it printed others.
pub(super) fn ring(bytes: &[u8]) -> Option<RingFill> {
    const KEYS: [&[u8]; 4] = [b"SqHead:", b"SqTail:", b"CqHead:", b"CqTail:"];
    let mut marks = [None; 4];
    for line in lines(bytes) {
        for (mark, key) in marks.iter_mut().zip(KEYS) {
            if let Some(rest) = line.strip_prefix(key) {
                *mark = Some(u32::try_from(number(rest.trim_ascii())?).ok()?);
            }
        }
    }
    let [sq_head, sq_tail, cq_head, cq_tail] = [marks[0]?, marks[1]?, marks[2]?, marks[3]?];
    /// `IORING_MAX_CQ_ENTRIES`: a greater distance means that a tail was read before its head.
    const ENTRIES_MAX: u32 = 65_536;
    let distance = |head: u32, tail: u32| {
        let distance = tail.wrapping_sub(head);
        (distance <= ENTRIES_MAX).then_some(u64::from(distance))
    };
    Some(RingFill {
        queued: distance(sq_head, sq_tail)?,
        completed: distance(cq_head, cq_tail)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO: &str = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 512\n";

    #[test]
    fn bytes_of_a_process() {
        let expect = ProcessIo {
            read_bytes: 4096,
            write_bytes: 8192,
            cancelled_bytes: 512,
        };
        assert_eq!(io(IO.as_bytes()), Some(expect));
        assert_eq!(io(format!("new_bytes: x\n{IO}").as_bytes()), Some(expect));
        for end in 0..IO.len() {
            assert_eq!(io(&IO.as_bytes()[..end]), None, "{end}");
        }
        assert_eq!(io(IO.replace("4096", "4,096").as_bytes()), None);
        assert_eq!(
            io(IO.replace("4096", "18446744073709551615").as_bytes()),
            None
        );
        assert_eq!(io(b"rchar: 9\n"), None);
    }

    #[test]
    fn command_and_start() {
        let rest = "S 3 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1234 9 9\n";
        let check = |command: &str| {
            let line = format!("4711 ({command}) {rest}");
            let expect = Some((command.as_bytes(), 3, 1234));
            assert_eq!(stat(line.as_bytes()), expect, "{command}");
            for end in 0..line.len() {
                let got = stat(&line.as_bytes()[..end]);
                // A cut that ends at a newline of the command itself is no exception.
                assert_eq!(got, None, "{command} cut at {end}");
            }
        };
        for command in [
            "fio",
            "",
            "a b",
            "a) (b",
            ") S 1",
            "((",
            "a\nb",
            "Web Content",
        ] {
            check(command);
        }
    }

    #[test]
    fn workers_of_the_kernel_have_a_lasting_name() {
        let check = |command: &str, expect: &str| {
            assert_eq!(lasting(command.as_bytes()), expect.as_bytes(), "{command}");
        };
        check("kworker/u8:2-flush-254:0", "kworker/u8:2");
        check("kworker/u8:2+events_unbound", "kworker/u8:2");
        check("kworker/0:1H-kblockd", "kworker/0:1H");
        check("kworker/R-writeback", "kworker/R-writeback");
        check("kworker/1:0", "kworker/1:0");
        check("my-program", "my-program");
        check("", "");
    }

    #[test]
    fn rings() {
        let text = "pos:\t0\nino:\t1057\nSqMask:\t0x7\nSqHead:\t4294967295\nSqTail:\t2\nCachedSqHead:\t1\nCqMask:\t0xf\nCqHead:\t10\nCqTail:\t14\nCachedCqTail:\t14\nSQEs:\t0\n";
        let expect = RingFill {
            queued: 3,
            completed: 4,
        };
        assert_eq!(ring(text.as_bytes()), Some(expect));
        assert_eq!(ring(b"pos:\t0\nflags:\t02\n"), None);
        assert_eq!(
            ring(text.replace("CqTail:\t14", "CqTail:\t9").as_bytes()),
            None
        );
        assert_eq!(
            ring(
                text.replace("SqTail:\t2", "SqTail:\t99999999999")
                    .as_bytes()
            ),
            None
        );
    }
}
