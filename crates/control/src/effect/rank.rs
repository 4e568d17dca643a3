//! The rank-sum test (Wilcoxon, Mann and Whitney), exact and with ties.

/// Whether the values of one sample are larger than those of another: the probability of ranks that
/// are in sum as high as these, or higher, if both come from one distribution. 1 for an empty
/// sample.
pub(super) fn larger_by_chance(these: &[f64], others: &[f64]) -> f64 {
    if these.is_empty() || others.is_empty() {
        return 1.0;
    }
    let all: Vec<f64> = these.iter().chain(others).copied().collect();
    let ranks: Vec<usize> = all.iter().map(|it| doubled_rank(*it, &all)).collect();
    let seen: usize = ranks[..these.len()].iter().sum();
    // The number of ways to take so many of the ranks with a sum.
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0_f64; most + 1]; these.len() + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for taken in (1..=these.len()).rev() {
            for sum in (rank..=most).rev() {
                ways[taken][sum] += ways[taken - 1][sum - rank];
            }
        }
    }
    let ways = &ways[these.len()];
    let as_high: f64 = ways[seen..].iter().sum();
    as_high / ways.iter().sum::<f64>()
}

/// Twice the rank of a value, which is a whole number also where values are equal.
fn doubled_rank(value: f64, all: &[f64]) -> usize {
    let smaller = all.iter().filter(|it| **it < value).count();
    let equal = all.iter().filter(|it| it.total_cmp(&value).is_eq()).count();
    2 * smaller + equal + 1
}

/// The value in the middle; NaN of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_is_that_of_all_orders() {
        for (these, others, expect) in [
            // The highest of the C(5, 2) = 10 choices.
            (&[4.0, 5.0][..], &[1.0, 2.0, 3.0][..], 0.1),
            (&[3.0, 5.0], &[1.0, 2.0, 4.0], 0.2),
            (&[1.0, 2.0], &[3.0, 4.0, 5.0], 1.0),
            // All are equal: each choice has the same sum.
            (&[7.0, 7.0], &[7.0, 7.0, 7.0], 1.0),
            // Of six choices of two, the one with both threes, and the four with one of them.
            (&[3.0, 1.0], &[1.0, 3.0], 5.0 / 6.0),
            (&[1.0], &[], 1.0),
        ] {
            let found = larger_by_chance(these, others);
            assert!(
                (found - expect).abs() < 1e-12,
                "{these:?} {others:?}: {found}"
            );
        }
    }

    #[test]
    fn equal_distributions_seem_larger_as_often_as_is_said() {
        let mut state = 7_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f64
        };
        let trials = 4_000;
        let wrong = (0..trials).filter(|_| {
            let these: Vec<f64> = (0..16).map(|_| next()).collect();
            let others: Vec<f64> = (0..4).map(|_| next()).collect();
            larger_by_chance(&these, &others) < 0.1
        });
        let share = wrong.count() as f64 / f64::from(trials);
        assert!((0.08..=0.11).contains(&share), "{share}");
    }
}
