//! Rules on file events and on schedules, and their actions (docs/design/0010-file-events.md).
//!
//! Sources hand durable events over ([`EventActions::offer`]); one thread evaluates all rules on
//! them and keeps requests in the queue of actions, together with a cursor for each source; workers
//! run the actions. All of it, the queue included, begins with the first rule.

mod config;
mod document;
mod evaluator;
mod execution;
mod feed;
mod marks;
mod remote;
mod request;
mod schedule;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_action::{
    ActionHost, ActionOwner, ActionQueue, ActionWorkers, Changed, JobExecutor, Mailer,
    ProgramRunner, QueueConfig, QueueStatus, RunConfig, WebhookSender, WorkersConfig,
};
use barograph_model::{Clock, NS_PER_S, Pattern};
use barograph_recorder::{publish, publish_private};
use barograph_rule::{
    ActionLimits, EventRule, EventRuleLimits, EventRuleStatement, EventRules, FiredAction, Firing,
    RuleWork,
};
use barograph_statement::StatementOutcome;
use barograph_stream::{ACTIONS_DOCUMENT, ActionsRow, RulesRow, RunDir, ScopeReader};
use serde_json::{Value as Json, json};
use tracing::{info, warn};

use crate::refusal::{StatementAnswer, StatementRefusal};

pub use config::ActionConfig;
use document::{actions, detail, rule};
use evaluator::{Progress, RuleEvaluator};
use execution::{KnownExecutor, RuleStarts};
use feed::EventFeeds;
pub(crate) use feed::{DurableEvents, EventLog};
pub(crate) use marks::{MARKS_SOURCE, MarkBox, MarkCollector};
pub(crate) use remote::AgentHost;
use request::request_of_firing;
pub use request::{action_words, event_facts, scheduled_words};
use schedule::time_cursor;
pub use work::check_work;

/// Longest wait of the evaluating thread.
const WAIT: Duration = Duration::from_secs(1);
/// Length of a lease: after a kill, what was running is done again when it has ended.
const LEASE: Duration = Duration::from_secs(20);
/// Longest time that running actions have to end when the agent stops.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Most steps over events in memory when the agent stops.
const LAST_STEPS_MAX: usize = 256;
/// Shortest time between two publications, in ns.
const PUBLISH_NS: i64 = NS_PER_S;

/// Called when the rows of rules have changed.
type News = Box<dyn Fn() + Send + Sync>;

/// The rules on events of a node, with their actions.
pub(crate) struct EventActions {
    shared: Arc<ActionsShared>,
    path: PathBuf,
    config: ActionConfig,
    /// The nodes whose actions are taken in.
    accepted: Vec<Pattern>,
    /// What the executor of actions leaves to the agent.
    host: Arc<dyn ActionHost>,
    machine: Mutex<Machine>,
}

/// The parts that the threads share.
struct ActionsShared {
    clock: Arc<dyn Clock>,
    run_dir: RunDir,
    node: String,
    /// The user whose rights actions have: that of the agent, who alone can make rules.
    owner: ActionOwner,
    rules: Mutex<EventRules>,
    /// When each rule was made, in ns since the epoch.
    made: Mutex<BTreeMap<String, i64>>,
    /// The limits on the actions of rules on streams.
    conditions: Mutex<BTreeMap<String, ActionLimits>>,
    feeds: EventFeeds,
    open: Mutex<OpenQueue>,
    news: OnceLock<News>,
}

/// The queue, or the reason why it is not open.
#[derive(Default)]
struct OpenQueue {
    queue: Option<Arc<ActionQueue>>,
    workers: Option<Arc<ActionWorkers>>,
    trouble: String,
}

#[derive(Default)]
struct Machine {
    evaluator: Option<JoinHandle<()>>,
    is_over: bool,
}

/// The lock of a mutex. Nothing that holds one of these locks can leave half a change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ActionsShared {
    fn rules(&self) -> MutexGuard<'_, EventRules> {
        lock(&self.rules)
    }

    fn queue(&self) -> Option<Arc<ActionQueue>> {
        lock(&self.open).queue.clone()
    }

    fn wake_workers(&self) {
        let workers = lock(&self.open).workers.clone();
        if let Some(workers) = workers {
            workers.wake();
        }
    }

    /// The rows of all rules on events.
    fn rows(&self) -> Vec<RulesRow> {
        let trouble = lock(&self.open).trouble.clone();
        let counts = self.queue().map(|queue| queue.rules()).unwrap_or_default();
        let made = lock(&self.made).clone();
        let rules = self.rules();
        let reports = rules.reports();
        let rows = reports.iter().filter_map(|report| {
            let of_rule = counts.iter().find(|counts| counts.rule == report.name);
            let made_ns = made.get(&report.name).copied().unwrap_or_default();
            let known = rules.get(&report.name)?;
            Some(rule(known, report, of_rule, (made_ns, &trouble)))
        });
        rows.collect()
    }
}

impl EventActions {
    /// Takes up these rules, by name. One that does not hold is left out with a warning. A queue
    /// that cannot be opened now is tried again.
    pub(crate) fn new(
        kept: &BTreeMap<String, String>,
        (node, run_dir, state_dir): (&str, &RunDir, &Path),
        (config, host): (&ActionConfig, Arc<dyn ActionHost>),
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let now_ns = clock.now_ns();
        let mut rules = EventRules::new(EventRuleLimits::default());
        let mut made = BTreeMap::new();
        for (name, sql) in kept
            .iter()
            .filter(|(_, sql)| EventRuleStatement::is_one(sql))
        {
            match rules.execute(sql) {
                Ok(_) => drop(made.insert(name.clone(), now_ns)),
                Err(error) => warn!(%error, name, sql, "a rule is left out"),
            }
        }
        let actions = Self {
            shared: Arc::new(ActionsShared {
                clock: Arc::clone(clock),
                run_dir: run_dir.clone(),
                node: node.to_owned(),
                owner: ActionOwner {
                    uid: rustix::process::geteuid().as_raw(),
                    gid: rustix::process::getegid().as_raw(),
                },
                rules: Mutex::new(rules),
                made: Mutex::new(made),
                conditions: Mutex::default(),
                feeds: EventFeeds::default(),
                open: Mutex::default(),
                news: OnceLock::new(),
            }),
            path: state_dir.join("actions").join("queue"),
            config: config.clone(),
            accepted: config.accept_from.iter().map(Pattern::new).collect(),
            host,
            machine: Mutex::default(),
        };
        actions.attend();
        actions
    }

    /// Has this called when the rows of rules have changed; may be set once.
    pub(crate) fn on_news(&self, news: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.news.set(Box::new(news));
    }

    /// Whether actions of any other node are taken in.
    pub(crate) fn takes_any(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// Whether there is a rule on events of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.shared.rules().get(name).is_some()
    }

    /// The rows of all rules on events.
    pub(crate) fn rows(&self) -> Vec<RulesRow> {
        self.shared.rows()
    }

    /// Makes or drops a rule, and returns its row.
    pub(crate) fn execute(&self, sql: &str) -> StatementAnswer {
        let statement = EventRuleStatement::parse(sql)?;
        let row = |name: &str| {
            let rows = self.rows();
            let row = rows.into_iter().find(|row| row.name == name);
            row.map_or(Json::Null, |row| json!(row))
        };
        match statement {
            EventRuleStatement::Create { rule, .. } => {
                check_work(&rule.work).map_err(StatementRefusal::Statement)?;
                let checked = self.check(&rule.work, &rule.limits);
                checked.map_err(StatementRefusal::Statement)?;
                let opened = self.open().and_then(|queue| {
                    self.begin_anew(&queue)?;
                    self.begin_schedule(&queue, &rule)
                });
                let executed = match opened {
                    Ok(()) => self.shared.rules().execute(sql).map_err(Into::into),
                    Err(reason) => Err(StatementRefusal::Internal(reason)),
                };
                self.rest();
                let (StatementOutcome::Created(name) | StatementOutcome::Dropped(name)) = executed?;
                let now_ns = self.shared.clock.now_ns();
                lock(&self.shared.made).insert(name.clone(), now_ns);
                info!(rule = rule.name, "a rule sees events from now on");
                Ok(row(&name))
            }
            EventRuleStatement::Drop { name, .. } => {
                let dropped = row(&name);
                self.shared.rules().execute(sql)?;
                lock(&self.shared.made).remove(&name);
                self.rest();
                Ok(dropped)
            }
        }
    }

    /// Opens the queue, if there are rules or earlier actions and that was not done yet.
    pub(crate) fn attend(&self) {
        let has_rules = !self.shared.rules().is_empty();
        let is_open = self.shared.queue().is_some();
        if is_open && (self.shared.feeds.is_active() || !has_rules) {
            return;
        }
        if !has_rules && !self.path.exists() {
            return;
        }
        let opened = self.open().and_then(|queue| match has_rules {
            true => self.go_on(&queue),
            false => Ok(()),
        });
        if let Err(reason) = opened {
            let mut open = lock(&self.shared.open);
            if open.trouble != reason {
                warn!(
                    reason,
                    "rules on events do not see them now; it is tried again"
                );
                open.trouble = reason;
            }
        }
    }

    /// Opens the queue and starts the threads, if that was not done yet.
    fn open(&self) -> Result<Arc<ActionQueue>, String> {
        let mut machine = lock(&self.machine);
        if machine.is_over {
            return Err("the agent is stopping".into());
        }
        let queue = self.shared.queue();
        let queue = queue.map_or_else(|| self.open_queue(), Ok)?;
        if machine.evaluator.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("baro-actions".into());
            let started = thread.spawn(move || run(&shared));
            machine.evaluator = Some(started.map_err(|error| format!("no thread: {error}"))?);
        }
        Ok(queue)
    }

    /// Has the rules see events from where they were before.
    fn go_on(&self, queue: &ActionQueue) -> Result<(), String> {
        let kept = queue.cursors().map_err(|fault| fault.to_string())?;
        let new = self.shared.feeds.activate(kept, self.shared.clock.now_ns());
        queue.set_cursors(&new).map_err(|fault| fault.to_string())?;
        lock(&self.shared.open).trouble.clear();
        Ok(())
    }

    /// Has the first rule see the events that come from now on.
    fn begin_anew(&self, queue: &ActionQueue) -> Result<(), String> {
        if self.shared.feeds.is_active() {
            return Ok(());
        }
        if !self.shared.rules().is_empty() {
            return self.go_on(queue);
        }
        queue.forget_cursors().map_err(|fault| fault.to_string())?;
        self.go_on(queue)
    }

    /// Has a rule on a schedule fire at the times that come from now on.
    fn begin_schedule(&self, queue: &ActionQueue, rule: &EventRule) -> Result<(), String> {
        if rule.schedule.is_none() {
            return Ok(());
        }
        let cursor = time_cursor(&rule.name, self.shared.clock.now_ns());
        queue
            .set_cursors(&[cursor])
            .map_err(|fault| fault.to_string())
    }

    /// Checks what a rule does, as far as that can be known before it does it.
    pub(crate) fn check(&self, work: &RuleWork, limits: &ActionLimits) -> Result<(), String> {
        // What other nodes may do is in their configurations.
        let is_here = limits
            .node
            .as_ref()
            .is_none_or(|node| *node == self.shared.node);
        match is_here {
            true => self.config.check(work),
            false => Ok(()),
        }
    }

    /// Sets the limits on the actions of rules on streams, by their names.
    pub(crate) fn set_conditions(&self, limits: BTreeMap<String, ActionLimits>) {
        *lock(&self.shared.conditions) = limits;
    }

    /// Takes in what a rule on streams does, since it fires.
    ///
    /// # Errors
    ///
    /// It is not done, for this reason.
    pub(crate) fn enqueue(&self, firing: &Firing, action: &FiredAction) -> Result<(), String> {
        let queue = self.open()?;
        let made = request_of_firing(firing, action, &self.shared.node, self.shared.owner);
        let request = made.map_err(|fault| fault.to_string())?;
        let kept = queue
            .enqueue(&[request])
            .map_err(|fault| fault.to_string())?;
        if kept.refused() > 0 {
            return Err("the queue of actions is full".into());
        }
        self.shared.wake_workers();
        Ok(())
    }

    /// Has no event seen while there is no rule.
    fn rest(&self) {
        if !self.shared.rules().is_empty() {
            return;
        }
        self.shared.feeds.deactivate();
        if let Some(queue) = self.shared.queue()
            && let Err(fault) = queue.forget_cursors()
        {
            warn!(%fault, "cursors of sources are kept without a rule");
        }
    }

    /// Opens the queue and starts its workers.
    fn open_queue(&self) -> Result<Arc<ActionQueue>, String> {
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)
                .map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        }
        let clock = Arc::clone(&self.shared.clock);
        let queue = ActionQueue::open(&self.path, QueueConfig::default(), clock);
        let queue = Arc::new(queue.map_err(|fault| fault.to_string())?);
        let executor = KnownExecutor {
            shared: Arc::clone(&self.shared),
            executor: self.executor()?,
        };
        let config = WorkersConfig {
            lease: LEASE,
            stop_wait: STOP_WAIT,
            threads: self.config.workers,
            ..WorkersConfig::default()
        };
        // Workers may look at once, and then find no queue here, and no rule that may start.
        let rules = Arc::new(RuleStarts::new(&self.shared));
        let workers = ActionWorkers::start(Arc::clone(&queue), rules, Arc::new(executor), config);
        let workers = workers.map_err(|error| format!("cannot start workers: {error}"))?;
        let mut open = lock(&self.shared.open);
        open.queue = Some(Arc::clone(&queue));
        open.workers = Some(Arc::new(workers));
        open.trouble.clear();
        Ok(queue)
    }

    /// What does the jobs of actions.
    fn executor(&self) -> Result<JobExecutor, String> {
        let sender = WebhookSender::new(&self.config.webhooks());
        let sender = sender.map_err(|fault| fault.to_string())?;
        let mailer = Mailer::new(&self.config.mail.mailer());
        let mailer = mailer.map_err(|fault| fault.to_string())?;
        let containers = self.config.containers()?;
        Ok(JobExecutor {
            runner: ProgramRunner::new(RunConfig::default()),
            containers,
            sender,
            mailer,
            transfers: self.config.transfers(),
            node: self.shared.node.clone(),
            host: Arc::clone(&self.host),
        })
    }

    /// The number of the last event of a source that rules have seen; 0 if that is unknown.
    pub(crate) fn seen(&self, source: &str) -> u64 {
        self.shared.feeds.seen(source)
    }

    /// Takes up a source whose last durable event has this number.
    ///
    /// # Errors
    ///
    /// Where the rules go on cannot be kept now: try again.
    pub(crate) fn begin(&self, source: &str, log: EventLog, last: u64) -> Result<(), String> {
        self.attend();
        let now_ns = self.shared.clock.now_ns();
        let new = self.shared.feeds.begin(source, log, last, now_ns);
        match new.zip(self.shared.queue()) {
            Some((cursor, queue)) => {
                let kept = queue.set_cursors(&[cursor]);
                kept.map_err(|fault| fault.to_string())
            }
            None => Ok(()),
        }
    }

    /// Takes durable events of a source.
    pub(crate) fn offer(&self, source: &str, events: DurableEvents) {
        self.shared.feeds.offer(source, events);
    }

    /// Ends a source, of which no further events come.
    pub(crate) fn end(&self, source: &str) {
        self.shared.feeds.end(source);
    }

    /// Does what a person asks of an action: `{"show": 7}`, `{"retry": 7}` or `{"drop": 7}`.
    pub(crate) fn command(&self, request: &Json) -> StatementAnswer {
        let wrong = || {
            StatementRefusal::Statement(
                "write {\"show\": ID}, {\"retry\": ID} or {\"drop\": ID}".into(),
            )
        };
        let (verb, id) = request
            .as_object()
            .filter(|request| request.len() == 1)
            .and_then(|request| request.iter().next())
            .and_then(|(verb, id)| Some((verb.as_str(), id.as_u64()?)))
            .ok_or_else(wrong)?;
        let absent =
            || StatementRefusal::Absent(format!("there is no action {id}: `baro action list`"));
        let queue = self.shared.queue().ok_or_else(absent)?;
        let internal =
            |fault: barograph_action::QueueFault| StatementRefusal::Internal(fault.to_string());
        let shown = |queue: &ActionQueue| queue.show(id).map_err(internal);
        let changed = match verb {
            "show" => Ok(Changed::Absent),
            "retry" => queue.retry(id),
            "drop" => ActionQueue::drop(&queue, id),
            _ => return Err(wrong()),
        };
        match changed.map_err(internal)? {
            Changed::Refused(state) => Err(StatementRefusal::Statement(format!(
                "action {id} is {}: only one that waits or is dead can be retried or dropped",
                state.as_str()
            ))),
            Changed::Full => Err(StatementRefusal::Statement(
                "the queue has as many actions as allowed: drop some, or wait".into(),
            )),
            Changed::From(_) | Changed::Absent => {
                self.shared.wake_workers();
                let found = shown(&queue)?.ok_or_else(absent)?;
                Ok(detail(&found))
            }
        }
    }

    /// Stops: events in memory are evaluated, running actions have a while to end.
    pub(crate) fn stop(&self) {
        let evaluator = {
            let mut machine = lock(&self.machine);
            machine.is_over = true;
            machine.evaluator.take()
        };
        self.shared.feeds.stop();
        if evaluator.is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread of rules on events had panicked");
        }
        let workers = lock(&self.shared.open).workers.take();
        if let Some(workers) = workers.and_then(Arc::into_inner) {
            let report = workers.stop();
            if report.ended + report.left > 0 {
                info!(?report, "actions were ended; they are done again");
            }
        }
    }
}

/// The thread that evaluates rules and publishes.
fn run(shared: &Arc<ActionsShared>) {
    let mut evaluator = RuleEvaluator::new(Arc::clone(shared));
    let mut publisher = ActionsPublisher::default();
    while !shared.feeds.is_over() {
        let progress = evaluator.step();
        publisher.publish(shared);
        match progress {
            Progress::More => {}
            Progress::Idle => shared.feeds.wait(WAIT),
            Progress::Blocked(wait) => shared.feeds.pause(wait),
        }
    }
    for _ in 0..LAST_STEPS_MAX {
        if evaluator.step() != Progress::More {
            break;
        }
    }
    publisher.next_ns = i64::MIN;
    publisher.publish(shared);
}

/// The publication of actions and rules, when they have changed.
#[derive(Default)]
struct ActionsPublisher {
    next_ns: i64,
    status: QueueStatus,
    readers: BTreeMap<String, ScopeReader>,
    told: BTreeMap<Option<ScopeReader>, Vec<ActionsRow>>,
    rules: Vec<RulesRow>,
}

impl ActionsPublisher {
    fn publish(&mut self, shared: &ActionsShared) {
        let monotonic_ns = shared.clock.monotonic_ns();
        if monotonic_ns < self.next_ns {
            return;
        }
        self.next_ns = monotonic_ns.saturating_add(PUBLISH_NS);
        let Some(queue) = shared.queue() else { return };
        self.tell_actions(shared, &queue);
        let rules = shared.rows();
        if rules != self.rules {
            self.rules = rules;
            if let Some(news) = shared.news.get() {
                news();
            }
        }
    }

    fn tell_actions(&mut self, shared: &ActionsShared, queue: &ActionQueue) {
        let (status, readers) = (queue.status(), shared.feeds.readers());
        if status == self.status && readers == self.readers {
            return;
        }
        let mut now = actions(queue, &readers);
        // Readers whose last action is gone are told so.
        for reader in self.told.keys() {
            now.entry(*reader).or_default();
        }
        for (reader, rows) in &now {
            if self.told.get(reader) == Some(rows) {
                continue;
            }
            let Some(reader) = reader else {
                publish_private(&shared.run_dir, ACTIONS_DOCUMENT, rows);
                continue;
            };
            let dir = shared.run_dir.scope(&reader.scope());
            // A scope begins with the first stream of its readers.
            if dir.path().exists() {
                publish(&dir, ACTIONS_DOCUMENT, rows);
            }
        }
        (self.status, self.readers, self.told) = (status, readers, now);
    }
}
