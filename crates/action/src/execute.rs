//! Does one claimed action, and tells what its end means for the queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_model::cut;

use crate::container::{ContainerRun, ContainerRuntime};
use crate::job::{ActionJob, ActionWork, ExitRetry, JobPlace};
use crate::mail::Mailer;
use crate::queue::{ActionFailure, ActionOutcome, AttemptReach, ClaimedAction, RepeatWish};
use crate::request::{ActionKey, ActionOwner, Delivery};
use crate::run::{ProgramEnd, ProgramEnding, ProgramRun, ProgramRunner, RunRefusal};
use crate::transfer::{FileTransfer, StoreConfig, TRANSFER_TASK_BYTES_MAX, TransferTask};
use crate::webhook::WebhookSender;

/// Longest time that the command may take that ends a container.
const CONTAINER_END_MAX: Duration = Duration::from_secs(30);

/// How the reason begins of an action whose program has ended by itself.
const ENDED: &str = "the program ended with code";
/// Longest reason that a transfer gives for its failure; the rest is in its output.
const SAID_BYTES_MAX: usize = 512;

/// Does claimed actions. It is called from several threads.
pub trait ActionExecutor: Send + Sync {
    /// Does an action to its end. When `stop` becomes true, it ends soon, if it can.
    fn execute(&self, action: &ClaimedAction, stop: &AtomicBool) -> ActionOutcome;
}

/// What an executor leaves to the agent around it.
pub trait ActionHost: Send + Sync {
    /// Makes a call into running programs: `request` is the body of `POST /api/v1/fire`.
    fn call(&self, request: &str, rule: &str) -> ActionOutcome;

    /// Marks the file of an action, and returns when that is durable.
    fn mark(
        &self,
        mark: &str,
        action: (&ActionJob, ActionOwner),
        stop: &AtomicBool,
    ) -> ActionOutcome;

    /// Hands an action over to another node, and returns when it is durable in that node's queue.
    fn hand_over(
        &self,
        place: &JobPlace,
        action: (&ActionKey, Delivery),
        job: &ActionJob,
    ) -> ActionOutcome;
}

/// How files are transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferConfig {
    /// The program that transfers files and its words. It reads a [`TransferTask`] as JSON.
    pub argv: Vec<Vec<u8>>,
    /// The stores, by name.
    pub stores: BTreeMap<String, StoreConfig>,
}

/// Does the jobs of actions.
pub struct JobExecutor {
    /// What runs programs, without a shell.
    pub runner: ProgramRunner,
    /// Runs containers; `None` if none is configured.
    pub containers: Option<ContainerRuntime>,
    /// What posts webhooks to the allowed hosts.
    pub sender: WebhookSender,
    /// What sends e-mails to the allowed addresses.
    pub mailer: Mailer,
    /// How files are transferred.
    pub transfers: TransferConfig,
    /// Name of this node.
    pub node: String,
    /// What the executor leaves to the agent.
    pub host: Arc<dyn ActionHost>,
}

impl ActionExecutor for JobExecutor {
    fn execute(&self, action: &ClaimedAction, stop: &AtomicBool) -> ActionOutcome {
        let mut job = match ActionJob::decode(&action.body) {
            Ok(job) => job,
            Err(fault) => return refused(fault.to_string(), RepeatWish::Never),
        };
        // What the queue knows is what holds.
        job.fields.key = action.key.to_string();
        if let Some(place) = job.place.take_if(|place| place.node != self.node) {
            return self
                .host
                .hand_over(&place, (&action.key, action.delivery), &job);
        }
        let key = &job.fields.key;
        match &job.work {
            ActionWork::Webhook { url, body } => self.sender.post(url, key, body),
            ActionWork::Mark { mark } => self.host.mark(mark, (&job, action.owner), stop),
            ActionWork::Mail(mail) => self.mailer.send(mail, key),
            ActionWork::Call { request } => self.host.call(request, &action.key.rule),
            ActionWork::Transfer {
                transfer,
                time_ns_max,
            } => self.transfer(transfer, *time_ns_max, (&job, action), stop),
            ActionWork::Run {
                argv,
                time_ns_max,
                retry,
                container,
            } => {
                let run = ProgramRun {
                    argv,
                    owner: action.owner,
                    fields: &job.fields,
                    prefix: "",
                    input: &[],
                    time_max: time_max(*time_ns_max),
                };
                match container {
                    None => self.run(run, retry, stop),
                    Some(container) => self.contain(run, container, retry, stop),
                }
            }
        }
    }
}

impl JobExecutor {
    fn run(&self, run: ProgramRun<'_>, retry: &ExitRetry, stop: &AtomicBool) -> ActionOutcome {
        match self.runner.run(run, stop) {
            Ok(end) => outcome(end, retry),
            Err(refusal @ RunRefusal::Now { .. }) => {
                refused(refusal.to_string(), RepeatWish::Later)
            }
            Err(refusal) => refused(refusal.to_string(), RepeatWish::Never),
        }
    }

    /// Runs a program in a container, and has the container end with it.
    fn contain(
        &self,
        run: ProgramRun<'_>,
        container: &ContainerRun,
        retry: &ExitRetry,
        stop: &AtomicBool,
    ) -> ActionOutcome {
        let Some(runtime) = &self.containers else {
            let text = "no container runtime is named: container_runtime in [action]";
            return refused(text.to_owned(), RepeatWish::Never);
        };
        let end = || {
            let argv = runtime.end_argv(run.fields)?;
            let ending = ProgramRun {
                argv: &argv,
                time_max: CONTAINER_END_MAX,
                ..run
            };
            // The workers may be stopping, and the container is to end nevertheless.
            self.runner.run(ending, &AtomicBool::new(false)).ok()
        };
        // One of an earlier attempt whose end nobody saw.
        end();
        let argv = runtime.argv(container, (run.argv, run.fields), run.owner);
        let contained = ProgramRun {
            argv: &argv,
            prefix: runtime.variable_prefix(),
            ..run
        };
        let outcome = self.run(contained, retry, stop);
        if matches!(outcome, ActionOutcome::Failed(_)) {
            end();
        }
        outcome
    }

    /// Transfers a file, by a program of its own.
    fn transfer(
        &self,
        transfer: &FileTransfer,
        time_ns_max: i64,
        (job, action): (&ActionJob, &ClaimedAction),
        stop: &AtomicBool,
    ) -> ActionOutcome {
        let named = transfer.stores().filter_map(|name| {
            let store = self.transfers.stores.get(name)?;
            Some((name.to_owned(), store.clone()))
        });
        let task = TransferTask {
            transfer: transfer.clone(),
            key: job.fields.key.clone(),
            stores: named.collect(),
            // An earlier lease may have moved the file, whoever counts it as an attempt.
            tried_since_ns: (action.lease.number > 1).then_some(action.enqueued_ns),
        };
        let input = match serde_json::to_vec(&task) {
            Ok(input) if input.len() <= TRANSFER_TASK_BYTES_MAX => input,
            Ok(_) => return refused("its paths are too long".into(), RepeatWish::Never),
            Err(error) => return refused(error.to_string(), RepeatWish::Never),
        };
        let run = ProgramRun {
            argv: &self.transfers.argv,
            owner: action.owner,
            fields: &job.fields,
            prefix: "",
            input: &input,
            time_max: time_max(time_ns_max),
        };
        as_it_said(self.run(run, &ExitRetry::None, stop))
    }
}

/// The outcome of a transfer with what its program has written last as the reason, where it ended
/// by itself: the program is ours, and its text has the reason and the names of the files alone.
fn as_it_said(mut outcome: ActionOutcome) -> ActionOutcome {
    if let ActionOutcome::Failed(failure) = &mut outcome
        && failure.reason.starts_with(ENDED)
    {
        let text = String::from_utf8_lossy(&failure.output);
        let mut lines = text.lines().rev();
        if let Some(said) = lines.find_map(|line| line.trim().strip_prefix("baro: ")) {
            failure.reason = cut(said.to_owned(), SAID_BYTES_MAX);
        }
    }
    outcome
}

fn time_max(ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or_default())
}

/// An action of which nothing was begun.
fn refused(reason: String, repeat: RepeatWish) -> ActionOutcome {
    ActionOutcome::Failed(ActionFailure {
        reason,
        output: Vec::new(),
        repeat,
        reach: AttemptReach::NotBegun,
    })
}

fn outcome(end: ProgramEnd, retry: &ExitRetry) -> ActionOutcome {
    let seconds = end.time.as_secs_f64();
    let (reason, repeat) = match end.ending {
        ProgramEnding::Code(0) => {
            let output = output(end);
            return ActionOutcome::Done { output };
        }
        ProgramEnding::Code(code) => (
            format!("{ENDED} {code}"),
            match retry.has(code) {
                true => RepeatWish::Later,
                false => RepeatWish::Never,
            },
        ),
        ProgramEnding::Signal(signal) => (
            format!("the program was ended by signal {signal}"),
            RepeatWish::Later,
        ),
        ProgramEnding::TimeOver => (
            format!("the program took too long: it was ended after {seconds:.1} s"),
            RepeatWish::Later,
        ),
        ProgramEnding::Stopped => (
            "the program was ended with the workers, or since its lease was lost".to_owned(),
            RepeatWish::Later,
        ),
        // Another one would run beside it.
        ProgramEnding::Left => (
            format!(
                "the program does not end, {seconds:.1} s after its start, although it was killed"
            ),
            RepeatWish::Never,
        ),
    };
    ActionOutcome::Failed(ActionFailure {
        reason,
        output: output(end),
        repeat,
        reach: AttemptReach::Begun,
    })
}

/// Both outputs of a program, with a line before each if there are two.
fn output(end: ProgramEnd) -> Vec<u8> {
    match (end.output.is_empty(), end.errors.is_empty()) {
        (_, true) => end.output,
        (true, false) => end.errors,
        (false, false) => [
            &b"[standard output]\n"[..],
            &end.output,
            b"\n[standard error]\n",
            &end.errors,
        ]
        .concat(),
    }
}
