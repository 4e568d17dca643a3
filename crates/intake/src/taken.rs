//! What earlier lives of the agent took in from a process, by the marks in the archives of the scopes.
//!
//! An agent that is killed has taken in more than it told the process (its tails). Each scope has a log of its
//! own and may have come further than another: so records are passed over for each scope by itself.

use std::collections::BTreeMap;

use barograph_archive::Mark;
use barograph_stream::ingest::IngestFile;
use tracing::debug;

use barograph_recorder::Reader;

/// Where the marks stand of what a program gave up itself: no ring has this number, and what is a position
/// elsewhere is a count there.
pub const DROPPED_RING: u32 = u32::MAX;
/// Where the marks stand of the frames that were made of cells: a position is how many.
pub const FRAMES_RING: u32 = u32::MAX - 1;

/// How far each ring was read, for each scope.
#[derive(Debug, Default)]
pub struct Taken {
    of: BTreeMap<(u32, Reader), u64>,
    /// Of what the program gave up itself, how much was counted.
    dropped: BTreeMap<Reader, u64>,
    /// How many frames were made of its cells.
    frames: u64,
    group: Option<u32>,
}

impl Taken {
    pub fn add(&mut self, reader: Reader, mark: &Mark) {
        let position = match mark.ring {
            DROPPED_RING => self.dropped.entry(reader).or_default(),
            FRAMES_RING => &mut self.frames,
            ring => self.of.entry((ring, reader)).or_default(),
        };
        *position = mark.position.max(*position);
        if let Reader::Group(gid) = reader {
            self.group = Some(gid);
        }
    }

    /// Whether nothing is known of the process from before.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty() && self.dropped.is_empty() && self.frames == 0
    }

    /// How many frames of its cells some scope has: the next has a number that none of them had.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// How many values that the program gave up itself were counted in a scope.
    pub fn dropped(&self, reader: Reader) -> u64 {
        self.dropped.get(&reader).copied().unwrap_or(0)
    }

    /// The group that its publications were for: of a process that is gone nobody else knows it.
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Whether a record that ends before `next` is in the scope already.
    #[inline]
    pub fn has(&self, reader: Reader, ring: u32, next: u64) -> bool {
        !self.of.is_empty() && self.of.get(&(ring, reader)).is_some_and(|to| next <= *to)
    }

    /// Passes over what all scopes of a process have, and tells it so: that is on disk. All whose records are
    /// in the file are declared before this is called.
    pub fn skip(&mut self, file: &mut IngestFile, readers: impl Iterator<Item = Reader>) {
        if self.of.is_empty() {
            return;
        }
        let readers: Vec<Reader> = readers.collect();
        let before: Vec<u64> = file.positions().collect();
        for (ring, position) in (0..).zip(&before) {
            let to = self.by_all(&readers, ring);
            file.skip_to(ring, to);
            let reached = file.positions().nth(ring as usize);
            if reached == Some(to)
                && to > *position
                && let Err(error) = file.set_tail(ring, to)
            {
                debug!(%error, "a process is not told how far it was read");
            }
        }
        let positions: Vec<u64> = file.positions().collect();
        self.pass(&positions);
    }

    /// Up to where a ring need not be read at all by a process that has these scopes.
    fn by_all(&self, readers: &[Reader], ring: u32) -> u64 {
        let positions = readers
            .iter()
            .map(|reader| self.of.get(&(ring, *reader)).copied());
        positions.map(Option::unwrap_or_default).min().unwrap_or(0)
    }

    /// Forgets what is behind by now.
    fn pass(&mut self, positions: &[u64]) {
        self.of.retain(|(ring, _), to| {
            let position = positions.get(*ring as usize);
            position.is_none_or(|position| position < to)
        });
    }
}

#[cfg(test)]
mod tests {
    use barograph_stream::Incarnation;

    use super::*;

    const ALL: Reader = Reader::All;
    const ALICE: Reader = Reader::User(1_000);

    fn taken(marks: &[(Reader, u32, u64)]) -> Taken {
        let mut taken = Taken::default();
        for &(reader, ring, position) in marks {
            let incarnation = Incarnation([1; 16]);
            taken.add(
                reader,
                &Mark {
                    incarnation,
                    ring,
                    position,
                },
            );
        }
        taken
    }

    #[test]
    fn each_scope_has_come_as_far_as_its_own_log_says() {
        let taken = taken(&[(ALL, 0, 10), (ALICE, 0, 7), (ALL, 1, 3)]);
        for (reader, ring, next, expect) in [
            (ALL, 0, 10, true),
            (ALL, 0, 11, false),
            (ALICE, 0, 7, true),
            (ALICE, 0, 8, false),
            (ALL, 1, 3, true),
            (ALICE, 1, 1, false),
            (ALL, 2, 1, false),
        ] {
            assert_eq!(
                taken.has(reader, ring, next),
                expect,
                "{reader:?} {ring} {next}"
            );
        }
        for (readers, ring, expect) in [
            (&[ALL][..], 0, 10),
            (&[ALL, ALICE], 0, 7),
            (&[ALL, ALICE], 1, 0),
            (&[ALL], 1, 3),
            (&[ALL, Reader::Group(5)], 0, 0),
            (&[], 0, 0),
        ] {
            assert_eq!(taken.by_all(readers, ring), expect);
        }
    }

    #[test]
    fn what_is_behind_is_forgotten() {
        let mut taken = taken(&[(ALL, 0, 10), (Reader::Group(5), 0, 7), (ALL, 9, 3)]);
        taken.pass(&[7]);
        assert!(taken.has(ALL, 0, 10) && !taken.has(Reader::Group(5), 0, 7));
        assert!(taken.has(ALL, 9, 3), "a ring that was not seen yet");
        taken.pass(&[10, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert!(taken.of.is_empty());
        assert_eq!(taken.group(), Some(5));
    }
}
