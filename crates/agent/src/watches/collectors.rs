//! The collectors that a watch may have, opened as it is configured.

use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_event::changelog::{
    ChangelogCollector, ChangelogFile, ChangelogMerge, ChangelogOptions, ChangelogUser,
    MergeOptions, MountPaths, ResolverOptions,
};
use barograph_event::{
    Collector, CollectorFault, FanotifyCollector, FanotifyConfig, FanotifyGroup, InotifyCollector,
    InotifyConfig, ScanCollector, TreeConfig,
};
use barograph_model::fnv1a;
use barograph_source::{HelperConfig, HelperGroup};
use rustix::fs::{Mode, OFlags};

use super::config::{ChangelogConfig, WatchConfig};
use crate::actions::{MARKS_SOURCE, MarkBox, MarkCollector};

/// Most bytes of the name of a file, without its ending.
const NAME_BYTES_MAX: usize = 200;

/// What opens the collector of a source, which numbers its events after the last that is recorded.
/// What it keeps over restarts is in the given directory.
pub(super) type OpenCollector =
    Box<dyn FnMut(&Path, u64) -> Result<OpenedCollector, String> + Send>;

/// A collector, and how it stands to the one that is configured.
pub(super) struct OpenedCollector {
    /// The collector.
    pub collector: Box<dyn Collector>,
    /// The kind of the collector, if it is another one than the configured one, and why it is.
    pub instead: Option<(&'static str, String)>,
}

impl OpenedCollector {
    fn as_configured(collector: Box<dyn Collector>) -> Self {
        Self {
            collector,
            instead: None,
        }
    }
}

/// A source of events that is to be served.
pub(super) struct SourceSpec {
    /// Name of the source.
    pub name: String,
    /// The tree, or the mount point.
    pub path: PathBuf,
    /// The kind of its collector.
    pub collector: String,
    /// `owner` or `all`.
    pub readers: String,
    /// What opens its collector.
    pub open: OpenCollector,
    /// What tries whether the configured collector can be opened, where another one serves instead.
    pub is_possible: Box<dyn FnMut() -> bool + Send>,
}

impl SourceSpec {
    /// The source of a watched tree.
    pub(super) fn of_watch(config: &WatchConfig, helper: &HelperConfig) -> Self {
        let watch = config.clone();
        let groups = GroupOpener {
            path: config.path.clone(),
            helper: helper.clone(),
            opened: Arc::default(),
        };
        let trial = groups.clone();
        Self {
            name: config.source(),
            path: config.path.clone(),
            collector: config.collector.clone(),
            readers: config.readers.clone(),
            open: Box::new(move |state_dir, last| open_tree(&watch, &groups, state_dir, last)),
            is_possible: Box::new(move || trial.try_again()),
        }
    }

    /// The sources of a Lustre file system: one for each metadata target.
    pub(super) fn of_changelogs(config: &ChangelogConfig) -> Vec<Self> {
        let resolver = ResolverOptions {
            root: config.mount.as_os_str().as_bytes().to_vec(),
            directories_max: config.directories_max,
            ..ResolverOptions::default()
        };
        let paths = Box::new(MountPaths::new(&config.mount));
        let merge = ChangelogMerge::new(MergeOptions::default(), resolver, paths);
        let merge = merge.of_logs(config.targets.keys().map(String::as_str));
        let positions = format!(
            "{}.positions",
            file_name(&format!("changelog {}", config.mount.display()))
        );
        let source = |(target, user): (&String, &String)| {
            let (merge, name, user) = (merge.clone(), target.clone(), ChangelogUser::parse(user));
            let positions = positions.clone();
            Self {
                name: target.clone(),
                path: config.mount.clone(),
                collector: "changelog".to_owned(),
                readers: config.readers.clone(),
                open: Box::new(move |state_dir, last| {
                    make_private(state_dir)?;
                    merge.keep_in(&state_dir.join(&positions));
                    let device = Box::new(ChangelogFile::of_target(&name));
                    let options = ChangelogOptions {
                        name: name.clone(),
                        user,
                        resume: (last > 0).then_some(last),
                        ..ChangelogOptions::default()
                    };
                    let collector = ChangelogCollector::new(&merge, device, options);
                    Ok(OpenedCollector::as_configured(Box::new(collector)))
                }),
                is_possible: Box::new(|| true),
            }
        };
        config.targets.iter().map(source).collect()
    }
}

impl SourceSpec {
    /// The source of the marks of rules.
    pub(super) fn of_marks(marks: &Arc<MarkBox>) -> Self {
        let marks = Arc::clone(marks);
        Self {
            name: MARKS_SOURCE.to_owned(),
            path: PathBuf::new(),
            collector: MARKS_SOURCE.to_owned(),
            readers: "owner".to_owned(),
            open: Box::new(move |_, last| {
                let opened = MarkCollector::open(&marks, last + 1);
                let opened = opened.map_err(|fault| fault.to_string())?;
                Ok(OpenedCollector::as_configured(Box::new(opened)))
            }),
            is_possible: Box::new(|| true),
        }
    }
}

/// Makes the directory of what collectors keep.
fn make_private(state_dir: &Path) -> Result<(), String> {
    let mut maker = DirBuilder::new();
    let made = maker.recursive(true).mode(0o700).create(state_dir);
    made.map_err(|error| format!("cannot make {}: {error}", state_dir.display()))
}

/// What opens fanotify groups of a watch: the agent itself if it may, else the privileged helper.
#[derive(Clone)]
struct GroupOpener {
    path: PathBuf,
    helper: HelperConfig,
    /// A group that a trial has opened.
    opened: Arc<Mutex<Option<FanotifyGroup>>>,
}

impl GroupOpener {
    /// Tries to open a group, and keeps it for the next collector.
    fn try_again(&self) -> bool {
        let group = self.open().ok();
        let is_open = group.is_some();
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = group;
        is_open
    }

    /// The group that a trial has opened, or a new one.
    fn open(&self) -> Result<FanotifyGroup, String> {
        let opened = self
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(group) = opened {
            return Ok(group);
        }
        match FanotifyGroup::open(&self.path) {
            Ok(group) => Ok(group),
            Err(fault) if rustix::process::geteuid().is_root() => Err(fault.to_string()),
            Err(_) => self.by_helper(),
        }
    }

    fn by_helper(&self) -> Result<FanotifyGroup, String> {
        let failed = |errno| format!("{}: {errno}", self.path.display());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(failed)?;
        let device = rustix::fs::fstat(&base).map_err(failed)?.st_dev;
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        let HelperGroup { group, lacks } = HelperGroup::ask(&self.helper, device)?;
        let group = FanotifyGroup::from_parts(group, base);
        Ok(FanotifyGroup { lacks, ..group })
    }
}

fn open_tree(
    config: &WatchConfig,
    groups: &GroupOpener,
    state_dir: &Path,
    last: u64,
) -> Result<OpenedCollector, String> {
    make_private(state_dir)?;
    // A watch that is made anew on another path has a snapshot of its own.
    let place = format!("{} {}", config.source(), config.path.display());
    let snapshot = state_dir.join(format!("{}.snapshot", file_name(&place)));
    let tree = |snapshot: &Path| TreeConfig {
        index_next: last + 1,
        directories_max: config.directories_max,
        compare_interval_ns: (config.scan_seconds * 1e9) as i64,
        threads: config.scan_threads,
        ..TreeConfig::new(snapshot)
    };
    let roots = [config.path.clone()];
    let inotify = |snapshot: &Path| {
        let config = InotifyConfig {
            tree: tree(snapshot),
            ..InotifyConfig::new(snapshot)
        };
        InotifyCollector::open(&roots, config)
    };
    let opened: Result<Box<dyn Collector>, _> = match &*config.collector {
        "fanotify" => {
            // Another collector knows objects by other identities: what one of them kept says
            // nothing to the other, and would be out of date when it has its turn again.
            let of_inotify = snapshot.with_extension("inotify-snapshot");
            let (group, unused) = match groups.open() {
                Ok(group) => (Ok(group), &of_inotify),
                Err(reason) => (Err(reason), &snapshot),
            };
            remove_unused(unused)?;
            match group {
                Ok(group) => open_fanotify(config, group, tree(&snapshot), last)
                    .map(|opened| Box::new(opened) as _),
                Err(reason) => {
                    let opened = inotify(&of_inotify).map_err(|fault| fault.to_string())?;
                    return Ok(OpenedCollector {
                        collector: Box::new(opened),
                        instead: Some(("inotify", reason)),
                    });
                }
            }
        }
        "scan" => ScanCollector::open(&roots, tree(&snapshot)).map(|opened| Box::new(opened) as _),
        _ => inotify(&snapshot).map(|opened| Box::new(opened) as _),
    };
    let opened = opened.map_err(|fault| fault.to_string())?;
    Ok(OpenedCollector::as_configured(opened))
}

fn open_fanotify(
    config: &WatchConfig,
    group: FanotifyGroup,
    tree: TreeConfig,
    last: u64,
) -> Result<FanotifyCollector, CollectorFault> {
    // Its events tell paths without symbolic links.
    let path = config
        .path
        .canonicalize()
        .map_err(|source| CollectorFault::Io {
            what: "find",
            path: config.path.clone(),
            source,
        })?;
    let fanotify = FanotifyConfig {
        tree: Some(tree),
        index_next: last + 1,
        directories_max: config.directories_max,
        ignored_pids: vec![rustix::process::getpid().as_raw_nonzero().get()],
        starts_with_gap: last > 0,
        ..FanotifyConfig::new(&path)
    };
    FanotifyCollector::new(group, &fanotify)
}

/// Removes what a collector kept that is not used now.
fn remove_unused(snapshot: &Path) -> Result<(), String> {
    match std::fs::remove_file(snapshot) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", snapshot.display()))
        }
        _ => Ok(()),
    }
}

/// A name of a file for a source: letters, digits and `_` stand for themselves, all else for its
/// number, so that no two sources have one file. A long name ends with a hash of the source.
fn file_name(source: &str) -> String {
    let mut name = String::new();
    for byte in source.bytes() {
        match byte.is_ascii_alphanumeric() || byte == b'_' {
            true => name.push(char::from(byte)),
            false => name.push_str(&format!("-{byte:02x}")),
        }
    }
    if name.len() > NAME_BYTES_MAX {
        name.truncate(NAME_BYTES_MAX - 17);
        name.push_str(&format!("-{:016x}", fnv1a(source.as_bytes())));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_a_file_of_its_own() {
        assert_eq!(file_name("/data/a b"), "-2fdata-2fa-20b");
        assert_ne!(file_name("a-2fb"), file_name("a/b"));
        let long = "/".repeat(127);
        assert_eq!(file_name(&long).len(), NAME_BYTES_MAX);
        assert_ne!(
            file_name(&format!("{long}a")),
            file_name(&format!("{long}b"))
        );
    }
}
