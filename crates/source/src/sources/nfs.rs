//! `/proc/self/mountstats`: the operations of the NFS mounts of this node, and how long their
//! servers take.
//!
//! Format: `nfs_show_stats` (fs/nfs/super.c), the counters of fs/nfs/iostat.h and the transports
//! and operations of net/sunrpc/stats.c and xprtsock.c of the kernel; in words, mountstats(8) and
//! nfsiostat(8) of nfs-utils. A mount's block ends with an empty line, so that a cut block is
//! recognized.
//!
//! Mounts of one export share their counters when the kernel lets them share a superblock: both
//! then show the traffic of both.

mod block;

use std::path::Path;

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::globs::Globs;
use crate::util::parse::{cut, escape, lines, unescape_octal};
use crate::util::rate::Meter;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::{absent_or_fault, missing_proc};

use block::{BlockStep, MountBlock, MountCounters};

/// Most NFS mounts that are followed.
const MOUNTS_MAX: usize = 1024;
/// Milliseconds per second; the file's times are in milliseconds.
const MS_PER_S: f64 = 1000.0;

facts! {
    /// Facts of one NFS mount.
    pub(crate) enum Fact in "nfs" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read from the server.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written to the server.";
        ApplicationRead: Counter Int "application.read.bytes" "bytes" "Bytes read by programs, from the server or from the page cache.";
        ApplicationWrite: Counter Int "application.write.bytes" "bytes" "Bytes written by programs, to the page cache or to the server.";
        ReadOps: Counter Int "read.ops" "ops" "READ operations completed.";
        WriteOps: Counter Int "write.ops" "ops" "WRITE operations completed.";
        OtherOps: Counter Int "other.ops" "ops" "Operations completed other than READ and WRITE; most of them are on metadata.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read from the server per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written to the server per second, averaged since the last poll.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean time from sending a READ to its answer, since the last poll.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean time from sending a WRITE to its answer, since the last poll.";
        OtherLatency: Gauge Float "other.latency.seconds" "seconds" "Mean time from sending an operation other than READ and WRITE to its answer, since the last poll.";
        ReadWait: Gauge Float "read.wait.seconds" "seconds" "Mean time that READs waited in a queue of this node before they were sent, since the last poll.";
        WriteWait: Gauge Float "write.wait.seconds" "seconds" "Mean time that WRITEs waited in a queue of this node before they were sent, since the last poll.";
        Retransmits: Counter Int "retransmits.count" "count" "Requests that were sent again.";
        Timeouts: Counter Int "timeouts.count" "count" "Requests that the server did not answer in time.";
        Errors: Counter Int "errors.count" "count" "Operations that ended with an error.";
        Connects: Counter Int "connects.count" "count" "Connections made to the server; a growing number means that connections break.";
    }
}

/// The source `nfs`.
pub struct Nfs {
    file: HeldFile,
    bytes: Vec<u8>,
    skip: Globs,
    mounts: Roster<Mount>,
    absent: Option<String>,
    read_once: bool,
}

enum Mount {
    Followed(Box<Followed>),
    /// The mount is excluded by the configuration.
    Skipped,
    /// The mount point cannot be a label.
    Unnameable(String),
}

struct Followed {
    label: String,
    facts: FactSet<Fact>,
    read: Meter,
    write: Meter,
    last: Option<MountCounters>,
    /// Monotonic time of the last block: of two mounts on one directory only the first is taken.
    put_ns: Option<i64>,
}

impl Nfs {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path, skip_mounts: &[String]) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            file: root.until_end("proc/self/mountstats"),
            bytes: Vec::new(),
            skip: Globs::new(skip_mounts),
            mounts: Roster::new(MOUNTS_MAX),
            absent: None,
            read_once: false,
        }
    }

    fn read_blocks(&mut self, now_ns: i64, batch: &mut SourceBatch) -> BadLines {
        let mut bad = BadLines::default();
        let mut block = MountBlock::default();
        for line in lines(&self.bytes) {
            match block.step(line) {
                BlockStep::Inside => {}
                BlockStep::Bad => bad.add(line),
                BlockStep::Whole(name, device, traffic) => {
                    let make = || Some(Mount::new(name, device, &self.skip));
                    if let Some(Mount::Followed(mount)) = self.mounts.visit(name, make) {
                        mount.put(now_ns, batch, &traffic);
                    }
                }
            }
        }
        if block.is_open() || !cut(&self.bytes).is_empty() {
            bad.add(cut(&self.bytes));
        }
        bad
    }
}

impl Source for Nfs {
    fn name(&self) -> &'static str {
        "nfs"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        if !absent_or_fault(self.file.read(&mut self.bytes), &mut self.absent)? {
            return Ok(());
        }
        self.read_once = true;
        let mut faults = Faults::default();
        self.mounts.begin();
        let bad = self.read_blocks(now_ns, batch);
        // If lines are broken, a mount that is not listed may still exist.
        if !bad.any() {
            self.mounts.sweep(|mount| {
                if let Mount::Followed(mount) = mount {
                    mount.facts.retire(batch);
                }
            });
        }
        bad.report(self.file.path(), &mut faults);
        self.mounts.report_refused("NFS mounts", &mut faults);
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        self.mounts.len() == 0
    }

    fn report(&self) -> SourceCoverage {
        let mut missing: Vec<_> = missing_proc("NFS mounts", &self.absent)
            .into_iter()
            .collect();
        let (mut followed, mut skipped) = (Vec::new(), Vec::new());
        for (name, mount) in self.mounts.iter() {
            match mount {
                Mount::Followed(mount) => followed.push(mount.label.clone()),
                Mount::Skipped => skipped.push(escape(&unescape_octal(name))),
                Mount::Unnameable(why) => missing.push(MissingPart::new(
                    format!("NFS mount {}", escape(name)),
                    why.as_str(),
                    "mount it at a shorter path",
                )),
            }
        }
        if self.read_once && self.absent.is_none() && self.mounts.len() == 0 {
            missing.push(MissingPart::new(
                "NFS statistics",
                "no NFS file system is mounted in the agent's mount namespace",
                "nothing on a node without NFS; mount one, or run the agent in the host's namespace",
            ));
        }
        let mut sees = match followed.is_empty() {
            true => "no NFS mounts".to_owned(),
            false => format!(
                "{}: {}",
                counted(followed.len(), "NFS mount"),
                followed.join(", ")
            ),
        };
        if !skipped.is_empty() {
            sees += &format!("; left out by configuration: {}", skipped.join(", "));
        }
        SourceCoverage { sees, missing }
    }
}

impl Mount {
    fn new(name: &[u8], device: &[u8], skip: &Globs) -> Self {
        let label = escape(&unescape_octal(name));
        if skip.matches(&label) {
            return Self::Skipped;
        }
        let device = escape(&unescape_octal(device));
        match FactSet::labelled([("mount", label.clone()), ("device", device)]) {
            Ok(facts) => Self::Followed(Box::new(Followed {
                label,
                facts,
                read: Meter::default(),
                write: Meter::default(),
                last: None,
                put_ns: None,
            })),
            Err(fault) => Self::Unnameable(fault.to_string()),
        }
    }
}

impl Followed {
    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, traffic: &MountCounters) {
        let at_ns = batch.monotonic_ns();
        if self.put_ns.replace(at_ns) == Some(at_ns) {
            return;
        }
        let facts = &mut self.facts;
        for (fact, value) in [
            (Fact::ReadBytes, traffic.server_read_bytes),
            (Fact::WriteBytes, traffic.server_write_bytes),
            (Fact::ApplicationRead, traffic.read_bytes),
            (Fact::ApplicationWrite, traffic.write_bytes),
            (Fact::ReadOps, traffic.read.ops),
            (Fact::WriteOps, traffic.write.ops),
            (Fact::OtherOps, traffic.other.ops),
            (Fact::Retransmits, traffic.retransmits()),
            (Fact::Timeouts, traffic.timeouts()),
        ] {
            facts.count(batch, now_ns, fact, value);
        }
        if let Some(errors) = traffic.errors {
            facts.count(batch, now_ns, Fact::Errors, errors);
        }
        if let Some(connects) = traffic.connects {
            facts.count(batch, now_ns, Fact::Connects, connects);
        }
        if let Some(rate) = self.read.rate(at_ns, traffic.server_read_bytes) {
            facts.derived(batch, now_ns, Fact::ReadRate, rate);
        }
        if let Some(rate) = self.write.rate(at_ns, traffic.server_write_bytes) {
            facts.derived(batch, now_ns, Fact::WriteRate, rate);
        }
        let Some(last) = self.last.replace(*traffic) else {
            return;
        };
        // Without an operation since the last poll there is no mean time.
        for (fact, mean_ms) in [
            (Fact::ReadLatency, traffic.read.round_trip_ms(&last.read)),
            (Fact::WriteLatency, traffic.write.round_trip_ms(&last.write)),
            (Fact::OtherLatency, traffic.other.round_trip_ms(&last.other)),
            (Fact::ReadWait, traffic.read.wait_ms(&last.read)),
            (Fact::WriteWait, traffic.write.wait_ms(&last.write)),
        ] {
            if let Some(mean_ms) = mean_ms {
                facts.derived(batch, now_ns, fact, mean_ms / MS_PER_S);
            }
        }
    }
}
