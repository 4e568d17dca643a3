//! Does one claimed action, and tells what its end means for the queue.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::job::{ActionJob, ActionWork, ExitRetry};
use crate::queue::{ActionFailure, ActionOutcome, AttemptReach, ClaimedAction, RepeatWish};
use crate::run::{ProgramEnd, ProgramEnding, ProgramRun, ProgramRunner, RunRefusal};
use crate::webhook::WebhookSender;

/// Does claimed actions. It is called from several threads.
pub trait ActionExecutor: Send + Sync {
    /// Does an action to its end. When `stop` becomes true, it ends soon, if it can.
    fn execute(&self, action: &ClaimedAction, stop: &AtomicBool) -> ActionOutcome;
}

/// Does the jobs of actions: runs programs and posts webhooks.
pub struct JobExecutor {
    runner: ProgramRunner,
    sender: WebhookSender,
}

impl JobExecutor {
    /// An executor of these two.
    pub fn new(runner: ProgramRunner, sender: WebhookSender) -> Self {
        Self { runner, sender }
    }
}

impl ActionExecutor for JobExecutor {
    fn execute(&self, action: &ClaimedAction, stop: &AtomicBool) -> ActionOutcome {
        let mut job = match ActionJob::decode(&action.body) {
            Ok(job) => job,
            Err(fault) => return refused(fault.to_string(), RepeatWish::Never),
        };
        // What the queue knows is what holds.
        job.fields.key = action.key.to_string();
        match job.work {
            ActionWork::Webhook { url, body } => self.sender.post(&url, &job.fields.key, &body),
            ActionWork::Run {
                argv,
                time_ns_max,
                retry,
            } => {
                let run = ProgramRun {
                    argv: &argv,
                    owner: action.owner,
                    fields: &job.fields,
                    time_max: Duration::from_nanos(u64::try_from(time_ns_max).unwrap_or_default()),
                };
                match self.runner.run(run, stop) {
                    Ok(end) => outcome(end, &retry),
                    Err(refusal @ RunRefusal::Now { .. }) => {
                        refused(refusal.to_string(), RepeatWish::Later)
                    }
                    Err(refusal) => refused(refusal.to_string(), RepeatWish::Never),
                }
            }
        }
    }
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
        ProgramEnding::Code(code) if retry.has(code) => (
            format!("the program ended with code {code}"),
            RepeatWish::Later,
        ),
        ProgramEnding::Code(code) => (
            format!("the program ended with code {code}"),
            RepeatWish::Never,
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
