//! Marks: how far the rings of programs were read, in the same frames as the samples from these
//! records.
//!
//! A frame is complete or does not count. So a reader that finds a mark finds every sample before
//! it, and a reader that does not finds none of them: records that are read again after a crash can
//! be distinguished from new ones.

use std::collections::BTreeMap;

use barograph_stream::Incarnation;

/// Size of a mark in a file, in bytes.
pub(crate) const MARK_BYTES: usize = 32;
/// Most marks that a writer keeps, and a start returns. Those that moved longest ago are dropped
/// first: rings whose tails have long passed them.
pub(crate) const MARKS_MAX: usize = 1 << 16;

/// The position up to which a ring of a process was read: every sample from an earlier record that
/// belongs to this archive is in it, or was counted as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingMark {
    /// The life of the process's ingest file.
    pub incarnation: Incarnation,
    /// Index of the ring in that process.
    pub ring: u32,
    /// Position in the ring: all records before it were read.
    pub position: u64,
}

impl RingMark {
    /// Appends the mark to the payload of a frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.incarnation.0);
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.ring.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    pub(crate) fn parse(bytes: &[u8; MARK_BYTES]) -> Self {
        let (incarnation, rest) = bytes.split_first_chunk().expect("16 of 32 bytes");
        let (position, rest) = rest.split_first_chunk().expect("8 of 16 bytes");
        let ring = rest.first_chunk().expect("4 of 8 bytes");
        Self {
            incarnation: Incarnation(*incarnation),
            ring: u32::from_le_bytes(*ring),
            position: u64::from_le_bytes(*position),
        }
    }
}

/// The marks of a log, the last one of each ring.
#[derive(Debug, Default)]
pub(crate) struct RingMarks {
    of: BTreeMap<([u8; 16], u32), Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    position: u64,
    /// The batch that last moved the mark, and its position before; `None` if it was new.
    moved: (u64, Option<u64>),
}

impl RingMarks {
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Takes a mark of a batch. A mark only moves forward.
    pub(crate) fn take(&mut self, mark: RingMark, batch: u64) {
        let key = (mark.incarnation.0, mark.ring);
        let place = self.of.entry(key).or_insert(Place {
            position: 0,
            moved: (batch, None),
        });
        if place.moved.0 != batch {
            place.moved = (batch, Some(place.position));
        }
        place.position = place.position.max(mark.position);
        if self.of.len() > MARKS_MAX {
            self.thin_out();
        }
    }

    /// Drops the half of the marks that moved longest ago.
    fn thin_out(&mut self) {
        let mut batches: Vec<u64> = self.of.values().map(|place| place.moved.0).collect();
        let middle = batches.len() / 2;
        let (_, middle_batch, _) = batches.select_nth_unstable(middle);
        let middle_batch = *middle_batch;
        let newer = batches[middle..].iter().filter(|b| **b > middle_batch);
        let mut left = (MARKS_MAX / 2).saturating_sub(newer.count());
        // Of the marks that moved in the middle batch, as many stay as there is room for.
        self.of.retain(|_, place| {
            let is_middle = place.moved.0 == middle_batch && left > 0;
            left -= usize::from(is_middle);
            is_middle || place.moved.0 > middle_batch
        });
        tracing::warn!(
            "programs have more rings than the log keeps marks: values of some may be there twice when the agent is killed"
        );
    }

    /// Restores the marks as they were before this batch.
    pub(crate) fn undo(&mut self, batch: u64) {
        self.of.retain(|_, place| match place.moved {
            (moved, before) if moved == batch => {
                place.position = before.unwrap_or(0);
                before.is_some()
            }
            _ => true,
        });
    }

    /// Drops the marks of a process whose file is gone.
    pub(crate) fn forget(&mut self, incarnation: Incarnation) {
        let rings = (incarnation.0, 0)..=(incarnation.0, u32::MAX);
        let rings: Vec<_> = self.of.range(rings).map(|(key, _)| *key).collect();
        for key in rings {
            self.of.remove(&key);
        }
    }

    /// Returns all marks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RingMark> {
        self.of
            .iter()
            .map(|(&(incarnation, ring), place)| RingMark {
                incarnation: Incarnation(incarnation),
                ring,
                position: place.position,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(process: u8, ring: u32, position: u64) -> RingMark {
        RingMark {
            incarnation: Incarnation([process; 16]),
            ring,
            position,
        }
    }

    #[test]
    fn bytes_and_back() {
        let mark = mark(7, 3, 1 << 40);
        let mut bytes = Vec::new();
        mark.encode(&mut bytes);
        assert_eq!(RingMark::parse(bytes[..].try_into().unwrap()), mark);
    }

    #[test]
    fn a_batch_that_is_undone_leaves_what_was_before() {
        let mut marks = RingMarks::default();
        marks.take(mark(1, 0, 10), 1);
        marks.take(mark(1, 0, 20), 2);
        marks.take(mark(1, 0, 15), 2);
        marks.take(mark(2, 0, 5), 2);
        assert!(marks.iter().eq([mark(1, 0, 20), mark(2, 0, 5)]));
        for _ in 0..2 {
            marks.undo(2);
            assert!(marks.iter().eq([mark(1, 0, 10)]));
            marks.take(mark(1, 0, 30), 2);
        }
        marks.take(mark(1, 0, 40), 3);
        marks.undo(3);
        assert!(marks.iter().eq([mark(1, 0, 30)]));
    }

    #[test]
    fn who_is_forgotten_is_forgotten_with_all_rings() {
        let mut marks = RingMarks::default();
        for ring in [0, 1, u32::MAX] {
            for process in 1..4 {
                marks.take(mark(process, ring, 1), 1);
            }
        }
        marks.forget(Incarnation([2; 16]));
        assert_eq!(marks.iter().count(), 6);
        assert!(marks.iter().all(|mark| mark.incarnation.0[0] != 2));
    }

    #[test]
    fn when_there_are_too_many_the_oldest_go() {
        let mut marks = RingMarks::default();
        let most = MARKS_MAX as u32;
        for ring in 0..most {
            marks.take(mark(1, ring, 1), u64::from(ring / 100));
        }
        marks.take(mark(2, 0, 1), u64::from(most));
        let left: Vec<RingMark> = marks.iter().collect();
        assert!((1..=MARKS_MAX / 2).contains(&left.len()), "{}", left.len());
        assert!(left.contains(&mark(2, 0, 1)));
        assert!(!left.contains(&mark(1, 0, 1)));
        // All marks are in one batch: the number is bounded even so.
        for ring in 0..2 * most {
            marks.take(mark(3, ring, 1), u64::MAX);
        }
        assert!(marks.iter().count() <= MARKS_MAX);
    }
}
