//! The weight function that is used: the wishes of the paper's (section III-C, step 3),
//! without its corner cases.
//!
//! Priority, bytes, looseness of the bound and urgency each become a part in `0.0..=1.0`; the score
//! is a mean of them, and the range makes it a weight. A mean and not a product, so that one small
//! part does not take the others their effect, and the whole range is used. The priority counts as
//! much as the others together: the highest never gives less than the default weight, and the
//! lowest never more.

use crate::bound::ErrorBound;
use crate::decision::{Alternative, Decision};
use crate::weight::range::WeightRange;

/// The lowest priority.
const PRIORITY_MIN: f64 = 1.0;
/// The highest priority (Tango, section IV-A).
const PRIORITY_MAX: f64 = 10.0;
/// The bytes below which the size of a read makes little difference, since its latency is that
/// of one request.
const BYTES_UNIT: f64 = (1 << 20) as f64;

/// What a weight depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightInputs {
    /// The priority of the application, in `1.0..=10.0`.
    pub priority: f64,
    /// The bytes to be read.
    pub bytes: u64,
    /// The error bound that this read reaches. A looser one comes first, since data of low accuracy
    /// are wanted most.
    pub bound: Option<ErrorBound>,
    /// The urgency, in `0.0..=1.0`: 0 if nobody waits, 1 if all of the device is needed to be in
    /// time. [`urgency_of_deadline`] computes it.
    pub urgency: f64,
}

/// The four parts of a score, each in `0.0..=1.0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightParts {
    /// The part of the priority.
    pub priority: f64,
    /// The part of the bytes.
    pub bytes: f64,
    /// The part of the looseness of the bound; 0 without a bound.
    pub looseness: f64,
    /// The part of the urgency.
    pub urgency: f64,
}

/// A weight with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightProposal {
    /// The weight, within the range of the back end.
    pub weight: u32,
    /// The score, in `0.0..=1.0`.
    pub score: f64,
    /// The parts of the score.
    pub parts: WeightParts,
    /// The reason, as a sentence.
    pub reason: String,
    /// What was considered and not chosen.
    pub alternatives: Vec<Alternative>,
}

/// A function from what is read to a weight. It rises with priority, bytes and urgency and falls
/// with the accuracy of the bound, never leaves its range, and is defined for every input: what is
/// not a number counts as the end that asks for least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightFunction {
    range: WeightRange,
    bytes_max: f64,
    coefficients: WeightParts,
}

impl WeightFunction {
    /// The function for a back end. `bytes_max` is the size of the largest read, such as all
    /// buckets of an augmentation; larger ones count as this one.
    pub fn new(range: WeightRange, bytes_max: u64) -> Self {
        Self {
            range,
            bytes_max: bytes_max as f64,
            coefficients: WeightParts {
                priority: 3.0,
                bytes: 1.0,
                looseness: 1.0,
                urgency: 1.0,
            },
        }
    }

    /// The function with other coefficients. Negative ones and those that are not finite count as
    /// 0; if all do, the score is always the middle.
    #[must_use]
    pub fn with_coefficients(mut self, coefficients: WeightParts) -> Self {
        let sane = |it: f64| if it.is_finite() { it.max(0.0) } else { 0.0 };
        self.coefficients = WeightParts {
            priority: sane(coefficients.priority),
            bytes: sane(coefficients.bytes),
            looseness: sane(coefficients.looseness),
            urgency: sane(coefficients.urgency),
        };
        self
    }

    /// The parts of the score.
    pub fn parts(&self, inputs: &WeightInputs) -> WeightParts {
        let span = PRIORITY_MAX - PRIORITY_MIN;
        WeightParts {
            priority: unit((inputs.priority - PRIORITY_MIN) / span),
            bytes: unit(self.bytes_part(inputs.bytes as f64)),
            // The paper's 1 / |lg ε|, moved by one so that it is 1 for every bound that asks for
            // nothing, and has no pole.
            looseness: inputs
                .bound
                .map_or(0.0, |bound| unit(1.0 / (1.0 + bound.decades()))),
            urgency: unit(inputs.urgency),
        }
    }

    /// Sizes of reads differ by powers of ten, so their logarithms are compared.
    fn bytes_part(&self, bytes: f64) -> f64 {
        match self.bytes_max > 0.0 {
            true => (bytes / BYTES_UNIT).ln_1p() / (self.bytes_max / BYTES_UNIT).ln_1p(),
            false => 0.0,
        }
    }

    /// The score of parts, in `0.0..=1.0`.
    pub fn score(&self, parts: &WeightParts) -> f64 {
        let all = [
            (self.coefficients.priority, parts.priority),
            (self.coefficients.bytes, parts.bytes),
            (self.coefficients.looseness, parts.looseness),
            (self.coefficients.urgency, parts.urgency),
        ];
        // Divided by the largest first: coefficients may be so large that their sum is infinite.
        let largest = all.iter().fold(0.0, |most: f64, it| most.max(it.0));
        if largest <= 0.0 {
            return 0.5;
        }
        let all = all.map(|(coefficient, part)| (coefficient / largest, unit(part)));
        let sum: f64 = all.iter().map(|it| it.0).sum();
        unit(all.iter().map(|it| it.0 * it.1).sum::<f64>() / sum)
    }

    /// Proposes a weight.
    pub fn propose(&self, inputs: &WeightInputs) -> WeightProposal {
        let parts = self.parts(inputs);
        let score = self.score(&parts);
        let weight = self.range.weight(score);
        let (min, default, max) = (self.range.min(), self.range.default(), self.range.max());
        let reason = format!(
            "weight {weight} of {min} to {max} for a score of {score:.3}: priority {:.2}, bytes {:.2}, looseness {:.2}, urgency {:.2}",
            parts.priority, parts.bytes, parts.looseness, parts.urgency
        );
        let alternative = |what: &str, other: u32, why_not: &str| Alternative {
            what: format!("{what}: weight {other}"),
            why_not: why_not.to_owned(),
        };
        let less = "the read has more than the least of some part";
        let more = "the read has less than the most of some part";
        let middle = match score > 0.5 {
            true => "the read is worth more than an average one",
            false => "the read is worth less than an average one",
        };
        let all = [
            (min, alternative("the least share", min, less)),
            (default, alternative("no weight", default, middle)),
            (max, alternative("the largest share", max, more)),
        ];
        let other = all.into_iter().filter(|(other, _)| *other != weight);
        let alternatives = other.map(|it| it.1).collect();
        WeightProposal {
            weight,
            score,
            parts,
            reason,
            alternatives,
        }
    }
}

/// The urgency of a read: the share of the device that it needs to be in time, in `0.0..=1.0`. It
/// is 0 if nothing is to be read, and 1 if the time is over, if the bandwidth in bytes/s is not a
/// positive number, or if the time is not a number.
pub fn urgency_of_deadline(bytes: u64, bandwidth: f64, seconds_left: f64) -> f64 {
    match bytes {
        0 => 0.0,
        _ if bandwidth > 0.0 && seconds_left > 0.0 => unit(bytes as f64 / bandwidth / seconds_left),
        _ => 1.0,
    }
}

/// A number held within `0.0..=1.0`; 0 for one that is none.
fn unit(value: f64) -> f64 {
    match value.is_nan() {
        true => 0.0,
        false => value.clamp(0.0, 1.0),
    }
}

impl WeightProposal {
    /// The record of this proposal as a decision about `subject`, the name of a control group.
    pub fn decision(
        &self,
        id: u64,
        made_ns: i64,
        subject: &str,
        inputs: &WeightInputs,
    ) -> Decision {
        let mut decision = Decision::new(id, made_ns, "weight", subject, f64::from(self.weight))
            .because(&self.reason)
            .input("score", self.score)
            .input("priority", inputs.priority)
            .input("bytes", inputs.bytes as f64)
            .input("urgency", inputs.urgency);
        if let Some(bound) = &inputs.bound {
            decision = decision.input("bound", &*bound.to_string());
        }
        let all = self.alternatives.iter();
        all.fold(decision, |decision, it| decision.alternative(it))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn inputs(priority: f64, bytes: u64, bound: Option<ErrorBound>, urgency: f64) -> WeightInputs {
        WeightInputs {
            priority,
            bytes,
            bound,
            urgency,
        }
    }

    fn weight(inputs: &WeightInputs) -> u32 {
        WeightFunction::new(WeightRange::BFQ, GIB)
            .propose(inputs)
            .weight
    }

    #[test]
    fn the_ends_of_all_inputs_are_the_ends_of_the_range() {
        let most = inputs(10.0, GIB, Some(ErrorBound::nrmse(1.0)), 1.0);
        let least = inputs(1.0, 0, Some(ErrorBound::nrmse(0.0)), 0.0);
        for range in [WeightRange::BFQ, WeightRange::IO_WEIGHT] {
            let function = WeightFunction::new(range, GIB);
            assert_eq!(function.propose(&most).weight, range.max());
            assert_eq!(function.propose(&least).weight, range.min());
        }
    }

    #[test]
    fn every_bound_and_every_absurd_input_has_a_weight() {
        let table = [
            // The corner cases of the paper: loose bounds, with the part of looseness at its most.
            (inputs(10.0, GIB, Some(ErrorBound::psnr(0.0)), 1.0), 1_000),
            (inputs(10.0, GIB, Some(ErrorBound::psnr(-9.0)), 1.0), 1_000),
            (inputs(10.0, GIB, Some(ErrorBound::nrmse(50.0)), 1.0), 1_000),
            (inputs(f64::NAN, 0, None, f64::NAN), 1),
            (inputs(f64::NEG_INFINITY, 0, None, -1.0), 1),
            (inputs(1.0, 0, Some(ErrorBound::psnr(f64::NAN)), 0.0), 1),
            (inputs(f64::INFINITY, u64::MAX, None, f64::INFINITY), 464),
        ];
        for (inputs, expect) in table {
            assert_eq!(weight(&inputs), expect, "{inputs:?}");
        }
    }

    #[test]
    fn the_highest_priority_never_has_less_than_the_default_and_the_lowest_never_more() {
        let exact = Some(ErrorBound::nrmse(0.0));
        assert_eq!(weight(&inputs(10.0, 0, exact, 0.0)), 100);
        assert_eq!(
            weight(&inputs(1.0, GIB, Some(ErrorBound::nrmse(1.0)), 1.0)),
            100
        );
    }

    #[test]
    fn looseness_falls_with_each_decade_and_has_no_pole() {
        let function = WeightFunction::new(WeightRange::BFQ, GIB);
        let table = [
            (10.0, 1.0),
            (1.0, 1.0),
            (0.1, 1.0 / 2.0),
            (0.01, 1.0 / 3.0),
            (1e-5, 1.0 / 6.0),
            (0.0, 0.0),
        ];
        for (bound, expect) in table {
            let inputs = inputs(1.0, 0, Some(ErrorBound::nrmse(bound)), 0.0);
            let looseness = function.parts(&inputs).looseness;
            assert!((looseness - expect).abs() < 1e-12, "{bound}: {looseness}");
        }
    }

    #[test]
    fn a_bound_in_either_metric_is_the_same_accuracy() {
        let nrmse = inputs(5.0, 1 << 24, Some(ErrorBound::nrmse(1e-3)), 0.3);
        let psnr = inputs(5.0, 1 << 24, Some(ErrorBound::psnr(60.0)), 0.3);
        assert_eq!(weight(&nrmse), weight(&psnr));
    }

    #[test]
    fn coefficients_decide_what_counts() {
        let only = |priority, urgency| WeightParts {
            priority,
            bytes: 0.0,
            looseness: f64::NAN,
            urgency,
        };
        let function = WeightFunction::new(WeightRange::BFQ, 0);
        let high = inputs(10.0, 5, None, 0.0);
        let table = [
            (only(1.0, 0.0), 1_000),
            (only(0.0, 1.0), 1),
            (only(f64::MAX, f64::MAX), 100),
            (only(0.0, -1.0), 100),
        ];
        for (coefficients, expect) in table {
            let function = function.with_coefficients(coefficients);
            assert_eq!(function.propose(&high).weight, expect, "{coefficients:?}");
        }
    }

    #[test]
    fn urgency_is_the_share_of_the_device_that_is_needed() {
        let table = [
            (100, 100.0, 4.0, 0.25),
            (100, 100.0, 1.0, 1.0),
            (100, 100.0, 0.5, 1.0),
            (100, 100.0, 0.0, 1.0),
            (100, 100.0, -1.0, 1.0),
            (100, 0.0, 1.0, 1.0),
            (100, f64::NAN, 1.0, 1.0),
            (100, 1.0, f64::NAN, 1.0),
            (100, f64::INFINITY, 1.0, 0.0),
            (0, 0.0, 0.0, 0.0),
        ];
        for (bytes, bandwidth, seconds, expect) in table {
            let urgency = urgency_of_deadline(bytes, bandwidth, seconds);
            assert_eq!(urgency, expect, "{bytes} {bandwidth} {seconds}");
        }
    }

    #[test]
    fn every_weight_of_the_range_of_bfq_is_reached() {
        let steps = 100_000;
        let weights =
            (0..=steps).map(|it| WeightRange::BFQ.weight(f64::from(it) / f64::from(steps)));
        let reached: BTreeSet<u32> = weights.collect();
        assert_eq!(reached, (1..=1_000).collect());
    }

    proptest! {
        #[test]
        fn the_weight_is_in_range_and_monotone(
            priority in proptest::num::f64::ANY,
            bytes in any::<u64>(),
            value in proptest::num::f64::ANY,
            urgency in proptest::num::f64::ANY,
            is_psnr in any::<bool>(),
            bytes_max in any::<u64>(),
            more in 0.0..1e3_f64,
        ) {
            let bound = if is_psnr { ErrorBound::psnr(value) } else { ErrorBound::nrmse(value) };
            let given = inputs(priority, bytes, Some(bound), urgency);
            for range in [WeightRange::BFQ, WeightRange::IO_WEIGHT] {
                let function = WeightFunction::new(range, bytes_max);
                let weight = |inputs: &WeightInputs| function.propose(inputs).weight;
                let base = weight(&given);
                prop_assert!((range.min()..=range.max()).contains(&base));
                let priority = if priority.is_nan() { 1.0 } else { priority + more };
                let more_of_it = weight(&WeightInputs { priority, ..given });
                prop_assert!(more_of_it >= base);
                let bytes = bytes.saturating_add(more as u64 * GIB);
                let more_of_it = weight(&WeightInputs { bytes, ..given });
                prop_assert!(more_of_it >= base);
                let urgency = if urgency.is_nan() { 0.0 } else { urgency + more };
                let more_of_it = weight(&WeightInputs { urgency, ..given });
                prop_assert!(more_of_it >= base);
                // A looser bound: a larger NRMSE, a smaller PSNR.
                let value = if is_psnr { value - more } else { value + more };
                let looser = ErrorBound { value, ..bound };
                if !value.is_nan() {
                    let bound = Some(looser);
                    let more_of_it = weight(&WeightInputs { bound, ..given });
                    prop_assert!(more_of_it >= base);
                }
            }
        }
    }
}
