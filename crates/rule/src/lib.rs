//! Rules, written in SQL, each with an action: conditions over streams, which are described here,
//! and rules on file events and schedules, which [`EventRule`] describes. The action of the former
//! is a call of a handler in running programs, or a program or a post as those of rules on events.
//!
//! ```sql
//! CREATE [OR REPLACE] RULE name [HELP 'what it is for'] WHEN condition CALL 'handler'
//!     [PAYLOAD value] [TO 'label=value,…'] [COOLDOWN '10 s'] [EXPIRES '60 s']
//! CREATE [OR REPLACE] RULE name [HELP 'what it is for'] WHEN condition
//!     THEN {RUN 'program' ['argument with {label}' …] | POST 'https://host/path'} [limits]
//! DROP RULE [IF EXISTS] name
//! ```
//!
//! `TRIGGER` for `RULE`, and `FIRE` for `CALL`, are the older words; in this version they still
//! mean the same.
//!
//! A condition has the operators and scalar functions of insights, over functions of streams. A
//! **sign of life** of a stream is a sample, or a look that found the value unchanged.
//!
//! * `latest('disk.busy.ratio')` is the newest value. `age(…)` is the number of seconds since the
//!   last sign of life.
//! * `absent(…, '5 s')` is true if for this time there was no sign of life, or no such stream since
//!   the rule was made or its subject appeared.
//! * `rate(…, '10 s')` is the change per second, the mean over time of SQL's `rate()`: a counter
//!   that falls has begun anew, and that step is not counted. `delta(…, '10 s')` is the change in
//!   the window; for a counter, the growth.
//! * `avg_over`, `min_over` and `max_over` are the mean, least and greatest value of a window, in
//!   which a value holds until the next one. The windows of these three, of `rate` and of `delta`
//!   end at the last sign of life. They are NULL if that is longer ago than the window's length.
//! * `count_over(…, '1 min')` is the number of samples in the window that ends now;
//!   `ago(…, '1 h')` is the value that held so long ago.
//! * `label('device')` is a label of the subject.
//!
//! On a node of a cluster, a selector whose name begins with `cluster.` reads the streams of all
//! nodes ([`ClusterSelector`]); no other selector matches these.
//!
//! These are the decisions about when a rule fires:
//!
//! * The streams that the first function matches are the rule's **subjects**. The condition is
//!   evaluated for each subject separately. Another function reads the streams whose labels agree
//!   with the subject's on all names that both have; of several such streams, it takes the one with
//!   the newest sample. A function with the same selector as the first one reads the subject's own
//!   stream.
//! * A rule fires when the condition of a subject becomes true, also if it is true at the first
//!   evaluation; NULL is not true. It fires again only after the condition was not true in between,
//!   and after the cooldown: a condition that becomes true during the cooldown is counted, and no
//!   call is made.
//! * A subject ends with its stream. If the condition contains `absent`, the subject remains until
//!   the absence was evaluated. Until a stream has matched, such a rule has one subject with
//!   the labels that the selector gives as literals.
//! * The past that windows are filled with ([`Rules::seed_summaries`]) does not fire a rule:
//!   the condition is first evaluated after the filling.
//! * A sample that is older than the one before it replaces all samples that are later than itself.
//!   When the clock is set back, nothing counts as later than now.
//! * A condition that time alone can change has a deadline. All others are computed only when a
//!   stream has news.

mod cluster;
mod engine;
mod event_rule;
mod leaf;
mod limits;
mod report;
mod statement;
mod stream;
mod subject;
mod window;

pub use cluster::{ClusterSelector, selectors_of_cluster};
pub use engine::Rules;
pub use event_rule::{
    ACTION_FIELDS, ActionDelivery, ActionLimits, ActionRate, COUNT_POINTS_MAX, EVENT_RULE_COLUMNS,
    EVENT_RULE_KINDS, EventFacts, EventFiring, EventRule, EventRuleLimits, EventRuleReport,
    EventRuleStatement, EventRules, Explanation, ExplanationOutcome, MarkdownFault, MarkdownRule,
    QuietTime, RecentActions, RecentActionsLimits, RowDifference, RuleContainer, RuleSchedule,
    RuleWork, StartedAction, check_rule_markdown,
};
pub use limits::RuleLimits;

pub use report::{FiredAction, Firing, FiringSummary, RuleReport, RuleState};
pub use statement::work_of_condition;
