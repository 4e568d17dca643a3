//! `CREATE POLICY …` and `DROP POLICY …`: which policies there are by statement, and what of them survives a restart.
//!
//! Apart from those that follow policies (`policies`): these know looks and intervals, this knows names, texts and a file.

use std::collections::BTreeMap;
use std::path::Path;

use barograph_insight::{PolicyStatement, PolicyText};
use barograph_model::near;
use barograph_source::{PolicyFault, PolicySpec, PolicySpecKind};
use serde_json::{Value as Json, json};
use tracing::{info, warn};

use crate::AgentError;
use crate::control::{Insights, Refusal};

/// Where statements are kept, one JSON object of name to statement.
const POLICIES_FILE: &str = "policies.json";
/// Most policies that are made by statement. One more is refused.
const POLICIES_MADE_MAX: usize = 256;

/// What is to become of those who follow policies.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// This one is followed, in the place of one of its name.
    Declare(PolicySpec),
    /// The one of this name no longer is.
    Drop(String),
}

/// Carries a change out, or says why not; then nothing has changed.
pub type Carry<'a> = dyn FnMut(Change) -> Result<(), String> + 'a;

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

/// The policies that there are, by name.
pub struct PolicyStatements {
    kept: Insights,
    known: BTreeMap<String, Known>,
}

struct Known {
    spec: PolicySpec,
    /// The statement that made it; none for one of the configuration.
    sql: Option<String>,
    help: String,
}

impl PolicyStatements {
    /// Those of the configuration, and those that an earlier agent kept in `state_dir`, which [`Self::restore`] takes up.
    pub fn open(state_dir: &Path, configured: &[PolicySpec]) -> Result<Self, AgentError> {
        let known = |spec: &PolicySpec| {
            let known = Known {
                spec: spec.clone(),
                sql: None,
                help: String::new(),
            };
            (spec.name.clone(), known)
        };
        Ok(Self {
            kept: Insights::open_file(state_dir, POLICIES_FILE)?,
            known: configured.iter().map(known).collect(),
        })
    }

    /// Takes up what was kept. One that no longer holds is left out with a word; it stays in the file.
    pub fn restore(&mut self, carry: &mut Carry<'_>) {
        let kept = self.kept.iter();
        let kept: Vec<(String, String)> = kept.map(|(n, sql)| (n.into(), sql.into())).collect();
        for (name, sql) in kept {
            let again = || match PolicyStatement::parse(&sql).map_err(Refusal::from)? {
                PolicyStatement::Create { policy, .. } => {
                    let (spec, help) = spec_of(*policy)?;
                    if spec.name != name {
                        return Err(statement(format!("it makes {}", spec.name)));
                    }
                    self.admit(&spec, false)?;
                    Ok((spec, help))
                }
                PolicyStatement::Drop { .. } => Err(statement("it is no CREATE POLICY")),
            };
            let taken = again().and_then(|(spec, help)| {
                carry(Change::Declare(spec.clone())).map_err(Refusal::Statement)?;
                Ok((spec, help))
            });
            match taken {
                Ok((spec, help)) => self.know(spec, &sql, help),
                Err(Refusal::Statement(error) | Refusal::Internal(error)) => {
                    warn!(%error, name, sql, "a policy is left out");
                }
            }
        }
    }

    /// Carries out a statement. What is to survive a restart is written first: a policy that cannot be kept is not made.
    pub fn execute(&mut self, sql: &str, carry: &mut Carry<'_>) -> Result<Done, Refusal> {
        let done = match PolicyStatement::parse(sql)? {
            PolicyStatement::Create { or_replace, policy } => {
                let (spec, help) = spec_of(*policy)?;
                self.admit(&spec, or_replace)?;
                self.create(spec, sql, help, carry)?
            }
            PolicyStatement::Drop { name, if_exists } => {
                self.droppable(&name, if_exists)?;
                self.drop(name, carry)?
            }
        };
        info!(policy = done.name, made = done.is_made, "changed");
        Ok(done)
    }

    /// A policy as it was meant, with the statement that made it; null if there is none of this name.
    pub fn policy(&self, name: &str) -> Json {
        self.known.get(name).map_or(Json::Null, |known| {
            let mut policy = json!(known.spec);
            known.tell(&mut policy);
            policy
        })
    }

    /// Adds to each row of the document where its policy comes from, its statement, and what it asks for beside the error.
    pub fn tell(&self, rows: &mut Json) {
        for row in rows.as_array_mut().into_iter().flatten() {
            let name = row["name"].as_str().unwrap_or_default();
            if let Some(known) = self.known.get(name) {
                known.tell(row);
            }
        }
    }

    fn create(
        &mut self,
        spec: PolicySpec,
        sql: &str,
        help: String,
        carry: &mut Carry<'_>,
    ) -> Result<Done, Refusal> {
        let before = self.kept.keep(&spec.name, Some(sql))?;
        if let Err(error) = carry(Change::Declare(spec.clone())) {
            self.kept.keep(&spec.name, before.as_deref())?;
            return Err(Refusal::Statement(error));
        }
        let name = spec.name.clone();
        self.know(spec, sql, help);
        Ok(Done {
            policy: self.policy(&name),
            name,
            is_made: true,
        })
    }

    fn drop(&mut self, name: String, carry: &mut Carry<'_>) -> Result<Done, Refusal> {
        let before = self.kept.keep(&name, None)?;
        let policy = self.policy(&name);
        // One that was left out at the start is only in the file.
        if self.known.contains_key(&name) {
            if let Err(error) = carry(Change::Drop(name.clone())) {
                self.kept.keep(&name, before.as_deref())?;
                return Err(Refusal::Statement(error));
            }
            self.known.remove(&name);
        }
        Ok(Done {
            name,
            is_made: false,
            policy,
        })
    }

    fn know(&mut self, spec: PolicySpec, sql: &str, help: String) {
        let sql = Some(sql.to_owned());
        let name = spec.name.clone();
        self.known.insert(name, Known { spec, sql, help });
    }

    /// Whether a policy of this name may be made now.
    fn admit(&self, spec: &PolicySpec, or_replace: bool) -> Result<(), Refusal> {
        let name = &spec.name;
        match self.known.get(name) {
            Some(Known { sql: None, .. }) => Err(configured(name)),
            Some(_) if !or_replace => Err(statement(format!(
                "there is a policy {name} already: write CREATE OR REPLACE POLICY, or drop it first"
            ))),
            Some(_) => Ok(()),
            None if self.made() >= POLICIES_MADE_MAX => Err(statement(format!(
                "policies made by statement: at most {POLICIES_MADE_MAX} (POLICIES_MADE_MAX): drop one first"
            ))),
            None => Ok(()),
        }
    }

    fn made(&self) -> usize {
        self.known.values().filter(|k| k.sql.is_some()).count()
    }

    fn droppable(&self, name: &str, if_exists: bool) -> Result<(), Refusal> {
        let is_kept = || self.kept.iter().any(|(kept, _)| kept == name);
        match self.known.get(name) {
            Some(Known { sql: None, .. }) => Err(configured(name)),
            Some(_) => Ok(()),
            None if if_exists || is_kept() => Ok(()),
            None => {
                let hint = match near(name, self.known.keys().map(String::as_str)) {
                    near if near.is_empty() => "see the table policies for what there is".into(),
                    near => format!("did you mean {}?", near.join(" or ")),
                };
                Err(statement(format!("there is no policy {name}: {hint}")))
            }
        }
    }
}

impl Known {
    fn tell(&self, row: &mut Json) {
        row["origin"] = match self.sql {
            Some(_) => "made".into(),
            None => "configured".into(),
        };
        row["sql"] = json!(self.sql);
        row["help"] = self.help.as_str().into();
        row["interval_min_ms"] = self.spec.interval_min_ms.into();
        row["interval_max_ms"] = self.spec.interval_max_ms.into();
        row["sentinel"] = json!(self.spec.sentinel);
        row["pressure"] = json!(self.spec.pressure);
        row["weight"] = self.spec.weight.into();
    }
}

fn statement(message: impl Into<String>) -> Refusal {
    Refusal::Statement(message.into())
}

fn configured(name: &str) -> Refusal {
    statement(format!(
        "the policy {name} is of the configuration ([[policy]]): change it there and start the agent again, \
         or make one of another name, which counts before it"
    ))
}

/// What was written, with the defaults of what was not, checked; and its help.
fn spec_of(text: PolicyText) -> Result<(PolicySpec, String), Refusal> {
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
    spec.check().map_err(|fault| statement(in_words(&fault)))?;
    Ok((spec, text.help.unwrap_or_default()))
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
    use super::*;

    const ONE: &str =
        "CREATE POLICY one FOR 'filesystem.*' ERROR '1 %' BETWEEN '2 s' AND '1 min' HELP 'h'";

    struct Rig {
        dir: tempfile::TempDir,
        configured: Vec<PolicySpec>,
        statements: PolicyStatements,
        changes: Vec<Change>,
        /// Why changes are refused, if they are.
        refusal: Option<String>,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let configured = PolicySpec {
                name: "fixed".into(),
                streams: vec!["disk.*".into()],
                error: Some("1 %".into()),
                ..PolicySpec::default()
            };
            let configured = vec![configured];
            let statements = PolicyStatements::open(dir.path(), &configured).unwrap();
            Self {
                dir,
                configured,
                statements,
                changes: Vec::new(),
                refusal: None,
            }
        }

        fn execute(&mut self, sql: &str) -> Result<Done, String> {
            let (changes, refusal) = (&mut self.changes, self.refusal.clone());
            let mut carry = |change| match refusal.clone() {
                Some(reason) => Err(reason),
                None => {
                    changes.push(change);
                    Ok(())
                }
            };
            let done = self.statements.execute(sql, &mut carry);
            done.map_err(|refusal| match refusal {
                Refusal::Statement(message) | Refusal::Internal(message) => message,
            })
        }

        /// What an agent that starts now takes up.
        fn restart(&mut self) -> Vec<Change> {
            let mut changes = Vec::new();
            self.statements = PolicyStatements::open(self.dir.path(), &self.configured).unwrap();
            self.statements.restore(&mut |change| {
                changes.push(change);
                Ok(())
            });
            changes
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
        assert_eq!(rig.changes, [Change::Declare(one())]);
        assert_eq!(rig.restart(), [Change::Declare(one())]);
        assert_eq!(rig.execute("DROP POLICY one").unwrap().name, name);
        assert_eq!(rig.changes[1..], [Change::Drop(name)]);
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
        assert_eq!(rig.changes, [Change::Declare(expect)]);
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
        let [Change::Declare(spec)] = &rig.restart()[..] else {
            panic!("one policy");
        };
        assert_eq!(spec.kind, PolicySpecKind::Fixed);
        assert_eq!(rig.statements.policy("one")["sql"], other);
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
        assert_eq!(rig.changes, []);
        assert_eq!(rig.statements.policy("fixed")["origin"], "configured");
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
        assert_eq!(rig.changes, []);
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
        assert_eq!(rig.changes.len(), 1);
    }

    #[test]
    fn what_is_not_followed_is_not_kept() {
        let mut rig = Rig::new();
        rig.refusal = Some("no room".into());
        rig.refused(ONE, "no room");
        assert_eq!(rig.restart(), []);
        rig.refusal = None;
        rig.execute(ONE).unwrap();
        rig.refusal = Some("stuck".into());
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
        assert_eq!(rig.restart(), [Change::Declare(one())]);
        for name in ["a", "b", "c", "d"] {
            rig.execute(&format!("DROP POLICY {name}")).unwrap();
        }
        assert_eq!(rig.changes.len(), 1, "those were followed by nobody");
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(!kept.contains("nonsense"), "{kept}");
    }

    #[test]
    fn rows_tell_where_their_policy_comes_from() {
        let mut rig = Rig::new();
        rig.execute(ONE).unwrap();
        let mut rows = json!([{ "name": "fixed" }, { "name": "one" }, { "name": "other" }]);
        rig.statements.tell(&mut rows);
        assert_eq!(rows[0]["origin"], "configured");
        assert_eq!(
            (&rows[0]["sql"], &rows[0]["help"]),
            (&Json::Null, &json!(""))
        );
        assert_eq!(rows[1]["origin"], "made");
        assert_eq!(
            (&rows[1]["sql"], &rows[1]["help"]),
            (&json!(ONE), &json!("h"))
        );
        assert_eq!(rows[1]["interval_min_ms"], 2_000);
        assert_eq!(rows[2], json!({ "name": "other" }));
    }

    #[test]
    fn they_are_bounded() {
        let mut rig = Rig::new();
        for n in 0..POLICIES_MADE_MAX {
            let known = Known {
                spec: one(),
                sql: Some(ONE.into()),
                help: String::new(),
            };
            rig.statements.known.insert(format!("p{n}"), known);
        }
        rig.refused(ONE, "POLICIES_MADE_MAX");
    }
}
