//! Cutting of foreign texts that an error message repeats: an answer must not be as long as its
//! request.
//!
//! It is a module of its own because every crate that answers foreign requests returns errors.

/// Most bytes of an error text that is sent to a client, or kept for one.
pub const FAULT_BYTES_MAX: usize = 4 << 10;

/// Returns the text, or its beginning with a mark that the rest was cut, in at most `bytes_max`
/// bytes.
///
/// ```
/// # use barograph_model::cut;
/// assert_eq!(cut("short".into(), 100), "short");
/// assert_eq!(cut("a long text".into(), 9), "a long…");
/// ```
pub fn cut(mut text: String, bytes_max: usize) -> String {
    const MARK: &str = "…";
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(MARK.len())));
        text.push_str(MARK);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let check = |text: &str, max: usize, expect: &str| {
            assert_eq!(cut(text.into(), max), expect, "{text} in {max}");
        };
        check("", 0, "");
        check("abcdef", 6, "abcdef");
        check("abcdef", 5, "ab…");
        check("äöüßéè", 8, "äö…");
        check("abcdef", 0, "…");
    }
}
