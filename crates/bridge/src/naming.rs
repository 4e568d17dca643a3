//! Turns foreign names into ours (`docs/guide/bridges.md` has the rule).
//!
//! The module stands alone because it is a promise: the same name gives the same stream for ever.

/// Reserved names of labels: the agent sets these itself.
const KEPT_LABELS: [&str; 3] = ["application", "instance", "user"];

/// Turns a name into the words of a stream's name: lower case, `_` for all except letters, digits,
/// `_` and dots, without empty words. None for an empty name.
pub fn stream_words(raw: &str) -> Option<String> {
    let character = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '_' | '.') => c,
        _ => '_',
    };
    let plain: String = raw.chars().map(character).collect();
    let words: Vec<&str> = plain.split('.').filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join("."))
}

/// Turns a name into a label's name: `_` for all except letters, digits and `_`, with the prefix
/// `label_` if it does not begin with a letter, and the suffix `_` if it is a reserved name. None
/// for an empty name.
pub fn label_name(raw: &str) -> Option<String> {
    let character = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut name: String = raw.chars().map(character).collect();
    let first = name.chars().next()?;
    if !first.is_ascii_alphabetic() {
        name.insert_str(0, "label_");
    }
    if KEPT_LABELS.contains(&&*name) {
        name.push('_');
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let check = |raw: &str, expect: &str| {
            let expect = (!expect.is_empty()).then_some(expect);
            assert_eq!(stream_words(raw).as_deref(), expect, "{raw:?}");
        };
        check("http.server.duration", "http.server.duration");
        check("CPU Usage", "cpu_usage");
        check("a/b-c", "a_b_c");
        check("größe", "gr__e");
        check("..a...b.", "a.b");
        check("0", "0");
        check("", "");
        check("...", "");
    }

    #[test]
    fn labels() {
        let check = |raw: &str, expect: Option<&str>| {
            assert_eq!(label_name(raw).as_deref(), expect, "{raw:?}");
        };
        check("http.request.method", Some("http_request_method"));
        check("Host", Some("Host"));
        check("0x", Some("label_0x"));
        check("_a", Some("label__a"));
        check("é", Some("label__"));
        check("user", Some("user_"));
        check("instance", Some("instance_"));
        check("", None);
    }
}
