//! The records that earlier lives of the agent took in from a process, by the marks in the archives
//! of the scopes.
//!
//! An agent that is killed has taken in more than the process's tails show. Each scope has a log of
//! its own and may have come further than another, so records are skipped separately for each
//! scope.

use std::collections::BTreeMap;

use barograph_archive::RingMark;
use barograph_stream::ingest::IngestFile;
use tracing::debug;

use barograph_stream::ScopeReader;

/// Ring number of the marks of values that a program dropped itself: no ring has this number, and
/// the position is a count.
pub(crate) const DROPPED_RING: u32 = u32::MAX;
/// Ring number of the marks of frames that were made of cells: the position is their number.
pub(crate) const FRAMES_RING: u32 = u32::MAX - 1;

/// The position up to which each ring was read, for each scope.
#[derive(Debug, Default)]
pub(crate) struct TakenMarks {
    of: BTreeMap<(u32, ScopeReader), u64>,
    /// Number of values dropped by the program that were counted in each scope.
    dropped: BTreeMap<ScopeReader, u64>,
    /// Number of frames made of its cells.
    frames: u64,
    group: Option<u32>,
}

impl TakenMarks {
    pub(crate) fn add(&mut self, reader: ScopeReader, mark: &RingMark) {
        let position = match mark.ring {
            DROPPED_RING => self.dropped.entry(reader).or_default(),
            FRAMES_RING => &mut self.frames,
            ring => self.of.entry((ring, reader)).or_default(),
        };
        *position = mark.position.max(*position);
        if let ScopeReader::Group(gid) = reader {
            self.group = Some(gid);
        }
    }

    /// Whether nothing of the process was taken in before.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.dropped.is_empty() && self.frames == 0
    }

    /// Number of frames of its cells that some scope has; the next frame gets a number that none
    /// has.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Number of values dropped by the program that a scope has counted.
    pub(crate) fn dropped(&self, reader: ScopeReader) -> u64 {
        self.dropped.get(&reader).copied().unwrap_or(0)
    }

    /// The group of its publications: nothing else knows it once the process is gone.
    pub(crate) fn group(&self) -> Option<u32> {
        self.group
    }

    /// Whether a scope has the record that ends before position `next`.
    #[inline]
    pub(crate) fn has(&self, reader: ScopeReader, ring: u32, next: u64) -> bool {
        !self.of.is_empty() && self.of.get(&(ring, reader)).is_some_and(|to| next <= *to)
    }

    /// Skips the records that all scopes of a process have, which are on disk, and sets the tails
    /// after them. All declarations in the file must have been taken before this call.
    pub(crate) fn skip(
        &mut self,
        file: &mut IngestFile,
        readers: impl Iterator<Item = ScopeReader>,
    ) {
        if self.of.is_empty() {
            return;
        }
        let readers: Vec<ScopeReader> = readers.collect();
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

    /// The position up to which all of these scopes have a ring.
    fn by_all(&self, readers: &[ScopeReader], ring: u32) -> u64 {
        let positions = readers
            .iter()
            .map(|reader| self.of.get(&(ring, *reader)).copied());
        positions.map(Option::unwrap_or_default).min().unwrap_or(0)
    }

    /// Forgets marks that lie behind the positions.
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

    const ALL: ScopeReader = ScopeReader::All;
    const ALICE: ScopeReader = ScopeReader::User(1_000);

    fn taken(marks: &[(ScopeReader, u32, u64)]) -> TakenMarks {
        let mut taken = TakenMarks::default();
        for &(reader, ring, position) in marks {
            let incarnation = Incarnation([1; 16]);
            taken.add(
                reader,
                &RingMark {
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
            (&[ALL, ScopeReader::Group(5)], 0, 0),
            (&[], 0, 0),
        ] {
            assert_eq!(taken.by_all(readers, ring), expect);
        }
    }

    #[test]
    fn what_is_behind_is_forgotten() {
        let mut taken = taken(&[(ALL, 0, 10), (ScopeReader::Group(5), 0, 7), (ALL, 9, 3)]);
        taken.pass(&[7]);
        assert!(taken.has(ALL, 0, 10) && !taken.has(ScopeReader::Group(5), 0, 7));
        assert!(taken.has(ALL, 9, 3), "a ring that was not seen yet");
        taken.pass(&[10, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert!(taken.of.is_empty());
        assert_eq!(taken.group(), Some(5));
    }
}
