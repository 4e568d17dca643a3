//! Workers: threads that do the actions of a queue.
//!
//! One thread talks with the queue: it claims as many actions as there are idle workers, extends
//! leases, and settles what has ended, all of a round in one transaction. The others do actions,
//! each one at a time.
#![expect(
    clippy::disallowed_methods,
    reason = "the threads are a shell: they alone wait, by the clock of the machine"
)]

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::execute::ActionExecutor;
use crate::queue::{
    ActionFailure, ActionLease, ActionOutcome, ActionQueue, AttemptReach, ClaimedAction,
    RepeatWish, RuleStart,
};
use crate::request::ActionKey;

/// What the workers are to know of the rules.
pub trait ActionRules: Send + Sync {
    /// Rules whose actions may start now, with how many: the place of quiet hours, rates and most
    /// actions at the same time.
    fn may_start(&self) -> Vec<RuleStart>;

    /// Takes in that an action of a rule is started now.
    fn started(&self, key: &ActionKey);
}

/// Number and waits of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersConfig {
    /// Name of the workers, which the queue shows with their actions.
    pub name: String,
    /// Number of actions that are done at the same time.
    pub threads: usize,
    /// Length of a lease. It is extended when a third of it has passed.
    pub lease: Duration,
    /// Longest time between two looks at the queue.
    pub look: Duration,
    /// How long running actions may go on when the workers stop.
    pub stop_wait: Duration,
    /// How long those may take that are ended then.
    pub end_wait: Duration,
}

impl Default for WorkersConfig {
    fn default() -> Self {
        Self {
            name: format!("agent {}", std::process::id()),
            threads: 4,
            lease: Duration::from_secs(60),
            look: Duration::from_millis(500),
            stop_wait: Duration::from_secs(10),
            end_wait: Duration::from_secs(12),
        }
    }
}

/// Threads that do the actions of a queue.
pub struct ActionWorkers {
    messages: SyncSender<Message>,
    stopping: Arc<AtomicBool>,
    dispatcher: Option<JoinHandle<StopReport>>,
}

/// What has become of the running actions when the workers stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Actions that were ended before they were done.
    pub ended: u64,
    /// Actions that are left: their leases end by themselves.
    pub left: u64,
}

enum Message {
    /// There may be something to claim, or the workers are to stop.
    Wake,
    Ended(ActionLease, ActionOutcome),
}

/// An action that is given to a worker.
struct Errand {
    action: ClaimedAction,
    stop: Arc<AtomicBool>,
}

impl ActionWorkers {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// A thread cannot be started; those that were started end.
    pub fn start(
        queue: Arc<ActionQueue>,
        rules: Arc<dyn ActionRules>,
        executor: Arc<dyn ActionExecutor>,
        config: WorkersConfig,
    ) -> std::io::Result<Self> {
        let threads = config.threads.max(1);
        let (errands, inbox) = sync_channel::<Errand>(threads);
        let inbox = Arc::new(Mutex::new(inbox));
        // Room for a result of each worker: none of them waits for the dispatcher.
        let (messages, events) = sync_channel(threads + 1);
        for _ in 0..threads {
            let (inbox, executor) = (Arc::clone(&inbox), Arc::clone(&executor));
            let messages = messages.clone();
            std::thread::Builder::new()
                .name("action-worker".into())
                .spawn(move || work(&inbox, &*executor, &messages))?;
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let dispatcher = Dispatcher {
            queue,
            rules,
            threads,
            config,
            errands,
            events,
            running: BTreeMap::new(),
            ended: Vec::new(),
            extended: Instant::now(),
            stopping: Arc::clone(&stopping),
            random: RandomState::new(),
            rounds: 0,
        };
        let dispatcher = std::thread::Builder::new()
            .name("action-queue".into())
            .spawn(move || dispatcher.run())?;
        Ok(Self {
            messages,
            stopping,
            dispatcher: Some(dispatcher),
        })
    }

    /// Tells the workers that there is something to do, so that they look at once.
    pub fn wake(&self) {
        // If there is no room, they look anyway.
        match self.messages.try_send(Message::Wake) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Stops: nothing more is claimed, running actions may go on for a while, and are then ended
    /// and given back to the queue.
    pub fn stop(mut self) -> StopReport {
        self.end()
    }

    fn end(&mut self) -> StopReport {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake();
        let report = self.dispatcher.take().map(JoinHandle::join);
        report.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for ActionWorkers {
    fn drop(&mut self) {
        self.end();
    }
}

fn work(
    inbox: &Mutex<Receiver<Errand>>,
    executor: &dyn ActionExecutor,
    messages: &SyncSender<Message>,
) {
    loop {
        // The lock is held while waiting: whoever has it takes the next errand.
        let errand = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(errand) = errand else { return };
        let run = AssertUnwindSafe(|| executor.execute(&errand.action, &errand.stop));
        let outcome = catch_unwind(run).unwrap_or_else(|_| {
            ActionOutcome::Failed(ActionFailure {
                reason: "the worker has failed: see the log of the agent".into(),
                output: Vec::new(),
                repeat: RepeatWish::Later,
                reach: AttemptReach::Begun,
            })
        });
        let message = Message::Ended(errand.action.lease, outcome);
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// The thread that talks with the queue.
struct Dispatcher {
    queue: Arc<ActionQueue>,
    rules: Arc<dyn ActionRules>,
    threads: usize,
    config: WorkersConfig,
    errands: SyncSender<Errand>,
    events: Receiver<Message>,
    /// Actions that workers have, with the request to end each.
    running: BTreeMap<ActionLease, Arc<AtomicBool>>,
    /// Actions that have ended and are not settled yet.
    ended: Vec<(ActionLease, ActionOutcome)>,
    /// Time of the last extension of leases.
    extended: Instant,
    stopping: Arc<AtomicBool>,
    random: RandomState,
    rounds: u64,
}

impl Dispatcher {
    fn run(mut self) -> StopReport {
        while !self.stopping.load(Ordering::Relaxed) {
            let is_full = self.settle() && self.claim();
            self.extend();
            // After a full claim there may be more, and a worker may be idle again.
            let is_busy = is_full && self.running.len() < self.threads;
            self.wait(if is_busy {
                Duration::ZERO
            } else {
                self.config.look
            });
        }
        self.finish()
    }

    fn lease_ns(&self) -> i64 {
        i64::try_from(self.config.lease.as_nanos()).unwrap_or(i64::MAX)
    }

    /// Claims as many actions as there are idle workers; tells whether there were so many.
    fn claim(&mut self) -> bool {
        let idle = self.threads.saturating_sub(self.running.len());
        if idle == 0 || !self.ended.is_empty() {
            return false;
        }
        let rules = self.rules.may_start();
        let lease_ns = self.lease_ns();
        let claimed = match self.queue.claim(&self.config.name, &rules, idle, lease_ns) {
            Ok(claimed) => claimed,
            Err(fault) => {
                tracing::warn!(%fault, "no action can be claimed now");
                return false;
            }
        };
        let is_full = claimed.len() == idle;
        for action in claimed {
            self.rules.started(&action.key);
            let stop = Arc::new(AtomicBool::new(false));
            self.running.insert(action.lease, Arc::clone(&stop));
            // There is room for an errand of each worker.
            if self.errands.send(Errand { action, stop }).is_err() {
                return false;
            }
        }
        is_full
    }

    /// Settles what has ended; tells whether all is settled.
    fn settle(&mut self) -> bool {
        if self.ended.is_empty() {
            return true;
        }
        self.rounds += 1;
        let random = (self.random.hash_one(self.rounds) >> 11) as f64 / (1_u64 << 53) as f64;
        match self.queue.settle(&self.ended, random) {
            Ok(_) => {
                self.ended.clear();
                true
            }
            Err(fault) => {
                tracing::warn!(%fault, "actions cannot be settled now; it is tried again");
                false
            }
        }
    }

    /// Extends the leases of running actions. An action whose lease is lost is ended: another
    /// worker may have it.
    fn extend(&mut self) {
        if self.extended.elapsed() < self.config.lease / 3 {
            return;
        }
        let ended = self.ended.iter().map(|(lease, _)| *lease);
        let leases: Vec<ActionLease> = self.running.keys().copied().chain(ended).collect();
        match self.queue.extend(&leases, self.lease_ns()) {
            Ok(present) => {
                self.extended = Instant::now();
                for (lease, is_present) in leases.iter().zip(present) {
                    if let (false, Some(stop)) = (is_present, self.running.get(lease)) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
            Err(fault) => tracing::warn!(%fault, "leases cannot be extended now"),
        }
    }

    /// Waits for a message, and takes those that are there.
    fn wait(&mut self, time: Duration) {
        match self.events.recv_timeout(time) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        while let Ok(message) = self.events.try_recv() {
            self.take(message);
        }
    }

    fn take(&mut self, message: Message) {
        if let Message::Ended(lease, outcome) = message {
            self.running.remove(&lease);
            self.ended.push((lease, outcome));
        }
    }

    fn finish(mut self) -> StopReport {
        let mut report = StopReport::default();
        self.go_on(Instant::now() + self.config.stop_wait);
        report.ended = self.running.len() as u64;
        for stop in self.running.values() {
            stop.store(true, Ordering::Relaxed);
        }
        self.go_on(Instant::now() + self.config.end_wait);
        report.left = (self.running.len() + self.ended.len()) as u64;
        report
    }

    /// Settles what ends, until all has ended or a time is reached.
    fn go_on(&mut self, until: Instant) {
        loop {
            let is_settled = self.settle();
            self.extend();
            let left = until.saturating_duration_since(Instant::now());
            if (self.running.is_empty() && is_settled) || left.is_zero() {
                return;
            }
            self.wait(left.min(self.config.look));
        }
    }
}
