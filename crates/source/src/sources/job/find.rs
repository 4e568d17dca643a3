//! Finds the jobs that have control groups on this node, and the paths of the groups.
//!
//! Only the places where batch systems make such groups are searched:
//! * Slurm, version 2: `system.slice/slurmstepd.scope/job_4711`, or `NODE_slurmstepd.scope` where
//!   several slurmd share a machine, in whatever slice `CgroupSlice` names
//!   (<https://slurm.schedmd.com/cgroup_v2.html>); version 1: `slurm/uid_1000/job_4711`, or
//!   `slurm_NODE` (<https://slurm.schedmd.com/cgroups.html>)
//! * OpenPBS: `pbs_jobs.service/jobid/4711.server` in version 1 and `pbs_jobs.service/jobs/…` in
//!   version 2 (its hook `pbs_cgroups`); `pbspro/…` in older releases
//! * Torque: `torque/4711.server` (its `trq_cgroups.c`)
//! * LSF: `lsf/CLUSTER/job.4711.…`; its manual names the controllers but not the path, which is
//!   taken from reports of sites
//!
//! A job's number is the one that the batch system puts into the job's own environment. Lustre and
//! NFS take it from there, so that all of them name a job alike.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use barograph_model::Pattern;

use crate::util::file::SysRoot;

/// Most directories looked at in one poll.
const DIRECTORIES_MAX: usize = 16_384;
/// Longest number of a job, in bytes.
pub(super) const ID_BYTES_MAX: usize = 128;

/// The counters that a hierarchy of control groups has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CounterRole {
    /// Version 2: all counters.
    V2,
    Memory,
    Blkio,
    Cpuacct,
    Pids,
    /// Only the list of processes.
    Other,
}

/// The hierarchies of version 1 below `sys/fs/cgroup`. Those with only processes come last, so that
/// processes are counted in the memory hierarchy if there is one.
const V1: [(&str, CounterRole); 8] = [
    ("memory", CounterRole::Memory),
    ("blkio", CounterRole::Blkio),
    ("cpuacct", CounterRole::Cpuacct),
    ("cpu,cpuacct", CounterRole::Cpuacct),
    ("pids", CounterRole::Pids),
    ("freezer", CounterRole::Other),
    ("cpuset", CounterRole::Other),
    ("devices", CounterRole::Other),
];

/// A batch system, the directories of its jobs, and the function that takes a job's number from a
/// directory's name.
type Place = (
    &'static str,
    &'static [&'static str],
    fn(&str) -> Option<&str>,
);

const PLACES: [Place; 9] = [
    ("slurm", &["*.slice", "*slurmstepd.scope"], slurm),
    ("slurm", &["*.slice", "*.slice", "*slurmstepd.scope"], slurm),
    ("slurm", &["slurm", "uid_*"], slurm),
    ("slurm", &["slurm_*", "uid_*"], slurm),
    ("pbs", &["pbs_jobs.service", "jobid"], pbs),
    ("pbs", &["pbs_jobs.service", "jobs"], pbs),
    ("pbs", &["pbspro"], pbs),
    ("torque", &["torque"], pbs),
    ("lsf", &["lsf", "*"], lsf),
];

/// The control groups of one job.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) scheduler: &'static str,
    /// At most one directory for each hierarchy and place; each of several slurmd may have its own.
    pub(super) directories: Vec<(CounterRole, PathBuf)>,
}

/// The result of one search.
#[derive(Debug, Default)]
pub(super) struct FoundJobs {
    pub(super) jobs: BTreeMap<String, Groups>,
    /// The batch system whose groups exist, with or without jobs.
    pub(super) scheduler: Option<&'static str>,
    /// Whether there were more directories than are looked at.
    pub(super) cut: bool,
}

/// Searches every place.
pub(super) fn jobs(root: &SysRoot) -> FoundJobs {
    let mut found = FoundJobs::default();
    let mut left = DIRECTORIES_MAX;
    for (role, hierarchy) in hierarchies(root) {
        // Read once for all places: on most nodes there is nothing else to read.
        let top = directories(&hierarchy, &mut left);
        for (scheduler, way, id_of) in PLACES {
            let mut places = Vec::new();
            walk_into(&top, way, &mut left, &mut places);
            for place in places {
                found.scheduler.get_or_insert(scheduler);
                for (name, directory) in directories(&place, &mut left) {
                    let Some(id) = id_of(&name) else { continue };
                    let groups = found.jobs.entry(id.to_owned()).or_insert_with(|| Groups {
                        scheduler,
                        directories: Vec::new(),
                    });
                    groups.directories.push((role, directory));
                }
            }
        }
    }
    found.cut = left == 0;
    found
}

fn hierarchies(root: &SysRoot) -> Vec<(CounterRole, PathBuf)> {
    let base = root.path("sys/fs/cgroup");
    let v2 = [base.clone(), base.join("unified")];
    let v2 = v2
        .into_iter()
        .filter(|dir| dir.join("cgroup.controllers").is_file())
        .map(|dir| (CounterRole::V2, dir));
    let mut found: Vec<_> = v2.collect();
    for (name, role) in V1 {
        // `cpuacct` is usually a link to `cpu,cpuacct`.
        let twice = role == CounterRole::Cpuacct && found.iter().any(|(r, _)| *r == role);
        let dir = base.join(name);
        if !twice && dir.is_dir() {
            found.push((role, dir));
        }
    }
    found
}

/// Collects the directories that a path of names and globs leads to from `dir`.
fn walk(dir: &Path, way: &[&str], left: &mut usize, places: &mut Vec<PathBuf>) {
    match way {
        [] => places.push(dir.to_owned()),
        [first, ..] if first.contains('*') => {
            walk_into(&directories(dir, left), way, left, places);
        }
        [first, rest @ ..] => {
            let next = dir.join(first);
            if next.is_dir() {
                walk(&next, rest, left, places);
            }
        }
    }
}

/// Continues a walk in those of the directories that the first name or glob of the path matches.
fn walk_into(
    inside: &[(String, PathBuf)],
    way: &[&str],
    left: &mut usize,
    places: &mut Vec<PathBuf>,
) {
    let Some((first, rest)) = way.split_first() else {
        return;
    };
    let pattern = Pattern::new(*first);
    for (name, next) in inside {
        if pattern.matches(name) {
            walk(next, rest, left, places);
        }
    }
}

/// The directories in `dir`, sorted; none if it is gone. Each takes one from `left`.
pub(super) fn directories(dir: &Path, left: &mut usize) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        if *left == 0 {
            break;
        }
        *left -= 1;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    found
}

/// The number in `job_4711`. Each element of an array and each part of a heterogeneous job has a
/// number of its own as well.
fn slurm(name: &str) -> Option<&str> {
    let id = name.strip_prefix("job_")?;
    let digits = (1..=20).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
    digits.then_some(id)
}

/// The number in `4711.server` or `4711[3].server`, which is the whole name.
fn pbs(name: &str) -> Option<&str> {
    (name.starts_with(|c: char| c.is_ascii_digit()) && is_id(name)).then_some(name)
}

/// The number in `job.4711.20814.1763750000`, which is number, process and time.
fn lsf(name: &str) -> Option<&str> {
    let id = name.strip_prefix("job.")?;
    let id = &id[..id.find('.').unwrap_or(id.len())];
    pbs(id)
}

/// Whether a text may be the number of a job of any batch system.
pub(super) fn is_id(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-[]+".contains(&b);
    let first = text
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    first && text.len() <= ID_BYTES_MAX && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_jobs() {
        let check = |id_of: fn(&str) -> Option<&str>, name: &str, expect: Option<&str>| {
            assert_eq!(id_of(name), expect, "{name}");
        };
        check(slurm, "job_4711", Some("4711"));
        for other in [
            "job_",
            "job_x",
            "job_4711 ",
            "step_0",
            "system",
            "job_4711_3",
        ] {
            check(slurm, other, None);
        }
        check(slurm, &format!("job_{}", "9".repeat(21)), None);
        check(pbs, "4711.server", Some("4711.server"));
        check(pbs, "4711[3].server", Some("4711[3].server"));
        check(pbs, "cgroup", None);
        check(pbs, "4711/..", None);
        check(lsf, "job.4711.20814.1763750000", Some("4711"));
        check(lsf, "job.4711[2].20814", Some("4711[2]"));
        check(lsf, "4711", None);
    }
}
