//! The times that a sample of an application may have.

use barograph_model::{DAY_S, NS_PER_S};

/// Most that its time may lie in the future, in ns.
pub(crate) const AFTER_NS_MAX: i64 = NS_PER_S;
/// Its greatest age, in ns.
pub(crate) const AGE_NS_MAX: i64 = 30 * DAY_S * NS_PER_S;
