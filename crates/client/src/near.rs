//! Names near a mistaken one, for error texts.

use crate::view::View;

/// Most names that an error text proposes.
pub const NEAR_MAX: usize = 3;

/// Below this likeness (1 is equal) a name is no help.
const LIKENESS_MIN: f64 = 0.6;

/// Names of streams that resemble `name`, best first.
pub(crate) fn names(view: &View, name: &str) -> Vec<String> {
    // Who knows SQL writes the table's name, and case is easily missed.
    let wanted = name.to_lowercase();
    let dotted = wanted.replace('_', ".");
    let mut found: Vec<(f64, &str)> = Vec::new();
    for stream in &view.streams {
        let known = stream.descriptor.name.as_str();
        if found.last().is_some_and(|(_, last)| *last == known) {
            continue; // The view is sorted: one name, many labels.
        }
        let likeness = likeness(&wanted, known).max(likeness(&dotted, known));
        found.push((likeness, known));
    }
    found.retain(|(likeness, _)| *likeness >= LIKENESS_MIN);
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    found
        .into_iter()
        .take(NEAR_MAX)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Edit distance as a share of the length; a name whose words are all in the other (`read.bytes`,
/// `disk.bytes`) is near however much is missing.
fn likeness(wanted: &str, known: &str) -> f64 {
    let distance = strsim::normalized_damerau_levenshtein(wanted, known);
    let words = |text: &str| text.split('.').all(|w| known.split('.').any(|k| k == w));
    if words(wanted) {
        distance.max(0.9)
    } else {
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::likeness;

    #[test]
    fn likeness_of_names() {
        let near = |a: &str, b: &str| likeness(a, b) >= super::LIKENESS_MIN;
        for (wanted, known, expect) in [
            ("disk.raed.bytes", "disk.read.bytes", true),
            ("read.bytes", "disk.read.bytes", true),
            ("bytes", "disk.read.bytes", true),
            ("disk.read.byte", "disk.read.bytes", true),
            ("cpu.busy.ratio", "disk.read.bytes", false),
            ("", "disk.read.bytes", false),
        ] {
            assert_eq!(near(wanted, known), expect, "{wanted} {known}");
        }
    }
}
