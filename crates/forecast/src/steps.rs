//! Conversion of looks at arbitrary times to steps: how many steps a look is after the one before.

/// Most steps between two looks. After a longer time the old values are no longer right before the
/// new ones.
pub const GAP_STEPS_MAX: u32 = 64;

/// Longest step, in ns: longer ones are shortened, so that no sum of steps overflows.
const STEP_NS_MAX: i64 = i64::MAX / 1024;

/// The position of a look relative to the newest one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Advance {
    First,
    /// At or before the newest look.
    Late,
    /// Within the step of the newest look.
    Same,
    Steps(u32),
    Gap,
}

/// The position of the newest look on the grid of steps.
///
/// The grid follows the looks by an eighth of their offset: looks that jitter around it are one
/// step each, and looks at another rate than one per step are right on average.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    step_ns: i64,
    newest_ns: Option<i64>,
    /// The time from the step to the newest look: at most about one step.
    phase_ns: i64,
}

impl Steps {
    pub(crate) fn new(step_ns: i64) -> Self {
        Self {
            step_ns: step_ns.clamp(1, STEP_NS_MAX),
            newest_ns: None,
            phase_ns: 0,
        }
    }

    pub(crate) fn step_ns(&self) -> i64 {
        self.step_ns
    }

    pub(crate) fn newest_ns(&self) -> Option<i64> {
        self.newest_ns
    }

    /// The position that a look at `ts_ns` would have.
    pub(crate) fn look(&self, ts_ns: i64) -> Advance {
        let Some(newest_ns) = self.newest_ns else {
            return Advance::First;
        };
        if ts_ns <= newest_ns {
            return Advance::Late;
        }
        let elapsed_ns = ts_ns.abs_diff(newest_ns);
        if elapsed_ns > self.step_ns.unsigned_abs() * u64::from(GAP_STEPS_MAX + 1) {
            return Advance::Gap;
        }
        match self.rounded(elapsed_ns) {
            0 => Advance::Same,
            steps if steps <= GAP_STEPS_MAX => Advance::Steps(steps),
            _ => Advance::Gap,
        }
    }

    /// Takes in the look at `ts_ns`, with the position that `look` returned.
    pub(crate) fn take(&mut self, ts_ns: i64, advance: Advance) {
        let Some(newest_ns) = self.newest_ns.replace(ts_ns) else {
            return;
        };
        match advance {
            Advance::First | Advance::Gap => self.phase_ns = 0,
            Advance::Late => self.newest_ns = Some(newest_ns),
            Advance::Same => self.phase_ns += ts_ns - newest_ns,
            Advance::Steps(steps) => {
                let off = self.phase_ns + (ts_ns - newest_ns) - i64::from(steps) * self.step_ns;
                self.phase_ns = off - off / 8;
            }
        }
    }

    /// Number of steps from the newest look to `ts_ns`. `None` before it.
    pub(crate) fn after(&self, ts_ns: i64) -> Option<f64> {
        let newest_ns = self.newest_ns?;
        if ts_ns < newest_ns {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a forecast's time, in steps")]
        Some(ts_ns.abs_diff(newest_ns) as f64 / self.step_ns as f64)
    }

    /// Rounds to the nearest step. `elapsed_ns` is a few steps at most.
    fn rounded(&self, elapsed_ns: u64) -> u32 {
        let off = self.phase_ns + i64::try_from(elapsed_ns).unwrap_or(i64::MAX / 2);
        // The case of nearly every look.
        if off >= self.step_ns - self.step_ns / 2 && off < self.step_ns + self.step_ns / 2 {
            return 1;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "saturates, and is some steps"
        )]
        let steps = (off as f64 / self.step_ns as f64).round() as u32;
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Advance::{First, Gap, Late, Same, Steps as By};

    #[track_caller]
    fn check(step_ns: i64, looks: &[(i64, Advance)]) {
        let mut steps = Steps::new(step_ns);
        for (ts_ns, expect) in looks {
            let advance = steps.look(*ts_ns);
            assert_eq!(advance, *expect, "at {ts_ns}");
            steps.take(*ts_ns, advance);
        }
    }

    #[test]
    fn looks_are_rounded_to_steps() {
        check(
            10,
            &[
                (100, First),
                (100, Late),
                (99, Late),
                (103, Same),
                (110, By(1)),
                (121, By(1)),
                (128, By(1)),
                (152, By(2)),
                (152, Late),
                (150 + 640, By(64)),
                (150 + 640 + 700, Gap),
                (1500, By(1)),
            ],
        );
    }

    #[test]
    fn the_ends_of_time_are_a_gap_apart() {
        check(
            i64::MAX,
            &[
                (i64::MIN, First),
                (i64::MIN, Late),
                (i64::MAX, Gap),
                (0, Late),
            ],
        );
        check(-5, &[(i64::MIN, First), (i64::MAX, Gap), (i64::MAX, Late)]);
        let mut steps = Steps::new(1);
        steps.take(i64::MIN, First);
        assert_eq!(steps.after(i64::MAX), Some(2.0f64.powi(64)));
    }

    #[test]
    fn a_pace_that_is_not_the_steps_comes_out_right() {
        for pace in [3i64, 7, 13, 14, 15, 17, 23, 1000 / 11] {
            let mut steps = Steps::new(10);
            steps.take(0, First);
            let mut sum = 0;
            for at in 1..=1000 {
                let advance = steps.look(at * pace);
                steps.take(at * pace, advance);
                sum += match advance {
                    By(steps) => steps,
                    Same => 0,
                    other => panic!("{other:?}"),
                };
            }
            assert!(
                (f64::from(sum) - 100.0 * pace as f64).abs() <= 6.0,
                "{pace}: {sum}"
            );
        }
    }

    #[test]
    fn looks_half_a_step_off_the_first_become_one_step_each() {
        let mut steps = Steps::new(1000);
        steps.take(0, First);
        let mut twos = 0;
        for at in 1..200i64 {
            let ts_ns = at * 1000 + 500 + if at % 2 == 0 { 40 } else { -40 };
            let advance = steps.look(ts_ns);
            steps.take(ts_ns, advance);
            twos += i32::from(at > 20 && advance != By(1));
        }
        assert_eq!(twos, 0);
    }
}
