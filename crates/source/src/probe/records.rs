//! Stored measurements: `probes.toml` in the agent's state directory, by device.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Longest file that is read, in bytes; a longer one was not written by us.
const FILE_BYTES_MAX: u64 = 1 << 20;
const HEADING: &str =
    "# Written by `baro probe`, read by the agent for disk.bandwidth.max.bytes_per_second.\n\n";

/// The part of a measurement that is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeRecord {
    /// Bandwidth of the long reads, in bytes per second.
    pub bytes_per_second: f64,
    /// Median duration of the small reads, in seconds.
    pub latency_p50_seconds: Option<f64>,
    /// The 99th percentile of the duration of the small reads, in seconds.
    pub latency_p99_seconds: Option<f64>,
    /// Size of the device: a device of this name with another size is not the one that was
    /// measured.
    pub size_bytes: u64,
    /// Serial number of the device, compared for the same purpose.
    pub serial: Option<String>,
    /// Time of the measurement, in seconds since 1970.
    pub at_seconds: i64,
}

impl ProbeRecord {
    /// Whether the device with this size and serial number is the one that was measured.
    pub fn is_of(&self, size_bytes: Option<u64>, serial: Option<&str>) -> bool {
        size_bytes == Some(self.size_bytes) && serial == self.serial.as_deref()
    }

    fn is_sound(&self) -> bool {
        self.bytes_per_second.is_finite() && self.bytes_per_second > 0.0
    }
}

/// Stored measurements, by the kernel's name of the device.
pub type ProbeRecords = BTreeMap<String, ProbeRecord>;

/// Reads the file; without a file there are no records. The error states what is wrong with the
/// file.
pub fn read(path: &Path) -> io::Result<ProbeRecords> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(ProbeRecords::new()),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(invalid(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    let mut records: ProbeRecords =
        toml::from_str(&text).map_err(|e| invalid(e.message().to_owned()))?;
    records.retain(|_, record| record.is_sound());
    Ok(records)
}

/// Adds a measurement to those in the file, and replaces the file as a whole.
pub fn store(path: &Path, device: &str, record: ProbeRecord) -> io::Result<()> {
    let mut records = read(path)?;
    records.insert(device.to_owned(), record);
    let text = toml::to_string(&records).map_err(io::Error::other)?;
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = write(&new, &format!("{HEADING}{text}")).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The error that is returned is the first one.
        let _ = fs::remove_file(&new);
    }
    written
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rate: f64) -> ProbeRecord {
        ProbeRecord {
            bytes_per_second: rate,
            latency_p50_seconds: Some(0.0001),
            latency_p99_seconds: None,
            size_bytes: 1 << 40,
            serial: Some("S1".into()),
            at_seconds: 1_800_000_000,
        }
    }

    #[test]
    fn what_is_stored_is_read_beside_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/probes.toml");
        assert_eq!(read(&path).unwrap(), ProbeRecords::new());
        store(&path, "nvme0n1", record(1.0)).unwrap();
        store(&path, "cciss/c0d0", record(2.0)).unwrap();
        store(&path, "nvme0n1", record(3.0)).unwrap();
        let records = read(&path).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records["nvme0n1"], record(3.0));
        assert_eq!(records["cciss/c0d0"], record(2.0));
        let names = fs::read_dir(dir.path().join("state")).unwrap();
        assert_eq!(names.count(), 1, "nothing is left lying about");
    }

    #[test]
    fn another_disk_of_the_same_name_is_told_apart() {
        let it = record(1.0);
        assert!(it.is_of(Some(1 << 40), Some("S1")));
        assert!(!it.is_of(Some(1 << 40), Some("S2")));
        assert!(!it.is_of(Some(1 << 40), None));
        assert!(!it.is_of(Some(1), Some("S1")));
        assert!(!it.is_of(None, Some("S1")));
    }

    #[test]
    fn a_file_cut_anywhere_or_spoilt_is_refused_or_gives_less() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("probes.toml");
        store(&path, "sda", record(5.0)).unwrap();
        store(&path, "sdb", record(6.0)).unwrap();
        let whole = fs::read(&path).unwrap();
        let expect = read(&path).unwrap();
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            for (name, got) in read(&path).unwrap_or_default() {
                let same = got.bytes_per_second == expect[&name].bytes_per_second;
                assert!(same, "cut at {end}: {got:?}");
            }
        }
        for bad in [
            "[sda]\nbytes_per_second = -1.0\nsize_bytes = 1\nat_seconds = 0\n",
            "",
        ] {
            fs::write(&path, bad).unwrap();
            assert_eq!(read(&path).unwrap(), ProbeRecords::new(), "{bad}");
        }
        for bad in [
            "sda",
            "[sda]\nbytes_per_second = 'fast'",
            "[sda]\nbytes_per_second = nan",
        ] {
            fs::write(&path, bad).unwrap();
            assert!(read(&path).is_err(), "{bad}");
        }
        fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("more than"));
        assert!(
            store(&path, "sda", record(1.0)).is_err(),
            "nothing of others is replaced"
        );
    }
}
