//! The cells of tables in Markdown, from text to values.

use std::str::FromStr;

use barograph_model::instant_ns;

/// The cells of a line `| a | b |`, still with their escapes. A `\|` is part of a cell.
pub(super) fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut all = vec![String::new()];
    let mut is_escaped = false;
    for char in line.chars() {
        match (char, all.last_mut()) {
            ('|', _) if !is_escaped => all.push(String::new()),
            (_, Some(cell)) => cell.push(char),
            _ => {}
        }
        is_escaped = char == '\\' && !is_escaped;
    }
    if all.last().is_some_and(|cell| cell.trim().is_empty()) && all.len() > 1 {
        all.pop();
    }
    all.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// The bytes of a cell: `\|` is a bar, `\\` a backslash, and `\xNN` the byte of this number.
/// Backticks around all of a cell are left out.
pub(super) fn unescaped(cell: &str) -> Result<Vec<u8>, String> {
    let inner = cell
        .strip_prefix('`')
        .and_then(|cell| cell.strip_suffix('`'));
    let mut rest = inner.unwrap_or(cell);
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.bytes());
        let mut chars = after.chars();
        match chars.next() {
            Some(char @ ('|' | '\\')) => bytes.push(char as u8),
            Some('x') => {
                let digits = after
                    .get(1..3)
                    .filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
                let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
                bytes.push(byte.ok_or("write two hexadecimal digits after \\x, like \\xff")?);
                chars = after[3..].chars();
            }
            _ => return Err("write \\\\ for a backslash, \\| for a bar, \\xNN for a byte".into()),
        }
        rest = chars.as_str();
    }
    bytes.extend(rest.bytes());
    Ok(bytes)
}

pub(super) fn number<T: FromStr>(name: &str, bytes: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| format!("{name}: write a whole number of at least 0"))
}

/// A time in ns since the epoch, or like `2026-11-20T08:00:00Z`.
pub(super) fn instant(name: &str, bytes: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    // There is no clock, so that no time is relative to now.
    let is_absolute = text.starts_with(|c: char| c.is_ascii_digit());
    let ns = instant_ns(text, 0).ok().filter(|_| is_absolute);
    ns.ok_or_else(|| {
        format!("{name}: write ns since the epoch, or a time like 2026-11-20T08:00:00Z")
    })
}

pub(super) fn truth(name: &str, bytes: &[u8]) -> Result<bool, String> {
    match bytes {
        b"yes" | b"true" | b"1" => Ok(true),
        b"no" | b"false" | b"0" => Ok(false),
        _ => Err(format!("{name}: write yes or no")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_of_lines() {
        let check = |line: &str, expect: &[&str]| assert_eq!(cells(line), expect, "{line}");
        check("| a | b |", &["a", "b"]);
        check("|a|b", &["a", "b"]);
        check("| a\\|b | | c |", &["a\\|b", "", "c"]);
        check("| a\\\\| b |", &["a\\\\", "b"]);
        check("|", &[""]);
        check("||", &[""]);
    }

    #[test]
    fn escapes() {
        let check = |cell: &str, expect: Option<&[u8]>| {
            assert_eq!(unescaped(cell).ok().as_deref(), expect, "{cell}");
        };
        check("/a", Some(b"/a"));
        check("`/a b`", Some(b"/a b"));
        check("`", Some(b"`"));
        check("/a\\|b\\\\c\\xffd\\x7C", Some(b"/a|b\\c\xffd|"));
        check("\\x20", Some(b" "));
        for cell in ["\\", "\\n", "\\x", "\\x1", "\\xg0", "\\x+1", "\\x1é"] {
            check(cell, None);
        }
    }

    proptest! {
        #[test]
        fn all_names_can_be_written(name in prop::collection::vec(any::<u8>(), 0..40)) {
            let written: String = name.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            prop_assert_eq!(unescaped(&written), Ok(name.clone()));
            if let Ok(text) = std::str::from_utf8(&name)
                && text.trim() == text && !text.starts_with('`') && !text.contains(['\n', '\r'])
            {
                let written = text.replace('\\', "\\\\").replace('|', "\\|");
                let line = format!("| {written} | x |");
                let all = cells(&line);
                prop_assert_eq!(all.len(), 2);
                prop_assert_eq!(unescaped(&all[0]), Ok(name));
            }
        }

        #[test]
        fn no_text_panics(text in "[`|\\\\x0-9a-fé ]{0,20}") {
            for cell in cells(&text) {
                let _ = unescaped(&cell);
            }
        }
    }
}
