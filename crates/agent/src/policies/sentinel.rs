//! A stream that follows a cheap one: when a move of that calls for a look, and what readers are told of what it says until then.

use barograph_forecast::interval::{Looked, Outlook, Plan, Sentinel, SentinelConfig, Step};
use barograph_model::{Knot, Projection, StreamKey};

use super::engine::seconds;

/// So many moves of the cheap stream are looked at whatever is planned, to learn what they mean.
const LESSONS: u32 = 4;

/// What a look at the cheap stream means for the other.
#[derive(Debug, PartialEq)]
pub(super) enum Moved {
    /// It has to be looked at.
    Call,
    /// Readers are told this from then on.
    Say(Projection),
    /// As before.
    Nothing,
}

/// What is known of a stream through a cheap one.
pub(super) struct Derived {
    pub(super) cheap: StreamKey,
    sentinel: Sentinel,
    /// The newest value of the cheap stream.
    counter: f64,
    /// What it was at the newest look at the other, and how many of those came after a move.
    anchor: f64,
    lessons: u32,
    /// What readers were told after the newest look at the other, what it was then, and when.
    base: Projection,
    value: f64,
    base_ns: i64,
    /// What they were told last: value and half width.
    told: (f64, f64),
}

impl Derived {
    pub(super) fn new(cheap: StreamKey, config: SentinelConfig) -> Self {
        Self {
            cheap,
            sentinel: Sentinel::new(config),
            counter: f64::NAN,
            anchor: f64::NAN,
            lessons: 0,
            base: Projection::default(),
            value: f64::NAN,
            base_ns: 0,
            told: (f64::NAN, f64::NAN),
        }
    }

    /// A look at the dear stream.
    pub(super) fn look(&mut self, looked: &Looked, half_width: impl Fn(i64) -> f64) -> Plan {
        self.value = looked.value;
        self.base = Projection::default();
        self.told = (looked.value, 0.0);
        if self.has_moved() {
            self.lessons = self.lessons.saturating_add(1);
        }
        self.anchor = self.counter;
        self.sentinel.called(
            looked.ts_ns,
            self.counter,
            looked.value,
            looked.forecast,
            half_width,
        )
    }

    /// What readers are told after it.
    pub(super) fn base(&mut self, ts_ns: i64, said: &Projection) {
        self.base_ns = ts_ns;
        self.base = said.clone();
    }

    /// A look at the cheap stream; `forecast` is what is expected of the other at that moment. What the cheap one says is told only where the
    /// plan is to derive (`is_told`), and has changed.
    pub(super) fn moved(
        &mut self,
        ts_ns: i64,
        counter: f64,
        forecast: Option<Outlook>,
        is_told: bool,
    ) -> Moved {
        self.counter = counter;
        if self.lessons < LESSONS && self.has_moved() {
            return Moved::Call;
        }
        match self.sentinel.counter(ts_ns, counter, forecast) {
            Step::Call => Moved::Call,
            Step::Say(now) if is_told && self.told != (now.value, now.half_width) => {
                self.told = (now.value, now.half_width);
                match self.shifted(ts_ns, &now) {
                    Some(projection) => Moved::Say(projection),
                    None => Moved::Nothing,
                }
            }
            Step::Say(_) => Moved::Nothing,
        }
    }

    fn has_moved(&self) -> bool {
        self.anchor.is_finite() && self.counter != self.anchor
    }

    /// What was said after the look, as if it had been found so then. `None` where nothing was said, or what is derived is no number.
    fn shifted(&self, ts_ns: i64, now: &Outlook) -> Option<Projection> {
        let elapsed_s = seconds(ts_ns.saturating_sub(self.base_ns));
        let by = now.value - self.value;
        if elapsed_s < 0.0 || self.base.knots().is_empty() || !by.is_finite() {
            return None;
        }
        let here = Knot {
            after_s: 0.0,
            value: now.value,
            half_width: now.half_width,
        };
        let later = self.base.knots().iter().filter(|k| k.after_s > elapsed_s);
        let later = later.map(|k| Knot {
            after_s: k.after_s - elapsed_s,
            value: k.value + by,
            half_width: k.half_width + now.half_width,
        });
        Some(Projection::new(std::iter::once(here).chain(later)))
    }
}
