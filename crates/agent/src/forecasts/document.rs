//! What people and the table `forecasts` are told.

use barograph_forecast::Explanation;
use barograph_model::{Descriptor, FORECAST_PREFIX, Kind, Labels, Name, ValueType};
use serde_json::{Value as Json, json};

use super::{Beyond, Followed, Forecasts};

/// Streams without a place that are told by name; of the others, how many there are.
const NAMED_MAX: usize = 64;

impl Forecasts {
    /// Whether there is anything to say.
    pub fn is_needed(&self) -> bool {
        !self.beyond.is_empty() || self.by_key.iter().any(Option::is_some)
    }

    /// Whom each forecaster follows and why; then the streams that are not forecast, as there are too many.
    pub fn document(&self) -> Json {
        let known = self.by_key.iter().flatten();
        let rows = known.flat_map(|followed| followed.rows(self.confidence));
        let named = self.beyond.values().take(NAMED_MAX).map(Beyond::row);
        let others = self.beyond.len().saturating_sub(NAMED_MAX);
        let others = (others > 0).then(|| {
            let reason = format!("{others} more have no place");
            json!({ "name": null, "reason": reason, "streams": others })
        });
        let unheeded = (self.unheeded > 0).then(|| {
            let reason = "looks that came faster than they can be forecast";
            json!({ "name": null, "reason": reason, "looks": self.unheeded, "streams": 0 })
        });
        rows.chain(named).chain(others).chain(unheeded).collect()
    }
}

impl Followed {
    fn rows(&self, confidence: f64) -> Vec<Json> {
        let Some(cascade) = &self.cascade else {
            return Vec::new();
        };
        let labels = labels_json(&self.labels);
        let levels = cascade.explain();
        let levels = levels.iter().flat_map(level_rows);
        let rows = levels.map(|mut row| {
            row["name"] = self.name.as_str().into();
            row["labels"] = labels.clone();
            row["confidence"] = confidence.into();
            row
        });
        rows.collect()
    }
}

impl Beyond {
    fn row(&self) -> Json {
        let reason = format!("no place: {} is {}", self.place.limit, self.place.max);
        json!({
            "name": self.of.name.as_str(),
            "labels": labels_json(&self.of.labels),
            "reason": reason,
            "streams": 1,
        })
    }
}

fn labels_json(labels: &Labels) -> Json {
    let labels = labels.iter();
    let labels = labels.map(|(name, value)| (name.to_owned(), value.into()));
    Json::Object(labels.collect())
}

fn level_rows(explanation: &Explanation) -> impl Iterator<Item = Json> + '_ {
    let number = |v: f64| v.is_finite().then_some(v);
    explanation.levels.iter().map(move |level| {
        let others = level.members.iter();
        let losses: serde_json::Map<String, Json> = others
            .map(|m| (m.name.to_owned(), json!(m.relative_loss.and_then(number))))
            .collect();
        json!({
            "horizon_ns": explanation.step_ns.saturating_mul(i64::from(level.steps)),
            "step_ns": explanation.step_ns,
            "follows": level.follows,
            "reason": level.reason.to_string(),
            "since_step": level.since_step,
            "steps": explanation.steps,
            "switches": level.switches,
            "compared": level.scores,
            "credit": number(level.credit),
            "error": number(level.half_width),
            "coverage": level.coverage,
            "losses": losses,
        })
    })
}

/// The stream of what is said of a stream; none where its name would be too long.
pub(super) fn projections_of(of: &Descriptor) -> Option<Descriptor> {
    Some(Descriptor {
        name: Name::new(format!("{FORECAST_PREFIX}{}", of.name.as_str())).ok()?,
        labels: of.labels.clone(),
        value_type: ValueType::Floats,
        unit: of.unit.clone(),
        kind: Kind::State,
        help: "What is expected after the newest look: seconds after it, value and half width of each point in turn."
            .into(),
    })
}
