//! The observer of one node: finds the segments, follows them over agent restarts, and reads the
//! present values.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_model::{Clock, Selector, SqlFault, SqlLimits};
use barograph_query::{
    PastReader, QueryError, Rows, ScopeChoice, StorageTarget, TargetFact, TargetValue,
    says_of_targets, storage_targets,
};
use barograph_stream::RunDir;

use crate::archive::{ArchiveOnce, ArchiveView};
use crate::expected::{expected, latest_predicted, predicted_now};
use crate::history::{History, HistoryRange, PastOnce, history_of, history_of_rings};
use crate::sql::DatabasePool;
use crate::values::{LatestValue, NodeStatus, StreamInfo};
use crate::view::{NodeView, ViewStream};
use crate::view_follower::ViewFollower;
use crate::{ClientError, StreamHandle, UPDATES_MAX, Watch, publish};

/// Most streams that the error for an ambiguous selector lists.
const MATCHES_SHOWN_MAX: usize = 5;

/// Reads the streams of one node in this process: the node's own, and those of applications that
/// this process may read. Cheap to clone, for use from any thread. The observers of other nodes of
/// a cluster, as far as they are mirrored here, come from [`Observer::of_node`].
#[derive(Clone)]
pub struct Observer {
    pub(crate) run_dir: RunDir,
    pub(crate) follower: Arc<ViewFollower>,
    /// Of a mirror, the observer of the node that has it.
    pub(crate) home: Option<Arc<Observer>>,
    /// The scopes of applications that are read.
    pub(crate) scopes: ScopeChoice,
    databases: Arc<DatabasePool>,
    past: Arc<PastOnce>,
    archive: Arc<ArchiveOnce>,
}

impl Observer {
    /// Maps the segment in `run_dir`. The segment of a dead agent opens too: its last values can be
    /// read, and are marked as stale.
    pub fn open(run_dir: RunDir, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        Self::open_scopes(run_dir, ScopeChoice::Readable, clock)
    }

    /// Like [`Observer::open`], but reads of applications only what everyone on the node may read:
    /// for a program that answers others.
    pub fn open_public(run_dir: RunDir, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        Self::open_scopes(run_dir, ScopeChoice::Public, clock)
    }

    pub(crate) fn open_scopes(
        run_dir: RunDir,
        scopes: ScopeChoice,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClientError> {
        // Registers the fork handlers, so that children find the observer's locks free.
        publish::watch_forks();
        Ok(Self {
            follower: Arc::new(ViewFollower::open(&run_dir, scopes, clock)?),
            run_dir,
            home: None,
            scopes,
            databases: Arc::default(),
            past: Arc::default(),
            archive: Arc::default(),
        })
    }

    /// The run directory that is read.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// Returns the state of the node's agent and segment. Of a mirror, it is that of the mirror,
    /// which the agent of this node writes: `alive` means that something of the mirrored node was
    /// heard. An error means that another agent has taken over and its segment cannot be read.
    pub fn status(&self) -> Result<NodeStatus, ClientError> {
        let view = self.follower.follow()?;
        let (segment, now_ns) = (view.segment(), self.follower.now_ns());
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

    /// Whether the values of the node are kept up to date, as [`NodeStatus::alive`].
    pub fn is_alive(&self) -> bool {
        let view = self.follower.view();
        view.segment().is_alive(self.follower.now_ns())
    }

    /// A counter that grows whenever streams have been registered or retired or the agent has
    /// restarted: resolve selectors again when it has changed.
    pub fn directory_changes(&self) -> u64 {
        self.follower.view().serial
    }

    /// Lists the streams that match, sorted by name and labels.
    pub fn streams(&self, selector: &Selector) -> Vec<StreamInfo> {
        self.follower
            .view()
            .matching(selector)
            .filter_map(|k| k.info())
            .collect()
    }

    /// Returns the newest sample of each matching stream, sorted by name and labels.
    pub fn latest(&self, selector: &Selector) -> Vec<LatestValue> {
        let view = self.follower.view();
        let now_ns = self.follower.now_ns();
        let value = |k: &Arc<ViewStream>| {
            let latest = k.latest(now_ns, k.is_alive(now_ns));
            latest.map(|(value, _)| value)
        };
        view.matching(selector).filter_map(value).collect()
    }

    /// Returns a handle on the one stream that matches: it is resolved once and then read in
    /// nanoseconds.
    pub fn stream(&self, selector: &Selector) -> Result<StreamHandle, ClientError> {
        let view = self.follower.view();
        let mut matching = view.matching(selector);
        match (matching.next(), matching.next()) {
            (None, _) => Err(self.unknown(selector)),
            (Some(one), None) => Ok(StreamHandle::new(
                Arc::clone(&self.follower),
                Arc::clone(one),
            )),
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
        self.watch_of(selector, UPDATES_MAX)
    }

    /// Like [`Observer::watch`], with answers of about so many updates at most.
    pub(crate) fn watch_of(&self, selector: &Selector, updates_max: usize) -> Watch {
        Watch::new(Arc::clone(&self.follower), selector.clone(), updates_max)
    }

    /// Names of streams that resemble `name`, best first, at most [`NEAR_MAX`](crate::NEAR_MAX).
    pub fn near(&self, name: &str) -> Vec<String> {
        near_names(&self.follower.view(), name)
    }

    /// The error for a selector that no stream matches; it names the streams that may have been
    /// meant.
    pub fn unknown(&self, selector: &Selector) -> ClientError {
        let view = self.follower.view();
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
            mirror_of: self.run_dir.mirrored_node().map(str::to_owned),
        }
    }

    /// Predicts the value of each matching stream at `horizon` from now (zero: now), sorted by name
    /// and labels. Each result is a sample of that time with quality `Predicted`; its error is the
    /// half width of the interval at the agent's confidence, infinite while that is not known.
    /// Streams without a forecast, or with a shorter one, are left out. Ages are those of the looks
    /// behind the forecast. Streams of another node have a forecast here if it is mirrored as well
    /// (`forecast.*` in `cluster.mirror`).
    pub fn expected(&self, selector: &Selector, horizon: Duration) -> Vec<LatestValue> {
        expected(
            &self.follower.view(),
            selector,
            self.follower.now_ns(),
            horizon,
        )
    }

    /// Returns the present value of each matching stream, sorted by name and labels: as
    /// [`Observer::expected`] for now if the stream has a forecast, otherwise, or at the very time
    /// of a look, as [`Observer::latest`]. The quality of the sample shows which it is.
    pub fn latest_predicted(&self, selector: &Selector) -> Vec<LatestValue> {
        latest_predicted(&self.follower.view(), selector, self.follower.now_ns())
    }

    /// Returns the places where data can be put, with what their streams say of them now: the rows
    /// of the SQL table `targets`, without SQL.
    pub fn targets(&self) -> Vec<StorageTarget> {
        let view = self.follower.view();
        let now_ns = self.follower.now_ns();
        let said = view.streams.iter();
        let said = said.filter(|stream| says_of_targets(stream.descriptor.name.as_str()));
        let facts = said.filter_map(|stream| {
            let (latest, _) = stream.latest(now_ns, stream.is_alive(now_ns))?;
            let predicted = predicted_now(&view, stream, now_ns);
            let (sample, looked_ns) = (latest.sample?, latest.looked_ns);
            Some(TargetFact {
                node: &stream.node,
                descriptor: &stream.descriptor,
                value: TargetValue::of(&sample, looked_ns, predicted.as_ref())?,
            })
        });
        storage_targets(facts)
    }

    /// Returns the past of the matching streams, including ended ones: each sample once, whether it
    /// is in a ring, the log or a Parquet file. Between two samples the older value held. If the
    /// archive cannot be read, these are only the samples of the rings; [`Observer::try_history`]
    /// returns the reason. Of another node, it is what its mirror holds, with what this node keeps
    /// of its history as an aggregator.
    pub fn history(&self, selector: &Selector, window: &HistoryRange) -> Vec<History> {
        let found = self.try_history(selector, window, &AtomicBool::new(false));
        found.unwrap_or_else(|_| history_of_rings(&self.follower.view(), selector, window))
    }

    /// Like [`Observer::history`], but returns an error if the archive cannot be read. Stops soon
    /// after `cancel` is set.
    pub fn try_history(
        &self,
        selector: &Selector,
        window: &HistoryRange,
        cancel: &AtomicBool,
    ) -> Result<Vec<History>, SqlFault> {
        let node = self.follower.view().segment().node();
        let reader = self.past_reader().map_err(|e| self.fault(e))?;
        history_of(reader, &node, selector, window, cancel)
    }

    /// The directory of the node's archive, if its agent keeps one; of another node, that of the
    /// history that this node keeps of it.
    pub fn archive_dir(&self) -> Option<PathBuf> {
        self.past_reader().ok()?.archive_dir()
    }

    /// Opens the archive of this observer's run directory.
    pub fn archive(&self) -> Result<ArchiveView, ClientError> {
        let opened = self.archive.open(&self.run_dir, self.follower.clock());
        opened.map_err(|error| self.of_this(error))
    }

    /// Runs one read-only statement in this process, within its limits. An observer of a mirror has
    /// its streams as the tables `<metric>`; tables that describe an agent (`sources`, `insights`,
    /// `loss`, …) are refused there, because they are not mirrored.
    pub fn sql(&self, sql: &str, limits: &SqlLimits) -> Result<Rows, SqlFault> {
        self.sql_until(sql, limits, &AtomicBool::new(false))
    }

    /// Like [`Observer::sql`], and stops soon after `cancel` is set.
    pub fn sql_until(
        &self,
        sql: &str,
        limits: &SqlLimits,
        cancel: &AtomicBool,
    ) -> Result<Rows, SqlFault> {
        let taken = (self.databases).take(&self.run_dir, self.scopes, self.follower.clock());
        let mut database = taken.map_err(|error| self.fault(error))?;
        let answer = database.run(sql, limits, cancel);
        self.databases.give(database);
        answer
    }

    pub(crate) fn past_reader(&self) -> Result<&PastReader, QueryError> {
        (self.past).open(&self.run_dir, self.scopes, self.follower.clock())
    }
}

/// Names of streams that resemble `name`, best first.
fn near_names(view: &NodeView, name: &str) -> Vec<String> {
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
