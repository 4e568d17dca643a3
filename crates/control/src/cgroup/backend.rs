//! The back ends: the four files of control groups that set a group's share of a device, what they
//! take, and the forms in which they are read and written.
//!
//! The forms are those of the kernel's documents: for `blkio.bfq.weight` and `io.bfq.weight`
//! <https://docs.kernel.org/block/bfq-iosched.html>, for `io.weight` and `io.max`
//! <https://docs.kernel.org/admin-guide/cgroup-v2.html>.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ControlError;
use crate::cgroup::device::DeviceNumber;
use crate::cgroup::membership::Hierarchy;
use crate::cgroup::place::{Group, shown};
use crate::weight::WeightRange;

/// The largest limit that is written, in bytes/s: the kernel takes 64 bits, and its word for no
/// limit is `max`.
const LIMIT_MAX: u64 = i64::MAX as u64;

/// A file by which the share of a group is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WeightBackend {
    /// `blkio.bfq.weight` of version 1: the weight for devices whose scheduler is bfq.
    V1Bfq,
    /// `io.bfq.weight` of version 2: the weight for devices whose scheduler is bfq.
    V2Bfq,
    /// `io.weight` of version 2: the weight for devices for which the cost model is enabled.
    V2Cost,
    /// `io.max` of version 2: a limit on one device, where no weight has an effect.
    V2Max {
        /// The device.
        device: DeviceNumber,
    },
}

/// What one of the files has or gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoSetting {
    /// A weight.
    Weight(u32),
    /// Limits of one device, in bytes/s; `None` is no limit.
    Limit {
        /// The limit of reads.
        read: Option<u64>,
        /// The limit of writes.
        write: Option<u64>,
    },
}

/// As a part of a sentence: a weight is its number.
impl fmt::Display for IoSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weight(weight) => write!(f, "{weight}"),
            Self::Limit { read, write } => {
                let word = |limit: &Option<u64>| limit.map_or("max".into(), |it| it.to_string());
                let (read, write) = (word(read), word(write));
                write!(
                    f,
                    "a limit of {read} bytes/s for reads and {write} for writes"
                )
            }
        }
    }
}

impl WeightBackend {
    /// The version of control groups that has the file.
    pub fn hierarchy(&self) -> Hierarchy {
        match self {
            Self::V1Bfq => Hierarchy::V1,
            Self::V2Bfq | Self::V2Cost | Self::V2Max { .. } => Hierarchy::V2,
        }
    }

    /// The name of the file.
    pub fn file(&self) -> &'static str {
        match self {
            Self::V1Bfq => "blkio.bfq.weight",
            Self::V2Bfq => "io.bfq.weight",
            Self::V2Cost => "io.weight",
            Self::V2Max { .. } => "io.max",
        }
    }

    /// The weights that it takes; `None` if it takes limits.
    pub fn range(&self) -> Option<WeightRange> {
        match self {
            Self::V1Bfq | Self::V2Bfq => Some(WeightRange::BFQ),
            Self::V2Cost => Some(WeightRange::IO_WEIGHT),
            Self::V2Max { .. } => None,
        }
    }

    /// Checks that the back end takes a setting.
    ///
    /// # Errors
    ///
    /// [`ControlError::Value`]: it is of the other kind, or out of range.
    pub fn check(&self, setting: &IoSetting) -> Result<(), ControlError> {
        let is_taken = match (self.range(), setting) {
            (Some(range), IoSetting::Weight(weight)) => {
                (range.min()..=range.max()).contains(weight)
            }
            (None, IoSetting::Limit { read, write }) => {
                let all = [read, write].into_iter().flatten();
                all.into_iter().all(|it| (1..=LIMIT_MAX).contains(it))
            }
            _ => false,
        };
        match is_taken {
            true => Ok(()),
            false => Err(ControlError::Value {
                value: format!("{setting:?}"),
                backend: self.file(),
                range: match self {
                    Self::V1Bfq | Self::V2Bfq => "a weight of 1 to 1000",
                    Self::V2Cost => "a weight of 1 to 10000",
                    Self::V2Max { .. } => "limits of at least 1 byte/s",
                },
            }),
        }
    }

    /// Reads the setting of a group.
    pub(crate) fn read(&self, group: &Group) -> Result<IoSetting, ControlError> {
        let text = group.read(self.file())?;
        let setting = self.parse(&text);
        setting.ok_or_else(|| ControlError::Format {
            path: group.path_of(self.file()),
            found: shown(&text),
            expected: match self {
                Self::V1Bfq => "a weight of 1 to 1000",
                Self::V2Bfq | Self::V2Cost => "a line like `default 100`",
                Self::V2Max { .. } => "lines like `8:16 rbps=max wbps=1048576`",
            },
        })
    }

    /// Writes the setting of a group, after checking it.
    pub(crate) fn write(&self, group: &Group, setting: &IoSetting) -> Result<(), ControlError> {
        self.check(setting)?;
        group.write(self.file(), &self.text(setting))
    }

    /// The setting in the text of the file; `None` if it is not of the documented form.
    fn parse(&self, text: &str) -> Option<IoSetting> {
        let setting = match self {
            Self::V1Bfq => IoSetting::Weight(text.trim().parse().ok()?),
            Self::V2Bfq | Self::V2Cost => {
                let mut lines = text.lines();
                let weight = lines.find_map(|line| line.strip_prefix("default "));
                IoSetting::Weight(weight?.trim().parse().ok()?)
            }
            Self::V2Max { device } => limits(line_of(text, *device).unwrap_or_default())?,
        };
        self.check(&setting).ok().map(|()| setting)
    }

    /// The text that sets it.
    fn text(&self, setting: &IoSetting) -> String {
        match (self, setting) {
            (Self::V2Max { device }, IoSetting::Limit { read, write }) => {
                let word = |limit: &Option<u64>| match limit {
                    Some(limit) => limit.to_string(),
                    None => "max".to_owned(),
                };
                format!("{device} rbps={} wbps={}\n", word(read), word(write))
            }
            (Self::V2Bfq | Self::V2Cost, IoSetting::Weight(weight)) => {
                format!("default {weight}\n")
            }
            (_, IoSetting::Weight(weight)) => format!("{weight}\n"),
            (_, IoSetting::Limit { .. }) => String::new(),
        }
    }
}

/// What follows the number of a device on its line, in files with a line for each device.
pub(crate) fn line_of(text: &str, device: DeviceNumber) -> Option<&str> {
    text.lines().find_map(|line| {
        let (number, rest) = line.split_once(' ')?;
        (DeviceNumber::parse(number) == Some(device)).then_some(rest)
    })
}

/// The limits of a line of `io.max`. A device without limits has no line.
fn limits(line: &str) -> Option<IoSetting> {
    let limit = |key: &str| {
        let mut words = line.split_whitespace();
        let word = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        match word {
            None | Some("max") => Some(None),
            Some(word) => word.parse().ok().map(Some),
        }
    };
    Some(IoSetting::Limit {
        read: limit("rbps")?,
        write: limit("wbps")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber {
        major: 8,
        minor: 16,
    };
    const MAX: WeightBackend = WeightBackend::V2Max { device: DEVICE };

    fn limit(read: Option<u64>, write: Option<u64>) -> Option<IoSetting> {
        Some(IoSetting::Limit { read, write })
    }

    #[test]
    fn files_are_read_in_the_documented_forms_and_in_no_other() {
        use WeightBackend::{V1Bfq, V2Bfq, V2Cost};
        let weight = |weight| Some(IoSetting::Weight(weight));
        let table = [
            (V1Bfq, "100\n", weight(100)),
            (V1Bfq, "1000\n", weight(1_000)),
            (V1Bfq, "1001\n", None),
            (V1Bfq, "0\n", None),
            (V1Bfq, "default 100\n", None),
            (V1Bfq, "", None),
            (V2Bfq, "default 300\n", weight(300)),
            (V2Bfq, "default 300\n8:16 200\n", weight(300)),
            (V2Bfq, "default 2000\n", None),
            (V2Bfq, "8:16 200\n", None),
            (V2Cost, "default 10000\n", weight(10_000)),
            (V2Cost, "default 10001\n", None),
            (V2Cost, "default -1\n", None),
            (MAX, "", limit(None, None)),
            (MAX, "8:0 rbps=5 wbps=5\n", limit(None, None)),
            (
                MAX,
                "8:0 rbps=1 wbps=1 riops=max wiops=max\n8:16 rbps=2097152 wbps=max riops=max wiops=120\n",
                limit(Some(2_097_152), None),
            ),
            (MAX, "8:16 wbps=7\n", limit(None, Some(7))),
            (MAX, "8:16 rbps=x\n", None),
            (MAX, "8:16 rbps=0\n", None),
            (MAX, "8:16 rbps=18446744073709551616\n", None),
        ];
        for (backend, text, expect) in table {
            assert_eq!(backend.parse(text), expect, "{backend:?} {text:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        use WeightBackend::{V1Bfq, V2Bfq, V2Cost};
        let (open, half) = (limit(None, None), limit(Some(5), None));
        let table = [
            (V1Bfq, Some(IoSetting::Weight(1)), "1\n"),
            (V2Bfq, Some(IoSetting::Weight(1_000)), "default 1000\n"),
            (V2Cost, Some(IoSetting::Weight(10_000)), "default 10000\n"),
            (MAX, open, "8:16 rbps=max wbps=max\n"),
            (MAX, half, "8:16 rbps=5 wbps=max\n"),
        ];
        for (backend, setting, expect) in table {
            let text = backend.text(&setting.unwrap());
            assert_eq!(text, expect);
            assert_eq!(backend.parse(&text), setting, "{text:?}");
        }
    }

    #[test]
    fn settings_out_of_range_or_of_the_other_kind_are_refused() {
        use WeightBackend::{V1Bfq, V2Bfq, V2Cost};
        let refused = [
            (V1Bfq, IoSetting::Weight(0)),
            (V1Bfq, IoSetting::Weight(1_001)),
            (V2Bfq, IoSetting::Weight(u32::MAX)),
            (V2Cost, IoSetting::Weight(10_001)),
            (V2Cost, limit(None, None).unwrap()),
            (MAX, IoSetting::Weight(100)),
            (MAX, limit(Some(0), None).unwrap()),
            (MAX, limit(None, Some(u64::MAX)).unwrap()),
        ];
        for (backend, setting) in refused {
            assert!(backend.check(&setting).is_err(), "{backend:?} {setting:?}");
        }
    }
}
