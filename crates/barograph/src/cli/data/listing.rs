//! The arrays of a packed file that has several.

use std::path::Path;

use barograph_progressive::{ArrayHeader, ArrayListing};
use serde::Serialize;

use super::super::output;

/// The arrays of a file.
#[derive(Serialize)]
struct Listing {
    bytes: u64,
    /// Bytes after the last array that is whole: what an append that was stopped has left.
    incomplete_bytes: u64,
    arrays: Vec<ListedArray>,
}

#[derive(Serialize)]
struct ListedArray {
    name: String,
    step: Option<u64>,
    dims: Vec<usize>,
    /// Whether the values are at the points of the mesh of the file.
    on_mesh: bool,
    bytes: u64,
    buckets: usize,
    /// The smallest error of a reading, as a share of the range; `None` if it has no bound.
    nrmse: Option<f64>,
}

/// Prints the arrays of a file.
pub(super) fn list(path: &Path, found: &ArrayListing, is_json: bool) -> anyhow::Result<()> {
    let arrays = found.headers().map(|header: &ArrayHeader| {
        let errors = header
            .buckets()
            .iter()
            .map(|it| it.error.nrmse(header.range()));
        let least = errors.fold(f64::INFINITY, f64::min);
        ListedArray {
            name: header.name.clone(),
            step: header.step,
            dims: header.shape().dims().to_vec(),
            on_mesh: header.on_mesh,
            bytes: header.array_bytes(),
            buckets: header.buckets().len(),
            nrmse: least.is_finite().then_some(least),
        }
    });
    let listing = Listing {
        bytes: found.bytes(),
        incomplete_bytes: found.bytes() - found.end(),
        arrays: arrays.collect(),
    };
    if is_json {
        return output::print_json(&listing);
    }
    let rows: Vec<Vec<String>> = listing.arrays.iter().map(row).collect();
    let table = output::table(
        &["name", "step", "axes", "bytes", "buckets", "least NRMSE"],
        &[1, 3, 4, 5],
        &rows,
    );
    let rest = match listing.incomplete_bytes {
        0 => String::new(),
        bytes => format!("{bytes} bytes after the last whole array are incomplete\n"),
    };
    let count = listing.arrays.len();
    output::print(&format!(
        "{}: {count} arrays\n\n{table}{rest}",
        path.display()
    ))
}

fn row(array: &ListedArray) -> Vec<String> {
    let dims: Vec<String> = array.dims.iter().map(usize::to_string).collect();
    vec![
        array.name.escape_debug().to_string(),
        array.step.map_or("-".into(), |step| step.to_string()),
        dims.join(" × ") + if array.on_mesh { " on the mesh" } else { "" },
        array.bytes.to_string(),
        array.buckets.to_string(),
        array
            .nrmse
            .map_or("-".into(), |nrmse| format!("{nrmse:.2e}")),
    ]
}
