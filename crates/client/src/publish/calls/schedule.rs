//! Settings of knobs that apply at the end of a frame: kept until the process ends the frame that they name.

use barograph_stream::calls::{AckStatus, Call};

/// Settings that wait for a frame, at most; one more is refused.
const WAITING_MAX: usize = 1_024;

/// A setting, and the knobs for which it is still to be decided: each waits for a frame of its own publication.
struct Scheduled {
    call: Call,
    knobs: Vec<usize>,
    /// How it has ended for the others: the first that is not done counts.
    ended: AckStatus,
}

pub(super) struct Schedule(Vec<Scheduled>);

/// What comes of a frame that has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// It is another publication's, or before the one that is named.
    NotYet,
    /// It is the one that is named: set the knob now.
    Now,
    /// The one that is named is over, and the process did not know of the setting then.
    TooLate,
}

impl Schedule {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn forget(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a call that is read again is here.
    pub fn has(&self, call: &Call) -> bool {
        let is_it = |s: &Scheduled| s.call.id == call.id && s.call.issued_ns == call.issued_ns;
        self.0.iter().any(is_it)
    }

    /// Takes a setting for these knobs; false where there are too many.
    pub fn add(&mut self, call: &Call, knobs: Vec<usize>) -> bool {
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

    /// Goes through what waits, in the order of the calls: `reached` says what a frame that has ended means for a
    /// knob and the number that is named, and `set` sets it. Gives the calls that are decided for all of their knobs.
    pub fn attend(
        &mut self,
        now_ns: i64,
        reached: &dyn Fn(usize, u64) -> Reached,
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
                    Reached::NotYet => return true,
                    Reached::Now => set(knob, call),
                    Reached::TooLate => AckStatus::Late,
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
