//! ZFS on Linux: `/proc/spl/kstat/zfs` (the kstats of OpenZFS: `module/os/linux/zfs` and zfs(4),
//! <https://openzfs.github.io/openzfs-docs/man/master/4/zfs.4.html>).
//!
//! A pool has `state` since 0.8 and had `io` until 2.0; each mounted dataset has an `objset-ID`.
//! Without zfs, a poll only fails to open one file.

mod pool;

use std::path::Path;

use barograph_model::NS_PER_S;

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::keyed::KeyedLines;
use crate::util::parse::{escape, words};
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::absent_or_fault;

use pool::{DATASETS_MAX, Dataset, Pool};
pub(crate) use pool::{DatasetFact, PoolFact};

/// Most pools that are followed.
const POOLS_MAX: usize = 64;
/// Most names that are read from one directory.
const NAMES_MAX: usize = 65_536;
/// Time between two scans for new pools and datasets.
const SCAN_NS: i64 = 30 * NS_PER_S;

facts! {
    /// Facts of the adaptive replacement cache, which all pools share.
    pub(crate) enum Fact in "zfs.arc" {
        Size: Gauge Int "size.bytes" "bytes" "Memory that the cache (ARC) uses.";
        Target: Gauge Int "target.bytes" "bytes" "Memory that the cache aims to use.";
        Max: Gauge Int "max.bytes" "bytes" "Greatest amount of memory that the cache may use.";
        Hits: Counter Int "hits.count" "count" "Accesses that the cache served.";
        Misses: Counter Int "misses.count" "count" "Accesses that had to wait for storage.";
        DataHits: Counter Int "data.hits.count" "count" "Hits on data that programs requested.";
        DataMisses: Counter Int "data.misses.count" "count" "Misses on data that programs requested.";
        MetadataHits: Counter Int "metadata.hits.count" "count" "Hits on metadata that programs requested.";
        MetadataMisses: Counter Int "metadata.misses.count" "count" "Misses on metadata that programs requested.";
        Compressed: Gauge Int "compressed.bytes" "bytes" "Compressed size of the cache's content.";
        Uncompressed: Gauge Int "uncompressed.bytes" "bytes" "Uncompressed size of the cache's content.";
        Throttled: Counter Int "throttled.count" "count" "Writes that were delayed because memory was short.";
        SecondHits: Counter Int "second.hits.count" "count" "Hits in the second-level cache (L2ARC), which is on devices.";
        SecondMisses: Counter Int "second.misses.count" "count" "Misses in the second-level cache.";
        SecondSize: Gauge Int "second.size.bytes" "bytes" "Uncompressed size of the second-level cache's content.";
        SecondRead: Counter Int "second.read.bytes" "bytes" "Bytes read from the devices of the second-level cache.";
        SecondWritten: Counter Int "second.write.bytes" "bytes" "Bytes written to the devices of the second-level cache.";
    }
}

const KEYS: [(&[u8], Fact); 17] = [
    (b"size", Fact::Size),
    (b"c", Fact::Target),
    (b"c_max", Fact::Max),
    (b"hits", Fact::Hits),
    (b"misses", Fact::Misses),
    (b"demand_data_hits", Fact::DataHits),
    (b"demand_data_misses", Fact::DataMisses),
    (b"demand_metadata_hits", Fact::MetadataHits),
    (b"demand_metadata_misses", Fact::MetadataMisses),
    (b"compressed_size", Fact::Compressed),
    (b"uncompressed_size", Fact::Uncompressed),
    (b"memory_throttle_count", Fact::Throttled),
    (b"l2_hits", Fact::SecondHits),
    (b"l2_misses", Fact::SecondMisses),
    (b"l2_size", Fact::SecondSize),
    (b"l2_read_bytes", Fact::SecondRead),
    (b"l2_write_bytes", Fact::SecondWritten),
];

/// The source `zfs`.
pub struct Zfs {
    root: SysRoot,
    arcstats: HeldFile,
    bytes: Vec<u8>,
    lines: KeyedLines<{ KEYS.len() }>,
    facts: FactSet<Fact>,
    pools: Roster<Pool>,
    datasets: Roster<Dataset>,
    scan_next_ns: i64,
    size: Option<u64>,
    unnameable: Vec<MissingPart>,
    absent: Option<String>,
}

impl Zfs {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            arcstats: root.short_records("proc/spl/kstat/zfs/arcstats"),
            bytes: Vec::new(),
            lines: KeyedLines::new(KEYS.map(|(key, _)| key), b' '),
            facts: FactSet::new(barograph_model::Labels::none()),
            pools: Roster::new(POOLS_MAX),
            datasets: Roster::new(DATASETS_MAX),
            scan_next_ns: i64::MIN,
            size: None,
            unnameable: Vec::new(),
            absent: None,
            root,
        }
    }

    fn put_arc(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        let (values, bad) = self.lines.read(&self.bytes, |_, text| kstat_number(text));
        for (value, (_, fact)) in values.iter().zip(KEYS) {
            if let Some(value) = value {
                self.facts.count(batch, now_ns, fact, *value);
            }
        }
        self.size = values[0];
        bad.report(self.arcstats.path(), faults);
    }

    /// Finds the pools and the mounted datasets.
    fn scan(&mut self, batch: &mut SourceBatch, faults: &mut Faults) {
        let top = self.root.path("proc/spl/kstat/zfs");
        let Some((names, _)) = faults.take(names_in(&top, NAMES_MAX)) else {
            return;
        };
        self.unnameable.clear();
        self.pools.begin();
        self.datasets.begin();
        for name in &names {
            let dir = top.join(pool::os(name));
            // An entry that is not a directory is a kstat of all pools.
            let Ok((files, _)) = names_in(&dir, NAMES_MAX) else {
                continue;
            };
            let is = |wanted: &str| files.iter().any(|file| file == wanted.as_bytes());
            let objsets = files.iter().filter(|file| file.starts_with(b"objset-"));
            if !is("state") && !is("io") && objsets.clone().next().is_none() {
                continue;
            }
            let unnameable = &mut self.unnameable;
            let make = || match Pool::new(name, &dir) {
                Ok(pool) => Some(pool),
                Err(fault) => {
                    let what = format!("pool {}", escape(name));
                    unnameable.push(MissingPart::new(
                        what,
                        fault.to_string(),
                        "give it a shorter name",
                    ));
                    None
                }
            };
            if self.pools.visit(name, make).is_none() {
                continue;
            }
            for objset in objsets {
                let key = [name, objset.as_slice()].join(&b'/');
                let make = || Some(Dataset::new(name, dir.join(pool::os(objset))));
                self.datasets.visit(&key, make);
            }
        }
        self.pools.sweep(|pool| pool.retire(batch));
        self.datasets.sweep(|dataset| dataset.retire(batch));
    }

    fn leave(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
        self.pools.begin();
        self.pools.sweep(|pool| pool.retire(batch));
        self.datasets.begin();
        self.datasets.sweep(|dataset| dataset.retire(batch));
        self.scan_next_ns = i64::MIN;
        self.size = None;
    }
}

impl Source for Zfs {
    fn name(&self) -> &'static str {
        "zfs"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        let read = absent_or_fault(self.arcstats.read(&mut self.bytes), &mut self.absent);
        match faults.take(read) {
            Some(true) => self.put_arc(now_ns, batch, &mut faults),
            // Without the module there are no pools either.
            Some(false) => self.leave(batch),
            None => {}
        }
        if self.absent.is_some() {
            return faults.finish();
        }
        if batch.monotonic_ns() >= self.scan_next_ns {
            self.scan_next_ns = batch.monotonic_ns().saturating_add(SCAN_NS);
            self.scan(batch, &mut faults);
        }
        let mut all_there = true;
        for (_, pool) in self.pools.iter_mut() {
            all_there &= pool.put(now_ns, batch, &mut self.bytes, &mut faults);
        }
        for (_, dataset) in self.datasets.iter_mut() {
            all_there &= dataset.put(now_ns, batch, &mut self.bytes, &mut faults);
        }
        if !all_there {
            // Something was exported or unmounted: the next poll scans.
            self.scan_next_ns = i64::MIN;
        }
        let too_many = [
            ("zfs pools", self.pools.refused(), POOLS_MAX),
            ("zfs datasets", self.datasets.refused(), DATASETS_MAX),
        ];
        for (what, refused, max) in too_many {
            if refused > 0 {
                faults.add(SourceError::TooMany { what, refused, max });
            }
        }
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        self.absent.is_some()
    }

    fn report(&self) -> SourceCoverage {
        let mut missing = self.unnameable.clone();
        if let Some(why) = &self.absent {
            missing.push(MissingPart::new(
                "zfs",
                why.as_str(),
                "nothing to do on a machine without zfs; a container needs the host's /proc",
            ));
            let sees = "no zfs".to_owned();
            return SourceCoverage { sees, missing };
        }
        for (_, dataset) in self.datasets.iter() {
            missing.extend(dataset.missing.clone());
        }
        let pools: Vec<_> = self.pools.iter().map(|(_, pool)| pool.describe()).collect();
        let mut sees = counted(pools.len(), "zfs pool");
        if !pools.is_empty() {
            sees += &format!(": {}", pools.join(", "));
        }
        sees += &format!("; {}", counted(self.datasets.len(), "dataset"));
        if let Some(size) = self.size {
            sees += &format!("; {} MiB of cache", size >> 20);
        }
        SourceCoverage { sees, missing }
    }
}

/// Parses `4    50000000`: the type of a number that is not negative, and the number.
fn kstat_number(text: &[u8]) -> Option<u64> {
    let mut words = words(text);
    // The types from KSTAT_DATA_INT32 to KSTAT_DATA_ULONG.
    let kind = words.number()?;
    let value = words.number()?;
    ((1..=6).contains(&kind) && words.at_end()).then_some(value)
}
