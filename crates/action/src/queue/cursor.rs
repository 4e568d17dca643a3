//! The cursors of sources: up to which event of each source the requests for actions are in the
//! queue. They are in the queue's file, so that a cursor moves in the transaction that takes the
//! requests in: after a crash, no event is passed over, and none is evaluated without effect.

use rusqlite::{Connection, params};

use super::{ActionQueue, Enqueued, QueueFault};
use crate::request::{ACTION_NAME_BYTES_MAX, ActionRequest};

/// The last event of a source whose requests are in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// The name of the source.
    pub source: String,
    /// The number of the event in its source.
    pub index: u64,
    /// The greatest time of an event up to this one, in ns since the epoch.
    pub ts: i64,
}

impl ActionQueue {
    /// Takes requests in as [`ActionQueue::enqueue`] does, and moves the cursor of their source in
    /// the same transaction.
    ///
    /// # Errors
    ///
    /// Nothing was taken in, and the cursor is where it was.
    pub fn enqueue_up_to(
        &self,
        batch: &[ActionRequest],
        cursor: &EventCursor,
    ) -> Result<Enqueued, QueueFault> {
        self.take_in(batch, Some(cursor))
    }

    /// Sets the cursors of these sources.
    ///
    /// # Errors
    ///
    /// No cursor was changed.
    pub fn set_cursors(&self, cursors: &[EventCursor]) -> Result<(), QueueFault> {
        let now_ns = self.clock.now_ns();
        self.lock().write("set cursors of", now_ns, |write| {
            let mut each = cursors.iter();
            each.try_for_each(|cursor| set(write.connection, cursor))
        })
    }

    /// Forgets the cursors of all sources.
    ///
    /// # Errors
    ///
    /// No cursor was forgotten.
    pub fn forget_cursors(&self) -> Result<(), QueueFault> {
        let now_ns = self.clock.now_ns();
        self.lock().write("forget cursors of", now_ns, |write| {
            write.connection.execute("DELETE FROM cursors", [])?;
            Ok(())
        })
    }

    /// The cursors of all sources, by name.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn cursors(&self) -> Result<Vec<EventCursor>, QueueFault> {
        let inner = self.lock();
        read(&inner.connection).map_err(|error| inner.fault("read", error))
    }
}

/// Sets the cursor of a source. A name that no request can have is left out.
pub(super) fn set(connection: &Connection, cursor: &EventCursor) -> Result<(), rusqlite::Error> {
    if cursor.source.len() > ACTION_NAME_BYTES_MAX {
        return Ok(());
    }
    connection
        .prepare_cached(
            "INSERT INTO cursors(source, number, ts_ns) VALUES (?1, ?2, ?3)
             ON CONFLICT(source) DO UPDATE SET number = excluded.number, ts_ns = excluded.ts_ns",
        )?
        .execute(params![
            cursor.source,
            cursor.index.cast_signed(),
            cursor.ts
        ])?;
    Ok(())
}

fn read(connection: &Connection) -> Result<Vec<EventCursor>, rusqlite::Error> {
    let mut statement =
        connection.prepare_cached("SELECT source, number, ts_ns FROM cursors ORDER BY source")?;
    let rows = statement.query_map([], |row| {
        Ok(EventCursor {
            source: row.get(0)?,
            index: row.get::<_, i64>(1)?.cast_unsigned(),
            ts: row.get(2)?,
        })
    })?;
    rows.collect()
}
