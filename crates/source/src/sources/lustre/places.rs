//! The files in which Lustre keeps its parameters. `lctl get_param` hides the place: the same name
//! is in debugfs, `/proc` or sysfs, and moves from one to another between releases
//! (`lustre/utils/lustre_param.c` searches all three, as this module does).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::{MissingPart, SourceError};

/// The three trees in the order of trial: newer releases first.
const BASES: [&str; 3] = ["sys/kernel/debug/lustre", "proc/fs/lustre", "sys/fs/lustre"];
/// Most names that are read from one directory.
const NAMES_MAX: usize = 8192;

/// The three trees of parameters below one root.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    bases: [PathBuf; 3],
}

impl Places {
    pub(crate) fn new(root: &SysRoot) -> Self {
        Self {
            bases: BASES.map(|base| root.path(base)),
        }
    }

    /// Whether Lustre is loaded. sysfs and `/proc` are asked first, since debugfs may be closed to
    /// the agent.
    pub(crate) fn present(&self) -> bool {
        self.bases[1..].iter().any(|base| base.is_dir()) || self.bases[0].is_dir()
    }

    /// The devices of a kind (`osc`, `obdfilter`…), sorted and taken from every tree: if one tree
    /// is closed to the agent, another may list them.
    pub(crate) fn devices(&self, kind: &str) -> Vec<Vec<u8>> {
        let lists = self.bases.iter();
        let lists = lists.filter_map(|base| names_in(&base.join(kind), NAMES_MAX).ok());
        let mut names: Vec<_> = lists.flat_map(|(names, _)| names).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The path of a device's parameter, if it is in a tree that the agent may read.
    pub(crate) fn find(&self, kind: &str, device: &[u8], name: &str) -> Option<PathBuf> {
        let relative = Path::new(kind).join(OsStr::from_bytes(device)).join(name);
        let places = self.bases.iter().map(|base| base.join(&relative));
        places.into_iter().find(|path| path.is_file())
    }

    /// The path of a parameter of the node.
    pub(crate) fn find_node(&self, name: &str) -> Option<PathBuf> {
        let places = self.bases.iter().map(|base| base.join(name));
        places.into_iter().find(|path| path.is_file())
    }

    /// The reason why statistics were not found that newer releases keep in debugfs, and a remedy.
    pub(crate) fn why_not_found(&self) -> (String, &'static str) {
        let debugfs = &self.bases[0];
        match names_in(debugfs, 1) {
            Err(SourceError::Read { errno, .. }) if is_denied(errno) => denied(debugfs, errno),
            Err(_) => (
                format!(
                    "neither {} nor {} has it",
                    debugfs.display(),
                    self.bases[1].display()
                ),
                "mount debugfs at /sys/kernel/debug, or let the agent see the host's",
            ),
            Ok(_) => (
                format!("{} does not have it", debugfs.display()),
                "this release keeps them elsewhere: lctl list_param -R llite osc obdfilter mdt names them",
            ),
        }
    }
}

/// Whether an error means that this user may not read the file.
pub(crate) fn is_denied(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM)
}

/// The reason and the remedy for a file that may not be read.
pub(crate) fn denied(path: &Path, errno: Errno) -> (String, &'static str) {
    let why = format!("{}: {}", path.display(), std::io::Error::from(errno));
    match errno {
        // The error of a kernel under lockdown (Documentation of `lockdown` in man 7
        // kernel_lockdown): debugfs is closed to root as well.
        Errno::PERM => (
            why,
            "the kernel is locked down: boot without lockdown=, or with Secure Boot off",
        ),
        _ => (
            why,
            "debugfs is root's: give the agent's unit AmbientCapabilities=CAP_DAC_READ_SEARCH",
        ),
    }
}

/// The line of a report for a file that may not be read.
pub(crate) fn missing_denied(what: String, path: &Path, errno: Errno) -> MissingPart {
    let (why, remedy) = denied(path, errno);
    MissingPart::new(what, why, remedy)
}

/// The file of a parameter. Its descriptor is kept open if the limit on descriptors allows it.
#[derive(Debug)]
pub(crate) struct Param {
    file: HeldFile,
    keep: bool,
}

impl Param {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            file: HeldFile::short_records(path),
            keep: false,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Keeps the descriptor open from now on if `room` is not 0, and takes one from `room`.
    pub(crate) fn keep_within(&mut self, room: &mut usize) {
        self.keep = *room > 0;
        *room = room.saturating_sub(1);
    }

    pub(crate) fn read(&mut self, bytes: &mut Vec<u8>) -> Result<(), SourceError> {
        match self.keep {
            true => self.file.read(bytes),
            false => self.file.read_and_close(bytes),
        }
    }
}

/// The target of a client's device: `scratch-OST0003` for `scratch-OST0003-osc-ffff9a0c12345000`.
/// Returns nothing for the devices with which metadata servers reach their object targets
/// (`…-osc-MDT0000`), and for names that are not of a device.
pub(crate) fn target_of<'a>(device: &'a [u8], kind: &str) -> Option<&'a [u8]> {
    let mark = format!("-{kind}-");
    let mark = mark.as_bytes();
    let at = device.windows(mark.len()).rposition(|w| w == mark)?;
    let (target, instance) = (&device[..at], &device[at + mark.len()..]);
    let server = instance.starts_with(b"MDT");
    (!server && !instance.is_empty() && filesystem_of(target).is_some()).then_some(target)
}

/// The file system of a device: `scratch` for `scratch-OST0003` or `scratch-ffff9a0c12345000`. The
/// name of a file system may itself have hyphens.
pub(crate) fn filesystem_of(device: &[u8]) -> Option<&[u8]> {
    let at = device.iter().rposition(|b| *b == b'-')?;
    let (name, rest) = (&device[..at], &device[at + 1..]);
    (!name.is_empty() && !rest.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        let target = |device: &str, expect: Option<&str>| {
            let got = target_of(device.as_bytes(), "osc");
            assert_eq!(got, expect.map(str::as_bytes), "{device}");
        };
        target(
            "scratch-OST0003-osc-ffff9a0c12345000",
            Some("scratch-OST0003"),
        );
        target("my-fs-OST000a-osc-ffff9a0c12345000", Some("my-fs-OST000a"));
        target("osc-osc-OST0000-osc-ff", Some("osc-osc-OST0000"));
        target("scratch-OST0003-osc-MDT0000", None);
        target("scratch-OST0003-osc-", None);
        target("scratch-OST0003", None);
        target("-osc-ff", None);
        target("num_refs", None);
        target("", None);
        let filesystem = |device: &str, expect: Option<&str>| {
            let got = filesystem_of(device.as_bytes());
            assert_eq!(got, expect.map(str::as_bytes), "{device}");
        };
        filesystem("scratch-OST0003", Some("scratch"));
        filesystem("my-fs-ffff9a0c12345000", Some("my-fs"));
        filesystem("MGS", None);
        filesystem("-OST0000", None);
        filesystem("scratch-", None);
    }
}
