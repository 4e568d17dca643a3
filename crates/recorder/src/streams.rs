//! The sink that is a segment: keys to writers, samples to the archive, changes to the insight graph,
//! wakes to readers.

use std::sync::Arc;

use barograph_archive::aggregate::hour_of;
use barograph_archive::{Declared, Entry, Journal, Mark, Position};
use barograph_model::{
    Clock, Descriptor, NS_PER_S, Quality, Sample, Sink, StreamKey, Value, text_start,
};
use barograph_stream::{Incarnation, Segment, StreamError, StreamWriter};
use tracing::warn;

/// Entries that are collected before the archive is handed them, though the tick is not over.
const ENTRIES_MAX: usize = 8_192;

/// After so many intervals without a look nobody looked: what held before is not known to have held then…
const MISSED: i64 = 3;
/// …but not where that is shorter than this.
const MISSED_NS_MIN: i64 = NS_PER_S;

/// Every stream of this node by its key.
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

/// One stream.
struct Live {
    writer: StreamWriter,
    /// What was appended last, for those who only say that it still holds.
    newest: Option<Sample>,
    /// When it is looked at: 0 where that is told by nobody, as of values that somebody puts.
    interval_ns: i64,
    /// The longest of the intervals that were in force since the last look.
    longest_ns: i64,
}

impl Live {
    /// The last look at what was appended last, where it is not said yet.
    fn ended(&self, looked_ns: i64) -> Option<Sample> {
        let newest = self.newest.as_ref().filter(|_| self.interval_ns > 0)?;
        (newest.quality != Quality::Ended).then(|| Sample {
            ts: looked_ns.max(newest.ts),
            quality: Quality::Ended,
            ..newest.clone()
        })
    }

    /// The value of the last look at the time of that look, where it was appended only of an earlier one.
    fn held(&self) -> Option<Sample> {
        let looked_ns = self.writer.looked_ns();
        let newest = self.newest.as_ref().filter(|s| s.ts < looked_ns)?;
        Some(Sample {
            ts: looked_ns,
            ..newest.clone()
        })
    }

    /// Whether a look at `ts` is in a later hour than what was appended last: the samples of an hour, which are a file of the
    /// archive, say by themselves for how long values held in it.
    fn is_next_hour(&self, ts: i64) -> bool {
        let newest = self.newest.as_ref().filter(|_| self.interval_ns > 0);
        newest.is_some_and(|s| ts >= hour_of(s.ts).to)
    }

    /// Takes note of a look at `ts`; whether it comes much later than the one before it.
    fn is_late(&mut self, ts: i64) -> bool {
        let looked_ns = self.writer.looked_ns();
        if ts <= looked_ns {
            return false;
        }
        // An interval that has just become shorter is none of the wait that ends with this look.
        let longest_ns = std::mem::replace(&mut self.longest_ns, self.interval_ns);
        let missed_ns = longest_ns.saturating_mul(MISSED).max(MISSED_NS_MIN);
        self.interval_ns > 0 && looked_ns > 0 && ts.saturating_sub(looked_ns) > missed_ns
    }
}

/// What was appended and the archive does not have yet.
struct Handover {
    journal: Journal,
    entries: Vec<Entry>,
    /// Where what was handed over since the last tick lies.
    submitted: Option<Position>,
}

impl Handover {
    fn push(&mut self, entry: Entry) {
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
    /// Over an empty segment. What is appended is handed to the journal, if there is one; a value that
    /// holds is appended again when its newest sample is `repeat_ns` old.
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

    /// Appends if changed; whether it was. A value that has held for long is appended again, which is
    /// no change.
    pub fn look(&mut self, key: StreamKey, sample: &Sample) -> bool {
        let has_resumed = self.resume(key, sample.ts).is_some();
        let Some(Some(live)) = self.live.get_mut(key.0 as usize) else {
            return false;
        };
        let changed = match live.writer.look(sample) {
            Ok(changed) => changed,
            Err(error) => return defect(&error),
        };
        // Also when the clock was set back: a sample far in the future says nothing of now.
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

    /// What was appended last.
    pub fn newest(&self, key: StreamKey) -> Option<&Sample> {
        let live = self.live.get(key.0 as usize)?.as_ref()?;
        live.newest.as_ref()
    }

    /// As [`Self::look`], of an array that is said of the future; nothing is allocated where it has not changed.
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

    /// Appends, also what has not changed: for values that somebody put, of which each is one. The mark says
    /// how far a program's ring was read with it: the archive has both, or neither.
    pub fn append(&mut self, key: StreamKey, sample: &Sample, mark: Option<Mark>) {
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

    /// Follows up what the stream's writer has just appended.
    fn appended(&mut self, key: StreamKey, mut sample: Sample, mark: Option<Mark>) {
        let Some(Some(live)) = self.live.get_mut(key.0 as usize) else {
            return;
        };
        if let Value::Text(text) = &sample.value
            && text.len() > live.writer.value_bytes_max()
        {
            // As the ring has it.
            let text = text_start(text, live.writer.value_bytes_max());
            sample.value = Value::Text(text.into());
        }
        self.wake_mask |= live.writer.wake_bit();
        if let Some(archive) = &mut self.archive {
            let number = live.writer.count();
            let sample = sample.clone();
            archive.push(match mark {
                Some(mark) => Entry::Read(key, number, sample, mark),
                None => Entry::Sample(key, number, sample),
            });
        }
        live.newest = Some(sample);
    }

    /// Before what is found at `ts`: appends up to when the value before it held, if nobody looked for long or an hour has
    /// ended since. Gives that value, which is to be appended again if it still holds.
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

    /// Appends the last look at a stream that has ended, or whose agent has: its samples are all that is known then. A stream
    /// without an interval has no looks, so of it only what was appended at an earlier time is repeated.
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

    /// The agent ends: nothing follows the last looks.
    pub fn settle_all(&mut self) {
        for key in 0..self.live.len() as u32 {
            self.settle(StreamKey(key));
        }
    }

    /// Ends a tick: hands the archive what was appended since the last call, and wakes the readers of
    /// it. No system call when nobody waits. Where in the journal that was, if it was anything.
    pub fn finish(&mut self) -> Option<Position> {
        self.segment.wake(std::mem::take(&mut self.wake_mask));
        let archive = self.archive.as_mut()?;
        archive.submit();
        archive.submitted.take()
    }

    /// The archive need not know any more how far a program's rings were read.
    pub fn forget(&mut self, incarnation: Incarnation) {
        if let Some(archive) = &mut self.archive {
            archive.push(Entry::Forget(incarnation));
        }
    }

    /// What time it is.
    pub fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Once a second: says that the agent lives, and gives back the memory of streams that have ended.
    pub fn beat(&mut self, now_ns: i64) {
        self.segment.heartbeat(now_ns);
        self.segment.give_memory_back();
    }

    /// Makes a stream whose texts, bytes, JSON or arrays have at most so many bytes (`None`: as is usual).
    pub fn declare_sized(
        &mut self,
        descriptor: &Descriptor,
        depth: Option<u32>,
        value_bytes_max: Option<u32>,
    ) -> Option<StreamKey> {
        match self.register(descriptor, depth, value_bytes_max) {
            Ok(key) => Some(key),
            Err(error) => {
                // Once, not per stream: the count is in the segment's header and a stream.
                if !self.refused_logged {
                    self.refused_logged = true;
                    warn!(%error, "a stream is refused; more will be counted in agent.refused.streams.count");
                }
                None
            }
        }
    }

    /// The same, and says why there is none.
    pub fn register(
        &mut self,
        descriptor: &Descriptor,
        depth: Option<u32>,
        value_bytes_max: Option<u32>,
    ) -> Result<StreamKey, StreamError> {
        // Lives are told apart and ordered by this time, also when the clock was set back.
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
            let declared = Declared {
                descriptor: Arc::new(descriptor.clone()),
                life,
                depth: writer.depth(),
            };
            archive.push(Entry::Declare(StreamKey(key), declared));
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

/// A writer that breaks its own declaration is a defect, not an operating condition.
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
                archive.push(Entry::Retire(key));
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
        // Forward only: the looks of an insight are those of its stalest input.
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
