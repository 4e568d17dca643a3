//! The table of policies, apart from the other system tables because of the length of that file.

use crate::documents::document;
use crate::listing::Listing;

/// A row for each policy and stream; missing fields are NULL, as is the stream of a policy that
/// matches none.
pub(crate) const POLICIES: Listing = Listing {
    name: "policies",
    kind: "system",
    help: "the policies: how wrong what is said between looks may be, when each stream is looked at, and what that saves",
    columns: COLUMNS,
    arguments: &[],
    produce: |live, _| document(live, "policies.json", COLUMNS),
};

const COLUMNS: &[(&str, &str)] = &[
    ("name", "TEXT"),
    ("streams", "TEXT"),
    ("kind", "TEXT"),
    ("error", "TEXT"),
    ("confidence", "REAL"),
    ("stream", "TEXT"),
    ("labels", "TEXT"),
    ("source", "TEXT"),
    ("interval_ns", "INTEGER"),
    ("wait_ns", "INTEGER"),
    ("said", "TEXT"),
    ("wrong_share", "REAL"),
    ("looks", "INTEGER"),
    ("looks_per_s", "REAL"),
    ("saved_share", "REAL"),
    ("reason", "TEXT"),
    ("origin", "TEXT"),
    ("sql", "TEXT"),
    ("help", "TEXT"),
];
