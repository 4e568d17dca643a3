//! The exports in the configuration, and the streams about their success.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use barograph_model::{
    ConfigError, Descriptor, Kind, Labels, Name, Sample, Selector, Sink as _, StreamKey, Unit,
    Value, ValueType,
};
use barograph_server::{
    ExportConfig as ServerExports, ExportCounts, ExportHeaders, ExportReceiver, ExportSelection,
    ExportStatus, Exports,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AgentError;
use barograph_recorder::Streams;

/// Range of the seconds between two exports.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3_600.0;
/// Most seconds of one request.
const TIMEOUT_SECONDS_MAX: f64 = 300.0;

/// Receivers to which this node's samples are sent. A receiver without a `url` is off.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExportConfig {
    /// OTLP metrics over HTTP: each export sends the newest numbers.
    pub otlp: ReceiverConfig,
    /// Prometheus remote write 1.0: each export sends every number since the last one.
    pub remote_write: ReceiverConfig,
}

/// One receiver of samples.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverConfig {
    /// URL of the receiver, such as `https://host:4318/v1/metrics` or
    /// `http://127.0.0.1:9090/api/v1/write`. Empty: nothing is sent.
    pub url: String,
    /// Seconds between two exports, 0.1 to 3600.
    pub seconds: f64,
    /// Streams that are sent, as patterns of names and labels: `disk.*`,
    /// `disk.read.bytes{device=vda}`.
    #[serde(rename = "match")]
    pub select: Vec<String>,
    /// Streams that are not sent although they match `match`, as patterns of the same kind.
    pub leave_out: Vec<String>,
    /// HTTP headers of each request. Everyone who may read this file can read them: put secrets
    /// into `headers_file`.
    pub headers: BTreeMap<String, String>,
    /// A file of `Name: value` lines that other users may not read. Empty: none.
    pub headers_file: PathBuf,
    /// Certificates (PEM) that are trusted instead of the public ones. Empty: the public ones.
    pub ca_file: PathBuf,
    /// Most seconds that one request may take.
    pub timeout_seconds: f64,
    /// Whether `http://` may be used to other machines, although everyone on the way can read it.
    pub insecure: bool,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            seconds: 15.0,
            select: vec!["*".into()],
            leave_out: Vec::new(),
            headers: BTreeMap::new(),
            headers_file: PathBuf::new(),
            ca_file: PathBuf::new(),
            timeout_seconds: 10.0,
            insecure: false,
        }
    }
}

/// Shows the names of headers. The values of headers are left out, and so is the URL, which may
/// contain a key.
impl std::fmt::Debug for ReceiverConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiverConfig")
            .field("is_on", &!self.url.is_empty())
            .field("seconds", &self.seconds)
            .field("select", &self.select)
            .field("leave_out", &self.leave_out)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

impl ExportConfig {
    /// Returns the checked receivers that are on, or `None` if all are off: then there is no thread
    /// and no connection.
    pub(crate) fn prepare(&self) -> Result<Option<Exports>, AgentError> {
        let receivers = ServerExports {
            otlp: self.otlp.receiver("otlp")?,
            remote_write: self.remote_write.receiver("remote_write")?,
        };
        Ok(Exports::prepare(&receivers)?)
    }
}

impl ReceiverConfig {
    fn receiver(&self, to: &str) -> Result<Option<ExportReceiver>, AgentError> {
        if self.url.is_empty() {
            return Ok(None);
        }
        let refused = |key: &'static str, value: &dyn ToString, reason: String| {
            AgentError::from(ConfigError {
                key,
                value: value.to_string(),
                reason: format!("{reason} (in export.{to})"),
            })
        };
        if !SECONDS.contains(&self.seconds) {
            let reason = "it must be 0.1 to 3600".into();
            return Err(refused("seconds", &self.seconds, reason));
        }
        if !(self.timeout_seconds > 0.0 && self.timeout_seconds <= TIMEOUT_SECONDS_MAX) {
            let reason = "it must be more than 0, at most 300".into();
            return Err(refused("timeout_seconds", &self.timeout_seconds, reason));
        }
        let selectors = |key: &'static str, patterns: &[String]| {
            let read = |pattern: &String| {
                Selector::parse(pattern).map_err(|error| refused(key, pattern, error.to_string()))
            };
            patterns
                .iter()
                .map(read)
                .collect::<Result<Vec<_>, AgentError>>()
        };
        let selection = ExportSelection {
            select: selectors("match", &self.select)?,
            leave_out: selectors("leave_out", &self.leave_out)?,
        };
        let mut headers = ExportHeaders::new(&self.headers)?;
        if !self.headers_file.as_os_str().is_empty() {
            headers = headers.read(&self.headers_file)?;
        }
        let has_ca = !self.ca_file.as_os_str().is_empty();
        Ok(Some(ExportReceiver {
            url: self.url.clone(),
            every_ns: (self.seconds * 1e9) as i64,
            selection,
            headers,
            ca_file: has_ca.then(|| self.ca_file.clone()),
            timeout: Duration::from_secs_f64(self.timeout_seconds),
            insecure: self.insecure,
        }))
    }
}

/// The streams about the success of the exports. The loop writes them, like all other streams.
pub(crate) struct ExportWatch {
    status: ExportStatus,
    streams: Vec<[Option<StreamKey>; 3]>,
}

impl ExportWatch {
    /// Declares the streams of each receiver that is on. All are looked at every `interval_ns`.
    pub(crate) fn new(status: ExportStatus, sink: &mut Streams<'_>, interval_ns: i64) -> Self {
        const STREAMS: [(&str, &str, &str); 3] = [
            (
                "export.sent.samples",
                "samples",
                "Samples that the receiver accepted",
            ),
            (
                "export.failed.requests",
                "requests",
                "Requests to the receiver that failed; each attempt counts",
            ),
            (
                "export.lost.samples",
                "samples",
                "Samples that the receiver will never get: refused, overwritten in the ring before they were sent, or out of order",
            ),
        ];
        let mut declare = |to: &str, (name, unit, help): (&str, &str, &str)| {
            let descriptor = Descriptor {
                name: Name::new(name).expect("a literal"),
                labels: Labels::new([("to", to)]).expect("a literal"),
                value_type: ValueType::Int,
                unit: Unit::new(unit).expect("a literal"),
                kind: Kind::Counter,
                help: help.into(),
            };
            let key = sink.declare(&descriptor, None);
            if let Some(key) = key {
                sink.expect_interval(key, interval_ns);
            }
            key
        };
        let streams = status
            .counts()
            .map(|counts| STREAMS.map(|stream| declare(counts.to, stream)))
            .collect();
        Self { status, streams }
    }

    /// Appends the current counts to all streams.
    pub(crate) fn look(&mut self, now_ns: i64, sink: &mut Streams<'_>) {
        for (counts, keys) in self.status.counts().zip(&self.streams) {
            let ExportCounts {
                sent_samples,
                failed_requests,
                lost_samples,
                ..
            } = counts;
            for (key, count) in keys
                .iter()
                .zip([sent_samples, failed_requests, lost_samples])
            {
                if let Some(key) = key {
                    let value = Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
                    sink.put(*key, &Sample::measured(now_ns, value));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_unless_a_url_is_given() {
        assert!(ExportConfig::default().prepare().unwrap().is_none());
        let on: ExportConfig = toml::from_str("[otlp]\nurl = 'http://127.0.0.1:4318'").unwrap();
        let names: Vec<&str> = on
            .prepare()
            .unwrap()
            .unwrap()
            .status()
            .counts()
            .map(|c| c.to)
            .collect();
        assert_eq!(names, ["otlp"]);
    }

    #[test]
    fn bad_receivers_are_refused() {
        let check = |keys: &str, expect: &str| {
            let text = format!("[remote_write]\nurl = 'http://127.0.0.1:9090'\n{keys}");
            let error = match toml::from_str::<ExportConfig>(&text) {
                Err(error) => error.to_string(),
                Ok(config) => match config.prepare() {
                    Err(error) => error.to_string(),
                    Ok(_) => panic!("{keys} is accepted"),
                },
            };
            assert!(error.contains(expect), "{keys}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        };
        check("seconds = 0", "seconds = 0 is refused");
        check("timeout_seconds = 0", "timeout_seconds = 0 is refused");
        check("match = ['{a}']", "match = {a} is refused");
        check("leave_out = ['a{b']", "leave_out = a{b is refused");
        check("matches = ['a']", "unknown field `matches`");
        check("headers = { 'a b' = 'hunter2' }", "no name of a header");
        check("headers_file = '/none'", "headers_file /none");
        check("ca_file = '/none'", "ca_file /none");
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = "[otlp]\nurl = 'https://o.example/?key=hunter2'\nheaders = { Authorization = 'hunter2' }";
        let config: ExportConfig = toml::from_str(text).unwrap();
        let shown = format!("{config:?}");
        assert!(
            shown.contains("Authorization") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}
