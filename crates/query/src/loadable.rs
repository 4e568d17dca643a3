//! The tables in the SQLite of a host program: the contents of `libbaro_sqlite.so`.
//!
//! The host owns the connection, so there are no limits and no authorizer here: a user who loads
//! the extension may already do everything that the process may. Tables of metrics that appear
//! after the extension was loaded are added by `SELECT baro_refresh()`, since SQLite asks no module
//! about a table that it does not know; streams that come and go in known tables are noticed
//! without it.
//!
//! Tables that are in no schema are found by name, but not listed. So that `.tables`, `.schema` and
//! programs that read `sqlite_schema` find ours, each is also made in a schema `baro` in memory:
//! not in `temp`, where it would hide a table of the host with the same name. If that schema cannot
//! be made, the tables work all the same and are not listed.
//!
//! Without an agent, an archive can be read alone: `BAROGRAPH_ARCHIVE_DIR` names it before the
//! extension is loaded, `SELECT baro_open('…')` afterwards.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_stream::{RunDir, ScopeChoice, SystemClock, environment};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension as _, Result};

use crate::QueryError;
use crate::catalogue::Catalogue;
use crate::error::usage;
use crate::live::Live;
use crate::source::views_of;
use crate::sqlite::with_connection;

pub use rusqlite;

/// Registers tables and functions over the run directory that [`RunDir::find`] finds. Its signature
/// is that which `Connection::extension_init2` requires.
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
            false => live.move_to(&RunDir::new(path), ScopeChoice::Readable),
        };
        moved.map_err(|e| usage(e.to_string()))?;
        with_connection(call, |connection| refresh(connection, live, catalogue))
    })?;
    Ok(false)
}

/// Makes the tables in the schema `baro`, replacing those of the same names from an earlier load or
/// refresh. It fails for the host's reasons: no more databases may be attached, an authorizer
/// refuses it, a table is in use.
fn list(connection: &Connection, tables: &[String]) -> Result<()> {
    let sql = "SELECT file FROM pragma_database_list WHERE name = 'baro'";
    let there = connection.query_row(sql, (), |row| row.get::<_, Option<String>>(0));
    match there.optional()? {
        // In memory: ours, from an earlier load.
        Some(file) if file.as_deref().unwrap_or_default().is_empty() => {}
        // A file of the host, in which we make nothing.
        Some(_) => return Ok(()),
        None if connection.is_readonly("main")? => {
            // The main database's flags make it read-only, not the URI; without URIs this fails.
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
        // With `DROP TABLE IF EXISTS` SQLite would find the table that is in no schema, and refuse.
        let drop = match listed.contains(table) {
            true => format!("DROP TABLE baro.\"{table}\";"),
            false => String::new(),
        };
        // A table that is in use stays as it is.
        let _ = connection.execute_batch(&format!(
            "{drop} CREATE VIRTUAL TABLE baro.\"{table}\" USING \"{table}\"()"
        ));
    }
    connection.execute_batch("RELEASE baro_list")
}

/// Opens the agent's run directory or, if there is none, the archive that the environment names.
fn open() -> std::result::Result<Live, QueryError> {
    let clock = Arc::new(SystemClock::new());
    let error = match Live::open_cluster(
        &RunDir::find(),
        ScopeChoice::Readable,
        Arc::clone(&clock) as _,
    ) {
        Ok(live) => return Ok(live),
        Err(error) => error,
    };
    match environment("BAROGRAPH_ARCHIVE_DIR") {
        Some(root) => Live::over(None, views_of(PathBuf::from(root)), clock),
        None => Err(error),
    }
}

/// Whether a directory is an archive and not a run directory.
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
