//! The pace of a dispute: another controller writes the same file, and ours gives way for a time
//! that doubles with each turn. Two controllers that overwrite each other at once would change the
//! shares of everybody on the device all the time.
//!
//! It is a file of its own because it is pure: times are arguments.

use barograph_model::NS_PER_S;

/// The wait after the first write of another controller.
pub const FIGHT_WAIT_NS_MIN: i64 = NS_PER_S;
/// The longest wait.
pub const FIGHT_WAIT_NS_MAX: i64 = 60 * NS_PER_S;
/// The number of turns after which a lease ends and the file is the other controller's.
pub const FIGHTS_MAX: u32 = 8;
/// The time without a dispute after which earlier ones are forgotten.
const FORGET_NS: i64 = 10 * FIGHT_WAIT_NS_MAX;

/// The dispute about one file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fight {
    /// Turns since the dispute began.
    turns: u32,
    /// Turns in all.
    total: u64,
    last_ns: i64,
}

/// What follows from one more turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FightTurn {
    /// To write nothing before this time.
    Wait { until_ns: i64 },
    /// To give up.
    GiveUp,
}

impl Fight {
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Counts a value that somebody else has written.
    pub(crate) fn turn(&mut self, now_ns: i64) -> FightTurn {
        self.turns += 1;
        self.total += 1;
        self.last_ns = now_ns;
        if self.turns >= FIGHTS_MAX {
            return FightTurn::GiveUp;
        }
        let wait = FIGHT_WAIT_NS_MIN << (self.turns - 1);
        let until_ns = now_ns.saturating_add(wait.min(FIGHT_WAIT_NS_MAX));
        FightTurn::Wait { until_ns }
    }

    /// Notes that the file has what was written.
    pub(crate) fn calm(&mut self, now_ns: i64) {
        if now_ns.saturating_sub(self.last_ns) >= FORGET_NS {
            self.turns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_it_gives_up() {
        let mut fight = Fight::default();
        let mut waits = Vec::new();
        let mut now = 0;
        while let FightTurn::Wait { until_ns } = fight.turn(now) {
            waits.push((until_ns - now) / NS_PER_S);
            now = until_ns;
            fight.calm(now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(fight.turns(), FIGHTS_MAX);
    }

    #[test]
    fn a_dispute_is_forgotten_after_a_calm_time_and_stays_counted() {
        let mut fight = Fight::default();
        fight.turn(0);
        fight.turn(0);
        fight.calm(FORGET_NS - 1);
        assert_eq!(fight.turns(), 2);
        fight.calm(FORGET_NS);
        assert_eq!((fight.turns(), fight.total()), (0, 2));
        let until_ns = i64::MAX;
        assert_eq!(fight.turn(i64::MAX), FightTurn::Wait { until_ns });
        // A clock that was set back.
        fight.calm(i64::MIN);
        assert_eq!(fight.turns(), 1);
    }
}
