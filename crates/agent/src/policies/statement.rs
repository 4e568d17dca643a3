//! Execution of `CREATE POLICY …` and `DROP POLICY …`, and the policies that the configuration and
//! the kept statements ask for.
//!
//! This module is separate from the streams and intervals that policies decide about.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_source::{PolicyFault, PolicySpec, PolicySpecKind};
use barograph_statement::{PolicyStatement, PolicyText};
use serde_json::Value as Json;
use tracing::warn;

use super::roster::{ChangePolicies, Policy, PolicyChange, PolicyOrigin};
use crate::refusal::StatementRefusal;

/// The result of a statement.
#[derive(Debug, PartialEq)]
pub(crate) struct PolicyDone {
    /// Name of the policy.
    pub name: String,
    /// Whether the policy was made; otherwise it was dropped.
    pub is_made: bool,
    /// The policy as it is or was; null if it did not exist.
    pub policy: Json,
}

/// Executes a statement.
pub(crate) fn execute(
    sql: &str,
    policies: &mut dyn ChangePolicies,
) -> Result<PolicyDone, StatementRefusal> {
    match PolicyStatement::parse(sql)? {
        PolicyStatement::Create { or_replace, policy } => {
            let policy = policy_of(*policy, sql)?;
            let admitted = policies.roster().admit(policy.name(), or_replace);
            admitted.map_err(StatementRefusal::Statement)?;
            let done = PolicyDone {
                name: policy.name().to_owned(),
                is_made: true,
                policy: policy.document(),
            };
            let changed = policies.change(PolicyChange::Declare(Arc::new(policy)));
            changed.map_err(StatementRefusal::Statement)?;
            Ok(done)
        }
        PolicyStatement::Drop { name, if_exists } => {
            let policy = policies.roster().get(&name).map(Policy::document);
            if policy.is_none() && !if_exists {
                return Err(StatementRefusal::Absent(policies.roster().no_policy(&name)));
            }
            if policy.is_some() {
                let changed = policies.change(PolicyChange::Drop(name.clone()));
                changed.map_err(StatementRefusal::Statement)?;
            }
            Ok(PolicyDone {
                name,
                is_made: false,
                policy: policy.unwrap_or_default(),
            })
        }
    }
}

/// Returns the policies of a checked configuration and of kept statements. A statement that is not
/// valid is left out with a warning, and stays in its file.
pub(crate) fn wanted(configured: &[PolicySpec], kept: &BTreeMap<String, String>) -> Vec<Policy> {
    let mut wanted = Vec::with_capacity(configured.len() + kept.len());
    for spec in configured {
        match Policy::new(spec.clone(), None) {
            Ok(policy) => wanted.push(policy),
            Err(error) => warn!(%error, "a policy is left out"),
        }
    }
    for (name, sql) in kept {
        match made_by(name, sql) {
            Ok(policy) => wanted.push(policy),
            Err(refusal) => warn!(error = %refusal, name, sql, "a policy is left out"),
        }
    }
    wanted
}

/// Returns the policy of a statement that was kept under this name.
fn made_by(name: &str, sql: &str) -> Result<Policy, StatementRefusal> {
    let PolicyStatement::Create { policy, .. } = PolicyStatement::parse(sql)? else {
        return Err(statement("it is no CREATE POLICY"));
    };
    let policy = policy_of(*policy, sql)?;
    if policy.name() != name {
        return Err(statement(format!("it makes {}", policy.name())));
    }
    Ok(policy)
}

fn statement(message: impl Into<String>) -> StatementRefusal {
    StatementRefusal::Statement(message.into())
}

/// Returns the checked policy of a statement, with defaults for the clauses that it leaves out.
fn policy_of(text: PolicyText, sql: &str) -> Result<Policy, StatementRefusal> {
    let default = PolicySpec::default();
    let kind = match &text.kind {
        None => default.kind,
        Some(word) => PolicySpecKind::parse(word).ok_or_else(|| {
            statement(format!(
                "KIND '{word}': there are error_bounded, fixed, aimd_simple and aimd_complex"
            ))
        })?,
    };
    let default_ms = (default.interval_min_ms, default.interval_max_ms);
    let (interval_min_ms, interval_max_ms) = text.between_ms.unwrap_or(default_ms);
    let spec = PolicySpec {
        name: text.name,
        streams: text.streams,
        kind,
        error: text.error,
        confidence: text.confidence.unwrap_or(default.confidence),
        interval_min_ms,
        interval_max_ms,
        sentinel: text.sentinel,
        pressure: text.pressure,
        weight: text.weight.unwrap_or(default.weight),
    };
    let made = PolicyOrigin {
        sql: sql.to_owned(),
        help: text.help.unwrap_or_default(),
    };
    Policy::new(spec, Some(made)).map_err(|fault| statement(in_words(&fault)))
}

/// Returns the reason why a policy is refused, with the statement's word for the field.
fn in_words(fault: &PolicyFault) -> String {
    let PolicyFault {
        name,
        field,
        reason,
    } = fault;
    match *field {
        "streams" => format!("policy {name}: FOR: {reason}"),
        "interval_min_ms" | "interval_max_ms" => format!("policy {name}: BETWEEN: {reason} (ms)"),
        "name" => format!("policy {name}: its name {reason}"),
        field => format!("policy {name}: {}: {reason}", field.to_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policies::{POLICIES_MADE_MAX, PolicyRoster};

    const ONE: &str =
        "CREATE POLICY one FOR 'filesystem.*' ERROR '1 %' BETWEEN '2 s' AND '1 min' HELP 'h'";

    /// A change that the test's owner of policies received.
    #[derive(Debug, PartialEq)]
    enum Carried {
        Declare(PolicySpec),
        Drop(String),
    }

    /// An owner of policies that only records changes.
    #[derive(Default)]
    struct Follower {
        roster: PolicyRoster,
        changes: Vec<Carried>,
        /// The reason why changes are refused, if they are.
        refusal: Option<String>,
    }

    impl Follower {
        fn new() -> Self {
            let mut follower = Self::default();
            follower
                .roster
                .become_these(wanted(&[configured()], &BTreeMap::new()));
            follower
        }

        fn execute(&mut self, sql: &str) -> Result<PolicyDone, String> {
            execute(sql, self).map_err(|refusal| refusal.to_string())
        }

        fn policy(&self, name: &str) -> Json {
            self.roster.get(name).map(Policy::document).unwrap()
        }

        #[track_caller]
        fn refused(&mut self, sql: &str, expect: &str) {
            let message = self.execute(sql).unwrap_err();
            assert!(message.contains(expect), "{sql}: {message}");
        }
    }

    fn configured() -> PolicySpec {
        PolicySpec {
            name: "fixed".into(),
            streams: vec!["disk.*".into()],
            error: Some("1 %".into()),
            ..PolicySpec::default()
        }
    }

    impl ChangePolicies for Follower {
        fn roster(&self) -> &PolicyRoster {
            &self.roster
        }

        fn change(&mut self, change: PolicyChange) -> Result<(), String> {
            if let Some(reason) = &self.refusal {
                return Err(reason.clone());
            }
            self.changes.push(match change {
                PolicyChange::Declare(policy) => {
                    self.roster.make(Arc::clone(&policy))?;
                    Carried::Declare(policy.spec.clone())
                }
                PolicyChange::Drop(name) => {
                    self.roster.remove(&name)?;
                    Carried::Drop(name)
                }
            });
            Ok(())
        }
    }

    fn one() -> PolicySpec {
        PolicySpec {
            name: "one".into(),
            streams: vec!["filesystem.*".into()],
            error: Some("1 %".into()),
            interval_min_ms: 2_000,
            ..PolicySpec::default()
        }
    }

    #[test]
    fn policies_are_made_and_dropped() {
        let mut rig = Follower::new();
        let done = rig.execute(ONE).unwrap();
        let name = "one".to_owned();
        assert_eq!((done.name.as_str(), done.is_made), ("one", true));
        assert_eq!(rig.changes, [Carried::Declare(one())]);
        assert_eq!(rig.execute("DROP POLICY one").unwrap().name, name);
        assert_eq!(rig.changes[1..], [Carried::Drop(name)]);
    }

    #[test]
    fn every_clause_arrives() {
        let mut rig = Follower::new();
        let sql = "CREATE POLICY a.b FOR 'x', 'y{a=b}' KIND 'error_bounded' ERROR '10 MiB' CONFIDENCE 0.95 \
                   SENTINEL 'disk.write.bytes{device=vda}' PRESSURE 'io some 150ms 2s' WEIGHT 2";
        rig.execute(sql).unwrap();
        let expect = PolicySpec {
            name: "a.b".into(),
            streams: vec!["x".into(), "y{a=b}".into()],
            kind: PolicySpecKind::ErrorBounded,
            error: Some("10 MiB".into()),
            confidence: 0.95,
            interval_min_ms: 1_000,
            interval_max_ms: 60_000,
            sentinel: Some("disk.write.bytes{device=vda}".into()),
            pressure: Some("io some 150ms 2s".into()),
            weight: 2.0,
        };
        assert_eq!(rig.changes, [Carried::Declare(expect)]);
    }

    #[test]
    fn what_is_there_is_replaced_only_if_asked_for() {
        let mut rig = Follower::new();
        rig.execute(ONE).unwrap();
        rig.refused(
            ONE,
            "there is a policy one already: write CREATE OR REPLACE",
        );
        let other = "CREATE OR REPLACE POLICY one FOR 'x' KIND 'fixed'";
        rig.execute(other).unwrap();
        let [_, Carried::Declare(spec)] = &rig.changes[..] else {
            panic!("two changes");
        };
        assert_eq!(spec.kind, PolicySpecKind::Fixed);
        assert_eq!(rig.policy("one")["sql"], other);
    }

    #[test]
    fn the_configuration_is_changed_where_it_stands() {
        let mut rig = Follower::new();
        rig.refused("DROP POLICY fixed", "[[policy]]");
        rig.refused("DROP POLICY IF EXISTS fixed", "[[policy]]");
        rig.refused(
            "CREATE OR REPLACE POLICY fixed FOR 'x' ERROR '1'",
            "[[policy]]",
        );
        assert_eq!(rig.changes, []);
        assert_eq!(rig.policy("fixed")["origin"], "configured");
    }

    #[test]
    fn what_cannot_be_followed_is_refused_in_the_words_of_the_statement() {
        let mut rig = Follower::new();
        for (clauses, expect) in [
            ("FOR 'x'", "policy a: ERROR: is missing"),
            (
                "FOR 'x' ERROR 'much'",
                "policy a: ERROR: \"much\" is neither",
            ),
            ("FOR 'x{' ERROR '1'", "policy a: FOR: "),
            (
                "FOR 'x' KIND 'often'",
                "KIND 'often': there are error_bounded",
            ),
            (
                "FOR 'x' KIND 'fixed' ERROR '1'",
                "ERROR: only error_bounded",
            ),
            ("FOR 'x' ERROR '1' CONFIDENCE 1", "CONFIDENCE: must be 0.5"),
            ("FOR 'x' ERROR '1' WEIGHT 0", "WEIGHT: must be more than 0"),
            (
                "FOR 'x' ERROR '1' PRESSURE 'disk'",
                "PRESSURE: must be like",
            ),
            ("FOR 'x' ERROR '1' SENTINEL '{'", "policy a: SENTINEL: "),
            (
                "FOR 'x' ERROR '1' BETWEEN '1 s' AND '2 d'",
                "BETWEEN: must be 1 to 86400000 (ms)",
            ),
        ] {
            rig.refused(&format!("CREATE POLICY a {clauses}"), expect);
        }
        rig.refused(
            "CREATE POLICY Full FOR 'x' ERROR '1'",
            "its name must be lower-case",
        );
        assert_eq!(rig.changes, []);
    }

    #[test]
    fn who_is_not_there_is_not_dropped_but_by_if_exists() {
        let mut rig = Follower::new();
        rig.execute(ONE).unwrap();
        rig.refused(
            "DROP POLICY onee",
            "there is no policy onee: did you mean one?",
        );
        rig.refused("DROP POLICY nothing.like.it", "see the table policies");
        let done = rig.execute("DROP POLICY IF EXISTS on").unwrap();
        assert!(!done.is_made);
        assert_eq!(rig.changes.len(), 1);
    }

    #[test]
    fn what_no_longer_holds_is_left_out() {
        let kept = [
            ("a", "nonsense"),
            ("b", "DROP POLICY b"),
            ("c", "CREATE POLICY c FOR 'x' ERROR 'much'"),
            ("d", "CREATE POLICY e FOR 'x' ERROR '1'"),
            ("fixed", "CREATE POLICY fixed FOR 'x' ERROR '1'"),
            ("one", ONE),
        ];
        let kept = kept.map(|(name, sql)| (name.to_owned(), sql.to_owned()));
        let mut rig = Follower::new();
        let kept = BTreeMap::from(kept);
        assert!(rig.roster.become_these(wanted(&[configured()], &kept)));
        let names = |rig: &Follower| -> Vec<String> {
            let all = rig.roster.iter();
            all.map(|s| s.policy.name().to_owned()).collect()
        };
        assert_eq!(names(&rig), ["one", "fixed"]);
        assert_eq!(rig.policy("fixed")["origin"], "configured");
        // The same policies again change nothing; another configuration changes those that differ.
        assert!(!rig.roster.become_these(wanted(&[configured()], &kept)));
        let other = PolicySpec {
            error: Some("2 %".into()),
            ..configured()
        };
        assert!(rig.roster.become_these(wanted(&[other], &kept)));
        assert_eq!(rig.policy("fixed")["error"], "2 %");
        assert!(rig.roster.become_these(wanted(&[], &kept)));
        assert_eq!(names(&rig), ["fixed", "one"]);
        assert_eq!(rig.policy("fixed")["origin"], "made");
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let mut rig = Follower::new();
        rig.refusal = Some("no room".into());
        rig.refused(ONE, "no room");
        assert_eq!(rig.changes, []);
    }

    #[test]
    fn what_a_statement_made_is_told() {
        let mut rig = Follower::new();
        let made = rig.execute(ONE).unwrap().policy;
        assert_eq!(
            (&made["name"], &made["streams"]),
            (&json!("one"), &json!(["filesystem.*"]))
        );
        assert_eq!(
            (&made["origin"], &made["sql"]),
            (&json!("made"), &json!(ONE))
        );
        assert_eq!(
            (&made["help"], &made["interval_min_ms"]),
            (&json!("h"), &json!(2_000))
        );
        assert_eq!(rig.execute("DROP POLICY one").unwrap().policy, made);
        let nothing = rig.execute("DROP POLICY IF EXISTS one").unwrap().policy;
        assert_eq!(nothing, Json::Null);
    }

    #[test]
    fn they_are_bounded() {
        let mut rig = Follower::new();
        for n in 0..POLICIES_MADE_MAX {
            let sql = format!("CREATE POLICY p{n} FOR 'x' ERROR '1'");
            let PolicyStatement::Create { policy, .. } = PolicyStatement::parse(&sql).unwrap()
            else {
                panic!("{sql}");
            };
            let policy = policy_of(*policy, &sql).unwrap_or_else(|_| panic!("{sql}"));
            rig.roster.make(Arc::new(policy)).unwrap();
        }
        rig.refused(ONE, "POLICIES_MADE_MAX");
        // An existing policy can be replaced.
        rig.execute("CREATE OR REPLACE POLICY p7 FOR 'y' ERROR '1'")
            .unwrap();
    }
}
