//! Control events: what programs and agents tell each other about storage and about their own
//! control, such as `epoch.begun` or `io.starved`. The bytes of one as a sample of its stream has
//! them (`docs/reference/control-events.md`).
//!
//! The time of an event is that of its sample, and its labels are those of its stream. Records come
//! from other programs and nodes, so [`ControlEventRecord::read`] believes nothing. Writing needs
//! no memory but the caller's.

use thiserror::Error;

/// Name of the publication by whose frames a program publishes control events; the number of a
/// frame is the sequence of its event.
pub const CONTROL_EVENT_PUBLICATION: &str = "control.event";
/// Name of the value with the record of an event.
pub const CONTROL_EVENT_VALUE: &str = "record";
/// The stream of the events of a program.
pub const CONTROL_EVENT_STREAM_OF_PROGRAMS: &str = "app.control.event.record";
/// The stream of the events of an agent.
pub const CONTROL_EVENT_STREAM_OF_AGENTS: &str = "control.event.record";

/// Most bytes of the record of an event.
pub const CONTROL_EVENT_BYTES_MAX: usize = 1_024;
/// Most properties of an event.
pub const CONTROL_EVENT_PROPERTIES_MAX: usize = 16;
/// Most bytes of the kind of an event, and of the name of a property.
pub const CONTROL_EVENT_KIND_BYTES_MAX: usize = 64;

/// Version of the format.
const VERSION: u8 = 1;
/// Bytes before the texts: version, what is present, number of properties, process, thread, life,
/// sequence, value, confidence.
const HEAD: usize = 1 + 1 + 1 + 4 + 4 + 8 + 8 + 8 + 8;
/// The bit of a value that is present.
const HAS_VALUE: u8 = 1;

/// Whether a stream of this name has control events.
pub fn is_control_event_stream(name: &str) -> bool {
    name == CONTROL_EVENT_STREAM_OF_PROGRAMS || name == CONTROL_EVENT_STREAM_OF_AGENTS
}

/// The reason why something is no control event.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ControlEventFault {
    /// The record ends early, or goes on after its end.
    #[error("the record of the control event has another length")]
    Length,
    /// The record has another version.
    #[error("the record of the control event has version {0}, and this program reads version 1")]
    Version(u8),
    /// Bits or numbers of which nothing is known.
    #[error("the record of the control event has unknown fields")]
    Fields,
    /// A text is not UTF-8.
    #[error("a text of the control event is not UTF-8")]
    Text,
    /// The kind is empty, too long, or has other characters.
    #[error(
        "the kind of a control event is 1 to {CONTROL_EVENT_KIND_BYTES_MAX} letters, digits, '.', '_' and '-'"
    )]
    Kind,
    /// The confidence is no share.
    #[error("the confidence of a control event is 0 to 1")]
    Confidence,
    /// There are too many properties.
    #[error("a control event has {CONTROL_EVENT_PROPERTIES_MAX} properties at most")]
    Properties,
    /// The name of a property is empty, too long, or given twice.
    #[error(
        "names of properties are 1 to {CONTROL_EVENT_KIND_BYTES_MAX} bytes, and each is given once"
    )]
    PropertyName,
    /// Everything together is too long.
    #[error("a control event has {CONTROL_EVENT_BYTES_MAX} bytes at most, with all its texts")]
    Long,
}

/// A control event as its record has it, without copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlEventRecord<'a> {
    /// What has happened: `io.starved`.
    pub kind: &'a str,
    /// What it happened to: a volume, a server, a dataset. May be empty.
    pub subject: &'a str,
    /// A number that belongs to it; never NaN.
    pub value: Option<f64>,
    /// How sure its source is, 0 to 1.
    pub confidence: f64,
    /// The process that has published it, as it says.
    pub pid: u32,
    /// The number of the thread in that process, among those that publish events: from 0 on.
    pub thread: u32,
    /// A number for this life of the process, by which a later one is told from it.
    pub life: u64,
    /// Number of the event among those of its thread, from 1 on.
    pub sequence: u64,
    /// Further names and texts.
    pub properties: ControlProperties<'a>,
}

/// The properties of an event: names and texts, in the order in which they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlProperties<'a>(&'a [u8]);

impl<'a> ControlProperties<'a> {
    /// The names and texts.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        // They were checked when the record was read.
        let mut rest = Rest(self.0);
        std::iter::from_fn(move || Some((rest.text().ok()?, rest.text().ok()?)))
    }

    /// The text of a property.
    pub fn get(self, name: &str) -> Option<&'a str> {
        let mut all = self.iter();
        all.find(|(known, _)| *known == name).map(|(_, text)| text)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> ControlEventRecord<'a> {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// The bytes are no record of this version.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ControlEventFault> {
        if bytes.len() > CONTROL_EVENT_BYTES_MAX {
            return Err(ControlEventFault::Long);
        }
        let mut rest = Rest(bytes);
        let [version, present, properties_count] = rest.array()?;
        if version != VERSION {
            return Err(ControlEventFault::Version(version));
        }
        if present & !HAS_VALUE != 0 {
            return Err(ControlEventFault::Fields);
        }
        let pid = u32::from_le_bytes(rest.array()?);
        let thread = u32::from_le_bytes(rest.array()?);
        let life = u64::from_le_bytes(rest.array()?);
        let sequence = u64::from_le_bytes(rest.array()?);
        let value = f64::from_le_bytes(rest.array()?);
        let confidence = f64::from_le_bytes(rest.array()?);
        let kind = rest.text()?;
        check_kind(kind)?;
        if !(0.0..=1.0).contains(&confidence) {
            return Err(ControlEventFault::Confidence);
        }
        let has_value = present & HAS_VALUE != 0;
        if has_value && value.is_nan() {
            return Err(ControlEventFault::Fields);
        }
        let subject = rest.text()?;
        let properties = ControlProperties(rest.0);
        if usize::from(properties_count) > CONTROL_EVENT_PROPERTIES_MAX {
            return Err(ControlEventFault::Properties);
        }
        for _ in 0..properties_count {
            check_property_name(rest.text()?)?;
            rest.text()?;
        }
        if !rest.0.is_empty() {
            return Err(ControlEventFault::Length);
        }
        Ok(Self {
            kind,
            subject,
            value: has_value.then_some(value),
            confidence,
            pid,
            thread,
            life,
            sequence,
            properties,
        })
    }
}

/// What a source says of an event.
#[derive(Clone, Copy, Debug)]
pub struct ControlEventContent<'a> {
    /// What has happened: letters, digits, `.`, `_` and `-`.
    pub kind: &'a str,
    /// What it happened to; may be empty.
    pub subject: &'a str,
    /// A number that belongs to it; NaN is none.
    pub value: Option<f64>,
    /// How sure the source is, 0 to 1.
    pub confidence: f64,
    /// Names and texts; each name once.
    pub properties: &'a [(&'a str, &'a str)],
}

/// The source of an event, and its place among the source's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlEventSource {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub thread: u32,
    /// The life of the process.
    pub life: u64,
    /// Number of the event among those of its thread.
    pub sequence: u64,
}

impl ControlEventContent<'_> {
    /// Whether an event can be like this.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn check(&self) -> Result<(), ControlEventFault> {
        check_kind(self.kind)?;
        if !(0.0..=1.0).contains(&self.confidence) {
            return Err(ControlEventFault::Confidence);
        }
        if self.properties.len() > CONTROL_EVENT_PROPERTIES_MAX {
            return Err(ControlEventFault::Properties);
        }
        for (at, (name, _)) in self.properties.iter().enumerate() {
            check_property_name(name)?;
            if self.properties[..at].iter().any(|(known, _)| known == name) {
                return Err(ControlEventFault::PropertyName);
            }
        }
        let texts = self.properties.iter();
        let texts = texts.map(|(name, text)| 4 + name.len() + text.len());
        let bytes = HEAD + 4 + self.kind.len() + self.subject.len() + texts.sum::<usize>();
        match bytes <= CONTROL_EVENT_BYTES_MAX {
            true => Ok(()),
            false => Err(ControlEventFault::Long),
        }
    }

    /// Writes the record of the event into `to`; returns its length.
    ///
    /// # Errors
    ///
    /// There can be no such event; see [`Self::check`].
    pub fn write(
        &self,
        source: ControlEventSource,
        to: &mut [u8; CONTROL_EVENT_BYTES_MAX],
    ) -> Result<usize, ControlEventFault> {
        self.check()?;
        let value = self.value.filter(|value| !value.is_nan());
        let present = if value.is_some() { HAS_VALUE } else { 0 };
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            to[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&[VERSION, present, self.properties.len() as u8]);
        put(&source.pid.to_le_bytes());
        put(&source.thread.to_le_bytes());
        put(&source.life.to_le_bytes());
        put(&source.sequence.to_le_bytes());
        put(&value.unwrap_or(0.0).to_le_bytes());
        put(&self.confidence.to_le_bytes());
        let properties = self.properties.iter().flat_map(|(name, text)| [name, text]);
        for text in [&self.kind, &self.subject].into_iter().chain(properties) {
            // The record is shorter than this number can be.
            put(&(text.len() as u16).to_le_bytes());
            put(text.as_bytes());
        }
        Ok(at)
    }
}

fn check_kind(kind: &str) -> Result<(), ControlEventFault> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_kind = (1..=CONTROL_EVENT_KIND_BYTES_MAX).contains(&kind.len());
    match is_kind && kind.bytes().all(is_known) {
        true => Ok(()),
        false => Err(ControlEventFault::Kind),
    }
}

fn check_property_name(name: &str) -> Result<(), ControlEventFault> {
    match (1..=CONTROL_EVENT_KIND_BYTES_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(ControlEventFault::PropertyName),
    }
}

/// The bytes that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ControlEventFault> {
        let split = self.0.split_first_chunk();
        let (taken, rest) = split.ok_or(ControlEventFault::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn text(&mut self) -> Result<&'a str, ControlEventFault> {
        let length = u16::from_le_bytes(self.array()?);
        let split = self.0.split_at_checked(length.into());
        let (taken, rest) = split.ok_or(ControlEventFault::Length)?;
        self.0 = rest;
        std::str::from_utf8(taken).map_err(|_| ControlEventFault::Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: ControlEventSource = ControlEventSource {
        pid: 7,
        thread: 1,
        life: 0x1234_5678_9abc_def0,
        sequence: 42,
    };

    fn content<'a>(kind: &'a str, properties: &'a [(&'a str, &'a str)]) -> ControlEventContent<'a> {
        ControlEventContent {
            kind,
            subject: "/scratch",
            value: Some(1.5),
            confidence: 0.75,
            properties,
        }
    }

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
        let properties = [("policy", "set10_least_left"), ("é", "")];
        let content = content("io.starved", &properties);
        let length = content.write(SOURCE, &mut bytes).unwrap();
        let read = ControlEventRecord::read(&bytes[..length]).unwrap();
        assert_eq!((read.kind, read.subject), ("io.starved", "/scratch"));
        assert_eq!((read.value, read.confidence), (Some(1.5), 0.75));
        assert_eq!((read.pid, read.thread), (7, 1));
        assert_eq!((read.life, read.sequence), (SOURCE.life, 42));
        assert_eq!(read.properties.iter().collect::<Vec<_>>(), properties);
        assert_eq!(read.properties.get("é"), Some(""));
        assert_eq!(read.properties.get("policies"), None);
        // Every beginning of it is none, and neither is it with something after it.
        for shorter in 0..length {
            let read = ControlEventRecord::read(&bytes[..shorter]);
            assert_eq!(read, Err(ControlEventFault::Length), "{shorter}");
        }
        assert!(ControlEventRecord::read(&bytes[..length + 1]).is_err());
    }

    #[test]
    fn what_can_be_no_event_is_refused() {
        use ControlEventFault as F;
        let many: Vec<String> = (0..17).map(|n| format!("p{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
        let long = "x".repeat(CONTROL_EVENT_BYTES_MAX);
        let check = |content: ControlEventContent<'_>, expect: Result<(), F>| {
            let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
            let written = content.write(SOURCE, &mut bytes);
            assert_eq!(written.map(drop), expect, "{content:?}");
        };
        check(content("a", &[]), Ok(()));
        check(content("", &[]), Err(F::Kind));
        check(content("a b", &[]), Err(F::Kind));
        check(content(&long[..64], &[]), Ok(()));
        check(content(&long[..65], &[]), Err(F::Kind));
        check(content("a", &many[..16]), Ok(()));
        check(content("a", &many), Err(F::Properties));
        check(content("a", &[("", "x")]), Err(F::PropertyName));
        check(
            content("a", &[("x", "1"), ("x", "2")]),
            Err(F::PropertyName),
        );
        check(content("a", &[("x", &long)]), Err(F::Long));
        for confidence in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let doubtful = ControlEventContent {
                confidence,
                ..content("a", &[])
            };
            check(doubtful, Err(F::Confidence));
        }
        // The longest one fits exactly.
        let room = CONTROL_EVENT_BYTES_MAX - HEAD - 4 - 1 - "/scratch".len() - 4 - 1;
        check(content("a", &[("x", &long[..room])]), Ok(()));
        check(content("a", &[("x", &long[..room + 1])]), Err(F::Long));
    }

    #[test]
    fn a_number_that_is_none_is_left_out() {
        let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
        let content = ControlEventContent {
            value: Some(f64::NAN),
            ..content("a", &[])
        };
        let length = content.write(SOURCE, &mut bytes).unwrap();
        let read = ControlEventRecord::read(&bytes[..length]).unwrap();
        assert_eq!(read.value, None);
        // One that says that it has such a number is none of ours.
        bytes[1] = HAS_VALUE;
        bytes[27..35].copy_from_slice(&f64::NAN.to_le_bytes());
        let read = ControlEventRecord::read(&bytes[..length]);
        assert_eq!(read, Err(ControlEventFault::Fields));
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_an_event_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..1_200)) {
            if let Ok(record) = ControlEventRecord::read(&bytes) {
                prop_assert!(record.properties.iter().count() <= CONTROL_EVENT_PROPERTIES_MAX);
            }
        }

        #[test]
        fn damaged_records_are_an_event_or_a_fault(at in 0_usize..80, byte: u8, cut in 0_usize..80) {
            let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
            let length = content("io.late", &[("a", "b")]).write(SOURCE, &mut bytes).unwrap();
            bytes[at.min(length - 1)] = byte;
            if let Ok(record) = ControlEventRecord::read(&bytes[..length - cut.min(length)]) {
                prop_assert!((0.0..=1.0).contains(&record.confidence));
                for (name, _) in record.properties.iter() {
                    prop_assert!(!name.is_empty());
                }
            }
        }
    }
}
