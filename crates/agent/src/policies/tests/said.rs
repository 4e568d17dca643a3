//! Tests of the projections of streams under policies: by plans, by sentinels, and their times.

use super::*;
use barograph_testing::allocations;

/// Free bytes after this many written bytes.
const FREE: f64 = 1e10;

fn write(found: &Found, written: f64) {
    put(found, CHEAP, written);
    put(found, DEAR, FREE - written);
}

#[test]
fn what_a_sentinel_says_is_told() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![derived()]);
    write(&rig.found, 0.0);
    rig.run(600, |_, _| {});
    let quiet = rig.reads()[1];
    assert!(quiet < 150, "{quiet}");
    // Unpredictable bursts of up to half the bound; each written byte is one free byte less.
    let (mut written, mut seed) = (0.0, 7_u32);
    let mut second = |rig: &mut Rig<'_>| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 30 == 0 {
            written += f64::from(seed & 0xff_ffff) * 3.0;
        }
        write(&rig.found, written);
        rig.run(1, |_, _| {});
        let (value, _) = rig.said(DEAR).unwrap();
        u32::from((value - (FREE - written)).abs() > 0.01 * FREE)
    };
    for _ in 0..1_000 {
        second(&mut rig);
    }
    let before = rig.reads()[1];
    let mut said = BTreeMap::<String, u32>::new();
    let wrong: u32 = (0..1_000)
        .map(|_| {
            let wrong = second(&mut rig);
            *said
                .entry(rig.row("derived")["said"].to_string())
                .or_default() += 1;
            wrong
        })
        .sum();
    let reads = rig.reads()[1] - before;
    assert!(wrong < 100, "{wrong} of 1000, {said:?}");
    assert!(reads < 400, "{reads} of 1000, {said:?}");
    assert!(said.contains_key("\"derived\""), "{said:?}");
}

#[test]
fn the_first_moves_of_a_sentinel_are_calls() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![derived()]);
    rig.run(1_000, |_, _| {});
    for step in 1..=4 {
        // A long quiet time, then a move of any size.
        rig.run(37, |_, _| {});
        let moved = f64::from(step * step) * 1e7;
        let truth = 1e9 - moved * f64::from(step % 3 + 1);
        put(&rig.found, CHEAP, moved);
        put(&rig.found, DEAR, truth);
        rig.run(3, |_, _| {});
        let (value, _) = rig.said(DEAR).unwrap();
        assert!((value - truth).abs() <= 0.01 * truth, "{step}: {value}");
    }
}

#[test]
fn a_move_that_contradicts_what_is_forecast_is_a_call() {
    let clock = clock();
    let bounded = PolicySpec {
        error: Some("1 GB".into()),
        ..derived()
    };
    let mut rig = Rig::new(&clock, vec![bounded]);
    // Free bytes fall evenly; written bytes grow only roughly evenly.
    let (mut written, mut free, mut seed, mut second) = (0.0, 1e13, 7_u32, 0);
    let mut pass = |rig: &mut Rig<'_>, burst: f64| {
        if second % 64 == 0 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        }
        second += 1;
        written += 3e7 + f64::from(seed >> 8) * 4.0 + burst;
        free -= 5e7 + burst;
        put(&rig.found, CHEAP, written);
        put(&rig.found, DEAR, free);
        rig.run(1, |_, _| {});
        free
    };
    for _ in 0..1_000 {
        pass(&mut rig, 0.0);
    }
    for after in 0..8 {
        while rig.row("derived")["said"] != "forecast" {
            pass(&mut rig, 0.0);
        }
        // In the middle of a wait.
        for _ in 0..after {
            pass(&mut rig, 0.0);
        }
        pass(&mut rig, 2e10);
        let truth = pass(&mut rig, 0.0);
        let (value, _) = rig.said(DEAR).unwrap();
        assert!((value - truth).abs() <= 1e9, "{after}: {value} for {truth}");
    }
}

#[test]
fn a_look_that_says_nothing_new_allocates_nothing() {
    for spec in [policy("rare", DEAR), derived()] {
        let clock = clock();
        let mut rig = Rig::new(&clock, vec![spec]);
        // After the longest wait, when the repeated samples of unchanged values have made their
        // room.
        rig.run(7_200, |_, _| {});
        let (mut same, reads) = (0, rig.reads()[1]);
        for _ in 0..3_600 {
            let (_, appended_ns, said_ns) = rig.projection(DEAR).unwrap();
            rig.clock.advance(NS_PER_S);
            let made = allocations(|| rig.tick());
            let (_, again_ns, said_again_ns) = rig.projection(DEAR).unwrap();
            if again_ns == appended_ns && said_again_ns != said_ns {
                same += 1;
                assert_eq!(made, 0, "{} s", rig.clock.now_ns() / NS_PER_S);
            }
        }
        let reads = rig.reads()[1] - reads;
        assert!(same > 20, "{same} of {reads}");
    }
}

#[test]
fn what_is_said_is_written_at_the_end_of_a_round_and_not_more_often_than_others() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![policy("rare", DEAR)]);
    rig.run(60, |_, _| {});
    let before = rig.projection(DEAR).unwrap();
    rig.looked(DEAR, 2e9);
    clock.advance(1_000_000);
    rig.looked(DEAR, 3e9);
    assert_eq!(rig.projection(DEAR).unwrap(), before);
    assert!(!rig.project());
    assert_eq!(rig.said(DEAR).unwrap().0, 3e9);
    // A look that the forecaster takes is published, although a later look is not taken.
    clock.advance(NS_PER_S);
    rig.looked(DEAR, 3.5e9);
    rig.looked(DEAR, 9e9);
    assert!(!rig.project());
    assert_eq!(rig.said(DEAR).unwrap().0, 3.5e9);
    // A moment later the projection waits, and has the time of its own look.
    clock.advance(PROJECT_NS / 10);
    let looked_ns = clock.now_ns();
    rig.looked(DEAR, 4e9);
    assert!(rig.project());
    let (value, _) = rig.said(DEAR).unwrap();
    assert!((value - 3.5e9).abs() < 1e8, "{value}");
    clock.advance(PROJECT_NS);
    assert!(!rig.project());
    assert_eq!(rig.projection(DEAR).unwrap().2, looked_ns);
    let (value, _) = rig.said(DEAR).unwrap();
    assert!((value - 4e9).abs() < 1e8, "{value}");
}

#[test]
fn what_is_derived_is_said_in_the_round_of_its_move_and_a_look_counts_more() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![derived()]);
    let mut seed = 7_u32;
    let mut second = |rig: &mut Rig<'_>, written: &mut f64| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 30 == 0 {
            *written += f64::from(seed & 0xff_ffff) * 3.0;
        }
        write(&rig.found, *written);
        rig.run(1, |_, _| {});
    };
    let mut written = 0.0;
    for _ in 0..1_000 {
        second(&mut rig, &mut written);
    }
    let mut derived = 0;
    for _ in 0..1_000 {
        second(&mut rig, &mut written);
        if rig.row("derived")["said"] != "derived" {
            continue;
        }
        clock.advance(2 * PROJECT_NS);
        let (before, _) = rig.said(DEAR).unwrap();
        written += 1e6;
        rig.looked(CHEAP, written);
        rig.project();
        let (after, _) = rig.said(DEAR).unwrap();
        let (_, _, said_ns) = rig.projection(DEAR).unwrap();
        if said_ns == clock.now_ns() {
            derived += 1;
            let moved = before - after;
            assert!((moved - 1e6).abs() < 1e5, "{moved}");
        }
        // Both looks are in one round.
        clock.advance(2 * PROJECT_NS);
        written += 1e6;
        rig.looked(CHEAP, written);
        rig.looked(DEAR, FREE - written);
        rig.project();
        assert_eq!(rig.said(DEAR).unwrap().0, FREE - written);
    }
    assert!(derived > 20, "{derived}");
}
