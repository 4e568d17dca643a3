//! Words of server maps: what was told is read as a whole, and what runs is counted.

use super::*;

fn words(epoch: u64) -> MapWords {
    MapWords {
        state: MapState::Told,
        prepare: epoch + 1,
        epoch,
        fence: epoch,
        servers: (0..SERVER_NUMBERS)
            .filter(|it| u64::from(*it) % (epoch + 2) == 0)
            .collect(),
    }
}

#[test]
fn a_set_has_the_servers_that_were_added() {
    let numbers = [0, 5, 63, 64, 700, 1_023];
    let set: ServerSet = numbers.into_iter().chain([1_024, u32::MAX]).collect();
    assert_eq!(set.iter().collect::<Vec<_>>(), numbers);
    assert_eq!((set.len(), set.is_empty()), (6, false));
    assert!(set.contains(64) && !set.contains(65) && !set.contains(5_000));
    assert!(ServerSet::EMPTY.is_empty() && ServerSet::EMPTY.iter().next().is_none());
    assert_eq!(format!("{set:?}"), "{0, 5, 63, 64, 700, 1023}");
}

#[test]
fn what_is_torn_is_seen() {
    let (old, new) = (words(7).encode(), words(8).encode());
    let stored = |words: &[u64], check: u64| -> Vec<AtomicU64> {
        let all = words.iter().copied().chain([check]);
        all.map(AtomicU64::new).collect()
    };
    let whole = stored(&new, check_of(&new));
    assert_eq!(told_in(&whole), MapTold::Words(words(8)));
    assert_eq!(told_in(&stored(&[0; TOLD_WORDS], 0)), MapTold::Nothing);
    // Any mixture of two, with the check of either, in words.
    for mixed in 1..TOLD_WORDS {
        for is_reversed in [false, true] {
            let (first, last) = if is_reversed {
                (&old, &new)
            } else {
                (&new, &old)
            };
            let mixture: Vec<u64> = first[..mixed]
                .iter()
                .chain(&last[mixed..])
                .copied()
                .collect();
            if mixture == old || mixture == new {
                continue;
            }
            for check in [check_of(&old), check_of(&new)] {
                assert_eq!(told_in(&stored(&mixture, check)), MapTold::Torn, "{mixed}");
            }
        }
    }
    // A state that is not known is nothing.
    let mut odd = new;
    odd[0] = 77;
    assert_eq!(told_in(&stored(&odd, check_of(&odd))), MapTold::Nothing);
}

#[test]
fn requests_are_counted_by_epoch() {
    let words: Vec<AtomicU64> = (0..EPOCHS).map(|_| AtomicU64::new(0)).collect();
    let oldest = || {
        let busy = words.iter().map(|word| word.load(Ordering::Relaxed));
        busy.filter(|word| word & COUNT_MASK > 0)
            .map(|word| word >> COUNT_BITS)
            .min()
    };
    let end = |request: CountedRequest| {
        words[usize::from(request.0)].fetch_sub(1, Ordering::Relaxed);
    };
    let first = count_request(&words, 5).unwrap();
    assert_eq!(count_request(&words, 5), Some(first));
    let later = count_request(&words, 6).unwrap();
    assert_ne!(later, first);
    assert_eq!(oldest(), Some(5));
    end(first);
    assert_eq!(oldest(), Some(5));
    end(first);
    assert_eq!(oldest(), Some(6));
    // More epochs than there are words: the others count as earlier ones.
    let many: Vec<_> = (7..20)
        .map(|epoch| count_request(&words, epoch).unwrap())
        .collect();
    end(later);
    assert_eq!(
        oldest(),
        Some(6),
        "those of later epochs are counted with it"
    );
    let early = count_request(&words, 2).unwrap();
    assert_eq!(oldest(), Some(2));
    end(early);
    many.into_iter().for_each(end);
    assert_eq!(oldest(), None);
    // The count has bits of its own.
    words[0].store(9 << COUNT_BITS | COUNT_MASK, Ordering::Relaxed);
    assert_eq!(count_request(&words, 9), None);
    assert_eq!(
        CountedRequest::from_raw(7).map(CountedRequest::to_raw),
        Some(7)
    );
    assert_eq!(CountedRequest::from_raw(8), None);
}

mod loomed {
    //! The order of counting and telling under loom: every interleaving of a program that begins an
    //! operation with an agent that tells of a change.

    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as LoomU64;
    use loom::thread;

    use super::super::*;

    impl CountWord for LoomU64 {
        fn add(&self, more: u64) {
            self.fetch_add(more, Ordering::SeqCst);
        }
    }

    #[test]
    fn an_operation_is_counted_or_sees_what_was_told() {
        loom::model(|| {
            let told = Arc::new(LoomU64::new(0));
            let running = Arc::new(LoomU64::new(0));
            let program = thread::spawn({
                let (told, running) = (Arc::clone(&told), Arc::clone(&running));
                move || {
                    count_in(&*running);
                    told.get(Ordering::Relaxed)
                }
            });
            // The agent: a store, a fence, and a look at the count.
            told.set(1, Ordering::Relaxed);
            LoomU64::barrier(Ordering::SeqCst);
            let counted = running.get(Ordering::Relaxed);
            let seen = program.join().unwrap();
            assert!(counted == 1 || seen == 1, "neither has seen the other");
        });
    }
}
