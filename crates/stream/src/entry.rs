//! The directory of a segment: its descriptors, parsed and checked.
//!
//! Another process wrote all of this data: a descriptor that breaks a rule of the format counts as
//! an absent stream.

use barograph_model::{
    Descriptor, Kind, Labels, Name, SeriesId, TEXT_BYTES_MAX, Unit, VALUE_BYTES_MAX, ValueType,
};

use crate::incarnation::Incarnation;
use crate::layout::{self, CELL_BYTES, DESCRIPTOR_BYTES, TEXT_SLOT_BYTES, descriptor as d};

/// The streams of a segment at one moment.
#[derive(Clone, Debug, Default)]
pub struct StreamDirectory {
    /// Version of the directory; compare with [`SegmentReader::directory_version`].
    pub version: u64,
    /// The streams, in slot order.
    pub entries: Vec<DirectoryEntry>,
}

/// One stream in a directory.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    /// Index of the stream's slot.
    pub slot: usize,
    /// Generation of the slot.
    pub generation: u16,
    /// Descriptor of the stream.
    pub descriptor: Descriptor,
    /// Identity of the series, as stored.
    pub series: SeriesId,
    /// Samples that the ring holds.
    pub depth: u32,
    /// The longest text, JSON, bytes or array of the stream, in bytes; 0 if its values are numbers.
    pub value_bytes_max: u32,
    /// Time of registration, ns since the epoch.
    pub created_ns: i64,
    /// The segment in which the entry was found: it has no meaning in another one.
    pub(crate) incarnation: Incarnation,
    pub(crate) ring_at: usize,
    pub(crate) text_at: usize,
    pub(crate) slots: ValueSlots,
}

/// The place of values that do not fit into a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueSlots {
    /// All values fit into a cell.
    None,
    /// Texts of at most [`TEXT_BYTES_MAX`] bytes, their length in the meta word.
    Short,
    /// Values of at most this many bytes, their length in the value word.
    Long(u32),
}

impl ValueSlots {
    /// The slots of a stream of this type whose values have at most `bytes_max` bytes (`None`: the
    /// default).
    pub(crate) fn of(value_type: ValueType, bytes_max: Option<u32>) -> Self {
        let most = VALUE_BYTES_MAX as u32;
        match (value_type, bytes_max) {
            (ValueType::Int | ValueType::Float | ValueType::Bool, _) => Self::None,
            (ValueType::Text, None) => Self::Short,
            (ValueType::Text, Some(bytes)) if bytes as usize <= TEXT_BYTES_MAX => Self::Short,
            (_, bytes) => {
                let bytes = bytes.unwrap_or(layout::VALUE_BYTES_DEFAULT);
                Self::Long(
                    bytes
                        .clamp(layout::SLOT_BYTES_MIN, most)
                        .next_power_of_two(),
                )
            }
        }
    }

    /// Bytes of each slot.
    pub(crate) fn slot_bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Short => TEXT_SLOT_BYTES as u32,
            Self::Long(bytes) => bytes,
        }
    }

    /// Bytes of the longest value.
    pub(crate) fn value_bytes_max(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Short => TEXT_BYTES_MAX as u32,
            Self::Long(bytes) => bytes,
        }
    }

    /// The fields of a descriptor: the type code and the size of the slots.
    pub(crate) fn encode(self, value_type: ValueType) -> (u8, u32) {
        match (self, value_type) {
            (Self::Long(bytes), ValueType::Text) => (layout::LONG_STRING, bytes),
            (Self::Long(bytes), _) => (value_type as u8, bytes),
            (Self::None | Self::Short, _) => (value_type as u8, 0),
        }
    }

    /// Reads the fields of a descriptor; `None` if they break a rule of the format.
    fn decode(code: u8, slot_bytes: u32, depth: u32) -> Option<(ValueType, Self)> {
        let value_type = match code {
            layout::LONG_STRING => ValueType::Text,
            code => ValueType::from_u8(code)?,
        };
        if value_type.is_number() {
            return Some((value_type, Self::None));
        }
        if code == ValueType::Text as u8 {
            return Some((value_type, Self::Short));
        }
        let sizes = layout::SLOT_BYTES_MIN..=VALUE_BYTES_MAX as u32;
        let all = (slot_bytes as usize).checked_mul(depth as usize)?;
        let right = sizes.contains(&slot_bytes)
            && slot_bytes.is_multiple_of(8)
            && all <= layout::SLOTS_BYTES_MAX;
        right.then_some((value_type, Self::Long(slot_bytes)))
    }
}

/// The longest value, in bytes, of a stream of this type for which an application declares
/// `bytes_max` (0: nothing), as [`Segment::register_sized`](crate::Segment::register_sized) sizes
/// it. 0 for numbers.
pub fn value_bytes_max(value_type: ValueType, bytes_max: u32) -> u32 {
    let declared = match bytes_max {
        0 => layout::VALUE_BYTES_DEFAULT,
        bytes => bytes,
    };
    ValueSlots::of(value_type, Some(declared)).value_bytes_max()
}

/// Bounds against which an entry is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryBounds {
    /// Offset at which rings begin.
    pub rings_at: usize,
    /// Offset at which the segment ends.
    pub segment_bytes: usize,
    /// The segment of the descriptor.
    pub incarnation: Incarnation,
}

impl DirectoryEntry {
    /// Parses the descriptor of a live stream; `None` if it is not live or breaks a rule of the
    /// format.
    pub(crate) fn parse(
        slot: usize,
        bytes: &[u8; DESCRIPTOR_BYTES],
        bounds: EntryBounds,
    ) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let text = |at: usize, length: usize| std::str::from_utf8(bytes.get(at..at + length)?).ok();
        let state = u64_at(d::STATE);
        let generation = u16::try_from(state >> 32).ok().filter(|&g| g != 0)?;
        if state as u32 != d::LIVE {
            return None;
        }
        let depth = u64_at(d::DEPTH) as u32;
        let [value_type, kind, name_bytes, unit_bytes] = bytes[d::DEPTH + 4..d::DEPTH + 8] else {
            return None;
        };
        let labels_bytes = usize::from(u16::from_le_bytes([
            bytes[d::LENGTHS],
            bytes[d::LENGTHS + 1],
        ]));
        let help_bytes = usize::from(bytes[d::LENGTHS + 3]);
        let slot_bytes = (u64_at(d::LENGTHS) >> 32) as u32;
        let (value_type, slots) = ValueSlots::decode(value_type, slot_bytes, depth)?;
        let (ring_at, text_at) = (u64_at(d::RING_AT), u64_at(d::TEXT_AT));
        let fits = |at: u64, each: usize| {
            let end = usize::try_from(at)
                .ok()?
                .checked_add((depth as usize).checked_mul(each)?)?;
            let inside = at >= bounds.rings_at as u64 && end <= bounds.segment_bytes;
            (inside && at.is_multiple_of(8)).then_some(())
        };
        fits(ring_at, CELL_BYTES)?;
        if slots != ValueSlots::None {
            fits(text_at, slots.slot_bytes() as usize)?;
        }
        if !(2..=layout::DEPTH_MAX).contains(&depth) || d::HELP + help_bytes > d::LABELS {
            return None;
        }
        let descriptor = Descriptor {
            name: Name::new(text(d::NAME, usize::from(name_bytes))?).ok()?,
            labels: parse_labels(bytes.get(d::LABELS..d::LABELS + labels_bytes)?)?,
            value_type,
            unit: Unit::new(text(d::UNIT, usize::from(unit_bytes))?).ok()?,
            kind: Kind::from_u8(kind)?,
            help: text(d::HELP, help_bytes)?.to_owned(),
        };
        let mut series = [0; 16];
        series.copy_from_slice(&bytes[d::SERIES_ID..d::SERIES_ID + 16]);
        Some(Self {
            slot,
            generation,
            descriptor,
            series: SeriesId(series),
            depth,
            value_bytes_max: slots.value_bytes_max(),
            created_ns: u64_at(d::CREATED_NS) as i64,
            incarnation: bounds.incarnation,
            ring_at: ring_at as usize,
            text_at: text_at as usize,
            slots,
        })
    }
}

fn parse_labels(mut bytes: &[u8]) -> Option<Labels> {
    let mut pairs = Vec::new();
    while let [name_bytes, value_bytes, rest @ ..] = bytes {
        let (name_bytes, value_bytes) = (usize::from(*name_bytes), usize::from(*value_bytes));
        let name = std::str::from_utf8(rest.get(..name_bytes)?).ok()?;
        let value = std::str::from_utf8(rest.get(name_bytes..name_bytes + value_bytes)?).ok()?;
        pairs.push((name, value));
        bytes = &rest[name_bytes + value_bytes..];
    }
    bytes.is_empty().then_some(())?;
    Labels::new(pairs).ok()
}
