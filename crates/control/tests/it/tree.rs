//! Trees of plain files in the place of control groups and block devices, made after the documents
//! of the kernel. They keep what is written as it is: ranges, lines of several devices and groups
//! that go away under an open file are the kernel's alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_control::cgroup::{
    BlockDevice, CgroupRoots, DeviceNumber, RecoveredWeight, WeightBackend, WeightJournal,
    WeightLease, WeightProbe, probe, recover,
};
use tempfile::TempDir;

/// The group of most tests.
pub(crate) const GROUP: &str = "jobs/a";
/// The device of all tests.
pub(crate) const NUMBER: DeviceNumber = DeviceNumber {
    major: 8,
    minor: 16,
};
/// All back ends, with the contents of their files where nothing was set.
pub(crate) const BACKENDS: [(WeightBackend, &str); 4] = [
    (WeightBackend::V1Bfq, "100\n"),
    (WeightBackend::V2Bfq, "default 100\n"),
    (WeightBackend::V2Cost, "default 100\n"),
    (WeightBackend::V2Max { device: NUMBER }, ""),
];

/// A tree with the folders `v1`, `v2`, `block` and `journal`.
pub(crate) struct Tree(TempDir);

impl Tree {
    /// A tree with the group, without its files, and with the device `sdb`, whose scheduler is bfq.
    pub(crate) fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for folder in ["v1", "v2"] {
            std::fs::create_dir_all(tree.path(folder).join(GROUP)).unwrap();
        }
        std::fs::create_dir(tree.path("journal")).unwrap();
        tree.write("block/sdb/dev", "8:16\n");
        tree.write("block/sdb/queue/scheduler", "none mq-deadline [bfq]\n");
        tree
    }

    /// A tree in which the file of a back end is as where nothing was set.
    pub(crate) fn with(backend: WeightBackend) -> Self {
        let tree = Self::new();
        let fresh = BACKENDS.iter().find(|it| it.0.file() == backend.file());
        tree.put(backend, fresh.unwrap().1);
        tree
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The file of a back end in the group.
    pub(crate) fn file(&self, backend: WeightBackend) -> PathBuf {
        let root = match backend {
            WeightBackend::V1Bfq => "v1",
            _ => "v2",
        };
        self.path(root).join(GROUP).join(backend.file())
    }

    /// Writes the file of a back end, as another controller would.
    pub(crate) fn put(&self, backend: WeightBackend, text: &str) {
        std::fs::write(self.file(backend), text).unwrap();
    }

    /// The contents of the file of a back end.
    pub(crate) fn get(&self, backend: WeightBackend) -> String {
        std::fs::read_to_string(self.file(backend)).unwrap()
    }

    pub(crate) fn roots(&self) -> CgroupRoots {
        let (v1, v2) = (self.path("v1"), self.path("v2"));
        CgroupRoots::open(&v1, &v2, &self.path("block")).unwrap()
    }

    pub(crate) fn journal(&self) -> Arc<WeightJournal> {
        Arc::new(WeightJournal::open(&self.path("journal")).unwrap())
    }

    /// The names of the files of the journal.
    pub(crate) fn entries(&self) -> Vec<String> {
        names(&self.path("journal"))
    }

    /// A lease of the group until the second 1000.
    pub(crate) fn lease(&self, backend: WeightBackend) -> WeightLease {
        let until_ns = 1_000 * 1_000_000_000;
        WeightLease::take(&self.roots(), GROUP, backend, &self.journal(), until_ns).unwrap()
    }

    pub(crate) fn recover(&self) -> Vec<RecoveredWeight> {
        recover(&self.roots(), &self.journal()).unwrap()
    }

    pub(crate) fn probe(&self) -> WeightProbe {
        let device = BlockDevice::read(&self.path("block"), "sdb").unwrap();
        probe(&self.roots(), GROUP, &device)
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
