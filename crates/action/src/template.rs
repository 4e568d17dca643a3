//! Templates: texts of a rule in which fields of the event stand in braces, such as
//! `--input={path}`.
//!
//! A template is parsed once, when the rule is made. Filling it puts the bytes of a field where the
//! field stands, and nothing reads them again as a template, as words, or by a shell. Text that
//! stands for itself is taken as it is; `{{` and `}}` are braces.

mod fields;

use thiserror::Error;

pub use fields::{ActionFields, FIELD_NAMES};

use fields::Field;

/// Most bytes of the text of a template.
pub const TEMPLATE_BYTES_MAX: usize = 16 << 10;

/// The reason why a text is no template. Positions are bytes from the start, from 0 on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TemplateFault {
    /// No field has this name.
    #[error("unknown field {{{name}}} at byte {at}: the fields are {}", FIELD_NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Position of its brace.
        at: usize,
    },
    /// A brace is not closed.
    #[error("the brace at byte {at} is not closed: write {{{{ for a brace that stands for itself")]
    Open {
        /// Position of the brace.
        at: usize,
    },
    /// A brace is closed that was not opened.
    #[error("the brace at byte {at} closes none: write }}}} for a brace that stands for itself")]
    Close {
        /// Position of the brace.
        at: usize,
    },
    /// The text is too long.
    #[error("a template of {bytes} bytes: at most {TEMPLATE_BYTES_MAX} are allowed")]
    Long {
        /// Its length.
        bytes: usize,
    },
    /// A field stands where none may.
    #[error("the field at byte {at} stands {place}, where none may: write it out")]
    Fixed {
        /// Position of its brace.
        at: usize,
        /// Where it stands.
        place: &'static str,
    },
    /// The text is no place of a file.
    #[error(
        "{text:?} is no place of a file: write an absolute path, such as /archive/{{name}} or {{path}}, or a store and a name, such as lab:{{name}}"
    )]
    Place {
        /// The text, cut.
        text: String,
    },
    /// The text is no JSON when the fields are filled in.
    #[error("the body is no JSON ({0}): put fields inside strings, and double braces")]
    Json(String),
}

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A field, and the position of its brace.
    Field(Field, usize),
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    ///
    /// A field is unknown, or a brace has no partner.
    pub fn parse(text: &str) -> Result<Self, TemplateFault> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateFault::Long { bytes: text.len() });
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(step) = text[at..].find(['{', '}']) {
            literal.push_str(&text[at..at + step]);
            at += step;
            let rest = &text[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                literal.push_str(&rest[..1]);
                at += 2;
                continue;
            }
            if rest.starts_with('}') {
                return Err(TemplateFault::Close { at });
            }
            let end = rest.find('}').ok_or(TemplateFault::Open { at })?;
            let name = &rest[1..end];
            let field = Field::parse(name).ok_or_else(|| TemplateFault::Unknown {
                name: barograph_model::cut(name.to_owned(), 64),
                at,
            })?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Field(field, at));
            at += end + 1;
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// Parses the address of a webhook. Scheme, host and port are to be written out, so that no
    /// name of a file decides where a request goes.
    ///
    /// # Errors
    ///
    /// The text is no template, or a field stands before the path.
    pub fn parse_url(text: &str) -> Result<Self, TemplateFault> {
        let template = Self::parse(text)?;
        let authority = text.find("://").map_or(0, |at| at + 3);
        let path = text[authority..]
            .find(['/', '?', '#'])
            .map(|at| authority + at);
        let fields = template.parts.iter().filter_map(|part| match part {
            Part::Field(_, at) => Some(*at),
            Part::Text(_) => None,
        });
        match fields.min() {
            Some(at) if path.is_none_or(|path| at < path) => Err(TemplateFault::Fixed {
                at,
                place: "before the path of an address",
            }),
            _ => Ok(template),
        }
    }

    /// Parses the body of a webhook. It is to be JSON with each field inside a string, where it is
    /// escaped.
    ///
    /// # Errors
    ///
    /// The text is no template, or no JSON once it is filled.
    pub fn parse_json(text: &str) -> Result<Self, TemplateFault> {
        let template = Self::parse(text)?;
        // Outside of a string neither nothing nor a letter is a value.
        for name in ["", "x"] {
            let fields = ActionFields {
                kind: name.to_owned(),
                source: name.to_owned(),
                rule: name.to_owned(),
                ..ActionFields::default()
            };
            let filled = template.fill_json(&fields);
            serde_json::from_slice::<serde::de::IgnoredAny>(&filled)
                .map_err(|error| TemplateFault::Json(error.to_string()))?;
        }
        Ok(template)
    }

    /// Whether the template has no field.
    pub fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// The text with the bytes of the fields, for a word of a command. A word that begins with a
    /// field which may begin with `-`, such as `{name}`, is best put after `--`.
    pub fn fill(&self, fields: &ActionFields) -> Vec<u8> {
        self.with(fields, |value, to| to.extend_from_slice(value))
    }

    /// The text with the fields in percent encoding: all bytes but letters, digits and `-._~`.
    pub fn fill_url(&self, fields: &ActionFields) -> String {
        let bytes = self.with(fields, |value, to| {
            for byte in value {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        to.push(*byte);
                    }
                    _ => to.extend(format!("%{byte:02X}").bytes()),
                }
            }
        });
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The text with the fields escaped for the inside of a string of JSON. Bytes that are not
    /// UTF-8 become the replacement character.
    pub fn fill_json(&self, fields: &ActionFields) -> Vec<u8> {
        self.with(fields, |value, to| {
            for char in String::from_utf8_lossy(value).chars() {
                match char {
                    '"' => to.extend(b"\\\""),
                    '\\' => to.extend(b"\\\\"),
                    '\u{0}'..='\u{1f}' | '\u{7f}' => {
                        to.extend(format!("\\u{:04x}", u32::from(char)).bytes());
                    }
                    _ => to.extend(char.encode_utf8(&mut [0; 4]).bytes()),
                }
            }
        })
    }

    fn with(&self, fields: &ActionFields, put: impl Fn(&[u8], &mut Vec<u8>)) -> Vec<u8> {
        let mut to = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => to.extend_from_slice(text.as_bytes()),
                Part::Field(field, _) => put(&fields.value(*field), &mut to),
            }
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(path: &[u8]) -> ActionFields {
        ActionFields {
            path: path.to_vec(),
            size: Some(12),
            kind: "create".into(),
            source: "scratch".into(),
            index: 7,
            rule: "r".into(),
            key: "r.1.scratch.7".into(),
            ts: 1_000,
            ..ActionFields::default()
        }
    }

    #[test]
    fn filling() {
        let check = |text: &str, path: &str, expect: &str| {
            let filled = Template::parse(text)
                .unwrap()
                .fill(&fields(path.as_bytes()));
            assert_eq!(String::from_utf8(filled).unwrap(), expect, "{text} {path}");
        };
        check("plain", "/a", "plain");
        check("", "/a", "");
        check("{path}", "/a b/c.h5", "/a b/c.h5");
        check("-i={path}.out", "/a", "-i=/a.out");
        check(
            "{name}|{dir}|{stem}|{ext}",
            "/d/x.tar.gz",
            "x.tar.gz|/d|x.tar|gz",
        );
        check("{name}|{dir}|{stem}|{ext}", "/top", "top|/|top|");
        check(
            "{name}|{dir}|{stem}|{ext}",
            "/d/.hidden",
            ".hidden|/d|.hidden|",
        );
        check("{name}|{dir}|{stem}|{ext}", "", "|||");
        check("{{path}} {path}}}", "/a", "{path} /a}");
        check("{path}", "{name} $(reboot) `x`", "{name} $(reboot) `x`");
        check(
            "{size} {uid} {index} {ts} {key}",
            "",
            "12  7 1000 r.1.scratch.7",
        );
        check("ä{kind}ö{source}{rule}", "", "äcreateöscratchr");
    }

    #[test]
    fn faults_have_positions() {
        let check = |text: &str, expect: TemplateFault| {
            assert_eq!(Template::parse(text), Err(expect), "{text}");
        };
        let unknown = |name: &str, at| TemplateFault::Unknown {
            name: name.into(),
            at,
        };
        check("a {pth}", unknown("pth", 2));
        check("{}", unknown("", 0));
        check("{path }", unknown("path ", 0));
        check("{a{path}", unknown("a{path", 0));
        check("ä{path", TemplateFault::Open { at: 2 });
        check("{", TemplateFault::Open { at: 0 });
        check("a}b", TemplateFault::Close { at: 1 });
        let bytes = TEMPLATE_BYTES_MAX + 1;
        check(&"x".repeat(bytes), TemplateFault::Long { bytes });
    }

    #[test]
    fn addresses() {
        let check = |text: &str, expect: Result<&str, usize>| {
            let parsed = Template::parse_url(text);
            let filled = parsed.map(|it| it.fill_url(&fields(b"/a b/\xff?x&y#.h5")));
            match (filled, expect) {
                (Ok(filled), Ok(expect)) => assert_eq!(filled, expect, "{text}"),
                (Err(TemplateFault::Fixed { at, .. }), Err(expect)) => assert_eq!(at, expect),
                other => panic!("{text}: {other:?}"),
            }
        };
        check(
            "http://h/x?p={path}",
            Ok("http://h/x?p=%2Fa%20b%2F%FF%3Fx%26y%23.h5"),
        );
        check("https://h:1/{kind}/", Ok("https://h:1/create/"));
        check("http://h", Ok("http://h"));
        check("http://{name}/", Err(7));
        check("http://h{name}", Err(8));
        check("http://h:{size}/", Err(9));
        check("{path}", Err(0));
        check("http://user:{key}@h/", Err(12));
    }

    #[test]
    fn bodies() {
        let check = |text: &str, is_json: bool| {
            let parsed = Template::parse_json(text);
            assert_eq!(parsed.is_ok(), is_json, "{text}: {parsed:?}");
        };
        check(r#"{{"path": "{path}", "n": [1, "{size}"]}}"#, true);
        check(r#""{path}""#, true);
        check(r#"{{"path": {path}}}"#, false);
        check(r#"{{"kind": {kind}}}"#, false);
        check(r#"{"path": 1}"#, false);
        check("plain", false);
    }

    proptest! {
        #[test]
        fn no_text_and_no_value_panics(text in ".{0,60}", path in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(template) = Template::parse(&text) {
                let fields = fields(&path);
                template.fill(&fields);
                template.fill_url(&fields);
                template.fill_json(&fields);
            }
        }

        #[test]
        fn what_is_escaped_stays_one_text(before in "[a-z{}]{0,8}", path in prop::collection::vec(any::<u8>(), 0..60)) {
            let before = before.replace('{', "{{").replace('}', "}}");
            let literal = before.replace("{{", "{").replace("}}", "}");
            let template = Template::parse(&format!("{{{{\"p\":\"{before}{{path}}\"}}}}")).unwrap();
            let fields = fields(&path);
            let parsed: serde_json::Value = serde_json::from_slice(&template.fill_json(&fields)).unwrap();
            let expect = format!("{literal}{}", String::from_utf8_lossy(&path));
            prop_assert_eq!(parsed.get("p").and_then(|it| it.as_str()), Some(expect.as_str()));
            let url = Template::parse_url("http://h/{path}").unwrap().fill_url(&fields);
            let path_of = url.strip_prefix("http://h/").unwrap();
            prop_assert!(path_of.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)));
        }
    }
}
