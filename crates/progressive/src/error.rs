//! Errors of reconstructions, and the bounds that a reader asks for.

use std::fmt;

use thiserror::Error;

use crate::element::exp2;

/// What is wrong with an input.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ProgressiveError {
    /// An array, a block or a region has an impossible shape.
    #[error("the shape cannot be used: {reason}")]
    Shape {
        /// What is wrong with it.
        reason: String,
    },
    /// The points of an unstructured mesh cannot be used, or what is asked of values on one.
    #[error("the mesh cannot be used: {reason}")]
    Mesh {
        /// What is wrong with it.
        reason: String,
    },
    /// A bound is no number that an error can have.
    #[error("the error bound {bound} cannot be used: {reason}")]
    Bound {
        /// The bound.
        bound: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No bucket has an error within the bound.
    #[error("no reading is within {bound}: the best one has {best}")]
    OutOfReach {
        /// The bound that was asked for.
        bound: ErrorBound,
        /// The same measure of the most precise reading.
        best: f64,
    },
    /// Bytes that should be a header, an index or a bucket are none.
    #[error("{part} is damaged or no part of such an array: {reason}")]
    Damaged {
        /// Which part.
        part: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A bucket that is needed is not there, or not all of it.
    #[error("the array is cut short: it has {bytes} of {needed} bytes; ask for a larger error")]
    CutShort {
        /// Bytes that are there.
        bytes: u64,
        /// Bytes of the array up to the end of that bucket.
        needed: u64,
    },
    /// None or several arrays of a file are meant.
    #[error("{meant} of {arrays} arrays are meant ({names}): say the name and the step")]
    Ambiguous {
        /// Number of arrays that are meant.
        meant: usize,
        /// Number of arrays of the file.
        arrays: usize,
        /// The first of them.
        names: String,
    },
    /// Bytes of the array cannot be read from where they lie.
    #[error("bytes of the array cannot be read: {reason}")]
    Fetch {
        /// What the system says.
        reason: String,
    },
    /// Packed pieces of the array cannot be kept until all of them are there.
    #[error("packed pieces of the array cannot be kept: {reason}")]
    Spool {
        /// What the system says.
        reason: String,
    },
    /// The array is of a later version of the format.
    #[error(
        "the array is of version {version} of the format, and this program reads up to {known}"
    )]
    Future {
        /// Its version.
        version: u16,
        /// The newest version that is known.
        known: u16,
    },
}

/// An upper bound of the error of a reconstruction at full resolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorBound {
    /// Root mean square of the errors, as a share of the range of the values (Tango, section
    /// III-B).
    Nrmse(f64),
    /// Peak signal-to-noise ratio in dB, at least: 20 log10 of the range over the root mean square.
    Psnr(f64),
    /// The same of the largest magnitude in place of the range, as Tango defines it.
    PsnrMax(f64),
    /// Largest absolute error.
    Linf(f64),
}

impl ErrorBound {
    /// Parses `nrmse=1e-4`, `psnr=80`, `psnr_max=80` or `linf=0.01`.
    ///
    /// # Errors
    ///
    /// The measure is not known, or the number is out of range.
    pub fn parse(text: &str) -> Result<Self, ProgressiveError> {
        let refused = |reason| ProgressiveError::Bound {
            bound: text.chars().take(80).collect(),
            reason,
        };
        let form = "write nrmse=1e-4, psnr=80, psnr_max=80 or linf=0.01";
        let (measure, number) = text.split_once('=').ok_or_else(|| refused(form))?;
        let number: f64 = number.trim().parse().map_err(|_| refused(form))?;
        let bound = match measure.trim() {
            "nrmse" => Self::Nrmse(number),
            "psnr" => Self::Psnr(number),
            "psnr_max" => Self::PsnrMax(number),
            "linf" => Self::Linf(number),
            _ => return Err(refused(form)),
        };
        bound.check().map(|()| bound)
    }

    /// Refuses a bound that no error can have.
    ///
    /// # Errors
    ///
    /// It is no number, or a negative error.
    pub fn check(&self) -> Result<(), ProgressiveError> {
        let reason = match self {
            Self::Nrmse(error) | Self::Linf(error) if error.is_nan() || *error < 0.0 => {
                "an error is a number of at least 0"
            }
            Self::Psnr(ratio) | Self::PsnrMax(ratio) if ratio.is_nan() => "a ratio is a number",
            _ => return Ok(()),
        };
        Err(ProgressiveError::Bound {
            bound: self.to_string(),
            reason,
        })
    }

    /// The error by the measure of this bound.
    pub fn measure(&self, error: &MeasuredError, range: &ValueRange) -> f64 {
        match self {
            Self::Nrmse(_) => error.nrmse(range),
            Self::Psnr(_) => error.psnr(range),
            Self::PsnrMax(_) => error.psnr_max(range),
            Self::Linf(_) => error.linf,
        }
    }

    /// Whether an error is within this bound.
    pub fn holds(&self, error: &MeasuredError, range: &ValueRange) -> bool {
        let measured = self.measure(error, range);
        match self {
            Self::Nrmse(most) | Self::Linf(most) => measured <= *most,
            Self::Psnr(least) | Self::PsnrMax(least) => measured >= *least,
        }
    }
}

impl fmt::Display for ErrorBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nrmse(error) => write!(f, "nrmse={error:e}"),
            Self::Psnr(ratio) => write!(f, "psnr={ratio}"),
            Self::PsnrMax(ratio) => write!(f, "psnr_max={ratio}"),
            Self::Linf(error) => write!(f, "linf={error:e}"),
        }
    }
}

/// The values that errors are compared with. Values that are not finite do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueRange {
    /// Number of finite values.
    pub count: u64,
    /// Smallest value; 0 if there is none.
    pub min: f64,
    /// Largest value; 0 if there is none.
    pub max: f64,
}

impl ValueRange {
    /// The range of no values.
    pub(crate) const NOTHING: Self = Self {
        count: 0,
        min: 0.0,
        max: 0.0,
    };

    /// The range with more finite values.
    pub(crate) fn with(self, values: impl Iterator<Item = f64>) -> Self {
        let known = match self.count {
            0 => (0, f64::INFINITY, f64::NEG_INFINITY),
            count => (count, self.min, self.max),
        };
        let add = |(count, min, max): (u64, f64, f64), value: f64| {
            (count + 1, min.min(value), max.max(value))
        };
        match values.fold(known, add) {
            (0, ..) => Self::NOTHING,
            (count, min, max) => Self { count, min, max },
        }
    }

    /// Half of the range: largest value less the smallest one. All of it may be too large for f64.
    pub fn half_width(&self) -> f64 {
        self.max / 2.0 - self.min / 2.0
    }

    /// Largest magnitude.
    pub fn magnitude(&self) -> f64 {
        self.max.abs().max(self.min.abs())
    }
}

/// The error of a reconstruction, measured against the values themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredError {
    /// Root mean square of the differences.
    pub rmse: f64,
    /// Largest absolute difference.
    pub linf: f64,
}

impl MeasuredError {
    /// Root mean square of the differences as a share of the range. Of values that are all the same
    /// it is 0 where they are exact, and infinite otherwise.
    pub fn nrmse(&self, range: &ValueRange) -> f64 {
        share(self.rmse / 2.0, range.half_width())
    }

    /// Peak signal-to-noise ratio by the range, in dB.
    pub fn psnr(&self, range: &ValueRange) -> f64 {
        -20.0 * share(self.rmse / 2.0, range.half_width()).log10()
    }

    /// Peak signal-to-noise ratio by the largest magnitude, in dB.
    pub fn psnr_max(&self, range: &ValueRange) -> f64 {
        -20.0 * share(self.rmse, range.magnitude()).log10()
    }
}

fn share(error: f64, whole: f64) -> f64 {
    match error == 0.0 {
        true => 0.0,
        false => error / whole,
    }
}

/// Sums of differences that are kept beside each other.
const LANES: usize = 8;

/// Sums of differences of parts of an array.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorSum {
    /// Sum of the squares of the differences, which are multiplied by a unit.
    squares: f64,
    linf: f64,
}

impl ErrorSum {
    /// The sum of the differences of values and the numbers that are known of them, which a unit
    /// has made about 1 at most, so that no square is too large or too small for f64.
    pub(crate) fn of<T: Copy>(
        values: &[T],
        numbers: &[f64],
        difference: impl Fn(T, f64) -> f64,
    ) -> Self {
        // Sums beside each other do not wait for each other.
        let (mut squares, mut largest) = ([0.0; LANES], [0.0_f64; LANES]);
        let mut add = |values: &[T], numbers: &[f64]| {
            for (lane, (&value, &number)) in values.iter().zip(numbers).enumerate() {
                let difference = difference(value, number);
                squares[lane] += difference * difference;
                largest[lane] = largest[lane].max(difference.abs());
            }
        };
        let (values, rest) = values.as_chunks::<LANES>();
        let (numbers, rest_numbers) = numbers.as_chunks::<LANES>();
        for (values, numbers) in values.iter().zip(numbers) {
            add(values, numbers);
        }
        add(rest, rest_numbers);
        let squares: f64 = squares.iter().sum();
        // A difference that is no number must never look like none.
        match squares.is_nan() {
            true => Self {
                squares: f64::INFINITY,
                linf: f64::INFINITY,
            },
            false => Self {
                squares,
                linf: largest.into_iter().fold(0.0, f64::max),
            },
        }
    }

    /// Adds the sum of another part.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.squares += other.squares;
        self.linf = self.linf.max(other.linf);
    }

    /// The error of all parts, which have `count` values and were divided by 2 to the exponent. It
    /// is rounded up, so that it is a bound, to what a header can say.
    pub(crate) fn error(&self, count: u64, exponent: i32) -> MeasuredError {
        let scale = exp2(exponent);
        let mean = self.squares / (count.max(1)) as f64;
        // Rounding of n additions changes a sum by a share of at most n times 2^-53; blocks bound
        // n. Numbers that are too small to be normal have few bits, and are rounded up too.
        let up = |value: f64| match value * (1.0 + 1e-9) * scale {
            up if value > 0.0 && up < f64::MIN_POSITIVE => up.next_up(),
            up => up,
        };
        let told = |value: f64| ErrorCode::of(up(value), exponent).error(exponent);
        MeasuredError {
            rmse: told(mean.sqrt()),
            linf: told(self.linf),
        }
    }
}

/// An error in two bytes, as a header has it: a floating-point number with 9 bits after the first
/// one, relative to the power of 2 of the array's largest magnitude. Rounding up makes it at most
/// 1/512 larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorCode(pub(crate) u16);

impl ErrorCode {
    /// Bits of an f64 that are dropped.
    const DROPPED: u32 = 43;
    /// What is subtracted from the rest: codes begin with 2^-64.
    const FIRST: u64 = (1_023 - 64) << 9;

    pub(crate) fn of(error: f64, exponent: i32) -> Self {
        if error == 0.0 {
            return Self(0);
        }
        let bits = (error * exp2(-exponent)).to_bits();
        let up = bits
            .div_ceil(1 << Self::DROPPED)
            .saturating_sub(Self::FIRST);
        let mut code = Self(u16::try_from(up.max(1)).unwrap_or(u16::MAX));
        // What is too small to be normal may be rounded down on its way back.
        while code.error(exponent) < error {
            code.0 += 1;
        }
        code
    }

    pub(crate) fn error(self, exponent: i32) -> f64 {
        match self.0 {
            0 => 0.0,
            u16::MAX => f64::INFINITY,
            code => {
                let bits = (u64::from(code) + Self::FIRST) << Self::DROPPED;
                f64::from_bits(bits) * exp2(exponent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_are_parsed() {
        for (text, expect) in [
            ("nrmse=1e-4", Some(ErrorBound::Nrmse(1e-4))),
            ("psnr= 80", Some(ErrorBound::Psnr(80.0))),
            ("psnr_max=inf", Some(ErrorBound::PsnrMax(f64::INFINITY))),
            ("linf=0", Some(ErrorBound::Linf(0.0))),
            ("linf=-1", None),
            ("nrmse=nan", None),
            ("psnr=nan", None),
            ("nrmse", None),
            ("mse=1", None),
            ("", None),
        ] {
            assert_eq!(ErrorBound::parse(text).ok(), expect, "{text}");
        }
    }

    #[test]
    fn errors_against_ranges() {
        let range = ValueRange::NOTHING.with([-10.0, 10.0, 0.0].into_iter());
        let error = MeasuredError {
            rmse: 0.02,
            linf: 0.5,
        };
        assert_eq!((range.half_width(), range.magnitude()), (10.0, 10.0));
        assert!((error.nrmse(&range) - 1e-3).abs() < 1e-12);
        assert!((error.psnr(&range) - 60.0).abs() < 1e-9);
        assert!((error.psnr_max(&range) - 20.0 * 500_f64.log10()).abs() < 1e-9);
        assert!(ErrorBound::Psnr(59.0).holds(&error, &range));
        assert!(!ErrorBound::Psnr(61.0).holds(&error, &range));
        let constant = ValueRange::NOTHING.with([3.0, 3.0].into_iter());
        assert_eq!(MeasuredError::default().nrmse(&constant), 0.0);
        assert_eq!(MeasuredError::default().psnr(&constant), f64::INFINITY);
        assert_eq!(error.nrmse(&constant), f64::INFINITY);
        let huge = ValueRange::NOTHING.with([-1.5e308, 1.5e308].into_iter());
        assert!(error.nrmse(&huge) > 0.0);
        assert_eq!(
            ValueRange::NOTHING.with(std::iter::empty()).half_width(),
            0.0
        );
    }

    proptest! {
        #[test]
        fn a_code_is_the_error_rounded_up(error in 0.0..f64::MAX, exponent in -1_000..=1_000_i32, by in -200..=60_i32) {
            let errors = [error, exp2(exponent) * exp2(by), f64::from_bits(error.to_bits() >> 12)];
            for error in errors {
                let code = ErrorCode::of(error, exponent);
                let told = code.error(exponent);
                prop_assert!(told >= error);
                prop_assert_eq!(ErrorCode::of(told, exponent), code);
                let unit = exp2(exponent);
                let is_far = error / unit >= exp2(62) || error / unit < exp2(-63);
                prop_assert!(is_far || told <= error * (1.0 + 1.0 / 512.0) + 5e-324, "{} {}", error, told);
            }
        }
    }

    #[test]
    fn codes_of_no_error_and_of_none_at_all() {
        assert_eq!(ErrorCode::of(0.0, 7).error(7), 0.0);
        for error in [f64::INFINITY, f64::NAN] {
            assert_eq!(ErrorCode::of(error, 7).error(7), f64::INFINITY);
        }
    }
}
