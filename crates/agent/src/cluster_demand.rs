//! The streams of other nodes that this node needs beside those that its configuration mirrors:
//! those that its insights and rules read, and those that open watches follow.
//!
//! It stands alone because several parts of an agent tell here what they need, and the thread of
//! the fabric asks for all of it, once a second: whoever opens and closes watches faster costs no
//! more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_fabric::StreamDemand;
use barograph_model::{Selector, table_name};
use barograph_rule::ClusterSelector;
use barograph_stream::ingest::APPLICATIONS_PREFIX;

/// Most selectors of all watches that are mirrored by demand. A watch beyond that has none.
pub(crate) const WATCH_DEMANDS_MAX: usize = 64;
/// Most selectors of the watches of one user that are mirrored by demand. All of TCP is one user.
pub(crate) const WATCH_DEMANDS_OF_ONE_MAX: usize = 8;

/// The streams of other nodes that this node needs.
#[derive(Default)]
pub(crate) struct ClusterDemand {
    demands: Mutex<Demands>,
}

#[derive(Default)]
struct Demands {
    /// Selectors of the streams of all nodes that insights of this node read.
    insights: BTreeSet<String>,
    /// Selectors of those that insights of the cluster read and make.
    of_cluster: BTreeSet<String>,
    rules: BTreeSet<StreamDemand>,
    watches: BTreeMap<u64, WatchedStreams>,
    next_watch: u64,
    /// The number of watches that had no room.
    refused: u64,
}

/// The streams that one watch follows.
struct WatchedStreams {
    user: Option<u32>,
    streams: Vec<StreamDemand>,
}

impl ClusterDemand {
    /// Sets the selectors of the streams that insights of this node read.
    pub(crate) fn set_insights(&self, insights: BTreeSet<String>) {
        self.lock().insights = insights;
    }

    /// Sets the selectors of the streams that insights of the cluster read and make.
    pub(crate) fn set_of_cluster(&self, of_cluster: BTreeSet<String>) {
        self.lock().of_cluster = of_cluster;
    }

    /// The tables of publications that insights read, of this node and of the cluster.
    pub(crate) fn publications(&self) -> BTreeSet<String> {
        let demands = self.lock();
        let selectors = demands.insights.iter().chain(&demands.of_cluster);
        let tables = selectors.map(|text| table_name(&text.replace('?', "_")));
        let is_publication = |table: &String| {
            let words = table.strip_prefix(APPLICATIONS_PREFIX);
            words.is_some_and(|words| words.starts_with('_'))
        };
        tables.filter(is_publication).collect()
    }

    /// Sets what rules read.
    pub(crate) fn set_rules(&self, reads: &[ClusterSelector]) {
        let demand = |read: &ClusterSelector| StreamDemand {
            selector: read.of_owner.to_string(),
            node: read.node().map(Into::into),
        };
        self.lock().rules = reads.iter().map(demand).collect();
    }

    /// Adds the streams that a watch of another node follows, until the result is dropped. A
    /// selector of all streams adds nothing: it shows what is mirrored. The error is for people.
    pub(crate) fn watch(
        self: &Arc<Self>,
        node: &str,
        selectors: &[Selector],
        user: Option<u32>,
    ) -> Result<WatchDemand, String> {
        let is_named = |selector: &&Selector| selector.name.as_str().contains(|c| c != '*');
        let streams = selectors
            .iter()
            .filter(is_named)
            .map(|selector| StreamDemand {
                selector: selector.to_string(),
                node: Some(node.into()),
            });
        let streams: Vec<StreamDemand> = streams.collect();
        let mut demands = self.lock();
        if let Err(reason) = demands.has_room(user, streams.len()) {
            demands.refused += 1;
            return Err(reason);
        }
        let number = demands.next_watch;
        demands.next_watch += 1;
        let watched = WatchedStreams { user, streams };
        demands.watches.insert(number, watched);
        Ok(WatchDemand {
            of: Arc::clone(self),
            number,
        })
    }

    /// All that is needed: the streams without which something is not computed come before those
    /// that somebody looks at.
    pub(crate) fn all(&self) -> Vec<StreamDemand> {
        let demands = self.lock();
        let insights = demands.insights.union(&demands.of_cluster);
        let insights = insights.map(StreamDemand::of_all);
        let watches = demands.watches.values().flat_map(|watch| &watch.streams);
        let others = demands.rules.iter().chain(watches);
        insights.chain(others.cloned()).collect()
    }

    /// The number of watches whose streams were not demanded for lack of room.
    pub(crate) fn refused(&self) -> u64 {
        self.lock().refused
    }

    fn lock(&self) -> MutexGuard<'_, Demands> {
        // Nothing that holds this lock can leave half a value behind.
        self.demands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Demands {
    /// Whether there is room for so many further selectors of watches of this user.
    fn has_room(&self, user: Option<u32>, more: usize) -> Result<(), String> {
        let of = |watches: &mut dyn Iterator<Item = &WatchedStreams>| -> usize {
            watches.map(|watch| watch.streams.len()).sum()
        };
        let all = of(&mut self.watches.values());
        let of_one = of(&mut self.watches.values().filter(|watch| watch.user == user));
        let (max, whose) = if of_one + more > WATCH_DEMANDS_OF_ONE_MAX {
            (WATCH_DEMANDS_OF_ONE_MAX, "of one user")
        } else if all + more > WATCH_DEMANDS_MAX {
            (WATCH_DEMANDS_MAX, "of all users")
        } else {
            return Ok(());
        };
        Err(format!(
            "watches {whose} have at most {max} selectors mirrored by demand: this one shows what is \
             mirrored without it; cluster.mirror chooses what always is"
        ))
    }
}

/// The streams that an open watch follows. Dropping it ends their demand.
pub(crate) struct WatchDemand {
    of: Arc<ClusterDemand>,
    number: u64,
}

impl Drop for WatchDemand {
    fn drop(&mut self) {
        self.of.lock().watches.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selectors(texts: &[&str]) -> Vec<Selector> {
        let parsed = texts.iter().map(|text| Selector::parse(text).unwrap());
        parsed.collect()
    }

    fn shown(demand: &ClusterDemand) -> Vec<String> {
        demand.set_of_cluster(BTreeSet::from(["nodes?free".to_owned()]));
        let shown = demand.all().into_iter().map(|d| match d.node {
            Some(node) => format!("{} of {node}", d.selector),
            None => d.selector,
        });
        shown.collect()
    }

    #[test]
    fn watches_come_last_and_end_with_their_owner() {
        let demand = Arc::new(ClusterDemand::default());
        demand.set_insights(BTreeSet::from(["disk?busy".to_owned()]));
        let watched = selectors(&["cpu.*{core=1}", "*"]);
        let watch = demand.watch("b", &watched, Some(1)).unwrap();
        let mut rules = barograph_rule::Rules::new(Default::default());
        let sql = "CREATE RULE r WHEN latest('cluster.gpu.heat{node=c}') > 1 CALL 'x'";
        rules.execute(sql, 0).unwrap();
        demand.set_rules(rules.cluster_reads());
        let all = [
            "disk?busy",
            "nodes?free",
            "gpu.heat of c",
            "cpu.*{core=1} of b",
        ];
        assert_eq!(shown(&demand), all);
        drop(watch);
        assert_eq!(shown(&demand), all[..3]);
    }

    #[test]
    fn publications_are_those_that_insights_read() {
        let demand = ClusterDemand::default();
        assert_eq!(demand.publications(), BTreeSet::new());
        let of = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        demand.set_insights(of(&["app.solver.residual", "application?x"]));
        demand.set_of_cluster(of(&["app?io?bytes", "disk?busy", "solver.total"]));
        let expected: BTreeSet<String> = of(&["app_io_bytes", "app_solver_residual"]);
        assert_eq!(demand.publications(), expected);
    }

    #[test]
    fn watches_are_bounded_by_user_and_in_all() {
        let demand = Arc::new(ClusterDemand::default());
        let four = selectors(&["a", "b", "c", "d"]);
        let watch = |user: u32| demand.watch("n", &four, Some(user));
        let mut held: Vec<WatchDemand> = (0..2).map(|_| watch(1).unwrap()).collect();
        assert!(watch(1).err().unwrap().contains("of one user"));
        // A selector of everything needs no room.
        held.push(demand.watch("n", &selectors(&["*"]), Some(1)).unwrap());
        held.extend((2..16).map(|user| watch(user).unwrap()));
        assert!(watch(16).err().unwrap().contains("of all users"));
        assert_eq!(demand.refused(), 2);
        held.remove(0);
        held.push(watch(16).unwrap());
        assert_eq!(shown(&demand).len(), 1 + WATCH_DEMANDS_MAX);
    }
}
