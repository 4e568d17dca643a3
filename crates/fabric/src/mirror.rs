//! Mirrors: the streams of another node, as far as its feed has brought them here.
//!
//! A mirror trusts nothing that a frame contains. It takes each sample once and in order: a feed is
//! an ordered row of frames, and a hole in it ends the feed. The subscriber then asks for a new one
//! from where it is, so that the owner's rings and archive fill the hole.

use std::collections::HashMap;
use std::sync::Arc;

use barograph_model::{NS_PER_S, Sample, SeriesId, StreamKey, ValueType};
use barograph_stream::Incarnation;

use crate::frame::{
    Announcement, Batch, FrameFault, FrameReader, POSITIONS_MAX, Position, Section,
};

/// Time before the newest life of an earlier mirror from which on its owner may have had streams
/// that the mirror had nothing of, in ns: what was announced last may have brought no sample.
const RESUME_NS: i64 = 600 * NS_PER_S;

/// A receiver of another node's samples.
pub trait MirrorSink {
    /// Creates a stream; `None` if a limit is reached. The loss has then been counted.
    fn declare(&mut self, announcement: &Announcement) -> Option<StreamKey>;

    /// Ends a stream.
    fn retire(&mut self, key: StreamKey);

    /// Appends a sample. `number` is its number in the stream's life at its owner.
    fn append(&mut self, key: StreamKey, number: u64, sample: &Sample);

    /// Appends a sample that was taken in before this mirror began: its history has it, its memory
    /// has not.
    fn recall(&mut self, key: StreamKey, number: u64, sample: &Sample);

    /// Records that the newest value held until at least `looked_ns`.
    fn confirm(&mut self, key: StreamKey, looked_ns: i64);

    /// Records that the stream is looked at in this interval from now on, in ns.
    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64);

    /// Records that `count` samples from number `first` on are not to be had any more.
    fn miss(&mut self, key: StreamKey, first: u64, count: u64);
}

/// Outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The frame was taken in, and can be acknowledged.
    Taken,
    /// The frame was taken in before, or belongs to a feed that has ended.
    Known,
    /// Frames are missing before this one: the feed has ended, and the subscriber must ask for a
    /// new one.
    Hole,
}

/// Counts of what a mirror has taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounts {
    /// Frames taken in.
    pub frames: u64,
    /// Frames that came twice, or after their feed had ended.
    pub known: u64,
    /// Frames that were refused.
    pub refused: u64,
    /// Holes in feeds.
    pub holes: u64,
    /// Samples taken in.
    pub samples: u64,
    /// Samples that their owner no longer had when they were asked for.
    pub missed: u64,
    /// Samples of streams for which there is no room here.
    pub unplaced: u64,
}

impl MirrorCounts {
    /// The counts of two mirrors together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            known: self.known + other.known,
            refused: self.refused + other.refused,
            holes: self.holes + other.holes,
            samples: self.samples + other.samples,
            missed: self.missed + other.missed,
            unplaced: self.unplaced + other.unplaced,
        }
    }
}

/// The streams of another node's segment, as far as its feed has brought them here.
#[derive(Debug)]
pub struct Mirror {
    streams_max: usize,
    feed: Option<OpenFeed>,
    /// The present life of each series.
    lives: HashMap<SeriesId, Life>,
    /// Last samples of lives that were taken in before this mirror began and were not announced
    /// yet; and those that have ended in a feed that was not whole yet.
    had: HashMap<(SeriesId, i64), u64>,
    /// Time of the newest registration of a stream up to which all streams were announced, ns since
    /// the epoch; 0 before the first feed that was whole.
    newest_life_ns: i64,
    /// The scopes that the owner publishes beside these streams.
    scopes: Vec<Arc<str>>,
    counts: MirrorCounts,
    batch: Batch,
}

/// The feed that is being taken in.
#[derive(Debug)]
struct OpenFeed {
    id: u64,
    /// Incarnation of the owner's segment, from the first frame on.
    incarnation: Option<Incarnation>,
    /// Number of the newest frame that was taken in.
    number: u64,
    /// Time at which it was sent, by its owner's clock.
    sent_ns: i64,
    streams: HashMap<u32, SeriesId>,
    /// Whether all streams of its beginning were announced.
    is_whole: bool,
    /// Time of the newest registration among the announced streams, ns since the epoch.
    newest_life_ns: i64,
    /// Whether it has told scopes.
    has_told_scopes: bool,
}

/// The life of a stream at its owner.
#[derive(Debug)]
struct Life {
    /// The stream here; `None` if there was no room for it.
    key: Option<StreamKey>,
    /// Time at which the stream was registered at its owner, ns since the epoch.
    life_ns: i64,
    value_type: ValueType,
    /// Number of the newest sample that was taken in or is missed; 0 before the first.
    number: u64,
    /// Number of the newest sample that was taken in before this mirror began; 0 if none was.
    had: u64,
    /// Time of the newest look that was taken in, by the owner's clock, ns since the epoch.
    looked_ns: i64,
    /// Whether it began when all earlier streams were known, so that all of its samples are wanted.
    is_whole: bool,
    /// The feed that last announced this life, and its reference there. A life that a later feed
    /// does not announce is over.
    announced: (u64, u32),
}

impl Life {
    /// The number of its [`Position`].
    fn position(&self) -> u64 {
        match self.number.max(self.had) {
            0 if !self.is_whole => Position::RING_ONLY,
            number => number,
        }
    }
}

impl Mirror {
    /// Makes an empty mirror of at most `streams_max` streams.
    pub fn new(streams_max: usize) -> Self {
        Self {
            streams_max,
            feed: None,
            lives: HashMap::new(),
            had: HashMap::new(),
            newest_life_ns: 0,
            scopes: Vec::new(),
            counts: MirrorCounts::default(),
            batch: Batch::empty(),
        }
    }

    /// Begins where an earlier mirror ended: samples up to these positions are known.
    pub fn resume(&mut self, positions: &[Position]) {
        let had = positions.iter().take(POSITIONS_MAX);
        self.had = had.map(|p| ((p.series, p.life_ns), p.number)).collect();
        let newest_ns = positions.iter().map(|p| p.life_ns).max();
        self.newest_life_ns = newest_ns.map_or(0, |ns| ns.saturating_sub(RESUME_NS));
    }

    /// Time of the newest registration of a stream up to which all streams of the owner were
    /// announced, ns since the epoch; 0 before the first feed that was whole.
    pub fn newest_life_ns(&self) -> i64 {
        self.newest_life_ns
    }

    /// The scopes of applications that the owner publishes beside these streams, as it has told
    /// them last.
    pub fn scopes(&self) -> &[Arc<str>] {
        &self.scopes
    }

    /// Expects the frames of feed `id` from now on; those of earlier feeds are ignored.
    pub fn expect(&mut self, id: u64) {
        self.feed = Some(OpenFeed {
            id,
            incarnation: None,
            number: 0,
            sent_ns: 0,
            streams: HashMap::new(),
            is_whole: false,
            newest_life_ns: 0,
            has_told_scopes: false,
        });
    }

    /// Last sample of each life that was taken in, for at most [`POSITIONS_MAX`] of them, for the
    /// subscription to a new feed.
    pub fn positions(&self) -> Vec<Position> {
        let position = |(series, life): (&SeriesId, &Life)| Position {
            series: *series,
            life_ns: life.life_ns,
            number: life.position(),
        };
        let had = |(&(series, life_ns), &number): (&(SeriesId, i64), &u64)| Position {
            series,
            life_ns,
            number,
        };
        let taken = self.lives.iter().map(position);
        let mut positions: Vec<Position> = taken.chain(self.had.iter().map(had)).collect();
        positions.sort_by_key(|p| (p.series, p.life_ns));
        positions.truncate(POSITIONS_MAX);
        positions
    }

    /// Takes in a frame of samples. After a fault the feed has ended, as after a hole: parts of the
    /// frame may have been taken in, and their numbers are known.
    pub fn receive(
        &mut self,
        frame: &[u8],
        sink: &mut impl MirrorSink,
    ) -> Result<Received, FrameFault> {
        let received = self.take_in(frame, sink);
        match received {
            Ok(Received::Taken) => self.counts.frames += 1,
            Ok(Received::Known) => self.counts.known += 1,
            Ok(Received::Hole) => self.counts.holes += 1,
            Err(_) => self.counts.refused += 1,
        }
        received
    }

    /// The feed's number and that of its newest frame, to be acknowledged; `None` if the feed has
    /// ended.
    pub fn progress(&self) -> Option<(u64, u64)> {
        self.feed.as_ref().map(|feed| (feed.id, feed.number))
    }

    /// Time at which the newest frame was sent, by its owner's clock, ns since the epoch; 0 if the
    /// feed has brought none.
    pub fn sent_ns(&self) -> i64 {
        self.feed.as_ref().map_or(0, |feed| feed.sent_ns)
    }

    /// Counts of what was taken in so far.
    pub fn counts(&self) -> MirrorCounts {
        self.counts
    }

    /// Ends all streams.
    pub fn clear(&mut self, sink: &mut impl MirrorSink) {
        let mut keys: Vec<StreamKey> = self.lives.values().filter_map(|life| life.key).collect();
        keys.sort_by_key(|key| key.0);
        keys.into_iter().for_each(|key| sink.retire(key));
        self.lives.clear();
        self.feed = None;
    }

    fn take_in(
        &mut self,
        frame: &[u8],
        sink: &mut impl MirrorSink,
    ) -> Result<Received, FrameFault> {
        let mut reader = FrameReader::open(frame)?;
        let header = *reader.header();
        let Some(feed) = self.feed.as_mut().filter(|feed| feed.id == header.feed) else {
            return Ok(Received::Known);
        };
        if header.number <= feed.number {
            return Ok(Received::Known);
        }
        let is_other = feed.incarnation.is_some_and(|i| i != header.incarnation);
        if header.number != feed.number + 1 || is_other {
            self.feed = None;
            return Ok(Received::Hole);
        }
        feed.incarnation = Some(header.incarnation);
        feed.number = header.number;
        feed.sent_ns = header.sent_ns;
        let mut batch = std::mem::replace(&mut self.batch, Batch::empty());
        let result = self.take_sections(&mut reader, &mut batch, sink);
        self.batch = batch;
        if result.is_err() {
            self.feed = None;
        }
        result.map(|()| Received::Taken)
    }

    fn take_sections(
        &mut self,
        reader: &mut FrameReader<'_>,
        batch: &mut Batch,
        sink: &mut impl MirrorSink,
    ) -> Result<(), FrameFault> {
        while let Some(section) = reader.next(batch)? {
            let fault = match section {
                Section::Announced(announcement) => self.announced(&announcement, sink),
                Section::Retired(reference) => self.retired(reference, sink),
                Section::Complete => self.end_lives_before(sink),
                Section::Interval(reference, ns) => self.interval_changed(reference, ns, sink),
                Section::Batch => self.take_batch(batch, sink),
                Section::Scopes(names) => self.scopes_told(names),
            };
            fault.ok_or(FrameFault::Malformed { part: "references" })?;
        }
        Ok(())
    }

    fn announced(&mut self, announced: &Announcement, sink: &mut impl MirrorSink) -> Option<()> {
        let feed = self.feed.as_mut()?;
        let series = announced.descriptor.series_id();
        let reference = announced.reference;
        // An owner that announces more streams than it was told there is room for is not believed.
        if feed.streams.len() >= self.streams_max
            || feed.streams.insert(reference, series).is_some()
        {
            return None;
        }
        let is_later = self.newest_life_ns != 0 && announced.life_ns > self.newest_life_ns;
        feed.newest_life_ns = feed.newest_life_ns.max(announced.life_ns);
        if feed.is_whole {
            self.newest_life_ns = self.newest_life_ns.max(announced.life_ns);
        }
        let place = (feed.id, reference);
        match self.lives.get_mut(&series) {
            Some(known) if known.life_ns == announced.life_ns => known.announced = place,
            known => {
                // A series has one life at a time.
                if let Some(key) = known.and_then(|life| life.key) {
                    sink.retire(key);
                }
                let had = self.had.remove(&(series, announced.life_ns));
                let had = had.filter(|had| *had != Position::RING_ONLY).unwrap_or(0);
                let life = Life {
                    key: sink.declare(announced),
                    life_ns: announced.life_ns,
                    value_type: announced.descriptor.value_type,
                    number: 0,
                    had,
                    looked_ns: i64::MIN,
                    is_whole: is_later || feed.is_whole,
                    announced: place,
                };
                self.lives.insert(series, life);
            }
        }
        Some(())
    }

    /// Ends the lives that earlier feeds have brought and this one has not: they were over before
    /// it began.
    fn end_lives_before(&mut self, sink: &mut impl MirrorSink) -> Option<()> {
        let feed = self.feed.as_mut()?;
        let id = feed.id;
        feed.is_whole = true;
        if !feed.has_told_scopes {
            self.scopes.clear();
        }
        self.newest_life_ns = self.newest_life_ns.max(feed.newest_life_ns);
        self.had.clear();
        let over = self.lives.extract_if(|_, life| life.announced.0 != id);
        let mut keys: Vec<StreamKey> = over.filter_map(|(_, life)| life.key).collect();
        keys.sort_by_key(|key| key.0);
        keys.into_iter().for_each(|key| sink.retire(key));
        Some(())
    }

    fn scopes_told(&mut self, names: Vec<Arc<str>>) -> Option<()> {
        self.feed.as_mut()?.has_told_scopes = true;
        self.scopes = names;
        Some(())
    }

    fn retired(&mut self, reference: u32, sink: &mut impl MirrorSink) -> Option<()> {
        let feed = self.feed.as_mut()?;
        let series = feed.streams.remove(&reference)?;
        // A reference whose series has a newer life stands for nothing any more.
        let (place, is_whole) = ((feed.id, reference), feed.is_whole);
        let life = self.lives.get(&series);
        if life.is_some_and(|life| life.announced == place)
            && let Some(life) = self.lives.remove(&series)
        {
            if !is_whole && self.had.len() < POSITIONS_MAX {
                let number = life.position();
                self.had.insert((series, life.life_ns), number);
            }
            life.key.into_iter().for_each(|key| sink.retire(key));
        }
        Some(())
    }

    fn interval_changed(
        &mut self,
        reference: u32,
        interval_ns: i64,
        sink: &mut impl MirrorSink,
    ) -> Option<()> {
        let feed = self.feed.as_ref()?;
        let life = self.lives.get(feed.streams.get(&reference)?)?;
        let its_key = life.key.filter(|_| life.announced == (feed.id, reference));
        if let Some(key) = its_key {
            sink.expect_interval(key, interval_ns);
        }
        Some(())
    }

    fn take_batch(&mut self, batch: &Batch, sink: &mut impl MirrorSink) -> Option<()> {
        let feed = self.feed.as_ref()?;
        let series = feed.streams.get(&batch.reference)?;
        let life = self.lives.get_mut(series)?;
        let is_its = life.announced == (feed.id, batch.reference);
        if !is_its || life.value_type != batch.value_type {
            return None;
        }
        let count = batch.samples.len() as u64;
        let Some(key) = life.key else {
            self.counts.unplaced += count;
            return Some(());
        };
        let newest = life.number.max(life.had);
        if batch.first > newest + 1 && newest > 0 {
            let missed = batch.first - newest - 1;
            sink.miss(key, newest + 1, missed);
            self.counts.missed += missed;
        }
        let known = (life.number + 1).saturating_sub(batch.first).min(count);
        let new = &batch.samples[known as usize..];
        for (number, sample) in (batch.first + known..).zip(new) {
            match number <= life.had {
                true => sink.recall(key, number, sample),
                false => sink.append(key, number, sample),
            }
        }
        life.number = life.number.max(batch.first + count - 1);
        self.counts.samples += new.len() as u64;
        // Samples that come again tell an earlier look. An owner's clock may be set back all the
        // same.
        let is_known = count > 0 && batch.first + count - 1 <= newest;
        if !is_known || batch.looked_ns >= life.looked_ns {
            life.looked_ns = batch.looked_ns;
            sink.confirm(key, batch.looked_ns);
        }
        Some(())
    }
}
