//! The paths of an archive's files.

use std::path::{Path, PathBuf};

use crate::Tier;

/// Places from this number on are those of files that hold several hours: the first of the hours is
/// the number minus `SEVERAL`. No time in ns since the epoch falls into an hour near this number.
const SEVERAL: i64 = 1 << 40;
/// Directories of files that hold several hours: a day that has no sample, and an hour that does
/// not exist. Programs that read the partitions of all files as dates and numbers still can; words
/// or nulls among them would prevent it.
const SEVERAL_DIRS: [&str; 2] = ["date=0001-01-01", "hour=99"];

/// Returns the place of files that hold several hours, of which `first` is the first.
pub(crate) fn several(first: i64) -> i64 {
    SEVERAL.saturating_add(first)
}

/// Returns the first hour of files that hold several; `None` if the place is that of a single hour.
pub(crate) fn first_of_several(place: i64) -> Option<i64> {
    (place >= SEVERAL / 2).then(|| place.saturating_sub(SEVERAL))
}

/// Returns the first hour that files at a place may hold.
pub(crate) fn first_hour(place: i64) -> i64 {
    first_of_several(place).unwrap_or(place)
}

/// Suffix of the names of directories in which merged files wait.
const WAITING_SUFFIX: &str = ".swap";

/// Returns the tier and hour of a directory of [`ArchiveLayout::waiting_dir`].
pub(crate) fn of_waiting_dir(path: &Path) -> Option<(Tier, i64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(WAITING_SUFFIX)?;
    let (tier, hour) = name.split_once('-')?;
    let tier = Tier::ALL.into_iter().find(|known| known.as_str() == tier)?;
    Some((tier, hour.parse().ok()?))
}

/// The paths of one node's files in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveLayout {
    root: PathBuf,
    /// The node's name, encoded for paths and Hive partition values.
    node: String,
}

impl ArchiveLayout {
    /// Returns the paths of `node` in the archive `root`.
    pub fn new(root: impl Into<PathBuf>, node: &str) -> Self {
        Self {
            root: root.into(),
            node: encode(node),
        }
    }

    /// Returns the nodes of the archive `root`, by the names of their directories. Entries that are
    /// not directories, or whose names no node can have, are ignored.
    pub(crate) fn nodes(root: &Path) -> std::io::Result<Vec<Self>> {
        let entries = match std::fs::read_dir(root.join("nodes")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut nodes = Vec::new();
        for entry in entries {
            let entry = entry?;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().into_string();
            if let Some(node) = name.ok().filter(|name| is_dir && is_encoded(name)) {
                let root = root.to_owned();
                nodes.push(Self { root, node });
            }
        }
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(nodes)
    }

    /// Returns the node's name, encoded for paths.
    pub(crate) fn encoded(&self) -> &str {
        &self.node
    }

    /// Returns the archive's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the files that only this node writes.
    pub fn node_dir(&self) -> PathBuf {
        self.root.join("nodes").join(&self.node)
    }

    /// Returns the directory in which files of a tier and hour wait, and which is exchanged for
    /// theirs.
    pub(crate) fn waiting_dir(&self, tier: Tier, hour: i64) -> PathBuf {
        let name = format!("{}-{hour}{WAITING_SUFFIX}", tier.as_str());
        self.tmp_dir().join(name)
    }

    /// Returns the path of the writer's lock.
    pub fn lock(&self) -> PathBuf {
        self.node_dir().join("lock")
    }

    /// Returns the path of the manifest, which lists the sealed files.
    pub fn manifest(&self) -> PathBuf {
        self.node_dir().join("manifest.json")
    }

    /// Returns the directory of the log segments.
    pub fn log_dir(&self) -> PathBuf {
        self.node_dir().join("log")
    }

    /// Returns the path of one log segment.
    pub fn log(&self, sequence: u64) -> PathBuf {
        self.log_dir().join(format!("{sequence:016}.log"))
    }

    /// Returns the path of the record of the newest log segment.
    pub fn newest(&self) -> PathBuf {
        self.log_dir().join("newest")
    }

    /// Returns the directory of files that are being written.
    pub fn tmp_dir(&self) -> PathBuf {
        self.node_dir().join("tmp")
    }

    /// Returns the directory of the Parquet files of a tier and hour, relative to the root; `hour`
    /// counts hours since the epoch, or is the place of files that hold several hours.
    pub fn partition(&self, tier: Tier, hour: i64) -> PathBuf {
        let node = PathBuf::from(tier.as_str()).join(format!("node={}", self.node));
        if first_of_several(hour).is_some() {
            return SEVERAL_DIRS.iter().fold(node, |path, dir| path.join(dir));
        }
        let seconds = hour.saturating_mul(3_600);
        let date = jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| "unknown".into(), |t| t.strftime("%Y-%m-%d").to_string());
        node.join(format!("date={date}"))
            .join(format!("hour={:02}", hour.rem_euclid(24)))
    }
}

/// Encodes a node's name as Hive does: letters, digits, `-`, `_` and inner dots stay, every other
/// byte becomes `%XX`.
fn encode(node: &str) -> String {
    let plain =
        |i: usize, b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b) || (b == b'.' && i > 0);
    let mut out = String::new();
    for (i, b) in node.bytes().enumerate() {
        if plain(i, b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

/// Whether the name is one that [`encode`] returns for some node.
fn is_encoded(name: &str) -> bool {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let coded = after.get(..2).filter(|_| *first == b'%');
        let byte = coded.and_then(|hex| std::str::from_utf8(hex).ok());
        match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    // A name that encodes a byte without need differs here.
    String::from_utf8(bytes).is_ok_and(|node| !node.is_empty() && encode(&node) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes() {
        for node in ["n1", "a.b-c_1", "..", "n/1", "é", "%", "a b", "%41"] {
            assert!(is_encoded(&encode(node)), "{node}");
        }
        for name in [
            "", "a b", ".hidden", "%41", "%2f", "a%", "%zz", "%+1", "%FF", "é",
        ] {
            assert!(!is_encoded(name), "{name}");
        }
    }

    #[test]
    fn partitions() {
        let layout = ArchiveLayout::new("/a", "n/1");
        let hour = 1_700_000_000 / 3_600;
        assert_eq!(
            layout.partition(Tier::Raw, hour),
            Path::new("raw/node=n%2F1/date=2023-11-14/hour=22")
        );
        assert_eq!(
            layout.partition(Tier::Minute, -1),
            Path::new("1min/node=n%2F1/date=1969-12-31/hour=23")
        );
        for first in [hour, 0, -5, i64::MIN / 3_600_000_000_000 - 1] {
            assert_eq!(first_of_several(first), None);
            assert_eq!(first_of_several(several(first)), Some(first));
            assert_eq!(
                layout.partition(Tier::Raw, several(first)),
                Path::new("raw/node=n%2F1/date=0001-01-01/hour=99")
            );
        }
        assert_eq!(encode(".."), "%2E.");
        assert_eq!(encode("a.b-c_1"), "a.b-c_1");
    }
}
