//! The SQLite databases in the calling process that run SQL over the streams.

use std::sync::{Arc, Mutex};

use barograph_model::Clock;
use barograph_query::{Database, QueryError, ScopeChoice};
use barograph_stream::{RunDir, gate};

/// Most databases that are kept between statements. If more threads than this run statements at
/// once, the others open a database of their own and close it afterwards.
const IDLE_MAX: usize = 4;

/// The databases that are not in use.
#[derive(Default)]
pub(crate) struct DatabasePool {
    idle: Mutex<Vec<Database>>,
}

impl DatabasePool {
    /// Takes a database out of the pool, or opens another one.
    pub(crate) fn take(
        &self,
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: &Arc<dyn Clock>,
    ) -> Result<Database, QueryError> {
        let idle = gate::lock(&self.idle).pop();
        idle.map_or_else(|| Database::open(run_dir, scopes, Arc::clone(clock)), Ok)
    }

    /// Gives a database back.
    pub(crate) fn give(&self, database: Database) {
        let mut idle = gate::lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(database);
        }
    }
}
