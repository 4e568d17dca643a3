//! Forecasts of the node's streams: each look at a stream that is configured goes to its forecaster, and what that says goes to
//! the stream `forecast.<name>`, which readers evaluate at their own time.
//!
//! It stands where samples pass, not where they are read: that a value did not change is what a predictor most needs to know, and
//! only looks say so. The sampler has one for streams of sources and insights, and each scope of applications one of its own.

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

use barograph_forecast::{Cascade, ForecasterConfig, Shape, Taken, interval};
use barograph_model::{
    Descriptor, FORECAST_PREFIX, KNOTS_MAX, Kind, Labels, Name, Sample, Selector, StreamKey, Value,
    ValueType,
};
use tracing::warn;

use crate::Streams;
use coverage::Coverages;
use pace::Pace;
use room::{NoPlace, Place};
use totals::{Totals, total_of};

pub use config::ForecastConfig;
pub use room::Room;

/// Bytes of the longest projection.
const PROJECTION_BYTES_MAX: u32 = (KNOTS_MAX * 3 * 8) as u32;
/// Projections that a ring holds: the newest is what counts.
const DEPTH: u32 = 16;
/// A stream is not projected anew more often: readers evaluate what was said last at their own time.
pub const PROJECT_NS: i64 = 10_000_000;
/// Steps of one stream that are looked at within a second; what is beyond is not looked at, which is counted.
const STEPS_PER_S_MAX: u32 = 2_048;

/// The forecasters of all streams that have one.
pub struct Forecasts {
    selectors: Vec<Selector>,
    confidence: f64,
    room: Arc<Room>,
    by_key: Vec<Option<Box<Followed>>>,
    totals: Totals,
    /// Streams that were looked at since they were projected.
    unsaid: Vec<StreamKey>,
    /// What is about to be said.
    floats: Vec<f64>,
    coverages: Coverages,
    /// Streams that are meant and wait for a place.
    beyond: BTreeMap<StreamKey, Beyond>,
    /// What the room had given when they were asked for last.
    given: u64,
    /// Looks beyond [`STEPS_PER_S_MAX`].
    unheeded: u64,
}

/// When a stream is expected to reach a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Its newest look, which the others are counted from, in seconds.
    pub looked_ns: i64,
    /// When it is expected there.
    pub expected_s: f64,
    /// Not sooner than this; none where that is not known.
    pub early_s: Option<f64>,
    /// Not later than this; likewise.
    pub late_s: Option<f64>,
    /// How far the error is known: what is expected later was compared with nothing yet.
    pub known_s: f64,
}

/// A stream that is not forecast yet, as there are too many.
struct Beyond {
    of: Descriptor,
    /// It is put to when somebody pleases.
    is_of_user: bool,
    /// As of one that is followed.
    interval_ns: i64,
    place: NoPlace,
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
    /// Finds the step where nobody says when the next look is.
    pace: Option<Pace>,
    /// What it is a part of.
    total: Option<Name>,
    /// Steps in this second.
    steps: u32,
    /// When it was projected last, by the agent's clock.
    said_ns: i64,
    is_unsaid: bool,
    /// Streams of its coverage, by horizon.
    coverage: BTreeMap<i64, Option<StreamKey>>,
    _place: Place,
}

impl Forecasts {
    /// Of a configuration that was checked.
    pub fn new(config: &ForecastConfig, room: Arc<Room>) -> Self {
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

    /// How many streams of the whole agent are forecast, and how many are meant and have no place.
    pub fn counts(&self) -> (usize, usize) {
        self.room.counts()
    }

    /// A stream is there whose looks come at known intervals; it is forecast if it is meant and has numbers.
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

    /// A stream is there that a user's program puts to when it pleases.
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
        // What is said of streams is not forecast itself.
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
        // One that waits keeps its place among those who do.
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

    /// Follows a stream of numbers from now on.
    fn give(
        &mut self,
        key: StreamKey,
        descriptor: &Descriptor,
        is_of_user: bool,
        place: Place,
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
        let projections = document::projections_of(descriptor);
        let projections = projections
            .and_then(|of| streams.declare_sized(&of, Some(DEPTH), Some(PROJECTION_BYTES_MAX)));
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
            pace: is_of_user.then(Pace::default),
            total,
            steps: 0,
            said_ns: i64::MIN,
            is_unsaid: false,
            coverage: BTreeMap::new(),
            _place: place,
        }));
    }

    /// Takes up the places that streams of this one were given since they wait.
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

    /// A stream is gone, and what is said of it.
    pub fn stream_removed(&mut self, key: StreamKey, streams: &mut Streams<'_>) {
        if let Some(total) = self.totals.stream_removed(key) {
            for followed in self.by_key.iter_mut().flatten() {
                followed.bound(|name, labels| total.is(name, labels), Shape::Gauge);
            }
        }
        self.release(key, streams);
    }

    /// Forecasts a stream no more, or no longer counts it as one for which there is no place.
    fn release(&mut self, key: StreamKey, streams: &mut Streams<'_>) {
        self.beyond.remove(&key);
        let gone = self.by_key.get_mut(key.0 as usize).and_then(Option::take);
        let Some(gone) = gone else { return };
        self.coverages.stream_removed(&gone, streams);
        if let Some(projections) = gone.projections {
            barograph_model::Sink::retire(streams, projections);
        }
    }

    /// When the stream's source is read. The first word of it counts: a step stays what it is, however the interval changes.
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

    /// A look at a stream, whether it has changed or not: its forecaster learns of it, and something is said at the end of the round.
    /// False where it is not.
    pub fn looked(&mut self, key: StreamKey, sample: &Sample) -> bool {
        let is_said = self.observe(key, sample);
        if is_said {
            self.unsay(key);
        }
        is_said
    }

    /// What readers were told of a stream no longer holds: at the end of the round they are told anew.
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

    /// A stream was looked at, and its newest value still holds.
    pub fn held(&mut self, key: StreamKey, looked_ns: i64, streams: &Streams<'_>) {
        let is_followed = matches!(self.by_key.get(key.0 as usize), Some(Some(_)));
        if let Some(newest) = streams.newest(key).filter(|_| is_followed) {
            self.looked(key, &Sample::measured(looked_ns, newest.value.clone()));
        }
    }

    /// Tells readers what is expected of the streams that were looked at. Those that were told of a moment ago wait for the next
    /// call.
    pub fn project(&mut self, now_ns: i64, streams: &mut Streams<'_>) {
        self.project_by(now_ns, streams, |_, looked_ns, _| looked_ns);
    }

    /// The same where somebody says something else of some streams: `revise` has their key, when they were looked at and what is expected
    /// since, as a projection's floats, and gives when what it made of that begins. True if some wait: call it again [`PROJECT_NS`] later.
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

    /// The policy is gone, and with it what the configuration does not mean.
    pub fn unfollow(&mut self, key: StreamKey, descriptor: &Descriptor, streams: &mut Streams<'_>) {
        if !self.is_meant(&descriptor.name, &descriptor.labels) {
            self.release(key, streams);
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

    /// When the streams of a name reach a level: of each that does so within what is projected its labels, and how long that is after
    /// its newest look.
    pub fn reaches(&self, name: &str, level: f64) -> impl Iterator<Item = (&Labels, Reached)> {
        let named = self.by_key.iter().flatten();
        let named = named.filter(move |followed| followed.name.as_str() == name);
        named.filter_map(move |followed| {
            let cascade = followed.cascade.as_ref()?;
            let projection = cascade.project();
            let reach = projection.reaches(level)?;
            let reached = Reached {
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

    /// Once a second: how well what was said did, a new second's looks, and places that have become free.
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

impl Followed {
    /// Whether anything is said after it.
    fn look(&mut self, sample: &Sample, confidence: f64, room: &Room) -> bool {
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

    fn observe(&mut self, sample: &Sample, confidence: f64, room: &Room) -> bool {
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
        if !matches!(taken, Taken::SameStep | Taken::Late | Taken::NotFinite) {
            self.steps += 1;
        }
        // Else what it says is still of the time of the look before.
        !matches!(taken, Taken::Late | Taken::NotFinite)
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

    /// What it can be from now on, if it is a part of that total.
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
