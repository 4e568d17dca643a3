//! The streams and archived series at one moment, grouped into tables.
//!
//! It stands alone because it is the schema: the tables, their columns, and the time up to which
//! the archive may have more of a table than the rings. A snapshot has a part for the run directory
//! itself and one for each scope of applications: a segment and its archive.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use barograph_archive::{ArchivedSeries, View};
use barograph_event::EVENT_STREAM;
use barograph_model::{NS_PER_S, SeriesId};
use barograph_stream::{DirectoryEntry, SegmentPart, SegmentReader};

use crate::control_columns::{CONTROL_EVENTS, is_in_control_events};
use crate::shape::MetricShape;
use crate::stream::SnapshotStream;

/// Intervals without a look after which a value is not known any more…
const MISSED: i64 = 3;
/// …but at least this time, in ns.
const MISSED_NS_MIN: i64 = NS_PER_S;

/// The number of a table, which stays the same while the connection lives: a scan finds its streams
/// by it without hashing a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableId(usize);

/// The time up to which the archive may hold samples of a table, ns since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    /// For any series.
    pub(crate) any: i64,
    /// For series that have no ring now.
    pub(crate) ended: i64,
    /// For series that ended since the last look at the archive.
    pub(crate) unseen: i64,
}

impl Horizon {
    /// The horizon of an archive that has nothing.
    pub(crate) const NEVER: Self = Self {
        any: i64::MIN,
        ended: i64::MIN,
        unseen: i64::MIN,
    };
}

/// An archived series: the index of the part whose view has it, and its index there.
type Place = (usize, usize);

/// The streams and archived series of a table at one moment.
#[derive(Clone)]
pub(crate) struct TableMembers {
    pub(crate) streams: Arc<[Arc<SnapshotStream>]>,
    pub(crate) horizon: Horizon,
    pub(crate) archived: Arc<[Place]>,
}

impl Default for TableMembers {
    fn default() -> Self {
        Self {
            streams: Arc::default(),
            horizon: Horizon::NEVER,
            archived: Arc::default(),
        }
    }
}

/// The beginning of the key of a metric's table over all nodes. No table of a metric has a colon.
pub(crate) const OVER_NODES: &str = "cluster:";

/// The tables and their columns. It only grows while a connection lives: a table outlives its
/// streams.
#[derive(Clone)]
pub(crate) struct Schema {
    /// By table; the keys of tables over all nodes begin with [`OVER_NODES`].
    pub(crate) shapes: BTreeMap<String, Arc<MetricShape>>,
    /// The nodes of each table's samples.
    pub(crate) nodes: BTreeMap<String, Vec<Arc<str>>>,
    /// Numbers of the tables by name; a number is never reused.
    numbers: HashMap<String, TableId>,
}

/// A segment and its archive at one moment: of the run directory itself, or of a scope.
#[derive(Clone, Default)]
pub(crate) struct SnapshotPart {
    /// Name of the scope; empty for the run directory itself, and for an archive alone.
    pub(crate) scope: Arc<str>,
    pub(crate) node: Arc<str>,
    /// The archive's view from the last look.
    pub(crate) view: Option<Arc<View>>,
    /// None if an archive is read alone.
    followed: Option<Arc<SegmentPart<SnapshotStream>>>,
}

impl SnapshotPart {
    /// Makes a part of a segment that is followed, and of its archive.
    pub(crate) fn of(followed: &Arc<SegmentPart<SnapshotStream>>, view: Option<Arc<View>>) -> Self {
        Self {
            scope: Arc::clone(&followed.id.scope),
            node: Arc::clone(&followed.id.node),
            view,
            followed: Some(Arc::clone(followed)),
        }
    }

    /// A copy of this part with another view of the archive.
    pub(crate) fn with_view(&self, view: Option<Arc<View>>) -> Self {
        let part = self.clone();
        Self { view, ..part }
    }

    /// Whether this is the mirror of another node.
    pub(crate) fn is_mirror(&self) -> bool {
        self.followed()
            .is_some_and(|followed| followed.id.is_mirror)
    }

    /// Whether this is the mirror of another node itself, not that of a scope of it.
    pub(crate) fn is_mirror_of_node(&self) -> bool {
        self.followed()
            .is_some_and(|followed| followed.id.is_mirror_of_node())
    }

    /// The segment at one version of its directory; none if an archive is read alone.
    pub(crate) fn followed(&self) -> Option<&Arc<SegmentPart<SnapshotStream>>> {
        self.followed.as_ref()
    }

    /// The segment; none if an archive is read alone.
    pub(crate) fn segment(&self) -> Option<&Arc<SegmentReader>> {
        self.followed.as_ref().map(|followed| &followed.segment)
    }

    /// The streams, sorted by name and labels.
    pub(crate) fn streams(&self) -> &[Arc<SnapshotStream>] {
        let followed = self.followed.as_ref();
        followed.map_or(&[][..], |followed| &followed.streams)
    }

    /// The archived series.
    pub(crate) fn series(&self) -> &[ArchivedSeries] {
        self.view.as_deref().map_or(&[][..], View::series)
    }
}

/// The streams at one moment, and the archives from the last look at them.
pub(crate) struct StreamsSnapshot {
    /// The run directory itself, or an archive alone, followed by the scopes.
    pub(crate) parts: Vec<Arc<SnapshotPart>>,
    /// The streams of all parts, sorted by name and labels.
    pub(crate) streams: Vec<Arc<SnapshotStream>>,
    pub(crate) schema: Arc<Schema>,
    pub(crate) mirrored: MirroredNodes,
    by_table: Vec<TableMembers>,
}

/// The names of the nodes that are mirrored; `None` if there are none.
pub(crate) type MirroredNodes = Option<Arc<[Arc<str>]>>;

/// The members of a table while they are collected.
#[derive(Default)]
struct Group {
    streams: Vec<Arc<SnapshotStream>>,
    archived: Vec<Place>,
}

impl StreamsSnapshot {
    /// Makes a snapshot of these parts, after one with this schema. Streams that ended since the
    /// last look at the archives may have samples up to `ended_ns` there.
    pub(crate) fn of(parts: Vec<Arc<SnapshotPart>>, schema: Arc<Schema>, ended_ns: i64) -> Self {
        let streams = parts.iter().flat_map(|part| part.streams().iter().cloned());
        let mut streams: Vec<Arc<SnapshotStream>> = streams.collect();
        if parts.len() > 1 {
            streams.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        }
        let mirrors = parts.iter().filter(|part| part.is_mirror_of_node());
        let mirrored: Arc<[Arc<str>]> = mirrors.map(|part| Arc::clone(&part.node)).collect();
        let mut snapshot = Self {
            parts,
            streams,
            schema,
            mirrored: Some(mirrored).filter(|nodes| !nodes.is_empty()),
            by_table: Vec::new(),
        };
        snapshot.group(ended_ns);
        snapshot
    }

    /// The run directory itself, or an archive alone.
    pub(crate) fn own(&self) -> &SnapshotPart {
        &self.parts[0]
    }

    /// The views of the archives, of those parts that have one.
    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        self.parts.iter().filter_map(|part| part.view.as_deref())
    }

    /// The present interval between looks at a stream's resource, in ns; 0 if unknown.
    pub(crate) fn interval_ns(&self, entry: &DirectoryEntry) -> i64 {
        let segments = self.parts.iter().filter_map(|part| part.segment());
        let mut known = segments.map(|segment| segment.interval_ns(entry)); // 0 for another segment's stream
        known.find(|interval_ns| *interval_ns != 0).unwrap_or(0)
    }

    /// The time until which the newest value of a stream is known to hold. As in the recorder's
    /// streams, a look that is late by less than [`MISSED`] intervals is no gap. A value that
    /// nobody looks at holds as long as there is somebody who would take in the next one.
    pub(crate) fn known_until_ns(
        &self,
        scope: &str,
        stream: &SnapshotStream,
        ts: i64,
        now_ns: i64,
    ) -> i64 {
        let looked_ns = stream.looked_ns(ts);
        let is_its = |part: &&Arc<SnapshotPart>| *part.scope == *scope && part.node == stream.node;
        let part = self.parts.iter().find(is_its);
        let Some(segment) = part.and_then(|part| part.segment()) else {
            return looked_ns;
        };
        match (segment.is_alive(now_ns), segment.interval_ns(&stream.entry)) {
            (true, 0) => i64::MAX,
            (true, interval_ns) => {
                let missed_ns = interval_ns.saturating_mul(MISSED).max(MISSED_NS_MIN);
                looked_ns.saturating_add(missed_ns)
            }
            (false, 0) => looked_ns.max(segment.heartbeat_ns()),
            (false, _) => looked_ns,
        }
    }

    pub(crate) fn members(&self, table: TableId) -> Option<&TableMembers> {
        self.by_table.get(table.0)
    }

    /// The archived series of a table.
    pub(crate) fn archived(&self, table: TableId) -> impl Iterator<Item = &ArchivedSeries> {
        let members = self.by_table.get(table.0);
        let places = members.map_or(&[][..], |members| &members.archived);
        let series = |&(part, index): &Place| self.parts.get(part)?.series().get(index);
        places.iter().filter_map(series)
    }

    /// Groups streams and series into tables. Ended streams that the views do not know must not
    /// have samples later than `ended_ns`.
    fn group(&mut self, ended_ns: i64) {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        let has_mirrors = self.mirrored.is_some();
        for stream in &self.streams {
            for table in tables_of(&stream.table, stream.is_mirrored, has_mirrors) {
                let streams = &mut groups.entry(table).or_default().streams;
                streams.push(Arc::clone(stream));
            }
        }
        for (at, part) in self.parts.iter().enumerate() {
            for (index, one) in part.series().iter().enumerate() {
                let table = one.descriptor.name.table();
                for table in tables_of(&table, part.is_mirror(), has_mirrors) {
                    groups.entry(table).or_default().archived.push((at, index));
                }
            }
        }
        if let Some(grown) = self.schema.grown(&groups, &self.parts) {
            self.schema = Arc::new(grown);
        }
        let living = self.parts.iter().enumerate().flat_map(|(at, part)| {
            let streams = part.streams().iter();
            streams.map(move |s| (at, &*s.node, s.entry.series))
        });
        let living: HashSet<(usize, &str, SeriesId)> = living.collect();
        let has_view = self.parts.iter().any(|part| part.view.is_some());
        let unseen = if has_view { ended_ns } else { i64::MIN };
        let empty = TableMembers {
            horizon: Horizon {
                any: unseen,
                ended: unseen,
                unseen,
            },
            ..TableMembers::default()
        };
        let mut by_table = vec![empty; self.schema.numbers.len()];
        for (table, group) in groups {
            let Some(members) = self
                .schema
                .numbers
                .get(&table)
                .and_then(|id| by_table.get_mut(id.0))
            else {
                continue;
            };
            for &(part, index) in &group.archived {
                let one = &self.parts[part].series()[index];
                let horizon = &mut members.horizon;
                horizon.any = horizon.any.max(one.known.to);
                if !living.contains(&(part, &*one.node, one.id)) {
                    horizon.ended = horizon.ended.max(one.known.to);
                }
            }
            members.streams = group.streams.into();
            members.archived = group.archived.into();
        }
        self.by_table = by_table;
    }
}

/// The metric of a table, and whether the table has the streams of all nodes.
pub(crate) fn over_nodes(table: &str) -> (&str, bool) {
    let metric = table.strip_prefix(OVER_NODES);
    (metric.unwrap_or(table), metric.is_some())
}

/// The tables that have a stream of this metric: the metric's own has the streams of this node, and
/// that of the cluster those of all nodes, as soon as another one is mirrored. Control events are
/// in the table of all of them as well.
fn tables_of(
    metric: &str,
    is_mirrored: bool,
    has_mirrors: bool,
) -> impl Iterator<Item = String> + use<> {
    let of_all = is_in_control_events(metric).then(|| CONTROL_EVENTS.to_owned());
    let tables = [Some(metric.to_owned()), of_all].into_iter().flatten();
    tables.flat_map(move |table| {
        let cluster = has_mirrors.then(|| format!("{OVER_NODES}{table}"));
        let own = (!is_mirrored).then_some(table);
        own.into_iter().chain(cluster)
    })
}

impl Default for Schema {
    /// The schema without streams: it has the tables of events, so that statements over them can be
    /// written before there are any.
    fn default() -> Self {
        let control_events = Arc::new(MetricShape::of_control_events());
        Self {
            shapes: BTreeMap::from([
                (EVENT_STREAM.to_owned(), Arc::new(MetricShape::of_events())),
                (CONTROL_EVENTS.to_owned(), control_events),
            ]),
            nodes: BTreeMap::new(),
            numbers: HashMap::from([
                (EVENT_STREAM.to_owned(), TableId(0)),
                (CONTROL_EVENTS.to_owned(), TableId(1)),
            ]),
        }
    }
}

impl Schema {
    /// The schema that includes these groups; `None` if this one already does.
    fn grown(&self, groups: &BTreeMap<String, Group>, parts: &[Arc<SnapshotPart>]) -> Option<Self> {
        let mut grown: Option<Self> = None;
        for (table, group) in groups {
            let places = || group.archived.iter();
            let archived = || places().map(|&(part, index)| &parts[part].series()[index]);
            let living = group.streams.iter().map(|s| &s.entry.descriptor);
            let descriptors = living.chain(archived().map(|one| &*one.descriptor));
            let old = self.shapes.get(table).map(AsRef::as_ref);
            if let Some(shape) = MetricShape::grown(over_nodes(table).0, old, descriptors) {
                let schema = grown.get_or_insert_with(|| self.clone());
                schema.shapes.insert(table.clone(), Arc::new(shape));
                let next = TableId(schema.numbers.len());
                schema.numbers.entry(table.clone()).or_insert(next);
            }
            let here = group.streams.iter().map(|stream| &stream.node);
            for node in here.chain(archived().map(|one| &one.node)) {
                let known = grown.as_ref().unwrap_or(self).nodes.get(table);
                if !known.is_some_and(|known| known.contains(node)) {
                    let schema = grown.get_or_insert_with(|| self.clone());
                    let nodes = schema.nodes.entry(table.clone()).or_default();
                    nodes.push(Arc::clone(node));
                }
            }
        }
        grown
    }

    /// The tables of this node's metrics, by name.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = (&String, &Arc<MetricShape>)> {
        let all = self.shapes.iter();
        all.filter(|(table, _)| !table.starts_with(OVER_NODES))
    }

    /// The shapes of the metrics of all nodes; one of a metric that is on several nodes may come
    /// twice.
    pub(crate) fn everywhere(&self) -> impl Iterator<Item = &Arc<MetricShape>> {
        self.shapes.values()
    }

    /// The tables over all nodes: the metric, the key, and the columns of each.
    pub(crate) fn over_nodes(&self) -> impl Iterator<Item = (&str, &String, &Arc<MetricShape>)> {
        let all = self.shapes.range(OVER_NODES.to_owned()..);
        all.map_while(|(table, shape)| Some((table.strip_prefix(OVER_NODES)?, table, shape)))
    }

    /// The number of a table.
    pub(crate) fn table_id(&self, table: &str) -> TableId {
        *self
            .numbers
            .get(table)
            .expect("a table has its shape and its number from the same streams")
    }
}
