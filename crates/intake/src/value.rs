//! The value of a put, converted for its stream.
//!
//! It is a module of its own because the bytes are a stranger's: bytes that are not what was
//! declared give no value.

use std::sync::Arc;

use barograph_model::{Value, ValueType};
use barograph_stream::ingest::Payload;
use serde::de::IgnoredAny;

/// The value for a stream of this type. `None` if the payload has another type, is invalid JSON or
/// half an array, or is longer than `bytes_max`. A text may be longer, since its stream cuts it;
/// half of any other value would mean something else.
#[inline]
pub(crate) fn value_of(
    payload: Payload<'_>,
    value_type: ValueType,
    bytes_max: u32,
) -> Option<Value> {
    let value = match (payload, value_type) {
        (Payload::Int(v), ValueType::Int) => Value::Int(v),
        (Payload::Float(v), ValueType::Float) => Value::Float(v),
        (Payload::Bool(v), ValueType::Bool) => Value::Bool(v),
        (Payload::Text(v) | Payload::Json(v), ValueType::Text) => {
            return Some(Value::Text(Arc::from(String::from_utf8_lossy(v))));
        }
        (Payload::Bytes(v) | Payload::Text(v) | Payload::Json(v), ValueType::Bytes) => {
            Value::Bytes(Arc::from(v))
        }
        (Payload::Json(v) | Payload::Text(v), ValueType::Json) => {
            serde_json::from_slice::<IgnoredAny>(v).ok()?;
            Value::Json(Arc::from(std::str::from_utf8(v).ok()?))
        }
        (Payload::Floats(v), ValueType::Floats) => {
            let (floats, []) = v.as_chunks() else {
                return None;
            };
            Value::Floats(floats.iter().map(|v| f64::from_le_bytes(*v)).collect())
        }
        _ => return None,
    };
    (value.bytes() <= bytes_max as usize).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_what_was_declared_is_no_value() {
        use ValueType::{Bytes, Floats, Json, Text};
        for (payload, of, is_value) in [
            (Payload::Bytes(&[0; 64]), Bytes, true),
            (Payload::Bytes(&[0; 65]), Bytes, false),
            (Payload::Bytes(&[0; 8]), Floats, false),
            (Payload::Floats(&[0; 64]), Floats, true),
            (Payload::Floats(&[0; 63]), Floats, false),
            (Payload::Floats(&[0; 72]), Floats, false),
            (Payload::Floats(&[]), Floats, true),
            (Payload::Json(b"{}"), Json, true),
            (Payload::Text(b" [1, null]"), Json, true),
            (Payload::Json(b"{}}"), Json, false),
            (Payload::Json(b"\"\xff\""), Json, false),
            (Payload::Json(b""), Json, false),
            (Payload::Text(&[0xff; 99]), Text, true),
            (Payload::Bytes(b"x"), Text, false),
        ] {
            assert_eq!(value_of(payload, of, 64).is_some(), is_value, "{payload:?}");
        }
    }
}
