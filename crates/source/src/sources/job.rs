//! Jobs of a batch system that run on this node: whose they are, and what they use here.
//!
//! Three ways to know, joined by the job's number: its control groups (what it uses), the files
//! that `etc/slurm/prolog.sh` writes (whose it is, at no cost), and `squeue` (the same, at the cost
//! of a question to the cluster's one controller, so asked seldom: a job that a prolog described is
//! never asked for).
//!
//! `job.local.…` are the bytes that the node's own block devices moved for the job. What went to
//! Lustre or NFS is told by those sources. Names and command lines of jobs are not read.

mod find;
mod note;
mod queue;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use barograph_model::{Labels, NS_PER_S};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Faults;
use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::sources::cgroup::io::Traffic;
use crate::sources::cgroup::layout::stacked_devices;
use crate::util::command::{Commands, Refusal};
use crate::util::file::SysRoot;
use crate::util::parse::sole_text;
use crate::util::rate::Meter;
use crate::util::roster::Roster;
use crate::{Batch, Missing, Report, Source, SourceError, SourcesConfig};

use find::Found;
use note::{Note, Notes};
use queue::Queued;
use usage::{BELOW_MAX, Looker, Usage};

/// How long `squeue` may take; a busy controller answers late.
const SQUEUE_TIMEOUT: Duration = Duration::from_secs(20);
/// A busy controller answers late, and `squeue` may have to be ended.
const STALL_NS: i64 = 30 * NS_PER_S;
/// How often one job is asked for before it is taken that Slurm does not tell.
const ASKS_MAX: u32 = 3;
/// Most jobs that the report names.
const NAMED_MAX: usize = 16;

facts! {
    /// Facts of one job on this node.
    pub(crate) enum Fact in "job" {
        State: State Text "state.name" "name" "In the words of squeue, or: announced (by the prolog), running (it has processes), ending (it has none left).";
        Scheduler: State Text "scheduler.name" "name" "The batch system that it belongs to.";
        User: State Text "user.name" "name" "Whose job it is.";
        Account: State Text "account.name" "name" "The account that pays for it.";
        Partition: State Text "partition.name" "name" "The partition that it was sent to.";
        Array: State Text "array.name" "name" "What the queue calls it as part of an array, like 4711_3.";
        Nodes: State Int "nodes.count" "count" "Nodes that the whole job has.";
        Tasks: State Int "tasks.count" "count" "Tasks that the whole job was asked to start.";
        Cpus: State Int "cpus.count" "count" "Processors that the whole job has.";
        Start: State Float "start.seconds" "seconds" "When it started, in seconds since 1970.";
        Processes: Gauge Int "processes.count" "count" "Its processes on this node.";
        Threads: Gauge Int "threads.count" "count" "Its processes and threads on this node.";
        Memory: Gauge Int "memory.bytes" "bytes" "Memory that it uses on this node, its page cache included.";
        Cpu: Counter Float "cpu.seconds" "seconds" "Processor time that it used on this node.";
        ReadBytes: Counter Int "local.read.bytes" "bytes" "Read for it from this node's own block devices.";
        WriteBytes: Counter Int "local.write.bytes" "bytes" "Written for it to this node's own block devices.";
        ReadOps: Counter Int "local.read.ops" "ops" "Reads for it from this node's own block devices.";
        WriteOps: Counter Int "local.write.ops" "ops" "Writes for it to this node's own block devices.";
        ReadRate: Gauge Float "local.read.bytes_per_second" "bytes/s" "Read for it per second from this node's own block devices, since the last read-out.";
        WriteRate: Gauge Float "local.write.bytes_per_second" "bytes/s" "Written for it per second to this node's own block devices, since the last read-out.";
    }
}

facts! {
    /// Facts of the node.
    pub(crate) enum NodeFact in "job" {
        All: Gauge Int "all.count" "count" "Jobs on this node.";
    }
}

/// Jobs of a batch system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobConfig {
    /// Most jobs that are followed.
    pub jobs_max: usize,
    /// Whether `squeue` is asked: `"auto"` when the node has a job that no prolog described, and
    /// for each job a few times at most; `true` always; `false` never.
    pub squeue: Squeue,
    /// Milliseconds between questions to `squeue`; at least 10 seconds. Every node's question is
    /// work for the cluster's one controller.
    pub squeue_interval_ms: u64,
    /// What Slurm calls this node; empty: its host name up to the first dot.
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
    /// When there is need.
    Need(Need),
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// When a job is there of which too little is known.
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
    /// How often it is read.
    every_ns: i64,
    commands: Commands,
    jobs: Roster<Job>,
    node: FactSet<NodeFact>,
    scheduler: Option<&'static str>,
    prolog: bool,
    squeue: Asking,
    /// The last that ended.
    ended: Option<String>,
    missing: Vec<Missing>,
    bytes: Vec<u8>,
}

/// What came of asking `squeue`.
#[derive(Debug, Default)]
struct Asking {
    next_ns: Option<i64>,
    answered_ns: Option<i64>,
    /// The jobs of the newest answer.
    listed: Vec<Queued>,
    refusal: Option<String>,
    absent: bool,
}

struct Job {
    scheduler: Option<&'static str>,
    facts: FactSet<Fact>,
    usage: Option<Usage>,
    note: Option<Note>,
    queued: Option<Queued>,
    asked: u32,
    read: Meter,
    write: Meter,
}

impl Jobs {
    /// Below the configured root.
    pub fn new(config: &SourcesConfig) -> Self {
        let root = SysRoot::new(&config.sys_root);
        let every_ms = config.poll_of("job").interval_ms.unwrap_or(5000);
        Self {
            config: config.job.clone(),
            every_ns: i64::try_from(every_ms)
                .unwrap_or(i64::MAX)
                .saturating_mul(1_000_000),
            commands: Commands::new(&root, SQUEUE_TIMEOUT),
            jobs: Roster::new(config.job.jobs_max),
            node: FactSet::new(Labels::none()),
            scheduler: None,
            prolog: false,
            squeue: Asking::default(),
            ended: None,
            missing: Vec::new(),
            bytes: Vec::new(),
            root,
        }
    }

    /// Asks `squeue` if that is due and there is need; whether it did.
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
        self.squeue.next_ns = Some(at_ns.saturating_add(self.config.squeue_interval_ns()));
        let Some(node) = self.node_name() else {
            self.squeue.refusal =
                Some("was not asked: the name of this node is not known".to_owned());
            return true;
        };
        match queue::ask(&self.commands, &node) {
            Ok((listed, bad)) => {
                bad.report(std::path::Path::new("squeue"), faults);
                self.squeue.answered_ns = Some(at_ns);
                self.squeue.listed = listed;
                self.squeue.refusal = None;
                self.squeue.absent = false;
            }
            Err(refusal) => {
                self.squeue.absent = refusal == Refusal::Absent;
                self.squeue.refusal = Some(refusal.to_string());
            }
        }
        true
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

    /// Whether what `squeue` said last still tells of the present.
    fn is_fresh(&self, at_ns: i64) -> bool {
        let age = self
            .squeue
            .answered_ns
            .map(|then| at_ns.saturating_sub(then));
        age.is_some_and(|age| age <= self.config.squeue_interval_ns().saturating_mul(2))
    }

    /// Who came, who ended, and what is known of those that are there.
    fn meet(
        &mut self,
        batch: &mut Batch,
        mut usages: BTreeMap<String, (&'static str, Usage)>,
        mut notes: Notes,
        fresh: bool,
    ) {
        let mut names: Vec<String> = usages.keys().chain(notes.jobs.keys()).cloned().collect();
        if self.config.squeue == Squeue::Fixed(true) && fresh {
            names.extend(self.squeue.listed.iter().map(|q| q.id.clone()));
        }
        names.sort();
        names.dedup();
        // Those that ended make room first.
        self.jobs.begin();
        for name in &names {
            self.jobs.visit(name.as_bytes(), || None);
        }
        let mut ended = None;
        let gone: Vec<_> = self.jobs.iter().map(|(name, _)| name.to_vec()).collect();
        self.jobs.sweep(|job| {
            job.facts.retire(batch);
            ended = Some(());
        });
        if ended.is_some() {
            let left = |name: &[u8]| names.iter().any(|n| n.as_bytes() == name);
            let last = gone.into_iter().rfind(|name| !left(name));
            self.ended = last.map(|name| String::from_utf8_lossy(&name).into_owned());
        }
        self.jobs.begin();
        for name in &names {
            let Some(job) = self.jobs.visit(name.as_bytes(), || Job::new(name)) else {
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
    }

    fn look(
        &mut self,
        found: &Found,
        faults: &mut Faults,
    ) -> BTreeMap<String, (&'static str, Usage)> {
        if found.jobs.is_empty() {
            return BTreeMap::new();
        }
        let stacked = stacked_devices(&self.root);
        let mut looker = Looker {
            stacked: &stacked,
            bytes: &mut self.bytes,
            faults,
            left: BELOW_MAX,
        };
        // Those that are followed already come first, so that a new job ends no streams.
        let jobs = &self.jobs;
        let followed = |id: &str| jobs.iter().any(|(name, _)| name == id.as_bytes());
        let (old, new): (Vec<_>, Vec<_>) = found.jobs.iter().partition(|(id, _)| followed(id));
        let chosen = old.into_iter().chain(new).take(self.config.jobs_max);
        chosen
            .map(|(id, groups)| (id.clone(), (groups.scheduler, looker.usage(groups))))
            .collect()
    }

    fn explain(&self, found: &Found, notes_missing: Option<Missing>) -> Vec<Missing> {
        let mut missing = Vec::new();
        if self.scheduler.is_none() && !self.prolog && self.jobs.len() == 0 {
            let groups = self.root.path("sys/fs/cgroup");
            let notes = self.root.path(note::DIRECTORY);
            missing.push(Missing::new(
                "jobs",
                format!(
                    "no control groups of Slurm, PBS, Torque or LSF below {}, and no {}",
                    groups.display(),
                    notes.display()
                ),
                "on a node of a cluster: let Slurm use proctrack/cgroup, or install etc/slurm/prolog.sh",
            ));
        }
        missing.extend(notes_missing);
        let jobs = || self.jobs.iter().map(|(_, job)| job);
        let silent =
            |has: fn(&Usage) -> bool| jobs().filter(|j| j.usage.is_some_and(|u| !has(&u))).count();
        let groupless = jobs().filter(|j| j.usage.is_none()).count();
        if groupless > 0 {
            missing.push(Missing::new(
                format!("what {} here", uses(groupless)),
                "no control group of them is seen",
                "let Slurm use proctrack/cgroup and jobacct_gather/cgroup; or their epilog did not run",
            ));
        }
        let blind = silent(|u| u.traffic.is_some());
        if blind > 0 {
            missing.push(Missing::new(
                format!("local bytes of {}", counted(blind, "job")),
                "their control groups have no io.stat, nor blkio's counters",
                "set EnableExtraControllers=io in cgroup.conf (Slurm 24.05, version 2 of control groups)",
            ));
        }
        let blind = silent(|u| u.memory_bytes.is_some());
        if blind > 0 {
            missing.push(Missing::new(
                format!("memory of {}", counted(blind, "job")),
                "their control groups are not of the memory controller",
                "set ConstrainRAMSpace=yes in cgroup.conf",
            ));
        }
        let uncounted = silent(|u| u.processes.is_some());
        if uncounted > 0 {
            missing.push(Missing::new(
                format!("processes of {}", counted(uncounted, "job")),
                format!("their groups have no list of processes, or there are more than {BELOW_MAX} below them"),
                "nothing; the bound keeps a read short",
            ));
        }
        missing.extend(self.explain_strangers());
        if found.cut {
            missing.push(Missing::new(
                "jobs beyond those seen",
                "there are more control groups than are looked at in one read",
                "nothing; the bound keeps a read short",
            ));
        }
        missing
    }

    /// Jobs of which only the groups are known.
    fn explain_strangers(&self) -> Option<Missing> {
        let strangers = self
            .jobs
            .iter()
            .filter(|(_, job)| job.is_stranger())
            .count();
        if strangers == 0 && self.squeue.refusal.is_none() {
            return None;
        }
        let why = match (&self.squeue.refusal, self.config.squeue) {
            (_, Squeue::Fixed(false)) => {
                "no prolog described them, and squeue is not asked".to_owned()
            }
            (Some(refusal), _) => {
                format!("no prolog described them, and squeue {}", phrase(refusal))
            }
            (None, _) => "no prolog described them, and squeue did not name them".to_owned(),
        };
        if strangers == 0 && (self.squeue.absent || self.config.squeue != Squeue::Fixed(true)) {
            return None;
        }
        Some(Missing::new(
            format!("users, nodes and tasks of {}", counted(strangers, "job")),
            why,
            "install etc/slurm/prolog.sh; where Slurm calls this node otherwise, set sources.job.node",
        ))
    }
}

/// As the end of a sentence that begins with `squeue`.
fn phrase(refusal: &str) -> String {
    match ["is ", "was ", "took "]
        .iter()
        .any(|verb| refusal.starts_with(verb))
    {
        true => refusal.to_owned(),
        false => format!("failed: {refusal}"),
    }
}

fn uses(count: usize) -> String {
    match count {
        1 => "1 job uses".to_owned(),
        _ => format!("{count} jobs use"),
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

    fn read(&mut self, now_ns: i64, batch: &mut Batch) -> Result<(), SourceError> {
        let at_ns = batch.monotonic_ns();
        let mut faults = Faults::default();
        let found = find::jobs(&self.root);
        let mut notes = Notes::read(&self.root, &mut self.bytes, &mut faults);
        let notes_missing = notes.missing.take();
        self.prolog = notes.there;
        // A batch system whose last group went away is still there.
        self.scheduler = found.scheduler.or(self.scheduler);
        let strangers = |id: &String| {
            let known = self.jobs.iter().any(|(name, _)| name == id.as_bytes());
            !known && !notes.jobs.contains_key(id)
        };
        let room = self.jobs.len() < self.config.jobs_max;
        let new_jobs = room && found.jobs.keys().any(strangers);
        let asked = self.ask(at_ns, new_jobs, &mut faults);
        let usages = self.look(&found, &mut faults);
        let fresh = self.is_fresh(at_ns);
        self.meet(batch, usages, notes, fresh);
        let (every_ns, fixed) = (self.every_ns, self.config.squeue == Squeue::Fixed(true));
        for (_, job) in self.jobs.iter_mut() {
            job.asked = job.asked.saturating_add(u32::from(asked));
            job.put(now_ns, batch, every_ns, fresh && fixed);
        }
        if self.scheduler.is_some() || self.prolog || self.jobs.len() > 0 {
            let all = (self.jobs.len() + self.left_out(&found)) as u64;
            self.node.count(batch, now_ns, NodeFact::All, all);
        }
        if self.left_out(&found) > 0 {
            faults.add(SourceError::TooMany {
                what: "jobs",
                refused: self.left_out(&found),
                max: self.config.jobs_max,
            });
        }
        self.missing = self.explain(&found, notes_missing);
        faults.finish()
    }

    fn report(&self) -> Report {
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
        Report {
            sees,
            missing: self.missing.clone(),
        }
    }
}

impl Jobs {
    fn left_out(&self, found: &Found) -> usize {
        let beyond = found.jobs.len().saturating_sub(self.config.jobs_max);
        beyond.max(self.jobs.refused())
    }
}

impl Job {
    fn new(id: &str) -> Option<Self> {
        // Numbers of jobs are short enough for a label: `find::is_id`.
        let facts = FactSet::labelled([("job", id.to_owned())]).ok()?;
        Some(Self {
            scheduler: None,
            facts,
            usage: None,
            note: None,
            queued: None,
            asked: 0,
            read: Meter::default(),
            write: Meter::default(),
        })
    }

    /// Whether nobody has said whose it is.
    fn is_stranger(&self) -> bool {
        self.queued.is_none() && self.note.as_ref().is_none_or(|note| note.user.is_none())
    }

    /// Whether `squeue` may know more: of Slurm, undescribed, and not asked for too often.
    fn is_unknown(&self) -> bool {
        let lacks =
            |note: &Note| note.user.is_none() || note.nodes.is_none() || note.tasks.is_none();
        let slurm = self.scheduler.is_none_or(|s| s == "slurm");
        let told = self.queued.is_some() || self.note.as_ref().is_some_and(|note| !lacks(note));
        slurm && !told && self.asked < ASKS_MAX
    }

    fn put(&mut self, now_ns: i64, batch: &mut Batch, every_ns: i64, by_queue: bool) {
        self.put_description(now_ns, batch, every_ns);
        let state = match (&self.queued, self.usage) {
            (Some(queued), _) if by_queue => Some(queued.state.as_str()),
            (_, None) if self.note.is_some() => Some("announced"),
            (_, Some(usage)) => usage.processes.map(|count| match count {
                0 => "ending",
                _ => "running",
            }),
            (_, None) => None,
        };
        match state {
            Some(state) => {
                let facts = &mut self.facts;
                facts.text_attribute(batch, now_ns, Fact::State, state, every_ns);
            }
            None => self.facts.retire_one(batch, Fact::State),
        }
        match self.usage {
            Some(usage) => self.put_usage(now_ns, batch, &usage),
            None => self.retire_usage(batch),
        }
    }

    fn put_description(&mut self, now_ns: i64, batch: &mut Batch, every_ns: i64) {
        let nothing = (Note::default(), Queued::default());
        let note = self.note.as_ref().unwrap_or(&nothing.0);
        let queued = self.queued.as_ref().unwrap_or(&nothing.1);
        let texts = [
            (Fact::Scheduler, self.scheduler),
            (Fact::User, note.user.as_deref().or(queued.user.as_deref())),
            (
                Fact::Account,
                note.account.as_deref().or(queued.account.as_deref()),
            ),
            (
                Fact::Partition,
                note.partition.as_deref().or(queued.partition.as_deref()),
            ),
            (Fact::Array, queued.array.as_deref()),
        ];
        for (fact, text) in texts {
            if let Some(text) = text {
                self.facts
                    .text_attribute(batch, now_ns, fact, text, every_ns);
            }
        }
        let counts = [
            (Fact::Nodes, note.nodes.or(queued.nodes)),
            (Fact::Tasks, note.tasks.or(queued.tasks)),
            (Fact::Cpus, note.cpus.or(queued.cpus)),
        ];
        for (fact, count) in counts {
            if let Some(count) = count {
                self.facts.count(batch, now_ns, fact, count);
            }
        }
        if let Some(start_s) = note.start_s.or(queued.start_s) {
            self.facts
                .measured(batch, now_ns, Fact::Start, start_s as f64);
        }
    }

    fn put_usage(&mut self, now_ns: i64, batch: &mut Batch, usage: &Usage) {
        let counts = [
            (Fact::Processes, usage.processes),
            (Fact::Threads, usage.threads),
            (Fact::Memory, usage.memory_bytes),
        ];
        for (fact, count) in counts {
            if let Some(count) = count {
                self.facts.count(batch, now_ns, fact, count);
            }
        }
        if let Some(seconds) = usage.cpu_seconds {
            self.facts.measured(batch, now_ns, Fact::Cpu, seconds);
        }
        if let Some(traffic) = usage.traffic {
            self.put_traffic(now_ns, batch, &traffic);
        }
    }

    fn put_traffic(&mut self, now_ns: i64, batch: &mut Batch, traffic: &Traffic) {
        let facts = &mut self.facts;
        facts.count(batch, now_ns, Fact::ReadBytes, traffic.read_bytes);
        facts.count(batch, now_ns, Fact::WriteBytes, traffic.write_bytes);
        facts.count(batch, now_ns, Fact::ReadOps, traffic.read_ops);
        facts.count(batch, now_ns, Fact::WriteOps, traffic.write_ops);
        let at_ns = batch.monotonic_ns();
        if let Some(rate) = self.read.rate(at_ns, traffic.read_bytes) {
            facts.derived(batch, now_ns, Fact::ReadRate, rate);
        }
        if let Some(rate) = self.write.rate(at_ns, traffic.write_bytes) {
            facts.derived(batch, now_ns, Fact::WriteRate, rate);
        }
    }

    /// Its groups are gone, only its note is left.
    fn retire_usage(&mut self, batch: &mut Batch) {
        const OF_GROUPS: [Fact; 10] = [
            Fact::Processes,
            Fact::Threads,
            Fact::Memory,
            Fact::Cpu,
            Fact::ReadBytes,
            Fact::WriteBytes,
            Fact::ReadOps,
            Fact::WriteOps,
            Fact::ReadRate,
            Fact::WriteRate,
        ];
        for fact in OF_GROUPS {
            self.facts.retire_one(batch, fact);
        }
        (self.read, self.write) = (Meter::default(), Meter::default());
    }
}
