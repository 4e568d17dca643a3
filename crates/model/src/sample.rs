//! A sample: the known value of one stream at one instant, with its quality and error.

use std::fmt;
use std::sync::Arc;

/// Integers up to this one, and down to its negative, are exact as floats.
pub const EXACT_MAX: u64 = 1 << 53;
/// The longest text of a stream that does not declare a greater maximum, in bytes of UTF-8; a
/// longer text is cut at a character boundary.
pub const TEXT_BYTES_MAX: usize = 126;
/// The longest text, JSON, bytes or array of any stream, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// The type of a stream's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// 64-bit signed integer.
    Int = 1,
    /// 64-bit IEEE 754.
    Float = 2,
    /// True or false.
    Bool = 3,
    /// UTF-8 of at most [`TEXT_BYTES_MAX`] bytes, or of the maximum that its stream declares.
    Text = 4,
    /// Bytes without an interpretation here.
    Bytes = 6,
    /// A JSON document.
    Json = 7,
    /// An array of 64-bit IEEE 754 numbers.
    Floats = 8,
}

impl ValueType {
    /// The type with this number in the segment format; `None` if there is none.
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Int,
            2 => Self::Float,
            3 => Self::Bool,
            4 => Self::Text,
            6 => Self::Bytes,
            7 => Self::Json,
            8 => Self::Floats,
            _ => return None,
        })
    }

    /// Whether values of this type are single numbers: integers, floats and bools.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Float | Self::Bool)
    }

    /// The type as text: `int64`, `float64`, `bool`, `string`, `bytes`, `json` or `floats`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Int => "int64",
            Self::Float => "float64",
            Self::Bool => "bool",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::Json => "json",
            Self::Floats => "floats",
        }
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// 64-bit signed integer.
    Int(i64),
    /// 64-bit IEEE 754.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// UTF-8 text.
    Text(Arc<str>),
    /// Bytes without an interpretation here.
    Bytes(Arc<[u8]>),
    /// A JSON document.
    Json(Arc<str>),
    /// An array of 64-bit IEEE 754 numbers.
    Floats(Arc<[f64]>),
}

impl Value {
    /// The type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Int(_) => ValueType::Int,
            Self::Float(_) => ValueType::Float,
            Self::Bool(_) => ValueType::Bool,
            Self::Text(_) => ValueType::Text,
            Self::Bytes(_) => ValueType::Bytes,
            Self::Json(_) => ValueType::Json,
            Self::Floats(_) => ValueType::Floats,
        }
    }

    /// The value as a number, with bools as 0 and 1; `None` if it is not a single number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(v) => Some(*v as f64),
            Self::Float(v) => Some(*v),
            Self::Bool(v) => Some(f64::from(u8::from(*v))),
            Self::Text(_) | Self::Bytes(_) | Self::Json(_) | Self::Floats(_) => None,
        }
    }

    /// The text of a text or of JSON; `None` for all other values.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(v) | Self::Json(v) => Some(v),
            _ => None,
        }
    }

    /// Bytes that the value takes outside its sample: 0 for numbers.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Int(_) | Self::Float(_) | Self::Bool(_) => 0,
            Self::Text(v) | Self::Json(v) => v.len(),
            Self::Bytes(v) => v.len(),
            Self::Floats(v) => size_of_val(&**v),
        }
    }

    /// Returns a text that is cut to [`TEXT_BYTES_MAX`] bytes at a character boundary.
    pub fn text(text: &str) -> Self {
        Self::Text(Arc::from(text_start(text, TEXT_BYTES_MAX)))
    }
}

/// Returns the longest start of `text` that has whole characters and at most `bytes_max` bytes.
pub fn text_start(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Formats bytes as hexadecimal digits, two for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |at: u8| char::from(DIGITS[usize::from(at)]);
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

/// Formats bytes as padded base64 (RFC 4648, section 4), the form that they have in JSON.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

/// Formats an array of numbers as JSON: `[1.0,2.5,null]`. Numbers have all digits that distinguish
/// them; `null` stands for NaN and the infinities, which JSON does not have.
pub fn floats_json(floats: &[f64]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(2 + 8 * floats.len());
    text.push('[');
    for (at, float) in floats.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        if float.is_finite() {
            write!(text, "{float:?}").expect("strings take everything");
        } else {
            text.push_str("null");
        }
    }
    text.push(']');
    text
}

/// Formats bytes as hexadecimal digits, arrays as JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(v) => write!(f, "{v}"),
            Self::Float(v) => write!(f, "{v}"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Text(v) | Self::Json(v) => f.write_str(v),
            Self::Bytes(v) => v.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Floats(v) => f.write_str(&floats_json(v)),
        }
    }
}

impl From<i64> for Value {
    fn from(v: i64) -> Self {
        Self::Int(v)
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Self {
        Self::Float(v)
    }
}

impl From<bool> for Value {
    fn from(v: bool) -> Self {
        Self::Bool(v)
    }
}

/// The origin of a sample (Apollo's measured/predicted flag, apollo.md 3.1, made finer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Quality {
    /// Read from the resource.
    #[default]
    Measured = 0,
    /// Computed from other samples.
    Derived = 1,
    /// Predicted by a forecast.
    Predicted = 2,
    /// Filled in or corrected after the fact.
    Reconciled = 3,
    /// The last look at a value that was found earlier: nobody looked from then until the next
    /// sample, or the stream has ended. The value held up to this time and is unknown after it.
    Ended = 4,
}

impl Quality {
    /// The quality with this number in the segment format; `None` if there is none.
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Measured,
            1 => Self::Derived,
            2 => Self::Predicted,
            3 => Self::Reconciled,
            4 => Self::Ended,
            _ => return None,
        })
    }

    /// The quality as text: `measured`, `derived`, `predicted`, `reconciled` or `ended`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Predicted => "predicted",
            Self::Reconciled => "reconciled",
            Self::Ended => "ended",
        }
    }
}

/// The known value of one stream at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Nanoseconds since the epoch.
    pub ts: i64,
    /// The value, of the stream's type.
    pub value: Value,
    /// The origin of the sample.
    pub quality: Quality,
    /// Half width of the interval that holds the true value, in the stream's unit; 0 for a
    /// measurement.
    pub error: f32,
}

impl Sample {
    /// Creates a measurement: its error is 0.
    pub fn measured(ts: i64, value: impl Into<Value>) -> Self {
        Self {
            ts,
            value: value.into(),
            quality: Quality::Measured,
            error: 0.0,
        }
    }

    /// Creates a value computed from measurements, as exact as they are.
    pub fn derived(ts: i64, value: impl Into<Value>) -> Self {
        Self {
            ts,
            value: value.into(),
            quality: Quality::Derived,
            error: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character() {
        let long = "é".repeat(100);
        let Value::Text(cut) = Value::text(&long) else {
            panic!("text stays text")
        };
        assert_eq!(cut.len(), 126);
        assert!(long.starts_with(&*cut));
    }

    #[test]
    fn arrays_are_json() {
        for (floats, expect) in [
            (&[][..], "[]"),
            (&[1.0, -0.5, 1e300, 5e-324], "[1.0,-0.5,1e300,5e-324]"),
            (&[f64::NAN, f64::INFINITY], "[null,null]"),
        ] {
            assert_eq!(floats_json(floats), expect);
        }
        for (bytes, expect) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), expect);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
        assert_eq!(hex(&[0xfb, 0x07, 0]), "fb0700");
        assert_eq!(hex(&[]), "");
        let bytes = Value::Bytes(Arc::from([0u8, 255]));
        assert_eq!((bytes.to_string().as_str(), bytes.bytes()), ("00ff", 2));
    }

    #[test]
    fn codes_round_trip() {
        for code in 0..=255u8 {
            if let Some(t) = ValueType::from_u8(code) {
                assert_eq!(t as u8, code);
            }
            if let Some(q) = Quality::from_u8(code) {
                assert_eq!(q as u8, code);
            }
        }
    }
}
