//! Actions: what rules have done when something has happened.
//!
//! An [`ActionQueue`] keeps each request durably until it is settled, so that an event may be
//! forgotten by its source as soon as the request is acknowledged. [`ActionWorkers`] claim actions
//! with leases, have them done by a [`JobExecutor`] (it runs programs, posts webhooks, sends mail,
//! transfers files), and settle them. A [`Template`] fills the fields of the event into arguments,
//! addresses and bodies.
//!
//! The crate stands alone because it knows neither events nor rules: which rules may start now, and
//! whose rights they have, is told to it. It has one file, the queue.

mod bytes;
mod container;
mod execute;
mod job;
mod mail;
mod queue;
mod request;
mod run;
mod template;
mod transfer;
mod webhook;
mod worker;

pub use container::{ContainerRun, ContainerRuntime};
pub use execute::{ActionExecutor, ActionHost, JobExecutor, TransferConfig};
pub use job::{ActionJob, ActionWork, ExitRetry, JobFault, JobPlace};
pub use mail::{MailConfig, MailFault, MailMessage, Mailer};
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
pub use run::{
    INPUT_BYTES_MAX, ProgramEnd, ProgramEnding, ProgramRun, ProgramRunner, RunConfig, RunRefusal,
};
pub use template::{ActionFields, FIELD_NAMES, TEMPLATE_BYTES_MAX, Template, TemplateFault};
pub use transfer::{
    FilePlace, FileTransfer, PlaceTemplate, StoreConfig, TRANSFER_TASK_BYTES_MAX, TransferTask,
    TransferVerb, is_store_name,
};
pub use webhook::{WebhookConfig, WebhookFault, WebhookSender};
pub use worker::{ActionRules, ActionWorkers, StopReport, WorkersConfig};
