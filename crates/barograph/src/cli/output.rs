//! Printing: lines that survive a closed pipe, and aligned tables.

use std::io::{self, Write as _};

use serde_json::Value as Json;

/// Whether the reader of our output has gone away, which is no failure of ours.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints text as it is.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints one JSON value on a line of its own.
pub fn print_json(json: &Json) -> anyhow::Result<()> {
    print(&format!("{json}\n"))
}

/// Prints rows under headings; columns named in `right` are numbers and stand to the right.
pub fn print_table(headings: &[&str], right: &[usize], rows: &[Vec<String>]) -> anyhow::Result<()> {
    print(&table(headings, right, rows))
}

/// Rows under headings as text.
pub fn table(headings: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
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
    let heading_row: Vec<String> = headings.iter().map(|h| (*h).to_owned()).collect();
    for row in std::iter::once(&heading_row).chain(rows) {
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
}
