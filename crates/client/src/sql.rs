//! SQL over the streams in the calling process: a pool of SQLite databases.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use barograph_model::{SqlFault, SqlLimits};
use barograph_query::{Database, Rows, Scopes};
use barograph_stream::gate;

use crate::Observer;

/// Most databases that are kept between statements. If more threads than this run statements at
/// once, the others open a database of their own and close it afterwards.
const IDLE_MAX: usize = 4;

/// The databases that are not in use.
#[derive(Default)]
pub(crate) struct Databases {
    idle: Mutex<Vec<Database>>,
}

impl Databases {
    fn take(&self) -> Option<Database> {
        gate::lock(&self.idle).pop()
    }

    fn give(&self, database: Database) {
        let mut idle = gate::lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(database);
        }
    }
}

impl Observer {
    /// Runs one read-only statement in this process, within its limits.
    pub fn sql(&self, sql: &str, limits: &SqlLimits) -> Result<Rows, SqlFault> {
        self.sql_until(sql, limits, &AtomicBool::new(false))
    }

    /// Like [`Observer::sql`], and stops soon after `cancel` is set.
    pub fn sql_until(
        &self,
        sql: &str,
        limits: &SqlLimits,
        cancel: &AtomicBool,
    ) -> Result<Rows, SqlFault> {
        let mut database = match self.databases().take() {
            Some(database) => database,
            None => Database::open(self.run_dir(), Scopes::Readable, self.clock().clone())?,
        };
        let answer = database.run(sql, limits, cancel);
        self.databases().give(database);
        answer
    }
}
