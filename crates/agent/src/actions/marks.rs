//! Marks that rules put on files: events of a source of their own, so that they stand in the
//! catalogue and other rules may act on them.
//!
//! An action puts a mark into the box and waits until its event is durable. The collector takes it
//! out, like those of other sources, and its acknowledgement ends the wait.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use barograph_action::{ActionJob, ActionOwner};
use barograph_event::{
    Collected, Collector, CollectorFault, CollectorStatus, EventKind, FileEvent, MARK_KEY,
};
use rustix::event::{EventfdFlags, eventfd};

/// Name of the source of marks.
pub(crate) const MARKS_SOURCE: &str = "marks";
/// Most marks that wait to be recorded. Each has a worker that waits for it.
const WAITING_MAX: usize = 1_024;
/// Longest time between two looks whether the wait is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Number of looks after which a mark is given up, to be put again.
const LOOKS_MAX: u32 = 300;

/// Adds the source of marks, if that was not done yet.
type AddSource = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The marks that wait to be recorded.
#[derive(Default)]
pub(crate) struct MarkBox {
    state: Mutex<MarkState>,
    changed: Condvar,
    source: OnceLock<AddSource>,
}

#[derive(Default)]
struct MarkState {
    /// Marks that the collector has not taken, with their tickets.
    waiting: VecDeque<(u64, FileEvent)>,
    /// Number and ticket of events that are not durable yet.
    taken: VecDeque<(u64, u64)>,
    /// The last ticket that was given, and the last one whose event is durable.
    given: u64,
    durable: u64,
    waker: Option<Arc<OwnedFd>>,
}

impl MarkBox {
    /// Sets what adds the source, once.
    pub(crate) fn set_source(&self, add: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.source.set(Box::new(add));
    }

    fn state(&self) -> MutexGuard<'_, MarkState> {
        // Nothing that holds this lock can leave half a change behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a mark on the file of an action, at this time, and waits until its event is durable.
    ///
    /// # Errors
    ///
    /// That is not known, for this reason: it may be put again.
    #[expect(
        clippy::disallowed_methods,
        reason = "a worker waits here for the disk, for a bounded time"
    )]
    pub(crate) fn put(
        &self,
        mark: &str,
        (job, owner, now_ns): (&ActionJob, ActionOwner, i64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let add = self.source.get();
        add.ok_or("this agent records no events (applications.enabled)")?()?;
        let ticket = {
            let mut state = self.state();
            if state.waiting.len() >= WAITING_MAX {
                return Err(format!("{WAITING_MAX} marks wait to be recorded"));
            }
            state.given += 1;
            let ticket = state.given;
            state
                .waiting
                .push_back((ticket, event(mark, job, owner, now_ns)));
            if let Some(waker) = &state.waker {
                // A counter that is full wakes as well.
                let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
            }
            ticket
        };
        let mut state = self.state();
        for _ in 0..LOOKS_MAX {
            if state.durable >= ticket {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting.retain(|(waiting, _)| *waiting != ticket);
        match state.durable >= ticket {
            true => Ok(()),
            false => Err("the mark is not recorded in time".into()),
        }
    }
}

/// The event of a mark: of the file of the action, by the user of its rule.
fn event(mark: &str, job: &ActionJob, owner: ActionOwner, now_ns: i64) -> FileEvent {
    let fields = &job.fields;
    let detail = format!("{MARK_KEY}{mark} rule={} key={}", fields.rule, fields.key);
    FileEvent {
        path: fields.path.clone(),
        size: fields.size,
        uid: Some(owner.uid),
        gid: Some(owner.gid),
        job: fields.job.clone().into(),
        detail: detail.into(),
        ..FileEvent::new(EventKind::Mark, 0, now_ns)
    }
}

/// The collector of marks.
pub(crate) struct MarkCollector {
    marks: Arc<MarkBox>,
    waker: Arc<OwnedFd>,
    next: u64,
    events: u64,
}

impl MarkCollector {
    /// A collector that gives its next event this number.
    pub(crate) fn open(marks: &Arc<MarkBox>, next: u64) -> Result<Self, CollectorFault> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker = Arc::new(waker.map_err(|error| CollectorFault::Io {
            what: "make a descriptor for",
            path: PathBuf::from(MARKS_SOURCE),
            source: error.into(),
        })?);
        let mut state = marks.state();
        // What an earlier collector has taken and not told is put again by its action.
        state.taken.clear();
        state.waker = Some(Arc::clone(&waker));
        drop(state);
        Ok(Self {
            marks: Arc::clone(marks),
            waker,
            next,
            events: 0,
        })
    }
}

impl Collector for MarkCollector {
    fn collect(
        &mut self,
        events: &mut Vec<FileEvent>,
        events_max: usize,
        _now: (i64, i64),
    ) -> Result<Collected, CollectorFault> {
        // Only that it is readable counts.
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
        let mut state = self.marks.state();
        for _ in 0..events_max.max(1) {
            let Some((ticket, mut event)) = state.waiting.pop_front() else {
                return Ok(Collected::All);
            };
            event.index = self.next;
            state.taken.push_back((self.next, ticket));
            self.next += 1;
            self.events += 1;
            events.push(event);
        }
        Ok(Collected::More)
    }

    fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
        let mut state = self.marks.state();
        while let Some((taken, ticket)) = state.taken.front().copied()
            && taken <= index
        {
            state.taken.pop_front();
            state.durable = state.durable.max(ticket);
        }
        drop(state);
        self.marks.changed.notify_all();
        Ok(())
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.as_fd())
    }

    fn due_ns(&self) -> i64 {
        i64::MAX
    }

    fn status(&self) -> CollectorStatus {
        CollectorStatus {
            events: self.events,
            ..CollectorStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use barograph_action::{ActionFields, ActionWork};

    use super::*;

    fn job(name: &str) -> ActionJob {
        ActionJob {
            work: ActionWork::Mark {
                mark: name.to_owned(),
            },
            fields: ActionFields {
                path: b"/a".to_vec(),
                rule: "r".into(),
                key: "r.1.s.2".into(),
                ..ActionFields::default()
            },
            causes: Vec::new(),
            place: None,
        }
    }

    #[test]
    fn a_mark_is_put_when_its_event_is_durable() {
        let marks = Arc::new(MarkBox::default());
        let owner = ActionOwner { uid: 7, gid: 8 };
        let go_on = AtomicBool::new(false);
        let put = move |marks: &MarkBox, name: &str, stop: &AtomicBool| {
            marks.put(name, (&job(name), owner, 5), stop)
        };
        assert!(put(&marks, "x", &go_on).is_err(), "nobody records it");
        marks.set_source(|| Ok(()));
        let mut collector = MarkCollector::open(&marks, 41).unwrap();
        let waiting = {
            let marks = Arc::clone(&marks);
            std::thread::spawn(move || put(&marks, "seen", &AtomicBool::new(false)))
        };
        let mut events = Vec::new();
        while events.is_empty() {
            collector.collect(&mut events, 10, (0, 0)).unwrap();
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished());
        let event = &events[0];
        assert_eq!(
            (event.index, event.uid, &*event.path),
            (41, Some(7), &b"/a"[..])
        );
        assert_eq!(&*event.detail, "mark=seen rule=r key=r.1.s.2");
        collector.acknowledge(41).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
        // One that is given up is not recorded later.
        assert!(put(&marks, "late", &AtomicBool::new(true)).is_err());
        events.clear();
        collector.collect(&mut events, 10, (0, 0)).unwrap();
        assert!(events.is_empty());
    }
}
