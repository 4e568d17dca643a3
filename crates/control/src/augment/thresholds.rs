//! The augmentation-bandwidth plot and its two thresholds, which are configured or learnt.
//!
//! Below the lower threshold a device counts as heavily loaded and nothing is read beyond the error
//! bound; from the upper one on everything is read; between them the degree is a straight line
//! (Tango, section III-C, step 2).

use std::collections::VecDeque;

use crate::ControlError;

/// Most observed bandwidths from which the thresholds of a device are learnt.
const HISTORY_MAX: usize = 256;
/// Fewest observed bandwidths from which thresholds are learnt.
const LEARNT_MIN: usize = 8;
/// The share of observations below the lower threshold, and above the upper one.
const TAIL: f64 = 0.1;
/// The largest share of the upper threshold that the lower one may be.
const LOW_SHARE_MAX: f64 = 0.5;

/// The two bandwidths between which the degree of augmentation rises from 0 to 1, in bytes/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandwidthThresholds {
    low: f64,
    high: f64,
}

impl BandwidthThresholds {
    /// Thresholds in bytes/s.
    ///
    /// # Errors
    ///
    /// [`ControlError::Thresholds`] unless 0 < `low` < `high`, both finite: equal or exchanged
    /// thresholds have no line between them.
    pub fn new(low: f64, high: f64) -> Result<Self, ControlError> {
        match low > 0.0 && low < high && high.is_finite() && (high - low).is_normal() {
            true => Ok(Self { low, high }),
            false => Err(ControlError::Thresholds { low, high }),
        }
    }

    /// The bandwidth up to which the degree is 0, in bytes/s.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// The bandwidth from which on the degree is 1, in bytes/s.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// The distance of the thresholds, in bytes/s.
    pub fn span(&self) -> f64 {
        self.high - self.low
    }

    /// The degree of augmentation for a bandwidth in bytes/s: in `0.0..=1.0`, and 0 for a bandwidth
    /// that is not a number.
    pub fn degree(&self, bandwidth: f64) -> f64 {
        match bandwidth.is_nan() {
            true => 0.0,
            false => ((bandwidth - self.low) / self.span()).clamp(0.0, 1.0),
        }
    }
}

/// The last bandwidths that were observed on one device, from which its thresholds are learnt.
///
/// The upper threshold is the quantile 0.9 and the lower one the quantile 0.1, so one step in ten
/// may be wrong in either direction (a read from the cache, a stalled disk) without moving them;
/// the extremes would follow a single such step for as long as it is remembered. The lower
/// threshold is at most half of the upper one: on a device that nobody disturbs the two quantiles
/// are a little noise apart, and the line between them would turn that noise into whole degrees.
#[derive(Clone, Debug, Default)]
pub struct BandwidthHistory {
    observed: VecDeque<f64>,
}

impl BandwidthHistory {
    /// Takes in one observed bandwidth, in bytes/s; the oldest one is forgotten if there are 256.
    /// What is not a positive number is no observation.
    pub fn observe(&mut self, bandwidth: f64) {
        if !(bandwidth.is_finite() && bandwidth > 0.0) {
            return;
        }
        if self.observed.len() == HISTORY_MAX {
            self.observed.pop_front();
        }
        self.observed.push_back(bandwidth);
    }

    /// The number of observations that are remembered.
    pub fn len(&self) -> usize {
        self.observed.len()
    }

    /// The answer to whether nothing was observed yet.
    pub fn is_empty(&self) -> bool {
        self.observed.is_empty()
    }

    /// The thresholds that follow from the observations; `None` while there are fewer than 8.
    pub fn thresholds(&self) -> Option<BandwidthThresholds> {
        if self.observed.len() < LEARNT_MIN {
            return None;
        }
        let mut sorted: Vec<f64> = self.observed.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let high = quantile(&sorted, 1.0 - TAIL);
        let low = quantile(&sorted, TAIL).min(high * LOW_SHARE_MAX);
        BandwidthThresholds::new(low, high).ok()
    }
}

/// The quantile of sorted values, of which there is at least one: that of the nearest rank.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len() - 1;
    sorted[((last as f64 * share).round() as usize).min(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    #[test]
    fn the_degree_is_a_line_between_the_thresholds() {
        let plot = BandwidthThresholds::new(30.0 * MB, 120.0 * MB).unwrap();
        let table = [
            (f64::NEG_INFINITY, 0.0),
            (0.0, 0.0),
            (30.0 * MB, 0.0),
            (75.0 * MB, 0.5),
            (97.5 * MB, 0.75),
            (120.0 * MB, 1.0),
            (f64::INFINITY, 1.0),
            (f64::NAN, 0.0),
        ];
        for (bandwidth, expect) in table {
            assert_eq!(plot.degree(bandwidth), expect, "{bandwidth}");
        }
    }

    #[test]
    fn thresholds_that_make_no_line_are_refused() {
        let table = [
            (0.0, 1.0),
            (-1.0, 1.0),
            (1.0, 1.0),
            (2.0, 1.0),
            (f64::NAN, 1.0),
            (1.0, f64::NAN),
            (1.0, f64::INFINITY),
            (1e-320, 2e-320),
        ];
        for (low, high) in table {
            assert!(BandwidthThresholds::new(low, high).is_err(), "{low} {high}");
        }
    }

    fn learnt(observed: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
        let mut history = BandwidthHistory::default();
        observed.into_iter().for_each(|it| history.observe(it));
        history.thresholds().map(|it| (it.low(), it.high()))
    }

    #[test]
    fn thresholds_are_quantiles_of_what_was_observed() {
        assert_eq!(learnt((1..=7).map(f64::from)), None);
        // Ranks 10 and 90 of 0..=100.
        assert_eq!(learnt((1..=101).map(f64::from)), Some((11.0, 91.0)));
        // A device that nobody disturbs.
        assert_eq!(learnt([100.0; 20]), Some((50.0, 100.0)));
        // One step in ten is wrong by far, in each direction.
        let wrong = (1..=101).map(|step| match step % 20 {
            0 => 1e12,
            10 => 1e-3,
            _ => 50.0 + f64::from(step),
        });
        let (low, high) = learnt(wrong).unwrap();
        assert!((50.0..80.0).contains(&low) && (130.0..=151.0).contains(&high));
        // What is no bandwidth is not taken in.
        let none = [f64::NAN, f64::INFINITY, 0.0, -5.0];
        assert_eq!(learnt(none.into_iter().cycle().take(100)), None);
    }

    #[test]
    fn the_history_forgets_what_is_old() {
        let mut history = BandwidthHistory::default();
        (0..HISTORY_MAX).for_each(|_| history.observe(1_000.0));
        (0..HISTORY_MAX).for_each(|_| history.observe(10.0));
        assert_eq!(history.len(), HISTORY_MAX);
        assert_eq!(history.thresholds().unwrap().high(), 10.0);
    }
}
