//! Which segment a reader asks for next: by the stride of its last reads, and by what followed
//! the segment before, for any reader (a Markov chain of first order).
//!
//! A stride that was seen twice is believed first, since it knows of segments that nobody has read
//! yet. What followed before helps with files that are read in the same odd order again.

use std::collections::{BTreeMap, VecDeque};

/// Most readers whose strides are kept; beyond it the first one is forgotten.
pub const READERS_MAX: usize = 16_384;
/// Most segments of which it is kept what followed; beyond it the oldest is forgotten.
pub const TRANSITIONS_MAX: usize = 65_536;
/// Most successors of a segment; beyond it the rarest is forgotten.
pub const SUCCESSORS_MAX: usize = 4;

/// Times that a stride was seen until it is believed in full.
const STRIDE_SEEN_MAX: u32 = 8;

/// A segment that may be asked for next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedSegment {
    /// The number of the segment.
    pub segment: u64,
    /// The probability that it is asked for, as far as counts tell.
    pub probability: f64,
    /// How many reads of this reader are before it: 1 for the next.
    pub ahead: u32,
}

/// What was read after what.
#[derive(Clone, Debug, Default)]
pub struct SegmentSequences {
    readers: BTreeMap<u64, ReaderStride>,
    reader_order: VecDeque<u64>,
    followed: BTreeMap<u64, Vec<(u64, u32)>>,
    followed_order: VecDeque<u64>,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct ReaderStride {
    last: u64,
    stride: i64,
    seen: u32,
}

impl SegmentSequences {
    /// Takes in a read of a reader: a process, or one of its files.
    pub fn read(&mut self, reader: u64, segment: u64) {
        let Some(before) = self.readers.get_mut(&reader) else {
            self.begin(reader, segment);
            return;
        };
        let last = before.last;
        // Numbers wrap, and so do strides: any two segments have one.
        let stride = segment.wrapping_sub(last).cast_signed();
        before.seen = match stride == before.stride && stride != 0 {
            true => before.seen.saturating_add(1).min(STRIDE_SEEN_MAX),
            false => 1,
        };
        (before.last, before.stride) = (segment, stride);
        self.follow(last, segment);
    }

    /// The segments that a reader is expected to ask for, up to so many reads ahead, the likeliest
    /// first. Empty if it has read nothing.
    pub fn predict(&self, reader: u64, ahead_max: u32) -> Vec<PredictedSegment> {
        let Some(state) = self.readers.get(&reader) else {
            return Vec::new();
        };
        let mut predicted = match state.seen >= 2 && state.stride != 0 {
            true => Self::along(state, ahead_max),
            false => self.after(state.last, ahead_max),
        };
        predicted.sort_by(|a, b| {
            let likelier = b.probability.total_cmp(&a.probability);
            likelier.then(a.ahead.cmp(&b.ahead))
        });
        predicted
    }

    /// How many readers and segments were forgotten, since there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn begin(&mut self, reader: u64, segment: u64) {
        if self.readers.len() == READERS_MAX
            && let Some(oldest) = self.reader_order.pop_front()
        {
            self.readers.remove(&oldest);
            self.forgotten += 1;
        }
        let state = ReaderStride {
            last: segment,
            stride: 0,
            seen: 0,
        };
        self.readers.insert(reader, state);
        self.reader_order.push_back(reader);
    }

    fn follow(&mut self, last: u64, segment: u64) {
        if !self.followed.contains_key(&last) {
            if self.followed.len() == TRANSITIONS_MAX
                && let Some(oldest) = self.followed_order.pop_front()
            {
                self.followed.remove(&oldest);
                self.forgotten += 1;
            }
            self.followed_order.push_back(last);
        }
        let successors = self.followed.entry(last).or_default();
        match successors.iter_mut().find(|(it, _)| *it == segment) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => {
                if successors.len() == SUCCESSORS_MAX {
                    successors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
                    successors.pop();
                }
                successors.push((segment, 1));
            }
        }
    }

    fn along(state: &ReaderStride, ahead_max: u32) -> Vec<PredictedSegment> {
        // By the rule of succession: seen `n` times of `n`, it goes on with (n + 1) / (n + 2).
        let once = f64::from(state.seen + 1) / f64::from(state.seen + 2);
        let step = |ahead: u32| {
            let by = state.stride.wrapping_mul(i64::from(ahead));
            PredictedSegment {
                segment: state.last.wrapping_add(by.cast_unsigned()),
                probability: once.powf(f64::from(ahead)),
                ahead,
            }
        };
        (1..=ahead_max.min(1_024)).map(step).collect()
    }

    /// The successors of a segment, and the likeliest ones of the likeliest.
    fn after(&self, last: u64, ahead_max: u32) -> Vec<PredictedSegment> {
        let mut predicted: Vec<PredictedSegment> = Vec::new();
        let (mut at, mut reached) = (last, 1.0);
        for ahead in 1..=ahead_max.min(1_024) {
            let Some(successors) = self.followed.get(&at) else {
                break;
            };
            let all: u32 = successors.iter().map(|(_, count)| *count).sum();
            for (segment, count) in successors {
                let is_new = predicted.iter().all(|it| it.segment != *segment);
                if is_new {
                    predicted.push(PredictedSegment {
                        segment: *segment,
                        probability: reached * f64::from(*count) / f64::from(all + 1),
                        ahead,
                    });
                }
            }
            let Some((next, count)) = successors.iter().max_by_key(|(_, count)| *count) else {
                break;
            };
            reached *= f64::from(*count) / f64::from(all + 1);
            at = *next;
        }
        predicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(sequences: &SegmentSequences, reader: u64) -> Option<u64> {
        sequences.predict(reader, 1).first().map(|it| it.segment)
    }

    #[test]
    fn strides_and_orders_are_learned() {
        // What a reader has read, and what it is expected to ask for.
        let table: &[(&[u64], Option<u64>)] = &[
            (&[], None),
            (&[5], None),
            (&[5, 6, 7], Some(8)),
            (&[9, 7, 5], Some(3)),
            (&[0, 10, 20], Some(30)),
            (&[1, 8, 3, 1], Some(8)),
            (&[u64::MAX - 1, u64::MAX, 0], Some(1)),
        ];
        for (reads, expect) in table {
            let mut sequences = SegmentSequences::default();
            for segment in *reads {
                sequences.read(1, *segment);
            }
            assert_eq!(first(&sequences, 1), *expect, "{reads:?}");
        }
    }

    #[test]
    fn what_one_reader_did_helps_another() {
        let mut sequences = SegmentSequences::default();
        for segment in [4, 90, 17, 33] {
            sequences.read(1, segment);
        }
        sequences.read(2, 90);
        let predicted = sequences.predict(2, 2);
        let segments: Vec<u64> = predicted.iter().map(|it| it.segment).collect();
        assert_eq!(segments, [17, 33]);
        assert!(predicted[0].probability > predicted[1].probability);
    }

    #[test]
    fn memory_is_bounded() {
        let mut sequences = SegmentSequences::default();
        for number in 0..70_000_u64 {
            sequences.read(number, number * 7);
            sequences.read(0, number * number);
        }
        assert!(sequences.readers.len() <= READERS_MAX);
        assert!(sequences.reader_order.len() <= READERS_MAX);
        assert!(sequences.followed.len() <= TRANSITIONS_MAX);
        assert!(sequences.followed_order.len() <= TRANSITIONS_MAX);
        assert!(sequences.forgotten() > 0);
    }
}
