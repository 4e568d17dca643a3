//! A member of a map: it does operations at the servers of the epoch in force.

use std::time::Duration;

use barograph_control::EpochStart;
use barograph_model::{Clock as _, Kind, ValueType};
use barograph_stream::ingest::{MAP_LABEL, MAP_PUBLICATION, MapWords, ServerSet};

use super::cell::MapCell;
use super::{
    Known, MARK_ONE, MapUse, OPERATION_MASK, RENEW_NS, SLOT_SHIFT, TOLD_NS_MAX, TORN_NS, epochs_of,
    known, mark_of, sleep,
};
use crate::publish::process::Process;
use crate::publish::{
    Publication, PublicationConfig, PublishError, Publisher, ValueHandle, state, thread,
};

/// Longest wait for a change of a map, unless the program says another.
pub const MAP_WAIT_DEFAULT: Duration = Duration::from_secs(60);

/// Why an operation has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MapStart {
    /// Nobody keeps the map: its servers are those that the program has declared, its epoch is 0.
    Off = 0,
    /// In the epoch in force.
    Current = 1,
    /// In the epoch that is known, after it has waited for a change for as long as it wanted to:
    /// servers may refuse it.
    Late = 2,
}

impl MapStart {
    /// The reason as a word: `off`, `current` or `late`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Current => "current",
            Self::Late => "late",
        }
    }
}

/// A map of servers at which the program does operations. Cheap to clone, for use from any thread.
#[derive(Clone, Debug)]
pub struct ServerMap {
    used: MapUse,
    declared: ServerSet,
    epoch: ValueHandle,
    servers: ValueHandle,
}

/// An operation that has begun. It ends when it is dropped.
#[derive(Debug)]
pub struct MapOperation<'a> {
    map: &'a ServerMap,
    raw: RawOperation,
}

/// An operation that has begun, for other languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOperation {
    /// The number of the operation; 0 if it is not counted, since nothing is published.
    pub number: u64,
    /// The epoch, which goes to the servers with each request.
    pub epoch: u64,
    /// The servers.
    pub servers: ServerSet,
    /// Why it has begun.
    pub start: MapStart,
}

impl Publisher {
    /// Declares that this process does operations at the servers of a map, or finds the map again.
    /// `servers` are those with which it begins: they are used as long as nobody keeps the map, and
    /// are the first epoch of a map that is new.
    pub fn server_map(
        &self,
        name: &str,
        servers: impl IntoIterator<Item = u32>,
    ) -> Result<ServerMap, PublishError> {
        let mut declared = ServerSet::EMPTY;
        let are_possible = servers.into_iter().all(|server| declared.insert(server));
        if !are_possible || declared.is_empty() {
            let name = name.to_owned();
            let why = match are_possible {
                true => "give at least one server",
                false => "the numbers of servers are 0 to 1,023",
            };
            return Err(PublishError::Map { name, why });
        }
        let config = PublicationConfig {
            labels: vec![(MAP_LABEL.to_owned(), name.to_owned())],
            ..PublicationConfig::default()
        };
        let publication = self.publication(MAP_PUBLICATION, config)?;
        let value = |name, help| publication.value(name, ValueType::Int, "", Kind::Gauge, help);
        Ok(ServerMap {
            epoch: value(
                "epoch",
                "the epoch of the servers at which operations are done",
            )?,
            servers: value("servers", "the number of these servers")?,
            used: MapUse {
                slot: slot_of(&publication, &declared)?,
                publication,
            },
            declared,
        })
    }
}

/// The slot of a use, taken if it has none yet; `None` if nothing is published.
pub(super) fn slot_of(
    publication: &Publication,
    declared: &ServerSet,
) -> Result<Option<u8>, PublishError> {
    let raw = publication.to_raw();
    if raw == 0 {
        return Ok(None);
    }
    let number = thread::series_of(raw);
    let mut state = state::enter()?;
    let (slot, is_new) = state.use_map(thread::generation_of(raw), number, declared)?;
    if is_new {
        super::cell::of(slot).reset();
    }
    Ok(Some(slot))
}

impl ServerMap {
    /// Begins an operation. Returns when it may be done: at once, unless the map is being changed,
    /// and at the latest after `wait_max`.
    pub fn begin(&self, wait_max: Duration) -> MapOperation<'_> {
        MapOperation {
            map: self,
            raw: self.begin_raw(wait_max),
        }
    }

    /// Like [`Self::begin`], for other languages: the operation ends by [`Self::end_raw`] or
    /// [`Self::refused_raw`].
    pub fn begin_raw(&self, wait_max: Duration) -> RawOperation {
        let Some((process, slot, cell)) = self.used.place() else {
            return self.off(0);
        };
        let producer = &process.producer;
        let number = mark_of(producer) | u64::from(slot) << SLOT_SHIFT;
        producer.count_operation(slot);
        // The usual cases, without a look at a clock.
        match known(producer, slot, cell) {
            Known::Told(words)
                if epochs_of(&words).start(cell.fence(), true) == EpochStart::Now =>
            {
                return self.begun(number, &words, MapStart::Current, cell);
            }
            Known::Nobody if cell.fence() == 0 => return self.off(number),
            _ => {}
        }
        Waiting::new(self, &process, slot, cell, wait_max).begin(number)
    }

    /// Ends an operation. One that has ended before must not be ended again; one of another
    /// process changes nothing.
    pub fn end_raw(&self, number: u64) {
        self.end(number, true);
    }

    fn end(&self, number: u64, is_done: bool) {
        let Some((process, slot, _)) = self.used.existing() else {
            return;
        };
        let producer = &process.producer;
        if number != mark_of(producer) | u64::from(slot) << SLOT_SHIFT {
            return;
        }
        if is_done {
            producer.count_ended(slot);
        }
        if producer.uncount_operation(slot) == 0 && producer.is_drain_awaited(slot) {
            process.ask_for_phase();
        }
    }

    /// Ends an operation that a server has refused with a fence. The next one begins in a map whose
    /// epoch is not before that.
    pub fn refused_raw(&self, number: u64, fence: u64) {
        if let Some((process, slot, cell)) = self.used.existing() {
            cell.raise_fence(fence);
            process.producer.note_refusal(slot, fence);
            let is_behind = match known(&process.producer, slot, cell) {
                Known::Told(words) => words.epoch < fence,
                _ => true,
            };
            if is_behind {
                // Who is behind asks for the map.
                process.ask_for_phase();
            }
        }
        self.end(number, false);
    }

    fn begun(
        &self,
        number: u64,
        words: &MapWords,
        start: MapStart,
        cell: &MapCell,
    ) -> RawOperation {
        // Kept apart from the time of the last frame: each epoch is said once.
        if cell.take_epoch(words.epoch) {
            self.epoch
                .put_i64(i64::try_from(words.epoch).unwrap_or(i64::MAX));
            self.servers.put_i64(words.servers.len() as i64);
            self.used.publication.frame(cell.next_frame());
        }
        RawOperation {
            number,
            epoch: words.epoch,
            servers: words.servers,
            start,
        }
    }

    fn off(&self, number: u64) -> RawOperation {
        RawOperation {
            number,
            epoch: 0,
            servers: self.declared,
            start: MapStart::Off,
        }
    }
}

/// An operation that may have to wait.
struct Waiting<'a> {
    map: &'a ServerMap,
    process: &'a Process,
    slot: u8,
    cell: &'a MapCell,
    begun_ns: i64,
    wait_ns: i64,
    renew_ns: i64,
    is_counted: bool,
}

/// What comes of a look.
enum Look {
    Begin(MapStart, Option<MapWords>),
    /// It waits, for so long at most.
    Wait(i64),
}

impl<'a> Waiting<'a> {
    fn new(
        map: &'a ServerMap,
        process: &'a Process,
        slot: u8,
        cell: &'a MapCell,
        wait_max: Duration,
    ) -> Self {
        let begun_ns = process.clock.monotonic_ns();
        Self {
            map,
            process,
            slot,
            cell,
            begun_ns,
            wait_ns: i64::try_from(wait_max.as_nanos()).unwrap_or(i64::MAX),
            renew_ns: begun_ns,
            is_counted: false,
        }
    }

    /// Begins the operation, which is counted as running. While it waits it is not.
    fn begin(mut self, number: u64) -> RawOperation {
        let producer = &self.process.producer;
        loop {
            // Before the look: what is told after that ends the sleep.
            let moved = producer.answers_moved();
            let left_ns = match self.look() {
                Look::Begin(start, words) => {
                    self.count_waiting(false);
                    return match words {
                        Some(words) => self.map.begun(number, &words, start, self.cell),
                        None => RawOperation {
                            start,
                            ..self.map.off(number)
                        },
                    };
                }
                Look::Wait(left_ns) => left_ns,
            };
            producer.uncount_operation(self.slot);
            self.count_waiting(true);
            let left_ns = left_ns.min(self.knock());
            sleep(producer, moved, left_ns);
            producer.count_operation(self.slot);
        }
    }

    /// Wakes the agent now and then: it may have seen this operation counted, and waits for its
    /// end. Returns the time to the next knock.
    fn knock(&mut self) -> i64 {
        let now_ns = self.process.clock.monotonic_ns();
        if now_ns >= self.renew_ns {
            self.renew_ns = now_ns.saturating_add(RENEW_NS);
            if !self.process.ask_for_phase()
                && known(&self.process.producer, self.slot, self.cell) == Known::NotYet
            {
                // Nobody is there.
                self.cell.set_alone();
                return 1;
            }
        }
        self.renew_ns.saturating_sub(now_ns)
    }

    fn look(&self) -> Look {
        let producer = &self.process.producer;
        let now_ns = self.process.clock.monotonic_ns();
        let waited_ns = now_ns.saturating_sub(self.begun_ns);
        let left_ns = self.wait_ns.saturating_sub(waited_ns);
        let is_ours = !producer.is_retired();
        match known(producer, self.slot, self.cell) {
            Known::Told(words) => self.look_at(words, now_ns, left_ns),
            Known::Torn if left_ns > 0 && is_ours => Look::Wait(TORN_NS),
            Known::NotYet if left_ns > 0 && waited_ns < TOLD_NS_MAX && is_ours => {
                Look::Wait(left_ns.min(TOLD_NS_MAX - waited_ns))
            }
            Known::NotYet => {
                self.cell.set_alone();
                Look::Begin(MapStart::Off, None)
            }
            Known::Nobody | Known::Torn => {
                let none = MapWords::OFF;
                match epochs_of(&none).start(self.cell.fence(), false) {
                    EpochStart::Behind => self.behind(None, left_ns),
                    EpochStart::Now | EpochStart::Suspended => Look::Begin(MapStart::Off, None),
                }
            }
        }
    }

    fn look_at(&self, words: MapWords, now_ns: i64, left_ns: i64) -> Look {
        let epochs = epochs_of(&words);
        let is_prepared = words.prepare > words.epoch;
        // The patience is that of the process: later operations do not wait anew for the same
        // epoch, when the first has waited in vain.
        let patience_ns = match is_prepared {
            true => {
                let since_ns = self.cell.suspended_since(words.prepare, now_ns);
                self.wait_ns.saturating_sub(now_ns.saturating_sub(since_ns))
            }
            false => 0,
        };
        match epochs.start(self.cell.fence(), patience_ns > 0) {
            EpochStart::Now if is_prepared => Look::Begin(MapStart::Late, Some(words)),
            EpochStart::Now => Look::Begin(MapStart::Current, Some(words)),
            EpochStart::Suspended => Look::Wait(patience_ns),
            EpochStart::Behind => self.behind(Some(words), left_ns),
        }
    }

    /// Servers know of a later epoch: the map will come, unless they are wrong.
    fn behind(&self, words: Option<MapWords>, left_ns: i64) -> Look {
        if left_ns > 0 && !self.process.producer.is_retired() {
            return Look::Wait(left_ns);
        }
        self.cell.forget_fence(self.cell.fence());
        Look::Begin(MapStart::Late, words)
    }

    fn count_waiting(&mut self, waits: bool) {
        if self.is_counted != waits {
            self.is_counted = waits;
            self.process.producer.count_waiting(self.slot, waits);
        }
    }
}

impl MapOperation<'_> {
    /// The epoch, which goes to the servers with each request.
    pub fn epoch(&self) -> u64 {
        self.raw.epoch
    }

    /// The servers of the epoch.
    pub fn servers(&self) -> &ServerSet {
        &self.raw.servers
    }

    /// Why it has begun.
    pub fn start(&self) -> MapStart {
        self.raw.start
    }

    /// Ends the operation, which a server has refused with a fence: begin it again. Its epoch will
    /// not be before the fence then.
    pub fn refused(mut self, fence: u64) {
        let number = std::mem::take(&mut self.raw.number);
        self.map.refused_raw(number, fence);
    }
}

impl Drop for MapOperation<'_> {
    fn drop(&mut self) {
        if self.raw.number != 0 {
            self.map.end_raw(self.raw.number);
        }
    }
}

const _: () = assert!(OPERATION_MASK < MARK_ONE);
