//! A stream that follows a cheap one: the moves of the cheap stream that call for a look at it, and
//! the projection that is derived from the cheap stream until then.

use barograph_model::{Knot, Projection, seconds};

use super::bounded::{AssumedValue, ComparedLook, LookPlan};
use super::sentinel::{Sentinel, SentinelConfig, SentinelStep};

/// The consequence of a look at the cheap stream for the stream that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// The stream has to be looked at.
    Call,
    /// Another projection is published from this moment on.
    Say,
    /// Nothing changes.
    Nothing,
}

/// The value of a stream that follows a cheap one, derived between looks.
pub(super) struct DerivedValue {
    sentinel: Sentinel,
    /// Newest value of the cheap stream.
    counter: f64,
    /// Value of the following stream at its newest look.
    value: f64,
    /// Value that was derived since then and published, and the time of it.
    now: Option<(i64, AssumedValue)>,
}

impl DerivedValue {
    pub(super) fn new(config: SentinelConfig) -> Self {
        Self {
            sentinel: Sentinel::new(config),
            counter: f64::NAN,
            value: f64::NAN,
            now: None,
        }
    }

    /// Records a look at the following stream.
    pub(super) fn look(
        &mut self,
        looked: &ComparedLook,
        half_width: impl Fn(i64) -> f64,
    ) -> LookPlan {
        self.value = looked.value;
        self.now = None;
        self.sentinel.called(
            looked.ts_ns,
            self.counter,
            looked.value,
            looked.forecast,
            half_width,
        )
    }

    /// Records a look at the cheap stream. `forecast` is the value that is expected of the
    /// following stream at that moment. `told_ns` is the time of the newest look at the following
    /// stream if the plan is to derive; only then, and only if it has changed, is a derived value
    /// published.
    pub(super) fn moved(
        &mut self,
        ts_ns: i64,
        counter: f64,
        forecast: Option<AssumedValue>,
        told_ns: Option<i64>,
    ) -> MoveOutcome {
        self.counter = counter;
        match self.sentinel.counter(ts_ns, counter, forecast) {
            SentinelStep::Call => MoveOutcome::Call,
            SentinelStep::Say(now) if told_ns.is_some_and(|told_ns| told_ns <= ts_ns) => {
                let told = self.now.as_ref();
                let told =
                    told.map_or((self.value, 0.0), |(_, told)| (told.value, told.half_width));
                let is_number = (now.value - self.value).is_finite();
                if !is_number || told == (now.value, now.half_width) {
                    return MoveOutcome::Nothing;
                }
                self.now = Some((ts_ns, now));
                MoveOutcome::Say
            }
            SentinelStep::Say(_) => MoveOutcome::Nothing,
        }
    }

    /// Moves the projection after the look to the time and value that were last derived, and
    /// returns that time. Returns `None` if nothing was derived since the look.
    pub(super) fn shift(
        &self,
        looked_ns: i64,
        after_look: &Projection,
        shifted: &mut Projection,
    ) -> Option<i64> {
        let (ts_ns, now) = self.now.as_ref()?;
        let elapsed_s = seconds(ts_ns.saturating_sub(looked_ns));
        let by = now.value - self.value;
        let here = Knot {
            after_s: 0.0,
            value: now.value,
            half_width: now.half_width,
        };
        let later = after_look.knots().iter().filter(|k| k.after_s > elapsed_s);
        let later = later.map(|k| Knot {
            after_s: k.after_s - elapsed_s,
            value: k.value + by,
            half_width: k.half_width + now.half_width,
        });
        shifted.refill(std::iter::once(here).chain(later));
        Some(*ts_ns)
    }
}
