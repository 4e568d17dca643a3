//! Readings: a value with its age and its error, and how far it is to be trusted. They are a file
//! of their own because every decision weighs what it knows by the same rule.
//!
//! Trust is 1 for a fresh and exact value and falls to 0 with age and error:
//! `exp(-age / tau) / (1 + error / |value|)`. `tau` is the time constant of staleness
//! ([`STALENESS_S_DEFAULT`]): after it a value counts a third, after five times it 1 in 150. What
//! is unknown has trust 0, which is not the same as the value 0.

/// The time constant of staleness unless configured, in seconds. Queues change within seconds, so
/// what is a minute old says little.
pub const STALENESS_S_DEFAULT: f64 = 30.0;

/// A value that was measured or computed at some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The value, in the unit of the field that has it.
    pub value: f64,
    /// The half width of the interval that has the true value at the time of the reading, in the
    /// same unit; 0 for a measurement.
    pub error: f64,
    /// Seconds since the reading.
    pub age_s: f64,
    /// What the value is expected to be now, if there is a forecast.
    pub forecast: Option<ReadingForecast>,
}

/// A forecast of a reading for the present.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadingForecast {
    /// The expected value, in the unit of the reading.
    pub value: f64,
    /// The half width of the interval that has the true value now, in the same unit.
    pub error: f64,
}

/// A reading as decisions use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value, which is finite.
    pub value: f64,
    /// The half width of the interval that has the true value, of at least 0.
    pub error: f64,
    /// How far the value is to be trusted, above 0 and up to 1.
    pub trust: f64,
}

impl Reading {
    /// A measurement without an error, of so many seconds ago.
    pub fn measured(value: f64, age_s: f64) -> Self {
        Self {
            value,
            error: 0.0,
            age_s,
            forecast: None,
        }
    }

    /// The better trusted of the value and its forecast; `None` if nothing is known: neither is a
    /// finite number of at least 0, or they are so old that their trust is 0.
    pub fn estimate(&self, tau_s: f64) -> Option<Estimate> {
        // A time in the future is of a clock that is off: as far off as the past, as far as known.
        let age_s = self.age_s.abs();
        let measured = estimate(self.value, self.error, (-age_s / tau_s).exp());
        let forecast = self
            .forecast
            .and_then(|it| estimate(it.value, it.error, 1.0));
        match (measured, forecast) {
            (Some(measured), Some(forecast)) if forecast.trust > measured.trust => Some(forecast),
            (None, forecast) => forecast,
            (measured, _) => measured,
        }
    }
}

impl Estimate {
    /// The least that the true value may be, of at least 0.
    pub fn low(&self) -> f64 {
        (self.value - self.error).max(0.0)
    }
}

/// The estimate of an optional reading.
pub(crate) fn known(reading: Option<Reading>, tau_s: f64) -> Option<Estimate> {
    reading?.estimate(tau_s)
}

fn estimate(value: f64, error: f64, freshness: f64) -> Option<Estimate> {
    let is_sound = |number: f64| number.is_finite() && number >= 0.0;
    if !is_sound(value) || !is_sound(error) {
        return None;
    }
    // A value of 0 with an error says nothing of its size: half of the trust.
    let relative = match (error > 0.0, value > 0.0) {
        (true, true) => error / value,
        (true, false) => 1.0,
        (false, _) => 0.0,
    };
    let trust = freshness / (1.0 + relative);
    (trust > 0.0).then_some(Estimate {
        value,
        error,
        trust,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_falls_with_age_and_error() {
        // Value, error, age, and the expected trust at a time constant of 10 s; 0: unknown.
        let table = [
            (5.0, 0.0, 0.0, 1.0),
            (5.0, 0.0, 10.0, 0.367_879),
            (5.0, 0.0, -10.0, 0.367_879),
            (5.0, 5.0, 0.0, 0.5),
            (0.0, 0.0, 0.0, 1.0),
            (0.0, 3.0, 0.0, 0.5),
            (f64::NAN, 0.0, 0.0, 0.0),
            (f64::INFINITY, 0.0, 0.0, 0.0),
            (-1.0, 0.0, 0.0, 0.0),
            (1.0, f64::NAN, 0.0, 0.0),
            (1.0, 0.0, f64::NAN, 0.0),
            (1.0, 0.0, 1e9, 0.0),
        ];
        for (value, error, age_s, expect) in table {
            let reading = Reading {
                value,
                error,
                age_s,
                forecast: None,
            };
            let trust = reading.estimate(10.0).map_or(0.0, |it| it.trust);
            assert!(
                (trust - expect).abs() < 1e-6,
                "{value} {error} {age_s}: {trust}"
            );
        }
    }

    #[test]
    fn a_forecast_is_used_when_it_is_better_trusted() {
        let mut reading = Reading::measured(100.0, 60.0);
        reading.forecast = Some(ReadingForecast {
            value: 40.0,
            error: 10.0,
        });
        assert_eq!(reading.estimate(10.0).map(|it| it.value), Some(40.0));
        reading.age_s = 0.0;
        assert_eq!(reading.estimate(10.0).map(|it| it.value), Some(100.0));
    }
}
