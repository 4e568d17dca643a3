//! The tables of rules and of calls into programs, each under its name and under its older one.
//!
//! They are apart from the other system tables because of the length of that file.

use barograph_stream::{CALLS_DOCUMENT, RULES_DOCUMENT};

use crate::documents::{calls, document};
use crate::listing::Listing;

/// A row for each call into running programs, the newest of each user.
pub(super) const CALLS: Listing = Listing {
    name: "calls",
    kind: "system",
    help: "calls into running programs, the newest of each user: handlers called, knobs set",
    columns: CALL_COLUMNS,
    arguments: &[],
    produce: |live, _| calls(live, CALLS_DOCUMENT, CALL_COLUMNS),
};

/// The table of calls under the name that it had in earlier versions.
pub(super) const CALLS_BEFORE: Listing = Listing {
    name: "triggers",
    help: "the older name of calls",
    ..CALLS
};

/// A row for each rule.
pub(super) const RULES: Listing = Listing {
    name: "rules",
    kind: "system",
    help: "the rules made by CREATE RULE: their SQL, what they call and how they are",
    columns: RULE_COLUMNS,
    arguments: &[],
    produce: |live, _| document(live, RULES_DOCUMENT, RULE_COLUMNS),
};

/// The table of rules under the name that it had in earlier versions.
pub(super) const RULES_BEFORE: Listing = Listing {
    name: "declared_triggers",
    help: "the older name of rules",
    ..RULES
};

const CALL_COLUMNS: &[(&str, &str)] = &[
    ("scope", "TEXT"),
    ("id", "INTEGER"),
    ("ts", "INTEGER"),
    ("name", "TEXT"),
    ("kind", "TEXT"),
    ("user", "TEXT"),
    ("publications", "TEXT"),
    ("target", "TEXT"),
    ("incarnation", "TEXT"),
    ("payload", "TEXT"),
    ("payload_bytes", "INTEGER"),
    ("at_frame", "INTEGER"),
    ("by_user", "INTEGER"),
    ("by_pid", "INTEGER"),
    ("via", "TEXT"),
    ("expires_ts", "INTEGER"),
    ("matched", "INTEGER"),
    ("acknowledged", "INTEGER"),
    ("failed", "INTEGER"),
    ("refused", "INTEGER"),
    ("late", "INTEGER"),
    ("expired", "INTEGER"),
    ("gone", "INTEGER"),
    ("state", "TEXT"),
    ("last_ack_ts", "INTEGER"),
];

const RULE_COLUMNS: &[(&str, &str)] = &[
    ("name", "TEXT"),
    ("call", "TEXT"),
    ("sql", "TEXT"),
    ("help", "TEXT"),
    ("state", "TEXT"),
    ("reason", "TEXT"),
    ("subjects", "INTEGER"),
    ("holding", "INTEGER"),
    ("beyond", "INTEGER"),
    ("left_out", "INTEGER"),
    ("fired", "INTEGER"),
    ("suppressed", "INTEGER"),
    ("failed", "INTEGER"),
    ("missed", "INTEGER"),
    ("evaluations", "INTEGER"),
    ("made_ts", "INTEGER"),
    ("last_fired_ts", "INTEGER"),
];
