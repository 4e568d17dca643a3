//! The cursor of one thread in its ring, which inline C writes too, and the calls that the thread
//! has seen.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The place where a thread writes next, in one cache line. C programs have the same struct
/// (`baro_cursor` in `baro.h`) for inline puts. In a cursor of zeros no put finds room.
#[derive(Debug)]
#[repr(C)]
pub struct RingCursor {
    /// Position of the next record.
    pub position: Cell<u64>,
    /// Up to this position records may be written without a reservation. 0 once the file is given
    /// up.
    pub limit: AtomicU64,
    /// Number of records of the ring, less one.
    pub mask: Cell<u64>,
    /// Address of the first record; null in a child of the process that has the ring.
    pub records: Cell<*const AtomicU64>,
    /// Address of the word in which commits are published.
    pub committed: Cell<*const AtomicU64>,
    /// Address of a word that is not 0 while the agent wants to be woken for commits.
    pub asleep: Cell<*const AtomicU64>,
    /// Free for the ring's user: the owner to which a put compares its handle. 0 as for `limit`.
    pub owner: AtomicU64,
    /// The calls that this thread has seen.
    pub calls: UnsafeCell<CallsSeen>,
}

impl RingCursor {
    /// Returns a cursor without a ring.
    pub const fn nowhere() -> Self {
        Self {
            position: Cell::new(0),
            limit: AtomicU64::new(0),
            mask: Cell::new(0),
            records: Cell::new(std::ptr::null()),
            committed: Cell::new(std::ptr::null()),
            asleep: Cell::new(std::ptr::null()),
            owner: AtomicU64::new(0),
            calls: UnsafeCell::new(CallsSeen::nothing()),
        }
    }
}

/// The calls for its process that a thread has seen: a load and a compare show whether there are
/// new ones. It is the end of the struct of C programs.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallsSeen {
    /// A word that changes with every call; `None` until the thread has looked for it.
    pub word: Option<&'static AtomicU32>,
    /// The word at this thread's last poll; another value while polls are to look for another word…
    pub polled: u32,
    /// …and when it last applied settings.
    pub framed: u32,
    /// Frames (and such polls) left before the clock is read, to look for another word.
    pub left: u32,
    /// Value of `left` after the clock was last read…
    pub step: u32,
    /// …and the time that it showed, in monotonic ns.
    pub asked_ns: i64,
}

impl CallsSeen {
    /// Returns the state of a thread that has seen nothing: its first look finds something new.
    pub const fn nothing() -> Self {
        Self {
            word: None,
            polled: 0,
            framed: 0,
            left: 0,
            step: 1,
            asked_ns: 0,
        }
    }

    /// Whether a poll has something to do.
    #[inline(always)]
    pub fn is_poll_due(&self) -> bool {
        self.is_new(self.polled)
    }

    /// Whether a frame has something to do, or the clock is to be read.
    #[inline(always)]
    pub fn is_frame_due(&mut self) -> bool {
        // Saturates at 0, so that a frame stays due: nothing else ever reads the clock again.
        self.left = self.left.saturating_sub(1);
        self.left == 0 || self.is_new(self.framed)
    }

    #[inline(always)]
    fn is_new(&self, seen: u32) -> bool {
        let is_new = |word: &AtomicU32| word.load(Ordering::Acquire) != seen;
        self.word.is_none_or(is_new)
    }
}
