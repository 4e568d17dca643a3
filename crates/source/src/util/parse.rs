//! Parsers of the bytes that the kernel gives: they do not allocate, panic or guess.

use std::fmt::Write;
use std::io::BufRead as _;

/// The lines that end in a newline. The text after the last newline was cut off, so its last number
/// may be only the beginning of one: see [`cut`].
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let from_here = rest;
        // The search of std, which compares many bytes at a time.
        let length = rest.skip_until(b'\n').ok()?;
        from_here[..length].strip_suffix(b"\n")
    })
}

/// The text after the last newline: empty unless the file was cut off.
pub(crate) fn cut(bytes: &[u8]) -> &[u8] {
    let whole = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    &bytes[whole..]
}

/// The words of a line, separated by blanks and tabs.
pub(crate) fn words(line: &[u8]) -> Words<'_> {
    Words(line)
}

/// The rest of a line, as an iterator over its words.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The next word if it is a [`number`], in one pass over its bytes: lists of counters are
    /// mostly numbers, and most of those are short.
    pub(crate) fn number(&mut self) -> Option<u64> {
        /// A number of so many digits cannot be too large.
        const DIGITS: usize = 18;
        self.skip_blanks();
        let mut value = 0;
        let mut length = 0;
        for b in self.0.iter().take(DIGITS) {
            let digit = b.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value * 10 + u64::from(digit);
            length += 1;
        }
        let (word, rest) = self.0.split_at(length);
        if word.is_empty() || rest.first().is_some_and(|b| !is_blank(*b)) {
            return number(self.next()?);
        }
        self.0 = rest;
        Some(value)
    }

    /// Whether no word is left.
    pub(crate) fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.0.is_empty()
    }

    fn skip_blanks(&mut self) {
        while let Some((first, rest)) = self.0.split_first()
            && is_blank(*first)
        {
            self.0 = rest;
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.skip_blanks();
        let end = self.0.iter().position(|b| is_blank(*b));
        let (word, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t')
}

/// A decimal number that a stream can hold: digits only, at most `i64::MAX`.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for b in word {
        let digit = b.checked_sub(b'0').filter(|d| *d <= 9)?;
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (value <= i64::MAX as u64).then_some(value)
}

/// A finite decimal number with an optional fraction and no exponent, like `0.25`.
pub(crate) fn decimal(word: &[u8]) -> Option<f64> {
    if word.is_empty() || !word.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
        return None;
    }
    std::str::from_utf8(word)
        .ok()?
        .parse()
        .ok()
        .filter(|v: &f64| v.is_finite())
}

/// The only number in an attribute file.
pub(crate) fn sole_number(bytes: &[u8]) -> Option<u64> {
    number(bytes.strip_suffix(b"\n")?.trim_ascii())
}

/// The only text in an attribute file.
pub(crate) fn sole_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.strip_suffix(b"\n")?)
        .ok()
        .map(str::trim)
        .filter(|t| !t.is_empty())
}

/// A name as the value of a label: bytes that are not UTF-8 and control characters become `\xNN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let hex = |text: &mut String, bytes: &[u8]| {
        for b in bytes {
            write!(text, "\\x{b:02x}").expect("a String takes what it is given");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() {
                true => hex(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(c),
            }
        }
        hex(&mut text, chunk.invalid());
    }
    text
}

/// A word of mountinfo with its octal escapes (`\040` for a blank) decoded.
pub(crate) fn unescape_octal(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|d| d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal {
            Some(d) if *first == b'\\' && d[0] <= b'3' => {
                bytes.push((d[0] - b'0') << 6 | (d[1] - b'0') << 3 | (d[2] - b'0'));
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |word: &str, expect: Option<u64>| assert_eq!(number(word.as_bytes()), expect);
        check("0", Some(0));
        check("9223372036854775807", Some(i64::MAX as u64));
        for bad in [
            "",
            "-1",
            "+1",
            "1.5",
            "x",
            "9223372036854775808",
            "18446744073709551616",
        ] {
            check(bad, None);
        }
        check(&"9".repeat(400), None);
    }

    #[test]
    fn words_and_the_numbers_among_them() {
        let check = |line: &str, expect: &[(&str, Option<u64>)]| {
            let mut rest = words(line.as_bytes());
            for (word, value) in expect {
                assert!(!rest.at_end(), "{line:?} before {word}");
                let mut same = rest.clone();
                assert_eq!(rest.next(), Some(word.as_bytes()), "{line:?}");
                assert_eq!(same.number(), *value, "{line:?} at {word}");
                assert_eq!(same.0, rest.0, "{line:?} after {word}");
            }
            assert!(rest.at_end(), "{line:?}");
            assert_eq!((rest.number(), rest.next()), (None, None), "{line:?}");
        };
        check("", &[]);
        check(" \t ", &[]);
        check(
            "  8\t 0 sda ",
            &[("8", Some(8)), ("0", Some(0)), ("sda", None)],
        );
        check("12x 3", &[("12x", None), ("3", Some(3))]);
        check("-1 +1", &[("-1", None), ("+1", None)]);
        let (most, over) = (i64::MAX.to_string(), (1u64 << 63).to_string());
        check(
            &format!("{most} {over} 1"),
            &[
                (&most, Some(i64::MAX as u64)),
                (&over, None),
                ("1", Some(1)),
            ],
        );
        let nines = "9".repeat(18);
        check(&nines, &[(&nines, Some(999_999_999_999_999_999))]);
        let zeros = "0".repeat(40);
        check(
            &format!("{zeros}7 8"),
            &[(&format!("{zeros}7"), Some(7)), ("8", Some(8))],
        );
    }

    #[test]
    fn decimals() {
        let check = |word: &str, expect: Option<f64>| assert_eq!(decimal(word.as_bytes()), expect);
        check("0.25", Some(0.25));
        check("12", Some(12.0));
        for bad in [
            "",
            ".",
            "1.2.3",
            "nan",
            "inf",
            "1e5",
            "-1",
            &"9".repeat(400),
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn only_whole_lines_count() {
        let check = |text: &str, expect: &[&str], rest: &str| {
            let got: Vec<&[u8]> = lines(text.as_bytes()).collect();
            let expect: Vec<&[u8]> = expect.iter().map(|l| l.as_bytes()).collect();
            assert_eq!(
                (got, cut(text.as_bytes())),
                (expect, rest.as_bytes()),
                "{text:?}"
            );
        };
        check("", &[], "");
        check("a", &[], "a");
        check("a\n", &["a"], "");
        check("a\n\nb\nc", &["a", "", "b"], "c");
    }

    #[test]
    fn names_become_text() {
        let check = |bytes: &[u8], expect: &str| assert_eq!(escape(bytes), expect);
        check(b"sda", "sda");
        check("naïve".as_bytes(), "naïve");
        check(b"a\xffb\xc3", "a\\xffb\\xc3");
        check(b"a\nb", "a\\x0ab");
    }

    #[test]
    fn mount_escapes() {
        let check = |word: &str, expect: &str| {
            assert_eq!(unescape_octal(word.as_bytes()), expect.as_bytes(), "{word}");
        };
        check("/a\\040b", "/a b");
        check("/a\\134b", "/a\\b");
        check("/a\\04", "/a\\04");
        check("/a\\999", "/a\\999");
        check("/a\\777", "/a\\777");
        check("\\", "\\");
    }
}
