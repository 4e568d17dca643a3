//! Amounts that users share: places, memory, streams. A user's share shrinks as more users come, so
//! that neither one user nor several together can take all of it.
//!
//! A user may take more as long as he then holds no more than is left free: alone he gets a half,
//! two users get a third each, `k` users one part of `k + 1` each; a user that holds nothing may
//! take the last of it. (For the buffers of network switches this is known as dynamic thresholds:
//! Choudhury and Hahne, 1998.)

use std::collections::HashMap;
use std::hash::Hash;

/// An amount that several users share.
#[derive(Debug)]
pub(crate) struct Shares<U> {
    total_max: u64,
    of_user_max: u64,
    /// Whether there may be other users; otherwise one user may take all.
    is_shared: bool,
    taken: u64,
    by_user: HashMap<U, u64>,
}

impl<U: Hash + Eq> Shares<U> {
    /// Shares of `total_max`, of which one user may hold at most `of_user_max`.
    pub(crate) fn new(total_max: u64, of_user_max: u64, is_shared: bool) -> Self {
        Self {
            total_max,
            of_user_max,
            is_shared,
            taken: 0,
            by_user: HashMap::new(),
        }
    }

    /// Whether this user may take `amount` more.
    pub(crate) fn has_room(&self, user: &U, amount: u64) -> bool {
        let held = self.by_user.get(user).copied().unwrap_or(0);
        let Some(left) = self
            .total_max
            .checked_sub(self.taken.saturating_add(amount))
        else {
            return false;
        };
        let wanted = held.saturating_add(amount);
        wanted <= self.of_user_max && (!self.is_shared || held == 0 || wanted <= left)
    }

    /// Takes `amount` for a user, if there is room; returns whether there was.
    pub(crate) fn take(&mut self, user: U, amount: u64) -> bool {
        let has_room = self.has_room(&user, amount);
        if has_room {
            self.taken += amount;
            *self.by_user.entry(user).or_default() += amount;
        }
        has_room
    }

    /// Gives back an amount that was taken.
    pub(crate) fn give_back(&mut self, user: &U, amount: u64) {
        let Some(held) = self.by_user.get_mut(user) else {
            return;
        };
        let amount = amount.min(*held);
        *held -= amount;
        self.taken -= amount;
        if *held == 0 {
            self.by_user.remove(user);
        }
    }

    /// The amount that all users hold.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes ones for a user until there is no room; returns their number.
    fn fill(shares: &mut Shares<u32>, user: u32) -> u64 {
        let mut count = 0;
        while shares.take(user, 1) {
            count += 1;
        }
        count
    }

    #[test]
    fn shares_shrink_as_users_come_and_the_last_place_is_a_newcomers() {
        let mut shares = Shares::new(1_200, 1_200, true);
        assert_eq!(fill(&mut shares, 1), 600);
        assert_eq!(fill(&mut shares, 2), 300);
        assert_eq!(fill(&mut shares, 3), 150);
        shares.give_back(&1, 600);
        // A user that had much gets the rest that the others leave.
        assert_eq!(fill(&mut shares, 1), 375);
        let mut few = Shares::new(3, 3, true);
        assert_eq!([1, 2, 3, 4].map(|user| fill(&mut few, user)), [1, 1, 1, 0]);
        let mut alone = Shares::new(9, 9, false);
        assert_eq!(fill(&mut alone, 1), 9);
        let mut bounded = Shares::new(100, 7, true);
        assert_eq!(fill(&mut bounded, 1), 7);
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let mut shares = Shares::new(8, 8, true);
        assert!(shares.take("eve", 4) && !shares.take("eve", 1));
        shares.give_back(&"bob", 3);
        shares.give_back(&"eve", 3);
        assert!(shares.take("eve", 2) && shares.take("bob", 2));
        shares.give_back(&"eve", 9);
        shares.give_back(&"bob", 2);
        assert!(shares.by_user.is_empty() && shares.taken == 0);
        assert!(!shares.take("eve", u64::MAX));
    }

    #[test]
    fn colluding_users_leave_room_for_one_who_comes() {
        let mut shares = Shares::new(1_000, 1_000, true);
        for n in 0..4_000u64 {
            let (user, amount) = (n * 7_919 % 20, 1 + n * 104_729 % 50);
            shares.take(user, amount);
            assert_eq!(shares.by_user.values().sum::<u64>(), shares.taken);
        }
        // Users that hold anything have left some.
        assert!(shares.taken < 1_000, "{}", shares.taken);
        assert!(shares.take(99, 1));
    }
}
