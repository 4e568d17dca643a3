//! The tables in the SQLite of a host program: the inside of `libbaro_sqlite.so`.
//!
//! The host owns the connection, so there are no limits and no authorizer here: whoever loads the
//! extension may already do all that their process may. Tables of metrics that appear after the
//! extension was loaded come with `SELECT baro_refresh()`, since SQLite asks nobody about a table
//! that it does not know; streams that come and go in known tables are seen by themselves.
//!
//! Tables that no schema has are found by name and listed nowhere. So that `.tables`, `.schema` and programs that look into
//! `sqlite_schema` find ours, each is also made in a schema of its own in memory, `baro`: not in `temp`, where it would come
//! before a table of the host's that has its name. Where that cannot be, they are there all the same, and not listed.
//!
//! Without an agent an archive can be read by itself: `BAROGRAPH_ARCHIVE_DIR` names it before the
//! extension is loaded, `SELECT baro_open('…')` afterwards.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_stream::{RunDir, SystemClock, environment};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension as _, Result};

use crate::QueryError;
use crate::catalogue::Catalogue;
use crate::error::usage;
use crate::live::Live;
use crate::source::{Scopes, views_of};
use crate::sqlite::with_connection;

pub use rusqlite;

/// Registers tables and functions over the run directory that [`RunDir::find`] finds. The form that
/// `Connection::extension_init2` asks for.
pub fn register(connection: Connection) -> Result<bool> {
    let live = Arc::new(open().map_err(|e| usage(e.to_string()))?);
    let mut catalogue = Catalogue::new(&connection, &live)?;
    let _ = list(&connection, &catalogue.take_new());
    let catalogue = Arc::new(Mutex::new(catalogue));
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;

    let (of_refresh, of_open) = (
        (Arc::clone(&live), Arc::clone(&catalogue)),
        (live, catalogue),
    );
    connection.create_scalar_function("baro_refresh", 0, flags, move |call| {
        let (live, catalogue) = &of_refresh;
        with_connection(call, |connection| refresh(connection, live, catalogue))
    })?;
    connection.create_scalar_function("baro_open", 1, flags, move |call| {
        let (live, catalogue) = &of_open;
        let path: String = call.get(0)?;
        let path = PathBuf::from(path);
        let moved = match is_archive(&path) {
            true => live.move_to_archive(path),
            false => live.move_to(RunDir::new(path)),
        };
        moved.map_err(|e| usage(e.to_string()))?;
        with_connection(call, |connection| refresh(connection, live, catalogue))
    })?;
    Ok(false)
}

/// Makes the tables in the schema `baro`, in place of those of these names that an earlier load or refresh made. What it fails
/// for is the host's: no database more may be attached, an authorizer refuses it, a table is in use.
fn list(connection: &Connection, tables: &[String]) -> Result<()> {
    let sql = "SELECT file FROM pragma_database_list WHERE name = 'baro'";
    let there = connection.query_row(sql, (), |row| row.get::<_, Option<String>>(0));
    match there.optional()? {
        // In memory: ours, of an earlier load.
        Some(file) if file.as_deref().unwrap_or_default().is_empty() => {}
        // Somebody's file, in which we make nothing.
        Some(_) => return Ok(()),
        None if connection.is_readonly("main")? => {
            // Read-only is what the main database's flags say, and not the URI's; without URIs this fails.
            connection.execute("ATTACH 'file:baro?mode=memory' AS baro", ())?;
        }
        None => {
            connection.execute("ATTACH ':memory:' AS baro", ())?;
        }
    }
    let listed: HashSet<String> = connection
        .prepare("SELECT name FROM baro.sqlite_schema")?
        .query_map((), |row| row.get(0))?
        .collect::<Result<_>>()?;
    connection.execute_batch("SAVEPOINT baro_list")?;
    for table in tables {
        // By `DROP TABLE IF EXISTS` SQLite would find the table that no schema has, and refuse.
        let drop = match listed.contains(table) {
            true => format!("DROP TABLE baro.\"{table}\";"),
            false => String::new(),
        };
        // One that is in use stays as it is.
        let _ = connection.execute_batch(&format!(
            "{drop} CREATE VIRTUAL TABLE baro.\"{table}\" USING \"{table}\"()"
        ));
    }
    connection.execute_batch("RELEASE baro_list")
}

/// The agent's run directory, or where there is none the archive that is named.
fn open() -> std::result::Result<Live, QueryError> {
    let clock = Arc::new(SystemClock::new());
    let error = match Live::open(&RunDir::find(), Scopes::Readable, Arc::clone(&clock) as _) {
        Ok(live) => return Ok(live),
        Err(error) => error,
    };
    match environment("BAROGRAPH_ARCHIVE_DIR") {
        Some(root) => Live::over(None, views_of(PathBuf::from(root)), clock),
        None => Err(error),
    }
}

/// Whether a directory is an archive and not an agent's.
fn is_archive(path: &Path) -> bool {
    !RunDir::new(path).segment().exists() && path.join("nodes").is_dir()
}

/// Follows the agent; returns the number of its streams.
fn refresh(connection: &Connection, live: &Live, catalogue: &Mutex<Catalogue>) -> Result<i64> {
    live.past().map_err(|e| usage(e.to_string()))?;
    let snapshot = live.attend().map_err(|e| usage(e.to_string()))?;
    let mut catalogue = catalogue.lock().unwrap_or_else(PoisonError::into_inner);
    catalogue.follow(connection, &snapshot)?;
    let _ = list(connection, &catalogue.take_new());
    Ok(snapshot.streams.len() as i64)
}
