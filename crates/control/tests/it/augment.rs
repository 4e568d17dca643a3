//! Plans of augmentation: the bound, the plot, hysteresis, and probes.

use barograph_control::{
    AugmentationConfig, AugmentationPlan, AugmentationPolicy, AugmentationRequest,
    BandwidthPrediction, BandwidthThresholds, Bucket, Decision, DecisionValue, ErrorBound,
    MEASURED_BYTES_MIN, ProbeRead,
};
use proptest::prelude::*;

const MB: f64 = 1e6;

/// The thresholds of the paper's evaluation, 30 and 120 MB/s (Tango, section IV-A).
fn configured() -> AugmentationConfig {
    AugmentationConfig {
        thresholds: Some(BandwidthThresholds::new(30.0 * MB, 120.0 * MB).unwrap()),
        // The buckets here are tiny.
        measured_bytes_min: 1,
        ..AugmentationConfig::learnt(0)
    }
}

/// Four buckets of 100 bytes on the shared tier, each of which makes the error a tenth.
fn buckets() -> Vec<Bucket> {
    let errors = [1e-2, 1e-3, 1e-4, 0.0];
    let bucket = |error_after| Bucket {
        bytes: 100,
        error_after,
        tier: 0,
    };
    errors.into_iter().map(bucket).collect()
}

fn request(buckets: &[Bucket], bound: f64, megabytes: f64, half: f64) -> AugmentationRequest<'_> {
    AugmentationRequest {
        buckets,
        base_error: 0.1,
        base_bytes: 0,
        bound: Some(ErrorBound::nrmse(bound)),
        prediction: Some(BandwidthPrediction {
            bandwidth: megabytes * MB,
            half_width: half * MB,
        }),
    }
}

fn plan_once(request: &AugmentationRequest<'_>) -> AugmentationPlan {
    AugmentationPolicy::new(configured()).plan(request)
}

#[test]
fn a_plan_is_the_larger_of_bound_and_degree() {
    let buckets = buckets();
    // The bound, the predicted bandwidth in MB/s; the buckets that are needed, allowed and read.
    let table = [
        (1e-1, 0.0, [0, 0, 0]),
        (1e-1, 30.0, [0, 0, 0]),
        (1e-1, 75.0, [0, 2, 2]),
        (1e-1, 119.0, [0, 3, 3]),
        (1e-1, 120.0, [0, 4, 4]),
        (1e-3, 0.0, [2, 0, 2]),
        (1e-3, 60.0, [2, 1, 2]),
        (1e-3, 100.0, [2, 3, 3]),
        (0.0, 0.0, [4, 0, 4]),
        (1e-3, f64::INFINITY, [2, 4, 4]),
        (1e-3, f64::NAN, [2, 0, 2]),
        (1e-3, -50.0, [2, 0, 2]),
    ];
    for (bound, megabytes, expect) in table {
        let plan = plan_once(&request(&buckets, bound, megabytes, 1.0));
        let found = [plan.needed, plan.allowed, plan.buckets];
        assert_eq!(found, expect, "{bound} at {megabytes}: {}", plan.reason);
        assert!(plan.is_bound_kept);
        assert_eq!(plan.bytes, 100 * plan.buckets as u64);
    }
}

#[test]
fn a_bound_that_nothing_keeps_reads_everything_and_says_so() {
    let buckets = buckets();
    for bound in [-1.0, f64::NAN] {
        let plan = plan_once(&request(&buckets, bound, 0.0, 1.0));
        assert_eq!((plan.buckets, plan.is_bound_kept), (4, false));
        assert!(plan.reason.contains("not even all"), "{}", plan.reason);
    }
    let none = plan_once(&request(&[], 1e-3, 120.0, 1.0));
    assert_eq!(
        (none.buckets, none.is_bound_kept, none.probe),
        (0, false, None)
    );
}

#[test]
fn psnr_is_kept_in_its_own_direction() {
    let mut buckets = buckets();
    for (bucket, decibels) in buckets.iter_mut().zip([20.0, 40.0, 60.0, f64::INFINITY]) {
        bucket.error_after = decibels;
    }
    let request = AugmentationRequest {
        base_error: 10.0,
        bound: Some(ErrorBound::psnr(50.0)),
        ..request(&buckets, 0.0, 0.0, 1.0)
    };
    assert_eq!(plan_once(&request).buckets, 3);
}

#[test]
fn a_degree_is_kept_until_the_prediction_leaves_its_uncertainty() {
    let buckets = buckets();
    let mut policy = AugmentationPolicy::new(configured());
    // The prediction in MB/s, its half width; the degree in thousandths.
    let table = [
        (75.0, 9.0, 500),
        // Within the half width, in both directions.
        (83.0, 9.0, 500),
        (67.0, 9.0, 500),
        (85.0, 9.0, 611),
        // A prediction without uncertainty moves by more than the band.
        (87.0, 0.0, 611),
        (93.0, 0.0, 700),
        // However uncertain, more than 0.15 of the plot is followed.
        (105.0, 1_000.0, 700),
        (40.0, 1_000.0, 111),
        // A half width that is no number counts as unknown.
        (50.0, f64::NAN, 111),
        (110.0, f64::NAN, 889),
        // The whole interval is beyond the end of the plot.
        (124.0, 3.0, 1_000),
        (118.0, 3.0, 1_000),
        (25.0, 4.0, 0),
        (33.0, 5.0, 0),
        // Also from close to that end, where the change is within the band.
        (116.5, 0.0, 961),
        (119.0, 4.0, 961),
        (125.0, 4.0, 1_000),
        (34.0, 0.0, 44),
        (32.0, 4.0, 44),
        (25.0, 4.0, 0),
        (33.0, 5.0, 0),
    ];
    for (step, (megabytes, half, expect)) in table.into_iter().enumerate() {
        let plan = policy.plan(&request(&buckets, 0.1, megabytes, half));
        let degree = (plan.degree * 1_000.0).round() as i64;
        assert_eq!(degree, expect, "step {step}: {}", plan.reason);
    }
    // A step without a prediction ends what was held.
    let without = AugmentationRequest {
        prediction: None,
        ..request(&buckets, 0.1, 0.0, 0.0)
    };
    assert_eq!(policy.plan(&without).degree, 0.0);
    let plan = policy.plan(&request(&buckets, 0.1, 33.0, 5.0));
    assert!(plan.degree > 0.0, "{}", plan.reason);
}

#[test]
fn a_probe_is_read_where_nothing_was_measured() {
    let buckets = buckets();
    let config = AugmentationConfig {
        probe_bytes_max: 30,
        ..configured()
    };
    let mut policy = AugmentationPolicy::new(config);
    let congested = request(&buckets, 0.1, 10.0, 1.0);
    let probes = |policy: &mut AugmentationPolicy, steps: usize| -> Vec<Option<u64>> {
        let plans = (0..steps).map(|_| policy.plan(&congested));
        plans.map(|plan| plan.probe.map(|it| it.bytes)).collect()
    };
    // The third step without a measurement, and each after it until there is one.
    assert_eq!(probes(&mut policy, 4), [None, None, Some(30), Some(30)]);
    policy.observe(20.0 * MB);
    assert_eq!(probes(&mut policy, 3), [None, None, Some(30)]);
    // What is no bandwidth is no measurement.
    policy.observe(f64::NAN);
    policy.observe(0.0);
    assert_eq!(probes(&mut policy, 1), [Some(30)]);
    // What the bound needs is measured anyway.
    let plan = policy.plan(&request(&buckets, 1e-2, 10.0, 1.0));
    assert_eq!((plan.buckets, plan.probe), (1, None));
    // A bucket on another tier measures nothing, and the probe is of the shared one.
    let mut mixed = buckets.clone();
    mixed[0].tier = 1;
    let plan = policy.plan(&request(&mixed, 1e-2, 10.0, 1.0));
    let probe = ProbeRead {
        bucket: 1,
        bytes: 30,
    };
    assert_eq!((plan.buckets, plan.probe), (1, Some(probe)));
    // A probe goes on into the buckets after the one where it begins.
    let longer = AugmentationConfig {
        probe_bytes_max: 250,
        ..configured()
    };
    let mut policy = AugmentationPolicy::new(longer);
    let planned = probes(&mut policy, 3);
    assert_eq!(planned, [None, None, Some(250)]);
    // Nothing lies on the shared tier: nothing can be measured.
    mixed.iter_mut().for_each(|bucket| bucket.tier = 1);
    let plan = policy.plan(&request(&mixed, 1e-2, 10.0, 1.0));
    assert_eq!((plan.buckets, plan.probe), (4, None));
}

#[test]
fn a_probe_is_also_read_where_too_little_is_read_to_measure() {
    let mib = |mebibytes: f64| (mebibytes * f64::from(1 << 20)) as u64;
    // The mebibytes of the base, of the first bucket, which the bound needs, and of the second one;
    // those of the probe.
    let table = [
        (0.1, 0.1, 9.0, Some(4.0)),
        (0.1, 0.1, 1.0, Some(1.0)),
        (1.0, 0.1, 9.0, None),
        (0.1, 1.0, 9.0, None),
        // All of it would not be enough.
        (0.1, 0.1, 0.7, None),
    ];
    for (base, first, second, expect) in table {
        let bucket = |mebibytes, error_after| Bucket {
            bytes: mib(mebibytes),
            error_after,
            tier: 0,
        };
        let buckets = [bucket(first, 1e-2), bucket(second, 1e-3)];
        let request = AugmentationRequest {
            base_bytes: mib(base),
            ..request(&buckets, 1e-2, 10.0, 1.0)
        };
        let plan = AugmentationPolicy::new(AugmentationConfig::learnt(0)).plan(&request);
        assert_eq!(plan.buckets, 1);
        let expect = expect.map(|mebibytes| ProbeRead {
            bucket: 1,
            bytes: mib(mebibytes),
        });
        assert_eq!(plan.probe, expect, "{base} {first} {second}");
    }
}

#[test]
fn thresholds_are_learnt_by_probes_from_the_first_step_on() {
    let buckets = buckets();
    let learnt = AugmentationConfig {
        thresholds: None,
        ..configured()
    };
    let mut policy = AugmentationPolicy::new(learnt);
    let mut steps = 0;
    while policy.thresholds().is_none() {
        let plan = policy.plan(&request(&buckets, 0.1, 100.0, 1.0));
        assert_eq!(plan.buckets, 0, "{}", plan.reason);
        assert!(plan.probe.is_some(), "{}", plan.reason);
        policy.observe(100.0 * MB);
        steps += 1;
        assert!(steps < 100);
    }
    assert_eq!(steps, 8);
    let plan = policy.plan(&request(&buckets, 0.1, 100.0, 1.0));
    assert_eq!((plan.buckets, plan.probe), (4, None), "{}", plan.reason);
}

#[test]
fn a_plan_is_a_decision_with_inputs_and_alternatives() {
    let buckets = buckets();
    let request = request(&buckets, 1e-2, 75.0, 20.0);
    let plan = plan_once(&request);
    let what: Vec<&str> = plan.alternatives.iter().map(|it| &*it.what).collect();
    assert_eq!(
        what,
        [
            "what the bound needs: 1 buckets, 100 bytes, error 0.01",
            "the low end of the prediction: 1 buckets, 100 bytes, error 0.01",
            "everything: 4 buckets, 400 bytes, error 0",
        ]
    );
    let decision = plan.decision(1, 5, "dpot", &request);
    assert_eq!(decision.number(), Some(2.0));
    assert_eq!(decision.inputs["degree"], DecisionValue::Number(0.5));
    assert_eq!(
        decision.inputs["predicted_bytes_per_s"],
        DecisionValue::Number(75.0 * MB)
    );
    assert_eq!(decision.alternatives, plan.alternatives);
    assert_eq!(Decision::from_row(&decision.row()).unwrap(), decision);
}

fn any_bucket() -> impl Strategy<Value = Bucket> {
    let bytes = prop_oneof![0..1_000_u64, any::<u64>()];
    let error = prop_oneof![0.0..1.0_f64, proptest::num::f64::ANY];
    (bytes, error, 0..3_u8).prop_map(|(bytes, error_after, tier)| Bucket {
        bytes,
        error_after,
        tier,
    })
}

fn any_prediction() -> impl Strategy<Value = Option<BandwidthPrediction>> {
    let bandwidth = prop_oneof![0.0..2e8_f64, proptest::num::f64::ANY];
    let half_width = prop_oneof![0.0..1e8_f64, proptest::num::f64::ANY];
    proptest::option::of((bandwidth, half_width).prop_map(|(bandwidth, half_width)| {
        BandwidthPrediction {
            bandwidth,
            half_width,
        }
    }))
}

proptest! {
    #[test]
    fn the_bound_is_kept_whatever_is_predicted(
        buckets in proptest::collection::vec(any_bucket(), 0..20),
        base_error in proptest::num::f64::ANY,
        base_bytes in prop_oneof![0..2_000_000_u64, any::<u64>()],
        bound in prop_oneof![0.0..1.0_f64, proptest::num::f64::ANY],
        is_psnr in any::<bool>(),
        steps in proptest::collection::vec((any_prediction(), proptest::num::f64::ANY), 1..30),
        is_learnt in any::<bool>(),
        band in proptest::num::f64::ANY,
    ) {
        let config = if is_learnt { AugmentationConfig::learnt(0) } else { configured() };
        let mut policy = AugmentationPolicy::new(AugmentationConfig { band, ..config });
        let bound = if is_psnr { ErrorBound::psnr(bound) } else { ErrorBound::nrmse(bound) };
        for (prediction, observed) in steps {
            policy.observe(observed);
            let bound = Some(bound);
            let request = AugmentationRequest {
                buckets: &buckets,
                base_error,
                base_bytes,
                bound,
                prediction,
            };
            let plan = policy.plan(&request);
            prop_assert!((0.0..=1.0).contains(&plan.degree));
            prop_assert!(plan.buckets >= plan.needed);
            prop_assert!(plan.buckets <= plan.needed.max(plan.allowed));
            let is_kept = bound.is_some_and(|it| it.is_kept_by(plan.error));
            prop_assert_eq!(is_kept, plan.is_bound_kept);
            if !plan.is_bound_kept {
                prop_assert_eq!(plan.buckets, buckets.len());
            }
            if let Some(probe) = plan.probe {
                prop_assert!(probe.bucket >= plan.buckets && probe.bucket < buckets.len());
                let left = buckets[probe.bucket..].iter();
                let left = left.fold(0, |sum: u64, bucket| sum.saturating_add(bucket.bytes));
                prop_assert!(probe.bytes >= 1 && probe.bytes <= left);
                prop_assert!(base_bytes < MEASURED_BYTES_MIN);
            }
        }
    }

    #[test]
    fn more_bandwidth_never_reads_less(
        bytes in proptest::collection::vec(0..1_000_000_u64, 0..20),
        low in 0.0..2e8_f64,
        more in 0.0..2e8_f64,
    ) {
        let all = bytes.iter().enumerate().map(|(index, bytes)| Bucket {
            bytes: *bytes,
            error_after: 0.1 / (index + 1) as f64,
            tier: 0,
        });
        let buckets: Vec<Bucket> = all.collect();
        let count = |bandwidth: f64| plan_once(&request(&buckets, 0.05, bandwidth / MB, 1.0)).buckets;
        prop_assert!(count(low + more) >= count(low));
    }

    #[test]
    fn noise_within_its_half_width_changes_nothing(
        middle in 40.0..110.0_f64,
        noise in proptest::collection::vec(-4.0..4.0_f64, 1..50),
    ) {
        let buckets = buckets();
        let mut policy = AugmentationPolicy::new(configured());
        let first = policy.plan(&request(&buckets, 0.1, middle, 4.1)).degree;
        for moved in noise {
            let plan = policy.plan(&request(&buckets, 0.1, middle + moved, 4.1));
            prop_assert_eq!(plan.degree, first);
        }
    }
}
