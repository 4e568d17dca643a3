//! Control events that a program publishes: each is a frame of the publication `control.event`
//! (docs/design/0012-agreement.md).
//!
//! An event needs no memory, descriptor or lock beyond those of a put. It has a number among those
//! of its thread, and not of its process: threads have rings of their own, so only the events of
//! one thread are read in their order, and a number that is missing is an event that was lost.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use barograph_model::{Clock as _, Kind, ValueType};
use barograph_stream::ingest::{PublicationReaders, kind};
use barograph_stream::{
    CONTROL_EVENT_BYTES_MAX, CONTROL_EVENT_PUBLICATION, CONTROL_EVENT_VALUE, ControlEventContent,
    ControlEventSource,
};

use super::{PublicationConfig, PublishError, Publisher, home, poll, thread};

/// This life of the process: its number in the upper half, and what tells it from an earlier
/// process of that number in the lower one. 0 before the first event.
static LIFE: AtomicU64 = AtomicU64::new(0);
/// Number of threads that have published events.
static THREADS: AtomicU32 = AtomicU32::new(0);
const PID_BITS: u32 = 32;

thread_local! {
    /// The source of this thread's last event.
    static SOURCE: Cell<ControlEventSource> = const {
        Cell::new(ControlEventSource { pid: 0, thread: 0, life: 0, sequence: 0 })
    };
}

impl Publisher {
    /// Publishes a control event, with the puts of this thread since its last frame. Whoever may
    /// read the publication `control.event` of this program can consume it
    /// ([`Observer::control_events`](crate::Observer::control_events)). It does nothing if nothing
    /// is published.
    ///
    /// # Errors
    ///
    /// There can be no such event, or it was lost, because there is no room for it.
    pub fn control_event(&self, event: &ControlEventContent<'_>) -> Result<(), PublishError> {
        event.check()?;
        if !self.is_enabled() {
            return Ok(());
        }
        // A child that shares our memory must not number its events by it.
        home::enter()?;
        let (publication, record) = match self.known_control_handles() {
            Some(known) => known,
            None => self.declare_control_events(PublicationReaders::Owner)?,
        };
        let source = next();
        let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
        let length = event.write(source, &mut bytes)?;
        thread::put_bytes(record, kind::BYTES, &bytes[..length])?;
        poll::frame(publication, source.sequence);
        Ok(())
    }

    /// Says who may read the control events of this program, before the first one; otherwise it is
    /// their owner.
    ///
    /// # Errors
    ///
    /// They have other readers already.
    pub fn control_event_readers(&self, readers: PublicationReaders) -> Result<(), PublishError> {
        if self.is_enabled() {
            self.declare_control_events(readers)?;
        }
        Ok(())
    }

    fn known_control_handles(&self) -> Option<(u64, u64)> {
        let handles = self.control_handles();
        let publication = handles.publication.load(Ordering::Acquire);
        (publication != 0).then(|| (publication, handles.record.load(Ordering::Relaxed)))
    }

    /// Declares the publication. Threads that do so at once find the same one.
    #[cold]
    fn declare_control_events(
        &self,
        readers: PublicationReaders,
    ) -> Result<(u64, u64), PublishError> {
        let config = PublicationConfig {
            readers,
            ..PublicationConfig::default()
        };
        let publication = self.publication(CONTROL_EVENT_PUBLICATION, config)?;
        let help = "control events of the program; the table control_events has their parts";
        let bytes_max = CONTROL_EVENT_BYTES_MAX as u32;
        let record = publication.value_of(
            CONTROL_EVENT_VALUE,
            ValueType::Bytes,
            "",
            Kind::State,
            help,
            bytes_max,
        )?;
        let (publication, record) = (publication.to_raw(), record.to_raw());
        let handles = self.control_handles();
        handles.record.store(record, Ordering::Relaxed);
        handles.publication.store(publication, Ordering::Release);
        Ok((publication, record))
    }
}

/// The life of this process as its events have it; `None` if it has published none.
pub(crate) fn life_of_this_process() -> Option<u64> {
    let life = LIFE.load(Ordering::Relaxed);
    (life >> PID_BITS == u64::from(std::process::id())).then_some(life)
}

/// The source of the next event of this thread.
fn next() -> ControlEventSource {
    let life = life();
    SOURCE.with(|source| {
        let mut next = source.get();
        if next.life != life {
            // The first event of this thread, or of a child that has its parent's memory.
            next = ControlEventSource {
                pid: std::process::id(),
                thread: THREADS.fetch_add(1, Ordering::Relaxed),
                life,
                sequence: 0,
            };
        }
        next.sequence += 1;
        source.set(next);
        next
    })
}

fn life() -> u64 {
    if let Some(life) = life_of_this_process() {
        return life;
    }
    let before = LIFE.load(Ordering::Relaxed);
    let clock = super::clock::clock();
    let moment = clock.now_ns() as u64 ^ (clock.monotonic_ns() as u64).rotate_left(32);
    // The upper half of the product depends on all bits of the moment.
    let told_apart = moment.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> PID_BITS;
    let ours = u64::from(std::process::id()) << PID_BITS | told_apart;
    match LIFE.compare_exchange(before, ours, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => ours,
        // Another thread was first.
        Err(theirs) => theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_numbers_of_its_own() {
        let (first, second) = (next(), next());
        assert_eq!(first.sequence + 1, second.sequence);
        assert_eq!((first.life, first.thread), (second.life, second.thread));
        let other = std::thread::spawn(next).join().unwrap();
        assert_eq!((other.sequence, other.life), (1, first.life));
        assert_ne!(other.thread, first.thread);
        assert_eq!(life_of_this_process(), Some(first.life));
        assert_eq!(first.pid, std::process::id());
    }
}
