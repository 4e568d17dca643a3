//! The fluid model of a shared device: bytes are conserved, capacity is not wasted, and weight
//! helps.

use barograph_forecast::interference::{Arrival, Fluid, Load, Read, corrected};
use proptest::prelude::*;

const CAPACITY: f64 = 100.0;

fn load(weight: f64, outstanding: f64, rate: f64, bursts: &[(f64, f64)]) -> Load {
    let arrival = |(at_s, bytes): &(f64, f64)| Arrival {
        at_s: *at_s,
        bytes: *bytes,
    };
    Load {
        weight,
        outstanding,
        rate,
        bursts: bursts.iter().map(arrival).collect(),
    }
}

fn read(at_s: f64, bytes: f64, weight: f64) -> Read {
    Read {
        at_s,
        bytes,
        weight,
    }
}

#[test]
fn bandwidths_of_reads() {
    let check = |loads: &[Load], reads: &[Read], expect: &[f64]| {
        let bandwidths = Fluid::new(CAPACITY, 0.0, loads, reads).finish();
        assert_eq!(bandwidths.len(), expect.len(), "{loads:?}");
        for (bandwidth, expect) in bandwidths.iter().zip(expect) {
            assert!(
                (bandwidth - expect).abs() < 1e-3,
                "{loads:?}: {bandwidths:?}"
            );
        }
    };
    let one = [read(0.0, 100.0, 1.0)];
    let busy = |weight: f64| load(weight, 1e3, 0.0, &[]);
    let steady = |rate: f64| load(1.0, 0.0, rate, &[]);
    check(&[], &one, &[100.0]);
    check(&[busy(1.0)], &one, &[50.0]);
    check(&[busy(3.0)], &one, &[25.0]);
    // Half for 1 s, then all for half a second.
    check(&[load(1.0, 50.0, 0.0, &[])], &one, &[100.0 / 1.5]);
    // All for half a second, then half for 1 s.
    check(&[load(1.0, 0.0, 0.0, &[(0.5, 1e3)])], &one, &[100.0 / 1.5]);
    // A constant load gets what comes, and no more than its share.
    check(&[steady(20.0)], &one, &[80.0]);
    check(&[steady(70.0)], &one, &[50.0]);
    check(&[steady(20.0), busy(2.0)], &one, &[80.0 / 3.0]);
    // The second begins when the first has ended, at 2 s.
    let both = [one[0], read(1.0, 100.0, 3.0)];
    check(&[busy(1.0)], &both, &[50.0, 75.0]);
    check(&[], &[], &[]);
}

#[test]
fn bandwidths_of_other_weights_and_sizes() {
    let check = |capacity: f64, loads: &[Load], observed: f64, to: Read, expect: f64| {
        let of = read(0.0, 50.0, 100.0);
        let bandwidth = corrected(capacity, loads, observed, of, to);
        assert!(
            (bandwidth - expect).abs() < 1e-6,
            "{loads:?} {to:?}: {bandwidth}"
        );
    };
    let busy = [load(100.0, 1e9, 0.0, &[])];
    let (same, double) = (read(0.0, 50.0, 100.0), read(0.0, 50.0, 200.0));
    // Tango, IV-D: of 200 MB/s, 100 become 133 if the weight is doubled; whether the other group
    // is known or not.
    check(200.0, &[], 100.0, double, 400.0 / 3.0);
    check(200.0, &busy, 100.0, double, 400.0 / 3.0);
    check(200.0, &busy, 70.0, same, 70.0);
    // Nobody else, nothing observed, no device.
    check(200.0, &[], 200.0, read(0.0, 9.0, 700.0), 200.0);
    check(200.0, &[], 0.0, double, 0.0);
    check(0.0, &busy, 100.0, double, 0.0);
    // A longer read outlasts the burst: half of the capacity until 2 s, all after that.
    let burst = [load(1.0, 100.0, 0.0, &[])];
    let (short, long) = (read(0.0, 50.0, 1.0), read(0.0, 200.0, 1.0));
    let bandwidth = corrected(CAPACITY, &burst, 50.0, short, long);
    assert!((bandwidth - 200.0 / 3.0).abs() < 1e-3, "{bandwidth}");
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let burst = (0.0..50.0f64, 0.0..500.0f64);
    let bursts = prop::collection::vec(burst, 0..6);
    let one = (
        0.5..20.0f64,
        0.0..300.0f64,
        prop_oneof![Just(0.0), 0.0..60.0f64],
        bursts,
    );
    let one = one
        .prop_map(|(weight, outstanding, rate, bursts)| load(weight, outstanding, rate, &bursts));
    prop::collection::vec(one, 0..6)
}

/// Bytes that came to all loads and to the reads until a time, and what one queue for all of them
/// would have served: no other device that wastes nothing serves more or less.
fn one_queue(loads: &[Load], reads: &[Read], until_s: f64) -> (f64, f64) {
    let rate: f64 = loads.iter().map(|load| load.rate).sum();
    let first: f64 = loads.iter().map(|load| load.outstanding).sum();
    let bursts = loads.iter().flat_map(|load| &load.bursts);
    let mut arrivals: Vec<(f64, f64)> = bursts
        .map(|burst| (burst.at_s, burst.bytes))
        .chain(reads.iter().map(|read| (read.at_s, read.bytes)))
        .filter(|arrival| arrival.0 <= until_s)
        .collect();
    arrivals.push((until_s, 0.0));
    arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut came, mut backlog, mut now_s) = (first, first, 0.0);
    for (at_s, bytes) in arrivals {
        let seconds = at_s - now_s;
        came += rate * seconds + bytes;
        backlog = (backlog + (rate - CAPACITY) * seconds).max(0.0) + bytes;
        now_s = at_s;
    }
    (came, came - backlog)
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![2 => 0.0..1e9f64, 1 => prop::num::f64::ANY]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_conserved_and_capacity_is_not_wasted(
        loads in loads(),
        at_s in 0.0..40.0f64,
        bytes in 1.0..500.0f64,
        until_s in 0.0..80.0f64,
    ) {
        let reads = [read(at_s, bytes, 2.0)];
        let mut fluid = Fluid::new(CAPACITY, 0.0, &loads, &reads);
        fluid.advance(until_s);
        let (came, served_by_one) = one_queue(&loads, &reads, until_s);
        let served: f64 = (0..loads.len()).map(|at| fluid.served(at)).sum::<f64>() + fluid.read();
        let outstanding: f64 = (0..loads.len()).map(|at| fluid.outstanding(at)).sum();
        let to_read = if at_s <= until_s { bytes - fluid.read() } else { 0.0 };
        prop_assert!((came - served - outstanding - to_read).abs() < 0.1, "{came} {served}");
        prop_assert!((served - served_by_one).abs() < 0.1, "{served} {served_by_one}");
    }

    #[test]
    fn more_weight_never_makes_a_read_slower(
        loads in loads(),
        at_s in 0.0..40.0f64,
        bytes in 1.0..500.0f64,
        weight in 0.5..20.0f64,
        more in 1.0..9.0f64,
    ) {
        let bandwidth = |weight: f64| {
            Fluid::new(CAPACITY, 0.0, &loads, &[read(at_s, bytes, weight)]).finish()[0]
        };
        let (less, more) = (bandwidth(weight), bandwidth(weight * more));
        prop_assert!(less <= more * (1.0 + 1e-6) && more <= CAPACITY, "{less} {more}");
        prop_assert!(less > 0.0);
    }

    #[test]
    fn other_weights_are_undone(observed in 1.0..99.0f64, a in 1.0..1e3f64, b in 1.0..1e3f64) {
        let (of, to) = (read(0.0, 50.0, a), read(0.0, 50.0, b));
        let other = corrected(CAPACITY, &[], observed, of, to);
        let again = corrected(CAPACITY, &[], other, to, of);
        prop_assert!((again - observed).abs() < 1e-6, "{observed} {other} {again}");
        prop_assert!((other >= observed) == (b >= a), "{observed} {other}");
    }

    #[test]
    fn any_device_is_defined(
        capacity in number(),
        from_s in number(),
        numbers in prop::collection::vec((number(), number(), number(), number(), number()), 0..8),
        reads in prop::collection::vec((number(), number(), number()), 0..8),
    ) {
        let loads: Vec<Load> = numbers
            .iter()
            .map(|(weight, outstanding, rate, at_s, bytes)| {
                load(*weight, *outstanding, *rate, &[(*at_s, *bytes)])
            })
            .collect();
        let reads: Vec<Read> = reads
            .into_iter()
            .map(|(at_s, bytes, weight)| read(at_s, bytes, weight))
            .collect();
        let mut fluid = Fluid::new(capacity, from_s, &loads, &reads);
        fluid.advance(from_s + 1.0);
        prop_assert!((0..9).all(|at| fluid.served(at) >= 0.0 && fluid.outstanding(at) >= 0.0));
        for bandwidth in fluid.finish() {
            prop_assert!(bandwidth.is_finite() && bandwidth >= 0.0, "{bandwidth}");
        }
        if let [of, to, ..] = reads[..] {
            let other = corrected(capacity, &loads, of.bytes, of, to);
            prop_assert!(other.is_finite() && other >= 0.0, "{other}");
        }
    }
}
