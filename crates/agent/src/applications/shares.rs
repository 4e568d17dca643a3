//! How many streams each user has in a scope that several write to, so that none takes all places.

use std::collections::HashMap;

use barograph_model::StreamKey;

/// The streams of one scope, by user.
#[derive(Debug)]
pub struct Shares {
    per_user_max: u32,
    users: HashMap<StreamKey, Box<str>>,
    counts: HashMap<Box<str>, u32>,
}

impl Shares {
    pub fn new(per_user_max: u32) -> Self {
        Self {
            per_user_max,
            users: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Whether this user may have one more.
    pub fn has_room(&self, user: &str) -> bool {
        self.counts.get(user).copied().unwrap_or(0) < self.per_user_max
    }

    pub fn take(&mut self, key: StreamKey, user: &str) {
        if self.users.insert(key, user.into()).is_none() {
            *self.counts.entry(user.into()).or_default() += 1;
        }
    }

    pub fn give_back(&mut self, key: StreamKey) {
        let Some(user) = self.users.remove(&key) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_share() {
        let mut shares = Shares::new(2);
        shares.take(StreamKey(1), "eve");
        shares.take(StreamKey(2), "eve");
        assert!(!shares.has_room("eve") && shares.has_room("bob"));
        shares.give_back(StreamKey(1));
        // What it never had changes nothing.
        shares.give_back(StreamKey(1));
        shares.give_back(StreamKey(9));
        assert!(shares.has_room("eve"));
        shares.give_back(StreamKey(2));
        assert!(shares.counts.is_empty() && shares.users.is_empty());
    }
}
