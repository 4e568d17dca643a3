//! Predictors for tests.

use barograph_forecast::Predictor;

/// Continues the line through the last two values.
#[derive(Default)]
pub(crate) struct Linear {
    last: f64,
    slope: f64,
    known: u8,
}

impl Predictor for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn observe(&mut self, value: f64) {
        self.slope = if self.known > 0 {
            value - self.last
        } else {
            0.0
        };
        self.last = value;
        self.known = 1;
    }

    fn predict(&self, steps: u32) -> f64 {
        self.last + self.slope * f64::from(steps)
    }

    fn forget(&mut self) {
        self.known = 0;
    }
}

/// Predicts the mean of recent values.
#[derive(Default)]
pub(crate) struct Mean {
    mean: f64,
    count: f64,
}

impl Predictor for Mean {
    fn name(&self) -> &'static str {
        "mean"
    }

    fn observe(&mut self, value: f64) {
        self.count = (self.count + 1.0).min(32.0);
        self.mean += (value - self.mean) / self.count;
    }

    fn predict(&self, _: u32) -> f64 {
        self.mean
    }

    fn forget(&mut self) {
        self.count = 0.0;
    }
}

/// Predicts the numbers of a list, whatever it observes: any prediction at all.
pub(crate) struct Liar {
    pub lies: Vec<f64>,
    pub at: usize,
}

impl Predictor for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }

    fn observe(&mut self, _: f64) {
        self.at += 1;
    }

    fn predict(&self, steps: u32) -> f64 {
        let at = (self.at + steps as usize) % self.lies.len().max(1);
        self.lies.get(at).copied().unwrap_or(f64::NAN)
    }

    fn forget(&mut self) {
        self.at = 0;
    }
}

pub(crate) fn all() -> Vec<Box<dyn Predictor + Send>> {
    vec![Box::new(Linear::default()), Box::new(Mean::default())]
}
