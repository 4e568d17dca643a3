//! Outcomes beside each other, and beside what fixed intervals of the same cost would have come to.

use std::fmt::Write;

use barograph_forecast::interval::IntervalPolicy;

use crate::replay::{Held, Outcome, Stream, replay};

/// The intervals of the fixed frontier, in ticks.
pub const FIXED_TICKS: [i64; 8] = [1, 2, 3, 5, 10, 20, 40, 60];

/// What comes of looking every so many ticks.
pub fn frontier(stream: &Stream) -> Vec<(i64, Outcome)> {
    let fixed = |ticks: i64| {
        let policy = IntervalPolicy::Fixed {
            interval_ns: ticks * stream.interval_ns,
        };
        (ticks, replay(stream, &mut Held::new(policy)))
    };
    FIXED_TICKS.map(fixed).into()
}

/// Whether a policy is right more often than fixed intervals of the same cost, or as often where those are always
/// right: by how much, as a share of ticks. Between two fixed intervals both are used in turn; who costs less
/// than the longest is held against that.
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

/// Rows of one trace.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Table {
    /// What was replayed.
    pub trace: String,
    /// By policy.
    pub rows: Vec<Row>,
}

/// One policy on one trace.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Who looked.
    pub policy: String,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// By how much it is right more often than fixed intervals of the same cost; of those themselves nothing.
    pub ahead: Option<f64>,
    /// Of the caller's watch, for each tick.
    pub ns_per_tick: Option<f64>,
}

impl Table {
    /// As text, for people.
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
