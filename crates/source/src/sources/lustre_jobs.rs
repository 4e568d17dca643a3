//! The traffic of jobs on the Lustre targets of this server: `job_stats`.
//!
//! Sources: the Lustre manual ("Lustre Jobstats") and `lljobstat(8)`. Clients put the name of their
//! job on every request, if they are configured where to find it (`jobid_var=SLURM_JOB_ID`), and
//! servers count by that name. A job's traffic is summed over the targets of this server; a sum
//! over servers is left to the reader.
//!
//! Busy servers count thousands of jobs on each of many targets, in hundreds of megabytes of text.
//! The text is parsed a piece at a time. A bounded number of jobs, those with the most traffic,
//! have streams of their own; the others share those of the job `other`, and `lustre.jobs` sums all
//! of them. The files are closed after each poll, because Lustre forgets old jobs only then.

mod ledger;
mod parse;

use std::path::Path;

use barograph_model::NS_PER_S;
use rustix::fs::{Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::facts;
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::SysRoot;
use crate::util::parse::sole_text;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::lustre::places::{Param, Places, filesystem_of, is_denied, missing_denied};

use ledger::{Book, ENTRIES_MAX, Ledger};
use parse::{JobstatsKind, Pieces};

/// Most targets that are read.
const TARGETS_MAX: usize = 256;
/// Kinds of targets: the directory, and the counters that they have.
const KINDS: [(&str, JobstatsKind); 2] = [
    ("obdfilter", JobstatsKind::Object),
    ("mdt", JobstatsKind::Metadata),
];

facts! {
    /// Facts of one job on the targets of this server.
    pub(crate) enum Job in "lustre.job" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read by the job. The job called other stands for all jobs without streams of their own, during the time that they have none.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written by the job. The job called other stands for all jobs without streams of their own, during the time that they have none.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by the job.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by the job.";
        MetadataOps: Counter Int "metadata.ops" "ops" "Metadata operations of the job: those on names and attributes.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read by the job per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written by the job per second, averaged since the last poll.";
        MetadataRate: Gauge Float "metadata.ops_per_second" "ops/s" "Metadata operations of the job per second, averaged since the last poll.";
    }
}

facts! {
    /// Facts of all jobs together.
    pub(crate) enum Jobs in "lustre.jobs" {
        Count: Gauge Int "count" "count" "Jobs for which the targets of this server keep counts.";
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read by all jobs.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written by all jobs.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by all jobs.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by all jobs.";
        MetadataOps: Counter Int "metadata.ops" "ops" "Metadata operations of all jobs: those on names and attributes.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read by all jobs per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written by all jobs per second, averaged since the last poll.";
        MetadataRate: Gauge Float "metadata.ops_per_second" "ops/s" "Metadata operations of all jobs per second, averaged since the last poll.";
    }
}

/// The configuration of the source `lustre_jobs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LustreJobsConfig {
    /// Most jobs that have streams of their own: those with the most traffic. The others are summed
    /// as the job `other`.
    pub jobs_max: usize,
    /// Milliseconds for which a job keeps its streams after it was last among those with the most
    /// traffic.
    pub keep_ms: u64,
}

impl Default for LustreJobsConfig {
    fn default() -> Self {
        Self {
            jobs_max: 500,
            keep_ms: 60_000,
        }
    }
}

impl LustreJobsConfig {
    fn keep_ns(&self) -> i64 {
        let ns = i64::try_from(self.keep_ms).unwrap_or(i64::MAX);
        ns.saturating_mul(NS_PER_S / 1000)
    }
}

/// The source `lustre_jobs`.
pub struct LustreJobs {
    root: SysRoot,
    places: Places,
    targets: Roster<Book>,
    ledger: Ledger,
    jobs_max: usize,
    pieces: Pieces,
    /// Results of the newest poll.
    present: bool,
    client: bool,
    jobid_var: Option<String>,
    refused: Option<MissingPart>,
}

impl LustreJobs {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path, jobs: &LustreJobsConfig) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            places: Places::new(&root),
            targets: Roster::new(TARGETS_MAX),
            ledger: Ledger::new(jobs.jobs_max, jobs.keep_ns()),
            jobs_max: jobs.jobs_max,
            pieces: Pieces::default(),
            present: false,
            client: false,
            jobid_var: None,
            refused: None,
            root,
        }
    }

    fn read_targets(&mut self, at_ns: i64, faults: &mut Faults) {
        let Self {
            places,
            targets,
            ledger,
            pieces,
            refused,
            ..
        } = self;
        *refused = None;
        for (directory, kind) in KINDS {
            for device in places.devices(directory) {
                let found = places.find(directory, &device, "job_stats");
                let Some(path) = found.filter(|_| filesystem_of(&device).is_some()) else {
                    continue;
                };
                let Some(book) = targets.visit(&device, || Some(Book::default())) else {
                    continue;
                };
                match read_target(&path, kind, pieces, ledger, book, at_ns, faults) {
                    Ok(()) => {}
                    Err(SourceError::Read { errno, .. }) if is_denied(errno) => {
                        let what = "jobs of this server's targets".to_owned();
                        *refused = Some(missing_denied(what, &path, errno));
                    }
                    Err(fault) if fault.is_absent() => {}
                    Err(fault) => faults.add(fault),
                }
            }
        }
    }

    /// Finds reasons why there may be no job counters, which hardly ever change.
    fn look_around(&mut self) {
        self.client = !self.places.devices("llite").is_empty();
        let mut bytes = Vec::new();
        let file = self.places.find_node("jobid_var").map(Param::new);
        let read = file.is_some_and(|mut file| file.read(&mut bytes).is_ok());
        self.jobid_var = sole_text(&bytes).filter(|_| read).map(str::to_owned);
    }
}

/// Reads one target to its end.
fn read_target(
    path: &Path,
    kind: JobstatsKind,
    pieces: &mut Pieces,
    ledger: &mut Ledger,
    book: &mut Book,
    at_ns: i64,
    faults: &mut Faults,
) -> Result<(), SourceError> {
    let fault = |errno| SourceError::Read {
        path: path.to_owned(),
        errno,
    };
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let file = file.map_err(fault)?;
    book.begin(at_ns);
    let bad = parse::read(&file, kind, pieces, |entry| ledger.enter(book, entry));
    let bad = bad.map_err(fault)?;
    ledger.end(book, at_ns);
    bad.report(path, faults);
    Ok(())
}

impl Source for LustreJobs {
    fn name(&self) -> &'static str {
        "lustre_jobs"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        self.present = self.places.present();
        self.targets.begin();
        if self.present {
            self.look_around();
            self.ledger.begin(self.targets.iter().map(|(_, book)| book));
            self.read_targets(batch.monotonic_ns(), &mut faults);
        }
        self.targets.sweep(|_| {});
        match self.targets.len() {
            0 => self.ledger.retire(batch),
            _ => self.ledger.settle(now_ns, batch),
        }
        let refused = [
            ("Lustre targets", self.targets.refused(), TARGETS_MAX),
            (
                "jobs on Lustre targets",
                self.ledger.found.refused,
                ENTRIES_MAX,
            ),
        ];
        for (what, refused, max) in refused.into_iter().filter(|(_, refused, _)| *refused > 0) {
            faults.add(SourceError::TooMany { what, refused, max });
        }
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        !self.present
    }

    fn report(&self) -> SourceCoverage {
        if self.targets.len() == 0 {
            let missing = self.refused.clone().unwrap_or_else(|| self.why_nothing());
            return SourceCoverage {
                sees: "no Lustre targets that count by job".to_owned(),
                missing: vec![missing],
            };
        }
        let found = &self.ledger.found;
        let mut missing: Vec<_> = self.refused.clone().into_iter().collect();
        if found.jobs == 0 && self.refused.is_none() {
            missing.push(MissingPart::new(
                "jobs",
                "no client names one in its requests, or none was active lately",
                "tell all clients where to find the job: lctl set_param -P jobid_var=SLURM_JOB_ID",
            ));
        }
        let alone = self.ledger.followed();
        if found.unnameable > 0 {
            missing.push(MissingPart::new(
                format!("{} by name", counted(found.unnameable, "job")),
                "their names cannot be labels: too long, the same when written out, or `other`",
                "set jobid_name of the clients to something shorter, such as %j",
            ));
        }
        if found.jobs > alone && alone >= self.jobs_max {
            missing.push(MissingPart::new(
                format!("{} by name", counted(found.jobs - alone, "job")),
                format!(
                    "only the {} with the most traffic have streams of their own",
                    self.jobs_max
                ),
                "raise lustre_jobs.jobs_max",
            ));
        }
        let sees = format!(
            "{} on {}, {alone} of them with streams of their own",
            counted(found.jobs, "job"),
            counted(self.targets.len(), "target"),
        );
        SourceCoverage { sees, missing }
    }
}

impl LustreJobs {
    fn why_nothing(&self) -> MissingPart {
        let what = "traffic by job";
        if !self.present {
            let why = format!(
                "neither {} nor {} is there",
                self.root.path("proc/fs/lustre").display(),
                self.root.path("sys/fs/lustre").display()
            );
            return MissingPart::new(what, why, "none is needed where no Lustre is served");
        }
        let var = match (&self.jobid_var, self.client) {
            (Some(var), true) => format!("; this client names its jobs by jobid_var={var}"),
            _ => String::new(),
        };
        let why =
            format!("servers count by job, clients do not, and no target is served here{var}");
        let remedy = match self.jobid_var.as_deref() {
            Some("disable") if self.client => {
                "lctl set_param jobid_var=SLURM_JOB_ID here, and run the agent on the servers"
            }
            _ => "run the agent on the Lustre servers",
        };
        MissingPart::new(what, why, remedy)
    }
}
