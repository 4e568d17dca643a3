//! The tiers: raw samples, and buckets of a second, a minute and an hour.

use barograph_model::{NS_PER_S, ValueType};

/// Up to so many samples a second, raw is as small as buckets of seconds.
const SAMPLES_PER_SECOND_MAX: u64 = 2;

/// How finely a Parquet file holds the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Every sample.
    Raw,
    /// Buckets of one second; only of series that have more than two samples a second.
    Second,
    /// Buckets of one minute.
    Minute,
    /// Buckets of one hour.
    Hour,
}

impl Tier {
    /// All, finest first.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Second, Self::Minute, Self::Hour];

    /// The name: of the directory, in the manifest and in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Second => "1s",
            Self::Minute => "1min",
            Self::Hour => "1h",
        }
    }

    /// The tier of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == name)
    }

    /// Whether a series with so many samples in so long has buckets of this tier: those of seconds must
    /// be worth it.
    pub fn takes(self, samples: u64, ns: i64) -> bool {
        let seconds = (ns.max(0) / NS_PER_S).max(1) as u64;
        self != Self::Second || samples > seconds.saturating_mul(SAMPLES_PER_SECOND_MAX)
    }

    /// Whether series of this type have buckets in files: bytes, JSON and arrays are in raw files only.
    pub fn holds(self, value_type: ValueType) -> bool {
        self == Self::Raw || value_type.is_number() || value_type == ValueType::Text
    }

    /// The length of a bucket in ns; raw samples have none.
    pub fn step_ns(self) -> Option<i64> {
        match self {
            Self::Raw => None,
            Self::Second => Some(NS_PER_S),
            Self::Minute => Some(60 * NS_PER_S),
            Self::Hour => Some(3_600 * NS_PER_S),
        }
    }
}
