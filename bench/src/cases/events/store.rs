//! The way of events after they are collected, as the agent has it: encoded, in a ring, durable in
//! the log, and read by a follower.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_archive::{
    ArchiveConfig, DeclaredStream, Journal, JournalEntry, JournalPosition, Keeper,
};
use barograph_event::{FileEvent, decode, encode};
use barograph_model::{Sample, Selector, StreamKey, Value};
use barograph_stream::{Segment, SegmentConfig, SegmentReader, StreamWriter};

use super::descriptor;
use crate::cases::archive::start;
use crate::report::Fault;

/// Bytes of the values of the ring. The ring of the agent is shorter, and a follower that falls
/// behind reads the log.
const RING_BYTES: u32 = 64 << 20;
/// Bytes that are not durable yet at which nothing more is taken, as in the agent.
const WINDOW_BYTES_MAX: usize = 2 << 20;
/// Longest time until an event is durable; after it the case fails.
const PATIENCE: Duration = Duration::from_secs(30);
const KEY: StreamKey = StreamKey(0);
/// Time for which a follower waits at most before it looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// The ring and the log of one source of events.
pub(super) struct EventStore {
    keeper: Keeper,
    journal: Journal,
    segment: Segment,
    writer: StreamWriter,
    entries: Vec<JournalEntry>,
    scratch: Vec<u8>,
    /// Batches that are not durable yet: position, bytes, number of the last event.
    batches: VecDeque<(JournalPosition, usize, u64)>,
    bytes: usize,
    durable: u64,
    follower: Option<Follower>,
}

impl EventStore {
    /// Makes a ring at `ring`, whose records have at most `record_bytes_max` bytes, and a log in
    /// the directory `kept`.
    pub(super) fn open(ring: &Path, kept: &Path, record_bytes_max: u32) -> Result<Self, Fault> {
        let keeper = start(ArchiveConfig {
            durable: vec![Selector::parse("*")?],
            ..ArchiveConfig::new(kept, "bench")
        })?;
        let mut segment = Segment::create(ring, SegmentConfig::new("bench"), 0)?;
        let depth = RING_BYTES / record_bytes_max;
        let stream = descriptor();
        let writer = segment.register_sized(&stream, Some(depth), Some(record_bytes_max), 0)?;
        let declared = DeclaredStream {
            descriptor: Arc::new(stream),
            life: 1,
            depth,
        };
        Ok(Self {
            journal: keeper.journal(),
            keeper,
            segment,
            writer,
            entries: vec![JournalEntry::Declare(KEY, declared)],
            scratch: Vec::new(),
            batches: VecDeque::new(),
            bytes: 0,
            durable: 0,
            follower: None,
        })
    }

    /// Has a thread read and decode each event from the ring, which then waits for it.
    pub(super) fn follow(&mut self, ring: &Path) {
        self.follower = Some(Follower::start(ring));
    }

    /// Takes events; returns the number of the last one that is durable.
    pub(super) fn record(&mut self, events: &mut Vec<FileEvent>) -> Result<u64, Fault> {
        let Some(last) = events.last().map(|event| event.index) else {
            return self.settle(WINDOW_BYTES_MAX);
        };
        let mut bytes = 0;
        for event in events.drain(..) {
            self.scratch.clear();
            encode(&event, &mut self.scratch);
            bytes += self.scratch.len() + size_of::<Sample>();
            let sample = Sample::measured(event.ts, Value::Bytes(Arc::from(&self.scratch[..])));
            self.writer.append(&sample)?;
            let number = self.writer.count();
            self.entries.push(JournalEntry::Sample(KEY, number, sample));
            if number.is_multiple_of(u64::from(self.writer.depth() / 4)) {
                self.segment.wake(self.writer.wake_bit());
                self.give_way();
            }
        }
        self.segment.wake(self.writer.wake_bit());
        let position = self.journal.submit(&mut self.entries);
        self.batches.push_back((position, bytes, last));
        self.bytes += bytes;
        self.settle(WINDOW_BYTES_MAX)
    }

    /// Waits until everything is durable and followed; returns the number of events that the
    /// follower has read.
    pub(super) fn finish(mut self) -> Result<u64, Fault> {
        self.settle(0)?;
        let lost = self.keeper.status().losses.overflow_samples;
        if lost > 0 {
            return Err(format!("{lost} events were lost on the way to the log").into());
        }
        match self.follower.take() {
            Some(follower) => follower.finish(),
            None => Ok(0),
        }
    }

    /// Takes in what is durable, and waits until fewer bytes than these are not.
    fn settle(&mut self, bytes_max: usize) -> Result<u64, Fault> {
        while let Some((position, bytes, last)) = self.batches.front().copied() {
            if !self.journal.is_settled(position) {
                if self.bytes < bytes_max {
                    break;
                }
                if !self.journal.wait_durable(position, PATIENCE) {
                    return Err("events do not become durable".into());
                }
            }
            self.batches.pop_front();
            self.bytes -= bytes;
            self.durable = last;
        }
        Ok(self.durable)
    }

    /// Whether everything is durable.
    pub(super) fn is_settled(&self) -> bool {
        self.batches.is_empty()
    }

    /// Waits for the follower if it is half a ring behind.
    fn give_way(&self) {
        let Some(follower) = &self.follower else {
            return;
        };
        let behind_max = u64::from(self.writer.depth() / 2);
        while self.writer.count() - follower.read.load(Ordering::Acquire) > behind_max
            && !follower.thread.is_finished()
        {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A thread that reads the ring as another process does.
struct Follower {
    thread: JoinHandle<Result<FollowedEvents, String>>,
    read: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Follower {
    fn start(ring: &Path) -> Self {
        let (read, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (of_read, of_over, ring): (_, _, PathBuf) =
            (Arc::clone(&read), Arc::clone(&is_over), ring.to_owned());
        let thread = std::thread::spawn(move || {
            follow(&ring, &of_read, &of_over).map_err(|fault| fault.to_string())
        });
        Self {
            thread,
            read,
            is_over,
        }
    }

    fn finish(self) -> Result<u64, Fault> {
        self.is_over.store(true, Ordering::Release);
        let followed = self
            .thread
            .join()
            .map_err(|_| "the follower has failed")??;
        match followed.lost {
            0 => Ok(followed.events),
            lost => Err(format!("the follower was overtaken by {lost} events").into()),
        }
    }
}

/// What a follower has read.
#[derive(Default)]
pub(super) struct FollowedEvents {
    /// Number of events.
    pub events: u64,
    /// Number of those that the ring no longer had.
    pub lost: u64,
    /// Time of the monotonic clock at which the last one was read, in ns.
    pub last_ns: i64,
}

/// Reads and decodes the events of a ring, until it is over and there are no more.
pub(super) fn follow(
    ring: &Path,
    read: &AtomicU64,
    is_over: &AtomicBool,
) -> Result<FollowedEvents, Fault> {
    let reader = SegmentReader::open(ring)?;
    let directory = reader.directory();
    let entry = directory.entries.first().ok_or("the ring is not there")?;
    let stream = reader.stream(entry);
    let (mut followed, mut samples, mut cursor) = (FollowedEvents::default(), Vec::new(), 0);
    loop {
        let was_over = is_over.load(Ordering::Acquire);
        let scan = stream.scan_some(cursor, 1_024, &mut samples);
        let scan = scan.ok_or("the ring has ended")?;
        for sample in samples.drain(..) {
            let Value::Bytes(bytes) = &sample.value else {
                return Err("an event is bytes".into());
            };
            std::hint::black_box(decode(bytes, sample.ts)?);
            followed.events += 1;
        }
        followed.lost += scan.lost;
        if scan.cursor != cursor {
            cursor = scan.cursor;
            read.store(cursor, Ordering::Release);
            followed.last_ns = super::monotonic_ns();
        } else if was_over {
            return Ok(followed);
        } else {
            stream.wait(cursor, LOOK);
        }
    }
}
