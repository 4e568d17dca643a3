//! Taking requests into the queue.

use rusqlite::{Connection, params};

use super::config::QueueConfig;
use super::state::{Changes, LEASED, OriginState, RuleTotals, State, WAITING};
use crate::request::{ActionKey, ActionRequest, Delivery};

/// Most origins that are deleted at once to make room.
const ORIGINS_GONE_MAX: i64 = 64;

/// What became of the requests of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    /// Requests that are in the queue now.
    pub accepted: u64,
    /// Requests whose key is or was in the queue already.
    pub duplicates: u64,
    /// Requests refused since the queue is full: by number of actions, of rules or by bytes.
    pub refused_full: u64,
    /// Requests refused since their rule has as many actions as allowed.
    pub refused_rule: u64,
    /// Requests refused since a name or the body is too long, or a name is empty.
    pub refused_size: u64,
}

impl Enqueued {
    /// Requests that were refused, for whatever reason.
    pub fn refused(&self) -> u64 {
        self.refused_full + self.refused_rule + self.refused_size
    }
}

/// The transaction of a batch.
pub(super) struct Intake<'a> {
    pub(super) connection: &'a Connection,
    pub(super) config: &'a QueueConfig,
    pub(super) state: &'a State,
    pub(super) changes: &'a mut Changes,
    pub(super) now_ns: i64,
}

impl Intake<'_> {
    pub(super) fn run(&mut self, batch: &[ActionRequest]) -> Result<Enqueued, rusqlite::Error> {
        let mut outcome = Enqueued::default();
        let waiting = self.state.rows_of_all(self.changes, WAITING);
        let leased = self.state.rows_of_all(self.changes, LEASED);
        let mut room = self.config.actions_max.saturating_sub(waiting + leased);
        if bytes_in_use(self.connection)? >= self.config.file_bytes_max {
            room = 0;
        }
        for request in batch {
            let is_fit = request.key.is_valid() && request.body.len() <= self.config.body_bytes_max;
            if !is_fit {
                outcome.refused_size += 1;
                self.count_refusal(&request.key);
                continue;
            }
            let Some(rule) = self.rule(&request.key.rule)? else {
                outcome.refused_full += 1;
                continue;
            };
            let Some(origin) = self.origin(rule, &request.key)? else {
                outcome.refused_full += 1;
                self.totals(rule).refused += 1;
                continue;
            };
            if self.is_known(origin, request.key.index)? {
                outcome.duplicates += 1;
                self.totals(rule).duplicates += 1;
                continue;
            }
            let of_rule = self.state.rows(self.changes, rule, WAITING)
                + self.state.rows(self.changes, rule, LEASED);
            if room == 0 {
                outcome.refused_full += 1;
                self.totals(rule).refused += 1;
            } else if of_rule >= self.config.actions_per_rule_max {
                outcome.refused_rule += 1;
                self.totals(rule).refused += 1;
            } else {
                self.insert(rule, origin.id, request)?;
                outcome.accepted += 1;
                room -= 1;
            }
        }
        Ok(outcome)
    }

    fn totals(&mut self, rule: i64) -> &mut RuleTotals {
        self.changes.totals.entry(rule).or_default()
    }

    /// Counts a refusal with the rule, if the rule is known.
    fn count_refusal(&mut self, key: &ActionKey) {
        if let Some(rule) = self.known_rule(&key.rule) {
            self.totals(rule).refused += 1;
        }
    }

    fn known_rule(&self, name: &str) -> Option<i64> {
        let made = self.changes.rules_made.get(name).copied();
        made.or_else(|| {
            let known = self.state.rule_ids.get(name).copied();
            known.filter(|id| !self.changes.rules_gone.contains(id))
        })
    }

    /// The row of a rule; `None` if there are as many rules as allowed.
    fn rule(&mut self, name: &str) -> Result<Option<i64>, rusqlite::Error> {
        if let Some(id) = self.known_rule(name) {
            return Ok(Some(id));
        }
        let count = self.state.rules.len() + self.changes.rules_made.len();
        if count >= self.config.rules_max + self.changes.rules_gone.len()
            && !self.forget_idle_rule()?
        {
            return Ok(None);
        }
        self.connection
            .prepare_cached("INSERT INTO rules(name) VALUES (?1)")?
            .execute([name])?;
        let id = self.connection.last_insert_rowid();
        self.changes.rules_made.insert(name.to_owned(), id);
        Ok(Some(id))
    }

    /// Deletes the oldest rule that has no actions in the file; returns whether there was one.
    fn forget_idle_rule(&mut self) -> Result<bool, rusqlite::Error> {
        let idle = self.state.rules.iter().find(|(id, rule)| {
            rule.rows.iter().all(|count| *count == 0)
                && !self.changes.rows.contains_key(id)
                && !self.changes.totals.contains_key(id)
                && !self.changes.rules_gone.contains(id)
        });
        let Some((id, _)) = idle else {
            return Ok(false);
        };
        let id = *id;
        for table in [
            "DELETE FROM rules WHERE id = ?1",
            "DELETE FROM origins WHERE rule = ?1",
        ] {
            self.connection.prepare_cached(table)?.execute([id])?;
        }
        let origins = self.state.origins.keys().chain(self.changes.origins.keys());
        let gone: Vec<_> = origins.filter(|key| key.0 == id).cloned().collect();
        for key in gone {
            self.changes.origins.remove(&key);
            self.changes.origins_gone.push(key);
        }
        self.changes.rules_gone.push(id);
        Ok(true)
    }

    /// The row of an origin; `None` if there are as many as allowed and all have actions.
    fn origin(
        &mut self,
        rule: i64,
        key: &ActionKey,
    ) -> Result<Option<OriginState>, rusqlite::Error> {
        let name = (rule, key.rule_version, key.source.clone());
        if let Some(origin) = self.changes.origins.get(&name) {
            return Ok(Some(*origin));
        }
        let known = self.state.origins.get(&name).copied();
        if known.is_some() && !self.changes.origins_gone.contains(&name) {
            return Ok(known);
        }
        let count = self.state.origins.len() + self.changes.origins.len();
        if count >= self.config.origins_max + self.changes.origins_gone.len()
            && !self.forget_idle_origins()?
        {
            return Ok(None);
        }
        self.connection
            .prepare_cached(
                "INSERT INTO origins(rule, version, source, touched_ns) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                rule,
                key.rule_version.cast_signed(),
                key.source,
                self.now_ns
            ])?;
        let origin = OriginState {
            id: self.connection.last_insert_rowid(),
            forgotten: None,
        };
        self.changes.origins.insert(name, origin);
        Ok(Some(origin))
    }

    /// Deletes the origins without actions that were touched longest ago; returns whether there
    /// were any.
    fn forget_idle_origins(&mut self) -> Result<bool, rusqlite::Error> {
        let mut statement = self.connection.prepare_cached(
            "DELETE FROM origins WHERE id IN (SELECT id FROM origins
                WHERE NOT EXISTS (SELECT 1 FROM actions WHERE origin = origins.id)
                ORDER BY touched_ns LIMIT ?1)
             RETURNING rule, version, source",
        )?;
        let mut rows = statement.query([ORIGINS_GONE_MAX])?;
        let mut is_any = false;
        while let Some(row) = rows.next()? {
            let version: i64 = row.get(1)?;
            let key = (row.get(0)?, version.cast_unsigned(), row.get(2)?);
            self.changes.origins.remove(&key);
            self.changes.origins_gone.push(key);
            is_any = true;
        }
        Ok(is_any)
    }

    /// Whether an action is in the file, or was. The numbers of an origin ascend, but for those
    /// that come again: what is not above the forgotten ones was there.
    fn is_known(&self, origin: OriginState, number: u64) -> Result<bool, rusqlite::Error> {
        if origin.forgotten.is_some_and(|last| number <= last) {
            return Ok(true);
        }
        self.connection
            .prepare_cached("SELECT 1 FROM actions WHERE origin = ?1 AND number = ?2")?
            .exists(params![origin.id, number.cast_signed()])
    }

    fn insert(
        &mut self,
        rule: i64,
        origin: i64,
        request: &ActionRequest,
    ) -> Result<(), rusqlite::Error> {
        let delivery = match request.delivery {
            Delivery::AtLeastOnce => 0,
            Delivery::AtMostOnce => 1,
        };
        self.connection
            .prepare_cached(
                "INSERT INTO actions(rule, origin, number, state, at_ns, delivery, attempts_max,
                    wait_ns_min, wait_ns_max, uid, gid, enqueued_ns, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?5, ?12)",
            )?
            .execute(params![
                rule,
                origin,
                request.key.index.cast_signed(),
                WAITING,
                self.now_ns,
                delivery,
                request.retry.attempts_max,
                request.retry.wait_ns_min,
                request.retry.wait_ns_max,
                request.owner.uid,
                request.owner.gid,
                request.body,
            ])?;
        self.changes.enters(rule, WAITING);
        Ok(())
    }
}

/// Bytes of the pages in use.
fn bytes_in_use(connection: &Connection) -> Result<u64, rusqlite::Error> {
    connection
        .prepare_cached(
            "SELECT (page_count - freelist_count) * page_size
             FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
        )?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}
