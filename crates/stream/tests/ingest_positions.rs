//! Positions: tails, restarts, and counts at the limits of their words.

use barograph_stream::ingest::{IngestFile, kind};

use crate::ingest::{Both, RESERVED, TAIL, bytes, check_numbers, drain, put_numbers};
#[test]
fn a_reader_that_comes_later_goes_on_at_the_tail() {
    let mut both = Both::small();
    let mut ring = both.thread();
    put_numbers(&mut ring, 0..100);
    ring.commit();
    check_numbers(&both.read().0, 0..100);
    both.file.set_tail(0, 60).unwrap();
    let mut again = IngestFile::open(both.path()).unwrap();
    again.look().unwrap();
    check_numbers(&drain(&mut again, u64::MAX).0, 60..100);
    // A reader that knows more from its journal.
    let mut again = IngestFile::open(both.path()).unwrap();
    again.skip_to(0, 70);
    again.look().unwrap();
    again.skip_to(0, 90);
    again.skip_to(0, 80);
    again.skip_to(0, 101);
    check_numbers(&drain(&mut again, u64::MAX).0, 90..100);
    // A reader that was away for a long time.
    put_numbers(&mut ring, 100..5_000);
    ring.commit();
    let mut again = IngestFile::open(both.path()).unwrap();
    again.look().unwrap();
    let (found, drained) = drain(&mut again, u64::MAX);
    assert_eq!(found.len() as u64 + drained.missed, 4_940);
    check_numbers(&found, 60 + drained.missed..5_000);
}

#[test]
fn a_tail_beyond_what_is_committed_is_no_tail() {
    let mut both = Both::small();
    let mut ring = both.thread();
    put_numbers(&mut ring, 0..10);
    ring.commit();
    both.set(0, TAIL, 11);
    assert_eq!(both.read().0, []);
    put_numbers(&mut ring, 10..20);
    ring.commit();
    check_numbers(&both.read().0, 10..20);
}

#[test]
fn positions_beyond_32_bits_are_positions() {
    for start in [(1 << 32) - 5, (1 << 32) - 1_000, (7 << 32) - 1, 1 << 61] {
        let mut both = Both::small();
        drop(both.thread());
        both.move_to(0, start);
        let mut ring = both.thread();
        for part in 0..30u64 {
            put_numbers(&mut ring, part * 100..(part + 1) * 100);
            let text = bytes(part, 200);
            assert!(ring.put_bytes(kind::BYTES, 1, part, &text));
            ring.commit();
            let (found, drained) = both.read();
            assert_eq!((drained.missed, drained.damaged), (0, 0), "from {start}");
            check_numbers(&found[..100], part * 100..(part + 1) * 100);
            assert_eq!(found[100].bytes, text);
        }
        put_numbers(&mut ring, 0..5_000);
        ring.commit();
        let (found, drained) = both.read();
        assert_eq!(found.len() as u64 + drained.missed, 5_000);
        check_numbers(&found, drained.missed..5_000);
    }
}

#[test]
fn positions_at_the_end_of_64_bits_are_survived() {
    let mut both = Both::small();
    drop(both.thread());
    for (committed, tail) in [
        (u64::MAX, u64::MAX - 10),
        (u64::MAX, 0),
        (u64::MAX - 1, u64::MAX),
        (1 << 62, 1 << 62),
    ] {
        both.set(0, 0, committed);
        both.set(0, RESERVED, u64::MAX);
        both.set(0, TAIL, tail);
        let mut again = IngestFile::open(both.path()).unwrap();
        again.look().unwrap();
        let (found, _) = drain(&mut again, u64::MAX);
        assert!(found.iter().all(|v| v.ring != 0));
        assert!(again.is_drained());
        // A ring whose positions would overflow is given to nobody.
        let ring = both.thread();
        put_numbers(&mut { ring }, 0..10);
    }
    let (found, _) = both.read();
    assert!(found.iter().all(|v| v.ring != 0));
}

#[test]
fn a_commit_that_was_half_read_is_asked_for_again() {
    let mut both = Both::small();
    let mut ring = both.thread();
    put_numbers(&mut ring, 0..5);
    ring.commit();
    // As if the copy had halves of two numbers.
    for halves in [0x105, 0x15, u64::MAX] {
        both.set(0, 0, halves);
        both.file.look().unwrap();
        both.set(0, 0, 5);
        let (found, drained) = drain(&mut both.file, 2);
        let again = drain(&mut both.file, u64::MAX);
        let records = found.into_iter().chain(again.0).collect::<Vec<_>>();
        check_numbers(&records, if halves == 0x105 { 0..5 } else { 0..0 });
        for drained in [drained, again.1] {
            assert_eq!((drained.missed, drained.damaged), (0, 0));
        }
    }
    put_numbers(&mut ring, 5..20);
    ring.commit();
    check_numbers(&both.read().0, 5..20);
}
