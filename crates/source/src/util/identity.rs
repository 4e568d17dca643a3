//! Identity of a disk: `/sys/block/DISK/device/` and, for virtio disks, `/sys/block/DISK/serial`.
//!
//! NVMe: `model`, `serial`, `firmware_rev`, `wwid` (drivers/nvme/host/sysfs.c). SCSI and ATA:
//! `vendor`, `model`, `rev`, `wwid`, and the vital product data page 0x80, which has the serial
//! number (SPC-4, 7.8.15; drivers/scsi/scsi_sysfs.c). Memory cards: `name`, `serial`, `fwrev`
//! (Documentation/driver-api/mmc/mmc-dev-attrs.rst).

use std::path::Path;

use crate::util::file::HeldFile;
use crate::util::parse::sole_text;

/// Longest text taken, in bytes: a longer one is no name.
const TEXT_BYTES_MAX: usize = 120;

/// The identity of a disk; `None` for what the disk does not provide.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) vendor: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) wwid: Option<String>,
}

impl Identity {
    /// The identity of the disk with this directory in `/sys/block`.
    pub(crate) fn of(block: &Path) -> Self {
        let device = block.join("device");
        let of = |name: &str| text(&device.join(name));
        // `device` of an NVMe drive has no vendor of its own, but the PCI number of one below it.
        Self {
            vendor: of("vendor").filter(|v| !v.starts_with("0x")),
            model: of("model").or_else(|| of("name")),
            serial: serial(block),
            firmware: ["firmware_rev", "rev", "fwrev"].into_iter().find_map(of),
            wwid: text(&block.join("wwid")).or_else(|| of("wwid")),
        }
    }
}

/// The serial number of the disk with this directory in `/sys/block`.
pub(crate) fn serial(block: &Path) -> Option<String> {
    text(&block.join("device/serial"))
        .or_else(|| page_80(&block.join("device/vpd_pg80")))
        .or_else(|| unended(&block.join("serial")))
}

fn text(path: &Path) -> Option<String> {
    let bytes = read(path)?;
    shown(sole_text(&bytes)?)
}

/// Reads the serial number of a virtio disk, after which the driver writes no newline.
fn unended(path: &Path) -> Option<String> {
    shown(std::str::from_utf8(&read(path)?).ok()?)
}

/// Reads the serial number from page 0x80: four bytes of header, of which the second is 0x80 and
/// the last two are the length of the text that follows.
fn page_80(path: &Path) -> Option<String> {
    let bytes = read(path)?;
    let (header, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let page = rest.get(..length).filter(|_| header[1] == 0x80)?;
    shown(std::str::from_utf8(page).ok()?)
}

fn shown(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let fits = !text.is_empty() && text.len() <= TEXT_BYTES_MAX;
    (fits && !text.contains(char::is_control)).then(|| text.to_owned())
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    HeldFile::short_records(path.to_owned())
        .read_and_close(&mut bytes)
        .ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &[u8])]) -> Identity {
        let dir = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        Identity::of(dir.path())
    }

    #[test]
    fn kinds_of_disks() {
        let some = |text: &str| Some(text.to_owned());
        let ata = of(&[
            ("device/vendor", b"ATA     \n"),
            ("device/model", b"ACME HDD 16TB   \n"),
            ("device/rev", b"SN02\n"),
            ("device/wwid", b"naa.5000c500a1b2c3d4\n"),
            ("device/vpd_pg80", b"\0\x80\0\x14            ZL2A0B1C"),
        ]);
        assert_eq!(ata.vendor, some("ATA"));
        assert_eq!(ata.model, some("ACME HDD 16TB"));
        assert_eq!(ata.serial, some("ZL2A0B1C"));
        assert_eq!(ata.firmware, some("SN02"));
        assert_eq!(ata.wwid, some("naa.5000c500a1b2c3d4"));
        let virtio = of(&[("serial", b"root-disk"), ("device/vendor", b"0x1af4\n")]);
        assert_eq!(virtio.serial, some("root-disk"));
        assert_eq!((virtio.vendor, virtio.model), (None, None));
        let card = of(&[
            ("device/name", b"SD32G\n"),
            ("device/serial", b"0x1234\n"),
            ("device/fwrev", b"0x8\n"),
        ]);
        assert_eq!((card.model, card.firmware), (some("SD32G"), some("0x8")));
        assert_eq!(of(&[]), Identity::default());
    }

    #[test]
    fn what_is_no_name_is_none() {
        let page = |bytes: &[u8]| of(&[("device/vpd_pg80", bytes)]).serial;
        for bad in [
            &b""[..],
            b"\0\x80",
            b"\0\x80\0\x08short",
            b"\0\x83\0\x04abcd",
            b"\0\x80\0\x04\xff\xfe\0\0",
            b"\0\x80\0\x04    ",
        ] {
            assert_eq!(page(bad), None, "{bad:?}");
        }
        assert_eq!(page(b"\0\x80\0\x04abcd"), Some("abcd".to_owned()));
        let long = vec![b'x'; 5000];
        assert_eq!(of(&[("serial", &long)]).serial, None);
        assert_eq!(of(&[("device/model", b"cut")]).model, None);
    }
}
