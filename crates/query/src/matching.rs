//! The series that the pattern of a call matches.

use barograph_model::{Descriptor, Selector, Span};
use rusqlite::Result;

use crate::error::{failed, interrupted, usage};
use crate::listing::Arguments;
use crate::live::Live;
use crate::reading::Reading;

/// The pattern in argument 0.
pub(crate) fn selector(arguments: &Arguments) -> Result<Selector> {
    Selector::parse(arguments.text(0)?).map_err(|e| usage(e.to_string()))
}

/// The series that match a pattern, to be read within the span.
pub(crate) fn matching(live: &Live, selector: &Selector, span: Span) -> Result<Reading> {
    // Matching many streams takes time, so no stream matches any more once the statement's time is
    // up.
    let wanted =
        |_: &str, d: &Descriptor| !live.must_stop() && selector.matches(d.name.as_str(), &d.labels);
    let reading = Reading::take(live, &wanted, span).map_err(failed)?;
    match live.must_stop() {
        true => Err(interrupted()),
        false => Ok(reading),
    }
}
