//! Feeds: the samples of one segment on their way to one subscriber.
//!
//! A feed reads the rings as any other reader does, so that the sampler never waits for a
//! subscriber. It stands alone because it decides what a slow subscriber costs: at most its window
//! is on the way, and what the rings have overwritten meanwhile shows as missing numbers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use barograph_model::{Descriptor, Sample, Selector, SeriesId, ValueType};
use barograph_stream::{DirectoryEntry, MIRROR_LOOKS_NS, SegmentReader};

use crate::catch_up::CatchUps;
use crate::feed_lane::{FRAME_BYTES, FeedCounts, FeedLane, unsent_of, write_pieces};
use crate::feed_past::{CatchUpState, ENDED_MAX, FeedPast, PastTarget};
use crate::frame::{
    Announcement, FeedReach, FrameHeader, FrameKind, FrameWriter, Position, Subscription,
};
use crate::past::{EndedQuery, LifePoint, PastRun, PastSource};

/// Bounds of the window that a subscriber may ask for.
const WINDOW_BYTES: (u64, u64) = (FRAME_BYTES as u64, 16 << 20);
/// Time between two frames of a feed that has nothing to say, in ns: the sign that it lives.
pub const BEAT_NS: i64 = 1_000_000_000;
/// Announced depth of a stream that has ended: how many of its last samples a mirror may hold.
const ENDED_DEPTH: u32 = 64;

/// The samples of one segment on their way to one subscriber.
#[derive(Debug)]
pub struct Feed {
    segment: Arc<SegmentReader>,
    id: u64,
    selectors: Vec<Selector>,
    reach: FeedReach,
    /// The readings of the archive; `None` if there is none, or the subscriber wants nothing of it.
    past: Option<FeedPast>,
    window_bytes: u64,
    streams_max: usize,
    /// Last sample of each series that the subscriber had before this feed began.
    had: Arc<HashMap<SeriesId, LifePoint>>,
    /// Time until which the subscriber knew every stream that was registered, ns since the epoch;
    /// `None` if it has never had a whole feed.
    known_until_ns: Option<i64>,
    directory_version: Option<u64>,
    /// The streams that are sent, by slot.
    lanes: Vec<FeedLane>,
    retired: Vec<u32>,
    /// Whether the streams of the feed's beginning have all been announced.
    is_complete: bool,
    /// The scopes that are published beside this segment, if the subscriber is to be told of them.
    scopes: Arc<[Arc<str>]>,
    /// Whether the subscriber has been told.
    has_told_scopes: bool,
    next_reference: u32,
    /// The lane that the next frame begins with, so that a busy stream does not starve others.
    turn: usize,
    /// Number of the newest frame.
    number: u64,
    /// Frames that are sent and not acknowledged, with their bytes.
    on_the_way: VecDeque<(u64, u64)>,
    bytes_on_the_way: u64,
    sent_ns: i64,
    /// Time at which changed intervals were last written, ns since the epoch.
    intervals_ns: i64,
    counts: FeedCounts,
    samples: Vec<Sample>,
}

impl Feed {
    /// Begins a feed of the segment's streams that the subscription asks for. `past` has what the
    /// rings no longer hold, and says what feeds that read it may take together.
    pub(crate) fn new(
        segment: Arc<SegmentReader>,
        id: u64,
        (subscription, selectors): (&Subscription, Vec<Selector>),
        past: Option<(Arc<dyn PastSource>, &CatchUps)>,
    ) -> Self {
        let (least, most) = WINDOW_BYTES;
        let had = Arc::new(had_by(subscription));
        let known_until_ns = Some(subscription.newest_life_ns).filter(|ns| *ns != 0);
        let past = past.filter(|_| subscription.reach == FeedReach::Archive);
        let query = EndedQuery {
            selectors: selectors.clone(),
            has: Arc::clone(&had),
            known_until_ns,
            present: HashMap::new(),
            series_max: ENDED_MAX,
        };
        let lacks_some = known_until_ns.is_some() || !had.is_empty();
        let query = lacks_some.then_some(query);
        Self {
            segment,
            id,
            selectors,
            reach: subscription.reach,
            past: past.map(|(source, catch_ups)| FeedPast::new(source, query, catch_ups)),
            window_bytes: subscription.window_bytes.clamp(least, most),
            streams_max: usize::try_from(subscription.streams_max).unwrap_or(usize::MAX),
            had,
            known_until_ns,
            directory_version: None,
            lanes: Vec::new(),
            retired: Vec::new(),
            is_complete: false,
            scopes: Arc::from([]),
            has_told_scopes: true,
            next_reference: 0,
            turn: 0,
            number: 0,
            on_the_way: VecDeque::new(),
            bytes_on_the_way: 0,
            sent_ns: i64::MIN,
            intervals_ns: i64::MIN,
            counts: FeedCounts::default(),
            samples: Vec::new(),
        }
    }

    /// Has the subscriber told that these scopes are published beside this segment.
    pub(crate) fn tell_scopes(&mut self, scopes: &Arc<[Arc<str>]>) {
        // A feed begins without any.
        if self.scopes != *scopes {
            self.scopes = Arc::clone(scopes);
            self.has_told_scopes = false;
        }
    }

    /// Makes the next frame, in the given buffer; `None` if there is nothing to send at `now_ns`
    /// (ns since the epoch) or the window is full. Call it again until it gives none.
    pub fn next_frame(&mut self, now_ns: i64, buffer: Vec<u8>) -> Option<Vec<u8>> {
        // Also while the window is full: a stream may end meanwhile.
        self.look_at_directory(now_ns);
        if let Some(past) = &mut self.past {
            past.give_up_if_held(now_ns);
            past.end_turn(now_ns);
        }
        // Of a feed that is to end, nothing more is sent: it may have left out an ended life, and
        // must not announce a later one then.
        if self.is_over() || self.bytes_on_the_way >= self.window_bytes {
            return None;
        }
        let mut writer = FrameWriter::begin(buffer, now_ns);
        self.attend_past(now_ns);
        self.announce(&mut writer);
        self.write_past(&mut writer, now_ns);
        self.write_batches(&mut writer, now_ns);
        let is_beat_due = now_ns.abs_diff(self.sent_ns) >= BEAT_NS as u64;
        if writer.is_empty() && !is_beat_due {
            return None;
        }
        self.number += 1;
        self.sent_ns = now_ns;
        let frame = writer.finish(&FrameHeader {
            kind: FrameKind::Samples,
            incarnation: self.segment.incarnation(),
            feed: self.id,
            number: self.number,
            sent_ns: now_ns,
        });
        let bytes = frame.len() as u64;
        self.on_the_way.push_back((self.number, bytes));
        self.bytes_on_the_way += bytes;
        self.counts.frames += 1;
        self.counts.bytes += bytes;
        Some(frame)
    }

    /// Notes that the subscriber has taken in all frames up to this number.
    pub fn acknowledge(&mut self, number: u64) {
        while let Some((sent, bytes)) = self.on_the_way.front().copied()
            && sent <= number
        {
            self.on_the_way.pop_front();
            self.bytes_on_the_way -= bytes;
        }
    }

    /// Number of the feed, which its subscriber has chosen.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The segment that the samples come from.
    pub fn segment(&self) -> &Arc<SegmentReader> {
        &self.segment
    }

    /// Counts of what was sent so far.
    pub fn counts(&self) -> FeedCounts {
        let given_up = self.past.as_ref().map(|past| past.given_up);
        let given_up = given_up.unwrap_or_default();
        FeedCounts {
            ended_unsent: given_up.unsent,
            ended_unread: given_up.unread,
            searches_failed: given_up.searches,
            ..self.counts
        }
    }

    /// Number of series of which the feed keeps how far the subscriber had them.
    pub(crate) fn positions(&self) -> usize {
        self.had.len()
    }

    /// Whether the subscriber catches up from the archive.
    pub(crate) fn catch_up(&self) -> CatchUpState {
        let past = self.past.as_ref();
        past.map_or(CatchUpState::Over, FeedPast::catch_up)
    }

    /// Whether the feed is to end, so that its subscriber asks again: others need its turn, or
    /// there are more ended series than all feeds may have together.
    pub(crate) fn is_over(&self) -> bool {
        self.past.as_ref().is_some_and(|past| past.is_over)
    }

    /// Follows the streams that have come or gone.
    fn look_at_directory(&mut self, now_ns: i64) {
        if self.directory_version == Some(self.segment.directory_version()) {
            return;
        }
        let directory = self.segment.directory();
        self.directory_version = Some(directory.version);
        let before = std::mem::take(&mut self.lanes);
        let mut before: HashMap<_, _> =
            before.into_iter().map(|l| (life_of(&l.entry), l)).collect();
        let (chosen, unsent) = self.choose(directory.entries, &mut before);
        self.lanes = chosen;
        self.counts.unsent_streams = unsent;
        self.counts.unsent_streams_max = self.counts.unsent_streams_max.max(unsent);
        // Streams are announced in the order of their registration, so that a subscriber which
        // knows one knows those before it.
        self.lanes
            .sort_by_key(|lane| (lane.entry.created_ns, lane.entry.slot));
        let mut gone: Vec<FeedLane> = before.into_values().collect();
        gone.sort_unstable_by_key(|lane| std::cmp::Reverse(lane.reference));
        for lane in gone {
            let reference = Some(lane.reference).filter(|_| lane.is_announced);
            match &mut self.past {
                Some(past) => past.ends(&lane.entry.descriptor, reference, lane.place(), now_ns),
                None => self.retired.extend(reference),
            }
        }
        self.turn = 0;
    }

    /// The wanted streams of a directory, as far as the subscriber has room for them, and the
    /// number of the others. What an earlier selector names comes first, so that what is demanded
    /// for a while takes no room from what is configured. Of the lanes `before` stay those of
    /// streams that have ended.
    fn choose(
        &mut self,
        entries: Vec<DirectoryEntry>,
        before: &mut HashMap<StreamLife, FeedLane>,
    ) -> (Vec<FeedLane>, u64) {
        let mut wanted = Vec::new();
        for entry in entries {
            let known = before.remove(&life_of(&entry));
            let rank = match &known {
                Some(lane) => Some(lane.rank),
                None => self.rank(&entry),
            };
            if let Some(rank) = rank {
                wanted.push((rank, entry, known));
            }
        }
        // A stream that has ended has its place until its end is told.
        let room = self.streams_max.saturating_sub(before.len());
        let unsent = wanted.len().saturating_sub(room);
        if unsent > 0 {
            wanted.sort_by_key(|(rank, _, known)| (*rank, known.is_none()));
            for (_, _, known) in wanted.drain(room..) {
                let announced = known.filter(|lane| lane.is_announced);
                self.retired.extend(announced.map(|lane| lane.reference));
            }
        }
        let lanes = wanted.into_iter();
        let lanes = lanes.map(|(rank, entry, known)| match known {
            Some(lane) => lane,
            None => self.lane(entry, rank),
        });
        (lanes.collect(), unsent as u64)
    }

    /// The place of the first selector that matches a stream; `None` if it is not wanted.
    fn rank(&self, entry: &DirectoryEntry) -> Option<usize> {
        let descriptor = &entry.descriptor;
        let is_match = |s: &Selector| s.matches(descriptor.name.as_str(), &descriptor.labels);
        self.selectors.iter().position(is_match)
    }

    fn lane(&mut self, entry: DirectoryEntry, rank: usize) -> FeedLane {
        let reader = self.segment.stream(&entry);
        let count = reader.count().unwrap_or(0);
        let newest = count.saturating_sub(1);
        let had = self.had.get(&entry.series).copied();
        let of_life = had.filter(|had| had.life_ns == entry.created_ns);
        let has_wanted = |had: &LifePoint| had.number != Position::RING_ONLY;
        let sent = match of_life.filter(|had| had.number > 0 && has_wanted(had)) {
            // The newest sample is sent once more: the subscriber may have it on its disk alone.
            Some(had) => had.number.min(newest),
            None if self.reach == FeedReach::Newest => newest,
            None => 0,
        };
        let is_later = |ns: i64| entry.created_ns > ns;
        let had_ns = had.map(|had| had.life_ns).or(self.known_until_ns);
        self.next_reference += 1;
        FeedLane {
            reader,
            rank,
            reference: self.next_reference,
            is_announced: false,
            is_known: of_life.is_some(),
            is_whole: of_life.as_ref().is_some_and(has_wanted) || had_ns.is_some_and(is_later),
            interval_ns: 0,
            sent,
            looked_ns: 0,
            newest_ns: None,
            entry,
        }
    }

    /// Announces and retires streams, as far as the frame has room.
    fn announce(&mut self, writer: &mut FrameWriter) {
        while writer.bytes() < FRAME_BYTES
            && let Some(reference) = self.retired.pop()
        {
            writer.retire(reference);
        }
        let past = self.past.as_ref();
        let is_catching_up = past.is_some_and(FeedPast::is_catching_up);
        let is_held = |lane: &FeedLane| {
            is_catching_up && !lane.is_known || past.is_some_and(|p| p.is_ending(lane.entry.series))
        };
        let unannounced = self.lanes.iter_mut().filter(|lane| !lane.is_announced);
        for lane in unannounced {
            if writer.bytes() >= FRAME_BYTES {
                return;
            }
            if is_held(lane) {
                continue;
            }
            lane.is_announced = true;
            lane.interval_ns = self.segment.interval_ns(&lane.entry);
            writer.announce(&Announcement {
                reference: lane.reference,
                descriptor: lane.entry.descriptor.clone(),
                life_ns: lane.entry.created_ns,
                depth: lane.entry.depth,
                value_bytes_max: lane.entry.value_bytes_max,
                interval_ns: lane.interval_ns,
            });
        }
        // Before the sign that the feed is complete, after which a subscriber knows that there are
        // none.
        if !std::mem::replace(&mut self.has_told_scopes, true) {
            writer.scopes(&self.scopes);
        }
        if !is_catching_up && !std::mem::replace(&mut self.is_complete, true) {
            writer.complete();
        }
    }

    /// Follows the readings of the past.
    fn attend_past(&mut self, now_ns: i64) {
        let Some(past) = &mut self.past else {
            return;
        };
        past.attend(now_ns, || {
            let entries = self.segment.directory().entries.into_iter();
            entries
                .map(|entry| (entry.series, entry.created_ns))
                .collect()
        });
        self.retired.append(&mut past.retired);
    }

    /// Writes what was read of the past, as far as the frame has room.
    fn write_past(&mut self, writer: &mut FrameWriter, now_ns: i64) {
        while writer.bytes() < FRAME_BYTES
            && let Some(past) = &mut self.past
            && let Some((target, run)) = past.next_run(now_ns)
        {
            match target {
                PastTarget::Ring(reference) => {
                    let lane = self.lanes.iter_mut().find(|l| l.reference == reference);
                    // The stream may have ended meanwhile.
                    if let Some(lane) = lane.filter(|lane| lane.is_announced) {
                        lane.write_run(writer, &run, &mut self.counts);
                    }
                }
                PastTarget::Ended(series) => self.write_ended(series, &run, writer),
            }
        }
        if let Some(past) = &mut self.past {
            past.end_if_sent(now_ns);
        }
    }

    /// Writes samples of an ended life, which is announced if the subscriber does not know it.
    fn write_ended(&mut self, series: SeriesId, run: &PastRun, writer: &mut FrameWriter) {
        let announced = self.lanes.iter().filter(|lane| lane.is_announced).count();
        let Some(past) = &mut self.past else {
            return;
        };
        let has_room = announced + past.announced() < self.streams_max;
        let Some(ended) = past.ended_mut(series) else {
            return;
        };
        let sent = ended.sent();
        let number = if sent.life_ns == run.life_ns {
            sent.number
        } else {
            0
        };
        let Some((first, new)) = unsent_of(run, number).filter(|_| sent.life_ns <= run.life_ns)
        else {
            return;
        };
        let reference = match ended.announced {
            Some((reference, life_ns)) if life_ns == run.life_ns => reference,
            // Its place among the streams of the subscriber is free again.
            Some((before, _)) => {
                writer.retire(before);
                self.next_reference += 1;
                announce_ended(writer, self.next_reference, &ended.descriptor, run)
            }
            None if has_room => {
                self.next_reference += 1;
                announce_ended(writer, self.next_reference, &ended.descriptor, run)
            }
            None => {
                self.counts.lost += new.len() as u64;
                past.give_up_unsent(series);
                return;
            }
        };
        ended.announced = Some((reference, run.life_ns));
        let stream = (reference, ended.descriptor.value_type);
        let sent = write_pieces(writer, stream, (number, first), new, &mut self.counts);
        if let Some((number, ts_ns)) = sent {
            let life_ns = run.life_ns;
            ended.note_sent(LifePoint { life_ns, number }, ts_ns);
        }
    }

    fn write_batches(&mut self, writer: &mut FrameWriter, now_ns: i64) {
        let lanes = self.lanes.len();
        // Adaptive policies change intervals with many looks.
        let tells_intervals = now_ns.abs_diff(self.intervals_ns) >= MIRROR_LOOKS_NS as u64;
        if tells_intervals {
            self.intervals_ns = now_ns;
        }
        for _ in 0..lanes {
            if writer.bytes() >= FRAME_BYTES {
                return;
            }
            let lane = &mut self.lanes[self.turn % lanes];
            let past = self.past.as_mut();
            if tells_intervals && lane.is_announced {
                lane.write_interval(writer, self.segment.interval_ns(&lane.entry));
            }
            if lane.is_announced && !past.as_ref().is_some_and(|p| p.is_waiting(lane.reference)) {
                lane.write(writer, (past, now_ns), &mut self.samples, &mut self.counts);
            }
            self.turn = (self.turn + 1) % lanes;
        }
    }
}

/// Last sample of each series that a subscriber has.
fn had_by(subscription: &Subscription) -> HashMap<SeriesId, LifePoint> {
    let mut had: HashMap<SeriesId, LifePoint> = HashMap::new();
    for position in &subscription.positions {
        let place = LifePoint {
            life_ns: position.life_ns,
            number: position.number,
        };
        let known = had.entry(position.series).or_insert(place);
        *known = (*known).max(place);
    }
    had
}

/// Announces a stream that has ended, as far as its archive tells, and returns the reference.
fn announce_ended(
    writer: &mut FrameWriter,
    reference: u32,
    descriptor: &Descriptor,
    run: &PastRun,
) -> u32 {
    let is_sized = !matches!(
        descriptor.value_type,
        ValueType::Int | ValueType::Float | ValueType::Bool
    );
    let longest = run.samples.iter().map(|sample| sample.value.bytes()).max();
    let longest = longest.filter(|_| is_sized).unwrap_or(0);
    writer.announce(&Announcement {
        reference,
        descriptor: descriptor.clone(),
        life_ns: run.life_ns,
        depth: ENDED_DEPTH,
        value_bytes_max: u32::try_from(longest).unwrap_or(u32::MAX),
        interval_ns: 0,
    });
    reference
}

/// The slot of a stream, the generation of the slot, and the series.
type StreamLife = (usize, u16, SeriesId);

/// The identity of a stream's life in one segment.
fn life_of(entry: &DirectoryEntry) -> StreamLife {
    (entry.slot, entry.generation, entry.series)
}
