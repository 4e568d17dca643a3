//! One bridged series: which of its points are taken, by time, type and order.
//!
//! It is a module of its own because it implements the rules in `docs/guide/bridges.md`; it knows
//! no scope.

use std::sync::Arc;

use barograph_bridge::{Distribution, SeriesProperties};
use barograph_model::{Kind, StreamKey, Value};

use crate::age::{AFTER_NS_MAX, AGE_NS_MAX};

/// The order of a series' points: time and value of the newest one that was taken. The value is
/// unknown if an earlier life of the agent took it.
#[derive(Debug)]
pub(super) struct Order<T>(Option<(i64, Option<T>)>);

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq> Order<T> {
    /// Checks the time of a point. A point without a time gets the present time, or a later one if
    /// that is not after the newest point.
    pub(super) fn time(&self, ts: Option<i64>, now_ns: i64) -> Result<i64, String> {
        let Some(ts) = ts else {
            let after = self.0.as_ref().map_or(i64::MIN, |(newest, _)| newest + 1);
            return Ok(now_ns.max(after));
        };
        if ts > now_ns.saturating_add(AFTER_NS_MAX) {
            return Err("its time is more than 1 s in the future".into());
        }
        if ts < now_ns.saturating_sub(AGE_NS_MAX) {
            return Err("its time is more than 30 days ago".into());
        }
        Ok(ts)
    }

    /// Whether a point is new; one that was sent again is not, which is no error. Fails if it is
    /// older than the newest point, or differs from it at the same time.
    pub(super) fn is_news(&self, ts: i64, sent: &T) -> Result<bool, String> {
        match &self.0 {
            Some((newest, _)) if ts < *newest => {
                Err("it is older than the newest of its series".into())
            }
            Some((newest, before)) if ts == *newest => match before {
                Some(before) if before != sent => {
                    Err("its series has another value at this time".into())
                }
                _ => Ok(false),
            },
            _ => Ok(true),
        }
    }

    pub(super) fn take(&mut self, ts: i64, sent: T) {
        self.0 = Some((ts, Some(sent)));
    }

    pub(super) fn newest(&self) -> Option<&T> {
        self.0.as_ref().and_then(|(_, sent)| sent.as_ref())
    }

    /// The time of the newest point.
    pub(super) fn newest_ns(&self) -> Option<i64> {
        self.0.as_ref().map(|(newest, _)| *newest)
    }
}

/// A series that has a stream.
#[derive(Debug)]
pub(super) struct BridgeSeries {
    /// The key of its stream.
    pub key: StreamKey,
    about: Arc<SeriesProperties>,
    order: Order<Value>,
    /// The sum of deltas since the series began here; none if values are not deltas.
    total: Option<Value>,
    /// Monotonic time of the last write.
    pub used_ns: i64,
}

impl BridgeSeries {
    pub(super) fn new(key: StreamKey, about: Arc<SeriesProperties>, monotonic_ns: i64) -> Self {
        Self {
            key,
            about,
            order: Order::default(),
            total: None,
            used_ns: monotonic_ns,
        }
    }

    /// Continues after the archive's newest sample of the series.
    pub(super) fn after(mut self, newest_ns: Option<i64>) -> Self {
        self.order = Order(newest_ns.map(|ns| (ns, None)));
        self
    }

    /// The time of the newest point.
    pub(super) fn newest_ns(&self) -> Option<i64> {
        self.order.newest_ns()
    }

    /// Checks a point and returns the time and value to append; none if it was taken already.
    pub(super) fn next(
        &mut self,
        about: &SeriesProperties,
        ts: Option<i64>,
        sent: Value,
        now_ns: i64,
    ) -> Result<Option<(i64, Value)>, String> {
        let found = sent.value_type();
        if found != self.about.value_type {
            let (found, declared) = (found.as_str(), self.about.value_type.as_str());
            return Err(format!("it is {found}, and its series is {declared}"));
        }
        if (about.kind, about.is_delta) != (self.about.kind, self.about.is_delta) {
            let kind = self.about.kind.as_str();
            return Err(format!(
                "its series is another {kind}: one metric sends it as two"
            ));
        }
        let ts = self.order.time(ts, now_ns)?;
        if !self.order.is_news(ts, &sent)? {
            return Ok(None);
        }
        let value = match self.about.is_delta {
            true => self.added(&sent)?,
            false => sent.clone(),
        };
        self.order.take(ts, sent);
        Ok(Some((ts, value)))
    }

    fn added(&mut self, sent: &Value) -> Result<Value, String> {
        let is_less = sent.as_f64().is_some_and(|value| value < 0.0);
        if self.about.kind == Kind::Counter && is_less {
            return Err("it counts backwards".into());
        }
        let total = match (&self.total, sent) {
            (None, sent) => Some(sent.clone()),
            (Some(Value::Int(a)), Value::Int(b)) => a.checked_add(*b).map(Value::Int),
            (Some(Value::Float(a)), Value::Float(b)) => {
                Some(a + b).filter(|sum| sum.is_finite()).map(Value::Float)
            }
            _ => None,
        };
        let total = total.ok_or("its sum is out of range")?;
        self.total = Some(total.clone());
        Ok(total)
    }
}

/// A histogram: the buckets of its newest point.
#[derive(Debug)]
pub(super) struct HistogramSeries {
    order: Order<Distribution>,
    /// Monotonic time of the last write.
    pub used_ns: i64,
}

impl HistogramSeries {
    pub(super) fn new(monotonic_ns: i64) -> Self {
        Self {
            order: Order::default(),
            used_ns: monotonic_ns,
        }
    }

    /// Checks a point and returns the time and the counts since the point before; none if they are
    /// not known yet, or the point was taken already.
    pub(super) fn next(
        &mut self,
        ts: Option<i64>,
        sent: Distribution,
        now_ns: i64,
    ) -> Result<Option<(i64, Distribution)>, String> {
        let ts = self.order.time(ts, now_ns)?;
        if !self.order.is_news(ts, &sent)? {
            return Ok(None);
        }
        let since = match sent.is_delta {
            true => Some(sent.clone()),
            false => self.order.newest().and_then(|before| sent.since(before)),
        };
        self.order.take(ts, sent);
        Ok(since.map(|since| (ts, since)))
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::{NS_PER_S, ValueType};

    use super::*;

    const NOW: i64 = 100 * 86_400 * NS_PER_S;

    fn series(kind: Kind, is_delta: bool) -> (BridgeSeries, Arc<SeriesProperties>) {
        let about = Arc::new(SeriesProperties {
            kind,
            value_type: ValueType::Int,
            unit: String::new(),
            help: String::new(),
            is_delta,
        });
        (
            BridgeSeries::new(StreamKey(0), Arc::clone(&about), 0),
            about,
        )
    }

    #[test]
    fn order_goes_on_behind_what_is_archived() {
        let (series, about) = series(Kind::Gauge, false);
        let mut series = series.after(Some(NOW - 5));
        let mut next = |ts: i64| series.next(&about, Some(ts), Value::Int(ts), NOW);
        assert!(next(NOW - 6).is_err(), "it was there before");
        assert_eq!(next(NOW - 5), Ok(None), "sent again");
        assert_eq!(next(NOW - 4), Ok(Some((NOW - 4, Value::Int(NOW - 4)))));
        assert_eq!(series.newest_ns(), Some(NOW - 4));
    }

    #[test]
    fn order() {
        let (mut series, about) = series(Kind::Gauge, false);
        let mut check = |ts: Option<i64>, value: i64, expect: Result<Option<i64>, &str>| {
            let found = series.next(&about, ts, Value::Int(value), NOW);
            match (found, expect) {
                (Ok(found), Ok(expect)) => {
                    assert_eq!(found.map(|(ts, _)| ts), expect, "{ts:?} {value}");
                }
                (Err(found), Err(expect)) => assert!(found.contains(expect), "{found}"),
                (found, expect) => panic!("{ts:?} {value}: {found:?}, not {expect:?}"),
            }
        };
        check(Some(NOW - 10), 1, Ok(Some(NOW - 10)));
        check(Some(NOW - 10), 1, Ok(None));
        check(Some(NOW - 10), 2, Err("another value"));
        check(Some(NOW - 11), 1, Err("older than the newest"));
        check(Some(NOW - AGE_NS_MAX - 1), 1, Err("30 days"));
        check(Some(NOW + AFTER_NS_MAX + 1), 1, Err("future"));
        check(Some(i64::MAX), 1, Err("future"));
        check(Some(i64::MIN), 1, Err("30 days"));
        check(None, 1, Ok(Some(NOW)));
        check(None, 1, Ok(Some(NOW + 1)));
        check(Some(NOW + AFTER_NS_MAX), 3, Ok(Some(NOW + AFTER_NS_MAX)));
    }

    #[test]
    fn deltas_add_up_once() {
        let (mut series, about) = series(Kind::Counter, true);
        let mut value = |ts: i64, value: i64| {
            let next = series.next(&about, Some(NOW + ts), Value::Int(value), NOW);
            next.map(|next| next.map(|(_, value)| value))
        };
        assert_eq!(value(1, 5), Ok(Some(Value::Int(5))));
        assert_eq!(value(2, 3), Ok(Some(Value::Int(8))));
        assert_eq!(value(2, 3), Ok(None), "sent again");
        assert!(value(1, 9).is_err());
        assert!(value(3, -1).is_err(), "backwards");
        assert!(value(3, i64::MAX).is_err(), "out of range");
        assert_eq!(value(4, 0), Ok(Some(Value::Int(8))));
    }

    #[test]
    fn another_type_or_kind_is_refused() {
        let (mut series, about) = series(Kind::Gauge, false);
        let float = series.next(&about, None, Value::Float(1.0), NOW);
        assert_eq!(float, Err("it is float64, and its series is int64".into()));
        let counter = SeriesProperties {
            kind: Kind::Counter,
            ..(*about).clone()
        };
        assert!(series.next(&counter, None, Value::Int(1), NOW).is_err());
    }

    #[test]
    fn a_histogram_tells_what_came_between() {
        let of = |counts: &[u64], is_delta| Distribution {
            bounds: vec![1.0],
            counts: counts.to_vec(),
            is_delta,
            ..Distribution::default()
        };
        let mut histogram = HistogramSeries::new(0);
        let mut next = |ts: i64, counts: &[u64]| {
            let next = histogram.next(Some(NOW + ts), of(counts, false), NOW);
            next.map(|next| next.map(|(_, since)| since.counts))
        };
        assert_eq!(next(1, &[3, 0]), Ok(None), "since when is not known");
        assert_eq!(next(2, &[3, 2]), Ok(Some(vec![0, 2])));
        assert_eq!(next(2, &[3, 2]), Ok(None), "sent again");
        assert_eq!(next(3, &[1, 0]), Ok(None), "it began anew");
        assert_eq!(next(4, &[2, 0]), Ok(Some(vec![1, 0])));
        assert!(next(3, &[2, 0]).is_err());
        let mut histogram = HistogramSeries::new(0);
        let first = histogram.next(None, of(&[1, 0], true), NOW).unwrap();
        assert_eq!(first.unwrap().1.counts, [1, 0]);
    }
}
