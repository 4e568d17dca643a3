//! The advisers on simulated tiers, shaped as the three applications of apollo.md 4.4.2, beside
//! policies that know less.

mod reads;
mod writes;

use crate::storage::{POLICIES, Policy};
use crate::table::{median, spread};

/// Processes of each application, and its steps.
pub(crate) const PROCESSES: usize = 2_560;
pub(crate) const STEPS: usize = 16;

/// Shares of the I/O time that queries of state may cost.
const QUERY_SHARES: &[f64] = &[0.0, 0.01, 0.07];

pub(crate) fn print(seeds: u64) {
    println!("{INTRODUCTION}");
    println!(
        "{seeds} seeds: median, and least to most, of the sum of I/O times of the steps, in seconds.\n"
    );
    print_case(
        "VPIC-IO: each process writes 32 MB at each step",
        seeds,
        writes::vpic,
    );
    print_case(
        "BD-CATS: each process reads 32 MB at each step, prefetched",
        seeds,
        reads::bd_cats,
    );
    print_case(
        "Montage: each process reads 10 MB at each step, prefetched and replicated",
        seeds,
        reads::montage,
    );
    println!("{FINDINGS}");
}

fn print_case(title: &str, seeds: u64, run: fn(Policy, u64) -> f64) {
    println!(
        "### {title}\n\n| policy | I/O time, s | by pfs only | by capacity-aware round robin | queries cost 1 % | queries cost 7 % |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    );
    let times = POLICIES.iter().map(|policy| {
        (0..seeds)
            .map(|seed| run(*policy, seed))
            .collect::<Vec<f64>>()
    });
    let times: Vec<Vec<f64>> = times.collect();
    for (policy, row) in POLICIES.iter().zip(&times) {
        let ratio = |to: &[f64]| {
            let ratios = row.iter().zip(to).map(|(ours, theirs)| ours / theirs);
            median(&ratios.collect::<Vec<_>>())
        };
        let with_queries = QUERY_SHARES[1..]
            .iter()
            .map(|share| match policy.is_ours() {
                true => format!(" {:.1} |", median(row) * (1.0 + share)),
                false => " |".to_owned(),
            });
        println!(
            "| {} | {} | {:.2} | {:.2} |{}",
            policy.name(),
            spread(row, 1),
            ratio(&times[0]),
            ratio(&times[2]),
            with_queries.collect::<String>()
        );
    }
    println!();
}

const FINDINGS: &str = "\
What is won beside capacity-aware round robin is won where targets differ while blocks are written (VPIC-IO), with state of a
second ago, and it is gone with state of ten seconds ago: a busy device is another one by then. In BD-CATS there is no gain: a
block is read a step after its cache was chosen, when others load other caches, and equal numbers in all caches are as good. In
Montage all policies that prefetch take the same time: no cache is full, and what nobody predicts is read from the file system.
The gains of apollo.md 4.4.2 are beside the blind round robin.";

const INTRODUCTION: &str = "\
## Advisers on tiers, simulated

2,560 processes compute and do I/O in 16 steps, which all begin when the slowest of the step before has ended and has computed.
Storage is simulated: 16 NVMe devices of 6 GB (1.2 GB/s of writes, 2.5 of reads), 4 burst buffers of 250 GB (1.5, 2.0) and 8
servers of the file system (0.5, 0.6). Each serves one request after the other. Others take 30 to 80 % of burst buffers and file
system, each for 20 s every minute in the mean. Buffers are emptied to the file system all the time, with one transfer of 128 MB
of each at once. Links between nodes have no bound, and all processes ask one adviser. None of it is measured.

* **Capacity-blind** is the round robin of Apollo's paper, **capacity-aware** that of Hermes as it is now; it sees free bytes at
  once, ours only when state is read.
* Writes to a buffer that is full wait until there is room.
* Prefetch predicts the same segments for all policies, two steps ahead; they differ in caches, in what these drop and in what is
  not fetched. Segments are dropped oldest first by the blind policies; the capacity-aware one drops what was read and never what
  was not.";
