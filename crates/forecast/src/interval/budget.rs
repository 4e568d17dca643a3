//! A budget of looks, shared between streams where they have the most effect.
//!
//! A stream that becomes wrong `h` times a second and is looked at every `w` seconds is wrong for
//! about `h w / 2` of the time, and costs `c / w`. The least weighted sum of wrong time within a
//! budget has the same marginal gain everywhere (water filling): `w = √(μ c / (weight h))`, within
//! the bounds of each stream, with the `μ` that spends the budget.

use barograph_model::NS_PER_S;

use super::{INTERVAL_NS_MAX, INTERVAL_NS_MIN, clamp};

/// Number of halvings until μ is exact enough.
const STEPS: u32 = 100;

/// The request of one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookRequest {
    /// Wrong assumed values per second: [`LookPlan::wrong_per_s`](super::LookPlan::wrong_per_s).
    pub wrong_per_s: f64,
    /// Weight of its wrong time, relative to other streams.
    pub weight: f64,
    /// Cost of a look, in the budget's unit.
    pub cost: f64,
    /// Its shortest interval, in ns: the one that its bound requires, or that its source allows.
    pub min_ns: i64,
    /// Its longest interval, in ns, whatever the budget is.
    pub max_ns: i64,
}

/// The share of one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookShare {
    /// Interval between its looks, in ns.
    pub interval_ns: i64,
    /// Its cost, in the budget's unit per second.
    pub cost_per_s: f64,
}

/// The budget for looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookBudget {
    /// Most cost per second, in the unit of [`LookRequest::cost`]: looks, or seconds of CPU.
    pub cost_per_s_max: f64,
}

impl LookBudget {
    /// Computes one share per request, in the same order; `shares` is cleared first. If the longest
    /// intervals alone exceed the budget, they are the shares: no stream is ever given up.
    pub fn share(&self, wants: &[LookRequest], shares: &mut Vec<LookShare>) {
        let (mut low, mut high) = (1e-18_f64, 1e18_f64);
        // At the least μ all streams have their shortest interval; at the highest, their longest.
        for _ in 0..STEPS {
            let middle = (low * high).sqrt();
            let spent: f64 = wants.iter().map(|want| want.at(middle).cost_per_s).sum();
            if spent > self.cost_per_s_max {
                low = middle;
            } else {
                high = middle;
            }
        }
        shares.clear();
        shares.extend(wants.iter().map(|want| want.at(high)));
    }
}

impl LookRequest {
    fn at(&self, price: f64) -> LookShare {
        let min_ns = clamp(self.min_ns, INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let max_ns = clamp(self.max_ns, min_ns, INTERVAL_NS_MAX);
        let cost = if self.cost > 0.0 { self.cost } else { 0.0 };
        let wrong = self.weight * self.wrong_per_s;
        let interval_s = if wrong > 0.0 {
            (price * cost / wrong).sqrt()
        } else {
            f64::INFINITY
        };
        let interval_ns = clamp((interval_s * NS_PER_S as f64) as i64, min_ns, max_ns);
        LookShare {
            interval_ns,
            cost_per_s: cost * NS_PER_S as f64 / interval_ns as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn want(wrong_per_s: f64, cost: f64) -> LookRequest {
        LookRequest {
            wrong_per_s,
            weight: 1.0,
            cost,
            min_ns: NS_PER_S / 10,
            max_ns: 3600 * NS_PER_S,
        }
    }

    fn share(cost_per_s_max: f64, wants: &[LookRequest]) -> Vec<LookShare> {
        let mut shares = Vec::new();
        LookBudget { cost_per_s_max }.share(wants, &mut shares);
        shares
    }

    fn wrong(wants: &[LookRequest], shares: &[LookShare]) -> f64 {
        let each = |(want, share): (&LookRequest, &LookShare)| {
            want.weight * want.wrong_per_s * share.interval_ns as f64
        };
        wants.iter().zip(shares).map(each).sum()
    }

    #[test]
    fn what_goes_wrong_more_often_or_costs_less_is_looked_at_more_often() {
        let shares = share(1.0, &[want(1.0, 1.0), want(0.01, 1.0), want(1.0, 100.0)]);
        // The root of a hundred.
        let ratio =
            |a: usize, b: usize| shares[a].interval_ns as f64 / shares[b].interval_ns as f64;
        assert!((ratio(1, 0) - 10.0).abs() < 1e-3, "{shares:?}");
        assert!((ratio(2, 0) - 10.0).abs() < 1e-3, "{shares:?}");
        let spent: f64 = shares.iter().map(|share| share.cost_per_s).sum();
        assert!((spent - 1.0).abs() < 1e-3, "{spent}");
    }

    #[test]
    fn bounds_stand_above_the_budget() {
        let never = share(0.0, &[want(1.0, 1.0), want(f64::NAN, 1.0)]);
        assert!(
            never
                .iter()
                .all(|share| share.interval_ns == 3600 * NS_PER_S)
        );
        let free = share(f64::INFINITY, &[want(1.0, 1.0)]);
        assert_eq!(free[0].interval_ns, NS_PER_S / 10);
        assert!(share(1.0, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn spends_no_more_than_allowed_and_no_pair_gains_by_trading(
            wants in prop::collection::vec((1e-3..1e3f64, 1e-2..1e2f64), 2..8),
            budget in 0.1..10.0f64,
        ) {
            let wants: Vec<LookRequest> = wants.into_iter().map(|(wrong, cost)| want(wrong, cost)).collect();
            let shares = share(budget, &wants);
            let spent: f64 = shares.iter().map(|share| share.cost_per_s).sum();
            let least: f64 = wants.iter().map(|want| want.cost / 3600.0).sum();
            prop_assert!(spent <= budget.max(least) * 1.001);
            let best = wrong(&wants, &shares);
            for from in 0..wants.len() {
                for to in 0..wants.len() {
                    let mut other = shares.clone();
                    let moved = other[from].cost_per_s * 0.05;
                    let change = |share: &mut LookShare, want: &LookRequest, by: f64| {
                        share.cost_per_s += by;
                        share.interval_ns = (want.cost / share.cost_per_s * NS_PER_S as f64) as i64;
                        (want.min_ns..=want.max_ns).contains(&share.interval_ns)
                    };
                    let fits = from != to
                        && change(&mut other[from], &wants[from], -moved)
                        && change(&mut other[to], &wants[to], moved);
                    prop_assert!(!fits || wrong(&wants, &other) >= best * (1.0 - 1e-6));
                }
            }
        }
    }
}
