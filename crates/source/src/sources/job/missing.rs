//! The missing data of jobs that the report lists, with reasons and remedies.

use crate::MissingPart;
use crate::report::counted;
use crate::sources::cgroup::by_device::DEVICES_EACH_MAX;

use super::find::{CounterRole, FoundJobs};
use super::usage::{BELOW_MAX, Usage};
use super::{Jobs, Squeue, note};

impl Jobs {
    /// Lists everything that is missing after a poll.
    pub(super) fn explain(
        &self,
        found: &FoundJobs,
        notes_missing: Option<MissingPart>,
    ) -> Vec<MissingPart> {
        let mut missing = Vec::new();
        if self.scheduler.is_none() && !self.prolog && self.jobs.len() == 0 {
            let groups = self.root.path("sys/fs/cgroup");
            let notes = self.root.path(note::DIRECTORY);
            missing.push(MissingPart::new(
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
        let silent = |has: fn(&Usage) -> bool| {
            jobs()
                .filter(|j| j.usage.as_ref().is_some_and(|u| !has(u)))
                .count()
        };
        let groupless = jobs().filter(|j| j.usage.is_none()).count();
        if groupless > 0 {
            missing.push(MissingPart::new(
                format!("what {} here", uses(groupless)),
                "no control group of them is seen",
                "let Slurm use proctrack/cgroup and jobacct_gather/cgroup; or their epilog did not run",
            ));
        }
        missing.extend(self.explain_local(
            found,
            silent(|u| u.traffic.as_ref().is_some_and(|table| !table.is_partial)),
        ));
        let blind = silent(|u| u.memory_bytes.is_some());
        if blind > 0 {
            missing.push(MissingPart::new(
                format!("memory of {}", counted(blind, "job")),
                "their control groups are not of the memory controller",
                "set ConstrainRAMSpace=yes in cgroup.conf",
            ));
        }
        let uncounted = silent(|u| u.processes.is_some());
        if uncounted > 0 {
            missing.push(MissingPart::new(
                format!("processes of {}", counted(uncounted, "job")),
                format!("their groups have no list of processes, or there are more than {BELOW_MAX} below them"),
                "nothing; the bound keeps a read short",
            ));
        }
        missing.extend(self.explain_strangers());
        if found.cut {
            missing.push(MissingPart::new(
                "jobs beyond those seen",
                "there are more control groups than are looked at in one read",
                "nothing; the bound keeps a read short",
            ));
        }
        missing
    }

    /// Missing bytes of the node's own devices; `blind` is the number of jobs that have none.
    fn explain_local(&self, found: &FoundJobs, blind: usize) -> Vec<MissingPart> {
        let mut missing = Vec::new();
        let mut groups = found.jobs.values().flat_map(|groups| &groups.directories);
        if blind > 0 && groups.any(|(role, _)| *role == CounterRole::Blkio) {
            missing.extend(self.counted.explain());
        }
        if blind > 0 {
            missing.push(MissingPart::new(
                format!("local bytes of {}", counted(blind, "job")),
                "their control groups have no io.stat, nor counters of blkio that count",
                "set EnableExtraControllers=io in cgroup.conf (Slurm 24.05, version 2 of control groups)",
            ));
        }
        if self.room.refused > 0 {
            let max = self.devices_max;
            missing.push(MissingPart::new(
                format!("{} devices of jobs", self.room.refused),
                format!(
                    "only {max} have streams, and {DEVICES_EACH_MAX} of one job; their sum is told"
                ),
                "raise cgroup.devices_max",
            ));
        }
        missing
    }

    /// Jobs whose control groups are known but not their owner.
    fn explain_strangers(&self) -> Option<MissingPart> {
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
        let remedy = match self.squeue.refusals > 0 && !self.squeue.absent {
            true => {
                "install etc/slurm/prolog.sh; or let the agent reach slurmctld (IPAddressAllow= of its unit), and where Slurm calls this node otherwise, set sources.job.node"
            }
            false => {
                "install etc/slurm/prolog.sh; where Slurm calls this node otherwise, set sources.job.node"
            }
        };
        Some(MissingPart::new(
            format!("users, nodes and tasks of {}", counted(strangers, "job")),
            why,
            remedy,
        ))
    }
}

/// Phrases a refusal as the end of a sentence that begins with `squeue`.
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
