//! Text in SQL: where numbers in it end, numbers written as text, LIKE and GLOB.
//!
//! It is separate from `value` because it is a page of small lexical rules that are SQLite's own.

pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// The end of the longest number at the start of `text`; 0 if there is none.
pub(crate) fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole = digits(sign);
    let mut end = sign + whole;
    let mut any = whole > 0;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        any |= fraction > 0;
        if any {
            end += 1 + fraction;
        }
    }
    if !any {
        return 0;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    end
}

/// A real as SQLite writes it: with 15 digits if they represent it exactly, else with 17, and
/// always with a point or an exponent. (SQLite computes the last of 17 digits itself, and its
/// result sometimes differs.)
pub fn real(v: f64) -> String {
    /// Power of 10 from which on an exponent is written. It is also written below 10 to the power
    /// of -4.
    const EXPONENT_MAX: i32 = 17;
    if v.is_infinite() {
        return if v > 0.0 { "Inf".into() } else { "-Inf".into() };
    }
    if v == 0.0 {
        return "0.0".into();
    }
    let short = format!("{v:.14e}");
    let (scientific, digits) = if short.parse() == Ok(v) {
        (short, 15)
    } else {
        (format!("{v:.16e}"), 17)
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..EXPONENT_MAX).contains(&exponent) {
        let decimals = (digits - 1 - exponent).max(1) as usize;
        return without_zeros(&format!("{v:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(number: &str) -> String {
    let number = number.trim_end_matches('0');
    if number.ends_with('.') {
        format!("{number}0")
    } else {
        number.to_owned()
    }
}

/// The kind of wildcards in a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildcardKind {
    /// `%` and `_`; ASCII letters match in either case.
    Like,
    /// `*`, `?` and `[…]`; case counts.
    Glob,
}

/// Whether the whole of `text` matches `pattern`. Takes quadratic time at worst, and no recursion.
pub fn matches(wild: WildcardKind, pattern: &str, text: &str) -> bool {
    let any = if wild == WildcardKind::Like { '%' } else { '*' };
    let (mut p, mut t) = (pattern, text);
    let mut retry: Option<(&str, &str)> = None;
    loop {
        if let Some(rest) = p.strip_prefix(any) {
            p = rest;
            retry = Some((p, t));
            continue;
        }
        let Some(c) = t.chars().next() else {
            return p.is_empty();
        };
        if let Some(rest) = one(wild, p, c) {
            (p, t) = (rest, &t[c.len_utf8()..]);
            continue;
        }
        // The last wildcard takes one more character.
        let Some((after, from)) = retry else {
            return false;
        };
        let Some(skipped) = from.chars().next() else {
            return false;
        };
        let from = &from[skipped.len_utf8()..];
        retry = Some((after, from));
        (p, t) = (after, from);
    }
}

/// Returns the rest of the pattern, if its first element (other than the wildcard for any run)
/// matches `c`.
fn one(wild: WildcardKind, pattern: &str, c: char) -> Option<&str> {
    let first = pattern.chars().next()?;
    let rest = &pattern[first.len_utf8()..];
    let hit = match (wild, first) {
        (WildcardKind::Like, '_') | (WildcardKind::Glob, '?') => true,
        (WildcardKind::Glob, '[') => return class(rest, c),
        (WildcardKind::Like, _) => first.eq_ignore_ascii_case(&c),
        (WildcardKind::Glob, _) => first == c,
    };
    hit.then_some(rest)
}

/// Matches a class: `[abc]`, `[a-z]` or `[^…]`; a `]` that comes first is itself a member.
fn class(pattern: &str, c: char) -> Option<&str> {
    let (inverted, mut rest) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut seen = false;
    let mut prior: Option<char> = None;
    if let Some(after) = rest.strip_prefix(']') {
        seen = c == ']';
        rest = after;
    }
    loop {
        let first = rest.chars().next()?;
        rest = &rest[first.len_utf8()..];
        let next = rest.chars().next();
        match (first, prior, next) {
            (']', _, _) => return (seen != inverted).then_some(rest),
            ('-', Some(low), Some(high)) if high != ']' => {
                seen |= (low..=high).contains(&c);
                rest = &rest[high.len_utf8()..];
                prior = None;
            }
            _ => {
                seen |= first == c;
                prior = Some(first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reals_are_written_as_in_sqlite() {
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        for v in [
            1.0,
            -2.5,
            0.1,
            1e15,
            1e14,
            123_456_789_012_345.6,
            1e16,
            1.5e16,
            1e17,
            1e18,
            1e-4,
            1e-5,
            0.1 + 0.2,
            1e300,
            f64::INFINITY,
        ] {
            let expect: String = sqlite
                .query_row("SELECT CAST(?1 AS TEXT)", [v], |r| r.get(0))
                .unwrap();
            assert_eq!(real(v), expect);
        }
    }

    #[test]
    fn patterns_match_as_in_sqlite() {
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        let texts = [
            "",
            "a",
            "A",
            "abc",
            "aXbXc",
            "a]c",
            "a-c",
            "é",
            "nvme0n1",
            "abcabcabd",
        ];
        let patterns = [
            "",
            "%",
            "_",
            "a%",
            "%c",
            "%b%c",
            "a*",
            "*",
            "?",
            "*b*d",
            "[a-c]",
            "[^a]",
            "a[]]c",
            "a[X-Z]b*",
            "[a-]*",
            "nvme[0-9]n*",
            "É",
            "[",
            "a[",
            "%abd",
            "a[b-]c",
            "[é]",
        ];
        for text in texts {
            for pattern in patterns {
                for (wild, op) in [(WildcardKind::Like, "LIKE"), (WildcardKind::Glob, "GLOB")] {
                    let sql = format!("SELECT ?1 {op} ?2");
                    let expect: bool = sqlite
                        .query_row(&sql, [text, pattern], |r| r.get(0))
                        .unwrap();
                    assert_eq!(
                        matches(wild, pattern, text),
                        expect,
                        "{text:?} {op} {pattern:?}"
                    );
                }
            }
        }
    }
}
