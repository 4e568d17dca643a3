//! Declarations: an application's description of itself, its publications and its values, written
//! once.
//!
//! A declaration is a length (u32), a kind (u32) and fields; texts are preceded by their length
//! (u16). Readers skip kinds that they do not know. A publication or value with invalid fields is
//! passed on without a name: records refer to values by the number of values declared before, so it
//! has to count.

use barograph_model::{Kind, ValueType};

/// Longest declaration, in bytes.
pub const DECLARATION_BYTES_MAX: usize = 16 << 10;
/// Bytes of the length and the kind.
pub(super) const PREFIX_BYTES: usize = 8;

const PROCESS: u32 = 1;
const PUBLICATION: u32 = 2;
const VALUE: u32 = 3;
const TRIGGER: u32 = 4;
const KNOB: u32 = 5;
const CELL: u32 = 6;

/// The users who may read a publication, beside the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PublicationReaders {
    /// The user who owns the process.
    #[default]
    Owner = 0,
    /// The group of that user.
    Group = 1,
    /// Everyone on the node.
    All = 2,
}

/// The effect of a put into a full ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OverflowPolicy {
    /// The oldest values are overwritten, and the reader counts them as lost.
    #[default]
    DropOldest = 0,
    /// The put waits, within a bound and while an agent lives; then the value is dropped and
    /// counted.
    Block = 1,
}

/// The way in which the agent turns a cell into values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CellUse {
    /// The value of the cell, which starts at 0.
    Sum = 0,
    /// The value of the cell, which is then reset to 0.
    Maximum = 1,
    /// The value of the cell, which has no fixed start.
    State = 2,
    /// No value: the cell holds the nanoseconds between the creation of the file and the last
    /// change of its neighbours.
    Clock = 3,
}

/// One declaration of an application.
#[derive(Clone, Debug, PartialEq)]
pub enum IngestDeclaration {
    /// Data about the whole process; the newest one counts.
    Process {
        /// Name of the application.
        application: String,
        /// Labels of all streams of the process.
        labels: Vec<(String, String)>,
    },
    /// A publication; its index is the number of publications declared before.
    Publication {
        /// Dotted name, as in stream names. Empty if the declaration was not valid.
        name: String,
        /// The users who may read it.
        readers: PublicationReaders,
        /// Labels of its streams, beside those of the process.
        labels: Vec<(String, String)>,
    },
    /// A value; its index is the number of values declared before.
    Value {
        /// Index of its publication.
        publication: u32,
        /// Dotted name, as in stream names. Empty if the declaration was not valid.
        name: String,
        /// Type of the values.
        value_type: ValueType,
        /// Meaning of the values over time.
        kind: Kind,
        /// Unit of the values.
        unit: String,
        /// One sentence for people.
        help: String,
        /// The longest text, byte string, JSON or array, in bytes; 0 stands for 4,096. Not used for
        /// numbers.
        bytes_max: u32,
    },
    /// A trigger that the process handles from now on.
    Trigger {
        /// Index of the publication to which it belongs; `u32::MAX` for the process itself.
        publication: u32,
        /// Dotted name, as in stream names.
        name: String,
        /// One sentence for people.
        help: String,
    },
    /// A value that may be set from outside.
    Knob {
        /// Index of the value.
        value: u32,
        /// The smallest value that may be set; a whole number for an integer, 0 for a bool.
        min: f64,
        /// The largest value that may be set; a whole number for an integer, 1 for a bool.
        max: f64,
    },
    /// A value that the agent reads from a cell; no records are put for it.
    Cell {
        /// Index of the value; `u32::MAX` for a clock.
        value: u32,
        /// Number of the cell.
        cell: u32,
        /// Factor by which the cell is multiplied for a float64. An int64 is the cell unchanged.
        scale: f64,
        /// The way in which the agent turns the cell into values.
        used_as: CellUse,
    },
}

impl IngestDeclaration {
    /// Encodes the declaration, with length and kind. `None` if it does not fit: a text is longer
    /// than 65,535 bytes (texts are not cut), or the whole longer than [`DECLARATION_BYTES_MAX`].
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Writer(vec![0; PREFIX_BYTES]);
        let kind = self.write(&mut out)?;
        let mut bytes = out.0;
        bytes.resize(bytes.len().next_multiple_of(PREFIX_BYTES), 0);
        let length = u32::try_from(bytes.len()).ok()?;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..8].copy_from_slice(&kind.to_le_bytes());
        (bytes.len() <= DECLARATION_BYTES_MAX).then_some(bytes)
    }

    /// Writes the fields; returns the number of the kind.
    fn write(&self, out: &mut Writer) -> Option<u32> {
        Some(match self {
            Self::Process {
                application,
                labels,
            } => {
                out.text(application)?;
                out.labels(labels)?;
                PROCESS
            }
            Self::Publication {
                name,
                readers,
                labels,
            } => {
                out.0.push(*readers as u8);
                out.text(name)?;
                out.labels(labels)?;
                PUBLICATION
            }
            Self::Value {
                publication,
                name,
                value_type,
                kind,
                unit,
                help,
                bytes_max,
            } => {
                out.0.extend(publication.to_le_bytes());
                out.0.extend([*value_type as u8, *kind as u8]);
                out.text(name)?;
                out.text(unit)?;
                out.text(help)?;
                // Since 1.1, and only if it is not 0: the padding has the same meaning as 0.
                if *bytes_max > 0 {
                    out.0.extend(bytes_max.to_le_bytes());
                }
                VALUE
            }
            Self::Trigger {
                publication,
                name,
                help,
            } => {
                out.0.extend(publication.to_le_bytes());
                out.text(name)?;
                out.text(help)?;
                TRIGGER
            }
            Self::Knob { value, min, max } => {
                out.0.extend(value.to_le_bytes());
                out.0.extend(min.to_le_bytes());
                out.0.extend(max.to_le_bytes());
                KNOB
            }
            Self::Cell {
                value,
                cell,
                scale,
                used_as,
            } => {
                out.0.extend(value.to_le_bytes());
                out.0.extend(cell.to_le_bytes());
                out.0.extend(scale.to_le_bytes());
                out.0.push(*used_as as u8);
                CELL
            }
        })
    }

    /// Decodes the first declaration of foreign bytes, and returns its length. `Ok((None, …))` for
    /// an unknown kind.
    ///
    /// # Errors
    /// If nothing after this declaration can be read.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Option<Self>, usize), &'static str> {
        let mut input = Reader(bytes);
        let length = input.u32().ok_or("a declaration has no length")? as usize;
        if !(PREFIX_BYTES..=DECLARATION_BYTES_MAX).contains(&length)
            || !length.is_multiple_of(PREFIX_BYTES)
        {
            return Err("the length of a declaration is impossible");
        }
        let body = bytes
            .get(4..length)
            .ok_or("a declaration is longer than what is declared")?;
        let declared = Self::decode_body(&mut Reader(body)).or_else(|| Self::nameless(body));
        Ok((declared, length))
    }

    /// The replacement for a publication or value that is not valid.
    fn nameless(body: &[u8]) -> Option<Self> {
        match Reader(body).u32()? {
            PUBLICATION => Some(Self::Publication {
                name: String::new(),
                readers: PublicationReaders::Owner,
                labels: Vec::new(),
            }),
            VALUE => Some(Self::Value {
                publication: u32::MAX,
                name: String::new(),
                value_type: ValueType::Int,
                kind: Kind::Gauge,
                unit: String::new(),
                help: String::new(),
                bytes_max: 0,
            }),
            _ => None,
        }
    }

    fn decode_body(input: &mut Reader<'_>) -> Option<Self> {
        match input.u32()? {
            PROCESS => Some(Self::Process {
                application: input.text()?,
                labels: input.labels()?,
            }),
            PUBLICATION => Some(Self::Publication {
                readers: match input.u8()? {
                    0 => PublicationReaders::Owner,
                    1 => PublicationReaders::Group,
                    2 => PublicationReaders::All,
                    _ => return None,
                },
                name: input.text()?,
                labels: input.labels()?,
            }),
            VALUE => Some(Self::Value {
                publication: input.u32()?,
                value_type: ValueType::from_u8(input.u8()?)?,
                kind: Kind::from_u8(input.u8()?)?,
                name: input.text()?,
                unit: input.text()?,
                help: input.text()?,
                bytes_max: input.u32().unwrap_or(0),
            }),
            TRIGGER => Some(Self::Trigger {
                publication: input.u32()?,
                name: input.text()?,
                help: input.text()?,
            }),
            KNOB => Some(Self::Knob {
                value: input.u32()?,
                min: input.f64()?,
                max: input.f64()?,
            }),
            CELL => Some(Self::Cell {
                value: input.u32()?,
                cell: input.u32()?,
                scale: input.f64()?,
                used_as: match input.u8()? {
                    0 => CellUse::Sum,
                    1 => CellUse::Maximum,
                    2 => CellUse::State,
                    3 => CellUse::Clock,
                    _ => return None,
                },
            }),
            _ => None,
        }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn text(&mut self, text: &str) -> Option<()> {
        let length = u16::try_from(text.len()).ok()?;
        self.0.extend(length.to_le_bytes());
        self.0.extend(text.as_bytes());
        Some(())
    }

    fn labels(&mut self, labels: &[(String, String)]) -> Option<()> {
        self.0
            .extend(u16::try_from(labels.len()).ok()?.to_le_bytes());
        labels.iter().try_for_each(|(name, value)| {
            self.text(name)?;
            self.text(value)
        })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn f64(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = self.u16()?;
        let bytes = self.take(length.into())?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    fn labels(&mut self) -> Option<Vec<(String, String)>> {
        // No memory is reserved by a foreign number.
        let mut labels = Vec::new();
        for _ in 0..self.u16()? {
            labels.push((self.text()?, self.text()?));
        }
        Some(labels)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn examples() -> Vec<IngestDeclaration> {
        let labels = vec![("rank".to_owned(), "3".to_owned())];
        vec![
            IngestDeclaration::Process {
                application: "lulesh".into(),
                labels: labels.clone(),
            },
            IngestDeclaration::Publication {
                name: "lulesh.step".into(),
                readers: PublicationReaders::Group,
                labels,
            },
            IngestDeclaration::Value {
                publication: 7,
                name: "residual".into(),
                value_type: ValueType::Float,
                kind: Kind::Gauge,
                unit: "1".into(),
                help: "how far from the solution é".into(),
                bytes_max: 0,
            },
            IngestDeclaration::Value {
                publication: 7,
                name: "mesh".into(),
                value_type: ValueType::Floats,
                kind: Kind::State,
                unit: "m".into(),
                help: "seven".into(),
                bytes_max: 65_536,
            },
            IngestDeclaration::Trigger {
                publication: u32::MAX,
                name: "checkpoint".into(),
                help: "writes a checkpoint now".into(),
            },
            IngestDeclaration::Knob {
                value: 3,
                min: -0.5,
                max: f64::INFINITY,
            },
            IngestDeclaration::Cell {
                value: 7,
                cell: 191,
                scale: 1e-9,
                used_as: CellUse::Maximum,
            },
        ]
    }

    #[test]
    fn declarations_round_trip() {
        for declared in examples() {
            let bytes = declared.encode().unwrap();
            assert_eq!(
                IngestDeclaration::decode(&bytes),
                Ok((Some(declared), bytes.len()))
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = |length: usize| IngestDeclaration::Process {
            application: "x".repeat(length),
            labels: Vec::new(),
        };
        assert!(long(DECLARATION_BYTES_MAX).encode().is_none());
        assert!(long(1 << 17).encode().is_none());
        assert!(long(1_000).encode().is_some());
    }

    #[test]
    fn a_kind_of_later_is_skipped() {
        let mut bytes = examples()[0].encode().unwrap();
        bytes[4] = 99;
        assert_eq!(IngestDeclaration::decode(&bytes), Ok((None, bytes.len())));
    }

    #[test]
    fn what_cannot_be_read_keeps_its_index() {
        for declared in &examples()[1..3] {
            let mut bytes = declared.encode().unwrap();
            bytes[8..].fill(0xff);
            let (found, length) = IngestDeclaration::decode(&bytes).unwrap();
            assert_eq!(length, bytes.len());
            match found.unwrap() {
                IngestDeclaration::Publication { name, .. }
                | IngestDeclaration::Value { name, .. } => {
                    assert_eq!(name, "");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = IngestDeclaration::decode(&bytes);
        }

        #[test]
        fn damaged_declarations_never_panic(at in 0usize..60, value: u8, which in 0usize..7) {
            let mut bytes = examples()[which].encode().unwrap();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            if let Ok((_, length)) = IngestDeclaration::decode(&bytes) {
                prop_assert!(length > 0 && length <= bytes.len());
            }
        }
    }
}
