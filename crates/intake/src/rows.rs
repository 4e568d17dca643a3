//! The rows of documents about all processes, as far as there is room. Each user has an equal part
//! of the room.
//!
//! Readers do not accept documents beyond a bound, and writing one keeps the intake thread from all
//! other work.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::process::PublishingProcess;

/// Approximate bytes of the rows of one document.
const ROWS_BYTES_MAX: usize = 4 << 20;
/// Key of the number of rows of the same user that were left out.
const LEFT_OUT: &str = "left_out";

/// One user's part of a document.
struct Part {
    bytes_left: usize,
    left_out: usize,
}

/// The rows of processes. `count` returns how many rows a process has, without making them. Each
/// row has in `left_out` the number of rows of its user that found no room.
pub(crate) fn fair_rows<'p, R: Iterator<Item = Json>>(
    processes: impl Iterator<Item = &'p PublishingProcess> + Clone,
    count: impl Fn(&'p PublishingProcess) -> usize,
    rows: impl Fn(&'p PublishingProcess) -> R,
) -> Vec<Json> {
    let with_rows = processes.filter_map(|p| Some((p, count(p))).filter(|(_, count)| *count > 0));
    let mut parts: BTreeMap<u32, Part> = BTreeMap::new();
    for (process, _) in with_rows.clone() {
        parts.entry(process.uid()).or_insert(Part {
            bytes_left: 0,
            left_out: 0,
        });
    }
    let users = parts.len().max(1);
    for part in parts.values_mut() {
        part.bytes_left = ROWS_BYTES_MAX / users;
    }
    let mut all: Vec<(u32, Json)> = Vec::new();
    for (process, count) in with_rows {
        let Some(part) = parts.get_mut(&process.uid()) else {
            continue;
        };
        let before = all.len();
        if part.bytes_left > 0 {
            for row in rows(process) {
                let bytes = bytes_of(&row);
                if bytes > part.bytes_left {
                    part.bytes_left = 0;
                    break;
                }
                part.bytes_left -= bytes;
                all.push((process.uid(), row));
            }
        }
        part.left_out += count.saturating_sub(all.len() - before);
    }
    let left_out = |uid: u32| parts.get(&uid).map_or(0, |part| part.left_out);
    let said = all.into_iter().map(|(uid, mut row)| {
        row[LEFT_OUT] = json!(left_out(uid));
        row
    });
    said.collect()
}

/// Approximate bytes of a value as JSON text; characters that have to be escaped are counted
/// slightly too low.
fn bytes_of(value: &Json) -> usize {
    const NUMBER: usize = 8;
    const AROUND: usize = 4;
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => NUMBER,
        Json::String(text) => text.len() + AROUND,
        Json::Array(all) => all.iter().map(bytes_of).sum::<usize>() + AROUND,
        Json::Object(all) => {
            let fields = all
                .iter()
                .map(|(name, value)| name.len() + AROUND + bytes_of(value));
            fields.sum::<usize>() + AROUND
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_about_those_of_the_text() {
        let row = json!({"name": "solver", "labels": {"rank": "3"}, "taken": 12_345_678, "all": [null, true]});
        let (bytes, text) = (bytes_of(&row), row.to_string().len());
        assert!(bytes >= text && bytes < 2 * text, "{bytes} {text}");
    }
}
