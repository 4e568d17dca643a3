//! The observer of one node: finds the segments, follows them over agent restarts, and reads the
//! present values.

use std::sync::{Arc, Mutex};

use barograph_model::{Clock, Descriptor, Sample, Selector, SeriesId};
use barograph_stream::gate::{self, Gated};
use barograph_stream::{Incarnation, LOOK_NS, RunDir, Scopes, SegmentFollower};

use crate::archive::Held;
use crate::history::Reader;
use crate::sql::Databases;
use crate::view::{Known, View};
use crate::{ClientError, Stream, Watch, publish};

/// Most streams that the error for an ambiguous selector lists.
const MATCHES_SHOWN_MAX: usize = 5;

/// Reads the streams of one node in this process: the node's own, and those of applications that
/// this process may read. Cheap to clone, for use from any thread.
#[derive(Clone)]
pub struct Observer {
    inner: Arc<Inner>,
}

struct Inner {
    run_dir: RunDir,
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
    databases: Databases,
    reader: Reader,
    archive: Held,
}

/// The view that an observer has read last.
struct Seen {
    follower: SegmentFollower<Known>,
    /// The view of what is followed, as of the last change.
    view: Arc<View>,
}

/// State of the node's agent and segment.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// The agent's incarnation.
    pub incarnation: Incarnation,
    /// The agent's process.
    pub pid: u64,
    /// When it started, ns since the epoch.
    pub started_ns: i64,
    /// Time since the agent's last heartbeat, in ns.
    pub heartbeat_age_ns: i64,
    /// Whether the agent lives: it has not closed its segment, and its heartbeat is at most
    /// [`HEARTBEAT_AGE_NS_MAX`](crate::HEARTBEAT_AGE_NS_MAX) away from now.
    pub alive: bool,
    /// Number of living streams. This and the next three fields include the streams of applications
    /// that this process may read.
    pub streams: usize,
    /// Greatest number of streams.
    pub streams_max: usize,
    /// Number of streams that were refused for lack of room.
    pub refused: u64,
    /// Samples appended to the living streams so far.
    pub samples: u64,
}

/// Descriptor and state of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInfo {
    /// Name, labels, type, unit, kind, help.
    pub descriptor: Arc<Descriptor>,
    /// The series: an id that is the same on every node and after every restart.
    pub series: SeriesId,
    /// Number of samples that its ring holds.
    pub depth: u32,
    /// Number of samples so far.
    pub samples: u64,
    /// The interval between two looks at its resource, in ns; 0 if it is not known.
    pub interval_ns: i64,
    /// When it was registered, ns since the epoch.
    pub created_ns: i64,
    /// When its resource was last looked at, ns since the epoch; 0 if never.
    pub looked_ns: i64,
}

/// The newest sample of a stream, with the time of the last look.
#[derive(Clone, Debug, PartialEq)]
pub struct LatestValue {
    /// The stream's descriptor.
    pub descriptor: Arc<Descriptor>,
    /// The newest sample; `None` if there has not been one.
    pub sample: Option<Sample>,
    /// Time since the last look at the resource, in ns (0 without a sample).
    pub age_ns: i64,
    /// The last look at the resource, ns since the epoch (0 without a sample).
    pub looked_ns: i64,
    /// The interval between two looks at the resource, in ns; 0 if it is not known.
    pub interval_ns: i64,
    /// Whether the value is out of date: the next look is overdue (the age is more than
    /// [`STALE_INTERVALS`](crate::STALE_INTERVALS) intervals), or the agent is dead.
    pub stale: bool,
}

impl Observer {
    /// Maps the segment in `run_dir`. The segment of a dead agent opens too: its last values can be
    /// read, and are marked as stale.
    pub fn open(run_dir: RunDir, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        // Registers the fork handlers, so that children find the observer's locks free.
        publish::watch_forks();
        let now_ns = clock.now_ns();
        let follower = SegmentFollower::open(&run_dir, Scopes::Readable, LOOK_NS, now_ns)?;
        let view = Arc::new(View::of(&follower));
        let seen = Mutex::new(Seen { follower, view });
        let databases = Databases::default();
        Ok(Self {
            inner: Arc::new(Inner {
                run_dir,
                clock,
                seen,
                databases,
                reader: Reader::default(),
                archive: Held::default(),
            }),
        })
    }

    /// The run directory that is read.
    pub fn run_dir(&self) -> &RunDir {
        &self.inner.run_dir
    }

    /// Returns the state of the node's agent and segment. An error means that another agent has
    /// taken over and its segment cannot be read.
    pub fn status(&self) -> Result<NodeStatus, ClientError> {
        let view = self.follow()?;
        let (segment, now_ns) = (view.segment(), self.now_ns());
        Ok(NodeStatus {
            node: segment.node(),
            incarnation: segment.incarnation(),
            pid: segment.pid(),
            started_ns: segment.created_ns(),
            heartbeat_age_ns: now_ns.saturating_sub(segment.heartbeat_ns()).max(0),
            alive: segment.is_alive(now_ns),
            streams: view.streams.len(),
            streams_max: view.segments().iter().map(|s| s.streams_max()).sum(),
            refused: view.segments().iter().map(|s| s.refused()).sum(),
            samples: view.streams.iter().filter_map(|k| k.handle.count()).sum(),
        })
    }

    /// A counter that grows whenever streams have been registered or retired or the agent has
    /// restarted: resolve selectors again when it has changed.
    pub fn directory_changes(&self) -> u64 {
        self.view().serial
    }

    /// Lists the streams that match, sorted by name and labels.
    pub fn streams(&self, selector: &Selector) -> Vec<StreamInfo> {
        self.view()
            .matching(selector)
            .filter_map(|k| k.info())
            .collect()
    }

    /// Returns the newest sample of each matching stream, sorted by name and labels.
    pub fn latest(&self, selector: &Selector) -> Vec<LatestValue> {
        let view = self.view();
        let now_ns = self.now_ns();
        let value = |k: &Arc<Known>| {
            let latest = k.latest(now_ns, k.is_alive(now_ns));
            latest.map(|(value, _)| value)
        };
        view.matching(selector).filter_map(value).collect()
    }

    /// Returns a handle on the one stream that matches: it is resolved once and then read in
    /// nanoseconds.
    pub fn stream(&self, selector: &Selector) -> Result<Stream, ClientError> {
        let view = self.view();
        let mut matching = view.matching(selector);
        match (matching.next(), matching.next()) {
            (None, _) => Err(self.unknown(selector)),
            (Some(one), None) => Ok(Stream::new(self.clone(), Arc::clone(one))),
            (Some(_), Some(_)) => Err(ClientError::Ambiguous {
                selector: selector.to_string(),
                count: view.matching(selector).count(),
                matches: view
                    .matching(selector)
                    .take(MATCHES_SHOWN_MAX)
                    .map(|k| k.descriptor.to_string())
                    .collect(),
            }),
        }
    }

    /// Watches every new sample of the matching streams, including streams that are registered
    /// later.
    pub fn watch(&self, selector: &Selector) -> Watch {
        Watch::new(self.clone(), selector.clone())
    }

    /// Names of streams that resemble `name`, best first, at most [`NEAR_MAX`](crate::NEAR_MAX).
    pub fn near(&self, name: &str) -> Vec<String> {
        near_names(&self.view(), name)
    }

    /// The error for a selector that no stream matches; it names the streams that may have been
    /// meant.
    pub fn unknown(&self, selector: &Selector) -> ClientError {
        let view = self.view();
        // If the name is right and a label wrong, the streams of that name are listed.
        let by_name = Selector {
            name: selector.name.clone(),
            labels: Vec::new(),
        };
        let mut near: Vec<String> = view
            .matching(&by_name)
            .take(MATCHES_SHOWN_MAX)
            .map(|k| k.descriptor.to_string())
            .collect();
        if near.is_empty() {
            near = near_names(&view, selector.name.as_str());
        }
        ClientError::UnknownStream {
            selector: selector.to_string(),
            near,
        }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.inner.clock.now_ns()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    pub(crate) fn held_archive(&self) -> &Held {
        &self.inner.archive
    }

    pub(crate) fn databases(&self) -> &Databases {
        &self.inner.databases
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.inner.reader
    }

    /// The streams as they are now. If another agent has taken over with a segment that cannot be
    /// read, the old view stays: its values are marked as stale, and `status` returns the reason.
    pub(crate) fn view(&self) -> Arc<View> {
        self.follow()
            .unwrap_or_else(|_| Arc::clone(&self.seen().view))
    }

    fn follow(&self) -> Result<Arc<View>, ClientError> {
        let mut seen = self.seen();
        let followed = seen.follower.follow(self.now_ns());
        if seen.follower.changes() != seen.view.serial {
            seen.view = Arc::new(View::of(&seen.follower));
        }
        followed?;
        Ok(Arc::clone(&seen.view))
    }

    fn seen(&self) -> Gated<'_, Seen> {
        // A view is replaced as a whole or not at all, so a panic elsewhere leaves a valid one.
        gate::lock(&self.inner.seen)
    }
}

/// Names of streams that resemble `name`, best first.
fn near_names(view: &View, name: &str) -> Vec<String> {
    // The view is sorted, so names with several labels are adjacent.
    let mut known: Vec<&str> = view
        .streams
        .iter()
        .map(|s| s.descriptor.name.as_str())
        .collect();
    known.dedup();
    let near = barograph_model::near(name, known);
    near.into_iter().map(str::to_owned).collect()
}
