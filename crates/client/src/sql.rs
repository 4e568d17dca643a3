//! SQL over the streams, in the asker's own process: lends SQLite databases to whoever asks.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use barograph_model::{SqlFault, SqlLimits};
use barograph_query::{Database, Rows, Scopes};
use barograph_stream::gate;

use crate::Observer;

/// Databases that are kept between questions; more threads than this asking at once open their
/// own, which are closed when they have their answers.
const IDLE_MAX: usize = 4;

/// Databases that are not in use.
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
    /// Answers one read-only statement in this process, within its limits.
    pub fn sql(&self, sql: &str, limits: &SqlLimits) -> Result<Rows, SqlFault> {
        self.sql_until(sql, limits, &AtomicBool::new(false))
    }

    /// As [`Observer::sql`], and stops soon after `cancel` is set.
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
