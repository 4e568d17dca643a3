//! A call, and its encoding in a slot. The decoder checks every field, since the bytes are foreign.

use super::CallTarget;
use super::layout::{NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, SLOT_WORDS, TARGET_BYTES_MAX, slot};
use crate::Incarnation;

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallKind {
    /// Runs a program's handler.
    Trigger = 1,
    /// Sets a variable of a program.
    Knob = 2,
}

/// The payload of a call: the payload of a trigger, the value of a knob. The numbers of the types
/// are those of values in ingest files.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum CallPayload {
    /// No payload.
    #[default]
    None,
    /// A 64-bit signed integer.
    Int(i64),
    /// A 64-bit IEEE 754 number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// UTF-8 text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// JSON, as text; it has not been checked.
    Json(String),
    /// An array of 64-bit IEEE 754 numbers.
    Floats(Vec<f64>),
}

/// The answer of a program to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AckStatus {
    /// The call was handled, or the knob was set.
    Done = 0,
    /// The handler failed.
    Failed = 1,
    /// The value was out of bounds or of the wrong type.
    Refused = 2,
    /// The call expired before it was handled.
    Expired = 3,
    /// The frame at which the setting was to apply had ended before the process received it: the
    /// knob is unchanged.
    Late = 4,
}

/// A trigger that is fired, or a knob that is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Number of the call in the file of its user, from 1; never reused. The writer assigns it.
    pub id: u64,
    /// Time at which the call was fired, in ns since the epoch.
    pub issued_ns: i64,
    /// Time from which the call is no longer to be handled, in ns since the epoch.
    pub expires_ns: i64,
    /// Effect of the call.
    pub kind: CallKind,
    /// Name of the trigger, or name of the knob with that of its publication: `publication.knob`.
    pub name: String,
    /// The processes that are to handle the call.
    pub target: CallTarget,
    /// Payload of the trigger, or value of the knob.
    pub payload: CallPayload,
    /// For a knob, the number of the setting: a later setting has a larger number.
    pub version: u64,
    /// For a knob, the number of its publication's frame at whose end the setting applies; `None`:
    /// at once.
    pub at_frame: Option<u64>,
}

/// The kind, in a slot, of a knob's setting that applies at a frame. It differs from that of a
/// knob, so that a program of format 1.0, which does not know of frames, skips the call and does
/// not apply it at once.
const KNOB_AT_FRAME: u8 = 3;

impl CallKind {
    /// The kind with this number; `None` if there is none.
    pub fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Trigger),
            2 => Some(Self::Knob),
            _ => None,
        }
    }

    /// The kind as text: `trigger` or `knob`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Knob => "knob",
        }
    }
}

impl AckStatus {
    /// The status with this number; `None` if there is none.
    pub fn from_u32(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Done),
            1 => Some(Self::Failed),
            2 => Some(Self::Refused),
            3 => Some(Self::Expired),
            4 => Some(Self::Late),
            _ => None,
        }
    }
}

impl CallPayload {
    /// The number of the payload's type: 0 for none, else the kind of a value in an ingest file.
    pub fn type_number(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Int(_) => 1,
            Self::Float(_) => 2,
            Self::Bool(_) => 3,
            Self::Text(_) => 4,
            Self::Bytes(_) => 6,
            Self::Json(_) => 7,
            Self::Floats(_) => 8,
        }
    }

    /// The payload as bytes, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Int(v) => v.to_le_bytes().into(),
            Self::Float(v) => v.to_le_bytes().into(),
            Self::Bool(v) => u64::from(*v).to_le_bytes().into(),
            Self::Text(text) | Self::Json(text) => text.as_bytes().into(),
            Self::Bytes(bytes) => bytes.clone(),
            Self::Floats(all) => all.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    /// Decodes a payload from the number of its type and its bytes; `None` if they do not fit
    /// together.
    pub fn from_bytes(type_number: u8, bytes: &[u8]) -> Option<Self> {
        let eight = || <[u8; 8]>::try_from(bytes).ok();
        let text = || std::str::from_utf8(bytes).ok().map(str::to_owned);
        Some(match type_number {
            0 if bytes.is_empty() => Self::None,
            1 => Self::Int(i64::from_le_bytes(eight()?)),
            2 => Self::Float(f64::from_le_bytes(eight()?)),
            3 => Self::Bool(u64::from_le_bytes(eight()?) != 0),
            4 => Self::Text(text()?),
            6 => Self::Bytes(bytes.into()),
            7 => Self::Json(text()?),
            8 => {
                let (all, rest) = bytes.as_chunks();
                rest.is_empty().then_some(())?;
                Self::Floats(all.iter().map(|b| f64::from_le_bytes(*b)).collect())
            }
            _ => return None,
        })
    }
}

impl Call {
    /// Whether the call is too old to be handled at `now_ns`.
    pub fn is_expired(&self, now_ns: i64) -> bool {
        now_ns >= self.expires_ns
    }

    /// Checks that a slot can hold the call.
    ///
    /// # Errors
    /// The reason why it cannot, for people.
    pub fn check(&self) -> Result<(), String> {
        let bytes = self.payload.to_bytes().len();
        let at_most = |what: &str, found: usize, max: usize| {
            let refused = || format!("{what} of {found} bytes is longer than {max}");
            (found <= max).then_some(()).ok_or_else(refused)
        };
        if self.name.is_empty() {
            return Err("a call has a name".into());
        }
        if self.at_frame.is_some() && self.kind != CallKind::Knob {
            return Err("only a knob is set at a frame".into());
        }
        at_most("a name", self.name.len(), NAME_BYTES_MAX)?;
        at_most("a payload", bytes, PAYLOAD_BYTES_MAX)?;
        let target = encode_labels(&self.target.labels);
        let length = target.map_or(usize::MAX, |bytes| bytes.len());
        at_most("a target", length, TARGET_BYTES_MAX)?;
        if self.target.incarnation.is_some_and(|i| i.0 == [0; 16]) {
            return Err("no process has an incarnation of zeros".into());
        }
        Ok(())
    }

    /// Encodes the call as the words of a slot, without its sequence.
    pub(super) fn encode(&self) -> Result<[u64; SLOT_WORDS], String> {
        self.check()?;
        let labels = encode_labels(&self.target.labels).unwrap_or_default();
        let payload = self.payload.to_bytes();
        let mut bytes = vec![0; SLOT_WORDS * 8];
        let mut set = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        set(slot::ID, &self.id.to_le_bytes());
        set(slot::ISSUED, &self.issued_ns.to_le_bytes());
        set(slot::EXPIRES, &self.expires_ns.to_le_bytes());
        let kind = match self.at_frame {
            Some(_) => KNOB_AT_FRAME,
            None => self.kind as u8,
        };
        set(slot::LENGTHS, &[kind, self.payload.type_number()]);
        set(slot::AT_FRAME, &self.at_frame.unwrap_or(0).to_le_bytes());
        for (at, length) in [(2, self.name.len()), (4, labels.len()), (6, payload.len())] {
            set(slot::LENGTHS + at, &(length as u16).to_le_bytes());
        }
        set(slot::VERSION, &self.version.to_le_bytes());
        let incarnation = self.target.incarnation.map_or([0; 16], |i| i.0);
        set(slot::TARGET_INCARNATION, &incarnation);
        set(slot::NAME, self.name.as_bytes());
        set(slot::TARGET, &labels);
        set(slot::PAYLOAD, &payload);
        let mut words = [0; SLOT_WORDS];
        for (word, eight) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*eight);
        }
        Ok(words)
    }

    /// Decodes the words of a slot; `None` if they are not a valid call.
    pub(super) fn decode(words: &[u64; SLOT_WORDS]) -> Option<Self> {
        let mut bytes = [0; SLOT_WORDS * 8];
        for (eight, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *eight = word.to_le_bytes();
        }
        let word = |at: usize| words[at / 8];
        let [kind, type_number, lengths @ ..] = word(slot::LENGTHS).to_le_bytes();
        let (kind, at_frame) = match kind {
            KNOB_AT_FRAME => (CallKind::Knob, Some(word(slot::AT_FRAME))),
            kind => (CallKind::from_u8(kind)?, None),
        };
        let length = |at: usize| usize::from(u16::from_le_bytes([lengths[at], lengths[at + 1]]));
        let part = |at: usize, length: usize, max: usize| {
            (length <= max)
                .then(|| bytes.get(at..at + length))
                .flatten()
        };
        let name = part(slot::NAME, length(0), NAME_BYTES_MAX)?;
        let labels = part(slot::TARGET, length(2), TARGET_BYTES_MAX)?;
        let payload = part(slot::PAYLOAD, length(4), PAYLOAD_BYTES_MAX)?;
        let at = slot::TARGET_INCARNATION;
        let incarnation = Incarnation(bytes[at..at + 16].try_into().ok()?);
        Some(Self {
            id: word(slot::ID),
            issued_ns: word(slot::ISSUED) as i64,
            expires_ns: word(slot::EXPIRES) as i64,
            kind,
            name: std::str::from_utf8(name)
                .ok()
                .filter(|n| !n.is_empty())?
                .to_owned(),
            target: CallTarget {
                incarnation: (incarnation.0 != [0; 16]).then_some(incarnation),
                labels: decode_labels(labels)?,
            },
            payload: CallPayload::from_bytes(type_number, payload)?,
            version: word(slot::VERSION),
            at_frame,
        })
    }
}

/// Encodes the pairs one after the other, each as two texts that are preceded by their length
/// (u16), as in declarations.
fn encode_labels(labels: &[(String, String)]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        out.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
        out.extend(text.as_bytes());
    }
    Some(out)
}

fn decode_labels(mut bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    let text = |bytes: &mut &[u8]| {
        let (length, rest) = bytes.split_at_checked(2)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let (text, rest) = rest.split_at_checked(length)?;
        *bytes = rest;
        std::str::from_utf8(text).ok().map(str::to_owned)
    };
    while !bytes.is_empty() {
        labels.push((text(&mut bytes)?, text(&mut bytes)?));
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn example(payload: CallPayload) -> Call {
        Call {
            id: 7,
            issued_ns: -1,
            expires_ns: i64::MAX,
            kind: CallKind::Trigger,
            name: "checkpoint.now".into(),
            target: CallTarget {
                incarnation: Some(Incarnation([3; 16])),
                labels: vec![("rank".into(), "0 é".into()), ("job".into(), String::new())],
            },
            payload,
            version: 9,
            at_frame: None,
        }
    }

    fn payloads() -> Vec<CallPayload> {
        vec![
            CallPayload::None,
            CallPayload::Int(i64::MIN),
            CallPayload::Float(-0.0),
            CallPayload::Bool(true),
            CallPayload::Text("é".into()),
            CallPayload::Text("x".repeat(PAYLOAD_BYTES_MAX)),
            CallPayload::Bytes(vec![0xff; 3]),
            CallPayload::Json("{}".into()),
            CallPayload::Floats(vec![0.5, f64::INFINITY]),
            CallPayload::Floats(Vec::new()),
        ]
    }

    #[test]
    fn calls_round_trip() {
        for payload in payloads() {
            let call = example(payload);
            assert_eq!(Call::decode(&call.encode().unwrap()), Some(call));
        }
        let mut anyone = example(CallPayload::None);
        (anyone.target, anyone.kind) = (CallTarget::default(), CallKind::Knob);
        assert_eq!(
            Call::decode(&anyone.encode().unwrap()),
            Some(anyone.clone())
        );
        for at_frame in [0, u64::MAX] {
            anyone.at_frame = Some(at_frame);
            let words = anyone.encode().unwrap();
            assert_eq!(Call::decode(&words), Some(anyone.clone()));
            // A program of format 1.0 knows two kinds, and does not take this number for either.
            assert_eq!(CallKind::from_u8(words[slot::LENGTHS / 8] as u8), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = |n: usize| "x".repeat(n);
        let check = |change: &dyn Fn(&mut Call)| {
            let mut call = example(CallPayload::None);
            change(&mut call);
            call.encode().unwrap_err()
        };
        for reason in [
            check(&|call| call.name = long(NAME_BYTES_MAX + 1)),
            check(&|call| call.name.clear()),
            check(&|call| call.payload = CallPayload::Text(long(PAYLOAD_BYTES_MAX + 1))),
            check(&|call| call.target.labels = vec![("a".into(), long(TARGET_BYTES_MAX - 4))]),
            check(&|call| call.target.labels = vec![("a".into(), long(1 << 17))]),
            check(&|call| call.target.incarnation = Some(Incarnation([0; 16]))),
            check(&|call| call.at_frame = Some(7)),
        ] {
            assert!(!reason.is_empty());
        }
    }

    proptest! {
        #[test]
        fn damaged_slots_never_panic(
            which in 0usize..10,
            changes in proptest::collection::vec((0usize..SLOT_WORDS, any::<u64>()), 1..6),
        ) {
            let mut words = example(payloads().swap_remove(which)).encode().unwrap();
            for (at, value) in changes {
                words[at] = value;
            }
            if let Some(call) = Call::decode(&words) {
                // A call that was decoded can be encoded, except for texts that were longer before.
                prop_assert!(call.name.len() <= NAME_BYTES_MAX);
                prop_assert!(call.payload.to_bytes().len() <= PAYLOAD_BYTES_MAX);
            }
        }

        #[test]
        fn foreign_lengths_never_panic(lengths: u64, filler: u64) {
            let mut words = [filler; SLOT_WORDS];
            words[slot::LENGTHS / 8] = lengths;
            let _ = Call::decode(&words);
        }
    }
}
