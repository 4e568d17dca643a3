//! The types that programs hold: the publisher, its publications, and the handles of their values.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::{Kind, Name, ValueType};
use barograph_stream::calls::Call;
use barograph_stream::ingest::kind;
use barograph_stream::{Incarnation, RunDir};

use super::calls::{self, Declarer};
use super::control_handles::ControlHandles;
use super::declare::{ValueConfig, declare_knob, declare_value, labels_of, stream_name};
use super::state::{self, LOST_WITHOUT_FILE, Pairs, PublishState};
use super::value::ValueHandle;
use super::{
    Knob, KnobConfig, PublicationConfig, PublishConfig, PublishError, config, fork, poll, thread,
};

/// The publisher of this process. Cheap to clone, for use from any thread; the file is closed when
/// the last publisher of the process is dropped.
///
/// A publisher never gets in the way: if nothing can be published, it is disabled, its error is
/// [`Self::error`], and everything that is declared through it does nothing.
#[derive(Clone, Debug)]
pub struct Publisher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// 0 if disabled.
    generation: u32,
    /// Owner of the handlers that are set through this publisher.
    owner: u64,
    error: Option<PublishError>,
    application: String,
    labels: Mutex<Pairs>,
    control: ControlHandles,
}

impl Publisher {
    /// Opens the process's file: the first publisher makes it, later ones share it, with the sizes
    /// and the overflow policy of the first; their application and labels apply to their own
    /// publications.
    pub fn open(mut config: PublishConfig) -> Self {
        if config.application.is_empty() {
            config.application = config::program_name();
        }
        config::add_launcher_labels(&mut config.labels, &|name| {
            barograph_stream::environment(name)?.into_string().ok()
        });
        let checked = labels_of(&config.application, &config.labels, &[]);
        let opened = checked.and_then(|_| open(&config));
        let (generation, error) = match opened {
            Ok(generation) => (generation, None),
            Err(error) => (0, Some(error)),
        };
        Self {
            inner: Arc::new(Inner {
                generation,
                owner: calls::new_number(),
                error,
                application: config.application,
                labels: Mutex::new(config.labels),
                control: ControlHandles::default(),
            }),
        }
    }

    /// Whether puts are published.
    pub fn is_enabled(&self) -> bool {
        self.inner.generation != 0
    }

    /// The reason why nothing is published.
    pub fn error(&self) -> Option<&PublishError> {
        self.inner.error.as_ref()
    }

    /// Adds a label, or changes it, for publications that are declared from now on.
    pub fn label(&self, name: &str, value: &str) -> Result<(), PublishError> {
        let mut labels = self.inner.labels()?;
        let mut changed = labels.pairs.clone();
        changed.retain(|(known, _)| known != name);
        changed.push((name.to_owned(), value.to_owned()));
        labels_of(&self.inner.application, &changed, &[])?;
        *labels.pairs = changed;
        Ok(())
    }

    /// Declares a publication, or finds it again. Names are dotted words as in stream names; its
    /// streams are `app.<publication>.<value>`, its frames `app.<publication>.frame`.
    pub fn publication(
        &self,
        name: &str,
        config: PublicationConfig,
    ) -> Result<Publication, PublishError> {
        let inner = &self.inner;
        let labels = inner.labels()?.pairs.clone();
        labels_of(&inner.application, &labels, &config.labels)?;
        stream_name(name, "frame")?;
        if name == "process" {
            return Err(PublishError::Taken {
                name: name.into(),
                taken: "the agent's word for the process itself",
            });
        }
        let mut handle = 0;
        if self.is_enabled() {
            let own = &config.labels;
            let index = state::enter()?.publication(
                inner.generation,
                &inner.application,
                &labels,
                name,
                config.readers,
                own,
            )?;
            handle = thread::handle(inner.generation, kind::FRAME, index);
        }
        Ok(Publication {
            publisher: self.clone(),
            name: name.into(),
            handle,
        })
    }

    /// Returns a publication of this process by its number ([`Publication::to_raw`]), for other
    /// languages; 0 is a publication that does nothing.
    pub fn publication_of(&self, raw: u64) -> Result<Publication, PublishError> {
        if raw != 0 && self.is_enabled() && thread::generation_of(raw) != self.inner.generation {
            return Err(PublishError::Closed);
        }
        let name = super::declare::name_of(raw)?;
        Ok(Publication {
            publisher: self.clone(),
            name: name.into(),
            handle: raw,
        })
    }

    /// Sets the handler of a name, such as `checkpoint`, from now on and while this publisher is
    /// open. [`Self::poll`] and [`Self::listen`] run it; handlers run one at a time in a process,
    /// in the order of their calls. A handler may do anything; a poll inside it runs no other
    /// handler. Its error, or a panic, is reported to the caller.
    ///
    /// A process has one handler per name: a later one replaces it. Each of its publications may
    /// have one in addition ([`Publication::on`]). A handler that holds a publisher keeps it open.
    pub fn on(
        &self,
        name: &str,
        help: &str,
        handler: impl FnMut(&Call) -> Result<(), String> + Send + 'static,
    ) -> Result<(), PublishError> {
        self.on_of(None, name, help, handler)
    }

    fn on_of(
        &self,
        publication: Option<u32>,
        name: &str,
        help: &str,
        handler: impl FnMut(&Call) -> Result<(), String> + Send + 'static,
    ) -> Result<(), PublishError> {
        let inner = &self.inner;
        Name::new(name)?;
        if !self.is_enabled() {
            return Ok(());
        }
        let labels = inner.labels()?.pairs.clone();
        let by = Declarer {
            generation: inner.generation,
            owner: inner.owner,
            publication,
            application: &inner.application,
            labels: &labels,
        };
        thread::look_anew();
        calls::on(by, name, help, Box::new(handler))
    }

    /// Runs the handlers of new calls and applies new settings of knobs, on this thread. Returns
    /// the number of both. If there are none, it costs a load and a compare. Polls find an agent
    /// that starts or restarts within about a second.
    #[inline]
    pub fn poll(&self) -> usize {
        if self.is_enabled() { poll::poll() } else { 0 }
    }

    /// Starts a thread, one per process, that sleeps until a handler is called and runs it
    /// at once. It ends with the last publisher; a forked child has none until it calls `listen`
    /// itself. Knobs are still set by polls and frames only.
    pub fn listen(&self) -> Result<(), PublishError> {
        if self.is_enabled() {
            calls::listen(self.inner.generation)
        } else {
            Ok(())
        }
    }

    /// Number of calls of this process that were overwritten before it polled.
    pub fn missed_calls(&self) -> u64 {
        if self.is_enabled() {
            calls::missed()
        } else {
            0
        }
    }

    /// Message of the handler that failed last.
    pub fn handler_failure(&self) -> Option<String> {
        self.is_enabled().then(calls::failure).flatten()
    }

    /// Publishes the puts of this thread without ending a frame.
    pub fn commit(&self) {
        if self.is_enabled() {
            thread::commit();
        }
    }

    /// Gives this thread's ring back before the thread ends, with all its puts.
    pub fn leave_thread(&self) {
        if self.is_enabled() {
            thread::leave();
        }
    }

    /// The handles of the control events of this publisher.
    pub(super) fn control_handles(&self) -> &ControlHandles {
        &self.inner.control
    }

    /// Number of values of this process that were dropped: a ring was full, a thread had no ring, a
    /// value was too long or of another type, or the file was closed. Values that a ring has
    /// overwritten before the agent read them are counted by the agent, in the table `loss`.
    pub fn lost(&self) -> u64 {
        let without = LOST_WITHOUT_FILE.load(Ordering::Relaxed);
        let process = state::existing(self.inner.generation);
        process.map_or(without, |process| {
            let producer = &process.producer;
            let lost = producer.dropped().saturating_add(producer.homeless());
            lost.saturating_add(without)
        })
    }

    /// Number of declarations of this process that the agent refuses at present, because there is
    /// no room for more of them or because they cannot be what they are declared as: none of their
    /// puts is kept. [`ValueHandle::is_refused`] shows which. 0 before an agent has looked.
    pub fn refused(&self) -> u64 {
        let process = state::existing(self.inner.generation);
        process.map_or(0, |process| process.producer.refused())
    }

    /// The run directory in which this process publishes; `None` when it does not.
    pub fn run_dir(&self) -> Option<RunDir> {
        let process = state::existing(self.inner.generation)?;
        Some(process.run_dir.clone())
    }

    /// Path of the file while it is open; a forked child has none before its first put.
    pub fn path(&self) -> Option<PathBuf> {
        let process = state::existing(self.inner.generation)?;
        Some(process.producer.path().to_owned())
    }

    /// Incarnation of this life of the process, by which the agent knows it.
    pub fn incarnation(&self) -> Option<Incarnation> {
        let process = state::existing(self.inner.generation)?;
        Some(process.producer.incarnation())
    }
}

/// Opens the process's file, unless the user has switched publishing off.
fn open(config: &PublishConfig) -> Result<u32, PublishError> {
    if config::is_off() {
        return Err(PublishError::Off);
    }
    fork::watch();
    state::open(config)
}

impl Inner {
    /// Locks the labels, under the lock that forks wait for: no child finds them locked by a thread
    /// that it does not have.
    fn labels(&self) -> Result<LockedLabels<'_>, PublishError> {
        let state = state::enter()?;
        let pairs = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(LockedLabels {
            pairs,
            _state: state,
        })
    }
}

/// Labels of a publisher; unlocked before the lock on the process's state is.
struct LockedLabels<'a> {
    pairs: MutexGuard<'a, Pairs>,
    _state: MutexGuard<'static, PublishState>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.generation != 0 {
            calls::leave(self.generation, self.owner);
            state::close(self.generation, |is_last| {
                if is_last {
                    calls::end(self.generation);
                    // Publishes the puts of this thread.
                    thread::leave();
                } else {
                    thread::commit();
                }
            });
        }
    }
}

/// A publication: a named set of values. Cheap to clone, for use from any thread.
#[derive(Clone, Debug)]
pub struct Publication {
    publisher: Publisher,
    name: Arc<str>,
    handle: u64,
}

impl Publication {
    /// Name of the publication.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declares a value, or finds it again; the same name with another type, unit or kind is
    /// refused. The handle of a disabled publisher, and that of `unwrap_or_default`, does nothing.
    pub fn value(
        &self,
        name: &str,
        value_type: ValueType,
        unit: &str,
        kind: Kind,
        help: &str,
    ) -> Result<ValueHandle, PublishError> {
        self.value_of(name, value_type, unit, kind, help, 0)
    }

    /// Like [`Self::value`], for texts, bytes, JSON or arrays of at most `bytes_max` bytes; 0 means
    /// 4,096. The agent rounds it up to a power of two, of at most 65,536. A longer text is cut
    /// there, any other longer value is lost, and both are counted. Numbers have no such size.
    pub fn value_of(
        &self,
        name: &str,
        value_type: ValueType,
        unit: &str,
        kind: Kind,
        help: &str,
        bytes_max: u32,
    ) -> Result<ValueHandle, PublishError> {
        let of = ValueConfig {
            name,
            value_type,
            unit,
            kind,
            help,
            bytes_max,
        };
        declare_value(self.handle, &self.name, of)
    }

    /// Declares a knob, or finds it again: its stream, and the refusals, are as for a value. A
    /// setting is applied when this process polls or ends a frame. A knob of a disabled publisher
    /// keeps its initial value.
    pub fn knob(&self, name: &str, config: &KnobConfig) -> Result<Knob, PublishError> {
        declare_knob(self.handle, &self.name, name, config)
    }

    /// Like [`Publisher::on`], for a handler of this publication: a call matches it by the labels
    /// of the process and of the publication, and readers of the publication may read about its
    /// calls.
    ///
    /// A publication has one handler per name. If a call matches several publications of the
    /// process, or the process as well, each handler runs, in the order of their declarations; the
    /// process answers once, and has failed if one of them has. The handler is set while the
    /// publisher of this publication is open.
    pub fn on(
        &self,
        name: &str,
        help: &str,
        handler: impl FnMut(&Call) -> Result<(), String> + Send + 'static,
    ) -> Result<(), PublishError> {
        if self.handle == 0 {
            return Name::new(name).map(drop).map_err(Into::into);
        }
        let publication = thread::series_of(self.handle);
        self.publisher.on_of(Some(publication), name, help, handler)
    }

    /// Ends a frame: its number and all puts of this thread since its last frame appear at once.
    /// Then applies new settings of knobs.
    #[inline]
    pub fn frame(&self, number: u64) {
        poll::frame(self.handle, number);
    }

    /// The publisher of this publication.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// The publication as a number, for other languages; 0 does nothing.
    pub fn to_raw(&self) -> u64 {
        self.handle
    }
}
