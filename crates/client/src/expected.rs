//! What streams are at a time that no look was at: the agent's projections, evaluated here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{
    FORECAST_PREFIX, Labels, NS_PER_S, Projection, Quality, Sample, Selector, Value,
};

use crate::view::{self, Known};
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
        let projections: HashMap<(&str, &Labels), &Arc<Known>> = view
            .streams
            .iter()
            .filter_map(|known| {
                let of = known
                    .descriptor
                    .name
                    .as_str()
                    .strip_prefix(FORECAST_PREFIX)?;
                Some(((of, &known.descriptor.labels), known))
            })
            .collect();
        let one = |known: &Arc<Known>| {
            let descriptor = &known.descriptor;
            let said = projections.get(&(descriptor.name.as_str(), &descriptor.labels))?;
            let alive = view::alive(&said.segment, now_ns);
            let (said, _) = said.latest(now_ns, alive)?;
            let sample = sample_at(&said.sample?, at_ns)?;
            let (latest, _) = known.latest(now_ns, alive)?;
            Some(LatestValue {
                sample: Some(sample),
                ..latest
            })
        };
        view.matching(selector).filter_map(one).collect()
    }
}

/// The sample that a projection says is at `at_ns`.
fn sample_at(said: &Sample, at_ns: i64) -> Option<Sample> {
    let Value::Floats(floats) = &said.value else {
        return None;
    };
    // A look of the future, after the clock was set back, is as good as now.
    let after_ns = at_ns.saturating_sub(said.ts).max(0);
    let knot = Projection::from_floats(floats)?.at(after_ns as f64 / NS_PER_S as f64)?;
    Some(Sample {
        ts: at_ns,
        value: Value::Float(knot.value),
        quality: Quality::Predicted,
        error: knot.half_width as f32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projection_is_evaluated_at_the_asked_time() {
        let said = |floats: Vec<f64>| Sample {
            ts: 5 * NS_PER_S,
            value: Value::Floats(floats.into()),
            quality: Quality::Predicted,
            error: 0.0,
        };
        let good = said(vec![0.0, 1.0, 0.0, 2.0, 3.0, 4.0]);
        for (second, expect) in [(1, Some((1.0, 0.0))), (6, Some((2.0, 2.0))), (8, None)] {
            let found = sample_at(&good, second * NS_PER_S);
            let found = found.map(|s| (s.value.as_f64().unwrap_or(f64::NAN), s.error));
            assert_eq!(found, expect, "{second}");
        }
        assert_eq!(sample_at(&said(vec![1.0]), 6 * NS_PER_S), None);
        let int = Sample::measured(0, 7);
        assert_eq!(sample_at(&int, 1), None);
    }
}
