//! The system tables: streams, tables, nodes, losses, and the agent's documents.

mod loss;
mod rules;

use std::path::Path;
use std::sync::Arc;

use barograph_archive::{PartInfo, PartKind};
use barograph_stream::{
    FORECASTS_COLUMNS, FORECASTS_DOCUMENT, INSIGHTS_COLUMNS, INSIGHTS_DOCUMENT, KNOBS_COLUMNS,
    KNOBS_DOCUMENT, POLICIES_COLUMNS, POLICIES_DOCUMENT, PUBLICATIONS_COLUMNS,
    PUBLICATIONS_DOCUMENT, SOURCES_COLUMNS, SOURCES_DOCUMENT, SegmentState,
};
use rusqlite::Result;

use crate::cell::{Cell, Row};
use crate::documents::{document, everywhere, per_scope};
use crate::error::failed;
use crate::functions::{FUNCTIONS, Wide, WideForm, families, publications as publications_of};
use crate::latest;
use crate::listing::{Arguments, Batches, Listing, one, per_stream};
use crate::live::Live;
use crate::snapshot::Snapshot;
use crate::stream::Stream;
use rules::{CALLS, CALLS_BEFORE, RULES, RULES_BEFORE};

/// All system tables.
pub(crate) static SYSTEM: [Listing; 16] = [
    Listing {
        name: "streams",
        kind: "system",
        help: "every stream: what it is and how it is kept",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("table_name", "TEXT"),
            ("type", "TEXT"),
            ("unit", "TEXT"),
            ("kind", "TEXT"),
            ("help", "TEXT"),
            ("id", "TEXT"),
            ("depth", "INTEGER"),
            ("samples", "INTEGER"),
            ("interval_ns", "INTEGER"),
            ("node", "TEXT"),
            ("slot", "INTEGER"),
            ("generation", "INTEGER"),
            ("created_ts", "INTEGER"),
        ],
        arguments: &[],
        produce: |live, _| per_stream(live, stream_row),
    },
    Listing {
        name: "latest",
        kind: "system",
        help: "the newest sample of every stream, or of those that match; with allow_predicted => 1 what is expected of now where that is forecast",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("ts", "INTEGER"),
            ("value", ""),
            ("quality", "TEXT"),
            ("error", "REAL"),
            ("node", "TEXT"),
            ("looked", "INTEGER"),
            ("age_ns", "INTEGER"),
            ("unit", "TEXT"),
        ],
        arguments: &["pattern", "allow_predicted"],
        produce: latest::latest,
    },
    Listing {
        name: "tables",
        kind: "system",
        help: "every table and table function",
        columns: &[
            ("name", "TEXT"),
            ("columns", "TEXT"),
            ("kind", "TEXT"),
            ("help", "TEXT"),
        ],
        arguments: &[],
        produce: tables,
    },
    Listing {
        name: "nodes",
        kind: "system",
        help: "the nodes that are known here",
        columns: &[
            ("node", "TEXT"),
            ("state", "TEXT"),
            ("heartbeat_ts", "INTEGER"),
            ("age_ns", "INTEGER"),
            ("pid", "INTEGER"),
            ("incarnation", "TEXT"),
            ("streams", "INTEGER"),
            ("streams_max", "INTEGER"),
        ],
        arguments: &[],
        produce: nodes,
    },
    Listing {
        name: "loss",
        kind: "system",
        help: "what was refused or dropped, counted",
        columns: &[("what", "TEXT"), ("count", "INTEGER"), ("where", "TEXT")],
        arguments: &[],
        produce: loss::loss,
    },
    Listing {
        name: "archive",
        kind: "system",
        help: "every part of the archive: log segments, and Parquet files of each tier",
        columns: &[
            ("node", "TEXT"),
            ("tier", "TEXT"),
            ("path", "TEXT"),
            ("rows", "INTEGER"),
            ("bytes", "INTEGER"),
            ("from_ts", "INTEGER"),
            ("to_ts", "INTEGER"),
            ("first", "INTEGER"),
            ("last", "INTEGER"),
            ("copied", "BOOLEAN"),
        ],
        arguments: &[],
        produce: archive,
    },
    Listing {
        name: "sources",
        kind: "system",
        help: "what each source of facts sees, and what is missing and why",
        columns: SOURCES_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, SOURCES_DOCUMENT, SOURCES_COLUMNS),
    },
    Listing {
        name: "insights",
        kind: "system",
        help: "the insights: their SQL, their inputs and how they are",
        columns: INSIGHTS_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, INSIGHTS_DOCUMENT, INSIGHTS_COLUMNS),
    },
    Listing {
        name: "publications",
        kind: "system",
        help: "what applications publish now; counts of values are those of the process",
        columns: PUBLICATIONS_COLUMNS,
        arguments: &[],
        produce: |live, _| per_scope(live, PUBLICATIONS_DOCUMENT, PUBLICATIONS_COLUMNS),
    },
    CALLS,
    Listing {
        name: "knobs",
        kind: "system",
        help: "values of running programs that may be set, with their bounds",
        columns: KNOBS_COLUMNS,
        arguments: &[],
        produce: |live, _| per_scope(live, KNOBS_DOCUMENT, KNOBS_COLUMNS),
    },
    RULES,
    Listing {
        name: "forecasts",
        kind: "system",
        help: "who predicts each stream that is forecast at each horizon, why, and how well of late",
        columns: FORECASTS_COLUMNS,
        arguments: &[],
        produce: |live, _| everywhere(live, FORECASTS_DOCUMENT, FORECASTS_COLUMNS),
    },
    // A row for each policy and stream; missing fields are NULL, as is the stream of a policy that
    // matches none.
    Listing {
        name: "policies",
        kind: "system",
        help: "the policies: how wrong what is said between looks may be, when each stream is looked at, and what that saves",
        columns: POLICIES_COLUMNS,
        arguments: &[],
        produce: |live, _| document(live, POLICIES_DOCUMENT, POLICIES_COLUMNS),
    },
    CALLS_BEFORE,
    RULES_BEFORE,
];

fn stream_row(snapshot: &Snapshot, stream: &Stream) -> Option<Row> {
    let (entry, (_, held)) = (&stream.entry, stream.counts());
    Some(vec![
        stream.name().into(),
        stream.labels_json().into(),
        stream.table.as_str().into(),
        entry.descriptor.value_type.as_str().into(),
        stream.unit().into(),
        entry.descriptor.kind.as_str().into(),
        entry.descriptor.help.as_str().into(),
        entry.series.to_string().into(),
        i64::from(entry.depth).into(),
        (held as i64).into(),
        snapshot.interval_ns(entry).into(),
        Arc::clone(&stream.node).into(),
        (entry.slot as i64).into(),
        i64::from(entry.generation).into(),
        entry.created_ns.into(),
    ])
}

fn tables(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.current().map_err(failed)?;
    let shapes = &snapshot.schema.shapes;
    let metrics = shapes.iter().map(|(name, shape)| {
        let columns = shape.column_names().join(",");
        vec![
            name.as_str().into(),
            columns.into(),
            "metric".into(),
            shape.help.as_str().into(),
        ]
    });
    let wide = |form: WideForm, name: &str, what: &str| -> Option<Row> {
        let wide = Wide::grown(None, form, name, shapes)?;
        let (word, arguments) = (form.word(), form.arguments().join(", "));
        Some(vec![
            format!("{}({arguments})", form.table_of(name)).into(),
            wide.column_names().join(",").into(),
            word.into(),
            format!("{word}('{name}'): {what}").into(),
        ])
    };
    let families = families(shapes.values()).into_iter().filter_map(|name| {
        let what = "a row per time with a column per metric";
        wide(WideForm::Family, &name, what)
    });
    let frames = publications_of(shapes.values()).into_iter();
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
        vec![
            call.into(),
            columns.join(",").into(),
            listing.kind.into(),
            listing.help.into(),
        ]
    });
    let rows = metrics.chain(families).chain(frames).chain(listings);
    Ok(one(rows.collect()))
}

fn nodes(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.attend().map_err(failed)?;
    let mut rows: Vec<Row> = Vec::new();
    let own = snapshot.own();
    if let Some(segment) = own.segment() {
        let now_ns = live.now_ns();
        let age_ns = now_ns.saturating_sub(segment.heartbeat_ns());
        let state = match segment.state() {
            SegmentState::Closed => "closed",
            SegmentState::Live if segment.is_alive(now_ns) => "live",
            SegmentState::Live => "silent",
        };
        rows.push(vec![
            Arc::clone(&own.node).into(),
            state.into(),
            segment.heartbeat_ns().into(),
            age_ns.into(),
            (segment.pid() as i64).into(),
            segment.incarnation().to_string().into(),
            (own.streams().len() as i64).into(),
            (segment.streams_max() as i64).into(),
        ]);
    }
    let mut archived: Vec<&Arc<str>> = snapshot.schema.nodes.values().flatten().collect();
    archived.sort();
    archived.dedup();
    for node in archived {
        if own.segment().is_none() || *node != own.node {
            let mut row: Row = vec![Arc::clone(node).into(), "archived".into()];
            row.resize(8, Cell::Null);
            rows.push(row);
        }
    }
    Ok(one(rows))
}

fn archive(live: &Arc<Live>, _: &Arguments) -> Result<Batches> {
    let snapshot = live.past().map_err(failed)?;
    let row = |part: PartInfo| -> Row {
        let tier = match part.kind {
            PartKind::Log => "log",
            PartKind::Parquet(tier) => tier.as_str(),
        };
        vec![
            part.node.into(),
            tier.into(),
            part.path.display().to_string().into(),
            (part.rows as i64).into(),
            (part.bytes as i64).into(),
            part.span.from.into(),
            part.span.to.into(),
            (part.sequences.0 as i64).into(),
            (part.sequences.1 as i64).into(),
            i64::from(part.copied).into(),
        ]
    };
    let denied = live.archive_faults().into_iter();
    let denied = denied.map(|(_, root)| unreadable(None, root.as_deref()));
    let faults = snapshot.views().flat_map(|view| view.faults());
    let faults = faults.map(|fault| unreadable(Some(&fault.node), Some(&fault.path)));
    let parts = snapshot.views().flat_map(|view| view.parts()).map(row);
    Ok(one(denied.chain(faults).chain(parts).collect()))
}

/// The row of a file that cannot be read; the table `loss` has the reason.
fn unreadable(node: Option<&Arc<str>>, path: Option<&Path>) -> Row {
    let path = path.map(|path| path.display().to_string());
    let mut row: Row = vec![
        node.map_or(Cell::Null, |node| Arc::clone(node).into()),
        "unreadable".into(),
        path.map_or(Cell::Null, Cell::from),
    ];
    row.resize(10, Cell::Null);
    row
}
