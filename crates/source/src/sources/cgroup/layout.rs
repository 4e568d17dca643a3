//! The hierarchies of control groups: version 1, version 2, or both (hybrid), and the groups in
//! them.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::CgroupConfig;
use crate::util::file::{HeldFile, SysRoot};

use super::counted::{Counted, V1Files};
use super::devices::BlockDevices;

/// Most directories that one scan visits.
const DIRECTORIES_MAX: usize = 16_384;

/// The controller that counts I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IoController {
    V2(PathBuf),
    V1 {
        root: PathBuf,
        /// `None` if no file of version 1 counts anything here.
        files: Option<V1Files>,
    },
}

/// The hierarchies on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupLayout {
    pub(super) io: Option<IoController>,
    /// Root and file of the memory controller.
    pub(super) memory: Option<(PathBuf, &'static str)>,
    /// Root of the version 2 hierarchy, which has the pressure files.
    pub(super) pressure: Option<PathBuf>,
}

impl CgroupLayout {
    /// Finds the hierarchies, and what version 1 counts if it is the one that counts I/O.
    pub(super) fn find(root: &SysRoot, devices: &BlockDevices) -> (Self, Counted) {
        let mut counted = Counted::default();
        let base = root.path("sys/fs/cgroup");
        let v2 = [base.clone(), base.join("unified")];
        let v2 = v2
            .into_iter()
            .find(|dir| dir.join("cgroup.controllers").is_file());
        let controllers = v2.as_ref().map(|dir| controllers(dir)).unwrap_or_default();
        let has = |name: &str| controllers.split_ascii_whitespace().any(|c| c == name);
        let io = match &v2 {
            Some(dir) if has("io") => Some(IoController::V2(dir.clone())),
            _ => {
                let root = base.join("blkio");
                Counted::find(&root, devices).map(|found| {
                    counted = found;
                    let files = counted.files;
                    IoController::V1 { root, files }
                })
            }
        };
        let memory = match &v2 {
            Some(dir) if has("memory") => Some((dir.clone(), "memory.current")),
            _ => Some((base.join("memory"), "memory.usage_in_bytes"))
                .filter(|(dir, file)| dir.join(file).is_file()),
        };
        let layout = Self {
            io,
            memory,
            pressure: v2,
        };
        (layout, counted)
    }

    /// The version in a few words, for people.
    pub(super) fn version(&self) -> &'static str {
        match (&self.io, &self.pressure) {
            (Some(IoController::V2(_)), _) => "v2",
            (Some(IoController::V1 { .. }), Some(_)) => "hybrid",
            (Some(IoController::V1 { .. }), None) => "v1",
            (None, Some(_)) => "v2 without the io controller",
            (None, None) => "none",
        }
    }

    fn roots(&self) -> BTreeSet<&Path> {
        let io = self.io.as_ref().map(|io| match io {
            IoController::V2(root) | IoController::V1 { root, .. } => root.as_path(),
        });
        let memory = self.memory.as_ref().map(|(root, _)| root.as_path());
        [io, memory, self.pressure.as_deref()]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The groups as paths from the root (`/`, `/a`, `/a/b`), nearest the root first, and the
    /// number of found groups that exceed the limit.
    pub(super) fn groups(&self, config: &CgroupConfig) -> (Vec<Vec<u8>>, usize) {
        let mut found: BTreeSet<(usize, Vec<u8>)> = BTreeSet::new();
        let mut budget = DIRECTORIES_MAX;
        for root in self.roots() {
            walk(root, config.depth_max, &mut budget, &mut found);
        }
        let cut = found.len().saturating_sub(config.groups_max);
        (
            found
                .into_iter()
                .take(config.groups_max)
                .map(|(_, path)| path)
                .collect(),
            cut,
        )
    }
}

fn walk(root: &Path, depth_max: usize, budget: &mut usize, found: &mut BTreeSet<(usize, Vec<u8>)>) {
    if !root.is_dir() {
        return;
    }
    found.insert((0, b"/".to_vec()));
    let mut queue = VecDeque::from([(0, root.to_owned(), Vec::new())]);
    while let Some((depth, dir, path)) = queue.pop_front() {
        if depth >= depth_max {
            continue;
        }
        // A group that was removed meanwhile has no groups below it.
        let Ok(entries) = std::fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        {
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            let name = entry.file_name().into_vec();
            let mut path: Vec<u8> = path.clone();
            path.push(b'/');
            path.extend_from_slice(&name);
            found.insert((depth + 1, path.clone()));
            queue.push_back((depth + 1, entry.path(), path));
        }
    }
}

fn controllers(dir: &Path) -> String {
    let mut bytes = Vec::new();
    let read = HeldFile::short_records(dir.join("cgroup.controllers")).read_and_close(&mut bytes);
    read.map(|()| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// A group's directory below a hierarchy's root.
pub(super) fn directory(root: &Path, path: &[u8]) -> PathBuf {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    root.join(std::ffi::OsStr::from_bytes(relative))
}
