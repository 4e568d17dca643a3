//! Actions: what rules have done when something has happened.
//!
//! An [`ActionQueue`] keeps each request durably until it is settled, so that an event may be
//! forgotten by its source as soon as the request is acknowledged. [`ActionWorkers`] claim actions
//! with leases, run programs ([`ProgramRunner`]) or post webhooks ([`WebhookSender`]), and settle
//! them. A [`Template`] fills the fields of the event into arguments, addresses and bodies.
//!
//! The crate stands alone because it knows neither events nor rules: which rules may start now, and
//! whose rights they have, is told to it. It has one file, the queue.

mod bytes;
mod execute;
mod job;
mod queue;
mod request;
mod run;
mod template;
mod webhook;
mod worker;

pub use execute::{ActionExecutor, JobExecutor};
pub use job::{ActionJob, ActionWork, ExitRetry, JobFault};
pub use queue::{
    ActionDetail, ActionFailure, ActionFilter, ActionInfo, ActionLease, ActionOutcome, ActionQueue,
    ActionState, AttemptReach, CLAIM_MAX, Changed, ClaimedAction, Durability, Enqueued,
    EventCursor, LIST_MAX, QueueConfig, QueueFault, QueueStatus, RepeatWish, RuleCounts, RuleStart,
    Settled,
};
pub use request::{
    ACTION_NAME_BYTES_MAX, ActionKey, ActionOwner, ActionRequest, Delivery, REASON_BYTES_MAX,
    RetryPolicy,
};
pub use run::{ProgramEnd, ProgramEnding, ProgramRun, ProgramRunner, RunConfig, RunRefusal};
pub use template::{ActionFields, FIELD_NAMES, TEMPLATE_BYTES_MAX, Template, TemplateFault};
pub use webhook::{WebhookConfig, WebhookFault, WebhookSender};
pub use worker::{ActionRules, ActionWorkers, StopReport, WorkersConfig};
