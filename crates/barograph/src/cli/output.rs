//! All output of the program: lines that survive a closed pipe, aligned tables, and no control
//! characters from other users' stream names and values that a terminal would obey.
//!
//! This module stands alone because that holds only as long as nothing else writes to a terminal; a
//! test in this file searches the other commands for it.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

/// Whether the error is that the reader of our output has gone away, which is no failure of ours.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether a terminal takes this letter for a command, or shows the following text in another
/// place: control characters (C0, DEL, C1), directions of text, marks without a width, and line
/// separators.
fn is_order(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn harmless(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |letter: char| is_order(letter) && !is_kept(letter);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().fold(String::new(), |mut shown, letter| {
        match is_bad(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
        shown
    });
    Cow::Owned(shown)
}

/// A text of somebody else on one line, without letters that a terminal obeys: those are shown as
/// `\u{1b}`.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    harmless(text, |_| false)
}

/// Prints lines for people.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    write(harmless(text, |letter| letter == '\n').as_bytes())
}

/// Prints text of this program's own, such as a script for a shell, byte by byte.
pub(super) fn print_own(text: &str) -> anyhow::Result<()> {
    write(text.as_bytes())
}

/// Prints lines for people about the progress, on standard error. Errors in writing are ignored.
pub(super) fn tell(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(harmless(text, |letter| letter == '\n').as_bytes());
}

/// Prints a progress line if standard error is a terminal; `again` overwrites the line before.
pub(super) fn progress(text: &str, again: bool) {
    if !io::stderr().is_terminal() {
        return;
    }
    let (before, after) = if again { ("\r", "") } else { ("", "\n") };
    let _ = write!(io::stderr(), "{before}{}{after}", plain(text));
}

fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Prints one JSON value on a line of its own.
pub(super) fn print_json(json: &impl Serialize) -> anyhow::Result<()> {
    print_json_text(&serde_json::to_string(json)?)
}

/// Prints JSON text. Only its strings can contain letters that a terminal obeys; they are written
/// as JSON escapes, which mean the same.
pub(super) fn print_json_text(json: &str) -> anyhow::Result<()> {
    write(format!("{}\n", json_escaped(json)).as_bytes())
}

fn json_escaped(json: &str) -> Cow<'_, str> {
    // Line ends separate values; in strings they are escaped already.
    let is_order = |letter: char| is_order(letter) && !matches!(letter, '\n' | '\r' | '\t');
    if !json.contains(is_order) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        match is_order(letter) {
            true => {
                let mut units = [0; 2];
                let units = letter.encode_utf16(&mut units);
                escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => escaped.push(letter),
        }
    }
    Cow::Owned(escaped)
}

/// The output for forms that programs read (CSV, lines of JSON): unchanged to a file or a pipe,
/// without letters that a terminal obeys to a terminal.
pub(super) fn for_programs() -> Box<dyn Write> {
    let out = io::stdout();
    match out.is_terminal() {
        true => Box::new(Harmless {
            out,
            rest: Vec::new(),
        }),
        false => Box::new(out.lock()),
    }
}

/// Whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// A writer that passes text on without letters that a terminal obeys.
struct Harmless<W> {
    out: W,
    /// The first bytes of a letter that is not complete yet.
    rest: Vec<u8>,
}

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        let text = String::from_utf8_lossy(&text);
        let shown = harmless(&text, |letter| matches!(letter, '\n' | '\r'));
        self.out.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Prints rows under headings; columns named in `right` are numbers and are aligned to the right.
pub(super) fn print_table(
    headings: &[&str],
    right: &[usize],
    rows: &[Vec<String>],
) -> anyhow::Result<()> {
    print(&table(headings, right, rows))
}

/// Formats rows under headings; a row is one line whatever its cells contain.
pub(super) fn table(headings: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let one_line = |row: &Vec<String>| row.iter().map(|cell| plain(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(one_line).collect();
    let headings: Vec<Cow<'_, str>> = headings.iter().map(|heading| plain(heading)).collect();
    let width_of = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|r| r.get(column))
            .map(|c| c.chars().count());
        cells
            .max()
            .unwrap_or(0)
            .max(headings[column].chars().count())
    };
    let widths: Vec<usize> = (0..headings.len()).map(width_of).collect();
    let mut text = String::new();
    let heading_row: Vec<String> = headings.iter().map(|h| h.to_string()).collect();
    for row in std::iter::once(&heading_row).chain(&rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let (before, after) = if right.contains(&column) {
                (pad, String::new())
            } else {
                (String::new(), pad)
            };
            line += &format!("{before}{cell}{after}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let rows = vec![
            vec!["a".to_owned(), "10".to_owned()],
            vec!["bcd".to_owned(), "7".to_owned()],
        ];
        assert_eq!(
            table(&["NAME", "N"], &[1], &rows),
            "NAME   N\na     10\nbcd    7\n"
        );
    }

    #[test]
    fn terminals_are_given_no_orders() {
        let check = |text: &str, expect: &str| {
            assert_eq!(plain(text), expect);
            let rows = [vec![text.to_owned(), "1".to_owned()]];
            let shown = table(&["NAME", "N"], &[], &rows);
            assert_eq!(shown.lines().count(), 2, "{shown:?}");
            assert!(shown.contains(expect), "{shown:?}");
        };
        check(
            "disk.read.bytes{mount=/größe…}",
            "disk.read.bytes{mount=/größe…}",
        );
        check("\x1b[2J\x1b]0;owned\x07", "\\u{1b}[2J\\u{1b}]0;owned\\u{7}");
        check("\u{9b}31m\x7f\0", "\\u{9b}31m\\u{7f}\\u{0}");
        check("live\ndisk.busy  0 %\r\t", "live\\ndisk.busy  0 %\\r\\t");
        check(
            "\u{202e}txt.exe\u{2066}\u{200b}\u{2028}",
            "\\u{202e}txt.exe\\u{2066}\\u{200b}\\u{2028}",
        );
        let lines = harmless("a\x1bb\nc\n", |letter| letter == '\n');
        assert_eq!(lines, "a\\u{1b}b\nc\n");
    }

    #[test]
    fn json_says_the_same_without_orders() {
        let value = serde_json::json!({ "\u{9b}31m": ["\x1b[2J\x7f", "\u{202e}\u{e0041}ü"] });
        let text = value.to_string();
        let escaped = json_escaped(&text);
        assert!(!escaped.contains(is_order), "{escaped:?}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
            value
        );
    }

    #[test]
    fn a_letter_that_is_cut_is_put_together() {
        let mut out = Harmless {
            out: Vec::new(),
            rest: Vec::new(),
        };
        for byte in "name,ü\u{9b}31m\r\n\x1b".as_bytes() {
            out.write_all(&[*byte]).unwrap();
        }
        out.write_all(&[0xff, b'.']).unwrap();
        let text = String::from_utf8(out.out).unwrap();
        assert_eq!(text, "name,ü\\u{9b}31m\r\n\\u{1b}\u{fffd}.");
    }

    /// The commands print through this file only. They may only query properties of the standard
    /// streams.
    #[test]
    fn nothing_else_prints() {
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![here];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                files += 1;
                if path.ends_with("cli/output.rs") {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let asked = text.replace("stdout().is_terminal()", "");
                let asked = asked.replace("stderr().is_terminal()", "");
                for way in ["print!(", "println!(", "dbg!(", "stdout()", "stderr()"] {
                    let found = asked.contains(way);
                    assert!(!found, "{} prints by {way}", path.display());
                }
            }
        }
        assert!(files > 20, "only {files} files were read");
    }
}
