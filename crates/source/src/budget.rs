//! The budget for reading the sources whose streams are under policies, and how it is shared among
//! them.

use barograph_forecast::interval::{
    INTERVAL_NS_MAX, INTERVAL_NS_MIN, LookBudget, LookRequest, LookShare,
};
use barograph_model::NS_PER_S;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SourceError;

/// Time between two sharings of the budget, in ns.
pub(crate) const PERIOD_NS: i64 = 10 * NS_PER_S;

/// Bounds of reading the sources whose streams are under policies (`[[policy]]`); sources without a
/// policy are read as configured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Share of one core that reading these sources may take in total, more than 0 to 1. If the
    /// policies want more, streams whose forecasts are seldom wrong, or that cost much to read, are
    /// read less often.
    pub cpu_share: f64,
    /// Most reads of one source per second, more than 0 to 1000.
    pub polls_per_s: f64,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            cpu_share: 0.01,
            polls_per_s: 10.0,
        }
    }
}

impl BudgetConfig {
    /// Refuses values that are out of range.
    pub fn check(&self) -> Result<(), SourceError> {
        for (key, value, max) in [
            ("cpu_share", self.cpu_share, 1.0),
            ("polls_per_s", self.polls_per_s, 1000.0),
        ] {
            if !(value > 0.0 && value <= max) {
                return Err(SourceError::Budget {
                    key,
                    reason: format!("is {value}: it must be more than 0, at most {max}"),
                });
            }
        }
        Ok(())
    }

    /// The shortest interval between reads of one source, in ns.
    pub(crate) fn shortest_ns(&self) -> i64 {
        let shortest_s = 1.0 / self.polls_per_s;
        ((shortest_s * NS_PER_S as f64) as i64).clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX)
    }
}

/// Shares the budget periodically. Its buffers are kept, so that sharing allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Purse {
    pub(crate) config: BudgetConfig,
    next_ns: i64,
    wants: Vec<LookRequest>,
    shares: Vec<LookShare>,
}

impl Purse {
    pub(crate) fn new(config: BudgetConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Whether it is time to share the budget again.
    pub(crate) fn is_due(&self, now_ns: i64) -> bool {
        now_ns >= self.next_ns
    }

    /// The share of each of these sources: the shortest interval between its reads. `None` means
    /// that each may be read as often as it wants, since all together are within the budget.
    pub(crate) fn share(
        &mut self,
        now_ns: i64,
        wants: impl Iterator<Item = LookRequest>,
    ) -> Option<&[LookShare]> {
        self.next_ns = now_ns.saturating_add(PERIOD_NS);
        self.wants.clear();
        self.wants.extend(wants);
        let spent = |want: &LookRequest| want.cost * NS_PER_S as f64 / want.min_ns.max(1) as f64;
        if self.wants.iter().map(spent).sum::<f64>() <= self.config.cpu_share {
            return None;
        }
        let budget = LookBudget {
            cost_per_s_max: self.config.cpu_share,
        };
        budget.share(&self.wants, &mut self.shares);
        Some(&self.shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused() {
        let check = |cpu_share, polls_per_s, expect: &str| {
            let config = BudgetConfig {
                cpu_share,
                polls_per_s,
            };
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        BudgetConfig::default().check().unwrap();
        check(0.0, 1.0, "budget.cpu_share: is 0: it must be more than 0");
        check(f64::NAN, 1.0, "budget.cpu_share");
        check(1.5, 1.0, "at most 1");
        check(0.1, 0.0, "budget.polls_per_s");
        check(0.1, 1e4, "at most 1000");
    }

    #[test]
    fn who_wants_little_enough_gets_it() {
        let want = |cost| LookRequest {
            wrong_per_s: 1.0,
            weight: 1.0,
            cost,
            min_ns: NS_PER_S,
            max_ns: 100 * NS_PER_S,
        };
        let mut purse = Purse::new(BudgetConfig::default());
        assert!(purse.is_due(0));
        assert_eq!(purse.share(0, [want(0.004), want(0.005)].into_iter()), None);
        assert!(!purse.is_due(PERIOD_NS - 1) && purse.is_due(PERIOD_NS));
        let shares = purse.share(0, [want(0.01), want(0.03)].into_iter());
        let spent: f64 = shares.unwrap().iter().map(|share| share.cost_per_s).sum();
        assert!((spent - 0.01).abs() < 1e-4, "{spent}");
    }
}
