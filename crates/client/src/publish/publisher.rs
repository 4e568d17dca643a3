//! What programs hold: the publisher, its publications, the handles of their values.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::{Kind, Name, ValueType};
use barograph_stream::calls::Call;
use barograph_stream::ingest::kind;
use barograph_stream::{Incarnation, RunDir};

use super::calls::{self, Declarer};
use super::declare::{Wanted, declare_knob, declare_value, labels_of, stream_name};
use super::state::{self, LOST_WITHOUT_FILE, Pairs, State};
use super::{Knob, KnobConfig, PublicationConfig, PublishConfig, PublishError, config, thread};

/// The way in which this process publishes. Cheap to clone, for use from any thread; the file says goodbye
/// when the last publisher of the process is dropped.
///
/// It is never an obstacle: where nothing can be published it is disabled, says why ([`Self::error`]), and
/// all that is made of it does nothing.
#[derive(Clone, Debug)]
pub struct Publisher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// 0 when disabled.
    generation: u32,
    /// Whose handlers are this publisher's.
    owner: u64,
    error: Option<PublishError>,
    application: String,
    labels: Mutex<Pairs>,
}

impl Publisher {
    /// Opens the process's file: the first publisher makes it, later ones share it, with the sizes and the
    /// policy of the first; their application and labels are their publications' own.
    pub fn open(mut config: PublishConfig) -> Self {
        if config.application.is_empty() {
            config.application = config::program_name();
        }
        config::add_launcher_labels(&mut config.labels, &|name| {
            barograph_stream::environment(name)?.into_string().ok()
        });
        let checked = labels_of(&config.application, &config.labels, &[]);
        let opened = checked.and_then(|_| state::open(&config));
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
            }),
        }
    }

    /// Whether puts go anywhere.
    pub fn is_enabled(&self) -> bool {
        self.inner.generation != 0
    }

    /// Why nothing is published.
    pub fn error(&self) -> Option<&PublishError> {
        self.inner.error.as_ref()
    }

    /// Adds a label, or changes it, for the publications that are made from now on.
    pub fn label(&self, name: &str, value: &str) -> Result<(), PublishError> {
        let mut labels = self.inner.labels()?;
        let mut changed = labels.pairs.clone();
        changed.retain(|(known, _)| known != name);
        changed.push((name.to_owned(), value.to_owned()));
        labels_of(&self.inner.application, &changed, &[])?;
        *labels.pairs = changed;
        Ok(())
    }

    /// Declares a publication, or finds it again. Names are dotted words as in stream names; its streams
    /// are `app.<publication>.<value>`, its frames `app.<publication>.frame`.
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

    /// A publication of this process by its number ([`Publication::to_raw`]), for other languages; 0 is one that
    /// does nothing.
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

    /// Has triggers of a name, like `checkpoint`, run a handler, from now on and while this publisher is open.
    /// Where one is called is for [`Self::poll`] and [`Self::listen`] to say; one runs at a time in a process, in
    /// the order in which they were fired. It may do anything, polling included, which then runs no other. Its
    /// error, or a panic, is told to who fired.
    ///
    /// A process has one handler of a name: a later one takes its place. Its publications may each have one
    /// beside it ([`Publication::on`]). A handler that holds a publisher keeps it open.
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

    /// Runs the handlers of what was fired, and applies what knobs were set to, on this thread. Gives how many
    /// of both. When there is nothing it costs a load and a compare; an agent that comes, or comes anew, is
    /// found within about a second of polls.
    #[inline]
    pub fn poll(&self) -> usize {
        if self.is_enabled() { thread::poll() } else { 0 }
    }

    /// Starts a thread, one in a process, that sleeps until a trigger is fired and runs its handler at once.
    /// It ends with the last publisher; a forked child has none until it listens itself. Knobs are still set
    /// by polls and frames alone.
    pub fn listen(&self) -> Result<(), PublishError> {
        if self.is_enabled() {
            calls::listen(self.inner.generation)
        } else {
            Ok(())
        }
    }

    /// Calls of this process that were written over before it polled.
    pub fn missed_calls(&self) -> u64 {
        if self.is_enabled() {
            calls::missed()
        } else {
            0
        }
    }

    /// What the handler that failed last has said.
    pub fn handler_failure(&self) -> Option<String> {
        self.is_enabled().then(calls::failure).flatten()
    }

    /// Publishes what this thread has put, without a frame.
    pub fn commit(&self) {
        if self.is_enabled() {
            thread::commit();
        }
    }

    /// Gives this thread's ring back before the thread ends, with all that was put.
    pub fn leave_thread(&self) {
        if self.is_enabled() {
            thread::leave();
        }
    }

    /// Values of this process that were given up: because a ring was full, a thread had no ring, a value
    /// was too long or of another type, or the file was closed. What a ring has written over before the
    /// agent read it is known to the agent, and shown in the table `loss`.
    pub fn lost(&self) -> u64 {
        let without = LOST_WITHOUT_FILE.load(Ordering::Relaxed);
        let process = state::existing(self.inner.generation);
        process.map_or(without, |process| {
            let producer = &process.producer;
            let lost = producer.dropped().saturating_add(producer.homeless());
            lost.saturating_add(without)
        })
    }

    /// Declarations of this process that the agent refuses now, because there is no room for more of them or they
    /// cannot be what they are declared as: none of their puts is kept. Which values, [`ValueHandle::is_refused`]
    /// says. 0 before an agent has looked.
    pub fn refused(&self) -> u64 {
        let process = state::existing(self.inner.generation);
        process.map_or(0, |process| process.producer.refused())
    }

    /// Which agent's directory this process publishes in, while it does.
    pub fn run_dir(&self) -> Option<RunDir> {
        let process = state::existing(self.inner.generation)?;
        Some(process.run_dir.clone())
    }

    /// The file, while it is open; a forked child has none before its first put.
    pub fn path(&self) -> Option<PathBuf> {
        let process = state::existing(self.inner.generation)?;
        Some(process.producer.path().to_owned())
    }

    /// This life of the process, as the agent knows it.
    pub fn incarnation(&self) -> Option<Incarnation> {
        let process = state::existing(self.inner.generation)?;
        Some(process.producer.incarnation())
    }
}

impl Inner {
    /// Under the lock that forks wait for: no child finds them locked by a thread that it does not have.
    fn labels(&self) -> Result<LockedLabels<'_>, PublishError> {
        let state = state::enter()?;
        let pairs = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(LockedLabels {
            pairs,
            _state: state,
        })
    }
}

/// Labels of a publisher; given back before the lock on the process's state is.
struct LockedLabels<'a> {
    pairs: MutexGuard<'a, Pairs>,
    _state: MutexGuard<'static, State>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.generation != 0 {
            calls::leave(self.generation, self.owner);
            state::close(self.generation);
        }
    }
}

/// A named set of values. Cheap to clone, for use from any thread.
#[derive(Clone, Debug)]
pub struct Publication {
    publisher: Publisher,
    name: Arc<str>,
    handle: u64,
}

impl Publication {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declares a value, or finds it again; the same name with another type, unit or kind is refused.
    /// Of a publisher that is disabled, and for `unwrap_or_default`, the handle does nothing.
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

    /// As [`Self::value`], of texts, bytes, JSON or arrays of at most `bytes_max` bytes; 0: 4,096. The agent rounds
    /// it up to a power of two, of at most 65,536. A longer text is cut there, what else is longer is lost, and
    /// both are counted. Numbers have no such size.
    pub fn value_of(
        &self,
        name: &str,
        value_type: ValueType,
        unit: &str,
        kind: Kind,
        help: &str,
        bytes_max: u32,
    ) -> Result<ValueHandle, PublishError> {
        let of = Wanted {
            name,
            value_type,
            unit,
            kind,
            help,
            bytes_max,
        };
        declare_value(self.handle, &self.name, of)
    }

    /// Declares a value that others may set, or finds it again: the stream is as a value's, and so are the
    /// refusals. What it is set to applies when this process polls or ends a frame. Of a publisher that is
    /// disabled it stays what it is.
    pub fn knob(&self, name: &str, config: &KnobConfig) -> Result<Knob, PublishError> {
        declare_knob(self.handle, &self.name, name, config)
    }

    /// As [`Publisher::on`], as a trigger of this publication: a call means it by the labels of the process and
    /// of the publication, and who may read the publication may read of its calls.
    ///
    /// A publication has one handler of a name. Of a call that means several publications of the process, or the
    /// process as well, each handler runs, in the order of their declarations; the process answers once, that it
    /// has failed if one of them has. The handler is there while the publisher of this publication is open.
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

    /// Ends a frame: its number and all that this thread has put since its last one appear at once. Then applies
    /// what knobs were set to.
    #[inline]
    pub fn frame(&self, number: u64) {
        thread::frame(self.handle, number);
    }

    /// The publisher that it is of.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// As a number, for other languages: 0 does nothing.
    pub fn to_raw(&self) -> u64 {
        self.handle
    }
}

/// A value that can be put, from any thread. The default one does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueHandle(u64);

impl ValueHandle {
    /// Puts a float.
    #[inline]
    pub fn put_f64(self, value: f64) {
        thread::put(self.0, kind::FLOAT, value.to_bits());
    }

    /// Puts an integer.
    #[inline]
    pub fn put_i64(self, value: i64) {
        thread::put(self.0, kind::INT, value as u64);
    }

    /// Puts a bool.
    #[inline]
    pub fn put_bool(self, value: bool) {
        thread::put(self.0, kind::BOOL, value.into());
    }

    /// Puts a text.
    pub fn put_text(self, value: &str) {
        let _ = thread::put_bytes(self.0, kind::TEXT, value.as_bytes());
    }

    /// Puts bytes, of a value that is declared as bytes.
    pub fn put_bytes(self, value: &[u8]) {
        let _ = thread::put_bytes(self.0, kind::BYTES, value);
    }

    /// Puts JSON, of a value that is declared as JSON (or as text); nobody checks here that it is, but the agent
    /// does.
    pub fn put_json(self, value: &str) {
        let _ = thread::put_bytes(self.0, kind::JSON, value.as_bytes());
    }

    /// Puts an array, of a value that is declared as floats.
    pub fn put_floats(self, values: &[f64]) {
        if self.is_enabled() {
            self.put_floats_le(&le_bytes(values));
        }
    }

    /// As [`Self::put_floats`], of floats as they lie in memory: little-endian, eight bytes each.
    pub fn put_floats_le(self, bytes: &[u8]) {
        let _ = thread::put_bytes(self.0, kind::FLOATS, bytes);
    }

    /// Whether the agent refuses it now, so that its puts are in vain; false before an agent has looked.
    pub fn is_refused(self) -> bool {
        super::declare::is_refused(self.0)
    }

    /// Whether puts of it go anywhere.
    pub fn is_enabled(self) -> bool {
        self.0 != 0
    }

    /// As a number, for other languages: 0 does nothing.
    pub fn to_raw(self) -> u64 {
        self.0
    }

    /// From a number of [`Self::to_raw`]; any other number is refused at the put, and counted.
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

fn le_bytes(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use barograph_stream::ingest::kind;

    use super::*;

    #[test]
    fn handles_hold_what_they_are_made_of() {
        let handle = thread::handle(7, kind::FLOAT, 0x0012_3456);
        assert_eq!(thread::generation_of(handle), 7);
        assert_eq!(thread::series_of(handle), 0x0012_3456);
        assert_eq!(ValueHandle::from_raw(handle).to_raw(), handle);
        // What was never handed out does nothing but count.
        ValueHandle::from_raw(handle).put_f64(1.0);
        ValueHandle::default().put_f64(1.0);
    }
}
