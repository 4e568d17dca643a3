//! A queue of events in memory of our own, which takes in the events of the kernel before anything
//! is done that may take long.
//!
//! The kernel keeps 16,384 events for an instance by default, and loses what comes beyond. Reading
//! a directory or looking at a name can take longer than it takes other programs to cause so many
//! events. So [`Queue::drain`] moves events into memory, as the kernel gives them, and they are
//! worked on from there. The memory has a maximum. When it is used up, events stay with the kernel,
//! whose queue may run over then; it reports that with an event, which comes to us in its turn.
//!
//! # Events from before a directory was read
//!
//! Positions tell which events may have happened before a directory was read. All events of an
//! instance are one sequence of bytes, in the order in which they happened, whether they are in
//! memory or with the kernel still: draining moves the border between both and changes no position.
//! An event has the position at which it begins, and [`Queue::end`] is the position behind all
//! events up to now: the bytes that were taken in so far, and those that the kernel has still.
//!
//! The kernel queues the event of a name before it lets go of the directory in which the name was
//! made or removed, and a directory is listed under the same lock. So when all of a directory has
//! been listed, the event of each change that the listing shows begins before `end`. The reverse is
//! not true: an event before `end` may have happened after the name was listed. Such events are
//! therefore compared with the names that were found, one after the other in their order, until
//! [`Queue::told`] reaches that position. Events that begin there or later have happened after the
//! directory was read, and are told as they are.
//!
//! An `end` that is too high is harmless, since later events change the names that were found and
//! are compared with what earlier events left of them; it takes memory for longer. One that is too
//! low would tell a name twice.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::ReadFlags;
use rustix::io::Errno;

/// Bytes of a block of memory, and most bytes that are read at once.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of an event without its name.
const HEADER_BYTES: usize = 16;
/// Most bytes of an event: a name is part of a path, which has at most 4,096 bytes with its end.
const EVENT_BYTES_MAX: usize = HEADER_BYTES + 4_096;

/// An event of the kernel.
#[derive(Debug)]
pub(super) struct RawEvent {
    pub(super) wd: i32,
    pub(super) mask: ReadFlags,
    pub(super) cookie: u32,
    pub(super) name: Box<[u8]>,
    /// Position behind the event.
    end: u64,
}

/// A block of whole events.
#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    /// The part of it that has events that were not taken out yet.
    start: usize,
    end: usize,
}

impl Block {
    fn new() -> Self {
        Self {
            bytes: vec![0; BLOCK_BYTES].into(),
            start: 0,
            end: 0,
        }
    }

    fn emptied(self) -> Self {
        let (start, end) = (0, 0);
        Self { start, end, ..self }
    }
}

/// The last event that was taken in.
#[derive(Debug, Default)]
struct LastEvent {
    position: u64,
    bytes: Vec<u8>,
}

/// Events that were taken in and not yet told.
#[derive(Debug)]
pub(super) struct Queue {
    blocks: VecDeque<Block>,
    /// A block that is used next.
    spare: Option<Block>,
    blocks_max: usize,
    /// Position behind all events that were taken in.
    read: u64,
    /// Position of the next event to be taken out.
    popped: u64,
    /// Position of the first event that is not told.
    told: u64,
    last: LastEvent,
    /// Whether the kernel had nothing more when it was asked last.
    is_drained: bool,
    /// The error of the last reading.
    fault: Option<Errno>,
}

impl Queue {
    /// A queue of about `bytes_max` bytes at most, in whole blocks.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            blocks: VecDeque::new(),
            spare: None,
            blocks_max: (bytes_max / BLOCK_BYTES).max(1),
            read: 0,
            popped: 0,
            told: 0,
            last: LastEvent::default(),
            is_drained: false,
            fault: None,
        }
    }

    /// Moves events of the kernel into memory until it has no more, or there is no room.
    pub(super) fn drain(&mut self, fd: &OwnedFd) {
        self.is_drained = false;
        while let Some(block) = self.block() {
            let room = &mut block.bytes[block.end..];
            let room_bytes = room.len();
            match rustix::io::read(fd, room) {
                Ok(read) => {
                    self.take_in(read);
                    // The kernel leaves so much room only if it has no more events.
                    self.is_drained = room_bytes - read >= EVENT_BYTES_MAX;
                }
                Err(Errno::AGAIN) => self.is_drained = true,
                Err(Errno::INTR) => continue,
                Err(error) => self.fault = Some(error),
            }
            if self.is_drained || self.fault.is_some() {
                return;
            }
        }
    }

    /// The error of a reading, once.
    pub(super) fn take_fault(&mut self) -> Option<Errno> {
        self.fault.take()
    }

    /// Whether no events are in memory.
    pub(super) fn is_empty(&self) -> bool {
        self.popped == self.read
    }

    /// Whether no events are in memory, and the kernel had none when it was asked last.
    pub(super) fn is_dry(&self) -> bool {
        self.is_empty() && self.is_drained
    }

    /// The next event. It counts as told with [`Self::tell`].
    pub(super) fn pop(&mut self) -> Option<RawEvent> {
        let block = loop {
            let block = self.blocks.front()?;
            if block.start < block.end {
                break self.blocks.front_mut()?;
            }
            if self.blocks.len() == 1 {
                return None;
            }
            self.spare = self.blocks.pop_front().map(Block::emptied);
        };
        let bytes = &block.bytes[block.start..block.end];
        // Only whole events were taken in.
        let length = event_bytes(bytes)?;
        let (header, name) = bytes[..length].split_at(HEADER_BYTES);
        let word = |at: usize| {
            header[at..]
                .first_chunk()
                .map_or(0, |w| u32::from_ne_bytes(*w))
        };
        let name_end = name.iter().position(|byte| *byte == 0);
        self.popped += length as u64;
        let event = RawEvent {
            wd: word(0).cast_signed(),
            mask: ReadFlags::from_bits_retain(word(4)),
            cookie: word(8),
            name: name[..name_end.unwrap_or(name.len())].into(),
            end: self.popped,
        };
        block.start += length;
        Some(event)
    }

    /// Takes in that an event, and all before it, were told.
    pub(super) fn tell(&mut self, event: &RawEvent) {
        self.told = event.end;
    }

    /// Position of the first event that is not told: the one that is being told, if there is one.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    /// Position behind all events that have happened up to now.
    pub(super) fn end(&mut self, fd: &OwnedFd) -> u64 {
        self.drain(fd);
        let waiting = match self.is_drained {
            true => 0,
            false => rustix::io::ioctl_fionread(fd).unwrap_or(u64::from(u32::MAX)),
        };
        self.read + waiting
    }

    /// A block that has room for an event; `None` if there is no more memory.
    fn block(&mut self) -> Option<&mut Block> {
        if let Some(last) = self.blocks.back_mut()
            && last.start == last.end
        {
            (last.start, last.end) = (0, 0);
        }
        let end = self.blocks.back().map_or(BLOCK_BYTES, |last| last.end);
        if BLOCK_BYTES - end < EVENT_BYTES_MAX {
            if self.blocks.len() >= self.blocks_max {
                return None;
            }
            let block = self.spare.take().unwrap_or_else(Block::new);
            self.blocks.push_back(block);
        }
        self.blocks.back_mut()
    }

    /// Takes in events that were read behind the others of the last block.
    fn take_in(&mut self, read: usize) {
        let Some(block) = self.blocks.back_mut() else {
            return;
        };
        let (start, mut end) = (block.end, block.end + read);
        // An event that is equal to the one before it in the queue is dropped, as the kernel does
        // where both are in its queue: a file that is written in many pieces fills no memory.
        let first = event_bytes(&block.bytes[start..end]).unwrap_or(0);
        let is_waiting = self.last.position >= self.popped;
        if first > 0
            && is_waiting
            && self.last.bytes == block.bytes[start..start + first]
            && !is_ignored(&self.last.bytes)
        {
            block.bytes.copy_within(start + first..end, start);
            end -= first;
        }
        let mut at = start;
        while let Some(length) = event_bytes(&block.bytes[at..end]) {
            if at + length == end {
                self.last.position = self.read + (at - start) as u64;
                self.last.bytes.clear();
                self.last.bytes.extend(&block.bytes[at..end]);
            }
            at += length;
        }
        if at < end {
            // The kernel gives whole events only.
            self.fault = Some(Errno::BADMSG);
        }
        block.end = at;
        self.read += (at - start) as u64;
    }
}

/// Number of bytes of the first event; `None` if it is not there as a whole.
fn event_bytes(bytes: &[u8]) -> Option<usize> {
    let name = bytes.get(HEADER_BYTES - 4..)?.first_chunk()?;
    let length = HEADER_BYTES.checked_add(u32::from_ne_bytes(*name) as usize)?;
    (length <= bytes.len()).then_some(length)
}

fn is_ignored(event: &[u8]) -> bool {
    let mask = event.get(4..).and_then(|bytes| bytes.first_chunk());
    let mask = mask.map_or(0, |mask| u32::from_ne_bytes(*mask));
    ReadFlags::from_bits_retain(mask).contains(ReadFlags::IGNORED)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    use tempfile::TempDir;

    use super::*;

    fn watched(flags: WatchFlags) -> (TempDir, OwnedFd) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&fd, dir.path(), flags).unwrap();
        (dir, fd)
    }

    fn make(dir: &Path, name: &str) {
        std::fs::File::create(dir.join(name)).unwrap();
    }

    fn names(queue: &mut Queue) -> Vec<String> {
        let events = std::iter::from_fn(|| queue.pop());
        let name = |event: RawEvent| String::from_utf8(event.name.into()).unwrap();
        events.map(name).collect()
    }

    #[test]
    fn bytes_are_counted_as_the_kernel_does() {
        let (dir, fd) = watched(WatchFlags::ALL_EVENTS);
        for bytes in [1, 14, 15, 16, 17, 31, 32, 255] {
            std::fs::write(dir.path().join("x".repeat(bytes)), b"1").unwrap();
        }
        std::fs::read_dir(dir.path()).unwrap().count();
        let waiting = rustix::io::ioctl_fionread(&fd).unwrap();
        let mut queue = Queue::new(1 << 20);
        assert_eq!((queue.end(&fd), queue.told()), (waiting, 0));
        assert!(waiting > 0 && !queue.is_empty());
        let mut names = 0;
        while let Some(event) = queue.pop() {
            // An event is from before that position until it is told.
            assert!(queue.told() < waiting);
            queue.tell(&event);
            names += usize::from(event.mask.contains(ReadFlags::CREATE));
        }
        assert_eq!((names, queue.told(), queue.end(&fd)), (8, waiting, waiting));
        assert!(queue.is_dry());
    }

    #[test]
    fn what_has_no_room_in_memory_stays_with_the_kernel() {
        let (dir, fd) = watched(WatchFlags::CREATE);
        let made: Vec<_> = (0..5_000).map(|at| format!("{at:05}")).collect();
        made.iter().for_each(|name| make(dir.path(), name));
        let mut queue = Queue::new(2 * BLOCK_BYTES);
        queue.drain(&fd);
        let room = 2 * (BLOCK_BYTES - EVENT_BYTES_MAX) as u64;
        assert!((room..=2 * BLOCK_BYTES as u64).contains(&queue.read));
        assert!(!queue.is_drained);
        assert_eq!(queue.end(&fd), 5_000 * 32);
        let mut found = Vec::new();
        while !queue.is_dry() {
            found.extend(names(&mut queue));
            queue.drain(&fd);
            assert_eq!(queue.end(&fd), 5_000 * 32);
            assert!(queue.blocks.len() <= 2);
        }
        assert_eq!(found, made);
    }

    #[test]
    fn blocks_are_used_again() {
        let (dir, fd) = watched(WatchFlags::CREATE);
        let mut queue = Queue::new(1 << 20);
        for round in 0..4 {
            let name = |at: usize| format!("{round} {at:04} {}", "x".repeat(at % 230));
            let made: Vec<_> = (0..3_000).map(name).collect();
            made.iter().for_each(|name| make(dir.path(), name));
            queue.drain(&fd);
            assert!(queue.blocks.len() > 4 && queue.is_drained);
            assert!(queue.take_fault().is_none());
            assert_eq!(names(&mut queue), made);
        }
    }

    #[test]
    fn an_event_that_is_equal_to_the_one_before_is_one_with_it_while_both_wait() {
        let (dir, fd) = watched(WatchFlags::MODIFY);
        let mut files =
            ["a", "b"].map(|name| std::fs::File::create(dir.path().join(name)).unwrap());
        let mut write = |at: usize| std::io::Write::write_all(&mut files[at], b"1").unwrap();
        let mut queue = Queue::new(1 << 20);
        for at in [0, 0, 1, 1, 0] {
            write(at);
            queue.drain(&fd);
        }
        assert_eq!(queue.end(&fd), 3 * 32);
        assert_eq!(names(&mut queue), ["a", "b", "a"]);
        // The one before was taken out.
        write(0);
        queue.drain(&fd);
        assert_eq!(
            (names(&mut queue), queue.end(&fd)),
            (vec!["a".into()], 4 * 32)
        );
    }

    #[test]
    fn a_full_queue_of_the_kernel_is_an_event_in_its_turn() {
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        let (dir, fd) = watched(WatchFlags::CREATE);
        let mut queue = Queue::new(64 << 20);
        for round in 0..2 {
            for at in 0..limit + 100 {
                make(dir.path(), &format!("{round} {at}"));
            }
            queue.drain(&fd);
        }
        let events: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let lost = events.iter().enumerate();
        let lost = lost.filter(|(_, event)| event.mask.contains(ReadFlags::QUEUE_OVERFLOW));
        let lost: Vec<_> = lost.map(|(at, _)| at).collect();
        assert_eq!(
            (events.len(), lost),
            (2 * limit + 2, vec![limit, 2 * limit + 1])
        );
    }

    #[test]
    fn only_whole_events_are_events() {
        let event = |name: u32| [&[0; 12][..], &name.to_ne_bytes(), &[b'n'; 16]].concat();
        let cases = [
            (event(16), Some(32)),
            (event(0), Some(16)),
            (event(17), None),
            (event(u32::MAX), None),
            (event(0)[..15].to_vec(), None),
            (Vec::new(), None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(event_bytes(&bytes), expected, "{bytes:?}");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Make(usize),
        Drain,
        Pop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1usize..100).prop_map(Step::Make),
            2 => Just(Step::Drain),
            1 => (1usize..200).prop_map(Step::Pop),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn events_keep_their_order_and_positions(steps in proptest::collection::vec(step(), 1..60)) {
            let (dir, fd) = watched(WatchFlags::CREATE);
            let mut queue = Queue::new(0);
            let (mut made, mut told) = (Vec::new(), 0);
            let bytes_of = |name: &String| 16 + (name.len() as u64 + 1).next_multiple_of(16);
            for step in steps.into_iter().chain([Step::Pop(usize::MAX)]) {
                match step {
                    Step::Make(count) => for _ in 0..count {
                        let name = format!("{}-{}", made.len(), "x".repeat(made.len() * 7 % 240));
                        make(dir.path(), &name);
                        made.push(name);
                    },
                    Step::Drain => queue.drain(&fd),
                    Step::Pop(count) => for _ in 0..count {
                        let Some(event) = queue.pop() else {
                            queue.drain(&fd);
                            match queue.is_dry() {
                                true => break,
                                false => continue,
                            }
                        };
                        prop_assert_eq!(&*event.name, made[told].as_bytes());
                        queue.tell(&event);
                        told += 1;
                        let bytes: u64 = made[..told].iter().map(bytes_of).sum();
                        prop_assert_eq!(queue.told(), bytes);
                    },
                }
                prop_assert!(queue.blocks.len() <= 1);
                let all: u64 = made.iter().map(bytes_of).sum();
                let waiting = rustix::io::ioctl_fionread(&fd).unwrap();
                prop_assert_eq!(queue.read + waiting, all);
            }
            prop_assert_eq!(told, made.len());
            prop_assert_eq!((queue.told(), queue.end(&fd)), (queue.read, queue.read));
        }
    }
}
