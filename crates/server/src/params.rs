//! Query strings, read strictly: an unknown or malformed parameter is an error and never ignored.

use barograph_model::Selector;

use crate::fault::Fault;

/// Most `match` parameters of one request.
pub(crate) const MATCHES_MAX: usize = 128;
/// Longest `match` parameter, in bytes.
pub(crate) const MATCH_BYTES_MAX: usize = 512;

/// The decoded parameters of one request.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Decodes a query string that may only have parameters named in `known`.
    pub(crate) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, Fault> {
        let mut pairs = Vec::new();
        for part in query
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty())
        {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !known.contains(&name.as_str()) {
                let takes = if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                };
                return Err(Fault::usage(format!(
                    "unknown parameter {name:?} (known: {takes})"
                )));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// The selectors of all `match` parameters; without any, one that matches all streams.
    pub(crate) fn selectors(&self) -> Result<Vec<Selector>, Fault> {
        let matches: Vec<&str> = self.all("match").collect();
        if matches.len() > MATCHES_MAX {
            return Err(Fault::limit(format!(
                "{} match parameters, at most {MATCHES_MAX}: use globs",
                matches.len()
            )));
        }
        if let Some(long) = matches.iter().find(|m| m.len() > MATCH_BYTES_MAX) {
            return Err(Fault::limit(format!(
                "a match of {} bytes, at most {MATCH_BYTES_MAX}",
                long.len()
            )));
        }
        if matches.is_empty() {
            return Ok(vec![Selector::parse("*")?]);
        }
        Ok(matches
            .into_iter()
            .map(Selector::parse)
            .collect::<Result<_, _>>()?)
    }

    /// The only value of `name`, if it is given.
    pub(crate) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Fault> {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (_, Some(_)) => Err(Fault::usage(format!("{name} is given twice"))),
            (first, None) => Ok(first),
        }
    }

    /// The only value of `name` as an integer, if it is given.
    pub(crate) fn integer(&self, name: &str, what: &str) -> Result<Option<i64>, Fault> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| Fault::usage(format!("{name}={text} is not an integer: {what}")))
        };
        self.one(name)?.map(parse).transpose()
    }

    /// The only value of `name` as a flag; false when it is not given.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Fault> {
        match self.one(name)? {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(other) => Err(Fault::usage(format!("{name}={other} is not true or false"))),
        }
    }

    /// The node whose streams are meant; none for this one.
    pub(crate) fn node(&self) -> Result<Option<String>, Fault> {
        Ok(self.one("node")?.map(str::to_owned))
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }
}

/// Decodes percent-encoding (`%41`) and `+`.
pub(crate) fn decode(text: &str) -> Result<String, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit = |at: usize| char::from(*tail.get(at)?).to_digit(16);
                let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                    return Err(Fault::usage(
                        "a % in the query string is not followed by two hex digits",
                    ));
                };
                bytes.push((high * 16 + low) as u8);
                rest = &tail[2..];
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| Fault::usage("the query string is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        for (query, expect) in [
            ("", Some(false)),
            ("on=true", Some(true)),
            ("on=1", Some(true)),
            ("on=false", Some(false)),
            ("on", None),
            ("on=yes", None),
            ("on=1&on=1", None),
        ] {
            let found = Params::parse(Some(query), &["on"]).and_then(|p| p.flag("on"));
            assert_eq!(found.ok(), expect, "{query}");
        }
    }

    #[test]
    fn queries() {
        let check = |query: &str, expect: Result<&[&str], &str>| {
            let found = Params::parse(Some(query), &["match", "start"]).and_then(|p| {
                p.integer("start", "ns")?;
                p.selectors()
            });
            match (found, expect) {
                (Ok(found), Ok(expect)) => {
                    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
                    assert_eq!(found, expect, "{query}");
                }
                (Err(fault), Err(part)) => {
                    assert!(fault.message.contains(part), "{query}: {}", fault.message);
                }
                (found, expect) => panic!("{query}: {found:?}, not {expect:?}"),
            }
        };
        check("", Ok(&["*"]));
        check("&&", Ok(&["*"]));
        check("match=disk.*&match=cpu.*", Ok(&["disk.*", "cpu.*"]));
        check("match=a%7Bdevice%3Dvda%7d", Ok(&["a{device=vda}"]));
        check("match=a{device=vda}", Ok(&["a{device=vda}"]));
        check("match=a{mount=/a+b}", Ok(&["a{mount=/a b}"]));
        check("match=a{mount=%C3%A9}", Ok(&["a{mount=é}"]));
        check("match=%ff", Err("not UTF-8"));
        check("match=%f", Err("two hex digits"));
        check("match=%+1", Err("two hex digits"));
        check("match=a%", Err("two hex digits"));
        check("match=", Err("it has no name"));
        check("match=a{b", Err("not closed"));
        check("macht=a", Err("known: match, start"));
        check("start=1&start=2", Err("given twice"));
        check("start=now", Err("not an integer"));
        check("start=99999999999999999999", Err("not an integer"));
        check(&"match=a&".repeat(MATCHES_MAX + 1), Err("use globs"));
        check(
            &format!("match={}", "a".repeat(MATCH_BYTES_MAX + 1)),
            Err("at most 512"),
        );
    }
}
