//! The optimizer of the authors: Adam (Kingma and Ba 2015), as implemented in Keras.

const MEAN_DECAY: f64 = 0.9;
const SQUARE_DECAY: f64 = 0.999;
const SMALL: f64 = 1e-7;

/// The optimizer's state for one set of parameters.
#[derive(Clone, Debug)]
pub(super) struct Adam<const N: usize> {
    rate: f64,
    mean: [f64; N],
    square: [f64; N],
    mean_left: f64,
    square_left: f64,
}

impl<const N: usize> Adam<N> {
    pub(super) fn new(rate: f64) -> Self {
        Self {
            rate,
            mean: [0.0; N],
            square: [0.0; N],
            mean_left: 1.0,
            square_left: 1.0,
        }
    }

    /// Moves the parameters against the gradient.
    pub(super) fn step(&mut self, parameters: &mut [f64; N], gradient: &[f64; N]) {
        self.mean_left *= MEAN_DECAY;
        self.square_left *= SQUARE_DECAY;
        let rate = self.rate * (1.0 - self.square_left).sqrt() / (1.0 - self.mean_left);
        for at in 0..N {
            self.mean[at] += (1.0 - MEAN_DECAY) * (gradient[at] - self.mean[at]);
            self.square[at] +=
                (1.0 - SQUARE_DECAY) * (gradient[at] * gradient[at] - self.square[at]);
            parameters[at] -= rate * self.mean[at] / (self.square[at].sqrt() + SMALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bowl_is_descended_and_the_first_step_is_the_rate() {
        let mut adam = Adam::new(0.01);
        let mut place = [3.0, -2.0];
        adam.step(&mut place, &[6.0, -40.0]);
        assert!((place[0] - 2.99).abs() < 1e-6 && (place[1] + 1.99).abs() < 1e-6);
        for _ in 0..5000 {
            let gradient = [2.0 * place[0], 20.0 * place[1]];
            adam.step(&mut place, &gradient);
        }
        assert!(place.iter().all(|value| value.abs() < 1e-3), "{place:?}");
    }
}
