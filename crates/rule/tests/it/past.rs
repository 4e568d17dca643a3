//! Windows that are given what was before: each sample once.

use barograph_model::{Quality, Sample, Value};
use barograph_rule::FiringSummary;

use crate::rig::{RuleRig, S};

#[test]
fn windows_reach_back_beyond_the_rule_by_seeds() {
    let mut rig = RuleRig::default();
    let key = rig.add("a.level");
    rig.set("a.level", 10.0);
    rig.create("t WHEN latest('a.level') - ago('a.level', '1 h') > 5 CALL 'x'");
    assert!(rig.run().is_empty(), "nobody knows what was an hour ago");
    assert_eq!(rig.rules.take_wanted(), [(key, 3_600 * S)]);
    assert!(rig.rules.take_wanted().is_empty(), "each is told once");
    let past: Vec<Sample> = (0..100)
        .map(|i| Sample::measured(rig.now - (7_200 - i * 60) * S, i as f64 / 100.0))
        .collect();
    rig.rules.seed(key, &past);
    assert_eq!(rig.run(), ["t"]);
}

#[test]
fn what_a_window_has_is_not_seeded_again() {
    let mut rig = RuleRig::default();
    let key = rig.add("a.level");
    rig.create("first WHEN count_over('a.level', '1 h') < 0 CALL 'x'");
    let mut all = Vec::new();
    // More than a window keeps one by one.
    for i in 0..2_000 {
        rig.now += S / 10;
        all.push(Sample::measured(rig.now, f64::from(i)));
        rig.set("a.level", f64::from(i));
    }
    rig.run();
    let earlier: Vec<Sample> = (1..=100)
        .map(|i| Sample::measured(all[0].ts - (101 - i) * S, 1_000.0))
        .collect();
    let past = [earlier, all].concat();
    rig.create(
        "second WHEN count_over('a.level', '1 h') = 2100 AND max_over('a.level', '1 h') = 1999 \
         AND min_over('a.level', '1 h') = 0 AND count_over('a.level', '2 h') = 2100 CALL 'x'",
    );
    rig.create("mean WHEN abs(avg_over('a.level', '1 h') - 1000) < 1 CALL 'x'");
    rig.rules.seed(key, &past);
    assert_eq!(rig.run(), ["mean", "second"]);
    rig.rules.seed(key, &past);
    rig.create("still WHEN count_over('a.level', '1 h') = 2100 CALL 'x'");
    assert_eq!(rig.run(), ["still"]);
}

#[test]
fn summaries_stand_for_what_is_too_much() {
    let mut rig = RuleRig::default();
    let key = rig.add("a.level");
    rig.set("a.level", 10.0);
    rig.create(
        "t WHEN count_over('a.level', '1 h') = 61 AND max_over('a.level', '1 h') = 99 \
         AND min_over('a.level', '1 h') = 1 AND ago('a.level', '10 min') = 5 \
         AND avg_over('a.level', '1 h') > 19 AND avg_over('a.level', '1 h') < 20.1 CALL 'x'",
    );
    let start = rig.now - 1_200 * S;
    let summaries: Vec<FiringSummary> = (1..=6)
        .map(|i| FiringSummary {
            ts: start + i * 200 * S - 1,
            count: 10,
            low: 1.0,
            high: 99.0,
            mean: 20.0,
            last: Value::Float(5.0),
        })
        .collect();
    rig.rules.seed_summaries(key, &summaries, &[]);
    assert_eq!(rig.run(), ["t"]);
    rig.rules.unfilled(key, "it is too late");
    let reason = "windows begin with what the rings hold: it is too late";
    assert_eq!(rig.report("t").reason, reason);
    rig.pass(3_600.0);
    assert_eq!(rig.report("t").reason, "");
}

/// A value of 8 that held for a minute, and one of 2 now; nobody looked in the hour between.
#[test]
fn windows_cover_only_the_time_in_which_somebody_looked() {
    let hour = 3_600 * S;
    let sample = |ts, value: f64, quality| Sample {
        quality,
        ..Sample::measured(ts, value)
    };
    let past = |now: i64| {
        let from = now - hour - 120 * S;
        [
            sample(from, 8.0, Quality::Measured),
            sample(from + 60 * S, 8.0, Quality::Ended),
        ]
    };
    let conditions = [
        ("means", "avg_over('a.level', '2 h') = 5"),
        ("least", "min_over('a.level', '1 h') = 2"),
        ("most", "max_over('a.level', '1 h') = 2"),
        ("known", "ago('a.level', '3690 s') = 8"),
        ("unknown", "ago('a.level', '30 min') IS NULL"),
        ("grown", "delta('a.level', '2 h') = -6"),
    ];
    let expect = ["grown", "known", "least", "means", "most", "unknown"];
    // Seen as it happens, and found in the past.
    for is_live in [true, false] {
        let mut rig = RuleRig::default();
        rig.now = 10_000 * S;
        let start = rig.now;
        let key = rig.add("a.level");
        for (name, condition) in conditions {
            // At a level of 2 only: windows are looked at when all is told.
            rig.create(&format!(
                "{name} WHEN latest('a.level') = 2 AND age('a.level') = 0 AND latest('b.level') = 1 \
                 AND {condition} CALL 'x'"
            ));
        }
        let past = past(start);
        if is_live {
            for sample in &past {
                rig.rules.sample(key, sample);
            }
        }
        rig.now = start - 60 * S;
        rig.set("a.level", 2.0);
        rig.now = start;
        rig.look("a.level");
        if !is_live {
            rig.rules.seed(key, &past);
        }
        assert!(rig.run().is_empty());
        rig.set("b.level", 1.0);
        assert_eq!(rig.run(), expect, "live: {is_live}");
    }
}
