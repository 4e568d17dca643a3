//! A pool and the datasets that are mounted from it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::fact::{FactSet, facts};
use crate::util::faults::{BadLines, Faults};
use crate::util::file::HeldFile;
use crate::util::keyed::KeyedLines;
use crate::util::parse::{cut, escape, lines, sole_text, words};
use crate::{MissingPart, SourceBatch, SourceError};

use super::kstat_number;

/// Most datasets that are followed, each with one descriptor.
pub(super) const DATASETS_MAX: usize = 256;

facts! {
    /// Facts of one pool.
    pub(crate) enum PoolFact in "zfs" {
        State: State Text "state.name" "name" "State of the pool: ONLINE, DEGRADED, FAULTED, SUSPENDED and others.";
        Healthy: State Bool "healthy.flag" "flag" "Whether the pool is ONLINE.";
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read from the pool's devices; counted only by ZFS before 2.1.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written to the pool's devices; counted only by ZFS before 2.1.";
        ReadOps: Counter Int "read.ops" "ops" "Reads of the pool's devices; counted only by ZFS before 2.1.";
        WriteOps: Counter Int "write.ops" "ops" "Writes to the pool's devices; counted only by ZFS before 2.1.";
    }
}

facts! {
    /// Facts of one dataset.
    pub(crate) enum DatasetFact in "zfs.dataset" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read by programs, from the cache or from storage.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written by programs.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by programs.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by programs.";
        Unlinks: Counter Int "unlinks.count" "count" "Files whose last name was removed, so that their space is to be freed.";
        Unlinked: Counter Int "unlinked.count" "count" "Files whose last name was removed and whose space has been freed.";
    }
}

const IO: [(&[u8], PoolFact); 4] = [
    (b"nread", PoolFact::ReadBytes),
    (b"nwritten", PoolFact::WriteBytes),
    (b"reads", PoolFact::ReadOps),
    (b"writes", PoolFact::WriteOps),
];
const OBJSET: [(&[u8], DatasetFact); 6] = [
    (b"nread", DatasetFact::ReadBytes),
    (b"nwritten", DatasetFact::WriteBytes),
    (b"reads", DatasetFact::ReadOps),
    (b"writes", DatasetFact::WriteOps),
    (b"nunlinks", DatasetFact::Unlinks),
    (b"nunlinked", DatasetFact::Unlinked),
];

/// A pool that is followed.
pub(super) struct Pool {
    label: String,
    facts: FactSet<PoolFact>,
    state_file: HeldFile,
    io: HeldFile,
    state: String,
}

impl Pool {
    pub(super) fn new(name: &[u8], dir: &Path) -> Result<Self, SourceError> {
        let label = escape(name);
        Ok(Self {
            facts: FactSet::labelled([("pool", label.clone())])?,
            state_file: HeldFile::short_records(dir.join("state")),
            io: HeldFile::short_records(dir.join("io")),
            state: String::new(),
            label,
        })
    }

    /// Reads the pool's files and puts the facts; returns whether one of the files still exists.
    pub(super) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> bool {
        let has_state = self.state_file.read_if_there(bytes, faults);
        if let Some(state) = sole_text(bytes).filter(|text| is_state(text) && has_state) {
            self.facts.text(batch, now_ns, PoolFact::State, state);
            let healthy = state == "ONLINE";
            self.facts
                .measured(batch, now_ns, PoolFact::Healthy, healthy);
            state.clone_into(&mut self.state);
        }
        let has_io = self.io.read_if_there(bytes, faults);
        if has_io && !put_io(&mut self.facts, now_ns, batch, bytes) {
            let mut bad = BadLines::default();
            bad.add(bytes);
            bad.report(self.io.path(), faults);
        }
        has_state || has_io
    }

    pub(super) fn describe(&self) -> String {
        match self.state.as_str() {
            "" => self.label.clone(),
            state => format!("{} ({state})", self.label),
        }
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
    }
}

/// Puts the counters of `io`: a line of names and a line of numbers, after a line about the kstat
/// itself.
fn put_io(
    facts: &mut FactSet<PoolFact>,
    now_ns: i64,
    batch: &mut SourceBatch,
    bytes: &[u8],
) -> bool {
    let mut rest = lines(bytes).skip(1);
    let (Some(names), Some(numbers)) = (rest.next(), rest.next()) else {
        return false;
    };
    for (key, fact) in IO {
        let at = words(names).position(|name| name == key);
        let value = at.and_then(|at| words(numbers).nth(at));
        match value.and_then(crate::util::parse::number) {
            Some(value) => facts.count(batch, now_ns, fact, value),
            None => return false,
        }
    }
    true
}

/// A dataset that is followed, identified by the number of its object set.
pub(super) struct Dataset {
    pool: String,
    file: HeldFile,
    lines: KeyedLines<{ OBJSET.len() }>,
    /// The name as it is in the file; it may change.
    name: Vec<u8>,
    facts: Option<FactSet<DatasetFact>>,
    /// The reason why the dataset has no streams, if it has none.
    pub(super) missing: Option<MissingPart>,
}

impl Dataset {
    pub(super) fn new(pool: &[u8], path: PathBuf) -> Self {
        Self {
            pool: escape(pool),
            file: HeldFile::short_records(path),
            lines: KeyedLines::new(OBJSET.map(|(key, _)| key), b' '),
            name: Vec::new(),
            facts: None,
            missing: None,
        }
    }

    /// Reads the dataset's file and puts the facts; returns whether the file still exists.
    pub(super) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> bool {
        if !self.file.read_if_there(bytes, faults) {
            return false;
        }
        let (values, bad) = self.lines.read(bytes, |_, text| kstat_number(text));
        let name = lines(bytes).find_map(dataset_name);
        if let Some(name) = name.filter(|name| *name != self.name) {
            self.rename(name, batch);
        }
        if name.is_some()
            && let Some(facts) = &mut self.facts
        {
            for (value, (_, fact)) in values.iter().zip(OBJSET) {
                if let Some(value) = value {
                    facts.count(batch, now_ns, fact, *value);
                }
            }
        }
        if !bad.any() && name.is_none() {
            let mut bad = BadLines::default();
            bad.add(cut(bytes));
            bad.report(self.file.path(), faults);
        }
        bad.report(self.file.path(), faults);
        true
    }

    fn rename(&mut self, name: &[u8], batch: &mut SourceBatch) {
        self.retire(batch);
        self.name.clear();
        self.name.extend_from_slice(name);
        let label = escape(name);
        let labels = [("pool", self.pool.clone()), ("dataset", label.clone())];
        let made = FactSet::labelled(labels);
        self.missing = made.as_ref().err().map(|fault| {
            let what = format!("dataset {label}");
            MissingPart::new(what, fault.to_string(), "give it a shorter name")
        });
        self.facts = made.ok();
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        if let Some(facts) = &mut self.facts {
            facts.retire(batch);
        }
    }
}

/// Parses `dataset_name                    7    tank/home`; a name may contain blanks.
fn dataset_name(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"dataset_name ")?.trim_ascii();
    let name = rest.strip_prefix(b"7")?;
    let name = name
        .strip_prefix(b" ")
        .or(name.strip_prefix(b"\t"))?
        .trim_ascii();
    (!name.is_empty()).then_some(name)
}

/// Whether a text may be a state: a short word in capitals.
fn is_state(text: &str) -> bool {
    text.len() <= 32 && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

/// A name as a component of a path.
pub(super) fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_datasets() {
        let check = |line: &str, expect: Option<&str>| {
            assert_eq!(
                dataset_name(line.as_bytes()),
                expect.map(str::as_bytes),
                "{line}"
            );
        };
        check(
            "dataset_name                    7    tank/home",
            Some("tank/home"),
        );
        check(
            "dataset_name                    7    tank/my data",
            Some("tank/my data"),
        );
        check("dataset_name                    7    ", None);
        check("dataset_name                    4    12", None);
        check("writes                          4    12", None);
    }
}
