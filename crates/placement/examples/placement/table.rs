//! Cells of tables, with medians and ranges of several seeds, and paragraphs in lines of one width.

/// The widest line of a paragraph, in characters.
const LINE_CHARS_MAX: usize = 118;

/// Prints a text in lines of at most that width, and an empty line.
pub(crate) fn paragraph(text: &str) {
    println!("{}\n", wrapped(text));
}

/// Prints list items, and an empty line.
pub(crate) fn list(items: &[String]) {
    for item in items {
        println!("{}", wrapped(&format!("* {item}")));
    }
    println!();
}

/// A text in lines of at most that width. A list item goes on below its first word.
pub(crate) fn wrapped(text: &str) -> String {
    let indent = if text.starts_with("* ") { "  " } else { "" };
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        let is_full = line.chars().count() + 1 + word.chars().count() > LINE_CHARS_MAX;
        match (line.is_empty(), is_full) {
            (true, _) => line = word.to_owned(),
            (false, false) => line = format!("{line} {word}"),
            (false, true) => lines.push(std::mem::replace(&mut line, format!("{indent}{word}"))),
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// A whole number with commas between groups of three digits.
pub(crate) fn count(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// The median of some values; of an even number, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// `least to most`, with so many digits.
pub(crate) fn range(values: &[f64], digits: usize) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:.digits$} to {most:.digits$}")
}

/// `median (least to most)` with so many digits.
pub(crate) fn spread(values: &[f64], digits: usize) -> String {
    let median = median(values);
    format!("{median:.digits$} ({})", range(values, digits))
}
