//! `/proc/self/mountinfo`, and the choice of the mounts with data of their own
//! (<https://docs.kernel.org/filesystems/proc.html>, 3.5).

use super::compression;
use crate::util::faults::BadLines;
use crate::util::globs::Globs;
use crate::util::parse::{cut, escape, lines, unescape_octal, words};

/// Types that are no storage: views of the kernel, and placeholders of the automounter.
const PSEUDO: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
    "fuse.portal",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
];

/// A mount that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Mount point, raw bytes.
    pub(super) point: Vec<u8>,
    /// Mount point as a label.
    pub(super) label: String,
    /// The device number, `major:minor`.
    pub(super) number: String,
    pub(super) fstype: String,
    /// The device or other source of the mount, without `/dev/`.
    pub(super) device: String,
    /// Compression algorithm, `none` without compression; `None` if the options do not show it.
    pub(super) compression: Option<String>,
}

impl Mount {
    /// Whether this is the same mount, possibly with other options.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.point == other.point
            && self.number == other.number
            && self.fstype == other.fstype
            && self.device == other.device
    }
}

/// A line, and whether it mounts the root of the file system.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    mount: Mount,
    is_root: bool,
}

/// The mounts to follow, in the file's order.
pub(super) fn choose(
    bytes: &[u8],
    skip_fstypes: &Globs,
    skip_mounts: &Globs,
) -> (Vec<Mount>, BadLines) {
    let mut bad = BadLines::default();
    let mut chosen: Vec<Line> = Vec::new();
    for line in lines(bytes) {
        let Some(line) = parse_line(line) else {
            bad.add(line);
            continue;
        };
        // An earlier mount at this point is now covered.
        chosen.retain(|other| other.mount.point != line.mount.point);
        if is_storage(&line.mount)
            && !skip_fstypes.matches(&line.mount.fstype)
            && !skip_mounts.matches(&line.mount.label)
        {
            admit(&mut chosen, line);
        }
    }
    if !cut(bytes).is_empty() || bytes.is_empty() {
        bad.add(cut(bytes));
    }
    (chosen.into_iter().map(|line| line.mount).collect(), bad)
}

/// Adds a mount. Of several mounts of one file system, the first one of its root is kept, else the
/// first.
fn admit(chosen: &mut Vec<Line>, line: Line) {
    match chosen
        .iter_mut()
        .find(|other| same_filesystem(&other.mount, &line.mount))
    {
        None => chosen.push(line),
        Some(other) if line.is_root && !other.is_root => *other = line,
        Some(_) => {}
    }
}

/// Whether the device number is the same; for a file system that gives each mount its own number
/// (btrfs subvolumes), whether the device is the same.
fn same_filesystem(a: &Mount, b: &Mount) -> bool {
    a.number == b.number || (a.fstype == "btrfs" && b.fstype == "btrfs" && a.device == b.device)
}

fn is_storage(mount: &Mount) -> bool {
    // An overlay shows the space of the file system below it: it is useful only if no other is
    // visible.
    let hidden_overlay = mount.fstype == "overlay" && mount.label != "/";
    !hidden_overlay && !PSEUDO.contains(&mount.fstype.as_str())
}

/// Parses `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse_line(line: &[u8]) -> Option<Line> {
    let mut rest = words(line).skip(2);
    let number = std::str::from_utf8(rest.next()?).ok()?;
    let (major, minor) = number.split_once(':')?;
    major.parse::<u32>().ok()?;
    minor.parse::<u32>().ok()?;
    let root = rest.next()?;
    let point = unescape_octal(rest.next()?);
    if point.first() != Some(&b'/') || point.contains(&0) {
        return None;
    }
    rest.next()?;
    rest.find(|word| *word == b"-")?;
    let fstype = escape(rest.next()?);
    let source = unescape_octal(rest.next()?);
    let options = rest.next()?;
    let device = escape(source.strip_prefix(b"/dev/").unwrap_or(&source));
    let label = escape(&point);
    let number = number.to_owned();
    let compression = compression::of(&fstype, options);
    let mount = Mount {
        point,
        label,
        number,
        fstype,
        device,
        compression,
    };
    Some(Line {
        mount,
        is_root: root == b"/",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str], bad: bool) {
        let skip = Globs::new(&["squashfs"]);
        let (mounts, lines) = choose(text.as_bytes(), &skip, &Globs::new(&["/sys/*"]));
        let got: Vec<_> = mounts
            .iter()
            .map(|m| format!("{} {} {}", m.label, m.device, m.fstype))
            .collect();
        assert_eq!(
            (got, lines.any()),
            (expect.iter().map(|e| e.to_string()).collect(), bad),
            "{text}"
        );
    }

    #[test]
    fn which_mounts_are_followed() {
        let root = "27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        check(root, &["/ vda ext4"], false);
        check(
            "22 27 0:21 / /proc rw,relatime - proc proc rw\n",
            &[],
            false,
        );
        check(
            "1 2 7:0 / /snap/x ro shared:5 master:1 - squashfs /dev/loop0 ro\n",
            &[],
            false,
        );
        check(
            "1 2 0:31 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n",
            &[],
            false,
        );
        check(
            &format!("{root}1 2 254:0 /srv /mnt rw - ext4 /dev/vda rw\n"),
            &["/ vda ext4"],
            false,
        );
        check(
            &format!("1 2 254:0 /srv /mnt rw - ext4 /dev/vda rw\n{root}"),
            &["/ vda ext4"],
            false,
        );
        check(
            "1 2 0:40 /@ / rw - btrfs /dev/sda2 rw\n1 2 0:41 /@home /home rw - btrfs /dev/sda2 rw\n",
            &["/ sda2 btrfs"],
            false,
        );
        check("1 2 0:50 / /d rw - overlay overlay rw\n", &[], false);
        check(
            "1 2 0:50 / / rw - overlay overlay rw\n",
            &["/ overlay overlay"],
            false,
        );
        check(
            "1 2 0:60 / /a\\040b rw - nfs4 srv:/x rw\n",
            &["/a b srv:/x nfs4"],
            false,
        );
    }

    #[test]
    fn a_covered_mount_is_not_followed() {
        let below = "1 2 8:1 / /data rw - xfs /dev/sda1 rw\n";
        check(
            &format!("{below}1 2 8:2 / /data rw - xfs /dev/sdb1 rw\n"),
            &["/data sdb1 xfs"],
            false,
        );
        check(
            &format!("{below}1 2 0:9 / /data rw - autofs x rw\n"),
            &[],
            false,
        );
    }

    #[test]
    fn broken_lines() {
        for line in [
            "",
            "x",
            "1 2 3 / / rw - a b c",
            "1 2 8:1 / rel rw - a b c",
            "1 2 8:1 / / rw a b c",
        ] {
            check(&format!("{line}\n"), &[], true);
        }
        check("1 2 8:1 / / rw - xfs /dev/sda1 rw", &[], true);
        check("", &[], true);
    }
}
