//! A database of one thread over the streams of a run directory.

use std::cell::{Cell as Slot, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use barograph_model::{Clock, SqlFault, SqlFaultKind, SqlLimits};
use barograph_stream::{RunDir, ScopeChoice};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Statement};

use crate::QueryError;
use crate::catalogue::{Catalogue, TableNames};
use crate::fault::{Circumstances, fault};
use crate::functions::WideForm;
use crate::guard::{Guard, SQL_BYTES_MAX};
use crate::live::Live;
use crate::rows::{Column, RowView, Rows, Taker};
use crate::source::{Views, views_of};
use crate::sqlite::{limit_heap, reserve};
use crate::{text, times};

/// Most statements that are kept prepared, by their text.
const STATEMENTS_KEPT_MAX: usize = 64;

/// Bytes of each slot of the memory that a connection reserves for its small allocations.
const RESERVE_SLOT_BYTES: i32 = 1_024;
/// Number of slots: 256 KB together, enough to prepare a statement of some dozen terms. SQLite's
/// default of 48 KB is enough for a few terms.
const RESERVE_SLOTS: i32 = 256;

/// SQL over the streams of one run directory. One per thread.
///
/// It notices by itself when streams come and go, and when the agent is replaced.
pub struct Database {
    connection: Connection,
    live: Arc<Live>,
    guard: Arc<Guard>,
    names: Arc<TableNames>,
    catalogue: RefCell<Catalogue>,
    /// Grows with each new table or column: statements that were prepared before do not know them.
    schema_version: Slot<u64>,
    /// Statements that passed the checks, each with the text that SQLite gets. A statement that
    /// comes again is kept prepared.
    checked: RefCell<HashMap<String, Arc<str>>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("run_dir", &self.live.run_dir())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the segment and archive of an agent, those of these scopes of applications, and the
    /// mirrors of other nodes. It is an error if the run directory has no segment.
    pub fn open(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        Self::of(Live::open_cluster(run_dir, scopes, clock)?)
    }

    /// Opens an archive alone: that of a node whose agent is gone, or a copy. In it, `newest` marks
    /// the last sample of each series.
    pub fn open_archive(
        root: impl Into<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        Self::over(None, views_of(root.into()), clock)
    }

    /// Opens the archive that `views` returns, beside the rings of a run directory if one is given.
    #[doc(hidden)]
    pub fn over(
        run_dir: Option<&RunDir>,
        views: Views,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        Self::of(Live::over(run_dir, views, clock)?)
    }

    fn of(live: Live) -> Result<Self, QueryError> {
        let live = Arc::new(live);
        let error = |what| move |source| QueryError::Sqlite { what, source };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_in_memory_with_flags(flags).map_err(error("open a database"))?;
        // If this fails, everything works the same, but slower.
        reserve(&connection, RESERVE_SLOT_BYTES, RESERVE_SLOTS);
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT_MAX);
        // Sorting must not write files.
        connection
            .pragma_update(None, "temp_store", "MEMORY")
            .map_err(error("keep temporary data in memory"))?;
        let catalogue = Catalogue::new(&connection, &live).map_err(error("register tables"))?;
        let names = catalogue.names();
        let guard = Guard::install(&mut connection, &live, Arc::clone(&names))
            .map_err(error("install limits"))?;
        Ok(Self {
            connection,
            live,
            guard,
            names,
            catalogue: RefCell::new(catalogue),
            schema_version: Slot::new(0),
            checked: RefCell::default(),
        })
    }

    /// The archive's directory, if the agent keeps an archive.
    pub fn archive_dir(&self) -> Option<PathBuf> {
        self.live.archive_dir()
    }

    /// Sets the most threads that one scan over much history may use (2 by default).
    pub fn set_threads(&mut self, threads: usize) {
        self.live.set_threads(threads);
    }

    /// Sets how many databases, including this one, share the memory that scans may hold. The bound
    /// on SQLite's own heap is one for the process.
    pub fn share_memory(&self, databases: usize) {
        self.guard.share_memory(databases);
    }

    /// Sets the longest text that a statement may make, in bytes.
    pub fn set_text_bytes_max(&mut self, bytes: i32) -> Result<(), QueryError> {
        let set = self.connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, bytes);
        set.map(drop).map_err(|source| QueryError::Sqlite {
            what: "bound the length of texts",
            source,
        })
    }

    /// Runs one read-only statement within its limits and returns its whole answer.
    pub fn run(
        &mut self,
        sql: &str,
        limits: &SqlLimits,
        cancel: &AtomicBool,
    ) -> Result<Rows, SqlFault> {
        let mut rows = Rows::default();
        rows.elapsed_ns = self.run_into(sql, limits, cancel, &mut rows)?;
        Ok(rows)
    }

    /// Like [`Database::run`], but passes each row to `taker`; returns the duration in ns.
    pub(crate) fn run_into(
        &mut self,
        sql: &str,
        limits: &SqlLimits,
        cancel: &AtomicBool,
        taker: &mut dyn Taker,
    ) -> Result<i64, SqlFault> {
        match self.run_once(sql, limits, cancel, taker) {
            // The missing table or column may belong to a series that began and ended since the
            // last look at the archive.
            Err(fault)
                if fault.kind == SqlFaultKind::Statement
                    && !taker.has_rows()
                    && self.has_news() =>
            {
                self.run_once(sql, limits, cancel, taker)
            }
            answer => answer,
        }
    }

    /// Whether a look at the archive finds new tables or columns.
    fn has_news(&self) -> bool {
        let schema = || {
            self.live
                .current()
                .map(|snapshot| Arc::clone(&snapshot.schema))
        };
        let (before, _, after) = (schema(), self.live.past(), schema());
        matches!((before, after), (Ok(before), Ok(after)) if !Arc::ptr_eq(&before, &after))
    }

    fn run_once(
        &mut self,
        sql: &str,
        limits: &SqlLimits,
        cancel: &AtomicBool,
        taker: &mut dyn Taker,
    ) -> Result<i64, SqlFault> {
        let started_ns = self.live.monotonic_ns();
        let text = self.ready(sql, limits)?;
        self.guard.watch(limits, cancel, || {
            let fault = |error| self.circumstances(&text, limits).fault(error);
            let was_checked = self.checked.borrow().contains_key(sql);
            if was_checked {
                let mut statement = self.connection.prepare_cached(&text).map_err(fault)?;
                self.answer(&mut statement, &text, limits, taker)?;
            } else {
                // A statement may never come again, so at first only its text is remembered: thus
                // it pushes no other statement out of the cache, and SQLite prepares it in the
                // reserved memory.
                let mut statement = self.connection.prepare(&text).map_err(fault)?;
                self.only_reads(&statement)?;
                self.keep(sql, &text);
                self.answer(&mut statement, &text, limits, taker)?;
            }
            Ok(self.live.monotonic_ns() - started_ns)
        })
    }

    /// Steps a checked statement through all its rows.
    fn answer(
        &self,
        statement: &mut Statement<'_>,
        text: &str,
        limits: &SqlLimits,
        taker: &mut dyn Taker,
    ) -> Result<(), SqlFault> {
        taker.begin(columns(statement));
        let mut source = statement.raw_query();
        loop {
            match source.next() {
                Ok(Some(row)) => taker.take(&RowView(row), limits)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.circumstances(text, limits).fault(error)),
            }
        }
    }

    /// Prepares a statement that is to run many times.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared<'_>, SqlFault> {
        let limits = SqlLimits::default();
        let text = self.ready(sql, &limits)?;
        let statement = self.prepare_text(&text, &limits)?;
        Ok(Prepared {
            schema_version: self.schema_version.get(),
            database: self,
            text,
            statement,
        })
    }

    /// Checks a statement without running it; returns its columns.
    pub fn check(&mut self, sql: &str) -> Result<Vec<Column>, SqlFault> {
        let limits = SqlLimits::default();
        let text = self.ready(sql, &limits)?;
        Ok(columns(&self.prepare_text(&text, &limits)?))
    }

    fn prepare_text(&self, text: &str, limits: &SqlLimits) -> Result<Statement<'_>, SqlFault> {
        let prepared = self.guard.watch(limits, &AtomicBool::new(false), || {
            self.connection.prepare(text)
        });
        let statement = prepared.map_err(|e| self.circumstances(text, limits).fault(e))?;
        self.only_reads(&statement)?;
        Ok(statement)
    }

    /// The authorizer has checked everything except statements that do nothing.
    fn only_reads(&self, statement: &Statement<'_>) -> Result<(), SqlFault> {
        if statement.column_count() == 0 && statement.expanded_sql().is_none() {
            return Err(fault(SqlFaultKind::Statement, "there is no statement"));
        }
        if statement.column_count() == 0 || !statement.readonly() {
            return Err(self.guard.refusal());
        }
        if statement.parameter_count() > 0 {
            let message = "the statement has parameters (? or :name): write their values into it";
            return Err(fault(SqlFaultKind::Statement, message));
        }
        Ok(())
    }

    /// Follows the agent, and returns the text for SQLite.
    fn ready(&self, sql: &str, limits: &SqlLimits) -> Result<Arc<str>, SqlFault> {
        self.follow(limits)?;
        if let Some(text) = self.checked.borrow().get(sql) {
            return Ok(Arc::clone(text));
        }
        if sql.len() > SQL_BYTES_MAX {
            let message = format!("the statement has {} bytes of {SQL_BYTES_MAX}", sql.len());
            return Err(fault(SqlFaultKind::Limit, message));
        }
        if sql.contains('\0') {
            return Err(fault(
                SqlFaultKind::Statement,
                "the statement contains a zero byte",
            ));
        }
        if text::is_plain(sql) {
            return Ok(sql.into());
        }
        let tokens = text::tokens(sql);
        let named = text::without_argument_names(sql, &tokens);
        let sql = &*named;
        let timed = times::with_instants(sql, &text::tokens(sql));
        let sql = &*timed;
        let tokens = text::tokens(sql);
        if text::has_more_statements(&tokens) {
            let message = "one statement at a time: remove what follows the first ;";
            return Err(fault(SqlFaultKind::Refused, message));
        }
        let calls = text::calls_by_name(&tokens);
        if calls.is_empty() {
            return Ok(text::with_newest_constraints(sql, &tokens).into());
        }
        let sql = self.with_family_tables(sql, calls)?;
        Ok(text::with_newest_constraints(&sql, &text::tokens(&sql)).into())
    }

    /// Replaces each call of `family` or `frames` by a call of the table of that family or
    /// publication.
    fn with_family_tables(
        &self,
        sql: &str,
        calls: Vec<(Range<usize>, WideForm, &str)>,
    ) -> Result<String, SqlFault> {
        let mut out = String::new();
        let mut copied = 0;
        for (range, form, name) in calls {
            let name = name.trim_end_matches('.');
            let mut catalogue = self.catalogue.borrow_mut();
            match catalogue.ask_family(&self.connection, form, name) {
                Ok(true) => {}
                Ok(false) => {
                    let message = match form {
                        WideForm::Family => format!(
                            "family('{name}'): no metric has a name that begins with {name}. \
                             (SELECT name FROM tables lists them)"
                        ),
                        WideForm::Frames => format!(
                            "frames('{name}'): no publication of this name has committed a frame \
                             (SELECT name FROM publications lists those of now)"
                        ),
                    };
                    return Err(fault(SqlFaultKind::Statement, message));
                }
                Err(error) => return Err(fault(SqlFaultKind::Limit, error.to_string())),
            }
            out.push_str(&sql[copied..range.start]);
            out.push_str(&form.table_of(name));
            out.push('(');
            copied = range.end;
        }
        out.push_str(&sql[copied..]);
        Ok(out)
    }

    fn follow(&self, limits: &SqlLimits) -> Result<(), SqlFault> {
        bound_heap(limits.memory_bytes_max);
        let snapshot = self.live.attend()?;
        let changed = self
            .catalogue
            .borrow_mut()
            .follow(&self.connection, &snapshot)
            .map_err(|source| QueryError::Sqlite {
                what: "register tables",
                source,
            })?;
        if changed {
            self.connection.flush_prepared_statement_cache();
            self.schema_version.set(self.schema_version.get() + 1);
        }
        Ok(())
    }

    fn keep(&self, sql: &str, text: &Arc<str>) {
        let mut checked = self.checked.borrow_mut();
        if checked.len() >= STATEMENTS_KEPT_MAX {
            checked.clear();
        }
        checked.insert(sql.to_owned(), Arc::clone(text));
    }

    fn circumstances<'a>(&'a self, sql: &'a str, limits: &'a SqlLimits) -> Circumstances<'a> {
        Circumstances {
            sql,
            limits,
            guard: &self.guard,
            names: &self.names,
            live: &self.live,
        }
    }
}

/// Sets SQLite's heap limit. There is one per process: the limit of the query that began last
/// counts.
fn bound_heap(bytes: usize) {
    static BOUND: AtomicI64 = AtomicI64::new(0);
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX).max(1);
    if BOUND.swap(bytes, Ordering::Relaxed) != bytes {
        limit_heap(bytes);
    }
}

pub(crate) fn columns(statement: &Statement<'_>) -> Vec<Column> {
    let column = |c: &rusqlite::Column<'_>| Column {
        name: c.name().to_owned(),
        declared: c.decl_type().unwrap_or_default().to_ascii_uppercase(),
    };
    statement.columns().map(|c| column(&c)).collect()
}

/// A statement that is prepared once and runs often. Like the database, it follows the agent: if
/// tables change, it prepares itself again.
pub struct Prepared<'db> {
    database: &'db Database,
    text: Arc<str>,
    statement: Statement<'db>,
    schema_version: u64,
}

impl std::fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Prepared").field(&self.text).finish()
    }
}

impl Prepared<'_> {
    /// Runs the statement and passes each row to `take`; returns the number of rows. Of `limits`
    /// the time limit applies; the caller bounds rows and bytes.
    pub fn for_each(
        &mut self,
        limits: &SqlLimits,
        cancel: &AtomicBool,
        mut take: impl FnMut(&RowView<'_>),
    ) -> Result<usize, SqlFault> {
        let database = self.database;
        database.follow(limits)?;
        if database.schema_version.get() != self.schema_version {
            self.statement = database.prepare_text(&self.text, limits)?;
            self.schema_version = database.schema_version.get();
        }
        database.guard.watch(limits, cancel, || {
            let mut rows = self.statement.raw_query();
            let mut count = 0;
            loop {
                match rows.next() {
                    Ok(Some(row)) => take(&RowView(row)),
                    Ok(None) => return Ok(count),
                    Err(error) => {
                        return Err(database.circumstances(&self.text, limits).fault(error));
                    }
                }
                count += 1;
            }
        })
    }
}
