//! `[forecast]` of the configuration.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_forecast::delphi::{TEXT_LEN_MAX, Weights};
use barograph_model::{ConfigError, ModelError, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The streams that are forecast, and the confidence of their forecasts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ForecastConfig {
    /// Streams of sources, insights and applications that are forecast: patterns of names, with
    /// labels if wanted (`disk.*{device=sda}`).
    pub streams: Vec<String>,
    /// Share of true values that shall lie within the error of a forecast, 0.5 to 0.99.
    pub confidence: f64,
    /// Most streams that are forecast; those beyond it wait for a free slot and are counted.
    pub streams_max: usize,
    /// Most forecast streams among those that one user's applications publish; those beyond it wait
    /// and are counted.
    pub streams_per_user_max: usize,
    /// File of weights that `baro forecast train` has written: with it, the predictor Delphi
    /// competes with the others and is followed where it is the best; empty: Delphi is not used.
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
    /// Fails if a range, a pattern or the file of weights is wrong.
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

    /// Reads the file of weights that `delphi` names; none if it is empty.
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
