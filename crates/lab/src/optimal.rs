//! Bounds that no policy with only its looks can beat: the best frontier of cost and accuracy on a
//! renewal process.
//!
//! Changes come after independent gaps of a known distribution, and a look shows whether a change
//! came since the last look. The best policy for a given price of wrong time follows from dynamic
//! programming over the age of the last change. The policies of this bound know the distribution; a
//! real policy has to learn it.
//!
//! If past values do not show how soon the present one becomes wrong (walks, steps without memory),
//! fixed intervals are the best policy: [`forgetful_frontier`].

/// Rounds of value iteration; after them nothing of the initial guess is left.
const VALUES: usize = 25;
/// Probabilities below this count as zero.
const NOTHING: f64 = 1e-12;

/// One point of the frontier.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Frontier {
    /// Looks per tick.
    pub cost: f64,
    /// Share of ticks at which the last value seen is the true one.
    pub accuracy: f64,
}

/// The best cost and accuracy for each price of a wrong tick, in looks. `gaps[g]` is the
/// probability of a gap of `g + 1` ticks; the probabilities add up to 1. The policy knows how late
/// it found a change, and no second change comes between two looks. So this is a bound that no
/// policy with only its looks can pass.
pub fn renewal_frontier(gaps: &[f64], prices: &[f64]) -> Vec<Frontier> {
    prices
        .iter()
        .map(|price| Renewal::new(gaps, *price).solve())
        .collect()
}

/// The greatest share of ticks with a right value for `cost` looks per tick, if each look begins
/// anew: `wrong[k]` is the probability that the value is wrong `k + 1` ticks after a look, whatever
/// was seen before.
///
/// A wait of `w` ticks is wrong for `wrong[0] + … + wrong[w - 2]` of them on average, whatever the
/// policy's reason for it. So the looks and wrong ticks of any policy are a mean of those of fixed
/// intervals, weighted by the share of time that the policy spends in waits of each length: no
/// policy passes the concave hull of all fixed intervals.
pub fn forgetful_frontier(wrong: &[f64], cost: f64) -> f64 {
    let mut late = 0.0;
    let mut points = vec![(1.0, 1.0)];
    for (index, wrong) in wrong.iter().enumerate() {
        late += wrong;
        let ticks = (index + 2) as f64;
        points.push((1.0 / ticks, 1.0 - late / ticks));
    }
    let least = points.last().map_or(1.0, |(cost, _)| *cost);
    let cost = cost.clamp(least, 1.0);
    let mut best = 0.0_f64;
    for (low, a) in &points {
        for (high, b) in &points {
            if *low <= cost && cost <= *high {
                let share = if high > low {
                    (cost - low) / (high - low)
                } else {
                    0.0
                };
                best = best.max(a + (b - a) * share);
            }
        }
    }
    best
}

/// Relative value iteration over how late a change was found.
struct Renewal<'a> {
    gaps: &'a [f64],
    price: f64,
    /// `survivors[t]`: probability of a gap of more than `t` ticks.
    survivors: Vec<f64>,
}

/// The time from an age of the last change to the look that finds the next change.
#[derive(Clone, Default)]
struct Cycle {
    looks: f64,
    wrong: f64,
    /// Probabilities of finding the change this many ticks late.
    found: Vec<f64>,
}

impl<'a> Renewal<'a> {
    fn new(gaps: &'a [f64], price: f64) -> Self {
        let mut left: f64 = gaps.iter().sum();
        let mut survivors = vec![left];
        for gap in gaps {
            left -= gap;
            survivors.push(left.max(0.0));
        }
        Self {
            gaps,
            price,
            survivors,
        }
    }

    fn solve(&self) -> Frontier {
        // The cost of finding a change late, relative to finding it at once, by ticks.
        let mut worth = vec![0.0; self.gaps.len() + 1];
        let mut cycles = self.cycles(&worth);
        for _ in 0..VALUES {
            let values: Vec<f64> = cycles
                .iter()
                .map(|cycle| self.value(cycle, &worth))
                .collect();
            for (worth, value) in worth.iter_mut().zip(&values) {
                *worth = value - values[0];
            }
            cycles = self.cycles(&worth);
        }
        let (mut looks, mut wrong) = (0.0, 0.0);
        for (cycle, share) in cycles.iter().zip(in_the_long_run(&cycles)) {
            looks += share * cycle.looks;
            wrong += share * cycle.wrong;
        }
        let mean: f64 = (1..)
            .zip(self.gaps)
            .map(|(ticks, gap)| f64::from(ticks) * gap)
            .sum();
        Frontier {
            cost: looks / mean,
            accuracy: 1.0 - wrong / mean,
        }
    }

    fn value(&self, cycle: &Cycle, worth: &[f64]) -> f64 {
        let after: f64 = cycle
            .found
            .iter()
            .zip(worth)
            .map(|(share, worth)| share * worth)
            .sum();
        cycle.looks + self.price * cycle.wrong + after
    }

    /// The best cycle from each age, if no change has come since.
    fn cycles(&self, worth: &[f64]) -> Vec<Cycle> {
        let ages = self.gaps.len();
        let mut cycles = vec![Cycle::default(); ages];
        for age in (0..ages).rev() {
            let waits = (1..=ages - age).map(|wait| self.wait(age, wait, &cycles));
            let valued = waits.map(|cycle| (self.value(&cycle, worth), cycle));
            if let Some((_, best)) = valued.min_by(|(a, _), (b, _)| a.total_cmp(b)) {
                cycles[age] = best;
            }
        }
        cycles
    }

    fn wait(&self, age: usize, wait: usize, cycles: &[Cycle]) -> Cycle {
        let alive = self.survivors[age].max(f64::MIN_POSITIVE);
        let mut cycle = Cycle {
            looks: 1.0,
            wrong: 0.0,
            found: vec![0.0; self.gaps.len()],
        };
        for at in 1..=wait {
            let probability = self.gaps[age + at - 1] / alive;
            cycle.wrong += probability * (wait - at) as f64;
            cycle.found[wait - at] += probability;
        }
        let left = self.survivors[age + wait] / alive;
        if left > NOTHING
            && let Some(next) = cycles.get(age + wait)
        {
            cycle.looks += left * next.looks;
            cycle.wrong += left * next.wrong;
            for (found, later) in cycle.found.iter_mut().zip(&next.found) {
                *found += left * later;
            }
        }
        cycle
    }
}

/// The share of cycles by how late the cycle before ended, in the long run.
fn in_the_long_run(cycles: &[Cycle]) -> Vec<f64> {
    let mut share = vec![0.0; cycles.len()];
    share[0] = 1.0;
    for _ in 0..VALUES * 4 {
        let mut next = vec![0.0; cycles.len()];
        for (cycle, share) in cycles.iter().zip(&share) {
            for (next, found) in next.iter_mut().zip(&cycle.found) {
                *next += share * found;
            }
        }
        let sum: f64 = next.iter().sum();
        share = next
            .into_iter()
            .map(|share| share / sum.max(NOTHING))
            .collect();
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_is_known_needs_one_look() {
        let point = renewal_frontier(&[0.0, 0.0, 0.0, 0.0, 1.0], &[10.0])[0];
        assert!(
            (point.cost - 0.2).abs() < 1e-9 && (point.accuracy - 1.0).abs() < 1e-9,
            "{point:?}"
        );
    }

    #[test]
    fn between_fixed_intervals_both_are_used() {
        // The value is wrong two ticks after a look.
        let wrong = [0.0, 1.0, 1.0];
        assert_eq!(forgetful_frontier(&wrong, 1.0), 1.0);
        assert_eq!(forgetful_frontier(&wrong, 0.5), 1.0);
        assert_eq!(forgetful_frontier(&wrong, 0.25), 0.5);
        assert!((forgetful_frontier(&wrong, 0.375) - 0.75).abs() < 1e-12);
        assert_eq!(forgetful_frontier(&wrong, 0.0), 0.5);
        assert_eq!(forgetful_frontier(&[], 0.3), 1.0);
    }

    #[test]
    fn what_has_no_memory_needs_a_look_each_tick() {
        // A geometric distribution with mean 4, cut where its probabilities are negligible.
        let gaps: Vec<f64> = (0..120).map(|tick| 0.25 * 0.75_f64.powi(tick)).collect();
        let points = renewal_frontier(&gaps, &[100.0, 0.1]);
        assert!(
            points[0].cost > 0.99 && points[0].accuracy > 0.99,
            "{points:?}"
        );
        assert!(points[1].cost < 0.35, "{points:?}");
    }
}
