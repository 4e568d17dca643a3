//! The sink over a segment: it maps keys to stream writers, and passes samples to the archive and
//! wake-ups to readers.

use std::sync::Arc;

use barograph_archive::aggregate::hour_of;
use barograph_archive::{DeclaredStream, Journal, JournalEntry, JournalPosition, RingMark};
use barograph_model::{
    Clock, Descriptor, NS_PER_S, Quality, Sample, Sink, StreamKey, Value, text_start,
};
use barograph_stream::{Incarnation, Segment, StreamError, StreamWriter};
use tracing::warn;

/// Number of entries at which they are handed to the archive before the tick ends.
const ENTRIES_MAX: usize = 8_192;

/// Number of intervals without a look after which there is a gap: the value is not known to have
/// held.
const MISSED: i64 = 3;
/// Shortest time without a look that is a gap.
const MISSED_NS_MIN: i64 = NS_PER_S;

/// All streams of one segment, by key.
pub struct Streams<'c> {
    segment: Segment,
    clock: &'c dyn Clock,
    live: Vec<Option<Live>>,
    free: Vec<u32>,
    wake_mask: u32,
    refused_logged: bool,
    archive: Option<Handover>,
    repeat_ns: u64,
    newest_life: i64,
}

/// One registered stream.
struct Live {
    writer: StreamWriter,
    /// The sample that was appended last; a confirmation repeats it.
    newest: Option<Sample>,
    /// Interval between looks, in ns; 0 if it is unknown, as for values that are put by programs.
    interval_ns: i64,
    /// The longest interval that was in force since the last look, in ns.
    longest_ns: i64,
}

impl Live {
    /// The sample that ends the newest value at its last look; `None` if it was appended already,
    /// or if the stream has no interval.
    fn ended(&self, looked_ns: i64) -> Option<Sample> {
        let newest = self.newest.as_ref().filter(|_| self.interval_ns > 0)?;
        (newest.quality != Quality::Ended).then(|| Sample {
            ts: looked_ns.max(newest.ts),
            quality: Quality::Ended,
            ..newest.clone()
        })
    }

    /// The newest value with the time of its last look; `None` if it was appended with that time
    /// already.
    fn held(&self) -> Option<Sample> {
        let looked_ns = self.writer.looked_ns();
        let newest = self.newest.as_ref().filter(|s| s.ts < looked_ns)?;
        Some(Sample {
            ts: looked_ns,
            ..newest.clone()
        })
    }

    /// Whether a look at `ts` is in a later hour than the newest sample. Each hour's samples are a
    /// file of the archive, and must show by themselves for how long values held in that hour.
    fn is_next_hour(&self, ts: i64) -> bool {
        let newest = self.newest.as_ref().filter(|_| self.interval_ns > 0);
        newest.is_some_and(|s| ts >= hour_of(s.ts).to)
    }

    /// Notes a look at `ts`; returns whether it comes so much later than the one before that there
    /// is a gap.
    fn is_late(&mut self, ts: i64) -> bool {
        let looked_ns = self.writer.looked_ns();
        if ts <= looked_ns {
            return false;
        }
        // The longest interval since the last look counts: one that has just become shorter does
        // not apply to the wait that ends with this look.
        let longest_ns = std::mem::replace(&mut self.longest_ns, self.interval_ns);
        let missed_ns = longest_ns.saturating_mul(MISSED).max(MISSED_NS_MIN);
        self.interval_ns > 0 && looked_ns > 0 && ts.saturating_sub(looked_ns) > missed_ns
    }
}

/// Entries that were appended and are not in the archive's journal yet.
struct Handover {
    journal: Journal,
    entries: Vec<JournalEntry>,
    /// Position in the journal of the entries that were handed over since the last tick.
    submitted: Option<JournalPosition>,
}

impl Handover {
    fn push(&mut self, entry: JournalEntry) {
        self.entries.push(entry);
        if self.entries.len() >= ENTRIES_MAX {
            self.submit();
        }
    }

    fn submit(&mut self) {
        if !self.entries.is_empty() {
            self.submitted = Some(self.journal.submit(&mut self.entries));
        }
    }
}

impl<'c> Streams<'c> {
    /// Makes a sink over an empty segment. Appended samples also go to the journal, if there is
    /// one. A value that holds is appended again when its newest sample is `repeat_ns` old.
    pub fn new(
        segment: Segment,
        clock: &'c dyn Clock,
        journal: Option<Journal>,
        repeat_ns: i64,
    ) -> Self {
        Self {
            segment,
            clock,
            live: Vec::new(),
            free: Vec::new(),
            wake_mask: 0,
            refused_logged: false,
            archive: journal.map(|journal| Handover {
                journal,
                entries: Vec::new(),
                submitted: None,
            }),
            repeat_ns: repeat_ns.unsigned_abs(),
            newest_life: i64::MIN,
        }
    }

    /// Appends the sample if the value changed, and returns whether it did. A value that has held
    /// for long is appended again, which does not count as a change.
    pub fn look(&mut self, key: StreamKey, sample: &Sample) -> bool {
        let has_resumed = self.resume(key, sample.ts).is_some();
        let Some(Some(live)) = self.live.get_mut(key.0 as usize) else {
            return false;
        };
        let changed = match live.writer.look(sample) {
            Ok(changed) => changed,
            Err(error) => return defect(&error),
        };
        // The distance in time counts, also into the future: if the clock was set back, the newest
        // sample's time means nothing for now.
        let holds = |newest: &Sample| newest.ts.abs_diff(sample.ts) < self.repeat_ns;
        if !changed && !has_resumed && live.newest.as_ref().is_none_or(holds) {
            return false;
        }
        if !changed && let Err(error) = live.writer.append(sample) {
            return defect(&error);
        }
        self.appended(key, sample.clone(), None);
        changed
    }

    /// The sample that was appended last.
    pub fn newest(&self, key: StreamKey) -> Option<&Sample> {
        let live = self.live.get(key.0 as usize)?.as_ref()?;
        live.newest.as_ref()
    }

    /// Appends a projection if it changed, as [`Self::look`] does; allocates nothing if it has not
    /// changed.
    pub fn look_floats(&mut self, key: StreamKey, ts: i64, floats: &[f64]) -> bool {
        let is_same = self.newest(key).is_some_and(|newest| match &newest.value {
            Value::Floats(newest) => {
                let newest = newest.iter().map(|v| v.to_bits());
                newest.eq(floats.iter().map(|v| v.to_bits()))
            }
            _ => false,
        });
        if is_same {
            self.confirm(key, ts);
            return false;
        }
        let said = Sample {
            ts,
            value: Value::Floats(floats.into()),
            quality: Quality::Predicted,
            error: 0.0,
        };
        self.look(key, &said)
    }

    /// Appends the sample even if the value has not changed, since each value that a program puts
    /// counts. The mark is how far the program's ring was read with it: the archive has both or
    /// neither.
    pub fn append(&mut self, key: StreamKey, sample: &Sample, mark: Option<RingMark>) {
        let Some(Some(live)) = self.live.get_mut(key.0 as usize) else {
            return;
        };
        match live.writer.append(sample) {
            Ok(()) => self.appended(key, sample.clone(), mark),
            Err(error) => {
                defect(&error);
            }
        }
    }

    /// Passes on a sample that the stream's writer has just appended: to the archive, and to
    /// waiting readers.
    fn appended(&mut self, key: StreamKey, mut sample: Sample, mark: Option<RingMark>) {
        let Some(Some(live)) = self.live.get_mut(key.0 as usize) else {
            return;
        };
        if let Value::Text(text) = &sample.value
            && text.len() > live.writer.value_bytes_max()
        {
            // The archive gets the text cut as the ring has it.
            let text = text_start(text, live.writer.value_bytes_max());
            sample.value = Value::Text(text.into());
        }
        self.wake_mask |= live.writer.wake_bit();
        if let Some(archive) = &mut self.archive {
            let number = live.writer.count();
            let sample = sample.clone();
            archive.push(match mark {
                Some(mark) => JournalEntry::Read(key, number, sample, mark),
                None => JournalEntry::Sample(key, number, sample),
            });
        }
        live.newest = Some(sample);
    }

    /// Prepares a look at `ts`: if there was a gap or an hour has ended since, appends the end of
    /// the time for which the newest value held. Returns that value, which must be appended again
    /// if it still holds.
    fn resume(&mut self, key: StreamKey, ts: i64) -> Option<Sample> {
        let live = self.live.get_mut(key.0 as usize)?.as_mut()?;
        let before = if live.is_late(ts) {
            live.ended(live.writer.looked_ns())
        } else if live.is_next_hour(ts) {
            live.held()
        } else {
            return None;
        };
        let newest = live.newest.clone()?;
        if let Some(before) = before {
            self.append(key, &before, None);
        }
        Some(newest)
    }

    /// Appends the last look at a stream that ends or whose agent ends: from then on its samples
    /// are all that is known. A stream without an interval has no looks, so its newest value is
    /// repeated only if it was confirmed at a later time.
    fn settle(&mut self, key: StreamKey) {
        let Some(Some(live)) = self.live.get(key.0 as usize) else {
            return;
        };
        let last = match live.interval_ns {
            0 => live.held(),
            _ => live.ended(live.writer.looked_ns()),
        };
        if let Some(last) = last {
            self.append(key, &last, None);
        }
    }

    /// Appends the last look at every stream; called when the agent ends.
    pub fn settle_all(&mut self) {
        for key in 0..self.live.len() as u32 {
            self.settle(StreamKey(key));
        }
    }

    /// Ends a tick: hands the archive what was appended since the last call, and wakes readers that
    /// wait for it. Makes no system call if none waits. Returns the position in the journal, if
    /// anything was handed over.
    pub fn finish(&mut self) -> Option<JournalPosition> {
        self.segment.wake(std::mem::take(&mut self.wake_mask));
        let archive = self.archive.as_mut()?;
        archive.submit();
        archive.submitted.take()
    }

    /// Makes the archive forget how far the rings of this ingest file were read.
    pub fn forget(&mut self, incarnation: Incarnation) {
        if let Some(archive) = &mut self.archive {
            archive.push(JournalEntry::Forget(incarnation));
        }
    }

    /// The wall-clock time, in ns since the epoch.
    pub fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// The segment that this sink writes.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Writes the heartbeat and gives back the memory of streams that have ended. Called once a
    /// second.
    pub fn beat(&mut self, now_ns: i64) {
        self.segment.heartbeat(now_ns);
        self.segment.give_memory_back();
    }

    /// Declares a stream whose texts, bytes, JSON values or arrays have at most `value_bytes_max`
    /// bytes (`None`: the default). A refusal is logged and gives `None`.
    pub fn declare_sized(
        &mut self,
        descriptor: &Descriptor,
        depth: Option<u32>,
        value_bytes_max: Option<u32>,
    ) -> Option<StreamKey> {
        match self.register(descriptor, depth, value_bytes_max) {
            Ok(key) => Some(key),
            Err(error) => {
                // Only the first refusal is logged: the segment's header and a stream have the
                // count.
                if !self.refused_logged {
                    self.refused_logged = true;
                    warn!(%error, "a stream is refused; more will be counted in agent.refused.streams.count");
                }
                None
            }
        }
    }

    /// Registers a stream as [`Self::declare_sized`] does, and returns the error if it is refused.
    pub fn register(
        &mut self,
        descriptor: &Descriptor,
        depth: Option<u32>,
        value_bytes_max: Option<u32>,
    ) -> Result<StreamKey, StreamError> {
        // Lives are told apart and ordered by this time, so it rises even if the clock was set
        // back.
        let life = self.clock.now_ns().max(self.newest_life.saturating_add(1));
        let writer = self
            .segment
            .register_sized(descriptor, depth, value_bytes_max, life)?;
        self.newest_life = life;
        let key = self.free.pop().unwrap_or_else(|| {
            self.live.push(None);
            u32::try_from(self.live.len() - 1).expect("bounded by the segment")
        });
        if let Some(archive) = &mut self.archive {
            let declared = DeclaredStream {
                descriptor: Arc::new(descriptor.clone()),
                life,
                depth: writer.depth(),
            };
            archive.push(JournalEntry::Declare(StreamKey(key), declared));
        }
        self.live[key as usize] = Some(Live {
            writer,
            newest: None,
            interval_ns: 0,
            longest_ns: 0,
        });
        Ok(StreamKey(key))
    }
}

/// Logs an error that is a defect of this program: a writer broke its own declaration.
fn defect(error: &StreamError) -> bool {
    debug_assert!(false, "{error}");
    warn!(%error, "sample dropped");
    false
}

impl Sink for Streams<'_> {
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey> {
        self.declare_sized(descriptor, depth, None)
    }

    fn retire(&mut self, key: StreamKey) {
        self.settle(key);
        if let Some(live) = self.live.get_mut(key.0 as usize).and_then(Option::take) {
            self.segment.retire(live.writer);
            self.free.push(key.0);
            if let Some(archive) = &mut self.archive {
                archive.push(JournalEntry::Retire(key));
            }
        }
    }

    fn put(&mut self, key: StreamKey, sample: &Sample) {
        self.look(key, sample);
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        if let Some(newest) = self.resume(key, looked_ns) {
            let again = Sample {
                ts: looked_ns,
                ..newest
            };
            self.append(key, &again, None);
            return;
        }
        let Some(Some(live)) = self.live.get_mut(key.0 as usize) else {
            return;
        };
        // Only an older sample is repeated: the looks of an insight are those of its stalest input,
        // so `looked_ns` may lie before the newest sample.
        let old = |s: &&Sample| {
            let age_ns = looked_ns.saturating_sub(s.ts);
            age_ns > 0 && age_ns.unsigned_abs() >= self.repeat_ns
        };
        let Some(newest) = live.newest.as_ref().filter(old) else {
            live.writer.confirm(looked_ns);
            return;
        };
        let again = Sample {
            ts: looked_ns,
            ..newest.clone()
        };
        self.append(key, &again, None);
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        if let Some(Some(live)) = self.live.get_mut(key.0 as usize) {
            live.interval_ns = interval_ns;
            live.longest_ns = live.longest_ns.max(interval_ns);
            self.segment.expect_interval(&live.writer, interval_ns);
        }
    }
}

#[cfg(test)]
mod tests;
