//! Tests of the scopes of a firing, which tell who may know of it.

use barograph_model::Sample;

use crate::rig::{RuleRig, S};

/// The scopes of what fires now, by subject.
fn scopes(rig: &mut RuleRig) -> Vec<String> {
    rig.now += S;
    rig.fired.clear();
    rig.run();
    let fired = rig.fired.iter();
    fired
        .map(|f| format!("{}{:?}", f.subject, f.scopes))
        .collect()
}

#[test]
fn a_firing_has_the_scopes_of_all_values_that_it_tells() {
    let mut rig = RuleRig::default();
    rig.create("r WHEN latest('load') > 1 CALL 'x' PAYLOAD latest('app.a')");
    rig.set("load", 2.0);
    assert_eq!(scopes(&mut rig), ["{\"\"}"], "nobody publishes");
    let again = |rig: &mut RuleRig| {
        rig.set("load", 0.0);
        assert_eq!(scopes(rig), [] as [&str; 0]);
        rig.set("load", 2.0);
        scopes(rig)
    };
    let all = rig.add_of("app.a{user=eve}", "all");
    let private = rig.add_of("app.a{user=bob}", "u7");
    assert_eq!(again(&mut rig), ["{\"\"}"], "there is no value");
    rig.rules.sample(all, &Sample::measured(rig.now, 1.0));
    assert_eq!(again(&mut rig), ["{\"\", \"all\"}"]);
    rig.rules.sample(private, &Sample::measured(rig.now, 1.0));
    assert_eq!(again(&mut rig), ["{\"\", \"u7\"}"], "the newest value");
    rig.rules.stream_removed(private);
    assert_eq!(again(&mut rig), ["{\"\", \"all\"}"], "it is told no more");
}

#[test]
fn what_is_absent_keeps_its_scope() {
    let mut rig = RuleRig::default();
    rig.create("gone WHEN absent('app.a', '5 s') CALL 'x'");
    let key = rig.add_of("app.a{user=bob}", "u7");
    rig.rules.sample(key, &Sample::measured(rig.now, 1.0));
    assert_eq!(scopes(&mut rig), [] as [&str; 0]);
    rig.rules.stream_removed(key);
    rig.now += 5 * S;
    assert_eq!(scopes(&mut rig), ["{user=bob}{\"u7\"}"]);
    // It comes back for everyone.
    let key = rig.add_of("app.a{user=bob}", "all");
    rig.rules.sample(key, &Sample::measured(rig.now, 1.0));
    assert_eq!(scopes(&mut rig), [] as [&str; 0]);
    rig.now += 5 * S;
    assert_eq!(scopes(&mut rig), ["{user=bob}{\"all\"}"]);
}
