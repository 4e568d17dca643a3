//! Tests of the amounts that users share: places of processes, and memory.

use super::*;

#[test]
fn users_share_places_and_those_without_one_wait() {
    if !may_be_others() {
        return;
    }
    let limits = ApplicationsConfig {
        processes_max: 24,
        processes_per_user_max: 24,
        ..ApplicationsConfig::default()
    };
    with_limits(limits, |intake, run_dir| {
        let of = |intake: &Intake<'_>, uid| count(intake, uid, |_| 1);
        let eves = programs_of(run_dir, EVE, 30);
        scan(intake);
        assert_eq!(of(intake, EVE), 12, "half of them");
        assert_eq!(intake.counts.waiting.load(Ordering::Relaxed), 18);
        let _mallorys = programs_of(run_dir, MALLORY, 30);
        scan(intake);
        assert_eq!(of(intake, MALLORY), 6);
        let ours = programs(run_dir, 1);
        scan(intake);
        assert!(intake.roster.has(ours[0].incarnation()));
        assert_eq!(intake.counts.waiting.load(Ordering::Relaxed), 42);
        // After his processes have ended, the first user has no more places than the others.
        drop(eves);
        for _ in 0..10_000_000 {
            intake.round(true);
            // Their files are closed by another thread.
            if intake.places.taken() == 7 {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(intake.places.taken(), 7);
        scan(intake);
        assert!(of(intake, EVE) <= 9, "{}", of(intake, EVE));
    });
}

#[test]
fn what_is_refused_is_not_kept_and_memory_is_shared() {
    if !may_be_others() {
        return;
    }
    const MEMORY: u64 = 4 << 20;
    let limits = ApplicationsConfig {
        memory_bytes_max: MEMORY,
        ..ApplicationsConfig::default()
    };
    with_limits(limits, |intake, run_dir| {
        let eves = programs_of(run_dir, EVE, 20);
        for program in &eves {
            publication(program, "a", PublicationReaders::Owner);
            // Half of the values have invalid names.
            for n in 0u32.. {
                let name = if n.is_multiple_of(2) {
                    format!("v{n}")
                } else {
                    format!("No Name {n}")
                };
                if !value(program, &name, ValueType::Int, 0) {
                    break;
                }
            }
        }
        scan(intake);
        let mut rounds = 0;
        while intake.round(false).has_more {
            rounds += 1;
            assert!(rounds < 100_000);
        }
        assert!(
            intake.memory.taken() <= MEMORY / 2,
            "{}",
            intake.memory.taken()
        );
        assert!(count(intake, EVE, |p| p.counts.refused) > 20_000);
        let ours = programs(run_dir, 1);
        let ring = put(&ours[0], kind::INT, 10);
        scan(intake);
        intake.round(false);
        let us = rustix::process::getuid().as_raw();
        assert_eq!(count(intake, us, |p| p.counts.values), 10);
        drop((eves, ours, ring));
        while !intake.roster.is_empty() {
            intake.round(true);
        }
        assert_eq!(intake.memory.taken(), 0);
    });
}

#[test]
fn memory_for_rings_is_shared_and_given_back() {
    if !may_be_others() {
        return;
    }
    let limits = ApplicationsConfig {
        ring_bytes_max: 16 << 20,
        ..ApplicationsConfig::default()
    };
    with_limits(limits, |intake, run_dir| {
        let long = |program: &Producer, count: usize| {
            publication(program, "a", PublicationReaders::All);
            for n in 0..count {
                assert!(value(program, &format!("v{n}"), ValueType::Text, 65_536));
            }
        };
        let eves = programs_of(run_dir, EVE, 1);
        long(&eves[0], 60);
        scan(intake);
        open(intake, ScopeReader::All);
        take_in_all(intake);
        // A ring of such values takes a little more than 1 MiB, and Eve may have half of all.
        let refused = count(intake, EVE, |p| p.counts.refused);
        assert_eq!(refused, 53, "7 of 60 are kept");
        let ours = programs(run_dir, 1);
        long(&ours[0], 4);
        scan(intake);
        while intake.round(false).has_more {}
        let us = rustix::process::getuid().as_raw();
        assert_eq!(count(intake, us, |p| p.counts.refused), 0);
        drop(eves);
        while intake.roster.len() > 1 {
            intake.round(true);
        }
        let later = programs(run_dir, 1);
        long(&later[0], 2);
        scan(intake);
        while intake.round(false).has_more {}
        assert_eq!(count(intake, us, |p| p.counts.refused), 0);
    });
}
