//! The resource usage of a job, from its control groups.
//!
//! The files of version 2 include the groups below
//! (<https://docs.kernel.org/admin-guide/cgroup-v2.html>), except `cgroup.procs`. So do those of
//! version 1, except the files of blkio without `_recursive`
//! (<https://docs.kernel.org/admin-guide/cgroup-v1/>). These exceptions are summed over steps and
//! tasks. Of the files of blkio only the counters that `cgroup::counted` knows to work are used.

use std::path::{Path, PathBuf};

use crate::sources::cgroup::counted::Counted;
use crate::sources::cgroup::io::{CountedUnit, IoTable, Stacked, parse_v1, parse_v2};
use crate::util::faults::{BadLines, Faults};
use crate::util::file::HeldFile;
use crate::util::parse::{cut, lines, number, sole_number, words};

use super::find::{CounterRole, Groups, directories};

/// Most groups below those of all jobs that are looked at in one poll.
pub(super) const BELOW_MAX: usize = 16_384;

/// Resource usage of one job. An unknown value is `None`.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) memory_bytes: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) threads: Option<u64>,
    pub(super) processes: Option<u64>,
    /// Traffic by device.
    pub(super) traffic: Option<IoTable>,
}

/// The state that reading every job needs.
pub(super) struct Looker<'a> {
    /// The counters of control groups version 1 that really count.
    pub(super) counted: &'a Counted,
    pub(super) stacked: &'a Stacked,
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) faults: &'a mut Faults,
    /// Number of groups below jobs that may still be looked at.
    pub(super) left: usize,
}

impl Looker<'_> {
    pub(super) fn usage(&mut self, groups: &Groups) -> Usage {
        let of = |roles: &[CounterRole]| -> Vec<(CounterRole, &Path)> {
            let all = groups.directories.iter();
            all.filter(|(role, _)| roles.contains(role))
                .map(|(role, dir)| (*role, dir.as_path()))
                .collect()
        };
        let memory = of(&[CounterRole::V2, CounterRole::Memory]);
        let cpu = of(&[CounterRole::V2, CounterRole::Cpuacct]);
        let threads = of(&[CounterRole::V2, CounterRole::Pids]);
        let io = of(&[CounterRole::V2, CounterRole::Blkio]);
        Usage {
            memory_bytes: self.sum(&memory, |this, role, dir| {
                let file = match role {
                    CounterRole::V2 => "memory.current",
                    _ => "memory.usage_in_bytes",
                };
                this.file(dir, file, sole_number)
            }),
            cpu_seconds: self.sum(&cpu, Self::cpu_ns).map(|ns| ns as f64 / 1e9),
            threads: self.sum(&threads, |this, _, dir| {
                this.file(dir, "pids.current", sole_number)
            }),
            processes: self.processes(groups),
            traffic: self.traffic(&io),
        }
    }

    /// Sums a value over all groups of the job. Returns nothing if one of them has no value, since
    /// a sum that lacks a part would look like a reset of the counter.
    fn sum(
        &mut self,
        groups: &[(CounterRole, &Path)],
        mut read: impl FnMut(&mut Self, CounterRole, &Path) -> Option<u64>,
    ) -> Option<u64> {
        let mut sum = None;
        for (role, dir) in groups {
            let value = read(self, *role, dir)?;
            sum = Some(sum.unwrap_or(0u64).saturating_add(value));
        }
        sum
    }

    fn cpu_ns(&mut self, role: CounterRole, dir: &Path) -> Option<u64> {
        match role {
            CounterRole::V2 => self
                .file(dir, "cpu.stat", usage_us)
                .map(|us| us.saturating_mul(1000)),
            _ => self.file(dir, "cpuacct.usage", sole_number),
        }
    }

    fn traffic(&mut self, groups: &[(CounterRole, &Path)]) -> Option<IoTable> {
        let mut sum = None;
        for (role, dir) in groups {
            let table = sum.get_or_insert_with(IoTable::default);
            match role {
                CounterRole::V2 => {
                    self.lines(&dir.join("io.stat"), |bytes| parse_v2(bytes, table))?
                }
                _ => self.blkio(dir, table)?,
            }
        }
        sum
    }

    fn blkio(&mut self, dir: &Path, sum: &mut IoTable) -> Option<()> {
        let files = self.counted.files?;
        let mut all = vec![dir.to_owned()];
        if !files.is_recursive() {
            self.below(dir, &mut all)?;
        }
        for dir in all {
            for (file, counts) in [(files.0, CountedUnit::Bytes), (files.1, CountedUnit::Ops)] {
                self.lines(&dir.join(file), |bytes| parse_v1(bytes, counts, sum))?;
            }
        }
        self.counted.keep(sum, self.stacked);
        Some(())
    }

    /// Counts processes in one hierarchy only: each process is in one group of every hierarchy.
    fn processes(&mut self, groups: &Groups) -> Option<u64> {
        let asked = groups.directories.first()?.0;
        let mut all = Vec::new();
        for (_, dir) in groups.directories.iter().filter(|(role, _)| *role == asked) {
            all.push(dir.clone());
            self.below(dir, &mut all)?;
        }
        let mut count = None;
        for dir in all {
            // A threaded group has no list; its processes are in the list of its domain.
            if let Some(here) = self.file(&dir, "cgroup.procs", count_lines) {
                count = Some(count.unwrap_or(0) + here);
            }
        }
        count
    }

    /// Collects the groups below one; returns nothing if there are too many.
    fn below(&mut self, dir: &Path, all: &mut Vec<PathBuf>) -> Option<()> {
        for (_, below) in directories(dir, &mut self.left) {
            all.push(below.clone());
            self.below(&below, all)?;
        }
        (self.left > 0).then_some(())
    }

    /// Parses the lines of a file. Returns nothing if the file is absent or has a line that is not
    /// as documented.
    fn lines(&mut self, path: &Path, parse: impl FnOnce(&[u8]) -> BadLines) -> Option<()> {
        self.read(path)?;
        let bad = parse(self.bytes);
        let whole = !bad.any();
        bad.report(path, self.faults);
        whole.then_some(())
    }

    fn file(
        &mut self,
        dir: &Path,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Option<u64>,
    ) -> Option<u64> {
        let path = dir.join(name);
        self.read(&path)?;
        let value = parse(self.bytes);
        if value.is_none() {
            let mut bad = BadLines::default();
            bad.add(self.bytes);
            bad.report(&path, self.faults);
        }
        value
    }

    /// Reads a file. An absent file belongs to a controller that this job does not use, or the job
    /// has just ended.
    fn read(&mut self, path: &Path) -> Option<()> {
        match HeldFile::short_records(path.to_owned()).read_and_close(self.bytes) {
            Ok(()) => Some(()),
            Err(fault) if fault.is_absent() => None,
            Err(fault) => {
                self.faults.add(fault);
                None
            }
        }
    }
}

/// Parses the line `usage_usec 2500000` of `cpu.stat`.
fn usage_us(bytes: &[u8]) -> Option<u64> {
    if !cut(bytes).is_empty() {
        return None;
    }
    let line = lines(bytes).find_map(|line| line.strip_prefix(b"usage_usec "))?;
    words(line).number()
}

/// Counts lines with one process each; 0 stands for a process of another namespace.
fn count_lines(bytes: &[u8]) -> Option<u64> {
    if !cut(bytes).is_empty() {
        return None;
    }
    let mut count = 0;
    for line in lines(bytes) {
        number(line)?;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(usage_us(text.as_bytes()), expect, "{text:?}");
        };
        check("usage_usec 25\nuser_usec 20\nsystem_usec 5\n", Some(25));
        check("user_usec 20\nusage_usec 25\n", Some(25));
        check("usage_usec 25", None);
        check("usage_usec 25\nuser_us", None);
        check("usage_usec 2,5\n", None);
        check("usage_usec\n", None);
        check("", None);
    }

    #[test]
    fn processes() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(count_lines(text.as_bytes()), expect, "{text:?}");
        };
        check("", Some(0));
        check("1\n0\n0\n", Some(3));
        check("1\n2", None);
        check("1\nx\n", None);
    }
}
