//! Control events: publishing them, and consuming them in three ways.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use barograph_client::publish::{
    ControlEventContent, PublicationReaders, PublishConfig, Publisher,
};
use barograph_client::{
    CONTROL_DISPATCH_MAX, ControlEvent as Given, ControlFilter, ControlSubscription,
    Observer as Client, RunDir,
};
use barograph_model::Pattern;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::publication::is_mistake;
use crate::sample::labels_dict;
use crate::{errors, wait};

/// The control events that this program publishes.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct ControlPublisher {
    publisher: Publisher,
}

#[pymethods]
impl ControlPublisher {
    #[new]
    #[pyo3(signature = (application, run_dir, readers))]
    fn new(
        py: Python<'_>,
        application: String,
        run_dir: Option<PathBuf>,
        readers: &str,
    ) -> PyResult<Self> {
        let readers = match readers {
            "owner" => PublicationReaders::Owner,
            "group" => PublicationReaders::Group,
            "all" => PublicationReaders::All,
            other => {
                let text = format!("readers are \"owner\", \"group\" or \"all\", not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        let config = PublishConfig {
            run_dir: run_dir.map(RunDir::new),
            ..PublishConfig::of(application)
        };
        let (publisher, declared) = py.detach(|| {
            let publisher = Publisher::open(config);
            let declared = publisher.control_event_readers(readers);
            (publisher, declared)
        });
        match declared {
            Err(error) if is_mistake(&error) => Err(errors::from_publish(&error)),
            _ => Ok(Self { publisher }),
        }
    }

    /// Publishes an event; returns whether it found room.
    fn publish(
        &self,
        kind: &str,
        subject: &str,
        value: Option<f64>,
        confidence: f64,
        properties: BTreeMap<String, String>,
    ) -> PyResult<bool> {
        let properties: Vec<(&str, &str)> = properties
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let done = self.publisher.control_event(&ControlEventContent {
            kind,
            subject,
            value,
            confidence,
            properties: &properties,
        });
        match done {
            Err(error) if is_mistake(&error) => Err(errors::from_publish(&error)),
            done => Ok(done.is_ok() && self.publisher.is_enabled()),
        }
    }

    /// The reason why nothing is published.
    #[getter]
    fn error(&self) -> Option<String> {
        self.publisher.error().map(ToString::to_string)
    }
}

/// The words with which Python asks for control events.
pub(crate) struct ControlWords {
    pub kind: Option<String>,
    pub subject: Option<String>,
    pub sources: BTreeMap<String, String>,
    pub properties: BTreeMap<String, String>,
    pub confidence_min: f64,
    pub age_max: Option<f64>,
    pub past: f64,
    pub exclude_own: bool,
}

/// Control events as they come.
#[pyclass(module = "barograph")]
pub(crate) struct ControlEvents {
    subscription: ControlSubscription,
    timeout: Option<Duration>,
    handler: Option<Py<PyAny>>,
}

impl ControlEvents {
    pub(crate) fn open(
        py: Python<'_>,
        client: &Client,
        words: ControlWords,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let seconds = |name: &str, seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                PyValueError::new_err(format!("{name} {seconds} is not seconds from 0 up"))
            })
        };
        let pairs = |pairs: BTreeMap<String, String>| {
            let pairs = pairs.into_iter();
            pairs.map(|(name, pattern)| (name, Pattern::new(pattern)))
        };
        let mut labels: Vec<(String, Pattern)> = pairs(words.sources).collect();
        let node = labels.iter().position(|(name, _)| name == "node");
        let node = node.map(|at| labels.swap_remove(at).1);
        let filter = ControlFilter {
            kind: words.kind.map(Pattern::new),
            subject: words.subject.map(Pattern::new),
            node,
            labels,
            properties: pairs(words.properties).collect(),
            age_max: words
                .age_max
                .map(|age| seconds("age_max", age))
                .transpose()?,
            past: seconds("past", words.past)?,
            excludes_own: words.exclude_own,
            ..ControlFilter::default()
        };
        let filter = filter.with_confidence_min(words.confidence_min);
        let filter = filter.map_err(|fault| PyValueError::new_err(fault.to_string()))?;
        let subscription = py.detach(|| client.control_events(filter));
        let subscription = subscription.map_err(|error| errors::from_client(py, error))?;
        Ok(Self {
            subscription,
            timeout,
            handler: None,
        })
    }

    fn next(
        &mut self,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<ControlEvent>> {
        let subscription = &mut self.subscription;
        let event = wait::until(py, timeout, |slice| subscription.wait(slice))?;
        Ok(event.map(|event| ControlEvent { event }))
    }
}

#[pymethods]
impl ControlEvents {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<ControlEvent>> {
        self.next(py, self.timeout)
    }

    /// The next event that is here already.
    fn check(&mut self) -> Option<ControlEvent> {
        let event = self.subscription.check();
        event.map(|event| ControlEvent { event })
    }

    /// The next event; None if none came in time.
    #[pyo3(signature = (timeout=None))]
    fn wait(&mut self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<ControlEvent>> {
        self.next(py, wait::timeout(timeout)?)
    }

    /// Sets the function that `dispatch` calls for each event.
    fn on(&mut self, handler: Py<PyAny>) {
        self.handler = Some(handler);
    }

    /// Waits for an event, and calls the function for it and for those that are here by then.
    /// Returns for how many.
    #[pyo3(signature = (timeout=None))]
    fn dispatch(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<usize> {
        let py = slf.py();
        let timeout = wait::timeout(timeout)?;
        let handler = slf.borrow().handler.as_ref().map(|it| it.clone_ref(py));
        let Some(handler) = handler else {
            return Err(PyValueError::new_err("set a function with on() first"));
        };
        let mut next = slf.borrow_mut().next(py, timeout)?;
        let mut handled = 0;
        while let Some(event) = next {
            handled += 1;
            // Not borrowed meanwhile: the function may set another one.
            handler.call1(py, (event,))?;
            if handled == CONTROL_DISPATCH_MAX {
                break;
            }
            next = slf.borrow_mut().check();
        }
        Ok(handled)
    }

    /// Number of events that were lost so far.
    #[getter]
    fn missed(&self) -> u64 {
        self.subscription.counts().missed
    }
}

/// A control event.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct ControlEvent {
    event: Given,
}

#[pymethods]
impl ControlEvent {
    #[getter]
    fn kind(&self) -> &str {
        &self.event.kind
    }

    #[getter]
    fn subject(&self) -> &str {
        &self.event.subject
    }

    #[getter]
    fn value(&self) -> Option<f64> {
        self.event.value
    }

    #[getter]
    fn confidence(&self) -> f64 {
        self.event.confidence
    }

    /// Time, ns since the epoch, by the clock of its node.
    #[getter]
    fn ts(&self) -> i64 {
        self.event.ts
    }

    #[getter]
    fn age_ns(&self) -> i64 {
        self.event.age_ns
    }

    #[getter]
    fn sequence(&self) -> u64 {
        self.event.sequence
    }

    #[getter]
    fn missed(&self) -> u64 {
        self.event.missed
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.event.pid
    }

    #[getter]
    fn thread(&self) -> u32 {
        self.event.thread
    }

    #[getter]
    fn node(&self) -> &str {
        &self.event.node
    }

    #[getter]
    fn is_own(&self) -> bool {
        self.event.is_own
    }

    /// The labels of the source.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        labels_dict(py, &self.event.descriptor.labels)
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, text) in &self.event.properties {
            dict.set_item(name, text)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let Given {
            kind,
            subject,
            node,
            sequence,
            ..
        } = &self.event;
        format!("<ControlEvent {kind} {subject:?}, {sequence} on {node}>")
    }
}
