//! The streams as rules see them: the newest sample, the last sign of life, and the windows that
//! functions ask for.

use std::sync::Arc;

use barograph_model::{
    Descriptor, FORECAST_PREFIX, Kind, Quality, Sample, StreamKey, Value, ValueType,
};

use crate::RuleLimits;
use crate::leaf::LeafWakes;
use crate::report::FiringSummary;
use crate::window::{SampleRun, StreamWindow, WINDOW_POINTS_MIN, WindowSample};
use barograph_statement::SqlValue;

/// One use of a stream: by a leaf of a subject of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamUse {
    pub rule: u32,
    pub subject: u32,
    pub leaf: u32,
    pub wakes: LeafWakes,
}

#[derive(Debug)]
pub(crate) struct RuleStream {
    pub descriptor: Arc<Descriptor>,
    /// Whether it is a stream of some node under its name in the cluster.
    pub is_of_cluster: bool,
    /// The scope that it is of (`u1000`, `all`); empty for the streams of a node itself.
    pub scope: Arc<str>,
    pub newest: Option<Newest>,
    /// The newest value, if the stream is a forecast.
    pub said: Option<Value>,
    pub readers: Vec<StreamUse>,
    /// Windows, each with the number of leaves of subjects that use it.
    windows: Vec<(StreamWindow, u32)>,
}

/// Its newest sample.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    pub ts: i64,
    pub val: SqlValue,
    /// Whether nobody looked from then until the next sample.
    pub is_last_look: bool,
    /// The last sign of life: the sample, or a look that found it unchanged.
    pub seen_ns: i64,
}

impl RuleStream {
    pub(crate) fn new(descriptor: &Descriptor, is_of_cluster: bool, scope: &Arc<str>) -> Self {
        Self {
            descriptor: Arc::new(descriptor.clone()),
            is_of_cluster,
            scope: Arc::clone(scope),
            newest: None,
            said: None,
            readers: Vec::new(),
            windows: Vec::new(),
        }
    }

    pub(crate) fn is_counter(&self) -> bool {
        self.descriptor.kind == Kind::Counter
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.descriptor.value_type != ValueType::Float
    }

    pub(crate) fn window(&self, length_ns: i64) -> Option<&StreamWindow> {
        let mut all = self.windows.iter().map(|(w, _)| w);
        all.find(|w| w.length_ns == length_ns)
    }
}

/// All streams, by key.
#[derive(Debug)]
pub(crate) struct RuleStreams {
    all: Vec<Option<Box<RuleStream>>>,
    limits: RuleLimits,
    points: usize,
    windows: usize,
    /// Windows that were not made for lack of room.
    pub windows_refused: u64,
    /// Streams with a window that is younger than its length.
    young: Vec<(StreamKey, i64)>,
}

impl RuleStreams {
    pub(crate) fn new(limits: RuleLimits) -> Self {
        Self {
            all: Vec::new(),
            limits,
            points: 0,
            windows: 0,
            windows_refused: 0,
            young: Vec::new(),
        }
    }

    pub(crate) fn get(&self, key: StreamKey) -> Option<&RuleStream> {
        self.all.get(key.0 as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, key: StreamKey) -> Option<&mut RuleStream> {
        self.all.get_mut(key.0 as usize)?.as_deref_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamKey, &RuleStream)> {
        let known = self.all.iter().enumerate();
        known.filter_map(|(at, s)| Some((StreamKey(at as u32), s.as_deref()?)))
    }

    /// Adds a stream; returns whether there was room for it.
    pub(crate) fn add(&mut self, key: StreamKey, stream: RuleStream) -> bool {
        let at = key.0 as usize;
        if at >= self.limits.streams_max {
            return false;
        }
        if at >= self.all.len() {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(Box::new(stream));
        true
    }

    pub(crate) fn remove(&mut self, key: StreamKey) -> Option<Box<RuleStream>> {
        let stream = self.all.get_mut(key.0 as usize)?.take()?;
        self.windows -= stream.windows.len();
        self.points -= stream.windows.iter().map(|(w, _)| w.len()).sum::<usize>();
        Some(stream)
    }

    /// Takes a new sample; the stream's uses tell which subjects it concerns.
    pub(crate) fn sample(&mut self, key: StreamKey, sample: &Sample, horizon_ns: i64) {
        let (points_max, points) = (self.points_max(), self.points);
        let Some(stream) = self.get_mut(key) else {
            return;
        };
        let sight = WindowSample {
            ts: sample.ts,
            val: SqlValue::from(&sample.value),
            is_last_look: sample.quality == Quality::Ended,
            held_ns: stream.newest.as_ref().map_or(i64::MIN, |n| n.seen_ns),
            is_counter: stream.is_counter(),
            horizon_ns,
            several: None,
        };
        let mut now = points;
        for (window, _) in &mut stream.windows {
            now -= window.len();
            window.push(&sight, points_max);
            now += window.len();
        }
        if stream.descriptor.name.as_str().starts_with(FORECAST_PREFIX) {
            stream.said = Some(sample.value.clone());
        }
        stream.newest = Some(Newest {
            ts: sample.ts,
            val: sight.val,
            is_last_look: sight.is_last_look,
            seen_ns: sample.ts,
        });
        self.points = now;
    }

    /// Takes samples from before the oldest known one, oldest first, after summaries of still older
    /// ones.
    pub(crate) fn seed(
        &mut self,
        key: StreamKey,
        older: &[FiringSummary],
        past: &[Sample],
        horizon_ns: i64,
    ) {
        let (points_max, points) = (self.points_max(), self.points);
        let Some(stream) = self.get_mut(key) else {
            return;
        };
        let is_counter = stream.is_counter();
        let mut now = points;
        for (window, _) in &mut stream.windows {
            let sight = |ts, value, is_last_look, several| WindowSample {
                ts,
                val: SqlValue::from(value),
                is_last_look,
                held_ns: i64::MIN,
                is_counter,
                horizon_ns,
                several,
            };
            let older = older.iter().map(|summary| {
                let several = SampleRun {
                    count: summary.count,
                    low: summary.low,
                    high: summary.high,
                    mean: summary.mean,
                };
                sight(summary.ts, &summary.last, false, Some(several))
            });
            let past = past.iter();
            let past = past.map(|s| sight(s.ts, &s.value, s.quality == Quality::Ended, None));
            let sights = older.chain(past);
            now -= window.len();
            window.prepend(sights, points_max);
            now += window.len();
        }
        self.points = now;
    }

    /// Makes the stream keep a window of this length, for one more leaf.
    pub(crate) fn keep(&mut self, key: StreamKey, length_ns: i64) {
        let room = self.windows < self.limits.windows_max;
        let points_max = self.points_max();
        let Some(stream) = self.all.get_mut(key.0 as usize).and_then(|s| s.as_mut()) else {
            return;
        };
        let known = stream.windows.iter_mut();
        if let Some((_, users)) = known.into_iter().find(|(w, _)| w.length_ns == length_ns) {
            *users += 1;
            return;
        }
        if !room {
            self.windows_refused += 1;
            return;
        }
        let mut window = StreamWindow::new(length_ns);
        if let Some(newest) = &stream.newest {
            let sight = WindowSample {
                ts: newest.ts,
                val: newest.val.clone(),
                is_last_look: newest.is_last_look,
                held_ns: i64::MIN,
                is_counter: stream.is_counter(),
                horizon_ns: i64::MIN,
                several: None,
            };
            window.push(&sight, points_max);
        }
        self.points += window.len();
        self.windows += 1;
        stream.windows.push((window, 1));
        // Whoever never asks does not make it grow.
        if self.young.len() < self.limits.windows_max {
            self.young.push((key, length_ns));
        }
    }

    /// Notes that one leaf fewer uses the window.
    pub(crate) fn release(&mut self, key: StreamKey, length_ns: i64) {
        let Some(stream) = self.all.get_mut(key.0 as usize).and_then(|s| s.as_mut()) else {
            return;
        };
        let mut known = stream.windows.iter();
        let Some(at) = known.position(|(w, _)| w.length_ns == length_ns) else {
            return;
        };
        stream.windows[at].1 -= 1;
        if stream.windows[at].1 == 0 {
            self.points -= stream.windows[at].0.len();
            self.windows -= 1;
            stream.windows.swap_remove(at);
        }
    }

    /// Returns the streams whose past is needed, with its length in ns; each stream once.
    pub(crate) fn take_young(&mut self) -> Vec<(StreamKey, i64)> {
        let mut young = std::mem::take(&mut self.young);
        // The longest window's is enough for all.
        young.sort_by_key(|&(key, ns)| (key, std::cmp::Reverse(ns)));
        young.dedup_by_key(|(key, _)| *key);
        young.retain(|&(key, _)| self.get(key).is_some());
        young
    }

    /// Removes times later than the clock, which was set back.
    pub(crate) fn set_back(&mut self, now_ns: i64) {
        let mut points = 0;
        for stream in self.all.iter_mut().flatten() {
            if let Some(newest) = &mut stream.newest {
                newest.seen_ns = newest.seen_ns.min(now_ns);
            }
            for (window, _) in &mut stream.windows {
                window.forget_after(now_ns);
                points += window.len();
            }
        }
        self.points = points;
    }

    /// Most points that a window may have now.
    fn points_max(&self) -> usize {
        if self.points < self.limits.points_all_max {
            self.limits.points_max
        } else {
            WINDOW_POINTS_MIN
        }
    }

    /// The number of points, and of windows.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.points, self.windows)
    }
}
