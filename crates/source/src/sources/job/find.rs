//! Which jobs have control groups on this node, and where.
//!
//! Looked for only at the places where batch systems make them:
//! * Slurm, version 2: `system.slice/slurmstepd.scope/job_4711`, or `NODE_slurmstepd.scope` where
//!   several slurmd share a machine, in whatever slice `CgroupSlice` names
//!   (<https://slurm.schedmd.com/cgroup_v2.html>); version 1: `slurm/uid_1000/job_4711`, or
//!   `slurm_NODE` (<https://slurm.schedmd.com/cgroups.html>)
//! * OpenPBS: `pbs_jobs.service/jobid/4711.server` in version 1 and `pbs_jobs.service/jobs/…` in
//!   version 2 (its hook `pbs_cgroups`); `pbspro/…` in older releases
//! * Torque: `torque/4711.server` (its `trq_cgroups.c`)
//! * LSF: `lsf/CLUSTER/job.4711.…`; its manual names the controllers, not the path, which is what
//!   sites report
//!
//! A job's number is what the batch system calls it in the job's own environment, so that Lustre
//! and NFS, which are told it there, call it the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use barograph_model::Pattern;

use crate::util::file::SysRoot;

/// Most directories looked at in one read.
const DIRECTORIES_MAX: usize = 16_384;
/// Longest number of a job.
pub(super) const ID_BYTES_MAX: usize = 128;

/// What a hierarchy of control groups tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Everything.
    V2,
    Memory,
    Blkio,
    Cpuacct,
    Pids,
    /// Only which processes there are.
    Other,
}

/// The hierarchies below `sys/fs/cgroup`, those of processes last: memory is asked first for them.
const V1: [(&str, Role); 8] = [
    ("memory", Role::Memory),
    ("blkio", Role::Blkio),
    ("cpuacct", Role::Cpuacct),
    ("cpu,cpuacct", Role::Cpuacct),
    ("pids", Role::Pids),
    ("freezer", Role::Other),
    ("cpuset", Role::Other),
    ("devices", Role::Other),
];

/// A batch system, the directories of its jobs, and how it names them.
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
    /// At most one of a hierarchy and place; several slurmd may each have one.
    pub(super) directories: Vec<(Role, PathBuf)>,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) jobs: BTreeMap<String, Groups>,
    /// The batch system whose groups are there, with or without jobs.
    pub(super) scheduler: Option<&'static str>,
    /// There were more directories than are looked at.
    pub(super) cut: bool,
}

/// Looks at every place.
pub(super) fn jobs(root: &SysRoot) -> Found {
    let mut found = Found::default();
    let mut left = DIRECTORIES_MAX;
    for (role, hierarchy) in hierarchies(root) {
        for (scheduler, way, id_of) in PLACES {
            let mut places = Vec::new();
            walk(&hierarchy, way, &mut left, &mut places);
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

fn hierarchies(root: &SysRoot) -> Vec<(Role, PathBuf)> {
    let base = root.path("sys/fs/cgroup");
    let v2 = [base.clone(), base.join("unified")];
    let v2 = v2
        .into_iter()
        .filter(|dir| dir.join("cgroup.controllers").is_file())
        .map(|dir| (Role::V2, dir));
    let mut found: Vec<_> = v2.collect();
    for (name, role) in V1 {
        // `cpuacct` is usually a link to `cpu,cpuacct`.
        let twice = role == Role::Cpuacct && found.iter().any(|(r, _)| *r == role);
        let dir = base.join(name);
        if !twice && dir.is_dir() {
            found.push((role, dir));
        }
    }
    found
}

/// Follows a way of names and globs from a directory.
fn walk(dir: &Path, way: &[&str], left: &mut usize, places: &mut Vec<PathBuf>) {
    let Some((first, rest)) = way.split_first() else {
        places.push(dir.to_owned());
        return;
    };
    if !first.contains('*') {
        let next = dir.join(first);
        if next.is_dir() {
            walk(&next, rest, left, places);
        }
        return;
    }
    let pattern = Pattern::new(*first);
    for (name, next) in directories(dir, left) {
        if pattern.matches(&name) {
            walk(&next, rest, left, places);
        }
    }
}

/// The directories in one, sorted; none if it is gone.
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

/// `job_4711`: also each element of an array and each part of a heterogeneous job has a number of
/// its own.
fn slurm(name: &str) -> Option<&str> {
    let id = name.strip_prefix("job_")?;
    let digits = (1..=20).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
    digits.then_some(id)
}

/// `4711.server` or `4711[3].server`.
fn pbs(name: &str) -> Option<&str> {
    (name.starts_with(|c: char| c.is_ascii_digit()) && is_id(name)).then_some(name)
}

/// `job.4711.20814.1763750000`: number, process, time.
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
