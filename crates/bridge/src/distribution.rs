//! Quantiles of histograms, each with the greatest possible error: half the width of its bucket.

/// The quantiles that are computed, and the suffixes of their series' names.
pub const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")];
/// Most buckets of one distribution.
pub(crate) const BUCKETS_MAX: usize = 512;

/// A distribution of values, in the form of OTLP's explicit histograms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Upper bounds, inclusive, ascending; the last bucket has none.
    pub bounds: Vec<f64>,
    /// Number of values in each bucket; there is one more bucket than bounds.
    pub counts: Vec<u64>,
    /// Least value, if the sender gives it.
    pub min: Option<f64>,
    /// Greatest value, if the sender gives it.
    pub max: Option<f64>,
    /// Whether the counts began anew with this point.
    pub is_delta: bool,
}

impl Distribution {
    /// Checks that buckets and bounds fit together.
    ///
    /// # Errors
    ///
    /// Returns a text for the sender.
    pub fn check(&self) -> Result<(), String> {
        let ascending = self.bounds.windows(2).all(|pair| pair[0] < pair[1]);
        if self.counts.len() != self.bounds.len() + 1 {
            return Err("a histogram needs one bucket more than bounds".into());
        }
        if self.counts.len() > BUCKETS_MAX {
            return Err(format!("a histogram has at most {BUCKETS_MAX} buckets"));
        }
        if !ascending || !self.bounds.iter().all(|bound| bound.is_finite()) {
            return Err("bounds of a histogram are finite and ascend".into());
        }
        Ok(())
    }

    /// The values that were added since `earlier`; none if the buckets differ or the counts began
    /// anew.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        if self.bounds != earlier.bounds || self.counts.len() != earlier.counts.len() {
            return None;
        }
        let pairs = self.counts.iter().zip(&earlier.counts);
        let counts: Option<Vec<u64>> = pairs.map(|(now, then)| now.checked_sub(*then)).collect();
        Some(Self {
            counts: counts?,
            ..self.clone()
        })
    }

    /// The quantile, and the half width of the interval that certainly contains it; none if nothing
    /// was counted, or if it is in a bucket without an end.
    pub fn quantile(&self, q: f64) -> Option<(f64, f32)> {
        let total = self
            .counts
            .iter()
            .fold(0u64, |sum, n| sum.saturating_add(*n));
        if total == 0 {
            return None;
        }
        // The rank of the quantile: that many values are not greater than it.
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total);
        let mut below = 0u64;
        let at = self.counts.iter().position(|n| {
            below = below.saturating_add(*n);
            below >= rank
        })?;
        let lower = match at.checked_sub(1) {
            Some(before) => Some(self.bounds[before]),
            // Durations and sizes are not negative.
            None => self.bounds.first().filter(|b| **b > 0.0).map(|_| 0.0),
        };
        let upper = self.bounds.get(at).copied();
        let lower = match (lower, self.min) {
            (Some(lower), Some(min)) => Some(lower.max(min)),
            (None, min) => min,
            (lower, None) => lower,
        };
        let upper = match (upper, self.max) {
            (Some(upper), Some(max)) => Some(upper.min(max)),
            (upper, max) => upper.or(max),
        };
        let (lower, upper) = (lower?, upper?);
        let (value, half) = ((lower + upper) / 2.0, (upper - lower) / 2.0);
        (value.is_finite() && half >= 0.0).then_some((value, half as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[u64]) -> Distribution {
        Distribution {
            bounds: vec![1.0, 2.0, 4.0],
            counts: counts.to_vec(),
            ..Distribution::default()
        }
    }

    #[test]
    fn quantiles_are_within_their_error() {
        let check = |counts: &[u64], q: f64, expect: Option<(f64, f32)>| {
            assert_eq!(of(counts).quantile(q), expect, "{counts:?} {q}");
        };
        check(&[0, 0, 0, 0], 0.5, None);
        check(&[10, 0, 0, 0], 0.5, Some((0.5, 0.5)));
        check(&[5, 5, 0, 0], 0.5, Some((0.5, 0.5)));
        check(&[5, 5, 0, 0], 0.9, Some((1.5, 0.5)));
        check(&[1, 1, 8, 0], 0.5, Some((3.0, 1.0)));
        check(&[0, 0, 0, 1], 0.5, None);
        check(&[u64::MAX, u64::MAX, 0, 0], 0.5, Some((0.5, 0.5)));
        let mut ended = of(&[0, 0, 0, 1]);
        ended.max = Some(10.0);
        assert_eq!(ended.quantile(0.5), Some((7.0, 3.0)));
        ended.max = Some(1.0);
        assert_eq!(ended.quantile(0.5), None, "it contradicts itself");
        let negative = Distribution {
            bounds: vec![-1.0],
            counts: vec![1, 0],
            ..Distribution::default()
        };
        assert_eq!(negative.quantile(0.5), None);
    }

    #[test]
    fn what_came_since() {
        let (then, now) = (of(&[1, 1, 1, 1]), of(&[1, 3, 1, 2]));
        assert_eq!(now.since(&then).unwrap().counts, [0, 2, 0, 1]);
        assert_eq!(then.since(&now), None, "it began anew");
        let mut other = of(&[1, 1, 1, 1]);
        other.bounds[0] = 0.5;
        assert_eq!(now.since(&other), None);
    }

    #[test]
    fn shapes() {
        assert!(of(&[0, 0, 0, 0]).check().is_ok());
        assert!(of(&[0, 0, 0]).check().is_err());
        let mut wrong = of(&[0, 0, 0, 0]);
        wrong.bounds[1] = 1.0;
        assert!(wrong.check().is_err());
        wrong.bounds[1] = f64::NAN;
        assert!(wrong.check().is_err());
        let many = Distribution {
            bounds: (0..BUCKETS_MAX).map(|b| b as f64).collect(),
            counts: vec![0; BUCKETS_MAX + 1],
            ..Distribution::default()
        };
        assert!(many.check().is_err());
    }
}
