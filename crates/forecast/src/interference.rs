//! The interference forecast: the bandwidth that a reader of a shared device gets in its next
//! steps, with an interval, a confidence and a reason.
//!
//! A reader (an analysis that reads some megabytes each minute) shares a device with writers whose
//! checkpoints come at intervals of their own. Tango (III-C) forecasts the bandwidth from the
//! reader's own past alone. Sampled once a minute, checkpoints of seconds are aliased, and a
//! discrete Fourier transform repeats its window: that is right only where the window is a common
//! multiple of all periods. This module looks at the writers too:
//!
//! * [`CounterReading`]s of the byte counter of each writer become an [`Activity`], its bursts;
//! * [`WriterEstimate::of`] fits a [`Schedule`] to them: period, next start, size, and the spread
//!   of each; a writer without one counts as a constant load, with a reason, [`NotPeriodic`];
//! * [`Fluid`] is the device: who has bytes outstanding shares it by weight;
//! * [`Outlook::of`] rolls the schedules forward through the device, and gives the bandwidth of
//!   each of the reader's next steps;
//! * [`StepModel`]s forecast from the reader's past: mean, thresholded transform, Holt-Winters;
//! * [`BandwidthForecaster`] follows whichever was best of late, and falls back to the mean.
//!
//! Times are in seconds on any clock that the caller uses for all of them; sizes are in bytes, and
//! bandwidths in bytes per second.

mod bursts;
mod estimate;
mod fit;
mod outlook;
mod schedule;
mod selector;
mod sharing;
mod steps;

pub use bursts::{Activity, BURSTS_MAX, Burst, BurstPart, CounterReading, READINGS_MAX};
pub use estimate::WriterEstimate;
pub use outlook::{ARRIVALS_MAX, DRAWS, ExpectedBandwidth, Outlook, WRITERS_MAX, Writer};
pub use schedule::{BURSTS_MIN, CHANCE_MAX, NotPeriodic, Pacing, SPREAD_MAX, Schedule};
pub use selector::{
    BandwidthForecast, BandwidthForecaster, Candidate, InterferenceConfig, StepForecast,
};
pub use sharing::{Arrival, EVENTS_MAX, Fluid, Load, Read, corrected};
pub use steps::{ConstantTerm, HORIZON_MAX, HistoryForecast, StepModel, WINDOW_MAX};

/// The largest number of bytes, and of bytes per second, that is computed with.
const BYTES_MAX: f64 = 1e18;

/// The largest distance of a time from 0, in seconds: its digits still tell milliseconds apart.
const TIME_S_MAX: f64 = 1e12;

/// Returns `bytes` within 0 to [`BYTES_MAX`]; 0 if it is not a number.
fn sound_bytes(bytes: f64) -> f64 {
    if bytes > 0.0 {
        bytes.min(BYTES_MAX)
    } else {
        0.0
    }
}

/// Returns whether `value` is a number above 0.
fn is_positive(value: f64) -> bool {
    value > 0.0
}

/// Returns `time_s` if it can be computed with.
fn sound_time(time_s: f64) -> Option<f64> {
    (time_s.abs() <= TIME_S_MAX).then_some(time_s)
}

/// Returns the middle of `values`, which are sorted by this; 0 if there are none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
