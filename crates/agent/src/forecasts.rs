//! Forecasts of the node's streams: each look at a stream that is configured goes to its forecaster, and what that says goes to
//! the stream `forecast.<name>`, which readers evaluate at their own time.
//!
//! It stands where samples pass, not where they are read: that a value did not change is what a predictor most needs to know, and
//! only looks say so.

use barograph_forecast::{Cascade, Explanation, ForecasterConfig, Shape, Taken, interval};
use barograph_model::{
    Descriptor, FORECAST_PREFIX, KNOTS_MAX, Kind, Labels, ModelError, Name, Projection, Quality,
    Sample, Selector, StreamKey, Value, ValueType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::AgentError;
use crate::streams::Streams;

/// Bytes of the longest projection.
const PROJECTION_BYTES_MAX: u32 = (KNOTS_MAX * 3 * 8) as u32;
/// Projections that a ring holds: the newest is what counts.
const DEPTH: u32 = 16;

/// Which streams are forecast, and how sure one wants to be.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ForecastConfig {
    /// Streams of sources that are forecast: patterns of names, with labels if wanted (`disk.*{device=sda}`).
    pub streams: Vec<String>,
    /// The share of true values that is to be within the error of a forecast, 0.5 to 0.99.
    pub confidence: f64,
    /// Most streams that are forecast; those beyond are counted.
    pub streams_max: usize,
}

impl Default for ForecastConfig {
    fn default() -> Self {
        Self {
            streams: vec!["filesystem.available.bytes".into()],
            confidence: 0.9,
            streams_max: 256,
        }
    }
}

impl ForecastConfig {
    /// Checks ranges and patterns.
    pub fn check(&self) -> Result<(), AgentError> {
        let refuse = |key, value: String, reason: String| {
            Err(AgentError::ConfigValue { key, value, reason })
        };
        if !(0.5..=0.99).contains(&self.confidence) {
            let value = self.confidence.to_string();
            return refuse(
                "forecast.confidence",
                value,
                "it must be 0.5 to 0.99".into(),
            );
        }
        match self.selectors() {
            Ok(_) => Ok(()),
            Err((value, error)) => refuse("forecast.streams", value, error.to_string()),
        }
    }

    fn selectors(&self) -> Result<Vec<Selector>, (String, ModelError)> {
        let parse = |text: &String| Selector::parse(text).map_err(|e| (text.clone(), e));
        self.streams.iter().map(parse).collect()
    }
}

/// The forecasters of all streams that have one.
#[derive(Default)]
pub struct Forecasts {
    selectors: Vec<Selector>,
    confidence: f64,
    streams_max: usize,
    by_key: Vec<Option<Box<Followed>>>,
    followed: usize,
    /// Streams that are meant and have no place.
    beyond: u64,
}

/// One stream.
struct Followed {
    name: Name,
    labels: Labels,
    shape: Shape,
    /// Where projections go; none while there is no room for their stream.
    projections: Option<StreamKey>,
    /// When its source is read, ns. It is the step, once it is known.
    interval_ns: i64,
    cascade: Option<Cascade>,
}

impl Forecasts {
    /// Of a configuration that was checked.
    pub fn new(config: &ForecastConfig) -> Self {
        Self {
            selectors: config.selectors().unwrap_or_default(),
            confidence: config.confidence,
            streams_max: config.streams_max,
            ..Self::default()
        }
    }

    /// A stream is there; it is forecast if it is meant and has numbers.
    pub fn stream_added(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        streams: &mut Streams<'_>,
    ) {
        if self.is_meant(descriptor) {
            self.add(key, descriptor, streams);
        }
    }

    fn is_meant(&self, of: &Descriptor) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|s| s.matches(of.name.as_str(), &of.labels))
    }

    fn add(&mut self, key: StreamKey, descriptor: &Descriptor, streams: &mut Streams<'_>) {
        let shape = match descriptor.kind {
            Kind::Gauge => Shape::Gauge,
            Kind::Counter => Shape::Counter,
            _ => return,
        };
        let has_numbers = matches!(descriptor.value_type, ValueType::Int | ValueType::Float);
        if !has_numbers {
            return;
        }
        if self.followed >= self.streams_max {
            if self.beyond == 0 {
                warn!(
                    max = self.streams_max,
                    "a stream is not forecast: forecast.streams_max"
                );
            }
            self.beyond += 1;
            return;
        }
        let projections = projections_of(descriptor);
        let projections = projections
            .and_then(|of| streams.declare_sized(&of, Some(DEPTH), Some(PROJECTION_BYTES_MAX)));
        let index = key.0 as usize;
        if self.by_key.len() <= index {
            self.by_key.resize_with(index + 1, || None);
        }
        self.followed += 1;
        self.by_key[index] = Some(Box::new(Followed {
            name: descriptor.name.clone(),
            labels: descriptor.labels.clone(),
            shape,
            projections,
            interval_ns: 0,
            cascade: None,
        }));
    }

    /// A stream is gone, and what is said of it.
    pub fn stream_removed(&mut self, key: StreamKey, streams: &mut Streams<'_>) {
        let gone = self.by_key.get_mut(key.0 as usize).and_then(Option::take);
        let Some(gone) = gone else { return };
        self.followed -= 1;
        if let Some(projections) = gone.projections {
            barograph_model::Sink::retire(streams, projections);
        }
    }

    /// When the stream's source is read. The first word of it counts: a step stays what it is, however the interval changes.
    pub fn interval(&mut self, key: StreamKey, interval_ns: i64) {
        if let Some(Some(followed)) = self.by_key.get_mut(key.0 as usize)
            && followed.interval_ns == 0
        {
            followed.interval_ns = interval_ns;
        }
    }

    /// A look at a stream, whether it has changed or not.
    pub fn looked(&mut self, key: StreamKey, sample: &Sample, streams: &mut Streams<'_>) {
        if self.observe(key, sample) {
            let projection = self.projection(key);
            self.say(key, sample.ts, &projection, streams);
        }
    }

    /// The first half of a look: the forecaster learns of it. False where nothing is said after it.
    pub fn observe(&mut self, key: StreamKey, sample: &Sample) -> bool {
        let Some(Some(followed)) = self.by_key.get_mut(key.0 as usize) else {
            return false;
        };
        if followed.interval_ns <= 0 {
            return false;
        }
        let config = ForecasterConfig {
            step_ns: followed.interval_ns,
            confidence: self.confidence,
            shape: followed.shape,
        };
        let cascade = followed.cascade.get_or_insert_with(|| Cascade::new(config));
        let taken = match sample.value {
            Value::Int(value) => cascade.observe_int(sample.ts, value),
            Value::Float(value) => cascade.observe(sample.ts, value),
            _ => return false,
        };
        // What it says is still of the time of the look before.
        let is_taken = !matches!(taken, Taken::Late | Taken::NotFinite);
        is_taken && followed.projections.is_some()
    }

    /// What its forecaster says comes after the newest look; empty where it says nothing.
    pub fn projection(&self, key: StreamKey) -> Projection {
        let cascade = self.cascade(key);
        cascade.map_or_else(Projection::default, Cascade::project)
    }

    /// The second half of a look: what readers are told from `ts_ns` on.
    pub fn say(
        &self,
        key: StreamKey,
        ts_ns: i64,
        projection: &Projection,
        streams: &mut Streams<'_>,
    ) {
        let followed = self.by_key.get(key.0 as usize).and_then(Option::as_ref);
        let Some(projections) = followed.and_then(|followed| followed.projections) else {
            return;
        };
        let floats = projection.to_floats();
        if !floats.is_empty() {
            let said = Sample {
                ts: ts_ns,
                value: Value::Floats(floats.into()),
                quality: Quality::Predicted,
                error: 0.0,
            };
            streams.look(projections, &said);
        }
    }

    /// Forecasts a stream for a policy, in steps of `step_ns`, whether or not the configuration means it. One that is forecast
    /// already keeps what it has learned, and its steps.
    pub fn follow(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        step_ns: i64,
        streams: &mut Streams<'_>,
    ) {
        let index = key.0 as usize;
        if self.by_key.get(index).is_none_or(Option::is_none) {
            self.add(key, descriptor, streams);
        }
        if let Some(Some(followed)) = self.by_key.get_mut(index)
            && followed.cascade.is_none()
        {
            followed.interval_ns = step_ns.max(1);
        }
    }

    /// The policy is gone, and with it what the configuration does not mean.
    pub fn unfollow(&mut self, key: StreamKey, descriptor: &Descriptor, streams: &mut Streams<'_>) {
        if !self.is_meant(descriptor) {
            self.stream_removed(key, streams);
        }
    }

    /// What is expected of a stream at a time after its newest look.
    pub fn outlook(&self, key: StreamKey, ts_ns: i64) -> Option<interval::Outlook> {
        let forecast = self.cascade(key)?.at(ts_ns)?;
        Some(interval::Outlook {
            value: forecast.value,
            half_width: forecast.half_width,
            confidence: self.confidence,
        })
    }

    /// How far off what is expected so long after the newest look may be; infinite where that is not known.
    pub fn half_width(&self, key: StreamKey, ahead_ns: i64) -> f64 {
        let cascade = self.cascade(key);
        cascade.map_or(f64::INFINITY, |cascade| cascade.half_width(ahead_ns))
    }

    fn cascade(&self, key: StreamKey) -> Option<&Cascade> {
        let followed = self.by_key.get(key.0 as usize)?.as_ref()?;
        followed.cascade.as_ref()
    }

    /// Whom each forecaster follows and why, for people and for the table `forecasts`.
    pub fn document(&self) -> Json {
        let known = self.by_key.iter().flatten();
        let rows = known.filter_map(|followed| {
            let cascade = followed.cascade.as_ref()?;
            let labels: serde_json::Map<String, Json> = followed
                .labels
                .iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            let levels = cascade.explain();
            let levels = levels.iter().flat_map(level_rows);
            let rows = levels.map(|mut row| {
                row["name"] = followed.name.as_str().into();
                row["labels"] = Json::Object(labels.clone());
                row["confidence"] = self.confidence.into();
                row
            });
            Some(rows.collect::<Vec<Json>>())
        });
        Json::Array(rows.flatten().collect())
    }
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
fn projections_of(of: &Descriptor) -> Option<Descriptor> {
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

#[cfg(test)]
mod tests {
    use barograph_model::{ManualClock, NS_PER_S, Sink as _, Unit};
    use barograph_stream::{Segment, SegmentConfig};

    use super::*;

    fn descriptor(name: &str, kind: Kind, value_type: ValueType) -> Descriptor {
        Descriptor {
            name: Name::new(name).unwrap(),
            labels: Labels::new([("device", "sda")]).unwrap(),
            value_type,
            unit: Unit::new("bytes").unwrap(),
            kind,
            help: String::new(),
        }
    }

    #[test]
    fn what_is_meant_is_projected_at_each_look() {
        let dir = tempfile::tempdir().unwrap();
        let segment =
            Segment::create(&dir.path().join("segment"), SegmentConfig::new("n"), 1).unwrap();
        let reader = segment.reader().unwrap();
        let clock = ManualClock::at(NS_PER_S);
        let mut streams = Streams::new(segment, &clock, None, 240 * NS_PER_S);
        let config = ForecastConfig {
            streams: vec!["disk.*".into()],
            streams_max: 1,
            ..ForecastConfig::default()
        };
        config.check().unwrap();
        let mut forecasts = Forecasts::new(&config);
        let read = descriptor("disk.read.bytes", Kind::Counter, ValueType::Int);
        let key = streams.declare(&read, None).unwrap();
        forecasts.stream_added(key, &read, &mut streams);
        for (name, kind, value_type) in [
            ("memory.free.bytes", Kind::Gauge, ValueType::Int),
            ("disk.state.text", Kind::State, ValueType::Text),
            ("disk.write.bytes", Kind::Counter, ValueType::Int),
        ] {
            let other = descriptor(name, kind, value_type);
            let key = streams.declare(&other, None).unwrap();
            forecasts.stream_added(key, &other, &mut streams);
        }
        assert_eq!((forecasts.followed, forecasts.beyond), (1, 1));
        // Nothing is said before the interval is known.
        let look = |second: i64| Sample::measured(second * NS_PER_S, second * 1_000);
        forecasts.looked(key, &look(1), &mut streams);
        forecasts.interval(key, NS_PER_S);
        (2..200).for_each(|second| forecasts.looked(key, &look(second), &mut streams));
        let directory = reader.directory();
        let mut entries = directory.entries.iter();
        let said = entries.find(|e| e.descriptor.name.as_str() == "forecast.disk.read.bytes");
        let said = said.expect("a stream of projections");
        let barograph_stream::Latest::Sample { sample: newest, .. } = reader.stream(said).latest()
        else {
            panic!("nothing was said");
        };
        assert_eq!(
            (newest.ts, newest.quality),
            (199 * NS_PER_S, Quality::Predicted)
        );
        let Value::Floats(floats) = newest.value else {
            panic!("{:?}", newest.value);
        };
        let knot = Projection::from_floats(&floats).unwrap().at(1.5).unwrap();
        assert!((knot.value - 200_500.0).abs() < 50.0, "{knot:?}");
        let document = forecasts.document();
        assert_eq!(document[0]["name"], "disk.read.bytes");
        assert_eq!(document[0]["horizon_ns"], NS_PER_S);
        forecasts.stream_removed(key, &mut streams);
        assert_eq!(forecasts.followed, 0);
    }

    #[test]
    fn bad_configurations_are_refused() {
        let check = |text: &str, expect: &str| {
            let config: ForecastConfig = toml::from_str(text).unwrap();
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("confidence = 1.0", "forecast.confidence = 1 is refused");
        check("confidence = nan", "forecast.confidence = NaN is refused");
        check("streams = ['{']", "forecast.streams = { is refused");
    }
}
