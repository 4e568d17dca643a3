//! Rules on file events and on schedules: a rule names the kinds of events and the paths, or times,
//! and what is done for each of them.
//!
//! [`EventRule`] has the grammar and the decisions. The module is separate from the rules on
//! streams because these have subjects and windows of samples, and an event is a row of its own.

mod arguments;
mod columns;
mod count;
mod explain;
mod glob;
mod index;
mod known;
mod limits;
mod literals;
mod markdown;
mod recent;
mod rules;
mod schedule;
mod statement;
mod work;

pub use arguments::ACTION_FIELDS;
pub use columns::{EVENT_RULE_COLUMNS, EVENT_RULE_KINDS, EventFacts};
pub use count::COUNT_POINTS_MAX;
pub use explain::{Explanation, ExplanationOutcome};
pub use known::{EventFiring, EventRuleReport};
pub use limits::{
    ActionDelivery, ActionLimits, ActionRate, EventRuleLimits, QuietTime, RecentActionsLimits,
};
pub use markdown::{MarkdownFault, MarkdownRule, RowDifference, check_rule_markdown};
pub use recent::{RecentActions, StartedAction};
pub use rules::EventRules;
pub use schedule::RuleSchedule;
pub use statement::EventRuleStatement;
pub(crate) use statement::action_limits;
pub use work::{RuleContainer, RuleWork};

use barograph_statement::Expr;

use columns::KindSet;
use glob::GlobCheck;

/// A rule on file events or on a schedule, as it was written.
///
/// ```sql
/// CREATE [OR REPLACE] RULE name [HELP 'what it is for']
///     ON EVENT create, close_write [, …] [FROM 'source' [, …]]
///     [WHERE condition] [WHEN count_over('1 min') > 10]
///     THEN RUN 'program' ['argument' …]
///     [COOLDOWN '10 s'] [CONCURRENCY 4] [TIMEOUT '10 min'] [RETRY 5] [RATE 100 PER '1 min']
///     [BREAK 1000 PER '1 min']
///     [DELIVERY 'at_most_once' | 'at_least_once'] [QUIET '08:00' TO '18:00']
/// CREATE … RULE … ON SCHEDULE {EVERY '1 h' | AT '02:30' [, …]} THEN …
/// CREATE … RULE … THEN POST 'https://host/path' [BODY '{{"path": "{path}"}}'] …
/// ```
///
/// The condition has the operators and scalar functions of insights over the columns of one event
/// ([`EVENT_RULE_COLUMNS`]). A column has the value that it has in the table `events`, so that the
/// same condition selects the same rows in SQL. The table lacks `name`, `dir` and `ext`, which are
/// parts of the path, and `reconciled`, which is a quality there.
///
/// * `path`, `old_path`, `name`, `dir` and `ext` are texts, in which bytes that are not UTF-8 are
///   replaced. They are NULL if the path is empty; `ext` is an empty text if the name has no dot
///   after its first character. `job` is NULL if it is unknown, as are `size`, `uid` and `gid`.
/// * `directory`, `complete` and `reconciled` are 1 or 0. `ts` is in ns since the epoch.
/// * `GLOB` is that of SQLite: `*` matches any text, also with `/` in it, and `**` is the same as
///   `*`. So `path GLOB '/data/*.h5'` matches `/data/a/b.h5`, and `/data/**/x` matches `/data/a/x`
///   and `/data/a/b/x`, but not `/data/x`, which has one slash only. `dir = '/data'` selects the
///   files of one directory alone.
/// * `count_over('1 min')` in WHEN is the number of events that match the rule, which means kind,
///   source and WHERE, in the minute that ends with the event and includes it. Time is that of the
///   events. A window has at most [`COUNT_POINTS_MAX`] points; if there are more times of events, a
///   point stands for a 128th of the window, so that an event may be counted for that much longer
///   than the window lasts, and is never missing.
///
/// These are the decisions about when a rule fires:
///
/// * A rule fires for each event for which all of it holds. NULL is not true. A condition that
///   cannot be computed, such as an integer overflow, is not true either, and is counted.
/// * A cooldown is the least time between two firings of a rule, by the times of the events. Events
///   within it are counted. A firing is no reason for a cooldown if its time is further away than
///   the cooldown's length in either direction, so that one wrong time does not silence a rule.
/// * A rule does not fire for what its own actions do ([`RecentActions`]). Such events are counted,
///   and are not part of `count_over`.
/// * A rule does not look at a clock. Limits on running the action (concurrency, timeout, retries,
///   quiet time) are for whoever runs it.
#[derive(Clone, Debug)]
pub struct EventRule {
    /// The name of the rule.
    pub name: String,
    /// The statement that made it.
    pub sql: String,
    /// The hash of the statement: part of the identity of an action, so that a changed rule may act
    /// again on the same event.
    pub version: u64,
    /// The purpose of the rule; may be empty.
    pub help: String,
    /// The names of the sources whose events it takes; empty for all sources.
    pub sources: Vec<String>,
    /// The times at which it fires; `None` for a rule on events.
    pub schedule: Option<RuleSchedule>,
    /// What is done when it fires.
    pub work: RuleWork,
    /// The least time between two firings, in ns; 0 if there is none.
    pub cooldown_ns: i64,
    /// The limits on running the action.
    pub limits: ActionLimits,
    kinds: KindSet,
    /// The parts of WHERE, all of which must be true.
    conditions: Vec<EventClause>,
    /// The parts of WHEN, all of which must be true.
    counts: Vec<EventClause>,
    /// The lengths of the windows of WHEN, in ns, by the number of the function.
    windows_ns: Vec<i64>,
}

/// A part of a condition: one of the operands of AND.
#[derive(Clone, Debug)]
struct EventClause {
    text: String,
    expr: Expr,
    /// A quick check without which the expression cannot be true.
    glob: Option<GlobCheck>,
}

impl EventRule {
    /// The kinds of events that the rule takes, as words.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.kinds.words()
    }
}
