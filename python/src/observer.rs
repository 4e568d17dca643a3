//! The observer: resolves names, and keeps the handles of those that are read repeatedly.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_client::{Observer as Client, RunDir, StreamHandle, SystemClock};
use barograph_model::{Labels, NS_PER_S, Selector, SqlLimits};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::archive::{self, Table};
use crate::control_events::{ControlEvents, ControlWords};
use crate::events::{EventWords, Events};
use crate::rows::{self, Rows};
use crate::sample::{Sample, labels_dict};
use crate::stream::Stream;
use crate::watch::Watch;
use crate::{errors, wait};

/// Most handles that are kept for `latest`; beyond it, all are dropped and resolved again.
const HELD_MAX: usize = 4_096;

/// Reads the streams of one node.
#[pyclass(frozen, subclass, module = "barograph")]
pub(crate) struct Observer {
    client: Client,
    clock: SystemClock,
    // Locked only under the GIL, as in `Stream`.
    held: Mutex<Handles>,
}

/// Handles by the text with which they were requested, at one state of the directory: a name that
/// had one stream may have two after a change.
#[derive(Default)]
struct Handles {
    changes: u64,
    by_text: HashMap<String, StreamHandle>,
}

/// The things that an observer can be made of.
#[derive(FromPyObject)]
enum Origin<'py> {
    /// Another observer, which reads the same: a subclass wraps one of this class.
    Observer(PyRef<'py, Observer>),
    /// A run directory.
    RunDir(PathBuf),
}

impl Observer {
    fn of(client: Client) -> Self {
        Self {
            client,
            clock: SystemClock::new(),
            held: Mutex::default(),
        }
    }
}

#[pymethods]
impl Observer {
    #[new]
    #[pyo3(signature = (run_dir=None))]
    fn new(py: Python<'_>, run_dir: Option<Origin<'_>>) -> PyResult<Self> {
        let run_dir = match run_dir {
            None => RunDir::find(),
            Some(Origin::RunDir(path)) => RunDir::new(path),
            Some(Origin::Observer(same)) => return Ok(Self::of(same.client.clone())),
        };
        let client = Client::open(run_dir, Arc::new(SystemClock::new()));
        let client = client.map_err(|error| errors::from_client(py, error))?;
        Ok(Self::of(client))
    }

    /// The name of the node whose streams are read.
    #[getter]
    fn node(&self) -> String {
        self.client.node()
    }

    /// The other nodes whose streams are mirrored here, by name.
    fn nodes(&self) -> Vec<String> {
        self.client.nodes()
    }

    /// The observer of a node of the cluster.
    #[pyo3(signature = (name, /))]
    fn of_node(&self, py: Python<'_>, name: &str) -> PyResult<Self> {
        let found = self.client.of_node(name);
        found
            .map(Self::of)
            .map_err(|error| errors::from_client(py, error))
    }

    /// The run directory of the observer.
    #[getter]
    fn run_dir(&self) -> PathBuf {
        self.client.run_dir().path().to_owned()
    }

    /// The newest sample of the one stream that matches, or the value predicted for now.
    #[pyo3(signature = (name, /, *, allow_predicted=false, **labels))]
    fn latest(
        &self,
        py: Python<'_>,
        name: &str,
        allow_predicted: bool,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Sample> {
        let read = if allow_predicted {
            StreamHandle::latest_predicted
        } else {
            StreamHandle::latest
        };
        let text = text_of(name, labels)?;
        let changes = self.client.directory_changes();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.changes != changes || held.by_text.len() >= HELD_MAX {
            held.by_text.clear();
            held.changes = changes;
        }
        if let Some(latest) = held.by_text.get_mut(&text).and_then(read) {
            return Ok(Sample::new(latest, 0));
        }
        let selector = selector_of(py, name, labels)?;
        let failed = |error| errors::from_client(py, error);
        let mut stream = self.client.stream(&selector).map_err(failed)?;
        let latest = read(&mut stream).ok_or_else(|| failed(self.client.unknown(&selector)))?;
        held.by_text.insert(text, stream);
        Ok(Sample::new(latest, 0))
    }

    /// The newest sample of every matching stream, or the value predicted for now.
    #[pyo3(signature = (pattern="*", /, *, allow_predicted=false, **labels))]
    fn latest_all(
        &self,
        py: Python<'_>,
        pattern: &str,
        allow_predicted: bool,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Sample>> {
        let selector = selector_of(py, pattern, labels)?;
        let found = py.detach(|| match allow_predicted {
            true => self.client.latest_predicted(&selector),
            false => self.client.latest(&selector),
        });
        Ok(found
            .into_iter()
            .map(|latest| Sample::new(latest, 0))
            .collect())
    }

    /// The values of all matching streams that are predicted for `horizon` seconds from now.
    #[pyo3(signature = (pattern="*", horizon=0.0, /, **labels))]
    fn expected(
        &self,
        py: Python<'_>,
        pattern: &str,
        horizon: f64,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Sample>> {
        let selector = selector_of(py, pattern, labels)?;
        let horizon = Duration::try_from_secs_f64(horizon)
            .map_err(|e| PyValueError::new_err(format!("horizon: {e}")))?;
        let found = py.detach(|| self.client.expected(&selector, horizon));
        let samples = found.into_iter().map(|expected| Sample::new(expected, 0));
        Ok(samples.collect())
    }

    /// A handle on the one stream that matches.
    #[pyo3(signature = (name, /, **labels))]
    fn stream(
        &self,
        py: Python<'_>,
        name: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Stream> {
        let selector = selector_of(py, name, labels)?;
        let held = self
            .client
            .stream(&selector)
            .map_err(|error| errors::from_client(py, error))?;
        Ok(Stream::new(self.client.clone(), held))
    }

    /// The streams that match.
    #[pyo3(signature = (pattern="*", /, **labels))]
    fn streams(
        &self,
        py: Python<'_>,
        pattern: &str,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<StreamInfo>> {
        let selector = selector_of(py, pattern, labels)?;
        let found = py.detach(|| self.client.streams(&selector));
        Ok(found.into_iter().map(|info| StreamInfo { info }).collect())
    }

    /// New samples of the matching streams, as they come.
    #[pyo3(signature = (pattern="*", /, timeout=None, **labels))]
    fn watch(
        &self,
        py: Python<'_>,
        pattern: &str,
        timeout: Option<f64>,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Watch> {
        let timeout = wait::timeout(timeout)?;
        let selector = selector_of(py, pattern, labels)?;
        Ok(Watch::new(
            self.client.watch(&selector),
            timeout,
            self.clock,
        ))
    }

    /// File events, as they come.
    #[pyo3(signature = (kinds, path, glob, source, since, after, timeout))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn follow_events(
        &self,
        py: Python<'_>,
        kinds: Vec<String>,
        path: Option<PathBuf>,
        glob: Option<String>,
        source: Option<String>,
        since: Option<&Bound<'_, PyAny>>,
        after: Option<String>,
        timeout: Option<f64>,
    ) -> PyResult<Events> {
        let timeout = wait::timeout(timeout)?;
        let words = EventWords {
            kinds,
            path,
            glob,
            source,
            after,
        };
        Events::open(py, &self.client, words, since, timeout)
    }

    /// Control events, as they come.
    #[pyo3(signature = (
        kind, subject, sources, properties, confidence_min, age_max, past, exclude_own, timeout
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn follow_control_events(
        &self,
        py: Python<'_>,
        kind: Option<String>,
        subject: Option<String>,
        sources: BTreeMap<String, String>,
        properties: BTreeMap<String, String>,
        confidence_min: f64,
        age_max: Option<f64>,
        past: f64,
        exclude_own: bool,
        timeout: Option<f64>,
    ) -> PyResult<ControlEvents> {
        let timeout = wait::timeout(timeout)?;
        let words = ControlWords {
            kind,
            subject,
            sources,
            properties,
            confidence_min,
            age_max,
            past,
            exclude_own,
        };
        ControlEvents::open(py, &self.client, words, timeout)
    }

    /// Names that resemble `name`, best first.
    fn near(&self, name: &str) -> Vec<String> {
        self.client.near(name)
    }

    /// State of the node's agent and segment.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let status = self
            .client
            .status()
            .map_err(|error| errors::from_client(py, error))?;
        Ok(Status {
            node: status.node,
            incarnation: status.incarnation.to_string(),
            pid: status.pid,
            started_ts: status.started_ns,
            heartbeat_age_ns: status.heartbeat_age_ns,
            alive: status.alive,
            streams: status.streams,
            streams_max: status.streams_max,
            refused: status.refused,
            samples: status.samples,
        })
    }

    /// The past of the matching streams, from rings, log and Parquet files.
    #[pyo3(signature = (pattern, start=None, stop=None, step=None, samples_max=None, labels=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn past(
        &self,
        py: Python<'_>,
        pattern: &str,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        samples_max: Option<usize>,
        labels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Table> {
        let selector = selector_of(py, pattern, labels)?;
        let archive = self
            .client
            .archive()
            .map_err(|error| errors::from_client(py, error))?;
        let times = (start, stop);
        archive::ask(
            py,
            &archive,
            &self.clock,
            &selector,
            times,
            step,
            samples_max,
        )
    }

    /// The rows of one read-only statement.
    #[pyo3(signature = (sql, /, *, rows_max=None, seconds_max=None))]
    fn query(
        &self,
        py: Python<'_>,
        sql: &str,
        rows_max: Option<usize>,
        seconds_max: Option<f64>,
    ) -> PyResult<Rows> {
        let mut limits = SqlLimits::default();
        if let Some(rows_max) = rows_max {
            limits.rows_max = rows_max;
        }
        if let Some(seconds) = seconds_max {
            if seconds.is_nan() || seconds <= 0.0 {
                return Err(PyValueError::new_err(format!(
                    "seconds_max {seconds} is not above 0"
                )));
            }
            limits.time_ns_max = (seconds * NS_PER_S as f64) as i64;
        }
        rows::ask(py, &self.client, sql, limits)
    }

    fn __repr__(&self) -> String {
        format!("<Observer of {}>", self.client.run_dir().path().display())
    }
}

/// Descriptor and state of a stream.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct StreamInfo {
    info: barograph_client::StreamInfo,
}

#[pymethods]
impl StreamInfo {
    #[getter]
    fn name(&self) -> &str {
        self.info.descriptor.name.as_str()
    }

    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        labels_dict(py, self.label_set())
    }

    #[getter]
    fn r#type(&self) -> &'static str {
        self.info.descriptor.value_type.as_str()
    }

    #[getter]
    fn unit(&self) -> &str {
        self.info.descriptor.unit.as_str()
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.info.descriptor.kind.as_str()
    }

    #[getter]
    fn help(&self) -> &str {
        &self.info.descriptor.help
    }

    #[getter]
    fn id(&self) -> String {
        self.info.series.to_string()
    }

    #[getter]
    fn depth(&self) -> u32 {
        self.info.depth
    }

    #[getter]
    fn samples(&self) -> u64 {
        self.info.samples
    }

    #[getter]
    fn interval_ns(&self) -> i64 {
        self.info.interval_ns
    }

    fn __repr__(&self) -> String {
        let stream = &self.info.descriptor;
        format!(
            "<StreamInfo {stream}, {} {}>",
            stream.value_type.as_str(),
            stream.kind.as_str()
        )
    }
}

impl StreamInfo {
    fn label_set(&self) -> &Labels {
        &self.info.descriptor.labels
    }
}

/// State of a node's agent and segment.
#[pyclass(frozen, get_all, module = "barograph")]
pub(crate) struct Status {
    node: String,
    incarnation: String,
    pid: u64,
    started_ts: i64,
    heartbeat_age_ns: i64,
    alive: bool,
    streams: usize,
    streams_max: usize,
    refused: u64,
    samples: u64,
}

#[pymethods]
impl Status {
    fn __repr__(&self) -> String {
        let alive = if self.alive { "alive" } else { "dead" };
        format!(
            "<Status of {}: agent {alive}, {} streams>",
            self.node, self.streams
        )
    }
}

/// The key of a handle: name and labels.
fn text_of(name: &str, labels: Option<&Bound<'_, PyDict>>) -> PyResult<String> {
    let mut text = name.to_owned();
    for (label, value) in labels.into_iter().flatten() {
        // No label contains a zero byte, so `a="b{c"` and `a="b", c=""` have different keys.
        let (label, value) = (label.extract::<&str>()?, value.extract::<&str>()?);
        let _ = write!(text, "\0{label}\0{value}");
    }
    Ok(text)
}

fn selector_of(
    py: Python<'_>,
    pattern: &str,
    labels: Option<&Bound<'_, PyDict>>,
) -> PyResult<Selector> {
    let mut selector =
        Selector::parse(pattern).map_err(|error| errors::from_client(py, error.into()))?;
    for (label, value) in labels.into_iter().flatten() {
        selector = selector.with_label(label.extract::<String>()?, value.extract::<&str>()?);
    }
    Ok(selector)
}
