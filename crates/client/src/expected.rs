//! What streams are at a time that no look was at: the agent's projections, evaluated here.

use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Sample, Selector, predicted_sample, projections_among};

use crate::view::{Known, View};
use crate::{LatestValue, Observer};

impl Observer {
    /// Of each stream that matches what it is `horizon` from now (zero: now), by name and labels: a sample of that time whose
    /// quality is predicted and whose error is the half width that the agent's confidence is of; infinite while that is not known.
    /// Streams that are not forecast, or not so far, are left out. Ages are those of the looks behind it.
    pub fn expected(&self, selector: &Selector, horizon: Duration) -> Vec<LatestValue> {
        let view = self.view();
        let now_ns = self.now_ns();
        let horizon_ns = i64::try_from(horizon.as_nanos()).unwrap_or(i64::MAX);
        let at_ns = now_ns.saturating_add(horizon_ns);
        let one = |known: &Arc<Known>| {
            let said = view.projections_of(known)?;
            let (mut value, _) = known.latest(now_ns, known.is_alive(now_ns))?;
            if !is_of_look(&value, at_ns) {
                value.sample = Some(predicted(said, at_ns)?);
            }
            Some(value)
        };
        view.matching(selector).filter_map(one).collect()
    }

    /// Of each stream that matches what it is now, by name and labels: as [`Observer::expected`] of now where it is forecast, and
    /// else, or at the very time of a look, as [`Observer::latest`]. Its quality says which.
    pub fn latest_predicted(&self, selector: &Selector) -> Vec<LatestValue> {
        let view = self.view();
        let now_ns = self.now_ns();
        let one = |known: &Arc<Known>| {
            let (measured, _) = known.latest(now_ns, known.is_alive(now_ns))?;
            let said = view.projections_of(known);
            Some(predicted_or_measured(said, measured, now_ns))
        };
        view.matching(selector).filter_map(one).collect()
    }
}

impl View {
    /// The stream that has the projections of this one.
    pub(crate) fn projections_of(&self, known: &Known) -> Option<&Arc<Known>> {
        projections_among(&self.streams, |k| &k.descriptor, &known.descriptor).first()
    }
}

/// What a stream is now by its projections, or as it was measured.
pub(crate) fn predicted_or_measured(
    said: Option<&Arc<Known>>,
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

/// Whether a value needs no forecast: it was looked at at this very time (or later, before the clock was set back).
fn is_of_look(value: &LatestValue, at_ns: i64) -> bool {
    value.sample.is_some() && value.looked_ns >= at_ns
}

fn predicted(said: &Known, at_ns: i64) -> Option<Sample> {
    let (said, looked_ns) = said.newest()?;
    predicted_sample(&said.value, looked_ns, at_ns)
}
