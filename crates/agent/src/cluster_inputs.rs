//! The inputs of insights over the cluster: for each stream of this node and of the mirrored ones,
//! the stream `cluster.<name>` with the label `node`, in the graph alone.
//!
//! They have the names of SQL's tables over all nodes, so that an insight is a SELECT that was
//! tried in SQL. Of publications these are the ones that everyone may read, since everyone reads
//! what insights make of them, and only the metrics that an insight names. Once a second the
//! sampling loop reads what has changed in memory; it waits for no other node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_insight::Graph;
use barograph_model::{
    CLUSTER_NODE_LABEL, CLUSTER_PREFIX, Descriptor, Labels, Name, Pattern, StreamKey, table_name,
};
use barograph_stream::{
    DirectoryEntry, Incarnation, LOOK_NS, LatestSample, RunDir, SCOPE_OF_ALL, ScopeChoice,
    SegmentFollower, SegmentPart, SegmentReader, StreamReader,
};
use tracing::{debug, warn};

use crate::cluster_insights::ClusterInputNews;

/// Most streams of all nodes that insights read, and most that rules read. Further ones are left
/// out, which is logged once.
const INPUTS_MAX: usize = 16_384;
/// Most publications on all nodes that insights read, and most that rules read, beside the streams
/// of the nodes themselves: what users publish takes no room from these. Further ones are left out,
/// which is logged once.
const PUBLICATION_INPUTS_MAX: usize = 4_096;

/// The identity of a stream: the life of its segment, its slot, and the generation of the slot.
type InputId = (Incarnation, usize, u16);

/// The room that insights or rules have for streams of all nodes.
#[derive(Debug)]
pub(crate) struct InputRoom {
    /// Who reads the streams, for the log.
    reader: &'static str,
    of_nodes: usize,
    publications: usize,
    is_full: bool,
}

impl InputRoom {
    pub(crate) const fn new(reader: &'static str) -> Self {
        Self {
            reader,
            of_nodes: 0,
            publications: 0,
            is_full: false,
        }
    }

    /// Takes room for one stream; returns whether there was any.
    pub(crate) fn take(&mut self, is_publication: bool) -> bool {
        let (held, max, what) = match is_publication {
            true => (
                &mut self.publications,
                PUBLICATION_INPUTS_MAX,
                "publications",
            ),
            false => (&mut self.of_nodes, INPUTS_MAX, "streams of nodes"),
        };
        if *held < max {
            *held += 1;
            return true;
        }
        if !std::mem::replace(&mut self.is_full, true) {
            warn!(
                "{} over all nodes read {max} {what}, and no further ones",
                self.reader
            );
        }
        false
    }

    /// Gives back the room of one stream.
    pub(crate) const fn give_back(&mut self, is_publication: bool) {
        match is_publication {
            true => self.publications -= 1,
            false => self.of_nodes -= 1,
        }
    }

    /// Whether a stream was left out: it may have room later.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The number of streams, publications too.
    #[cfg(test)]
    pub(crate) const fn held(&self) -> usize {
        self.of_nodes + self.publications
    }
}

/// The streams of all nodes, as inputs of the graph.
pub(crate) struct ClusterInputs {
    run_dir: RunDir,
    /// The scopes of publications that may be inputs. Other nodes read insights, so those that do
    /// not leave this node are none.
    scopes: ScopeChoice,
    /// `None` until the node's own segment could be opened.
    follower: Option<SegmentFollower<DirectoryEntry>>,
    /// The number of the follower's changes that the graph has seen.
    changes: Option<u64>,
    /// The segments as the graph has seen them.
    parts: Vec<Arc<SegmentPart<DirectoryEntry>>>,
    inputs: BTreeMap<InputId, ClusterInput>,
    /// The first key: those below are of this node's own streams.
    first_key: u32,
    /// Number of keys that were ever in use.
    keys: u32,
    free: Vec<StreamKey>,
    room: InputRoom,
    /// The tables of publications that insights read.
    publications: BTreeSet<String>,
    /// State of the inputs that other threads read.
    news: Arc<ClusterInputNews>,
}

/// A stream of one node, as an input of the graph.
struct ClusterInput {
    key: StreamKey,
    segment: Arc<SegmentReader>,
    entry: DirectoryEntry,
    reader: StreamReader,
    is_own: bool,
    is_publication: bool,
    /// Number of the newest sample that the graph has.
    count: u64,
    interval_ns: i64,
}

impl ClusterInputs {
    /// Inputs of the streams in this run directory. Keys from `first_key` on are theirs.
    /// `crossing` are the readers whose publications may leave a node (`cluster.publications`).
    pub(crate) fn new(run_dir: &RunDir, first_key: u32, crossing: &[String]) -> Self {
        let mut crossing = crossing.iter().map(Pattern::new);
        let scopes = match crossing.any(|readers| readers.matches(SCOPE_OF_ALL)) {
            true => ScopeChoice::Public,
            false => ScopeChoice::None,
        };
        Self {
            run_dir: run_dir.clone(),
            scopes,
            follower: None,
            changes: None,
            parts: Vec::new(),
            inputs: BTreeMap::new(),
            first_key,
            keys: 0,
            free: Vec::new(),
            room: InputRoom::new("insights"),
            publications: BTreeSet::new(),
            news: Arc::default(),
        }
    }

    /// State of the inputs, which is kept up to date.
    pub(crate) fn news(&self) -> Arc<ClusterInputNews> {
        Arc::clone(&self.news)
    }

    /// Tells which streams the insights of this node read. The built-in ones read only what is
    /// mirrored anyway, and demand nothing.
    pub(crate) fn tell_demand(&self, graph: &Graph) {
        let reports = graph.reports();
        let made = reports.iter().filter(|report| !report.builtin);
        let inputs = made.flat_map(|report| &report.inputs);
        let names = inputs.filter_map(|input| input.strip_prefix(CLUSTER_PREFIX));
        // Where no such stream has been seen, the dots of the name are not known.
        self.news
            .demand
            .set_insights(names.map(|name| name.replace('_', "?")).collect());
    }

    /// Tells the graph what is new at `now_ns`, in ns since the epoch.
    pub(crate) fn look(&mut self, now_ns: i64, graph: &mut Graph) {
        let publications = self.news.demand.publications();
        let is_known = publications == self.publications;
        self.publications = publications;
        if let Err(error) = self.follow(now_ns) {
            debug!(%error, "insights over the cluster do not see the node's segment");
        }
        let changes = self.follower.as_ref().map(SegmentFollower::changes);
        if changes != self.changes || !is_known {
            self.changes = changes;
            self.read_directories(graph, !is_known);
            self.count();
        }
        for input in self.inputs.values_mut() {
            input.tell(graph);
        }
    }

    fn follow(&mut self, now_ns: i64) -> Result<(), barograph_stream::StreamError> {
        // Programs that come and go cost nothing while no insight reads what they publish.
        let scopes = match self.publications.is_empty() {
            true => ScopeChoice::None,
            false => self.scopes,
        };
        if let Some(follower) = &mut self.follower {
            follower.set_scopes(scopes);
            return follower.follow(now_ns);
        }
        let opened = SegmentFollower::open(&self.run_dir, scopes, LOOK_NS, now_ns)?;
        self.follower = Some(opened.with_mirrors(now_ns)?);
        Ok(())
    }

    /// Adds the streams that have come, and removes those that have gone, of the segments that have
    /// changed, or of all.
    fn read_directories(&mut self, graph: &mut Graph, all_anew: bool) {
        let follower = self.follower.as_ref();
        let parts = follower.map_or_else(Vec::new, |follower| follower.parts().to_vec());
        let before = std::mem::replace(&mut self.parts, parts);
        for old in &before {
            let is_it = |part: &Arc<_>| same_segment(part, old);
            if !self.parts.iter().any(is_it) {
                self.remove(old.segment.incarnation(), &BTreeSet::new(), graph);
            }
        }
        for part in self.parts.clone() {
            // Streams that were left out may have room now.
            let is_anew = all_anew || self.room.is_full();
            if is_anew || !before.iter().any(|old| Arc::ptr_eq(old, &part)) {
                self.read_directory(&part, graph);
            }
        }
    }

    fn read_directory(&mut self, part: &SegmentPart<DirectoryEntry>, graph: &mut Graph) {
        let incarnation = part.segment.incarnation();
        let is_publication = !part.id.scope_name().is_empty();
        let is_input = |entry: &&Arc<DirectoryEntry>| {
            let table = || entry.descriptor.name.table();
            !is_publication || self.publications.contains(&table())
        };
        let entries: Vec<_> = part.streams.iter().filter(is_input).collect();
        let there = entries.iter().map(|e| (e.slot, e.generation));
        self.remove(incarnation, &there.collect(), graph);
        for entry in entries {
            let id = (incarnation, entry.slot, entry.generation);
            if self.inputs.contains_key(&id) {
                continue;
            }
            let Some(descriptor) = of_node(&entry.descriptor, &part.id.node) else {
                continue;
            };
            if !self.room.take(is_publication) {
                return;
            }
            let key = self.key();
            graph.stream_added(key, &descriptor);
            let input = ClusterInput {
                key,
                reader: part.segment.stream(entry),
                segment: Arc::clone(&part.segment),
                entry: (**entry).clone(),
                is_own: !part.id.is_mirror,
                is_publication,
                count: 0,
                interval_ns: 0,
            };
            self.inputs.insert(id, input);
        }
    }

    /// Removes the inputs of a segment but those that are there.
    fn remove(&mut self, of: Incarnation, there: &BTreeSet<(usize, u16)>, graph: &mut Graph) {
        let all = (of, 0, 0)..=(of, usize::MAX, u16::MAX);
        let is_gone = |id: &InputId, _: &mut ClusterInput| !there.contains(&(id.1, id.2));
        for (_, input) in self.inputs.extract_if(all, is_gone) {
            graph.stream_removed(input.key);
            self.free.push(input.key);
            self.room.give_back(input.is_publication);
        }
    }

    /// Counts the inputs by table, and those of this node among them.
    fn count(&self) {
        let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for input in self.inputs.values() {
            let name = &input.entry.descriptor.name;
            let table = table_name(&format!("{CLUSTER_PREFIX}{name}"));
            let (all, ours) = counts.entry(table).or_default();
            *all += 1;
            *ours += u64::from(input.is_own);
        }
        self.news.set_counts(counts);
    }

    fn key(&mut self) -> StreamKey {
        self.free.pop().unwrap_or_else(|| {
            self.keys += 1;
            StreamKey(self.first_key + self.keys - 1)
        })
    }
}

/// Whether two parts are of the same life of a segment.
fn same_segment(a: &SegmentPart<DirectoryEntry>, b: &SegmentPart<DirectoryEntry>) -> bool {
    a.segment.incarnation() == b.segment.incarnation()
}

impl ClusterInput {
    fn tell(&mut self, graph: &mut Graph) {
        let interval_ns = self.segment.interval_ns(&self.entry);
        if interval_ns != self.interval_ns {
            self.interval_ns = interval_ns;
            graph.interval(self.key, interval_ns);
        }
        let looked_ns = self.reader.looked_ns();
        if self.reader.count().is_some_and(|count| count != self.count)
            && let LatestSample::Sample { sample, count, .. } = self.reader.latest()
        {
            self.count = count;
            graph.sample(self.key, &sample);
        }
        if self.count > 0 && looked_ns > 0 {
            graph.looked(self.key, looked_ns);
        }
    }
}

/// The stream as one of several nodes, by the name that insights, rules and SQL know; `None` if its
/// name or its labels have no room for that.
pub(crate) fn of_node(descriptor: &Descriptor, node: &str) -> Option<Descriptor> {
    let name = Name::new(format!("{CLUSTER_PREFIX}{}", descriptor.name)).ok()?;
    let labels = descriptor.labels.iter();
    let labels = labels.filter(|(label, _)| *label != CLUSTER_NODE_LABEL);
    let labels = labels.chain([(CLUSTER_NODE_LABEL, node)]);
    Some(Descriptor {
        name,
        labels: Labels::new(labels).ok()?,
        ..descriptor.clone()
    })
}

#[cfg(test)]
mod tests {
    use barograph_insight::GraphLimits;
    use barograph_model::{NS_PER_S, Sample, Sink, Unit, Value, ValueType};
    use barograph_stream::{Segment, SegmentConfig};

    use super::*;

    const NOW_NS: i64 = 1_700_000_000 * NS_PER_S;

    /// A sink that keeps the newest value of each stream.
    #[derive(Default)]
    struct Newest(Vec<(String, Option<Value>)>);

    impl Sink for Newest {
        fn declare(&mut self, descriptor: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
            self.0.push((descriptor.to_string(), None));
            Some(StreamKey(self.0.len() as u32 - 1))
        }

        fn retire(&mut self, key: StreamKey) {
            if let Some((_, value)) = self.0.get_mut(key.0 as usize) {
                *value = None;
            }
        }

        fn put(&mut self, key: StreamKey, sample: &Sample) {
            self.0[key.0 as usize].1 = Some(sample.value.clone());
        }

        fn confirm(&mut self, _: StreamKey, _: i64) {}

        fn expect_interval(&mut self, _: StreamKey, _: i64) {}
    }

    fn free(mount: &str) -> Descriptor {
        Descriptor {
            labels: Labels::new([("mount", mount)]).unwrap(),
            ..Descriptor::gauge(
                Name::new("filesystem.available.bytes").unwrap(),
                ValueType::Int,
                Unit::new("bytes").unwrap(),
            )
        }
    }

    fn segment(run_dir: &RunDir, node: &str, value: i64) -> Segment {
        segment_of(run_dir, (node, &[&free("/scratch")]), value)
    }

    /// A segment whose streams have all this value.
    fn segment_of(
        run_dir: &RunDir,
        (node, streams): (&str, &[&Descriptor]),
        value: i64,
    ) -> Segment {
        std::fs::create_dir_all(run_dir.path()).unwrap();
        let config = SegmentConfig::new(node);
        let mut segment = Segment::create(&run_dir.segment(), config, NOW_NS).unwrap();
        for stream in streams {
            let mut writer = segment.register(stream, None, NOW_NS).unwrap();
            writer.append(&Sample::measured(NOW_NS, value)).unwrap();
        }
        segment.heartbeat(NOW_NS);
        segment
    }

    /// The inputs of this node and of others, by name.
    fn names(inputs: &ClusterInputs) -> Vec<(String, bool)> {
        let inputs = inputs.inputs.values();
        let name = |input: &ClusterInput| (input.entry.descriptor.name.to_string(), input.is_own);
        let mut names: Vec<_> = inputs.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn an_insight_reads_all_nodes_and_forgets_those_that_go() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let mut graph = Graph::new(GraphLimits {
            node: "a".into(),
            is_clustered: true,
            ..GraphLimits::default()
        });
        // It may be made before any node has been seen.
        let sql = "CREATE INSIGHT all.free.bytes AS SELECT sum(value) AS value FROM \
                   cluster_filesystem_available_bytes WHERE newest AND mount = '/scratch'";
        graph.create(sql, false).unwrap();
        let _own = segment(&run_dir, "a", 5);
        let other = segment(&run_dir.mirror("b"), "b", 7);
        let mut inputs = ClusterInputs::new(&run_dir, 100, &[]);
        let mut sink = Newest::default();
        let mut step = |inputs: &mut ClusterInputs, graph: &mut Graph, after_s: i64| {
            let now_ns = NOW_NS + after_s * NS_PER_S;
            inputs.look(now_ns, graph);
            graph.evaluate(now_ns, &mut sink);
            sink.0.iter().find_map(|(_, value)| value.clone())
        };
        assert_eq!(step(&mut inputs, &mut graph, 1), Some(Value::Int(12)));
        drop(other);
        std::fs::remove_dir_all(run_dir.mirror("b").path()).unwrap();
        assert_eq!(step(&mut inputs, &mut graph, 10), Some(Value::Int(5)));
        // By node, under another name than that of the column.
        let sql = "CREATE INSIGHT each.free.bytes AS SELECT node AS of_node, value FROM \
                   cluster_filesystem_available_bytes WHERE newest";
        graph.create(sql, false).unwrap();
        step(&mut inputs, &mut graph, 20);
        assert!(
            sink.0.iter().any(|(name, _)| name.contains("of_node=a")),
            "{:?}",
            sink.0
        );
    }

    #[test]
    fn publications_that_an_insight_names_are_inputs_if_everyone_may_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let named = |name: &str| Descriptor {
            name: Name::new(name).unwrap(),
            ..free("/")
        };
        let (residual, other) = (named("app.solver.residual"), named("app.other.value"));
        let published = [&residual, &other];
        let mut segments = vec![
            segment(&run_dir, "a", 1),
            segment(&run_dir.mirror("b"), "b", 1),
        ];
        for (at, dir) in [run_dir.clone(), run_dir.mirror("b")].iter().enumerate() {
            let node = ["a", "b"][at];
            segments.push(segment_of(&dir.scope("all"), (node, &published), 10));
            segments.push(segment_of(&dir.scope("u1000"), (node, &published), 500));
        }
        let mut graph = Graph::new(GraphLimits {
            node: "a".into(),
            is_clustered: true,
            ..GraphLimits::default()
        });
        let mut inputs = ClusterInputs::new(&run_dir, 100, &["u*".into(), "a*".into()]);
        let mut sink = Newest::default();
        let mut step = |inputs: &mut ClusterInputs, graph: &mut Graph, after_s: i64| {
            let now_ns = NOW_NS + after_s * NS_PER_S;
            inputs.tell_demand(graph);
            inputs.look(now_ns, graph);
            graph.evaluate(now_ns, &mut sink);
            sink.0.iter().find_map(|(_, value)| value.clone())
        };
        step(&mut inputs, &mut graph, 1);
        let of_nodes = [false, true].map(|is_own| ("filesystem.available.bytes".into(), is_own));
        assert_eq!(names(&inputs), of_nodes, "no insight names a publication");
        let sql = "CREATE INSIGHT solver.total AS SELECT sum(value) AS value FROM \
                   cluster_app_solver_residual WHERE newest";
        graph.create(sql, false).unwrap();
        assert_eq!(step(&mut inputs, &mut graph, 2), Some(Value::Int(20)));
        let residuals = [false, true].map(|is_own| ("app.solver.residual".into(), is_own));
        assert_eq!(names(&inputs), [&residuals[..], &of_nodes].concat());
        // One that another node computes counts its inputs here too.
        let mut sink = Newest::default();
        graph.drop("DROP INSIGHT solver.total", &mut sink).unwrap();
        let of_cluster = BTreeSet::from(["app?other?value".to_owned()]);
        inputs.news.demand.set_of_cluster(of_cluster);
        step(&mut inputs, &mut graph, 3);
        let counts = inputs.news.counts();
        assert_eq!(counts.get("cluster_app_other_value"), Some(&(2, 1)));
        assert_eq!(counts.get("cluster_app_solver_residual"), None);
        inputs.news.demand.set_of_cluster(BTreeSet::new());
        step(&mut inputs, &mut graph, 4);
        assert_eq!(names(&inputs), of_nodes);
        assert_eq!(inputs.room.held(), 2);
        // Others read insights: what does not leave this node is no input here either.
        let mut inputs = ClusterInputs::new(&run_dir, 100, &["u*".into()]);
        let of_cluster = BTreeSet::from(["app?other?value".to_owned()]);
        inputs.news.demand.set_of_cluster(of_cluster);
        step(&mut inputs, &mut graph, 5);
        assert_eq!(names(&inputs), of_nodes);
    }

    #[test]
    fn publications_take_no_room_from_nodes() {
        let mut room = InputRoom::new("insights");
        assert!((0..PUBLICATION_INPUTS_MAX).all(|_| room.take(true)));
        assert!(!room.is_full());
        assert!(!room.take(true));
        assert!(room.is_full());
        assert!((0..INPUTS_MAX).all(|_| room.take(false)));
        assert!(!room.take(false));
        room.give_back(true);
        assert!(room.take(true));
        assert!(!room.take(false));
    }

    #[test]
    fn a_stream_without_room_for_the_label_is_left_out() {
        let long = Descriptor {
            name: Name::new("a".repeat(118)).unwrap(),
            ..free("/")
        };
        assert!(of_node(&long, "n").is_none());
        let labels = of_node(&free("/"), "n").unwrap();
        assert_eq!(
            labels.to_string(),
            "cluster.filesystem.available.bytes{mount=/,node=n}"
        );
    }
}
