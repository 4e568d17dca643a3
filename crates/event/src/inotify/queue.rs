//! Reading the queue of the kernel, and counting its bytes, so that it is known which events
//! happened before a moment.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{ReadFlags, Reader};
use rustix::io::{Errno, Result};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes of an event without its name; names are padded to a multiple of it.
const EVENT_BYTES: usize = 16;

/// An event of the kernel.
#[derive(Debug)]
pub(super) struct RawEvent {
    pub(super) wd: i32,
    pub(super) mask: ReadFlags,
    pub(super) cookie: u32,
    pub(super) name: Box<[u8]>,
    /// Number of bytes of all events before this one.
    pub(super) position: u64,
}

/// Events that were read and not yet told.
#[derive(Debug, Default)]
pub(super) struct Queue {
    events: VecDeque<RawEvent>,
    /// Number of bytes of all events that were read.
    read: u64,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Queue {
    /// Reads events once; false if there are none.
    pub(super) fn read(&mut self, fd: &OwnedFd) -> Result<bool> {
        self.buffer.resize(READ_BYTES, MaybeUninit::uninit());
        let mut reader = Reader::new(fd, &mut self.buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let name: Box<[u8]> = event
                .file_name()
                .map_or(&[][..], |name| name.to_bytes())
                .into();
            let padded = match name.len() {
                0 => 0,
                bytes => (bytes + 1).next_multiple_of(EVENT_BYTES),
            };
            self.events.push_back(RawEvent {
                wd: event.wd(),
                mask: event.events(),
                cookie: event.cookie(),
                name,
                position: self.read,
            });
            self.read += (EVENT_BYTES + padded) as u64;
            if reader.is_buffer_empty() {
                return Ok(true);
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<RawEvent> {
        self.events.pop_front()
    }

    /// Number of bytes of all events up to now, those included that the kernel has still.
    pub(super) fn end(&self, fd: &OwnedFd) -> u64 {
        // A number that is too high costs memory only.
        self.read + rustix::io::ioctl_fionread(fd).unwrap_or(u64::from(u32::MAX))
    }

    /// Number of bytes of all events that were taken.
    pub(super) fn taken(&self) -> u64 {
        self.events
            .front()
            .map_or(self.read, |event| event.position)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

    use super::*;

    #[test]
    fn bytes_are_counted_as_the_kernel_does() {
        let dir = tempfile::tempdir().unwrap();
        let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&fd, dir.path(), WatchFlags::ALL_EVENTS).unwrap();
        for bytes in [1, 14, 15, 16, 17, 31, 32, 255] {
            std::fs::write(dir.path().join("x".repeat(bytes)), b"1").unwrap();
        }
        std::fs::read_dir(dir.path()).unwrap().count();
        let mut queue = Queue::default();
        let end = queue.end(&fd);
        assert!(end > 0 && queue.taken() == 0);
        while queue.read(&fd).unwrap() {}
        assert_eq!(queue.end(&fd), end);
        let mut names = 0;
        while let Some(event) = queue.pop() {
            assert!(event.position < end);
            names += usize::from(event.mask.contains(ReadFlags::CREATE));
        }
        assert_eq!((names, queue.taken()), (8, end));
    }
}
