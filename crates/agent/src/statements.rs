//! The statements that users made at run time, and the only way to change them.
//!
//! A statement is written beside the file of its kind and synced, then it is applied, and then the
//! new file replaces the old one. So a statement that cannot be kept is not applied, and one that
//! is refused is not kept. All of this is on the thread of the client, so sampling waits for no
//! disk.
//!
//! The files of the state directory must never keep the agent from observing. A directory that is
//! full is tried again; a damaged file is renamed and kept, and nothing is written over it.
//! [`StatementTroubles`] holds the problems with the files, for every place where users look.

mod file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_recorder::World;
use barograph_statement::{StatementAction, StatementHead, StatementKind};
use barograph_stream::StatementsRow;
use serde_json::Value as Json;
use tracing::{error, info};

use crate::AgentError;
use crate::refusal::{StatementAnswer, StatementRefusal};

pub(crate) use file::StatementFile;
use file::{cannot, probe};

/// The problems with the files of statements, by file. [`StatementStore`] sets them; the loop
/// publishes them.
#[derive(Clone)]
pub(crate) struct StatementTroubles {
    world: World,
    by_file: Arc<Mutex<BTreeMap<PathBuf, Trouble>>>,
    /// Whether a job is trying again at the moment.
    is_trying: Arc<AtomicBool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trouble {
    /// Reason why no statement can be kept now; empty if it can.
    now: String,
    /// Problem that was found at the start, and stays until the next start.
    found: String,
}

impl StatementTroubles {
    /// Returns no problems with files of this world.
    pub(crate) fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            by_file: Arc::default(),
            is_trying: Arc::default(),
        }
    }

    /// Tries again to write files that could not be written, so that a problem that has passed is
    /// not reported for ever. This is a job beside the caller, who must not wait for a disk; only
    /// one such job runs at a time.
    pub(crate) fn attend(&self) {
        let is_troubled = self.lock().values().any(|trouble| !trouble.now.is_empty());
        if !is_troubled || self.is_trying.swap(true, Ordering::AcqRel) {
            return;
        }
        let troubles = self.clone();
        let started = self.world.work.start("baro-state", move || {
            troubles.try_again();
            troubles.is_trying.store(false, Ordering::Release);
        });
        if started.is_err() {
            self.is_trying.store(false, Ordering::Release);
        }
    }

    fn try_again(&self) {
        let troubled: Vec<PathBuf> = {
            let all = self.lock();
            let troubled = all.iter().filter(|(_, trouble)| !trouble.now.is_empty());
            troubled.map(|(path, _)| path.clone()).collect()
        };
        for path in troubled {
            let now = probe(&*self.world.storage, &path).err();
            self.set(
                &path,
                now.map_or(String::new(), |error| cannot("write", &path, &error)),
            );
        }
    }

    /// Returns all problems as one sentence; empty if there are none.
    pub(crate) fn sentence(&self) -> String {
        let all = self.lock();
        let texts = all
            .values()
            .flat_map(|trouble| [&trouble.now, &trouble.found]);
        let texts: Vec<&str> = texts
            .map(String::as_str)
            .filter(|text| !text.is_empty())
            .collect();
        texts.join("; ")
    }

    /// Returns the contents of `statements.json`.
    pub(crate) fn document(&self) -> Vec<StatementsRow> {
        let all = self.lock();
        let rows = all.iter().map(|(path, trouble)| StatementsRow {
            file: path.display().to_string(),
            trouble: trouble.now.clone(),
            found: trouble.found.clone(),
        });
        rows.collect()
    }

    fn set(&self, path: &Path, now: String) {
        let mut all = self.lock();
        let trouble = all.entry(path.to_owned()).or_default();
        if trouble.now != now {
            if !now.is_empty() {
                error!("{now}: statements are not kept until there is room");
            }
            trouble.now = now;
        }
    }

    fn found(&self, path: &Path, found: String) {
        error!("{found}");
        self.lock().entry(path.to_owned()).or_default().found = found;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Trouble>> {
        // Nothing that holds this lock can leave half a value behind.
        self.by_file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The statements that users made at run time, by kind and name.
pub(crate) struct StatementStore {
    files: Mutex<[StatementFile<String>; StatementKind::ALL.len()]>,
    /// Held while something changes what runs, so that a reload and a statement do not meet.
    changing: Mutex<()>,
}

impl StatementStore {
    /// Reads the statements that an earlier agent kept in `state_dir`. Only a directory that this
    /// user may never write is an error; all other problems go to `troubles`.
    pub(crate) fn open(state_dir: &Path, troubles: &StatementTroubles) -> Result<Self, AgentError> {
        let is_renamed = rename_rules(state_dir, troubles);
        let open = |kind| StatementFile::open(&state_dir.join(file_of(kind)), troubles);
        let [insights, policies, rules, watches] = StatementKind::ALL;
        let mut files = [
            open(insights)?,
            open(policies)?,
            open(rules)?,
            open(watches)?,
        ];
        files[rules as usize].is_ours &= is_renamed;
        Ok(Self {
            files: Mutex::new(files),
            changing: Mutex::new(()),
        })
    }

    /// Returns the statements of one kind, by name.
    pub(crate) fn of(&self, kind: StatementKind) -> BTreeMap<String, String> {
        self.lock()[kind as usize].statements.clone()
    }

    /// Executes a statement: `apply` does the work, and its answer is returned. One statement at a
    /// time.
    pub(crate) fn execute(
        &self,
        sql: &str,
        apply: impl FnOnce(&StatementHead) -> StatementAnswer,
    ) -> StatementAnswer {
        let head = StatementHead::read(sql)?;
        let statement = match head.action {
            StatementAction::Create { .. } => Some(sql),
            StatementAction::Drop { .. } => None,
        };
        let _changing = self.pause();
        let mut files = self.lock();
        let file = &mut files[head.kind as usize];
        let was_kept = file.statements.contains_key(&head.name);
        let change = file.prepare(&head.name, statement.map(str::to_owned))?;
        let answer = match apply(&head) {
            // A statement that was not valid at the start exists only in the file.
            Err(StatementRefusal::Absent(_)) if was_kept && statement.is_none() => Ok(Json::Null),
            // The statement waits for the loop, and will be applied.
            Err(late @ StatementRefusal::Late(_)) => {
                file.commit(change)?;
                return Err(late);
            }
            answer => answer,
        };
        let answer = answer?;
        file.commit(change)?;
        info!(kind = ?head.kind, name = head.name, made = statement.is_some(), "changed");
        Ok(answer)
    }

    /// Keeps statements from being executed until the guard is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, [StatementFile<String>; StatementKind::ALL.len()]> {
        // A change takes effect by one assignment.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of the file of each kind, in the state directory.
fn file_of(kind: StatementKind) -> &'static str {
    match kind {
        StatementKind::Insight => "insights.json",
        StatementKind::Policy => "policies.json",
        StatementKind::Rule => "rules.json",
        StatementKind::Watch => "watches.json",
    }
}

/// Renames the file in which earlier versions kept the rules, if it is the only one. Returns false
/// if that failed: the rules in it must then not be forgotten by writing another file.
fn rename_rules(state_dir: &Path, troubles: &StatementTroubles) -> bool {
    let before = state_dir.join("triggers.json");
    let now = state_dir.join(file_of(StatementKind::Rule));
    if now.exists() || !before.exists() {
        return true;
    }
    let renamed = troubles.world.storage.rename(&before, &now);
    if let Err(error) = &renamed {
        let cannot = cannot("rename", &before, error);
        troubles.found(
            &before,
            format!("{cannot}: its rules are left out; name it rules.json, then start again"),
        );
    }
    renamed.is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(dir: &Path, troubles: &StatementTroubles) -> StatementStore {
        StatementStore::open(dir, troubles).unwrap()
    }

    fn done(_: &StatementHead) -> StatementAnswer {
        Ok(Json::from("done"))
    }

    fn insights(dir: &Path) -> Vec<(String, String)> {
        let store = open(dir, &StatementTroubles::new(&World::real()));
        store.of(StatementKind::Insight).into_iter().collect()
    }

    #[test]
    fn statements_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let troubles = StatementTroubles::new(&World::real());
        let store = open(dir.path(), &troubles);
        let first = "CREATE INSIGHT a.b AS SELECT 1";
        assert_eq!(store.execute(first, done).unwrap(), Json::from("done"));
        let second = "CREATE INSIGHT c AS SELECT 2";
        store.execute(second, done).unwrap();
        store
            .execute("CREATE POLICY c FOR 'x' ERROR '1'", done)
            .unwrap();
        store.execute("DROP INSIGHT c", done).unwrap();
        assert_eq!(insights(dir.path()), [("a.b".into(), first.into())]);
        assert_eq!(troubles.sentence(), "");
        assert_eq!(store.of(StatementKind::Policy).len(), 1);
    }

    #[test]
    fn rules_of_earlier_versions_are_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let rules = |store: &StatementStore| store.of(StatementKind::Rule);
        fs::write(path("triggers.json"), r#"{"a": "CREATE TRIGGER a"}"#).unwrap();
        let store = open(dir.path(), &StatementTroubles::new(&World::real()));
        assert_eq!(rules(&store)["a"], "CREATE TRIGGER a");
        assert!(path("rules.json").exists() && !path("triggers.json").exists());
        store.execute("CREATE RULE b", done).unwrap();
        // Beside a file of today, the other one is only a file.
        fs::write(path("triggers.json"), r#"{"c": "CREATE TRIGGER c"}"#).unwrap();
        let store = open(dir.path(), &StatementTroubles::new(&World::real()));
        assert_eq!(rules(&store).into_keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(path("triggers.json").exists());
    }

    #[test]
    fn what_is_refused_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), &StatementTroubles::new(&World::real()));
        let refuse = |_: &StatementHead| Err(StatementRefusal::Statement("no".into()));
        let first = "CREATE INSIGHT a AS SELECT 1";
        assert!(store.execute(first, refuse).is_err());
        assert_eq!(insights(dir.path()), []);
        store.execute(first, done).unwrap();
        assert!(
            store
                .execute("CREATE INSIGHT a AS SELECT 2", refuse)
                .is_err()
        );
        assert!(store.execute("DROP INSIGHT a", refuse).is_err());
        assert_eq!(insights(dir.path()), [("a".into(), first.into())]);
        // No prepared change is left behind.
        let names = fs::read_dir(dir.path()).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn what_is_only_kept_can_be_dropped() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("policies.json"), r#"{"a": "nonsense"}"#).unwrap();
        let store = open(dir.path(), &StatementTroubles::new(&World::real()));
        let absent = |_: &StatementHead| Err(StatementRefusal::Absent("there is no policy".into()));
        assert_eq!(store.execute("DROP POLICY a", absent).unwrap(), Json::Null);
        assert!(store.execute("DROP POLICY a", absent).is_err());
        assert_eq!(store.of(StatementKind::Policy).len(), 0);
    }

    #[test]
    fn what_is_late_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), &StatementTroubles::new(&World::real()));
        let late = |_: &StatementHead| Err(StatementRefusal::Late("not yet".into()));
        let first = "CREATE INSIGHT a AS SELECT 1";
        assert!(store.execute(first, late).is_err());
        assert_eq!(insights(dir.path()), [("a".into(), first.into())]);
    }

    #[test]
    fn damaged_files_are_kept_beside_and_new_statements_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("insights.json");
        for (n, damaged) in [(1, "{"), (2, "[1]"), (3, "\0\0\0\0")] {
            let troubles = StatementTroubles::new(&World::real());
            fs::write(&path, damaged).unwrap();
            let store = open(dir.path(), &troubles);
            let sentence = troubles.sentence();
            assert!(
                sentence.contains(&format!("insights.json.damaged-{n}")),
                "{sentence}"
            );
            store.execute("CREATE INSIGHT a AS SELECT 1", done).unwrap();
            assert_eq!(insights(dir.path()).len(), 1);
        }
        // Each damaged file is as it was.
        let kept = fs::read_to_string(dir.path().join("insights.json.damaged-2")).unwrap();
        assert_eq!(kept, "[1]");
    }

    #[test]
    fn what_cannot_be_read_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let troubles = StatementTroubles::new(&World::real());
        // A directory can be opened, but not read.
        fs::create_dir(dir.path().join("insights.json")).unwrap();
        let store = open(dir.path(), &troubles);
        assert!(troubles.sentence().contains("cannot read"));
        let refused = store.execute("CREATE INSIGHT a AS SELECT 1", done);
        assert!(
            matches!(refused, Err(StatementRefusal::Internal(why)) if why.contains("move it away"))
        );
        assert_eq!(store.of(StatementKind::Insight).len(), 0);
    }

    #[test]
    fn a_directory_that_may_not_be_written_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = StatementStore::open(&file, &StatementTroubles::new(&World::real()));
        let error = refused.err().unwrap().to_string();
        assert!(
            error.contains("insights.json") && error.contains("--state-dir"),
            "{error}"
        );
    }
}
