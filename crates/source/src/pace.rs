//! The interval of one source whose streams are under policies: the shortest that the policies
//! want, within what the source can bear and what the budget allows.

use barograph_forecast::interval::{INTERVAL_NS_MAX, INTERVAL_NS_MIN, LookRequest};
use barograph_model::{IntervalRequest, NS_PER_S};

use crate::budget::BudgetConfig;
use crate::config::IntervalCaps;
use crate::report::PaceReport;

/// The wishes of the policies for all streams of one source, combined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wants {
    /// Time from the last read to the next, in ns: the shortest that any stream wants.
    pub(crate) wait_ns: i64,
    /// Wrong forecasts of the streams per second, summed with their weights.
    wrong_per_s: f64,
    min_ns: i64,
    max_ns: i64,
}

impl Wants {
    pub(crate) fn of(wanted: &IntervalRequest) -> Self {
        let min_ns = wanted.min_ns.clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let max_ns = wanted.max_ns.clamp(min_ns, INTERVAL_NS_MAX);
        let wrong = wanted.wrong_per_s * wanted.weight;
        Self {
            wait_ns: wanted.wait_ns.clamp(min_ns, max_ns),
            wrong_per_s: if wrong > 0.0 { wrong } else { 0.0 },
            min_ns,
            max_ns,
        }
    }

    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            wait_ns: self.wait_ns.min(other.wait_ns),
            wrong_per_s: self.wrong_per_s + other.wrong_per_s,
            min_ns: self.min_ns.min(other.min_ns),
            max_ns: self.max_ns.min(other.max_ns),
        }
    }
}

/// The wishes for a source, and the interval that results from them.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) caps: IntervalCaps,
    /// `None` if no policy decides about any of its streams.
    pub(crate) wants: Option<Wants>,
    /// Shortest interval that the budget allows, in ns.
    floor_ns: i64,
    /// CPU time that its reads take, in seconds of a core per second.
    spends: f64,
    /// Of the period since the budget was last shared: CPU time of the reads, their number, and the
    /// sum of the times that were wanted between them.
    cost_ns: i64,
    reads: i64,
    waits_ns: i64,
    since_ns: i64,
}

impl Pace {
    pub(crate) fn new(caps: IntervalCaps) -> Self {
        Self {
            caps,
            wants: None,
            floor_ns: BudgetConfig::default().shortest_ns(),
            spends: 0.0,
            cost_ns: 0,
            reads: 0,
            waits_ns: 0,
            since_ns: 0,
        }
    }

    /// The interval between reads at present, in ns. `None` if no policy decides about it.
    pub(crate) fn interval_ns(&self) -> Option<i64> {
        let wants = self.wants?;
        let longest_ns = wants.max_ns.min(self.caps.max_ns);
        Some(wants.wait_ns.min(longest_ns).max(self.shortest_ns(&wants)))
    }

    /// Counts a read that has ended.
    pub(crate) fn close(&mut self, cost_ns: i64) {
        self.cost_ns = self.cost_ns.saturating_add(cost_ns.max(0));
        self.reads += 1;
    }

    /// Sets the wishes that hold after a read.
    pub(crate) fn want(&mut self, wants: Option<Wants>) {
        self.wants = wants;
        let wait_ns = wants.map_or(0, |wants| wants.wait_ns);
        self.waits_ns = self.waits_ns.saturating_add(wait_ns);
    }

    /// The source's request to the budget, from the mean cost of its recent reads.
    pub(crate) fn ask(
        &self,
        now_ns: i64,
        polls_min_ns: i64,
        cost_ns_mean: i64,
    ) -> Option<LookRequest> {
        let wants = self.wants?;
        let least_ns = wants.min_ns.max(self.caps.min_ns).max(polls_min_ns);
        let most_ns = wants.max_ns.min(self.caps.max_ns).max(least_ns);
        let reads = self.reads.max(1);
        // The interval that was wanted, or that of the actual reads if it is shorter: sentinels and
        // pressure may have caused further reads.
        let elapsed_ns = now_ns.saturating_sub(self.since_ns).max(0) / reads;
        let usual_ns = match self.reads {
            0 => wants.wait_ns,
            reads => (self.waits_ns / reads).min(elapsed_ns),
        };
        let cost_ns = match self.reads {
            0 => cost_ns_mean,
            reads => self.cost_ns / reads,
        };
        Some(LookRequest {
            wrong_per_s: wants.wrong_per_s,
            weight: 1.0,
            cost: cost_ns as f64 / NS_PER_S as f64,
            min_ns: usual_ns.clamp(least_ns, most_ns),
            max_ns: most_ns,
        })
    }

    /// Begins a new period, in which reads are at least `floor_ns` apart.
    pub(crate) fn give(&mut self, now_ns: i64, floor_ns: i64) {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        if elapsed_ns > 0 {
            self.spends = self.cost_ns as f64 / elapsed_ns as f64;
        }
        self.floor_ns = floor_ns;
        (self.cost_ns, self.reads, self.waits_ns) = (0, 0, 0);
        self.since_ns = now_ns;
    }

    pub(crate) fn report(&self) -> Option<PaceReport> {
        let wants = self.wants?;
        Some(PaceReport {
            configured_ns: self.caps.interval_ns,
            wanted_ns: wants.wait_ns,
            shortest_ns: self.shortest_ns(&wants),
            longest_ns: wants.max_ns.min(self.caps.max_ns),
            cpu_share: self.spends,
        })
    }

    fn shortest_ns(&self, wants: &Wants) -> i64 {
        wants.min_ns.max(self.caps.min_ns).max(self.floor_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(wait_s: i64, weight: f64) -> IntervalRequest {
        IntervalRequest {
            wait_ns: wait_s * NS_PER_S,
            wrong_per_s: 0.5,
            weight,
            min_ns: NS_PER_S,
            max_ns: 60 * NS_PER_S,
        }
    }

    #[test]
    fn the_most_eager_stream_counts_between_what_source_and_budget_bear() {
        let wants = Wants::of(&wanted(30, 2.0)).and(&Wants::of(&wanted(9, 1.0)));
        assert_eq!((wants.wait_ns, wants.wrong_per_s), (9 * NS_PER_S, 1.5));
        let caps = |min_s, max_s| IntervalCaps {
            interval_ns: NS_PER_S,
            min_ns: min_s * NS_PER_S,
            max_ns: max_s * NS_PER_S,
        };
        for (wait_s, caps, floor_s, expect_s) in [
            (9, caps(1, 100), 0, 9),
            (0, caps(1, 100), 0, 1),
            (0, caps(5, 100), 0, 5),
            (90, caps(1, 100), 0, 60),
            (90, caps(1, 25), 0, 25),
            (9, caps(1, 100), 20, 20),
            (9, caps(20, 25), 0, 20),
        ] {
            let mut pace = Pace::new(caps);
            assert_eq!(pace.interval_ns(), None);
            pace.give(0, floor_s * NS_PER_S);
            pace.want(Some(Wants::of(&wanted(wait_s, 1.0))));
            let found = pace.interval_ns().unwrap() / NS_PER_S;
            assert_eq!(found, expect_s, "{wait_s} {caps:?} {floor_s}");
        }
    }

    #[test]
    fn what_is_no_number_wants_nothing_of_the_budget() {
        let mut foreign = wanted(9, f64::NAN);
        (foreign.min_ns, foreign.max_ns) = (-1, -2);
        let wants = Wants::of(&foreign);
        assert_eq!(wants.wrong_per_s, 0.0);
        assert_eq!(
            (wants.min_ns, wants.max_ns),
            (INTERVAL_NS_MIN, INTERVAL_NS_MIN)
        );
    }

    #[test]
    fn the_budget_is_asked_for_what_was_read() {
        let mut pace = Pace::new(IntervalCaps::none(NS_PER_S));
        pace.want(Some(Wants::of(&wanted(9, 1.0))));
        let ask = pace.ask(0, NS_PER_S, 7).unwrap();
        assert_eq!((ask.min_ns, ask.cost), (9 * NS_PER_S, 7e-9));
        pace.give(0, 0);
        // Reads that were caused in between: four reads in ten seconds.
        for _ in 0..4 {
            pace.close(NS_PER_S / 100);
            pace.want(Some(Wants::of(&wanted(9, 1.0))));
        }
        let ask = pace.ask(10 * NS_PER_S, NS_PER_S, 7).unwrap();
        assert_eq!((ask.min_ns, ask.cost), (10 * NS_PER_S / 4, 0.01));
        pace.give(10 * NS_PER_S, 0);
        let spends = pace.report().unwrap().cpu_share;
        assert!((spends - 0.004).abs() < 1e-9, "{spends}");
    }
}
