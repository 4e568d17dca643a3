//! The collectors that a watch may have, opened as it is configured.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use barograph_event::{Collector, InotifyCollector, InotifyConfig, ScanCollector, TreeConfig};
use barograph_model::fnv1a;

use super::config::WatchConfig;

/// Most bytes of the name of a file, without its ending.
const NAME_BYTES_MAX: usize = 200;

/// Opens the collector of a watch, which numbers its events after `last`. What it keeps over
/// restarts is below `state_dir`.
pub(super) fn open_collector(
    config: &WatchConfig,
    state_dir: &Path,
    last: u64,
) -> Result<Box<dyn Collector>, String> {
    let mut maker = DirBuilder::new();
    let made = maker.recursive(true).mode(0o700).create(state_dir);
    made.map_err(|error| format!("cannot make {}: {error}", state_dir.display()))?;
    let snapshot = state_dir.join(format!("{}.snapshot", file_name(&config.source())));
    let tree = TreeConfig {
        index_next: last + 1,
        directories_max: config.directories_max,
        compare_interval_ns: (config.scan_seconds * 1e9) as i64,
        ..TreeConfig::new(&snapshot)
    };
    let roots = [config.path.clone()];
    let opened: Result<Box<dyn Collector>, _> = match &*config.collector {
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
