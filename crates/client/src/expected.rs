//! Values of streams at a time without a look: the agent's projections, evaluated here.

use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Sample, Selector, predicted_sample, projections_among};

use crate::view::{Known, View};
use crate::{LatestValue, Observer};

impl Observer {
    /// Predicts the value of each matching stream at `horizon` from now (zero: now), sorted by name
    /// and labels. Each result is a sample of that time with quality `Predicted`; its error is the
    /// half width of the interval at the agent's confidence, infinite while that is not known.
    /// Streams without a forecast, or with a shorter one, are left out. Ages are those of the looks
    /// behind the forecast.
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

    /// Returns the present value of each matching stream, sorted by name and labels: as
    /// [`Observer::expected`] for now if the stream has a forecast, otherwise, or at the very time
    /// of a look, as [`Observer::latest`]. The quality of the sample shows which it is.
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
    /// The stream that holds the projections of a stream.
    pub(crate) fn projections_of(&self, known: &Known) -> Option<&Arc<Known>> {
        projections_among(&self.streams, |k| &k.descriptor, &known.descriptor).first()
    }
}

/// Returns the present value of a stream by its projections, or its measured value.
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

/// Whether a value needs no forecast: its last look was at this very time, or later, if the clock
/// was set back.
fn is_of_look(value: &LatestValue, at_ns: i64) -> bool {
    value.sample.is_some() && value.looked_ns >= at_ns
}

fn predicted(said: &Known, at_ns: i64) -> Option<Sample> {
    let (said, looked_ns) = said.newest()?;
    predicted_sample(&said.value, looked_ns, at_ns)
}
