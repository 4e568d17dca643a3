//! Phases of I/O: a program says when it begins and ends to read and write much, and may wait for
//! its turn (docs/design/0012-agreement.md).
//!
//! What it says are frames of the publication `io.phase`, one series for each volume, so phases are
//! streams like all values. The agent answers in the header of the process's file; a thread that
//! waits sleeps on a word there, keeps no descriptor and holds no lock.
//!
//! Nobody is held up for ever: who gets no answer, or waits for longer than it wants to, goes on
//! without a grant, and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use barograph_model::{Clock as _, Kind, NS_PER_S, ValueType};
use barograph_stream::ingest::{
    GrantState, PHASE_DECLARED, PHASE_DONE, PHASE_PRIORITY, PHASE_PUBLICATION, PHASE_STAGE,
    PHASE_VOLUME, PhaseStage,
};

use super::process::Process;
use super::{
    Publication, PublicationConfig, PublishError, Publisher, ValueHandle, home, state, thread,
};

/// Longest wait for a grant, unless the program says another.
pub const IO_WAIT_DEFAULT: Duration = Duration::from_secs(60);
/// The priority of phases that give none.
pub const IO_PRIORITY_DEFAULT: u8 = 5;

/// Longest wait for the first answer to a phase: who has none then is not scheduled.
const ANSWER_NS_MAX: i64 = 2 * NS_PER_S;
/// Time between two times at which a waiting phase says that it is there.
const RENEW_NS: i64 = NS_PER_S / 2;
/// For so long after nobody was there, no agent is looked for.
const NOBODY_NS: i64 = NS_PER_S;

/// The last number that a phase of this process got.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The process that begins phases, and in the lower half the last number before its first one:
/// phases of its parent are not a child's to end.
static OWNER: AtomicU64 = AtomicU64::new(0);
const FIRST_BITS: u32 = 32;
const FIRST_MASK: u64 = (1 << FIRST_BITS) - 1;
/// Monotonic time before which no agent is looked for.
static NOBODY_UNTIL_NS: AtomicI64 = AtomicI64::new(i64::MIN);

/// A phase of I/O that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPhaseConfig {
    /// The bytes that it will read and write, if it knows.
    pub bytes: Option<u64>,
    /// 1 to 10, 10 for the most important; others are brought into this range.
    pub priority: u8,
    /// Longest time that it waits for a grant. It goes on without one then.
    pub wait_max: Duration,
}

impl Default for IoPhaseConfig {
    fn default() -> Self {
        Self {
            bytes: None,
            priority: IO_PRIORITY_DEFAULT,
            wait_max: IO_WAIT_DEFAULT,
        }
    }
}

/// Why a phase may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IoGrant {
    /// I/O on the volume is not scheduled, or nothing is published.
    Off = 0,
    /// It has a grant.
    Granted = 1,
    /// It has waited for as long as it wanted to.
    Late = 2,
    /// It has heard nothing of an agent.
    NoAgent = 3,
}

impl IoGrant {
    /// The grant as a word: `off`, `granted`, `late` or `no_agent`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Granted => "granted",
            Self::Late => "late",
            Self::NoAgent => "no_agent",
        }
    }
}

/// A volume on which the program does I/O. Cheap to clone, for use from any thread.
#[derive(Clone, Debug)]
pub struct IoVolume {
    publication: Publication,
    stage: ValueHandle,
    declared: ValueHandle,
    done: ValueHandle,
    priority: ValueHandle,
}

/// A phase of I/O that has begun. It ends when it is dropped.
#[derive(Debug)]
pub struct IoPhase {
    volume: IoVolume,
    number: u64,
    grant: IoGrant,
    wait_max: Duration,
    bytes_done: u64,
}

impl Publisher {
    /// Declares a volume, or finds it again: the absolute path of a file or directory on it, or the
    /// name by which the agent's configuration has it.
    pub fn io_volume(&self, volume: &str) -> Result<IoVolume, PublishError> {
        let config = PublicationConfig {
            labels: vec![(PHASE_VOLUME.to_owned(), volume.to_owned())],
            ..PublicationConfig::default()
        };
        let publication = self.publication(PHASE_PUBLICATION, config)?;
        let value =
            |name, unit, help| publication.value(name, ValueType::Int, unit, Kind::Gauge, help);
        let stages = "0: ended, 1: waits, 2: does I/O with a grant, 3: does I/O without one";
        Ok(IoVolume {
            stage: value(PHASE_STAGE, "", stages)?,
            declared: value(
                PHASE_DECLARED,
                "bytes",
                "what a phase will read and write; -1 if it does not know",
            )?,
            done: value(PHASE_DONE, "bytes", "what a phase has read and written")?,
            priority: value(PHASE_PRIORITY, "", "1 to 10, 10 for the most important")?,
            publication,
        })
    }
}

impl IoVolume {
    /// Begins a phase. Returns when it may do I/O: at once if I/O on the volume is not scheduled.
    pub fn begin(&self, config: &IoPhaseConfig) -> IoPhase {
        let (number, grant) = self.begin_raw(config);
        IoPhase {
            volume: self.clone(),
            number,
            grant,
            wait_max: config.wait_max,
            bytes_done: 0,
        }
    }

    /// Like [`Self::begin`], for other languages: returns the number of the phase, which
    /// [`Self::step_raw`] and [`Self::end_raw`] take; 0 if nothing is published.
    pub fn begin_raw(&self, config: &IoPhaseConfig) -> (u64, IoGrant) {
        // A child that shares our memory has no phases, and takes none of ours.
        if self.publication.to_raw() == 0 || home::enter().is_err() {
            return (0, IoGrant::Off);
        }
        own();
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let declared = config.bytes.and_then(|bytes| i64::try_from(bytes).ok());
        let priority = config.priority.clamp(1, 10);
        let first = || {
            self.declared.put_i64(declared.unwrap_or(-1));
            self.priority.put_i64(priority.into());
        };
        let grant = self.ask(number, 0, config.wait_max, &first);
        (number, grant)
    }

    /// Says how much a phase has done, at a place where it may wait: if its grant was taken away
    /// for others, it returns when the phase has one again. Phases that do this have a turn at a
    /// time where the policy gives turns; others keep their grant to the end.
    pub fn step_raw(&self, number: u64, bytes_done: u64, wait_max: Duration) -> IoGrant {
        if !is_of_us(number) {
            return IoGrant::Off;
        }
        let process = self.process();
        let answer = process.and_then(|process| process.producer.phase_answer(number));
        match answer.map(|answer| answer.state) {
            Some(GrantState::Granted) => {
                self.say(number, PhaseStage::Granted, bytes_done);
                IoGrant::Granted
            }
            Some(GrantState::Waiting) => self.ask(number, bytes_done, wait_max, &|| {}),
            Some(GrantState::Unscheduled) | None => {
                self.say(number, PhaseStage::Alone, bytes_done);
                IoGrant::Off
            }
        }
    }

    /// Ends a phase. One that has ended before, or is of another process, changes nothing.
    pub fn end_raw(&self, number: u64, bytes_done: u64) {
        if !is_of_us(number) {
            return;
        }
        let process = self.process().filter(|process| {
            let producer = &process.producer;
            producer.schedules() == Some(true) && producer.phase_answer(number).is_some()
        });
        match process {
            // Others may wait for this.
            Some(process) => {
                self.say_and_ask(number, PhaseStage::Ended, bytes_done);
                process.ask_for_phase();
            }
            None => self.say(number, PhaseStage::Ended, bytes_done),
        }
    }

    /// The share of the volume that the agent has given a phase, 0 to 1; `None` without a grant.
    pub fn share_raw(&self, number: u64) -> Option<f64> {
        let answer = self.process()?.producer.phase_answer(number)?;
        (answer.state == GrantState::Granted).then_some(answer.share)
    }

    fn process(&self) -> Option<Arc<Process>> {
        state::existing(thread::generation_of(self.publication.to_raw()))
    }

    /// Reports a phase, in one frame.
    fn say(&self, number: u64, stage: PhaseStage, bytes_done: u64) {
        self.put(stage, bytes_done);
        self.publication.frame(number);
    }

    /// Like [`Self::say`], before the agent is asked for the phase: it is not told of news as well.
    fn say_and_ask(&self, number: u64, stage: PhaseStage, bytes_done: u64) {
        self.put(stage, bytes_done);
        match thread::try_frame(self.publication.to_raw(), number) {
            Some((_, has_calls)) if has_calls => super::poll::apply_now(),
            Some(_) => {}
            None => self.publication.frame(number),
        }
    }

    fn put(&self, stage: PhaseStage, bytes_done: u64) {
        self.stage.put_i64(stage as i64);
        let done = i64::try_from(bytes_done).unwrap_or(i64::MAX);
        self.done.put_i64(done);
    }

    /// Asks for a grant, and waits for it.
    fn ask(&self, number: u64, bytes_done: u64, wait_max: Duration, first: &dyn Fn()) -> IoGrant {
        let schedules = |process: &Arc<Process>| process.producer.schedules();
        let told = self.process().as_ref().and_then(schedules);
        if told == Some(false) || (told.is_none() && is_nobody_there()) {
            first();
            self.say(number, PhaseStage::Alone, bytes_done);
            return IoGrant::Off;
        }
        first();
        self.say_and_ask(number, PhaseStage::Waiting, bytes_done);
        // A child of a fork has its file since that.
        let grant = match self.process() {
            Some(process) => self.wait(&process, number, bytes_done, wait_max),
            None => IoGrant::Off,
        };
        let stage = match grant {
            IoGrant::Granted => PhaseStage::Granted,
            _ => PhaseStage::Alone,
        };
        self.say(number, stage, bytes_done);
        grant
    }

    fn wait(&self, process: &Process, number: u64, bytes_done: u64, wait_max: Duration) -> IoGrant {
        let producer = &process.producer;
        let now_ns = || process.clock.monotonic_ns();
        let begun_ns = now_ns();
        let wait_ns = i64::try_from(wait_max.as_nanos()).unwrap_or(i64::MAX);
        let until_ns = begun_ns.saturating_add(wait_ns);
        let mut renew_ns = begun_ns.saturating_add(RENEW_NS);
        if !process.ask_for_phase() {
            note_nobody(begun_ns);
            return IoGrant::NoAgent;
        }
        loop {
            // Before the answer is looked at: one that comes after that ends the sleep.
            let moved = producer.answers_moved();
            let answer = producer.phase_answer(number);
            match answer.map(|answer| answer.state) {
                Some(GrantState::Granted) => return IoGrant::Granted,
                Some(GrantState::Unscheduled) => return IoGrant::Off,
                Some(GrantState::Waiting) | None => {}
            }
            let now = now_ns();
            let is_unheard = answer.is_none() && now.saturating_sub(begun_ns) >= ANSWER_NS_MAX;
            if is_unheard || producer.is_retired() || !producer.is_ours() {
                return IoGrant::NoAgent;
            }
            // More phases wait than there is room for answers.
            if now >= until_ns || producer.has_passed(number) {
                return IoGrant::Late;
            }
            if now >= renew_ns {
                renew_ns = now.saturating_add(RENEW_NS);
                self.say_and_ask(number, PhaseStage::Waiting, bytes_done);
                if !process.ask_for_phase() {
                    note_nobody(now);
                    return IoGrant::NoAgent;
                }
            }
            let left_ns = until_ns.min(renew_ns).saturating_sub(now).max(1);
            producer.wait_for_answers(moved, Duration::from_nanos(left_ns.unsigned_abs()));
        }
    }
}

/// Makes the phases that begin from now on those of this process.
fn own() {
    let (us, owner) = (u64::from(std::process::id()), OWNER.load(Ordering::Relaxed));
    if owner >> FIRST_BITS != us {
        let first = LAST.load(Ordering::Relaxed) & FIRST_MASK;
        let ours = us << FIRST_BITS | first;
        // If it fails, another thread was first, and no number was given before that.
        let _ = OWNER.compare_exchange(owner, ours, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whether this process, and not its parent, has begun a phase.
fn is_of_us(number: u64) -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner >> FIRST_BITS == u64::from(std::process::id()) && number > owner & FIRST_MASK
}

/// Whether nobody was there a moment ago.
fn is_nobody_there() -> bool {
    let until_ns = NOBODY_UNTIL_NS.load(Ordering::Relaxed);
    until_ns != i64::MIN && super::clock::clock().monotonic_ns() < until_ns
}

fn note_nobody(now_ns: i64) {
    let until_ns = now_ns.saturating_add(NOBODY_NS);
    NOBODY_UNTIL_NS.store(until_ns, Ordering::Relaxed);
}

impl IoPhase {
    /// Why the phase may go on.
    pub fn grant(&self) -> IoGrant {
        self.grant
    }

    /// The share of the volume that the agent has given it, 0 to 1; `None` without a grant.
    pub fn share(&self) -> Option<f64> {
        self.volume.share_raw(self.number)
    }

    /// Says how much it has done, and waits if its grant was taken away for others. See
    /// [`IoVolume::step_raw`].
    pub fn step(&mut self, bytes_done: u64) -> IoGrant {
        self.bytes_done = bytes_done;
        self.grant = self.volume.step_raw(self.number, bytes_done, self.wait_max);
        self.grant
    }

    /// Ends the phase, which has read and written so many bytes.
    pub fn end(mut self, bytes_done: u64) {
        self.bytes_done = bytes_done;
    }
}

impl Drop for IoPhase {
    fn drop(&mut self) {
        self.volume.end_raw(self.number, self.bytes_done);
    }
}
