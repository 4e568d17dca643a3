//! The writer's side of a segment: creating it, registering and retiring streams, waking readers.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{Descriptor, SeriesId, text_start};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use rustix::param::page_size;
use rustix::thread::futex;

use crate::Incarnation;
use crate::ended::EndedRings;
use crate::entry::ValueSlots;
use crate::layout::{
    self, CELL_BYTES, DEPTH_DEFAULT, DEPTH_MAX, DESCRIPTOR_BYTES, LINE_BYTES, LONG_DEPTH_MIN,
    LONG_RING_BYTES, NODE_BYTES_MAX, RING_BYTES_MAX, SLOTS_BYTES_MAX, STREAMS_DEFAULT, STREAMS_MAX,
    TEXT_SLOT_BYTES, header, state,
};
use crate::line::{self, LINE_WORDS};
use crate::map::{FileMap, MapAccess};
use crate::slots::{RingShape, SlotGrant, Slots};
use crate::writer::StreamWriter;
use crate::{SegmentReader, StreamError};

/// Slots that get memory at a time, so that a segment for many streams takes little memory for few.
const SLOTS_RESERVED: usize = 1_024;
/// Mode of the file: everyone who may enter its directory can read it, only its owner can write.
const SEGMENT_MODE: u32 = 0o644;

/// The configuration of a segment.
#[derive(Clone, Debug)]
pub struct SegmentConfig {
    /// Name of this node, at most [`NODE_BYTES_MAX`] bytes (a longer one is cut).
    pub node: String,
    /// Most streams at once.
    pub streams_max: u32,
    /// Samples per ring, unless a stream requests another number.
    pub depth_default: u32,
    /// Room for rings, in bytes; only address space until streams use it.
    pub ring_bytes_max: usize,
    /// Identity of this life of the segment; `None` draws it from the system.
    pub incarnation: Option<Incarnation>,
}

impl SegmentConfig {
    /// Returns the defaults for a node.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            streams_max: STREAMS_DEFAULT,
            depth_default: DEPTH_DEFAULT,
            ring_bytes_max: 1 << 30,
            incarnation: None,
        }
    }
}

/// A segment with the right to write to it. It has one owner; each [`StreamWriter`] can move to a
/// thread of its own.
#[derive(Debug)]
pub struct Segment {
    map: Arc<FileMap>,
    file: File,
    path: PathBuf,
    config: SegmentConfig,
    slots: Slots,
    live: HashSet<SeriesId>,
    ended: EndedRings,
    /// Number of slots for which memory is reserved in the directory.
    slots_reserved: usize,
    lines_at: usize,
    descriptors_at: usize,
    rings_at: usize,
    refused: u64,
}

impl Segment {
    /// Creates a segment and puts it at `path` in one step; readers of an older segment there find
    /// that one closed. Memory for the directory and the rings is reserved as streams are
    /// registered, so that a full file system is an error here and never a fault later. Limits
    /// beyond those of the format are lowered to them.
    pub fn create(
        path: &Path,
        mut config: SegmentConfig,
        now_ns: i64,
    ) -> Result<Self, StreamError> {
        config.streams_max = config.streams_max.clamp(1, STREAMS_MAX);
        config.ring_bytes_max = config.ring_bytes_max.min(RING_BYTES_MAX);
        let temporary = path.with_extension("new");
        let segment = Self::lay_out(path, &temporary, config, now_ns).and_then(|segment| {
            // Opened before the rename and closed after it, so that a reader that wakes up finds
            // the new segment at the path.
            let predecessor = predecessor(path);
            fs::rename(&temporary, path).map_err(io_error("put in place", path))?;
            if let Some(map) = predecessor {
                close(&map);
            }
            Ok(segment)
        });
        if segment.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        segment
    }

    fn lay_out(
        path: &Path,
        temporary: &Path,
        config: SegmentConfig,
        now_ns: i64,
    ) -> Result<Self, StreamError> {
        let slots_max = config.streams_max as usize;
        let lines_at = header::BYTES;
        let descriptors_at = lines_at + slots_max * LINE_BYTES;
        let rings_at = (descriptors_at + slots_max * DESCRIPTOR_BYTES).next_multiple_of(4096);
        let bytes = rings_at + config.ring_bytes_max.next_multiple_of(4096);

        let _ = fs::remove_file(temporary);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(SEGMENT_MODE)
            .open(temporary)
            .map_err(io_error("create", path))?;
        // Set whatever the umask was: the directory decides who may read.
        file.set_permissions(fs::Permissions::from_mode(SEGMENT_MODE))
            .map_err(io_error("give a mode to", path))?;
        file.set_len(bytes as u64).map_err(io_error("size", path))?;
        reserve(&file, 0, lines_at).map_err(|e| io_error("reserve memory for", path)(e.into()))?;
        let map = FileMap::new(&file, bytes, MapAccess::Write).map_err(io_error("map", path))?;
        let mut segment = Self {
            slots: Slots::new(config.streams_max, config.ring_bytes_max),
            map: Arc::new(map),
            file,
            path: path.into(),
            config,
            live: HashSet::new(),
            ended: EndedRings::default(),
            slots_reserved: 0,
            lines_at,
            descriptors_at,
            rings_at,
            refused: 0,
        };
        segment
            .reserve_slot(0)
            .map_err(|e| io_error("reserve memory for", path)(e.into()))?;
        segment
            .write_header(bytes, now_ns)
            .map_err(io_error("seed", path))?;
        Ok(segment)
    }

    fn write_header(&self, bytes: usize, now_ns: i64) -> io::Result<()> {
        let pair = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
        let set = |at, value| self.map.set(at, value, Ordering::Relaxed);
        let incarnation = self.config.incarnation.map_or_else(Incarnation::draw, Ok)?;
        self.map.copy_in(header::INCARNATION, &incarnation.0);
        set(
            header::VERSION,
            pair(layout::VERSION_MAJOR, layout::VERSION_MINOR),
        );
        set(
            header::ORDER,
            pair(layout::BYTE_ORDER, header::BYTES as u32),
        );
        set(header::SEGMENT_BYTES, bytes as u64);
        set(header::CREATED_NS, now_ns as u64);
        set(header::PID, u64::from(std::process::id()));
        set(header::STATE, state::LIVE);
        set(header::HEARTBEAT_NS, now_ns as u64);
        set(
            header::SLOTS_MAX,
            pair(self.config.streams_max, DESCRIPTOR_BYTES as u32),
        );
        set(header::DESCRIPTORS_AT, self.descriptors_at as u64);
        set(header::LINES_AT, self.lines_at as u64);
        set(header::RINGS_AT, self.rings_at as u64);
        set(
            header::CELL,
            pair(CELL_BYTES as u32, TEXT_SLOT_BYTES as u32),
        );
        let name = text_start(&self.config.node, NODE_BYTES_MAX);
        let mut node = vec![name.len() as u8];
        node.extend(name.as_bytes());
        self.map.copy_in(header::NODE, &node);
        self.map
            .set(header::MAGIC, layout::MAGIC, Ordering::Release);
        Ok(())
    }

    /// Registers a stream; its ring holds `depth` samples (`None`: the segment's default).
    pub fn register(
        &mut self,
        stream: &Descriptor,
        depth: Option<u32>,
        now_ns: i64,
    ) -> Result<StreamWriter, StreamError> {
        self.register_sized(stream, depth, None, now_ns)
    }

    /// Registers a stream whose texts, JSON, bytes or arrays have at most `value_bytes_max` bytes,
    /// rounded up to a power of two (`None`: 126 for texts,
    /// [`VALUE_BYTES_DEFAULT`](crate::VALUE_BYTES_DEFAULT) for the other types). It has no meaning
    /// for numbers.
    ///
    /// Rings of long values hold fewer samples than others unless a depth is requested, and never
    /// more than fit into [`SLOTS_BYTES_MAX`].
    pub fn register_sized(
        &mut self,
        stream: &Descriptor,
        depth: Option<u32>,
        value_bytes_max: Option<u32>,
        now_ns: i64,
    ) -> Result<StreamWriter, StreamError> {
        let series = stream.series_id();
        if self.live.contains(&series) {
            return Err(StreamError::Duplicate {
                stream: stream.to_string(),
            });
        }
        let (slots, shape) = self.shape_of(stream, depth, value_bytes_max);
        let depth = shape.depth;
        if !(2..=DEPTH_MAX).contains(&depth) {
            return Err(StreamError::Depth {
                stream: stream.to_string(),
                depth,
            });
        }
        let grant = self.grant(stream, shape)?;
        let ring_at = self.rings_at + grant.ring_at;
        let text_at = if slots != ValueSlots::None {
            ring_at + shape.cells_bytes()
        } else {
            0
        };
        let line_at = self.lines_at + grant.slot as usize * LINE_BYTES;
        let line = self.map.words(line_at, LINE_WORDS);
        line::reset(line.expect("lines are inside"), grant.generation);
        let ring = Ring {
            ring_at,
            text_at,
            depth,
            slots,
        };
        self.write_descriptor(stream, series, grant, ring, now_ns);
        self.live.insert(series);
        Ok(StreamWriter::new(
            Arc::clone(&self.map),
            (stream.value_type, slots),
            series,
            grant,
            shape,
            line_at,
            ring_at,
            text_at,
        ))
    }

    /// Bytes of ring memory that [`Self::register_sized`] takes for the same arguments.
    pub fn ring_bytes(
        &self,
        stream: &Descriptor,
        depth: Option<u32>,
        value_bytes_max: Option<u32>,
    ) -> usize {
        self.shape_of(stream, depth, value_bytes_max).1.bytes()
    }

    fn shape_of(
        &self,
        stream: &Descriptor,
        depth: Option<u32>,
        value_bytes_max: Option<u32>,
    ) -> (ValueSlots, RingShape) {
        let slots = ValueSlots::of(stream.value_type, value_bytes_max);
        let shape = RingShape {
            depth: self.depth_of(depth, slots),
            slot_bytes: slots.slot_bytes(),
        };
        (slots, shape)
    }

    fn depth_of(&self, depth: Option<u32>, slots: ValueSlots) -> u32 {
        let ValueSlots::Long(slot_bytes) = slots else {
            return depth.unwrap_or(self.config.depth_default);
        };
        let slot_bytes = slot_bytes as usize;
        let usual = (LONG_RING_BYTES / (slot_bytes + CELL_BYTES)) as u32;
        let usual = usual.min(self.config.depth_default).max(LONG_DEPTH_MIN);
        depth
            .unwrap_or(usual)
            .min((SLOTS_BYTES_MAX / slot_bytes) as u32)
    }

    fn grant(&mut self, stream: &Descriptor, shape: RingShape) -> Result<SlotGrant, StreamError> {
        let Some(grant) = self.slots.take(shape) else {
            self.count_refused();
            let stream = stream.to_string();
            return Err(if self.live.len() == self.config.streams_max as usize {
                StreamError::Full {
                    stream,
                    max: self.config.streams_max,
                }
            } else {
                StreamError::RingsFull {
                    stream,
                    bytes: shape.bytes(),
                    max: self.config.ring_bytes_max,
                }
            });
        };
        if let Err(errno) = self.reserve_slot(grant.slot) {
            self.slots.undo(grant, shape);
            self.count_refused();
            return Err(io_error("reserve a descriptor in", &self.path)(
                errno.into(),
            ));
        }
        // Done also for memory that another ring has had: a reservation of memory that is there
        // costs little, so one code path serves both cases.
        let from = self.rings_at + grant.ring_at;
        if let Err(errno) = reserve(&self.file, from, shape.bytes()) {
            self.slots.undo(grant, shape);
            self.count_refused();
            let what = "reserve a ring in";
            return Err(StreamError::Io {
                what,
                path: self.path.clone(),
                source: errno.into(),
            });
        }
        self.ended
            .keep(grant.ring_at..grant.ring_at + shape.bytes());
        Ok(grant)
    }

    /// Reserves memory for a slot's line and descriptor, and for some slots that follow.
    fn reserve_slot(&mut self, slot: u32) -> Result<(), Errno> {
        let first = self.slots_reserved;
        if (slot as usize) < first {
            return Ok(());
        }
        let count = SLOTS_RESERVED.min(self.config.streams_max as usize - first);
        let lines_at = self.lines_at + first * LINE_BYTES;
        reserve(&self.file, lines_at, count * LINE_BYTES)?;
        let descriptors_at = self.descriptors_at + first * DESCRIPTOR_BYTES;
        reserve(&self.file, descriptors_at, count * DESCRIPTOR_BYTES)?;
        self.slots_reserved += count;
        Ok(())
    }

    fn count_refused(&mut self) {
        self.refused += 1;
        self.map
            .set(header::REFUSED, self.refused, Ordering::Relaxed);
    }

    fn descriptor_at(&self, slot: u32) -> usize {
        self.descriptors_at + slot as usize * DESCRIPTOR_BYTES
    }

    fn write_descriptor(
        &mut self,
        stream: &Descriptor,
        series: SeriesId,
        grant: SlotGrant,
        ring: Ring,
        now_ns: i64,
    ) {
        use layout::descriptor as d;
        let Ring {
            ring_at,
            text_at,
            depth,
            slots,
        } = ring;
        let (type_code, slot_bytes) = slots.encode(stream.value_type);
        let mut bytes = [0u8; DESCRIPTOR_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let help = text_start(&stream.help, barograph_model::HELP_BYTES_MAX);
        let mut labels = Vec::new();
        for (name, value) in stream.labels.iter() {
            labels.extend([name.len() as u8, value.len() as u8]);
            labels.extend(name.as_bytes());
            labels.extend(value.as_bytes());
        }
        put(d::SERIES_ID, &series.0);
        put(d::RING_AT, &(ring_at as u64).to_le_bytes());
        put(d::TEXT_AT, &(text_at as u64).to_le_bytes());
        put(d::DEPTH, &depth.to_le_bytes());
        let (name, unit) = (stream.name.as_str(), stream.unit.as_str());
        put(
            d::DEPTH + 4,
            &[
                type_code,
                stream.kind as u8,
                name.len() as u8,
                unit.len() as u8,
            ],
        );
        put(d::LENGTHS, &(labels.len() as u16).to_le_bytes());
        put(
            d::LENGTHS + 2,
            &[stream.labels.iter().len() as u8, help.len() as u8],
        );
        put(d::LENGTHS + 4, &slot_bytes.to_le_bytes());
        put(d::CREATED_NS, &now_ns.to_le_bytes());
        put(d::NAME, name.as_bytes());
        put(d::UNIT, unit.as_bytes());
        put(d::HELP, help.as_bytes());
        put(d::LABELS, &labels);
        let mut new = [0; DESCRIPTOR_BYTES / 8];
        for (word, chunk) in new.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
        }
        let words = self
            .map
            .words(self.descriptor_at(grant.slot), new.len())
            .expect("descriptors are inside");
        line::rewrite(words, &new, state_word(d::LIVE, grant.generation));
        self.map.set(
            header::SLOTS_USED,
            u64::from(self.slots.used()),
            Ordering::Release,
        );
        self.bump_directory();
    }

    fn bump_directory(&self) {
        self.map
            .word(header::DIRECTORY_VERSION)
            .fetch_add(1, Ordering::AcqRel);
        wake(&self.map, u32::MAX);
    }

    /// Publishes the interval between looks at this stream's resource, in ns.
    ///
    /// # Panics
    /// If the stream was registered in another segment.
    pub fn expect_interval(&self, writer: &StreamWriter, interval_ns: i64) {
        assert!(
            writer.is_of(&self.map),
            "an interval is told to the segment that the stream was registered in"
        );
        let at = self.descriptor_at(writer.slot()) + layout::descriptor::INTERVAL_NS;
        self.map.set(at, interval_ns as u64, Ordering::Relaxed);
    }

    /// Gives the first sample of this stream the number `first`, at least 1: a mirror begins in the
    /// middle of a stream's life. The ring has no samples before it.
    ///
    /// # Panics
    /// If the stream has samples already, or was registered in another segment.
    pub fn begin_at(&self, writer: &mut StreamWriter, first: u64) {
        let may_begin = writer.is_of(&self.map) && writer.is_empty();
        assert!(may_begin, "a stream begins once, in its own segment");
        let first = first.clamp(1, line::NUMBER_MAX);
        let at = self.descriptor_at(writer.slot()) + layout::descriptor::FIRST;
        // Whoever sees the first sample sees its number.
        self.map.set(at, first, Ordering::Release);
        writer.begin_at(first);
    }

    /// Ends a stream: from now on its handles return that it is gone.
    ///
    /// # Panics
    /// If the stream was registered in another segment.
    pub fn retire(&mut self, writer: StreamWriter) {
        assert!(
            writer.is_of(&self.map),
            "a stream ends in the segment that it was registered in"
        );
        let (grant, shape) = (writer.grant(), writer.shape());
        let next = grant.generation.wrapping_add(1).max(1);
        self.map
            .set(writer.line_at(), line::sequence(next, 0), Ordering::Release);
        self.map.set(
            self.descriptor_at(grant.slot) + layout::descriptor::STATE,
            state_word(layout::descriptor::GONE, next),
            Ordering::Release,
        );
        self.live.remove(&writer.series());
        self.ended.add(grant.ring_at, shape.bytes());
        self.slots.give(grant, shape, next);
        self.bump_directory();
        self.wake(writer.wake_bit());
    }

    /// Gives the pages of ended rings back to the system, if their streams had ended before the
    /// previous call. Call it once per second. If the file system cannot take the pages, they stay.
    pub fn give_memory_back(&mut self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let pages = self
            .ended
            .take(page_size(), |place| self.slots.free_around(place));
        for pages in pages {
            let (at, bytes) = ((self.rings_at + pages.start) as u64, pages.len() as u64);
            let _ = retry_on_intr(|| fallocate(&self.file, flags, at, bytes));
        }
    }

    /// Publishes that the agent is alive at `now_ns`; readers compare this time with their clock.
    pub fn heartbeat(&self, now_ns: i64) {
        self.map
            .set(header::HEARTBEAT_NS, now_ns as u64, Ordering::Release);
    }

    /// Wakes the readers that wait for streams of these bits (the OR of
    /// [`StreamWriter::wake_bit`]s) and those that wait for any change: one system call.
    pub fn wake(&self, mask: u32) {
        wake(&self.map, mask);
    }

    /// Number of registrations that were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Number of live streams.
    pub fn streams(&self) -> usize {
        self.live.len()
    }

    /// Opens a reader of this segment, as any other process does.
    pub fn reader(&self) -> Result<SegmentReader, StreamError> {
        SegmentReader::open(&self.path)
    }

    /// Marks the segment as closed (nothing will be written to it again) and wakes everyone who
    /// waits.
    pub fn close(&self) {
        close(&self.map);
    }
}

/// The place of a stream's samples and values in the file, and their number.
#[derive(Clone, Copy)]
struct Ring {
    ring_at: usize,
    text_at: usize,
    depth: u32,
    slots: ValueSlots,
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.close();
    }
}

fn close(map: &FileMap) {
    map.set(header::STATE, state::CLOSED, Ordering::Release);
    wake(map, u32::MAX);
}

fn wake(map: &FileMap, mask: u32) {
    let Some(bits) = NonZeroU32::new(mask) else {
        return;
    };
    let word = map.half_word(header::TICK);
    word.fetch_add(1, Ordering::Release);
    // Waking can only fail for a bad address, and this address is mapped.
    let _ = futex::wake_bitset(word, futex::Flags::empty(), i32::MAX as u32, bits);
}

/// Maps the header of the segment at `path`, if there is one. Readers of a dead agent's segment
/// wait on memory that nobody writes any more, so they must be woken.
fn predecessor(path: &Path) -> Option<FileMap> {
    SegmentReader::open(path).ok()?;
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    FileMap::new(&file, header::BYTES, MapAccess::Write).ok()
}

fn state_word(state: u32, generation: u16) -> u64 {
    u64::from(state) | (u64::from(generation) << 32)
}

/// Reserves memory for a part of the file, so that touching it later cannot fail.
fn reserve(file: &File, from: usize, bytes: usize) -> Result<(), Errno> {
    // A signal may interrupt the call; then nothing is reserved.
    retry_on_intr(|| fallocate(file, FallocateFlags::empty(), from as u64, bytes as u64))
}

fn io_error<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> StreamError + 'a {
    move |source| StreamError::Io {
        what,
        path: path.into(),
        source,
    }
}
