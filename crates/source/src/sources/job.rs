//! Jobs of a batch system that run on this node: their owners, and the resources that they use
//! here.
//!
//! Three kinds of data are joined by the job's number: the job's control groups (the resources that
//! it uses), the files that `etc/slurm/prolog.sh` writes (the job's owner, at no cost), and
//! `squeue` (the owner too, but each question costs the cluster's one controller, so it is asked
//! seldom, and never for a job that a prolog described).
//!
//! `job.local.…` are the bytes that the node's own block devices moved for the job. Traffic to
//! Lustre or NFS is reported by the sources of those. Names and command lines of jobs are not read.

mod find;
mod followed;
mod missing;
mod note;
mod queue;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use barograph_model::{Labels, NS_PER_S};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::sources::cgroup::by_device::{DeviceFacts, DeviceRoom};
use crate::sources::cgroup::counted::Counted;
use crate::sources::cgroup::devices::BlockDevices;
use crate::util::command::{Commands, Refusal};
use crate::util::faults::Faults;
use crate::util::file::SysRoot;
use crate::util::parse::sole_text;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use find::FoundJobs;
use followed::{FollowedJob, Putting};
use note::{NotedJobs, Notes};
use queue::Queued;
use usage::{BELOW_MAX, Looker, Usage};

/// Timeout of `squeue`: a busy controller answers late.
const SQUEUE_TIMEOUT: Duration = Duration::from_secs(20);
/// The stall time of this source: `squeue` may run until its timeout, and then has to be ended.
const STALL_NS: i64 = 30 * NS_PER_S;
/// Most jobs that the report names.
const NAMED_MAX: usize = 16;

facts! {
    /// Facts of one job on this node.
    pub(crate) enum Fact in "job" {
        State: State Text "state.name" "name" "State of the job as squeue shows it, or else: announced (by the prolog), running (it has processes) or ending (it has none left).";
        Scheduler: State Text "scheduler.name" "name" "Batch system that runs the job.";
        User: State Text "user.name" "name" "User who owns the job.";
        Account: State Text "account.name" "name" "Account that is charged for the job.";
        Partition: State Text "partition.name" "name" "Partition to which the job was submitted.";
        Array: State Text "array.name" "name" "Name of the job as part of an array, such as 4711_3.";
        Nodes: State Int "nodes.count" "count" "Nodes that are allocated to the job.";
        Tasks: State Int "tasks.count" "count" "Tasks that the job was requested to start, on all its nodes.";
        Cpus: State Int "cpus.count" "count" "Processors that are allocated to the job, on all its nodes.";
        Start: State Float "start.time.seconds" "seconds" "Start of the job, in seconds since 1970.";
        Processes: Gauge Int "processes.count" "count" "Processes of the job on this node.";
        Threads: Gauge Int "threads.count" "count" "Threads of all processes of the job on this node.";
        Memory: Gauge Int "memory.bytes" "bytes" "Memory that the job uses on this node, page cache included.";
        Cpu: Counter Float "cpu.seconds" "seconds" "Processor time that the job has used on this node.";
        ReadBytes: Counter Int "local.read.bytes" "bytes" "Bytes read for the job from the block devices of this node.";
        WriteBytes: Counter Int "local.write.bytes" "bytes" "Bytes written for the job to the block devices of this node.";
        ReadOps: Counter Int "local.read.ops" "ops" "Reads for the job from the block devices of this node.";
        WriteOps: Counter Int "local.write.ops" "ops" "Writes for the job to the block devices of this node.";
        ReadRate: Gauge Float "local.read.bytes_per_second" "bytes/s" "Bytes read per second for the job from the block devices of this node, averaged since the last poll.";
        WriteRate: Gauge Float "local.write.bytes_per_second" "bytes/s" "Bytes written per second for the job to the block devices of this node, averaged since the last poll.";
    }
}

facts! {
    /// Facts of one job on one block device of this node, including devices that are stacked on
    /// others.
    pub(crate) enum DeviceFact in "job" {
        ReadBytes: Counter Int "local.device.read.bytes" "bytes" "Bytes read for the job from this block device.";
        WriteBytes: Counter Int "local.device.write.bytes" "bytes" "Bytes written for the job to this block device.";
        ReadRate: Gauge Float "local.device.read.bytes_per_second" "bytes/s" "Bytes read per second for the job from this block device, averaged since the last poll.";
        WriteRate: Gauge Float "local.device.write.bytes_per_second" "bytes/s" "Bytes written per second for the job to this block device, averaged since the last poll.";
    }
}

const ON_DEVICE: DeviceFacts<DeviceFact> = DeviceFacts {
    read_bytes: DeviceFact::ReadBytes,
    write_bytes: DeviceFact::WriteBytes,
    read_rate: DeviceFact::ReadRate,
    write_rate: DeviceFact::WriteRate,
};

facts! {
    /// Facts of the node as a whole.
    pub(crate) enum NodeFact in "job" {
        All: Gauge Int "all.count" "count" "Jobs on this node.";
    }
}

/// The configuration of the source `job`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobConfig {
    /// Most jobs that are followed.
    pub jobs_max: usize,
    /// Whether `squeue` is asked: `"auto"` asks when the node has a job that no prolog described,
    /// and only a few times for each job; `true` asks always; `false` never.
    pub squeue: Squeue,
    /// Milliseconds between questions to `squeue`; at least 10 seconds. The question of every node
    /// is work for the cluster's one controller.
    pub squeue_interval_ms: u64,
    /// The name of this node in Slurm; if empty, the host name up to the first dot.
    pub node: String,
}

impl Default for JobConfig {
    fn default() -> Self {
        Self {
            jobs_max: 256,
            squeue: Squeue::default(),
            squeue_interval_ms: 60_000,
            node: String::new(),
        }
    }
}

/// Whether `squeue` is asked: `"auto"`, `true` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Squeue {
    /// Always or never.
    Fixed(bool),
    /// Only when it is needed.
    Need(Need),
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// `squeue` is asked when the node has a job about which too little is known.
    Auto,
}

impl Default for Squeue {
    fn default() -> Self {
        Self::Need(Need::Auto)
    }
}

impl JobConfig {
    fn squeue_interval_ns(&self) -> i64 {
        let ms = self.squeue_interval_ms.max(10_000);
        i64::try_from(ms)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000)
    }
}

/// The source `job`.
pub struct Jobs {
    root: SysRoot,
    config: JobConfig,
    /// The interval between polls.
    every_ns: i64,
    commands: Commands,
    jobs: Roster<FollowedJob>,
    node: FactSet<NodeFact>,
    scheduler: Option<&'static str>,
    prolog: bool,
    squeue: Asking,
    /// The job that ended last.
    ended: Option<String>,
    past: NotedJobs,
    /// Number of notes left behind by jobs that ended.
    left_behind: usize,
    missing: Vec<MissingPart>,
    devices: BlockDevices,
    /// The counters of control groups version 1 that really count.
    counted: Counted,
    devices_max: usize,
    room: DeviceRoom,
    bytes: Vec<u8>,
}

/// The state of the questions to `squeue`.
#[derive(Debug, Default)]
struct Asking {
    next_ns: Option<i64>,
    answered_ns: Option<i64>,
    /// The jobs of the newest answer.
    listed: Vec<Queued>,
    refusal: Option<String>,
    /// Number of questions in a row that failed although `squeue` is installed.
    refusals: u32,
    absent: bool,
}

impl Jobs {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path, config: &JobConfig, devices_max: usize, every_ns: i64) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            config: config.clone(),
            every_ns,
            commands: Commands::new(&root, SQUEUE_TIMEOUT),
            jobs: Roster::new(config.jobs_max),
            node: FactSet::new(Labels::none()),
            scheduler: None,
            prolog: false,
            squeue: Asking::default(),
            ended: None,
            past: NotedJobs::default(),
            left_behind: 0,
            missing: Vec::new(),
            devices: BlockDevices::default(),
            counted: Counted::default(),
            devices_max,
            room: DeviceRoom::default(),
            bytes: Vec::new(),
            root,
        }
    }

    /// Asks `squeue` if a question is due and needed, and returns whether it answered. A controller
    /// that does not answer is asked less and less often.
    fn ask(&mut self, at_ns: i64, new_jobs: bool, faults: &mut Faults) -> bool {
        let wanted = match self.config.squeue {
            Squeue::Fixed(wanted) => wanted,
            Squeue::Need(Need::Auto) => {
                let slurm = self.scheduler.map_or(self.prolog, |s| s == "slurm");
                slurm && (new_jobs || self.jobs.iter().any(|(_, job)| job.is_unknown()))
            }
        };
        if !wanted || self.squeue.next_ns.is_some_and(|next| at_ns < next) {
            return false;
        }
        let pause_ns = self.config.squeue_interval_ns();
        self.squeue.next_ns = Some(at_ns.saturating_add(pause_ns));
        let Some(node) = self.node_name() else {
            self.squeue.refusal =
                Some("was not asked: the name of this node is not known".to_owned());
            return false;
        };
        match queue::ask(&self.commands, &node) {
            Ok((listed, bad)) => {
                bad.report(std::path::Path::new("squeue"), faults);
                self.squeue.answered_ns = Some(at_ns);
                self.squeue.listed = listed;
                self.squeue.refusal = None;
                self.squeue.refusals = 0;
                self.squeue.absent = false;
                true
            }
            Err(refusal) => {
                self.squeue.absent = refusal == Refusal::Absent;
                self.squeue.refusal = Some(refusal.to_string());
                if !self.squeue.absent {
                    let pause_ns = pause_ns.saturating_mul(1 << self.squeue.refusals.min(3));
                    self.squeue.next_ns = Some(at_ns.saturating_add(pause_ns));
                    self.squeue.refusals += 1;
                }
                false
            }
        }
    }

    fn node_name(&mut self) -> Option<String> {
        let name = match self.config.node.is_empty() {
            false => self.config.node.clone(),
            true => {
                let mut file = self.root.short_records("proc/sys/kernel/hostname");
                file.read_and_close(&mut self.bytes).ok()?;
                let host = sole_text(&self.bytes)?;
                host[..host.find('.').unwrap_or(host.len())].to_owned()
            }
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        (!name.is_empty() && name.bytes().all(plain)).then_some(name)
    }

    /// Whether the last answer of `squeue` is recent enough to describe the present.
    fn is_fresh(&self, at_ns: i64) -> bool {
        let age = self
            .squeue
            .answered_ns
            .map(|then| at_ns.saturating_sub(then));
        age.is_some_and(|age| age <= self.config.squeue_interval_ns().saturating_mul(2))
    }

    /// Adds new jobs, ends the streams of jobs that ended, and updates the descriptions of the
    /// others. Returns how many jobs were left out.
    fn meet(
        &mut self,
        batch: &mut SourceBatch,
        found: &FoundJobs,
        mut usages: BTreeMap<String, (&'static str, Usage)>,
        mut notes: Notes,
        fresh: bool,
    ) -> usize {
        let mut all: BTreeSet<&str> = found.jobs.keys().map(String::as_str).collect();
        all.extend(notes.jobs.keys().map(String::as_str));
        if self.config.squeue == Squeue::Fixed(true) && fresh {
            all.extend(self.squeue.listed.iter().map(|q| q.id.as_str()));
        }
        // Jobs with control groups come first; jobs known only from notes or squeue fill the rest.
        let (followed, new): (Vec<&str>, Vec<&str>) = {
            let followed: BTreeSet<&[u8]> = self.jobs.iter().map(|(name, _)| name).collect();
            let words = all.iter().filter(|name| !usages.contains_key(**name));
            words.partition(|name| followed.contains(name.as_bytes()))
        };
        let words = followed.into_iter().chain(new).map(str::to_owned);
        let chosen = usages.keys().cloned().chain(words);
        let names: Vec<String> = chosen.take(self.config.jobs_max).collect();
        // Jobs that ended make room first.
        self.jobs.begin();
        for name in &names {
            self.jobs.visit(name.as_bytes(), || None);
        }
        let there = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| all.contains(name));
        let gone = self.jobs.iter().map(|(name, _)| name);
        if let Some(last) = gone.filter(|name| !there(name)).last() {
            self.ended = Some(String::from_utf8_lossy(last).into_owned());
        }
        self.jobs.sweep(|job| job.retire(batch));
        let left_out = all.len().saturating_sub(names.len());
        self.jobs.begin();
        for name in &names {
            let Some(job) = self.jobs.visit(name.as_bytes(), || FollowedJob::new(name)) else {
                continue;
            };
            let used = usages.remove(name);
            if let Some((scheduler, _)) = &used {
                job.scheduler = Some(scheduler);
            }
            job.usage = used.map(|(_, usage)| usage);
            if let Some(note) = notes.jobs.remove(name) {
                job.note = Some(note);
            }
            if let Some(queued) = self.squeue.listed.iter().find(|q| q.id == *name) {
                job.queued = Some(queued.clone());
                job.scheduler.get_or_insert("slurm");
            }
        }
        left_out
    }

    fn look(
        &mut self,
        found: &FoundJobs,
        faults: &mut Faults,
    ) -> BTreeMap<String, (&'static str, Usage)> {
        if found.jobs.is_empty() {
            return BTreeMap::new();
        }
        self.devices = BlockDevices::find(&self.root);
        let blkio = self.root.path("sys/fs/cgroup/blkio");
        self.counted = Counted::find(&blkio, &self.devices).unwrap_or_default();
        let mut looker = Looker {
            counted: &self.counted,
            stacked: &self.devices.stacked,
            bytes: &mut self.bytes,
            faults,
            left: BELOW_MAX,
        };
        // Jobs that are already followed come first, so that a new job ends no streams.
        let jobs = &self.jobs;
        let followed = |id: &str| jobs.iter().any(|(name, _)| name == id.as_bytes());
        let (old, new): (Vec<_>, Vec<_>) = found.jobs.iter().partition(|(id, _)| followed(id));
        let chosen = old.into_iter().chain(new).take(self.config.jobs_max);
        chosen
            .map(|(id, groups)| (id.clone(), (groups.scheduler, looker.usage(groups))))
            .collect()
    }
}

impl Source for Jobs {
    fn name(&self) -> &'static str {
        "job"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn stall_ns(&self) -> i64 {
        STALL_NS
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let at_ns = batch.monotonic_ns();
        let mut faults = Faults::default();
        let found = find::jobs(&self.root);
        let mut notes = Notes::read(&self.root, &found, &mut self.bytes, &mut faults);
        self.left_behind = self.past.leave_out_ended(&found, &mut notes);
        let notes_missing = notes.missing.take();
        self.prolog = notes.there;
        // A batch system whose last control group went away still runs here.
        self.scheduler = found.scheduler.or(self.scheduler);
        // The control groups are read before squeue is asked, which may take long: their values
        // belong to the time of this poll.
        let usages = self.look(&found, &mut faults);
        let strangers = |id: &String| {
            let known = self.jobs.iter().any(|(name, _)| name == id.as_bytes());
            !known && !notes.jobs.contains_key(id)
        };
        let new_jobs = usages.keys().any(strangers);
        let answered = self.ask(at_ns, new_jobs, &mut faults);
        let fresh = self.is_fresh(at_ns);
        let left_out = self.meet(batch, &found, usages, notes, fresh);
        self.room.begin(self.devices_max);
        let mut with = Putting {
            now_ns,
            every_ns: self.every_ns,
            by_queue: fresh && self.config.squeue == Squeue::Fixed(true),
            devices: &self.devices,
            room: &mut self.room,
        };
        for (_, job) in self.jobs.iter_mut() {
            job.asked = job.asked.saturating_add(u32::from(answered));
            job.put(batch, &mut with);
        }
        if self.scheduler.is_some() || self.prolog || self.jobs.len() > 0 {
            let all = (self.jobs.len() + left_out) as u64;
            self.node.count(batch, now_ns, NodeFact::All, all);
        }
        if left_out > 0 {
            faults.add(SourceError::TooMany {
                what: "jobs",
                refused: left_out,
                max: self.config.jobs_max,
            });
        }
        self.missing = self.explain(&found, notes_missing);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let names: Vec<_> = self
            .jobs
            .iter()
            .take(NAMED_MAX)
            .map(|(name, _)| String::from_utf8_lossy(name))
            .collect();
        let more = self.jobs.len().saturating_sub(names.len());
        let mut sees = match (names.is_empty(), self.scheduler) {
            (true, None) => "no jobs".to_owned(),
            (true, Some(scheduler)) => format!("no jobs; control groups of {scheduler}"),
            (false, _) => format!("{}: {}", counted(self.jobs.len(), "job"), names.join(", ")),
        };
        if more > 0 {
            sees += &format!(" and {more} more");
        }
        if let Some(ended) = &self.ended {
            sees += &format!("; {ended} ended last");
        }
        if self.left_behind > 0 {
            let notes = counted(self.left_behind, "note");
            sees += &format!("; {notes} of ended jobs, which no epilog removed");
        }
        SourceCoverage {
            sees,
            missing: self.missing.clone(),
        }
    }
}
