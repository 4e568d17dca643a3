//! Values of streams at a time without a look: the agent's projections, evaluated here.

use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Sample, Selector, predicted_sample, projections_among};

use crate::values::LatestValue;
use crate::view::{NodeView, ViewStream};

/// The value of each matching stream of a view at `horizon` from `now_ns`, by its projections.
pub(crate) fn expected(
    view: &NodeView,
    selector: &Selector,
    now_ns: i64,
    horizon: Duration,
) -> Vec<LatestValue> {
    let horizon_ns = i64::try_from(horizon.as_nanos()).unwrap_or(i64::MAX);
    let at_ns = now_ns.saturating_add(horizon_ns);
    let one = |known: &Arc<ViewStream>| {
        let said = projections_of(view, known)?;
        let (mut value, _) = known.latest(now_ns, known.is_alive(now_ns))?;
        if !is_of_look(&value, at_ns) {
            value.sample = Some(predicted(said, at_ns)?);
        }
        Some(value)
    };
    view.matching(selector).filter_map(one).collect()
}

/// The present value of each matching stream of a view: predicted if it has a forecast, else
/// measured.
pub(crate) fn latest_predicted(
    view: &NodeView,
    selector: &Selector,
    now_ns: i64,
) -> Vec<LatestValue> {
    let one = |known: &Arc<ViewStream>| {
        let (measured, _) = known.latest(now_ns, known.is_alive(now_ns))?;
        let said = projections_of(view, known);
        Some(predicted_or_measured(said, measured, now_ns))
    };
    view.matching(selector).filter_map(one).collect()
}

/// What is predicted of a stream for now, if it has a forecast.
pub(crate) fn predicted_now(view: &NodeView, known: &ViewStream, now_ns: i64) -> Option<Sample> {
    predicted(projections_of(view, known)?, now_ns)
}

/// The stream that holds the projections of a stream.
pub(crate) fn projections_of<'a>(
    view: &'a NodeView,
    known: &ViewStream,
) -> Option<&'a Arc<ViewStream>> {
    projections_among(&view.streams, |k| &k.descriptor, &known.descriptor).first()
}

/// Returns the present value of a stream by its projections, or its measured value.
pub(crate) fn predicted_or_measured(
    said: Option<&Arc<ViewStream>>,
    mut value: LatestValue,
    now_ns: i64,
) -> LatestValue {
    if !is_of_look(&value, now_ns)
        && let Some(sample) = said.and_then(|said| predicted(said, now_ns))
    {
        value.sample = Some(sample);
    }
    value
}

/// Whether a value needs no forecast: its last look was at this very time, or later, if the clock
/// was set back.
fn is_of_look(value: &LatestValue, at_ns: i64) -> bool {
    value.sample.is_some() && value.looked_ns >= at_ns
}

fn predicted(said: &ViewStream, at_ns: i64) -> Option<Sample> {
    let (said, looked_ns) = said.newest()?;
    predicted_sample(&said.value, looked_ns, at_ns)
}
