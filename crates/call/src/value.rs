//! Payloads: from JSON, as text, in the audit; and the values that a knob admits.

use barograph_model::{EXACT_MAX, ValueType, hex};
use barograph_stream::calls::CallPayload;
use serde_json::{Value as Json, json};

/// The values that a knob admits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnobBounds {
    /// Its type: an integer, a float or a bool.
    pub value_type: ValueType,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl KnobBounds {
    /// Checks declared bounds.
    pub fn check(self) -> Result<Self, String> {
        let is_whole = |v: f64| v.is_infinite() || v.fract() == 0.0;
        let Self {
            value_type,
            min,
            max,
        } = self;
        match value_type {
            // NaN is not ordered either.
            _ if min.is_nan() || max.is_nan() || min > max => {
                Err(format!("{min} to {max} are no bounds"))
            }
            ValueType::Int if !is_whole(min) || !is_whole(max) => {
                Err(format!("{min} to {max}: bounds of an integer are whole"))
            }
            ValueType::Bool | ValueType::Float | ValueType::Int => Ok(self),
            _ => Err("only numbers and bools are knobs".into()),
        }
    }

    /// Converts a value to the knob's type; fails if it does not fit or is out of bounds.
    pub fn admit(&self, given: &CallPayload) -> Result<CallPayload, String> {
        let wrong = || format!("{} is no {}", text(given), self.value_type.as_str());
        let value = match (self.value_type, given) {
            (ValueType::Bool, CallPayload::Bool(_)) => given.clone(),
            (ValueType::Bool, CallPayload::Int(v @ 0..=1)) => CallPayload::Bool(*v == 1),
            (ValueType::Int, CallPayload::Int(_)) => given.clone(),
            (ValueType::Int, CallPayload::Float(v))
                if v.fract() == 0.0 && v.abs() <= EXACT_MAX as f64 =>
            {
                CallPayload::Int(*v as i64)
            }
            (ValueType::Float, CallPayload::Float(v)) if v.is_finite() => given.clone(),
            (ValueType::Float, CallPayload::Int(v)) => CallPayload::Float(*v as f64),
            _ => return Err(wrong()),
        };
        let number = match value {
            CallPayload::Int(v) => v as f64,
            CallPayload::Float(v) => v,
            CallPayload::Bool(v) => f64::from(u8::from(v)),
            _ => return Err(wrong()),
        };
        if (self.min..=self.max).contains(&number) {
            return Ok(value);
        }
        Err(format!(
            "{number} is not between {} and {}",
            self.min, self.max
        ))
    }
}

/// The payload in the named type; without a name, in the type of the JSON value.
pub(crate) fn payload_of(value: &Json, type_name: Option<&str>) -> Result<CallPayload, String> {
    let wrong = |what: &str| format!("the payload {value} is no {what}");
    let Some(type_name) = type_name else {
        return Ok(match value {
            Json::Null => CallPayload::None,
            Json::Bool(v) => CallPayload::Bool(*v),
            Json::Number(n) => match n.as_i64() {
                Some(v) => CallPayload::Int(v),
                None => CallPayload::Float(n.as_f64().ok_or_else(|| wrong("number"))?),
            },
            Json::String(text) => CallPayload::Text(text.clone()),
            Json::Array(_) | Json::Object(_) => CallPayload::Json(value.to_string()),
        });
    };
    let float = |v: &Json| v.as_f64();
    let found = match type_name {
        "none" => value.is_null().then_some(CallPayload::None),
        "json" => Some(CallPayload::Json(value.to_string())),
        "text" => value.as_str().map(|text| CallPayload::Text(text.into())),
        "int" => value.as_i64().map(CallPayload::Int),
        "float" => float(value).map(CallPayload::Float),
        "bool" => value.as_bool().map(CallPayload::Bool),
        "bytes" => value.as_str().and_then(from_base64).map(CallPayload::Bytes),
        "floats" => {
            let all = value.as_array().map(|all| all.iter().map(float).collect());
            all.flatten().map(CallPayload::Floats)
        }
        other => {
            return Err(format!(
                "payload_type {other:?} is not json, text, int, float, bool, bytes (base64), floats or none"
            ));
        }
    };
    found.ok_or_else(|| wrong(type_name))
}

/// The payload as text for people and the SQL table.
pub(crate) fn text(payload: &CallPayload) -> String {
    match payload {
        CallPayload::None => String::new(),
        CallPayload::Int(v) => v.to_string(),
        CallPayload::Float(v) => v.to_string(),
        CallPayload::Bool(v) => v.to_string(),
        CallPayload::Text(text) | CallPayload::Json(text) => text.clone(),
        CallPayload::Bytes(bytes) => hex(bytes),
        CallPayload::Floats(all) => json!(all).to_string(),
    }
}

/// The payload for the audit: exact, and texts are readable.
pub(crate) fn to_audit(payload: &CallPayload) -> Json {
    match payload {
        CallPayload::Text(text) => json!({ "type": payload.type_number(), "text": text }),
        CallPayload::Json(text) => json!({ "type": payload.type_number(), "text": text }),
        _ => json!({ "type": payload.type_number(), "hex": hex(&payload.to_bytes()) }),
    }
}

/// Parses a payload of the audit.
pub(crate) fn from_audit(audited: &Json) -> Option<CallPayload> {
    let type_number = u8::try_from(audited["type"].as_u64()?).ok()?;
    let bytes = match audited["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => unhex(audited["hex"].as_str()?)?,
    };
    CallPayload::from_bytes(type_number, &bytes)
}

/// Decodes hexadecimal digits; `None` if there are other characters.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|d| d as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    pairs.iter().map(byte).collect()
}

/// Decodes base64 with padding (RFC 4648, section 4).
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (fours, rest) = text.as_bytes().as_chunks::<4>();
    rest.is_empty().then_some(())?;
    let mut bytes = Vec::with_capacity(fours.len() * 3);
    for (at, four) in fours.iter().enumerate() {
        let padding = four.iter().rev().take_while(|b| **b == b'=').count();
        if padding > 2 || (padding > 0 && at + 1 < fours.len()) {
            return None;
        }
        let mut bits = 0u32;
        for byte in &four[..4 - padding] {
            bits = bits << 6 | u32::from(digit(*byte)?);
        }
        bits <<= 6 * padding;
        bytes.extend(&bits.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_of_json() {
        let check = |value: Json, type_name, expect: Option<CallPayload>| {
            let found = payload_of(&value, type_name);
            assert_eq!(found.ok(), expect, "{value} as {type_name:?}");
        };
        check(Json::Null, None, Some(CallPayload::None));
        check(json!(true), None, Some(CallPayload::Bool(true)));
        check(json!(-3), None, Some(CallPayload::Int(-3)));
        check(
            json!(u64::MAX),
            None,
            Some(CallPayload::Float(u64::MAX as f64)),
        );
        check(json!("a"), None, Some(CallPayload::Text("a".into())));
        check(json!([1]), None, Some(CallPayload::Json("[1]".into())));
        check(
            json!("a"),
            Some("json"),
            Some(CallPayload::Json("\"a\"".into())),
        );
        check(json!(1), Some("float"), Some(CallPayload::Float(1.0)));
        check(
            json!([1, 0.5]),
            Some("floats"),
            Some(CallPayload::Floats(vec![1.0, 0.5])),
        );
        check(
            json!("AP8="),
            Some("bytes"),
            Some(CallPayload::Bytes(vec![0, 255])),
        );
        for (value, type_name) in [
            (json!(1.5), "int"),
            (json!(1), "text"),
            (json!(1), "bool"),
            (json!("x"), "bytes"),
            (json!([1, "a"]), "floats"),
            (json!(1), "none"),
            (json!(1), "complex"),
        ] {
            check(value, Some(type_name), None);
        }
    }

    #[test]
    fn base64_of_the_standard() {
        for (text, expect) in [
            ("", Some("")),
            ("Zg==", Some("f")),
            ("Zm8=", Some("fo")),
            ("Zm9v", Some("foo")),
            ("Zm9vYmFy", Some("foobar")),
            ("Zg=", None),
            ("Z===", None),
            ("Zg==Zg==", None),
            ("Zm9*", None),
        ] {
            let expect = expect.map(|e| e.as_bytes().to_vec());
            assert_eq!(from_base64(text), expect, "{text}");
        }
    }

    #[test]
    fn what_a_knob_admits() {
        let float = KnobBounds {
            value_type: ValueType::Float,
            min: 0.0,
            max: 1.0,
        };
        let int = KnobBounds {
            value_type: ValueType::Int,
            min: -2.0,
            max: f64::INFINITY,
        };
        let bool = KnobBounds {
            value_type: ValueType::Bool,
            ..float
        };
        let check = |bounds: KnobBounds, given: CallPayload, expect: Option<CallPayload>| {
            assert_eq!(bounds.admit(&given).ok(), expect, "{given:?} in {bounds:?}");
        };
        check(
            float,
            CallPayload::Float(0.5),
            Some(CallPayload::Float(0.5)),
        );
        check(float, CallPayload::Int(1), Some(CallPayload::Float(1.0)));
        check(float, CallPayload::Float(1.5), None);
        check(float, CallPayload::Float(f64::NAN), None);
        check(float, CallPayload::Bool(true), None);
        check(int, CallPayload::Float(3.0), Some(CallPayload::Int(3)));
        check(int, CallPayload::Float(3.5), None);
        check(
            int,
            CallPayload::Int(i64::MAX),
            Some(CallPayload::Int(i64::MAX)),
        );
        check(int, CallPayload::Int(-3), None);
        check(
            bool,
            CallPayload::Bool(false),
            Some(CallPayload::Bool(false)),
        );
        check(bool, CallPayload::Int(1), Some(CallPayload::Bool(true)));
        check(bool, CallPayload::Int(2), None);
        check(bool, CallPayload::Text("true".into()), None);
        assert!(float.check().is_ok() && int.check().is_ok() && bool.check().is_ok());
        for (min, max) in [(1.0, 0.0), (f64::NAN, 1.0), (0.0, f64::NAN)] {
            assert!(
                KnobBounds { min, max, ..float }.check().is_err(),
                "{min} {max}"
            );
        }
        let half = KnobBounds { min: 0.5, ..int };
        assert!(half.check().is_err());
        let value_type = ValueType::Text;
        assert!(
            KnobBounds {
                value_type,
                ..float
            }
            .check()
            .is_err()
        );
    }

    #[test]
    fn the_audit_keeps_payloads_exactly() {
        for payload in [
            CallPayload::None,
            CallPayload::Int(-1),
            CallPayload::Float(0.1),
            CallPayload::Bool(true),
            CallPayload::Text("é\n".into()),
            CallPayload::Bytes(vec![0, 255]),
            CallPayload::Json("{\"a\":1}".into()),
            CallPayload::Floats(vec![f64::INFINITY]),
        ] {
            assert_eq!(from_audit(&to_audit(&payload)), Some(payload));
        }
        for damaged in [
            json!(null),
            json!({"type": 300}),
            json!({"type": 1, "hex": "0"}),
        ] {
            assert_eq!(from_audit(&damaged), None);
        }
    }
}
