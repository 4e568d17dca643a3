//! What an insight's unit and help are when its statement does not say, and names near a wrong one.

use barograph_model::{HELP_BYTES_MAX, Name};

/// The unit, from the last word of the name: names have their unit last. Inferring it from the
/// SELECT instead would let it depend on which streams were there first, and the unit is part of
/// a stream's identity.
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

/// Help that fits a descriptor, cut at a character.
pub(crate) fn help(mut text: String) -> String {
    let mut end = text.len().min(HELP_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Names near a mistaken one, as an error owns them.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let near = barograph_model::near(name, known);
    near.into_iter().map(str::to_owned).collect()
}
