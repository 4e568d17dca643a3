//! The part of the configuration about the reading of one source: whether, how often, and by which
//! interval policy.

use barograph_model::NS_PER_MS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SourceError;
use crate::policy::{Aimd, INTERVAL_NS_MAX, INTERVAL_NS_MIN, IntervalPolicy};
use crate::util::millis::ns;

/// The longest interval of an adaptive policy, unless it is configured.
const ADAPTIVE_MAX_MS: u64 = 25_000;

/// The interval policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyKind {
    /// Always `interval_ms`.
    #[default]
    Fixed,
    /// Longer while each value is close to the previous one, shorter when it is not.
    AimdSimple,
    /// Longer while each change is close to the average change, shorter when it is not.
    AimdComplex,
}

/// Whether and how often one source is read. Under an adaptive policy every stream asks for an
/// interval of its own, and the source is read at the shortest of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// Whether the source is read at all. Unset: as is usual for the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `fixed`, `aimd_simple` or `aimd_complex`.
    pub policy: PolicyKind,
    /// Milliseconds between reads; an adaptive policy starts with it. Unset: as is usual for the
    /// source. A source of whose kind the machine has nothing (no Lustre, no mdstat) is read every
    /// minute if that is longer, and when a file system is mounted or unmounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// The shortest interval that an adaptive policy or a `[[policy]]` for its streams may choose,
    /// in milliseconds; a shorter `interval_ms` takes its place.
    pub interval_min_ms: u64,
    /// The longest such interval, in milliseconds. Unset: 25000 for an adaptive policy, and the
    /// limit of the `[[policy]]` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_max_ms: Option<u64>,
    /// The milliseconds that an adaptive policy adds to the interval when little changed.
    pub add_ms: u64,
    /// The factor, between 0 and 1, by which it multiplies the interval when much changed.
    pub multiply: f64,
    /// The greatest change that counts as little. `aimd_simple`: this share of the last value (0.1
    /// if unset). `aimd_complex`: this multiple of the average change (1.1 if unset).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            enabled: None,
            policy: PolicyKind::Fixed,
            interval_ms: None,
            interval_min_ms: 1000,
            interval_max_ms: None,
            add_ms: 1000,
            multiply: 0.75,
            threshold: None,
        }
    }
}

/// The shortest and longest interval at which a source may be read under a `[[policy]]`, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalCaps {
    /// The configured interval, which holds without a policy, in ns.
    pub interval_ns: i64,
    /// The shortest interval, in ns.
    pub min_ns: i64,
    /// The longest interval, in ns.
    pub max_ns: i64,
}

impl IntervalCaps {
    /// The caps of a source that is usually read every `interval_ns` and whose interval policies
    /// may choose freely.
    pub fn none(interval_ns: i64) -> Self {
        Self {
            interval_ns,
            min_ns: INTERVAL_NS_MIN,
            max_ns: INTERVAL_NS_MAX,
        }
    }
}

impl SourceConfig {
    /// Whether the source is read; it is if nothing is configured.
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    /// The interval policy of these settings; values that are out of range are clamped.
    pub fn interval_policy(&self) -> IntervalPolicy {
        let start_ns = ns(self.interval_ms.unwrap_or(1000));
        let aimd = |threshold: f64| Aimd {
            start_ns,
            min_ns: ns(self.interval_min_ms),
            max_ns: ns(self.interval_max_ms.unwrap_or(ADAPTIVE_MAX_MS)),
            add_ns: ns(self.add_ms),
            multiply: self.multiply,
            threshold: self.threshold.unwrap_or(threshold),
        };
        match self.policy {
            PolicyKind::Fixed => IntervalPolicy::Fixed {
                interval_ns: start_ns,
            },
            PolicyKind::AimdSimple => IntervalPolicy::AimdSimple(aimd(0.1)),
            PolicyKind::AimdComplex => IntervalPolicy::AimdComplex(aimd(1.1)),
        }
    }

    /// The interval of these settings, and the range in which a `[[policy]]` may choose another.
    pub fn caps(&self) -> IntervalCaps {
        let interval_ns = self.interval_policy().start().interval_ns;
        let min_ns = ns(self.interval_min_ms).clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let max_ns = self.interval_max_ms.map_or(INTERVAL_NS_MAX, ns);
        let min_ns = min_ns.min(interval_ns);
        IntervalCaps {
            interval_ns,
            min_ns,
            max_ns: max_ns.clamp(min_ns, INTERVAL_NS_MAX),
        }
    }

    pub(crate) fn validate(&self, name: &str) -> Result<(), SourceError> {
        let fault = |field: &str, reason: String| {
            Err(SourceError::Config {
                key: format!("poll.{name}.{field}"),
                reason,
            })
        };
        let (min_ms, max_ms) = (INTERVAL_NS_MIN / NS_PER_MS, INTERVAL_NS_MAX / NS_PER_MS);
        let fits = |ms: u64| (min_ms as u64..=max_ms as u64).contains(&ms);
        let bounds = format!("is not between {min_ms} and {max_ms} milliseconds");
        if self.interval_ms.is_some_and(|ms| !fits(ms)) {
            return fault("interval_ms", bounds);
        }
        if !fits(self.interval_min_ms) {
            return fault("interval_min_ms", bounds);
        }
        let max_ms = self.interval_max_ms.unwrap_or(ADAPTIVE_MAX_MS);
        let adapts = self.policy != PolicyKind::Fixed;
        let counts = adapts || self.interval_max_ms.is_some();
        if counts && (!fits(max_ms) || max_ms < self.interval_min_ms) {
            return fault(
                "interval_max_ms",
                format!("{bounds}, or below interval_min_ms"),
            );
        }
        if !(self.multiply > 0.0 && self.multiply < 1.0) {
            return fault("multiply", "is not between 0 and 1, try 0.75".into());
        }
        if self.threshold.is_some_and(|t| !(t >= 0.0 && t.is_finite())) {
            return fault("threshold", "is not a number of at least 0".into());
        }
        Ok(())
    }
}
