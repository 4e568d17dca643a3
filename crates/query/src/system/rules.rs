//! The tables of rules and of calls into programs, each under its name and under its older one.
//!
//! They are apart from the other system tables because each stands there twice.

use barograph_stream::{CALLS_COLUMNS, CALLS_DOCUMENT, RULES_COLUMNS, RULES_DOCUMENT};

use crate::documents::{calls, document};
use crate::listing::Listing;

/// A row for each call into running programs, the newest of each user.
pub(super) const CALLS: Listing = Listing {
    name: "calls",
    kind: "system",
    help: "calls into running programs, the newest of each user: calls of handlers, and settings of knobs",
    columns: CALLS_COLUMNS,
    arguments: &[],
    produce: |live, _| calls(live, CALLS_DOCUMENT, CALLS_COLUMNS),
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
    help: "the rules made by CREATE RULE, with their SQL, the handlers that they call, and their state",
    columns: RULES_COLUMNS,
    arguments: &[],
    produce: |live, _| document(live, RULES_DOCUMENT, RULES_COLUMNS),
};

/// The table of rules under the name that it had in earlier versions.
pub(super) const RULES_BEFORE: Listing = Listing {
    name: "declared_triggers",
    help: "the older name of rules",
    ..RULES
};
