//! A handle on one stream: reads in nanoseconds, and waits for new samples.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use barograph_model::Descriptor;
use barograph_stream::{SegmentState, WaitOutcome};

use crate::expected::{predicted_or_measured, projections_of};
use crate::values::LatestValue;
use crate::view::ViewStream;
use crate::view_follower::ViewFollower;

/// Longest sleep on the futex before the handle checks whether the agent still lives: an agent that
/// is replaced wakes its readers, but one whose file was removed cannot.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Time between two searches for a stream that is missing (its agent restarts, its device is gone).
const MISSING_SLEEP_MAX: Duration = Duration::from_millis(20);

/// The reasons why [`StreamHandle::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There are samples that this handle has not returned yet.
    News,
    /// No sample came in time.
    TimedOut,
    /// The stream does not exist, and did not come back in time.
    Gone,
}

/// A handle on one stream: it is resolved once and then read without a system call or a lock. It
/// remembers the last sample that it has returned (for [`StreamHandle::wait`]) and finds its stream
/// again after an agent restart or when its device comes back ([`StreamHandle::restarted`] counts
/// that). Clone it for another thread.
#[derive(Clone)]
pub struct StreamHandle {
    follower: Arc<ViewFollower>,
    known: Arc<ViewStream>,
    shown: u64,
    restarted: u64,
    missing: bool,
    /// The stream of its projections, if any, and the serial of the view in which it was found.
    said: Option<(u64, Option<Arc<ViewStream>>)>,
}

impl StreamHandle {
    pub(crate) fn new(follower: Arc<ViewFollower>, known: Arc<ViewStream>) -> Self {
        Self {
            follower,
            known,
            shown: 0,
            restarted: 0,
            missing: false,
            said: None,
        }
    }

    /// The stream's descriptor.
    pub fn descriptor(&self) -> &Arc<Descriptor> {
        &self.known.descriptor
    }

    /// Number of times the stream has begun anew under this handle: counters may have started from
    /// zero, and samples in between are not known.
    pub fn restarted(&self) -> u64 {
        self.restarted
    }

    /// The newest sample with its age; `None` while the stream does not exist.
    pub fn latest(&mut self) -> Option<LatestValue> {
        let now_ns = self.follower.now_ns();
        let mut alive = self.known.is_alive(now_ns);
        if self.missing || !alive {
            self.follow();
            alive = self.known.is_alive(now_ns);
        }
        if self.missing {
            return None;
        }
        if let Some((value, count)) = self.known.latest(now_ns, alive) {
            self.shown = count;
            return Some(value);
        }
        self.follow();
        let (value, count) = self.known.latest(now_ns, alive)?;
        self.shown = count;
        Some(value)
    }

    /// Like [`StreamHandle::latest`], but if the stream has a forecast, the value predicted for
    /// now: its quality is `Predicted`, its error the half width of the interval at the agent's
    /// confidence. At the very time of a look it is the measured value.
    pub fn latest_predicted(&mut self) -> Option<LatestValue> {
        let value = self.latest()?;
        let view = self.follower.view();
        let is_of_view = |said: &(u64, _)| said.0 == view.serial;
        if !self.said.as_ref().is_some_and(is_of_view) {
            let said = projections_of(&view, &self.known).cloned();
            self.said = Some((view.serial, said));
        }
        let said = self.said.as_ref().and_then(|(_, said)| said.as_ref());
        Some(predicted_or_measured(said, value, self.follower.now_ns()))
    }

    /// The time and value of the newest sample of a numeric stream, without allocation and without
    /// reading the clock, so without a check whether the agent still lives (see
    /// [`StreamHandle::latest`]). `None` for text, before the first sample, and while the stream
    /// does not exist.
    #[inline]
    pub fn latest_f64(&mut self) -> Option<(i64, f64)> {
        if self.known.segment.state() == SegmentState::Live
            && let Some(newest) = self.known.handle.latest_f64()
        {
            return Some(newest);
        }
        self.latest_f64_anew()
    }

    #[cold]
    fn latest_f64_anew(&mut self) -> Option<(i64, f64)> {
        self.follow();
        if self.missing {
            None
        } else {
            self.known.handle.latest_f64()
        }
    }

    /// Sleeps until there is a sample that neither [`StreamHandle::latest`] nor an earlier wait has
    /// returned, at most `timeout`. Goes on over agent restarts.
    #[expect(
        clippy::disallowed_methods,
        reason = "a reader's thread waits for an agent"
    )]
    pub fn wait(&mut self, timeout: Duration) -> Woken {
        let mut left = timeout;
        loop {
            let slice = if self.missing {
                MISSING_SLEEP_MAX
            } else {
                SLEEP_MAX
            }
            .min(left);
            let waited = if self.missing {
                WaitOutcome::Gone
            } else {
                self.known.handle.wait(self.shown, slice)
            };
            match waited {
                WaitOutcome::News => {
                    self.shown = self.known.handle.count().unwrap_or(self.shown);
                    return Woken::News;
                }
                WaitOutcome::TimedOut => left = left.saturating_sub(slice),
                WaitOutcome::Gone | WaitOutcome::Closed if self.follow() => continue,
                WaitOutcome::Gone | WaitOutcome::Closed => {
                    let nap = MISSING_SLEEP_MAX.min(left);
                    thread::sleep(nap);
                    left = left.saturating_sub(nap);
                }
            }
            if left.is_zero() {
                let gone = self.missing || self.known.handle.count().is_none();
                return if gone { Woken::Gone } else { Woken::TimedOut };
            }
            self.follow();
        }
    }

    /// Finds the stream in the present view; `true` if this handle has moved to another ring.
    fn follow(&mut self) -> bool {
        let view = self.follower.view();
        let Some(now) = view.find(self.known.series()) else {
            self.missing = true;
            return false;
        };
        self.missing = false;
        if Arc::ptr_eq(now, &self.known) {
            return false;
        }
        self.known = Arc::clone(now);
        self.shown = 0;
        self.restarted += 1;
        true
    }
}
