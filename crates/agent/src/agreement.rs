//! Agreement between nodes: the election of a leader among `cluster.controllers`, and the turns
//! that it gives to programs of all nodes on shared volumes (docs/design/0012-agreement.md).
//!
//! `core.rs` decides, as a step over words and times. This is its thread, and the ways between it,
//! the fabric and the intake.

mod core;
mod led_maps;
pub(crate) mod map_requests;
mod replica_file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_control::LEADERS_MAX;
use barograph_fabric::FabricNode;
use barograph_fabric::transport::{Transport, ZenohWaker, check_name};
use barograph_intake::IntakeBell;
use barograph_model::{Clock, ConfigError, ControlFault, ControlFaultKind};
use barograph_stream::{Incarnation, RunDir};
use tracing::warn;

use crate::AgentError;
use crate::controller_words::{LedMapRow, MapChange, MapKey};
use crate::io_schedules::IoSchedules;
use crate::node_questions::fault;
use crate::server_maps::ServerMaps;
pub(crate) use core::AgreementStatus;
use core::{AgreementCore, LeaderAnswer, LeaderQuestion};
use replica_file::ReplicaFile;

/// Most words on their way from one thread to another.
const WORDS_MAX: usize = 4_096;
/// Longest time between two steps.
const STEP_MAX: Duration = Duration::from_millis(500);

/// Most questions to the leader that wait for their answers.
const QUESTIONS_MAX: usize = 64;
/// Longest wait for an answer of the leader, less than clients wait for the agent; and the time
/// after which the leader is asked again.
const ANSWER_WAIT: Duration = Duration::from_secs(8);
const ASK_AGAIN_NS: i64 = 500_000_000;

/// What wakes the thread.
enum Input {
    /// A question of a client to the leader.
    Ask(LeaderAsk),
    /// A word of another node.
    Word(Arc<str>, String),
    /// There is something to relay, or the end is near.
    Wake,
}

/// What a client asks of the leader.
pub(crate) enum LeaderAsk {
    /// A map is to be changed.
    Change(MapKey, MapChange, SyncSender<LeaderAnswer>),
    /// The maps of a user, or of all.
    Maps(Option<u32>, SyncSender<LeaderAnswer>),
}

/// Checks the list of the nodes that may lead, in a cluster of this name.
pub(crate) fn check_leaders(leaders: &[String], cluster: &str) -> Result<(), ConfigError> {
    let names: BTreeSet<&String> = leaders.iter().collect();
    let is_list = names.len() == leaders.len() && names.len() <= LEADERS_MAX;
    let are_names = names.iter().all(|name| check_name(name).is_ok());
    let reason = match () {
        () if !is_list => format!("it must have at most {LEADERS_MAX} names, each once"),
        () if !are_names => "these must be names of nodes".to_owned(),
        () if !names.is_empty() && cluster.is_empty() => {
            "it needs a cluster: cluster.name".to_owned()
        }
        () => return Ok(()),
    };
    Err(ConfigError {
        key: "cluster.controllers",
        value: leaders.join(", "),
        reason,
    })
}

/// The way from clients to the leader.
#[derive(Clone)]
pub(crate) struct LeaderQuestions(SyncSender<Input>);

impl LeaderQuestions {
    /// Has a map changed: the epoch that was begun, or why none was.
    pub(crate) fn change(&self, key: MapKey, change: MapChange) -> Result<u64, ControlFault> {
        match self.ask(|reply| LeaderAsk::Change(key, change, reply))? {
            LeaderAnswer::Changed(Ok(epoch)) => Ok(epoch),
            LeaderAnswer::Changed(Err(reason)) => Err(fault(ControlFaultKind::Refused, &reason)),
            LeaderAnswer::Maps(_) => Err(unanswered()),
        }
    }

    /// The maps of a user, or of all.
    pub(crate) fn maps(&self, user: Option<u32>) -> Result<Vec<LedMapRow>, ControlFault> {
        match self.ask(|reply| LeaderAsk::Maps(user, reply))? {
            LeaderAnswer::Maps(maps) => Ok(maps),
            LeaderAnswer::Changed(_) => Err(unanswered()),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a client's thread waits for the leader, for a bounded time"
    )]
    fn ask(
        &self,
        ask: impl FnOnce(SyncSender<LeaderAnswer>) -> LeaderAsk,
    ) -> Result<LeaderAnswer, ControlFault> {
        let (reply, answer) = sync_channel(1);
        if self.0.try_send(Input::Ask(ask(reply))).is_err() {
            let text = "too much waits for the leader already: try again";
            return Err(fault(ControlFaultKind::Busy, text));
        }
        answer.recv_timeout(ANSWER_WAIT).map_err(|_| unanswered())
    }
}

fn unanswered() -> ControlFault {
    let text = "no leader of the controllers answers (`baro cluster status` names it): try again";
    fault(ControlFaultKind::Busy, text)
}

/// The controllers of a node, as a thread.
pub(crate) struct Agreement {
    shared: Arc<AgreementShared>,
    inputs: SyncSender<Input>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct AgreementShared {
    is_over: AtomicBool,
    status: Mutex<AgreementStatus>,
    /// Words that were not carried, since too many were on their way.
    dropped: AtomicU64,
    waker: Mutex<Option<ZenohWaker>>,
}

/// The side of the fabric's thread.
pub(crate) struct AgreementDesk {
    shared: Arc<AgreementShared>,
    inputs: SyncSender<Input>,
    outputs: Receiver<(String, String)>,
}

/// What a node needs to agree with others.
pub(crate) struct AgreementParts<'a> {
    /// The name of this node, and of those that may lead; without any, it leads for itself.
    pub nodes: (&'a str, &'a [String]),
    pub state_dir: &'a Path,
    pub run_dir: &'a RunDir,
    pub schedules: &'a Arc<IoSchedules>,
    pub maps: &'a Arc<ServerMaps>,
    pub clock: &'a Arc<dyn Clock>,
}

impl Agreement {
    /// Starts the thread. Returns it, and the desk by which it gets words and sends them.
    pub(crate) fn start(parts: &AgreementParts<'_>) -> Result<(Self, AgreementDesk), AgentError> {
        let shared = Arc::new(AgreementShared::default());
        let (inputs, from_others) = sync_channel(WORDS_MAX);
        let (outputs, to_fabric) = sync_channel(WORDS_MAX);
        let life = parts.clock.now_ns().unsigned_abs();
        let core = AgreementCore::new(
            parts.nodes,
            ReplicaFile::new(parts.state_dir),
            (parts.schedules, parts.maps),
            (life, parts.clock.monotonic_ns()),
        );
        let shell = AgreementShell {
            core,
            inputs: from_others,
            outputs,
            shared: Arc::clone(&shared),
            bell: PhaseBell::new(parts.run_dir),
            asked: BTreeMap::new(),
            next_question: life,
            clock: Arc::clone(parts.clock),
        };
        let thread = std::thread::Builder::new()
            .name("baro-agreement".into())
            .spawn(move || shell.run())
            .map_err(AgentError::Thread)?;
        let waker = inputs.clone();
        // A thread that has much to do looks by itself.
        parts
            .schedules
            .wake_relay_by(move || drop(waker.try_send(Input::Wake)));
        let waker = inputs.clone();
        let bell = IntakeBell::of(parts.run_dir);
        parts
            .maps
            .wake_by(move || drop(waker.try_send(Input::Wake)), bell.ok());
        let desk = AgreementDesk {
            shared: Arc::clone(&shared),
            inputs: inputs.clone(),
            outputs: to_fabric,
        };
        let agreement = Self {
            shared,
            inputs,
            thread: Some(thread),
        };
        Ok((agreement, desk))
    }

    /// The way to the leader.
    pub(crate) fn questions(&self) -> LeaderQuestions {
        LeaderQuestions(self.inputs.clone())
    }
}

impl Drop for Agreement {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        drop(self.inputs.try_send(Input::Wake));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the thread of the controllers had panicked");
        }
    }
}

impl AgreementDesk {
    /// Has the fabric's thread woken when there are words to be sent.
    pub(crate) fn wake_by(&self, waker: ZenohWaker) {
        *self.shared.waker() = Some(waker);
    }

    /// Moves words between the fabric and the controllers.
    pub(crate) fn step<T: Transport>(&self, fabric: &mut FabricNode<T>) {
        while let Some((from, text)) = fabric.take_word() {
            // Whoever needs an answer says it again.
            if let Err(TrySendError::Full(_)) = self.inputs.try_send(Input::Word(from, text)) {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        while let Ok((to, text)) = self.outputs.try_recv() {
            if !fabric.send_word(&to, &text) {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What is known of the leader.
    pub(crate) fn status(&self) -> AgreementStatus {
        let status = self.shared.status.lock();
        status.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Words that were not carried.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl AgreementShared {
    fn waker(&self) -> std::sync::MutexGuard<'_, Option<ZenohWaker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct AgreementShell {
    core: AgreementCore,
    inputs: Receiver<Input>,
    outputs: SyncSender<(String, String)>,
    shared: Arc<AgreementShared>,
    bell: PhaseBell,
    /// The questions that wait for answers.
    asked: BTreeMap<u64, Asked>,
    next_question: u64,
    clock: Arc<dyn Clock>,
}

struct Asked {
    question: LeaderQuestion,
    reply: SyncSender<LeaderAnswer>,
    begun_ns: i64,
    /// The time at which it was sent last; `None` before that.
    sent_ns: Option<i64>,
}

impl AgreementShell {
    #[expect(
        clippy::disallowed_methods,
        reason = "a shell: it waits for words of other nodes, or for what is due"
    )]
    fn run(mut self) {
        while !self.shared.is_over.load(Ordering::Acquire) {
            let now_ns = self.clock.monotonic_ns();
            self.ask_leader(now_ns);
            let next_ns = self.core.step(now_ns);
            self.send();
            let wait_ns = next_ns.saturating_sub(now_ns).max(0).unsigned_abs();
            let wait = Duration::from_nanos(wait_ns).min(STEP_MAX);
            let mut input = match self.inputs.recv_timeout(wait) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // What has come together is answered together.
            for _ in 0..WORDS_MAX {
                match input {
                    Some(Input::Word(from, text)) => {
                        let now_ns = self.clock.monotonic_ns();
                        self.core.hear(&from, &text, now_ns);
                    }
                    Some(Input::Ask(ask)) => self.take(ask),
                    Some(Input::Wake) => {}
                    None => break,
                }
                input = self.inputs.try_recv().ok();
            }
        }
    }

    /// Takes in a question of a client.
    fn take(&mut self, ask: LeaderAsk) {
        if self.asked.len() >= QUESTIONS_MAX {
            return;
        }
        self.next_question += 1;
        let id = self.next_question;
        let (question, reply) = match ask {
            LeaderAsk::Change(of, change, reply) => {
                (LeaderQuestion::Change { id, of, change }, reply)
            }
            LeaderAsk::Maps(user, reply) => (LeaderQuestion::Maps { id, user }, reply),
        };
        self.asked.insert(
            id,
            Asked {
                question,
                reply,
                begun_ns: self.clock.monotonic_ns(),
                sent_ns: None,
            },
        );
    }

    /// Sends the questions that are due, and hands over answers. A change is sent once: whether one
    /// that was lost has begun is seen in the list of maps.
    fn ask_leader(&mut self, now_ns: i64) {
        let wait_ns = i64::try_from(ANSWER_WAIT.as_nanos()).unwrap_or(i64::MAX);
        self.asked
            .retain(|_, asked| now_ns.saturating_sub(asked.begun_ns) < wait_ns);
        for asked in self.asked.values_mut() {
            let is_change = matches!(asked.question, LeaderQuestion::Change { .. });
            let is_due = asked
                .sent_ns
                .is_none_or(|sent_ns| !is_change && now_ns.saturating_sub(sent_ns) >= ASK_AGAIN_NS);
            if is_due && self.core.ask(asked.question.clone()) {
                asked.sent_ns = Some(now_ns);
            }
        }
    }

    fn send(&mut self) {
        for (id, answer) in self.core.take_answers() {
            if let Some(asked) = self.asked.remove(&id) {
                // The client may have gone.
                drop(asked.reply.try_send(answer));
            }
        }
        let mut has_sent = false;
        for (to, word) in self.core.take_outputs() {
            let Ok(text) = serde_json::to_string(&word) else {
                continue;
            };
            match self.outputs.try_send((to, text)) {
                Ok(()) => has_sent = true,
                Err(_) => drop(self.shared.dropped.fetch_add(1, Ordering::Relaxed)),
            }
        }
        if has_sent && let Some(waker) = &*self.shared.waker() {
            waker.wake();
        }
        if let Some(process) = self.core.take_awaited() {
            self.bell.ring(process);
        }
        let status = self.core.status();
        let mut told = self.shared.status.lock();
        if let Ok(told) = &mut told
            && **told != status
        {
            **told = status;
        }
    }
}

/// The way to the intake: it writes answers when a process knocks, as which this does.
struct PhaseBell {
    socket: Option<UnixDatagram>,
    door: std::path::PathBuf,
}

impl PhaseBell {
    fn new(run_dir: &RunDir) -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self {
            socket: socket.ok(),
            door: run_dir.phases_socket(),
        }
    }

    /// Has the intake look at a process, and write all answers. A knock that is lost is made up
    /// for by the next round of the intake.
    fn ring(&self, process: Incarnation) {
        if let Some(socket) = &self.socket {
            drop(socket.send_to(&process.0, &self.door));
        }
    }
}
