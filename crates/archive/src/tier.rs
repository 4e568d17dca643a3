//! The tiers: raw samples, and buckets of a second, a minute and an hour.

use barograph_model::{NS_PER_S, ValueType};

/// Length of an hour in ns.
pub(crate) const HOUR_NS: i64 = 3_600 * NS_PER_S;
/// Most samples per second for which a raw file is as small as one with buckets of a second.
const SAMPLES_PER_SECOND_MAX: u64 = 2;

/// The resolution of a Parquet file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Every sample.
    Raw,
    /// Buckets of one second; only for series that have more than two samples per second.
    Second,
    /// Buckets of one minute.
    Minute,
    /// Buckets of one hour.
    Hour,
}

impl Tier {
    /// All tiers, finest first.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Second, Self::Minute, Self::Hour];

    /// Returns the tier's name: in directories, in the manifest and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Second => "1s",
            Self::Minute => "1min",
            Self::Hour => "1h",
        }
    }

    /// Returns the tier of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == name)
    }

    /// Whether a series with so many samples in so many ns gets buckets of this tier: buckets of a
    /// second are only made if they are smaller than the samples.
    pub fn takes(self, samples: u64, ns: i64) -> bool {
        let seconds = (ns.max(0) / NS_PER_S).max(1) as u64;
        self != Self::Second || samples > seconds.saturating_mul(SAMPLES_PER_SECOND_MAX)
    }

    /// Whether files of this tier hold series of this type: bytes, JSON and arrays are only in raw
    /// files.
    pub fn holds(self, value_type: ValueType) -> bool {
        self == Self::Raw || value_type.is_number() || value_type == ValueType::Text
    }

    /// Length of a bucket in ns; `None` for raw samples.
    pub fn step_ns(self) -> Option<i64> {
        match self {
            Self::Raw => None,
            Self::Second => Some(NS_PER_S),
            Self::Minute => Some(60 * NS_PER_S),
            Self::Hour => Some(HOUR_NS),
        }
    }
}
