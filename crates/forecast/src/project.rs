//! What a cascade says of all the time that it says anything of, as knots that readers draw lines between.

use barograph_model::{Knot, Projection};

use crate::cascade::Cascade;
use crate::steps::GAP_STEPS_MAX;

/// The steps of the finest forecaster that have a knot: each where a pattern repeats, ever fewer beyond.
const STEPS: [usize; 23] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 28, 32, 40, 48, 64,
];
const NS_PER_S: f64 = 1e9;

impl Cascade {
    /// What is expected after the newest look; empty before the first. This allocates.
    pub fn project(&self) -> Projection {
        let finest = self.finest();
        let step_s = finest.step_ns() as f64 / NS_PER_S;
        let mut path = [0.0; GAP_STEPS_MAX as usize];
        let Some(now) = finest.newest_ns().and_then(|now_ns| finest.at(now_ns)) else {
            return Projection::default();
        };
        finest.path(&mut path);
        let here = Knot {
            after_s: 0.0,
            value: now.value,
            half_width: 0.0,
        };
        let near = STEPS.iter().map(|&steps| Knot {
            after_s: steps as f64 * step_s,
            value: finest.track.float(path[steps - 1]),
            half_width: finest.half_width_after(steps as f64),
        });
        let far = self.calibrated().into_iter();
        let far = far.map(|(after_ns, value, half_width)| Knot {
            after_s: after_ns / NS_PER_S,
            value,
            half_width,
        });
        // Those of the finest are there already: only later ones are taken.
        Projection::new(std::iter::once(here).chain(near).chain(far))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForecasterConfig;

    #[test]
    fn a_ramp_is_projected() {
        let mut cascade = Cascade::new(ForecasterConfig::default());
        assert!(cascade.project().knots().is_empty());
        for second in 0..6_000_i64 {
            cascade.observe(second * 1_000_000_000, 7.0 + 3.0 * second as f64);
        }
        let projection = cascade.project();
        let last = 7.0 + 3.0 * 5_999.0;
        for after_s in [0.0, 0.5, 1.0, 9.0, 60.0, 200.0] {
            let knot = projection.at(after_s).expect("minutes are projected");
            let truth = last + 3.0 * after_s;
            assert!(
                (knot.value - truth).abs() <= 0.05 * 3.0 * after_s + 1e-6,
                "{after_s}: {knot:?}, {truth}"
            );
        }
    }
}
