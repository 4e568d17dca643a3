//! Names that are similar to a mistyped one: the proposals in every error text, by one rule.
//!
//! The rule is in `model` because streams, tables, insights, functions and paths are all mistyped
//! in the same ways, and every interface must propose the same names.

use std::cmp::Ordering;

/// Most names that are proposed.
pub const NEAR_MAX: usize = 3;

/// Smallest likeness that is proposed (1 is equal).
const LIKENESS_MIN: f64 = 0.7;
/// Likeness of a name that contains all words of the other, however many words are missing.
const LIKENESS_OF_WORDS: f64 = 0.9;
/// Length of the shortest prefix for which names are proposed.
const BEGINNING_BYTES_MIN: usize = 4;
/// Longest text that is compared: a longer one is not a mistyped name.
const WANTED_BYTES_MAX: usize = 256;

/// Returns the names most similar to `wanted`, best first, at most [`NEAR_MAX`]. Case and
/// separators of words (dots, underscores, slashes) do not count: `diskreadbytes` is near
/// `disk_read_bytes`.
///
/// ```
/// use barograph_model::near;
///
/// let known = ["disk.read.bytes", "disk.write.bytes", "memory.total.bytes"];
/// assert_eq!(near("disk_raed_bytes", known)[0], "disk.read.bytes");
/// assert_eq!(near("total.bytes", known), ["memory.total.bytes"]);
/// ```
pub fn near<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if wanted.len() > WANTED_BYTES_MAX {
        return Vec::new();
    }
    let wanted = Folded::new(wanted);
    let mut found: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| (wanted.likeness(&Folded::new(name)), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .collect();
    found.sort_by(best_first);
    found.dedup_by(|a, b| a.1 == b.1);
    found.truncate(NEAR_MAX);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Orders by likeness; among equally similar names the shorter one is the simpler guess.
fn best_first(a: &(f64, &str), b: &(f64, &str)) -> Ordering {
    b.0.total_cmp(&a.0)
        .then_with(|| a.1.len().cmp(&b.1.len()))
        .then_with(|| a.1.cmp(b.1))
}

/// A name in lower case, as its words and as a whole without separators.
struct Folded {
    words: Vec<String>,
    whole: String,
}

impl Folded {
    fn new(name: &str) -> Self {
        let lower = name.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric());
        let words: Vec<String> = words.filter(|w| !w.is_empty()).map(str::to_owned).collect();
        let whole = words.concat();
        Self { words, whole }
    }

    fn likeness(&self, known: &Self) -> f64 {
        if self.whole.is_empty() || known.whole.is_empty() {
            return 0.0;
        }
        let alike = strsim::normalized_damerau_levenshtein(&self.whole, &known.whole);
        let begins =
            self.whole.len() >= BEGINNING_BYTES_MIN && known.whole.starts_with(&self.whole);
        if self.within(known) || known.within(self) {
            alike.max(LIKENESS_OF_WORDS)
        } else if begins {
            alike.max(LIKENESS_MIN)
        } else {
            alike
        }
    }

    fn within(&self, other: &Self) -> bool {
        self.words.iter().all(|word| other.words.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::near;

    const KNOWN: [&str; 7] = [
        "disk.read.bytes",
        "disk.write.bytes",
        "memory.total.bytes",
        "cpu.busy.ratio",
        "/api/v1/latest",
        "/api/v1/sources",
        "streams",
    ];

    #[test]
    fn near_names() {
        let check = |wanted: &str, expect: &[&str]| {
            assert_eq!(near(wanted, KNOWN), expect, "{wanted}");
        };
        check("diskreadbytes", &["disk.read.bytes", "disk.write.bytes"]);
        check("disk_raed_bytes", &["disk.read.bytes", "disk.write.bytes"]);
        check("Disk.Write.Byte", &["disk.write.bytes"]);
        check("read.bytes", &["disk.read.bytes"]);
        check("disk.read.bytes.total", &["disk.read.bytes"]);
        check("memory_total", &["memory.total.bytes"]);
        check("memorytot", &["memory.total.bytes"]);
        check("Stream", &["streams"]);
        check("/api/v1/lates", &["/api/v1/latest"]);
        check("/api/v1/sources/disk", &["/api/v1/sources"]);
        check("cpu.busy", &["cpu.busy.ratio"]);
        check("xyz", &[]);
        check("", &[]);
        check("...", &[]);
        check(&"disk.read.bytes.".repeat(20), &[]);
    }

    #[test]
    fn a_name_is_proposed_once_and_never_more_than_three() {
        let many = ["a.bytes", "a.bytes", "b.bytes", "c.bytes", "d.bytes"];
        assert_eq!(near("bytes", many), ["a.bytes", "b.bytes", "c.bytes"]);
    }
}
