//! What programs hold: the publisher, its publications, the handles of their values.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::{HELP_BYTES_MAX, Kind, Labels, Name, Unit, ValueType};
use barograph_stream::ingest::{Declaration, kind};
use barograph_stream::{Incarnation, RunDir};

use super::state::{self, LOST_WITHOUT_FILE, Pairs};
use super::{PublicationConfig, PublishConfig, PublishError, config, thread};

/// Labels that the agent adds itself.
const LABELS_OF_AGENT: &[&str] = &["user", "instance"];
/// What the agent may add to a stream's labels, at most: room is left for it.
const USER_EXAMPLE: &str = "4294967295";
const INSTANCE_EXAMPLE: &str = "65535";

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
        config::add_launcher_labels(&mut config.labels, &|name| std::env::var(name).ok());
        let checked = labels_of(&config.application, &config.labels, &[]);
        let opened = checked.and_then(|_| state::open(&config));
        let (generation, error) = match opened {
            Ok(generation) => (generation, None),
            Err(error) => (0, Some(error)),
        };
        Self {
            inner: Arc::new(Inner {
                generation,
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
        let mut labels = self.inner.labels();
        let mut changed = labels.clone();
        changed.retain(|(known, _)| known != name);
        changed.push((name.to_owned(), value.to_owned()));
        labels_of(&self.inner.application, &changed, &[])?;
        *labels = changed;
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
        let labels = inner.labels().clone();
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
            let index = state::lock().publication(
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
            producer.dropped() + producer.homeless() + without
        })
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
    fn labels(&self) -> MutexGuard<'_, Pairs> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.generation != 0 {
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

    /// Ends a frame: its number and all that this thread has put since its last one appear at once.
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
        thread::put_bytes(self.0, kind::TEXT, value.as_bytes());
    }

    /// Puts bytes, of a value that is declared as bytes.
    pub fn put_bytes(self, value: &[u8]) {
        thread::put_bytes(self.0, kind::BYTES, value);
    }

    /// Puts JSON, of a value that is declared as JSON (or as text); nobody checks here that it is, but the agent
    /// does.
    pub fn put_json(self, value: &str) {
        thread::put_bytes(self.0, kind::JSON, value.as_bytes());
    }

    /// Puts an array, of a value that is declared as floats.
    pub fn put_floats(self, values: &[f64]) {
        if self.is_enabled() {
            self.put_floats_le(&le_bytes(values));
        }
    }

    /// As [`Self::put_floats`], of floats as they lie in memory: little-endian, eight bytes each.
    pub fn put_floats_le(self, bytes: &[u8]) {
        thread::put_bytes(self.0, kind::FLOATS, bytes);
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

/// As [`Publication::value_of`], of a publication's number ([`Publication::to_raw`]).
pub fn value(
    publication: u64,
    name: &str,
    value_type: ValueType,
    unit: &str,
    kind: Kind,
    help: &str,
    bytes_max: u32,
) -> Result<ValueHandle, PublishError> {
    let named = if publication == 0 {
        // Disabled; what is said of its values is checked as far as it can be.
        "any".to_owned()
    } else {
        let (generation, index) = (
            thread::generation_of(publication),
            thread::series_of(publication),
        );
        state::lock().publication_name(generation, index)?
    };
    let of = Wanted {
        name,
        value_type,
        unit,
        kind,
        help,
        bytes_max,
    };
    declare_value(publication, &named, of)
}

/// A value as it is declared.
struct Wanted<'a> {
    name: &'a str,
    value_type: ValueType,
    unit: &'a str,
    kind: Kind,
    help: &'a str,
    bytes_max: u32,
}

fn declare_value(
    publication: u64,
    named: &str,
    wanted: Wanted<'_>,
) -> Result<ValueHandle, PublishError> {
    let Wanted {
        name,
        value_type,
        unit,
        kind,
        help,
        bytes_max,
    } = wanted;
    stream_name(named, name)?;
    Unit::new(unit)?;
    if name == "frame" {
        return Err(PublishError::Taken {
            name: format!("app.{named}.frame"),
            taken: "the stream of the publication's frames",
        });
    }
    if publication == 0 {
        return Ok(ValueHandle::default());
    }
    let generation = thread::generation_of(publication);
    let declaration = Declaration::Value {
        publication: thread::series_of(publication),
        name: name.to_owned(),
        value_type,
        kind,
        unit: unit.to_owned(),
        help: cut(help, HELP_BYTES_MAX).to_owned(),
        bytes_max: if value_type.is_number() { 0 } else { bytes_max },
    };
    let value = state::lock().value(generation, declaration)?;
    let handle = thread::handle(generation, value_type as u8, value);
    Ok(ValueHandle(handle))
}

/// The beginning of a text, of whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= bytes_max).last();
    &text[..end.unwrap_or(0)]
}

fn le_bytes(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// The stream that a value becomes.
fn stream_name(publication: &str, value: &str) -> Result<Name, PublishError> {
    // Each by itself first: a refused name is shown as it was given.
    Name::new(publication)?;
    let full = format!("app.{publication}.{value}");
    Name::new(full).map_err(|error| match Name::new(value) {
        Err(of_value) if !value.starts_with(|c: char| c.is_ascii_digit()) => of_value.into(),
        _ => error.into(),
    })
}

/// All labels that a stream will have, with room for the agent's.
fn labels_of(
    application: &str,
    labels: &[(String, String)],
    own: &[(String, String)],
) -> Result<Labels, PublishError> {
    let is_given = |name: &str| own.iter().any(|(n, _)| n == name);
    let beside = labels.iter().filter(|(name, _)| !is_given(name));
    let mut all: Pairs = beside.chain(own).cloned().collect();
    if let Some((name, _)) = all
        .iter()
        .find(|(n, _)| LABELS_OF_AGENT.contains(&n.as_str()))
    {
        return Err(PublishError::Taken {
            name: name.clone(),
            taken: "a label that the agent adds",
        });
    }
    if !all.iter().any(|(name, _)| name == "application") {
        all.push(("application".into(), application.into()));
    }
    all.push(("user".into(), USER_EXAMPLE.into()));
    all.push(("instance".into(), INSTANCE_EXAMPLE.into()));
    Ok(Labels::new(all)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs
            .iter()
            .map(|(n, v)| ((*n).into(), (*v).into()))
            .collect()
    }

    #[test]
    fn labels_are_checked_with_those_of_the_agent() {
        let fits = |labels: &[(&str, &str)], own: &[(&str, &str)]| {
            labels_of("app", &pairs(labels), &pairs(own)).is_ok()
        };
        let long = "x".repeat(240);
        let many: Vec<String> = (0..14).map(|n| format!("l{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "")).collect();
        assert!(fits(&[("rank", "1")], &[("phase", "solve")]));
        assert!(fits(&[("rank", "1")], &[("rank", "2")]));
        assert!(fits(&many[..13], &[]));
        assert!(!fits(&many, &[]));
        assert!(!fits(&[("a", &long), ("b", &long)], &[]));
        assert!(!fits(&[("user", "me")], &[]));
        assert!(!fits(&[], &[("instance", "1")]));
        assert!(!fits(&[("no good", "1")], &[]));
        assert!(!fits(&[("rank", "1"), ("rank", "2")], &[]));
    }

    #[test]
    fn names_are_those_of_streams() {
        for (publication, value, expect) in [
            ("lulesh", "residual", true),
            ("lulesh.step", "a.b_2", true),
            ("Lulesh", "residual", false),
            ("lulesh", "", false),
            ("", "residual", false),
            ("lulesh", "Residual", false),
            ("l", &"x".repeat(120), false),
        ] {
            let name = stream_name(publication, value);
            assert_eq!(name.is_ok(), expect, "{publication} {value}");
        }
    }

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
