//! Parser of InfluxDB's line protocol, as its reference describes it: `measurement,tag=a field=1.5
//! 1700000000`.
//!
//! The module stands alone as a parser of foreign bytes. No crate that parses the protocol was
//! maintained when this was written (docs/design/0004-applications.md), and the protocol is small:
//! words, escapes, numbers. A line with an error is refused by itself; the next one begins after
//! its line break.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use barograph_model::{Kind, LABELS_MAX, Value, ValueType};

use crate::{
    BridgeProtocol, POINTS_MAX, ParsedRequest, Point, PointSource, PointValue, SeriesOrigin,
    SeriesProperties,
};

/// The unit of the times in lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimePrecision {
    /// Nanoseconds.
    #[default]
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// Minutes, only in the first version of the protocol.
    Min,
    /// Hours, only in the first version of the protocol.
    H,
}

impl TimePrecision {
    /// The precision with this name in either version of the protocol.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "" | "n" | "ns" => Self::Ns,
            "u" | "us" | "µ" => Self::Us,
            "ms" => Self::Ms,
            "s" => Self::S,
            "m" => Self::Min,
            "h" => Self::H,
            _ => return None,
        })
    }

    fn ns(self) -> i64 {
        match self {
            Self::Ns => 1,
            Self::Us => 1_000,
            Self::Ms => 1_000_000,
            Self::S => 1_000_000_000,
            Self::Min => 60 * 1_000_000_000,
            Self::H => 3_600 * 1_000_000_000,
        }
    }
}

/// Parses all lines; a line with an error is refused.
pub fn read_line_protocol(text: &str, precision: TimePrecision) -> ParsedRequest {
    let mut reader = Reader {
        text,
        at: 0,
        precision,
        sources: HashMap::new(),
    };
    let nobody = BridgeProtocol::LineProtocol.nobody();
    let mut parsed = ParsedRequest::default();
    let mut number = 1;
    while reader.at < text.len() {
        let before = parsed.points.len();
        let begins_at = reader.at;
        if let Err(reason) = reader.line(number, &mut parsed.points) {
            parsed.points.truncate(before);
            // A text that is not closed must not swallow the lines after it.
            reader.at = begins_at;
            parsed.refuse(&nobody, number, reason);
        }
        reader.skip_line();
        let breaks = text.as_bytes()[begins_at..reader.at].iter();
        let breaks = breaks.filter(|byte| **byte == b'\n').count();
        number = u32::try_from(breaks).map_or(u32::MAX, |breaks| number.saturating_add(breaks));
    }
    parsed
}

/// The characters that end a token, unless a backslash before them makes them literal.
const MEASUREMENT: &[u8] = b", ";
const KEY: &[u8] = b",= ";

struct Reader<'a> {
    text: &'a str,
    at: usize,
    precision: TimePrecision,
    sources: HashMap<String, Arc<PointSource>>,
}

impl<'a> Reader<'a> {
    /// Parses the line here, without its line break. Texts may contain line breaks.
    fn line(&mut self, number: u32, points: &mut Vec<Point>) -> Result<(), String> {
        self.skip_spaces();
        if matches!(self.peek(), None | Some(b'\n' | b'#')) {
            return Ok(());
        }
        let measurement = self.token(MEASUREMENT);
        if measurement.is_empty() {
            return Err("there is no measurement".into());
        }
        let source = self.source(measurement);
        let labels = self.tags()?;
        if !self.skip_spaces() {
            return Err("there are no fields".into());
        }
        let first = points.len();
        loop {
            let (name, value) = self.field()?;
            if points.len() >= POINTS_MAX {
                return Err(format!("more than {POINTS_MAX} values in one request"));
            }
            points.push(Point {
                place: number,
                origin: SeriesOrigin {
                    source: Arc::clone(&source),
                    name: name.into(),
                    labels: Arc::clone(&labels),
                },
                about: about(value.value_type()),
                ts: None,
                measured: PointValue::Value(value),
            });
            if !self.take(b',') {
                break;
            }
        }
        let ts = match self.skip_spaces() {
            true => self.time()?,
            false => None,
        };
        self.skip_spaces();
        if !matches!(self.peek(), None | Some(b'\n')) {
            return Err("there is more after the time".into());
        }
        points[first..].iter_mut().for_each(|point| point.ts = ts);
        Ok(())
    }

    fn tags(&mut self) -> Result<Arc<[(String, String)]>, String> {
        let mut tags: Vec<(String, String)> = Vec::new();
        while self.take(b',') {
            let key = self.token(KEY).into_owned();
            if key.is_empty() || !self.take(b'=') {
                return Err("a tag is not key=value".into());
            }
            let value = self.token(KEY).into_owned();
            if value.is_empty() {
                return Err(format!("the tag {key:?} has no value"));
            }
            if tags.len() >= LABELS_MAX {
                return Err(format!("there are more than {LABELS_MAX} tags"));
            }
            tags.push((key, value));
        }
        tags.sort();
        if let Some(twice) = tags.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("the tag {:?} is given twice", twice[0].0));
        }
        Ok(tags.into())
    }

    fn field(&mut self) -> Result<(String, Value), String> {
        let key = self.token(KEY).into_owned();
        if key.is_empty() || !self.take(b'=') {
            return Err("a field is not key=value".into());
        }
        let value = match self.peek() {
            Some(b'"') => Some(Value::Text(self.quoted()?.into())),
            _ => value(self.raw()),
        };
        match value {
            Some(value) => Ok((key, value)),
            None => Err(format!(
                "the field {key:?} has no value that can be kept: a number, 1i, 1u (up to 2^63 - 1), true or \"text\""
            )),
        }
    }

    fn time(&mut self) -> Result<Option<i64>, String> {
        let raw = self.raw();
        if raw.is_empty() {
            return Ok(None);
        }
        let count: Option<i64> = raw.parse().ok();
        let ns = count.and_then(|count| count.checked_mul(self.precision.ns()));
        match ns {
            Some(ns) => Ok(Some(ns)),
            None => Err("the time is not an integer, or out of range".into()),
        }
    }

    /// The text up to one of `stops` or the end of the line; a backslash makes a stop literal.
    fn token(&mut self, stops: &[u8]) -> Cow<'a, str> {
        let (text, bytes) = (self.text, self.text.as_bytes());
        let mut from = self.at;
        let mut unescaped = String::new();
        while let Some(&byte) = bytes.get(self.at) {
            let next = bytes.get(self.at + 1);
            if byte == b'\\' && next.is_some_and(|next| stops.contains(next)) {
                unescaped.push_str(&text[from..self.at]);
                from = self.at + 1;
                self.at += 2;
            } else if byte == b'\n' || stops.contains(&byte) {
                break;
            } else {
                self.at += 1;
            }
        }
        let rest = &text[from..self.at];
        if unescaped.is_empty() {
            return Cow::Borrowed(rest);
        }
        unescaped.push_str(rest);
        Cow::Owned(unescaped)
    }

    /// A text in quotes, in which `\"` and `\\` are literal.
    fn quoted(&mut self) -> Result<String, String> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        let mut from = self.at;
        let mut text = String::new();
        loop {
            match bytes.get(self.at) {
                None => return Err("a text is not closed".into()),
                Some(b'"') => {
                    text.push_str(&self.text[from..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') if matches!(bytes.get(self.at + 1), Some(b'"' | b'\\')) => {
                    text.push_str(&self.text[from..self.at]);
                    from = self.at + 1;
                    self.at += 2;
                }
                Some(_) => self.at += 1,
            }
        }
    }

    /// The text up to a comma, a space or the end of the line.
    fn raw(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find([',', ' ', '\n', '\r']).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn source(&mut self, measurement: Cow<'_, str>) -> Arc<PointSource> {
        if let Some(known) = self.sources.get(&*measurement) {
            return Arc::clone(known);
        }
        let source = Arc::new(PointSource {
            protocol: BridgeProtocol::LineProtocol,
            name: measurement.clone().into_owned(),
            labels: Vec::new(),
        });
        self.sources
            .insert(measurement.into_owned(), Arc::clone(&source));
        source
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    /// Skips spaces; returns whether there were any. A carriage return at the end of a line counts
    /// as one.
    fn skip_spaces(&mut self) -> bool {
        let before = self.at;
        while matches!(self.peek(), Some(b' ' | b'\r')) {
            self.at += 1;
        }
        self.at > before
    }

    /// Skips to the next line.
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').map_or(rest.len(), |length| length + 1);
    }
}

fn value(raw: &str) -> Option<Value> {
    match raw {
        "t" | "T" | "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "f" | "F" | "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    if let Some(int) = raw.strip_suffix('i') {
        return int.parse().ok().map(Value::Int);
    }
    if let Some(unsigned) = raw.strip_suffix('u') {
        let unsigned: u64 = unsigned.parse().ok()?;
        return i64::try_from(unsigned).ok().map(Value::Int);
    }
    // Excludes "inf" and "nan", which Rust parses too.
    let is_number = raw
        .bytes()
        .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let float: f64 = is_number.then(|| raw.parse().ok()).flatten()?;
    float.is_finite().then_some(Value::Float(float))
}

/// The protocol does not define the meaning of values: numbers become gauges, others states.
fn about(value_type: ValueType) -> Arc<SeriesProperties> {
    let kind = match value_type {
        ValueType::Int | ValueType::Float => Kind::Gauge,
        _ => Kind::State,
    };
    Arc::new(SeriesProperties {
        kind,
        value_type,
        unit: String::new(),
        help: String::new(),
        is_delta: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parsed points, one per line, as `measurement{tags}.field=value@ts`; refusals as `!line
    /// reason`.
    fn read(text: &str) -> String {
        let parsed = read_line_protocol(text, TimePrecision::Ns);
        let points = parsed.points.iter().map(|point| {
            let PointValue::Value(value) = &point.measured else {
                unreachable!("line protocol has values alone")
            };
            let (origin, ts) = (
                &point.origin,
                point.ts.map_or("now".into(), |t| t.to_string()),
            );
            let tags: Vec<String> = origin
                .labels
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            let (source, name) = (&origin.source.name, &origin.name);
            let place = point.place;
            format!(
                "{place} {source}{{{}}}.{name}={value:?}@{ts}",
                tags.join(",")
            )
        });
        let refusals = parsed.refusals.iter();
        let refusals = refusals.map(|refusal| format!("!{} {}", refusal.place, refusal.reason));
        points.chain(refusals).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn lines() {
        let check = |text: &str, expect: &str| assert_eq!(read(text), expect, "{text:?}");
        check(
            "cpu,host=a usage=1.5 17",
            "1 cpu{host=a}.usage=Float(1.5)@17",
        );
        check(
            "m a=1,b=2i,c=3u,d=t,e=FALSE,f=\"x y\"",
            "1 m{}.a=Float(1.0)@now; 1 m{}.b=Int(2)@now; 1 m{}.c=Int(3)@now; 1 m{}.d=Bool(true)@now; \
             1 m{}.e=Bool(false)@now; 1 m{}.f=Text(\"x y\")@now",
        );
        check("m,b=2,a=1 v=-1e-3", "1 m{a=1,b=2}.v=Float(-0.001)@now");
        check(
            "a\\ b\\,c,t\\=\\ x=1\\,2 f\\=1=2i 3\r\nm v=1 4\n",
            "1 a b,c{t= x=1,2}.f=1=Int(2)@3; 2 m{}.v=Float(1.0)@4",
        );
        check(
            "m v=\"a \\\"b\\\" \\\\ , = \\n\" -1",
            "1 m{}.v=Text(\"a \\\"b\\\" \\\\ , = \\\\n\")@-1",
        );
        check("# a comment\n\n  \nm v=1", "4 m{}.v=Float(1.0)@now");
        check("\\m\\ v=1", "!1 there are no fields");
        check(
            "größe,ort=köln wert=1i 1",
            "1 größe{ort=köln}.wert=Int(1)@1",
        );
        check(
            "m v=\"a\nb\" 1\nn v=1 2",
            "1 m{}.v=Text(\"a\\nb\")@1; 3 n{}.v=Float(1.0)@2",
        );
        check("", "");
    }

    #[test]
    fn a_wrong_line_is_refused_by_itself() {
        let check = |line: &str, expect: &str| {
            let text = format!("a v=1 1\n{line}\nb v=1 2");
            let found = read(&text);
            let expect = format!("a{{}}.v=Float(1.0)@1; 3 b{{}}.v=Float(1.0)@2; !2 {expect}");
            assert!(
                found.starts_with(&format!("1 {expect}")),
                "{line:?}: {found}"
            );
        };
        check("m", "there are no fields");
        check(",a=1 v=1", "there is no measurement");
        check("m,a v=1", "a tag is not key=value");
        check("m,=1 v=1", "a tag is not key=value");
        check("m,a= v=1", "the tag \"a\" has no value");
        check("m,a=1,a=2 v=1", "the tag \"a\" is given twice");
        check("m v", "a field is not key=value");
        check("m v=", "the field \"v\" has no value");
        check("m v=x", "the field \"v\" has no value");
        check("m v=inf", "the field \"v\" has no value");
        check("m v=1e999", "the field \"v\" has no value");
        check("m v=1i2", "the field \"v\" has no value");
        check("m v=9223372036854775808i", "the field \"v\" has no value");
        check("m v=9223372036854775808u", "the field \"v\" has no value");
        check("m v=1,", "a field is not key=value");
        check("m v=\"open", "a text is not closed");
        check("m v=1 x", "the time is not an integer");
        check("m v=1 1.5", "the time is not an integer");
        check("m v=1 1 1", "there is more after the time");
        check("m v=\"a\"b", "there is more after the time");
        let tags: String = (0..=LABELS_MAX).map(|n| format!(",t{n}=1")).collect();
        check(&format!("m{tags} v=1"), "there are more than 16 tags");
    }

    #[test]
    fn precisions() {
        for (name, factor) in [
            ("", 1),
            ("n", 1),
            ("us", 1_000),
            ("u", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
        ] {
            let parsed = read_line_protocol("m v=1 2", TimePrecision::parse(name).unwrap());
            assert_eq!(parsed.points[0].ts, Some(2 * factor), "{name}");
        }
        assert_eq!(TimePrecision::parse("d"), None);
        let far = read_line_protocol("m v=1 9999999999999", TimePrecision::S);
        assert_eq!((far.points.len(), far.refused_count()), (0, 1));
    }

    #[test]
    fn a_request_is_bounded() {
        let text = "m v=1i\n".repeat(POINTS_MAX + 3);
        let parsed = read_line_protocol(&text, TimePrecision::Ns);
        assert_eq!(
            (parsed.points.len(), parsed.refused_count()),
            (POINTS_MAX, 3)
        );
        let wrong = "m\n".repeat(100);
        let parsed = read_line_protocol(&wrong, TimePrecision::Ns);
        assert_eq!(parsed.refused_count(), 100);
        assert_eq!(parsed.refusals.len(), crate::REFUSALS_MAX);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c ,=\\\\\"\n#0-9itue.-]{0,64}") {
            let parsed = read_line_protocol(&text, TimePrecision::S);
            for point in &parsed.points {
                proptest::prop_assert!(!point.origin.name.is_empty());
                proptest::prop_assert!(!point.origin.source.name.is_empty());
            }
        }
    }
}
