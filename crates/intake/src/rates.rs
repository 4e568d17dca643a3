//! Limits of how fast each user's records are gone through.

use std::collections::HashMap;

use barograph_model::NS_PER_S;

/// The number of records that each user may still use, as token buckets that fill at a steady rate
/// and hold one second's worth. Every record counts: values, frames, answers, pieces, and malformed
/// ones.
pub(crate) struct RecordRates {
    rate_max: f64,
    left: HashMap<u32, (f64, i64)>,
}

impl RecordRates {
    pub(crate) fn new(rate_max: f64) -> Self {
        let left = HashMap::new();
        Self { rate_max, left }
    }

    pub(crate) fn allowed(&mut self, uid: u32, now_ns: i64) -> u64 {
        let (left, since_ns) = self.left.entry(uid).or_insert((self.rate_max, now_ns));
        let seconds = now_ns.saturating_sub(*since_ns).max(0) as f64 / NS_PER_S as f64;
        *left = (*left + seconds * self.rate_max).min(self.rate_max);
        *since_ns = now_ns;
        left.max(0.0) as u64
    }

    pub(crate) fn used(&mut self, uid: u32, records: u64) {
        if let Some((left, _)) = self.left.get_mut(&uid) {
            *left -= records as f64;
        }
    }

    /// Forgets users whose buckets are full by now, as a new user's is.
    pub(crate) fn forget_idle(&mut self, now_ns: i64) {
        let rate_max = self.rate_max;
        self.left.retain(|_, (left, since_ns)| {
            let seconds = now_ns.saturating_sub(*since_ns).max(0) as f64 / NS_PER_S as f64;
            *left + seconds * rate_max < rate_max
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_is_there_at_once_and_who_is_idle_is_forgotten() {
        let mut rates = RecordRates::new(1_000.0);
        assert_eq!(rates.allowed(7, 0), 1_000);
        rates.used(7, 1_500);
        assert_eq!(rates.allowed(7, NS_PER_S / 2), 0);
        assert_eq!(rates.allowed(7, NS_PER_S), 500);
        rates.forget_idle(NS_PER_S);
        assert_eq!(rates.left.len(), 1);
        rates.forget_idle(2 * NS_PER_S);
        assert!(rates.left.is_empty());
    }
}
