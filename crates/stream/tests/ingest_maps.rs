//! Server maps in an ingest file: what the agent tells, and what the program counts.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_stream::ingest::{
    IngestDeclaration, MAP_PUBLICATION, MAPS_MAX, MapState, MapTold, MapWords, PublicationReaders,
    ServerSet,
};

use crate::ingest::Both;
use crate::pattern::rounds;

fn words(epoch: u64) -> MapWords {
    MapWords {
        state: MapState::Told,
        prepare: epoch + 1,
        epoch,
        fence: epoch,
        servers: (0..1_024)
            .filter(|it| it % 3 == (epoch % 3) as u32)
            .collect(),
    }
}

fn declare(both: &Both) {
    assert!(both.producer().declare(&IngestDeclaration::Publication {
        name: MAP_PUBLICATION.into(),
        readers: PublicationReaders::Owner,
        labels: vec![("map".into(), "io".into())],
    }));
}

#[test]
fn both_sides_find_what_the_other_has_stored() {
    let both = Both::small();
    declare(&both);
    let program = both.producer();
    assert!(both.file.map_uses().unwrap().is_empty());
    assert_eq!(program.map_told(0), MapTold::Nothing);
    let servers: ServerSet = [1, 3, 900].into_iter().collect();
    assert!(program.use_map(2, 0, &servers));
    assert!(!program.use_map(MAPS_MAX as u8, 0, &servers));
    let [(2, used)] = both.file.map_uses().unwrap()[..] else {
        panic!("one slot is used");
    };
    assert_eq!((used.publication, used.declared), (0, servers));
    assert_eq!(
        (used.running, used.oldest_epoch, used.told),
        (0, None, None)
    );
    // Operations of a member.
    program.count_operation(2);
    program.count_operation(2);
    assert_eq!(program.uncount_operation(2), 1);
    program.count_waiting(2, true);
    program.note_refusal(2, 9);
    program.note_refusal(2, 4);
    // Requests at a server.
    let request = program.count_request(5, 7).unwrap();
    assert!(program.use_map(5, 1, &ServerSet::EMPTY));
    both.file.tell_map(2, &words(4)).unwrap();
    both.file.tell_map(MAPS_MAX as u8, &words(4)).unwrap();
    let [(2, member), (5, server)] = both.file.map_uses().unwrap()[..] else {
        panic!("two slots are used");
    };
    assert_eq!((member.running, member.waiting, member.refused), (1, 1, 9));
    assert_eq!(member.told, Some(words(4)));
    assert_eq!((server.running, server.oldest_epoch), (1, Some(7)));
    assert_eq!(program.map_told(2), MapTold::Words(words(4)));
    assert_eq!(program.map_told(5), MapTold::Nothing);
    // Ends are counted once at most.
    assert_eq!(program.running_requests(5), 1);
    assert_eq!(program.uncount_request(5, request), Some((7, 0)));
    assert_eq!(program.uncount_request(5, request), None);
    assert_eq!(program.uncount_operation(2), 0);
    assert_eq!(program.uncount_operation(2), 0);
    let uses = both.file.map_uses().unwrap();
    assert!(uses.iter().all(|(_, used)| used.running == 0));
    // Declarations have the rest of their area.
    both.file.tell_map(2, &MapWords::OFF).unwrap();
    assert_eq!(program.map_told(2), MapTold::Words(MapWords::OFF));
}

#[test]
fn a_program_may_write_anything() {
    let both = Both::small();
    declare(&both);
    assert!(both.producer().use_map(0, 0, &ServerSet::EMPTY));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(both.path())
        .unwrap();
    let header = std::fs::read(both.path()).unwrap();
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    let maps_at = word(96) + word(104) - 4_096;
    file.write_all_at(&[0xff; 4_096], maps_at).unwrap();
    // A publication with the largest number is none.
    assert!(both.file.map_uses().unwrap().is_empty());
    file.write_all_at(&1_u64.to_le_bytes(), maps_at).unwrap();
    let [(0, used)] = both.file.map_uses().unwrap()[..] else {
        panic!("one slot is used");
    };
    assert_eq!((used.running, used.told), (u64::MAX, None));
    assert_eq!(both.producer().map_told(0), MapTold::Torn);
    assert_eq!(both.producer().count_request(0, 1), None);
    // What the agent tells is whole whatever was there.
    both.file.tell_map(0, &words(1)).unwrap();
    assert_eq!(both.producer().map_told(0), MapTold::Words(words(1)));
    file.set_len(maps_at).unwrap();
    assert!(both.file.map_uses().is_err());
}

#[test]
fn what_is_told_is_read_whole_while_it_changes() {
    let both = Both::small();
    declare(&both);
    assert!(both.producer().use_map(1, 0, &ServerSet::EMPTY));
    let is_over = AtomicBool::new(false);
    let told = |epoch: u64| both.file.tell_map(1, &words(epoch)).unwrap();
    told(1);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut newest, mut seen) = (0, 0_u64);
            while !is_over.load(Ordering::Relaxed) {
                match both.producer().map_told(1) {
                    MapTold::Words(read) => {
                        assert_eq!(read, words(read.epoch));
                        assert!(read.epoch >= newest, "an older one than before");
                        newest = read.epoch;
                        seen += 1;
                    }
                    MapTold::Torn => {}
                    MapTold::Nothing => panic!("it was told"),
                }
            }
            seen
        });
        (2..rounds(5_000, 500_000)).for_each(told);
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(seen > 0);
}
