//! The advisers on simulated tiers, shaped as the three applications of apollo.md 4.4.2, beside
//! policies that know less.

mod reads;
mod writes;

use barograph_placement::BaselinePolicy;

use crate::parallel;
use crate::storage::{POLICIES, Policy};
use crate::table::{count, list, median, paragraph, range, spread};
use crate::targets::{Target, Wanted};

/// Processes of each application, and its steps.
pub(crate) const PROCESSES: usize = 2_560;
pub(crate) const STEPS: usize = 16;

/// Shares of the I/O time that queries of state may cost.
const QUERY_SHARES: &[f64] = &[0.01, 0.07];
/// The least difference that counts as a gain or a loss, in percent.
const GAIN_PERCENT_MIN: f64 = 1.0;

/// What a policy came to in one run of an application.
#[derive(Default)]
pub(crate) struct CaseRun {
    /// The sum of the I/O times of the steps, in seconds.
    io_s: f64,
    /// Requests of processes, and those that the file system served.
    requests: usize,
    at_pfs: usize,
    /// Writes that waited for room, or segments that were dropped before anybody read them.
    stalls: usize,
    /// Steps whose last request was one of the file system.
    ends_at_pfs: usize,
}

impl CaseRun {
    /// Counts a step of which this was the last request.
    fn step(&mut self, start_s: f64, last: LastRequest) {
        self.io_s += last.end_s - start_s;
        self.ends_at_pfs += usize::from(last.is_pfs);
    }
}

/// The request of a step that ends last.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastRequest {
    end_s: f64,
    is_pfs: bool,
}

impl LastRequest {
    fn served(&mut self, end_s: f64, is_pfs: bool) {
        if end_s > self.end_s {
            *self = Self { end_s, is_pfs };
        }
    }
}

/// An application.
struct Case {
    name: &'static str,
    what: &'static str,
    /// What its stalls are.
    stalls: &'static str,
    /// Percent that Apollo's paper gains over the round robin.
    wanted: f64,
    run: fn(Policy, u64) -> CaseRun,
}

const CASES: &[Case] = &[
    Case {
        name: "VPIC-IO",
        what: "each process writes 32 MB at each step",
        stalls: "writes that waited for room",
        wanted: 18.0,
        run: writes::vpic,
    },
    Case {
        name: "Montage",
        what: "each process reads 10 MB at each step, prefetched and replicated",
        stalls: "copies dropped unread",
        wanted: 16.0,
        run: reads::montage,
    },
    Case {
        name: "BD-CATS",
        what: "each process reads 32 MB at each step, prefetched",
        stalls: "copies dropped unread",
        wanted: 12.0,
        run: reads::bd_cats,
    },
];

/// The runs of an application: of each policy, one for each seed.
struct CaseRuns {
    case: &'static Case,
    runs: Vec<(Policy, Vec<CaseRun>)>,
}

impl CaseRuns {
    fn of(case: &'static Case, seeds: u64) -> Self {
        let runs = parallel::each(POLICIES, |policy| {
            let runs = (0..seeds).map(|seed| (case.run)(*policy, seed));
            (*policy, runs.collect())
        });
        Self { case, runs }
    }

    fn times(&self, policy: BaselinePolicy) -> Vec<f64> {
        let mut runs = self.runs.iter();
        let runs = runs.find(|it| it.0 == Policy::Baseline(policy));
        runs.map_or(Vec::new(), |it| times(&it.1))
    }

    /// Percent less I/O time of ours than of a baseline, for each seed, by the age of the state.
    fn gains(&self, over: BaselinePolicy) -> Vec<(Policy, Vec<f64>)> {
        let theirs = self.times(over);
        let ours = self.runs.iter().filter(|it| it.0.is_ours());
        let gains = ours.map(|(policy, runs)| {
            let pairs = runs.iter().zip(&theirs);
            let gains = pairs.map(|(run, theirs)| 100.0 * (1.0 - run.io_s / theirs));
            (*policy, gains.collect())
        });
        gains.collect()
    }
}

fn times(runs: &[CaseRun]) -> Vec<f64> {
    runs.iter().map(|it| it.io_s).collect()
}

/// Prints the tables; the targets that they have figures for.
pub(crate) fn print(seeds: u64) -> Vec<Target> {
    print_model(seeds);
    let cases = CASES.iter().map(|case| CaseRuns::of(case, seeds));
    let cases: Vec<CaseRuns> = cases.collect();
    for case in &cases {
        print_times(case);
        print_reasons(case);
    }
    print_gains(&cases);
    let targets = cases.iter().flat_map(|of| {
        let gains = of.gains(BaselinePolicy::RoundRobinBlind);
        gains.into_iter().map(|(policy, gains)| Target {
            name: format!(
                "{}, less I/O time than blind round robin, {}",
                of.case.name,
                policy.name()
            ),
            wanted: Wanted::AtLeast(of.case.wanted),
            reached: gains,
            digits: 1,
            unit: " %",
        })
    });
    targets.collect()
}

fn print_model(seeds: u64) {
    println!("## Advisers on tiers, simulated\n");
    paragraph(&format!(
        "{} processes compute and do I/O in {STEPS} steps. A step begins when the slowest process of the step before \
        has ended and all have computed; the I/O time is the sum over the steps, each from its begin to the end of its \
        last request. {seeds} seeds: median, and least to most. With one seed all policies have the same load of others.",
        count(PROCESSES)
    ));
    list(&[
        "**Storage**: 16 NVMe devices of 6 GB (1.2 GB/s of writes, 2.5 of reads), 4 burst buffers of 250 GB (1.5, 2.0) \
        and 8 servers of the file system (0.5, 0.6). Each serves one request after the other."
            .to_owned(),
        "**Others** take 30 to 80 % of burst buffers and file system, each for 20 s of every minute in the mean. They \
        never use the NVMe devices."
            .to_owned(),
        "**Buffers** are emptied to the file system all the time, by one transfer of 128 MB of each at once. A write to \
        a buffer that is full waits until there is room."
            .to_owned(),
        "**Policies**: *pfs only* uses no buffer. *Round robin, blind* is that of Apollo's paper: all buffers in turn, \
        full or not. *Round robin, capacity-aware* is that of Hermes as it is now: all buffers that have room. *Hashing* \
        is rendezvous hashing by bandwidth, full or not. *Ours* are the advisers of the crate. What \
        the capacity-aware round robin sees is always fresh; ours reads the state every 1 or 10 s and adds what it \
        has placed since."
            .to_owned(),
        "**Prefetch** predicts in the same way for all policies, two steps ahead. They differ in the caches, in what \
        these drop, and in what is not fetched. Blind policies drop the oldest segment; the capacity-aware one drops \
        the oldest that was read, and none that was not. A reader takes any copy of those that are there."
            .to_owned(),
        "**Replicas** of the hottest segments: one for the baselines; ours as many as the adviser says.".to_owned(),
        "**Limits**: links have no bound, all processes ask one adviser, and its queries cost nothing but in the \
        columns *queries cost*, which add that share to the time of ours. Each target has one queue, so that \
        parallelism within a device does not exist; applications are patterns of requests, not the programs."
            .to_owned(),
    ]);
}

fn print_times(of: &CaseRuns) {
    println!("### {}: {}\n", of.case.name, of.case.what);
    println!(
        "| policy | I/O time, s | by pfs only | by blind round robin | by capacity-aware round robin | queries cost 1 % | queries cost 7 % |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    for (policy, runs) in &of.runs {
        let row = times(runs);
        let ratio = |to: BaselinePolicy| {
            let ratios = row.iter().zip(of.times(to)).map(|(ours, it)| ours / it);
            median(&ratios.collect::<Vec<_>>())
        };
        let with_queries = QUERY_SHARES.iter().map(|share| match policy.is_ours() {
            true => format!(" {:.1} |", median(&row) * (1.0 + share)),
            false => " |".to_owned(),
        });
        println!(
            "| {} | {} | {:.2} | {:.2} | {:.2} |{}",
            policy.name(),
            spread(&row, 1),
            ratio(BaselinePolicy::PfsOnly),
            ratio(BaselinePolicy::RoundRobinBlind),
            ratio(BaselinePolicy::RoundRobinAware),
            with_queries.collect::<String>()
        );
    }
    println!();
}

/// What the times come from: who served the requests, and who held up each step.
fn print_reasons(of: &CaseRuns) {
    println!(
        "| policy | requests served by the file system | steps, of {STEPS}, whose last request it served | {} |\n| --- | ---: | ---: | ---: |",
        of.case.stalls
    );
    for (policy, runs) in &of.runs {
        let cells = |of: fn(&CaseRun) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
        let at_pfs = cells(|it| 100.0 * it.at_pfs as f64 / it.requests as f64);
        println!(
            "| {} | {} % | {} | {} |",
            policy.name(),
            spread(&at_pfs, 1),
            spread(&cells(|it| it.ends_at_pfs as f64), 0),
            spread(&cells(|it| it.stalls as f64), 0)
        );
    }
    println!();
}

/// Where the advisers gain beside the policy that knows free bytes, and where they do not.
fn print_gains(cases: &[CaseRuns]) {
    println!("### Where the advisers gain, and where they do not\n");
    paragraph(&format!(
        "Less I/O time than capacity-aware round robin, which knows free bytes and nothing of queues and bandwidths. It \
        is a gain if ours takes at least {GAIN_PERCENT_MIN} % less with each seed, a loss if it takes so much more with \
        each, and nothing otherwise."
    ));
    println!(
        "| application | state of ours | less time, median | range | seeds with a gain | |\n| --- | --- | ---: | ---: | ---: | --- |"
    );
    let (mut gain, mut others) = (Vec::new(), Vec::new());
    for of in cases {
        for (policy, gains) in of.gains(BaselinePolicy::RoundRobinAware) {
            let verdict = verdict(&gains);
            let gained = gains.iter().filter(|it| **it >= GAIN_PERCENT_MIN).count();
            println!(
                "| {} | {} | {:.1} % | {} % | {gained} of {} | {verdict} |",
                of.case.name,
                policy.name(),
                median(&gains),
                range(&gains, 1),
                gains.len()
            );
            let name = format!("{} ({})", of.case.name, policy.name());
            match verdict {
                "gain" => gain.push(name),
                _ => others.push(name),
            }
        }
    }
    println!();
    let named = |names: &[String]| match names.is_empty() {
        true => "none".to_owned(),
        false => names.join("; "),
    };
    paragraph(&format!(
        "Ours gains in: {}. It gains nothing, or loses, in: {}.",
        named(&gain),
        named(&others)
    ));
}

fn verdict(gains: &[f64]) -> &'static str {
    if gains.iter().all(|it| *it >= GAIN_PERCENT_MIN) {
        "gain"
    } else if gains.iter().all(|it| *it <= -GAIN_PERCENT_MIN) {
        "**loss**"
    } else {
        "**nothing**"
    }
}
