//! The score by which blocks are evicted: what it would cost to have the block again, how likely
//! that is, and how much room it takes. It is that of GreedyDual-Size-Frequency (Cherkasova 1998),
//! with the age in place of an ageing counter.

use barograph_model::seconds;

/// The least length that counts, in bytes: the bookkeeping of a block takes room too.
const BYTES_MIN: u64 = 4_096;

/// What is known of a copy that might be evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreInput {
    /// The length of the block.
    pub(crate) bytes: u64,
    /// The time since it was last used.
    pub(crate) age_ns: i64,
    /// How often it was used since it came here.
    pub(crate) uses: u32,
    /// What it takes to have it here again, in microseconds.
    pub(crate) refetch_us: u64,
}

/// The worth of a copy for each byte; the copy with the least is evicted first.
pub(crate) fn score(input: ScoreInput) -> f64 {
    let uses = f64::from(input.uses) + 1.0;
    let age_s = seconds(input.age_ns.max(0)) + 1e-3;
    let cost_us = input.refetch_us as f64 + 1.0;
    cost_us * uses / age_s / input.bytes.max(BYTES_MIN) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: ScoreInput = ScoreInput {
        bytes: 1 << 20,
        age_ns: 1_000_000_000,
        uses: 1,
        refetch_us: 1_000,
    };

    #[test]
    fn what_is_old_large_seldom_or_cheap_goes_first() {
        let cases = [
            (
                "old",
                ScoreInput {
                    age_ns: 9_000_000_000,
                    ..BASE
                },
            ),
            (
                "large",
                ScoreInput {
                    bytes: 9 << 20,
                    ..BASE
                },
            ),
            ("seldom", ScoreInput { uses: 0, ..BASE }),
            (
                "cheap",
                ScoreInput {
                    refetch_us: 10,
                    ..BASE
                },
            ),
        ];
        for (what, input) in cases {
            assert!(score(input) < score(BASE), "{what}");
        }
        // A clock that went back makes a block young, not an error.
        assert!(score(ScoreInput { age_ns: -1, ..BASE }).is_finite());
    }
}
