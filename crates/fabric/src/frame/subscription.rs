//! Subscriptions: what a subscriber wants of a node's streams, and how far it has them already.

use std::sync::Arc;

use barograph_model::{SELECTOR_BYTES_MAX, Selector, SeriesId};
use barograph_stream::bytes::{ByteReader, put_bytes, put_i64, put_u64};
use barograph_stream::is_scope;

use super::fault::{FrameFault, malformed};
use super::header::{FrameHeader, FrameKind};
use super::layout::HEADER_BYTES;

/// Most selectors of a subscription.
pub const SELECTORS_MAX: usize = 256;

/// Most positions of a subscription, so that it fits into a frame. A stream beyond them is sent as
/// an unknown one.
pub const POSITIONS_MAX: usize = 1 << 14;

const PART: &str = "subscription";
/// Fewest bytes of a position: the series, the life and the number.
const POSITION_BYTES_MIN: usize = 18;

/// Last sample of one stream's life that a subscriber has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The series.
    pub series: SeriesId,
    /// Time at which the stream was registered at its owner, ns since the epoch.
    pub life_ns: i64,
    /// Number of the newest sample that the subscriber has; 0 if it has none and wants all of them.
    pub number: u64,
}

impl Position {
    /// The number in the position of a stream that the subscriber knows, of which it has no sample,
    /// and of which it wants no more than the ring holds.
    pub const RING_ONLY: u64 = u64::MAX;
}

/// Reach of a feed into the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedReach {
    /// Streams without a position are sent from their newest sample on.
    Newest = 0,
    /// Streams without a position are sent from the oldest sample that their rings hold.
    Rings = 1,
    /// As [`Self::Rings`]; and what the rings have lost of streams with a position is sent from the
    /// archive of their owner.
    Archive = 2,
}

impl FeedReach {
    fn read(byte: u8) -> Option<Self> {
        [Self::Newest, Self::Rings, Self::Archive]
            .into_iter()
            .find(|reach| *reach as u8 == byte)
    }
}

/// A subscriber's request for a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Texts of the selectors, such as `disk.*{device=vda}`: a stream that one of them matches is
    /// sent.
    pub selectors: Vec<String>,
    /// Most bytes that the subscriber wants to be sent and not yet acknowledged.
    pub window_bytes: u64,
    /// Most streams that the subscriber wants to be sent.
    pub streams_max: u64,
    /// Last sample of each stream that the subscriber has.
    pub positions: Vec<Position>,
    /// Reach of the feed into the past.
    pub reach: FeedReach,
    /// Time of the newest registration of a stream up to which the subscriber knows all streams, ns
    /// since the epoch; 0 if it has never been told all of them.
    pub newest_life_ns: i64,
    /// The scope of applications whose streams are wanted; empty for the node's own streams.
    pub scope: Arc<str>,
}

impl Subscription {
    /// Writes the subscription as a frame.
    pub fn write(&self, header: &FrameHeader) -> Vec<u8> {
        debug_assert_eq!(header.kind, FrameKind::Subscribe);
        let mut frame = vec![0; HEADER_BYTES];
        frame.push(self.reach as u8);
        put_u64(&mut frame, self.window_bytes);
        put_u64(&mut frame, self.streams_max);
        put_u64(&mut frame, self.selectors.len() as u64);
        for selector in &self.selectors {
            put_bytes(&mut frame, selector.as_bytes());
        }
        put_u64(&mut frame, self.positions.len() as u64);
        for position in &self.positions {
            frame.extend_from_slice(&position.series.0);
            put_i64(&mut frame, position.life_ns);
            put_u64(&mut frame, position.number);
        }
        put_i64(&mut frame, self.newest_life_ns);
        if !self.scope.is_empty() {
            put_bytes(&mut frame, self.scope.as_bytes());
        }
        header.seal(&mut frame);
        frame
    }

    /// Reads the body of a frame of kind [`FrameKind::Subscribe`], with the parsed selectors.
    pub fn read(body: &[u8]) -> Result<(Self, Vec<Selector>), FrameFault> {
        let mut cut = ByteReader::new(body);
        let subscription = Self::parts(&mut cut).ok_or_else(|| malformed(PART))?;
        let selectors = subscription.selectors.iter().map(|s| Selector::parse(s));
        let selectors = selectors.collect::<Result<_, _>>()?;
        Ok((subscription, selectors))
    }

    fn parts(cut: &mut ByteReader<'_>) -> Option<Self> {
        let reach = FeedReach::read(cut.u8()?)?;
        let window_bytes = cut.u64()?;
        let streams_max = cut.u64()?;
        let selectors = cut.count(1).filter(|count| *count <= SELECTORS_MAX)?;
        let selector = |cut: &mut ByteReader<'_>| {
            let text = cut.text().filter(|text| text.len() <= SELECTOR_BYTES_MAX)?;
            Some(text.to_owned())
        };
        let selectors = (0..selectors)
            .map(|_| selector(cut))
            .collect::<Option<_>>()?;
        let positions = cut.count(POSITION_BYTES_MIN);
        let positions = positions.filter(|count| *count <= POSITIONS_MAX)?;
        let positions = (0..positions)
            .map(|_| position(cut))
            .collect::<Option<_>>()?;
        let newest_life_ns = cut.i64()?;
        let scope = match cut.is_empty() {
            true => "",
            false => cut.text().filter(|scope| is_scope(scope))?,
        };
        cut.is_empty().then_some(Self {
            selectors,
            window_bytes,
            streams_max,
            positions,
            reach,
            newest_life_ns,
            scope: scope.into(),
        })
    }
}

fn position(cut: &mut ByteReader<'_>) -> Option<Position> {
    Some(Position {
        series: SeriesId(cut.take(16)?.try_into().ok()?),
        life_ns: cut.i64()?,
        number: cut.u64()?,
    })
}
