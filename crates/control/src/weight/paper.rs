//! The weight function of Tango as it is printed (section III-C, step 3): the reference
//! against which ours is compared, not what is used.
//!
//! `w(|Aug|, ε, p) = k2 · |Aug| · p / |lg ε| + b2` for NRMSE and
//! `w(|Aug|, ε, p) = k2 · |Aug| · p / |ε| + b2` for PSNR. The lowest accuracy, the highest priority
//! and the largest cardinality have the largest weight, and the highest accuracy, the lowest
//! priority and the lowest cardinality the smallest, which gives `k2` and `b2`. The paper does not
//! say which logarithm `lg` is; it is taken as the one to the base of ten.
//!
//! The tests have its corner cases: ε = 1 and 0 dB divide by zero, an NRMSE above 1 asks for as
//! little as one below it, and most of the range is never used, since the two corners lie far apart
//! in a product.

use crate::bound::{ErrorBound, ErrorMetric};

/// The two corners from which the coefficients follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperCorners {
    /// The smallest and the largest cardinality of an augmentation.
    pub cardinality: [f64; 2],
    /// The lowest and the highest priority.
    pub priority: [f64; 2],
    /// The highest and the lowest accuracy, in this order. Both have the same metric.
    pub bound: [ErrorBound; 2],
    /// The smallest and the largest weight: 100 and 1000 in the paper.
    pub weight: [f64; 2],
}

/// The weight function of the paper with its coefficients. Nothing in it is guarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperWeight {
    /// The coefficient `k2`.
    pub k2: f64,
    /// The coefficient `b2`.
    pub b2: f64,
}

impl PaperWeight {
    /// The function through the two corners.
    pub fn through(corners: &PaperCorners) -> Self {
        let at = |end: usize| {
            let (cardinality, priority) = (corners.cardinality[end], corners.priority[end]);
            term(cardinality, &corners.bound[end], priority)
        };
        let [low, high] = corners.weight;
        let k2 = (high - low) / (at(1) - at(0));
        let b2 = low - k2 * at(0);
        Self { k2, b2 }
    }

    /// The weight as printed: neither rounded nor held within the range of a back end, and possibly
    /// infinite or not a number.
    pub fn weight(&self, cardinality: f64, bound: &ErrorBound, priority: f64) -> f64 {
        self.k2 * term(cardinality, bound, priority) + self.b2
    }
}

fn term(cardinality: f64, bound: &ErrorBound, priority: f64) -> f64 {
    let accuracy = match bound.metric {
        ErrorMetric::Nrmse => bound.value.log10().abs(),
        ErrorMetric::Psnr => bound.value.abs(),
    };
    cardinality * priority / accuracy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corners of the evaluation: priorities 1, 5 and 10 and NRMSE of 0.1 to 0.00001 are those
    /// of section IV, the cardinalities are ours.
    const NRMSE: PaperCorners = PaperCorners {
        cardinality: [1e5, 3e7],
        priority: [1.0, 10.0],
        bound: [
            ErrorBound {
                metric: ErrorMetric::Nrmse,
                value: 1e-5,
            },
            ErrorBound {
                metric: ErrorMetric::Nrmse,
                value: 0.1,
            },
        ],
        weight: [100.0, 1_000.0],
    };

    fn psnr(tight: f64, loose: f64) -> PaperCorners {
        let bound = [ErrorBound::psnr(tight), ErrorBound::psnr(loose)];
        PaperCorners { bound, ..NRMSE }
    }

    #[test]
    fn the_two_corners_have_the_two_ends_of_the_range() {
        for corners in [NRMSE, psnr(80.0, 30.0)] {
            let function = PaperWeight::through(&corners);
            for end in [0, 1] {
                let (cardinality, priority) = (corners.cardinality[end], corners.priority[end]);
                let weight = function.weight(cardinality, &corners.bound[end], priority);
                assert!((weight - corners.weight[end]).abs() < 1e-6, "{weight}");
            }
        }
    }

    #[test]
    fn it_falls_with_accuracy_and_rises_with_priority_and_cardinality() {
        let function = PaperWeight::through(&NRMSE);
        let weight = |cardinality, value, priority| {
            function.weight(cardinality, &ErrorBound::nrmse(value), priority)
        };
        // Figure 15: the weight is lowered as the accuracy rises from 1e-2 to 1e-4.
        assert!(weight(1e7, 1e-2, 10.0) > weight(1e7, 1e-3, 10.0));
        assert!(weight(1e7, 1e-3, 10.0) > weight(1e7, 1e-4, 10.0));
        assert!(weight(1e7, 1e-2, 10.0) > weight(1e7, 1e-2, 5.0));
        assert!(weight(1e7, 1e-2, 5.0) > weight(1e6, 1e-2, 5.0));
    }

    #[test]
    fn most_of_the_range_is_unused() {
        let function = PaperWeight::through(&NRMSE);
        // A third of the largest cardinality, an accuracy in the middle, and the three priorities.
        for (priority, expect) in [(10.0, 250.0), (5.0, 175.0), (1.0, 115.0)] {
            let weight = function.weight(1e7, &ErrorBound::nrmse(1e-2), priority);
            assert!((weight - expect).abs() < 0.5, "{priority}: {weight}");
        }
    }

    #[test]
    fn corner_cases_are_those_of_the_print() {
        let function = PaperWeight::through(&NRMSE);
        let infinite = [ErrorBound::nrmse(1.0), ErrorBound::psnr(0.0)];
        for bound in infinite {
            assert_eq!(function.weight(1e6, &bound, 5.0), f64::INFINITY, "{bound}");
            assert!(function.weight(0.0, &bound, 5.0).is_nan(), "{bound}");
        }
        // An NRMSE above 1 asks for as little as its inverse, although it is a looser bound.
        let weight = |value| function.weight(1e6, &ErrorBound::nrmse(value), 5.0);
        assert!((weight(10.0) - weight(0.1)).abs() < 1e-6);
        assert!(weight(10.0) > weight(100.0));
        // A PSNR below 0 dB too.
        let weight = |value| function.weight(1e6, &ErrorBound::psnr(value), 5.0);
        assert_eq!(weight(-40.0), weight(40.0));
    }

    #[test]
    fn coefficients_through_a_corner_case_are_useless() {
        // The loosest bound is NRMSE 1 or 0 dB: the slope is 0, and the corner itself undefined.
        let loose = [ErrorBound::nrmse(1e-5), ErrorBound::nrmse(1.0)];
        let corners = PaperCorners {
            bound: loose,
            ..NRMSE
        };
        for corners in [corners, psnr(80.0, 0.0)] {
            let function = PaperWeight::through(&corners);
            assert_eq!((function.k2, function.b2), (0.0, 100.0));
            assert!(function.weight(3e7, &corners.bound[1], 10.0).is_nan());
        }
        // The two corners are the same.
        let corners = PaperCorners {
            cardinality: [1e6; 2],
            priority: [5.0; 2],
            bound: [ErrorBound::nrmse(0.01); 2],
            ..NRMSE
        };
        assert!(PaperWeight::through(&corners).b2.is_infinite());
    }
}
