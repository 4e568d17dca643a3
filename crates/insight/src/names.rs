//! The default unit and help of an insight, and names that are similar to a wrong one.

use barograph_model::{HELP_BYTES_MAX, Name};

/// The default unit, from the last word of the name, which is the unit by convention. It is not
/// inferred from the SELECT, since it would then depend on which streams came first, and the unit
/// is part of a stream's identity.
pub(crate) fn unit_of(name: &Name) -> &'static str {
    match name.as_str().rsplit('.').next().unwrap_or_default() {
        "bytes" => "bytes",
        "seconds" => "seconds",
        "ratio" => "ratio",
        "count" => "count",
        "ops" => "ops",
        "requests" => "requests",
        "packets" => "packets",
        "pages" => "pages",
        "tasks" => "tasks",
        "bytes_per_second" => "bytes/s",
        "ops_per_second" => "ops/s",
        "packets_per_second" => "packets/s",
        _ => "",
    }
}

/// Cuts a help text at a character so that it fits in a descriptor.
pub(crate) fn help(mut text: String) -> String {
    let mut end = text.len().min(HELP_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Returns known names that are similar to a wrong one, for an error.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let near = barograph_model::near(name, known);
    near.into_iter().map(str::to_owned).collect()
}
