//! Tables of outcomes, compared with fixed intervals of the same cost.

use std::fmt::Write;

use barograph_forecast::interval::IntervalPolicy;

use crate::replay::{HoldingPolicy, Outcome, ReplayedStream, replay};

/// The intervals of the fixed frontier, in ticks.
pub const FIXED_TICKS: [i64; 8] = [1, 2, 3, 5, 10, 20, 40, 60];

/// The outcomes of fixed intervals, by interval in ticks.
pub fn frontier(stream: &ReplayedStream) -> Vec<(i64, Outcome)> {
    let fixed = |ticks: i64| {
        let policy = IntervalPolicy::Fixed {
            interval_ns: ticks * stream.interval_ns,
        };
        (ticks, replay(stream, &mut HoldingPolicy::new(policy)))
    };
    FIXED_TICKS.map(fixed).into()
}

/// The lead of a policy over fixed intervals of the same cost, as a share of ticks that `of`
/// selects; negative if it is behind. A cost between two fixed intervals is reached by using both
/// in turn. A policy that costs less than the longest interval is compared with that.
pub fn is_ahead(
    outcome: &Outcome,
    frontier: &[(i64, Outcome)],
    of: impl Fn(&Outcome) -> f64,
) -> f64 {
    let at = |cost: f64| {
        let cost = frontier
            .iter()
            .map(|(_, fixed)| fixed.cost)
            .fold(f64::INFINITY, f64::min)
            .max(cost);
        let mut best = 0.0_f64;
        for (_, a) in frontier {
            for (_, b) in frontier {
                if a.cost <= cost && cost <= b.cost {
                    let share = if b.cost > a.cost {
                        (cost - a.cost) / (b.cost - a.cost)
                    } else {
                        0.0
                    };
                    best = best.max(of(a) + (of(b) - of(a)) * share);
                }
            }
        }
        best
    };
    of(outcome) - at(outcome.cost)
}

/// The outcomes on one trace.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Table {
    /// Name of the trace.
    pub trace: String,
    /// One row for each policy.
    pub rows: Vec<Row>,
}

/// The outcome of one policy on one trace.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name of the policy.
    pub policy: String,
    /// Its cost and accuracy.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Lead over fixed intervals of the same cost, as a share of ticks; none for fixed intervals.
    pub ahead: Option<f64>,
    /// Time for each tick, in ns, by the caller's clock.
    pub ns_per_tick: Option<f64>,
}

impl Table {
    /// The table as text for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:44} {:>6} {:>6} {:>6} {:>11} {:>7} {:>7} {:>7} {:>6}\n",
            self.trace, "cost", "exact", "right", "error", "/held", "covers", "ahead", "ns"
        );
        for row in &self.rows {
            let some = |value: Option<f64>, digits: usize| {
                value.map_or(String::new(), |value| format!("{value:.digits$}"))
            };
            let outcome = &row.outcome;
            let _ = writeln!(
                text,
                "  {:42} {:6.3} {:6.3} {:6.3} {:11.4} {:7.3} {:>7} {:>7} {:>6}",
                row.policy,
                outcome.cost,
                outcome.exact,
                outcome.right,
                outcome.mean_error,
                outcome.relative_error,
                some(outcome.coverage, 3),
                row.ahead
                    .map_or(String::new(), |ahead| format!("{ahead:+.3}")),
                some(row.ns_per_tick, 0),
            );
        }
        text
    }
}
