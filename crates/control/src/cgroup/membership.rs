//! In which groups a process is, and where the hierarchies are mounted: two files of `/proc`.
//!
//! It is a file of its own because it is pure: the texts are arguments. A process has one group in
//! each hierarchy, and on machines with both versions they may have different names.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hierarchy {
    /// Version 1, with the controller blkio.
    V1,
    /// Version 2, with the controller io.
    V2,
}

/// The controller of version 1 that has the weights.
const CONTROLLER: &str = "blkio";

/// The groups of one process, each relative to the root of its hierarchy; the root itself is the
/// empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessGroups {
    v1: Option<String>,
    v2: Option<String>,
}

impl ProcessGroups {
    /// The groups in the text of `/proc/PID/cgroup`, whose lines are like `4:blkio:/jobs/a` for
    /// version 1 and `0::/jobs/a` for version 2. Lines of another form are passed over.
    pub fn parse(text: &str) -> Self {
        let mut groups = Self::default();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let Some(name) = path.strip_prefix('/') else {
                continue;
            };
            if controllers.split(',').any(|it| it == CONTROLLER) {
                groups.v1 = Some(name.to_owned());
            } else if number == "0" && controllers.is_empty() {
                groups.v2 = Some(name.to_owned());
            }
        }
        groups
    }

    /// One name in both versions, as an administrator gives it.
    pub fn both(name: &str) -> Self {
        Self {
            v1: Some(name.to_owned()),
            v2: Some(name.to_owned()),
        }
    }

    /// The group in a hierarchy; `None` if the process is in none there.
    pub fn of(&self, hierarchy: Hierarchy) -> Option<&str> {
        match hierarchy {
            Hierarchy::V1 => self.v1.as_deref(),
            Hierarchy::V2 => self.v2.as_deref(),
        }
    }
}

/// The directories at which the hierarchies are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMounts {
    /// Where version 1 has its controller blkio.
    pub v1: Option<PathBuf>,
    /// Where version 2 is.
    pub v2: Option<PathBuf>,
}

impl CgroupMounts {
    /// The mounts in the text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)). Of several mounts
    /// of one hierarchy, the first that shows it from its root counts.
    pub fn parse(text: &str) -> Self {
        let mut mounts = Self::default();
        for line in text.lines() {
            let Some((before, after)) = line.split_once(" - ") else {
                continue;
            };
            let mut before = before.split(' ').skip(3);
            let (Some("/"), Some(at)) = (before.next(), before.next()) else {
                continue;
            };
            let mut after = after.split(' ');
            let kind = after.next();
            let options = after.nth(1).unwrap_or_default();
            let slot = match kind {
                Some("cgroup") if options.split(',').any(|it| it == CONTROLLER) => &mut mounts.v1,
                Some("cgroup2") => &mut mounts.v2,
                _ => continue,
            };
            slot.get_or_insert_with(|| PathBuf::from(unescaped(at)));
        }
        mounts
    }
}

/// A path with its escapes undone: the kernel writes a space as `\040`.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|it| std::str::from_utf8(it).ok());
        match octal.and_then(|it| u8::from_str_radix(it, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_blkio_and_of_version_2() {
        let table = [
            ("0::/user.slice/a\n", None, Some("user.slice/a")),
            ("7:blkio:/jobs/a\n0::/\n", Some("jobs/a"), Some("")),
            ("7:cpu,blkio:/a:b\n4:memory:/c\n", Some("a:b"), None),
            ("7:blkio\nnonsense\n0:: \n::\n", None, None),
            ("7:blkio:/../x\n", Some("../x"), None),
            ("", None, None),
        ];
        for (text, v1, v2) in table {
            let groups = ProcessGroups::parse(text);
            let found = (groups.of(Hierarchy::V1), groups.of(Hierarchy::V2));
            assert_eq!(found, (v1, v2), "{text:?}");
        }
    }

    #[test]
    fn mounts_are_those_that_begin_at_the_root() {
        let text = "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                    31 30 0:27 /sub /elsewhere rw - cgroup cgroup rw,blkio\n\
                    32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                    33 30 0:27 / /sys/fs/cgroup/my\\040blkio rw shared:9 - cgroup cgroup rw,blkio\n\
                    34 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                    35 30 0:29 / /again rw - cgroup2 cgroup2 rw\n\
                    nonsense - cgroup2\n";
        let mounts = CgroupMounts::parse(text);
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(mounts.v1, path("/sys/fs/cgroup/my blkio"));
        assert_eq!(mounts.v2, path("/sys/fs/cgroup/unified"));
        assert_eq!(CgroupMounts::parse(""), CgroupMounts::default());
        assert_eq!(unescaped("\\9a\\"), "\\9a\\");
    }
}
