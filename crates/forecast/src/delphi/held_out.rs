//! The errors of weights on values that training has not seen: the last fifth of each series.

use std::sync::Arc;

use super::repaired::RepairedDelphi;
use super::weights::{HEADS, HORIZONS, WINDOW, Weights};
use crate::Predictor;

/// Fewest values from which something can be learned: a window, the next value, and the farthest
/// horizon.
pub const LEARNED_LEN_MIN: usize = WINDOW + 1 + HORIZONS[HEADS - 1] as usize;

/// Number of values, out of `values`, that are for training. The others come after them.
pub fn learned_len(values: usize) -> usize {
    values - values / 5
}

/// Sums of absolute errors at each of [`HORIZONS`], as multiples of those of the last value. Only
/// values from index `from` on are compared; the values before are observed. `None` if the last
/// value is never wrong. A value that is not finite is a gap, across which nothing is predicted.
pub fn relative_errors(
    weights: &Arc<Weights>,
    values: &[f64],
    from: usize,
) -> [Option<f64>; HEADS] {
    let mut predictor = RepairedDelphi::new(weights.clone());
    let mut sums = [(0.0f64, 0.0f64); HEADS];
    for (at, value) in values.iter().enumerate() {
        if !value.is_finite() {
            predictor.forget();
            continue;
        }
        predictor.observe(*value);
        for ((said, stays), horizon) in sums.iter_mut().zip(HORIZONS) {
            let there = at.saturating_add(horizon as usize);
            let truth = values.get(there).filter(|truth| truth.is_finite());
            if let Some(truth) = truth.filter(|_| there >= from) {
                *said += (truth - predictor.predict(horizon)).abs();
                *stays += (truth - value).abs();
            }
        }
    }
    sums.map(|(said, stays)| Some(said / stays).filter(|ratio| stays > 0.0 && ratio.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_held_out() {
        for (values, learned) in [(0, 0), (4, 4), (5, 4), (100, 80), (104, 84)] {
            assert_eq!(learned_len(values), learned);
        }
    }

    #[test]
    fn only_what_is_held_out_is_compared() {
        let ramp: Vec<f64> = (0..400).map(f64::from).collect();
        let on_ramp = relative_errors(&Weights::built_in(), &ramp, 320);
        assert!(
            on_ramp.iter().all(|ratio| ratio.is_some_and(|r| r < 0.5)),
            "{on_ramp:?}"
        );
        // Weights that predict the last value have the same errors as the last value.
        let stays = relative_errors(&Arc::new(Weights::zero()), &ramp, 320);
        assert_eq!(stays[0], Some(1.0));
        // The series moves before `from`, and never after.
        let mut flat = ramp.clone();
        flat[200..].fill(7.0);
        assert_eq!(
            relative_errors(&Weights::built_in(), &flat, 320),
            [None; HEADS]
        );
        assert_eq!(relative_errors(&Weights::built_in(), &[], 0), [None; HEADS]);
        let huge = [
            f64::MAX,
            f64::MIN,
            f64::MAX,
            f64::NAN,
            f64::MIN,
            f64::INFINITY,
        ];
        relative_errors(&Weights::built_in(), &huge, 0);
    }
}
