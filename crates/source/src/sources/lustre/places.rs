//! Where Lustre keeps a parameter. `lctl get_param` hides it: the same name is in debugfs, `/proc`
//! or sysfs, and moves from one to another with the releases (`lustre/utils/lustre_param.c` looks
//! into all three, as this does).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::{Missing, SourceError};

/// In the order of trial: newer releases first.
const BASES: [&str; 3] = ["sys/kernel/debug/lustre", "proc/fs/lustre", "sys/fs/lustre"];
/// Most names of one directory that are looked at.
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

    /// Whether Lustre is loaded here. debugfs is not asked: it may be closed to us.
    pub(crate) fn present(&self) -> bool {
        self.bases[1..].iter().any(|base| base.is_dir()) || self.bases[0].is_dir()
    }

    /// The devices of a kind (`osc`, `obdfilter`…), sorted; from every tree, since a tree that is
    /// closed to us may have a sibling that names them.
    pub(crate) fn devices(&self, kind: &str) -> Vec<Vec<u8>> {
        let lists = self.bases.iter();
        let lists = lists.filter_map(|base| names_in(&base.join(kind), NAMES_MAX).ok());
        let mut names: Vec<_> = lists.flat_map(|(names, _)| names).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Where this parameter of a device is, if anywhere that we may look.
    pub(crate) fn find(&self, kind: &str, device: &[u8], name: &str) -> Option<PathBuf> {
        let relative = Path::new(kind).join(OsStr::from_bytes(device)).join(name);
        let places = self.bases.iter().map(|base| base.join(&relative));
        places.into_iter().find(|path| path.is_file())
    }

    /// Where a parameter of the node is.
    pub(crate) fn find_node(&self, name: &str) -> Option<PathBuf> {
        let places = self.bases.iter().map(|base| base.join(name));
        places.into_iter().find(|path| path.is_file())
    }

    /// Why statistics that newer releases keep in debugfs were not found, and what would help.
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

/// Whether the kernel means that this user may not look.
pub(crate) fn is_denied(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM)
}

/// What a refusal means, and what would help.
pub(crate) fn denied(path: &Path, errno: Errno) -> (String, &'static str) {
    let why = format!("{}: {}", path.display(), std::io::Error::from(errno));
    match errno {
        // What the kernel says under lockdown (Documentation of `lockdown` in man 7
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

/// The line of a report for something that may not be read.
pub(crate) fn missing_denied(what: String, path: &Path, errno: Errno) -> Missing {
    let (why, remedy) = denied(path, errno);
    Missing::new(what, why, remedy)
}

/// A parameter's file, whose descriptor is kept while there is room for it.
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

    /// Keeps the descriptor from now on if `room` is left, of which it takes one.
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

/// `scratch-OST0003` of `scratch-OST0003-osc-ffff9a0c12345000`: the target of a client's device.
/// Nothing for the devices with which metadata servers reach their object targets
/// (`…-osc-MDT0000`), nor for what is no device at all.
pub(crate) fn target_of<'a>(device: &'a [u8], kind: &str) -> Option<&'a [u8]> {
    let mark = format!("-{kind}-");
    let mark = mark.as_bytes();
    let at = device.windows(mark.len()).rposition(|w| w == mark)?;
    let (target, instance) = (&device[..at], &device[at + mark.len()..]);
    let server = instance.starts_with(b"MDT");
    (!server && !instance.is_empty() && filesystem_of(target).is_some()).then_some(target)
}

/// `scratch` of `scratch-OST0003` or `scratch-ffff9a0c12345000`. The name of a file system may have
/// hyphens of its own.
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
