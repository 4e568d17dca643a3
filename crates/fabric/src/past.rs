//! The past of a node's streams: samples that its rings no longer hold, and its archive does.
//!
//! A feed knows no files. It asks for what a subscriber's history lacks, goes on with its other
//! streams, and takes the samples when they are there.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use barograph_model::{NS_PER_S, Sample, SeriesId};

/// Time after which samples that a subscriber does not take are given up, in ns: others wait for
/// their room, and they can be read again.
const HELD_NS: i64 = 10 * NS_PER_S;

/// Samples of one stream that its ring no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastGap {
    /// The series.
    pub series: SeriesId,
    /// Time at which the stream was registered, ns since the epoch.
    pub life_ns: i64,
    /// Number of the newest sample that the subscriber has.
    pub after: u64,
    /// Time of that sample, ns since the epoch; `None` if it is not known.
    pub after_ns: Option<i64>,
    /// Number of the oldest sample that the ring holds.
    pub before: u64,
}

/// Successive samples of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct PastRun {
    /// Place of the stream among the gaps that were asked for.
    pub gap: usize,
    /// Number of the first sample in the stream's life.
    pub first: u64,
    /// The samples, with numbers one after the other.
    pub samples: Vec<Sample>,
}

/// What a reading has found. It may end before a gap is closed: then it is asked for the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastSamples {
    /// The samples, for each gap in the order of their numbers.
    pub runs: Vec<PastRun>,
    /// Number of gaps, from the first on, that were looked for. There was no time or room for the
    /// others.
    pub looked: usize,
}

/// The part that has the past of this node's streams.
pub trait PastSource: Debug + Send + Sync {
    /// Begins to read samples of these gaps, a bounded number of them; `None` if too many readings
    /// are under way.
    fn read(&self, gaps: Vec<PastGap>) -> Option<Box<dyn PastReading>>;
}

/// A reading of the past. It counts as under way until it is dropped.
pub trait PastReading: Debug + Send {
    /// The samples, once; `None` while they are being read. It does not wait.
    fn take(&mut self) -> Option<PastSamples>;
}

/// The state of one stream of a feed, as to samples that its ring no longer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LanePast {
    /// The next samples come from the ring.
    #[default]
    InRing,
    /// The ring has lost samples, up to this number, which the next reading is to bring.
    Missing { before: u64 },
    /// Samples are being read or wait to be sent; the newest sample sent before had this number.
    Reading { after: u64 },
    /// A reading has brought nothing: what the ring has lost is lost.
    Lost,
}

/// A stream of a feed, for the reading of its past.
pub(crate) trait PastLane {
    /// Name of the stream in the feed.
    fn reference(&self) -> u32;

    /// Number of the newest sample that was sent.
    fn sent(&self) -> u64;

    /// The gap up to the sample with this number.
    fn gap(&self, before: u64) -> PastGap;

    fn past(&mut self) -> &mut LanePast;
}

/// The readings of a feed, one at a time.
#[derive(Debug)]
pub(crate) struct FeedPast {
    source: Arc<dyn PastSource>,
    reading: Option<Box<dyn PastReading>>,
    /// The streams that are read, by place among the gaps.
    references: Vec<u32>,
    /// Number of those that were looked for, once the reading has ended.
    looked: Option<usize>,
    /// The samples that are to be sent.
    runs: VecDeque<PastRun>,
    /// Time at which the reading was begun, or a run of it was last sent, ns since the epoch.
    moved_ns: i64,
}

impl FeedPast {
    pub(crate) fn new(source: Arc<dyn PastSource>) -> Self {
        Self {
            source,
            reading: None,
            references: Vec::new(),
            looked: None,
            runs: VecDeque::new(),
            moved_ns: i64::MIN,
        }
    }

    /// Takes what has been read, and begins the next reading if one is wanted.
    pub(crate) fn attend<L: PastLane>(&mut self, lanes: &mut [L], now_ns: i64) {
        let Some(reading) = &mut self.reading else {
            self.begin(lanes, now_ns);
            return;
        };
        if self.looked.is_none()
            && let Some(found) = reading.take()
        {
            self.looked = Some(found.looked);
            self.runs = found.runs.into();
            self.moved_ns = now_ns;
            self.end_if_sent(lanes);
        }
    }

    /// Gives the reading up if the subscriber takes nothing.
    pub(crate) fn give_up_if_held<L: PastLane>(&mut self, lanes: &mut [L], now_ns: i64) {
        if !self.runs.is_empty() && now_ns.abs_diff(self.moved_ns) >= HELD_NS as u64 {
            self.runs.clear();
            self.looked = Some(0);
            self.end(lanes);
        }
    }

    /// The next samples to send, with the reference of their stream.
    pub(crate) fn next_run(&mut self, now_ns: i64) -> Option<(u32, PastRun)> {
        let run = self.runs.pop_front()?;
        self.moved_ns = now_ns;
        Some((*self.references.get(run.gap)?, run))
    }

    /// Ends the reading if all that it has brought was sent.
    pub(crate) fn end_if_sent<L: PastLane>(&mut self, lanes: &mut [L]) {
        if self.runs.is_empty() && self.looked.is_some() {
            self.end(lanes);
        }
    }

    fn begin<L: PastLane>(&mut self, lanes: &mut [L], now_ns: i64) {
        let mut gaps = Vec::new();
        let mut references = Vec::new();
        for lane in lanes.iter_mut() {
            if let LanePast::Missing { before } = *lane.past() {
                gaps.push(lane.gap(before));
                references.push(lane.reference());
            }
        }
        if gaps.is_empty() {
            return;
        }
        let Some(reading) = self.source.read(gaps) else {
            return;
        };
        self.reading = Some(reading);
        (self.references, self.looked, self.moved_ns) = (references, None, now_ns);
        for lane in lanes {
            if matches!(lane.past(), LanePast::Missing { .. }) {
                let after = lane.sent();
                *lane.past() = LanePast::Reading { after };
            }
        }
    }

    /// Ends the reading: its streams go on from their rings, which may have lost more meanwhile.
    fn end<L: PastLane>(&mut self, lanes: &mut [L]) {
        self.reading = None;
        let looked = self.looked.take().unwrap_or(0);
        let looked = &self.references[..looked.min(self.references.len())];
        for lane in lanes {
            let LanePast::Reading { after } = *lane.past() else {
                continue;
            };
            let was_looked_for = looked.contains(&lane.reference());
            *lane.past() = match was_looked_for && lane.sent() == after {
                true => LanePast::Lost,
                false => LanePast::InRing,
            };
        }
    }
}
