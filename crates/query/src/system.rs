//! The system tables: streams, tables, nodes, losses, and the agent's documents.

mod decisions;
mod loss;
mod rules;
mod targets;

use std::path::Path;
use std::sync::Arc;

use barograph_archive::{PartInfo, PartKind};
use barograph_stream::{
    ACTIONS_COLUMNS, ACTIONS_DOCUMENT, CLUSTER_INSIGHTS_COLUMNS, CLUSTER_INSIGHTS_DOCUMENT,
    CONTROLLERS_COLUMNS, CONTROLLERS_DOCUMENT, DECISIONS_COLUMNS, FORECASTS_COLUMNS,
    FORECASTS_DOCUMENT, INSIGHTS_COLUMNS, INSIGHTS_DOCUMENT, INTERFERENCE_COLUMNS,
    INTERFERENCE_DOCUMENT, IO_PHASES_COLUMNS, IO_PHASES_DOCUMENT, KNOBS_COLUMNS, KNOBS_DOCUMENT,
    MAP_SERVERS_COLUMNS, MAP_SERVERS_DOCUMENT, PEERS_COLUMNS, PEERS_DOCUMENT, POLICIES_COLUMNS,
    POLICIES_DOCUMENT, PUBLICATIONS_COLUMNS, PUBLICATIONS_DOCUMENT, QUERY_NODES_COLUMNS,
    QUERY_NODES_DOCUMENT, SERVER_MAPS_COLUMNS, SERVER_MAPS_DOCUMENT, SOURCES_COLUMNS,
    SOURCES_DOCUMENT, SUBSCRIBERS_COLUMNS, SUBSCRIBERS_DOCUMENT, SegmentReader, SegmentState,
    WATCHES_COLUMNS, WATCHES_DOCUMENT,
};
use rusqlite::Result;

use crate::cell::CellRow;
use crate::documents::{document, everywhere, per_scope, private_and_per_scope};
use crate::error::failed;
use crate::functions::{FUNCTIONS, Wide, WideForm, families, publications as publications_of};
use crate::latest;
use crate::listing::{Arguments, Batches, Listing, one, per_stream, table};
use crate::live::Live;
use crate::shape::age_ns;
use crate::snapshot::StreamsSnapshot;
use crate::stream::SnapshotStream;
use rules::{CALLS, CALLS_BEFORE, RULES, RULES_BEFORE};
use targets::TARGETS_COLUMNS;

/// All system tables.
pub(crate) static SYSTEM: [Listing; 29] = [
    Listing {
        name: "streams",
        kind: "system",
        help: "all streams, with their descriptors and the number of samples kept",
        columns: STREAMS_COLUMNS,
        arguments: &[],
        produce: |live, _| per_stream(live, |snapshot, stream| Some(stream_row(snapshot, stream))),
    },
    Listing {
        name: "latest",
        kind: "system",
        help: "the newest sample of every stream, or of those that match; with allow_predicted => 1, the predicted value of now of the streams that have a forecast",
        columns: latest::LATEST_COLUMNS,
        arguments: &["pattern", "allow_predicted"],
        produce: latest::latest,
    },
    Listing {
        name: "tables",
        kind: "system",
        help: "all tables and table functions",
        columns: TABLES_COLUMNS,
        arguments: &[],
        produce: tables,
    },
    Listing {
        name: "nodes",
        kind: "system",
        help: "the nodes that this node knows",
        columns: NODES_COLUMNS,
        arguments: &[],
        produce: nodes,
    },
    Listing {
        name: "peers",
        kind: "system",
        help: "the other nodes of the cluster: when they were heard, the round trip, how far their clock is ahead, and what of them is mirrored here",
        columns: PEERS_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, PEERS_DOCUMENT, PEERS_COLUMNS),
    },
    Listing {
        name: "subscribers",
        kind: "system",
        help: "the nodes to which streams of this node are sent: how much was sent to each, and what was given up",
        columns: SUBSCRIBERS_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, SUBSCRIBERS_DOCUMENT, SUBSCRIBERS_COLUMNS),
    },
    Listing {
        name: "query_nodes",
        kind: "system",
        help: "what has come of the last statements over nodes, on each node; without their text, since all users see it",
        columns: QUERY_NODES_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, QUERY_NODES_DOCUMENT, QUERY_NODES_COLUMNS),
    },
    Listing {
        name: "loss",
        kind: "system",
        help: "numbers of samples and events that were refused or dropped, by reason",
        columns: loss::LOSS_COLUMNS,
        arguments: &[],
        produce: loss::loss,
    },
    Listing {
        name: "archive",
        kind: "system",
        help: "the files of the archive: log segments, and Parquet files of each tier",
        columns: ARCHIVE_COLUMNS,
        arguments: &[],
        produce: archive,
    },
    Listing {
        name: "sources",
        kind: "system",
        help: "the sources: what each of them sees, and what is missing and why",
        columns: SOURCES_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, SOURCES_DOCUMENT, SOURCES_COLUMNS),
    },
    Listing {
        name: "insights",
        kind: "system",
        help: "the insights, with their SQL, inputs and state",
        columns: INSIGHTS_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, INSIGHTS_DOCUMENT, INSIGHTS_COLUMNS),
    },
    Listing {
        name: "cluster_insights",
        kind: "system",
        help: "the insights of the cluster: which node computes each, and how many of its inputs each node has",
        columns: CLUSTER_INSIGHTS_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, CLUSTER_INSIGHTS_DOCUMENT, CLUSTER_INSIGHTS_COLUMNS),
    },
    Listing {
        name: "publications",
        kind: "system",
        help: "publications of running applications; numbers of samples are those of the process",
        columns: PUBLICATIONS_COLUMNS,
        arguments: &[],
        produce: |live, _| per_scope(live, PUBLICATIONS_DOCUMENT, PUBLICATIONS_COLUMNS),
    },
    Listing {
        name: "watches",
        kind: "system",
        help: "the trees whose file events are recorded, with the state of each and what it has missed",
        columns: WATCHES_COLUMNS,
        arguments: &[],
        produce: |live, _| per_scope(live, WATCHES_DOCUMENT, WATCHES_COLUMNS),
    },
    Listing {
        name: "actions",
        kind: "system",
        help: "the newest actions of rules, and the newest dead letters: what became of each",
        columns: ACTIONS_COLUMNS,
        arguments: &[],
        produce: |live, _| private_and_per_scope(live, ACTIONS_DOCUMENT, ACTIONS_COLUMNS),
    },
    CALLS,
    Listing {
        name: "controllers",
        kind: "system",
        help: "the controllers of this agent: what each decides about, whether it is live, paused, in a dry run or held off, by whom, and what it has decided",
        columns: CONTROLLERS_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, CONTROLLERS_DOCUMENT, CONTROLLERS_COLUMNS),
    },
    Listing {
        name: "decisions",
        kind: "system",
        help: "the decisions of controllers, new and archived ones: who may do I/O, how much was to be read and with which I/O weight, why, and what came of it; with since => '-1h', those from then on",
        columns: DECISIONS_COLUMNS,
        arguments: &["since"],
        produce: decisions::decisions,
    },
    Listing {
        name: "io_phases",
        kind: "system",
        help: "the phases of I/O on scheduled volumes: which applications may do I/O, which wait, and the newest that are over",
        columns: IO_PHASES_COLUMNS,
        arguments: &[],
        produce: |live, _| private_and_per_scope(live, IO_PHASES_DOCUMENT, IO_PHASES_COLUMNS),
    },
    Listing {
        name: "server_maps",
        kind: "system",
        help: "the maps of servers: their epochs, what a change waits for, who uses them, and which server is slow; all maps on the node that leads, those of its own programs on others (seen_by)",
        columns: SERVER_MAPS_COLUMNS,
        arguments: &[],
        produce: |live, _| private_and_per_scope(live, SERVER_MAPS_DOCUMENT, SERVER_MAPS_COLUMNS),
    },
    Listing {
        name: "map_servers",
        kind: "system",
        help: "the servers of maps on the node that leads: whether they are in the map, taken out, spare or gone, and their load",
        columns: MAP_SERVERS_COLUMNS,
        arguments: &[],
        produce: |live, _| private_and_per_scope(live, MAP_SERVERS_DOCUMENT, MAP_SERVERS_COLUMNS),
    },
    Listing {
        name: "knobs",
        kind: "system",
        help: "values of running programs that can be set, with their bounds",
        columns: KNOBS_COLUMNS,
        arguments: &[],
        produce: |live, _| per_scope(live, KNOBS_DOCUMENT, KNOBS_COLUMNS),
    },
    RULES,
    Listing {
        name: "forecasts",
        kind: "system",
        help: "forecasts by stream and horizon: the predictor that is followed, the reason, and its recent accuracy",
        columns: FORECASTS_COLUMNS,
        arguments: &[],
        produce: |live, _| everywhere(live, FORECASTS_DOCUMENT, FORECASTS_COLUMNS),
    },
    // A row for each policy and stream; missing fields are NULL, as is the stream of a policy that
    // matches none.
    Listing {
        name: "policies",
        kind: "system",
        help: "the policies by stream: the accepted error between looks, the interval between looks, and the share of looks saved",
        columns: POLICIES_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, POLICIES_DOCUMENT, POLICIES_COLUMNS),
    },
    Listing {
        name: "targets",
        kind: "system",
        help: "where data can be put: the mounted file systems with room, queue, bandwidth that is left and health, each with its age",
        columns: TARGETS_COLUMNS,
        arguments: &[],
        produce: targets::targets,
    },
    // A row for each device, and one for each writer on it.
    Listing {
        name: "interference",
        kind: "system",
        help: "the forecast bandwidth of each device, and the schedules of those who write to it",
        columns: INTERFERENCE_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, INTERFERENCE_DOCUMENT, INTERFERENCE_COLUMNS),
    },
    CALLS_BEFORE,
    RULES_BEFORE,
];

table! {
    STREAMS_COLUMNS, fn stream_row(snapshot: &StreamsSnapshot, stream: &SnapshotStream),
    "name" "TEXT" = stream.name();
    "labels" "TEXT" = stream.labels_json();
    "table_name" "TEXT" = stream.table.as_str();
    "type" "TEXT" = stream.entry.descriptor.value_type.as_str();
    "unit" "TEXT" = stream.unit();
    "kind" "TEXT" = stream.entry.descriptor.kind.as_str();
    "help" "TEXT" = stream.entry.descriptor.help.as_str();
    "id" "TEXT" = stream.entry.series.to_string();
    "depth" "INTEGER" = i64::from(stream.entry.depth);
    "samples" "INTEGER" = stream.counts().1 as i64;
    "interval_ns" "INTEGER" = snapshot.interval_ns(&stream.entry);
    "node" "TEXT" = Arc::clone(&stream.node);
    "slot" "INTEGER" = stream.entry.slot as i64;
    "generation" "INTEGER" = i64::from(stream.entry.generation);
    "created_ts" "INTEGER" = stream.entry.created_ns;
}

table! {
    TABLES_COLUMNS, fn table_row(name: &str, columns: String, kind: &str, help: &str),
    "name" "TEXT" = name;
    "columns" "TEXT" = columns;
    "kind" "TEXT" = kind;
    "help" "TEXT" = help;
}

fn tables(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.current().map_err(failed)?;
    let schema = &snapshot.schema;
    let metrics = schema.metrics().map(|(name, shape)| {
        table_row(name, shape.column_names().join(","), "metric", &shape.help)
    });
    let over_nodes = schema.over_nodes().map(|(metric, _, shape)| {
        let (name, columns) = (format!("cluster_{metric}"), shape.column_names().join(","));
        table_row(&name, columns, "cluster", &shape.help)
    });
    let wide = |form: WideForm, name: &str, what: &str| -> Option<CellRow> {
        let wide = Wide::grown(None, form, name, &schema.shapes)?;
        let (word, arguments) = (form.word(), form.arguments().join(", "));
        let call = format!("{}({arguments})", form.table_of(name));
        let help = format!("{word}('{name}'): {what}");
        Some(table_row(&call, wide.column_names().join(","), word, &help))
    };
    let families = families(schema.everywhere())
        .into_iter()
        .filter_map(|name| {
            let what = "a row per time with a column per metric";
            wide(WideForm::Family, &name, what)
        });
    let frames = publications_of(schema.everywhere()).into_iter();
    let frames = frames.filter_map(|name| {
        let what = "a row per frame with a column per value";
        wide(WideForm::Frames, &name, what)
    });
    let listings = SYSTEM.iter().chain(&FUNCTIONS).map(|listing| {
        let columns: Vec<&str> = listing.columns.iter().map(|(name, _)| *name).collect();
        // A system table that can be called is a table all the same.
        let call = match (listing.kind, listing.arguments) {
            ("system", _) | (_, []) => listing.name.to_owned(),
            (_, arguments) => format!("{}({})", listing.name, arguments.join(", ")),
        };
        table_row(&call, columns.join(","), listing.kind, listing.help)
    });
    let rows = metrics
        .chain(over_nodes)
        .chain(families)
        .chain(frames)
        .chain(listings);
    Ok(one(rows.collect()))
}

/// The segment of a node whose agent is read here, at a time.
struct OwnNode<'a> {
    segment: &'a SegmentReader,
    streams: usize,
    now_ns: i64,
}

impl OwnNode<'_> {
    fn state(&self) -> &'static str {
        match self.segment.state() {
            SegmentState::Closed => "closed",
            SegmentState::Live if self.segment.is_alive(self.now_ns) => "live",
            SegmentState::Live => "silent",
        }
    }
}

table! {
    NODES_COLUMNS, fn node_row(node: &Arc<str>, own: Option<&OwnNode<'_>>),
    "node" "TEXT" = Arc::clone(node);
    "state" "TEXT" = own.map_or("archived", OwnNode::state);
    "heartbeat_ts" "INTEGER" = own.map(|own| own.segment.heartbeat_ns());
    "age_ns" "INTEGER" = own.map(|own| age_ns(own.now_ns, own.segment.heartbeat_ns()));
    "pid" "INTEGER" = own.map(|own| own.segment.pid() as i64);
    "incarnation" "TEXT" = own.map(|own| own.segment.incarnation().to_string());
    "streams" "INTEGER" = own.map(|own| own.streams as i64);
    "streams_max" "INTEGER" = own.map(|own| own.segment.streams_max() as i64);
}

fn nodes(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.attend().map_err(failed)?;
    let mut rows: Vec<CellRow> = Vec::new();
    let own = snapshot.own();
    if let Some(segment) = own.segment() {
        let (streams, now_ns) = (own.streams().len(), live.now_ns());
        let known = OwnNode {
            segment,
            streams,
            now_ns,
        };
        rows.push(node_row(&own.node, Some(&known)));
    }
    let mirrors = snapshot
        .parts
        .iter()
        .filter(|part| part.is_mirror_of_node());
    for part in mirrors.clone() {
        let known = part.segment().map(|segment| OwnNode {
            segment,
            streams: part.streams().len(),
            now_ns: live.now_ns(),
        });
        rows.push(node_row(&part.node, known.as_ref()));
    }
    let mut archived: Vec<&Arc<str>> = snapshot.schema.nodes.values().flatten().collect();
    archived.sort();
    archived.dedup();
    let is_mirrored = |node: &Arc<str>| mirrors.clone().any(|part| part.node == *node);
    let is_other =
        |node: &&Arc<str>| (own.segment().is_none() || **node != own.node) && !is_mirrored(node);
    rows.extend(
        archived
            .into_iter()
            .filter(is_other)
            .map(|node| node_row(node, None)),
    );
    Ok(one(rows))
}

/// A file of an archive; one that cannot be read has neither kind nor counts.
struct ArchiveFile<'a> {
    node: Option<Arc<str>>,
    path: Option<&'a Path>,
    part: Option<&'a PartInfo>,
}

impl ArchiveFile<'_> {
    fn tier(&self) -> &'static str {
        match self.part.map(|part| part.kind) {
            // The table `loss` has the reason.
            None => "unreadable",
            Some(PartKind::Log) => "log",
            Some(PartKind::Parquet(tier)) => tier.as_str(),
        }
    }
}

table! {
    ARCHIVE_COLUMNS, fn archive_row(file: &ArchiveFile<'_>),
    "node" "TEXT" = file.node.clone();
    "tier" "TEXT" = file.tier();
    "path" "TEXT" = file.path.map(|path| path.display().to_string());
    "rows" "INTEGER" = file.part.map(|part| part.rows as i64);
    "bytes" "INTEGER" = file.part.map(|part| part.bytes as i64);
    "from_ts" "INTEGER" = file.part.map(|part| part.span.from);
    "to_ts" "INTEGER" = file.part.map(|part| part.span.to);
    "first" "INTEGER" = file.part.map(|part| part.sequences.0 as i64);
    "last" "INTEGER" = file.part.map(|part| part.sequences.1 as i64);
    "copied" "BOOLEAN" = file.part.map(|part| i64::from(part.copied));
}

fn archive(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.past().map_err(failed)?;
    let unreadable = |node: Option<&Arc<str>>, path: Option<&Path>| {
        let node = node.cloned();
        archive_row(&ArchiveFile {
            node,
            path,
            part: None,
        })
    };
    let denied = live.archive_faults().into_iter();
    let denied = denied.map(|(_, root)| unreadable(None, root.as_deref()));
    let faults = snapshot.views().flat_map(|view| view.faults());
    let faults = faults.map(|fault| unreadable(Some(&fault.node), Some(&fault.path)));
    let parts = snapshot.views().flat_map(|view| view.parts()).map(|part| {
        let (node, path) = (Some(part.node.clone()), Some(&*part.path));
        archive_row(&ArchiveFile {
            node,
            path,
            part: Some(&part),
        })
    });
    Ok(one(denied.chain(faults).chain(parts).collect()))
}
