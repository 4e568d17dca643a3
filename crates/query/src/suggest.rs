//! Near matches for a name that does not exist.

/// Most names that are proposed.
const NEAR_MAX: usize = 3;
/// Less alike than this is no match (1 is equal).
const LIKENESS_MIN: f64 = 0.75;
/// Shorter beginnings than this propose nothing.
const BEGINNING_BYTES_MIN: usize = 4;

/// The names most like `wanted`, best first. Separators do not count: `diskreadbytes` is near
/// `disk_read_bytes`.
pub(crate) fn near<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    let fold = |name: &str| {
        let kept = name.chars().filter(|c| c.is_alphanumeric());
        kept.flat_map(char::to_lowercase).collect::<String>()
    };
    let wanted = fold(wanted);
    let mut scored: Vec<(f64, &str)> = names
        .iter()
        .map(|name| (likeness(&wanted, &fold(name)), name.as_str()))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.len().cmp(&b.1.len())));
    scored
        .into_iter()
        .take(NEAR_MAX)
        .map(|(_, name)| name)
        .collect()
}

/// 1 is equal. A name that goes on where the wanted one ends is as good as a slip of the keys.
fn likeness(wanted: &str, name: &str) -> f64 {
    let alike = strsim::normalized_damerau_levenshtein(wanted, name);
    let begins = wanted.len() >= BEGINNING_BYTES_MIN && name.starts_with(wanted);
    if begins {
        alike.max(LIKENESS_MIN)
    } else {
        alike
    }
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn near_names() {
        let names = [
            "disk_read_bytes",
            "disk_write_bytes",
            "memory_total_bytes",
            "streams",
        ];
        let names = names.map(str::to_owned);
        let check = |wanted: &str, expect: &[&str]| {
            assert_eq!(near(wanted, &names), expect, "{wanted}");
        };
        check("diskreadbytes", &["disk_read_bytes"]);
        check("disk_raed_bytes", &["disk_read_bytes"]);
        check("Stream", &["streams"]);
        check("memory_total", &["memory_total_bytes"]);
        check("xyz", &[]);
    }
}
