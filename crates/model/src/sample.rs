//! A sample: what was known of one stream at one instant, and how well.

use std::fmt;
use std::sync::Arc;

/// The longest text value, in bytes of UTF-8; a longer one is cut at a character boundary.
pub const TEXT_BYTES_MAX: usize = 126;

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
    /// UTF-8 of at most [`TEXT_BYTES_MAX`] bytes.
    Text = 4,
}

impl ValueType {
    /// The type with this number in the segment format, if there is one.
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Int,
            2 => Self::Float,
            3 => Self::Bool,
            4 => Self::Text,
            _ => return None,
        })
    }

    /// `int64`, `float64`, `bool` or `string`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Int => "int64",
            Self::Float => "float64",
            Self::Bool => "bool",
            Self::Text => "string",
        }
    }
}

/// One value.
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
}

impl Value {
    /// The type of this value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Int(_) => ValueType::Int,
            Self::Float(_) => ValueType::Float,
            Self::Bool(_) => ValueType::Bool,
            Self::Text(_) => ValueType::Text,
        }
    }

    /// The value as a number: bools are 0 and 1, text is `None`.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(v) => Some(*v as f64),
            Self::Float(v) => Some(*v),
            Self::Bool(v) => Some(f64::from(u8::from(*v))),
            Self::Text(_) => None,
        }
    }

    /// Text cut to [`TEXT_BYTES_MAX`] bytes at a character boundary.
    pub fn text(text: &str) -> Self {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self::Text(Arc::from(&text[..end]))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(v) => write!(f, "{v}"),
            Self::Float(v) => write!(f, "{v}"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Text(v) => f.write_str(v),
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

/// How a sample came to be (Apollo's measured/predicted flag, apollo.md 3.1, made finer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Quality {
    /// Read from the resource.
    #[default]
    Measured = 0,
    /// Computed from other samples.
    Derived = 1,
    /// Forecast.
    Predicted = 2,
    /// Filled in or corrected after the fact.
    Reconciled = 3,
}

impl Quality {
    /// The quality with this number in the segment format, if there is one.
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Measured,
            1 => Self::Derived,
            2 => Self::Predicted,
            3 => Self::Reconciled,
            _ => return None,
        })
    }

    /// `measured`, `derived`, `predicted` or `reconciled`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Predicted => "predicted",
            Self::Reconciled => "reconciled",
        }
    }
}

/// What was known of one stream at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Nanoseconds since the epoch.
    pub ts: i64,
    /// The value.
    pub value: Value,
    /// How it came to be.
    pub quality: Quality,
    /// Half width of the interval that holds the true value; 0 for a measurement.
    pub error: f32,
}

impl Sample {
    /// A measurement: no error.
    pub fn measured(ts: i64, value: impl Into<Value>) -> Self {
        Self {
            ts,
            value: value.into(),
            quality: Quality::Measured,
            error: 0.0,
        }
    }

    /// A value computed from measurements, exact as they are.
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
