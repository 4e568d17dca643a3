//! The collectors that a watch may have, opened as it is configured.

use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use barograph_event::changelog::{
    ChangelogCollector, ChangelogFile, ChangelogMerge, ChangelogOptions, ChangelogUser,
    MergeOptions, MountPaths, ResolverOptions,
};
use barograph_event::{
    Collector, FanotifyCollector, FanotifyConfig, FanotifyGroup, InotifyCollector, InotifyConfig,
    ScanCollector, TreeConfig,
};
use barograph_model::fnv1a;

use super::config::{ChangelogConfig, WatchConfig};

/// Most bytes of the name of a file, without its ending.
const NAME_BYTES_MAX: usize = 200;

/// What opens the collector of a source, which numbers its events after the last that is recorded.
/// What it keeps over restarts is in the given directory.
pub(super) type OpenCollector =
    Box<dyn FnMut(&Path, u64) -> Result<Box<dyn Collector>, String> + Send>;

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
}

impl SourceSpec {
    /// The source of a watched tree.
    pub(super) fn of_watch(config: &WatchConfig) -> Self {
        let watch = config.clone();
        Self {
            name: config.source(),
            path: config.path.clone(),
            collector: config.collector.clone(),
            readers: config.readers.clone(),
            open: Box::new(move |state_dir, last| open_tree(&watch, state_dir, last)),
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
        let source = |(target, user): (&String, &String)| {
            let (merge, name, user) = (merge.clone(), target.clone(), ChangelogUser::parse(user));
            Self {
                name: target.clone(),
                path: config.mount.clone(),
                collector: "changelog".to_owned(),
                readers: config.readers.clone(),
                open: Box::new(move |_, last| {
                    let device = Box::new(ChangelogFile::of_target(&name));
                    let options = ChangelogOptions {
                        user,
                        resume: (last > 0).then_some(last),
                        ..ChangelogOptions::default()
                    };
                    Ok(Box::new(ChangelogCollector::new(&merge, device, options)))
                }),
            }
        };
        config.targets.iter().map(source).collect()
    }
}

fn open_tree(
    config: &WatchConfig,
    state_dir: &Path,
    last: u64,
) -> Result<Box<dyn Collector>, String> {
    let mut maker = DirBuilder::new();
    let made = maker.recursive(true).mode(0o700).create(state_dir);
    made.map_err(|error| format!("cannot make {}: {error}", state_dir.display()))?;
    // A watch that is made anew on another path has a snapshot of its own.
    let place = format!("{} {}", config.source(), config.path.display());
    let snapshot = state_dir.join(format!("{}.snapshot", file_name(&place)));
    let tree = TreeConfig {
        index_next: last + 1,
        directories_max: config.directories_max,
        compare_interval_ns: (config.scan_seconds * 1e9) as i64,
        ..TreeConfig::new(&snapshot)
    };
    let roots = [config.path.clone()];
    let opened: Result<Box<dyn Collector>, _> = match &*config.collector {
        "fanotify" => {
            // Its events tell paths without symbolic links.
            let path = config.path.canonicalize();
            let path = path.map_err(|error| format!("{}: {error}", config.path.display()))?;
            let fanotify = FanotifyConfig {
                tree: Some(tree),
                index_next: last + 1,
                directories_max: config.directories_max,
                ignored_pids: vec![rustix::process::getpid().as_raw_nonzero().get()],
                starts_with_gap: last > 0,
                ..FanotifyConfig::new(&path)
            };
            let group = FanotifyGroup::open(&path);
            let opened = group.and_then(|group| FanotifyCollector::new(group, &fanotify));
            opened.map(|opened| Box::new(opened) as _)
        }
        "scan" => ScanCollector::open(&roots, tree).map(|opened| Box::new(opened) as _),
        _ => {
            let config = InotifyConfig {
                tree,
                ..InotifyConfig::new(&snapshot)
            };
            InotifyCollector::open(&roots, config).map(|opened| Box::new(opened) as _)
        }
    };
    opened.map_err(|fault| fault.to_string())
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
