//! The view of one node as it is now, which observers, handles and watches share: it follows the
//! segments over agent restarts.

use std::sync::{Arc, Mutex};

use barograph_model::Clock;
use barograph_stream::gate::{self, GatedGuard};
use barograph_stream::{LOOK_NS, RunDir, ScopeChoice, SegmentFollower};

use crate::ClientError;
use crate::view::{NodeView, ViewStream};

/// Follows the segments of one run directory.
pub(crate) struct ViewFollower {
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

/// The view that was read last.
struct Seen {
    follower: SegmentFollower<ViewStream>,
    /// The view of what is followed, as of the last change.
    view: Arc<NodeView>,
}

impl ViewFollower {
    pub(crate) fn open(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClientError> {
        let follower = SegmentFollower::open(run_dir, scopes, LOOK_NS, clock.now_ns())?;
        Ok(Self::of(follower, clock))
    }

    /// Like [`Self::open`], with the mirrors of other nodes.
    pub(crate) fn open_with_mirrors(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClientError> {
        let now_ns = clock.now_ns();
        let follower = SegmentFollower::open(run_dir, scopes, LOOK_NS, now_ns)?;
        Ok(Self::of(follower.with_mirrors(now_ns)?, clock))
    }

    fn of(follower: SegmentFollower<ViewStream>, clock: Arc<dyn Clock>) -> Self {
        let view = Arc::new(NodeView::of(&follower));
        let seen = Mutex::new(Seen { follower, view });
        Self { clock, seen }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// The streams as they are now. If another agent has taken over with a segment that cannot be
    /// read, the old view stays: its values are marked as stale, and `follow` returns the reason.
    pub(crate) fn view(&self) -> Arc<NodeView> {
        self.follow()
            .unwrap_or_else(|_| Arc::clone(&self.seen().view))
    }

    /// Like [`Self::view`]. An error means that another agent has taken over and its segment cannot
    /// be read.
    pub(crate) fn follow(&self) -> Result<Arc<NodeView>, ClientError> {
        let mut seen = self.seen();
        let followed = seen.follower.follow(self.now_ns());
        if seen.follower.changes() != seen.view.serial {
            seen.view = Arc::new(NodeView::of(&seen.follower));
        }
        followed?;
        Ok(Arc::clone(&seen.view))
    }

    fn seen(&self) -> GatedGuard<'_, Seen> {
        // A view is replaced as a whole or not at all, so a panic elsewhere leaves a valid one.
        gate::lock(&self.seen)
    }
}
