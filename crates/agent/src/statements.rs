//! Statements that people made at run time, in files of the state directory: they come back after a restart.
//!
//! They stand alone because their files must never keep the agent from observing. A directory that is full now is
//! tried again; a file that cannot be understood is kept beside, under another name, and nothing is written over it.
//! What is wrong is told by [`Troubles`], wherever people look.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::{Value as Json, json};
use tracing::error;

use crate::AgentError;
use crate::control::Refusal;

/// The statements that made insights.
pub const INSIGHTS_FILE: &str = "insights.json";
/// The statements that made policies.
pub const POLICIES_FILE: &str = "policies.json";
/// The statements that made triggers.
pub const TRIGGERS_FILE: &str = "triggers.json";
/// Most damaged files that are kept beside each file; beyond it the damaged one stays where it is, and nothing is
/// kept in its place.
const DAMAGED_MAX: u32 = 100;
/// What is written to see whether there is room: a statement or two.
const PROBE_BYTES: usize = 4 << 10;

/// What is wrong with the files of statements, by file. Shared by those who keep them and those who tell.
#[derive(Clone, Debug, Default)]
pub struct Troubles {
    by_file: Arc<Mutex<BTreeMap<PathBuf, Trouble>>>,
    /// Whether a thread tries again just now.
    is_trying: Arc<AtomicBool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trouble {
    /// Why nothing can be kept now; empty when it can.
    now: String,
    /// What was found at the start, and stays true.
    found: String,
}

impl Troubles {
    /// Tries again what could not be written, so that a trouble that has passed is not told for ever. On a thread of
    /// its own, since whoever asks must not wait for a disk; one at a time.
    pub fn attend(&self) {
        let is_troubled = self.lock().values().any(|trouble| !trouble.now.is_empty());
        if !is_troubled || self.is_trying.swap(true, Ordering::AcqRel) {
            return;
        }
        let troubles = self.clone();
        let thread = std::thread::Builder::new().name("baro-state".into());
        let started = thread.spawn(move || {
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
            let now = probe(&path).err();
            self.set(
                &path,
                now.map_or(String::new(), |error| cannot("write", &path, &error)),
            );
        }
    }

    /// What is wrong, as one sentence; empty when nothing is.
    pub fn sentence(&self) -> String {
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

    /// The whole of `statements.json`.
    pub fn document(&self) -> Json {
        let all = self.lock();
        let rows = all.iter().map(|(path, trouble)| {
            json!({
                "file": path.display().to_string(),
                "trouble": trouble.now,
                "found": trouble.found,
            })
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
        // Nothing that holds it can leave half a value behind.
        self.by_file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Statements of one kind, by name, and the file that they are kept in.
pub struct Statements {
    path: PathBuf,
    statements: BTreeMap<String, String>,
    /// Whether the file has nothing but these: what is in it and not understood must not be overwritten.
    is_ours: bool,
    troubles: Troubles,
}

impl Statements {
    /// Reads what an earlier agent kept in a file of `state_dir`. Only a directory that this user may never write is
    /// an error; all else is told, and passes or is kept for people to look at.
    pub fn open(state_dir: &Path, file: &str, troubles: &Troubles) -> Result<Self, AgentError> {
        let path = state_dir.join(file);
        let mut statements = Self {
            path: path.clone(),
            statements: BTreeMap::new(),
            is_ours: true,
            troubles: troubles.clone(),
        };
        statements.read();
        // Noticed now rather than when the first statement is made.
        match probe(&path) {
            Err(source) if !is_passing(&source) => {
                let what = "write";
                Err(AgentError::State { what, path, source })
            }
            Err(error) => {
                troubles.set(&path, cannot("write", &path, &error));
                Ok(statements)
            }
            Ok(()) => Ok(statements),
        }
    }

    fn read(&mut self) {
        let path = &self.path;
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            // Below something that is no directory there is nothing; that it cannot be written is noticed next.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return,
            Err(error) => {
                self.is_ours = false;
                self.troubles.found(path, cannot("read", path, &error));
                return;
            }
        };
        match serde_json::from_slice(&bytes) {
            Ok(statements) => self.statements = statements,
            Err(why) => self.set_aside(&why.to_string()),
        }
    }

    /// Renames a damaged file to a name that is free.
    fn set_aside(&mut self, why: &str) {
        let path = &self.path;
        let renamed = (1..=DAMAGED_MAX).find_map(|n| {
            let mut aside = path.as_os_str().to_owned();
            aside.push(format!(".damaged-{n}"));
            let aside = PathBuf::from(aside);
            match renameat_with(CWD, path, CWD, &aside, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => None,
                result => Some(result.map(|()| aside)),
            }
        });
        let damaged = format!("{} is damaged ({why})", path.display());
        let found = match renamed {
            Some(Ok(aside)) => format!(
                "{damaged}: it is kept as {}; mend it and put it back before the next start, or make its \
                 statements again",
                aside.display()
            ),
            Some(Err(error)) => {
                self.is_ours = false;
                format!("{damaged} and cannot be renamed ({error}): move it away, then start again")
            }
            None => {
                self.is_ours = false;
                format!("{damaged}, as {DAMAGED_MAX} before it: remove those that are beside it")
            }
        };
        self.troubles.found(path, found);
    }

    /// Name and statement of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.statements
            .iter()
            .map(|(name, sql)| (name.as_str(), sql.as_str()))
    }

    /// Keeps a statement for the next start, or with `None` no longer; gives what was kept before.
    /// When it cannot be written nothing has changed.
    pub fn keep(&mut self, name: &str, statement: Option<&str>) -> Result<Option<String>, Refusal> {
        let before = self.set(name, statement.map(str::to_owned));
        if before.as_deref() == statement {
            return Ok(before);
        }
        match self.write() {
            Ok(()) => {
                self.troubles.set(&self.path, String::new());
                Ok(before)
            }
            Err(error) => {
                self.set(name, before);
                let cannot = cannot("write", &self.path, &error);
                self.troubles.set(&self.path, cannot.clone());
                Err(Refusal::Internal(format!(
                    "nothing was changed, since it would not survive a restart: {cannot}"
                )))
            }
        }
    }

    fn set(&mut self, name: &str, statement: Option<String>) -> Option<String> {
        match statement {
            Some(statement) => self.statements.insert(name.to_owned(), statement),
            None => self.statements.remove(name),
        }
    }

    fn write(&self) -> io::Result<()> {
        if !self.is_ours {
            return Err(io::Error::other(
                "it has statements that this agent could not read: move it away, then start again",
            ));
        }
        let bytes = serde_json::to_vec_pretty(&self.statements)?;
        let temporary = write_beside(&self.path, &bytes)?;
        fs::rename(&temporary, &self.path)
    }
}

/// Writes and syncs what is to be renamed to `path`: whole or not at all.
fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)?;
    }
    let temporary = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(temporary)
}

/// Whether a statement could be kept in this file now.
fn probe(path: &Path) -> io::Result<()> {
    fs::remove_file(write_beside(path, &[b' '; PROBE_BYTES])?)
}

/// Whether what the system said may be otherwise soon, without anybody changing who may write where.
fn is_passing(error: &io::Error) -> bool {
    let passing = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::ROFS,
        Errno::IO,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::STALE,
        Errno::INTR,
    ];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path, troubles: &Troubles) -> Statements {
        Statements::open(dir, INSIGHTS_FILE, troubles).unwrap()
    }

    #[test]
    fn statements_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let troubles = Troubles::default();
        let mut insights = open(dir.path(), &troubles);
        let first = "CREATE INSIGHT a.b AS SELECT 1";
        assert_eq!(insights.keep("a.b", Some(first)).unwrap(), None);
        insights
            .keep("c", Some("CREATE INSIGHT c AS SELECT 2"))
            .unwrap();
        assert!(insights.keep("c", None).unwrap().is_some());
        let again = open(dir.path(), &troubles);
        let all: Vec<_> = again.iter().collect();
        assert_eq!(all, [("a.b", "CREATE INSIGHT a.b AS SELECT 1")]);
        assert_eq!(troubles.sentence(), "");
    }

    #[test]
    fn damaged_files_are_kept_beside_and_new_statements_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for (n, damaged) in [(1, "{"), (2, "[1]"), (3, "\0\0\0\0")] {
            let troubles = Troubles::default();
            fs::write(dir.path().join(INSIGHTS_FILE), damaged).unwrap();
            let mut insights = open(dir.path(), &troubles);
            let sentence = troubles.sentence();
            assert!(
                sentence.contains(&format!("insights.json.damaged-{n}")),
                "{sentence}"
            );
            insights
                .keep("a", Some("CREATE INSIGHT a AS SELECT 1"))
                .unwrap();
            assert_eq!(open(dir.path(), &Troubles::default()).iter().count(), 1);
        }
        // Each as it was.
        let kept = fs::read_to_string(dir.path().join("insights.json.damaged-2")).unwrap();
        assert_eq!(kept, "[1]");
    }

    #[test]
    fn what_cannot_be_read_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let troubles = Troubles::default();
        // A directory can be opened, and not read.
        fs::create_dir(dir.path().join(INSIGHTS_FILE)).unwrap();
        let mut insights = open(dir.path(), &troubles);
        assert!(troubles.sentence().contains("cannot read"));
        let refused = insights.keep("a", Some("CREATE INSIGHT a AS SELECT 1"));
        assert!(matches!(refused, Err(Refusal::Internal(why)) if why.contains("move it away")));
        assert_eq!(insights.iter().count(), 0);
    }

    #[test]
    fn a_directory_that_may_not_be_written_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = Statements::open(&file, INSIGHTS_FILE, &Troubles::default());
        let error = refused.err().unwrap().to_string();
        assert!(
            error.contains("insights.json") && error.contains("--state-dir"),
            "{error}"
        );
    }
}
