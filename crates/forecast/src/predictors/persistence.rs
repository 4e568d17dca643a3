//! Persistence: the last value, for ever. All other predictors are measured against it.

use crate::Predictor;

/// Predicts that nothing changes. It is the best predictor of a random walk (Hyndman and
/// Athanasopoulos, Forecasting: Principles and Practice, 3rd edition, 5.2, the naïve method).
#[derive(Clone, Debug, Default)]
pub struct Persistence {
    last: f64,
}

impl Predictor for Persistence {
    fn name(&self) -> &'static str {
        "persistence"
    }

    fn observe(&mut self, value: f64) {
        self.last = value;
    }

    fn predict(&self, _: u32) -> f64 {
        self.last
    }

    fn path(&self, expected: &mut [f64]) {
        expected.fill(self.last);
    }

    fn forget(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_repeated() {
        let mut persistence = Persistence::default();
        assert_eq!(persistence.predict(1), 0.0);
        persistence.observe(3.0);
        persistence.forget();
        assert_eq!(persistence.predict(7), 3.0);
    }
}
