//! The document `forecasts.json`: what people and the table `forecasts` learn of each forecast.

use barograph_forecast::{Cascade, Explanation, FollowReason, LevelExplanation, MemberExplanation};
use barograph_model::{Descriptor, FORECAST_PREFIX, Kind, Name, ValueType};
use barograph_stream::LabelsJson;
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};

use super::{Beyond, Followed, Forecasts};

/// Most waiting streams that are listed by name; the others are only counted.
const NAMED_MAX: usize = 64;

impl Forecasts {
    /// Whether there is anything to report.
    pub fn is_needed(&self) -> bool {
        !self.beyond.is_empty() || self.by_key.iter().any(Option::is_some)
    }

    /// The document: for each stream and horizon the predictor that is followed, and the reason;
    /// then the streams that wait for a slot.
    pub fn document(&self) -> impl Serialize + '_ {
        Document(self)
    }

    fn unplaced(&self) -> impl Iterator<Item = Unplaced<'_>> {
        let named = self.beyond.values().take(NAMED_MAX).map(Beyond::row);
        let others = self.beyond.len().saturating_sub(NAMED_MAX);
        let others = (others > 0).then(|| Unplaced {
            reason: format!("{others} more have no place"),
            streams: others,
            ..Unplaced::default()
        });
        let unheeded = (self.unheeded > 0).then(|| Unplaced {
            reason: "looks that came faster than they can be forecast".into(),
            looks: Some(self.unheeded),
            ..Unplaced::default()
        });
        named.chain(others).chain(unheeded)
    }
}

struct Document<'a>(&'a Forecasts);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(None)?;
        for followed in self.0.by_key.iter().flatten() {
            let explained = followed.cascade.as_ref().map(Cascade::explain);
            for explanation in explained.iter().flatten() {
                for level in &explanation.levels {
                    let row = Row::new(followed, self.0.confidence, explanation, level);
                    rows.serialize_element(&row)?;
                }
            }
        }
        self.0
            .unplaced()
            .try_for_each(|row| rows.serialize_element(&row))?;
        rows.end()
    }
}

/// One stream's forecast at one horizon. A number that is not finite becomes null.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    labels: LabelsJson<'a>,
    confidence: f64,
    horizon_ns: i64,
    step_ns: i64,
    follows: &'static str,
    reason: Shown<FollowReason>,
    since_step: u64,
    steps: u64,
    switches: u64,
    compared: u64,
    credit: f64,
    error: f64,
    coverage: Option<f64>,
    losses: Losses<'a>,
}

impl<'a> Row<'a> {
    fn new(
        of: &'a Followed,
        confidence: f64,
        explanation: &Explanation,
        level: &'a LevelExplanation,
    ) -> Self {
        let step_ns = explanation.step_ns;
        Self {
            name: of.name.as_str(),
            labels: LabelsJson(&of.labels),
            confidence,
            horizon_ns: step_ns.saturating_mul(i64::from(level.steps)),
            step_ns,
            follows: level.follows,
            reason: Shown(level.reason),
            since_step: level.since_step,
            steps: explanation.steps,
            switches: level.switches,
            compared: level.scores,
            credit: level.credit,
            error: level.half_width,
            coverage: level.coverage,
            losses: Losses(&level.members),
        }
    }
}

/// A value that is serialized as text.
struct Shown<T>(T);

impl<T: std::fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The relative loss of each predictor, by name.
struct Losses<'a>(&'a [MemberExplanation]);

impl Serialize for Losses<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.0
                .iter()
                .map(|member| (member.name, member.relative_loss)),
        )
    }
}

/// One stream, or several, that wait for a slot.
#[derive(Default, Serialize)]
struct Unplaced<'a> {
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<LabelsJson<'a>>,
    reason: String,
    streams: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    looks: Option<u64>,
}

impl Beyond {
    fn row(&self) -> Unplaced<'_> {
        Unplaced {
            name: Some(self.of.name.as_str()),
            labels: Some(LabelsJson(&self.of.labels)),
            reason: format!("no place: {} is {}", self.place.limit, self.place.max),
            streams: 1,
            looks: None,
        }
    }
}

/// The descriptor of a stream's projections; none if its name would be too long.
pub(super) fn projections_of(of: &Descriptor) -> Option<Descriptor> {
    Some(Descriptor {
        name: Name::new(format!("{FORECAST_PREFIX}{}", of.name.as_str())).ok()?,
        labels: of.labels.clone(),
        value_type: ValueType::Floats,
        unit: of.unit.clone(),
        kind: Kind::State,
        help: "Forecast after the newest look, as an array of points: for each, seconds after the look, predicted value and half width of its error."
            .into(),
    })
}
