//! A stream that follows a cheap one: when a move of that calls for a look, and what readers are told of what it says until then.

use barograph_forecast::interval::{Looked, Outlook, Plan, Sentinel, SentinelConfig, Step};
use barograph_model::{Knot, Projection, StreamKey};

use super::engine::seconds;

/// What a look at the cheap stream means for the other.
#[derive(Debug, PartialEq)]
pub(super) enum Moved {
    /// It has to be looked at.
    Call,
    /// Readers are told something else from then on.
    Say,
    /// As before.
    Nothing,
}

/// What is known of a stream through a cheap one.
pub(super) struct Derived {
    pub(super) cheap: StreamKey,
    sentinel: Sentinel,
    /// The newest value of the cheap stream.
    counter: f64,
    /// What the other was at its newest look.
    value: f64,
    /// What it has become since, as readers are told, and when.
    now: Option<(i64, Outlook)>,
}

impl Derived {
    pub(super) fn new(cheap: StreamKey, config: SentinelConfig) -> Self {
        Self {
            cheap,
            sentinel: Sentinel::new(config),
            counter: f64::NAN,
            value: f64::NAN,
            now: None,
        }
    }

    /// A look at the dear stream.
    pub(super) fn look(&mut self, looked: &Looked, half_width: impl Fn(i64) -> f64) -> Plan {
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

    /// A look at the cheap stream; `forecast` is what is expected of the other at that moment. What the cheap one says is told only where the
    /// plan is to derive, since the look at the other at `told_ns`, and has changed.
    pub(super) fn moved(
        &mut self,
        ts_ns: i64,
        counter: f64,
        forecast: Option<Outlook>,
        told_ns: Option<i64>,
    ) -> Moved {
        self.counter = counter;
        match self.sentinel.counter(ts_ns, counter, forecast) {
            Step::Call => Moved::Call,
            Step::Say(now) if told_ns.is_some_and(|told_ns| told_ns <= ts_ns) => {
                let told = self.now.as_ref();
                let told =
                    told.map_or((self.value, 0.0), |(_, told)| (told.value, told.half_width));
                let is_number = (now.value - self.value).is_finite();
                if !is_number || told == (now.value, now.half_width) {
                    return Moved::Nothing;
                }
                self.now = Some((ts_ns, now));
                Moved::Say
            }
            Step::Say(_) => Moved::Nothing,
        }
    }

    /// What was said after the look, as if it had been found so when the cheap stream said so; gives when. `None` where it has said nothing.
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
