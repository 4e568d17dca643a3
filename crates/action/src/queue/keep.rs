//! Forgetting finished actions: so many are kept, and so long.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::config::QueueConfig;
use super::state::{Changes, DEAD, DONE, DROPPED, OriginState, State};

/// Most finished actions of a state that one transaction forgets: more than a batch can finish.
const FORGOTTEN_MAX: u64 = 2_000;

/// Deletes what is beyond the bounds. An origin remembers the greatest number that was deleted, so
/// that a request that comes again is known.
pub(super) fn forget(
    connection: &Connection,
    config: &QueueConfig,
    state: &State,
    changes: &mut Changes,
    now_ns: i64,
) -> Result<(), rusqlite::Error> {
    for (kind, counted, count_max, ns_max) in [
        (
            DONE,
            &[DONE, DROPPED][..],
            config.done_max,
            config.done_ns_max,
        ),
        (
            DROPPED,
            &[DONE, DROPPED],
            config.done_max,
            config.done_ns_max,
        ),
        (DEAD, &[DEAD], config.dead_max, config.dead_ns_max),
    ] {
        let rows = |state_of: &i64| state.rows_of_all(changes, *state_of);
        let excess = counted
            .iter()
            .map(rows)
            .sum::<u64>()
            .saturating_sub(count_max);
        let excess = excess.min(rows(&kind));
        let before_ns = now_ns.saturating_sub(ns_max);
        delete(connection, (kind, excess, before_ns), changes)?;
    }
    remember(connection, state, changes, now_ns)
}

/// Deletes the oldest actions of a state: so many, and all that are older than a time.
fn delete(
    connection: &Connection,
    (kind, excess, before_ns): (i64, u64, i64),
    changes: &mut Changes,
) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM actions WHERE id IN (
            SELECT id FROM actions WHERE state = ?1 AND state >= 2 AND at_ns < ?2
            ORDER BY at_ns LIMIT ?3)
         RETURNING rule, origin, number",
    )?;
    let bounds = [
        (i64::MAX, excess.min(FORGOTTEN_MAX)),
        (before_ns, FORGOTTEN_MAX),
    ];
    for (before_ns, count) in bounds {
        if count == 0 {
            continue;
        }
        let mut rows = statement.query(params![kind, before_ns, count.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let (rule, origin, number): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            changes.leaves(rule, kind);
            changes.forgotten += 1;
            changes.forgotten_dead += u64::from(kind == DEAD);
            let number = number.cast_unsigned();
            let last = changes.last_numbers.entry(origin).or_insert(number);
            *last = number.max(*last);
        }
    }
    Ok(())
}

fn remember(
    connection: &Connection,
    state: &State,
    changes: &mut Changes,
    now_ns: i64,
) -> Result<(), rusqlite::Error> {
    if changes.last_numbers.is_empty() {
        return Ok(());
    }
    let numbers: BTreeMap<i64, u64> = std::mem::take(&mut changes.last_numbers);
    for (key, known) in &state.origins {
        let Some(number) = numbers.get(&known.id) else {
            continue;
        };
        let last = known.forgotten.map_or(*number, |last| last.max(*number));
        connection
            .prepare_cached("UPDATE origins SET forgotten = ?2, touched_ns = ?3 WHERE id = ?1")?
            .execute(params![known.id, last.cast_signed(), now_ns])?;
        let origin = OriginState {
            id: known.id,
            forgotten: Some(last),
        };
        changes.origins.insert(key.clone(), origin);
    }
    Ok(())
}
