//! The descriptor of a stream: its name, labels, type, unit and kind, and the identity made of
//! them.
//!
//! The limits below are those of the segment format (`docs/reference/segment-format.md`): a
//! descriptor that passes here fits there.

use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::ValueType;

/// Longest stream name, in bytes.
pub const NAME_BYTES_MAX: usize = 120;
/// Longest unit, in bytes.
pub const UNIT_BYTES_MAX: usize = 30;
/// Most labels of one stream.
pub const LABELS_MAX: usize = 16;
/// Longest encoded label set, in bytes: each pair takes its two texts and two length bytes more.
pub const LABELS_BYTES_MAX: usize = 510;
/// Longest help text, in bytes; longer ones are cut.
pub const HELP_BYTES_MAX: usize = 222;

/// A name, label, unit, pattern, time or level that breaks the rules.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ModelError {
    /// A stream name outside the grammar.
    #[error(
        "stream name {name:?} is not lower-case words of letters, digits and _ joined by dots, \
         at most {NAME_BYTES_MAX} bytes (like disk.read.bytes)"
    )]
    Name {
        /// The refused text.
        name: String,
    },
    /// A label name outside the grammar.
    #[error("label name {name:?} is not letters, digits and _ starting with a letter")]
    LabelName {
        /// The refused text.
        name: String,
    },
    /// A label that is given twice.
    #[error("label {name:?} is given twice")]
    LabelTwice {
        /// The name of the label.
        name: String,
    },
    /// Too many or too long labels.
    #[error(
        "the labels {labels} are too large: at most {LABELS_MAX} of them, {LABELS_BYTES_MAX} bytes together"
    )]
    LabelsTooLarge {
        /// The refused labels as text.
        labels: String,
    },
    /// A unit that is too long.
    #[error("unit {unit:?} is longer than {UNIT_BYTES_MAX} bytes")]
    Unit {
        /// The refused text.
        unit: String,
    },
    /// A pattern that cannot be read.
    #[error("pattern {pattern:?}: {reason} (try disk.* or disk.read.bytes{{device=vda}})")]
    Pattern {
        /// The refused text.
        pattern: String,
        /// The fault of the text.
        reason: String,
    },
    /// A length of time that cannot be read.
    #[error(
        "{text:?} is not a length of time: give nanoseconds, or a number with ns, us, ms, s, min, h or d (like 10s)"
    )]
    Duration {
        /// The refused text.
        text: String,
    },
    /// A level that cannot be read.
    #[error(
        "{text:?} is not a level: give a number in the stream's unit, with k, MB, GiB, ms and the like if wanted, or a share (like 90 %)"
    )]
    Level {
        /// The refused text.
        text: String,
    },
    /// An instant that cannot be read.
    #[error(
        "{text:?} is not a time: give nanoseconds since the epoch, RFC 3339 (like 2026-11-20T08:00:00Z), how long ago (like -1h) or now"
    )]
    Instant {
        /// The refused text.
        text: String,
    },
}

/// A dotted stream name, unit last: `disk.read.bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Checks the grammar: words of `[a-z0-9_]`, the first of which starts with a letter, joined by
    /// single dots; at most [`NAME_BYTES_MAX`] bytes.
    pub fn new(name: impl Into<String>) -> Result<Self, ModelError> {
        let name = name.into();
        let word_ok = |w: &str| {
            !w.is_empty()
                && w.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        let starts_ok = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        if name.len() > NAME_BYTES_MAX || !starts_ok || !name.split('.').all(word_ok) {
            return Err(ModelError::Name { name });
        }
        Ok(Self(name))
    }

    /// The dotted text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The SQL table of this metric: dots become underscores.
    pub fn table(&self) -> String {
        table_name(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first part of the name that a stream has among those of all nodes of a cluster:
/// `cluster.disk.busy.ratio` stands for the streams `disk.busy.ratio` of all nodes.
pub const CLUSTER_PREFIX: &str = "cluster.";
/// The label that then has the name of the stream's node.
pub const CLUSTER_NODE_LABEL: &str = "node";

/// The SQL table of a dotted name: dots become underscores.
pub fn table_name(dotted: &str) -> String {
    dotted.replace('.', "_")
}

/// A sorted set of `name=value` pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// Returns an empty set.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Checks names and sizes, and sorts by name. Values are any UTF-8; the caller must have
    /// escaped bytes that are not UTF-8.
    pub fn new<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ModelError> {
        let mut pairs: Vec<(String, String)> = pairs
            .into_iter()
            .map(|(n, v)| (n.into(), v.into()))
            .collect();
        pairs.sort();
        for (name, _) in &pairs {
            let starts_ok = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
            if !starts_ok || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(ModelError::LabelName { name: name.clone() });
            }
        }
        if let Some(twice) = pairs.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(ModelError::LabelTwice {
                name: twice[0].0.clone(),
            });
        }
        let labels = Self(pairs);
        let too_long = labels.0.iter().any(|(n, v)| n.len() > 255 || v.len() > 255);
        let encoded: usize = labels.0.iter().map(|(n, v)| n.len() + v.len() + 2).sum();
        if labels.0.len() > LABELS_MAX || encoded > LABELS_BYTES_MAX || too_long {
            return Err(ModelError::LabelsTooLarge {
                labels: labels.to_string(),
            });
        }
        Ok(labels)
    }

    /// The value of the label `name`; `None` if there is no such label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// The pairs of label name and value, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Formats as `{device=vda,node=a}`, or as nothing when empty.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str("{")?;
        for (i, (name, value)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}={value}")?;
        }
        f.write_str("}")
    }
}

/// A unit in plain words: `bytes`, `bytes/s`, `ratio`, `seconds`…
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit(String);

impl Unit {
    /// Checks the length: at most [`UNIT_BYTES_MAX`] bytes.
    pub fn new(unit: impl Into<String>) -> Result<Self, ModelError> {
        let unit = unit.into();
        if unit.len() > UNIT_BYTES_MAX {
            return Err(ModelError::Unit { unit });
        }
        Ok(Self(unit))
    }

    /// The unit's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The meaning of a stream's numbers over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge = 1,
    /// A cumulative value: it only grows, until its source restarts.
    Counter = 2,
    /// One of a few states, or an attribute.
    State = 3,
}

impl Kind {
    /// The kind with this number in the segment format; `None` if there is none.
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Gauge,
            2 => Self::Counter,
            3 => Self::State,
            _ => return None,
        })
    }

    /// The kind as text: `gauge`, `counter` or `state`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::State => "state",
        }
    }
}

/// The identity of a series, computed from its content: the same on every node and after every
/// restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(pub [u8; 16]);

impl fmt::Display for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The fixed properties of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Dotted name.
    pub name: Name,
    /// Labels, sorted by name.
    pub labels: Labels,
    /// Type of the stream's values.
    pub value_type: ValueType,
    /// Unit of the stream's values.
    pub unit: Unit,
    /// Meaning of the values over time: gauge, counter or state.
    pub kind: Kind,
    /// One sentence for people; not part of the identity.
    pub help: String,
}

impl Descriptor {
    /// A gauge without labels and help.
    pub fn gauge(name: Name, value_type: ValueType, unit: Unit) -> Self {
        Self {
            name,
            labels: Labels::none(),
            value_type,
            unit,
            kind: Kind::Gauge,
            help: String::new(),
        }
    }

    /// The identity: the first 16 bytes of SHA-256 over name, type, unit and labels, each text
    /// preceded by its length as one little-endian u32.
    pub fn series_id(&self) -> SeriesId {
        let mut hash = Sha256::new();
        let mut text = |t: &str| {
            hash.update((t.len() as u32).to_le_bytes());
            hash.update(t.as_bytes());
        };
        text(self.name.as_str());
        text(self.value_type.as_str());
        text(self.unit.as_str());
        for (name, value) in self.labels.iter() {
            text(name);
            text(value);
        }
        let digest = hash.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        SeriesId(id)
    }
}

/// Formats as `disk.read.bytes{device=vda}`.
impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in [
            "up",
            "disk.read.bytes",
            "pressure.io.some.ratio",
            "a1.b_2.3c",
        ] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in [
            "", ".", "a.", ".a", "a..b", "Disk", "1a", "_a", "a b", "a-b", "é", &long,
        ] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
        assert_eq!(
            Name::new("disk.read.bytes").unwrap().table(),
            "disk_read_bytes"
        );
    }

    #[test]
    fn labels_sort_and_refuse() {
        let labels = Labels::new([("b", "2"), ("a", "1")]).unwrap();
        assert_eq!(labels.to_string(), "{a=1,b=2}");
        assert_eq!(labels.get("b"), Some("2"));
        assert!(Labels::new([("a", "1"), ("a", "2")]).is_err());
        assert!(Labels::new([("", "1")]).is_err());
        assert!(Labels::new([("a", "x".repeat(256))]).is_err());
        assert!(Labels::new((0..17).map(|i| (format!("l{i}"), "v"))).is_err());
    }

    #[test]
    fn identity_is_content() {
        let make = |device: &str, help: &str| Descriptor {
            name: Name::new("disk.read.bytes").unwrap(),
            labels: Labels::new([("device", device)]).unwrap(),
            value_type: ValueType::Int,
            unit: Unit::new("bytes").unwrap(),
            kind: Kind::Counter,
            help: help.into(),
        };
        assert_eq!(make("vda", "x").series_id(), make("vda", "y").series_id());
        assert_ne!(make("vda", "x").series_id(), make("vdb", "x").series_id());
        // Frozen: archives and other nodes store these ids.
        assert_eq!(make("vda", "").series_id().to_string(), FROZEN_ID);
    }

    const FROZEN_ID: &str = "f9ef9c592a31a22c7b4e450a0995d509";
}
