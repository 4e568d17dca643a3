//! Schedules of writers, estimated from readings of their counters alone.

use barograph_forecast::Random;
use barograph_forecast::interference::{
    Activity, BurstPart, CounterReading, NotPeriodic, Pacing, WriterEstimate,
};
use proptest::prelude::*;

use crate::checkpoints::{BYTES, INCOMMENSURATE, STEP_S, TABLE_IV, World, six};

/// The counter of a writer that writes `bytes` at `rate` from each of the starts on, read once a
/// second; `steady` bytes are written each second besides.
fn readings(starts: &[f64], bytes: f64, rate: f64, steady: f64, until: u32) -> Vec<CounterReading> {
    let written = |at_s: f64| -> f64 {
        let of = |start: &f64| ((at_s - start) * rate).clamp(0.0, bytes);
        starts.iter().map(of).sum::<f64>() + steady * at_s
    };
    (0..=until)
        .map(|second| CounterReading {
            at_s: f64::from(second),
            bytes: written(f64::from(second)),
        })
        .collect()
}

#[test]
fn bursts_are_found_with_start_end_and_size() {
    let found = Activity::of(&readings(&[10.25, 110.75, 195.0], 1e9, 1e8, 1e6, 200));
    assert_eq!(found.bursts.len(), 3);
    for (burst, (start_s, end_s)) in found.bursts.iter().zip([(10.25, 21.0), (110.75, 121.0)]) {
        assert!((burst.start_s - start_s).abs() < 0.02, "{burst:?}");
        assert_eq!((burst.end_s, burst.part), (end_s, BurstPart::Whole));
        assert!((burst.bytes / 1e9 - 1.0).abs() < 0.01, "{burst:?}");
    }
    assert!(found.is_running && found.bursts[2].part == BurstPart::WithoutEnd);
    assert!(
        (found.background_rate / 1e6 - 1.0).abs() < 0.05,
        "{found:?}"
    );
}

#[test]
fn pauses_within_a_burst_and_writes_of_a_log_do_not_count() {
    let starts = [50.0, 150.0, 250.0, 350.0, 450.0];
    // Each checkpoint pauses for two seconds, and a log is written between.
    let parts: Vec<f64> = starts
        .iter()
        .flat_map(|start| [*start, start + 7.0])
        .collect();
    let mut counter = readings(&parts, 5e8, 1e8, 0.0, 520);
    for reading in &mut counter {
        reading.bytes += (reading.at_s / 17.0).floor() * 2e7;
    }
    let schedule = WriterEstimate::of(&counter).schedule.unwrap();
    assert_eq!(schedule.bursts, 5);
    assert!((schedule.period_s - 100.0).abs() < 1.0, "{schedule:?}");
    assert!((schedule.bytes / 1e9 - 1.0).abs() < 0.1, "{schedule:?}");
}

#[test]
fn a_burst_that_runs_is_outstanding_in_part() {
    let estimate = WriterEstimate::of(&readings(
        &[0.5, 100.5, 200.5, 300.5, 400.5],
        1e9,
        1e8,
        0.0,
        404,
    ));
    assert!(
        (estimate.outstanding / 6.5e8 - 1.0).abs() < 0.02,
        "{estimate:?}"
    );
    assert!((estimate.schedule.unwrap().next_s - 500.5).abs() < 0.5);
}

/// A checkpoint takes so long that the next one joins it: one start is missing, and no bytes are.
#[test]
fn two_bursts_that_merge() {
    let starts: Vec<f64> = (1..12).map(|at| 100.0 * f64::from(at)).collect();
    let mut counter = readings(&starts, 1e9, 1e8, 0.0, 1_190);
    let merged = readings(&[500.0], 2e9, 1.8e7, 0.0, 1_190);
    let without: Vec<f64> = [&starts[..4], &starts[6..]].concat();
    let rest = readings(&without, 1e9, 1e8, 0.0, 1_190);
    for (reading, (merged, rest)) in counter.iter_mut().zip(merged.iter().zip(&rest)) {
        reading.bytes = merged.bytes + rest.bytes;
    }
    let schedule = WriterEstimate::of(&counter).schedule.unwrap();
    assert!((schedule.period_s - 100.0).abs() < 0.1, "{schedule:?}");
    assert!((schedule.next_s - 1_200.0).abs() < 0.5, "{schedule:?}");
    assert!((schedule.bytes / 1e9 - 1.0).abs() < 0.01, "{schedule:?}");
    assert!(schedule.presence > 0.95, "{schedule:?}");
}

#[test]
fn bursts_that_are_missing_are_known_to_be_fewer() {
    let starts = (1..=40)
        .filter(|at| at % 4 != 0)
        .map(|at| 50.0 * f64::from(at));
    let starts: Vec<f64> = starts.collect();
    let schedule = WriterEstimate::of(&readings(&starts, 1e9, 1e8, 0.0, 1_990));
    let schedule = schedule.schedule.unwrap();
    assert!((schedule.period_s - 50.0).abs() < 0.1, "{schedule:?}");
    assert!((schedule.presence - 0.76).abs() < 0.03, "{schedule:?}");
}

#[test]
fn a_constant_writer_has_no_schedule() {
    let mut random = Random::new(5);
    for (name, rate, noise) in [("steady", 2e7, 0.0), ("with noise", 2e7, 0.3)] {
        let mut bytes = 0.0;
        let counter: Vec<CounterReading> = (0..1_800)
            .map(|second| {
                bytes += rate * (1.0 + noise * random.normal()).max(0.0);
                CounterReading {
                    at_s: f64::from(second),
                    bytes,
                }
            })
            .collect();
        let estimate = WriterEstimate::of(&counter);
        assert_eq!(estimate.schedule, Err(NotPeriodic::Steady), "{name}");
        assert!(
            (estimate.mean_rate / rate - 1.0).abs() < 0.05,
            "{name}: {estimate:?}"
        );
        assert_eq!(estimate.outstanding, 0.0);
    }
    let silent = WriterEstimate::of(&readings(&[], 1e9, 1e8, 0.0, 500));
    assert_eq!(silent.schedule, Err(NotPeriodic::Silent));
}

/// The share of unrelated writers that are called periodic, for several numbers of bursts.
#[test]
fn unrelated_bursts_are_seldom_called_periodic() {
    let seeds = 400;
    for mean_s in [40.0, 90.0, 180.0, 300.0] {
        let mut called = 0;
        for seed in 0..seeds {
            let mut random = Random::new(seed);
            let mut starts = Vec::new();
            let mut at_s = 0.0;
            while at_s < 1_750.0 {
                at_s += -mean_s * (1.0 - random.unit()).ln();
                starts.push(at_s);
            }
            let counter = readings(&starts, 5e8, 1e8, 0.0, 1_800);
            called += usize::from(WriterEstimate::of(&counter).schedule.is_ok());
        }
        println!("mean distance {mean_s} s: {called} of {seeds}");
        assert!(
            called * 50 <= seeds as usize,
            "{mean_s}: {called} of {seeds}"
        );
    }
}

#[test]
fn noise_is_seldom_called_periodic() {
    let seeds = 200;
    let mut called = 0;
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let mut bytes = 0.0;
        let counter: Vec<CounterReading> = (0..1_800)
            .map(|second| {
                if random.chance(0.05) {
                    bytes += 1e8 * random.unit();
                }
                CounterReading {
                    at_s: f64::from(second),
                    bytes,
                }
            })
            .collect();
        called += usize::from(WriterEstimate::of(&counter).schedule.is_ok());
    }
    assert!(called * 50 <= seeds as usize, "{called} of {seeds}");
}

/// Six writers that share a device, so that bursts are drawn out and run into each other.
#[test]
fn writers_that_share_a_device_are_recovered() {
    let steps = 60;
    let (mut found, mut all) = (0, 0);
    for periods in [TABLE_IV, INCOMMENSURATE] {
        for seed in 0..6 {
            let mut random = Random::new(seed);
            let draws: Vec<f64> = (0..6).map(|_| random.unit()).collect();
            let writers = six(periods, 3.0, Pacing::Clock, |at| periods[at] * draws[at]);
            let world = World::of(&writers, steps, seed);
            for (at, writer) in world.estimates(steps).iter().enumerate() {
                all += 1;
                let Ok(schedule) = writer.estimate.schedule else {
                    continue;
                };
                found += 1;
                let error_s = (schedule.period_s - periods[at]).abs();
                assert!(error_s < 0.02 * periods[at], "{at}: {schedule:?}");
                assert!(
                    (schedule.bytes / BYTES[at] - 1.0).abs() < 0.05,
                    "{at}: {schedule:?}"
                );
                let periods_on = (schedule.next_s - writers[at].phase_s) / periods[at];
                let off_s = (periods_on - periods_on.round()) * periods[at];
                assert!(off_s.abs() < 9.0, "{at}: {off_s}, {schedule:?}");
                assert!(
                    schedule.next_s > steps as f64 * STEP_S - 12.0,
                    "{schedule:?}"
                );
            }
        }
    }
    assert!(found * 10 >= all * 9, "{found} of {all}");
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![3 => 0.0..1e10f64, 1 => prop::num::f64::ANY]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_known_schedule_is_recovered(
        period_s in 40.0..300.0f64,
        phase in 0.0..1.0f64,
        bursts in 10..40u32,
        jitter in 0.0..0.03f64,
        share_missing in 0.0..0.15f64,
        steady in 0.0..1e6f64,
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        let jitter_s = jitter * period_s;
        let mut starts = Vec::new();
        for number in 0..bursts {
            let start_s = period_s * (f64::from(number) + 1.0 + phase) + jitter_s * random.normal();
            if !random.chance(share_missing) || number + 1 == bursts {
                starts.push(start_s);
            }
        }
        let until_s = period_s * (f64::from(bursts) + 0.5 + phase);
        let counter = readings(&starts, 8e8, 1e8, steady, until_s as u32);
        let schedule = WriterEstimate::of(&counter).schedule;
        let schedule = schedule.map_err(|reason| TestCaseError::fail(reason.to_string()))?;
        prop_assert!((schedule.period_s / period_s - 1.0).abs() < 0.02, "{schedule:?}");
        let next_s = period_s * (f64::from(bursts) + 1.0 + phase);
        prop_assert!((schedule.next_s - next_s).abs() < 4.0 * jitter_s + 1.0, "{schedule:?}");
        prop_assert!((schedule.bytes / 8e8 - 1.0).abs() < 0.05, "{schedule:?}");
        prop_assert!(schedule.start_spread_s < 2.0 * jitter_s + 0.5, "{schedule:?}");
        prop_assert!((0.0..=1.0).contains(&schedule.confidence));
    }

    #[test]
    fn any_readings_are_defined(
        mut readings in prop::collection::vec((number(), number()), 0..120),
        in_order: bool,
    ) {
        if in_order {
            readings.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let counter: Vec<CounterReading> = readings
            .into_iter()
            .map(|(at_s, bytes)| CounterReading { at_s, bytes })
            .collect();
        let estimate = WriterEstimate::of(&counter);
        prop_assert!(estimate.mean_rate.is_finite() && estimate.mean_rate >= 0.0);
        prop_assert!(estimate.background_rate.is_finite() && estimate.outstanding >= 0.0);
        if let Ok(schedule) = estimate.schedule {
            prop_assert!(schedule.period_s > 0.0 && schedule.next_s.is_finite());
            prop_assert!(schedule.bytes > 0.0 && schedule.start_spread_s.is_finite());
        }
    }
}
