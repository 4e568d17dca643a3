//! The segment of a mirrored node: memory of this node that has the streams of another one.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use barograph_model::{Sample, StreamKey};
use barograph_stream::{RunDir, Segment, SegmentConfig, StreamError, StreamWriter};

use crate::frame::Announcement;
use crate::mirror::MirrorSink;
use crate::mirror_room::{MirrorBounds, MirrorRoom};

/// A stream of the segment.
#[derive(Debug)]
struct MirroredStream {
    /// `None` if its ring was to begin anew and there was no room for that.
    writer: Option<StreamWriter>,
    /// Announcement of its owner.
    announced: Announcement,
    /// Bytes of room that it has taken.
    room_bytes: usize,
}

/// A segment that a feed fills.
#[derive(Debug)]
pub(crate) struct MirrorSegment {
    segment: Segment,
    depth_max: u32,
    /// Room that other segments have a part in.
    room: Option<Arc<MirrorRoom>>,
    /// The streams by key.
    streams: Vec<Option<MirroredStream>>,
    free: Vec<StreamKey>,
    /// The wake bits of what was written since the last wake.
    woken: u32,
    /// Samples that the rings here could not take, such as values that are longer than announced.
    pub(crate) refused: u64,
}

impl MirrorSegment {
    /// Makes an empty segment in this directory, for streams of the node of this name.
    pub(crate) fn create(
        dir: &RunDir,
        node: &str,
        bounds: &MirrorBounds,
        now_ns: i64,
    ) -> Result<Self, StreamError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir.path());
        made.map_err(|source| StreamError::Io {
            what: "make",
            path: dir.path().to_owned(),
            source,
        })?;
        let config = SegmentConfig {
            streams_max: u32::try_from(bounds.streams_max).unwrap_or(u32::MAX),
            ring_bytes_max: bounds.ring_bytes_max,
            ..SegmentConfig::new(node)
        };
        Ok(Self {
            segment: Segment::create(&dir.segment(), config, now_ns)?,
            depth_max: bounds.depth_max,
            room: None,
            streams: Vec::new(),
            free: Vec::new(),
            woken: 0,
            refused: 0,
        })
    }

    /// Takes the room of its streams from this one, too. Call it before the first stream.
    pub(crate) fn share(&mut self, room: Arc<MirrorRoom>) {
        self.room = Some(room);
    }

    /// Publishes that the owner was heard at `now_ns`, by this node's clock, in ns since the epoch.
    /// A mirror that is not told so any more is stale, and its readers see it.
    pub(crate) fn heard(&mut self, now_ns: i64) {
        self.segment.heartbeat(now_ns);
    }

    /// Wakes those who wait for what was written.
    pub(crate) fn wake(&mut self) {
        let woken = std::mem::take(&mut self.woken);
        if woken != 0 {
            self.segment.wake(woken);
        }
    }

    /// Number of streams.
    pub(crate) fn streams(&self) -> usize {
        self.segment.streams()
    }

    /// Gives the memory of ended streams back; call it once per second.
    pub(crate) fn give_memory_back(&mut self) {
        self.segment.give_memory_back();
    }

    fn writer(&mut self, key: StreamKey) -> Option<&mut StreamWriter> {
        self.streams
            .get_mut(key.0 as usize)?
            .as_mut()?
            .writer
            .as_mut()
    }

    /// Depth and longest value of the ring of a stream.
    fn ring_of(&self, announced: &Announcement) -> (Option<u32>, Option<u32>) {
        let depth = announced.depth.clamp(2, self.depth_max);
        let value_bytes_max = Some(announced.value_bytes_max).filter(|bytes| *bytes > 0);
        (Some(depth), value_bytes_max)
    }

    fn register(&mut self, announced: &Announcement) -> Option<StreamWriter> {
        let (depth, value_bytes_max) = self.ring_of(announced);
        let writer = self.segment.register_sized(
            &announced.descriptor,
            depth,
            value_bytes_max,
            announced.life_ns,
        );
        let writer = writer.ok()?;
        self.segment.expect_interval(&writer, announced.interval_ns);
        Some(writer)
    }

    fn give_room_back(&self, bytes: usize) {
        if let Some(room) = &self.room {
            room.give_back(bytes);
        }
    }

    /// Makes this the number of the stream's next sample. If there are samples already, the ring
    /// begins anew: whoever reads it must not take a hole for two successive samples. That costs
    /// little, since the samples after a hole are as many as the owner's ring holds.
    fn begin_at(&mut self, key: StreamKey, number: u64) -> Option<()> {
        let stream = self.streams.get_mut(key.0 as usize)?.as_mut()?;
        let mut writer = stream.writer.take();
        if writer.as_ref().is_none_or(|writer| !writer.is_empty()) {
            let announced = stream.announced.clone();
            if let Some(writer) = writer {
                self.segment.retire(writer);
            }
            writer = self.register(&announced);
        }
        let mut writer = writer?;
        self.segment.begin_at(&mut writer, number);
        let stream = self.streams.get_mut(key.0 as usize)?.as_mut()?;
        stream.writer = Some(writer);
        Some(())
    }
}

impl Drop for MirrorSegment {
    fn drop(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        for stream in streams.into_iter().flatten() {
            self.give_room_back(stream.room_bytes);
        }
    }
}

impl MirrorSink for MirrorSegment {
    fn declare(&mut self, announced: &Announcement) -> Option<StreamKey> {
        let (depth, value_bytes_max) = self.ring_of(announced);
        let ring_bytes = self
            .segment
            .ring_bytes(&announced.descriptor, depth, value_bytes_max);
        if let Some(room) = &self.room {
            room.take(ring_bytes)?;
        }
        let Some(writer) = self.register(announced) else {
            self.give_room_back(ring_bytes);
            return None;
        };
        let next = StreamKey(self.streams.len() as u32);
        let key = self.free.pop().unwrap_or(next);
        if key == next {
            self.streams.push(None);
        }
        self.streams[key.0 as usize] = Some(MirroredStream {
            writer: Some(writer),
            announced: announced.clone(),
            room_bytes: ring_bytes,
        });
        Some(key)
    }

    fn retire(&mut self, key: StreamKey) {
        let stream = self.streams.get_mut(key.0 as usize);
        if let Some(stream) = stream.and_then(Option::take) {
            if let Some(writer) = stream.writer {
                self.segment.retire(writer);
            }
            self.give_room_back(stream.room_bytes);
            self.free.push(key);
        }
    }

    fn append(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        let next = self.writer(key).map(|writer| writer.count() + 1);
        if next != Some(number) {
            self.begin_at(key, number);
        }
        let appended = self.writer(key).and_then(|writer| {
            writer.append(sample).ok()?;
            Some(writer.wake_bit())
        });
        match appended {
            Some(bit) => self.woken |= bit,
            None => self.refused += 1,
        }
    }

    fn recall(&mut self, key: StreamKey, number: u64, sample: &Sample) {
        self.append(key, number, sample);
    }

    fn confirm(&mut self, key: StreamKey, looked_ns: i64) {
        if let Some(writer) = self.writer(key) {
            writer.confirm(looked_ns);
        }
    }

    fn expect_interval(&mut self, key: StreamKey, interval_ns: i64) {
        let stream = self.streams.get_mut(key.0 as usize);
        if let Some(stream) = stream.and_then(Option::as_mut) {
            stream.announced.interval_ns = interval_ns;
            if let Some(writer) = &stream.writer {
                self.segment.expect_interval(writer, interval_ns);
            }
        }
    }

    fn miss(&mut self, _: StreamKey, _: u64, _: u64) {
        // The mirror counts them, and the next sample has a later number.
    }
}
