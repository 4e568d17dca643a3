//! The protocol between the one writer and the readers of a stream, over plain atomic words.
//!
//! The line of a stream is eight words: the sequence, the time of the last look, and two cells of
//! three words. Sample n (from 1) is written to cell n & 1 and to the ring; then the sequence
//! becomes n. So the cell that the sequence names is never being written: a reader that finds the
//! same sequence before and after its copy has a whole sample, and a writer that is killed at any
//! instruction leaves the last complete sample readable. The upper 16 bits of the sequence are the
//! generation of the slot; a handle of another generation never sees a value.
//!
//! The first word of a descriptor guards it in the same way, see [`rewrite`] and [`snapshot`].
//!
//! The functions are generic over [`Word`] so that loom can run them (see the tests).

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A 64-bit word that two processes share.
pub(crate) trait Word {
    /// Atomic load.
    fn get(&self, order: Ordering) -> u64;
    /// Atomic store.
    fn set(&self, value: u64, order: Ordering);
    /// Memory fence.
    fn barrier(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn get(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline(always)]
    fn set(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    #[inline(always)]
    fn barrier(order: Ordering) {
        fence(order);
    }
}

pub(crate) const LINE_WORDS: usize = 8;
/// Index of the word with the generation and the number of samples.
pub(crate) const SEQUENCE: usize = 0;
/// Index of the word with the time of the last look.
pub(crate) const LOOKED: usize = 1;
const CELLS: usize = 2;
/// Words of a cell: ts, value, meta.
pub(crate) const CELL_WORDS: usize = 3;

const GENERATION_SHIFT: u32 = 48;
/// The highest number of a sample, in one life of a stream.
pub const NUMBER_MAX: u64 = (1 << GENERATION_SHIFT) - 1;
/// The generation of a handle that matches no slot: generations in memory have 16 bits.
pub(crate) const GENERATION_NEVER: u32 = u32::MAX;

/// The words of one sample, as they are in memory.
pub(crate) type RawCell = [u64; CELL_WORDS];

/// Packs a generation and a number of samples into one word.
pub(crate) fn sequence(generation: u16, count: u64) -> u64 {
    (u64::from(generation) << GENERATION_SHIFT) | count
}

/// Splits a sequence into its generation and its number of samples.
pub(crate) fn split(sequence: u64) -> (u32, u64) {
    ((sequence >> GENERATION_SHIFT) as u32, sequence & NUMBER_MAX)
}

/// Empties a line and gives it a new generation.
pub(crate) fn reset<W: Word>(line: &[W], generation: u16) {
    // Readers see three steps in this order: the old generation ends, its cells are cleared, the
    // new generation begins. Without the fence, a reader of the old generation could take a cleared
    // cell for its sample.
    line[SEQUENCE].set(sequence(generation, 0), Ordering::Relaxed);
    W::barrier(Ordering::Release);
    for word in &line[LOOKED..LINE_WORDS] {
        word.set(0, Ordering::Relaxed);
    }
    line[SEQUENCE].set(sequence(generation, 0), Ordering::Release);
}

/// Writes sample `count + 1` into the ring cell and into the line, then publishes it.
#[inline(always)]
pub(crate) fn append<W: Word>(
    line: &[W],
    ring_cell: &[W],
    generation: u16,
    count: u64,
    cell: RawCell,
) {
    // Orders the stores below after the previous publication: a reader that sees any of them also
    // sees that the sequence has moved on (pairs with the acquire fence in `read` and `in_ring`).
    W::barrier(Ordering::Release);
    let next = count + 1;
    let at = CELLS + CELL_WORDS * (next & 1) as usize;
    for (i, &word) in cell.iter().enumerate() {
        ring_cell[i].set(word, Ordering::Relaxed);
        line[at + i].set(word, Ordering::Relaxed);
    }
    line[SEQUENCE].set(sequence(generation, next), Ordering::Release);
}

/// The newest sample, as it is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewestCell {
    /// The three words of the sample.
    pub cell: RawCell,
    /// The number of the sample, which is the number of samples so far.
    pub count: u64,
    /// Time until which the sample is known to have held, in ns.
    pub looked: u64,
}

/// The result of one attempt to read the newest sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadAttempt {
    /// A whole sample.
    Sample(NewestCell),
    /// The stream has no sample yet.
    Empty,
    /// The slot belongs to another stream now.
    Gone,
    /// The writer overtook the reader; try again.
    Raced,
}

/// Tries once to read the newest sample of `generation`.
#[inline(always)]
pub(crate) fn read<W: Word>(line: &[W], generation: u32) -> ReadAttempt {
    let before = line[SEQUENCE].get(Ordering::Acquire);
    let (found, count) = split(before);
    if found != generation {
        return ReadAttempt::Gone;
    }
    if count == 0 {
        return ReadAttempt::Empty;
    }
    let at = CELLS + CELL_WORDS * (count & 1) as usize;
    let cell = copy(&line[at..at + CELL_WORDS]);
    // Read under the same guard: the look of a later sample is no look at this one.
    let looked = line[LOOKED].get(Ordering::Relaxed);
    W::barrier(Ordering::Acquire);
    if line[SEQUENCE].get(Ordering::Relaxed) == before {
        ReadAttempt::Sample(NewestCell {
            cell,
            count,
            looked,
        })
    } else {
        ReadAttempt::Raced
    }
}

/// Copies the words of one cell.
#[inline(always)]
pub(crate) fn copy<W: Word>(words: &[W]) -> RawCell {
    [
        words[0].get(Ordering::Relaxed),
        words[1].get(Ordering::Relaxed),
        words[2].get(Ordering::Relaxed),
    ]
}

/// The number of the oldest sample whose ring cell cannot have been touched by a writer that has
/// published `count`: that writer may be writing sample `count + 1`, over sample `count + 1 -
/// depth`.
pub(crate) fn oldest_whole(count: u64, depth: u64) -> u64 {
    (count + 2).saturating_sub(depth).max(1)
}

/// Called after ring cells were copied: returns the number of the oldest sample that is surely
/// whole, or `None` if the slot now belongs to another stream.
#[inline]
pub(crate) fn whole_since<W: Word>(line: &[W], generation: u32, depth: u64) -> Option<u64> {
    W::barrier(Ordering::Acquire);
    let (found, count) = split(line[SEQUENCE].get(Ordering::Relaxed));
    (found == generation).then(|| oldest_whole(count, depth))
}

/// Replaces all words but the first, which identifies the owner, and then the first.
pub(crate) fn rewrite<W: Word>(words: &[W], new: &[u64], first: u64) {
    // As in `append`: a reader that sees a new word below also sees that the old owner's first word
    // has changed.
    W::barrier(Ordering::Release);
    for (word, &value) in words.iter().zip(new).skip(1) {
        word.set(value, Ordering::Relaxed);
    }
    words[0].set(first, Ordering::Release);
}

/// Copies words that belong together; `None` if they were replaced meanwhile.
pub(crate) fn snapshot<W: Word>(words: &[W], out: &mut [u64]) -> Option<()> {
    snapshot_of(words, out, |words, out| {
        for (value, word) in out.iter_mut().zip(words) {
            *value = word.get(Ordering::Relaxed);
        }
    })
}

/// Like [`snapshot`], for those of the words that `copy` copies; `copy` may see words that are
/// being replaced.
pub(crate) fn snapshot_of<W: Word, O: AsMut<[u64]> + ?Sized>(
    words: &[W],
    out: &mut O,
    copy: impl FnOnce(&[W], &mut O),
) -> Option<()> {
    let before = words[0].get(Ordering::Acquire);
    copy(words, out);
    out.as_mut()[0] = before;
    W::barrier(Ordering::Acquire);
    (words[0].get(Ordering::Relaxed) == before).then_some(())
}

#[cfg(test)]
mod tests {
    //! The protocol under loom: every interleaving and every reordering that the memory model
    //! allows, for a writer of a few samples and a reader.

    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as LoomU64;
    use loom::thread;

    impl Word for LoomU64 {
        fn get(&self, order: Ordering) -> u64 {
            self.load(order)
        }
        fn set(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
        fn barrier(order: Ordering) {
            loom::sync::atomic::fence(order);
        }
    }

    const DEPTH: usize = 2;

    struct Memory {
        line: Vec<LoomU64>,
        ring: Vec<LoomU64>,
    }

    fn memory() -> Arc<Memory> {
        let words = |n: usize| (0..n).map(|_| LoomU64::new(0)).collect();
        let memory = Memory {
            line: words(8),
            ring: words(CELL_WORDS * DEPTH),
        };
        memory.line[SEQUENCE].set(sequence(1, 0), Ordering::Relaxed);
        Arc::new(memory)
    }

    fn write(memory: &Memory, count: u64) {
        let n = count + 1;
        let at = CELL_WORDS * (count as usize % DEPTH);
        append(
            &memory.line,
            &memory.ring[at..at + CELL_WORDS],
            1,
            count,
            [n, n * 10, n * 100],
        );
    }

    fn is_whole(cell: RawCell, n: u64) -> bool {
        cell == [n, n * 10, n * 100]
    }

    #[test]
    fn the_newest_sample_is_never_torn() {
        loom::model(|| {
            let memory = memory();
            let writer = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || (0..3).for_each(|count| write(&memory, count)))
            };
            match read(&memory.line, 1) {
                ReadAttempt::Sample(newest) => {
                    assert!(is_whole(newest.cell, newest.count), "{newest:?}");
                }
                ReadAttempt::Empty | ReadAttempt::Raced => {}
                ReadAttempt::Gone => panic!("the generation did not change"),
            }
            writer.join().unwrap();
            let last = NewestCell {
                cell: [3, 30, 300],
                count: 3,
                looked: 0,
            };
            assert_eq!(read(&memory.line, 1), ReadAttempt::Sample(last));
        });
    }

    #[test]
    fn a_lapped_ring_is_noticed() {
        loom::model(|| {
            let memory = memory();
            write(&memory, 0);
            let writer = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || (1..3).for_each(|count| write(&memory, count)))
            };
            let (_, count) = split(memory.line[SEQUENCE].get(Ordering::Acquire));
            let at = CELL_WORDS * ((count as usize - 1) % DEPTH);
            let cell = copy(&memory.ring[at..at + CELL_WORDS]);
            let whole = whole_since(&memory.line, 1, DEPTH as u64).unwrap();
            if count >= whole {
                assert!(
                    is_whole(cell, count),
                    "{cell:?} of {count}, whole since {whole}"
                );
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_handle_of_an_older_generation_sees_nothing_of_the_next() {
        loom::model(|| {
            let memory = memory();
            write(&memory, 0);
            memory.line[LOOKED].set(1, Ordering::Release);
            let writer = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    // In the order in which `Segment` retires and registers, and `StreamWriter`
                    // appends.
                    memory.line[SEQUENCE].set(sequence(2, 0), Ordering::Release);
                    reset(&memory.line, 2);
                    append(&memory.line, &memory.ring[..CELL_WORDS], 2, 0, [7, 7, 7]);
                    memory.line[LOOKED].set(7, Ordering::Release);
                })
            };
            match read(&memory.line, 1) {
                ReadAttempt::Sample(newest) => {
                    assert!(is_whole(newest.cell, newest.count), "{newest:?}");
                    assert_eq!(newest.looked, 1, "a look of the next generation");
                }
                ReadAttempt::Gone | ReadAttempt::Raced => {}
                ReadAttempt::Empty => panic!("generation 1 had a sample"),
            }
            writer.join().unwrap();
            assert_eq!(read(&memory.line, 1), ReadAttempt::Gone);
            assert_eq!(read(&memory.line, GENERATION_NEVER), ReadAttempt::Gone);
        });
    }

    #[test]
    fn a_ring_handed_to_another_slot_shows_its_old_readers_nothing() {
        loom::model(|| {
            let memory = memory();
            write(&memory, 0);
            let writer = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    memory.line[SEQUENCE].set(sequence(2, 0), Ordering::Release);
                    let other: Vec<_> = (0..LINE_WORDS).map(|_| LoomU64::new(0)).collect();
                    append(&other, &memory.ring[..CELL_WORDS], 1, 0, [7, 7, 7]);
                })
            };
            let cell = copy(&memory.ring[..CELL_WORDS]);
            if whole_since(&memory.line, 1, DEPTH as u64).is_some() {
                assert!(is_whole(cell, 1), "{cell:?}");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_look_belongs_to_its_sample() {
        loom::model(|| {
            let memory = memory();
            write(&memory, 0);
            let writer = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    memory.line[LOOKED].set(1, Ordering::Release);
                    write(&memory, 1);
                    memory.line[LOOKED].set(2, Ordering::Release);
                })
            };
            if let ReadAttempt::Sample(newest) = read(&memory.line, 1) {
                assert!(newest.looked <= newest.count, "{newest:?}");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_descriptor_is_read_whole_or_not_at_all() {
        loom::model(|| {
            let words: Arc<Vec<_>> = Arc::new((0..3).map(|_| LoomU64::new(0)).collect());
            rewrite(&words, &[0, 10, 100], 1);
            let writer = {
                let words = Arc::clone(&words);
                thread::spawn(move || {
                    words[0].set(2, Ordering::Release);
                    rewrite(&words, &[0, 30, 300], 3);
                })
            };
            let mut seen = [0; 3];
            if snapshot(&words, &mut seen).is_some() && seen[0] != 2 {
                assert_eq!(seen, [seen[0], seen[0] * 10, seen[0] * 100]);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn oldest_whole_leaves_the_cell_in_flight_out() {
        assert_eq!(oldest_whole(1, 4), 1);
        assert_eq!(oldest_whole(4, 4), 2);
        assert_eq!(oldest_whole(10, 4), 8);
    }
}
