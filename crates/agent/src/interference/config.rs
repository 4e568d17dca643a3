//! `[interference]` of the configuration.

use barograph_forecast::interference::{HORIZON_MAX, InterferenceConfig, WINDOW_MAX};
use barograph_model::{ConfigError, KNOTS_MAX, NS_PER_S};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most devices whose bandwidth is forecast.
pub(crate) const DEVICES_MAX: usize = 8;
/// Longest time between two reads of the reader, in seconds.
const STEP_S_MAX: u64 = 86_400;
/// Most bytes of a read.
const READ_BYTES_MAX: u64 = 1 << 50;

/// The forecast of the bandwidth that a reader gets from a device to which others write.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BandwidthConfig {
    /// Whether bandwidths are forecast.
    pub enabled: bool,
    /// Names of the devices (`sda`), at most 8. Empty: those to which control groups write, the
    /// ones with the most bytes first.
    pub devices: Vec<String>,
    /// Time between two reads of the reader, in seconds, 1 to 86400. There is one forecast for each
    /// step of this length.
    pub step_seconds: u64,
    /// Bytes that the reader reads in each step, 1 to 2^50.
    pub read_bytes: u64,
    /// Number of steps ahead, 1 to 63.
    pub steps: usize,
    /// Number of past steps from which is learned, 4 to 256.
    pub window: usize,
    /// Share of the bandwidths that shall lie within the error of their forecasts, 0.5 to 0.99.
    pub confidence: f64,
}

impl Default for BandwidthConfig {
    fn default() -> Self {
        let of_paper = InterferenceConfig::default();
        Self {
            enabled: true,
            devices: Vec::new(),
            step_seconds: 60,
            read_bytes: 256 << 20,
            steps: of_paper.steps,
            window: of_paper.window,
            confidence: of_paper.confidence,
        }
    }
}

impl BandwidthConfig {
    /// Fails if a value is out of its range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let steps_max = HORIZON_MAX.min(KNOTS_MAX - 1);
        let rules = [
            (
                "interference.devices",
                self.devices.len() as f64,
                self.devices.len() <= DEVICES_MAX,
                format!("it must be at most {DEVICES_MAX} names"),
            ),
            (
                "interference.step_seconds",
                self.step_seconds as f64,
                (1..=STEP_S_MAX).contains(&self.step_seconds),
                format!("it must be 1 to {STEP_S_MAX}"),
            ),
            (
                "interference.read_bytes",
                self.read_bytes as f64,
                (1..=READ_BYTES_MAX).contains(&self.read_bytes),
                format!("it must be 1 to {READ_BYTES_MAX}"),
            ),
            (
                "interference.steps",
                self.steps as f64,
                (1..=steps_max).contains(&self.steps),
                format!("it must be 1 to {steps_max}"),
            ),
            (
                "interference.window",
                self.window as f64,
                (4..=WINDOW_MAX).contains(&self.window),
                format!("it must be 4 to {WINDOW_MAX}"),
            ),
            (
                "interference.confidence",
                self.confidence,
                (0.5..=0.99).contains(&self.confidence),
                "it must be 0.5 to 0.99".into(),
            ),
        ];
        let broken = rules.into_iter().find(|(_, _, holds, _)| !holds);
        broken.map_or(Ok(()), |(key, value, _, reason)| {
            Err(ConfigError {
                key,
                value: value.to_string(),
                reason,
            })
        })
    }

    /// Time between two reads, in ns.
    pub(super) fn step_ns(&self) -> i64 {
        i64::try_from(self.step_seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(NS_PER_S)
    }

    /// The configuration of the forecaster of one device.
    pub(super) fn of_forecaster(&self) -> InterferenceConfig {
        InterferenceConfig {
            window: self.window,
            steps: self.steps,
            confidence: self.confidence,
            ..InterferenceConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_configurations_are_refused() {
        let check = |text: &str, expect: &str| {
            let config: BandwidthConfig = toml::from_str(text).unwrap();
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("step_seconds = 0", "interference.step_seconds = 0");
        check("steps = 64", "it must be 1 to 63");
        check("window = 3", "interference.window = 3");
        check("confidence = nan", "interference.confidence = NaN");
        check("read_bytes = 0", "interference.read_bytes = 0");
        let many = format!("devices = {:?}", vec!["a"; 9]);
        check(&many, "interference.devices = 9");
        assert!(BandwidthConfig::default().check().is_ok());
    }
}
