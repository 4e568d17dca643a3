//! `CREATE POLICY …` and `DROP POLICY …`: what is to become of policies, and which of them survive a restart.
//!
//! Apart from those that follow policies (`policies`): these know what there is, looks and intervals, this knows texts and a file.

use std::path::Path;
use std::sync::Arc;

use barograph_insight::{PolicyStatement, PolicyText};
use barograph_source::{PolicyFault, PolicySpec, PolicySpecKind};
use serde_json::Value as Json;
use tracing::{info, warn};

use crate::AgentError;
use crate::control::Refusal;
use crate::policies::{Carry, Change, Made, Policy};
use crate::statements::{POLICIES_FILE, Statements, Troubles};

/// What a statement did.
#[derive(Debug, PartialEq)]
pub struct Done {
    /// To which policy.
    pub name: String,
    /// It was made; else dropped.
    pub is_made: bool,
    /// What it is, or was; null where there was none.
    pub policy: Json,
}

/// The statements that made policies, by name. Which policies there are is known by who follows them.
pub struct PolicyStatements {
    kept: Statements,
}

impl PolicyStatements {
    /// Those that an earlier agent kept in `state_dir`, which [`Self::restore`] takes up.
    pub fn open(state_dir: &Path, troubles: &Troubles) -> Result<Self, AgentError> {
        Ok(Self {
            kept: Statements::open(state_dir, POLICIES_FILE, troubles)?,
        })
    }

    /// Takes up what was kept. One that no longer holds is left out with a word; it stays in the file.
    pub fn restore(&mut self, policies: &mut dyn Carry) {
        for (name, sql) in self.kept.iter() {
            if let Err(Refusal::Statement(error) | Refusal::Internal(error)) =
                again(name, sql, policies)
            {
                warn!(%error, name, sql, "a policy is left out");
            }
        }
    }

    /// Carries out a statement. What is to survive a restart is written first: a policy that cannot be kept is not made.
    pub fn execute(&mut self, sql: &str, policies: &mut dyn Carry) -> Result<Done, Refusal> {
        let done = match PolicyStatement::parse(sql)? {
            PolicyStatement::Create { or_replace, policy } => {
                let policy = policy_of(*policy, sql)?;
                let admitted = policies.roster().admit(policy.name(), or_replace);
                admitted.map_err(Refusal::Statement)?;
                self.create(policy, sql, policies)?
            }
            PolicyStatement::Drop { name, if_exists } => self.drop(name, if_exists, policies)?,
        };
        info!(policy = done.name, made = done.is_made, "changed");
        Ok(done)
    }

    fn create(
        &mut self,
        policy: Policy,
        sql: &str,
        policies: &mut dyn Carry,
    ) -> Result<Done, Refusal> {
        let done = Done {
            name: policy.name().to_owned(),
            is_made: true,
            policy: policy.document(),
        };
        let before = self.kept.keep(&done.name, Some(sql))?;
        if let Err(error) = policies.carry(Change::Declare(Arc::new(policy))) {
            self.kept.keep(&done.name, before.as_deref())?;
            return Err(Refusal::Statement(error));
        }
        Ok(done)
    }

    fn drop(
        &mut self,
        name: String,
        if_exists: bool,
        policies: &mut dyn Carry,
    ) -> Result<Done, Refusal> {
        let roster = policies.roster();
        let policy = roster.get(&name).map(Policy::document);
        // One that was left out at the start is only in the file.
        let is_kept = || self.kept.iter().any(|(kept, _)| kept == name);
        if policy.is_some() || !(if_exists || is_kept()) {
            roster.droppable(&name).map_err(Refusal::Statement)?;
        }
        let before = self.kept.keep(&name, None)?;
        if policy.is_some()
            && let Err(error) = policies.carry(Change::Drop(name.clone()))
        {
            self.kept.keep(&name, before.as_deref())?;
            return Err(Refusal::Statement(error));
        }
        Ok(Done {
            name,
            is_made: false,
            policy: policy.unwrap_or_default(),
        })
    }
}

/// Follows a policy that was made before, by its statement.
fn again(name: &str, sql: &str, policies: &mut dyn Carry) -> Result<(), Refusal> {
    let PolicyStatement::Create { policy, .. } = PolicyStatement::parse(sql)? else {
        return Err(statement("it is no CREATE POLICY"));
    };
    let policy = policy_of(*policy, sql)?;
    if policy.name() != name {
        return Err(statement(format!("it makes {}", policy.name())));
    }
    let admitted = policies.roster().admit(name, false);
    admitted.map_err(Refusal::Statement)?;
    let carried = policies.carry(Change::Declare(Arc::new(policy)));
    carried.map_err(Refusal::Statement)
}

fn statement(message: impl Into<String>) -> Refusal {
    Refusal::Statement(message.into())
}

/// What was written, with the defaults of what was not, checked.
fn policy_of(text: PolicyText, sql: &str) -> Result<Policy, Refusal> {
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
    let made = Made {
        sql: sql.to_owned(),
        help: text.help.unwrap_or_default(),
    };
    Policy::new(spec, Some(made)).map_err(|fault| statement(in_words(&fault)))
}

/// Why a policy is refused, with the word that its statement has for the field.
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
    use crate::policies::{POLICIES_MADE_MAX, Roster};

    const ONE: &str =
        "CREATE POLICY one FOR 'filesystem.*' ERROR '1 %' BETWEEN '2 s' AND '1 min' HELP 'h'";

    /// What became of policies.
    #[derive(Debug, PartialEq)]
    enum Carried {
        Declare(PolicySpec),
        Drop(String),
    }

    /// Follows policies, and nothing else.
    #[derive(Default)]
    struct Follower {
        roster: Roster,
        changes: Vec<Carried>,
        /// Why changes are refused, if they are.
        refusal: Option<String>,
    }

    impl Follower {
        fn new() -> Self {
            let configured = PolicySpec {
                name: "fixed".into(),
                streams: vec!["disk.*".into()],
                error: Some("1 %".into()),
                ..PolicySpec::default()
            };
            let mut follower = Self::default();
            let policy = Policy::new(configured, None).unwrap();
            follower.roster.configure(policy);
            follower
        }
    }

    impl Carry for Follower {
        fn roster(&self) -> &Roster {
            &self.roster
        }

        fn carry(&mut self, change: Change) -> Result<(), String> {
            if let Some(reason) = &self.refusal {
                return Err(reason.clone());
            }
            self.changes.push(match change {
                Change::Declare(policy) => {
                    self.roster.make(Arc::clone(&policy))?;
                    Carried::Declare(policy.spec.clone())
                }
                Change::Drop(name) => {
                    self.roster.remove(&name)?;
                    Carried::Drop(name)
                }
            });
            Ok(())
        }
    }

    struct Rig {
        dir: tempfile::TempDir,
        statements: PolicyStatements,
        follower: Follower,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self {
                statements: PolicyStatements::open(dir.path(), &Troubles::default()).unwrap(),
                follower: Follower::new(),
                dir,
            }
        }

        fn execute(&mut self, sql: &str) -> Result<Done, String> {
            let done = self.statements.execute(sql, &mut self.follower);
            done.map_err(|refusal| match refusal {
                Refusal::Statement(message) | Refusal::Internal(message) => message,
            })
        }

        /// What an agent that starts now takes up.
        fn restart(&mut self) -> Vec<Carried> {
            self.statements =
                PolicyStatements::open(self.dir.path(), &Troubles::default()).unwrap();
            let before = std::mem::replace(&mut self.follower, Follower::new());
            self.statements.restore(&mut self.follower);
            std::mem::replace(&mut self.follower.changes, before.changes)
        }

        fn policy(&self, name: &str) -> Json {
            let policy = self.follower.roster.get(name);
            policy.map(Policy::document).unwrap()
        }

        #[track_caller]
        fn refused(&mut self, sql: &str, expect: &str) {
            let message = self.execute(sql).unwrap_err();
            assert!(message.contains(expect), "{sql}: {message}");
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
    fn policies_are_made_kept_and_dropped() {
        let mut rig = Rig::new();
        let done = rig.execute(ONE).unwrap();
        let name = "one".to_owned();
        assert_eq!((done.name.as_str(), done.is_made), ("one", true));
        assert_eq!(rig.follower.changes, [Carried::Declare(one())]);
        assert_eq!(rig.restart(), [Carried::Declare(one())]);
        assert_eq!(rig.execute("DROP POLICY one").unwrap().name, name);
        assert_eq!(rig.follower.changes[1..], [Carried::Drop(name)]);
        assert_eq!(rig.restart(), []);
    }

    #[test]
    fn every_clause_arrives() {
        let mut rig = Rig::new();
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
        assert_eq!(rig.follower.changes, [Carried::Declare(expect)]);
    }

    #[test]
    fn what_is_there_is_replaced_only_if_asked_for() {
        let mut rig = Rig::new();
        rig.execute(ONE).unwrap();
        rig.refused(
            ONE,
            "there is a policy one already: write CREATE OR REPLACE",
        );
        let other = "CREATE OR REPLACE POLICY one FOR 'x' KIND 'fixed'";
        rig.execute(other).unwrap();
        let [Carried::Declare(spec)] = &rig.restart()[..] else {
            panic!("one policy");
        };
        assert_eq!(spec.kind, PolicySpecKind::Fixed);
        assert_eq!(rig.policy("one")["sql"], other);
    }

    #[test]
    fn the_configuration_is_changed_where_it_stands() {
        let mut rig = Rig::new();
        rig.refused("DROP POLICY fixed", "[[policy]]");
        rig.refused("DROP POLICY IF EXISTS fixed", "[[policy]]");
        rig.refused(
            "CREATE OR REPLACE POLICY fixed FOR 'x' ERROR '1'",
            "[[policy]]",
        );
        assert_eq!(rig.follower.changes, []);
        assert_eq!(rig.policy("fixed")["origin"], "configured");
    }

    #[test]
    fn what_cannot_be_followed_is_refused_in_the_words_of_the_statement() {
        let mut rig = Rig::new();
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
        assert_eq!(rig.follower.changes, []);
        assert_eq!(rig.restart(), []);
    }

    #[test]
    fn who_is_not_there_is_not_dropped_but_by_if_exists() {
        let mut rig = Rig::new();
        rig.execute(ONE).unwrap();
        rig.refused(
            "DROP POLICY onee",
            "there is no policy onee: did you mean one?",
        );
        rig.refused("DROP POLICY nothing.like.it", "see the table policies");
        let done = rig.execute("DROP POLICY IF EXISTS on").unwrap();
        assert!(!done.is_made);
        assert_eq!(rig.follower.changes.len(), 1);
    }

    #[test]
    fn what_is_not_followed_is_not_kept() {
        let mut rig = Rig::new();
        rig.follower.refusal = Some("no room".into());
        rig.refused(ONE, "no room");
        assert_eq!(rig.restart(), []);
        rig.follower.refusal = None;
        rig.execute(ONE).unwrap();
        rig.follower.refusal = Some("stuck".into());
        rig.refused("DROP POLICY one", "stuck");
        assert_eq!(rig.restart().len(), 1);
    }

    #[test]
    fn what_no_longer_holds_is_left_out_and_can_be_dropped() {
        let mut rig = Rig::new();
        rig.execute(ONE).unwrap();
        let path = rig.dir.path().join(POLICIES_FILE);
        let kept = json!({
            "a": "nonsense",
            "b": "DROP POLICY b",
            "c": "CREATE POLICY c FOR 'x' ERROR 'much'",
            "d": "CREATE POLICY e FOR 'x' ERROR '1'",
            "fixed": "CREATE POLICY fixed FOR 'x' ERROR '1'",
            "one": ONE,
        });
        std::fs::write(&path, kept.to_string()).unwrap();
        assert_eq!(rig.restart(), [Carried::Declare(one())]);
        for name in ["a", "b", "c", "d"] {
            rig.execute(&format!("DROP POLICY {name}")).unwrap();
        }
        assert_eq!(
            rig.follower.changes.len(),
            1,
            "those were followed by nobody"
        );
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(!kept.contains("nonsense"), "{kept}");
    }

    #[test]
    fn what_a_statement_made_is_told() {
        let mut rig = Rig::new();
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
        let mut rig = Rig::new();
        for n in 0..POLICIES_MADE_MAX {
            let sql = format!("CREATE POLICY p{n} FOR 'x' ERROR '1'");
            let PolicyStatement::Create { policy, .. } = PolicyStatement::parse(&sql).unwrap()
            else {
                panic!("{sql}");
            };
            let policy = policy_of(*policy, &sql).unwrap_or_else(|_| panic!("{sql}"));
            rig.follower.roster.make(Arc::new(policy)).unwrap();
        }
        rig.refused(ONE, "POLICIES_MADE_MAX");
        // One of them can be another.
        rig.execute("CREATE OR REPLACE POLICY p7 FOR 'y' ERROR '1'")
            .unwrap();
    }
}
