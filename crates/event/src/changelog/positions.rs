//! The common position of the logs of one file system: how far each log can be cleared such that a
//! restart can apply all records again in their order, from one moment on.
//!
//! The merge applies the records of all logs in one order. Now and then a *checkpoint* notes how
//! far each log has been applied. When the events of all logs up to a checkpoint are durable, it is
//! written to a file, and only then the logs are cleared up to it. After a restart each log is read
//! from there on; records whose events are durable already change places, and are not told again.
//! A log that is idle does not hold up the others: its part of a checkpoint stays as it was.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// Most checkpoints that wait until they are durable. When there are as many, a new one takes the
/// place of the newest.
const WAITING_MAX: usize = 1_024;
/// Shortest time between two checkpoints, in ns.
const INTERVAL_NS: i64 = 100_000_000;
/// Most bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;
const HEAD: &str = "barograph changelog positions 1";
const END: &str = "end";

/// How far a log has been applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// Index of the last record that was applied.
    pub(crate) applied: u64,
    /// Index of the last event that was made: it becomes durable, and records without one do not.
    pub(crate) told: u64,
}

/// The positions of all logs at one moment of the merge.
#[derive(Debug)]
struct Checkpoint {
    logs: Vec<LogPosition>,
    /// Time of the monotonic clock, in ns.
    made_ns: i64,
}

impl Checkpoint {
    fn of_log(&self, log: usize) -> LogPosition {
        self.logs.get(log).copied().unwrap_or_default()
    }
}

/// The positions of the logs of one file system.
#[derive(Debug, Default)]
pub(crate) struct LogPositions {
    /// Names of the logs, by number.
    names: Vec<String>,
    /// Index up to which the events of each log are durable.
    durable: Vec<u64>,
    /// Index up to which each log may be cleared.
    reached: Vec<u64>,
    waiting: VecDeque<Checkpoint>,
    /// The file, and whether it lacks what is reached.
    file: Option<PathBuf>,
    is_unwritten: bool,
    /// What the file had when it was read.
    kept: BTreeMap<String, u64>,
    /// Why the file cannot be read or written; empty if it can.
    pub(crate) trouble: String,
    /// Whether logs were last cleared although the events of another one were not durable for too
    /// long.
    pub(crate) is_apart: bool,
}

impl LogPositions {
    /// Keeps the positions in this file from now on, and takes in those that it has.
    pub(crate) fn keep_in(&mut self, path: &Path) {
        if self.file.as_deref() == Some(path) {
            return;
        }
        self.file = Some(path.to_owned());
        match read(path) {
            Ok(kept) => self.kept = kept,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.trouble = format!("{}: {error}", path.display()),
        }
    }

    /// Adds a log.
    pub(crate) fn add(&mut self, name: &str) {
        self.names.push(name.to_owned());
        self.durable.push(0);
        self.reached.push(0);
    }

    /// Takes in that the events of a log up to `resume` are durable at its start; `None` if there
    /// are none. Returns the index after which the log is to be read: that of the file, if there
    /// is one.
    pub(crate) fn begin(&mut self, log: usize, resume: Option<u64>) -> Option<u64> {
        let durable = resume.unwrap_or(0);
        self.durable[log] = durable;
        let kept = self.kept.remove(&self.names[log]);
        let start = resume.map(|resume| kept.unwrap_or(resume));
        self.reached[log] = self.reached[log].max(start.unwrap_or(0));
        self.is_unwritten |= kept != Some(self.reached[log]);
        // Before 0 nothing was cleared: the log may begin with any index.
        start.filter(|start| *start > 0)
    }

    /// Takes in that the events of a log up to this index are durable.
    pub(crate) fn note_durable(&mut self, log: usize, index: u64) {
        self.durable[log] = self.durable[log].max(index);
    }

    /// Index up to which a log may be cleared.
    pub(crate) fn reached(&self, log: usize) -> u64 {
        self.reached[log]
    }

    /// Makes a checkpoint, if there is something new and the last one is not too young.
    pub(crate) fn check(&mut self, logs: &[LogPosition], now_ns: i64) {
        if let Some(last) = self.waiting.back() {
            let is_young = now_ns.saturating_sub(last.made_ns) < INTERVAL_NS;
            if last.logs == logs || is_young {
                return;
            }
        } else if (0..logs.len()).all(|log| logs[log].applied <= self.reached[log]) {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(Checkpoint {
            logs: logs.to_vec(),
            made_ns: now_ns,
        });
    }

    /// Moves on to the last checkpoint that is durable in all logs, and writes it to the file.
    pub(crate) fn settle(&mut self) {
        let before = self.reached.clone();
        let was_unwritten = self.is_unwritten;
        let mut passed = Vec::new();
        while let Some(first) = self.waiting.front() {
            let is_durable = |log: usize| first.of_log(log).told <= self.durable[log];
            if !(0..self.names.len()).all(is_durable) {
                break;
            }
            for log in 0..self.names.len() {
                self.reached[log] = self.reached[log].max(first.of_log(log).applied);
            }
            passed.extend(self.waiting.pop_front());
        }
        self.is_unwritten |= !passed.is_empty();
        if self.write() {
            self.is_apart &= passed.is_empty();
        } else {
            // Nothing is cleared that the file does not have; the next call tries again.
            self.reached = before;
            self.is_unwritten = was_unwritten;
            let newest = passed.pop();
            newest
                .into_iter()
                .for_each(|one| self.waiting.push_front(one));
        }
    }

    /// Gives up waiting for logs whose events have not become durable for `hold_ns`: the others
    /// are cleared as far as they are durable themselves.
    pub(crate) fn give_up(&mut self, hold_ns: i64, now_ns: i64) {
        let Some(first) = self.waiting.front() else {
            return;
        };
        if now_ns.saturating_sub(first.made_ns) < hold_ns {
            return;
        }
        let before = self.reached.clone();
        for log in 0..self.names.len() {
            let of_log = self.waiting.iter().map(|one| one.of_log(log));
            let durable = of_log.take_while(|one| one.told <= self.durable[log]);
            if let Some(last) = durable.last() {
                self.reached[log] = self.reached[log].max(last.applied);
            }
        }
        if self.reached == before {
            return;
        }
        let was_unwritten = std::mem::replace(&mut self.is_unwritten, true);
        match self.write() {
            true => self.is_apart = true,
            false => (self.reached, self.is_unwritten) = (before, was_unwritten),
        }
    }

    /// Writes the file if it lacks something; returns whether it has everything then.
    fn write(&mut self) -> bool {
        let Some(path) = self.file.as_deref().filter(|_| self.is_unwritten) else {
            return true;
        };
        // A log that has not begun yet keeps the position that it had.
        let mut positions = self.kept.clone();
        for (name, reached) in self.names.iter().zip(&self.reached) {
            positions.entry(name.clone()).or_insert(*reached);
        }
        match write(path, &positions) {
            Ok(()) => {
                self.trouble.clear();
                self.is_unwritten = false;
                true
            }
            Err(error) => {
                self.trouble = format!(
                    "the logs are not cleared, since {} cannot be written: {error}",
                    path.display()
                );
                false
            }
        }
    }
}

/// Reads a file of positions.
fn read(path: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let no_positions = || io::Error::new(ErrorKind::InvalidData, "it has no positions of logs");
    parse(&text).ok_or_else(no_positions)
}

/// The positions of a text; `None` if it is cut off or another one.
fn parse(text: &str) -> Option<BTreeMap<String, u64>> {
    let lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?;
    let lines = lines.strip_suffix('\n')?.strip_suffix(END)?;
    let position = |line: &str| {
        let (name, index) = line.split_once(' ')?;
        Some((name.to_owned(), index.parse().ok()?))
    };
    lines.lines().map(position).collect()
}

/// Writes a file of positions, which takes the place of the one before in one step. It need not be
/// on disk: after a loss of power an older file tells positions that were cleared since, and the
/// records that are missing then are known to be.
fn write(path: &Path, positions: &BTreeMap<String, u64>) -> io::Result<()> {
    let mut text = format!("{HEAD}\n");
    for (name, index) in positions {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{name} {index}");
    }
    let _ = writeln!(text, "{END}");
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn at(applied: u64, told: u64) -> LogPosition {
        LogPosition { applied, told }
    }

    fn two_logs(path: &Path) -> LogPositions {
        let mut positions = LogPositions::default();
        positions.keep_in(path);
        positions.add("fs-MDT0000");
        positions.add("fs-MDT0001");
        positions
    }

    /// What is reached after some steps: `c A B` makes a checkpoint with these positions, `d LOG
    /// INDEX` makes events durable, `g` gives up.
    fn reached(steps: &[&str]) -> [u64; 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("positions");
        let mut positions = two_logs(&path);
        let starts = [0, 1].map(|log| positions.begin(log, None));
        assert_eq!(starts, [None, None]);
        let mut now_ns = 0;
        for step in steps {
            now_ns += SECOND;
            let words: Vec<u64> = step
                .split(' ')
                .skip(1)
                .map(|w| w.parse().unwrap())
                .collect();
            match &step[..1] {
                "c" => {
                    let logs = [at(words[0], words[0]), at(words[1], words[1])];
                    positions.check(&logs, now_ns);
                }
                "d" => positions.note_durable(words[0] as usize, words[1]),
                _ => positions.give_up(0, now_ns),
            }
            positions.settle();
        }
        let reached = [0, 1].map(|log| positions.reached(log));
        let kept = read(&path).unwrap();
        assert_eq!(kept.into_values().collect::<Vec<u64>>(), reached);
        reached
    }

    #[test]
    fn a_log_is_cleared_up_to_what_is_durable_in_all() {
        for (steps, expected) in [
            (&["c 5 5"][..], [0, 0]),
            (&["c 5 5", "d 0 5"], [0, 0]),
            (&["c 5 5", "d 0 5", "d 1 4"], [0, 0]),
            (&["c 5 5", "d 0 9", "d 1 5"], [5, 5]),
            (&["c 5 5", "c 6 8", "d 0 9", "d 1 7"], [5, 5]),
            (&["c 5 5", "c 6 8", "d 0 9", "d 1 8"], [6, 8]),
            // An idle log holds up nothing.
            (&["c 5 0", "d 0 5", "c 9 0", "d 0 9"], [9, 0]),
            (&["c 5 5", "c 6 8", "d 0 6", "d 1 4", "g"], [6, 0]),
            (&["c 5 5", "c 6 8", "d 0 6", "d 1 5", "g"], [6, 5]),
        ] {
            assert_eq!(reached(steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn a_restart_begins_at_what_was_reached_by_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("positions");
        let mut positions = two_logs(&path);
        (0..2).for_each(|log| _ = positions.begin(log, None));
        positions.check(&[at(7, 6), at(3, 3)], 0);
        (0..2).for_each(|log| positions.note_durable(log, 6));
        positions.settle();
        positions.check(&[at(70, 70), at(30, 30)], SECOND);
        positions.note_durable(1, 30);
        positions.settle();
        let mut again = two_logs(&path);
        assert_eq!(again.begin(0, Some(66)), Some(7));
        again.settle();
        assert_eq!(again.begin(1, Some(30)), Some(3), "it was kept meanwhile");
        // Without events there is nothing that was told before.
        let mut anew = two_logs(&path);
        assert_eq!(anew.begin(0, None), None);
        std::fs::write(&path, "something else\n").unwrap();
        let mut unread = two_logs(&path);
        assert_eq!(unread.begin(0, Some(66)), Some(66));
        assert!(
            unread.trouble.contains("no positions"),
            "{}",
            unread.trouble
        );
        unread.settle();
        assert_eq!((&*unread.trouble, read(&path).unwrap().len()), ("", 2));
    }

    #[test]
    fn nothing_is_cleared_that_cannot_be_kept() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        let mut positions = two_logs(&inner.join("positions"));
        (0..2).for_each(|log| _ = positions.begin(log, None));
        positions.check(&[at(7, 7), at(3, 3)], 0);
        (0..2).for_each(|log| positions.note_durable(log, 9));
        positions.settle();
        assert_eq!(positions.reached(0), 0);
        assert!(
            positions.trouble.contains("not cleared"),
            "{}",
            positions.trouble
        );
        std::fs::create_dir(&inner).unwrap();
        positions.settle();
        assert_eq!((positions.reached(0), positions.reached(1)), (7, 3));
        assert_eq!(positions.trouble, "");
    }

    #[test]
    fn waiting_checkpoints_are_bounded() {
        let mut positions = LogPositions::default();
        positions.add("a");
        for n in 1..3_000 {
            positions.check(&[at(n, n)], n as i64 * SECOND);
            assert!(positions.waiting.len() <= WAITING_MAX);
        }
        positions.note_durable(0, 2_998);
        positions.settle();
        assert_eq!(positions.reached(0), WAITING_MAX as u64 - 1);
        positions.note_durable(0, 2_999);
        positions.settle();
        assert_eq!(positions.reached(0), 2_999);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_what_is_cut_off_is_not(
            positions in proptest::collection::btree_map("[a-zA-Z0-9_.-]{1,20}", any::<u64>(), 0..9),
            cut in any::<proptest::sample::Index>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("positions");
            write(&path, &positions).unwrap();
            prop_assert_eq!(read(&path).unwrap(), positions);
            let text = std::fs::read_to_string(&path).unwrap();
            prop_assert_eq!(parse(&text[..cut.index(text.len())]), None);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!("{HEAD}\n{text}\n{END}\n"));
        }
    }
}
