//! Whether the members of a map do more operations without a server that was taken out of it.
//!
//! What is compared is the number of operations that end in a window of time. A server that is slow
//! holds up the others of a striped operation, but it also carries a part of the load: only what
//! members get shows which of the two counts. Windows without an operation say nothing, since
//! programs that compute do no I/O whatever the map is. The windows before the change in which the
//! server was slow and those after it are compared by a rank-sum test. If it cannot say with a
//! confidence of 90 % that there are more operations without the server, and by more than 5 %, the
//! server is wanted back, and none is taken out of the map for a while. The margin is needed, since
//! programs that keep a pace differ so little from window to window that the test takes a
//! ten-thousandth for an effect.

use std::collections::VecDeque;

use super::HOLD_OFF_NS;
use super::rank::{larger_by_chance, median};

/// Most windows before a change that are compared, the newest ones, and the fewest.
const BEFORE_MAX: usize = 24;
const BEFORE_MIN: usize = 4;
/// Windows after a change that are compared.
const AFTER: usize = 12;
/// Windows after a change that are left out: operations wait for it, and end in them together.
const SETTLE: usize = 2;
/// The greatest probability of a difference by chance at which the effect counts as shown.
const CHANCE_MAX: f64 = 0.1;
/// The part of the operations by which there have to be more.
const GAIN_MIN: f64 = 0.05;

/// What a comparison has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleFinding {
    /// The number of windows before the server was taken out, and the median of their operations/s.
    pub before: (usize, f64),
    /// The same without the server.
    pub after: (usize, f64),
    /// The probability of such a difference by chance, if the server's absence gives 5 %.
    pub chance: f64,
    /// Whether there are more operations without the server, by more than 5 %.
    pub is_effective: bool,
}

impl ScaleFinding {
    /// The finding as a sentence.
    pub fn sentence(&self) -> String {
        let ((before, slow), (after, fast)) = (self.before, self.after);
        format!(
            "members ended {slow:.1} operations/s before ({before} windows, median) and {fast:.1} \
             without it ({after}); if that gave {:.0} %, there would be as many by chance with a \
             probability of {:.2}, and less than {CHANCE_MAX} is wanted",
            GAIN_MIN * 100.0,
            self.chance
        )
    }
}

/// What is known of the effect of taking servers out of one map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScaleEffect {
    /// Operations/s in the newest windows in which operations have ended.
    windows: VecDeque<f64>,
    trial: Option<ScaleTrial>,
    held_until_ns: Option<i64>,
    last: Option<ScaleFinding>,
}

/// A server is out, and it is observed what that gives.
#[derive(Clone, Debug, PartialEq)]
struct ScaleTrial {
    before: Vec<f64>,
    after: Vec<f64>,
    settles: usize,
}

impl ScaleEffect {
    /// Takes in the operations/s of a window that is over. Returns what a comparison has found, if
    /// this was the last window that it needed.
    pub fn observe(&mut self, operations_s: f64, now_ns: i64) -> Option<ScaleFinding> {
        if !(operations_s.is_finite() && operations_s > 0.0) {
            return None;
        }
        if self.windows.len() == BEFORE_MAX {
            self.windows.pop_front();
        }
        self.windows.push_back(operations_s);
        let trial = self.trial.as_mut()?;
        if trial.settles > 0 {
            trial.settles -= 1;
            return None;
        }
        trial.after.push(operations_s);
        if trial.after.len() < AFTER {
            return None;
        }
        let ScaleTrial { before, after, .. } = self.trial.take()?;
        let wanted: Vec<f64> = before.iter().map(|it| it * (1.0 + GAIN_MIN)).collect();
        let chance = larger_by_chance(&after, &wanted);
        let finding = ScaleFinding {
            before: (before.len(), median(&before)),
            after: (after.len(), median(&after)),
            chance,
            is_effective: chance < CHANCE_MAX,
        };
        if !finding.is_effective {
            self.held_until_ns = Some(now_ns.saturating_add(HOLD_OFF_NS));
        }
        self.last = Some(finding);
        Some(finding)
    }

    /// A server was taken out that was slow in the last windows, so many of them: what comes from
    /// now on is compared with these. Returns false if there are too few of them, and nothing is
    /// judged.
    pub fn begin_trial(&mut self, slow_windows: usize) -> bool {
        let before: Vec<f64> = self
            .windows
            .iter()
            .rev()
            .take(slow_windows)
            .copied()
            .collect();
        let is_known = before.len() >= BEFORE_MIN;
        self.trial = is_known.then(|| ScaleTrial {
            before,
            after: Vec::new(),
            settles: SETTLE,
        });
        self.windows.clear();
        is_known
    }

    /// The map has changed for another reason: what was before is no measure any more.
    pub fn end_trial(&mut self) {
        self.trial = None;
        self.windows.clear();
    }

    /// Whether a server is out and its absence is being judged.
    pub fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// The median of the operations/s in the newest windows; `None` if there are too few.
    pub fn operations_s(&self) -> Option<f64> {
        let is_known = self.windows.len() >= BEFORE_MIN;
        is_known.then(|| median(&self.windows.iter().copied().collect::<Vec<_>>()))
    }

    /// The time until which no server is taken out.
    pub fn held_until(&self, now_ns: i64) -> Option<i64> {
        self.held_until_ns.filter(|until_ns| now_ns < *until_ns)
    }

    /// Ends a hold-off; returns whether there was one.
    pub fn resume(&mut self) -> bool {
        self.held_until_ns.take().is_some()
    }

    /// What the last comparison has found.
    pub fn last(&self) -> Option<&ScaleFinding> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows with some noise around so many operations/s; the first finding.
    fn observe(effect: &mut ScaleEffect, windows: usize, of: f64) -> Option<ScaleFinding> {
        let mut found = None;
        for n in 0..windows {
            let noise = 1.0 + (n * 7_919 % 13) as f64 / 100.0;
            // A window without an operation says nothing.
            assert_eq!(effect.observe(0.0, 0), None);
            found = found.or(effect.observe(of * noise, 5));
        }
        found
    }

    #[test]
    fn a_server_that_held_up_the_others_stays_out() {
        let mut effect = ScaleEffect::default();
        observe(&mut effect, 40, 100.0);
        assert!(effect.operations_s().is_some_and(|it| it > 100.0));
        assert!(effect.begin_trial(100) && effect.is_on_trial());
        assert_eq!(observe(&mut effect, SETTLE + AFTER - 1, 130.0), None);
        let finding = observe(&mut effect, 1, 130.0).unwrap();
        assert!(finding.is_effective, "{finding:?}");
        assert_eq!((finding.before.0, finding.after.0), (BEFORE_MAX, AFTER));
        assert!(finding.sentence().contains("24 windows"));
        assert_eq!((effect.held_until(0), effect.is_on_trial()), (None, false));
    }

    #[test]
    fn one_whose_absence_gives_nothing_is_wanted_back() {
        for after in [100.0, 80.0] {
            let mut effect = ScaleEffect::default();
            observe(&mut effect, 40, 100.0);
            assert!(effect.begin_trial(100));
            let finding = observe(&mut effect, SETTLE + AFTER, after).unwrap();
            assert!(!finding.is_effective, "{finding:?}");
            assert_eq!(effect.held_until(5), Some(5 + HOLD_OFF_NS));
            assert_eq!(effect.held_until(5 + HOLD_OFF_NS), None);
            assert!(effect.resume() && !effect.resume());
        }
    }

    #[test]
    fn a_difference_that_is_certain_and_means_nothing_is_no_effect() {
        // A program of ten operations/s: its windows differ in the last digits.
        let paced = |effect: &mut ScaleEffect, windows: usize, of: f64| {
            (0..windows).find_map(|n| effect.observe(of + n as f64 * 1e-6, 0))
        };
        let mut effect = ScaleEffect::default();
        assert_eq!(paced(&mut effect, 40, 9.998), None);
        assert!(effect.begin_trial(100));
        let finding = paced(&mut effect, SETTLE + AFTER, 9.999).unwrap();
        assert!(!finding.is_effective, "{finding:?}");
    }

    #[test]
    fn windows_before_the_server_was_slow_are_not_compared() {
        let mut effect = ScaleEffect::default();
        observe(&mut effect, 40, 200.0);
        observe(&mut effect, 10, 50.0);
        assert!(effect.begin_trial(10));
        let finding = observe(&mut effect, SETTLE + AFTER, 150.0).unwrap();
        assert!(finding.is_effective, "{finding:?}");
        assert_eq!(finding.before.0, 10);
    }

    #[test]
    fn without_windows_before_nothing_is_judged() {
        let mut effect = ScaleEffect::default();
        observe(&mut effect, BEFORE_MIN - 1, 100.0);
        assert!(!effect.begin_trial(100));
        assert_eq!(observe(&mut effect, 100, 100.0), None);
        assert!(effect.begin_trial(100));
        effect.end_trial();
        assert_eq!(observe(&mut effect, 100, 50.0), None);
        assert_eq!(effect.last(), None);
    }
}
