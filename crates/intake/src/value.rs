//! The value of a put, converted for its stream.
//!
//! It is a module of its own because the bytes are a stranger's: bytes that are not what was
//! declared give no value.

use std::sync::Arc;

use barograph_model::{Value, ValueType};
use barograph_stream::ingest::RecordPayload;
use serde::de::IgnoredAny;

/// The value for a stream of this type. `None` if the payload has another type, is invalid JSON or
/// half an array, or is longer than `bytes_max`. A text may be longer, since its stream cuts it;
/// half of any other value would mean something else.
#[inline]
pub(crate) fn value_of(
    payload: RecordPayload<'_>,
    value_type: ValueType,
    bytes_max: u32,
) -> Option<Value> {
    let value = match (payload, value_type) {
        (RecordPayload::Int(v), ValueType::Int) => Value::Int(v),
        (RecordPayload::Float(v), ValueType::Float) => Value::Float(v),
        (RecordPayload::Bool(v), ValueType::Bool) => Value::Bool(v),
        (RecordPayload::Text(v) | RecordPayload::Json(v), ValueType::Text) => {
            return Some(Value::Text(Arc::from(String::from_utf8_lossy(v))));
        }
        (
            RecordPayload::Bytes(v) | RecordPayload::Text(v) | RecordPayload::Json(v),
            ValueType::Bytes,
        ) => Value::Bytes(Arc::from(v)),
        (RecordPayload::Json(v) | RecordPayload::Text(v), ValueType::Json) => {
            serde_json::from_slice::<IgnoredAny>(v).ok()?;
            Value::Json(Arc::from(std::str::from_utf8(v).ok()?))
        }
        (RecordPayload::Floats(v), ValueType::Floats) => {
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
            (RecordPayload::Bytes(&[0; 64]), Bytes, true),
            (RecordPayload::Bytes(&[0; 65]), Bytes, false),
            (RecordPayload::Bytes(&[0; 8]), Floats, false),
            (RecordPayload::Floats(&[0; 64]), Floats, true),
            (RecordPayload::Floats(&[0; 63]), Floats, false),
            (RecordPayload::Floats(&[0; 72]), Floats, false),
            (RecordPayload::Floats(&[]), Floats, true),
            (RecordPayload::Json(b"{}"), Json, true),
            (RecordPayload::Text(b" [1, null]"), Json, true),
            (RecordPayload::Json(b"{}}"), Json, false),
            (RecordPayload::Json(b"\"\xff\""), Json, false),
            (RecordPayload::Json(b""), Json, false),
            (RecordPayload::Text(&[0xff; 99]), Text, true),
            (RecordPayload::Bytes(b"x"), Text, false),
        ] {
            assert_eq!(value_of(payload, of, 64).is_some(), is_value, "{payload:?}");
        }
    }
}
