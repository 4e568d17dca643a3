//! Error bounds in the two metrics of Tango (section III-B1).
//!
//! It is a file of its own because the augmentation and the weight use the same bounds, and the two
//! metrics point in opposite directions.

use serde::{Deserialize, Serialize};

/// A measure of the difference between an array and what was read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorMetric {
    /// Root mean square error, divided by the range of the values: 0 is exact.
    Nrmse,
    /// Peak signal-to-noise ratio in decibels: infinity is exact.
    Psnr,
}

/// An error that must not be exceeded: an NRMSE or less, or a PSNR or more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBound {
    /// The metric of the value.
    pub metric: ErrorMetric,
    /// The bound: a ratio for NRMSE, decibels for PSNR.
    pub value: f64,
}

/// Decibels of PSNR by which the error becomes a tenth.
const DECIBELS_PER_DECADE: f64 = 20.0;

impl ErrorBound {
    /// A bound on the NRMSE.
    pub fn nrmse(value: f64) -> Self {
        let metric = ErrorMetric::Nrmse;
        Self { metric, value }
    }

    /// A bound on the PSNR, in decibels.
    pub fn psnr(value: f64) -> Self {
        let metric = ErrorMetric::Psnr;
        Self { metric, value }
    }

    /// The answer to whether an error, in the metric of the bound, keeps it. An error or a bound
    /// that is not a number is never kept.
    pub fn is_kept_by(&self, error: f64) -> bool {
        match self.metric {
            ErrorMetric::Nrmse => error <= self.value,
            ErrorMetric::Psnr => error >= self.value,
        }
    }

    /// The accuracy that the bound asks for, in powers of ten of the error: 0 for an NRMSE of 1 or
    /// more and for a PSNR of 0 dB or less, 2 for 0.01 and for 40 dB, infinite for an exact copy
    /// and for a bound that is not a number.
    pub fn decades(&self) -> f64 {
        let decades = match self.metric {
            ErrorMetric::Nrmse if self.value <= 0.0 => f64::INFINITY,
            ErrorMetric::Nrmse => -self.value.log10(),
            ErrorMetric::Psnr => self.value / DECIBELS_PER_DECADE,
        };
        match decades.is_nan() {
            true => f64::INFINITY,
            false => decades.max(0.0),
        }
    }
}

impl std::fmt::Display for ErrorBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.metric {
            ErrorMetric::Nrmse => write!(f, "NRMSE {}", self.value),
            ErrorMetric::Psnr => write!(f, "PSNR {} dB", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_kept_in_the_direction_of_its_metric() {
        let table = [
            (ErrorBound::nrmse(0.01), 0.005, true),
            (ErrorBound::nrmse(0.01), 0.01, true),
            (ErrorBound::nrmse(0.01), 0.011, false),
            (ErrorBound::psnr(40.0), 41.0, true),
            (ErrorBound::psnr(40.0), 40.0, true),
            (ErrorBound::psnr(40.0), 39.0, false),
            (ErrorBound::psnr(f64::INFINITY), f64::INFINITY, true),
            (ErrorBound::nrmse(f64::NAN), 0.0, false),
            (ErrorBound::nrmse(1.0), f64::NAN, false),
            (ErrorBound::psnr(0.0), f64::NAN, false),
        ];
        for (bound, error, expect) in table {
            assert_eq!(bound.is_kept_by(error), expect, "{bound}, {error}");
        }
    }

    #[test]
    fn decades_are_those_of_the_error_and_defined_for_every_bound() {
        let table = [
            (ErrorBound::nrmse(0.01), 2.0),
            (ErrorBound::nrmse(1.0), 0.0),
            (ErrorBound::nrmse(10.0), 0.0),
            (ErrorBound::nrmse(f64::INFINITY), 0.0),
            (ErrorBound::nrmse(0.0), f64::INFINITY),
            (ErrorBound::nrmse(-1.0), f64::INFINITY),
            (ErrorBound::nrmse(f64::NAN), f64::INFINITY),
            (ErrorBound::psnr(40.0), 2.0),
            (ErrorBound::psnr(0.0), 0.0),
            (ErrorBound::psnr(-3.0), 0.0),
            (ErrorBound::psnr(f64::NAN), f64::INFINITY),
        ];
        for (bound, expect) in table {
            assert_eq!(bound.decades(), expect, "{bound}");
        }
    }
}
