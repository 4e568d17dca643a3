//! Grants of phases of I/O: what the agent tells a program about the phases that it has begun.
//!
//! A program tells of a phase by frames, like of anything else. The answer is one word for each
//! phase, in the header of its ingest file, which the agent writes with `pwrite`; the program's
//! threads read it without a system call, and sleep on a futex word until it changes.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::thread::futex;

use super::layout::{GRANTS_MAX, HEADER_BYTES, header};
use super::{IngestFile, Producer};
use crate::StreamError;
use crate::handle::sleep_on;
use crate::map::{FileMap, MapAccess};

/// Name of the publication by whose frames a program tells of its phases of I/O; the number of a
/// frame is that of its phase.
pub const PHASE_PUBLICATION: &str = "io.phase";
/// The label with the volume on which a phase does I/O.
pub const PHASE_VOLUME: &str = "volume";
/// Name of the value with the state of a phase, see [`PhaseStage`].
pub const PHASE_STAGE: &str = "stage";
/// Name of the value with the bytes that a phase will read and write; negative if it does not know.
pub const PHASE_DECLARED: &str = "declared.bytes";
/// Name of the value with the bytes that a phase has read and written.
pub const PHASE_DONE: &str = "done.bytes";
/// Name of the value with the priority of a phase, 1 to 10.
pub const PHASE_PRIORITY: &str = "priority";
/// Name of the value with the time in ns after which a phase of which nothing was heard has ended;
/// 0, or none, for the agent's own.
pub const PHASE_LEASE: &str = "lease.ns";

/// Bits of the number of a phase in a word: its lower ones.
const PHASE_BITS: u32 = 48;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
/// The state is above the phase, and the share above the state.
const STATE_MASK: u64 = 0xff;
const SHARE_SHIFT: u32 = PHASE_BITS + 8;
const SHARE_MAX: f64 = 255.0;

/// What a program says of a phase: the numbers of [`PHASE_STAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseStage {
    /// It has ended.
    Ended = 0,
    /// It wants to do I/O, and waits.
    Waiting = 1,
    /// It does I/O with a grant.
    Granted = 2,
    /// It does I/O without one.
    Alone = 3,
}

impl PhaseStage {
    /// The stage with a number.
    pub fn from_i64(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Ended),
            1 => Some(Self::Waiting),
            2 => Some(Self::Granted),
            3 => Some(Self::Alone),
            _ => None,
        }
    }
}

/// What a phase of I/O may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantState {
    /// It waits for others.
    Waiting = 1,
    /// It may do I/O.
    Granted = 2,
    /// Nobody schedules its I/O.
    Unscheduled = 3,
}

/// The answer of the agent to a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseAnswer {
    /// The number of the phase, of which the lower 48 bits are kept.
    pub phase: u64,
    /// What it may do.
    pub state: GrantState,
    /// Its share of the storage, 0 to 1, kept to 1 in 255.
    pub share: f64,
}

impl PhaseAnswer {
    fn encode(&self) -> u64 {
        // A conversion of floats saturates.
        let share = (self.share.clamp(0.0, 1.0) * SHARE_MAX).round() as u64;
        share << SHARE_SHIFT | (self.state as u64) << PHASE_BITS | (self.phase & PHASE_MASK)
    }

    fn decode(word: u64) -> Option<Self> {
        let state = match word >> PHASE_BITS & STATE_MASK {
            1 => GrantState::Waiting,
            2 => GrantState::Granted,
            3 => GrantState::Unscheduled,
            _ => return None,
        };
        Some(Self {
            phase: word & PHASE_MASK,
            state,
            share: (word >> SHARE_SHIFT) as f64 / SHARE_MAX,
        })
    }
}

/// Offset of the word of a phase.
const fn slot_at(phase: u64) -> usize {
    header::GRANTS + (phase % GRANTS_MAX) as usize * 8
}

impl IngestFile {
    /// Stores whether the agent schedules I/O, so that programs know whether to ask; `None` when it
    /// ends.
    pub fn set_schedules(&mut self, schedules: Option<bool>) -> Result<(), StreamError> {
        let word = match schedules {
            None => 0,
            Some(true) => 1,
            Some(false) => 2,
        };
        self.tell(header::SCHEDULES, word)
    }

    /// Stores the answer to a phase, in the place of that of an earlier phase. Call
    /// [`Self::wake_phases`] after the last one.
    pub fn answer_phase(&self, answer: &PhaseAnswer) -> Result<(), StreamError> {
        self.write_word(slot_at(answer.phase), answer.encode())
    }

    /// Wakes the threads that wait for an answer.
    ///
    /// A futex is woken by an address, so this maps the header. The kernel alone looks at the
    /// mapping: a file that its owner has cut short gives an error there, and never a fault here.
    pub fn wake_phases(&mut self) -> Result<(), StreamError> {
        // It is only to be another number than before, and the agent alone writes it.
        let moved = self.told(header::GRANTS_MOVED)? as u32;
        let next = moved.wrapping_add(1);
        let at = header::GRANTS_MOVED as u64;
        let written = self.file.write_all_at(&next.to_le_bytes(), at);
        written.map_err(|source| self.io("write", source))?;
        self.told.insert(header::GRANTS_MOVED, next.into());
        let map = match self.sleepers.take() {
            Some(map) => map,
            None => FileMap::new(&self.file, HEADER_BYTES, MapAccess::Read)
                .map_err(|source| self.io("map", source))?,
        };
        let word = map.half_word(header::GRANTS_MOVED);
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        self.sleepers = Some(map);
        Ok(())
    }
}

impl Producer {
    /// Whether an agent schedules I/O; `None` if none has said so.
    #[inline]
    pub fn schedules(&self) -> Option<bool> {
        match self.word(header::SCHEDULES) {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        }
    }

    /// The agent's newest answer to a phase; `None` if there is none yet. One of a later phase may
    /// have taken its place, which [`Self::has_passed`] tells.
    pub fn phase_answer(&self, phase: u64) -> Option<PhaseAnswer> {
        let answer = PhaseAnswer::decode(self.word_acquired(slot_at(phase)))?;
        (answer.phase == phase & PHASE_MASK).then_some(answer)
    }

    /// Whether the place of the answer to a phase has that of a later one.
    pub fn has_passed(&self, phase: u64) -> bool {
        let answer = PhaseAnswer::decode(self.word_acquired(slot_at(phase)));
        answer.is_some_and(|answer| answer.phase > phase & PHASE_MASK)
    }

    /// The word that changes with the answers. Load it before you look at them.
    pub fn answers_moved(&self) -> u32 {
        self.half_word(header::GRANTS_MOVED)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Sleeps while the word of the answers is `seen`, for at most `longest`. It may end early
    /// without a reason.
    pub fn wait_for_answers(&self, seen: u32, longest: Duration) {
        if let Some(word) = self.half_word(header::GRANTS_MOVED) {
            sleep_on(word, seen, longest, std::num::NonZeroU32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_word() {
        for (phase, state, share) in [
            (1, GrantState::Waiting, 0.0),
            (PHASE_MASK, GrantState::Granted, 1.0),
            (77, GrantState::Unscheduled, 102.0 / 255.0),
        ] {
            let answer = PhaseAnswer {
                phase,
                state,
                share,
            };
            assert_eq!(PhaseAnswer::decode(answer.encode()), Some(answer));
        }
        for word in [0, PHASE_MASK, 4 << PHASE_BITS, u64::MAX] {
            assert_eq!(PhaseAnswer::decode(word), None, "{word:x}");
        }
        let odd = PhaseAnswer {
            phase: u64::MAX,
            state: GrantState::Granted,
            share: f64::NAN,
        };
        let read = PhaseAnswer::decode(odd.encode()).unwrap();
        assert_eq!((read.phase, read.share), (PHASE_MASK, 0.0));
    }
}
