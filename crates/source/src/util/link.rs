//! The link of a disk and its speed: the PCIe link of an NVMe drive, the phy of a SATA or SAS disk.
//!
//! PCIe: `current_link_speed` (`16.0 GT/s PCIe`) and `current_link_width`, after
//! Documentation/ABI/testing/sysfs-bus-pci of the kernel. SATA: `sata_spd` (`6.0 Gbps`), after
//! Documentation/ABI/testing/sysfs-ata. SAS: `negotiated_linkrate` (`12.0 Gbit`), after
//! drivers/scsi/scsi_transport_sas.c.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{decimal, sole_number, sole_text, words};

/// Most controllers of one NVMe subsystem, and phys of one port, that are read.
const PATHS_MAX: usize = 64;
/// Share of data in the bytes of a PCIe link: the rest are headers of packets of 256 bytes and flow
/// control.
const PCIE_PAYLOAD: f64 = 0.9;
/// Share of data in the bytes of a SATA or SAS link.
const SERIAL_PAYLOAD: f64 = 0.92;
/// Rate of the outermost tracks of a disk of 7200 revolutions per minute, however fast its link is.
const PLATTER_BYTES_PER_SECOND: f64 = 250e6;

/// The attachment of a disk.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    /// `pcie`, `sata`, `sas`, `virtio`…
    pub(crate) transport: String,
    /// Bytes per second at the negotiated speed, without the overhead of the encoding.
    pub(crate) now: Option<f64>,
    /// Bytes per second at the greatest speed of the disk; `None` if it is unknown.
    pub(crate) max: Option<f64>,
}

impl Link {
    /// The link of a whole disk, by its name in `/sys/block`.
    pub(crate) fn of(root: &SysRoot, sysfs_name: &OsStr) -> Option<Self> {
        let block = root.path("sys/block").join(sysfs_name);
        match sysfs_name.as_encoded_bytes().starts_with(b"nvme") {
            true => nvme(&block.join("device")),
            false => by_place(root, &block),
        }
    }

    /// The greatest rate of transfer to expect of a disk on this link, in bytes per second. `None`
    /// if the link is not what limits it, as for virtual disks.
    pub(crate) fn expected(&self, rotating: bool) -> Option<f64> {
        let share = match &*self.transport {
            "pcie" => PCIE_PAYLOAD,
            "sata" | "sas" => SERIAL_PAYLOAD,
            _ => return None,
        };
        let link = self.now? * share;
        Some(match rotating {
            true => link.min(PLATTER_BYTES_PER_SECOND),
            false => link,
        })
    }
}

/// The link of an NVMe drive. `device` of a namespace is its controller; under native multipathing
/// it is the subsystem that contains the controllers, of which the fastest counts.
fn nvme(device: &Path) -> Option<Link> {
    if let Some(link) = controller(device) {
        return Some(link);
    }
    let (names, _) = names_in(device, PATHS_MAX).ok()?;
    let paths = names.iter().filter(|name| name.starts_with(b"nvme"));
    let links = paths.filter_map(|name| controller(&device.join(os(name))));
    links.reduce(|best, other| match other.now > best.now {
        true => other,
        false => best,
    })
}

fn controller(dir: &Path) -> Option<Link> {
    let transport = text(dir.join("transport"))?;
    let pci = |speed: &str, width: &str| {
        let lane = pcie_lane(&text(dir.join("device").join(speed))?)?;
        let lanes = number(dir.join("device").join(width))?;
        (1..=32).contains(&lanes).then_some(lane * lanes as f64)
    };
    let (mut now, mut max) = (None, None);
    if transport == "pcie" {
        now = pci("current_link_speed", "current_link_width");
        max = pci("max_link_speed", "max_link_width");
    }
    Some(Link {
        transport,
        now,
        max,
    })
}

/// Bytes per second of one lane: 8b/10b up to 5 GT/s, then 128b/130b, then 242 bytes of each FLIT
/// of 256.
fn pcie_lane(speed: &str) -> Option<f64> {
    let transfers = giga(speed, "GT/s")?;
    let bits = transfers * 1e9;
    if transfers <= 5.0 {
        Some(bits * 8.0 / 10.0 / 8.0)
    } else if transfers <= 32.0 {
        Some(bits * 128.0 / 130.0 / 8.0)
    } else {
        (transfers <= 128.0).then_some(bits * 242.0 / 256.0 / 8.0)
    }
}

/// Bytes per second of a SATA or SAS link: 8b/10b, and 128b/150b at 22.5 Gbit/s.
fn serial_rate(gigabits: f64) -> Option<f64> {
    match gigabits {
        g if g <= 12.0 => Some(g * 1e9 / 10.0),
        g if g <= 24.0 => Some(g * 1e9 * 128.0 / 150.0 / 8.0),
        _ => None,
    }
}

/// The link of a disk by its place in `/sys/devices`.
fn by_place(root: &SysRoot, block: &Path) -> Option<Link> {
    let place = block.canonicalize().ok()?;
    // A link that leads out of a recorded tree is not followed.
    if !place.starts_with(root.as_path().canonicalize().ok()?) {
        return None;
    }
    let mut found = None;
    for dir in place.ancestors() {
        let name = dir.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let of = |transport: &str, now: Option<f64>| {
            Some(Link {
                transport: transport.to_owned(),
                now,
                max: None,
            })
        };
        let link = if let Some(rest) = name.strip_prefix("ata").filter(|n| is_number(n)) {
            of("sata", sata(dir, rest))
        } else if name.starts_with("end_device-") {
            of("sas", dir.parent().and_then(sas))
        } else if name.strip_prefix("virtio").is_some_and(is_number) {
            of("virtio", None)
        } else if name.strip_prefix("usb").is_some_and(is_number) {
            of("usb", None)
        } else if name.starts_with("session") {
            of("iscsi", None)
        } else if name.starts_with("rport-") {
            of("fc", None)
        } else if name.strip_prefix("mmc").is_some_and(is_number) {
            of("mmc", None)
        } else {
            None
        };
        found = link.or(found);
        if found.is_some() {
            break;
        }
    }
    found
}

fn sata(port: &Path, number: &str) -> Option<f64> {
    let link = format!("link{number}");
    let file = port.join(&link).join("ata_link").join(&link);
    serial_rate(giga(&text(file.join("sata_spd"))?, "Gbps")?)
}

/// Bytes per second of the fastest phy of the port.
fn sas(port: &Path) -> Option<f64> {
    let (names, _) = names_in(port, PATHS_MAX).ok()?;
    let phys = names.iter().filter(|name| name.starts_with(b"phy-"));
    let rates = phys.filter_map(|phy| {
        let dir = port.join(os(phy)).join("sas_phy").join(os(phy));
        giga(&text(dir.join("negotiated_linkrate"))?, "Gbit")
    });
    serial_rate(rates.reduce(f64::max)?)
}

/// The number in `16.0 GT/s PCIe`, `8 GT/s` or `6.0 Gbps`; `None` for `Unknown`.
fn giga(text: &str, unit: &str) -> Option<f64> {
    let mut words = words(text.as_bytes());
    let value = decimal(words.next()?)?;
    (words.next()? == unit.as_bytes() && value > 0.0).then_some(value)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn os(name: &[u8]) -> &OsStr {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(name)
}

fn text(path: PathBuf) -> Option<String> {
    let mut bytes = Vec::new();
    HeldFile::short_records(path)
        .read_and_close(&mut bytes)
        .ok()?;
    sole_text(&bytes).map(str::to_owned)
}

fn number(path: PathBuf) -> Option<u64> {
    let mut bytes = Vec::new();
    HeldFile::short_records(path)
        .read_and_close(&mut bytes)
        .ok()?;
    sole_number(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join("sys").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, to: &str) {
            let path = self.0.path().join("sys").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(to, path).unwrap();
        }

        fn of(&self, disk: &str) -> Option<Link> {
            Link::of(&SysRoot::new(self.0.path()), OsStr::new(disk))
        }
    }

    #[test]
    fn speeds() {
        let check = |text: &str, expect: Option<f64>| {
            assert_eq!(pcie_lane(text).map(f64::round), expect, "{text}");
        };
        check("2.5 GT/s PCIe", Some(250_000_000.0));
        check("5 GT/s", Some(500_000_000.0));
        check("8.0 GT/s PCIe", Some(984_615_385.0));
        check("16.0 GT/s PCIe", Some(1_969_230_769.0));
        check("64.0 GT/s PCIe", Some(7_562_500_000.0));
        for bad in [
            "Unknown", "", "8.0", "8,0 GT/s", "0 GT/s", "1e9 GT/s", "999 GT/s", "8 Gbps",
        ] {
            check(bad, None);
        }
        assert_eq!(serial_rate(6.0), Some(600e6));
        assert_eq!(serial_rate(22.5), Some(2400e6));
        assert_eq!(serial_rate(99.0), None);
    }

    #[test]
    fn a_drive_on_pcie_and_one_with_two_paths() {
        let tree = Tree::new();
        let put = |dir: &str, speed: &str, width: &str| {
            tree.write(&format!("{dir}/transport"), "pcie\n");
            tree.write(&format!("{dir}/device/current_link_speed"), speed);
            tree.write(&format!("{dir}/device/current_link_width"), width);
        };
        put("block/nvme0n1/device", "8.0 GT/s PCIe\n", "4\n");
        let link = tree.of("nvme0n1").unwrap();
        assert_eq!((&*link.transport, link.max), ("pcie", None));
        assert_eq!(link.expected(false).map(f64::round), Some(3_544_615_385.0));
        put("block/nvme1n1/device/nvme1", "8.0 GT/s PCIe\n", "2\n");
        put("block/nvme1n1/device/nvme4", "8.0 GT/s PCIe\n", "4\n");
        assert_eq!(tree.of("nvme1n1"), Some(link));
        put("block/nvme2n1/device", "Unknown\n", "255\n");
        assert_eq!(tree.of("nvme2n1").unwrap().expected(false), None);
        tree.write("block/nvme3n1/device/transport", "tcp\n");
        assert_eq!(tree.of("nvme3n1").unwrap().expected(false), None);
        assert_eq!(tree.of("nvme9n1"), None);
    }

    #[test]
    fn disks_by_their_place() {
        let tree = Tree::new();
        let pci = "devices/pci0000:00/0000:00:1f.2";
        let sata = format!("{pci}/ata7/host6/target6:0:0/6:0:0:0/block/sda");
        tree.write(&format!("{sata}/size"), "1\n");
        tree.write(
            &format!("{pci}/ata7/link7/ata_link/link7/sata_spd"),
            "6.0 Gbps\n",
        );
        tree.link("block/sda", &format!("../{sata}"));
        let port = format!("{pci}/host0/port-0:3");
        let sas = format!("{port}/end_device-0:3/target0:0:3/0:0:3:0/block/sdb");
        tree.write(&format!("{sas}/size"), "1\n");
        tree.write(
            &format!("{port}/phy-0:3/sas_phy/phy-0:3/negotiated_linkrate"),
            "12.0 Gbit\n",
        );
        tree.link("block/sdb", &format!("../{sas}"));
        let virtio = format!("{pci}/virtio1/block/vda");
        tree.write(&format!("{virtio}/size"), "1\n");
        tree.link("block/vda", &format!("../{virtio}"));
        tree.link("block/sdz", "/proc/self");
        let check = |disk: &str, transport: &str, solid: Option<f64>, rotating: Option<f64>| {
            let link = tree.of(disk).unwrap();
            assert_eq!(link.transport, transport);
            assert_eq!(
                (link.expected(false), link.expected(true)),
                (solid, rotating)
            );
        };
        check("sda", "sata", Some(552e6), Some(250e6));
        check("sdb", "sas", Some(1104e6), Some(250e6));
        check("vda", "virtio", None, None);
        assert_eq!(tree.of("sdz"), None, "it leads out of the tree");
        // The disk exists, and its link has no known speed.
        tree.write(
            &format!("{pci}/ata7/link7/ata_link/link7/sata_spd"),
            "<unknown>\n",
        );
        check("sda", "sata", None, None);
    }
}
