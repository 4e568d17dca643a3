//! Looking at the actions in the queue, and what people do with them: repeat and drop.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::config::QueueConfig;
use super::state::{Changes, DEAD, DONE, DROPPED, LEASED, State, WAITING};
use crate::request::{ActionKey, ActionOwner, Delivery};

/// Most actions that a list has.
pub const LIST_MAX: usize = 1_000;

/// State of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionState {
    /// It waits to be started, for the first time or again.
    Waiting,
    /// A worker has it.
    Running,
    /// It has succeeded.
    Done,
    /// It is a dead letter: it is not repeated by itself.
    Dead,
    /// Somebody has dropped it.
    Dropped,
}

impl ActionState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Running,
        Self::Done,
        Self::Dead,
        Self::Dropped,
    ];

    /// The word for the state in SQL and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Dropped => "dropped",
        }
    }

    fn code(self) -> i64 {
        match self {
            Self::Waiting => WAITING,
            Self::Running => LEASED,
            Self::Done => DONE,
            Self::Dead => DEAD,
            Self::Dropped => DROPPED,
        }
    }
}

/// Which actions a list has. The default has all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionFilter {
    /// Only actions of this rule.
    pub rule: Option<String>,
    /// Only actions in this state.
    pub state: Option<ActionState>,
    /// Only actions of rules of this user.
    pub uid: Option<u32>,
    /// Only actions with a smaller number: the end of the list before.
    pub before: Option<u64>,
    /// Most actions, up to [`LIST_MAX`], which is also the meaning of 0.
    pub count_max: usize,
}

/// An action in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionInfo {
    /// Number of the action in the queue.
    pub id: u64,
    /// Identity of the action.
    pub key: ActionKey,
    /// User whose rule it is.
    pub owner: ActionOwner,
    /// How often the effect may happen.
    pub delivery: Delivery,
    /// State of the action.
    pub state: ActionState,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Most attempts.
    pub attempts_max: u32,
    /// Time at which it was taken into the queue, in ns since the epoch.
    pub enqueued_ns: i64,
    /// Time at which the latest attempt was begun.
    pub started_ns: Option<i64>,
    /// Time at which it is due, at which the lease ends, or at which it was finished.
    pub at_ns: i64,
    /// The worker that had it last.
    pub worker: Option<String>,
    /// Why the latest attempt has failed, or why the action is a dead letter.
    pub reason: Option<String>,
}

/// All that is known of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionDetail {
    /// The action as lists have it.
    pub info: ActionInfo,
    /// End of the output of the latest attempt.
    pub output: Vec<u8>,
    /// What is to be done.
    pub body: Vec<u8>,
}

/// What became of a request to repeat or drop an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The action was in this state, and has been changed.
    From(ActionState),
    /// The action is in this state, in which that cannot be done.
    Refused(ActionState),
    /// The queue has as many actions as allowed.
    Full,
    /// There is no action with this number.
    Absent,
}

const COLUMNS: &str = "actions.id, rules.name, version, source, number, uid, gid, delivery, state,
    attempts, attempts_max, enqueued_ns, started_ns, at_ns, worker, reason";
const TABLES: &str = "actions JOIN origins ON origins.id = actions.origin
    JOIN rules ON rules.id = actions.rule";

/// Lists actions, the newest first.
pub(super) fn list(
    connection: &Connection,
    filter: &ActionFilter,
) -> Result<Vec<ActionInfo>, rusqlite::Error> {
    let count = match filter.count_max {
        0 => LIST_MAX,
        count => count.min(LIST_MAX),
    };
    let before = filter
        .before
        .map_or(i64::MAX, |id| id.min(i64::MAX as u64).cast_signed());
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM {TABLES}
         WHERE actions.id < ?1 AND (?2 IS NULL OR rules.name = ?2)
            AND (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR uid = ?4)
         ORDER BY actions.id DESC LIMIT ?5"
    ))?;
    let state = filter.state.map(ActionState::code);
    let rows = statement.query_map(
        params![before, filter.rule, state, filter.uid, count as i64],
        info,
    )?;
    rows.collect()
}

/// Everything of one action.
pub(super) fn show(
    connection: &Connection,
    id: u64,
) -> Result<Option<ActionDetail>, rusqlite::Error> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS}, output, body FROM {TABLES} WHERE actions.id = ?1"
        ))?
        .query_row([id.cast_signed()], |row| {
            Ok(ActionDetail {
                info: info(row)?,
                output: row.get::<_, Option<Vec<u8>>>(16)?.unwrap_or_default(),
                body: row.get(17)?,
            })
        })
        .optional()
}

fn info(row: &Row<'_>) -> Result<ActionInfo, rusqlite::Error> {
    let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
    let state: i64 = row.get(8)?;
    Ok(ActionInfo {
        id: number(0)?,
        key: ActionKey {
            rule: row.get(1)?,
            rule_version: number(2)?,
            source: row.get(3)?,
            index: number(4)?,
        },
        owner: ActionOwner {
            uid: row.get(5)?,
            gid: row.get(6)?,
        },
        delivery: match row.get(7)? {
            0 => Delivery::AtLeastOnce,
            _ => Delivery::AtMostOnce,
        },
        state: state_of(state).ok_or(rusqlite::Error::IntegralValueOutOfRange(8, state))?,
        attempts: row.get(9)?,
        attempts_max: row.get(10)?,
        enqueued_ns: row.get(11)?,
        started_ns: row.get(12)?,
        at_ns: row.get(13)?,
        worker: row.get(14)?,
        reason: row.get(15)?,
    })
}

fn state_of(code: i64) -> Option<ActionState> {
    ActionState::ALL
        .into_iter()
        .find(|state| state.code() == code)
}

/// The transaction of a person's request.
pub(super) struct Intervention<'a> {
    pub(super) connection: &'a Connection,
    pub(super) config: &'a QueueConfig,
    pub(super) state: &'a State,
    pub(super) changes: &'a mut Changes,
    pub(super) now_ns: i64,
}

impl Intervention<'_> {
    /// Starts a dead letter anew, with all of its attempts, or a waiting action at once.
    pub(super) fn retry(&mut self, id: u64) -> Result<Changed, rusqlite::Error> {
        let Some((rule, from)) = self.row(id)? else {
            return Ok(Changed::Absent);
        };
        if !matches!(from, ActionState::Waiting | ActionState::Dead) {
            return Ok(Changed::Refused(from));
        }
        let active = self.state.rows_of_all(self.changes, WAITING)
            + self.state.rows_of_all(self.changes, LEASED);
        if from == ActionState::Dead && active >= self.config.actions_max {
            return Ok(Changed::Full);
        }
        self.set(id, rule, from, ActionState::Waiting)?;
        Ok(Changed::From(from))
    }

    /// Drops an action that is not running and not finished.
    pub(super) fn drop(&mut self, id: u64) -> Result<Changed, rusqlite::Error> {
        let Some((rule, from)) = self.row(id)? else {
            return Ok(Changed::Absent);
        };
        if !matches!(from, ActionState::Waiting | ActionState::Dead) {
            return Ok(Changed::Refused(from));
        }
        self.set(id, rule, from, ActionState::Dropped)?;
        Ok(Changed::From(from))
    }

    fn row(&self, id: u64) -> Result<Option<(i64, ActionState)>, rusqlite::Error> {
        let row: Option<(i64, i64)> = self
            .connection
            .prepare_cached("SELECT rule, state FROM actions WHERE id = ?1")?
            .query_row([id.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        Ok(row.and_then(|(rule, code)| Some((rule, state_of(code)?))))
    }

    fn set(
        &mut self,
        id: u64,
        rule: i64,
        from: ActionState,
        to: ActionState,
    ) -> Result<(), rusqlite::Error> {
        self.connection
            .prepare_cached(
                "UPDATE actions SET state = ?2, at_ns = ?3,
                    attempts = CASE WHEN ?2 = 0 THEN 0 ELSE attempts END
                 WHERE id = ?1",
            )?
            .execute(params![id.cast_signed(), to.code(), self.now_ns])?;
        self.changes.leaves(rule, from.code());
        self.changes.enters(rule, to.code());
        Ok(())
    }
}
