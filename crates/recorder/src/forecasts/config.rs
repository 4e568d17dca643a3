//! `[forecast]` of the configuration.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_forecast::delphi::{TEXT_LEN_MAX, Weights};
use barograph_model::{ConfigError, ModelError, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which streams are forecast, and how sure one wants to be.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ForecastConfig {
    /// Streams that are forecast, of sources, insights and applications: patterns of names, with labels if wanted
    /// (`disk.*{device=sda}`).
    pub streams: Vec<String>,
    /// The share of true values that is to be within the error of a forecast, 0.5 to 0.99.
    pub confidence: f64,
    /// Most streams that are forecast; those beyond are counted.
    pub streams_max: usize,
    /// Most of them that one user's applications publish; those beyond are counted.
    pub streams_per_user_max: usize,
    /// Weights that `baro forecast train` has written: with them Delphi predicts beside the others, and is followed where it
    /// is the best; empty: it does not.
    pub delphi: PathBuf,
}

impl Default for ForecastConfig {
    fn default() -> Self {
        Self {
            streams: vec!["filesystem.available.bytes".into()],
            confidence: 0.9,
            streams_max: 256,
            streams_per_user_max: 64,
            delphi: PathBuf::new(),
        }
    }
}

impl ForecastConfig {
    /// Checks ranges and patterns.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |key, value: String, reason: String| Err(ConfigError { key, value, reason });
        if !(0.5..=0.99).contains(&self.confidence) {
            let value = self.confidence.to_string();
            return refuse(
                "forecast.confidence",
                value,
                "it must be 0.5 to 0.99".into(),
            );
        }
        if let Err((value, error)) = self.selectors() {
            return refuse("forecast.streams", value, error.to_string());
        }
        self.weights().map(drop)
    }

    /// Those of the file that `delphi` names.
    pub(super) fn weights(&self) -> Result<Option<Arc<Weights>>, ConfigError> {
        if self.delphi.as_os_str().is_empty() {
            return Ok(None);
        }
        let refused = |reason| ConfigError {
            key: "forecast.delphi",
            value: self.delphi.display().to_string(),
            reason,
        };
        let mut bytes = Vec::new();
        let read = File::open(&self.delphi).and_then(|file| {
            let most = TEXT_LEN_MAX as u64 + 1;
            file.take(most).read_to_end(&mut bytes)
        });
        read.map_err(|error| refused(error.to_string()))?;
        let weights = Weights::from_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
        Ok(Some(Arc::new(weights)))
    }

    pub(super) fn selectors(&self) -> Result<Vec<Selector>, (String, ModelError)> {
        let parse = |text: &String| Selector::parse(text).map_err(|e| (text.clone(), e));
        self.streams.iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_configurations_are_refused() {
        let check = |text: &str, expect: &str| {
            let config: ForecastConfig = toml::from_str(text).unwrap();
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("confidence = 1.0", "forecast.confidence = 1 is refused");
        check("confidence = nan", "forecast.confidence = NaN is refused");
        check("streams = ['{']", "forecast.streams = { is refused");
    }
}
