//! A file of statements, and how it is changed: a new file is written beside it and synced, and
//! replaces it when the change is made.
//!
//! It is apart from the store because insights of the cluster are kept in the same way.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_archive::{FileAccess, Storage};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StatementTroubles;
use crate::AgentError;
use crate::refusal::StatementRefusal;

/// Most damaged files that are kept beside each file. If there are that many, the next damaged file
/// stays where it is, and no statement is kept in its place.
const DAMAGED_MAX: u32 = 100;
/// Bytes that are written to test whether there is room: a statement or two.
const PROBE_BYTES: usize = 4 << 10;

/// Statements of one kind, by name, and the file in which they are kept. `T` is a statement as it
/// is kept: its text, or more.
pub(crate) struct StatementFile<T> {
    path: PathBuf,
    pub(super) statements: BTreeMap<String, T>,
    /// Whether the file has only these statements. A file that could not be read must not be
    /// overwritten.
    pub(super) is_ours: bool,
    troubles: StatementTroubles,
}

/// A change of a file that is written and synced, but has not replaced the file yet. Dropping it
/// removes the written file.
pub(crate) struct StatementChange<T> {
    statements: BTreeMap<String, T>,
    written: PathBuf,
    storage: Arc<dyn Storage>,
}

impl<T> Drop for StatementChange<T> {
    fn drop(&mut self) {
        // After a commit no file has this name.
        let _ = self.storage.unlink(&self.written);
    }
}

impl<T: Clone + PartialEq + Serialize + DeserializeOwned> StatementFile<T> {
    /// Reads the file. A directory that this user may never write is an error; all else is in
    /// `troubles`.
    pub(crate) fn open(path: &Path, troubles: &StatementTroubles) -> Result<Self, AgentError> {
        let mut file = Self {
            path: path.to_owned(),
            statements: BTreeMap::new(),
            is_ours: true,
            troubles: troubles.clone(),
        };
        file.read();
        // A problem is noticed now, rather than when the first statement is made.
        let probed = probe(&**file.storage(), path);
        match probed {
            Err(source) if !is_passing(&source) => Err(AgentError::State {
                what: "write",
                path: path.to_owned(),
                source,
            }),
            Err(error) => {
                troubles.set(path, cannot("write", path, &error));
                Ok(file)
            }
            Ok(()) => Ok(file),
        }
    }

    fn read(&mut self) {
        let path = &self.path;
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            // Below a path that is no directory there is nothing to read. The probe reports that it
            // cannot be written.
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

    /// Gives a damaged file a free name, never one that another agent has just taken.
    fn set_aside(&mut self, why: &str) {
        let path = &self.path;
        let renamed = (1..=DAMAGED_MAX).find_map(|n| {
            let aside = path.with_added_extension(format!("damaged-{n}"));
            match self.storage().link(path, &aside) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                Err(error) => Some(Err(error)),
                Ok(()) => Some(self.storage().unlink(path).map(|()| aside)),
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

    /// The statements by name.
    pub(crate) fn statements(&self) -> &BTreeMap<String, T> {
        &self.statements
    }

    /// Writes and syncs the new file: with this statement, or without the one of this name. Returns
    /// `None` if nothing changes.
    pub(super) fn prepare(
        &self,
        name: &str,
        statement: Option<T>,
    ) -> Result<Option<StatementChange<T>>, StatementRefusal> {
        let mut statements = self.statements.clone();
        match statement {
            Some(statement) => statements.insert(name.to_owned(), statement),
            None => statements.remove(name),
        };
        self.prepare_all(statements)
    }

    /// Writes and syncs the new file, with these statements. Returns `None` if nothing changes.
    pub(crate) fn prepare_all(
        &self,
        statements: BTreeMap<String, T>,
    ) -> Result<Option<StatementChange<T>>, StatementRefusal> {
        if self.statements == statements {
            return Ok(None);
        }
        let written = self.write(&statements).map_err(|error| {
            let cannot = cannot("write", &self.path, &error);
            self.troubles.set(&self.path, cannot.clone());
            StatementRefusal::Internal(format!(
                "nothing was changed, since it would not survive a restart: {cannot}"
            ))
        })?;
        self.troubles.set(&self.path, String::new());
        Ok(Some(StatementChange {
            statements,
            written,
            storage: Arc::clone(self.storage()),
        }))
    }

    /// Replaces the file by the prepared change.
    pub(crate) fn commit(
        &mut self,
        change: Option<StatementChange<T>>,
    ) -> Result<(), StatementRefusal> {
        let Some(mut change) = change else {
            return Ok(());
        };
        let renamed = self.storage().rename(&change.written, &self.path);
        if renamed.is_ok() {
            // The file is this one now, even if its directory cannot be synced: the next change
            // must not write it without this statement.
            self.statements = std::mem::take(&mut change.statements);
        }
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        let kept = renamed.and_then(|()| self.storage().sync_dir(dir));
        kept.map_err(|error| {
            let cannot = cannot("rename", &self.path, &error);
            self.troubles.set(&self.path, cannot.clone());
            StatementRefusal::Internal(format!(
                "it is done, and may not survive a restart: {cannot}"
            ))
        })
    }

    fn write(&self, statements: &BTreeMap<String, T>) -> io::Result<PathBuf> {
        if !self.is_ours {
            return Err(io::Error::other(
                "it has statements that this agent could not read: move it away, then start again",
            ));
        }
        let bytes = serde_json::to_vec_pretty(statements)?;
        write_beside(&**self.storage(), &self.path, "new", &bytes)
    }

    fn storage(&self) -> &Arc<dyn Storage> {
        &self.troubles.world.storage
    }
}

/// Writes and syncs a file that is to be renamed to `path`. If that fails, the file is removed.
fn write_beside(
    storage: &dyn Storage,
    path: &Path,
    extension: &str,
    bytes: &[u8],
) -> io::Result<PathBuf> {
    if let Some(dir) = path.parent() {
        storage.make_lasting_dir(dir)?;
    }
    let temporary = path.with_extension(extension);
    // A crash may have left one.
    storage.unlink(&temporary)?;
    let mut file = storage.create(&temporary, FileAccess::Private)?;
    let written = file.write_all(bytes).and_then(|()| file.sync());
    if let Err(error) = written {
        let _ = storage.unlink(&temporary);
        return Err(error);
    }
    Ok(temporary)
}

/// Tests whether a statement could be kept in this file now.
pub(super) fn probe(storage: &dyn Storage, path: &Path) -> io::Result<()> {
    // The probe has its own name, since a prepared change may wait to replace the file.
    let probe = write_beside(storage, path, "probe", &[b' '; PROBE_BYTES])?;
    storage.unlink(&probe)
}

/// Returns whether an error of the system may pass soon, without a change of access rights.
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

pub(super) fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
