//! How often an application does I/O, and how much: learnt from its past phases.
//!
//! The period is that of the application alone: the time from the end of a phase to the begin of
//! the next one, and the time that the phase takes alone on the storage. What it waits for others
//! is left out; otherwise a busy storage would look like applications that do less I/O.

/// The mean weighs each new phase as one of so many.
const MEMORY: f64 = 8.0;
/// Fewest phases after which a period is known.
const PHASES_MIN: u32 = 3;

/// The time between two phases of an application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhasePeriod {
    /// The mean, in seconds.
    pub seconds: f64,
    /// The standard deviation of the periods by their mean: 0 for a clockwork.
    pub variation: f64,
}

impl PhasePeriod {
    /// The order of magnitude of the period in seconds, which is the set of its application in
    /// Set-10 (IO-Sets, Boito et al.).
    pub fn set(&self) -> i32 {
        self.seconds.log10().round() as i32
    }
}

/// What is known of the phases of an application.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApplicationHistory {
    phases: u32,
    ended_s: Option<f64>,
    /// Seconds between the end of the last phase and the begin of the current one.
    pause_s: Option<f64>,
    period: Option<RunningMean>,
    alone: Option<RunningMean>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct RunningMean {
    mean: f64,
    square: f64,
}

impl RunningMean {
    fn with(before: Option<Self>, value: f64, count: u32) -> Self {
        let Some(Self { mean, square }) = before else {
            return Self {
                mean: value,
                square: value * value,
            };
        };
        let weight = 1.0 / f64::from(count).clamp(1.0, MEMORY);
        Self {
            mean: mean + weight * (value - mean),
            square: square + weight * (value * value - square),
        }
    }

    fn variation(&self) -> f64 {
        let variance = (self.square - self.mean * self.mean).max(0.0);
        match self.mean > 0.0 {
            true => variance.sqrt() / self.mean,
            false => 0.0,
        }
    }
}

impl ApplicationHistory {
    /// Takes in that a phase begins, at this time in seconds.
    pub fn begin(&mut self, now_s: f64) {
        self.pause_s = self.ended_s.map(|ended_s| (now_s - ended_s).max(0.0));
    }

    /// Takes in that the phase has ended, which would have taken so many seconds alone.
    pub fn end(&mut self, now_s: f64, alone_s: f64) {
        if !(now_s.is_finite() && alone_s.is_finite() && alone_s >= 0.0) {
            return;
        }
        self.ended_s = Some(now_s);
        self.alone = Some(RunningMean::with(self.alone, alone_s, self.phases + 1));
        if let Some(pause_s) = self.pause_s.take() {
            self.phases = self.phases.saturating_add(1);
            let period_s = pause_s + alone_s;
            self.period = Some(RunningMean::with(self.period, period_s, self.phases));
        }
    }

    /// The period, after enough phases.
    pub fn period(&self) -> Option<PhasePeriod> {
        let period = self.period.filter(|_| self.phases >= PHASES_MIN)?;
        (period.mean > 0.0).then(|| PhasePeriod {
            seconds: period.mean,
            variation: period.variation(),
        })
    }

    /// The share of the storage's time that the application needs; `None` before its
    /// period is known.
    pub fn load(&self) -> Option<f64> {
        let period = self.period()?;
        self.alone.map(|alone| alone.mean / period.seconds)
    }
}

/// The share of the storage's time that applications need together. The unknown ones count as the
/// mean of the known ones; `None` while less than half of them are known.
pub fn offered_load<'a>(
    histories: impl IntoIterator<Item = &'a ApplicationHistory>,
) -> Option<f64> {
    let (mut all, mut known, mut sum) = (0_u32, 0_u32, 0.0);
    for history in histories {
        all += 1;
        if let Some(load) = history.load() {
            known += 1;
            sum += load;
        }
    }
    (known > 0 && known * 2 >= all).then(|| sum * f64::from(all) / f64::from(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_that_of_the_application_alone() {
        let mut history = ApplicationHistory::default();
        let mut now_s = 0.0;
        for (waits_s, expect) in [(0.0, None), (50.0, None), (7.0, None), (300.0, Some(10.0))] {
            history.begin(now_s);
            now_s += 2.0 + waits_s;
            history.end(now_s, 2.0);
            now_s += 8.0;
            let period = history.period();
            assert_eq!(period.map(|it| it.seconds), expect, "{waits_s}");
        }
        assert_eq!(history.period().unwrap().variation, 0.0);
        assert_eq!(history.period().unwrap().set(), 1);
        assert!((history.load().unwrap() - 0.2).abs() < 1e-12);
    }

    #[test]
    fn a_mean_follows_and_absurd_times_are_left_out() {
        let mut history = ApplicationHistory::default();
        let mut now_s = 0.0;
        for pause_s in [10.0; 10].into_iter().chain([100.0; 60]) {
            history.begin(now_s);
            history.end(now_s, 0.0);
            history.end(f64::NAN, 1.0);
            history.end(now_s, -1.0);
            now_s += pause_s;
        }
        let period = history.period().unwrap();
        assert!((period.seconds - 100.0).abs() < 1.0, "{period:?}");
        assert_eq!((history.load(), period.set()), (Some(0.0), 2));
        history.begin(0.0);
        history.end(0.0, 0.0);
        assert!(history.period().is_some(), "a clock that went back");
    }
}
