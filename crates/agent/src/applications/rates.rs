//! How fast each user's values are taken in.

use std::collections::HashMap;

use barograph_model::NS_PER_S;

/// How many values each user has left, as buckets that fill at a steady rate and hold a second's worth.
pub struct Rates {
    rate_max: f64,
    left: HashMap<u32, (f64, i64)>,
}

impl Rates {
    pub fn new(rate_max: f64) -> Self {
        let left = HashMap::new();
        Self { rate_max, left }
    }

    pub fn allowed(&mut self, uid: u32, now_ns: i64) -> u64 {
        let (left, since_ns) = self.left.entry(uid).or_insert((self.rate_max, now_ns));
        let seconds = now_ns.saturating_sub(*since_ns).max(0) as f64 / NS_PER_S as f64;
        *left = (*left + seconds * self.rate_max).min(self.rate_max);
        *since_ns = now_ns;
        left.max(0.0) as u64
    }

    pub fn used(&mut self, uid: u32, values: u64) {
        if let Some((left, _)) = self.left.get_mut(&uid) {
            *left -= values as f64;
        }
    }
}
