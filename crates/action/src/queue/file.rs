//! The file of the queue: making it, checking it, and setting it aside if it is damaged.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::config::{Durability, QueueConfig};
use super::fault::QueueFault;

/// Version of the schema. A file of an older one is brought up to date; of a newer one, refused.
const SCHEMA: i64 = 1;
/// Statements that are kept prepared.
const STATEMENTS_MAX: usize = 64;
/// Bytes to which the log is cut when its pages are in the file.
const LOG_BYTES_KEPT: i64 = 8 << 20;
/// How long the end of another process that has the file is waited for.
const BUSY_WAIT: Duration = Duration::from_millis(500);
/// The files that belong to a database, in the order in which they are set aside: a log that was
/// left alone would be played into the next database.
const PARTS: [&str; 3] = ["-wal", "-shm", ""];

/// `at_ns` is the time at which a waiting action is due, at which a lease ends, or at which an
/// action was finished. Ids are never used twice, as leases name them.
const TABLES: &str = "
CREATE TABLE rules(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    refused INTEGER NOT NULL DEFAULT 0,
    duplicates INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE origins(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    rule INTEGER NOT NULL,
    version INTEGER NOT NULL,
    source TEXT NOT NULL,
    forgotten INTEGER,
    touched_ns INTEGER NOT NULL,
    UNIQUE(rule, version, source)
) STRICT;
CREATE TABLE actions(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    rule INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    number INTEGER NOT NULL,
    state INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    lease INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    delivery INTEGER NOT NULL,
    attempts_max INTEGER NOT NULL,
    wait_ns_min INTEGER NOT NULL,
    wait_ns_max INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    enqueued_ns INTEGER NOT NULL,
    started_ns INTEGER,
    worker TEXT,
    reason TEXT,
    output BLOB,
    body BLOB NOT NULL,
    UNIQUE(origin, number)
) STRICT;
CREATE TABLE cursors(
    source TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    ts_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX actions_waiting ON actions(rule, at_ns) WHERE state = 0;
CREATE INDEX actions_finished ON actions(state, at_ns) WHERE state >= 2;
";

/// An open file.
pub(super) struct QueueFile {
    pub(super) connection: Connection,
    /// Where the damaged file is now that was in the way, and what was wrong with it.
    pub(super) set_aside: Option<(PathBuf, String)>,
}

/// Opens the file, or makes it. A damaged one is set aside first.
pub(super) fn open(
    path: &Path,
    config: &QueueConfig,
    now_ns: i64,
) -> Result<QueueFile, QueueFault> {
    match connect(path, config) {
        Ok(connection) => Ok(QueueFile {
            connection,
            set_aside: None,
        }),
        Err(QueueFault::Damaged { reason, .. }) => {
            let place = set_aside(path, config, now_ns)?;
            tracing::error!(
                queue = %path.display(), set_aside = %place.display(), reason,
                "the queue of actions was damaged and is set aside; its actions are not run"
            );
            Ok(QueueFile {
                connection: connect(path, config)?,
                set_aside: Some((place, reason)),
            })
        }
        Err(fault) => Err(fault),
    }
}

fn connect(path: &Path, config: &QueueConfig) -> Result<Connection, QueueFault> {
    // Bodies have paths of all users: SQLite gives the log the mode of the file.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| QueueFault::io("open", path, error))?;
    prepare(path, config).map_err(|error| QueueFault::sqlite("open", path, error))?
}

/// The outer error is SQLite's, the inner one of the contents.
fn prepare(
    path: &Path,
    config: &QueueConfig,
) -> Result<Result<Connection, QueueFault>, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.busy_timeout(BUSY_WAIT)?;
    // A damaged file is left as it was found.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // One process has the file, so that what is known in memory holds.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let synchronous = match config.durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let damaged = |reason: String| QueueFault::Damaged {
        path: path.to_owned(),
        reason,
    };
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA {
        return Ok(Err(QueueFault::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA,
        }));
    }
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Ok(Err(damaged(verdict)));
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (found, tables) {
        (0, 0) => connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;"
        ))?,
        (0, _) => return Ok(Err(damaged("it has tables of something else".into()))),
        // Taking the lock now shows that no other process has the file.
        _ => connection.execute_batch("BEGIN IMMEDIATE; COMMIT;")?,
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(Ok(connection))
}

/// Gives the damaged file another name, together with its log.
fn set_aside(path: &Path, config: &QueueConfig, now_ns: i64) -> Result<PathBuf, QueueFault> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let marked = format!("{name}.damaged-");
    let folder = path.parent().unwrap_or(Path::new("."));
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let entries = std::fs::read_dir(folder).map_err(|e| QueueFault::io("list", folder, e))?;
    let count = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with(&marked) && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .count();
    if count >= config.set_aside_max {
        return Err(QueueFault::SetAsideFull {
            path: path.to_owned(),
            count,
        });
    }
    let place = (0..=count)
        .map(|at| folder.join(format!("{marked}{now_ns}-{at}")))
        .find(|place| !place.exists())
        .unwrap_or_else(|| folder.join(format!("{marked}{now_ns}")));
    for part in PARTS {
        let (from, to) = (with(path, part), with(&place, part));
        match std::fs::rename(&from, &to) {
            Err(error) if error.kind() != ErrorKind::NotFound || part.is_empty() => {
                return Err(QueueFault::io("rename", &from, error));
            }
            _ => {}
        }
    }
    Ok(place)
}

/// The path of a part of the database.
fn with(path: &Path, part: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(part);
    name.into()
}
