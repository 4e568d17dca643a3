//! The thread of one watch: it opens the source after what was recorded of it before, steps its
//! pump, and tells its state once a second.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_event::Collector;
use barograph_intake::{EventSource, EventsRecorded, IngestFault};
use barograph_model::{NS_PER_S, Sample};
use barograph_stream::WatchesRow;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tracing::{debug, info};

use super::WatchShared;
use super::collectors::{OpenedCollector, SourceSpec};
use super::pump::{EventPump, EventSink, Settled};
use crate::actions::{DurableEvents, EventLog};
use crate::recorded_events::RecordedEvents;

/// Time after which opening a source is tried again, in ns.
const OPEN_AGAIN_NS: i64 = NS_PER_S;
/// Time between two tellings of the state, in ns.
const TELL_NS: i64 = NS_PER_S;
/// Time after which the configured collector is tried again where another one serves, in ns.
const INSTEAD_NS: i64 = 60 * NS_PER_S;
/// Longest time in which a thread that stops takes in what its source has noted, in ns.
const FINISH_NS_MAX: i64 = NS_PER_S / 4;

/// A running thread. Dropping it stops it, after it has handed over what it had collected.
pub(super) struct SourceThread {
    stop: Arc<AtomicBool>,
    waker: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl SourceThread {
    /// Starts the thread of a watch.
    pub(super) fn start(
        shared: &Arc<WatchShared>,
        spec: SourceSpec,
        source: Arc<EventSource>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let run = SourceLoop {
            shared: Arc::clone(shared),
            spec,
            source,
            stop: Arc::clone(&stop),
            waker: waker.try_clone()?,
            tell_ns: i64::MIN,
            instead: None,
        };
        let thread = std::thread::Builder::new()
            .name("baro-events".into())
            .spawn(move || run.run())?;
        Ok(Self {
            stop,
            waker,
            thread: Some(thread),
        })
    }
}

impl SourceThread {
    /// Tells the thread to stop, without waiting for it.
    pub(super) fn tell_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl Drop for SourceThread {
    fn drop(&mut self) {
        self.tell_to_stop();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was already reported.
            let _ = thread.join();
        }
    }
}

/// The state of a watch whose source is not open yet.
const STARTING: &str = "starting";

/// Why a source is not open.
struct Unopened {
    /// The state of the watch until then.
    state: &'static str,
    trouble: String,
}

impl From<String> for Unopened {
    fn from(trouble: String) -> Self {
        let state = "failed";
        Self { state, trouble }
    }
}

impl From<IngestFault> for Unopened {
    fn from(fault: IngestFault) -> Self {
        match fault {
            // Its history is being opened, or the disk is behind.
            IngestFault::Busy(trouble) => Self {
                state: STARTING,
                trouble,
            },
            IngestFault::Refused(trouble) => trouble.into(),
        }
    }
}

/// The state of the thread.
struct SourceLoop {
    shared: Arc<WatchShared>,
    spec: SourceSpec,
    source: Arc<EventSource>,
    stop: Arc<AtomicBool>,
    waker: OwnedFd,
    /// Monotonic time of the next telling, in ns.
    tell_ns: i64,
    /// The kind of the collector that serves instead of the configured one, and why it does.
    instead: Option<(&'static str, String)>,
}

impl SourceLoop {
    fn run(mut self) {
        self.tell_unopened(STARTING, "");
        while !self.is_stopping() {
            match self.open() {
                Ok((opened, first)) => self.serve(opened, first),
                Err(unopened) => {
                    self.tell_unopened(unopened.state, &unopened.trouble);
                    let until_ns = self.shared.clock.monotonic_ns() + OPEN_AGAIN_NS;
                    self.wait(None, until_ns);
                }
            }
        }
        self.shared.tell(self.source.reader, &self.spec.name, None);
        self.shared.actions.end(&self.spec.name);
        self.shared.door.end(&self.source);
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Opens the stream and the collector, which goes on after the last event that is recorded.
    /// Returns the number of that event as well.
    fn open(&mut self) -> Result<(OpenedCollector, u64), Unopened> {
        let opened = self.shared.door.record(&self.source, Vec::new())?;
        let recorded = opened.archive.as_deref().map(|dir| RecordedEvents {
            dir,
            node: self.shared.node(),
            stream: &self.source.descriptor,
        });
        let last = recorded.as_ref().map(RecordedEvents::last_index);
        // Numbers that rules have seen are not given again, also if the log is gone.
        let seen = self.shared.actions.seen(&self.spec.name);
        let last = last.transpose()?.unwrap_or(0).max(seen);
        let state_dir = &self.shared.state_dir;
        let mut opened_collector = (self.spec.open)(state_dir, last)?;
        let collector = &mut opened_collector.collector;
        let unknown = collector.learns_from().filter(|(from, _)| *from <= last);
        if let Some(((from, from_ns), recorded)) = unknown.zip(recorded) {
            let events = recorded.since(from, from_ns)?;
            events.iter().for_each(|event| collector.learn(event));
        }
        let log = EventLog {
            dir: opened.archive.clone(),
            stream: self.source.descriptor.clone(),
            reader: self.source.reader,
        };
        self.shared.actions.begin(&self.spec.name, log, last)?;
        info!(watch = self.spec.name, last, "a tree is watched");
        Ok((opened_collector, last))
    }

    /// Serves the source until the thread is to stop, or until the configured collector is possible
    /// where another one serves.
    fn serve(&mut self, opened: OpenedCollector, last: u64) {
        let OpenedCollector { collector, instead } = opened;
        self.instead = instead;
        let mut again_ns = self.shared.clock.monotonic_ns() + INSTEAD_NS;
        let sink = DoorSink {
            shared: Arc::clone(&self.shared),
            source: Arc::clone(&self.source),
            name: self.spec.name.clone(),
            recorded: Vec::new(),
            first: 0,
        };
        let mut pump = EventPump::new(collector, sink)
            .after(last)
            .without(self.shared.own_directories());
        while !self.is_stopping() {
            let clock = &self.shared.clock;
            let wait = pump.step((clock.now_ns(), clock.monotonic_ns()));
            let now_ns = clock.monotonic_ns();
            if now_ns >= self.tell_ns {
                self.tell(&pump);
            }
            // Numbers of events go on after the last one that is durable.
            if self.instead.is_some() && now_ns >= again_ns && pump.backlog().1 == 0 {
                again_ns = now_ns + INSTEAD_NS;
                if (self.spec.is_possible)() {
                    return;
                }
            }
            let until_ns = wait.until_ns.min(self.tell_ns);
            let collector = wait.is_open.then(|| pump.collector());
            self.wait(collector, until_ns);
        }
        self.finish(&mut pump);
    }

    /// Takes in what the source has noted before the stop: a later life would find it, but not the
    /// order in which it happened.
    fn finish(&self, pump: &mut EventPump<DoorSink>) {
        let clock = &self.shared.clock;
        let until_ns = clock.monotonic_ns().saturating_add(FINISH_NS_MAX);
        loop {
            let now_ns = clock.monotonic_ns();
            let wait = pump.step((clock.now_ns(), now_ns));
            if wait.until_ns > now_ns || now_ns >= until_ns {
                return;
            }
        }
    }

    /// Waits until this monotonic time, until the collector is readable, or for the stop.
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell of a source's thread waits here"
    )]
    fn wait(&self, collector: Option<&dyn Collector>, until_ns: i64) {
        let wait_ns = until_ns.saturating_sub(self.shared.clock.monotonic_ns());
        if wait_ns <= 0 {
            return;
        }
        let timeout = Timespec {
            tv_sec: wait_ns / NS_PER_S,
            tv_nsec: wait_ns % NS_PER_S,
        };
        let readable = collector.and_then(Collector::readable);
        let mut awaited = vec![PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN)];
        awaited.extend(readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interruption does not matter: the next step looks at everything.
        let _ = poll(&mut awaited, Some(&timeout));
    }

    fn row(&self) -> WatchesRow {
        WatchesRow {
            name: self.spec.name.clone(),
            path: self.spec.path.to_string_lossy().into_owned(),
            collector: self.spec.collector.clone(),
            ..WatchesRow::default()
        }
    }

    fn tell_unopened(&self, state: &str, trouble: &str) {
        debug!(watch = self.spec.name, trouble, "a tree is not watched now");
        let row = WatchesRow {
            state: state.into(),
            trouble: trouble.to_owned(),
            ..self.row()
        };
        let name = &self.spec.name;
        self.shared.tell(self.source.reader, name, Some(row));
    }

    fn tell(&mut self, pump: &EventPump<DoorSink>) {
        self.tell_ns = self.shared.clock.monotonic_ns() + TELL_NS;
        self.shared.actions.attend();
        let status = pump.status();
        let ((idx, durable_idx), (again, waiting_bytes)) = (pump.indexes(), pump.backlog());
        let state = match (status.trouble.is_empty(), status.is_walking) {
            (false, _) => "troubled",
            (true, true) => "walking",
            (true, false) => "live",
        };
        let row = WatchesRow {
            state: state.into(),
            events: status.events,
            directories: status.directories,
            watches: status.watches,
            gaps: status.gaps,
            reconciled: status.reconciled,
            unresolved: status.unresolved,
            senseless: status.senseless,
            idx,
            durable_idx,
            waiting_bytes: waiting_bytes as u64,
            recorded_again: again,
            trouble: status.trouble,
            ..self.row()
        };
        let row = match &self.instead {
            Some((kind, reason)) => WatchesRow {
                collector: (*kind).to_owned(),
                trouble: told_instead(&self.spec.collector, reason, row.trouble),
                ..row
            },
            None => row,
        };
        let name = &self.spec.name;
        self.shared.tell(self.source.reader, name, Some(row));
    }
}

/// The trouble of a watch that another collector serves than the configured one.
fn told_instead(configured: &str, reason: &str, other: String) -> String {
    let instead = format!("{configured} is not possible: {reason}");
    match other.is_empty() {
        true => instead,
        false => format!("{instead}; {other}"),
    }
}

/// The stream of the source, as the place where its events are recorded.
struct DoorSink {
    shared: Arc<WatchShared>,
    source: Arc<EventSource>,
    /// Name of the source.
    name: String,
    /// What was recorded and is asked for still, from number `first` on.
    recorded: Vec<EventsRecorded>,
    first: u64,
}

impl EventSink for DoorSink {
    fn record(&mut self, samples: Vec<Sample>) -> Result<u64, String> {
        let recorded = self.shared.door.record(&self.source, samples);
        self.recorded
            .push(recorded.map_err(|fault| fault.to_string())?);
        Ok(self.first + self.recorded.len() as u64 - 1)
    }

    fn settled(&mut self, number: u64) -> Settled {
        // Whatever was recorded before is not asked for any more.
        let past = number.saturating_sub(self.first) as usize;
        self.recorded.drain(..past.min(self.recorded.len()));
        self.first += past as u64;
        let Some(recorded) = self.recorded.first() else {
            return Settled::Lost;
        };
        match recorded.wait_durable(Duration::ZERO) {
            Ok(true) => Settled::Durable,
            Ok(false) => Settled::Waiting,
            Err(_) => Settled::Lost,
        }
    }

    fn durable(&mut self, samples: Vec<Sample>, (after, last): (u64, u64)) {
        let events = DurableEvents {
            after,
            last,
            samples,
        };
        self.shared.actions.offer(&self.name, events);
    }
}
