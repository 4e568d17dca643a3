//! The rate of a counter between two reads.

use barograph_model::NS_PER_S;

/// A counter's last value and the monotonic time at which it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Meter {
    last: Option<(i64, u64)>,
}

impl Meter {
    /// Growth per second since the previous call. `None` on the first call, if the counter
    /// decreased (it was reset), or if no time passed.
    pub(crate) fn rate(&mut self, monotonic_ns: i64, value: u64) -> Option<f64> {
        let (then_ns, old) = self.last.replace((monotonic_ns, value))?;
        per_second(value.checked_sub(old)?, monotonic_ns.checked_sub(then_ns)?)
    }
}

/// A growth over a time as growth per second; `None` if no time passed.
pub(crate) fn per_second(growth: u64, elapsed_ns: i64) -> Option<f64> {
    (elapsed_ns > 0).then(|| growth as f64 * NS_PER_S as f64 / elapsed_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_gives_no_rate_for_its_step_only() {
        let mut meter = Meter::default();
        let s = NS_PER_S;
        assert_eq!(meter.rate(0, 100), None);
        assert_eq!(meter.rate(2 * s, 300), Some(100.0));
        assert_eq!(meter.rate(3 * s, 10), None);
        assert_eq!(meter.rate(4 * s, 30), Some(20.0));
        assert_eq!(meter.rate(4 * s, 50), None);
        assert_eq!(meter.rate(3 * s, 60), None);
    }
}
