//! The tables of the mapping arm: several servers, to which applications are mapped.

use barograph_control::{AdaptiveConfig, SchedulePolicy};
use barograph_lab::mapping::{Mapping, MappingCase, MappingQuality, simulate_mapping};

const INTRODUCTION: &str = "
## Several servers: the mapping

Carretero, Jeannot, Pallez, Singh and Vidal studied policies and mappings for CLARISSE in 2020, and found that naive policies
such as FIFO do relatively well, and that what reduces congestion is mostly the mapping. This is our test of that
(`mapping.rs` of `crates/lab`, simulated; their cases are not ours, of which only the abstract could be read).

* **8 servers** or forwarding nodes, each with a policy of its own. An application drives the bandwidth of one of them at most,
  so a phase takes as long alone under each mapping. Striped over all, phases share one pool, and the policy is asked
  again for what the ones that it chose cannot use.
* **60 applications** with periods of 10, 100 and 1,000 s. What they need spreads log-normally (0.7). Each does work of 5,000 s.
* **Mappings**: *random*, drawn once; *round robin*, by number; *balanced by need*, the greatest first to the server
  that has least, from what applications say that they need; *least loaded*, in each phase the server with the
  fewest bytes to do; *striped over all*.
* **Makespan** is the end of the last application, by the time of the longest one alone. All other columns are as above.
";

const HEAD: &str = "\
| mapping | policy | makespan | stretch, geometric | worst | I/O slowdown, geometric | worst | utilisation |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |";

const PARTS: &str = "
### What is the mapping's, and what the policy's

How much of an application's time is lost (stretch - 1, geometric), from *random* with *fcfs* to *least loaded* with
*set-10-least-left*. The mapping's share of the gain is the mean of what it gains with either policy, first or last.

| case | random, fcfs | random, set-10-least-left | least loaded, fcfs | both | the mapping's share |
| --- | ---: | ---: | ---: | ---: | ---: |";

const RESULT: &str = "
So the result of 2020 holds here, where the server can be chosen for each phase: two thirds of the gain are the mapping's. *fcfs* on
the least loaded server loses less than the best policy on servers that were drawn, and there is little left for a policy to
gain. It does not hold for a mapping that is fixed: balanced by need, *fcfs* keeps most of its loss, and the policy gains more
than three times as much as that mapping at load 0.8. With nothing to choose (one volume, the tables above) the policy is all
there is. Where phases at a time cost each other, striping over all servers is worse than a drawn server, since each server
serves all applications at a time.";

/// The policy of the second column of the comparison.
const BEST: SchedulePolicy = SchedulePolicy::Set10 {
    most: 4,
    by_left: true,
};

/// Prints the tables.
pub(crate) fn print(seeds: u64) {
    println!("{INTRODUCTION}");
    let cases = [
        ("Load 0.5", MappingCase::mixed(0.5, 0.0)),
        ("Load 0.8", MappingCase::mixed(0.8, 0.0)),
        (
            "Load 0.8, phases at a time cost each other",
            MappingCase::mixed(0.8, 0.1),
        ),
        ("Load 1.2", MappingCase::mixed(1.2, 0.0)),
    ];
    let policies = [
        SchedulePolicy::Fair { most: usize::MAX },
        SchedulePolicy::Fcfs,
        SchedulePolicy::LeastLeft { ageing_s: 100.0 },
        SchedulePolicy::WorstSlowdown { turn_s: 1.0 },
        BEST,
        SchedulePolicy::Adaptive(AdaptiveConfig::default()),
    ];
    for (title, case) in &cases {
        println!("### {title}\n\n{seeds} seeds.\n\n{HEAD}");
        for mapping in Mapping::ALL {
            for policy in &policies {
                println!("{}", row(mapping, policy, case, seeds));
            }
        }
        println!();
    }
    println!("{}", PARTS.trim_start());
    for (title, case) in &cases {
        println!("{}", parts(title, case, seeds));
    }
    println!("{RESULT}");
}

fn all(
    mapping: Mapping,
    policy: &SchedulePolicy,
    case: &MappingCase,
    seeds: u64,
) -> Vec<MappingQuality> {
    let of = |seed| simulate_mapping(policy, mapping, case, seed);
    (0..seeds).map(of).collect()
}

fn row(mapping: Mapping, policy: &SchedulePolicy, case: &MappingCase, seeds: u64) -> String {
    let all = all(mapping, policy, case, seeds);
    let mean = |of: fn(&MappingQuality) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let most = |of: fn(&MappingQuality) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let policy = match policy {
        SchedulePolicy::Fair { .. } => "all at a time",
        policy => policy.name(),
    };
    format!(
        "| {} | {policy} | {:.3} | {:.3} | {:.2} | {:.2} | {:.1} | {:.3} |",
        mapping.name(),
        mean(|it| it.makespan),
        mean(|it| it.stretch),
        most(|it| it.stretch_worst),
        mean(|it| it.slowdown),
        most(|it| it.slowdown_worst),
        mean(|it| it.utilisation),
    )
}

fn parts(title: &str, case: &MappingCase, seeds: u64) -> String {
    let lost = |mapping, policy: &SchedulePolicy| {
        let all = all(mapping, policy, case, seeds);
        all.iter().map(|it| it.stretch - 1.0).sum::<f64>() / all.len() as f64
    };
    let (random, chosen) = (Mapping::Random, Mapping::LeastLoaded);
    let neither = lost(random, &SchedulePolicy::Fcfs);
    let policy = lost(random, &BEST);
    let mapping = lost(chosen, &SchedulePolicy::Fcfs);
    let both = lost(chosen, &BEST);
    let of_mapping = ((neither - mapping) + (policy - both)) / 2.0 / (neither - both);
    format!(
        "| {title} | {neither:.3} | {policy:.3} | {mapping:.3} | {both:.3} | {:.0} % |",
        of_mapping * 100.0
    )
}
