//! The numbers of the samples of each life: which exist twice, and which are missing in between.

use std::collections::HashMap;

use barograph_model::SeriesId;

/// Most runs of numbers that are compared; an archive with more holes is not checked completely.
const RUNS_MAX: usize = 4 << 20;

/// The numbers found of each life, as runs without holes.
#[derive(Default)]
pub(super) struct LifeNumbers {
    runs: HashMap<(SeriesId, i64), Vec<(u64, u64)>>,
    count: usize,
    /// Whether there are more holes than are compared.
    pub(super) full: bool,
}

impl LifeNumbers {
    pub(super) fn add(&mut self, id: SeriesId, life: i64, numbers: &[u64]) {
        let runs = self.runs.entry((id, life)).or_default();
        for number in numbers {
            match runs.last_mut() {
                Some((_, last)) if *number == *last + 1 => *last = *number,
                _ if self.count >= RUNS_MAX => self.full = true,
                _ => {
                    runs.push((*number, *number));
                    self.count += 1;
                }
            }
        }
    }

    /// Returns how many numbers exist twice, and how many are missing.
    pub(super) fn count(self) -> (u64, u64) {
        let (mut twice, mut missing) = (0, 0);
        for mut runs in self.runs.into_values() {
            runs.sort_unstable();
            let mut runs = runs.into_iter();
            let Some((_, mut last)) = runs.next() else {
                continue;
            };
            for (from, to) in runs {
                missing += from.saturating_sub(last + 1);
                twice += (last.min(to) + 1).saturating_sub(from);
                last = last.max(to);
            }
        }
        (twice, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_doubles() {
        for (numbers, expect) in [
            (&[&[1, 2, 3][..], &[4, 5]][..], (0, 0)),
            (&[&[1, 2, 9], &[3, 4]], (0, 4)),
            (&[&[1, 2, 3], &[2, 3, 4]], (2, 0)),
            (&[&[1, 2, 3, 4, 5], &[2], &[9]], (1, 3)),
            (&[&[7]], (0, 0)),
        ] {
            let mut seen = LifeNumbers::default();
            for numbers in numbers {
                seen.add(SeriesId([0; 16]), 1, numbers);
            }
            assert_eq!(seen.count(), expect, "{numbers:?}");
        }
    }
}
