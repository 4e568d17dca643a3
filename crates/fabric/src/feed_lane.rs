//! One stream of a feed: what of it was sent, and the writing of its next samples.

use barograph_model::{Sample, ValueType};
use barograph_stream::{DirectoryEntry, MIRROR_LOOKS_NS, StreamReader};

use crate::feed_past::FeedPast;
use crate::frame::FrameWriter;
use crate::past::{LifePoint, PastGap, PastRun};

/// Bytes at which a frame is closed and the next one begun.
pub(crate) const FRAME_BYTES: usize = 64 << 10;
/// Most samples that are taken from a ring at a time.
const PIECE_SAMPLES: u64 = 1_024;
/// Most bytes of long values that are written as one batch.
const PIECE_BYTES: usize = 128 << 10;

/// Counts of what a feed has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounts {
    /// Number of frames that were sent to the subscriber.
    pub frames: u64,
    /// Number of bytes of these frames.
    pub bytes: u64,
    /// Number of samples in these frames.
    pub samples: u64,
    /// Number of those samples that the rings had overwritten, and that the archive still had.
    pub past: u64,
    /// Samples that the rings had overwritten before they could be sent, and that were not to be
    /// had from the archive.
    pub lost: u64,
    /// Number of wanted streams that are more than the subscriber has room for at present.
    pub unsent_streams: u64,
    /// The greatest number of such streams at a time.
    pub unsent_streams_max: u64,
    /// Number of series whose ended lives were given up for lack of room, here or at the
    /// subscriber.
    pub ended_unsent: u64,
    /// Number of series whose ended lives were given up because they could not be read for a
    /// minute.
    pub ended_unread: u64,
    /// Number of searches for ended lives that were given up because they had failed for a minute.
    pub searches_failed: u64,
}

impl FeedCounts {
    /// The counts of a subscriber's feeds together: of those that have ended, and of the one after
    /// them.
    pub(crate) fn then(self, later: Self) -> Self {
        Self {
            unsent_streams: later.unsent_streams,
            unsent_streams_max: self.unsent_streams_max.max(later.unsent_streams_max),
            ..self.plus(later)
        }
    }

    /// The counts of two subscribers together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            bytes: self.bytes + other.bytes,
            samples: self.samples + other.samples,
            past: self.past + other.past,
            lost: self.lost + other.lost,
            unsent_streams: self.unsent_streams + other.unsent_streams,
            unsent_streams_max: self.unsent_streams_max + other.unsent_streams_max,
            ended_unsent: self.ended_unsent + other.ended_unsent,
            ended_unread: self.ended_unread + other.ended_unread,
            searches_failed: self.searches_failed + other.searches_failed,
        }
    }
}

/// One stream of a feed.
#[derive(Debug)]
pub(crate) struct FeedLane {
    pub(crate) entry: DirectoryEntry,
    pub(crate) reader: StreamReader,
    pub(crate) reference: u32,
    /// The place of the first selector that matches it.
    pub(crate) rank: usize,
    pub(crate) is_announced: bool,
    /// Whether the subscriber had this life before the feed began.
    pub(crate) is_known: bool,
    /// Whether the subscriber wants all samples from the first on, not only those of the ring.
    pub(crate) is_whole: bool,
    /// The interval that the subscriber knows, in ns.
    pub(crate) interval_ns: i64,
    /// Number of the newest sample that was sent.
    pub(crate) sent: u64,
    pub(crate) looked_ns: i64,
    /// Time of the newest sample that was sent; `None` before the first of this feed.
    pub(crate) newest_ns: Option<i64>,
}

impl FeedLane {
    /// Writes the stream's new samples, as far as the frame has room.
    pub(crate) fn write(
        &mut self,
        writer: &mut FrameWriter,
        (mut past, now_ns): (Option<&mut FeedPast>, i64),
        samples: &mut Vec<Sample>,
        counts: &mut FeedCounts,
    ) {
        let stream = (self.reference, self.reader.value_type());
        // The look is read first: a sample that comes meanwhile is of a later one.
        let looked_ns = self.reader.looked_ns();
        while writer.bytes() < FRAME_BYTES {
            samples.clear();
            let scan = self.reader.scan_some(self.sent, PIECE_SAMPLES, samples);
            let Some(scan) = scan.filter(|_| !samples.is_empty()) else {
                break;
            };
            let mut first = self.sent + scan.lost + 1;
            // Of a stream that the subscriber has nothing of, nothing is missing.
            let is_missed = scan.lost > 0 && (self.sent > 0 || self.is_whole);
            let lost = if is_missed { scan.lost } else { 0 };
            if is_missed
                && let Some(past) = &mut past
                && past.wait(self.reference, self.gap(first), now_ns)
            {
                return;
            }
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

impl FeedLane {
    /// Writes the interval in which the stream is looked at, if that has changed.
    pub(crate) fn write_interval(&mut self, writer: &mut FrameWriter, interval_ns: i64) {
        if interval_ns != self.interval_ns {
            self.interval_ns = interval_ns;
            writer.interval(self.reference, interval_ns);
        }
    }

    /// Place of the newest sample that was sent.
    pub(crate) fn place(&self) -> LifePoint {
        LifePoint {
            life_ns: self.entry.created_ns,
            number: self.sent,
        }
    }

    /// Samples that are missing before the one with this number.
    fn gap(&self, before: u64) -> PastGap {
        PastGap {
            series: self.entry.series,
            after: self.place(),
            after_ns: self.newest_ns,
            before: LifePoint {
                number: before,
                ..self.place()
            },
        }
    }

    /// Writes samples of the past, without those that were sent already.
    pub(crate) fn write_run(
        &mut self,
        writer: &mut FrameWriter,
        run: &PastRun,
        counts: &mut FeedCounts,
    ) {
        let Some((first, new)) = unsent_of(run, self.sent) else {
            return;
        };
        let stream = (self.reference, self.reader.value_type());
        let sent = write_pieces(writer, stream, (self.sent, first), new, counts);
        if let Some((number, ts_ns)) = sent {
            (self.sent, self.newest_ns) = (number, Some(ts_ns));
        }
    }
}

/// The samples of a run after this number, with the number of the first of them.
pub(crate) fn unsent_of(run: &PastRun, sent: u64) -> Option<(u64, &[Sample])> {
    let known = usize::try_from((sent + 1).saturating_sub(run.first)).unwrap_or(usize::MAX);
    let new = run.samples.get(known..).filter(|new| !new.is_empty())?;
    Some((run.first + known as u64, new))
}

/// Writes samples of the past of a stream of which the sample `sent` was sent last. Returns number
/// and time of the last one.
pub(crate) fn write_pieces(
    writer: &mut FrameWriter,
    stream: (u32, ValueType),
    (sent, mut first): (u64, u64),
    samples: &[Sample],
    counts: &mut FeedCounts,
) -> Option<(u64, i64)> {
    counts.lost += first - 1 - sent;
    let mut newest = None;
    for piece in pieces(samples) {
        let newest_ns = piece.last().map_or(i64::MIN, |sample| sample.ts);
        writer.batch(stream, (first, newest_ns), piece);
        first += piece.len() as u64;
        newest = Some((first - 1, newest_ns));
        counts.samples += piece.len() as u64;
        counts.past += piece.len() as u64;
    }
    newest
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
