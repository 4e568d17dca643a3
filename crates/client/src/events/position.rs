//! The position of a reader in the events of all sources, as a text that can be kept.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Longest text of a position, in bytes.
pub const POSITION_BYTES_MAX: usize = 64 << 10;

/// An event by its number in its source, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMark {
    /// Number of the event in its source; 0 for the place before the first one.
    pub index: u64,
    /// Time of the event in ns since the epoch, if it is known. With it a reader finds out that a
    /// number was given to another event since.
    pub ts: Option<i64>,
}

/// The last event of each source that a reader has seen.
///
/// As a text it is `SOURCE=INDEX@TS`, with `;` between sources; bytes of a source's name other than
/// letters, digits and `._/-` are written as `%` and two hexadecimal digits. `@TS` may be left out.
/// A position in no source is `;`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPosition(BTreeMap<String, EventMark>);

/// The reason why a text is no position.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PositionFault {
    /// The text is too long.
    #[error("a position of events has at most {POSITION_BYTES_MAX} bytes, not {0}")]
    Long(usize),
    /// A part of the text is malformed.
    #[error("{0:?} is no position of events: it must be SOURCE=INDEX@TS, with ; between sources")]
    Part(String),
}

impl EventPosition {
    /// The mark of a source.
    pub fn get(&self, source: &str) -> Option<EventMark> {
        self.0.get(source).copied()
    }

    /// Sets the mark of a source.
    pub fn set(&mut self, source: &str, mark: EventMark) {
        match self.0.get_mut(source) {
            Some(held) => *held = mark,
            None => {
                self.0.insert(source.to_owned(), mark);
            }
        }
    }

    /// The sources and their marks, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, EventMark)> {
        self.0.iter().map(|(source, mark)| (source.as_str(), *mark))
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._/-".contains(&byte)
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(";");
        }
        for (at, (source, mark)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(";")?;
            }
            for byte in source.bytes() {
                match is_plain(byte) {
                    true => write!(f, "{}", char::from(byte))?,
                    false => write!(f, "%{byte:02X}")?,
                }
            }
            write!(f, "={}", mark.index)?;
            if let Some(ts) = mark.ts {
                write!(f, "@{ts}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for EventPosition {
    type Err = PositionFault;

    fn from_str(text: &str) -> Result<Self, PositionFault> {
        if text.len() > POSITION_BYTES_MAX {
            return Err(PositionFault::Long(text.len()));
        }
        let mut position = Self::default();
        for part in text.trim().split(';').filter(|part| !part.is_empty()) {
            let read = || {
                let (source, mark) = part.split_once('=')?;
                let (index, ts) = match mark.split_once('@') {
                    Some((index, ts)) => (index, Some(ts.parse().ok()?)),
                    None => (mark, None),
                };
                let index = index.parse().ok()?;
                Some((name(source)?, EventMark { index, ts }))
            };
            let (source, mark) = read().ok_or_else(|| PositionFault::Part(part.to_owned()))?;
            position.0.insert(source, mark);
        }
        Ok(position)
    }
}

/// The name of a source from its text.
fn name(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match first {
            b'%' => {
                let (digits, after) = after.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
                (byte, after)
            }
            plain => (*plain, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_position_returns(
            marks in proptest::collection::btree_map(
                "\\PC{0,20}", (any::<u64>(), any::<Option<i64>>()), 0..8,
            )
        ) {
            let mut position = EventPosition::default();
            for (source, (index, ts)) in &marks {
                position.set(source, EventMark { index: *index, ts: *ts });
            }
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-z%=@;0-9é-]{0,40}") {
            if let Ok(position) = text.parse::<EventPosition>() {
                prop_assert_eq!(position.to_string().parse(), Ok(position));
            }
        }
    }

    #[test]
    fn texts() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let found = text.parse::<EventPosition>();
            let found = found.map(|position| position.to_string());
            let bad = |part: &str| PositionFault::Part(part.to_owned());
            assert_eq!(found, expect.map(str::to_owned).map_err(bad), "{text}");
        };
        check("", Ok(";"));
        check(";", Ok(";"));
        check("data=15", Ok("data=15"));
        check("home=3@-5;data=15@1700", Ok("data=15@1700;home=3@-5"));
        check("a%3db%C3%A9=1", Ok("a%3Db%C3%A9=1"));
        check("data", Err("data"));
        check("data=-1", Err("data=-1"));
        check("data=1@", Err("data=1@"));
        check("a=1;%f=1", Err("%f=1"));
        check("%+1=1", Err("%+1=1"));
        check("%ff=1", Err("%ff=1"));
        let long = "a".repeat(POSITION_BYTES_MAX + 1);
        assert_eq!(
            long.parse::<EventPosition>(),
            Err(PositionFault::Long(long.len()))
        );
    }
}
