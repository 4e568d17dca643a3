//! The agent's own control events: what its controllers tell programs and other nodes, such as that
//! a policy of I/O scheduling starves phases (docs/design/0012-agreement.md).
//!
//! Any thread of the agent may publish one. It waits for the sampling loop, which is woken and puts
//! it into a stream of the node's own segment. So whoever may read the node may read it, and it
//! must not tell what users keep to themselves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use barograph_model::{
    Clock, Descriptor, Kind, Labels, NS_PER_S, Name, Sample, Sink as _, StreamKey, Unit, Value,
    ValueType,
};
use barograph_recorder::Streams;
use barograph_stream::{
    CONTROL_EVENT_BYTES_MAX, CONTROL_EVENT_STREAM_OF_AGENTS, ControlEventContent,
    ControlEventSource,
};

/// Events per second that are published in the long run; further ones are dropped.
const EVENTS_PER_S_MAX: i64 = 50;
/// Events that are published at once after a while without any.
const EVENTS_AT_ONCE_MAX: i64 = 200;
/// Most events that wait for the sampling loop.
const WAITING_MAX: usize = 256;
/// Samples that the ring of the stream holds.
const DEPTH: u32 = 1_024;
/// The number of dropped events.
const DROPPED_STREAM: &str = "control.event.dropped.count";

/// The events that the agent publishes.
pub(crate) struct ControlEvents {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    life: u64,
    /// Wakes the sampling loop, once there is one.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    /// Times and records.
    waiting: VecDeque<(i64, Arc<[u8]>)>,
    sequence: u64,
    dropped: u64,
    dropped_told: u64,
    /// What may be published now, in ns of its cost, as of a monotonic time.
    credit_ns: i64,
    credit_at_ns: i64,
}

/// The streams of the events. They are declared with the first event, so that nodes without any
/// have none.
#[derive(Default)]
pub(crate) struct ControlEventStreams {
    keys: Option<(Option<StreamKey>, Option<StreamKey>)>,
}

/// What an event costs of the credit, which grows with time.
const COST_NS: i64 = NS_PER_S / EVENTS_PER_S_MAX;
/// Most credit, in ns.
const CREDIT_NS_MAX: i64 = COST_NS * EVENTS_AT_ONCE_MAX;

impl ControlEvents {
    /// Makes the events of an agent; `life` is a number that no other life of it has.
    pub(crate) fn new(clock: &Arc<dyn Clock>, life: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                sequence: 0,
                dropped: 0,
                dropped_told: 0,
                credit_ns: CREDIT_NS_MAX,
                credit_at_ns: clock.monotonic_ns(),
            }),
            clock: Arc::clone(clock),
            life,
            wake: OnceLock::new(),
        })
    }

    /// Sets what wakes the sampling loop.
    pub(crate) fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.wake.set(Box::new(wake));
    }

    /// Publishes an event. One that is beyond the rate, that is no event or that finds no room is
    /// dropped and counted, and its readers see by the numbers that it is missing.
    pub(crate) fn publish(
        &self,
        kind: &str,
        subject: &str,
        value: Option<f64>,
        confidence: f64,
        properties: &[(&str, &str)],
    ) {
        let content = ControlEventContent {
            kind,
            subject,
            value,
            confidence,
            properties,
        };
        let mut state = self.state();
        state.sequence += 1;
        let source = ControlEventSource {
            pid: std::process::id(),
            thread: 0,
            life: self.life,
            sequence: state.sequence,
        };
        let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
        let written = content.write(source, &mut bytes);
        debug_assert!(written.is_ok(), "{content:?}: {written:?}");
        let is_paid = state.pay(self.clock.monotonic_ns());
        match written {
            Ok(length) if is_paid && state.waiting.len() < WAITING_MAX => {
                // Under the lock, so that times are in the order of the numbers.
                let record = (self.clock.now_ns(), Arc::from(&bytes[..length]));
                state.waiting.push_back(record);
            }
            _ => state.dropped += 1,
        }
        drop(state);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Puts what waits into the streams, in the sampling loop.
    pub(crate) fn take(&self, streams: &mut ControlEventStreams, sink: &mut Streams<'_>) {
        let (waiting, dropped) = {
            let mut state = self.state();
            if state.waiting.is_empty() && state.dropped == state.dropped_told {
                return;
            }
            state.dropped_told = state.dropped;
            (std::mem::take(&mut state.waiting), state.dropped)
        };
        let (events, drops) = *streams.keys.get_or_insert_with(|| declare(sink));
        if let Some(events) = events {
            for (ts, record) in waiting {
                sink.put(events, &Sample::measured(ts, Value::Bytes(record)));
            }
        }
        if let Some(drops) = drops {
            let dropped = i64::try_from(dropped).unwrap_or(i64::MAX);
            sink.put(drops, &Sample::measured(self.clock.now_ns(), dropped));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic under the lock leaves is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes what an event costs, if there is so much.
    fn pay(&mut self, now_ns: i64) -> bool {
        let grown_ns = now_ns.saturating_sub(self.credit_at_ns).max(0);
        self.credit_at_ns = now_ns;
        self.credit_ns = self.credit_ns.saturating_add(grown_ns).min(CREDIT_NS_MAX);
        let is_enough = self.credit_ns >= COST_NS;
        if is_enough {
            self.credit_ns -= COST_NS;
        }
        is_enough
    }
}

fn declare(sink: &mut Streams<'_>) -> (Option<StreamKey>, Option<StreamKey>) {
    let descriptor = |name: &str, value_type, unit: &str, kind, help: &str| Descriptor {
        name: Name::new(name).expect("a literal"),
        labels: Labels::none(),
        value_type,
        unit: Unit::new(unit).expect("a literal"),
        kind,
        help: help.into(),
    };
    let events = descriptor(
        CONTROL_EVENT_STREAM_OF_AGENTS,
        ValueType::Bytes,
        "",
        Kind::State,
        "Control events of the agent; the table control_events has their parts",
    );
    let help = "Control events of the agent that were dropped, because there were too many";
    let drops = descriptor(DROPPED_STREAM, ValueType::Int, "count", Kind::Counter, help);
    let bytes_max = CONTROL_EVENT_BYTES_MAX as u32;
    let events = sink.declare_sized(&events, Some(DEPTH), Some(bytes_max));
    (events, sink.declare(&drops, None))
}

#[cfg(test)]
impl ControlEvents {
    /// The kinds of the events that wait.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let state = self.state();
        let records = state.waiting.iter();
        let kind = |bytes: &Arc<[u8]>| {
            let record = barograph_stream::ControlEventRecord::read(bytes);
            record.expect("it was written here").kind.to_owned()
        };
        records.map(|(_, bytes)| kind(bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_model::ManualClock;
    use barograph_stream::ControlEventRecord;

    fn events() -> (Arc<ControlEvents>, Arc<ManualClock>) {
        let manual = Arc::new(ManualClock::at(1_000));
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as _;
        (ControlEvents::new(&clock, 7), manual)
    }

    #[test]
    fn events_have_numbers_and_times_in_their_order() {
        let (events, clock) = events();
        events.publish(
            "io.starved",
            "scratch",
            Some(2.0),
            1.0,
            &[("policy", "fcfs")],
        );
        clock.advance(5);
        events.publish("io.policy", "scratch", None, 0.5, &[]);
        let state = events.state();
        let told = state.waiting.iter().map(|(ts, bytes)| {
            let record = ControlEventRecord::read(bytes).unwrap();
            (*ts, record.kind.to_owned(), record.sequence, record.life)
        });
        let told: Vec<_> = told.collect();
        assert_eq!(
            told,
            [
                (1_000, "io.starved".to_owned(), 1, 7),
                (1_005, "io.policy".to_owned(), 2, 7)
            ]
        );
    }

    #[test]
    fn too_many_are_dropped_and_counted() {
        let (events, clock) = events();
        let publish = |count: i64| (0..count).for_each(|_| events.publish("a", "", None, 1.0, &[]));
        // Each look takes the lock once.
        let counts = || {
            let state = events.state();
            (state.waiting.len(), state.dropped)
        };
        publish(EVENTS_AT_ONCE_MAX + 10);
        let at_once = EVENTS_AT_ONCE_MAX as usize;
        assert_eq!(counts(), (at_once, 10));
        // A second later there is room for more, of which the queue takes what it holds.
        clock.advance(NS_PER_S);
        publish(EVENTS_PER_S_MAX + 1);
        assert_eq!(counts(), (at_once + 50, 11));
        clock.advance(NS_PER_S);
        publish(EVENTS_PER_S_MAX);
        assert_eq!(counts(), (WAITING_MAX, 55));
        assert_eq!(events.state().sequence, 311);
    }
}
