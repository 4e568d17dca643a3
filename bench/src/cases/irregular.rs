//! `poll.irregular`: adaptive polling on the paper's irregular HACC workload (apollo.md 4.3.1):
//! 19 to 38 KB written every 5 to 20 s, capacity seen at 1 s for 30 minutes.
//!
//! Cost is the share of the 1 s polls that were made; accuracy the share of seconds at which the
//! last polled value was the true one.

use barograph_model::NS_PER_S;
use barograph_source::policy::{Aimd, IntervalPolicy, PolicyState};

use crate::report::{Fault, Report};

const SECONDS: usize = 1800;
const TRACES: u64 = 20;

/// Fixed and adaptive policies, averaged over seeded traces.
pub fn run(report: &mut Report) -> Result<(), Fault> {
    let fixed = |s: i64| IntervalPolicy::Fixed {
        interval_ns: s * NS_PER_S,
    };
    let aimd = |threshold: f64| Aimd {
        start_ns: NS_PER_S,
        min_ns: NS_PER_S,
        max_ns: 25 * NS_PER_S,
        add_ns: NS_PER_S,
        multiply: 0.75,
        threshold,
    };
    let policies = [
        ("fixed 2 s", fixed(2)),
        ("fixed 5 s", fixed(5)),
        (
            "AIMD simple, threshold 0.1",
            IntervalPolicy::AimdSimple(aimd(0.1)),
        ),
        (
            "AIMD complex, window 10, threshold 0.1",
            IntervalPolicy::AimdComplex(aimd(0.1)),
        ),
        (
            "AIMD complex, window 10, threshold 1.1",
            IntervalPolicy::AimdComplex(aimd(1.1)),
        ),
    ];
    for (name, policy) in policies {
        let (cost, accuracy) = mean(|seed| replay(&policy, &irregular(seed)));
        report.row(
            "poll.irregular",
            &format!("{name}: cost"),
            cost,
            "share",
            &[],
        );
        let equal = [("fixed at equal cost", fixed_at(cost, fixed))];
        report.row(
            "poll.irregular",
            &format!("{name}: accuracy"),
            accuracy,
            "share",
            &equal,
        );
    }
    Ok(())
}

/// Accuracy of fixed polling at this cost, between the two whole seconds around it.
fn fixed_at(cost: f64, fixed: impl Fn(i64) -> IntervalPolicy) -> f64 {
    let accuracy = |s: i64| mean(|seed| replay(&fixed(s), &irregular(seed)));
    let longer = (1.0 / cost).ceil().max(2.0) as i64;
    let ((c1, a1), (c0, a0)) = (accuracy(longer - 1), accuracy(longer));
    a0 + (a1 - a0) * (cost - c0) / (c1 - c0)
}

fn mean(run: impl Fn(u64) -> (f64, f64)) -> (f64, f64) {
    let (cost, accuracy) = (1..=TRACES)
        .map(run)
        .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    (cost / TRACES as f64, accuracy / TRACES as f64)
}

/// Capacity at each second.
fn irregular(seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut random = move |from: u64, to: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        from + (state >> 33) % (to - from + 1)
    };
    let mut capacity = 250e9;
    let mut next = random(5, 20);
    (0..SECONDS as u64)
        .map(|second| {
            if second == next {
                capacity -= random(19_000, 38_000) as f64;
                next = second + random(5, 20);
            }
            capacity
        })
        .collect()
}

fn replay(policy: &IntervalPolicy, trace: &[f64]) -> (f64, f64) {
    let mut state: PolicyState = policy.start();
    let (mut due_ns, mut polls, mut right, mut held) = (0, 0u32, 0u32, f64::NAN);
    for (second, &truth) in trace.iter().enumerate() {
        let now_ns = second as i64 * NS_PER_S;
        if now_ns >= due_ns {
            polls += 1;
            held = truth;
            state = policy.next(state, truth);
            due_ns = now_ns + state.interval_ns;
        }
        right += u32::from(held == truth);
    }
    (
        f64::from(polls) / trace.len() as f64,
        f64::from(right) / trace.len() as f64,
    )
}
