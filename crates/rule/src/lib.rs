//! Triggers: conditions over streams, written in SQL, that fire a call when they become true.
//!
//! `CREATE [OR REPLACE] TRIGGER name [HELP 'h'] WHEN condition FIRE 'call' [PAYLOAD value]
//! [TO 'label=value,…'] [COOLDOWN '10 s'] [EXPIRES '60 s']`, and `DROP TRIGGER [IF EXISTS] name`.
//!
//! A condition has the operators and scalars of insights, over functions of streams:
//!
//! * `latest('disk.busy.ratio')`: the newest value. `age(…)`: seconds since the last sign of life: the
//!   newest sample, or a look that found it unchanged.
//! * `absent(…, '5 s')`: no sign of life for so long, or no such stream for so long since the trigger
//!   was made or the subject came.
//! * `rate(…, '10 s')`: the mean over time of what SQL's `rate()` gives from sample to sample: a counter
//!   that falls has begun anew, and that step counts for nothing. `delta(…, '10 s')`: how far it moved.
//! * `avg_over`, `min_over`, `max_over`: over the time of the window; a value holds until the next. They,
//!   `rate` and `delta` are of the window that ends at the last sign of life, and NULL when that is older
//!   than the window is long.
//! * `count_over(…, '1 min')`: how many samples came in the time up to now; `ago(…, '1 h')`: the value
//!   that held so long ago.
//! * `label('device')`: a label of the subject.
//!
//! Decisions:
//!
//! * The streams that the first function matches are the **subjects**: the condition is evaluated for
//!   each by itself. Other functions take the streams whose labels agree with the subject's on all names
//!   that both have; of several, the one with the newest sample. A function with the same selector as the
//!   first takes the subject's own stream.
//! * It fires at the edge: when the condition of a subject becomes true, also if it is so at first; NULL
//!   is not true. Not again before it was not true in between, and not within the cooldown of the last
//!   time: what becomes true then is counted and passed over.
//! * A subject whose stream ends goes with it; if the condition asks for absence, it stays until that has
//!   been told. While no stream has ever matched, such a trigger has one subject, with the labels that the
//!   selector spells out.
//! * The past that windows are given ([`Triggers::seed_summaries`]) fires nothing by itself: what counts is
//!   the condition at the first evaluation, after it was given.
//! * A sample that is older than the one before it takes the place of those later than itself. When the
//!   clock is set back, nothing counts as later than now.
//! * What time alone can change has a deadline; everything else is computed only when a stream has news.

mod engine;
mod leaf;
mod limits;
mod report;
mod statement;
mod stream;
mod subject;
mod window;

pub use engine::Triggers;
pub use limits::TriggerLimits;
pub use report::{Firing, Summary, TriggerReport, TriggerState};
