//! Parser of one mount's part of the file, line by line.

use crate::util::parse::{Words, words};

/// Counters of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OperationCounters {
    pub(super) ops: u64,
    sent: u64,
    timeouts: u64,
    wait_ms: u64,
    round_trip_ms: u64,
}

impl OperationCounters {
    /// Mean time from sending to reply of the operations since `last`, in milliseconds; nothing if
    /// there were none.
    pub(super) fn round_trip_ms(&self, last: &Self) -> Option<f64> {
        self.mean(last, self.round_trip_ms, last.round_trip_ms)
    }

    /// Mean time in the queue before sending, in milliseconds.
    pub(super) fn wait_ms(&self, last: &Self) -> Option<f64> {
        self.mean(last, self.wait_ms, last.wait_ms)
    }

    fn mean(&self, last: &Self, now_ms: u64, then_ms: u64) -> Option<f64> {
        let ops = self.ops.checked_sub(last.ops).filter(|ops| *ops > 0)?;
        Some(now_ms.checked_sub(then_ms)? as f64 / ops as f64)
    }

    fn add(&mut self, line: &OpLine) {
        self.ops = self.ops.saturating_add(line.ops);
        self.sent = self.sent.saturating_add(line.sent);
        self.timeouts = self.timeouts.saturating_add(line.timeouts);
        self.wait_ms = self.wait_ms.saturating_add(line.wait_ms);
        self.round_trip_ms = self.round_trip_ms.saturating_add(line.round_trip_ms);
    }

    /// Number of retransmissions. Both counters are raised when an operation ends, so pending
    /// operations are in neither.
    fn retransmits(&self) -> u64 {
        self.sent.saturating_sub(self.ops)
    }
}

/// The columns of an operation that are used.
struct OpLine {
    ops: u64,
    sent: u64,
    timeouts: u64,
    wait_ms: u64,
    round_trip_ms: u64,
    /// Present since statistics version 1.1.
    errors: Option<u64>,
}

impl OpLine {
    fn parse(mut columns: Words<'_>) -> Option<Self> {
        let ops = columns.number()?;
        let sent = columns.number()?;
        let timeouts = columns.number()?;
        let _bytes_sent = columns.number()?;
        let _bytes_received = columns.number()?;
        let wait_ms = columns.number()?;
        let round_trip_ms = columns.number()?;
        let _execution_ms = columns.number()?;
        let errors = match columns.at_end() {
            true => None,
            false => Some(columns.number()?),
        };
        Some(Self {
            ops,
            sent,
            timeouts,
            wait_ms,
            round_trip_ms,
            errors,
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MountCounters {
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) server_read_bytes: u64,
    pub(super) server_write_bytes: u64,
    pub(super) read: OperationCounters,
    pub(super) write: OperationCounters,
    pub(super) other: OperationCounters,
    pub(super) errors: Option<u64>,
    pub(super) connects: Option<u64>,
}

impl MountCounters {
    pub(super) fn retransmits(&self) -> u64 {
        let [a, b, c] = [self.read, self.write, self.other].map(|ops| ops.retransmits());
        a.saturating_add(b).saturating_add(c)
    }

    pub(super) fn timeouts(&self) -> u64 {
        let [a, b, c] = [self.read, self.write, self.other].map(|ops| ops.timeouts);
        a.saturating_add(b).saturating_add(c)
    }
}

/// The parser's place in the file.
#[derive(Debug, Default)]
pub(super) struct MountBlock<'a> {
    place: Place<'a>,
}

#[derive(Debug, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack: a box would cost an allocation a mount and read"
)]
enum Place<'a> {
    /// Between the mounts, or in a mount of another type.
    #[default]
    Outside,
    /// In an NFS mount.
    Mount(Open<'a>),
    /// In an NFS mount that had a bad line: its sums would be wrong.
    Spoilt,
}

#[derive(Debug)]
struct Open<'a> {
    name: &'a [u8],
    device: &'a [u8],
    traffic: MountCounters,
    has_bytes: bool,
    in_operations: bool,
}

/// The meaning of a line.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack: a box would cost an allocation a mount and read"
)]
pub(super) enum BlockStep<'a> {
    /// No mount ends at this line.
    Inside,
    /// The line is not as the kernel documents.
    Bad,
    /// The end of a mount: its mount point, its device and its counters.
    Whole(&'a [u8], &'a [u8], MountCounters),
}

impl<'a> MountBlock<'a> {
    /// Parses the next line.
    pub(super) fn step(&mut self, line: &'a [u8]) -> BlockStep<'a> {
        if line.starts_with(b"device ") || line.starts_with(b"no device ") {
            let cut = self.is_open();
            let opened = open(line);
            self.place = match opened {
                Ok(Some(open)) => Place::Mount(open),
                Ok(None) => Place::Outside,
                Err(()) => Place::Spoilt,
            };
            // The block before had no end.
            return match cut || opened_badly(&self.place) {
                true => BlockStep::Bad,
                false => BlockStep::Inside,
            };
        }
        if !line.trim_ascii().is_empty() {
            return match &mut self.place {
                Place::Mount(open) => match open.take(line) {
                    Some(()) => BlockStep::Inside,
                    None => {
                        self.place = Place::Spoilt;
                        BlockStep::Bad
                    }
                },
                Place::Outside | Place::Spoilt => BlockStep::Inside,
            };
        }
        match std::mem::take(&mut self.place) {
            Place::Mount(open) if open.has_bytes && open.in_operations => {
                BlockStep::Whole(open.name, open.device, open.traffic)
            }
            // Statistics of a version that has none of these counters: the mount gives no facts.
            Place::Mount(_) | Place::Outside | Place::Spoilt => BlockStep::Inside,
        }
    }

    /// Whether a mount has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.place, Place::Mount(_))
    }
}

fn opened_badly(place: &Place<'_>) -> bool {
    matches!(place, Place::Spoilt)
}

/// Parses `device WHAT mounted on WHERE with fstype TYPE [statvers=V]`. Returns the open block of
/// an NFS mount with statistics; nothing for any other mount.
fn open(line: &[u8]) -> Result<Option<Open<'_>>, ()> {
    let mut words = words(line);
    if words.next() != Some(b"device") {
        return Ok(None);
    }
    let device = words.next().ok_or(())?;
    let mounted = words.next() == Some(b"mounted") && words.next() == Some(b"on");
    let name = words.next().ok_or(())?;
    let typed = words.next() == Some(b"with") && words.next() == Some(b"fstype");
    if !mounted || !typed {
        return Err(());
    }
    let fstype = words.next().ok_or(())?;
    let has_statistics = words.next().is_some_and(|w| w.starts_with(b"statvers="));
    if !matches!(fstype, b"nfs" | b"nfs4") || !has_statistics {
        return Ok(None);
    }
    Ok(Some(Open {
        name,
        device,
        traffic: MountCounters::default(),
        has_bytes: false,
        in_operations: false,
    }))
}

impl Open<'_> {
    /// Parses a line of a mount. Returns nothing if the line is used and cannot be understood.
    fn take(&mut self, line: &[u8]) -> Option<()> {
        let line = line.trim_ascii();
        if line == b"per-op statistics" {
            self.in_operations = true;
            return Some(());
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            // Kernels may add lines of other forms, but not among the operations.
            return (!self.in_operations).then_some(());
        };
        let (key, rest) = (&line[..colon], &line[colon + 1..]);
        if self.in_operations {
            return self.operation(key, rest);
        }
        match key {
            b"bytes" => self.bytes(rest),
            b"xprt" => self.transport(rest),
            _ => Some(()),
        }
    }

    /// Parses the bytes that programs read and wrote through the cache and past it, and those read
    /// from and written to the server.
    fn bytes(&mut self, rest: &[u8]) -> Option<()> {
        let mut columns = words(rest);
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = columns.number()?;
        }
        let [
            normal_read,
            normal_write,
            direct_read,
            direct_write,
            read,
            write,
        ] = counts;
        self.traffic.read_bytes = normal_read.saturating_add(direct_read);
        self.traffic.write_bytes = normal_write.saturating_add(direct_write);
        self.traffic.server_read_bytes = read;
        self.traffic.server_write_bytes = write;
        self.has_bytes = true;
        Some(())
    }

    /// Parses `tcp PORT BINDS CONNECTS …`; a mount may have several transports, and UDP has no
    /// connections.
    fn transport(&mut self, rest: &[u8]) -> Option<()> {
        let mut columns = words(rest);
        let kind = columns.next()?;
        if !matches!(kind, b"tcp" | b"rdma" | b"tcp-tls") {
            return Some(());
        }
        let _port = columns.number()?;
        let _binds = columns.number()?;
        let connects = columns.number()?;
        let sum = self.traffic.connects.unwrap_or(0);
        self.traffic.connects = Some(sum.saturating_add(connects));
        Some(())
    }

    fn operation(&mut self, name: &[u8], rest: &[u8]) -> Option<()> {
        let line = OpLine::parse(words(rest))?;
        let traffic = &mut self.traffic;
        match name {
            b"READ" => traffic.read.add(&line),
            b"WRITE" => traffic.write.add(&line),
            _ => traffic.other.add(&line),
        }
        if let Some(errors) = line.errors {
            let sum = traffic.errors.unwrap_or(0);
            traffic.errors = Some(sum.saturating_add(errors));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "device s:/e mounted on /m with fstype nfs4 statvers=1.1\n";

    fn whole(text: &str) -> (Vec<MountCounters>, usize, bool) {
        let mut block = MountBlock::default();
        let (mut found, mut bad) = (Vec::new(), 0);
        for line in text.lines() {
            match block.step(line.as_bytes()) {
                BlockStep::Inside => {}
                BlockStep::Bad => bad += 1,
                BlockStep::Whole(_, _, traffic) => found.push(traffic),
            }
        }
        (found, bad, block.is_open())
    }

    #[test]
    fn a_block_counts_once_it_has_ended() {
        let body = "\tbytes:\t1 2 3 4 5 6 7 8\n\txprt:\ttcp 0 1 2 3 4 5\n\txprt:\trdma 0 1 5\n\
                    \tper-op statistics\n\t READ: 10 12 1 0 0 20 40 60 3\n\t NULL: 1 1 0 0 0 0 0 0 1\n";
        let (found, bad, open) = whole(&format!("{HEAD}{body}"));
        assert!(found.is_empty() && bad == 0 && open);
        let (found, bad, open) = whole(&format!("{HEAD}{body}\n"));
        assert!(bad == 0 && !open);
        let [traffic] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((traffic.read_bytes, traffic.write_bytes), (4, 6));
        assert_eq!(
            (traffic.server_read_bytes, traffic.server_write_bytes),
            (5, 6)
        );
        assert_eq!((traffic.read.ops, traffic.other.ops), (10, 1));
        assert_eq!((traffic.retransmits(), traffic.timeouts()), (2, 1));
        assert_eq!((traffic.errors, traffic.connects), (Some(4), Some(7)));
    }

    #[test]
    fn a_bad_line_spoils_its_mount_and_no_other() {
        let bad_one = format!("{HEAD}\tbytes:\t1 2 3 4 5 6\n\tper-op statistics\n\tREAD: 1 x\n\n");
        let good = format!(
            "{HEAD}\tbytes:\t1 2 3 4 5 6\n\tper-op statistics\n\tREAD: 1 1 0 0 0 0 0 0\n\n"
        );
        let (found, bad, _) = whole(&format!("{bad_one}{good}"));
        assert_eq!((found.len(), bad), (1, 1));
        // The next mount begins before the last one has ended.
        let (found, bad, _) = whole(&format!("{HEAD}\tbytes:\t1 2 3 4 5 6\n{good}"));
        assert_eq!((found.len(), bad), (1, 1));
    }

    #[test]
    fn other_types_and_unknown_lines_are_passed_over() {
        let text = "device proc mounted on /proc with fstype proc\nno device mounted on / with fstype rootfs\n";
        assert_eq!(whole(text), (vec![], 0, false));
        let (found, bad, _) = whole(&format!(
            "{HEAD}\tfuture\n\tfscache: 1 x\n\tbytes: 1 2 3 4 5 6 7 8 9 10\n\tper-op statistics\n\n"
        ));
        assert_eq!((found.len(), bad), (1, 0));
    }
}
