//! An iterator over file events.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use barograph_client::{
    EventFeed, EventFilter, EventFlags, EventGap, EventKind, EventStart, FeedItem, FileEvent,
    Observer as Client, SystemClock,
};
use barograph_model::{Clock as _, Pattern, instant_ns};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::{errors, wait};

/// Iterates over file events and gaps, as they come.
#[pyclass(module = "barograph")]
pub(crate) struct Events {
    feed: EventFeed,
    timeout: Option<Duration>,
}

/// The words with which Python asks for events.
pub(crate) struct EventWords {
    pub kinds: Vec<String>,
    pub path: Option<PathBuf>,
    pub glob: Option<String>,
    pub source: Option<String>,
    pub after: Option<String>,
}

impl Events {
    pub(crate) fn open(
        py: Python<'_>,
        client: &Client,
        words: EventWords,
        since: Option<&Bound<'_, PyAny>>,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let wrong = |text: String| PyValueError::new_err(text);
        let kind = |word: &String| {
            EventKind::parse(word).ok_or_else(|| wrong(format!("there is no kind {word:?}")))
        };
        let filter = EventFilter {
            kinds: words.kinds.iter().map(kind).collect::<PyResult<_>>()?,
            path: words.path,
            glob: words.glob.map(Pattern::new),
            source: words.source,
        };
        let since_ns = since.map(time).transpose()?;
        let start = match (words.after, since_ns) {
            (None, None) => EventStart::Now,
            (None, Some(since_ns)) => EventStart::Since(since_ns),
            (Some(after), since_ns) => {
                let position = after.parse();
                let position = position.map_err(|fault| wrong(format!("after: {fault}")))?;
                EventStart::After(position, since_ns)
            }
        };
        let feed = py.detach(|| client.events(filter, start));
        let feed = feed.map_err(|fault| errors::from_sql(py, fault))?;
        Ok(Self { feed, timeout })
    }
}

/// A time as ns since the epoch, or as a text.
fn time(given: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(text) = given.extract::<String>() {
        let time = instant_ns(&text, SystemClock::new().now_ns());
        return time.map_err(|error| PyValueError::new_err(format!("since: {error}")));
    }
    given.extract()
}

#[pymethods]
impl Events {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let feed = &mut self.feed;
        let item = wait::until(py, self.timeout, |slice| feed.next(slice))?;
        Ok(match item {
            None => None,
            Some(FeedItem::Event(event, source)) => {
                Some(Bound::new(py, Event { event, source })?.into_any())
            }
            Some(FeedItem::Gap(gap)) => Some(Bound::new(py, Gap { gap })?.into_any()),
        })
    }

    /// The place after what was given last.
    #[getter]
    fn position(&self) -> String {
        self.feed.position().to_string()
    }
}

/// A file event.
#[pyclass(frozen, module = "barograph", name = "FileEvent")]
pub(crate) struct Event {
    event: FileEvent,
    source: Arc<str>,
}

/// A path as Python has it: bytes that are no UTF-8 are surrogate escapes.
fn path(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[pymethods]
impl Event {
    /// Time, ns since the epoch.
    #[getter]
    fn ts(&self) -> i64 {
        self.event.ts
    }

    /// Kind, such as `create`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.event.kind.as_str()
    }

    #[getter]
    fn path(&self) -> OsString {
        path(&self.event.path)
    }

    #[getter]
    fn path_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.event.path)
    }

    /// Path before a rename.
    #[getter]
    fn old_path(&self) -> Option<OsString> {
        (!self.event.old_path.is_empty()).then(|| path(&self.event.old_path))
    }

    #[getter]
    fn old_path_bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let old_path = &self.event.old_path;
        (!old_path.is_empty()).then(|| PyBytes::new(py, old_path))
    }

    #[getter]
    fn size(&self) -> Option<u64> {
        self.event.size
    }

    #[getter]
    fn uid(&self) -> Option<u32> {
        self.event.uid
    }

    #[getter]
    fn gid(&self) -> Option<u32> {
        self.event.gid
    }

    #[getter]
    fn job(&self) -> Option<&str> {
        (!self.event.job.is_empty()).then_some(&*self.event.job)
    }

    /// Whether it happened to a directory.
    #[getter]
    fn directory(&self) -> bool {
        self.event.flags.has(EventFlags::DIRECTORY)
    }

    /// Whether the path is whole.
    #[getter]
    fn complete(&self) -> bool {
        !self.event.flags.has(EventFlags::PATH_INCOMPLETE)
    }

    /// Number of the event in its source.
    #[getter]
    fn idx(&self) -> u64 {
        self.event.index
    }

    #[getter]
    fn quality(&self) -> &'static str {
        match self.event.flags.has(EventFlags::RECONCILED) {
            true => "reconciled",
            false => "measured",
        }
    }

    #[getter]
    fn source(&self) -> &str {
        &self.source
    }

    /// All fields as a dict: one row of a table.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("ts", self.ts())?;
        dict.set_item("kind", self.kind())?;
        dict.set_item("path", self.path())?;
        dict.set_item("old_path", self.old_path())?;
        dict.set_item("size", self.size())?;
        dict.set_item("uid", self.uid())?;
        dict.set_item("gid", self.gid())?;
        dict.set_item("job", self.job())?;
        dict.set_item("directory", self.directory())?;
        dict.set_item("complete", self.complete())?;
        dict.set_item("idx", self.idx())?;
        dict.set_item("quality", self.quality())?;
        dict.set_item("source", self.source())?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let path = String::from_utf8_lossy(&self.event.path);
        format!(
            "<FileEvent {} {path:?}, {} of {}>",
            self.kind(),
            self.idx(),
            self.source
        )
    }
}

/// Events that cannot be given.
#[pyclass(frozen, module = "barograph", name = "EventGap")]
pub(crate) struct Gap {
    gap: EventGap,
}

#[pymethods]
impl Gap {
    #[getter]
    fn source(&self) -> &str {
        &self.gap.source
    }

    #[getter]
    fn after(&self) -> u64 {
        self.gap.after
    }

    #[getter]
    fn before(&self) -> Option<u64> {
        self.gap.before
    }

    #[getter]
    fn missing(&self) -> Option<u64> {
        self.gap.missing
    }

    #[getter]
    fn reason(&self) -> &str {
        &self.gap.reason
    }

    fn __repr__(&self) -> String {
        let EventGap {
            source,
            after,
            reason,
            ..
        } = &self.gap;
        format!("<EventGap of {source} after {after}: {reason}>")
    }
}
