//! Text functions that replace SQLite's: `instr`, `replace`, `like`, `glob`, and `trim` with
//! characters to trim.
//!
//! The time of SQLite's functions grows with the product of their arguments' lengths, and nothing
//! can stop them before they return: two such calls would block a query thread for minutes. The
//! time of these functions grows with the longer argument, or they check the statement's time while
//! they run. Their results are the same, except for BLOBs that are not UTF-8: invalid bytes become
//! U+FFFD.

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};

use crate::error::{interrupted, usage};
use crate::live::Live;

/// Longest text that a statement may make, in bytes.
pub const TEXT_RESULT_BYTES_MAX: i32 = 16 << 20;
/// Longest pattern of LIKE and GLOB, in bytes.
pub(crate) const LIKE_PATTERN_BYTES_MAX: usize = 1_000;
/// Steps of a comparison between two checks of the statement's time.
const STEPS_BETWEEN_LOOKS: u32 = 1 << 16;
/// Positions of a byte search between two checks: each may compare many bytes.
const POSITIONS_BETWEEN_LOOKS: usize = 64;
/// Floats with a power of ten from this one up to the next constant are written without an
/// exponent.
const EXPONENT_MIN: i32 = -4;
const EXPONENT_MAX: i32 = 17;
/// Most digits of a float.
const SIGNIFICANT_MAX: usize = 17;

/// Registers the functions on a connection.
pub(crate) fn register(connection: &Connection, live: &Arc<Live>) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    for (name, arguments, work) in FUNCTIONS {
        let live = Arc::clone(live);
        connection.create_scalar_function(*name, *arguments, flags, move |call| {
            if live.must_stop() {
                return Err(interrupted());
            }
            work(&live, call)
        })?;
    }
    Ok(())
}

/// The result of a function.
#[derive(Debug, PartialEq)]
enum Given {
    Null,
    Int(i64),
    Text(String),
}

impl rusqlite::ToSql for Given {
    fn to_sql(&self) -> Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => rusqlite::types::Null.into(),
            Self::Int(v) => (*v).into(),
            Self::Text(v) => v.as_str().into(),
        })
    }
}

type Work = fn(&Live, &Context<'_>) -> Result<Given>;

const FUNCTIONS: &[(&str, i32, Work)] = &[
    ("instr", 2, instr),
    ("replace", 3, replace),
    ("like", 2, like),
    ("like", 3, like),
    ("glob", 2, glob),
    ("trim", 2, |_, call| trim(call, true, true)),
    ("ltrim", 2, |_, call| trim(call, true, false)),
    ("rtrim", 2, |_, call| trim(call, false, true)),
];

/// An argument as text; none if it is NULL.
fn text<'a>(call: &'a Context<'_>, at: usize) -> Option<Cow<'a, str>> {
    match call.get_raw(at) {
        ValueRef::Null => None,
        ValueRef::Integer(v) => Some(v.to_string().into()),
        ValueRef::Real(v) => Some(real(v).into()),
        ValueRef::Text(v) | ValueRef::Blob(v) => Some(String::from_utf8_lossy(v)),
    }
}

/// A float as SQLite writes it (`%!.17g`): 17 digits, or fewer if they identify it and the others
/// would be only noise (49.47, not 49.469999999999999), and always with a point. In two of a
/// thousand floats the seventeenth digit differs by one, since SQLite computes the eighteenth
/// approximately.
fn real(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "Inf" } else { "-Inf" }.into();
    }
    if value == 0.0 {
        return "0.0".into();
    }
    let (digits, exponent) = significant(value.abs());
    let minus = if value < 0.0 { "-" } else { "" };
    if !(EXPONENT_MIN..EXPONENT_MAX).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let rest = if rest.is_empty() { "0" } else { rest };
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{minus}{first}.{rest}e{sign}{:02}", exponent.abs());
    }
    let Ok(exponent) = usize::try_from(exponent) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{minus}0.{zeros}{digits}");
    };
    match digits.split_at_checked(exponent + 1) {
        Some((whole, part)) if !part.is_empty() => format!("{minus}{whole}.{part}"),
        _ => format!("{minus}{digits:0<width$}.0", width = exponent + 1),
    }
}

/// The digits that SQLite writes for a positive float, and the power of ten of the first one.
fn significant(value: f64) -> (String, i32) {
    let of = |digits: usize| {
        let written = format!("{value:.*e}", digits.saturating_sub(1));
        let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
        let digits = digits.replace('.', "");
        (digits, exponent.parse().unwrap_or(0))
    };
    let is_same = |(digits, exponent): &(String, i32)| {
        format!("{}.{}e{exponent}", &digits[..1], &digits[1..]).parse() == Ok(value)
    };
    let (long, exponent) = of(SIGNIFICANT_MAX + 1);
    let before = |within: usize, repeated: char| long[..within].trim_end_matches(repeated).len();
    let fewer = if long[14..16] == *"99" {
        Some(of(before(14, '9')))
    } else if long[13..16] == *"000" || exponent >= SIGNIFICANT_MAX as i32 {
        Some(of(before(13, '0')))
    } else {
        None
    };
    let (digits, exponent) = fewer.filter(is_same).unwrap_or_else(|| {
        // The last digit is rounded by the next one, as in SQLite.
        let rounded = long.parse::<u64>().unwrap_or(0).saturating_add(5) / 10;
        let digits = rounded.to_string();
        let carried = i32::from(digits.len() > SIGNIFICANT_MAX);
        (digits, exponent + carried)
    });
    (digits.trim_end_matches('0').to_owned(), exponent)
}

/// `instr(text, wanted)`: the position of the first occurrence, from 1; 0 if there is none.
fn instr(live: &Live, call: &Context<'_>) -> Result<Given> {
    if let (ValueRef::Blob(within), ValueRef::Blob(wanted)) = (call.get_raw(0), call.get_raw(1)) {
        return place_of(live, within, wanted);
    }
    let (Some(within), Some(wanted)) = (text(call, 0), text(call, 1)) else {
        return Ok(Given::Null);
    };
    let found = within.find(&*wanted);
    let place = found.map_or(0, |at| within[..at].chars().count() + 1);
    Ok(Given::Int(place as i64))
}

fn place_of(live: &Live, within: &[u8], wanted: &[u8]) -> Result<Given> {
    let last = within.len().checked_sub(wanted.len());
    for at in 0..last.map_or(0, |last| last + 1) {
        if at.is_multiple_of(POSITIONS_BETWEEN_LOOKS) && live.must_stop() {
            return Err(interrupted());
        }
        if within[at..].starts_with(wanted) {
            return Ok(Given::Int(at as i64 + 1));
        }
    }
    Ok(Given::Int(0))
}

/// `replace(text, wanted, by)`: replaces every occurrence; returns the text itself if `wanted` is
/// empty.
fn replace(_: &Live, call: &Context<'_>) -> Result<Given> {
    let (Some(within), Some(wanted)) = (text(call, 0), text(call, 1)) else {
        return Ok(Given::Null);
    };
    if wanted.is_empty() {
        return Ok(Given::Text(within.into_owned()));
    }
    let Some(by) = text(call, 2) else {
        return Ok(Given::Null);
    };
    // The length of the result is checked before it is made.
    let times = within.matches(&*wanted).count();
    let more = by.len().saturating_sub(wanted.len()).saturating_mul(times);
    if within.len().saturating_add(more) > TEXT_RESULT_BYTES_MAX as usize {
        return Err(crate::error::too_long());
    }
    Ok(Given::Text(within.replace(&*wanted, &by)))
}

/// `trim(text, characters)`: removes these characters at the ends.
fn trim(call: &Context<'_>, at_start: bool, at_end: bool) -> Result<Given> {
    let (Some(all), Some(wanted)) = (text(call, 0), text(call, 1)) else {
        return Ok(Given::Null);
    };
    let mut wanted: Vec<char> = wanted.chars().collect();
    wanted.sort_unstable();
    let is_wanted = |c: char| wanted.binary_search(&c).is_ok();
    let mut rest = &*all;
    if at_start {
        rest = rest.trim_start_matches(is_wanted);
    }
    if at_end {
        rest = rest.trim_end_matches(is_wanted);
    }
    Ok(Given::Text(rest.to_owned()))
}

/// `like(pattern, text [, escape])`: the same as `text LIKE pattern`.
fn like(live: &Live, call: &Context<'_>) -> Result<Given> {
    let escape = match call.len() {
        3 => match text(call, 2) {
            None => return Ok(Given::Null),
            Some(escape) => {
                let mut chars = escape.chars();
                let (Some(one), None) = (chars.next(), chars.next()) else {
                    return Err(usage("ESCAPE expression must be a single character"));
                };
                Some(one)
            }
        },
        _ => None,
    };
    compared(live, call, |pattern| parts_of_like(pattern, escape))
}

/// `glob(pattern, text)`: the same as `text GLOB pattern`.
fn glob(live: &Live, call: &Context<'_>) -> Result<Given> {
    compared(live, call, parts_of_glob)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Matches any run of characters.
    Any,
    /// Matches any one character.
    One,
    /// Matches this character, ignoring the case of a to z.
    Folded(char),
    /// Matches this character exactly.
    Exact(char),
    /// Matches one of these ranges, or, if false, none of them.
    Set(bool, Vec<(char, char)>),
    /// Matches nothing: a set that is not closed.
    Never,
}

impl Part {
    fn is_match(&self, c: char) -> bool {
        match self {
            Self::One => true,
            Self::Folded(own) => own.eq_ignore_ascii_case(&c),
            Self::Exact(own) => *own == c,
            Self::Set(is_in, ranges) => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) == *is_in
            }
            Self::Any | Self::Never => false,
        }
    }
}

fn parts_of_like(pattern: &str, escape: Option<char>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        parts.push(match c {
            c if Some(c) == escape => chars.next().map_or(Part::Never, Part::Folded),
            '%' => Part::Any,
            '_' => Part::One,
            c => Part::Folded(c),
        });
    }
    parts
}

fn parts_of_glob(pattern: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        parts.push(match c {
            '*' => Part::Any,
            '?' => Part::One,
            '[' => set(&mut chars),
            c => Part::Exact(c),
        });
    }
    parts
}

/// The rest of `[…]` after its bracket.
fn set(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Part {
    let is_in = chars.next_if_eq(&'^').is_none();
    let mut ranges = Vec::new();
    // A closing bracket that comes first is one of the characters.
    if chars.next_if_eq(&']').is_some() {
        ranges.push((']', ']'));
    }
    let mut before: Option<char> = None;
    while let Some(c) = chars.next() {
        match (c, before, chars.peek()) {
            (']', _, _) => return Part::Set(is_in, ranges),
            ('-', Some(from), Some(&to)) if to != ']' => {
                chars.next();
                ranges.push((from, to));
                before = None;
            }
            (c, _, _) => {
                ranges.push((c, c));
                before = Some(c);
            }
        }
    }
    Part::Never
}

fn compared(
    live: &Live,
    call: &Context<'_>,
    parts: impl FnOnce(&str) -> Vec<Part>,
) -> Result<Given> {
    let (pattern, within) = (text(call, 0), text(call, 1));
    if pattern
        .as_ref()
        .is_some_and(|p| p.len() > LIKE_PATTERN_BYTES_MAX)
    {
        return Err(usage("LIKE or GLOB pattern too complex"));
    }
    let (Some(pattern), Some(within)) = (pattern, within) else {
        return Ok(Given::Null);
    };
    let parts = parts(until_nul(&pattern));
    let matches = is_match(&parts, until_nul(&within), &|| live.must_stop());
    matches.map(|yes| Given::Int(yes.into()))
}

/// The part of a text that SQLite compares, up to a NUL.
fn until_nul(text: &str) -> &str {
    text.split('\0').next().unwrap_or_default()
}

/// Whether the whole text matches. It uses linear memory and no recursion: only the last run (`*`)
/// is retried with more characters.
fn is_match(parts: &[Part], text: &str, must_stop: &dyn Fn() -> bool) -> Result<bool> {
    let (mut at, mut rest) = (0, text.chars());
    let mut last: Option<(usize, std::str::Chars<'_>)> = None;
    let mut steps = 0_u32;
    loop {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(STEPS_BETWEEN_LOOKS) && must_stop() {
            return Err(interrupted());
        }
        if parts.get(at) == Some(&Part::Any) {
            at += 1;
            last = Some((at, rest.clone()));
            continue;
        }
        let here = rest.clone().next();
        match (here, parts.get(at)) {
            (None, None) => return Ok(true),
            (Some(c), Some(part)) if part.is_match(c) => {
                rest.next();
                at += 1;
            }
            // At the end of the text, a longer run would leave even less of it.
            (None, Some(_)) => return Ok(false),
            (Some(_), _) => match &mut last {
                Some((after, from)) => {
                    from.next();
                    (at, rest) = (*after, from.clone());
                }
                None => return Ok(false),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that has SQLite's own functions under other names does not exist: SQLite's are
    /// called first, then ours.
    #[test]
    fn comparisons_are_those_of_sqlite() {
        let sqlite = Connection::open_in_memory().unwrap();
        let texts = [
            "", "a", "A", "ab", "aXb", "a%b", "a_b", "äb", "aaab", "]", "-", "b-c", "[a]", "a]",
            "ÄB", "a\0b", "\0",
        ];
        let patterns = [
            "",
            "%",
            "_",
            "a%",
            "%b",
            "a%b",
            "A_B",
            "%a%b%",
            "äb",
            "ä_",
            "_b",
            "a\\%b",
            "a\\_b",
            "\\",
            "*",
            "?",
            "a*",
            "*b",
            "[ab]",
            "[^a]",
            "[a-c]*",
            "[]]",
            "[^]]",
            "[a-]",
            "[-a]",
            "[a",
            "[]",
            "*[b-]*",
            "[a-c]?[a-c]",
            "a\0c",
        ];
        let go_on = || false;
        for text in texts {
            for pattern in patterns {
                let ask = |sql: &str| -> bool {
                    sqlite
                        .query_row(sql, [text, pattern], |row| row.get(0))
                        .unwrap()
                };
                let compared = |parts: &[Part]| is_match(parts, until_nul(text), &go_on).unwrap();
                let like = |escape| compared(&parts_of_like(until_nul(pattern), escape));
                assert_eq!(
                    like(None),
                    ask("SELECT ?1 LIKE ?2"),
                    "{text} LIKE {pattern}"
                );
                let escaped = ask("SELECT ?1 LIKE ?2 ESCAPE '\\'");
                assert_eq!(like(Some('\\')), escaped, "{text} LIKE {pattern} ESCAPE");
                let glob = compared(&parts_of_glob(until_nul(pattern)));
                assert_eq!(glob, ask("SELECT ?1 GLOB ?2"), "{text} GLOB {pattern}");
            }
        }
    }

    #[test]
    fn floats_are_written_as_by_sqlite() {
        let sqlite = Connection::open_in_memory().unwrap();
        for value in [
            0.0,
            1.0,
            -1.5,
            0.1,
            1e-4,
            1e-5,
            123456.789,
            1e14,
            1e15,
            1e16,
            1e17,
            1e18,
            1.5e20,
            -2.5e-10,
            3.0e100,
            0.30000000000000004,
            1.0 / 3.0,
            -2.0 / 3.0,
            49.47,
            0.07,
            1.0 / 1024.0,
            123456789.123456,
            9007199254740993.0,
            123456789012345680.0,
            f64::MAX,
            f64::EPSILON,
        ] {
            let sql = "SELECT CAST(?1 AS TEXT)";
            let expect: String = sqlite.query_row(sql, [value], |row| row.get(0)).unwrap();
            assert_eq!(real(value), expect);
        }
    }

    #[test]
    fn a_comparison_without_end_is_stopped() {
        let parts = parts_of_like("%a%a%a%a%b", None);
        let text = "a".repeat(1 << 20);
        assert!(is_match(&parts, &text, &|| true).is_err());
    }
}
