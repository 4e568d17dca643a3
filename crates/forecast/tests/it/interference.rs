//! The forecast of the reader's bandwidth: from schedules, from its past, and the choice between
//! them.

use barograph_forecast::Random;
use barograph_forecast::interference::{
    BandwidthForecaster, Candidate, ConstantTerm, ExpectedBandwidth, InterferenceConfig,
    NotPeriodic, Outlook, Pacing, Read, StepModel, Writer, WriterEstimate,
};
use proptest::prelude::*;

use crate::checkpoints::{CAPACITY, INCOMMENSURATE, STEP_S, TABLE_IV, WEIGHT, World, reads, six};

const AHEAD: usize = 30;

fn error(expected: &[f64], came: &[f64]) -> f64 {
    let squares = expected.iter().zip(came).map(|(a, b)| (a - b).powi(2));
    (squares.sum::<f64>() / came.len() as f64).sqrt()
}

fn outlook(writers: &[Writer], step: usize) -> Outlook {
    Outlook::of(
        CAPACITY,
        writers,
        step as f64 * STEP_S,
        &reads(step, AHEAD),
        1,
    )
}

fn means(outlook: &Outlook) -> Vec<f64> {
    outlook.steps.iter().map(|step| step.mean).collect()
}

/// The window of Tango's evaluation is a common multiple of all periods: whatever the forecast,
/// replaying that window is right. One more step, and it is not.
#[test]
fn a_window_of_all_periods_is_replayed_exactly() {
    let world = World::of(&six(TABLE_IV, 0.0, Pacing::Clock, |_| 0.0), 61, 1);
    let replay = StepModel::Transform {
        share: 0.0,
        constant: ConstantTerm::Apart,
    };
    let forecast = |window: usize| {
        let past = &world.bandwidths[..window];
        let values = replay.forecast(past, AHEAD).unwrap().values;
        error(&values, &world.bandwidths[window..window + AHEAD])
    };
    assert!(forecast(30) < 1.0, "{}", forecast(30));
    assert!(forecast(31) > 1e7, "{}", forecast(31));
}

#[test]
fn known_schedules_without_delays_are_exact_at_any_window() {
    for periods in [TABLE_IV, INCOMMENSURATE] {
        let writers = six(periods, 0.0, Pacing::Clock, |at| 20.0 * at as f64);
        let world = World::of(&writers, 60, 1);
        for step in [11, 25, 30] {
            let expected = means(&outlook(&world.truth(step, 0.0), step));
            let came = &world.bandwidths[step..step + AHEAD];
            assert!(
                error(&expected, came) < 1.0,
                "{step}: {expected:?} {came:?}"
            );
        }
    }
}

/// Counters alone give less than half of the error of the mean, and hardly more than schedules that
/// are known.
#[test]
fn estimated_schedules_are_nearly_as_good_as_known_ones() {
    let (mut by_mean, mut by_counters, mut by_truth) = (0.0, 0.0, 0.0);
    for seed in 0..4 {
        let writers = six(INCOMMENSURATE, 3.0, Pacing::Clock, |at| 20.0 * at as f64);
        let world = World::of(&writers, 75, seed);
        let step = 45;
        let came = &world.bandwidths[step..];
        let mean = StepModel::Mean.forecast(&world.bandwidths[..step], AHEAD);
        by_mean += error(&mean.unwrap().values, came);
        by_counters += error(&means(&outlook(&world.estimates(step), step)), came);
        by_truth += error(&means(&outlook(&world.truth(step, 3.0), step)), came);
    }
    println!("mean {by_mean}, counters {by_counters}, known {by_truth}");
    assert!(by_counters < 0.8 * by_mean, "{by_counters} {by_mean}");
    assert!(by_counters < 1.5 * by_truth, "{by_counters} {by_truth}");
}

fn forecaster() -> BandwidthForecaster {
    BandwidthForecaster::new(InterferenceConfig::default())
}

#[test]
fn without_a_period_the_mean_is_the_forecast_and_says_so() {
    // A transform may fit what it saw; neither the past nor the writers are periodic.
    let mut random = Random::new(1);
    let mut forecaster = forecaster();
    assert_eq!(
        forecaster.step(None, None).reason,
        "nothing was measured yet"
    );
    let constant = WriterEstimate {
        schedule: Err(NotPeriodic::Steady),
        mean_rate: 30e6,
        background_rate: 30e6,
        outstanding: 0.0,
    };
    let writers = [Writer {
        weight: WEIGHT,
        estimate: constant,
    }];
    let mut told = 0;
    for step in 0..200 {
        let outlook = outlook(&writers, step);
        let forecast = forecaster.step(Some(90e6 + 5e6 * random.normal()), Some(&outlook));
        assert_eq!(forecast.steps.len(), AHEAD);
        told += usize::from(forecast.reason == "no period found: the mean");
        if forecast.reason == "no period found: the mean" {
            assert!(forecast.steps.iter().all(|step| step.by == Candidate::Mean));
        }
        if step > 60 {
            let widths = forecast.steps.iter().map(|step| step.half_width);
            assert!(
                widths.clone().all(|width| (4e6..25e6).contains(&width)),
                "{forecast:?}"
            );
        }
    }
    assert!(told > 150, "{told} of 200");
}

/// An outlook of one periodic writer that expects the given bandwidths.
fn told(values: impl Iterator<Item = f64>) -> Outlook {
    Outlook {
        steps: values
            .map(|mean| ExpectedBandwidth { mean, spread: 0.0 })
            .collect(),
        writers: 1,
        periodic: 1,
        past: Vec::new(),
    }
}

#[test]
fn schedules_are_followed_while_they_are_right() {
    let mut random = Random::new(2);
    let truth: Vec<f64> = (0..400).map(|_| 120e6 * random.unit()).collect();
    let mut forecaster = forecaster();
    let (mut followed, mut after) = (0, 0);
    for step in 0..300 {
        // From step 150 on the schedules are upside down.
        let next = truth[step + 1..step + 1 + AHEAD].iter();
        let outlook = told(next.map(|value| if step < 150 { *value } else { 240e6 - *value }));
        let forecast = forecaster.step(Some(truth[step]), Some(&outlook));
        let by_schedules = |ahead: usize| forecast.steps[ahead].by == Candidate::Schedules;
        match step {
            20..150 => {
                assert!(
                    by_schedules(0) && by_schedules(4),
                    "{step}: {}",
                    forecast.reason
                );
                followed += usize::from(by_schedules(AHEAD - 1));
                assert!(
                    forecast
                        .reason
                        .starts_with("step 1: the writers' schedules, with 0.00")
                );
            }
            // The mean again, after at most 30 steps, where each was far off.
            180.. => {
                after += usize::from(forecast.steps.iter().any(|s| s.by == Candidate::Schedules))
            }
            _ => {}
        }
    }
    assert!(followed > 110 && after == 0, "{followed} {after}");
}

/// Steps that were measured before any writer was known count at once when the writer is.
#[test]
fn schedules_that_explain_the_past_are_followed_at_once() {
    let mut random = Random::new(3);
    let truth: Vec<f64> = (0..60).map(|_| 120e6 * random.unit()).collect();
    for (explains, by) in [(true, Candidate::Schedules), (false, Candidate::Mean)] {
        let mut forecaster = forecaster();
        for bandwidth in &truth[..20] {
            forecaster.step(Some(*bandwidth), None);
        }
        let mut outlook = told(truth[21..51].iter().copied());
        outlook.past = truth[5..21].to_vec();
        if !explains {
            outlook.past.reverse();
        }
        let forecast = forecaster.step(Some(truth[20]), Some(&outlook));
        assert_eq!(forecast.steps[0].by, by, "{}", forecast.reason);
    }
}

#[test]
fn a_step_without_a_measurement_is_skipped() {
    let wave = |step: usize| if step % 4 < 2 { 30e6 } else { 90e6 };
    let mut forecaster = forecaster();
    let mut last = None;
    for step in 0..120 {
        let bandwidth = (step % 11 != 0).then(|| wave(step));
        last = Some(forecaster.step(bandwidth, None));
    }
    let last = last.unwrap();
    for (ahead, step) in last.steps.iter().enumerate() {
        assert!(
            (step.value - wave(120 + ahead)).abs() < 10e6,
            "{ahead}: {last:?}"
        );
        assert_eq!(step.by, Candidate::HoltWinters, "{}", last.reason);
    }
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![3 => 0.0..2e8f64, 1 => prop::num::f64::ANY]
}

fn estimate() -> impl Strategy<Value = WriterEstimate> {
    let truth = World::of(&six(TABLE_IV, 0.0, Pacing::Clock, |_| 0.0), 1, 1).truth(0, 0.0);
    let schedule = truth[0].estimate.schedule.expect("it is known");
    let numbers = prop::array::uniform12(number());
    (numbers, any::<bool>(), any::<bool>()).prop_map(move |(n, is_periodic, is_paced)| {
        let mut schedule = schedule;
        schedule.period_s = n[0];
        schedule.period_error_s = n[1];
        schedule.next_s = n[2];
        schedule.phase_error_s = n[3];
        schedule.reach = n[4];
        schedule.start_spread_s = n[5];
        schedule.bytes = n[6];
        schedule.bytes_spread = n[7];
        schedule.presence = n[8];
        schedule.pacing = if is_paced {
            Pacing::Clock
        } else {
            Pacing::AfterLast
        };
        WriterEstimate {
            schedule: if is_periodic {
                Ok(schedule)
            } else {
                Err(NotPeriodic::Steady)
            },
            mean_rate: n[9],
            background_rate: n[10],
            outstanding: n[11],
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_writers_have_an_outlook(
        writers in prop::collection::vec((number(), estimate()), 0..5),
        capacity in number(),
        now_s in number(),
        reads in prop::collection::vec((number(), number(), number()), 0..5),
    ) {
        let writers: Vec<Writer> = writers
            .into_iter()
            .map(|(weight, estimate)| Writer { weight, estimate })
            .collect();
        let reads: Vec<Read> = reads
            .into_iter()
            .map(|(at_s, bytes, weight)| Read { at_s, bytes, weight })
            .collect();
        let outlook = Outlook::of(capacity, &writers, now_s, &reads, 7);
        let outlook = outlook.with_past(capacity, &writers, &reads, 7);
        prop_assert!(outlook.past.iter().all(|past| past.is_finite() && *past >= 0.0));
        prop_assert_eq!(outlook.steps.len(), reads.len());
        for step in &outlook.steps {
            prop_assert!(step.mean.is_finite() && step.mean >= 0.0, "{step:?}");
            prop_assert!(step.spread.is_finite() && step.spread >= 0.0, "{step:?}");
        }
    }

    #[test]
    fn any_bandwidths_have_a_forecast(
        config in (any::<usize>(), 0..40usize, number(), number()),
        bandwidths in prop::collection::vec(prop::option::of(number()), 0..80),
        lies in prop::collection::vec(number(), 0..40),
    ) {
        let mut forecaster = BandwidthForecaster::new(InterferenceConfig {
            window: config.0,
            steps: config.1,
            confidence: config.2,
            threshold: config.3,
        });
        let lies = told(lies.into_iter());
        let mut is_known = false;
        for bandwidth in bandwidths {
            let sound = |value: f64| (0.0..1e18).contains(&value);
            is_known |= bandwidth.is_some_and(sound);
            let forecast = forecaster.step(bandwidth, Some(&lies));
            let count = if is_known { config.1.max(1) } else { 0 };
            prop_assert_eq!(forecast.steps.len(), count);
            for step in &forecast.steps {
                prop_assert!(step.value.is_finite() && step.value >= 0.0, "{step:?}");
                prop_assert!(step.half_width >= 0.0, "{step:?}");
            }
            prop_assert!(!forecast.reason.is_empty());
        }
    }
}
