//! Settings of knobs that apply at the end of a frame, kept until the process ends that frame.

use barograph_stream::calls::{AckStatus, Call};

/// Most settings that wait for a frame; one more is refused.
const WAITING_MAX: usize = 1_024;

/// A setting, and the knobs that are not decided yet: each waits for a frame of its own
/// publication.
struct Scheduled {
    call: Call,
    knobs: Vec<usize>,
    /// Outcome for the other knobs: the first that is not `Done` counts.
    ended: AckStatus,
}

pub(super) struct Schedule(Vec<Scheduled>);

/// Meaning of a frame that has ended for a setting that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameReached {
    /// The frame is another publication's, or before the named one.
    NotYet,
    /// The frame is the named one: set the knob now.
    Now,
    /// The named frame is over, and the process did not know of the setting then.
    TooLate,
}

impl Schedule {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a call that is read again is scheduled already.
    pub(super) fn has(&self, call: &Call) -> bool {
        let is_it = |s: &Scheduled| s.call.id == call.id && s.call.issued_ns == call.issued_ns;
        self.0.iter().any(is_it)
    }

    /// Adds a setting for these knobs; returns false if there are too many.
    pub(super) fn add(&mut self, call: &Call, knobs: Vec<usize>) -> bool {
        if self.0.len() >= WAITING_MAX {
            return false;
        }
        self.0.push(Scheduled {
            call: call.clone(),
            knobs,
            ended: AckStatus::Done,
        });
        true
    }

    /// Goes through the settings that wait, in the order of the calls: `reached` gives the meaning
    /// of a frame that has ended, for a knob and the named number, and `set` sets the knob. Returns
    /// the calls that are decided for all of their knobs.
    pub(super) fn attend(
        &mut self,
        now_ns: i64,
        reached: &dyn Fn(usize, u64) -> FrameReached,
        set: &mut dyn FnMut(usize, &Call) -> AckStatus,
    ) -> Vec<(Call, AckStatus)> {
        let mut decided = Vec::new();
        self.0.retain_mut(|Scheduled { call, knobs, ended }| {
            if call.is_expired(now_ns) {
                knobs.clear();
                *ended = AckStatus::Expired;
            }
            knobs.retain(|&knob| {
                let status = match reached(knob, call.at_frame.unwrap_or(0)) {
                    FrameReached::NotYet => return true,
                    FrameReached::Now => set(knob, call),
                    FrameReached::TooLate => AckStatus::Late,
                };
                if *ended == AckStatus::Done {
                    *ended = status;
                }
                false
            });
            if knobs.is_empty() {
                decided.push((call.clone(), *ended));
            }
            !knobs.is_empty()
        });
        decided
    }
}
