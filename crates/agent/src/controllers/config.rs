//! The configuration of controllers.

use std::collections::BTreeMap;

use barograph_control::BandwidthThresholds;
use barograph_model::ConfigError;
use barograph_recorder::seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest configured lease, in seconds.
const LEASE_SECONDS_MAX: f64 = 3_600.0;

/// Controllers: how much readers of arrays are told to read, and with which I/O weight.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// What is done about decisions: `live` carries them out, `dry_run` only records them, and
    /// `off` makes none, so that readers read what their error bounds need.
    pub mode: ControlModeConfig,
    /// Whose control groups get I/O weights: those of `controllers` (processes of the agent's user
    /// and of root), of `everyone` who plans a read, or of no one (`off`). A group gets one only if
    /// its file is given to the agent's user (`baro weights setup`).
    pub weights: WeightRights,
    /// Time for which a weight is set at least, in seconds, 1 to 3600. The report of the read ends
    /// it earlier, as does the end of the process.
    pub lease_seconds: f64,
    /// Whether the leader takes a server out of a map of servers when it is slower than its peers,
    /// and adds it again after a while (`baro control maps`). Otherwise people do.
    pub scale_down: bool,
    /// Bandwidths between which the degree of augmentation rises from 0 to 1, by device:
    /// `[control.thresholds.sda]`. Those of other devices are learnt for each reader.
    pub thresholds: BTreeMap<String, ThresholdsConfig>,
}

/// What is done about decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlModeConfig {
    /// They are carried out.
    #[default]
    Live,
    /// They are recorded only.
    DryRun,
    /// None is made.
    Off,
}

/// Whose control groups get weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightRights {
    /// Those of processes that have the right to control.
    #[default]
    Controllers,
    /// Those of all processes that plan a read.
    Everyone,
    /// None.
    Off,
}

/// Two thresholds of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ThresholdsConfig {
    /// Bandwidth in bytes/s up to which nothing is read beyond the error bound.
    pub low: f64,
    /// Bandwidth in bytes/s from which on everything is read.
    pub high: f64,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            mode: ControlModeConfig::Live,
            weights: WeightRights::Controllers,
            lease_seconds: 30.0,
            scale_down: false,
            thresholds: BTreeMap::new(),
        }
    }
}

impl ControlConfig {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// The key that is out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.lease_ns()?;
        for (device, ThresholdsConfig { low, high }) in &self.thresholds {
            if let Err(error) = BandwidthThresholds::new(*low, *high) {
                return Err(ConfigError {
                    key: "control.thresholds",
                    value: format!("{device}: {low}, {high}"),
                    reason: error.to_string(),
                });
            }
        }
        Ok(())
    }

    /// The time for which a weight is set at least, in ns.
    pub(super) fn lease_ns(&self) -> Result<i64, ConfigError> {
        seconds(
            "control.lease_seconds",
            self.lease_seconds,
            1.0,
            LEASE_SECONDS_MAX,
        )
    }

    /// The thresholds that are configured for a device.
    pub(super) fn thresholds_of(&self, device: &str) -> Option<BandwidthThresholds> {
        let configured = self.thresholds.get(device)?;
        BandwidthThresholds::new(configured.low, configured.high).ok()
    }
}
