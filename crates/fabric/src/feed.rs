//! Feeds: the samples of one segment on their way to one subscriber.
//!
//! A feed reads the rings as any other reader does, so that the sampler never waits for a
//! subscriber. It stands alone because it decides what a slow subscriber costs: at most its window
//! is on the way, and what the rings have overwritten meanwhile shows as missing numbers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use barograph_model::{Sample, Selector, SeriesId};
use barograph_stream::{DirectoryEntry, MIRROR_LOOKS_NS, SegmentReader, StreamReader};

use crate::frame::{Announcement, FeedReach, FrameHeader, FrameKind, FrameWriter, Subscription};
use crate::past::{FeedPast, LanePast, PastGap, PastLane, PastSource};

/// Bytes at which a frame is closed and the next one begun.
const FRAME_BYTES: usize = 64 << 10;
/// Most samples that are taken from a ring at a time.
const PIECE_SAMPLES: u64 = 1_024;
/// Most bytes of long values that are written as one batch.
const PIECE_BYTES: usize = 128 << 10;
/// Bounds of the window that a subscriber may ask for.
const WINDOW_BYTES: (u64, u64) = (FRAME_BYTES as u64, 16 << 20);
/// Time between two frames of a feed that has nothing to say, in ns: the sign that it lives.
pub const BEAT_NS: i64 = 1_000_000_000;
/// What a feed has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounts {
    /// Frames sent.
    pub frames: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Samples sent.
    pub samples: u64,
    /// Those of them that the rings had overwritten, and the archive still had.
    pub past: u64,
    /// Samples that the rings had overwritten before they could be sent, and that were not to be had
    /// from the archive.
    pub lost: u64,
    /// Streams that were wanted and are more than the subscriber has room for.
    pub unsent_streams: u64,
}

impl FeedCounts {
    /// The counts of two feeds together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            bytes: self.bytes + other.bytes,
            samples: self.samples + other.samples,
            past: self.past + other.past,
            lost: self.lost + other.lost,
            unsent_streams: self.unsent_streams + other.unsent_streams,
        }
    }
}

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
    /// How far the subscriber had each life before this feed began.
    had: HashMap<(SeriesId, i64), u64>,
    directory_version: Option<u64>,
    /// The streams that are sent, by slot.
    lanes: Vec<Lane>,
    retired: Vec<u32>,
    /// Whether the streams of the feed's beginning have all been announced.
    is_complete: bool,
    next_reference: u32,
    /// The lane that the next frame begins with, so that a busy stream does not starve others.
    turn: usize,
    /// Number of the newest frame.
    number: u64,
    /// Frames that are sent and not acknowledged, with their bytes.
    on_the_way: VecDeque<(u64, u64)>,
    bytes_on_the_way: u64,
    sent_ns: i64,
    counts: FeedCounts,
    samples: Vec<Sample>,
}

/// One stream of a feed.
#[derive(Debug)]
struct Lane {
    entry: DirectoryEntry,
    reader: StreamReader,
    reference: u32,
    is_announced: bool,
    /// Number of the newest sample that was sent.
    sent: u64,
    looked_ns: i64,
    /// Time of the newest sample that was sent; `None` before the first of this feed.
    newest_ns: Option<i64>,
    past: LanePast,
}

impl Feed {
    /// Begins a feed of the segment's streams that the subscription asks for. `past` has what the
    /// rings no longer hold.
    pub fn new(
        segment: Arc<SegmentReader>,
        id: u64,
        (subscription, selectors): (&Subscription, Vec<Selector>),
        past: Option<Arc<dyn PastSource>>,
    ) -> Self {
        let (least, most) = WINDOW_BYTES;
        let had = subscription.positions.iter();
        let past = past.filter(|_| subscription.reach == FeedReach::Archive);
        Self {
            segment,
            id,
            selectors,
            reach: subscription.reach,
            past: past.map(FeedPast::new),
            window_bytes: subscription.window_bytes.clamp(least, most),
            streams_max: usize::try_from(subscription.streams_max).unwrap_or(usize::MAX),
            had: had.map(|p| ((p.series, p.life_ns), p.number)).collect(),
            directory_version: None,
            lanes: Vec::new(),
            retired: Vec::new(),
            is_complete: false,
            next_reference: 0,
            turn: 0,
            number: 0,
            on_the_way: VecDeque::new(),
            bytes_on_the_way: 0,
            sent_ns: i64::MIN,
            counts: FeedCounts::default(),
            samples: Vec::new(),
        }
    }

    /// Makes the next frame, in the given buffer; `None` if there is nothing to send at `now_ns`
    /// (ns since the epoch) or the window is full. Call it again until it gives none.
    pub fn next_frame(&mut self, now_ns: i64, buffer: Vec<u8>) -> Option<Vec<u8>> {
        if let Some(past) = &mut self.past {
            past.give_up_if_held(&mut self.lanes, now_ns);
        }
        if self.bytes_on_the_way >= self.window_bytes {
            return None;
        }
        self.look_at_directory();
        let mut writer = FrameWriter::begin(buffer, now_ns);
        self.announce(&mut writer);
        self.write_past(&mut writer, now_ns);
        self.write_batches(&mut writer);
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

    /// What was sent so far.
    pub fn counts(&self) -> FeedCounts {
        self.counts
    }

    /// Follows the streams that have come or gone.
    fn look_at_directory(&mut self) {
        if self.directory_version == Some(self.segment.directory_version()) {
            return;
        }
        let directory = self.segment.directory();
        self.directory_version = Some(directory.version);
        let before = std::mem::take(&mut self.lanes);
        let mut before: HashMap<_, _> =
            before.into_iter().map(|l| (life_of(&l.entry), l)).collect();
        let mut unsent = 0;
        for entry in directory.entries {
            match before.remove(&life_of(&entry)) {
                Some(lane) => self.lanes.push(lane),
                None if !self.is_wanted(&entry) => {}
                None if self.lanes.len() + before.len() >= self.streams_max => unsent += 1,
                None => {
                    let lane = self.lane(entry);
                    self.lanes.push(lane);
                }
            }
        }
        self.counts.unsent_streams = unsent;
        let gone = before.into_values().filter(|lane| lane.is_announced);
        self.retired.extend(gone.map(|lane| lane.reference));
        // The order of a hash table must not show in the frames.
        self.retired.sort_unstable_by(|a, b| b.cmp(a));
        self.turn = 0;
    }

    fn is_wanted(&self, entry: &DirectoryEntry) -> bool {
        let descriptor = &entry.descriptor;
        let is_match = |s: &Selector| s.matches(descriptor.name.as_str(), &descriptor.labels);
        self.selectors.iter().any(is_match)
    }

    fn lane(&mut self, entry: DirectoryEntry) -> Lane {
        let reader = self.segment.stream(&entry);
        let count = reader.count().unwrap_or(0);
        let newest = count.saturating_sub(1);
        let sent = match self.had.get(&(entry.series, entry.created_ns)) {
            // A subscriber that claims more than there is has another life's numbers.
            Some(had) => (*had).min(count),
            None if self.reach == FeedReach::Newest => newest,
            None => 0,
        };
        self.next_reference += 1;
        Lane {
            entry,
            reader,
            reference: self.next_reference,
            is_announced: false,
            sent,
            looked_ns: 0,
            newest_ns: None,
            past: LanePast::default(),
        }
    }

    /// Announces and retires streams, as far as the frame has room.
    fn announce(&mut self, writer: &mut FrameWriter) {
        while writer.bytes() < FRAME_BYTES
            && let Some(reference) = self.retired.pop()
        {
            writer.retire(reference);
        }
        let unannounced = self.lanes.iter_mut().filter(|lane| !lane.is_announced);
        for lane in unannounced {
            if writer.bytes() >= FRAME_BYTES {
                return;
            }
            lane.is_announced = true;
            writer.announce(&Announcement {
                reference: lane.reference,
                descriptor: lane.entry.descriptor.clone(),
                life_ns: lane.entry.created_ns,
                depth: lane.entry.depth,
                value_bytes_max: lane.entry.value_bytes_max,
                interval_ns: self.segment.interval_ns(&lane.entry),
            });
        }
        if !std::mem::replace(&mut self.is_complete, true) {
            writer.complete();
        }
    }

    /// Writes what was read of the past, as far as the frame has room.
    fn write_past(&mut self, writer: &mut FrameWriter, now_ns: i64) {
        let Some(past) = &mut self.past else {
            return;
        };
        past.attend(&mut self.lanes, now_ns);
        while writer.bytes() < FRAME_BYTES
            && let Some((reference, run)) = past.next_run(now_ns)
        {
            let lane = self.lanes.iter_mut().find(|l| l.reference == reference);
            // The stream may have ended meanwhile.
            if let Some(lane) = lane.filter(|lane| lane.is_announced) {
                lane.write_run(writer, (run.first, &run.samples), &mut self.counts);
            }
        }
        past.end_if_sent(&mut self.lanes);
    }

    fn write_batches(&mut self, writer: &mut FrameWriter) {
        let lanes = self.lanes.len();
        let has_past = self.past.is_some();
        for _ in 0..lanes {
            if writer.bytes() >= FRAME_BYTES {
                return;
            }
            let lane = &mut self.lanes[self.turn % lanes];
            if lane.is_announced {
                lane.write(writer, has_past, &mut self.samples, &mut self.counts);
            }
            self.turn = (self.turn + 1) % lanes;
        }
    }
}

impl Lane {
    /// Writes the stream's new samples, as far as the frame has room.
    fn write(
        &mut self,
        writer: &mut FrameWriter,
        has_past: bool,
        samples: &mut Vec<Sample>,
        counts: &mut FeedCounts,
    ) {
        if matches!(
            self.past,
            LanePast::Missing { .. } | LanePast::Reading { .. }
        ) {
            return;
        }
        let stream = (self.reference, self.reader.value_type());
        // The look is read first: a sample that comes meanwhile is of a later one.
        let looked_ns = self.reader.looked_ns();
        loop {
            samples.clear();
            let scan = self.reader.scan_some(self.sent, PIECE_SAMPLES, samples);
            let Some(scan) = scan.filter(|_| !samples.is_empty()) else {
                break;
            };
            let mut first = self.sent + scan.lost + 1;
            // Of a stream that the subscriber has nothing of, nothing is missing.
            let lost = if self.sent > 0 { scan.lost } else { 0 };
            if lost > 0 && has_past && self.past == LanePast::InRing {
                self.past = LanePast::Missing { before: first };
                return;
            }
            self.past = LanePast::InRing;
            counts.lost += lost;
            for piece in pieces(samples) {
                if writer.bytes() >= FRAME_BYTES {
                    return;
                }
                let newest_ns = piece.last().map_or(looked_ns, |s| s.ts);
                self.looked_ns = looked_ns.max(newest_ns);
                writer.batch(stream, (first, self.looked_ns), piece);
                first += piece.len() as u64;
                self.newest_ns = piece.last().map(|sample| sample.ts);
                self.sent = first - 1;
                counts.samples += piece.len() as u64;
            }
        }
        if looked_ns.saturating_sub(self.looked_ns) >= MIRROR_LOOKS_NS && self.sent > 0 {
            self.looked_ns = looked_ns;
            writer.batch(stream, (self.sent + 1, looked_ns), &[]);
        }
    }
}

impl Lane {
    /// Writes samples of the past, without those that were sent already.
    fn write_run(
        &mut self,
        writer: &mut FrameWriter,
        (first, samples): (u64, &[Sample]),
        counts: &mut FeedCounts,
    ) {
        let known = (self.sent + 1).saturating_sub(first);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(new) = samples.get(known..).filter(|new| !new.is_empty()) else {
            return;
        };
        let mut first = first + known as u64;
        counts.lost += first - 1 - self.sent;
        let stream = (self.reference, self.reader.value_type());
        for piece in pieces(new) {
            let newest_ns = piece.last().map_or(i64::MIN, |sample| sample.ts);
            writer.batch(stream, (first, newest_ns), piece);
            first += piece.len() as u64;
            (self.sent, self.newest_ns) = (first - 1, Some(newest_ns));
            counts.samples += piece.len() as u64;
            counts.past += piece.len() as u64;
        }
    }
}

impl PastLane for Lane {
    fn reference(&self) -> u32 {
        self.reference
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn gap(&self, before: u64) -> PastGap {
        PastGap {
            series: self.entry.series,
            life_ns: self.entry.created_ns,
            after: self.sent,
            after_ns: self.newest_ns,
            before,
        }
    }

    fn past(&mut self) -> &mut LanePast {
        &mut self.past
    }
}

/// The identity of a stream's life in one segment.
fn life_of(entry: &DirectoryEntry) -> (usize, u16, SeriesId) {
    (entry.slot, entry.generation, entry.series)
}

/// Splits samples into runs whose values have at most [`PIECE_BYTES`] together, or one value.
fn pieces(samples: &[Sample]) -> impl Iterator<Item = &[Sample]> {
    let mut rest = samples;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |sample: &&Sample| {
            bytes += sample.value.bytes();
            bytes <= PIECE_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (piece, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(piece)
    })
}
