//! Patterns and selectors that match streams: `disk.*`, `disk.read.bytes{device=vda}`.

use std::fmt;

use crate::{Labels, ModelError, cut};

/// Longest selector, in bytes: it is matched against every stream, so it must be short.
pub const SELECTOR_BYTES_MAX: usize = 1 << 10;
/// Bytes of a pattern that an error message repeats.
const SHOWN_BYTES_MAX: usize = 100;

/// A glob over dotted names: `*` matches any run of characters, dots included; `?` matches one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern; any text is a valid pattern.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// Whether the whole of `text` matches. Linear in memory, no recursion.
    pub fn matches(&self, text: &str) -> bool {
        let (p, t) = (self.0.as_bytes(), text.as_bytes());
        let (mut pi, mut ti) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while ti < t.len() {
            if pi < p.len() && p[pi] == b'*' {
                star = Some((pi, ti));
                pi += 1;
            } else if pi < p.len() && (p[pi] == b'?' || p[pi] == t[ti]) {
                pi += 1;
                ti += 1;
            } else if let Some((star_pi, star_ti)) = star {
                pi = star_pi + 1;
                ti = star_ti + 1;
                star = Some((star_pi, ti));
            } else {
                return false;
            }
        }
        p[pi..].iter().all(|&b| b == b'*')
    }

    /// Whether the pattern can only match itself.
    pub fn is_literal(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    /// Whether the pattern may match a text that begins with `prefix`: `disk.*` can match none that
    /// begins with `app.`.
    pub fn may_begin_with(&self, prefix: &str) -> bool {
        let (text, prefix) = (self.0.as_bytes(), prefix.as_bytes());
        let is_wild = |byte: &u8| matches!(byte, b'*' | b'?');
        match text.iter().position(is_wild) {
            Some(literal) => text[..literal].iter().zip(prefix).all(|(a, b)| a == b),
            None => text.starts_with(prefix),
        }
    }

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name pattern with label patterns. A stream matches if its name matches and, for each label
/// pattern, it has that label with a matching value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Pattern for the dotted name.
    pub name: Pattern,
    /// Label names, each with a pattern for its value.
    pub labels: Vec<(String, Pattern)>,
}

impl Selector {
    /// Parses `name` or `name{label=value,…}`; both sides may be globs.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let fault = |reason: &str| ModelError::Pattern {
            pattern: cut(text.into(), SHOWN_BYTES_MAX),
            reason: reason.into(),
        };
        if text.len() > SELECTOR_BYTES_MAX {
            return Err(fault(&format!(
                "it is longer than {SELECTOR_BYTES_MAX} bytes: match with * instead"
            )));
        }
        let trimmed = text.trim();
        let (name, rest) = match trimmed.split_once('{') {
            None => (trimmed, None),
            Some((name, rest)) => (
                name,
                Some(
                    rest.strip_suffix('}')
                        .ok_or_else(|| fault("the { is not closed"))?,
                ),
            ),
        };
        if name.is_empty() {
            return Err(fault("it has no name"));
        }
        let mut labels = Vec::new();
        for pair in rest
            .into_iter()
            .flat_map(|r| r.split(','))
            .filter(|p| !p.trim().is_empty())
        {
            let (label, value) = pair
                .split_once('=')
                .ok_or_else(|| fault("a label is not name=value"))?;
            let value = value.trim().trim_matches('"');
            labels.push((label.trim().to_owned(), Pattern::new(value)));
        }
        Ok(Self {
            name: Pattern::new(name.trim()),
            labels,
        })
    }

    /// Adds one more condition `label=value`.
    pub fn with_label(mut self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((label.into(), Pattern::new(value)));
        self
    }

    /// Whether a stream of this name and these labels matches.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.name.matches(name)
            && self
                .labels
                .iter()
                .all(|(label, want)| labels.get(label).is_some_and(|v| want.matches(v)))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())?;
        if self.labels.is_empty() {
            return Ok(());
        }
        let pairs: Vec<String> = self
            .labels
            .iter()
            .map(|(l, v)| format!("{l}={}", v.as_str()))
            .collect();
        write!(f, "{{{}}}", pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let check = |pattern: &str, text: &str, expect: bool| {
            assert_eq!(
                Pattern::new(pattern).matches(text),
                expect,
                "{pattern} on {text}"
            );
        };
        check("*", "", true);
        check("disk.*", "disk.read.bytes", true);
        check("disk.*", "diskless", false);
        check("*.bytes", "disk.read.bytes", true);
        check("d?sk.*.b*s", "disk.read.bytes", true);
        check("disk.read.bytes", "disk.read.bytes", true);
        check("disk", "disk.read", false);
        check("a*b*c", "a1b2b3c", true);
        check("a*b*c", "a1b2b3", false);
    }

    #[test]
    fn a_pattern_may_match_what_begins_as_it_does() {
        for (pattern, may) in [
            ("*", true),
            ("?pp.*", true),
            ("a*", true),
            ("app.*", true),
            ("app.lulesh.residual", true),
            ("app", false),
            ("apple.*", false),
            ("disk.*", false),
            ("d*", false),
        ] {
            assert_eq!(
                Pattern::new(pattern).may_begin_with("app."),
                may,
                "{pattern}"
            );
        }
    }

    #[test]
    fn selectors() {
        let labels = Labels::new([("device", "vda"), ("node", "n1")]).unwrap();
        let check = |text: &str, expect: bool| {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(
                selector.matches("disk.read.bytes", &labels),
                expect,
                "{text}"
            );
        };
        check("disk.read.bytes", true);
        check("disk.*{device=vda}", true);
        check("disk.*{device=vd*, node=\"n1\"}", true);
        check("disk.*{device=vdb}", false);
        check("disk.*{absent=*}", false);
        for bad in ["", "{a=b}", "x{a=b", "x{a}"] {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }
}
