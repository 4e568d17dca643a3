//! Block devices as far as weights need them: the number by which files of control groups name
//! them, and their scheduler.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ControlError;
use crate::cgroup::place::shown;

/// Most bytes of the name of a device.
const DEVICE_BYTES_MAX: usize = 64;
/// Most bytes that are read of a file of a device.
const DEVICE_FILE_BYTES_MAX: u64 = 4_096;

/// The number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// The number of its driver.
    pub major: u32,
    /// The number of the device there.
    pub minor: u32,
}

impl DeviceNumber {
    /// A number from a text like `8:16`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A whole block device: partitions have no scheduler of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// The name, such as `sda`.
    pub name: String,
    /// The number.
    pub number: DeviceNumber,
    /// The name of its scheduler; `None` if it has none to choose.
    pub scheduler: Option<String>,
}

impl BlockDevice {
    /// Reads what the directory of block devices (`/sys/block`) has on a device.
    ///
    /// # Errors
    ///
    /// [`ControlError::Name`] if the name could lead elsewhere, [`ControlError::Io`] if there is no
    /// such device, [`ControlError::Format`] if its number is none.
    pub fn read(block: &Path, name: &str) -> Result<Self, ControlError> {
        let is_plain = !name.contains(['/', '\0']) && !matches!(name, "" | "." | "..");
        if !is_plain || name.len() > DEVICE_BYTES_MAX {
            return Err(ControlError::Name {
                what: "name of a block device",
                name: shown(name),
                reason: "give a name of /sys/block, such as sda",
            });
        }
        let path = block.join(name).join("dev");
        let text = read(&path)?;
        let number = DeviceNumber::parse(&text).ok_or_else(|| ControlError::Format {
            path,
            found: shown(&text),
            expected: "a number like 8:16",
        })?;
        let scheduler = read(&block.join(name).join("queue/scheduler")).ok();
        Ok(Self {
            name: name.to_owned(),
            number,
            scheduler: scheduler.as_deref().and_then(active_scheduler),
        })
    }
}

/// The scheduler in brackets, of `mq-deadline kyber [bfq] none`; the word, if there is only one.
fn active_scheduler(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let bracketed = words.clone().find_map(|word| {
        let word = word.strip_prefix('[')?;
        word.strip_suffix(']')
    });
    let only = match (words.next(), words.next()) {
        (Some(word), None) => Some(word),
        _ => None,
    };
    bracketed.or(only).map(str::to_owned)
}

fn read(path: &Path) -> Result<String, ControlError> {
    let mut text = String::new();
    let read = File::open(path)
        .and_then(|file| file.take(DEVICE_FILE_BYTES_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text),
        Err(source) => Err(ControlError::Io {
            what: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_is_the_word_in_brackets() {
        let table = [
            ("mq-deadline kyber [bfq] none\n", Some("bfq")),
            ("[none] mq-deadline\n", Some("none")),
            ("none\n", Some("none")),
            ("a b\n", None),
            ("[] a", Some("")),
            ("", None),
        ];
        for (text, expect) in table {
            assert_eq!(active_scheduler(text).as_deref(), expect, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_two_with_a_colon() {
        let number = |major, minor| Some(DeviceNumber { major, minor });
        let table = [
            ("8:16\n", number(8, 16)),
            ("0:0", number(0, 0)),
            ("8", None),
            ("8:-1", None),
            ("8:16:1", None),
            ("4294967296:0", None),
            ("", None),
        ];
        for (text, expect) in table {
            assert_eq!(DeviceNumber::parse(text), expect, "{text:?}");
        }
    }
}
