//! What one user and all users may hold of a tier.

use std::collections::BTreeMap;

use crate::block::UserId;

/// Bounds of a tier.
///
/// If one user may hold less than everything, users are strangers: a user may then take more as
/// long as the user holds no more bytes than remain free (dynamic thresholds, Choudhury and Hahne
/// 1998; docs/design/0006-strangers.md). A tier whose two bounds of bytes are equal belongs to one
/// user, who may have all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierBounds {
    /// Bytes that all users hold together.
    pub bytes_max: u64,
    /// Blocks that all users hold together.
    pub blocks_max: u64,
    /// Bytes that one user holds.
    pub user_bytes_max: u64,
    /// Blocks that one user holds.
    pub user_blocks_max: u64,
}

impl TierBounds {
    /// Bounds for several users, of whom one gets a half at most.
    pub fn shared(bytes_max: u64, blocks_max: u64) -> Self {
        Self {
            bytes_max,
            blocks_max,
            user_bytes_max: bytes_max / 2,
            user_blocks_max: blocks_max / 2,
        }
    }

    /// Bounds for one user.
    pub fn single(bytes_max: u64, blocks_max: u64) -> Self {
        Self {
            bytes_max,
            blocks_max,
            user_bytes_max: bytes_max,
            user_blocks_max: blocks_max,
        }
    }
}

/// What is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

/// Which bound a block would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundFault {
    /// That of the user.
    User,
    /// That of all users.
    Total,
}

/// What users hold of a tier.
#[derive(Debug)]
pub(crate) struct Budget {
    bounds: TierBounds,
    total: Held,
    users: BTreeMap<UserId, Held>,
}

impl Budget {
    pub(crate) fn new(bounds: TierBounds) -> Self {
        Self {
            bounds,
            total: Held::default(),
            users: BTreeMap::new(),
        }
    }

    pub(crate) fn total(&self) -> Held {
        self.total
    }

    pub(crate) fn user(&self, user: UserId) -> Held {
        self.users.get(&user).copied().unwrap_or_default()
    }

    /// The user who holds the most bytes.
    pub(crate) fn largest(&self) -> Option<UserId> {
        let largest = self.users.iter().max_by_key(|(_, held)| held.bytes);
        largest.map(|(user, _)| *user)
    }

    /// Takes room for one block.
    pub(crate) fn take(&mut self, user: UserId, bytes: u64) -> Result<(), BoundFault> {
        self.check(user, bytes)?;
        self.add(user, bytes);
        Ok(())
    }

    fn check(&self, user: UserId, bytes: u64) -> Result<(), BoundFault> {
        let (bounds, held) = (&self.bounds, self.user(user));
        let after = held.bytes.saturating_add(bytes);
        if after > bounds.user_bytes_max || held.blocks >= bounds.user_blocks_max {
            return Err(BoundFault::User);
        }
        let total = self.total.bytes.saturating_add(bytes);
        if total > bounds.bytes_max || self.total.blocks >= bounds.blocks_max {
            return Err(BoundFault::Total);
        }
        let are_strangers = bounds.user_bytes_max < bounds.bytes_max;
        match are_strangers && after > bounds.bytes_max - total {
            true => Err(BoundFault::User),
            false => Ok(()),
        }
    }

    /// Counts a block that is there, whatever the bounds are.
    pub(crate) fn add(&mut self, user: UserId, bytes: u64) {
        let held = self.users.entry(user).or_default();
        for held in [held, &mut self.total] {
            held.bytes += bytes;
            held.blocks += 1;
        }
    }

    /// Gives the room of a block back.
    pub(crate) fn give(&mut self, user: UserId, bytes: u64) {
        let Some(held) = self.users.get_mut(&user) else {
            return;
        };
        for held in [&mut *held, &mut self.total] {
            held.bytes = held.bytes.saturating_sub(bytes);
            held.blocks = held.blocks.saturating_sub(1);
        }
        if held.blocks == 0 {
            self.users.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_leave_room_for_each_other() {
        let mut budget = Budget::new(TierBounds::shared(100, 100));
        assert_eq!(budget.take(1, 51), Err(BoundFault::User));
        assert_eq!(budget.take(1, 50), Ok(()));
        assert_eq!(budget.take(1, 1), Err(BoundFault::User));
        assert_eq!(budget.take(2, 26), Err(BoundFault::User));
        assert_eq!(budget.take(2, 25), Ok(()));
        assert_eq!(budget.take(3, 26), Err(BoundFault::Total));
        assert_eq!(budget.take(3, 12), Ok(()));
        budget.give(1, 50);
        assert_eq!((budget.largest(), budget.total().bytes), (Some(2), 37));
        let mut single = Budget::new(TierBounds::single(100, 2));
        assert_eq!(single.take(1, 99), Ok(()));
        assert_eq!(single.take(1, 1), Ok(()));
        assert_eq!(single.take(1, 0), Err(BoundFault::User));
    }
}
