//! The streams and the archived series at one moment, grouped into tables.
//!
//! It stands alone because it is the schema: what tables there are, of which columns, and up to when
//! the archive may know more of a table than the rings do.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use barograph_archive::{Series, View};
use barograph_model::SeriesId;
use barograph_stream::{Incarnation, SegmentReader};

use crate::shape::Shape;
use crate::stream::Stream;

/// The number of a table, the same as long as the connection lives: a scan finds its streams by it
/// without hashing a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableId(usize);

/// Up to when the archive may hold samples of a table, ns since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    /// Of any series.
    pub(crate) any: i64,
    /// Of series that have no ring now.
    pub(crate) ended: i64,
    /// Of series that ended since the archive was last looked at.
    pub(crate) unseen: i64,
}

impl Horizon {
    /// The archive knows nothing.
    pub(crate) const NEVER: Self = Self {
        any: i64::MIN,
        ended: i64::MIN,
        unseen: i64::MIN,
    };
}

/// A table at one moment.
#[derive(Clone)]
pub(crate) struct Members {
    pub(crate) streams: Arc<[Arc<Stream>]>,
    pub(crate) horizon: Horizon,
    /// The series of the snapshot's view.
    pub(crate) archived: Arc<[usize]>,
}

impl Default for Members {
    fn default() -> Self {
        Self {
            streams: Arc::default(),
            horizon: Horizon::NEVER,
            archived: Arc::default(),
        }
    }
}

/// What tables there are. It only grows while a connection lives: a table outlives its streams.
#[derive(Clone, Default)]
pub(crate) struct Schema {
    pub(crate) shapes: BTreeMap<String, Arc<Shape>>,
    /// The nodes that each table has samples of.
    pub(crate) nodes: BTreeMap<String, Vec<Arc<str>>>,
    /// Numbers of the tables by name; a number is never given to another table.
    numbers: HashMap<String, TableId>,
}

/// The streams at one moment, and the archive as it was last looked at.
pub(crate) struct Snapshot {
    /// None when an archive is read by itself.
    pub(crate) segment: Option<SegmentReader>,
    pub(crate) node: Arc<str>,
    pub(crate) streams: Vec<Arc<Stream>>,
    pub(crate) view: Option<Arc<View>>,
    pub(crate) schema: Arc<Schema>,
    by_table: Vec<Members>,
    version: u64,
    incarnation: Option<Incarnation>,
}

/// The members of a table while it is made.
#[derive(Default)]
struct Group {
    streams: Vec<Arc<Stream>>,
    /// Indexes into the view's series.
    archived: Vec<usize>,
}

impl Snapshot {
    /// The segment as it is now, after `before`. What ended since the archive was last looked at may
    /// have samples up to `now_ns` there.
    pub(crate) fn take(segment: Option<SegmentReader>, before: Option<&Self>, now_ns: i64) -> Self {
        let directory = segment.as_ref().map(SegmentReader::directory);
        let directory = directory.unwrap_or_default();
        let incarnation = segment.as_ref().map(SegmentReader::incarnation);
        let node: Arc<str> = segment
            .as_ref()
            .map_or_else(String::new, SegmentReader::node)
            .into();
        // A stream that lives on keeps what is known of the order of its ring.
        let known: HashMap<(usize, u16), &Arc<Stream>> = before
            .filter(|b| b.incarnation == incarnation)
            .map(|b| {
                b.streams
                    .iter()
                    .map(|s| ((s.entry.slot, s.entry.generation), s))
                    .collect()
            })
            .unwrap_or_default();
        let mut streams = Vec::with_capacity(directory.entries.len());
        for entry in directory.entries {
            match (known.get(&(entry.slot, entry.generation)), &segment) {
                (Some(stream), _) => streams.push(Arc::clone(stream)),
                (None, Some(segment)) => {
                    let reader = segment.stream(&entry);
                    streams.push(Arc::new(Stream::new(reader, entry, Arc::clone(&node))));
                }
                (None, None) => {}
            }
        }
        streams.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        let mut snapshot = Self {
            segment,
            node,
            streams,
            view: before.and_then(|b| b.view.clone()),
            schema: before.map(|b| Arc::clone(&b.schema)).unwrap_or_default(),
            by_table: Vec::new(),
            version: directory.version,
            incarnation,
        };
        snapshot.group(now_ns);
        snapshot
    }

    /// The same streams, and the archive as it is in `view`.
    pub(crate) fn with_view(&self, view: Arc<View>) -> Self {
        self.with(Some(view))
    }

    /// The same streams, and no archive.
    #[cfg(feature = "loadable")]
    pub(crate) fn without_view(&self) -> Self {
        self.with(None)
    }

    fn with(&self, view: Option<Arc<View>>) -> Self {
        let mut snapshot = Self {
            segment: self.segment.clone(),
            node: Arc::clone(&self.node),
            streams: self.streams.clone(),
            view,
            schema: Arc::clone(&self.schema),
            by_table: Vec::new(),
            version: self.version,
            incarnation: self.incarnation,
        };
        snapshot.group(i64::MIN);
        snapshot
    }

    /// Whether the segment's directory is still the one that this was made from.
    pub(crate) fn is_current(&self) -> bool {
        self.segment
            .as_ref()
            .is_none_or(|segment| segment.directory_version() == self.version)
    }

    /// The members of a table.
    pub(crate) fn members(&self, table: TableId) -> Option<&Members> {
        self.by_table.get(table.0)
    }

    /// The archived series of a table.
    pub(crate) fn archived(&self, table: TableId) -> impl Iterator<Item = &Series> {
        let series = self.view.as_deref().map_or(&[][..], View::series);
        let members = self.by_table.get(table.0);
        let indexes = members.map_or(&[][..], |members| &members.archived);
        indexes.iter().filter_map(|&index| series.get(index))
    }

    /// Sorts streams and series into tables; nothing that ended may be later than `ended_ns` unless
    /// the view knows it.
    fn group(&mut self, ended_ns: i64) {
        let series = self.view.as_deref().map_or(&[][..], View::series);
        let mut groups: HashMap<String, Group> = HashMap::new();
        for stream in &self.streams {
            let streams = &mut groups.entry(stream.table.clone()).or_default().streams;
            streams.push(Arc::clone(stream));
        }
        for (index, one) in series.iter().enumerate() {
            let archived = &mut groups
                .entry(one.descriptor.name.table())
                .or_default()
                .archived;
            archived.push(index);
        }
        let view = self.view.as_deref();
        if let Some(grown) = self.schema.grown(&groups, view, &self.node) {
            self.schema = Arc::new(grown);
        }
        let living: std::collections::HashSet<(&str, SeriesId)> = self
            .streams
            .iter()
            .map(|s| (&*s.node, s.entry.series))
            .collect();
        let unseen = if view.is_some() { ended_ns } else { i64::MIN };
        let empty = Members {
            horizon: Horizon {
                any: unseen,
                ended: unseen,
                unseen,
            },
            ..Members::default()
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
            for one in group.archived.iter().map(|&i| &series[i]) {
                let horizon = &mut members.horizon;
                horizon.any = horizon.any.max(one.known.to);
                if !living.contains(&(&*one.node, one.id)) {
                    horizon.ended = horizon.ended.max(one.known.to);
                }
            }
            members.streams = group.streams.into();
            members.archived = group.archived.into();
        }
        self.by_table = by_table;
    }
}

impl Schema {
    /// The schema that holds these groups too; `None` when this one already does.
    fn grown(
        &self,
        groups: &HashMap<String, Group>,
        view: Option<&View>,
        node: &Arc<str>,
    ) -> Option<Self> {
        let series = view.map_or(&[][..], View::series);
        let mut grown: Option<Self> = None;
        for (table, group) in groups {
            let archived = || group.archived.iter().map(|&i| &series[i]);
            let living = group.streams.iter().map(|s| &s.entry.descriptor);
            let descriptors = living.chain(archived().map(|one| &*one.descriptor));
            let old = self.shapes.get(table).map(AsRef::as_ref);
            if let Some(shape) = Shape::grown(old, descriptors) {
                let schema = grown.get_or_insert_with(|| self.clone());
                schema.shapes.insert(table.clone(), Arc::new(shape));
                let next = TableId(schema.numbers.len());
                schema.numbers.entry(table.clone()).or_insert(next);
            }
            let here = (!group.streams.is_empty()).then_some(node);
            for node in here.into_iter().chain(archived().map(|one| &one.node)) {
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

    /// The number of a table of [`Self::shapes`].
    pub(crate) fn table_id(&self, table: &str) -> TableId {
        *self
            .numbers
            .get(table)
            .expect("a table has its shape and its number from the same streams")
    }
}
