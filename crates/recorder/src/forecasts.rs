//! Forecasts of the streams of one segment: each look at a configured stream goes to its
//! forecaster, and the resulting projection is published in the stream `forecast.<name>`, which
//! readers evaluate at their own time.
//!
//! This is a part of the recorder, where all samples pass, rather than a reader of streams: a
//! predictor needs most of all to know that a value did not change, and only looks show that. The
//! sampler has one instance for streams of sources and insights, and each scope of applications has
//! its own.

mod config;
mod coverage;
mod document;
mod pace;
mod room;
#[cfg(test)]
mod tests;
mod totals;

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_forecast::{Cascade, ForecasterConfig, LookEffect, Shape, interval};
use barograph_model::{
    Descriptor, FORECAST_PREFIX, KNOTS_MAX, Kind, Labels, Name, Sample, Selector, StreamKey, Value,
    ValueType,
};
use tracing::warn;

use crate::Streams;
use coverage::Coverages;
use pace::FirstPuts;
use room::{ForecastSlot, NoPlace};
use totals::{Totals, total_of};

pub use config::ForecastConfig;
pub use room::ForecastRoom;

/// Bytes of the longest projection.
const PROJECTION_BYTES_MAX: u32 = (KNOTS_MAX * 3 * 8) as u32;
/// Samples in the ring of a projection: only the newest matters.
const DEPTH: u32 = 16;
/// Shortest time between two projections of a stream, in ns: readers evaluate the last one at their
/// own time.
pub const PROJECT_NS: i64 = 10_000_000;
/// Most steps of one stream that are observed in a second; looks beyond them are ignored and
/// counted.
const STEPS_PER_S_MAX: u32 = 2_048;

/// The forecasters of all streams of one segment that have a forecast.
pub struct Forecasts {
    selectors: Vec<Selector>,
    confidence: f64,
    room: Arc<ForecastRoom>,
    by_key: Vec<Option<Box<Followed>>>,
    totals: Totals,
    /// Streams that were looked at since their last projection.
    unsaid: Vec<StreamKey>,
    /// Buffer for the projection that is about to be published.
    floats: Vec<f64>,
    coverages: Coverages,
    /// Matching streams that wait for a forecast slot.
    beyond: BTreeMap<StreamKey, Beyond>,
    /// [`ForecastRoom::given`] at the last call of [`Self::admit`].
    given: u64,
    /// Number of looks beyond [`STEPS_PER_S_MAX`].
    unheeded: u64,
}

/// Time at which a stream is predicted to reach a level. Durations count from its newest look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedReach {
    /// Time of the stream's newest look, in ns since the epoch.
    pub looked_ns: i64,
    /// Predicted time until the level is reached, in seconds.
    pub expected_s: f64,
    /// Earliest time at which it may be reached, in seconds; none if unknown.
    pub early_s: Option<f64>,
    /// Latest time at which it may be reached, in seconds; none if unknown.
    pub late_s: Option<f64>,
    /// Longest time ahead for which the error is known, in seconds: no forecast beyond it has been
    /// compared with the truth yet.
    pub known_s: f64,
}

/// A stream that has no forecast slot yet, with its queue ticket.
struct Beyond {
    of: Descriptor,
    /// Whether a user's program puts to the stream at no known interval.
    is_of_user: bool,
    /// The same as in [`Followed`].
    interval_ns: i64,
    place: NoPlace,
}

/// A stream that has a forecast slot.
struct Followed {
    name: Name,
    labels: Labels,
    shape: Shape,
    /// The stream of its projections; none if it could not be declared.
    projections: Option<StreamKey>,
    /// Interval of its source, in ns; 0 while unknown. The first known one is the step of the
    /// forecast.
    interval_ns: i64,
    cascade: Option<Cascade>,
    /// Finds the step of a stream without a known interval; none if the interval is known.
    pace: Option<FirstPuts>,
    /// Name of the stream of its total, if it is a part of one.
    total: Option<Name>,
    /// Steps in the current second.
    steps: u32,
    /// Time at which it was projected last, by the agent's clock, in ns.
    said_ns: i64,
    is_unsaid: bool,
    /// The streams of its coverage, by horizon in ns; none for one that could not be declared.
    coverage: BTreeMap<i64, Option<StreamKey>>,
    _place: ForecastSlot,
}

impl Forecasts {
    /// Makes the forecasts for a checked configuration; the slots are shared with other segments.
    pub fn new(config: &ForecastConfig, room: Arc<ForecastRoom>) -> Self {
        Self {
            selectors: config.selectors().unwrap_or_default(),
            confidence: config.confidence,
            room,
            by_key: Vec::new(),
            totals: Totals::default(),
            unsaid: Vec::new(),
            floats: Vec::new(),
            coverages: Coverages::default(),
            beyond: BTreeMap::new(),
            given: 0,
            unheeded: 0,
        }
    }

    /// The number of streams of the whole agent that are forecast, and of those that wait for a
    /// slot.
    pub fn counts(&self) -> (usize, usize) {
        self.room.counts()
    }

    /// Adds a stream whose looks come at known intervals. It is forecast if it matches the
    /// configuration and has numbers.
    pub fn stream_added(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        streams: &mut Streams<'_>,
    ) {
        self.totals.stream_added(key, descriptor);
        if self.is_meant(&descriptor.name, &descriptor.labels) {
            self.add(key, descriptor, None, streams);
        }
    }

    /// Adds a stream that a program of `user` puts to at no known interval.
    pub fn stream_of_user_added(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        user: &str,
        streams: &mut Streams<'_>,
    ) {
        self.totals.stream_added(key, descriptor);
        if self.is_meant(&descriptor.name, &descriptor.labels) {
            self.add(key, descriptor, Some(user), streams);
        }
    }

    fn is_meant(&self, name: &Name, labels: &Labels) -> bool {
        // Projections are not forecast themselves.
        let mut selectors = self.selectors.iter();
        !name.as_str().starts_with(FORECAST_PREFIX)
            && selectors.any(|s| s.matches(name.as_str(), labels))
    }

    fn add(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        user: Option<&str>,
        streams: &mut Streams<'_>,
    ) {
        let has_numbers = matches!(descriptor.value_type, ValueType::Int | ValueType::Float);
        let is_number = has_numbers && matches!(descriptor.kind, Kind::Gauge | Kind::Counter);
        // A stream that waits already keeps its ticket.
        if !is_number || self.beyond.contains_key(&key) {
            return;
        }
        match self.room.take(user) {
            Ok(place) => self.give(key, descriptor, user.is_some(), place, streams),
            Err(place) => {
                if self.beyond.is_empty() {
                    let (name, limit, max) = (&descriptor.name, place.limit, place.max);
                    warn!(%name, limit, max, "a stream is not forecast, as there are too many");
                }
                let beyond = Beyond {
                    of: descriptor.clone(),
                    is_of_user: user.is_some(),
                    interval_ns: 0,
                    place,
                };
                self.beyond.insert(key, beyond);
            }
        }
    }

    /// Forecasts a stream of numbers from now on.
    fn give(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        is_of_user: bool,
        place: ForecastSlot,
        streams: &mut Streams<'_>,
    ) {
        let mut shape = match descriptor.kind {
            Kind::Counter => Shape::Counter,
            _ => Shape::Gauge,
        };
        let (name, labels) = (descriptor.name.clone(), descriptor.labels.clone());
        let total = total_of(&name).filter(|_| shape == Shape::Gauge);
        if let Some(total) = &total {
            shape = self.totals.shape(total, &labels);
        }
        let projections = declare_projections(descriptor, streams);
        let index = key.0 as usize;
        if self.by_key.len() <= index {
            self.by_key.resize_with(index + 1, || None);
        }
        self.by_key[index] = Some(Box::new(Followed {
            name,
            labels,
            shape,
            projections,
            interval_ns: 0,
            cascade: None,
            pace: is_of_user.then(FirstPuts::default),
            total,
            steps: 0,
            said_ns: i64::MIN,
            is_unsaid: false,
            coverage: BTreeMap::new(),
            _place: place,
        }));
    }

    /// Starts the forecasts of waiting streams that were given a slot since the last call.
    fn admit(&mut self, streams: &mut Streams<'_>) {
        let given = self.room.given();
        if std::mem::replace(&mut self.given, given) == given {
            return;
        }
        let waiting = std::mem::take(&mut self.beyond);
        for (key, mut beyond) in waiting {
            let Some(place) = beyond.place.take() else {
                self.beyond.insert(key, beyond);
                continue;
            };
            self.give(key, &beyond.of, beyond.is_of_user, place, streams);
            self.interval(key, beyond.interval_ns);
        }
    }

    /// Removes a stream with its projections, coverage and queue ticket.
    pub fn stream_removed(&mut self, key: StreamKey, streams: &mut Streams<'_>) {
        if let Some(total) = self.totals.stream_removed(key) {
            for followed in self.by_key.iter_mut().flatten() {
                followed.bound(|name, labels| total.is(name, labels), Shape::Gauge);
            }
        }
        self.release(key, streams);
    }

    /// Ends the forecast of a stream, or its wait for a slot.
    fn release(&mut self, key: StreamKey, streams: &mut Streams<'_>) {
        self.beyond.remove(&key);
        let gone = self.by_key.get_mut(key.0 as usize).and_then(Option::take);
        let Some(gone) = gone else { return };
        self.coverages.stream_removed(&gone, streams);
        if let Some(projections) = gone.projections {
            barograph_model::Sink::retire(streams, projections);
        }
    }

    /// Sets the interval of the stream's source. Only the first call counts: the step stays the
    /// same if the interval changes.
    pub fn interval(&mut self, key: StreamKey, interval_ns: i64) {
        let known_ns = match self.by_key.get_mut(key.0 as usize) {
            Some(Some(followed)) => Some(&mut followed.interval_ns),
            _ => self.beyond.get_mut(&key).map(|b| &mut b.interval_ns),
        };
        if let Some(known_ns) = known_ns
            && *known_ns == 0
        {
            *known_ns = interval_ns;
        }
    }

    /// Passes a look to the stream's forecaster, whether the value changed or not, and has the
    /// stream projected at the end of the round. Returns false if no projection follows.
    pub fn looked(&mut self, key: StreamKey, sample: &Sample) -> bool {
        let is_said = self.observe(key, sample);
        if is_said {
            self.unsay(key);
        }
        is_said
    }

    /// Makes a new projection of a stream due at the end of the round, since the last one no longer
    /// holds.
    pub fn unsay(&mut self, key: StreamKey) {
        if let Some(Some(followed)) = self.by_key.get_mut(key.0 as usize)
            && !followed.is_unsaid
        {
            followed.is_unsaid = true;
            self.unsaid.push(key);
        }
    }

    fn observe(&mut self, key: StreamKey, sample: &Sample) -> bool {
        if let Some(total) = self.totals.looked(key, sample) {
            let shape = total.shape();
            for followed in self.by_key.iter_mut().flatten() {
                followed.bound(|name, labels| total.is(name, labels), shape);
            }
        }
        let Some(Some(followed)) = self.by_key.get_mut(key.0 as usize) else {
            return false;
        };
        if followed.steps >= STEPS_PER_S_MAX {
            self.unheeded += 1;
            return false;
        }
        followed.look(sample, self.confidence, &self.room) && followed.projections.is_some()
    }

    /// Passes on a look that found the newest value unchanged.
    pub fn held(&mut self, key: StreamKey, looked_ns: i64, streams: &Streams<'_>) {
        let is_followed = matches!(self.by_key.get(key.0 as usize), Some(Some(_)));
        if let Some(newest) = streams.newest(key).filter(|_| is_followed) {
            self.looked(key, &Sample::measured(looked_ns, newest.value.clone()));
        }
    }

    /// Publishes the projections of streams that were looked at. A stream that was projected less
    /// than [`PROJECT_NS`] ago waits for the next call.
    pub fn project(&mut self, now_ns: i64, streams: &mut Streams<'_>) {
        self.project_by(now_ns, streams, |_, looked_ns, _| looked_ns);
    }

    /// Publishes projections as [`Self::project`] does, after `revise` may have changed them. Its
    /// arguments are the key, the time of the newest look, and the projection's floats; it returns
    /// the time at which the revised projection begins. Returns true if some streams wait: call it
    /// again [`PROJECT_NS`] later.
    pub fn project_by(
        &mut self,
        now_ns: i64,
        streams: &mut Streams<'_>,
        mut revise: impl FnMut(StreamKey, i64, &mut Vec<f64>) -> i64,
    ) -> bool {
        let Self {
            by_key,
            unsaid,
            floats,
            ..
        } = self;
        unsaid.retain(|key| {
            let followed = by_key.get_mut(key.0 as usize).and_then(Option::as_mut);
            let Some(followed) = followed.filter(|followed| followed.is_unsaid) else {
                return false;
            };
            if now_ns.abs_diff(followed.said_ns) < PROJECT_NS.unsigned_abs() {
                return true;
            }
            followed.is_unsaid = false;
            followed.said_ns = now_ns;
            let revise = |looked_ns, floats: &mut _| revise(*key, looked_ns, floats);
            followed.project(floats, streams, revise);
            false
        });
        !unsaid.is_empty()
    }

    /// Forecasts a stream for a policy, in steps of `step_ns`, whether or not it matches the
    /// configuration. A stream that is already forecast keeps its steps and what its predictors
    /// have learned.
    pub fn follow(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        step_ns: i64,
        streams: &mut Streams<'_>,
    ) {
        let index = key.0 as usize;
        if self.by_key.get(index).is_none_or(Option::is_none) {
            self.add(key, descriptor, None, streams);
        }
        if let Some(Some(followed)) = self.by_key.get_mut(index)
            && followed.cascade.is_none()
        {
            followed.interval_ns = step_ns.max(1);
        } else if let Some(beyond) = self.beyond.get_mut(&key) {
            beyond.interval_ns = step_ns.max(1);
        }
    }

    /// Ends a policy's forecast of a stream, unless the stream matches the configuration.
    pub fn unfollow(&mut self, key: StreamKey, descriptor: &Descriptor, streams: &mut Streams<'_>) {
        if !self.is_meant(&descriptor.name, &descriptor.labels) {
            self.release(key, streams);
        }
    }

    /// The forecast of a stream for a time after its newest look.
    pub fn outlook(&self, key: StreamKey, ts_ns: i64) -> Option<interval::AssumedValue> {
        let forecast = self.cascade(key)?.at(ts_ns)?;
        Some(interval::AssumedValue {
            value: forecast.value,
            half_width: forecast.half_width,
            confidence: self.confidence,
        })
    }

    /// The half width of a stream's forecast `ahead_ns` after its newest look; infinite if it is
    /// unknown.
    pub fn half_width(&self, key: StreamKey, ahead_ns: i64) -> f64 {
        let cascade = self.cascade(key);
        cascade.map_or(f64::INFINITY, |cascade| cascade.half_width(ahead_ns))
    }

    /// The times at which the streams called `name` reach a level: the labels and the time of each
    /// stream that does so within its projection.
    pub fn reaches(
        &self,
        name: &str,
        level: f64,
    ) -> impl Iterator<Item = (&Labels, PredictedReach)> {
        let named = self.by_key.iter().flatten();
        let named = named.filter(move |followed| followed.name.as_str() == name);
        named.filter_map(move |followed| {
            let cascade = followed.cascade.as_ref()?;
            let projection = cascade.project();
            let reach = projection.reaches(level)?;
            let reached = PredictedReach {
                looked_ns: cascade.finest().newest_ns()?,
                expected_s: reach.expected_s?,
                early_s: reach.early_s,
                late_s: reach.late_s,
                known_s: projection.known_s().unwrap_or(0.0),
            };
            Some((&followed.labels, reached))
        })
    }

    fn cascade(&self, key: StreamKey) -> Option<&Cascade> {
        let followed = self.by_key.get(key.0 as usize)?.as_ref()?;
        followed.cascade.as_ref()
    }

    /// Gives freed slots to waiting streams, begins a new second's steps, and publishes the
    /// coverage when it is due. Called once a second.
    pub fn beat(&mut self, now_ns: i64, streams: &mut Streams<'_>) {
        self.admit(streams);
        for followed in self.by_key.iter_mut().flatten() {
            followed.steps = 0;
        }
        if self.coverages.are_due(now_ns) {
            for followed in self.by_key.iter_mut().flatten() {
                self.coverages.tell(followed, now_ns, streams);
            }
        }
    }
}

/// Declares the stream in which the projections of a stream are published; [`None`] if there is no
/// room for it, or its name would be too long.
pub fn declare_projections(of: &Descriptor, streams: &mut Streams<'_>) -> Option<StreamKey> {
    let projections = document::projections_of(of)?;
    streams.declare_sized(&projections, Some(DEPTH), Some(PROJECTION_BYTES_MAX))
}

impl Followed {
    /// Passes a look to the forecaster; returns whether a new projection is due.
    fn look(&mut self, sample: &Sample, confidence: f64, room: &ForecastRoom) -> bool {
        let Some(pace) = &mut self.pace else {
            return self.observe(sample, confidence, room);
        };
        let Some((step_ns, puts)) = pace.put(sample) else {
            return false;
        };
        self.pace = None;
        self.interval_ns = step_ns;
        let taken = puts.iter().map(|put| self.observe(put, confidence, room));
        taken.fold(false, |any, taken| any | taken)
    }

    fn observe(&mut self, sample: &Sample, confidence: f64, room: &ForecastRoom) -> bool {
        if self.interval_ns <= 0 {
            return false;
        }
        let config = ForecasterConfig {
            step_ns: self.interval_ns,
            confidence,
            shape: self.shape,
        };
        let made = || Cascade::with_delphi(config, room.delphi());
        let cascade = self.cascade.get_or_insert_with(made);
        let taken = match sample.value {
            Value::Int(value) => cascade.observe_int(sample.ts, value),
            Value::Float(value) => cascade.observe(sample.ts, value),
            _ => return false,
        };
        if !matches!(
            taken,
            LookEffect::SameStep | LookEffect::Late | LookEffect::NotFinite
        ) {
            self.steps += 1;
        }
        // After a look that was not used, the last projection still begins at the look before.
        !matches!(taken, LookEffect::Late | LookEffect::NotFinite)
    }

    fn project(
        &self,
        floats: &mut Vec<f64>,
        streams: &mut Streams<'_>,
        revise: impl FnOnce(i64, &mut Vec<f64>) -> i64,
    ) {
        let (Some(cascade), Some(projections)) = (&self.cascade, self.projections) else {
            return;
        };
        let Some(looked_ns) = cascade.finest().newest_ns() else {
            return;
        };
        cascade.project_into(floats);
        let from_ns = revise(looked_ns, floats);
        if !floats.is_empty() {
            streams.look_floats(projections, from_ns, floats);
        }
    }

    /// Sets the stream's shape if it is a part of that total.
    fn bound(&mut self, is_total: impl Fn(&Name, &Labels) -> bool, shape: Shape) {
        let total = self.total.as_ref();
        if total.is_some_and(|total| is_total(total, &self.labels)) {
            self.shape = shape;
            if let Some(cascade) = &mut self.cascade {
                cascade.set_shape(shape);
            }
        }
    }
}
